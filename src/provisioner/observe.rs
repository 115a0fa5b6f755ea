//! What every provisioner needs to observe a group, and the observation of nodes that are being drained. Each provisioner
//! observes its own resources in its own folder.

use std::time::Duration;

use jiff::Timestamp;

use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, InstanceState};
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::ProcessState;
use crate::k8s::{KubeApi, KubeError, PodKind};
use crate::plan::PodRef;
use crate::rotation::{DrainView, Drains, NodeInstance, PodView};

/// A failed read. It never means that the resource does not exist.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// An AWS call failed.
    #[error("reading from AWS: {0}")]
    Aws(#[source] AwsError),
    /// A Kubernetes call failed.
    #[error("reading from Kubernetes: {0}")]
    Kube(#[source] KubeError),
}

/// Clients, caches and settings to observe a group with.
pub struct Observer<'a> {
    /// Batched and cached reads from AWS.
    pub inventory: &'a Inventory,
    /// Kubernetes client, for pods and volumes of single nodes.
    pub kube: &'a dyn KubeApi,
    /// Nodes by instance id.
    pub node_index: &'a NodeIndex,
    /// Timers of drains and other state of this process.
    pub process_state: &'a ProcessState,
    /// `mapRoles` of kube-system/aws-auth from the watch; `None` when the map or the field does not exist.
    pub map_roles: Option<&'a str>,
    /// Index of what groups share: roles, and entries in aws-auth that the controller added.
    pub group_index: &'a GroupIndex,
    /// Maximum age of a cached read.
    pub max_cache_age: Duration,
    /// Maximum age of a read that is shared between groups.
    pub shared_max_cache_age: Duration,
    /// Reference time of this reconcile.
    pub now: Timestamp,
}

/// Result of an observation.
pub(crate) type ObserveResult<T> = Result<T, ObserveError>;

/// Pods and volumes of the nodes that carry this group's disruption record. Pods of other nodes are not read.
pub(crate) async fn drain_views(o: &Observer<'_>, members: &[NodeInstance], uid: &str) -> ObserveResult<Drains> {
    let mut drains = Drains::new();
    for member in members {
        let Some(node) = &member.node else { continue };
        if member.disruption_of(uid).is_none() {
            if let Some(until) = o.process_state.drain_retry_at(&node.name) {
                drains.insert(node.name.clone(), DrainView { retry_drain_at: Some(until), ..DrainView::default() });
            }
            continue;
        }
        if matches!(member.instance.state, InstanceState::Terminating | InstanceState::Other) {
            continue;
        }
        drains.insert(node.name.clone(), drain_view(o, &node.name).await?);
    }
    Ok(drains)
}

async fn drain_view(o: &Observer<'_>, node: &str) -> ObserveResult<DrainView> {
    let pods = o.kube.pods_on_node(node).await.map_err(ObserveError::Kube)?;
    let pods: Vec<_> = (pods.into_iter())
        .map(|p| PodView {
            is_ignored: matches!(p.kind, PodKind::DaemonSet | PodKind::Mirror),
            is_finished: matches!(p.phase.as_str(), "Succeeded" | "Failed"),
            is_unmanaged: p.kind == PodKind::Unmanaged,
            is_terminating: p.deletion_timestamp.is_some(),
            grace_seconds: p.grace_seconds,
            pod: PodRef { namespace: p.namespace, name: p.name, uid: p.uid },
        })
        .collect();
    let empty = pods.iter().all(|p| p.is_ignored || p.is_finished);
    let attached_volumes =
        if empty { o.kube.volume_attachments(node).await.map_err(ObserveError::Kube)? } else { Vec::new() };
    let tracked = o.process_state.track_drain(node, empty, o.now);
    Ok(DrainView {
        pods,
        attached_volumes,
        empty_since: tracked.empty_since,
        last_blocked_eviction: tracked.evictions_blocked,
        retry_drain_at: tracked.retry_at,
    })
}
