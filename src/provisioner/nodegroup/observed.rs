//! The observed state of a group: its node groups and their nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::drift::{immutable_drift, is_unchanged_since_adoption};
use super::ownership::{Owner, UnprovenNodegroup, owner_of};
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::api::spec_error::SpecError;
use crate::aws::ScalingGroup;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus, NodegroupUpdate};
use crate::rotation::{ClusterHealth, Drains, NodeInstance};

/// A node group with its nodes.
#[derive(Clone, Debug)]
pub struct ObservedNodegroup {
    /// As EKS describes it.
    pub nodegroup: Nodegroup,
    /// Its scaling groups; usually one.
    pub scaling_groups: Vec<ScalingGroup>,
    /// The instances of its scaling groups, with their nodes.
    pub members: Vec<NodeInstance>,
}

impl ObservedNodegroup {
    /// The names of the cluster and the node group.
    pub(crate) fn name(&self) -> &NodegroupName {
        &self.nodegroup.name
    }

    /// The desired number of nodes, from the scaling groups, which the autoscaler changes. The value that EKS reports may lag.
    pub(crate) fn desired_size(&self) -> i32 {
        match self.scaling_groups.as_slice() {
            [] => self.nodegroup.sizes.desired.unwrap_or(self.nodegroup.sizes.min),
            groups => groups.iter().map(|g| g.desired).sum(),
        }
    }

    /// How many of its nodes are Ready.
    pub(crate) fn ready_nodes(&self) -> i32 {
        i32::try_from(self.members.iter().filter(|m| m.is_ready()).count()).unwrap_or(i32::MAX)
    }

    /// Names of its scaling groups, joined as in `status.activeScalingGroupName`.
    pub(crate) fn scaling_group_names(&self) -> String {
        self.nodegroup.scaling_groups.join(",")
    }

    pub(crate) fn has_status(&self, status: NodegroupStatus) -> bool {
        self.nodegroup.status == status
    }
}

/// Observed state of one InstanceGroup.
#[derive(Clone, Debug, Default)]
pub struct ObservedState {
    /// The group's node groups, in order of creation.
    pub nodegroups: Vec<ObservedNodegroup>,
    /// The name that a new node group would get, if another owner's node group has it.
    pub name_conflict: Option<NodegroupName>,
    /// Recorded node groups that EKS still has and whose tags do not prove anymore that this group owns them. They stay
    /// recorded and are left unchanged.
    pub disowned: Vec<Nodegroup>,
    /// The instances of those node groups, with their nodes; read only while nodes have records of this group.
    pub disowned_members: Vec<NodeInstance>,
    /// Outgoing node groups of which AWS does not show the scaling group, each with a Ready node that it still has, and the
    /// current one if EKS could not create it, with a node that served and that AWS does not show.
    pub unlisted_nodes: BTreeMap<NodegroupName, String>,
    /// A matching node group of which nothing proves that it is this group's.
    pub unproven_nodegroup: Option<UnprovenNodegroup>,
    /// Errors in the references of a new node group; checked only if one is about to be created.
    pub reference_errors: Vec<SpecError>,
    /// Required AWS policies that the node role lacks; read only if a node group has issues.
    pub missing_policies: Vec<String>,
    /// The recorded names that the spec dropped and that EKS does not show, although it may soon.
    pub unseen_names: BTreeSet<String>,
    /// The update recorded in status.
    pub update: Option<NodegroupUpdate>,
    /// The Kubernetes version of the cluster; read only if the spec asks for another one than the nodes have, and `None` also
    /// if it could not be read.
    pub cluster_version: Option<String>,
    /// What blocks the pods on the nodes that EKS could not drain, for display; read only after such an update failed.
    pub eviction_blockers: Vec<String>,
    /// AWS denied tagging less than one resync period ago.
    pub tag_retry_pending: bool,
    /// Health of all nodes of the cluster.
    pub cluster_health: ClusterHealth,
    /// The pods on nodes that carry a disruption record of this group.
    pub drains: Drains,
    /// For how long EKS has been working on a node group while nodes were being drained.
    pub pause: SignedDuration,
    /// Whether the scaling group of the current node group was deleted, and no node of it is left.
    pub has_lost_scaling_group: bool,
    /// How long ago this process first saw that EKS could not create the current node group, or that its scaling group
    /// is lost.
    pub creation_failed_for: SignedDuration,
}

impl ObservedState {
    /// Whether a lock prevents a second node group, so that its references need not be read.
    pub fn lock_prevents_creation(&self, lock: Option<&str>) -> bool {
        lock.is_some() && self.nodegroups.iter().any(|group| !group.has_status(NodegroupStatus::Deleting))
    }

    /// Whether nodes in the middle of their drain wait for EKS to finish its work on a node group. The deletion of a node
    /// group keeps them waiting only without a current one, which nothing can be drained for.
    pub fn waits_for_eks(&self, has_current: bool, group_uid: &str) -> bool {
        let is_busy = |group: &ObservedNodegroup| match group.nodegroup.status {
            NodegroupStatus::Creating | NodegroupStatus::Updating => true,
            NodegroupStatus::Deleting => !has_current,
            _ => false,
        };
        let is_draining =
            |group: &ObservedNodegroup| group.members.iter().any(|m| m.disruption_of(group_uid).is_some());
        self.nodegroups.iter().any(is_busy) && self.nodegroups.iter().any(is_draining)
    }
}

/// The node groups, split into the current one and the outgoing ones.
pub struct Partition<'a> {
    /// The node group that matches the spec.
    pub current: Option<&'a ObservedNodegroup>,
    /// Whether the current node group is being adopted from another controller in this reconcile.
    pub is_adopting: bool,
    /// The outgoing node groups, in order of creation.
    pub outgoing: Vec<&'a ObservedNodegroup>,
}

impl<'a> Partition<'a> {
    /// The node group that the recorded update is of. One that EKS does not or did not create has none; the one that it
    /// replaces may have.
    pub(crate) fn updated(&self) -> Option<&'a ObservedNodegroup> {
        let is_created = |group: &&ObservedNodegroup| {
            !matches!(group.nodegroup.status, NodegroupStatus::Creating | NodegroupStatus::CreateFailed)
        };
        self.current.filter(is_created).or(serving_of(&self.outgoing))
    }

    /// The node group that serves: the current one, or the outgoing one that it is to replace.
    pub(crate) fn serving(&self) -> Option<&'a ObservedNodegroup> {
        self.current.or(serving_of(&self.outgoing))
    }
}

/// The outgoing node group that serves while its replacement does not come: the newest one that EKS has created and keeps.
/// Earlier replacements may have failed.
pub(crate) fn serving_of<'a>(outgoing: &[&'a ObservedNodegroup]) -> Option<&'a ObservedNodegroup> {
    let serves = |group: &&&ObservedNodegroup| match group.nodegroup.status {
        NodegroupStatus::Active | NodegroupStatus::Updating | NodegroupStatus::Degraded | NodegroupStatus::Other => {
            true
        }
        NodegroupStatus::Creating
        | NodegroupStatus::CreateFailed
        | NodegroupStatus::Deleting
        | NodegroupStatus::DeleteFailed => false,
    };
    outgoing.iter().rfind(serves).or(outgoing.last()).copied()
}

/// Splits the node groups. A node group that AWS is deleting cannot be the current one.
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
