//! What the index keeps of a Node.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use serde_json::Value;

use crate::api::names::{annotation, label};
use crate::k8s::is_cordoned_by_controller;
use crate::plan::InPlaceRecord;
use crate::rotation::members::{AUTOSCALER_TAINT, UNSCHEDULABLE_TAINT};
use crate::rotation::{DisruptionRecord, NodeView, SurgeRecord};

/// After its creation, how long a node may take to report its first Ready condition.
const INITIAL_STATUS_WINDOW: SignedDuration = SignedDuration::from_secs(2);

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
    let taints = || node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let autoscaler_taint = taints().find(|taint| taint.key == AUTOSCALER_TAINT);
    let unschedulable_taint = taints().find(|taint| taint.key == UNSCHEDULABLE_TAINT);
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
        unschedulable_since: unschedulable_taint.and_then(|taint| taint.time_added.as_ref()).map(|at| at.0),
        is_removed_by_autoscaler: autoscaler_taint.is_some(),
        autoscaler_since: autoscaler_taint.and_then(tainted_at),
        disruption: disruption_record(node, created_at),
        orphaned_disruption: unrecorded_cordon(node, created_at),
        termination_sent_at: None,
        surge: parse_annotation::<SurgeRecord>(node, annotation::SURGE),
        in_place: parse_annotation::<InPlaceRecord>(node, annotation::IN_PLACE),
        drain_after: node.annotations().get(annotation::DRAIN_AFTER).and_then(|at| at.parse().ok()),
        drain_last: false,
        labeled_group: labeled_group(node),
        nodegroup: node.labels().get(label::NODEGROUP).cloned(),
        zone: zone(node),
        created_at,
        duplicates: Vec::new(),
    }
}

/// The disruption record of a Node. One that cannot be read names no InstanceGroup. The group of the node's instance takes it
/// for a foreign one: it must not keep the node cordoned as if a user had cordoned it.
fn disruption_record(node: &Node, created_at: Timestamp) -> Option<DisruptionRecord> {
    let text = node.annotations().get(annotation::DISRUPTION)?;
    let damaged = || {
        let rest: Value = serde_json::from_str(text).unwrap_or_default();
        DisruptionRecord { cordoned_before: rest["cordonedBefore"] == true, ..record_of_no_group(created_at) }
    };
    Some(serde_json::from_str(text).unwrap_or_else(|_| damaged()))
}

/// A record for the cordon of a Node from which a client removed the disruption record. The group of the node's instance
/// takes it for a foreign one: otherwise the cordon would count as a user's, and stay for good.
fn unrecorded_cordon(node: &Node, created_at: Timestamp) -> Option<DisruptionRecord> {
    let is_recorded = node.annotations().contains_key(annotation::DISRUPTION);
    (!is_recorded && is_cordoned_by_controller(node)).then(|| record_of_no_group(created_at))
}

fn record_of_no_group(since: Timestamp) -> DisruptionRecord {
    DisruptionRecord {
        group: String::new(),
        template_version: String::new(),
        since,
        cordoned_before: false,
        scale_down_disabled: false,
        terminated_at: None,
    }
}

/// A record of the controller in an annotation of a Node.
pub(crate) fn parse_annotation<T: serde::de::DeserializeOwned>(node: &Node, annotation: &str) -> Option<T> {
    serde_json::from_str(node.annotations().get(annotation)?).ok()
}

/// Drops fields that no reconcile reads, before the node is copied.
pub(crate) fn trim(node: &mut Node) {
    // They show whose the cordon is.
    if !is_cordoned_by_controller(node) {
        node.metadata.managed_fields = None;
    }
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        status.volumes_in_use = None;
        status.addresses = None;
    }
}
