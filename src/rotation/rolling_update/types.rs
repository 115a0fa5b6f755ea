//! Input and decision of a rolling update, and what its parts share.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::plan::{Allowance, NodeStart, NodeStep, PodRef, StalledReason, UncordonReason};
use crate::rotation::drain::DrainPolicy;
use crate::rotation::members::{ClusterHealth, DrainView, Drains, NodeInstance};

/// Everything that the decision depends on.
pub(crate) struct RollingUpdateInput<'a> {
    /// Name of the scaling group.
    pub scaling_group: &'a str,
    /// UID of the InstanceGroup, as recorded on nodes.
    pub group_uid: &'a str,
    /// The launch template version that the group is pinned to.
    pub template_version: &'a str,
    /// All instances of the group.
    pub members: &'a [NodeInstance],
    /// Desired capacity, in units of weight.
    pub desired: usize,
    /// How many nodes may be unavailable at once, resolved from a number or a percentage.
    pub max_unavailable: usize,
    /// Whether `max_unavailable` was a percentage of the desired capacity; it is then in units of weight, not in nodes.
    pub max_unavailable_in_weight: bool,
    /// How many healthy nodes may be in standby at once while their replacements launch; 0 drains them first.
    pub max_surge: usize,
    /// Which instances are removed.
    pub candidates: Candidates,
    /// Why the nodes that the group cordoned and that are no candidates are uncordoned.
    pub uncordon_reason: UncordonReason,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Why no further outdated node may be replaced; replacements in progress are finished. `None` when nodes may be
    /// replaced.
    pub rollout_block: Option<&'a str>,
    /// How many further available outdated nodes may be replaced; `None` for any number.
    pub allowance: Option<&'a Allowance>,
    /// How far the rotation of the warm pool is, which comes before the next node.
    pub warm_pool: WarmPoolRotation,
    /// Why no node may be cordoned now; `None` when nodes may be.
    pub precondition: Option<(StalledReason, String)>,
    /// Replacements that failed and are gone, in words; `None` when there are none.
    pub failed_replacements: Option<String>,
    /// Why Auto Scaling launched no replacement for the last terminated node; `None` when no such failure is known.
    pub failed_launch: Option<(StalledReason, String)>,
    /// Why Auto Scaling terminates no instance that it reports as Unhealthy, and the remedy; `None` when it does.
    pub unhealthy_stay: Option<String>,
    /// Whether the condition RotationHalted is already True for the desired version.
    pub was_halted: bool,
    /// How long a replacement may take from InService to Ready.
    pub join_timeout: SignedDuration,
    /// How long a replacement must have been Ready before the next healthy node is drained.
    pub min_ready_time: SignedDuration,
    /// Timeouts of a drain.
    pub drain_policy: DrainPolicy,
    /// Pods and volumes of the nodes that carry this group's disruption record, and what delays the drain of others.
    pub drains: &'a Drains,
    /// Number of unready nodes in the whole cluster.
    pub cluster_health: ClusterHealth,
    /// Reference time of the decision.
    pub now: Timestamp,
}

impl RollingUpdateInput<'_> {
    /// Pods and volumes of the member's node; `None` when they have not been observed.
    pub(super) fn drain_view(&self, member: &NodeInstance) -> Option<&DrainView> {
        self.drains.get(member.drain_key())
    }

    /// Why no further candidate may be replaced or removed. A rollout does not block a deletion.
    pub(super) fn replacement_block(&self) -> Option<&str> {
        self.rollout_block.filter(|_| self.candidates != Candidates::All)
    }

    /// Whether the drain of the member ran into its timeout and is not retried yet. One that has begun since goes on.
    pub(super) fn is_in_drain_backoff(&self, member: &NodeInstance) -> bool {
        member.disruption_of(self.group_uid).is_none()
            && self.drain_view(member).is_some_and(|v| v.retry_drain_at.is_some_and(|t| self.now < t))
    }

    /// Whether a node that was Ready is silent for a moment only. In an outage of the cluster's API or network, the rotation
    /// would take it at once, because it is not available, and drain it when it is Ready again. After a jump of the clock, it
    /// may be silent for less time than it seems.
    pub(super) fn may_recover(&self, member: &NodeInstance) -> bool {
        let limit = self.drain_policy.dead_kubelet_after;
        let has_jumped = self.drain_view(member).is_some_and(|view| !view.is_clock_steady_for(limit));
        member
            .node
            .as_ref()
            .filter(|node| node.has_become_unready() && !node.cordoned)
            .and_then(|node| node.ready_changed_at)
            .is_some_and(|since| has_jumped || self.now.duration_since(since) < limit)
    }

    /// The step that cordons the member's node and records the disruption; `None` for an instance without a node.
    pub(super) fn cordon_step(&self, member: &NodeInstance) -> Option<NodeStep> {
        let node = member.node.as_ref()?;
        Some(NodeStep::CordonNode {
            node: node.name.clone(),
            resource_version: node.resource_version.clone(),
            instance: member.instance.id.clone(),
            template_version: self.template_version.into(),
            was_cordoned: node.orphaned_disruption.as_ref().map_or(node.cordoned, |record| record.cordoned_before),
        })
    }
}

/// Which instances are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidates {
    /// The outdated ones, to be replaced.
    Outdated,
    /// Instances of this total weight, without replacement; and the instances in standby, which are already replaced.
    Surplus(usize),
    /// All instances, without replacement.
    All,
}

/// How far the rotation of the group's warm pool is. Auto Scaling replaces nodes from the pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WarmPoolRotation {
    /// The nodes wait for no instance of a pool.
    Done,
    /// Instances of the pool are outdated: drains in progress are finished, and no further node is taken.
    InProgress,
    /// Instances of the pool did not launch or terminate in time, in words: no node is replaced, as after failed
    /// replacements.
    Halted(String),
}

/// What to do now, and the state of the rotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RollingUpdateDecision {
    /// The steps in order.
    pub steps: Vec<NodeStep>,
    /// State of the rotation.
    pub state: RotationState,
    /// What the rotation waits for; phrases that follow "waiting for".
    pub waiting_for: Vec<String>,
    /// Whether a drain waits because a PodDisruptionBudget blocked an eviction and the retry is not due yet.
    pub eviction_blocked: bool,
    /// Drains that ran into their timeout in this decision: the node, and the pods that are left on it.
    pub timed_out_drains: Vec<(String, Vec<PodRef>)>,
    /// Pods that should have terminated: the node, the pod, and when its grace period ended.
    pub overdue_pods: Vec<(String, PodRef, Timestamp)>,
    /// Pods that are still running on instances which a deletion terminates.
    pub abandoned_pods: Vec<PodRef>,
    /// Candidates that several Nodes claim, one sentence each; they are left unchanged.
    pub duplicate_provider_ids: Vec<String>,
    /// The instances that enter standby in this pass.
    pub entering_standby: BTreeSet<String>,
    /// The available nodes whose replacement starts in this pass, by instance.
    pub begins: BTreeMap<String, NodeStart>,
    /// Whether the rotation would replace further nodes if the last launch had not failed.
    pub waits_for_launch: bool,
    /// How the rotation would replace further nodes if the rollout budget allowed it.
    pub waits_for: BTreeSet<NodeStart>,
}

/// State of a rotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum RotationState {
    /// There are no candidates.
    #[default]
    Idle,
    /// Candidates are being removed.
    InProgress,
    /// `lock-upgrades` is set, or a rollout blocks the group; the value names which.
    Locked(String),
    /// A precondition is not met, so no node may be cordoned.
    Blocked(StalledReason, String),
    /// Replacements did not become Ready.
    Halted(String),
    /// Too many nodes are not ready at once.
    Unhealthy(String),
    /// The drains of all candidates ran into their timeout and are not retried yet.
    DrainBackoff(String),
}
