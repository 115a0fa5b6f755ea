//! Decisions of rolling updates and drains. This file has the fixtures.

mod batches;
mod blockers;
mod budget;
mod drains;
mod properties;
mod records;
mod scale_in;

use jiff::{SignedDuration, Timestamp};

use super::drain::{AtTimeout, DrainPolicy};
use super::rolling_update::{
    Candidates, RollingUpdateDecision, RollingUpdateInput, RotationState, WarmPoolRotation, decide,
};
use super::*;
use crate::aws::samples::instance;
use crate::aws::{Instance, InstanceState};
use crate::plan::{Drift, NodeStep, PodRef, StalledReason, StepInfo, UncordonReason};

pub(super) const UID: &str = "uid-1";

pub(super) fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().expect("a time")
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A Ready node, about two hours old, that is not outdated.
pub(super) fn node_instance(name: &str) -> NodeInstance {
    let node = NodeView {
        name: format!("node-{name}"),
        resource_version: "7".into(),
        ready: true,
        was_ready: true,
        ready_changed_at: Some(ago(7_000)),
        ready_reason: None,
        kubelet_silent: false,
        cordoned: false,
        unschedulable_since: None,
        disruption: None,
        orphaned_disruption: None,
        termination_sent_at: None,
        surge: None,
        drain_after: None,
        in_place: None,
        labeled_group: None,
        nodegroup: None,
        zone: None,
        created_at: ago(7_060),
        drain_last: false,
        is_removed_by_autoscaler: false,
        autoscaler_since: None,
        duplicates: Vec::new(),
    };
    let instance = Instance { in_service_since: Some(ago(7_100)), ..instance(name) };
    NodeInstance {
        instance,
        node: Some(node),
        lost_node: None,
        is_recorded_standby: false,
        reasons: Vec::new(),
        in_place: None,
    }
}

pub(super) trait NodeInstanceExt: Sized {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self;
    fn outdated(self) -> Self;
    fn zone(self, zone: &str) -> Self;
    fn state(self, state: InstanceState) -> Self;
    fn cordoned(self) -> Self;
    fn unready_since(self, seconds: i64) -> Self;
    fn never_joined(self) -> Self;
    fn unready(self) -> Self;
    fn in_service_since(self, seconds: i64) -> Self;
}

impl NodeInstanceExt for NodeInstance {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self {
        self.with(|m| change(m.node.as_mut().expect("a node")))
    }
    fn outdated(self) -> Self {
        self.with(|m| m.reasons = vec![Drift::new("image", "ami-1", "ami-2")])
    }
    fn zone(self, zone: &str) -> Self {
        self.with(|m| m.instance.zone = zone.into())
    }
    fn state(self, state: InstanceState) -> Self {
        self.with(|m| m.instance.state = state)
    }
    fn cordoned(self) -> Self {
        self.node(|n| {
            n.cordoned = true;
            n.disruption = Some(DisruptionRecord {
                group: UID.into(),
                template_version: "2".into(),
                since: ago(20),
                cordoned_before: false,
                scale_down_disabled: false,
                terminated_at: None,
            });
        })
    }

    /// Was Ready before, and has not been Ready for `seconds`.
    fn unready_since(self, seconds: i64) -> Self {
        self.node(|n| (n.ready, n.ready_changed_at) = (false, Some(ago(seconds))))
    }
    fn unready(self) -> Self {
        self.node(|n| (n.ready, n.was_ready) = (false, false))
    }
    fn never_joined(self) -> Self {
        self.with(|m| m.node = None)
    }

    /// Entered service `seconds` ago, and joined two seconds later.
    fn in_service_since(self, seconds: i64) -> Self {
        self.with(|m| {
            m.instance.in_service_since = Some(ago(seconds));
            if let Some(n) = m.node.as_mut() {
                (n.created_at, n.ready_changed_at) = (ago(seconds - 2), Some(ago(seconds - 2)));
            }
        })
    }
}

fn policy() -> DrainPolicy {
    DrainPolicy {
        timeout: None,
        timeout_since: None,
        at_timeout: AtTimeout::Uncordon,
        decrement_desired: false,
        dead_kubelet_after: SignedDuration::from_mins(5),
        volume_detach_timeout: SignedDuration::from_mins(2),
        decrement_interval: SignedDuration::from_mins(2),
    }
}

pub(super) fn input<'a>(
    members: &'a [NodeInstance],
    drains: &'a Drains,
    max_unavailable: usize,
) -> RollingUpdateInput<'a> {
    RollingUpdateInput {
        scaling_group: "asg",
        group_uid: UID,
        template_version: "2",
        members,
        desired: members.iter().filter(|m| m.instance.state == InstanceState::InService).count(),
        max_unavailable,
        max_unavailable_in_weight: false,
        max_surge: 0,
        candidates: Candidates::Outdated,
        uncordon_reason: UncordonReason::NoLongerReplaced,
        lock: None,
        rollout_block: None,
        allowance: None,
        warm_pool: WarmPoolRotation::Done,
        precondition: None,
        failed_replacements: None,
        failed_launch: None,
        unhealthy_stay: None,
        was_halted: false,
        join_timeout: SignedDuration::from_mins(15),
        min_ready_time: SignedDuration::from_secs(30),
        drain_policy: policy(),
        drains,
        cluster_health: ClusterHealth { total: 100, unready: 0 },
        now: now(),
    }
}

fn rotate(members: &[NodeInstance], max_unavailable: usize) -> RollingUpdateDecision {
    decide(&input(members, &Drains::new(), max_unavailable))
}

/// A short text for each step, in order.
pub(super) fn step_summaries(decision: &RollingUpdateDecision) -> Vec<String> {
    let name = |step: &NodeStep| match step {
        NodeStep::CordonNode { instance, .. } => Some(format!("cordon {instance}")),
        NodeStep::Terminate { instance, .. } => Some(format!("terminate {instance}")),
        NodeStep::UncordonNode { node, .. } => Some(format!("uncordon {node}")),
        NodeStep::RecordSurge { instance, .. } => Some(format!("record {instance}")),
        NodeStep::EnterStandby { instance, .. } => Some(format!("standby {instance}")),
        NodeStep::ClearSurge { node, .. } => Some(format!("clear {node}")),
        _ => None,
    };
    decision.steps.iter().filter_map(name).collect()
}

fn pod(name: &str) -> PodView {
    let pod = PodRef { namespace: "apps".into(), name: name.into(), uid: name.into() };
    PodView {
        pod,
        is_ignored: false,
        is_finished: false,
        is_unmanaged: false,
        is_terminating: false,
        terminating_until: None,
        created: None,
        tolerates_cordon: false,
        is_newer_than_drain: false,
        grace_seconds: 30,
    }
}

pub(super) fn drains(node: &str, pods: Vec<PodView>) -> Drains {
    [(node.to_owned(), DrainView { pods, ..DrainView::default() })].into()
}
