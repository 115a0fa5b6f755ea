//! Nodes by their EC2 instance, with what is counted of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::rotation::{ClusterHealth, NodeView};

/// Nodes by the instance in their `providerID`, and what is counted of them with each change, so that no reconcile has
/// to read all nodes.
#[derive(Default)]
pub(super) struct NodesByInstance {
    /// Oldest first. A kubelet sets its `providerID` from its own flags, so several Nodes can claim one instance.
    pub nodes: HashMap<String, Vec<NodeView>>,
    /// The instances whose Nodes carry a record, by the UID in it.
    pub with_records: HashMap<String, BTreeSet<String>>,
    pub health: ClusterHealth,
    /// The number of Ready nodes by zone.
    pub ready_zones: BTreeMap<String, usize>,
}

impl NodesByInstance {
    pub(super) fn find(&self, instance: &str, node: &str) -> Option<&NodeView> {
        self.nodes.get(instance)?.iter().find(|n| n.name == node)
    }

    pub(super) fn insert(&mut self, instance: &str, node: NodeView) {
        self.edit(instance, |nodes| {
            nodes.retain(|n| n.name != node.name);
            nodes.push(node);
            nodes.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
        });
    }

    /// Edits the nodes of an instance, and keeps what is counted of them and the UIDs of their records up to date.
    fn edit(&mut self, instance: &str, edit: impl FnOnce(&mut Vec<NodeView>)) {
        let mut nodes = self.nodes.remove(instance).unwrap_or_default();
        for uid in nodes.iter().flat_map(NodeView::record_uids) {
            if let Some(instances) = self.with_records.get_mut(uid) {
                instances.remove(instance);
                if instances.is_empty() {
                    self.with_records.remove(uid);
                }
            }
        }
        self.health.total -= nodes.len();
        self.health.unready -= count_unready(&nodes);
        for zone in ready_zones(&nodes) {
            if let Some(count) = self.ready_zones.get_mut(zone) {
                *count -= 1;
            }
        }
        self.ready_zones.retain(|_, count| *count > 0);
        edit(&mut nodes);
        self.health.total += nodes.len();
        self.health.unready += count_unready(&nodes);
        for zone in ready_zones(&nodes) {
            *self.ready_zones.entry(zone.to_owned()).or_default() += 1;
        }
        for uid in nodes.iter().flat_map(NodeView::record_uids) {
            self.with_records.entry(uid.to_owned()).or_default().insert(instance.to_owned());
        }
        if !nodes.is_empty() {
            self.nodes.insert(instance.to_owned(), nodes);
        }
    }

    pub(super) fn remove(&mut self, instance: &str, node: &str) {
        self.edit(instance, |nodes| nodes.retain(|n| n.name != node));
    }

    pub(super) fn same_nodes(&self, other: &Self, instance: &str) -> bool {
        match (self.nodes.get(instance), other.nodes.get(instance)) {
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name && same_state(a, b))
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

fn count_unready(nodes: &[NodeView]) -> usize {
    nodes.iter().filter(|node| node.has_become_unready()).count()
}

/// Whether two states of a node are the same for every plan.
pub(super) fn same_state(a: &NodeView, b: &NodeView) -> bool {
    let state = |n: &NodeView| (n.ready, n.kubelet_silent, n.cordoned, n.is_removed_by_autoscaler);
    state(a) == state(b) && (&a.disruption, &a.surge, &a.in_place) == (&b.disruption, &b.surge, &b.in_place)
}

fn ready_zones(nodes: &[NodeView]) -> impl Iterator<Item = &str> {
    nodes.iter().filter(|node| node.ready).filter_map(|node| node.zone.as_deref())
}
