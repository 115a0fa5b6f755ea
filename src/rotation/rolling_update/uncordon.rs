//! Nodes that are uncordoned: those that are no longer replaced, and those of a rotation that stops.

use std::collections::BTreeSet;

use crate::plan::{NodeStep, UncordonReason};
use crate::rotation::members::NodeInstance;
use crate::rotation::rolling_update::surge;
use crate::rotation::rolling_update::types::{RollingUpdateInput, RotationState};

/// Uncordons nodes that are no longer candidates, and removes their unused surge records.
pub(super) fn revert(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> Vec<NodeStep> {
    let candidate_ids: BTreeSet<_> = candidates.iter().map(|m| m.instance.id.as_str()).collect();
    let kept = || input.members.iter().filter(|m| !candidate_ids.contains(m.instance.id.as_str()) && stays(input, m));
    let mut steps = uncordon_steps(kept(), input.group_uid, input.uncordon_reason);
    steps.extend(surge::clear_unused_records(input, kept()));
    steps
}

pub(super) fn uncordon_steps<'a>(
    members: impl Iterator<Item = &'a NodeInstance>,
    uid: &str,
    reason: UncordonReason,
) -> Vec<NodeStep> {
    members
        .filter_map(|m| {
            let reason = match m.has_orphaned_disruption() {
                true => UncordonReason::ForeignRecord,
                false => m.disruption_of(uid).map(|_| reason)?,
            };
            Some(NodeStep::UncordonNode { node: m.node.as_ref()?.name.clone(), reason })
        })
        .collect()
}

/// Uncordons all nodes of a rotation that is locked, halted or blocked. In an unhealthy cluster the nodes stay as they
/// are, because uncordoning is a change too.
pub(super) fn uncordon_all(input: &RollingUpdateInput, state: &RotationState) -> Vec<NodeStep> {
    let reason = match state {
        RotationState::Locked(_) => UncordonReason::Locked,
        RotationState::Halted(_) => UncordonReason::RotationHalted,
        RotationState::Blocked(..) => UncordonReason::RotationBlocked,
        RotationState::Idle
        | RotationState::InProgress
        | RotationState::Unhealthy(_)
        | RotationState::DrainBackoff(_) => {
            return Vec::new();
        }
    };
    uncordon_steps(input.members.iter().filter(|m| stays(input, m)), input.group_uid, reason)
}

fn stays(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    !member.is_terminating(input.group_uid, input.drain_policy.decrement_interval, input.now)
}
