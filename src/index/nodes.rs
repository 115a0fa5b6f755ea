//! Index of the cluster's nodes by EC2 instance, kept up to date by one watch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::api::names::{annotation, label};
use crate::plan::InPlaceRecord;
use crate::rotation::members::AUTOSCALER_TAINT;
use crate::rotation::{ClusterHealth, DisruptionRecord, LostNode, NodeView, SurgeRecord};

/// After its creation, how long a node may take to report its first Ready condition.
const INITIAL_STATUS_WINDOW: SignedDuration = SignedDuration::from_secs(2);

/// How long the index remembers a Node that is gone.
const LOST_NODE_RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// The nodes that the watch has returned.
#[derive(Default)]
pub struct NodeIndex {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    nodes: NodesByInstance,
    /// Built during a relist and swapped in when it is complete, so that readers never see a partial list.
    relisted: Option<NodesByInstance>,
    /// Nodes that were Ready and are gone, by instance. They only say in words why an instance has no node.
    lost: HashMap<String, LostNode>,
    /// Names of nodes whose drain pods will block.
    drain_last: BTreeSet<String>,
    synced: bool,
}

impl Inner {
    /// Remembers that the Node of an instance is gone, and forgets old ones.
    fn record_lost_node(&mut self, instance: &str, node: &NodeView) {
        let now = Timestamp::now();
        self.lost.retain(|_, lost| now.duration_since(lost.since) < LOST_NODE_RETENTION);
        if node.was_ready && !self.nodes.nodes.contains_key(instance) {
            self.lost.insert(instance.to_owned(), LostNode { name: node.name.clone(), since: now });
        }
    }
}

/// Nodes by the instance in their `providerID`, and what is counted of them with each change, so that no reconcile has to
/// look at all nodes.
#[derive(Default)]
struct NodesByInstance {
    /// Oldest first. A kubelet sets its `providerID` from its own flags, so several Nodes can claim one instance.
    nodes: HashMap<String, Vec<NodeView>>,
    /// The instances whose Nodes carry a record, by the UID in it.
    with_records: HashMap<String, BTreeSet<String>>,
    health: ClusterHealth,
    /// The number of Ready nodes by zone.
    ready_zones: BTreeMap<String, usize>,
}

impl NodesByInstance {
    fn find(&self, instance: &str, node: &str) -> Option<&NodeView> {
        self.nodes.get(instance)?.iter().find(|n| n.name == node)
    }

    fn insert(&mut self, instance: &str, node: NodeView) {
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

    fn remove(&mut self, instance: &str, node: &str) {
        self.edit(instance, |nodes| nodes.retain(|n| n.name != node));
    }

    fn same_nodes(&self, other: &Self, instance: &str) -> bool {
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

fn ready_zones(nodes: &[NodeView]) -> impl Iterator<Item = &str> {
    nodes.iter().filter(|node| node.ready).filter_map(|node| node.zone.as_deref())
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

    /// Whether the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        self.inner.lock().expect("lock is not poisoned").synced
    }

    /// The number of nodes, and of those that were Ready and no longer are.
    pub(crate) fn cluster_health(&self) -> ClusterHealth {
        self.inner.lock().expect("lock is not poisoned").nodes.health
    }
}

fn same_state(a: &NodeView, b: &NodeView) -> bool {
    let state = |n: &NodeView| (n.ready, n.kubelet_silent, n.cordoned, n.leaves_by_autoscaler);
    state(a) == state(b) && (&a.disruption, &a.surge, &a.in_place) == (&b.disruption, &b.surge, &b.in_place)
}

/// Carries over what was observed about a node earlier.
fn carry_over(new: &mut NodeView, old: Option<&NodeView>) {
    new.was_ready |= old.is_some_and(|o| o.was_ready);
}

/// The instance id in `aws:///<zone>/<instance>`.
pub(crate) fn instance_id(node: &Node) -> Option<String> {
    let provider = node.spec.as_ref()?.provider_id.as_deref()?.strip_prefix("aws://")?;
    provider.rsplit('/').next().filter(|id| id.starts_with("i-")).map(str::to_owned)
}

/// The zone in `aws:///<zone>/<instance>`.
fn zone(node: &Node) -> Option<String> {
    let provider = node.spec.as_ref()?.provider_id.as_deref()?.strip_prefix("aws:///")?;
    provider.split_once('/').map(|(zone, _)| zone.to_owned()).filter(|zone| !zone.is_empty())
}

/// The InstanceGroup that the labels of a Node name, as `namespace/name`.
fn labeled_group(node: &Node) -> Option<String> {
    let labels = node.labels();
    Some(format!("{}/{}", labels.get(label::NAMESPACE)?, labels.get(label::INSTANCE_GROUP)?))
}

/// When the Cluster Autoscaler set its taint, whose value is that time in seconds.
fn tainted_at(taint: &Taint) -> Option<Timestamp> {
    Timestamp::from_second(taint.value.as_ref()?.parse().ok()?).ok()
}

/// The fields of a Node that rotations use. Whether it was Ready before, and its duplicates, need more than one read.
pub(crate) fn node_view(node: &Node) -> NodeView {
    let condition = node.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Ready");
    let ready = condition.is_some_and(|c| c.status == "True");
    let ready_changed_at = condition.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
    let created_at = node.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let autoscaler_taint = taints.find(|taint| taint.key == AUTOSCALER_TAINT);
    NodeView {
        name: node.name_any(),
        resource_version: node.resource_version().unwrap_or_default(),
        ready,
        // A node joins NotReady. If Ready changed later than that, the node was Ready in between.
        was_ready: ready || ready_changed_at.is_some_and(|at| at.duration_since(created_at) > INITIAL_STATUS_WINDOW),
        ready_changed_at,
        ready_reason: condition.filter(|_| !ready).and_then(|c| c.reason.clone()).filter(|reason| !reason.is_empty()),
        kubelet_silent: condition.is_some_and(|c| c.status == "Unknown"),
        cordoned: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
        leaves_by_autoscaler: autoscaler_taint.is_some(),
        autoscaler_since: autoscaler_taint.and_then(tainted_at),
        disruption: parse_annotation::<DisruptionRecord>(node, annotation::DISRUPTION),
        orphaned_disruption: None,
        surge: parse_annotation::<SurgeRecord>(node, annotation::SURGE),
        in_place: parse_annotation::<InPlaceRecord>(node, annotation::IN_PLACE),
        drain_after: node.annotations().get(annotation::DRAIN_AFTER).and_then(|at| at.parse().ok()),
        drain_last: false,
        labeled_group: labeled_group(node),
        zone: zone(node),
        created_at,
        duplicates: Vec::new(),
    }
}

/// A record of the controller in an annotation of a Node.
pub(crate) fn parse_annotation<T: serde::de::DeserializeOwned>(node: &Node, annotation: &str) -> Option<T> {
    serde_json::from_str(node.annotations().get(annotation)?).ok()
}

/// Drops fields that no reconcile reads, before the node is copied.
pub(crate) fn trim(node: &mut Node) {
    node.metadata.managed_fields = None;
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        status.volumes_in_use = None;
        status.addresses = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_the_uid_in_their_records() {
        let index = NodeIndex::default();
        let with_record = |name: &str, uid: &str| {
            let mut node = node(name, true);
            let record = serde_json::json!({"group": uid, "templateVersion": "2", "since": "2026-01-01T00:00:00Z"});
            node.annotations_mut().insert(annotation::DISRUPTION.into(), record.to_string());
            node
        };
        let found =
            |uid: &str| index.with_records_of(uid).into_iter().map(|node| node.name).collect::<Vec<_>>().join(" ");
        index.apply(&Event::Apply(with_record("a", "one")));
        index.apply(&Event::Apply(with_record("b", "one")));
        assert_eq!((found("one"), found("two")), ("a b".into(), "".into()));
        index.apply(&Event::Apply(with_record("a", "two")));
        index.apply(&Event::Delete(with_record("b", "one")));
        assert_eq!((found("one"), found("two")), ("".into(), "a".into()));
        index.apply(&Event::Apply(node("a", true)));
        assert_eq!(found("two"), "");
    }

    fn node(name: &str, ready: bool) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": name, "resourceVersion": "1" },
            "spec": { "providerID": format!("aws:///us-west-2a/i-{name}") },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        }))
        .expect("a node")
    }

    #[test]
    fn only_relevant_node_changes_are_reported() {
        let index = NodeIndex::default();
        for event in [Event::Init, Event::InitApply(node("a", false)), Event::InitDone] {
            index.apply(&event);
        }
        assert!(index.apply(&Event::Apply(node("a", false))).changed.is_empty());
        assert_eq!(index.apply(&Event::Apply(node("a", true))).changed, ["i-a"]);
        assert_eq!(index.cluster_health(), ClusterHealth { total: 1, unready: 0 });
    }

    /// The Cluster Autoscaler does not cordon what it drains.
    #[test]
    fn taint_of_the_cluster_autoscaler_is_a_change_that_counts() {
        let index = NodeIndex::default();
        for event in [Event::Init, Event::InitApply(node("a", true)), Event::InitDone] {
            index.apply(&event);
        }
        let mut tainted = node("a", true);
        let taint = serde_json::json!([{"key": AUTOSCALER_TAINT, "value": "1700000000", "effect": "NoSchedule"}]);
        tainted.spec.as_mut().expect("a spec").taints = serde_json::from_value(taint).expect("taints");
        assert!(node_view(&tainted).leaves_by_autoscaler);
        assert_eq!(node_view(&tainted).autoscaler_since, Timestamp::from_second(1_700_000_000).ok());
        assert_eq!(index.apply(&Event::Apply(tainted)).changed, ["i-a"]);
    }

    #[test]
    fn only_nodes_that_were_ready_count_as_not_ready() {
        let index = NodeIndex::default();
        for event in
            [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", false)), Event::InitDone]
        {
            index.apply(&event);
        }
        index.apply(&Event::Apply(node("a", false)));
        assert_eq!(index.cluster_health(), ClusterHealth { total: 2, unready: 1 });
        for event in [Event::Init, Event::InitApply(node("a", false)), Event::InitDone] {
            index.apply(&event);
        }
        assert_eq!(index.cluster_health(), ClusterHealth { total: 1, unready: 1 });
    }

    #[test]
    fn node_that_is_gone_is_remembered_until_it_is_back() {
        let index = NodeIndex::default();
        for event in
            [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", true)), Event::InitDone]
        {
            index.apply(&event);
        }
        index.apply(&Event::Delete(node("a", true)));
        assert_eq!(index.lost_node("i-a").map(|lost| lost.name), Some("a".into()));
        for event in [Event::Init, Event::InitApply(node("a", false)), Event::InitDone] {
            index.apply(&event);
        }
        assert_eq!(index.lost_node("i-a"), None, "it is back");
        assert_eq!(index.lost_node("i-b").map(|lost| lost.name), Some("b".into()), "the list no longer has it");
    }

    /// The node controller sets the condition to Unknown when a kubelet stops reporting.
    #[test]
    fn silent_kubelet_is_distinguished_from_one_that_reports() {
        let with_status = |status: &str| {
            let mut node = node("a", false);
            let condition = serde_json::json!({"type": "Ready", "status": status, "reason": "Because"});
            node.status.as_mut().expect("a status").conditions =
                serde_json::from_value(serde_json::json!([condition])).expect("conditions");
            node
        };
        let view = |status: &str| node_view(&with_status(status));
        assert!(view("Unknown").kubelet_silent && !view("False").kubelet_silent);
        assert_eq!((view("False").ready_reason.as_deref(), view("True").ready_reason), (Some("Because"), None));
    }

    /// A node that an autoscaler adds would otherwise stay unnoticed until the next resync.
    #[test]
    fn first_node_of_an_instance_joins_once() {
        let index = NodeIndex::default();
        let joined = |event: Event<Node>| index.apply(&event).joined;
        assert!(joined(Event::InitApply(node("a", true))).is_empty());
        assert!(joined(Event::InitDone).is_empty(), "every group is read at the start");
        assert_eq!(joined(Event::Apply(node("b", false))), ["i-b"]);
        assert!(joined(Event::Apply(node("b", true))).is_empty());
        // The watch broke, and a node joined meanwhile.
        for known in ["a", "b", "c"] {
            assert!(joined(Event::InitApply(node(known, false))).is_empty());
        }
        assert_eq!(joined(Event::InitDone), ["i-c"]);
    }

    #[test]
    fn relist_is_swapped_in_atomically() {
        let index = NodeIndex::default();
        for event in
            [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", true)), Event::InitDone]
        {
            index.apply(&event);
        }
        index.apply(&Event::Init);
        index.apply(&Event::InitApply(node("a", true)));
        assert!(index.get("i-b").is_some(), "half a list must not make nodes disappear");
        assert_eq!(index.apply(&Event::InitDone).changed, ["i-b"]);
        assert!(index.get("i-b").is_none());
    }

    fn node_for_instance(name: &str, instance: &str, created: &str) -> Node {
        let mut node = node(name, true);
        node.metadata.creation_timestamp = serde_json::from_value(serde_json::json!(created)).expect("a time");
        node.spec.as_mut().expect("a spec").provider_id = Some(format!("aws:///us-west-2a/{instance}"));
        node
    }

    fn reported(index: &NodeIndex) -> Option<(String, Vec<String>)> {
        index.get("i-1").map(|n| (n.name, n.duplicates))
    }

    #[test]
    fn duplicate_provider_id_never_replaces_the_oldest_node() {
        let (real, duplicate) = (
            node_for_instance("real", "i-1", "2026-01-01T00:00:00Z"),
            node_for_instance("duplicate", "i-1", "2026-01-02T00:00:00Z"),
        );
        let (both, alone) = (("real".to_owned(), vec!["duplicate".to_owned()]), ("real".to_owned(), Vec::new()));
        for nodes in [[&real, &duplicate], [&duplicate, &real]].map(|nodes| nodes.map(Clone::clone)) {
            let index = NodeIndex::default();
            for node in &nodes {
                assert_eq!(
                    index.apply(&Event::Apply(node.clone())).changed,
                    ["i-1"],
                    "a duplicate is a relevant change"
                );
            }
            assert_eq!((reported(&index), index.cluster_health().total), (Some(both.clone()), 2));
            let relist = |nodes: &[Node]| {
                index.apply(&Event::Init);
                nodes.iter().for_each(|node| _ = index.apply(&Event::InitApply(node.clone())));
                index.apply(&Event::InitDone).changed
            };
            assert!(relist(&nodes).is_empty() && reported(&index) == Some(both.clone()));
            assert_eq!(index.apply(&Event::Delete(duplicate.clone())).changed, ["i-1"]);
            assert_eq!(reported(&index), Some(alone.clone()), "deleting the duplicate removes only its own entry");
            assert!(index.apply(&Event::Delete(duplicate.clone())).changed.is_empty());
            assert_eq!(relist(&nodes), ["i-1"]);
            assert_eq!(relist(std::slice::from_ref(&real)), ["i-1"]);
            assert_eq!(reported(&index), Some(alone.clone()));
        }
    }
}
