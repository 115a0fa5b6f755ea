//! Events on Nodes and pods: `kubectl describe` of either is where users look when a node drains or a pod is gone.

use super::conditions::truncate;
use super::drain_blocked::blocked_events;
use super::outcome::had_no_effect;
use crate::apply::Applied;
use crate::plan::ObjectEvent;

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
