//! What looking takes, and how a node that is being drained is looked at. What
//! else there is to see is the provisioners' own.

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

/// Why nobody knows. Never taken for "it is not there".
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// AWS did not tell.
    #[error("reading from AWS: {0}")]
    Aws(#[source] AwsError),
    /// Kubernetes did not tell.
    #[error("reading from Kubernetes: {0}")]
    Cluster(#[source] KubeError),
}

/// What observing needs.
pub struct Observer<'a> {
    /// Batched reads of AWS.
    pub inventory: &'a Inventory,
    /// Reads of pods and volumes of single nodes.
    pub kube: &'a dyn KubeApi,
    /// Nodes by instance.
    pub node_index: &'a NodeIndex,
    /// Clocks.
    pub process_state: &'a ProcessState,
    /// `mapRoles` as the watch shows it; the outer `None` before it has.
    pub map_roles: Option<&'a str>,
    /// What groups share: roles, and whose entry in aws-auth is ours.
    pub group_index: &'a GroupIndex,
    /// How old a cached read may be.
    pub max_cache_age: Duration,
    /// How old a shared read may be in any case.
    pub shared_max_cache_age: Duration,
    /// The moment.
    pub now: Timestamp,
}

/// What a look answers, or that nobody knows.
pub type ObserveResult<T> = Result<T, ObserveError>;

/// Pods and volumes of the nodes that carry our record, and of no other.
pub async fn drain_views(o: &Observer<'_>, members: &[NodeInstance], uid: &str) -> ObserveResult<Drains> {
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
    let pods = o.kube.pods_on_node(node).await.map_err(ObserveError::Cluster)?;
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
        if empty { o.kube.volume_attachments(node).await.map_err(ObserveError::Cluster)? } else { Vec::new() };
    let memory = o.process_state.track_drain(node, empty, o.now);
    Ok(DrainView {
        pods,
        attached_volumes,
        empty_since: memory.empty_since,
        last_blocked_eviction: memory.evictions_blocked,
        retry_drain_at: memory.retry_at,
    })
}
