//! Whose a profile is that is there when its group is to go. Pure.

use super::names::ProfileNames;
use super::observed::fits;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::fargate::FargateProfile;
use crate::ownership::{foreign, owned};

/// What tells whose a profile is that carries nobody's tags, beside its derived name.
#[derive(Debug, Default)]
pub struct Evidence<'a> {
    /// Roles that the group's profile may have, beside the derived one.
    roles: Vec<&'a str>,
    /// It was taken over.
    adopted: bool,
    /// The role that a spec names which is refused, where we have no record: it may name anybody's.
    claimed: Option<&'a str>,
}

impl<'a> Evidence<'a> {
    /// From the role that the spec names, which is believed unless the spec is refused, and from our own record.
    pub fn of(named: Option<&'a str>, refused: bool, status: &'a InstanceGroupStatus) -> Self {
        let named = named.filter(|arn| !arn.is_empty());
        let record = status.fargate.as_ref().filter(|_| recorded(status).is_some());
        let known = record.and(status.nodes_instance_role_arn.as_deref());
        Evidence {
            roles: known.into_iter().chain(named.filter(|_| !refused)).collect(),
            adopted: record.is_some_and(|record| record.adopted_hash.is_some()),
            claimed: named.filter(|_| refused && record.is_none()),
        }
    }
}

/// The cluster in which we made something for the group, or were about to.
pub fn recorded(status: &InstanceGroupStatus) -> Option<&String> {
    status.fargate.as_ref()?.cluster.as_ref().filter(|name| !name.is_empty())
}

/// Whether the status says that something was made. Here the cluster is recorded before; another controller records that
/// the group is ready, which does not outlast a refusal of its spec.
pub fn made(status: &InstanceGroupStatus) -> bool {
    let ready = |state: &str| ["Ready", "ReconcileModified"].contains(&state);
    recorded(status).is_some() || status.current_state.as_deref().is_some_and(ready)
}

/// The profiles of a group that is to go.
#[derive(Debug, Default)]
pub struct Left {
    /// Those that carry its tags.
    pub own: Vec<FargateProfile>,
    /// One without them that another controller made for it.
    pub untagged: Option<FargateProfile>,
    /// One without them of which only a spec that is refused says that it is the group's.
    pub unproven: Option<FargateProfile>,
}

impl Left {
    /// Tells them apart; `names` are the derived ones.
    pub fn of(found: Vec<FargateProfile>, names: &ProfileNames, ownership: &[Tag], evidence: &Evidence) -> Self {
        let bare =
            |p: &FargateProfile| p.name == names.first && !owned(&p.tags, ownership) && !foreign(&p.tags, ownership);
        let known = |p: &FargateProfile| {
            let fits = |role: Option<&str>| fits(p, names, role, ownership);
            bare(p) && (evidence.adopted || fits(None) || evidence.roles.iter().any(|role| fits(Some(role))))
        };
        let claimed = |p: &FargateProfile| bare(p) && !known(p) && evidence.claimed == Some(p.role_arn.as_str());
        Left {
            untagged: found.iter().find(|p| known(p)).cloned(),
            unproven: found.iter().find(|p| claimed(p)).cloned(),
            own: found.into_iter().filter(|p| owned(&p.tags, ownership)).collect(),
        }
    }
}
