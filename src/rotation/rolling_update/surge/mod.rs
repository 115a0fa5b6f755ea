//! `maxSurge`: a healthy node stands by while its replacement comes, and is drained only then.
//!
//! EnterStandby without decrement makes AWS launch the replacement; the node that stands by keeps its pods. The record
//! on the Node, written before, says that it was this group that put it there: an instance that a person has put into
//! standby is never touched, and one of ours is never forgotten.

#[cfg(test)]
mod tests;

use super::{Decision, Input, Victims, told};
use crate::aws::InstanceState;
use crate::plan::NodeStep;
use crate::rotation::members::Member;

/// Goes on with the nodes that were told to stand by: those that do not yet, do; each of those that do is drained once
/// a settled replacement stands in its place. Answers how many of the surge are taken.
pub(super) fn go_on(input: &Input, victims: &[&Member], unavailable: usize, decision: &mut Decision) -> usize {
    let waiting = |m: &&&Member| m.standing_by(input.uid) && m.mark(input.uid).is_none();
    let standing_by: usize = victims.iter().filter(waiting).map(|m| m.weight()).sum();
    let mut spare = standing_by.saturating_sub(unavailable);
    let mut taken = 0;
    for member in victims.iter().filter(|m| m.surged(input.uid)) {
        if !member.standing_by(input.uid) {
            if member.available() && input.victims == Victims::Outdated {
                taken += 1;
                decision.steps.push(stand_by(input, member));
            }
            continue;
        }
        taken += 1;
        let Some(node) = member.node.as_ref().filter(|_| member.mark(input.uid).is_none()) else { continue };
        let covered = spare >= member.weight() && !super::resting(input, member);
        if node.ready && !covered {
            decision.waiting.push(format!("the replacement of {}, which stands by, to be Ready", told(member)));
            continue;
        }
        spare -= if node.ready { member.weight() } else { 0 };
        decision.steps.extend(super::mark(input, member));
    }
    taken
}

/// Begins with a healthy node: first the record, then the act.
pub(super) fn begin(input: &Input, member: &Member) -> Vec<NodeStep> {
    let Some(node) = &member.node else { return Vec::new() };
    let record = NodeStep::SurgeNode {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        instance: member.instance.id.clone(),
        template_version: input.version.into(),
    };
    vec![record, stand_by(input, member)]
}

fn stand_by(input: &Input, member: &Member) -> NodeStep {
    NodeStep::EnterStandby {
        group: input.group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default(),
    }
}

/// A record that led to nothing, on a node that is no longer to go, is taken off.
pub(super) fn undo<'a>(input: &Input, members: impl Iterator<Item = &'a Member>) -> Vec<NodeStep> {
    members
        .filter(|m| m.surged(input.uid) && m.instance.state == InstanceState::InService)
        .filter_map(|m| Some(NodeStep::UnsurgeNode { node: m.node.as_ref()?.name.clone() }))
        .collect()
}
