//! Everything that the controller writes to Kubernetes, and the reads that must be fresh because
//! a write depends on them. One narrow trait; the controller's decisions never see a client.

mod client;
mod config_maps;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod groups;
mod nodes;
mod pods;
mod strategy;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

pub use crate::plan::event::EventKind;
use crate::rotation::crd::{DiscoveredKind, ResourceKind};
pub use client::{KubeClient, connect, connect_as};
pub use error::KubeError;
pub(crate) use error::call_with_timeout;

/// The name under which all our writes appear in `managedFields`.
pub const FIELD_MANAGER: &str = "instance-manager.keikoproj.io";
/// A key of the disruption record. `true`: a person had cordoned the node before we marked it, so
/// that removing the mark leaves the cordon.
pub const CORDONED_BEFORE: &str = "cordonedBefore";

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventTarget {
    pub api_version: String,
    pub kind: String,
    /// None for an object of the cluster; its events go to `default`.
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

/// An event to publish. The caller publishes on transitions only: nothing is counted or merged,
/// because two notes under one reason ("2 of 5 updated", "3 of 5 updated") are two events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubeEvent {
    pub kind: EventKind,
    /// At most 128 characters, UpperCamelCase.
    pub reason: String,
    /// What was done or tried, at most 128 characters, UpperCamelCase.
    pub action: String,
    /// Whole sentences; cut at 1 kB.
    pub note: String,
}

/// What stands behind a pod, as far as a drain cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodKind {
    /// Belongs to a DaemonSet: stays.
    DaemonSet,
    /// A static pod of the kubelet: stays.
    Mirror,
    /// Nothing will make it again: evicted, and named in an event.
    Bare,
    /// Some other controller makes it again.
    Owned,
}

/// What a drain needs to know of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInfo {
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
    /// When a deletion under way ends at the latest, by the API server's clock.
    pub deletion_timestamp: Option<Timestamp>,
    pub ready: bool,
    pub priority: i32,
    /// Uses an emptyDir volume, whose contents are lost.
    pub empty_dir: bool,
}

impl PodInfo {
    /// Whether a drain evicts this pod: not what a DaemonSet or the kubelet would put back at
    /// once, nor what has ended.
    pub fn must_leave(&self) -> bool {
        let ended = self.phase == "Succeeded" || self.phase == "Failed";
        match self.kind {
            PodKind::DaemonSet | PodKind::Mirror => false,
            PodKind::Bare | PodKind::Owned => !ended,
        }
    }
}

/// The answer to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictOutcome {
    /// The pod is being deleted with its grace period.
    Evicted,
    /// A budget does not allow it now.
    Refused {
        /// The API server's own words.
        message: String,
        /// The budgets that select the pod; empty when they cannot be read.
        budgets: Vec<String>,
    },
    /// This pod is no longer there; one of the same name is another.
    Gone,
}

/// A pod that the scheduler cannot place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnschedulablePod {
    pub namespace: String,
    pub name: String,
    pub owner_uid: String,
    /// The scheduler's words.
    pub message: String,
}

/// kube-system/aws-auth as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsAuthMap {
    /// The text under `mapRoles`; None when the key is missing.
    pub map_roles: Option<String>,
    pub resource_version: String,
    /// Bytes of all values, of which the API server accepts 1 MiB.
    pub total_size: usize,
}

/// Who pulled the brake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    pub group: bool,
    pub namespace: bool,
    pub config_map: bool,
}

impl Locks {
    /// Whether any of the three holds.
    pub fn any(self) -> bool {
        self.group || self.namespace || self.config_map
    }
}

/// The Kubernetes side of an apply. Every call is one step, bounded in time, and never repeats
/// itself: the caller decides when to come back.
#[async_trait]
pub trait KubeApi: Send + Sync {
    /// Merges `status` into the status of an InstanceGroup that is still at `resource_version`,
    /// and returns the new resourceVersion. A field that is to go away is null.
    async fn patch_status(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        status: Value,
    ) -> Result<String, KubeError>;

    /// Adds our finalizer to an InstanceGroup whose finalizers are `present`, and returns the new
    /// resourceVersion.
    async fn add_finalizer(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        present: &[String],
    ) -> Result<String, KubeError>;

    /// Removes our finalizer, and no other, from an InstanceGroup whose finalizers are `present`.
    /// That the finalizer or the whole object is gone already is success.
    async fn remove_finalizer(&self, namespace: &str, name: &str, present: &[String]) -> Result<(), KubeError>;

    /// Publishes an event. A namespace that is terminating or gone refuses events: no error.
    async fn publish(&self, about: &EventTarget, event: &KubeEvent) -> Result<(), KubeError>;

    /// In one write: cordons a Node that is still at `resource_version` and records why. Returns
    /// the new resourceVersion. `disruption` says [`CORDONED_BEFORE`] if it was cordoned already.
    async fn cordon_node(&self, name: &str, resource_version: &str, disruption: &Value) -> Result<String, KubeError>;

    /// Takes our mark from a Node, and the cordon with it unless it was there before us. Returns
    /// false, and changes nothing, when the Node does not carry our mark.
    async fn uncordon_node(&self, name: &str) -> Result<bool, KubeError>;

    /// Records on a Node that its instance is about to stand by, or with no record takes it off again. With a
    /// `resource_version` only on a Node that is still at it.
    async fn set_surge_record(
        &self,
        name: &str,
        resource_version: Option<&str>,
        record: Option<&Value>,
    ) -> Result<(), KubeError>;

    /// Sets labels of a Node, and touches no other.
    async fn label_node(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), KubeError>;

    /// All pods bound to a Node, fresh.
    async fn pods_on_node(&self, name: &str) -> Result<Vec<PodInfo>, KubeError>;

    /// Asks for the eviction of exactly this pod, with its own grace period.
    async fn evict(&self, namespace: &str, name: &str, uid: &str) -> Result<EvictOutcome, KubeError>;

    /// Deletes exactly this pod, past any budget; `grace` is in seconds, None the pod's own. That
    /// it is gone already is success.
    async fn delete_pod(&self, namespace: &str, name: &str, uid: &str, grace: Option<u32>) -> Result<(), KubeError>;

    /// The names of the VolumeAttachments of a Node, fresh.
    async fn volume_attachments(&self, node: &str) -> Result<Vec<String>, KubeError>;

    /// The pods of a namespace that the scheduler cannot place and that one of `owners` (uids of
    /// controllers) made: the replacements of what was evicted.
    async fn unschedulable_pods(
        &self,
        namespace: &str,
        owners: &BTreeSet<String>,
    ) -> Result<Vec<UnschedulablePod>, KubeError>;

    /// Reads the brake from the three objects themselves. An error means that nobody knows: hold.
    /// `NotFound` means that the group or its namespace is gone; a missing ConfigMap holds nothing.
    async fn locks(&self, namespace: &str, group: &str, config_namespace: &str) -> Result<Locks, KubeError>;

    /// kube-system/aws-auth, fresh; None when there is none.
    async fn aws_auth(&self) -> Result<Option<AwsAuthMap>, KubeError>;

    /// Sets `mapRoles`, and nothing else, of an aws-auth that is still at `resource_version`.
    async fn update_aws_auth(&self, resource_version: &str, map_roles: &str) -> Result<(), KubeError>;

    /// Creates aws-auth; `Conflict` when somebody else just did.
    async fn create_aws_auth(&self, map_roles: &str) -> Result<(), KubeError>;

    /// The data of the last valid ConfigMap; None when none was stored.
    async fn last_known_good(&self, config_namespace: &str) -> Result<Option<BTreeMap<String, String>>, KubeError>;

    /// Stores the data of a valid ConfigMap; writes nothing when it is stored already.
    async fn put_last_known_good(
        &self,
        config_namespace: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<(), KubeError>;

    /// What the API server serves under a kind; None when it serves no such kind.
    async fn discover_kind(&self, group: &str, version: &str, kind: &str) -> Result<Option<DiscoveredKind>, KubeError>;

    /// A resource of the crd strategy, fresh.
    async fn strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, KubeError>;

    /// All resources of the crd strategy in a namespace that are annotated with a scaling group, fresh.
    async fn strategy_resources(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        scaling_group: &str,
    ) -> Result<Vec<Value>, KubeError>;

    /// Creates a resource of the crd strategy; `Conflict` when one of its name is there.
    async fn create_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> Result<(), KubeError>;

    /// Deletes exactly this resource of the crd strategy. That it is gone already is success.
    async fn delete_strategy_resource(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), KubeError>;
}
