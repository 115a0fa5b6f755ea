//! The drains that have begun: their next step, and the termination at their end.

use jiff::SignedDuration;

use crate::aws::InstanceState;
use crate::plan::{NodeStep, UncordonReason};
use crate::rotation::drain::{self, DrainAction};
use crate::rotation::members::NodeInstance;
use crate::rotation::rolling_update::standby_entry::may_be_in_standby;
use crate::rotation::rolling_update::types::{Candidates, RollingUpdateDecision, RollingUpdateInput};
use crate::rotation::rolling_update::waits;

/// Continues the drains in progress and returns how many instances are terminated now.
pub(super) fn continue_drains(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    decision: &mut RollingUpdateDecision,
) -> usize {
    let mut leaving = 0;
    for member in candidates {
        let Some(record) = member.disruption_of(input.group_uid) else { continue };
        if member.node.as_ref().is_some_and(|node| !node.cordoned) {
            return_uncordoned(input, member, decision);
            continue;
        }
        if input.candidates != Candidates::All && member.is_removed_by_autoscaler() {
            decision.waiting_for.push(waits::for_autoscaler(input, member));
            continue;
        }
        if lowers_desired(input, member)
            && member.is_termination_sent(input.group_uid, input.drain_policy.decrement_interval, input.now)
        {
            decision.waiting_for.push(format!("{} to terminate", member.describe()));
            continue;
        }
        if lowers_desired(input, member) && may_be_in_standby(input, member) {
            decision.waiting_for.push(waits::for_standby(member));
            continue;
        }
        // Unknown pods are not absent pods.
        let Some(view) = input.drain_view(member) else {
            decision.waiting_for.push(format!("the API server to list the pods on {}", member.describe()));
            continue;
        };
        let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
        match drain::next_drain_action(member, record, view, &input.drain_policy, input.now) {
            DrainAction::Evict(steps) | DrainAction::ForceDelete(steps) => {
                decision.waiting_for.push(format!("{node} to be drained"));
                decision.steps.extend(steps);
            }
            DrainAction::Wait(what) => {
                decision.eviction_blocked |= view.last_blocked_eviction.is_some()
                    && view.pods.iter().any(|p| !p.is_left_by_drain() && !p.is_terminating);
                decision.waiting_for.push(what);
                let waits = view.pods.iter().filter(|p| !p.is_left_by_drain());
                let overdue = waits.filter_map(|p| Some((node.clone(), p.pod.clone(), p.overdue_since(input.now)?)));
                decision.overdue_pods.extend(overdue);
            }
            DrainAction::Uncordon(pods) => {
                decision
                    .steps
                    .push(NodeStep::UncordonNode { node: node.clone(), reason: UncordonReason::DrainTimeout });
                decision.timed_out_drains.push((node, pods));
            }
            DrainAction::TerminateWithPods(pods) => {
                if terminate_unless_busy(input, member, decision) {
                    decision.abandoned_pods.extend(pods);
                    leaving += 1;
                }
            }
            DrainAction::Terminate => leaving += usize::from(terminate_unless_busy(input, member, decision)),
        }
    }
    leaving
}

/// A node whose drain is in progress was uncordoned by another client. It stays uncordoned, and is drained again later. Nothing
/// stays in a deletion, so there it is cordoned again.
fn return_uncordoned(input: &RollingUpdateInput, member: &NodeInstance, decision: &mut RollingUpdateDecision) {
    let Some(node) = &member.node else { return };
    let (step, wait) = match input.candidates {
        Candidates::All => (input.cordon_step(member), "to be cordoned again"),
        Candidates::Outdated | Candidates::Surplus(_) => {
            let reason = UncordonReason::UncordonedByOthers;
            (Some(NodeStep::UncordonNode { node: node.name.clone(), reason }), "to be drained again later")
        }
    };
    decision.steps.extend(step);
    decision.waiting_for.push(format!("{}, which another client uncordoned, {wait}", node.name));
}

/// How long a call is not repeated that AWS refused because of a scaling activity in progress. A launch takes about a minute,
/// but a hook may hold it for hours, and a deregistration takes 5 minutes by default.
const ACTIVITY_RETRY: SignedDuration = SignedDuration::from_secs(30);

/// Terminates the member, or waits for a scaling activity of it to end. Returns whether it is terminated now.
pub(super) fn terminate_unless_busy(
    input: &RollingUpdateInput,
    member: &NodeInstance,
    decision: &mut RollingUpdateDecision,
) -> bool {
    if let Some(wait) = wait_for_activity(input, member) {
        decision.waiting_for.push(wait);
        return false;
    }
    decision.steps.push(NodeStep::Terminate {
        scaling_group: input.scaling_group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()),
        decrement_desired: lowers_desired(input, member),
    });
    true
}

/// What must end before AWS terminates the member or moves it into standby (Amazon EC2 Auto Scaling API Reference,
/// TerminateInstanceInAutoScalingGroup and EnterStandby, Errors: ScalingActivityInProgress). AWS's documents do not say which
/// activities count, so that a launch is tried.
pub(super) fn wait_for_activity(input: &RollingUpdateInput, member: &NodeInstance) -> Option<String> {
    let instance = &member.instance;
    if instance.state == InstanceState::EnteringStandby {
        return Some(format!("{} to have entered standby, which includes its deregistration", member.describe()));
    }
    let is_recent = |at| input.now.duration_since(at).abs() < ACTIVITY_RETRY;
    instance.activity_refused_at.filter(|at| is_recent(*at)).map(|_| match instance.state {
        InstanceState::Pending => {
            format!("{} to be launched, before which AWS does not terminate it", member.describe())
        }
        _ => format!("a scaling activity of {} to end, before which AWS does not change it", member.describe()),
    })
}

/// Whether the termination of this member lowers the desired capacity. An instance in standby does not count in it, so a
/// decrement would remove another instance.
fn lowers_desired(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    input.drain_policy.decrement_desired && !member.instance.state.is_standby()
}
