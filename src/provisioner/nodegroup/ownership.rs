//! Decides which InstanceGroup owns a node group, from its tags, its name and the group's records. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{is_derived_name, recorded_nodegroups};
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::api::names::tag;
use crate::aws::Tag;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};
use crate::ownership::{adopted_hash, group_list, has_foreign_tags, has_ownership_tags, is_adopted};
use crate::provisioner::GroupId;

/// Converts a tag map to a list, as the ownership checks take it.
pub(crate) fn to_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect()
}

/// The owner of a node group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Created or already adopted by this group.
    Ours,
    /// Created by Keiko controller for this group and not adopted yet, or adopted with the present spec before the status was
    /// lost.
    Found,
    /// It matches, but nothing proves that it is this group's.
    Unproven(Doubt),
    /// Not owned by this group.
    Others,
}

impl Owner {
    /// Whether it is deleted together with its InstanceGroup.
    pub(crate) fn is_deletable(&self) -> bool {
        matches!(self, Owner::Ours | Owner::Found)
    }
}

/// Why nothing proves that a node group is this group's, although it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing shows that Keiko controller created it for this group.
    NoEvidence,
    /// The status names another scaling group than it has. Keiko controller may have created the node group again, or
    /// another client did.
    OtherScalingGroup {
        /// The scaling group in the status.
        recorded: String,
        /// Its scaling groups; empty while EKS creates it.
        found: String,
    },
    /// These other groups (`namespace/name`) may be served by it as well: their status names it or its scaling group, or
    /// does not say which they have. Keiko controller lets groups of one name share a node group.
    SharedWith(BTreeSet<String>),
}

/// A node group that the controller leaves as it is, because nothing proves that it is this group's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnprovenNodegroup {
    /// Names of the cluster and the node group.
    pub name: NodegroupName,
    /// Why the node group may belong to another owner.
    pub doubt: Doubt,
}

impl UnprovenNodegroup {
    /// Whether other groups may be served by it.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.doubt, Doubt::SharedWith(_))
    }

    /// What is not proven about it, and what its owner can do. `ownership` are the tags that would prove it.
    pub(crate) fn message(&self, ownership: &[Tag]) -> String {
        let name = &self.name.nodegroup;
        let tags: Vec<_> = ownership.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
        let tags = tags.join(", ");
        match &self.doubt {
            Doubt::NoEvidence => format!(
                "the node group {name} exists already and is not provably this group's; to have it adopted, tag it with {tags}; otherwise rename the InstanceGroup"
            ),
            Doubt::OtherScalingGroup { recorded, found } => format!(
                "the status names the scaling group {recorded}, but the node group {name} has {}, so that nothing proves that it is this group's; the controller leaves it as it is, and creates no other one; to make it this group's, tag it with {tags}; otherwise delete it, or remove the finalizer of a deleted InstanceGroup to keep it",
                if found.is_empty() { "none yet" } else { found.as_str() }
            ),
            Doubt::SharedWith(groups) => format!(
                "the node group {name} may also run the nodes of {}: the Keiko controller shares it between groups of one name, and no tags say which group owns it; the controller leaves it as it is; to have this group adopt it, tag it with {tags}; any other group then gets a node group of its own",
                group_list(groups)
            ),
        }
    }
}

/// Whether tags of a node group say which InstanceGroup owns it.
pub(crate) fn names_owner(found: &Nodegroup) -> bool {
    [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().any(|key| found.tags.contains_key(*key))
}

/// Whether the status names the scaling groups of a node group.
pub(crate) fn is_named_by(status: &InstanceGroupStatus, found: &Nodegroup) -> bool {
    let recorded = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    recorded.is_some_and(|recorded| found.scaling_groups.join(",") == recorded)
}

/// Whether a node group without an owner in its tags is the one that Keiko controller created for this group: it has the
/// exact name, and the status names its scaling group.
pub(crate) fn is_keiko_nodegroup(id: &GroupId, status: &InstanceGroupStatus, found: &Nodegroup) -> bool {
    found.name.nodegroup == id.name && !names_owner(found) && is_named_by(status, found)
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
/// has reported on the group, the age is not proof either: Keiko controller no longer creates node groups for it. A node
/// group of another scaling group than the status names is in doubt until this controller has recorded one.
pub fn owner_of(resolved: &ResolvedGroup, status: &InstanceGroupStatus, found: &Nodegroup) -> Owner {
    let tags = to_tags(&found.tags);
    if has_foreign_tags(&tags, &resolved.ownership_tags) {
        return Owner::Others;
    }
    if is_owned(&resolved.desired.id, status, found, &resolved.ownership_tags) {
        return Owner::Ours;
    }
    if has_ownership_tags(&tags, &resolved.ownership_tags) {
        // The spec has changed since the adoption with another hash: the change must be applied.
        let is_unchanged = adopted_hash(&tags).is_none_or(|hash| hash == resolved.hash);
        let has_exact_name = found.name.nodegroup == resolved.desired.id.name;
        return if has_exact_name && is_unchanged { Owner::Found } else { Owner::Ours };
    }
    let id = &resolved.desired.id;
    let has_role = found.node_role == resolved.desired.immutable.node_role;
    let recorded_group = status.active_scaling_group_name.as_ref().filter(|name| !name.is_empty());
    let is_reported = status.observed_generation.is_some();
    let younger = !is_reported && found.created.is_some_and(|created| created >= id.created_at);
    match recorded_group {
        _ if found.name.nodegroup != id.name => Owner::Others,
        Some(_) if is_named_by(status, found) => Owner::Found,
        Some(recorded) if has_role && recorded_nodegroups(status).next().is_none() => {
            let (recorded, found) = (recorded.clone(), found.scaling_groups.join(","));
            Owner::Unproven(Doubt::OtherScalingGroup { recorded, found })
        }
        None if has_role && younger => Owner::Found,
        None if has_role => Owner::Unproven(Doubt::NoEvidence),
        Some(_) | None => Owner::Others,
    }
}
