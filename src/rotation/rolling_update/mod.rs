//! The strategy `rollingUpdate`: decides which nodes are drained and terminated next.
//!
//! The same decision serves three kinds of candidates: outdated instances, surplus instances after
//! `maxSize` was lowered, and all instances of a group that is being deleted.

mod batch;
mod blockers;
mod candidates;
mod drains;
mod nodeless;
pub(crate) mod report;
pub mod settings;
pub(crate) mod standby_entry;
pub(crate) mod surge;
pub(crate) mod types;
mod uncordon;
mod waits;

use crate::plan::UncordonReason;
use crate::rotation::members::NodeInstance;
use batch::start_batch;
use blockers::blocker;
use candidates::select_candidates;
use drains::continue_drains;
pub(crate) use types::{Candidates, RollingUpdateDecision, RollingUpdateInput, RotationState, WarmPoolRotation};
use uncordon::{revert, uncordon_all, uncordon_steps};

/// Decides the next steps of a rotation.
pub(crate) fn decide(input: &RollingUpdateInput) -> RollingUpdateDecision {
    let mut decision = decide_steps(input);
    decision.waiting_for.extend(input.members.iter().filter(|m| m.instance.is_retained).map(retained_message));
    decision
}

/// Why an instance that AWS terminates does not go away.
fn retained_message(member: &NodeInstance) -> String {
    format!(
        "the manual termination of {}, which the instance lifecycle policy retains because a termination hook was abandoned: aws autoscaling terminate-instance-in-auto-scaling-group --instance-id {} --no-should-decrement-desired-capacity",
        member.describe(),
        member.instance.id
    )
}

fn decide_steps(input: &RollingUpdateInput) -> RollingUpdateDecision {
    let mut candidates = select_candidates(input);
    let mut decision = RollingUpdateDecision { steps: revert(input, &candidates), ..RollingUpdateDecision::default() };
    let duplicates: Vec<_> = candidates.extract_if(.., |m| m.duplicate_provider_id().is_some()).collect();
    if !duplicates.is_empty() {
        decision.steps.extend(uncordon_steps(
            duplicates.iter().copied(),
            input.group_uid,
            UncordonReason::DuplicateProviderId,
        ));
        decision.duplicate_provider_ids = duplicates.iter().filter_map(|m| m.duplicate_provider_id()).collect();
        decision.waiting_for = (decision.duplicate_provider_ids.iter())
            .map(|duplicate| format!("duplicate Nodes to be deleted ({duplicate})"))
            .collect();
        decision.state = RotationState::InProgress;
    }
    if candidates.is_empty() {
        return decision;
    }
    decision.state = match blocker(input, &candidates) {
        Some(state) => {
            decision.steps = match &state {
                RotationState::DrainBackoff(_) => decision.steps,
                _ => uncordon_all(input, &state),
            };
            state
        }
        None => RotationState::InProgress,
    };
    if decision.state == RotationState::InProgress {
        let leaving = continue_drains(input, &candidates, &mut decision);
        start_batch(input, &candidates, leaving, &mut decision);
        report_replacement_block(input, &candidates, &mut decision);
    }
    decision
}

/// Reports what a rollout blocks: the whole group, or the next node of one that has begun.
fn report_replacement_block(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    decision: &mut RollingUpdateDecision,
) {
    let has_begun = !decision.begins.is_empty() || has_begun(input, candidates);
    let budget = input.allowance.filter(|_| !decision.waits_for.is_empty());
    let used_up = budget.map(|allowance| format!("{}, which is used up", allowance.budget));
    match (input.replacement_block(), used_up) {
        (Some(rollout_block), _) if !has_begun => decision.state = RotationState::Locked(rollout_block.into()),
        (None, None)
            if decision.waits_for_launch
                && let Some((reason, message)) = &input.failed_launch =>
        {
            match has_begun || !decision.steps.is_empty() || !decision.waiting_for.is_empty() {
                true => decision.waiting_for.push(message.clone()),
                false => decision.state = RotationState::Blocked(*reason, message.clone()),
            }
        }
        // Nodes that are not available are replaced at any time.
        (None, Some(used_up)) if !has_begun && decision.steps.is_empty() && decision.waiting_for.is_empty() => {
            decision.state = RotationState::Locked(used_up);
        }
        (None, Some(used_up)) => decision.waiting_for.push(used_up),
        (Some(_) | None, _) => {}
    }
}

/// Whether the replacement of a candidate is under way.
fn has_begun(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> bool {
    let uid = input.group_uid;
    candidates.iter().any(|m| m.disruption_of(uid).is_some() || m.is_in_standby(uid) || m.has_surge_record(uid))
}
