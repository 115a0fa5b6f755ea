//! The patch that changes labels and taints of one Node, made from the Node as it is now. Pure.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::api::names::annotation;
use crate::index::nodes::node_view;
use crate::plan::{InPlaceChange, NodeTaint};

/// The merge patch that makes the change; `None` when the Node has it already. What others set on the Node stays: labels
/// and taints that the change does not name, and those to be removed that have another value now.
///
/// The list of taints is replaced as a whole, so the patch applies only to the Node as it was read: it carries the
/// resourceVersion.
pub(super) fn patch_for(node: &Node, change: &InPlaceChange) -> Option<Value> {
    if node_view(node).in_place.as_ref() == Some(&change.record) {
        return None;
    }
    let mut patch = json!({
        "metadata": {
            "resourceVersion": node.resource_version(),
            "annotations": { annotation::IN_PLACE: json!(change.record).to_string() },
        },
    });
    let labels = label_patch(node, change);
    if !labels.is_empty() {
        patch["metadata"]["labels"] = labels.into();
    }
    if let Some(taints) = changed_taints(node, change) {
        patch["spec"]["taints"] = json!(taints);
    }
    Some(patch)
}

fn label_patch(node: &Node, change: &InPlaceChange) -> Map<String, Value> {
    let present = node.labels();
    let set = change.set_labels.iter().filter(|(key, value)| present.get(*key) != Some(*value));
    let removed = change.remove_labels.iter().filter(|(key, value)| present.get(*key) == Some(*value));
    let set = set.map(|(key, value)| (key.clone(), json!(value)));
    set.chain(removed.map(|(key, _)| (key.clone(), Value::Null))).collect()
}

/// The Node's taints with the change; `None` when they stay as they are.
fn changed_taints(node: &Node, change: &InPlaceChange) -> Option<Vec<Taint>> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut taints = present.clone();
    taints.retain(|taint| !change.remove_taints.contains(&node_taint(taint)));
    for new in &change.set_taints {
        let taint = Taint {
            key: new.key.clone(),
            value: Some(new.value.clone()).filter(|value| !value.is_empty()),
            effect: new.effect.clone(),
            time_added: None,
        };
        match taints.iter_mut().find(|taint| node_taint(taint).is_same(new)) {
            Some(found) if node_taint(found) == *new => {}
            Some(found) => *found = taint,
            None => taints.push(taint),
        }
    }
    (taints != present).then_some(taints)
}

fn node_taint(taint: &Taint) -> NodeTaint {
    NodeTaint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect: taint.effect.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::InPlaceRecord;

    fn node(labels: Value, taints: Value, record: Option<&InPlaceRecord>) -> Node {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "resourceVersion": "7", "labels": labels}, "spec": {"taints": taints},
        }))
        .expect("a Node");
        if let Some(record) = record {
            node.annotations_mut().insert(annotation::IN_PLACE.into(), json!(record).to_string());
        }
        node
    }

    fn taint(key: &str, value: &str, effect: &str) -> NodeTaint {
        NodeTaint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    /// Removes `old=1` and `gpu=a:NoSchedule`, sets `team=b` and `dedicated=b:NoSchedule`.
    fn change() -> InPlaceChange {
        InPlaceChange {
            set_labels: [("team".to_owned(), "b".to_owned())].into(),
            remove_labels: [("old".to_owned(), "1".to_owned())].into(),
            set_taints: [taint("dedicated", "b", "NoSchedule")].into(),
            remove_taints: [taint("gpu", "a", "NoSchedule")].into(),
            record: InPlaceRecord {
                instance: "i-1".into(),
                labels: Some([("team".to_owned(), "b".to_owned())].into()),
                taints: Some([taint("dedicated", "b", "NoSchedule")].into()),
            },
        }
    }

    #[test]
    fn everything_changes_in_one_patch_of_the_node_as_it_was_read() {
        let present = json!([{"key": "gpu", "value": "a", "effect": "NoSchedule"}]);
        let patch = patch_for(&node(json!({"team": "a", "old": "1"}), present, None), &change());
        let expected = json!({
            "metadata": {
                "resourceVersion": "7",
                "labels": {"team": "b", "old": null},
                "annotations": {annotation::IN_PLACE: json!(change().record).to_string()},
            },
            "spec": {"taints": [{"key": "dedicated", "value": "b", "effect": "NoSchedule"}]},
        });
        assert_eq!(patch, Some(expected));
    }

    #[test]
    fn foreign_labels_and_taints_stay() {
        let labels = json!({"team": "a", "old": "set by a person", "mine": "x"});
        let present = json!([
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": "gpu", "value": "a", "effect": "NoExecute"},
            {"key": "gpu", "value": "by a person", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
        ]);
        let patch = patch_for(&node(labels, present.clone(), None), &change()).expect("a patch");
        assert_eq!(patch["metadata"]["labels"], json!({"team": "b"}));
        let mut expected = present;
        expected[3]["value"] = json!("b");
        assert_eq!(patch["spec"]["taints"], expected);
    }

    /// A kubelet that registered in the meantime, or a user, may have set all labels and taints already.
    #[test]
    fn only_the_record_is_written_where_nothing_else_differs() {
        let present = json!([{"key": "dedicated", "value": "b", "effect": "NoSchedule"}]);
        let patch = patch_for(&node(json!({"team": "b"}), present, None), &change()).expect("a patch");
        assert!(patch["metadata"].get("labels").is_none() && patch.get("spec").is_none(), "{patch}");
    }

    /// The cache of nodes lags behind the API server: the same step is planned again right after it was applied.
    #[test]
    fn node_with_a_current_record_is_not_changed() {
        let record = change().record;
        assert_eq!(patch_for(&node(json!({"team": "by a person"}), json!([]), Some(&record)), &change()), None);
        let other = InPlaceRecord { labels: None, ..record };
        assert!(patch_for(&node(json!({"team": "a"}), json!([]), Some(&other)), &change()).is_some());
    }
}
