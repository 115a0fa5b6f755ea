//! Decides which group owns a Fargate profile, from its tags, its name and the group's records. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::names::ProfileNames;
use crate::api::InstanceGroupStatus;
use crate::api::names::tag;
use crate::aws::fargate::FargateProfile;
use crate::aws::{Tag, tag_map};
use crate::ownership::{OWNERSHIP_TAG_KEYS, disowned_outcome, group_list, has_foreign_tags, has_ownership_tags};
use crate::plan::{Outcome, StalledReason};

/// Evidence for the owner of a profile that has the derived name and no ownership tags.
#[derive(Debug, Default)]
pub struct OwnershipEvidence<'a> {
    /// Roles that the group's profile may have besides the derived one.
    roles: Vec<&'a str>,
    /// Whether the profile was adopted.
    was_adopted: bool,
    /// The profiles that the status records.
    recorded: &'a [String],
    /// The role named by a rejected spec without a record. It is not proof: such a spec may name any role.
    rejected_spec_role: Option<&'a str>,
    /// Other groups of the same derived names (`namespace/name`), to which the profile may belong as well.
    rivals: BTreeSet<String>,
}

impl<'a> OwnershipEvidence<'a> {
    /// Collects evidence from the status and from the role that the spec names. The spec counts only if it is not rejected.
    pub fn from_status(named: Option<&'a str>, is_rejected: bool, status: &'a InstanceGroupStatus) -> Self {
        let named = named.filter(|arn| !arn.is_empty());
        let record = status.fargate.as_ref().filter(|_| recorded_cluster(status).is_some());
        let known = record.into_iter().flat_map(|_| recorded_roles(status));
        OwnershipEvidence {
            roles: known.chain(named.filter(|_| !is_rejected)).collect(),
            recorded: record.map_or(&[], |record| &record.profiles),
            was_adopted: record.is_some_and(|record| record.adopted_hash.is_some()),
            rejected_spec_role: named.filter(|_| is_rejected && record.is_none()),
            rivals: BTreeSet::new(),
        }
    }

    /// Adds other groups that the profile may belong to.
    pub(crate) fn with_rivals(self, rivals: BTreeSet<String>) -> Self {
        OwnershipEvidence { rivals, ..self }
    }
}

/// The cluster in which the controller created, or was about to create, resources for the group.
pub(crate) fn recorded_cluster(status: &InstanceGroupStatus) -> Option<&String> {
    status.fargate.as_ref()?.cluster.as_ref().filter(|name| !name.is_empty())
}

/// The roles that the profiles of a group have or had: the recorded one, and those with an entry that the controller
/// created. The entry of a previous role stays recorded until no profile uses the role.
pub(crate) fn recorded_roles(status: &InstanceGroupStatus) -> impl Iterator<Item = &str> {
    let managed = status.managed.iter().flat_map(|managed| managed.auth_entries.iter().chain(&managed.access_entries));
    status.nodes_instance_role_arn.iter().chain(managed).map(String::as_str)
}

/// Whether the status shows that AWS resources were created.
pub(crate) fn has_created_resources(status: &InstanceGroupStatus) -> bool {
    status.shows_fargate_profile()
}

/// The remaining profiles of a group that is being deleted.
#[derive(Debug, Default)]
pub struct RemainingProfiles {
    /// Profiles that carry the group's tags.
    pub own: Vec<FargateProfile>,
    /// A profile without ownership tags that another controller created for this group, or that lost its tags.
    pub untagged: Option<FargateProfile>,
    /// Recorded profiles whose tags do not prove anymore that this group owns them.
    pub disowned: Vec<FargateProfile>,
    /// A profile without ownership tags that only a rejected spec links to this group.
    pub unverified: Option<FargateProfile>,
    /// A profile without ownership tags that may as well belong to another group of the same derived names.
    pub contested: Option<FargateProfile>,
    /// The groups, as `namespace/name`, to which `contested` may belong.
    pub rivals: BTreeSet<String>,
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
        let has_role = |p: &FargateProfile| {
            let fits = |role: Option<&str>| is_adoptable(p, names, role, ownership);
            fits(None) || evidence.roles.iter().any(|role| fits(Some(role)))
        };
        let is_known = |p: &FargateProfile| {
            is_untagged(p) && (evidence.was_adopted || (evidence.rivals.is_empty() && has_role(p)))
        };
        let is_unverified = |p: &FargateProfile| {
            is_untagged(p) && !is_known(p) && evidence.rejected_spec_role == Some(p.role_arn.as_str())
        };
        let recorded_owner = |p: &FargateProfile| {
            RecordedOwner::for_profile(p, evidence.recorded, &names.role, &evidence.roles, ownership)
        };
        let is_lost = |p: &FargateProfile| recorded_owner(p) == Some(RecordedOwner::Ours);
        let is_contested = |p: &&FargateProfile| is_untagged(p) && has_role(p) && !is_known(p) && !is_lost(p);
        let is_disowned = |p: &&FargateProfile| {
            recorded_owner(p) == Some(RecordedOwner::Unclear) && !is_known(p) && !is_unverified(p)
        };
        RemainingProfiles {
            untagged: found.iter().find(|p| is_known(p) || is_lost(p)).cloned(),
            unverified: found.iter().find(|p| is_unverified(p)).cloned(),
            disowned: found.iter().filter(is_disowned).cloned().collect(),
            contested: found.iter().find(is_contested).cloned(),
            rivals: evidence.rivals.clone(),
            own: found.into_iter().filter(|p| has_ownership_tags(&p.tags, ownership)).collect(),
        }
    }
}

/// The owner of a profile that the status records and that does not carry the group's three tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedOwner {
    /// All three tags were removed, and the profile has a role of the group. It is tagged again.
    Ours,
    /// The tags were edited, or nothing but the recorded name links the profile to the group. It is left as it is.
    Unclear,
}

impl RecordedOwner {
    /// Classifies a profile whose name the group derives. `None` for one that is not recorded or carries the group's tags,
    /// and for the profile of another group that derives the same name. `own_role` is the name of the derived role, `roles`
    /// are the ARNs of the roles that the group's profiles may have besides it.
    pub(crate) fn for_profile(
        profile: &FargateProfile,
        recorded: &[String],
        own_role: &str,
        roles: &[&str],
        ownership: &[Tag],
    ) -> Option<Self> {
        let is_recorded = recorded.contains(&profile.name) && !has_ownership_tags(&profile.tags, ownership);
        if !is_recorded || has_tags_of_namesake(profile, ownership) {
            return None;
        }
        let has_tag = profile.tags.iter().any(|tag| OWNERSHIP_TAG_KEYS.contains(&tag.key.as_str()));
        let role = profile.role_arn.rsplit_once('/').map_or("", |(_, name)| name);
        let has_own_role = role == own_role || roles.contains(&profile.role_arn.as_str());
        Some(if !has_tag && has_own_role { RecordedOwner::Ours } else { RecordedOwner::Unclear })
    }
}

/// Whether the tags name another group that derives the profile's name too. A name that does not derive from the group in
/// the tags means that the tags were edited.
fn has_tags_of_namesake(profile: &FargateProfile, ownership: &[Tag]) -> bool {
    let (current_tags, own) = (tag_map(&profile.tags), tag_map(ownership));
    let of = |tags: &BTreeMap<&str, &str>| {
        let value = |key| tags.get(key).map(|value| (*value).to_owned());
        Some((value(tag::NAMESPACE)?, value(tag::INSTANCE_GROUP)?))
    };
    let Some((namespace, name)) = of(&current_tags).filter(|group| Some(group) != of(&own).as_ref()) else {
        return false;
    };
    own.get(tag::CLUSTER_NAME).is_some_and(|cluster| ProfileNames::is_plain(cluster, &namespace, &name, &profile.name))
}

/// The outcome while recorded profiles exist whose owner is unclear; `None` without any.
pub(crate) fn ownership_conflict<'a>(
    profiles: impl IntoIterator<Item = &'a FargateProfile>,
    ownership: &[Tag],
    is_deleting: bool,
) -> Option<Outcome> {
    let resources = profiles.into_iter().map(|p| (p.name.as_str(), p.tags.clone()));
    disowned_outcome("the Fargate profile", resources, ownership, "it and its role as they are", is_deleting)
}

/// The outcome while a profile without ownership tags may belong to these other groups as well.
pub(crate) fn contested_profile(
    profile: &FargateProfile,
    rivals: &BTreeSet<String>,
    ownership: &[Tag],
    is_deleting: bool,
) -> Outcome {
    let tags: Vec<_> = ownership.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    let message = format!(
        "the Fargate profile {} may also be that of {}: the controller derives the same name and role for both, and no tags say which group owns it; the controller leaves it as it is; to make it this group's, tag it with {}; otherwise tag it as the other group's, or delete it",
        profile.name,
        group_list(rivals),
        tags.join(", ")
    );
    Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting }
}

/// Whether a profile without ownership tags was created for this group. It has the derived name, and either the role in
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
