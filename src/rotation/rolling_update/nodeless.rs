//! Instances without a Node: there is nothing to drain.

use crate::rotation::members::NodeInstance;
use crate::rotation::rolling_update::drains::terminate_unless_busy;
use crate::rotation::rolling_update::types::{Candidates, RollingUpdateDecision, RollingUpdateInput};
use crate::rotation::rolling_update::{report, waits};

/// Terminates an instance without a Node, unless it may still join or pods are bound to it. Returns whether it does.
pub(super) fn remove_without_node(
    input: &RollingUpdateInput,
    member: &NodeInstance,
    decision: &mut RollingUpdateDecision,
) -> bool {
    let age = input.now.duration_since(member.instance.in_service_since.unwrap_or(input.now));
    // Nodes are deleted with their group, so a deletion does not wait for them to join. One in standby had joined.
    let may_join = !member.instance.state.is_standby() && age < input.join_timeout;
    if input.candidates != Candidates::All && may_join {
        decision.waiting_for.extend(waits::for_member(input, member));
        return false;
    }
    let view = input.drain_view(member);
    let bound = view.into_iter().flat_map(|view| &view.pods);
    let pods: Vec<_> = bound.filter(|p| !p.is_ignored && !p.is_finished).map(|p| p.pod.clone()).collect();
    if !pods.is_empty() {
        let policy = input.drain_policy;
        let is_steady = policy.timeout.is_none_or(|limit| view.is_none_or(|view| view.is_clock_steady_for(limit)));
        let deadline_passed = is_steady && policy.timeout_since.is_some_and(|at| policy.is_timed_out(at, input.now));
        if !deadline_passed {
            let wait = format!("pods of {} to be deleted: {}", member.describe(), report::pod_names(&pods));
            decision.waiting_for.push(wait);
            return false;
        }
    }
    let is_terminated = terminate_unless_busy(input, member, decision);
    if is_terminated {
        decision.abandoned_pods.extend(pods);
    }
    is_terminated
}
