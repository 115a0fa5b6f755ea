//! The cluster's nodes by instance, kept by one watch and never listed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::api::names::annotation;
use crate::rotation::{Disruption, Fleet, NodeView, Surge};

/// The moments in which a node that joins first says how it is.
const JOINING: SignedDuration = SignedDuration::from_secs(2);

/// What the watch has told so far.
#[derive(Default)]
pub struct NodeIndex {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    claims: Claims,
    /// Built during a relist; swapped in when it is complete, so that nobody sees a part.
    next: Option<Claims>,
    synced: bool,
}

/// The nodes that say they are an instance, the oldest first. A kubelet chooses what it says, and only its name is held
/// to the truth: there may be two.
#[derive(Default)]
struct Claims(HashMap<String, Vec<NodeView>>);

impl Claims {
    fn find(&self, instance: &str, node: &str) -> Option<&NodeView> {
        self.0.get(instance)?.iter().find(|n| n.name == node)
    }

    fn put(&mut self, instance: &str, node: NodeView) {
        let Some(nodes) = self.0.get_mut(instance) else {
            self.0.insert(instance.to_owned(), vec![node]);
            return;
        };
        nodes.retain(|n| n.name != node.name);
        nodes.push(node);
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    }

    /// A node takes away its own claim; answers whether it had one.
    fn remove(&mut self, instance: &str, node: &str) -> bool {
        let Some(nodes) = self.0.get_mut(instance) else { return false };
        let before = nodes.len();
        nodes.retain(|n| n.name != node);
        let removed = nodes.len() < before;
        if nodes.is_empty() {
            self.0.remove(instance);
        }
        removed
    }

    fn same(&self, other: &Self, instance: &str) -> bool {
        match (self.0.get(instance), other.0.get(instance)) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name && same(a, b)),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl NodeIndex {
    /// Takes one event of the watch; answers the instances for which something changed that decides something here.
    pub fn apply(&self, event: &Event<Node>) -> Vec<String> {
        let mut inner = self.inner.lock().expect("nobody panics holding it");
        match event {
            Event::Init => {
                inner.next = Some(Claims::default());
                Vec::new()
            }
            Event::InitApply(node) => {
                if let Some(id) = instance(node) {
                    let mut new = view(node);
                    let old = inner.claims.find(&id, &new.name);
                    recall(&mut new, old);
                    inner.next.get_or_insert_default().put(&id, new);
                }
                Vec::new()
            }
            Event::InitDone => {
                let next = inner.next.take().unwrap_or_default();
                let old = std::mem::replace(&mut inner.claims, next);
                inner.synced = true;
                let known: BTreeSet<_> = inner.claims.0.keys().chain(old.0.keys()).collect();
                known.into_iter().filter(|id| !inner.claims.same(&old, id)).cloned().collect()
            }
            Event::Apply(node) => {
                let Some(id) = instance(node) else { return Vec::new() };
                let mut new = view(node);
                let old = inner.claims.find(&id, &new.name);
                recall(&mut new, old);
                let unchanged = old.is_some_and(|old| same(old, &new));
                inner.claims.put(&id, new);
                if unchanged { Vec::new() } else { vec![id] }
            }
            Event::Delete(node) => {
                instance(node).filter(|id| inner.claims.remove(id, &node.name_any())).into_iter().collect()
            }
        }
    }

    /// The node of an instance: the oldest that says it is, which knows the others.
    pub fn get(&self, instance: &str) -> Option<NodeView> {
        let inner = self.inner.lock().expect("nobody panics holding it");
        let (node, rivals) = inner.claims.0.get(instance)?.split_first()?;
        Some(NodeView { rivals: rivals.iter().map(|n| n.name.clone()).collect(), ..node.clone() })
    }

    /// Whether the first list is complete.
    pub fn synced(&self) -> bool {
        self.inner.lock().expect("nobody panics holding it").synced
    }

    /// How many nodes there are, and how many of them are not Ready any more.
    pub fn fleet(&self) -> Fleet {
        let inner = self.inner.lock().expect("nobody panics holding it");
        let nodes = || inner.claims.0.values().flatten();
        Fleet { known: nodes().count(), not_ready: nodes().filter(|n| n.lost()).count() }
    }
}

fn same(a: &NodeView, b: &NodeView) -> bool {
    (a.ready, a.cordoned, &a.disruption, &a.surge) == (b.ready, b.cordoned, &b.disruption, &b.surge)
}

/// What has been seen of a node before.
fn recall(new: &mut NodeView, old: Option<&NodeView>) {
    new.was_ready |= old.is_some_and(|o| o.was_ready);
}

/// The instance id in `aws:///<zone>/<instance>`.
fn instance(node: &Node) -> Option<String> {
    let provider = node.spec.as_ref()?.provider_id.as_deref()?.strip_prefix("aws://")?;
    provider.rsplit('/').next().filter(|id| id.starts_with("i-")).map(str::to_owned)
}

fn view(node: &Node) -> NodeView {
    let condition = node.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Ready");
    let ready = condition.is_some_and(|c| c.status == "True");
    let ready_since = condition.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
    let created = node.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    NodeView {
        name: node.name_any(),
        resource_version: node.resource_version().unwrap_or_default(),
        ready,
        // A node joins NotReady: a later change was its second one.
        was_ready: ready || ready_since.is_some_and(|at| at.duration_since(created) > JOINING),
        ready_since,
        cordoned: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
        disruption: record::<Disruption>(node, annotation::DISRUPTION),
        surge: record::<Surge>(node, annotation::SURGE),
        created,
        rivals: Vec::new(),
    }
}

fn record<T: serde::de::DeserializeOwned>(node: &Node, annotation: &str) -> Option<T> {
    serde_json::from_str(node.annotations().get(annotation)?).ok()
}

/// Drops what nobody here reads, before it is stored or copied.
pub fn trim(node: &mut Node) {
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

    fn node(name: &str, ready: bool) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": name, "resourceVersion": "1" },
            "spec": { "providerID": format!("aws:///us-west-2a/i-{name}") },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        }))
        .expect("a node")
    }

    #[test]
    fn a_heartbeat_wakes_nobody_and_a_change_of_ready_wakes_its_group() {
        let index = NodeIndex::default();
        for event in [Event::Init, Event::InitApply(node("a", false)), Event::InitDone] {
            index.apply(&event);
        }
        assert!(index.apply(&Event::Apply(node("a", false))).is_empty());
        assert_eq!(index.apply(&Event::Apply(node("a", true))), ["i-a"]);
        assert_eq!(index.fleet(), Fleet { known: 1, not_ready: 0 });
    }

    #[test]
    fn a_node_that_was_ready_is_lost_and_one_that_has_yet_to_be_is_not() {
        let index = NodeIndex::default();
        for event in
            [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", false)), Event::InitDone]
        {
            index.apply(&event);
        }
        index.apply(&Event::Apply(node("a", false)));
        assert_eq!(index.fleet(), Fleet { known: 2, not_ready: 1 });
        for event in [Event::Init, Event::InitApply(node("a", false)), Event::InitDone] {
            index.apply(&event);
        }
        assert_eq!(index.fleet(), Fleet { known: 1, not_ready: 1 });
    }

    #[test]
    fn a_relist_is_seen_whole_or_not_at_all() {
        let index = NodeIndex::default();
        for event in
            [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", true)), Event::InitDone]
        {
            index.apply(&event);
        }
        index.apply(&Event::Init);
        index.apply(&Event::InitApply(node("a", true)));
        assert!(index.get("i-b").is_some(), "half a list must not make nodes disappear");
        assert_eq!(index.apply(&Event::InitDone), ["i-b"]);
        assert!(index.get("i-b").is_none());
    }

    fn claims(name: &str, instance: &str, created: &str) -> Node {
        let mut node = node(name, true);
        node.metadata.creation_timestamp = serde_json::from_value(serde_json::json!(created)).expect("a time");
        node.spec.as_mut().expect("a spec").provider_id = Some(format!("aws:///us-west-2a/{instance}"));
        node
    }

    fn told(index: &NodeIndex) -> Option<(String, Vec<String>)> {
        index.get("i-1").map(|n| (n.name, n.rivals))
    }

    #[test]
    fn a_node_that_says_it_is_another_ones_instance_never_stands_in_for_it() {
        let (real, liar) =
            (claims("real", "i-1", "2026-01-01T00:00:00Z"), claims("liar", "i-1", "2026-01-02T00:00:00Z"));
        let (both, alone) = (("real".to_owned(), vec!["liar".to_owned()]), ("real".to_owned(), Vec::new()));
        for nodes in [[&real, &liar], [&liar, &real]].map(|nodes| nodes.map(Clone::clone)) {
            let index = NodeIndex::default();
            for node in &nodes {
                assert_eq!(index.apply(&Event::Apply(node.clone())), ["i-1"], "a further claim decides something");
            }
            assert_eq!((told(&index), index.fleet().known), (Some(both.clone()), 2));
            let relist = |nodes: &[Node]| {
                index.apply(&Event::Init);
                nodes.iter().for_each(|node| _ = index.apply(&Event::InitApply(node.clone())));
                index.apply(&Event::InitDone)
            };
            assert!(relist(&nodes).is_empty() && told(&index) == Some(both.clone()));
            assert_eq!(index.apply(&Event::Delete(liar.clone())), ["i-1"]);
            assert_eq!(told(&index), Some(alone.clone()), "the liar takes away its own claim only");
            assert!(index.apply(&Event::Delete(liar.clone())).is_empty());
            assert_eq!(relist(&nodes), ["i-1"]);
            assert_eq!(relist(std::slice::from_ref(&real)), ["i-1"]);
            assert_eq!(told(&index), Some(alone.clone()));
        }
    }
}
