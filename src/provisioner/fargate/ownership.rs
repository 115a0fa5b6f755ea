//! Whose a profile is that is there when its group is to go. Pure.

use super::names::ProfileNames;
use super::observed::is_adoptable;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::fargate::FargateProfile;
use crate::ownership::{has_foreign_tags, has_ownership_tags};

/// What tells whose a profile is that carries nobody's tags, beside its derived name.
#[derive(Debug, Default)]
pub struct OwnershipEvidence<'a> {
    /// Roles that the group's profile may have, beside the derived one.
    roles: Vec<&'a str>,
    /// It was taken over.
    was_adopted: bool,
    /// The role that a spec names which is refused, where we have no record: it may name anybody's.
    rejected_spec_role: Option<&'a str>,
}

impl<'a> OwnershipEvidence<'a> {
    /// From the role that the spec names, which is believed unless the spec is refused, and from our own record.
    pub fn from_status(named: Option<&'a str>, refused: bool, status: &'a InstanceGroupStatus) -> Self {
        let named = named.filter(|arn| !arn.is_empty());
        let record = status.fargate.as_ref().filter(|_| recorded_cluster(status).is_some());
        let known = record.and(status.nodes_instance_role_arn.as_deref());
        OwnershipEvidence {
            roles: known.into_iter().chain(named.filter(|_| !refused)).collect(),
            was_adopted: record.is_some_and(|record| record.adopted_hash.is_some()),
            rejected_spec_role: named.filter(|_| refused && record.is_none()),
        }
    }
}

/// The cluster in which we made something for the group, or were about to.
pub fn recorded_cluster(status: &InstanceGroupStatus) -> Option<&String> {
    status.fargate.as_ref()?.cluster.as_ref().filter(|name| !name.is_empty())
}

/// Whether the status says that something was made. Here the cluster is recorded before; another controller records that
/// the group is ready, which does not outlast a refusal of its spec.
pub fn has_created_resources(status: &InstanceGroupStatus) -> bool {
    let ready = |state: &str| ["Ready", "ReconcileModified"].contains(&state);
    recorded_cluster(status).is_some() || status.current_state.as_deref().is_some_and(ready)
}

/// The profiles of a group that is to go.
#[derive(Debug, Default)]
pub struct RemainingProfiles {
    /// Those that carry its tags.
    pub own: Vec<FargateProfile>,
    /// One without them that another controller made for it.
    pub untagged: Option<FargateProfile>,
    /// One without them of which only a spec that is refused says that it is the group's.
    pub unverified: Option<FargateProfile>,
}

impl RemainingProfiles {
    /// Tells them apart; `names` are the derived ones.
    pub fn classify(
        found: Vec<FargateProfile>,
        names: &ProfileNames,
        ownership: &[Tag],
        evidence: &OwnershipEvidence,
    ) -> Self {
        let bare = |p: &FargateProfile| {
            p.name == names.first_profile
                && !has_ownership_tags(&p.tags, ownership)
                && !has_foreign_tags(&p.tags, ownership)
        };
        let known = |p: &FargateProfile| {
            let fits = |role: Option<&str>| is_adoptable(p, names, role, ownership);
            bare(p) && (evidence.was_adopted || fits(None) || evidence.roles.iter().any(|role| fits(Some(role))))
        };
        let claimed =
            |p: &FargateProfile| bare(p) && !known(p) && evidence.rejected_spec_role == Some(p.role_arn.as_str());
        RemainingProfiles {
            untagged: found.iter().find(|p| known(p)).cloned(),
            unverified: found.iter().find(|p| claimed(p)).cloned(),
            own: found.into_iter().filter(|p| has_ownership_tags(&p.tags, ownership)).collect(),
        }
    }
}
