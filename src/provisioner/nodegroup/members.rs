//! Reads the nodes of node groups from their scaling groups. Makes no decisions.

use std::time::Duration;

use super::observed::{ObservedNodegroup, ObservedState};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::provisioner::join_times;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::rotation::NodeInstance;

/// Reads the nodes of a node group from its scaling groups.
pub(super) async fn read_members(
    o: &Observer<'_>,
    nodegroup: Nodegroup,
    max_age: Duration,
) -> ObserveResult<ObservedNodegroup> {
    let mut scaling_groups = Vec::new();
    for name in &nodegroup.scaling_groups {
        scaling_groups.extend(o.inventory.group(name, max_age).await.map_err(ObserveError::Aws)?);
    }
    let instances = scaling_groups.iter().flat_map(|group| group.instances.clone());
    let members = instances
        .map(|instance| NodeInstance {
            is_recorded_standby: false,
            node: o.node_index.get(&instance.id),
            lost_node: o.node_index.lost_node(&instance.id),
            reasons: Vec::new(),
            in_place: None,
            instance,
        })
        .collect();
    Ok(ObservedNodegroup { nodegroup, scaling_groups, members })
}

/// Reads the nodes of an outgoing node group again if the cluster has a Node of it that the answer of AWS lacks, because
/// that may be older than the node. A detached instance has a Node, too. Remembers a Ready node while AWS does not even
/// show the scaling group that EKS names: EKS would drain it with the deletion of the node group.
pub(super) async fn reread_outgoing(
    o: &Observer<'_>,
    status: &InstanceGroupStatus,
    current: &NodegroupName,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let is_kept =
        |group: &&mut ObservedNodegroup| group.name() != current && !group.has_status(NodegroupStatus::Deleting);
    for group in state.nodegroups.iter_mut().filter(is_kept) {
        let nodes = o.node_index.nodes_of_nodegroup(&group.name().nodegroup);
        let is_listed = |instance: &String| group.members.iter().any(|member| member.instance.id == *instance);
        if nodes.iter().all(|(instance, _)| is_listed(instance)) {
            continue;
        }
        *group = read_members(o, group.nodegroup.clone(), Duration::ZERO).await?;
        join_times::restore(status, group.members.iter_mut().map(|member| &mut member.instance));
        if group.scaling_groups.len() < group.nodegroup.scaling_groups.len()
            && let Some((_, node)) = nodes.into_iter().find(|(_, node)| node.ready)
        {
            state.unlisted_nodes.insert(group.name().clone(), node.name);
        }
    }
    Ok(())
}

/// A node of a node group that EKS could not create, if the node is or was Ready and the answer of AWS, which may be older,
/// lacks it.
pub(super) fn unlisted_node(o: &Observer<'_>, current: &ObservedNodegroup) -> Option<(NodegroupName, String)> {
    if !current.has_status(NodegroupStatus::CreateFailed) {
        return None;
    }
    let is_listed = |instance: &String| current.members.iter().any(|member| member.instance.id == *instance);
    let nodes = o.node_index.nodes_of_nodegroup(&current.name().nodegroup);
    let served = nodes.into_iter().find(|(id, node)| (node.ready || node.was_ready) && !is_listed(id));
    served.map(|(_, node)| (current.name().clone(), node.name))
}
