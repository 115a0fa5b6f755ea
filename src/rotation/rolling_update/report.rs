//! Adds the steps, conditions and outcome of a rolling update to a plan, for every provisioner that drains nodes.

use super::types::{RollingUpdateDecision, RotationState};
use jiff::Timestamp;

use crate::api::names::condition;
use crate::api::rfc3339;
use crate::aws::InstanceState;
use crate::plan::{
    ConditionUpdate, Drift, Event, EventReason, NodeStep, Outcome, Phase, PlanBuilder, PlannedStep, PodRef, Recheck,
    StalledReason,
};
use crate::rotation::members::NodeInstance;

/// Which nodes a rotation takes out of service, for its messages.
pub(crate) enum RotatedNodes {
    /// Outdated nodes, which Auto Scaling replaces one by one.
    Outdated,
    /// The nodes of the old node groups. Those of the new one run already, so they are no progress.
    OldGroups {
        /// How many of them are drained.
        drained: usize,
        /// How many there are.
        total: usize,
    },
    /// So many nodes above `maxSize`, and why they are.
    Surplus(usize, Drift),
}

/// Adds the steps of a rotation to the plan, with its conditions and its outcome.
pub(crate) fn report(
    members: &[NodeInstance],
    decision: RollingUpdateDecision,
    rotated: &RotatedNodes,
    builder: &mut PlanBuilder,
) {
    let outdated = members.iter().filter(|m| !m.reasons.is_empty()).count();
    let reasons_of = |step: &NodeStep| {
        let id = match step {
            NodeStep::CordonNode { instance, .. }
            | NodeStep::EnterStandby { instance, .. }
            | NodeStep::Terminate { instance, .. } => instance,
            _ => return Vec::new(),
        };
        let member = members.iter().find(|m| m.instance.id == *id);
        match rotated {
            // One in standby was replaced, and is not surplus.
            RotatedNodes::Surplus(_, reason) if member.is_some_and(|m| !m.instance.state.is_standby()) => {
                vec![reason.clone()]
            }
            RotatedNodes::Surplus(..) | RotatedNodes::Outdated | RotatedNodes::OldGroups { .. } => {
                member.map(|m| m.reasons.clone()).unwrap_or_default()
            }
        }
    };
    builder.condition_updates.extend(duplicate_provider_id(&decision));
    builder.condition_updates.extend(overdue_pods(&decision));
    let has_steps = !decision.steps.is_empty();
    builder.steps.extend(decision.steps.into_iter().map(|step| {
        let reasons = reasons_of(&step);
        PlannedStep::new(step, reasons)
    }));
    if !decision.timed_out_drains.is_empty() {
        let nodes = decision.timed_out_drains.iter().map(|(node, pods)| format!("{node} (pods: {})", pod_names(pods)));
        let message = format!(
            "uncordoned, because the drain took longer than drainTimeout: {}; drained again after a few minutes; relax what blocks them, or set drainForce: true, which deletes such pods",
            nodes.collect::<Vec<_>>().join(", ")
        );
        builder.condition_updates.push(ConditionUpdate {
            condition_type: condition::DRAIN_BLOCKED,
            status: true,
            reason: "DrainTimeout".into(),
            message,
        });
    }
    if !decision.abandoned_pods.is_empty() {
        let message = format!(
            "the drain took longer than drainTimeout; the controller terminates nodes on which these pods still run: {}",
            pod_names(&decision.abandoned_pods)
        );
        builder.events.push(Event::warning(EventReason::TerminatedWithPods, message));
    }
    let blocked = |reason, message| Outcome::Blocked { reason, message, is_deleting: false };
    let summary = || format!("{outdated} of {} nodes are outdated ({})", members.len(), outdated_by(members));
    let (progress, summary) = match rotated {
        RotatedNodes::Surplus(nodes, _) => {
            (format!("maxSize is exceeded by {nodes}"), format!("maxSize is exceeded by {nodes}"))
        }
        RotatedNodes::OldGroups { drained, total } => {
            (format!("rotating: {drained} of {total} old nodes are drained"), summary())
        }
        RotatedNodes::Outdated => (progress(members), summary()),
    };
    match decision.state {
        RotationState::Idle if has_steps => builder.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "uncordoning nodes".into(),
            recheck: Recheck::Immediately,
        }),
        RotationState::Idle => report_halted(builder, false, "NotRotating", String::new()),
        RotationState::InProgress => {
            report_halted(builder, false, "Rotating", String::new());
            let wait = decision.waiting_for.join("; ");
            let message = if wait.is_empty() { progress } else { format!("{progress}; waiting for {wait}") };
            let recheck = if has_steps { Recheck::Immediately } else { Recheck::Poll };
            builder.set_outcome_once(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
        }
        RotationState::Locked(lock) => builder
            .set_outcome_once(Outcome::Locked { message: format!("{summary}; replacement is blocked by {lock}") }),
        RotationState::Blocked(reason, message) => builder.set_outcome_once(blocked(reason, message)),
        RotationState::Halted(message) => {
            report_halted(builder, true, "ReplacementsNotReady", message.clone());
            builder.set_outcome_once(blocked(StalledReason::ReplacementsNotReady, message));
        }
        RotationState::Unhealthy(message) => {
            builder.set_outcome_once(blocked(StalledReason::ClusterUnhealthy, message))
        }
        RotationState::DrainBackoff(message) => builder.set_outcome_once(blocked(StalledReason::DrainBlocked, message)),
    }
}

/// What makes the nodes outdated, each difference once.
fn outdated_by(members: &[NodeInstance]) -> String {
    let mut reasons: Vec<_> = members.iter().flat_map(|m| &m.reasons).map(ToString::to_string).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons.join("; ")
}

/// How far a rotation is. A node counts as done once it runs the desired version and is Ready; those that are not Ready are
/// named separately, and both together are `status.nodes.updated`.
fn progress(members: &[NodeInstance]) -> String {
    let is_ours = |m: &&NodeInstance| m.node.as_ref().is_some_and(|node| node.surge.is_some());
    let counts = |m: &&NodeInstance| match m.instance.state {
        InstanceState::InService | InstanceState::Pending => true,
        InstanceState::EnteringStandby | InstanceState::Standby => is_ours(m),
        InstanceState::Terminating | InstanceState::Warmed | InstanceState::Other => false,
    };
    let weight = |test: &dyn Fn(&NodeInstance) -> bool| {
        let counted = members.iter().filter(counts).filter(|m| test(m));
        counted.map(NodeInstance::weight).sum::<usize>()
    };
    let total = weight(&|_| true);
    let done = weight(&|m| m.reasons.is_empty() && m.is_ready());
    let unready = weight(&|m| m.reasons.is_empty() && !m.is_ready());
    let units = if members.iter().any(|m| m.weight() > 1) { " units of capacity" } else { "" };
    let unready = if unready > 0 { format!(", {unready} not Ready yet") } else { String::new() };
    format!("rotating: {done} of {total}{units} done{unready}")
}

/// The condition for instances that are left unchanged because several Nodes claim them.
pub(crate) fn duplicate_provider_id(decision: &RollingUpdateDecision) -> Option<ConditionUpdate> {
    let message = format!(
        "{}; their pods are not evicted and these instances are not terminated; delete the Nodes that do not belong to the instance (wrong --provider-id)",
        decision.duplicate_provider_ids.join("; ")
    );
    let update = ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: true,
        reason: "DuplicateProviderID".into(),
        message,
    };
    (!decision.duplicate_provider_ids.is_empty()).then_some(update)
}

/// The condition for pods that do not terminate, although their grace period is over.
pub(crate) fn overdue_pods(decision: &RollingUpdateDecision) -> Option<ConditionUpdate> {
    let describe = |(node, pod, until): &(String, PodRef, Timestamp)| {
        format!("{}/{} on {node} (its grace period ended at {})", pod.namespace, pod.name, rfc3339(*until))
    };
    let mut pods: Vec<_> = decision.overdue_pods.iter().take(MAX_OVERDUE).map(describe).collect();
    let others = decision.overdue_pods.len() - pods.len();
    pods.extend((others > 0).then(|| format!("{others} others")));
    let message = format!(
        "pods do not terminate: {}; check their finalizers, their volumes and the kubelets of the nodes",
        pods.join(", ")
    );
    (!decision.overdue_pods.is_empty()).then(|| ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: true,
        reason: "PodNotTerminating".into(),
        message,
    })
}

/// How many pods that do not terminate a message names.
const MAX_OVERDUE: usize = 5;

/// Adds the condition `RotationHalted`, also with the status False when a halt ends. The first report of a plan counts,
/// like its first outcome: the warm pool rotates before the nodes, and halts them as well.
pub(crate) fn report_halted(builder: &mut PlanBuilder, status: bool, reason: &str, message: String) {
    let condition_type = condition::ROTATION_HALTED;
    if builder.condition_updates.iter().all(|update| update.condition_type != condition_type) {
        builder.condition_updates.push(ConditionUpdate { condition_type, status, reason: reason.into(), message });
    }
}

/// Pods as `namespace/name`, for messages.
pub(crate) fn pod_names(pods: &[PodRef]) -> String {
    pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect::<Vec<_>>().join(", ")
}
