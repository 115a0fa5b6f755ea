//! What there is: the node groups of one InstanceGroup, and their nodes.

use std::collections::BTreeMap;

use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::api::spec_error::SpecError;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus, NodegroupUpdate};
use crate::aws::{ScalingGroup, Tag};
use crate::ownership::{has_foreign_tags, has_ownership_tags, is_adopted};
use crate::plan::Drift;
use crate::rotation::{ClusterHealth, Drains, NodeInstance};

/// A node group with its nodes.
#[derive(Clone, Debug)]
pub struct ObservedNodegroup {
    /// As EKS describes it.
    pub nodegroup: Nodegroup,
    /// Its scaling groups; nearly always one.
    pub scaling_groups: Vec<ScalingGroup>,
    /// Their instances with their nodes.
    pub members: Vec<NodeInstance>,
}

impl ObservedNodegroup {
    /// Its name and its cluster's.
    pub fn name(&self) -> &NodegroupName {
        &self.nodegroup.name
    }

    /// How many nodes AWS steers to: the scaling group's word, which the autoscaler writes; EKS's own may lag behind.
    pub fn desired_size(&self) -> i32 {
        match self.scaling_groups.as_slice() {
            [] => self.nodegroup.sizes.desired.unwrap_or(self.nodegroup.sizes.min),
            groups => groups.iter().map(|g| g.desired).sum(),
        }
    }

    /// How many of its nodes are Ready.
    pub fn ready_nodes(&self) -> i32 {
        i32::try_from(self.members.iter().filter(|m| m.is_ready()).count()).unwrap_or(i32::MAX)
    }

    /// Names of its scaling groups as the original writes them into the status.
    pub fn scaling_group_names(&self) -> String {
        self.nodegroup.scaling_groups.join(",")
    }

    fn has_status(&self, status: NodegroupStatus) -> bool {
        self.nodegroup.status == status
    }
}

/// Observed state of one InstanceGroup.
#[derive(Clone, Debug, Default)]
pub struct ObservedState {
    /// Its node groups, in the order of their making.
    pub nodegroups: Vec<ObservedNodegroup>,
    /// Somebody else's node group has the name that a new one would get.
    pub name_conflict: Option<NodegroupName>,
    /// A node group that fits but for its age, where nothing is on record.
    pub predating_nodegroup: Option<NodegroupName>,
    /// What is wrong with what a new node group would refer to; looked at when one is to be made.
    pub reference_errors: Vec<SpecError>,
    /// The policies of AWS that nodes need and that the role lacks; looked at when nodes do not come.
    pub missing_policies: Vec<String>,
    /// The update that the status names.
    pub update: Option<NodegroupUpdate>,
    /// AWS refused to tag what was taken over, less than a resync period ago.
    pub tag_retry_pending: bool,
    /// All nodes of the cluster.
    pub cluster_health: ClusterHealth,
    /// What is on the nodes that carry our record.
    pub drains: Drains,
}

impl ObservedState {
    /// Whether a lock keeps a second node group from being made, so that nothing need be known of what it would refer to.
    pub fn lock_prevents_creation(&self, lock: Option<&str>) -> bool {
        lock.is_some() && self.nodegroups.iter().any(|group| !group.has_status(NodegroupStatus::Deleting))
    }
}

/// Tags as ownership is judged by.
pub fn to_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect()
}

/// Whose a node group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Made here, or taken over before.
    Ours,
    /// The original's, not tagged yet: it is taken over.
    Found,
    /// It fits, but was there before the InstanceGroup: the original makes its node group after it.
    Older,
    /// Not this group's.
    Others,
}

impl Owner {
    /// Whether it goes with its InstanceGroup.
    pub fn is_deletable(self) -> bool {
        matches!(self, Owner::Ours | Owner::Found)
    }
}

/// Whether a node group on record is this group's: by its tags, or by the ARN it had, where nobody has claimed it since.
pub fn is_owned(status: &InstanceGroupStatus, found: &Nodegroup, ownership: &[Tag]) -> bool {
    let Some(managed) = status.managed.as_ref().filter(|m| m.nodegroups.contains(&found.name.to_string())) else {
        return false;
    };
    let held = to_tags(&found.tags);
    let recorded = managed.nodegroup_arns.iter().find(|arn| **arn == found.arn);
    has_ownership_tags(&held, ownership) || is_adopted(&found.arn, &held, recorded, ownership)
}

/// Judges a node group by its tags; one without any of ours by the ARN on record, or by its exact name with the scaling
/// group that the status names, or else with its role and its age: anybody may give an InstanceGroup any name.
pub fn owner_of(resolved: &ResolvedGroup, status: &InstanceGroupStatus, found: &Nodegroup) -> Owner {
    let held = to_tags(&found.tags);
    if has_foreign_tags(&held, &resolved.ownership_tags) {
        return Owner::Others;
    }
    if is_owned(status, found, &resolved.ownership_tags) {
        return Owner::Ours;
    }
    if has_ownership_tags(&held, &resolved.ownership_tags) {
        return if found.name.nodegroup == resolved.desired.id.name { Owner::Found } else { Owner::Ours };
    }
    let id = &resolved.desired.id;
    let told = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    let fits = match told {
        Some(told) => found.scaling_groups.join(",") == told,
        None => found.node_role == resolved.desired.immutable.node_role,
    };
    let younger = found.created.is_some_and(|made| made >= id.created_at);
    match found.name.nodegroup == id.name && fits {
        true if told.is_some() || younger => Owner::Found,
        true => Owner::Older,
        false => Owner::Others,
    }
}

/// What EKS cannot change in place and is wanted otherwise. What the spec leaves out is left as it is.
pub fn immutable_drift(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<Drift> {
    let shape = &resolved.desired.immutable;
    let mut all = Vec::new();
    let mut differs = |field: &str, from: &str, to: &str| {
        if from != to {
            all.push(Drift::new(field, from, to));
        }
    };
    differs("nodeRole", &found.node_role, &shape.node_role);
    differs("subnets", &found.subnets.join(", "), &shape.subnets.join(", "));
    if !shape.instance_types.is_empty() {
        let field = if shape.instance_types.len() == 1 { "instanceType" } else { "instanceTypes" };
        differs(field, &found.instance_types.join(", "), &shape.instance_types.join(", "));
    }
    if let Some(capacity) = &shape.capacity_type {
        differs("capacityType", &found.capacity_type, capacity);
    }
    if let Some(ami) = &shape.ami_type {
        differs("amiType", &found.ami_type, ami);
    }
    if let (Some(size), Some(there)) = (shape.disk_size, found.disk_size) {
        differs("volSize", &there.to_string(), &size.to_string());
    }
    let key = |key: &Option<String>| key.clone().unwrap_or_default();
    differs("keyPairName", &key(&found.key_pair), &key(&shape.key_pair));
    if shape.key_pair.is_some() {
        differs("securityGroups", &found.security_groups.join(", "), &shape.security_groups.join(", "));
    }
    all
}

/// Where the version or the release of the image is wanted otherwise.
pub fn version_drift(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<Drift> {
    let w = &resolved.desired;
    let one = |field: &str, from: &String, to: &Option<String>| {
        to.as_ref().filter(|to| *to != from).map(|to| Drift::new(field, from, to))
    };
    one("version", &found.version, &w.version)
        .into_iter()
        .chain(one("releaseVersion", &found.release_version, &w.release_version))
        .collect()
}

/// Whether a node group was taken over and what was wanted then still is: it is up to date by definition.
pub fn is_unchanged_since_adoption(resolved: &ResolvedGroup, status: &InstanceGroupStatus, found: &Nodegroup) -> bool {
    status.template.as_ref().is_some_and(|t| {
        t.adopted_version.as_ref() == Some(&found.name.nodegroup) && t.adopted_hash.as_ref() == Some(&resolved.hash)
    })
}

/// The node groups by what becomes of them.
pub struct Partition<'a> {
    /// The one that has what is wanted.
    pub current: Option<&'a ObservedNodegroup>,
    /// It is seen for the first time, and another controller made it.
    pub is_adopting: bool,
    /// The others, in the order of their making.
    pub outgoing: Vec<&'a ObservedNodegroup>,
}

/// Splits them. One that AWS is deleting cannot be kept.
pub fn partition<'a>(
    resolved: &ResolvedGroup,
    state: &'a ObservedState,
    status: &InstanceGroupStatus,
) -> Partition<'a> {
    let fits = |group: &ObservedNodegroup| {
        !group.has_status(NodegroupStatus::Deleting)
            && (immutable_drift(resolved, &group.nodegroup).is_empty()
                || is_unchanged_since_adoption(resolved, status, &group.nodegroup))
    };
    let found = |group: &ObservedNodegroup| {
        !group.has_status(NodegroupStatus::Deleting) && owner_of(resolved, status, &group.nodegroup) == Owner::Found
    };
    let fitting = state.nodegroups.iter().position(fits);
    let at = fitting.or_else(|| state.nodegroups.iter().position(found));
    let outgoing =
        state.nodegroups.iter().enumerate().filter(|(i, _)| Some(*i) != at).map(|(_, group)| group).collect();
    let current = at.map(|at| &state.nodegroups[at]);
    Partition { current, is_adopting: current.is_some_and(found), outgoing }
}
