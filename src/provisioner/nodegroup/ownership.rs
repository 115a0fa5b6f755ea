//! Decides which InstanceGroup owns a node group, from its tags, its name and the group's records. Pure.

use std::collections::BTreeMap;

use super::names::is_derived_name;
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::nodegroup::Nodegroup;
use crate::ownership::{has_foreign_tags, has_ownership_tags, is_adopted};
use crate::provisioner::GroupId;

/// Converts a tag map to a list, as the ownership checks take it.
pub(crate) fn to_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect()
}

/// The owner of a node group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Created or already adopted by this group.
    Ours,
    /// Created by Keiko controller for this group and not adopted yet.
    Found,
    /// It matches, but nothing shows that Keiko controller created it for this group.
    Unproven,
    /// Not owned by this group.
    Others,
}

impl Owner {
    /// Whether it is deleted together with its InstanceGroup.
    pub(crate) fn is_deletable(self) -> bool {
        matches!(self, Owner::Ours | Owner::Found)
    }
}

/// Whether this group owns a recorded node group: by its tags, or by its recorded ARN if the group derives its name and no
/// other group has tagged it. The status alone proves nothing about a node group of another name.
pub(crate) fn is_owned(id: &GroupId, status: &InstanceGroupStatus, found: &Nodegroup, ownership: &[Tag]) -> bool {
    let Some(managed) = status.managed.as_ref().filter(|m| m.nodegroups.contains(&found.name.to_string())) else {
        return false;
    };
    let tags = to_tags(&found.tags);
    let is_derived = is_derived_name(&found.name, id);
    let recorded = managed.nodegroup_arns.iter().find(|arn| **arn == found.arn).filter(|_| is_derived);
    has_ownership_tags(&tags, ownership) || is_adopted(&found.arn, &tags, recorded, ownership)
}

/// Classifies the owner of a node group. Tags decide first, then the recorded ARN. Without either, its exact name counts
/// together with the scaling group in status, or else with its role and age. The name alone is not proof. Once this controller
/// has reported on the group, the age is not proof either: Keiko controller no longer creates node groups for it.
pub fn owner_of(resolved: &ResolvedGroup, status: &InstanceGroupStatus, found: &Nodegroup) -> Owner {
    let tags = to_tags(&found.tags);
    if has_foreign_tags(&tags, &resolved.ownership_tags) {
        return Owner::Others;
    }
    if is_owned(&resolved.desired.id, status, found, &resolved.ownership_tags) {
        return Owner::Ours;
    }
    if has_ownership_tags(&tags, &resolved.ownership_tags) {
        return if found.name.nodegroup == resolved.desired.id.name { Owner::Found } else { Owner::Ours };
    }
    let id = &resolved.desired.id;
    let recorded_group = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    let fits = match recorded_group {
        Some(recorded) => found.scaling_groups.join(",") == recorded,
        None => found.node_role == resolved.desired.immutable.node_role,
    };
    let is_reported = status.observed_generation.is_some();
    let younger = !is_reported && found.created.is_some_and(|created| created >= id.created_at);
    match found.name.nodegroup == id.name && fits {
        true if recorded_group.is_some() || younger => Owner::Found,
        true => Owner::Unproven,
        false => Owner::Others,
    }
}
