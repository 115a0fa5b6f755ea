//! The cluster's nodes by instance, kept by one watch and never listed.

use std::collections::HashMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::api::names::annotation;
use crate::upgrade::{Disruption, Fleet, NodeView, Surge};

/// The moments in which a node that joins first says how it is.
const JOINING: SignedDuration = SignedDuration::from_secs(2);

/// What the watch has told so far.
#[derive(Default)]
pub struct NodeIndex {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    by_instance: HashMap<String, NodeView>,
    /// Built during a relist; swapped in when it is complete, so that nobody sees a part.
    next: Option<HashMap<String, NodeView>>,
    synced: bool,
}

impl NodeIndex {
    /// Takes one event of the watch; answers the instances for which something changed that decides something here.
    pub fn apply(&self, event: &Event<Node>) -> Vec<String> {
        let mut inner = self.inner.lock().expect("nobody panics holding it");
        match event {
            Event::Init => {
                inner.next = Some(HashMap::new());
                Vec::new()
            }
            Event::InitApply(node) => {
                let view = instance(node).map(|id| (id, view(node)));
                inner.next.get_or_insert_default().extend(view);
                Vec::new()
            }
            Event::InitDone => {
                let mut next = inner.next.take().unwrap_or_default();
                next.iter_mut().for_each(|(id, new)| recall(new, inner.by_instance.get(id)));
                let old = std::mem::replace(&mut inner.by_instance, next);
                inner.synced = true;
                let changed = |(id, view): (&String, &NodeView)| !old.get(id).is_some_and(|o| same(o, view));
                let mut ids: Vec<_> =
                    inner.by_instance.iter().filter(|e| changed(*e)).map(|(id, _)| id.clone()).collect();
                ids.extend(old.keys().filter(|id| !inner.by_instance.contains_key(*id)).cloned());
                ids
            }
            Event::Apply(node) => {
                let Some(id) = instance(node) else { return Vec::new() };
                let mut new = view(node);
                recall(&mut new, inner.by_instance.get(&id));
                let unchanged = inner.by_instance.get(&id).is_some_and(|old| same(old, &new));
                inner.by_instance.insert(id.clone(), new);
                if unchanged { Vec::new() } else { vec![id] }
            }
            Event::Delete(node) => {
                instance(node).filter(|id| inner.by_instance.remove(id).is_some()).into_iter().collect()
            }
        }
    }

    /// The node of an instance.
    pub fn get(&self, instance: &str) -> Option<NodeView> {
        self.inner.lock().expect("nobody panics holding it").by_instance.get(instance).cloned()
    }

    /// Whether the first list is complete.
    pub fn synced(&self) -> bool {
        self.inner.lock().expect("nobody panics holding it").synced
    }

    /// How many nodes there are, and how many of them are not Ready any more.
    pub fn fleet(&self) -> Fleet {
        let inner = self.inner.lock().expect("nobody panics holding it");
        Fleet { known: inner.by_instance.len(), not_ready: inner.by_instance.values().filter(|n| n.lost()).count() }
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
}
