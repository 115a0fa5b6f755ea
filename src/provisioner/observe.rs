//! What looking takes, and how a node that is being drained is looked at. What
//! else there is to see is the provisioners' own.

use std::time::Duration;

use jiff::Timestamp;

use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, InstanceState};
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::Memory;
use crate::k8s::{ClusterError, ClusterWrites, PodKind};
use crate::plan::PodRef;
use crate::rotation::{DrainView, Drains, Member, PodView};

/// Why nobody knows. Never taken for "it is not there".
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// AWS did not tell.
    #[error("reading from AWS: {0}")]
    Aws(#[source] AwsError),
    /// Kubernetes did not tell.
    #[error("reading from Kubernetes: {0}")]
    Cluster(#[source] ClusterError),
}

/// What observing needs.
pub struct Observer<'a> {
    /// Batched reads of AWS.
    pub inventory: &'a Inventory,
    /// Reads of pods and volumes of single nodes.
    pub cluster: &'a dyn ClusterWrites,
    /// Nodes by instance.
    pub nodes: &'a NodeIndex,
    /// Clocks.
    pub memory: &'a Memory,
    /// `mapRoles` as the watch shows it; the outer `None` before it has.
    pub map_roles: Option<&'a str>,
    /// What groups share: roles, and whose entry in aws-auth is ours.
    pub groups: &'a GroupIndex,
    /// How old a cached read may be.
    pub max_age: Duration,
    /// How old a shared read may be in any case.
    pub resync: Duration,
    /// The moment.
    pub now: Timestamp,
}

/// What a look answers, or that nobody knows.
pub type Observed<T> = Result<T, ObserveError>;

/// Pods and volumes of the nodes that carry our record, and of no other.
pub async fn drains(o: &Observer<'_>, members: &[Member], uid: &str) -> Observed<Drains> {
    let mut drains = Drains::new();
    for member in members {
        let Some(node) = &member.node else { continue };
        if member.mark(uid).is_none() {
            if let Some(until) = o.memory.resting(&node.name) {
                drains.insert(node.name.clone(), DrainView { resting_until: Some(until), ..DrainView::default() });
            }
            continue;
        }
        if matches!(member.instance.state, InstanceState::Terminating | InstanceState::Other) {
            continue;
        }
        drains.insert(node.name.clone(), drain(o, &node.name).await?);
    }
    Ok(drains)
}

async fn drain(o: &Observer<'_>, node: &str) -> Observed<DrainView> {
    let pods = o.cluster.pods_on_node(node).await.map_err(ObserveError::Cluster)?;
    let pods: Vec<_> = (pods.into_iter())
        .map(|p| PodView {
            stays: matches!(p.kind, PodKind::DaemonSet | PodKind::Mirror),
            finished: matches!(p.phase.as_str(), "Succeeded" | "Failed"),
            bare: p.kind == PodKind::Bare,
            terminating: p.deletion_timestamp.is_some(),
            grace: p.grace_seconds,
            pod: PodRef { namespace: p.namespace, name: p.name, uid: p.uid },
        })
        .collect();
    let empty = pods.iter().all(|p| p.stays || p.finished);
    let volumes =
        if empty { o.cluster.volume_attachments(node).await.map_err(ObserveError::Cluster)? } else { Vec::new() };
    let memory = o.memory.drain(node, empty, o.now);
    Ok(DrainView {
        pods,
        volumes,
        empty_since: memory.empty_since,
        refused: memory.refused,
        resting_until: memory.resting_until,
    })
}
