//! Events on Nodes and pods: `kubectl describe` of either is where people look when a node drains or a pod is gone.

use super::conditions::truncate;
use super::outcome::had_no_effect;
use crate::apply::{Applied, BlockedEviction};
use crate::k8s::EvictionBlocker;
use crate::plan::{Event, EventReason, NodeStep, ObjectEvent, Step, on_pod};

/// The events on the Nodes and pods of the applied steps. Blocked evictions are reported when the drain becomes blocked, and
/// not each time they are tried again.
pub(super) fn object_events(applied: &Applied, is_newly_blocked: bool) -> Vec<ObjectEvent> {
    let plan = &applied.plan;
    let done = plan.steps[..applied.steps_done].iter().enumerate();
    let effective = done.filter(|(index, p)| !had_no_effect(*index, &p.step, applied) && !p.is_retry);
    let mut events: Vec<_> =
        effective.filter_map(|(_, planned)| planned.step.info().object_event(&plan.group, &planned.why())).collect();
    if is_newly_blocked {
        events.extend(applied.blocked_evictions.iter().flat_map(|blocked| blocked_events(applied, blocked)));
    }
    for found in &mut events {
        found.event.message = truncate(&found.event.message);
    }
    events
}

/// The events on a pod that a budget keeps on its node, and on that node.
fn blocked_events(applied: &Applied, blocked: &BlockedEviction) -> Vec<ObjectEvent> {
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
