//! The next nodes to be drained, or to be terminated without a drain: as many as may be unavailable.

use crate::aws::InstanceState;
use crate::plan::{Allowance, NodeStart};
use crate::rotation::members::NodeInstance;
use crate::rotation::rolling_update::nodeless::remove_without_node;
use crate::rotation::rolling_update::types::{Candidates, RollingUpdateDecision, RollingUpdateInput, WarmPoolRotation};
use crate::rotation::rolling_update::{surge, waits};

/// What is not available, and what is about to leave.
struct Unavailable {
    /// Weight that the group has less than desired.
    unavailable: usize,
    /// Nodes that are drained or that terminate.
    nodes_in_flight: usize,
    /// The weight of these nodes.
    weight_in_flight: usize,
}

impl Unavailable {
    fn count(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> Self {
        let recently_ready = |m: &&NodeInstance| {
            m.reasons.is_empty() && m.ready_for(input.now).is_some_and(|d| d < input.min_ready_time)
        };
        let counts_as_available =
            |m: &&NodeInstance| m.is_available() && !(input.candidates == Candidates::Outdated && recently_ready(m));
        let available: usize = input.members.iter().filter(counts_as_available).map(NodeInstance::weight).sum();
        let terminating = input.members.iter().filter(|m| m.instance.state == InstanceState::Terminating);
        let draining = (candidates.iter().copied())
            .filter(|m| m.disruption_of(input.group_uid).is_some() && !is_surging(input, m));
        let (nodes_in_flight, weight_in_flight) =
            terminating.chain(draining).fold((0, 0), |(nodes, weight), m| (nodes + 1, weight + m.weight()));
        Self { unavailable: input.desired.saturating_sub(available), nodes_in_flight, weight_in_flight }
    }

    /// Whether one more node would exceed `maxUnavailable`. `reduces_capacity`: the node is available, and replaced.
    fn is_full(&self, input: &RollingUpdateInput, member: &NodeInstance, reduces_capacity: bool) -> bool {
        let at_node_limit = !input.max_unavailable_in_weight && self.nodes_in_flight >= input.max_unavailable;
        at_node_limit
            || exceeds_max_unavailable(input, self.weight_in_flight, member)
            || (reduces_capacity && exceeds_max_unavailable(input, self.unavailable, member))
    }

    fn add(&mut self, member: &NodeInstance, was_available: bool) {
        self.nodes_in_flight += 1;
        self.weight_in_flight += member.weight();
        self.unavailable += if was_available { member.weight() } else { 0 };
    }
}

/// Whether a replacement beyond the desired capacity stands in for the node.
fn is_surging(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    let uid = input.group_uid;
    member.is_in_standby(uid) || (member.has_surge_record(uid) && member.is_available())
}

/// Cordons or terminates the next candidates, as many as may be unavailable.
pub(super) fn start_batch(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    mut leaving: usize,
    decision: &mut RollingUpdateDecision,
) {
    let mut counted = Unavailable::count(input, candidates);
    let removes_all = input.candidates == Candidates::All;
    let replaces = input.candidates == Candidates::Outdated;
    let mut surging =
        if removes_all { 0 } else { surge::continue_surge(input, candidates, counted.unavailable, decision) };
    if input.replacement_block().is_some() || input.warm_pool != WarmPoolRotation::Done {
        return;
    }
    let has_failed_launch = replaces && input.failed_launch.is_some();
    let mut allowance = input.allowance.filter(|_| replaces).cloned();
    let waits_for_surge =
        |m: &NodeInstance| !removes_all && (m.is_in_standby(input.group_uid) || (replaces && is_surging(input, m)));
    // It would terminate the instance as well, so that AWS takes another node for the second termination.
    let is_others = |m: &NodeInstance| !removes_all && m.is_removed_by_autoscaler();
    let begins = |m: &NodeInstance| m.disruption_of(input.group_uid).is_none() && !waits_for_surge(m) && !is_others(m);
    for member in candidates.iter().filter(|m| begins(m)) {
        if replaces && member.instance.state == InstanceState::InService && input.may_recover(member) {
            decision.waiting_for.extend(waits::for_member(input, member));
            continue;
        }
        let healthy = member.is_available();
        if healthy && has_failed_launch {
            decision.waits_for_launch = true;
            continue;
        }
        if healthy && replaces && input.max_surge > 0 {
            let free = member.node.as_ref().is_some_and(|n| n.disruption.is_none() && n.surge.is_none());
            let may_surge = surging < input.max_surge && free && !input.is_in_drain_backoff(member);
            if may_surge && is_allowed(allowance.as_mut(), member, NodeStart::Surge, decision) {
                surge::start_surge(input, member, decision);
                surging += 1;
            }
            continue;
        }
        if !removes_all && counted.is_full(input, member, healthy && replaces) {
            if decision.waiting_for.is_empty() && leaving == 0 {
                decision.waiting_for = waits::for_availability(input, counted.unavailable, &decision.steps);
            }
            break;
        }
        if !removes_all && input.is_in_drain_backoff(member) {
            continue;
        }
        let begin = || NodeStart::Drain(member.instance.zone.clone());
        if healthy && !is_allowed(allowance.as_mut(), member, begin(), decision) {
            continue;
        }
        match input.cordon_step(member) {
            Some(step) => decision.steps.push(step),
            None if remove_without_node(input, member, decision) => leaving += 1,
            None => continue,
        }
        counted.add(member, healthy);
    }
    if !removes_all {
        let others = candidates.iter().filter(|m| is_others(m)).map(|m| waits::for_autoscaler(input, m));
        decision.waiting_for.extend(others);
    }
}

/// Whether the budget of a rollout leaves this node.
fn is_allowed(
    allowance: Option<&mut Allowance>,
    member: &NodeInstance,
    begin: NodeStart,
    decision: &mut RollingUpdateDecision,
) -> bool {
    let Some(allowance) = allowance else { return true };
    if allowance.spend(&begin) {
        decision.begins.insert(member.instance.id.clone(), begin);
        return true;
    }
    decision.waits_for.insert(begin);
    false
}

/// Whether removing this member would make too much capacity unavailable. A number of nodes counts as that many nodes of
/// this member's weight. While no capacity is unavailable, one member may always be removed: otherwise an instance that
/// weighs more than the limit could never be replaced.
fn exceeds_max_unavailable(input: &RollingUpdateInput, unavailable: usize, member: &NodeInstance) -> bool {
    let limit = input.max_unavailable * if input.max_unavailable_in_weight { 1 } else { member.weight() };
    unavailable > 0 && unavailable + member.weight() > limit
}
