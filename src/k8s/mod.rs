//! Access to the Kubernetes API: all writes of the controller, and the reads that must be fresh because a write depends
//! on them. The trait [`KubeApi`] keeps clients out of the controller's decisions.

mod access_review;
pub(crate) mod budgets;
mod client;
mod config_maps;
mod drain_forecast;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod field_owner;
mod groups;
mod lists;
mod nodes;
mod pods;
mod revisions;
mod strategy;
mod zone_volumes;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use crate::api::BoundariesRevision;
pub(crate) use crate::lock::Locks;
use crate::plan::event::EventKind;
use crate::rotation::crd::{DiscoveredKind, ResourceKind};
pub(crate) use budgets::EvictionBlocker;
pub(crate) use client::{KubeClient, connect_as};
pub(crate) use drain_forecast::{DrainBlocker, DrainBlockerKind, DrainForecast};
pub(crate) use error::{KubeError, describe};
pub(crate) use error::{call, call_with_timeout};
pub(crate) use field_owner::is_cordoned_by_controller;
pub(crate) use zone_volumes::ZoneBoundPod;

/// Field manager of all writes of the controller in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "instance-manager.keikoproj.io";
/// A key of the disruption record. `true` means that the node was cordoned before the controller cordoned it, so
/// removing the record keeps the cordon.
pub(crate) const CORDONED_BEFORE: &str = "cordonedBefore";

/// A key of the disruption record and the surge record. `true` means that the controller keeps the Cluster Autoscaler from
/// the node, and that removing the record lets it back.
pub(crate) const SCALE_DOWN_DISABLED: &str = "scaleDownDisabled";

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventTarget {
    pub api_version: String,
    pub kind: String,
    /// `None` for a cluster-scoped object, whose events are created in `default`.
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

/// An event to publish. The caller publishes only on transitions. Nothing is counted or merged, because two notes with
/// one reason ("2 of 5 updated", "3 of 5 updated") are two events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KubeEvent {
    pub kind: EventKind,
    /// At most 128 characters, UpperCamelCase.
    pub reason: String,
    /// The action taken or attempted, at most 128 characters, UpperCamelCase.
    pub action: String,
    /// Full sentences; truncated at 1 kB.
    pub note: String,
    /// What distinguishes an event that must be published once, although the process may end before it can record that.
    /// The API server keeps out a second one. Lower case, digits and `-`. `None` for all other events.
    pub once: Option<String>,
}

/// What is known of the report about groups that a revision of the boundaries made invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedRejections {
    /// The revision whose effect on groups was reported last.
    pub revision: Option<String>,
    /// resourceVersion of the stored copy of the boundaries; `None` without such a copy.
    pub stored_version: Option<String>,
}

/// A volume that is attached to a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachedVolume {
    /// Name of its VolumeAttachment.
    pub name: String,
    /// Since when it is being detached: Kubernetes deletes the VolumeAttachment, whose finalizer waits for the driver.
    pub detaching_since: Option<Timestamp>,
}

/// What controls a pod, as far as a drain depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodKind {
    /// A DaemonSet controls the pod; a drain ignores it.
    DaemonSet,
    /// The pod is a static pod of the kubelet; a drain ignores it.
    Mirror,
    /// No controller recreates the pod; a drain evicts it and publishes an event.
    Unmanaged,
    /// A controller recreates the pod elsewhere.
    Owned,
}

/// The properties of a pod that a drain uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodInfo {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub kind: PodKind,
    /// Kind of the controlling owner, such as `ReplicaSet`.
    pub owner_kind: Option<String>,
    pub owner_uid: Option<String>,
    /// `terminationGracePeriodSeconds`; 30 when unset.
    pub grace_seconds: i64,
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Latest end of a deletion in progress, by the API server's clock.
    pub deletion_timestamp: Option<Timestamp>,
    /// When it was created, by the API server's clock.
    pub created: Option<Timestamp>,
    /// Whether it may be scheduled to a cordoned node.
    pub tolerates_cordon: bool,
}

/// Result of an eviction request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvictOutcome {
    /// The pod is being deleted with its grace period.
    Evicted,
    /// A PodDisruptionBudget does not allow the eviction now.
    Blocked(EvictionBlocker),
    /// The pod no longer exists; a pod with the same name is another pod.
    Gone,
}

/// A pod that the scheduler cannot place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnschedulablePod {
    pub namespace: String,
    pub name: String,
    pub owner_uid: String,
    /// Why the scheduler cannot place the pod, from its condition `PodScheduled`.
    pub message: String,
}

/// The current ConfigMap kube-system/aws-auth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwsAuthMap {
    /// The text in `mapRoles`; `None` when the key is missing.
    pub map_roles: Option<String>,
    pub resource_version: String,
    /// Whether its data can never change.
    pub is_immutable: bool,
}

/// The calls to the Kubernetes API that a reconcile makes. Each call is one step with a timeout and no retry; the
/// caller decides when to retry.
#[async_trait]
pub(crate) trait KubeApi: Send + Sync {
    /// Merges `status` into the status of an InstanceGroup that is still at `resource_version`, and returns the new
    /// resourceVersion. Null removes a field.
    async fn patch_status(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        status: Value,
    ) -> Result<String, KubeError>;

    /// Adds the controller's finalizer to an InstanceGroup whose finalizers are `present`, and returns the new
    /// resourceVersion.
    async fn add_finalizer(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        present: &[String],
    ) -> Result<String, KubeError>;

    /// Removes only the controller's finalizer from the InstanceGroup with this UID, whose finalizers are `present`. It is
    /// not an error if the finalizer or the object no longer exists.
    async fn remove_finalizer(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        present: &[String],
    ) -> Result<(), KubeError>;

    /// The resourceVersion of an InstanceGroup, read fresh; `None` when it does not exist.
    async fn group_version(&self, namespace: &str, name: &str) -> Result<Option<String>, KubeError>;

    /// Publishes an event. It is not an error if the namespace is terminating or gone and rejects events.
    async fn publish(&self, target: &EventTarget, event: &KubeEvent) -> Result<(), KubeError>;

    /// A Node, read fresh; `None` when it does not exist.
    async fn node(&self, name: &str) -> Result<Option<Node>, KubeError>;

    /// Cordons a Node that is still at `resource_version` and records the reason, in one write. Returns the new
    /// resourceVersion. `disruption` contains [`CORDONED_BEFORE`] if the Node was already cordoned.
    async fn cordon_node(&self, name: &str, resource_version: &str, disruption: &Value) -> Result<String, KubeError>;

    /// Removes the disruption record from a Node and uncordons it, unless it was cordoned before. Returns false, and
    /// changes nothing, when the Node has no disruption record and the controller did not cordon it. `drain_after` delays
    /// the next drain.
    async fn uncordon_node(&self, name: &str, drain_after: Option<Timestamp>) -> Result<bool, KubeError>;

    /// Records on a Node that is still at `resource_version` that its instance is about to enter standby.
    async fn set_surge_record(&self, name: &str, resource_version: &str, record: &Value) -> Result<(), KubeError>;

    /// Removes the surge record of this time from a Node. Returns false, and changes nothing, when the Node has none, or one of
    /// another time: another process may have written it since.
    async fn clear_surge_record(&self, name: &str, since: Timestamp) -> Result<bool, KubeError>;

    /// Sets labels of a Node and keeps all others.
    async fn label_node(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), KubeError>;

    /// Merges `patch` into a Node. With a resourceVersion in it, only while the Node is still at it.
    async fn patch_node(&self, name: &str, patch: Value) -> Result<(), KubeError>;

    /// All pods bound to a Node, read fresh.
    async fn pods_on_node(&self, name: &str) -> Result<Vec<PodInfo>, KubeError>;

    /// What will block drains of these nodes, as pods and budgets are now. Pods are read only in namespaces where a
    /// budget allows no eviction, or where two may select the same pod.
    async fn drain_forecast(&self, nodes: &BTreeSet<String>) -> Result<DrainForecast, KubeError>;

    /// The pods of a node whose eviction is blocked now. Reads its pods, and the budgets of their namespaces.
    async fn eviction_blockers(&self, node: &str) -> Result<Vec<DrainBlocker>, KubeError>;

    /// The pods on these nodes that can run in some zones only, because a volume is there. Reads the PersistentVolumes of the
    /// cluster, and the pods of the namespaces that have such a volume.
    async fn zone_bound_pods(&self, nodes: &BTreeSet<String>) -> Result<Vec<ZoneBoundPod>, KubeError>;

    /// Requests the eviction of the pod with this UID, with its own grace period.
    async fn evict(&self, namespace: &str, name: &str, uid: &str) -> Result<EvictOutcome, KubeError>;

    /// Deletes the pod with this UID regardless of budgets. `grace` is in seconds; `None` means the pod's own. It is
    /// not an error if the pod no longer exists.
    async fn delete_pod(&self, namespace: &str, name: &str, uid: &str, grace: Option<u32>) -> Result<(), KubeError>;

    /// The VolumeAttachments of a Node, read fresh.
    async fn volume_attachments(&self, node: &str) -> Result<Vec<AttachedVolume>, KubeError>;

    /// The unschedulable pods of a namespace that one of `owners` (UIDs of controllers) created: the replacements of
    /// evicted pods.
    async fn unschedulable_pods(
        &self,
        namespace: &str,
        owners: &BTreeSet<String>,
    ) -> Result<Vec<UnschedulablePod>, KubeError>;

    /// UID of the InstanceGroup of this name if it is being deleted, read fresh; `None` when it is not, or does not exist.
    async fn group_deletion(&self, namespace: &str, name: &str) -> Result<Option<String>, KubeError>;

    /// Reads lock-upgrades from the three objects themselves. On an error the caller must assume a lock. `NotFound`
    /// means that the group or its namespace no longer exists; a missing ConfigMap sets no lock.
    async fn locks(&self, namespace: &str, group: &str, config_namespace: &str) -> Result<Locks, KubeError>;

    /// Whether the API server's authorizers allow a call to the controller's account; admission may still deny it.
    /// `resource` may have a subresource; `namespace` is `None` for all, and for objects without one.
    async fn is_allowed(&self, verb: &str, resource: &str, namespace: Option<&str>) -> Result<bool, KubeError>;

    /// The ConfigMap kube-system/aws-auth, read fresh; `None` when it does not exist.
    async fn aws_auth(&self) -> Result<Option<AwsAuthMap>, KubeError>;

    /// Sets only `mapRoles` of an aws-auth that is still at `resource_version`.
    async fn update_aws_auth(&self, resource_version: &str, map_roles: &str) -> Result<(), KubeError>;

    /// Creates aws-auth; `Conflict` when it already exists.
    async fn create_aws_auth(&self, map_roles: &str) -> Result<(), KubeError>;

    /// Data of the last known good ConfigMap; `None` when none is stored.
    async fn last_known_good(&self, config_namespace: &str) -> Result<Option<BTreeMap<String, String>>, KubeError>;

    /// Stores the data of a valid ConfigMap; writes nothing when it is already stored. Returns whether it wrote.
    async fn put_last_known_good(
        &self,
        config_namespace: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<bool, KubeError>;

    /// The stored revisions of the boundaries, read fresh; `None` when the API server does not serve the kind.
    async fn boundaries_revisions(&self, namespace: &str) -> Result<Option<Vec<BoundariesRevision>>, KubeError>;

    /// Creates a revision of the boundaries; `Conflict` when one with its name already exists.
    async fn create_boundaries_revision(&self, revision: &BoundariesRevision) -> Result<(), KubeError>;

    /// Patches the status of a revision of the boundaries; `Conflict` when it was changed since this resourceVersion.
    async fn patch_revision_status(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        status: Value,
    ) -> Result<(), KubeError>;

    /// Deletes the revision of the boundaries with this UID. It is not an error if it no longer exists.
    async fn delete_boundaries_revision(&self, namespace: &str, name: &str, uid: &str) -> Result<(), KubeError>;

    /// Which revision's effect on groups was reported last.
    async fn reported_rejections(&self, config_namespace: &str) -> Result<ReportedRejections, KubeError>;

    /// Records that the effect of a revision on groups was reported.
    async fn set_reported_rejections(&self, config_namespace: &str, revision: &str) -> Result<(), KubeError>;

    /// What the API server serves for a kind; `None` when it does not serve the kind.
    async fn discover_kind(&self, group: &str, version: &str, kind: &str) -> Result<Option<DiscoveredKind>, KubeError>;

    /// A resource of the crd strategy, read fresh.
    async fn strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, KubeError>;

    /// All resources of the crd strategy in a namespace whose annotation names the scaling group, read fresh.
    async fn strategy_resources(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        scaling_group: &str,
    ) -> Result<Vec<Value>, KubeError>;

    /// Creates a resource of the crd strategy and returns its UID; `Conflict` when one with its name already exists.
    async fn create_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> Result<Option<String>, KubeError>;

    /// Deletes the resource of the crd strategy with this UID. It is not an error if it no longer exists.
    async fn delete_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), KubeError>;
}
