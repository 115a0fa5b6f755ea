//! `maxSurge`: a healthy node stands by while its replacement comes, and is drained only then.
//!
//! EnterStandby without decrement makes AWS launch the replacement; the node that stands by keeps its pods. The record
//! on the Node, written before, says that it was this group that put it there: an instance that a person has put into
//! standby is never touched, and one of ours is never forgotten.

#[cfg(test)]
mod tests;

use super::{Candidates, RollingUpdateDecision, RollingUpdateInput, describe_instance};
use crate::aws::InstanceState;
use crate::plan::NodeStep;
use crate::rotation::members::NodeInstance;

/// Goes on with the nodes that were told to stand by: those that do not yet, do; each of those that do is drained once
/// a settled replacement stands in its place. Answers how many of the surge are taken.
pub(super) fn continue_surge(
    input: &RollingUpdateInput,
    victims: &[&NodeInstance],
    unavailable: usize,
    decision: &mut RollingUpdateDecision,
) -> usize {
    let waiting = |m: &&&NodeInstance| m.is_in_standby(input.group_uid) && m.disruption_of(input.group_uid).is_none();
    let standing_by: usize = victims.iter().filter(waiting).map(|m| m.weight()).sum();
    let mut spare = standing_by.saturating_sub(unavailable);
    let mut taken = 0;
    for member in victims.iter().filter(|m| m.has_surge_record(input.group_uid)) {
        if !member.is_in_standby(input.group_uid) {
            if member.is_available() && input.candidates == Candidates::Outdated {
                taken += 1;
                decision.steps.push(enter_standby_step(input, member));
            }
            continue;
        }
        taken += 1;
        let Some(node) = member.node.as_ref().filter(|_| member.disruption_of(input.group_uid).is_none()) else {
            continue;
        };
        let covered = spare >= member.weight() && !super::is_in_drain_backoff(input, member);
        if node.ready && !covered {
            decision
                .waiting_for
                .push(format!("the replacement of {}, which stands by, to be Ready", describe_instance(member)));
            continue;
        }
        spare -= if node.ready { member.weight() } else { 0 };
        decision.steps.extend(super::cordon_step(input, member));
    }
    taken
}

/// Begins with a healthy node: first the record, then the act.
pub(super) fn start_surge(input: &RollingUpdateInput, member: &NodeInstance) -> Vec<NodeStep> {
    let Some(node) = &member.node else { return Vec::new() };
    let record = NodeStep::RecordSurge {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        instance: member.instance.id.clone(),
        template_version: input.template_version.into(),
    };
    vec![record, enter_standby_step(input, member)]
}

fn enter_standby_step(input: &RollingUpdateInput, member: &NodeInstance) -> NodeStep {
    NodeStep::EnterStandby {
        scaling_group: input.scaling_group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default(),
    }
}

/// A record that led to nothing, on a node that is no longer to go, is taken off.
pub(super) fn clear_unused_records<'a>(
    input: &RollingUpdateInput,
    members: impl Iterator<Item = &'a NodeInstance>,
) -> Vec<NodeStep> {
    members
        .filter(|m| m.has_surge_record(input.group_uid) && m.instance.state == InstanceState::InService)
        .filter_map(|m| Some(NodeStep::ClearSurge { node: m.node.as_ref()?.name.clone() }))
        .collect()
}
