//! `maxSurge`: a healthy node enters standby while its replacement launches, and is drained only after that.
//!
//! EnterStandby without decrement makes AWS launch the replacement, and the node in standby keeps its pods. The surge
//! record is written to the Node first, and the instance is recorded in the status. They distinguish the controller's
//! standby instances from those that a person put into standby, which are never changed.

#[cfg(test)]
mod tests;

use super::drains::wait_for_activity;
use super::nodeless::remove_without_node;
use super::standby_entry::never_entered_standby;
use super::types::{Candidates, RollingUpdateDecision, RollingUpdateInput};
use super::waits;
use crate::plan::NodeStep;
use crate::rotation::members::NodeInstance;

/// Continues with the nodes that carry a surge record. Those not in standby yet enter it, or lose the record if
/// `maxSurge` has become 0. Each of those in standby is drained once its replacement has been Ready for
/// `min_ready_time`; one that failed is not waited for. Returns how many nodes count against `maxSurge`.
pub(super) fn continue_surge(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    unavailable: usize,
    decision: &mut RollingUpdateDecision,
) -> usize {
    let waiting = |m: &&&NodeInstance| m.is_in_standby(input.group_uid) && m.disruption_of(input.group_uid).is_none();
    let standby: usize = candidates.iter().filter(waiting).map(|m| m.weight()).sum();
    let mut spare = standby.saturating_sub(unavailable);
    let mut surging = 0;
    let surges = |m: &&&NodeInstance| m.has_surge_record(input.group_uid) || m.is_in_standby(input.group_uid);
    for member in candidates.iter().filter(surges) {
        if !member.is_in_standby(input.group_uid) {
            if member.is_available() && input.candidates == Candidates::Outdated {
                surging += usize::from(input.max_surge > 0);
                continue_record(input, member, decision);
            }
            continue;
        }
        surging += 1;
        if member.node.is_none() {
            remove_without_node(input, member, decision);
            continue;
        }
        let Some(node) = member.node.as_ref().filter(|_| member.disruption_of(input.group_uid).is_none()) else {
            continue;
        };
        let covered = spare >= member.weight() && !input.is_in_drain_backoff(member);
        let runs_pods = node.ready || input.may_recover(member);
        if runs_pods && !covered {
            decision
                .waiting_for
                .push(format!("the replacement of {}, which is in standby, to be Ready", member.describe()));
            continue;
        }
        spare -= if runs_pods { member.weight() } else { 0 };
        decision.steps.extend(input.cordon_step(member));
    }
    surging
}

/// Continues with a record whose instance is not in standby. After `maxSurge` became 0, no instance enters standby anymore:
/// the record is removed, and the node is drained like any other.
fn continue_record(input: &RollingUpdateInput, member: &NodeInstance, decision: &mut RollingUpdateDecision) {
    if input.max_surge > 0 {
        match wait_for_activity(input, member) {
            Some(wait) => decision.waiting_for.push(wait),
            None => enter_standby(input, member, decision),
        }
    } else if never_entered_standby(input, member) {
        decision.steps.extend(clear_step(member));
    } else {
        decision.waiting_for.push(waits::for_standby(member));
    }
}

/// Starts the surge of a healthy node: first the record, then EnterStandby.
pub(super) fn start_surge(input: &RollingUpdateInput, member: &NodeInstance, decision: &mut RollingUpdateDecision) {
    let Some(node) = &member.node else { return };
    decision.steps.push(NodeStep::RecordSurge {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        instance: member.instance.id.clone(),
        template_version: input.template_version.into(),
    });
    enter_standby(input, member, decision);
}

fn enter_standby(input: &RollingUpdateInput, member: &NodeInstance, decision: &mut RollingUpdateDecision) {
    decision.entering_standby.insert(member.instance.id.clone());
    decision.steps.push(NodeStep::EnterStandby {
        scaling_group: input.scaling_group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default(),
    });
}

/// Removes surge records from nodes that are no longer candidates and whose instance never entered standby. An instance
/// that enters standby without a record would stay in standby, like one that a person put there.
pub(super) fn clear_unused_records<'a>(
    input: &RollingUpdateInput,
    members: impl Iterator<Item = &'a NodeInstance>,
) -> Vec<NodeStep> {
    members.filter(|m| never_entered_standby(input, m)).filter_map(clear_step).collect()
}

fn clear_step(member: &NodeInstance) -> Option<NodeStep> {
    let node = member.node.as_ref()?;
    Some(NodeStep::ClearSurge { node: node.name.clone(), since: node.surge.as_ref()?.since })
}
