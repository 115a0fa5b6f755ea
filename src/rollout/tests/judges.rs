//! Judges of one poll of a simulated cluster. They judge by what the groups did, and by what users ordered and the policy
//! says, not by the controller's decisions.

use jiff::Timestamp;
use proptest::prelude::*;

use super::simulated_cluster::{Group, RecordedAction, SimulatedCluster, have_same_effect, image_of};
use crate::api::names::annotation;
use crate::api::{BoundariesRevision, RolloutPhase, WaveState, WaveStatus};
use crate::boundaries::{Approval, ROLLOUT_KEY, Wave};
use crate::rollout::{RolloutView, StoredRevision, SwitchReason, WaitReason};
use crate::util::calendar::{WindowState, window_state};

/// No revision is deleted that a group has or would return to, or to which all groups would return.
fn check_history(before: &SimulatedCluster, after: &SimulatedCluster) -> Result<(), TestCaseError> {
    let hashes = after.groups.iter().filter(|group| !group.deleted).flat_map(Group::needs);
    let stable = after.revisions.last().and_then(|found| found.status.as_ref()?.stable.clone());
    let stable = before.revisions.iter().find(|found| stable.is_some() && found.metadata.name == stable);
    for hash in hashes.chain(stable.map(|found| &found.spec.hash)) {
        let is_deleted = before.number_of(hash).is_some() && after.number_of(hash).is_none();
        prop_assert!(!is_deleted, "r{:?} is deleted", before.number_of(hash));
    }
    Ok(())
}

/// While a group is not seen, which may be in any wave, none opens or passes.
fn check_waves(before: &SimulatedCluster, after: &SimulatedCluster, target: &str) -> Result<(), TestCaseError> {
    let is_unseen = after.groups.iter().any(|group| group.unseen);
    if !is_unseen || before.phase_of(target) == Some(RolloutPhase::Complete) {
        return Ok(());
    }
    let known = before.waves(target);
    for (name, state) in after.waves(target) {
        let old = known.iter().find(|(known, _)| *known == name).map_or(WaveState::Waiting, |(_, state)| *state);
        prop_assert!(state == WaveState::Waiting || state == old, "{name} of {target} is {state}, and was {old}");
    }
    Ok(())
}

/// Every group that switches to a revision in its wave does so after all waves before it have passed. It never switches
/// to an older one by a wave. It makes nodes only from what it recorded. A complete rollout has each group, or lists
/// it.
pub(super) fn check_invariants(before: &SimulatedCluster, after: &SimulatedCluster) -> Result<(), TestCaseError> {
    check_history(before, after)?;
    let target = after.revisions.last().and_then(|found| found.metadata.name.clone()).unwrap_or_default();
    check_waves(before, after, &target)?;
    let is_urgent = after.is_urgent();
    let view = after.clone().view();
    let Some(view) = view else {
        // Nothing waits for a wave any more.
        let phase = after.phase_of(&target);
        let has_key = after.revisions.last().is_some_and(|found| found.spec.data.contains_key(ROLLOUT_KEY));
        // A user may have cleared the status of one that was released before.
        let was_released = before.clone().view().is_none();
        let is_complete = phase == Some(RolloutPhase::Complete);
        prop_assert!(!has_key || is_complete || was_released, "{target} is released, and was {phase:?}");
        return Ok(());
    };
    for (index, group) in after.groups.iter().enumerate() {
        let old = before.groups.get(index);
        let known = old.map_or(0, |old| old.log.len());
        let had = old.and_then(|old| before.number_of(old.status.boundaries_revision.as_deref()?)).unwrap_or_default();
        for action in &group.log[known..] {
            let recorded = group.status.boundaries_revision.as_deref().unwrap_or_default();
            let (number, name) = match action {
                RecordedAction::Replaced { to, .. } => {
                    let of_record = view.stored.get(recorded).map(image_of);
                    prop_assert_eq!(
                        of_record.as_ref(),
                        Some(to),
                        "{} made a node from what it did not record",
                        group.key
                    );
                    continue;
                }
                RecordedAction::Switched { number, why: SwitchReason::Wave(name), .. } => (number, name),
                RecordedAction::Switched {
                    number,
                    why:
                        SwitchReason::Approved(_) | SwitchReason::InPlace | SwitchReason::Reverted | SwitchReason::Included,
                    ..
                } => {
                    prop_assert!(*number >= had, "{} went from r{had} to r{number}", group.key);
                    continue;
                }
                // Those go back, see `check_return`.
                RecordedAction::Switched {
                    why:
                        SwitchReason::Failed(_) | SwitchReason::Aborted | SwitchReason::Superseded | SwitchReason::Stopped,
                    ..
                } => continue,
            };
            prop_assert!(*number >= had, "{} went from r{had} to r{number}", group.key);
            let waves = after.waves(&target);
            let position = waves.iter().position(|(wave, _)| wave == name).unwrap_or_default();
            let open = waves[..position].iter().all(|(_, state)| *state == WaveState::Passed);
            prop_assert!(open || is_urgent, "{} took {target} in {name} while {waves:?}", group.key);
        }
    }
    let is_complete = |cluster: &SimulatedCluster| cluster.phase_of(&target) == Some(RolloutPhase::Complete);
    if is_complete(after) && !is_complete(before) {
        let status = after.clone().revision(&target).status.clone().unwrap_or_default();
        let is_listed = |group: &Group| status.behind.iter().any(|behind| behind.group == group.key);
        let hash = Some(view.target.hash.clone());
        for group in after.groups.iter().filter(|group| !group.deleted) {
            let has_it = group.status.boundaries_revision == hash || group.is_unchanged_by(&view);
            prop_assert!(has_it || is_listed(group), "{} is neither on {target} nor listed: {status:?}", group.key);
        }
    }
    Ok(())
}

/// No group and no wave begins what users, a failure or the policy stop at that time, and none goes back without a cause.
pub(super) fn check_gates(before: &SimulatedCluster, after: &SimulatedCluster) -> Result<(), TestCaseError> {
    let Some(view) = before.next_view() else { return Ok(()) };
    check_openings(before, after, &view)?;
    check_stop(before, after, &view)?;
    for (old, group) in before.groups.iter().zip(&after.groups) {
        let mut own = old.status.boundaries_revision.as_deref().and_then(|hash| view.stored.get(hash));
        for action in &group.log[old.log.len()..] {
            match action {
                RecordedAction::Replaced { to, .. } => check_replacement(old, group, to, &view)?,
                RecordedAction::Switched { number, why, .. } => {
                    match why {
                        SwitchReason::Wave(name) | SwitchReason::Approved(name) => {
                            check_turn(old, name, &view, after.now)?;
                        }
                        SwitchReason::InPlace | SwitchReason::Reverted => check_free_switch(old, own, why, &view)?,
                        SwitchReason::Failed(_)
                        | SwitchReason::Aborted
                        | SwitchReason::Superseded
                        | SwitchReason::Stopped => check_return(before, old, own, why, &view)?,
                        SwitchReason::Included => {}
                    }
                    own = view.stored.values().find(|stored| stored.number == *number);
                }
            }
        }
    }
    Ok(())
}

/// What keeps a group from the target, whatever its wave.
fn stop_of(group: &Group, view: &RolloutView) -> Option<&'static str> {
    let phase = view.phase();
    let stops = [
        (phase == RolloutPhase::Halted, "halted"),
        (matches!(phase, RolloutPhase::Returning | RolloutPhase::Aborted), "aborted"),
        (view.orders.paused, "paused"),
        (group.locked, "locked"),
        (view.config_problem.is_some(), "kept back by the ConfigMap"),
    ];
    stops.into_iter().find(|(is_so, _)| *is_so).map(|(_, stop)| stop)
}

/// Whether an order names a wave.
fn names(order: &[String], wave: &str) -> bool {
    order.iter().any(|name| name == wave || name == "*")
}

/// A group that switches to the target in its wave: no admin stopped it, its wave has its approval, its tenant did not put it
/// off, and its windows are open. A return waits for orders alone.
fn check_turn(old: &Group, name: &str, view: &RolloutView, now: Timestamp) -> Result<(), TestCaseError> {
    let (key, target, orders) = (&old.key, &view.target.name, &view.orders);
    prop_assert_eq!(stop_of(old, view), None, "{} took {} in {}", key, target, name);
    if view.is_return() || view.urgent_until(now).is_some() {
        return Ok(());
    }
    let wave = view.policy.waves.iter().find(|wave| wave.name == name).expect("the wave is in the policy");
    let approves = old.annotations.get(annotation::APPROVE_REVISION) == Some(target);
    let is_approved = names(&orders.approved, name) || names(&orders.skipped, name) || approves;
    prop_assert!(wave.approval != Some(Approval::Admin) || is_approved, "{key} took {target} without an approval");
    let opened = view.status.waves.iter().find(|status| status.name == name).and_then(|status| status.opened.as_ref());
    let opened = opened.and_then(|text| text.parse::<Timestamp>().ok());
    let max = view.policy.deferral_of("team");
    let may_defer = !max.is_zero() && !approves && opened.is_some_and(|opened| now < opened + max);
    let defers = old.annotations.contains_key(annotation::DEFER_UNTIL) || wave.approval == Some(Approval::Tenants);
    // One whose revision is not known takes a complete one, so that anything is done for it.
    let is_unknown = old.waits == Some(WaitReason::RevisionUnknown);
    prop_assert!(!may_defer || !defers || is_unknown, "{key} took {target}, which its tenant put off");
    let windows = [view.policy.windows.as_slice(), wave.windows.as_slice()];
    // The tenant's approval counts instead of windows, but not of freezes.
    let windows = if approves { &windows[..0] } else { &windows[..] };
    let is_open = window_state(windows, &view.policy.freezes, now) == WindowState::Open;
    prop_assert!(is_open || is_unknown, "{key} took {target} in {name} at {now}, outside of its windows");
    Ok(())
}

/// A group that switches to the target outside of the waves. Orders stop it where the target changes something of it, and
/// without an answer of AWS it is unknown whether nodes are replaced.
fn check_free_switch(
    old: &Group,
    own: Option<&StoredRevision>,
    why: &SwitchReason,
    view: &RolloutView,
) -> Result<(), TestCaseError> {
    let target = &view.target.name;
    if own.is_none_or(|own| have_same_effect(own, &view.target)) {
        return Ok(());
    }
    prop_assert_eq!(stop_of(old, view), None, "{} took {} by {:?}", &old.key, target, why);
    let is_guess = *why == SwitchReason::InPlace && old.is_unassessed(view);
    prop_assert!(!is_guess, "{} took {target} in place, and AWS had not answered", old.key);
    Ok(())
}

/// A group that goes back: it failed, users or failures stopped what it had, or a newer change came before it lost a node.
fn check_return(
    before: &SimulatedCluster,
    old: &Group,
    own: Option<&StoredRevision>,
    why: &SwitchReason,
    view: &RolloutView,
) -> Result<(), TestCaseError> {
    let has_cause = match why {
        SwitchReason::Failed(_) => old.nodes.iter().any(|image| old.bad_images.contains(image)),
        SwitchReason::Aborted => matches!(view.phase(), RolloutPhase::Returning | RolloutPhase::Aborted),
        SwitchReason::Superseded => {
            own.is_none_or(|own| own.hash != view.target.hash && !old.nodes.contains(&image_of(own)))
        }
        SwitchReason::Stopped => own.is_none_or(|own| was_stopped(before, own)),
        SwitchReason::Wave(_)
        | SwitchReason::Approved(_)
        | SwitchReason::InPlace
        | SwitchReason::Reverted
        | SwitchReason::Included => true,
    };
    prop_assert!(has_cause, "{} left {:?} by {why:?}", old.key, own.map(|own| &own.name));
    Ok(())
}

/// Whether a user or a failure stopped a content.
fn was_stopped(cluster: &SimulatedCluster, content: &StoredRevision) -> bool {
    let image = image_of(content);
    let is_stopped = |found: &BoundariesRevision| {
        let status = found.status.clone().unwrap_or_default();
        let is_halted = status.conditions.iter().any(|found| found.r#type == "Halted" && found.is_true());
        found.spec.orders.aborted || is_halted
    };
    let mut revisions = cluster.revisions.iter().filter(|found| found.spec.hash == content.hash);
    revisions.any(is_stopped) || cluster.groups.iter().any(|group| group.bad_images.contains(&image))
}

/// A lock stops every node, and so does a budget that blocks drains. A pause and a halt stop those of the target.
fn check_replacement(old: &Group, group: &Group, to: &str, view: &RolloutView) -> Result<(), TestCaseError> {
    prop_assert!(!old.locked && !old.blocked, "{} replaced a node past a lock or a budget", old.key);
    let record = old.status.rollout.as_ref().filter(|record| record.settled.is_none());
    let takes_target = record.is_some_and(|record| record.revision.as_ref() == Some(&view.target.name))
        && [old, group].iter().all(|group| group.status.boundaries_revision.as_ref() == Some(&view.target.hash))
        && to == image_of(&view.target);
    let is_stopped = match view.phase() {
        RolloutPhase::Halted => true,
        RolloutPhase::Returning | RolloutPhase::Aborted => false,
        _ => view.orders.paused,
    };
    prop_assert!(!takes_target || !is_stopped, "{} replaced a node for {} past a stop", old.key, view.target.name);
    Ok(())
}

/// A wave opens after those before it, and only if no admin stopped the rollout. Unless users skip it, or the change is urgent,
/// it waits for the delay of the cluster and for its approval.
fn check_openings(
    before: &SimulatedCluster,
    after: &SimulatedCluster,
    view: &RolloutView,
) -> Result<(), TestCaseError> {
    let target = &view.target.name;
    // Waves that the policy names after the end have passed.
    if view.phase() == RolloutPhase::Complete {
        return Ok(());
    }
    let known = before.waves(target);
    let was_waiting = |wave: &WaveStatus| {
        let old = known.iter().find(|(name, _)| *name == wave.name);
        old.is_none_or(|(_, state)| *state == WaveState::Waiting)
    };
    let found = after.revisions.iter().find(|found| found.metadata.name.as_ref() == Some(target));
    let status = found.and_then(|found| found.status.clone()).unwrap_or_default();
    let waves = &status.waves;
    // A change that needs no waves opens none: they are over with it.
    if status.phase == Some(RolloutPhase::Complete) && status.without_waves == Some(true) {
        return Ok(());
    }
    let is_waiting = |wave: &WaveStatus| wave.state.unwrap_or_default() == WaveState::Waiting;
    for (index, wave) in waves.iter().enumerate().filter(|(_, wave)| was_waiting(wave) && !is_waiting(wave)) {
        let (name, orders) = (&wave.name, &view.orders);
        let is_resumed = orders.retries > view.status.retries.unwrap_or_default();
        let has_stopped =
            matches!(view.phase(), RolloutPhase::Halted | RolloutPhase::Returning | RolloutPhase::Aborted);
        let is_stopped = orders.paused || view.config_problem.is_some() || has_stopped && !is_resumed;
        prop_assert!(!is_stopped, "{name} of {target} opened while it was stopped");
        if view.urgent_until(after.now).is_some() {
            continue;
        }
        let have_passed = waves[..index].iter().all(|wave| wave.state == Some(WaveState::Passed));
        prop_assert!(have_passed, "{name} of {target} opened in {waves:?}");
        if names(&orders.skipped, name) {
            continue;
        }
        let is_early = !view.delay.is_zero() && view.created.is_some_and(|at| after.now < at + view.delay);
        prop_assert!(!is_early, "{name} of {target} opened before the delay was over");
        let is_named = |found: &&Wave| found.name == *name;
        let approval = view.policy.waves.iter().find(is_named).and_then(|wave| wave.approval);
        let needs_approval = approval == Some(Approval::Admin) && wave.groups > 0;
        prop_assert!(!needs_approval || names(&orders.approved, name), "{name} of {target} opened unapproved");
    }
    Ok(())
}

/// A rollout stops by an order, or because a group failed. That AWS does not answer fails none.
fn check_stop(before: &SimulatedCluster, after: &SimulatedCluster, view: &RolloutView) -> Result<(), TestCaseError> {
    let target = &view.target.name;
    let phase = after.phase_of(target).filter(|phase| *phase != view.phase());
    let stops = matches!(phase, Some(RolloutPhase::Halted | RolloutPhase::Returning));
    let image = image_of(&view.target);
    let may_fail = before.groups.iter().any(|group| group.bad_images.contains(&image));
    prop_assert!(!stops || view.orders.aborted || may_fail, "{target} is {phase:?}, and no group can have failed");
    Ok(())
}

/// When a group begins to replace nodes for the newest revision in a wave, no more groups do so than the limit of the wave.
pub(super) fn check_at_once(
    before: &SimulatedCluster,
    after: &SimulatedCluster,
    limit: usize,
) -> Result<(), TestCaseError> {
    let target = after.newest();
    for (wave, _) in after.waves(&target) {
        let takes_turn = |action: &RecordedAction| match action {
            RecordedAction::Switched { why: SwitchReason::Wave(name) | SwitchReason::Approved(name), .. } => {
                *name == wave
            }
            RecordedAction::Switched { .. } | RecordedAction::Replaced { .. } => false,
        };
        let mut pairs = before.groups.iter().zip(&after.groups);
        let begins = pairs.any(|(old, group)| group.log[old.log.len()..].iter().any(takes_turn));
        let rotates = |group: &&Group| {
            let record = group.status.rollout.clone().unwrap_or_default();
            let is_in_wave = record.revision.as_ref() == Some(&target) && record.wave.as_ref() == Some(&wave);
            !group.deleted && is_in_wave && record.settled.is_none()
        };
        let count = after.groups.iter().filter(rotates).count();
        prop_assert!(!begins || count <= limit, "{count} groups of {wave} replace nodes for {target}");
    }
    Ok(())
}
