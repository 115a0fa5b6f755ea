//! A drain that a pod blocks: the condition `DrainBlocked`, and the events on the pod and its Node.

use jiff::Unit;

use crate::api::names::condition;
use crate::apply::{Applied, BlockedEviction};
use crate::k8s::EvictionBlocker;
use crate::plan::{ConditionUpdate, Event, EventReason, NodeStep, ObjectEvent, Outcome, StalledReason, Step, on_pod};

/// The update of the condition `DrainBlocked` that follows from the applied steps; `None` keeps the condition.
pub(super) fn drain_blocked_update(applied: &Applied, outcome: &Outcome) -> Option<ConditionUpdate> {
    let update = |status, reason: &str, message| {
        Some(ConditionUpdate { condition_type: condition::DRAIN_BLOCKED, status, reason: reason.into(), message })
    };
    let with_unschedulable = applied.blocked_evictions.iter().find(|eviction| !eviction.unschedulable.is_empty());
    if let Some(blocked) = with_unschedulable.or(applied.blocked_evictions.first()) {
        // A deletion has a reason of its own, so that an event names its deadline even if the drain was blocked before.
        let reason = match blocked.terminated_at {
            Some(_) => "EvictionBlockedDuringDeletion".to_owned(),
            // Another cause has another reason, so that an event reports it.
            None if blocked.unschedulable.is_empty() && blocked.blocker.is_by_admission => {
                "EvictionRejected".to_owned()
            }
            None if blocked.unschedulable.is_empty() => "EvictionBlocked".to_owned(),
            None => StalledReason::UnschedulablePods.to_string(),
        };
        return update(true, &reason, blocked_message(blocked));
    }
    if applied.plan.condition_updates.iter().any(|n| n.condition_type == condition::DRAIN_BLOCKED) {
        return None;
    }
    let made_progress = applied.plan.steps[..applied.steps_done].iter().any(|p| {
        matches!(
            p.step,
            Step::Node(NodeStep::Evict { .. } | NodeStep::Terminate { .. } | NodeStep::UncordonNode { .. })
        )
    });
    let is_finished = matches!(outcome, Outcome::Converged | Outcome::Locked { .. });
    if made_progress || is_finished { update(false, "NotBlocked", String::new()) } else { None }
}

fn blocked_message(blocked: &BlockedEviction) -> String {
    let EvictionBlocker { cause, remedy, .. } = &blocked.blocker;
    let pod = format!("{}/{}", blocked.pod.namespace, blocked.pod.name);
    if let Some(deadline) = blocked.terminated_at.and_then(|at| at.round(Unit::Second).ok()) {
        return format!(
            "eviction of pod {pod} is blocked by {cause}; retrying; the group is being deleted, so at {deadline} its instances are terminated regardless of PodDisruptionBudgets, with the pods that are left; before that, {remedy}"
        );
    }
    if blocked.unschedulable.is_empty() {
        return format!(
            "eviction of pod {pod} is blocked by {cause}; retrying; {remedy}; drainForce with drainTimeout deletes such pods after that time"
        );
    }
    format!(
        "eviction of pod {pod} is blocked by {cause}, and evicted pods are unschedulable: {}; add capacity (set maxSurge so that replacements join first, raise minSize, or let the autoscaler add nodes), or free capacity",
        blocked.unschedulable.join(", ")
    )
}

/// The events on a pod that a budget keeps on its node, and on that node.
pub(super) fn blocked_events(applied: &Applied, blocked: &BlockedEviction) -> Vec<ObjectEvent> {
    let EvictionBlocker { cause, remedy, .. } = &blocked.blocker;
    let (group, pod) = (&applied.plan.group, &blocked.pod);
    let node = applied.plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Node(NodeStep::Evict { node, pod: evicted, .. }) if evicted == pod => Some(node),
        _ => None,
    });
    let on = node.map_or_else(|| "its node".to_owned(), |node| format!("the node {node}"));
    let pod_message =
        format!("InstanceGroup {group} drains {on}, but the eviction is blocked by {cause}; retrying; {remedy}");
    let node_message = format!(
        "InstanceGroup {group} drains this node, but the eviction of pod {}/{} is blocked by {cause}; retrying; {remedy}",
        pod.namespace, pod.name
    );
    let warning = |message| Event::warning(EventReason::DrainBlocked, message);
    let node_event = node.map(|node| ObjectEvent::on_node(node, warning(node_message)));
    node_event.into_iter().chain([on_pod(pod, warning(pod_message))]).collect()
}
