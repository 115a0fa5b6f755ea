//! Writes to Nodes (cordons, records, labels) and reads of their volume attachments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams, Patch};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::error::call;
use super::field_owner::{is_cordoned_by_controller, is_field_of_controller};
use super::groups::patch_params;
use super::lists::list_pages;
use super::{AttachedVolume, CORDONED_BEFORE, KubeError, SCALE_DOWN_DISABLED};
use crate::api::names::annotation;

pub(super) async fn patch(client: &Client, name: &str, patch: Value) -> Result<Node, KubeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(patch);
    call("patch", "nodes", nodes.patch(name, &patch_params(), &patch)).await
}

pub(super) async fn get(client: &Client, name: &str) -> Result<Option<Node>, KubeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    call("get", "nodes", nodes.get_opt(name)).await
}

pub(super) async fn cordon(
    client: &Client,
    name: &str,
    resource_version: &str,
    disruption: &Value,
) -> Result<String, KubeError> {
    let body = json!({
        "metadata": {
            "resourceVersion": resource_version,
            "annotations": annotations_of_record(client, name, annotation::DISRUPTION, disruption).await?,
        },
        "spec": {"unschedulable": true},
    });
    let node = patch(client, name, body).await?;
    Ok(node.resource_version().unwrap_or_default())
}

/// The annotations that write a record to a Node, and that keep the Cluster Autoscaler from it meanwhile. It would
/// choose a node that is being emptied, and terminate its instance beside this controller: AWS would take another node
/// for the second termination. The record shows who set the annotation.
async fn annotations_of_record(client: &Client, name: &str, key: &str, record: &Value) -> Result<Value, KubeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = call("get", "nodes", nodes.get(name)).await?;
    let is_disabled = node.annotations().get(annotation::SCALE_DOWN_DISABLED).is_some_and(|value| value == "true");
    if is_disabled && !record_disables_scale_down(&node, key) {
        return Ok(json!({key: record.to_string()}));
    }
    let mut record = record.clone();
    record[SCALE_DOWN_DISABLED] = json!(true);
    Ok(json!({key: record.to_string(), annotation::SCALE_DOWN_DISABLED: "true"}))
}

/// Whether a record on a Node shows that its writer keeps the Cluster Autoscaler from it. Where a client removed the record,
/// the field manager of the annotation shows it.
fn record_disables_scale_down(node: &Node, key: &str) -> bool {
    if [annotation::DISRUPTION, annotation::SURGE].iter().all(|record| !node.annotations().contains_key(*record)) {
        let field = format!("f:{}", annotation::SCALE_DOWN_DISABLED);
        return is_field_of_controller(node, &["f:metadata", "f:annotations", &field]);
    }
    let record = node.annotations().get(key).and_then(|record| serde_json::from_str::<Value>(record).ok());
    record.is_some_and(|record| record[SCALE_DOWN_DISABLED] == json!(true))
}

pub(super) async fn uncordon(client: &Client, name: &str, drain_after: Option<Timestamp>) -> Result<bool, KubeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = call("get", "nodes", nodes.get(name)).await?;
    let record = node.annotations().get(annotation::DISRUPTION);
    if record.is_none() && !is_cordoned_by_controller(&node) {
        return Ok(false);
    }
    let record: Value = record.and_then(|record| serde_json::from_str(record).ok()).unwrap_or_default();
    let mut body = json!({
        "metadata": {
            "resourceVersion": node.resource_version(),
            "annotations": {
                annotation::DISRUPTION: null,
                annotation::DRAIN_AFTER: drain_after.map(|at| at.to_string()),
            },
        },
    });
    if record[CORDONED_BEFORE] != json!(true) {
        body["spec"] = json!({"unschedulable": null});
    }
    if record_disables_scale_down(&node, annotation::DISRUPTION) {
        body["metadata"]["annotations"][annotation::SCALE_DOWN_DISABLED] = Value::Null;
    }
    patch(client, name, body).await?;
    Ok(true)
}

pub(super) async fn set_surge_record(
    client: &Client,
    name: &str,
    resource_version: &str,
    record: &Value,
) -> Result<(), KubeError> {
    let annotations = annotations_of_record(client, name, annotation::SURGE, record).await?;
    let body = json!({"metadata": {"resourceVersion": resource_version, "annotations": annotations}});
    patch(client, name, body).await.map(drop)
}

pub(super) async fn clear_surge_record(client: &Client, name: &str, since: Timestamp) -> Result<bool, KubeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = call("get", "nodes", nodes.get(name)).await?;
    let record = node.annotations().get(annotation::SURGE);
    let record = record.and_then(|record| serde_json::from_str::<Value>(record).ok());
    let written_at = record.and_then(|record| record["since"].as_str()?.parse::<Timestamp>().ok());
    if written_at != Some(since) {
        return Ok(false);
    }
    let mut annotations = json!({annotation::SURGE: null});
    if record_disables_scale_down(&node, annotation::SURGE) {
        annotations[annotation::SCALE_DOWN_DISABLED] = Value::Null;
    }
    let body = json!({"metadata": {"resourceVersion": node.resource_version(), "annotations": annotations}});
    patch(client, name, body).await?;
    Ok(true)
}

pub(super) async fn label(client: &Client, name: &str, labels: &BTreeMap<String, String>) -> Result<(), KubeError> {
    let body = json!({"metadata": {"labels": labels}});
    patch(client, name, body).await.map(drop)
}

/// Lists all VolumeAttachments, because the API server cannot select them by Node.
pub(super) async fn volume_attachments(client: &Client, node: &str) -> Result<Vec<AttachedVolume>, KubeError> {
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    let of_node = |attachment: VolumeAttachment| {
        (attachment.spec.node_name == node).then(|| AttachedVolume {
            name: attachment.name_any(),
            detaching_since: attachment.metadata.deletion_timestamp.map(|time| time.0),
        })
    };
    list_pages("volumeattachments", &attachments, ListParams::default(), of_node).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::k8s::fake::Call;
    use crate::k8s::{FIELD_MANAGER, fake};

    fn node(annotations: Value, unschedulable: bool) -> Value {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "resourceVersion": "7", "annotations": annotations},
            "spec": {"unschedulable": unschedulable}})
    }

    /// A cluster of one Node, which records the patches.
    fn cluster(node: Value) -> (Client, Arc<Mutex<Vec<Call>>>) {
        let patches = Arc::new(Mutex::new(Vec::new()));
        let seen = patches.clone();
        let client = fake::client(move |call| {
            if call.method == "PATCH" {
                seen.lock().unwrap().push(call);
            }
            (200, node.clone())
        });
        (client, patches)
    }

    #[tokio::test]
    async fn cordon_writes_record_and_cordon_at_one_version() {
        let (client, patches) = cluster(node(json!({}), true));
        let version = cordon(&client, "n1", "7", &json!({"group": "u1"})).await;
        assert_eq!(version.unwrap(), "7");
        let patches = patches.lock().unwrap();
        assert_eq!(patches.len(), 1);
        assert_eq!(patches[0].path, "/api/v1/nodes/n1");
        assert_eq!(patches[0].content_type, "application/merge-patch+json");
        assert!(patches[0].query.contains("fieldManager=instance-manager"));
        assert_eq!(
            patches[0].body,
            json!({"metadata": {"resourceVersion": "7", "annotations":
                    {"instancemgr.keikoproj.io/disruption": "{\"group\":\"u1\",\"scaleDownDisabled\":true}",
                     "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
                "spec": {"unschedulable": true}})
        );
    }

    /// Otherwise the Cluster Autoscaler would never remove the node again, or one that a user keeps from it.
    #[tokio::test]
    async fn only_the_writer_of_the_record_lets_the_cluster_autoscaler_back() {
        let recorded = json!({"scaleDownDisabled": true}).to_string();
        for (record, existing, on_cordon, on_uncordon) in [
            (None, None, json!("true"), json!(null)),
            (None, Some("false"), json!("true"), json!(null)),
            (None, Some("true"), json!(null), json!(null)),
            (Some(recorded.as_str()), Some("true"), json!("true"), json!(null)),
        ] {
            let annotations = |record: Option<&str>| {
                let mut all = json!({});
                record.into_iter().for_each(|record| all[annotation::DISRUPTION] = json!(record));
                existing.into_iter().for_each(|value| all[annotation::SCALE_DOWN_DISABLED] = json!(value));
                all
            };
            let (client, patches) = cluster(node(annotations(record), false));
            cordon(&client, "n1", "7", &json!({"group": "u1"})).await.unwrap();
            let written = patches.lock().unwrap()[0].body["metadata"]["annotations"].clone();
            assert_eq!(written[annotation::SCALE_DOWN_DISABLED], on_cordon, "{record:?} {existing:?}");
            let stored = written[annotation::DISRUPTION].as_str().expect("a record");
            let (client, patches) = cluster(node(annotations(Some(stored)), true));
            assert!(uncordon(&client, "n1", None).await.unwrap());
            let body = patches.lock().unwrap()[0].body["metadata"]["annotations"].clone();
            let is_removed = body.as_object().is_some_and(|body| body.contains_key(annotation::SCALE_DOWN_DISABLED));
            assert_eq!((is_removed, &body[annotation::SCALE_DOWN_DISABLED]), (!on_cordon.is_null(), &on_uncordon));
        }
    }

    #[tokio::test]
    async fn cordon_of_a_changed_node_is_a_conflict() {
        let client = fake::client(|_| fake::failure(409, "Conflict", "changed"));
        let error = cordon(&client, "n1", "6", &json!({})).await.unwrap_err();
        assert!(error.is_conflict());
    }

    #[tokio::test]
    async fn node_without_disruption_record_stays_cordoned() {
        let (client, patches) = cluster(node(json!({"other": "x"}), true));
        assert!(!uncordon(&client, "n1", None).await.unwrap());
        assert_eq!(patches.lock().unwrap().len(), 0);
    }

    /// The Node would stay cordoned, and the Cluster Autoscaler would never remove it.
    #[tokio::test]
    async fn cordon_of_the_controller_is_undone_without_its_record() {
        for (manager, is_own) in [(FIELD_MANAGER, true), ("kubectl-cordon", false)] {
            let mut node = node(json!({annotation::SCALE_DOWN_DISABLED: "true"}), true);
            let field = format!("f:{}", annotation::SCALE_DOWN_DISABLED);
            let fields = json!({"f:metadata": {"f:annotations": {field: {}}}, "f:spec": {"f:unschedulable": {}}});
            node["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
            let (client, patches) = cluster(node);
            assert_eq!(uncordon(&client, "n1", None).await.unwrap(), is_own, "{manager}");
            let patches = patches.lock().unwrap();
            assert_eq!(patches.len(), usize::from(is_own));
            let Some(patch) = patches.first() else { continue };
            assert_eq!(patch.body["spec"], json!({"unschedulable": null}));
            let annotations = patch.body["metadata"]["annotations"].as_object().expect("annotations");
            assert_eq!(annotations.get(annotation::SCALE_DOWN_DISABLED), Some(&Value::Null));
        }
    }

    #[tokio::test]
    async fn uncordon_removes_record_and_cordon_at_the_version_read() {
        let (client, patches) = cluster(node(json!({annotation::DISRUPTION: "{}"}), true));
        assert!(uncordon(&client, "n1", None).await.unwrap());
        assert_eq!(
            patches.lock().unwrap()[0].body,
            json!({"metadata": {"resourceVersion": "7",
                    "annotations": {annotation::DISRUPTION: null, annotation::DRAIN_AFTER: null}},
                "spec": {"unschedulable": null}})
        );
    }

    #[tokio::test]
    async fn delay_of_the_next_drain_is_recorded_with_the_uncordon() {
        let (client, patches) = cluster(node(json!({annotation::DISRUPTION: "{}"}), true));
        assert!(uncordon(&client, "n1", Some(Timestamp::UNIX_EPOCH)).await.unwrap());
        let body = patches.lock().unwrap()[0].body.clone();
        assert_eq!(body["metadata"]["annotations"][annotation::DRAIN_AFTER], json!("1970-01-01T00:00:00Z"));
    }

    #[tokio::test]
    async fn cordon_set_before_the_disruption_is_kept() {
        let record = json!({CORDONED_BEFORE: true}).to_string();
        let (client, patches) = cluster(node(json!({annotation::DISRUPTION: record}), true));
        assert!(uncordon(&client, "n1", None).await.unwrap());
        assert_eq!(patches.lock().unwrap()[0].body.get("spec"), None);
    }

    #[tokio::test]
    async fn surge_record_neither_cordons_nor_removes_other_annotations() {
        let (client, patches) = cluster(node(json!({}), false));
        set_surge_record(&client, "n1", "7", &json!({"group": "u1"})).await.unwrap();
        let expected = json!({"metadata": {"resourceVersion": "7", "annotations": {
            annotation::SURGE: "{\"group\":\"u1\",\"scaleDownDisabled\":true}",
            annotation::SCALE_DOWN_DISABLED: "true",
        }}});
        assert_eq!(patches.lock().unwrap()[0].body, expected);
    }

    /// A process that slept and is no longer the leader would otherwise remove the record that the new leader has written.
    #[tokio::test]
    async fn only_the_surge_record_of_the_plan_is_removed_and_only_at_the_version_read() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for disables_scale_down in [false, true] {
            let record = json!({"group": "u1", "since": at(100), "scaleDownDisabled": disables_scale_down}).to_string();
            let (client, patches) = cluster(node(json!({annotation::SURGE: record}), false));
            assert!(!clear_surge_record(&client, "n1", at(99)).await.unwrap());
            assert_eq!(patches.lock().unwrap().len(), 0);
            assert!(clear_surge_record(&client, "n1", at(100)).await.unwrap());
            let mut annotations = json!({annotation::SURGE: null});
            if disables_scale_down {
                annotations[annotation::SCALE_DOWN_DISABLED] = Value::Null;
            }
            let expected = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
            assert_eq!(patches.lock().unwrap()[0].body, expected);
        }
        let (client, patches) = cluster(node(json!({}), false));
        assert!(!clear_surge_record(&client, "n1", at(100)).await.unwrap());
        assert_eq!(patches.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn setting_labels_changes_nothing_else_of_the_node() {
        let (client, patches) = cluster(node(json!({}), false));
        let labels = BTreeMap::from([("kubernetes.io/role".to_owned(), "web".to_owned())]);
        label(&client, "n1", &labels).await.unwrap();
        let expected = json!({"metadata": {"labels": {"kubernetes.io/role": "web"}}});
        assert_eq!(patches.lock().unwrap()[0].body, expected);
    }

    #[tokio::test]
    async fn attachments_of_other_nodes_do_not_count_and_all_pages_are_read() {
        let item = |name: &str, node: &str| {
            let deleted = (name == "c").then_some("2026-01-01T00:00:00Z");
            json!({"metadata": {"name": name, "deletionTimestamp": deleted},
                "spec": {"attacher": "ebs", "nodeName": node, "source": {}}})
        };
        let client = fake::client(move |call| {
            let (items, next) = if call.query.contains("continue=more") {
                (vec![item("c", "n1")], "")
            } else {
                (vec![item("a", "n1"), item("b", "n2")], "more")
            };
            let body = json!({"kind": "VolumeAttachmentList", "apiVersion": "storage.k8s.io/v1",
                "metadata": {"continue": next}, "items": items});
            (200, body)
        });
        let volume = |name: &str, detaching_since| AttachedVolume { name: name.into(), detaching_since };
        let detaching = "2026-01-01T00:00:00Z".parse().ok();
        assert_eq!(volume_attachments(&client, "n1").await.unwrap(), [volume("a", None), volume("c", detaching)]);
    }
}
