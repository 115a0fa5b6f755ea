//! How a rotation of nodes is told, whichever provisioner's nodes they are.

use crate::api::names::condition;
use crate::plan::{Draft, NodeStep, Note, Outcome, Phase, Planned, PodRef, Reason, Recheck, Told};
use crate::rotation::Member;
use crate::rotation::rolling_update::{Decision, Stand};

/// Tells where a rotation stands, and adds its steps.
pub fn tell(members: &[Member], decision: Decision, surplus: usize, draft: &mut Draft) {
    let outdated = members.iter().filter(|m| !m.outdated.is_empty()).count();
    let because = |step: &NodeStep| {
        let id = match step {
            NodeStep::MarkNode { instance, .. }
            | NodeStep::EnterStandby { instance, .. }
            | NodeStep::Terminate { instance, .. } => instance,
            _ => return Vec::new(),
        };
        members.iter().find(|m| m.instance.id == *id).map(|m| m.outdated.clone()).unwrap_or_default()
    };
    draft.notes.extend(contested(&decision));
    let acts = !decision.steps.is_empty();
    draft.steps.extend(decision.steps.into_iter().map(|step| {
        let because = because(&step);
        Planned::new(step, because)
    }));
    for (node, pods) in &decision.given_up {
        let message =
            format!("{node} was given back: its drain took longer than drainTimeout; still there: {}", named(pods));
        draft.notes.push(Note {
            condition: condition::DRAIN_BLOCKED,
            status: true,
            reason: "DrainTimeout".into(),
            message,
        });
    }
    if !decision.abandoned.is_empty() {
        let message = format!("the drain took too long and goes on without waiting for {}", named(&decision.abandoned));
        draft.events.push(Told { warning: true, reason: "DrainTimeout".into(), message });
    }
    let blocked = |reason, message| Outcome::Blocked { reason, message, deleting: false };
    let what = if surplus > 0 {
        format!("{surplus} nodes are more than maxSize")
    } else {
        format!("{outdated} of {} nodes are outdated", members.len())
    };
    match decision.stand {
        Stand::Idle if acts => draft.decide(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "giving nodes back".into(),
            recheck: Recheck::Soon,
        }),
        Stand::Idle => draft.notes.push(halted(false, "NotRotating", String::new())),
        Stand::Going => {
            draft.notes.push(halted(false, "Rotating", String::new()));
            let wait = decision.waiting.join("; ");
            let message = if wait.is_empty() { what } else { format!("{what}; waiting for {wait}") };
            let recheck = if acts { Recheck::Soon } else { Recheck::Poll };
            draft.decide(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
        }
        Stand::Locked(lock) => draft.decide(Outcome::Locked { message: format!("{what}, and {lock} holds them") }),
        Stand::Obstacle(reason, message) => draft.decide(blocked(reason, message)),
        Stand::Halted(message) => {
            let message = format!(
                "{message}; the old nodes stay; mend what the replacements start from (image, user data, role), and the rotation goes on by itself"
            );
            draft.notes.push(halted(true, "ReplacementsNotReady", message.clone()));
            draft.decide(blocked(Reason::ReplacementsNotReady, message));
        }
        Stand::Unhealthy(message) => draft.decide(blocked(Reason::ClusterUnhealthy, message)),
        Stand::Resting(message) => draft.decide(blocked(Reason::DrainBlocked, message)),
    }
}

/// Instances that are left alone because several nodes say they are them.
pub fn contested(decision: &Decision) -> Option<Note> {
    let message = format!(
        "waiting for {}; none of their pods is evicted and none of these instances is terminated: delete the Nodes that are others (their kubelets were given a false --provider-id)",
        decision.contested.join("; ")
    );
    let note = Note { condition: condition::DRAIN_BLOCKED, status: true, reason: "ClaimedTwice".into(), message };
    (!decision.contested.is_empty()).then_some(note)
}

/// Whether the rotation is halted.
pub fn halted(status: bool, reason: &str, message: String) -> Note {
    Note { condition: condition::ROTATION_HALTED, status, reason: reason.into(), message }
}

/// Pods as a person finds them.
pub fn named(pods: &[PodRef]) -> String {
    pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect::<Vec<_>>().join(", ")
}
