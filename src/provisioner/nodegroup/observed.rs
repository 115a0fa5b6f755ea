//! What there is: the node groups of one InstanceGroup, and their nodes.

use std::collections::BTreeMap;

use super::resolve::Resolved;
use crate::api::InstanceGroupStatus;
use crate::api::spec_error::Problem;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus, NodegroupUpdate};
use crate::aws::{ScalingGroup, Tag};
use crate::ownership::{foreign, owned, taken_over};
use crate::plan::Drift;
use crate::rotation::{Drains, Fleet, Member};

/// A node group with its nodes.
#[derive(Clone, Debug)]
pub struct Group {
    /// As EKS describes it.
    pub nodegroup: Nodegroup,
    /// Its scaling groups; nearly always one.
    pub scaling: Vec<ScalingGroup>,
    /// Their instances with their nodes.
    pub members: Vec<Member>,
}

impl Group {
    /// Its name and its cluster's.
    pub fn name(&self) -> &NodegroupName {
        &self.nodegroup.name
    }

    /// How many nodes AWS steers to: the scaling group's word, which the autoscaler writes; EKS's own may lag behind.
    pub fn desired(&self) -> i32 {
        match self.scaling.as_slice() {
            [] => self.nodegroup.sizes.desired.unwrap_or(self.nodegroup.sizes.min),
            groups => groups.iter().map(|g| g.desired).sum(),
        }
    }

    /// How many of its nodes are Ready.
    pub fn ready(&self) -> i32 {
        i32::try_from(self.members.iter().filter(|m| m.ready()).count()).unwrap_or(i32::MAX)
    }

    /// Names of its scaling groups as the original writes them into the status.
    pub fn scaling_groups(&self) -> String {
        self.nodegroup.scaling_groups.join(",")
    }

    fn is(&self, status: NodegroupStatus) -> bool {
        self.nodegroup.status == status
    }
}

/// Observed state of one InstanceGroup.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Its node groups, in the order of their making.
    pub groups: Vec<Group>,
    /// Somebody else's node group has the name that a new one would get.
    pub taken: Option<NodegroupName>,
    /// A node group that fits but for its age, where nothing is on record.
    pub older: Option<NodegroupName>,
    /// What is wrong with what a new node group would refer to; looked at when one is to be made.
    pub problems: Vec<Problem>,
    /// The policies of AWS that nodes need and that the role lacks; looked at when nodes do not come.
    pub lacking: Vec<String>,
    /// The update that the status names.
    pub update: Option<NodegroupUpdate>,
    /// AWS refused to tag what was taken over, less than a resync period ago.
    pub tagging_rests: bool,
    /// All nodes of the cluster.
    pub fleet: Fleet,
    /// What is on the nodes that carry our record.
    pub drains: Drains,
}

impl State {
    /// Whether a lock keeps a second node group from being made, so that nothing need be known of what it would refer to.
    pub fn holds(&self, lock: Option<&str>) -> bool {
        lock.is_some() && self.groups.iter().any(|group| !group.is(NodegroupStatus::Deleting))
    }
}

/// Tags as ownership is judged by.
pub fn tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect()
}

/// Whose a node group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Made here, or taken over before.
    Ours,
    /// The original's, not tagged yet: it is taken over.
    Found,
    /// It fits, but was there before the InstanceGroup: the original makes its node group after it.
    Older,
    /// Not this group's.
    Others,
}

impl Whose {
    /// Whether it goes with its InstanceGroup.
    pub fn may_go(self) -> bool {
        matches!(self, Whose::Ours | Whose::Found)
    }
}

/// Whether a node group on record is this group's: by its tags, or by the ARN it had, where nobody has claimed it since.
pub fn proven(status: &InstanceGroupStatus, found: &Nodegroup, ownership: &[Tag]) -> bool {
    let Some(managed) = status.managed.as_ref().filter(|m| m.nodegroups.contains(&found.name.to_string())) else {
        return false;
    };
    let held = tags(&found.tags);
    let recorded = managed.nodegroup_arns.iter().find(|arn| **arn == found.arn);
    owned(&held, ownership) || taken_over(&found.arn, &held, recorded, ownership)
}

/// Judges a node group by its tags; one without any of ours by the ARN on record, or by its exact name with the scaling
/// group that the status names, or else with its role and its age: anybody may give an InstanceGroup any name.
pub fn whose(resolved: &Resolved, status: &InstanceGroupStatus, found: &Nodegroup) -> Whose {
    let held = tags(&found.tags);
    if foreign(&held, &resolved.ownership) {
        return Whose::Others;
    }
    if proven(status, found, &resolved.ownership) {
        return Whose::Ours;
    }
    if owned(&held, &resolved.ownership) {
        return if found.name.nodegroup == resolved.wanted.id.name { Whose::Found } else { Whose::Ours };
    }
    let id = &resolved.wanted.id;
    let told = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    let fits = match told {
        Some(told) => found.scaling_groups.join(",") == told,
        None => found.node_role == resolved.wanted.shape.node_role,
    };
    let younger = found.created.is_some_and(|made| made >= id.created);
    match found.name.nodegroup == id.name && fits {
        true if told.is_some() || younger => Whose::Found,
        true => Whose::Older,
        false => Whose::Others,
    }
}

/// What EKS cannot change in place and is wanted otherwise. What the spec leaves out is left as it is.
pub fn differences(resolved: &Resolved, found: &Nodegroup) -> Vec<Drift> {
    let shape = &resolved.wanted.shape;
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
pub fn version_differences(resolved: &Resolved, found: &Nodegroup) -> Vec<Drift> {
    let w = &resolved.wanted;
    let one = |field: &str, from: &String, to: &Option<String>| {
        to.as_ref().filter(|to| *to != from).map(|to| Drift::new(field, from, to))
    };
    one("version", &found.version, &w.version)
        .into_iter()
        .chain(one("releaseVersion", &found.release_version, &w.release_version))
        .collect()
}

/// Whether a node group was taken over and what was wanted then still is: it is up to date by definition.
pub fn as_taken_over(resolved: &Resolved, status: &InstanceGroupStatus, found: &Nodegroup) -> bool {
    status.template.as_ref().is_some_and(|t| {
        t.adopted_version.as_ref() == Some(&found.name.nodegroup) && t.adopted_hash.as_ref() == Some(&resolved.hash)
    })
}

/// The node groups by what becomes of them.
pub struct Split<'a> {
    /// The one that has what is wanted.
    pub current: Option<&'a Group>,
    /// It is seen for the first time, and another controller made it.
    pub adopting: bool,
    /// The others, in the order of their making.
    pub others: Vec<&'a Group>,
}

/// Splits them. One that AWS is deleting cannot be kept.
pub fn split<'a>(resolved: &Resolved, state: &'a State, status: &InstanceGroupStatus) -> Split<'a> {
    let fits = |group: &Group| {
        !group.is(NodegroupStatus::Deleting)
            && (differences(resolved, &group.nodegroup).is_empty() || as_taken_over(resolved, status, &group.nodegroup))
    };
    let found = |group: &Group| {
        !group.is(NodegroupStatus::Deleting) && whose(resolved, status, &group.nodegroup) == Whose::Found
    };
    let fitting = state.groups.iter().position(fits);
    let at = fitting.or_else(|| state.groups.iter().position(found));
    let others = state.groups.iter().enumerate().filter(|(i, _)| Some(*i) != at).map(|(_, group)| group).collect();
    let current = at.map(|at| &state.groups[at]);
    Split { current, adopting: current.is_some_and(found), others }
}
