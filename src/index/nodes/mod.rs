//! Index of the cluster's nodes by EC2 instance, kept up to date by one watch.

mod by_instance;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::rotation::{ClusterHealth, LostNode, NodeView};
use by_instance::{NodesByInstance, same_state};
pub(crate) use view::{instance_id, node_view, parse_annotation, trim};

/// How long the index remembers a Node that is gone.
const LOST_NODE_RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// The nodes that the watch has returned.
#[derive(Default)]
pub(crate) struct NodeIndex {
    inner: Mutex<KnownNodes>,
}

/// The nodes with what the watch returned of them before.
#[derive(Default)]
struct KnownNodes {
    nodes: NodesByInstance,
    /// Built during a relist and swapped in when it is complete, so that readers never see a partial list.
    relisted: Option<NodesByInstance>,
    /// Nodes that were Ready and are gone, by instance. They only explain, as text, why an instance has no node.
    lost: HashMap<String, LostNode>,
    /// Names of nodes whose drain pods will block.
    drain_last: BTreeSet<String>,
    synced: bool,
}

impl KnownNodes {
    /// Remembers that the Node of an instance is gone, and forgets old ones.
    fn record_lost_node(&mut self, instance: &str, node: &NodeView) {
        let now = Timestamp::now();
        self.lost.retain(|_, lost| now.duration_since(lost.since) < LOST_NODE_RETENTION);
        if node.was_ready && !self.nodes.nodes.contains_key(instance) {
            self.lost.insert(instance.to_owned(), LostNode { name: node.name.clone(), since: now });
        }
    }
}

/// What an event changed.
#[derive(Debug, Default)]
pub(crate) struct NodeChanges {
    /// The instances whose nodes changed in a way that a plan depends on.
    pub changed: Vec<String>,
    /// Those that have a Node for the first time. None is of the first list.
    pub joined: Vec<String>,
}

impl NodeIndex {
    /// Applies an event of the watch.
    pub(crate) fn apply(&self, event: &Event<Node>) -> NodeChanges {
        let mut inner = self.inner.lock().expect("lock is not poisoned");
        let was_synced = inner.synced;
        let mut joined = Vec::new();
        let changed = match event {
            Event::Init => {
                inner.relisted = Some(NodesByInstance::default());
                Vec::new()
            }
            Event::InitApply(node) => {
                if let Some(id) = instance_id(node) {
                    let mut new = node_view(node);
                    let old = inner.nodes.find(&id, &new.name);
                    carry_over(&mut new, old);
                    inner.relisted.get_or_insert_default().insert(&id, new);
                }
                Vec::new()
            }
            Event::InitDone => {
                let next = inner.relisted.take().unwrap_or_default();
                let old = std::mem::replace(&mut inner.nodes, next);
                inner.synced = true;
                let gone: Vec<_> = old.nodes.iter().filter(|(id, _)| !inner.nodes.nodes.contains_key(*id)).collect();
                for (id, nodes) in gone {
                    nodes.iter().for_each(|node| inner.record_lost_node(id, node));
                }
                let is_new = |id: &&String| was_synced && !old.nodes.contains_key(*id);
                joined.extend(inner.nodes.nodes.keys().filter(is_new).cloned());
                let known: BTreeSet<_> = inner.nodes.nodes.keys().chain(old.nodes.keys()).collect();
                known.into_iter().filter(|id| !inner.nodes.same_nodes(&old, id)).cloned().collect()
            }
            Event::Apply(node) => {
                let Some(id) = instance_id(node) else { return NodeChanges::default() };
                let mut new = node_view(node);
                joined.extend((!inner.nodes.nodes.contains_key(&id)).then(|| id.clone()));
                let old = inner.nodes.find(&id, &new.name);
                carry_over(&mut new, old);
                let unchanged = old.is_some_and(|old| same_state(old, &new));
                inner.nodes.insert(&id, new);
                if unchanged { Vec::new() } else { vec![id] }
            }
            Event::Delete(node) => {
                let Some(id) = instance_id(node) else { return NodeChanges::default() };
                let Some(old) = inner.nodes.find(&id, &node.name_any()).cloned() else {
                    return NodeChanges::default();
                };
                inner.nodes.remove(&id, &old.name);
                inner.record_lost_node(&id, &old);
                vec![id]
            }
        };
        NodeChanges { changed, joined }
    }

    /// The oldest node of an instance, with the names of other Nodes that claim the same instance.
    pub(crate) fn get(&self, instance: &str) -> Option<NodeView> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let (node, duplicates) = inner.nodes.nodes.get(instance)?.split_first()?;
        let drain_last = inner.drain_last.contains(&node.name);
        Some(NodeView { drain_last, duplicates: duplicates.iter().map(|n| n.name.clone()).collect(), ..node.clone() })
    }

    /// Replaces the names of the nodes that rotations replace last, because pods will block their drains.
    pub(crate) fn set_drain_last(&self, nodes: BTreeSet<String>) {
        self.inner.lock().expect("lock is not poisoned").drain_last = nodes;
    }

    /// The Node that an instance had, if it has none now.
    pub(crate) fn lost_node(&self, instance: &str) -> Option<LostNode> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        inner.lost.get(instance).filter(|_| !inner.nodes.nodes.contains_key(instance)).cloned()
    }

    /// The names of these instances' nodes, and whether their labels name the group `key`.
    pub(crate) fn labeled(&self, instances: &[String], key: &str) -> Vec<(String, bool)> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        // Of several Nodes that claim one instance, it is unknown which one is real.
        let nodes = instances.iter().filter_map(|instance| match inner.nodes.nodes.get(instance)?.as_slice() {
            [node] => Some(node),
            _ => None,
        });
        nodes.map(|node| (node.name.clone(), node.labeled_group.as_deref() == Some(key))).collect()
    }

    /// The names of the nodes whose labels name one of these groups, by group.
    pub(crate) fn names_by_group(&self, keys: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in inner.nodes.nodes.values().flatten() {
            if let Some(key) = node.labeled_group.as_ref().filter(|key| keys.contains(*key)) {
                found.entry(key.clone()).or_default().insert(node.name.clone());
            }
        }
        found
    }

    /// Whether a node has the label of this managed node group, or may have it, because the first list is not complete.
    pub(crate) fn may_have_nodes_of(&self, nodegroup: &str) -> bool {
        let inner = self.inner.lock().expect("lock is not poisoned");
        !inner.synced || inner.nodes.nodes.values().flatten().any(|node| node.nodegroup.as_deref() == Some(nodegroup))
    }

    /// The nodes with the label of this managed node group, each with its instance.
    pub(crate) fn nodes_of_nodegroup(&self, nodegroup: &str) -> Vec<(String, NodeView)> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let all = inner.nodes.nodes.iter();
        let nodes = all.flat_map(|(instance, nodes)| nodes.iter().map(move |node| (instance, node)));
        let labeled = nodes.filter(|(_, node)| node.nodegroup.as_deref() == Some(nodegroup));
        labeled.map(|(instance, node)| (instance.clone(), node.clone())).collect()
    }

    /// A Ready node whose labels name the group `key` in a zone of another region than `region`, and the zone.
    pub(crate) fn node_outside_of(&self, region: &str, key: &str) -> Option<(String, String)> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let nodes = inner.nodes.nodes.values().flatten();
        let mut own = nodes.filter(|node| node.ready && node.labeled_group.as_deref() == Some(key));
        own.find_map(|node| {
            let zone = node.zone.as_ref().filter(|zone| !zone.starts_with(region))?;
            Some((node.name.clone(), zone.clone()))
        })
    }

    /// The zone of some Ready nodes, if no Ready node of the cluster is in a zone of `region`. A cluster belongs to one region.
    pub(crate) fn cluster_outside_of(&self, region: &str) -> Option<String> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let zones = &inner.nodes.ready_zones;
        zones.keys().next().filter(|_| !zones.keys().any(|zone| zone.starts_with(region))).cloned()
    }

    /// The instances that Ready nodes in a zone of `region` claim, those of the oldest nodes first.
    pub(crate) fn ready_instances_in(&self, region: &str) -> Vec<String> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let is_inside =
            |node: &&NodeView| node.ready && node.zone.as_ref().is_some_and(|zone| zone.starts_with(region));
        let oldest = inner.nodes.nodes.iter().filter_map(|(id, nodes)| Some((nodes.iter().find(is_inside)?, id)));
        let mut found: Vec<_> = oldest.map(|(node, id)| (node.created_at, id.clone())).collect();
        found.sort();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// The nodes with a record of the InstanceGroup with this UID.
    pub(crate) fn with_records_of(&self, group_uid: &str) -> Vec<NodeView> {
        self.instances_with_records_of(group_uid).into_iter().map(|(_, node)| node).collect()
    }

    /// The same, with the instance of each node.
    pub(crate) fn instances_with_records_of(&self, group_uid: &str) -> Vec<(String, NodeView)> {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let instances = inner.nodes.with_records.get(group_uid).into_iter().flatten();
        let nodes = instances.filter_map(|instance| Some((instance, inner.nodes.nodes.get(instance)?)));
        let nodes = nodes.flat_map(|(instance, nodes)| nodes.iter().map(move |node| (instance, node)));
        let recorded = nodes.filter(|(_, node)| node.record_uids().any(|uid| uid == group_uid));
        recorded.map(|(instance, node)| (instance.clone(), node.clone())).collect()
    }

    /// Whether a node has a record of the InstanceGroup with this UID.
    pub(crate) fn has_records_of(&self, group_uid: &str) -> bool {
        self.inner.lock().expect("lock is not poisoned").nodes.with_records.contains_key(group_uid)
    }

    /// Whether the InstanceGroup with this UID and this key may have cordoned a node. A record names it, or the record of a node
    /// names another UID or was removed, and its labels name the group. Only the scaling group of such a node proves whose it is.
    pub(crate) fn may_have_drains_of(&self, group_uid: &str, key: &str) -> bool {
        let inner = self.inner.lock().expect("lock is not poisoned");
        let recorded = &inner.nodes.with_records;
        let instances = recorded.values().flatten();
        let mut nodes = instances.filter_map(|instance| inner.nodes.nodes.get(instance)).flatten();
        let may_be_own = |node: &NodeView| node.labeled_group.as_deref() == Some(key);
        recorded.contains_key(group_uid) || nodes.any(may_be_own)
    }

    /// Whether the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        self.inner.lock().expect("lock is not poisoned").synced
    }

    /// The number of nodes, and of those that were Ready and no longer are.
    pub(crate) fn cluster_health(&self) -> ClusterHealth {
        self.inner.lock().expect("lock is not poisoned").nodes.health
    }
}

/// Carries over what was observed about a node earlier.
fn carry_over(new: &mut NodeView, old: Option<&NodeView>) {
    new.was_ready |= old.is_some_and(|o| o.was_ready);
}
