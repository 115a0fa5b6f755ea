//! Which revision of the boundaries a group has, and whether it switches to another one now.

use jiff::{SignedDuration, Timestamp};

use super::gates;
use super::group::{Failure, GroupView};
use super::impact::RevisionImpact;
use super::opening;
use super::view::{RolloutEnd, RolloutView, StoredRevision};
use super::wait::{RotationBlock, Wait, WaitReason};
use crate::api::{RolloutPhase, RolloutRecord, WaveState, rfc3339};
use crate::boundaries::WithoutRotation;

/// What a group does in this pass.
#[derive(Clone, Debug)]
pub(crate) enum RevisionDecision {
    /// The group is planned with this revision.
    Use {
        /// The revision; `None` when it is unknown which one the group has.
        content: Option<StoredRevision>,
        /// Why the group does not switch to the target now. `None` if the group has the target, or if the target does
        /// not change the group.
        waits: Option<Wait>,
        /// Why no node of the group is replaced now; `None` when nodes may be.
        rollout_block: Option<RotationBlock>,
    },
    /// The group switches to another revision. Its status records that before anything is made from it.
    Switch(RevisionSwitch),
}

impl RevisionDecision {
    /// The name of the revision that the group switches to, which its status does not say yet.
    pub(crate) fn switches_to(&self) -> Option<&str> {
        match self {
            Self::Use { .. } => None,
            Self::Switch(switch) => Some(&switch.content.name),
        }
    }
}

/// A content that a group switches to, and what is recorded of it.
#[derive(Clone, Debug)]
pub(crate) struct RevisionSwitch {
    /// The revision that the group takes, with its images.
    pub content: StoredRevision,
    /// The record in the status.
    pub record: RolloutRecord,
    /// Why, for the event.
    pub why: SwitchReason,
}

/// Why a group switches to a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SwitchReason {
    /// The group's wave is open.
    Wave(String),
    /// The group's tenant approved it ahead of this wave.
    Approved(String),
    /// The switch replaces no node.
    InPlace,
    /// The ConfigMap was reverted to a content that was complete before.
    Reverted,
    /// The group's namespace is no longer excluded from boundaries.
    Included,
    /// The target failed on the group.
    Failed(String),
    /// The target is aborted.
    Aborted,
    /// The revision that the group switched to was superseded before a node was replaced for it.
    Superseded,
    /// The revision that the group switched to failed on it or on others, and another one was stored since.
    Stopped,
}

impl RevisionSwitch {
    /// Whether the group begins to replace nodes in its wave, as one of those that `atOnce` counts.
    pub(crate) fn begins_in_wave(&self) -> bool {
        matches!(self.why, SwitchReason::Wave(_) | SwitchReason::Approved(_))
    }
}

/// What the decision about a group depends on beside the rollout and the group.
pub(crate) struct DecisionInput<'a> {
    /// The rollout as the last poll found it.
    pub view: &'a RolloutView,
    /// The group, its Namespace and its lock, from the caches.
    pub group: GroupView<'a>,
    /// The hash of the group's spec merged with a content; `None` when it cannot be merged.
    pub merged_hash: &'a dyn Fn(&StoredRevision) -> Option<String>,
    /// Whether the group's spec merged with a content names an image by an alias.
    pub uses_alias: &'a dyn Fn(&StoredRevision) -> bool,
    /// Whether the wave at an index has room for another group that replaces nodes.
    pub has_room: &'a dyn Fn(usize) -> bool,
    /// The budget, as a phrase for messages, if it leaves no node to a group that begins now.
    pub budget_used_up: &'a dyn Fn() -> Option<String>,
    /// How long a group must have failed.
    pub failure_delay: SignedDuration,
    /// The time of the decision.
    pub now: Timestamp,
}

/// Decides which content a group has, and whether it switches to another one.
pub(crate) fn choose(input: &DecisionInput) -> RevisionDecision {
    match decide(input) {
        RevisionDecision::Use { content, waits: Some(wait), rollout_block } => {
            keep(content, Some(gates::with_stale_approval(input.view, &input.group, wait)), rollout_block)
        }
        other => other,
    }
}

fn decide(input: &DecisionInput) -> RevisionDecision {
    let DecisionInput { view, group, .. } = input;
    let own = match own_content(input) {
        // What it would launch is a guess: what AWS says now may be the image that was aborted.
        Own::Known(own) if own.has_lost_images && !group.is_deleting && (input.uses_alias)(&own) => {
            return choose_unknown(input, Some(&own));
        }
        Own::Known(own) => own,
        Own::Excluded => return keep(Some(view.target.clone()), None, None),
        Own::Included(content) => return switch_to(input, content, SwitchReason::Included),
        Own::Unknown if group.is_deleting => return keep(Some(view.target.clone()), None, None),
        Own::Unknown => return choose_unknown(input, None),
    };
    if group.is_deleting {
        return keep(Some(own), None, None);
    }
    match own.hash == view.target.hash {
        true => choose_on_target(input, own),
        false => with_block(input, choose_behind(input, own)),
    }
}

/// A group that still replaces nodes for a revision which was superseded stops for the orders, failures and windows of the
/// newest one. One that returns, to what was good before, stops only while its blocked drain yields.
fn with_block(input: &DecisionInput, choice: RevisionDecision) -> RevisionDecision {
    match choice {
        RevisionDecision::Use { content: Some(own), waits, rollout_block: None } => {
            let rollout_block = match input.group.is_return() {
                true => yields(input, &own),
                false => rollout_block(input, &own),
            };
            keep(Some(own), waits, rollout_block)
        }
        other => other,
    }
}

/// Why a group whose drain is blocked begins no node while others wait for the budget.
fn yields(input: &DecisionInput, own: &StoredRevision) -> Option<RotationBlock> {
    let DecisionInput { view, group, .. } = input;
    let why = group.yielding.filter(|_| group.is_switching(own))?;
    Some(RotationBlock { why: format!("the rollout of {}: {why}", view.target.name), uncordons: true })
}

/// Why a group that replaces nodes for a revision begins no further one. An edit of its tenant in the meantime frees it
/// from windows, but not from orders and failures that stop the change.
fn rollout_block(input: &DecisionInput, own: &StoredRevision) -> Option<RotationBlock> {
    let DecisionInput { view, group, .. } = input;
    if !group.is_switching(own) {
        return None;
    }
    let target = &view.target.name;
    let stop =
        |what| Some(RotationBlock { why: format!("the rollout of {target}, which is {what},"), uncordons: true });
    match view.phase() {
        RolloutPhase::Halted => stop("halted"),
        // The history was lost after the return had begun. The group cannot return, and what it has is aborted.
        RolloutPhase::Returning | RolloutPhase::Aborted if own.hash == view.target.hash => stop("aborted"),
        RolloutPhase::Returning | RolloutPhase::Aborted => None,
        _ if view.orders.paused => stop("paused"),
        // Nothing is stored to which the group could return.
        _ if view.orders.aborted && view.is_history_lost() => stop("aborted"),
        _ if is_paused_before(input, own) => {
            let why = format!("the rollout of {}, which was paused when {target} came,", own.name);
            Some(RotationBlock { why, uncordons: true })
        }
        _ => None,
    }
    .or_else(|| yields(input, own))
    .or_else(|| {
        let waits_for_windows = group.rotates_for_revision(own) && !group.is_return();
        let why = gates::closed_reason(view, group, input.now).filter(|_| waits_for_windows)?;
        Some(RotationBlock { why, uncordons: false })
    })
}

/// Whether a user had paused the revision that a group replaces nodes for when the target came. A target that changes
/// nothing of the group leaves a complete revision to it: the pause ends when its wave of the target opens. A target
/// that replaces its nodes ends the pause when the group switches to it, however long it waits in the open wave.
fn is_paused_before(input: &DecisionInput, own: &StoredRevision) -> bool {
    let DecisionInput { view, group, .. } = input;
    let keeps_own = !group.is_unproven(view) && *group.forecast == RevisionImpact::Untouched;
    let is_over = || keeps_own && view.is_wave_open(group.wave(view), input.now);
    own.stop == Some(RolloutEnd::Paused) && own.hash != view.target.hash && !is_over()
}

/// The revision that a group has.
enum Own {
    Known(StoredRevision),
    /// The group's namespace is excluded from boundaries.
    Excluded,
    /// The group's namespace was excluded when the group was planned last.
    Included(StoredRevision),
    /// The group's status names no stored revision, and no stored revision gives the same merged spec.
    Unknown,
}

fn own_content(input: &DecisionInput) -> Own {
    let DecisionInput { view, group, merged_hash, .. } = input;
    if group.is_excluded(view) {
        return Own::Excluded;
    }
    let stable = || view.stable.clone().unwrap_or_else(|| view.target.clone());
    // A guess would be the target, for which no wave is open.
    let known_stable = || if view.stable_problem.is_some() { Own::Unknown } else { Own::Known(stable()) };
    if group.has_lost_status && !group.is_deleting {
        return Own::Unknown;
    }
    if group.status.is_new() {
        return if is_given(input) { Own::Known(view.target.clone()) } else { known_stable() };
    }
    let recorded = group.status.boundaries_revision.as_deref().filter(|hash| !hash.is_empty());
    if let Some(stored) = group.recorded(view) {
        return Own::Known(stored.clone());
    }
    let merged = group.status.config_md5.as_deref().filter(|hash| !hash.is_empty());
    let mut candidates = vec![stable(), view.target.clone()];
    candidates.extend(view.stored.values().cloned());
    let found = candidates.into_iter().find(|stored| merged.is_some() && merged_hash(stored).as_deref() == merged);
    match (found, recorded, merged) {
        // An alias in it may stand for another image than the one that the lost revision named.
        (Some(found), Some(_), _) if view.is_history_lost() && (input.uses_alias)(&found) => Own::Unknown,
        (Some(found), ..) => Own::Known(found),
        (None, Some(_), _) => Own::Unknown,
        // An earlier release, or another controller, planned it last: before anything was rolled out in waves.
        (None, None, Some(_)) => known_stable(),
        (None, None, None) if group.is_excluded_by(&stable()) => known_stable(),
        (None, None, None) if view.stable_problem.is_some() => Own::Unknown,
        (None, None, None) => Own::Included(stable()),
    }
}

/// Whether a group for which the target replaces no node has it now: its turn has come, and no user has stopped the target.
fn is_given(input: &DecisionInput) -> bool {
    let DecisionInput { view, group, .. } = input;
    let is_open = view.is_wave_open(group.wave(view), input.now) || gates::is_approved(view, group);
    let is_rolling = matches!(view.phase(), RolloutPhase::Rolling | RolloutPhase::Complete);
    is_rolling && is_open && blocking_order(input).is_none()
}

/// A group that has the target: it keeps it, unless the target fails on it or is aborted.
fn choose_on_target(input: &DecisionInput, own: StoredRevision) -> RevisionDecision {
    let DecisionInput { view, group, .. } = input;
    let previous = group.record().and_then(|record| view.stored.get(record.previous.as_deref()?)).cloned();
    let before = previous.into_iter().chain(view.stable.clone()).find(|before| before.hash != view.target.hash);
    let phase = view.phase();
    match (before, phase) {
        (Some(before), RolloutPhase::Returning | RolloutPhase::Aborted) => {
            return switch_to(input, before, SwitchReason::Aborted);
        }
        (Some(before), RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted)
            if group.has_switched_to(&own) && !view.is_return() =>
        {
            let failure = group.failure(input.now, input.failure_delay);
            if let Some(failure) = failure.filter(|failure| !group.had_before(failure, view.begun(), input.now)) {
                return switch_to(input, before, SwitchReason::Failed(failure.text));
            }
        }
        // Its turn came after the end: it was deferred, locked or left out. What broke later is not the revision's.
        (Some(before), RolloutPhase::Complete) if group.is_switching(&own) && !view.is_return() => {
            if let Some(failure) = group.failure(input.now, input.failure_delay) {
                return switch_to(input, before, SwitchReason::Failed(failure.text));
            }
        }
        (Some(_) | None, _) => {}
    }
    let rollout_block = rollout_block(input, &own);
    let waits = failure_without_return(input, &own).or_else(|| earlier_failure(input, &own));
    keep(Some(own), waits, rollout_block)
}

/// Why the rollout halts for a group that has the target and could return to nothing, because the history was lost.
fn failure_without_return(input: &DecisionInput, own: &StoredRevision) -> Option<Wait> {
    let DecisionInput { view, group, .. } = input;
    let is_judged = matches!(view.phase(), RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted);
    if !is_judged || !view.is_history_lost() || !group.has_switched_to(own) {
        return None;
    }
    let failure = group.failure(input.now, input.failure_delay)?.text;
    let target = &view.target.name;
    let message = format!(
        "{target} failed on this group ({failure}), and no earlier BoundariesRevision is stored to which it could return; correct the ConfigMap"
    );
    Some(Wait { reason: WaitReason::FailedBefore, message })
}

/// Why the rollout halts for a group whose problem is older than the rollout, which began again because a user deleted the
/// revision or its status. Nothing proves that the target is the cause, and a return would replace all nodes of the group.
fn earlier_failure(input: &DecisionInput, own: &StoredRevision) -> Option<Wait> {
    let DecisionInput { view, group, .. } = input;
    let is_judged = matches!(view.phase(), RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted);
    if !is_judged || view.is_return() || view.is_resumed() || !group.has_switched_to(own) {
        return None;
    }
    let failure = group.failure(input.now, input.failure_delay);
    let Failure { text, .. } = failure.filter(|failure| group.had_before(failure, view.begun(), input.now))?;
    let target = &view.target.name;
    let message = format!(
        "this group had a problem before the rollout of {target} began ({text}), and keeps {target}; repair the group, or if {target} is not the cause: instance-manager rollout resume {target}"
    );
    Some(Wait { reason: WaitReason::FailedBefore, message })
}

/// A group that has another content than the target.
fn choose_behind(input: &DecisionInput, own: StoredRevision) -> RevisionDecision {
    let DecisionInput { view, group, .. } = input;
    let is_superseded = group.is_unproven(view);
    let previous = group.record().and_then(|record| view.stored.get(record.previous.as_deref()?));
    let is_aborted = view.is_aborted();
    if *group.forecast == RevisionImpact::Untouched {
        // A user paused what the group replaces nodes for. An edit that changes nothing of it does not resume that.
        let is_paused = is_paused_before(input, &own) && group.is_switching(&own) && !group.is_return() && !is_aborted;
        let index = group.wave(view);
        if is_paused && !view.is_wave_open(index, input.now) {
            let text = format!(
                "{} was paused on this group, which continues when wave {} of {} opens",
                own.name,
                view.policy.waves[index].name,
                view.target_with_release()
            );
            return wait(own, WaitReason::WaveNotOpen, text);
        }
        let keeps_own = is_aborted || group.is_switching(&own);
        let has_target = || view.phase() == RolloutPhase::Complete || is_given(input);
        return match is_superseded && !is_aborted {
            // What the group runs is not proved yet: its wave and its soak are those of the target from now on.
            true => switch_to(input, view.target.clone(), SwitchReason::InPlace),
            // Its status names what it is planned with. With the target, the next edit of its tenant would take that before
            // its wave.
            false if keeps_own || !has_target() => keep(Some(own), None, None),
            false => keep(Some(view.target.clone()), None, None),
        };
    }
    let is_reverted = view.is_return() || previous.is_some_and(|previous| previous.has_content_of(&view.target));
    let order = blocking_order(input);
    if is_reverted && order.is_none() {
        return switch_to(input, view.target.clone(), SwitchReason::Reverted);
    }
    // A group whose revision failed does not wait for its wave. One whose nodes all run it keeps it.
    let has_failed = match own.stop {
        Some(RolloutEnd::Aborted) => true,
        Some(RolloutEnd::Halted) if !group.is_settled() => true,
        _ => {
            let failure = group.failure(input.now, input.failure_delay);
            failure.is_some_and(|failure| !group.had_before(&failure, own.begun, input.now))
        }
    };
    let before = previous.or(view.stable.as_ref()).filter(|before| before.hash != own.hash);
    if let Some(before) = before.filter(|_| is_superseded && has_failed) {
        return switch_to(input, before.clone(), SwitchReason::Stopped);
    }
    if let Some(wait) = order {
        return keep(Some(own), Some(wait), None);
    }
    let is_assessing = view.phase() == RolloutPhase::Assessing;
    match group.forecast {
        RevisionImpact::CannotUse { reason, message } => {
            let text = format!("{} cannot be used: {reason}: {message}", view.target.name);
            return wait(own, WaitReason::CannotUse, text);
        }
        RevisionImpact::InPlace
            if view.policy.without_rotation == WithoutRotation::AtOnce && !group.is_returning(view) =>
        {
            return switch_to(input, view.target.clone(), SwitchReason::InPlace);
        }
        RevisionImpact::Unknown
        | RevisionImpact::InPlace
        | RevisionImpact::Rotate { .. }
        | RevisionImpact::Evict { .. }
        | RevisionImpact::Untouched => {}
    }
    if let Some(previous) = previous.filter(|_| is_superseded && group.has_replaced_none() && !group.is_settled()) {
        return switch_to(input, previous.clone(), SwitchReason::Superseded);
    }
    if is_assessing {
        let text = format!("the controller is assessing which groups {} changes", view.target.name);
        return wait(own, WaitReason::Assessing, text);
    }
    let index = group.wave(view);
    let wave = &view.policy.waves[index];
    let is_approved = gates::is_approved(view, group);
    match (input.has_room)(index) {
        _ if !is_approved && !view.is_wave_open(index, input.now) => {
            let (position, count) = (index + 1, view.policy.waves.len());
            let text = format!(
                "{} reaches the group in wave {} ({position} of {count}), which is not open yet{}{}",
                view.target_with_release(),
                wave.name,
                opening::describe(view, group, index, &own.name, input.now),
                gates::possible_deferral(view, group)
            );
            wait(own, WaitReason::WaveNotOpen, text)
        }
        false => {
            let text = format!(
                "wave {} has as many groups that replace nodes for {} as its atOnce allows; this group keeps {} until one of them is done",
                wave.name, view.target.name, own.name
            );
            wait(own, WaitReason::WaveBusy, text)
        }
        true if let Some(wait) = gates::wait(view, group, index, input.now) => keep(Some(own), Some(wait), None),
        true if let Some(budget) = (input.budget_used_up)() => {
            let (target, own_name) = (&view.target.name, &own.name);
            let text = format!(
                "{target} waits, because {budget} is used up; the group keeps {own_name} until nodes are available again"
            );
            wait(own, WaitReason::BudgetUsedUp, text)
        }
        true if is_approved && view.wave_state(index) == WaveState::Waiting => {
            switch_to(input, view.target.clone(), SwitchReason::Approved(wave.name.clone()))
        }
        true => switch_to(input, view.target.clone(), SwitchReason::Wave(wave.name.clone())),
    }
}

/// Why users, or a failure, keep a group from the target, whatever its wave.
fn blocking_order(input: &DecisionInput) -> Option<Wait> {
    let DecisionInput { view, group, .. } = input;
    let target = &view.target.name;
    let retried = |record: &RolloutRecord| record.retries.unwrap_or_default() < view.orders.retries;
    let refused = group.refused(&view.target).filter(|record| !retried(record));
    let (reason, message) = match view.phase() {
        RolloutPhase::Returning | RolloutPhase::Aborted => {
            (WaitReason::Aborted, format!("{target} was aborted; {}", view.remedy_of_return()))
        }
        _ if view.orders.without.iter().any(|key| key == group.key) => {
            (WaitReason::LeftOut, format!("spec.orders.without of {target} skips this group"))
        }
        _ if let Some(record) = refused => {
            let failure = record.failure.as_deref().unwrap_or("it failed");
            let text = format!(
                "{target} failed on this group ({failure}); to try again: instance-manager rollout resume {target}"
            );
            (WaitReason::FailedBefore, text)
        }
        RolloutPhase::Halted => (
            WaitReason::Halted,
            format!("the rollout of {target} is halted; to continue: instance-manager rollout resume {target}"),
        ),
        _ if view.orders.paused => (
            WaitReason::Paused,
            format!("the rollout of {target} is paused; to continue: instance-manager rollout resume {target}"),
        ),
        _ if let Some(lock) = group.lock => (WaitReason::Locked, format!("{lock} blocks {target} on this group")),
        _ if let Some(problem) = &view.config_problem => {
            (WaitReason::ConfigMapUnusable, format!("no further group takes {target}, because {problem}"))
        }
        _ => return None,
    };
    Some(Wait { reason, message })
}

/// A group whose content is unknown: nothing is made from a guess. It switches to the target in its turn. `own` is the
/// content of which only the images are unknown.
fn choose_unknown(input: &DecisionInput, own: Option<&StoredRevision>) -> RevisionDecision {
    let DecisionInput { view, group, .. } = input;
    let recorded = group.status.boundaries_revision.as_deref().unwrap_or_default();
    let index = group.wave(view);
    let is_open = match view.phase() {
        RolloutPhase::Complete => gates::missing_approval(view, group, index, input.now).is_none(),
        _ => view.is_wave_open(index, input.now) && gates::wait(view, group, index, input.now).is_none(),
    };
    // What the group has may have been deleted together with everything else that was stored.
    let is_return = view.is_return() && (view.stable.is_some() || recorded.is_empty());
    if blocking_order(input).is_none() && (is_return || is_open) {
        return switch_to(input, view.target.clone(), SwitchReason::Wave(view.policy.waves[index].name.clone()));
    }
    let why = match recorded {
        _ if let Some(own) = own => format!(
            "the images that aliases stood for in {} are no longer stored; name an AMI in the ConfigMap",
            own.name
        ),
        "" if !group.has_lost_status
            && let Some(problem) = &view.stable_problem =>
        {
            problem.clone()
        }
        "" => "the group has nodes, but its status records no BoundariesRevision".to_owned(),
        hash if let Some(unreadable) = view.unreadable.get(hash) => {
            format!("the group was made from the BoundariesRevision {unreadable}")
        }
        hash if let Some(name) = view.unverified.get(hash) => {
            format!(
                "the group was made from the BoundariesRevision {name}, of which this release cannot tell who stored it"
            )
        }
        hash => {
            format!("the BoundariesRevision with the hash {hash}, from which the group was made, is no longer stored")
        }
    };
    let message = format!("{why}; nothing is changed until the group takes {} in its wave", view.target.name);
    keep(None, Some(Wait { reason: WaitReason::RevisionUnknown, message }), None)
}

fn keep(
    content: Option<StoredRevision>,
    waits: Option<Wait>,
    rollout_block: Option<RotationBlock>,
) -> RevisionDecision {
    RevisionDecision::Use { content, waits, rollout_block }
}

fn wait(own: StoredRevision, reason: WaitReason, message: String) -> RevisionDecision {
    keep(Some(own), Some(Wait { reason, message }), None)
}

/// Whether a group has a problem that may count against the revision that it has, however short it has lasted. It is not done
/// with the next one before that has ended.
fn has_new_problem(input: &DecisionInput) -> bool {
    let DecisionInput { view, group, .. } = input;
    let begun = group.recorded(view).and_then(|own| own.begun);
    group.failure(input.now, SignedDuration::ZERO).is_some_and(|failure| !group.had_before(&failure, begun, input.now))
}

fn switch_to(input: &DecisionInput, content: StoredRevision, why: SwitchReason) -> RevisionDecision {
    let DecisionInput { view, group, .. } = input;
    let old = group.record().cloned().unwrap_or_default();
    let target = &view.target.name;
    let is_target = content.hash == view.target.hash;
    let failure = match &why {
        SwitchReason::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    let retries = failure.is_some().then_some(view.orders.retries).filter(|retries| *retries > 0);
    // A revision that was superseded before it was complete is nothing to return to. Its soak continues, and a failure
    // that began with it is one of the target as well.
    let has_unproven = group.is_unproven(view);
    let (carried, previous) = match why {
        SwitchReason::Wave(_) | SwitchReason::Approved(_) if has_unproven => (None, old.previous.clone()),
        SwitchReason::InPlace if has_unproven => (Some(old.clone()), old.previous.clone()),
        SwitchReason::Wave(_) | SwitchReason::Approved(_) | SwitchReason::InPlace => {
            (None, group.status.boundaries_revision.clone())
        }
        // A return is not a step from which a group could return again.
        SwitchReason::Reverted
        | SwitchReason::Included
        | SwitchReason::Failed(_)
        | SwitchReason::Aborted
        | SwitchReason::Superseded
        | SwitchReason::Stopped => (None, None),
    };
    let refused = match (&failure, is_target) {
        (Some(_), _) => Some(target.clone()),
        (None, true) => None,
        (None, false) => group.refused(&view.target).and_then(|old| old.refused.clone()),
    };
    let record = RolloutRecord {
        revision: Some(if is_target { target.clone() } else { content.name.clone() }),
        wave: match &why {
            SwitchReason::Wave(wave) | SwitchReason::Approved(wave) => Some(wave.clone()),
            _ => carried.as_ref().and_then(|old| old.wave.clone()),
        },
        previous,
        since: carried.as_ref().and_then(|old| old.since.clone()).or_else(|| Some(rfc3339(group.since(input.now)))),
        generation: carried.as_ref().map_or(Some(group.generation), |old| old.generation),
        settled: carried.filter(|_| !has_new_problem(input)).and_then(|old| old.settled),
        failure: failure.or_else(|| refused.as_ref().and(old.failure)),
        retries: retries.or_else(|| refused.as_ref().and(old.retries)),
        refused_hash: refused.as_ref().map(|_| view.target.hash.clone()),
        refused,
    };
    RevisionDecision::Switch(RevisionSwitch { content, record, why })
}
