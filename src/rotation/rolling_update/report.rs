//! How a rotation of nodes is told, whichever provisioner's nodes they are.

use crate::api::names::condition;
use crate::plan::{
    ConditionUpdate, Event, NodeStep, Outcome, Phase, PlanBuilder, PlannedStep, PodRef, Reason, Recheck,
};
use crate::rotation::NodeInstance;
use crate::rotation::rolling_update::{RollingUpdateDecision, RotationState};

/// Tells where a rotation stands, and adds its steps.
pub fn report(members: &[NodeInstance], decision: RollingUpdateDecision, surplus: usize, draft: &mut PlanBuilder) {
    let outdated = members.iter().filter(|m| !m.reasons.is_empty()).count();
    let because = |step: &NodeStep| {
        let id = match step {
            NodeStep::CordonNode { instance, .. }
            | NodeStep::EnterStandby { instance, .. }
            | NodeStep::Terminate { instance, .. } => instance,
            _ => return Vec::new(),
        };
        members.iter().find(|m| m.instance.id == *id).map(|m| m.reasons.clone()).unwrap_or_default()
    };
    draft.condition_updates.extend(duplicate_provider_id(&decision));
    let acts = !decision.steps.is_empty();
    draft.steps.extend(decision.steps.into_iter().map(|step| {
        let because = because(&step);
        PlannedStep::new(step, because)
    }));
    for (node, pods) in &decision.timed_out_drains {
        let message =
            format!("{node} was given back: its drain took longer than drainTimeout; still there: {}", pod_names(pods));
        draft.condition_updates.push(ConditionUpdate {
            condition_type: condition::DRAIN_BLOCKED,
            status: true,
            reason: "DrainTimeout".into(),
            message,
        });
    }
    if !decision.abandoned_pods.is_empty() {
        let message =
            format!("the drain took too long and goes on without waiting for {}", pod_names(&decision.abandoned_pods));
        draft.events.push(Event { warning: true, reason: "DrainTimeout".into(), message });
    }
    let blocked = |reason, message| Outcome::Blocked { reason, message, is_deleting: false };
    let what = if surplus > 0 {
        format!("{surplus} nodes are more than maxSize")
    } else {
        format!("{outdated} of {} nodes are outdated", members.len())
    };
    match decision.state {
        RotationState::Idle if acts => draft.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "giving nodes back".into(),
            recheck: Recheck::Soon,
        }),
        RotationState::Idle => draft.condition_updates.push(rotation_halted(false, "NotRotating", String::new())),
        RotationState::Going => {
            draft.condition_updates.push(rotation_halted(false, "Rotating", String::new()));
            let wait = decision.waiting_for.join("; ");
            let message = if wait.is_empty() { what } else { format!("{what}; waiting for {wait}") };
            let recheck = if acts { Recheck::Soon } else { Recheck::Poll };
            draft.set_outcome_once(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
        }
        RotationState::Locked(lock) => {
            draft.set_outcome_once(Outcome::Locked { message: format!("{what}, and {lock} holds them") })
        }
        RotationState::Obstacle(reason, message) => draft.set_outcome_once(blocked(reason, message)),
        RotationState::Halted(message) => {
            let message = format!(
                "{message}; the old nodes stay; mend what the replacements start from (image, user data, role), and the rotation goes on by itself"
            );
            draft.condition_updates.push(rotation_halted(true, "ReplacementsNotReady", message.clone()));
            draft.set_outcome_once(blocked(Reason::ReplacementsNotReady, message));
        }
        RotationState::Unhealthy(message) => draft.set_outcome_once(blocked(Reason::ClusterUnhealthy, message)),
        RotationState::Resting(message) => draft.set_outcome_once(blocked(Reason::DrainBlocked, message)),
    }
}

/// Instances that are left alone because several nodes say they are them.
pub fn duplicate_provider_id(decision: &RollingUpdateDecision) -> Option<ConditionUpdate> {
    let message = format!(
        "waiting for {}; none of their pods is evicted and none of these instances is terminated: delete the Nodes that are others (their kubelets were given a false --provider-id)",
        decision.duplicate_provider_ids.join("; ")
    );
    let note = ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: true,
        reason: "DuplicateProviderID".into(),
        message,
    };
    (!decision.duplicate_provider_ids.is_empty()).then_some(note)
}

/// Whether the rotation is halted.
pub fn rotation_halted(status: bool, reason: &str, message: String) -> ConditionUpdate {
    ConditionUpdate { condition_type: condition::ROTATION_HALTED, status, reason: reason.into(), message }
}

/// Pods as a person finds them.
pub fn pod_names(pods: &[PodRef]) -> String {
    pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect::<Vec<_>>().join(", ")
}
