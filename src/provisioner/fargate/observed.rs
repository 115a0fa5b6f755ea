//! What there is: the group's profiles, its role, its way to join.

use super::names::ProfileNames;
use super::resolve::{ResolvedGroup, immutable_drift};
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries as join;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{AccessEntry, Role, Tag};
use crate::index::groups::QueuePosition;
use crate::ownership::{has_foreign_tags, has_ownership_tags};

/// Observed state of one group.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// Profiles whose names the group could have given, whoever's they are.
    pub profiles: Vec<FargateProfile>,
    /// Whether our own role is there and has its policy.
    pub is_role_ready: bool,
    /// Our own role; looked at when it is not ready, and when a profile is taken over.
    pub role: Option<Role>,
    /// How the role joins.
    pub join_state: join::ObservedEntries,
    /// What a role that was in use before has left: entries of ours in aws-auth that no group needs.
    pub unused_auth_entries: Vec<AuthEntry>,
    /// The same of access entries.
    pub unused_access_entries: Vec<AccessEntry>,
    /// Former roles whose entry in aws-auth stays, and on record: other groups may need it.
    pub kept_auth_entries: Vec<String>,
    /// Former roles whose access entry stays likewise.
    pub kept_access_entries: Vec<String>,
    /// The role of our own that was in use before the spec named another one.
    pub previous_role: Option<PreviousRole>,
    /// Another group uses the role that was derived for this one.
    pub is_derived_role_shared: bool,
    /// AWS refused to tag what was taken over, less than a resync period ago.
    pub tag_retry_pending: bool,
    /// Where it stands among the groups of the cluster that wait for EKS.
    pub queue_position: QueuePosition,
}

/// A role of our own that is to go.
#[derive(Clone, Debug)]
pub struct PreviousRole {
    /// The role, tags included.
    pub role: Role,
    /// Its attached policies.
    pub attached_policies: Vec<String>,
    /// Its inline policies.
    pub inline_policies: Vec<String>,
}

/// The id of a role, as it was when its access entry was seen last.
pub fn recorded_role_id<'s>(status: &'s InstanceGroupStatus, role_arn: &str) -> Option<&'s String> {
    let join = status.join.as_ref().filter(|_| status.nodes_instance_role_arn.as_deref() == Some(role_arn));
    join.and_then(|join| join.role_id.as_ref())
}

/// Whether a profile that carries nobody's tags was made for this group: it has the derived name, and the role that the
/// group names, or that was derived for it.
pub fn is_adoptable(
    profile: &FargateProfile,
    names: &ProfileNames,
    given_role: Option<&str>,
    ownership: &[Tag],
) -> bool {
    let role = profile.role_arn.rsplit_once('/').map_or("", |(_, name)| name);
    profile.name == names.first_profile
        && !has_ownership_tags(&profile.tags, ownership)
        && !has_foreign_tags(&profile.tags, ownership)
        && (role == names.role || given_role == Some(&profile.role_arn))
}

/// Whether the derived names belong to another group, whose names read the same. A group that has a profile under them
/// keeps them: the other one's later names differ from its own.
pub fn name_conflict(profiles: &[FargateProfile], names: &ProfileNames, ownership: &[Tag]) -> bool {
    let theirs = |p: &FargateProfile| p.name == names.first_profile && has_foreign_tags(&p.tags, ownership);
    profiles.iter().any(theirs) && !profiles.iter().any(|p| has_ownership_tags(&p.tags, ownership))
}

/// What was found of this group.
pub struct ObservedProfiles<'a> {
    /// Profiles that carry its tags, and the one that is taken over.
    pub own: Vec<&'a FargateProfile>,
    /// The one among them that lacks the tags.
    pub untagged: Option<&'a FargateProfile>,
    /// A profile of the derived name that nothing proves to be this group's, which has none.
    pub foreign_profile: Option<&'a FargateProfile>,
}

impl<'a> ObservedProfiles<'a> {
    /// Tells own profiles from others.
    pub fn classify(resolved: &ResolvedGroup, state: &'a ObservedState, status: &InstanceGroupStatus) -> Self {
        let r = resolved;
        let adopted = status.fargate.as_ref().is_some_and(|f| f.adopted_hash.is_some());
        let is_first =
            |p: &&&FargateProfile| p.name == r.names.first_profile && !has_ownership_tags(&p.tags, &r.ownership_tags);
        let first = state.profiles.iter().find(|p| is_first(&p));
        let ours = |p: &&FargateProfile| {
            is_adoptable(p, &r.names, r.desired.existing_role.as_deref(), &r.ownership_tags)
                || (adopted && !has_foreign_tags(&p.tags, &r.ownership_tags))
        };
        let untagged = first.filter(ours);
        let own: Vec<_> =
            state.profiles.iter().filter(|p| has_ownership_tags(&p.tags, &r.ownership_tags)).chain(untagged).collect();
        ObservedProfiles { foreign_profile: first.filter(|_| own.is_empty()), own, untagged }
    }

    /// The profile that does what is wanted now.
    pub fn current(&self, resolved: &ResolvedGroup, adopted: Option<&String>) -> Option<&'a FargateProfile> {
        let active = self.own.iter().filter(|p| p.status == ProfileStatus::Active);
        active.copied().find(|p| is_current(p, resolved, adopted))
    }

    /// One in a status.
    pub fn with_status(&self, status: ProfileStatus) -> Option<&'a FargateProfile> {
        self.own.iter().copied().find(|p| p.status == status)
    }
}

/// Whether a profile holds what is wanted, or counts as if it did since it was taken over, with this hash.
pub fn is_current(profile: &FargateProfile, resolved: &ResolvedGroup, adopted: Option<&String>) -> bool {
    let as_taken_over = profile.name == resolved.names.first_profile && adopted == Some(&resolved.hash);
    as_taken_over || immutable_drift(resolved, profile).is_empty()
}
