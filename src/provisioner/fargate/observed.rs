//! The observed state of a group: its profiles, its role, and its join entries.

use std::collections::BTreeSet;

use super::drift::immutable_drift;
use super::ownership::{RecordedOwner, is_adoptable, recorded_roles};
use super::resolve::ResolvedGroup;
use crate::api::{FargateStatus, InstanceGroupStatus};
use crate::auth::access_entries as join;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{AccessEntry, NewAccessEntry, Role};
use crate::index::groups::QueuePosition;
use crate::ownership::{adopted_hash, has_foreign_tags, has_ownership_tags};
use crate::provisioner::role_region::OtherRegion;
use crate::provisioner::role_users::KeptEntry;

/// Observed state of one group.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// Profiles whose names the group could have derived, regardless of their owner.
    pub profiles: Vec<FargateProfile>,
    /// Whether the controller-created role exists and has its policy.
    pub is_role_ready: bool,
    /// The controller-created role; read while it is not ready, while a profile is adopted or fails, before one is created,
    /// until the status records the region in its tags, and while the status records another id than IAM lists.
    pub role: Option<Role>,
    /// The role's entries in aws-auth and EKS.
    pub join_state: join::ObservedEntries,
    /// Entries that another client deleted from aws-auth, of previous roles that a profile of the group still has.
    pub missing_auth_entries: Vec<AuthEntry>,
    /// Access entries that such roles lack.
    pub missing_access_entries: Vec<NewAccessEntry>,
    /// Owned aws-auth entries of previous roles that no group needs.
    pub unused_auth_entries: Vec<AuthEntry>,
    /// Owned access entries of previous roles that no group needs.
    pub unused_access_entries: Vec<AccessEntry>,
    /// Previous roles whose aws-auth entry is kept and stays recorded: other groups may need it, or a person changed it.
    pub kept_auth_entries: Vec<String>,
    /// Previous roles whose access entry is kept and stays recorded, because other groups may need it.
    pub kept_access_entries: Vec<String>,
    /// Owned entries of previous roles that no group needs, and that stay because another profile uses the role.
    pub entries_of_others: Vec<KeptEntry>,
    /// The controller-created role that was used before the spec named another role.
    pub previous_role: Option<PreviousRole>,
    /// Whether that role may still exist: a role of its name has lost its tags, which may come back, or the role was not
    /// read, because aws-auth, which may have its entry, cannot be parsed.
    pub is_own_role_unknown: bool,
    /// Other groups of the same derived names (`namespace/name`), to which an untagged profile may belong as well.
    pub rivals: BTreeSet<String>,
    /// Whether another group uses the role derived for this group.
    pub is_derived_role_shared: bool,
    /// The recorded keys of tags that the spec dropped and that EKS does not show, although it may soon.
    pub unseen_tags: BTreeSet<String>,
    /// AWS denied tagging less than one resync period ago.
    pub tag_retry_pending: bool,
    /// The group's position in the cluster's queue for Fargate profile operations.
    pub queue_position: QueuePosition,
}

/// A controller-created role that is no longer used.
#[derive(Clone, Debug)]
pub struct PreviousRole {
    /// The role with its tags.
    pub role: Role,
    /// ARNs of its attached policies.
    pub attached_policies: Vec<String>,
    /// Names of its inline policies.
    pub inline_policies: Vec<String>,
    /// Evidence of its use in another region. The role is kept then.
    pub other_region: Option<OtherRegion>,
    /// Name of an instance profile that holds it. The controller creates none for pods, so the role is kept then.
    pub instance_profile: Option<String>,
}

/// The recorded id of a role, from when its access entry was last observed.
pub fn recorded_role_id<'s>(status: &'s InstanceGroupStatus, role_arn: &str) -> Option<&'s String> {
    let join = status.join.as_ref().filter(|_| status.nodes_instance_role_arn.as_deref() == Some(role_arn));
    join.and_then(|join| join.role_id.as_ref())
}

/// The profiles of this group, classified by owner.
pub(crate) struct ObservedProfiles<'a> {
    /// Profiles that carry the group's tags, the adopted one, and those that lost their tags.
    pub own: Vec<&'a FargateProfile>,
    /// Recorded profiles whose three tags were all removed. They are tagged again.
    pub lost_tags: Vec<&'a FargateProfile>,
    /// Recorded profiles whose tags do not prove anymore that this group owns them. They stay recorded.
    pub disowned: Vec<&'a FargateProfile>,
    /// The adopted profile, if it lacks the tags.
    pub untagged: Option<&'a FargateProfile>,
    /// A profile with the derived name that this group does not provably own. Set only if the group has no profile.
    pub foreign_profile: Option<&'a FargateProfile>,
}

impl<'a> ObservedProfiles<'a> {
    /// Classifies the observed profiles by owner.
    pub(crate) fn classify(resolved: &ResolvedGroup, state: &'a ObservedState, status: &InstanceGroupStatus) -> Self {
        let r = resolved;
        let adopted = status.fargate.as_ref().is_some_and(|f| f.adopted_hash.is_some());
        let is_first =
            |p: &&&FargateProfile| p.name == r.names.first_profile && !has_ownership_tags(&p.tags, &r.ownership_tags);
        let first = state.profiles.iter().find(|p| is_first(&p));
        let is_own = |p: &&FargateProfile| {
            (state.rivals.is_empty()
                && is_adoptable(p, &r.names, r.desired.existing_role.as_deref(), &r.ownership_tags))
                || (adopted && !has_foreign_tags(&p.tags, &r.ownership_tags))
        };
        let recorded = status.fargate.as_ref().map_or(&[][..], |f| &f.profiles);
        let roles: Vec<_> = std::iter::once(r.role_arn.as_str()).chain(recorded_roles(status)).collect();
        let recorded_owner =
            |p: &FargateProfile| RecordedOwner::for_profile(p, recorded, &r.names.role, &roles, &r.ownership_tags);
        // A recorded profile that was not adopted had the tags before.
        let untagged = first.filter(is_own).filter(|p| adopted || recorded_owner(p) != Some(RecordedOwner::Ours));
        let of_owner = |owner: RecordedOwner| {
            let others = state.profiles.iter().filter(|p| Some(&p.name) != untagged.map(|p| &p.name));
            others.filter(|p| recorded_owner(p) == Some(owner)).collect::<Vec<_>>()
        };
        let (lost_tags, disowned) = (of_owner(RecordedOwner::Ours), of_owner(RecordedOwner::Unclear));
        let tagged = state.profiles.iter().filter(|p| has_ownership_tags(&p.tags, &r.ownership_tags));
        let own: Vec<_> = tagged.chain(untagged).chain(lost_tags.iter().copied()).collect();
        ObservedProfiles { foreign_profile: first.filter(|_| own.is_empty()), own, lost_tags, disowned, untagged }
    }

    /// The active profile that matches the spec: `serving`, which the status names, if there are several. The pods run on it,
    /// and the others are deleted.
    pub(crate) fn current(
        &self,
        resolved: &ResolvedGroup,
        recorded: Option<&FargateStatus>,
        serving: Option<&str>,
    ) -> Option<&'a FargateProfile> {
        let active = self.own.iter().copied().filter(|p| p.status == ProfileStatus::Active);
        let current: Vec<_> = active.filter(|p| is_current(p, resolved, recorded)).collect();
        current.iter().find(|p| Some(p.name.as_str()) == serving).or(current.first()).copied()
    }

    /// The first own profile with a status.
    pub(crate) fn with_status(&self, status: ProfileStatus) -> Option<&'a FargateProfile> {
        self.own.iter().copied().find(|p| p.status == status)
    }
}

/// Whether a profile matches the spec, or was adopted and the spec (its hash) has not changed since. The profile has that
/// hash in its tags too, for a status that was lost.
pub(crate) fn is_current(profile: &FargateProfile, resolved: &ResolvedGroup, recorded: Option<&FargateStatus>) -> bool {
    let adopted = recorded.and_then(|recorded| recorded.adopted_hash.as_deref());
    let adopted = adopted.or_else(|| adopted_hash(&profile.tags));
    let is_adopted_hash = adopted == Some(resolved.hash.as_str());
    let unchanged_since_adoption = profile.name == resolved.names.first_profile && is_adopted_hash;
    unchanged_since_adoption || immutable_drift(resolved, profile, recorded).is_empty()
}
