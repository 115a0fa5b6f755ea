//! Decides which group owns a Fargate profile, from its tags, its name and the group's records. Pure.

use super::names::ProfileNames;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::fargate::FargateProfile;
use crate::ownership::{has_foreign_tags, has_ownership_tags};

/// Evidence for the owner of a profile that has the derived name and no ownership tags.
#[derive(Debug, Default)]
pub struct OwnershipEvidence<'a> {
    /// Roles that the group's profile may have besides the derived one.
    roles: Vec<&'a str>,
    /// Whether the profile was adopted.
    was_adopted: bool,
    /// The role named by a rejected spec without a record. It is not proof: such a spec may name any role.
    rejected_spec_role: Option<&'a str>,
}

impl<'a> OwnershipEvidence<'a> {
    /// Collects evidence from the status and from the role that the spec names. The spec counts only if it is not rejected.
    pub fn from_status(named: Option<&'a str>, is_rejected: bool, status: &'a InstanceGroupStatus) -> Self {
        let named = named.filter(|arn| !arn.is_empty());
        let record = status.fargate.as_ref().filter(|_| recorded_cluster(status).is_some());
        let known = record.and(status.nodes_instance_role_arn.as_deref());
        OwnershipEvidence {
            roles: known.into_iter().chain(named.filter(|_| !is_rejected)).collect(),
            was_adopted: record.is_some_and(|record| record.adopted_hash.is_some()),
            rejected_spec_role: named.filter(|_| is_rejected && record.is_none()),
        }
    }
}

/// The cluster in which the controller created, or was about to create, resources for the group.
pub(crate) fn recorded_cluster(status: &InstanceGroupStatus) -> Option<&String> {
    status.fargate.as_ref()?.cluster.as_ref().filter(|name| !name.is_empty())
}

/// Whether the status shows that AWS resources were created. This controller records the cluster first. Keiko controller
/// sets a ready state, which it replaces when it rejects the spec.
pub(crate) fn has_created_resources(status: &InstanceGroupStatus) -> bool {
    let ready = |state: &str| ["Ready", "ReconcileModified"].contains(&state);
    recorded_cluster(status).is_some() || status.current_state.as_deref().is_some_and(ready)
}

/// The remaining profiles of a group that is being deleted.
#[derive(Debug, Default)]
pub struct RemainingProfiles {
    /// Profiles that carry the group's tags.
    pub own: Vec<FargateProfile>,
    /// A profile without ownership tags that another controller created for this group.
    pub untagged: Option<FargateProfile>,
    /// A profile without ownership tags that only a rejected spec links to this group.
    pub unverified: Option<FargateProfile>,
}

impl RemainingProfiles {
    /// Classifies the profiles. `names` are the plain derived names.
    pub fn classify(
        found: Vec<FargateProfile>,
        names: &ProfileNames,
        ownership: &[Tag],
        evidence: &OwnershipEvidence,
    ) -> Self {
        let is_untagged = |p: &FargateProfile| {
            p.name == names.first_profile
                && !has_ownership_tags(&p.tags, ownership)
                && !has_foreign_tags(&p.tags, ownership)
        };
        let is_known = |p: &FargateProfile| {
            let fits = |role: Option<&str>| is_adoptable(p, names, role, ownership);
            is_untagged(p) && (evidence.was_adopted || fits(None) || evidence.roles.iter().any(|role| fits(Some(role))))
        };
        let is_unverified = |p: &FargateProfile| {
            is_untagged(p) && !is_known(p) && evidence.rejected_spec_role == Some(p.role_arn.as_str())
        };
        RemainingProfiles {
            untagged: found.iter().find(|p| is_known(p)).cloned(),
            unverified: found.iter().find(|p| is_unverified(p)).cloned(),
            own: found.into_iter().filter(|p| has_ownership_tags(&p.tags, ownership)).collect(),
        }
    }
}

/// Whether a profile without ownership tags was created for this group: it has the derived name, and either the role in
/// the spec (`existing_role`) or the role derived for the group.
pub(crate) fn is_adoptable(
    profile: &FargateProfile,
    names: &ProfileNames,
    existing_role: Option<&str>,
    ownership: &[Tag],
) -> bool {
    let role = profile.role_arn.rsplit_once('/').map_or("", |(_, name)| name);
    profile.name == names.first_profile
        && !has_ownership_tags(&profile.tags, ownership)
        && !has_foreign_tags(&profile.tags, ownership)
        && (role == names.role || existing_role == Some(&profile.role_arn))
}

/// Whether another group, for which the same names are derived, owns them. A group that already has a profile keeps the
/// plain names; the other group then uses hashed names.
pub fn name_conflict(profiles: &[FargateProfile], names: &ProfileNames, ownership: &[Tag]) -> bool {
    let is_foreign = |p: &FargateProfile| p.name == names.first_profile && has_foreign_tags(&p.tags, ownership);
    profiles.iter().any(is_foreign) && !profiles.iter().any(|p| has_ownership_tags(&p.tags, ownership))
}
