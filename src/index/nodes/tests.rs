use super::*;
use crate::api::names::{annotation, label};
use crate::k8s::FIELD_MANAGER;
use crate::rotation::members::AUTOSCALER_TAINT;

#[test]
fn nodes_are_found_by_the_uid_in_their_records() {
    let index = NodeIndex::default();
    let with_record = |name: &str, uid: &str| {
        let mut node = node(name, true);
        let record = serde_json::json!({"group": uid, "templateVersion": "2", "since": "2026-01-01T00:00:00Z"});
        node.annotations_mut().insert(annotation::DISRUPTION.into(), record.to_string());
        node
    };
    let found = |uid: &str| index.with_records_of(uid).into_iter().map(|node| node.name).collect::<Vec<_>>().join(" ");
    index.apply(&Event::Apply(with_record("a", "one")));
    index.apply(&Event::Apply(with_record("b", "one")));
    assert_eq!((found("one"), found("two")), ("a b".into(), "".into()));
    index.apply(&Event::Apply(with_record("a", "two")));
    index.apply(&Event::Delete(with_record("b", "one")));
    assert_eq!((found("one"), found("two")), ("".into(), "a".into()));
    index.apply(&Event::Apply(node("a", true)));
    assert_eq!(found("two"), "");
}

/// The node would stay cordoned forever: no drain would claim its cordon, and the next one would take it for a user's.
#[test]
fn unreadable_disruption_record_counts_as_a_foreign_one() {
    let cordoned_before = |record: &str| {
        let mut node = node("a", true);
        node.annotations_mut().insert(annotation::DISRUPTION.into(), record.into());
        let mut view = node_view(&node);
        view.adopt_records("one", Timestamp::UNIX_EPOCH);
        assert_eq!(view.disruption, None, "{record}: no drain continues with it");
        view.orphaned_disruption.map(|record| record.cordoned_before)
    };
    for record in ["", "yes", "{}", "[]", r#"{"group": "one", "since": "yesterday"}"#] {
        assert_eq!(cordoned_before(record), Some(false), "{record}");
    }
    assert_eq!(cordoned_before(r#"{"cordonedBefore": true}"#), Some(true), "a user's cordon is kept");
    assert_eq!(node_view(&node("a", true)).disruption, None);
}

/// A node from which a user removed the record would stay cordoned for good: the cordon would count as the user's.
#[test]
fn cordon_of_the_controller_is_known_without_its_record() {
    let is_orphaned = |writers: &[&str], is_cordoned: bool, has_record: bool| {
        let entry = |manager: &&str| serde_json::json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}});
        let entries: Vec<_> = writers.iter().map(entry).collect();
        let mut node = node("a", true);
        node.metadata.managed_fields = serde_json::from_value(serde_json::json!(entries)).expect("managed fields");
        node.spec.as_mut().expect("a spec").unschedulable = Some(is_cordoned);
        if has_record {
            node.annotations_mut().insert(annotation::DISRUPTION.into(), "{}".into());
        }
        trim(&mut node);
        node_view(&node).orphaned_disruption.map(|record| record.cordoned_before)
    };
    assert_eq!(is_orphaned(&[FIELD_MANAGER], true, false), Some(false));
    assert_eq!(is_orphaned(&[FIELD_MANAGER], true, true), None, "the record decides");
    assert_eq!(is_orphaned(&[FIELD_MANAGER], false, false), None);
    for users in [&["kubectl-cordon"][..], &[FIELD_MANAGER, "argocd-controller"], &[]] {
        assert_eq!(is_orphaned(users, true, false), None, "{users:?}");
    }
}

#[test]
fn ready_instances_of_a_region_come_oldest_first() {
    let index = NodeIndex::default();
    let created = |name: &str, ready: bool, at: &str| {
        let mut node = node(name, ready);
        node.metadata.creation_timestamp = Some(serde_json::from_value(serde_json::json!(at)).expect("a time"));
        node
    };
    index.apply(&Event::Apply(created("young", true, "2026-01-02T00:00:00Z")));
    index.apply(&Event::Apply(created("old", true, "2026-01-01T00:00:00Z")));
    index.apply(&Event::Apply(created("unready", false, "2026-01-01T00:00:00Z")));
    assert_eq!(index.ready_instances_in("us-west-2"), ["i-old", "i-young"]);
    assert_eq!(index.ready_instances_in("eu-west-1"), [""; 0]);
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
    assert!(node_view(&tainted).is_removed_by_autoscaler);
    assert_eq!(node_view(&tainted).autoscaler_since, Timestamp::from_second(1_700_000_000).ok());
    assert_eq!(index.apply(&Event::Apply(tainted)).changed, ["i-a"]);
}

#[test]
fn only_nodes_that_were_ready_count_as_not_ready() {
    let index = NodeIndex::default();
    for event in [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", false)), Event::InitDone] {
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
    for event in [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", true)), Event::InitDone] {
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
    for event in [Event::Init, Event::InitApply(node("a", true)), Event::InitApply(node("b", true)), Event::InitDone] {
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
            assert_eq!(index.apply(&Event::Apply(node.clone())).changed, ["i-1"], "a duplicate is a relevant change");
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

/// A group whose spec is rejected would otherwise be read for every drain of another group.
#[test]
fn drains_that_may_be_of_a_group_are_found_by_uid_or_label() {
    let index = NodeIndex::default();
    let mut drained = node("a", true);
    let record = serde_json::json!({"group": "old", "templateVersion": "2", "since": "2026-01-01T00:00:00Z"});
    drained.annotations_mut().insert(annotation::DISRUPTION.into(), record.to_string());
    let found = || ["team/web", "team/api"].map(|key| index.may_have_drains_of("new", key));
    index.apply(&Event::Apply(drained.clone()));
    assert_eq!(found(), [false, false], "no label says whose it is");
    let labels = drained.labels_mut();
    labels.insert(label::NAMESPACE.into(), "team".into());
    labels.insert(label::INSTANCE_GROUP.into(), "web".into());
    index.apply(&Event::Apply(drained));
    assert_eq!((found(), index.may_have_drains_of("old", "team/api")), ([true, false], true));
    index.apply(&Event::Apply(node("a", true)));
    assert_eq!(found(), [false, false]);
}
