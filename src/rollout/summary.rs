//! Counts the groups of a rollout by wave and state, at each poll.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::group::{GroupView, drain_blocker};
use super::group_revision::{RevisionDecision, RevisionSwitch, SwitchReason};
use super::impact::RevisionImpact;
use super::pending_groups::{Pending, PendingGroups, waits_for_wave};
use super::view::RolloutView;
use super::wait::{Wait, WaitReason};
use crate::api::names::condition;
use crate::api::{GroupDrainForecast, LaggingGroup, RolloutBudget, RolloutCounts, RolloutPhase, SlowGroup, WaveState};
use crate::boundaries::WithoutRotation;
use crate::plan::StalledReason;
use crate::util::text::shorten;

/// The most groups that the status lists as behind.
const MAX_BEHIND: usize = 50;

/// The groups of a rollout, counted at one poll.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupSummary {
    /// The counts of each wave of the policy, in its order.
    pub waves: Vec<WaveSummary>,
    /// Whether the selectors of each wave match a group, affected or not, whatever its percentage.
    pub matched: Vec<bool>,
    /// The counts of all groups.
    pub counts: RolloutCounts,
    /// Groups whose impact is not known yet.
    pub unknown: usize,
    /// Groups whose Namespace is not known, so that their waves are unknown.
    pub unseen: usize,
    /// Whether the object of a group cannot be decoded, so that its wave is unknown.
    pub has_undecodable: bool,
    /// Whether a group has a content that may have been complete before a doubtful return.
    pub has_unjudged: bool,
    /// Groups that switch to a revision in this pass, or whose nodes are being replaced outside of the waves.
    pub moving: usize,
    /// Groups that return to an earlier revision, and make progress.
    pub returning: usize,
    /// Groups that have not switched to the target.
    pub without_target: BTreeSet<String>,
    /// Groups that have the target and a revision to return to.
    pub on_target: usize,
    /// Groups that are behind although their wave is open or passed.
    pub behind: Vec<LaggingGroup>,
    /// Groups that the rollout waits for now.
    pub pending: PendingGroups,
    /// Affected groups: the hash of the UID, and a bit for each wave whose selectors match.
    pub affected: Vec<(i64, u32)>,
    /// How many nodes of the affected groups run the target.
    pub nodes_updated: i64,
    /// How many nodes of the affected groups have to be replaced, as far as it is known.
    pub nodes_outdated: i64,
    /// Affected groups that have not switched to the target, with the time since when a newer revision is stored.
    pub behind_since: Vec<(String, Timestamp)>,
    /// Groups on which the target failed, with the failure.
    pub failures: Vec<(String, String)>,
    /// Whether groups do not begin because the budget leaves them no node.
    pub begins_wait: bool,
    /// The usage of the budget, while groups wait for it.
    pub budget: Option<RolloutBudget>,
    /// When a group last began or finished, of those that a rollout gave a revision.
    pub last_step: Option<Timestamp>,
    /// When the rollout counts as stuck; `None` while it could make no progress.
    pub stuck_at: Option<Timestamp>,
    /// Groups that have made no progress for some time.
    pub slow: Vec<SlowGroup>,
    /// Groups whose turn comes next and whose drains pods will block.
    pub drain_forecasts: Vec<GroupDrainForecast>,
}

/// The affected groups of one wave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaveSummary {
    /// The number of affected groups.
    pub groups: usize,
    /// Groups that have not switched to the target yet, and will.
    pub waiting: usize,
    /// Groups whose nodes are being replaced.
    pub rolling: usize,
    /// Those of `rolling` that a window, a freeze, a pause or a halt blocks.
    pub paused: usize,
    /// Groups all of whose nodes run the target.
    pub done: usize,
    /// Groups on which the target failed, or that cannot use it.
    pub failed: usize,
    /// Those of `failed` that keep the target, because their problem may have another cause.
    pub failed_before: usize,
    /// Groups that the wave does not wait for.
    pub held: usize,
    /// Those of `held` that make no progress, and some of whose nodes run the target.
    pub stuck_with_target: usize,
    /// Groups that switched to the target, and whose cached objects do not show what the controller wrote since.
    pub doubtful: usize,
    /// Number of groups that wait, or whose replacement of nodes is blocked, by reason.
    pub reasons: BTreeMap<String, i64>,
    /// When the last group was done.
    pub last_settled: Option<Timestamp>,
}

/// The state of one group in a rollout.
#[derive(Clone, Debug, PartialEq)]
enum GroupProgress {
    /// The group has no part in the rollout: it is deleted or excluded.
    Ignored,
    /// The target does not change the group.
    Untouched,
    /// The group has the target, and no node had to be replaced.
    InPlace,
    /// The group switches to a revision in this pass, or replaces nodes outside of the waves.
    Moving,
    /// It switches to a content, or replaces nodes, outside of the waves, but is not waited for.
    Stuck(String),
    /// It has not switched to the target yet, and will.
    Waiting,
    /// The group's nodes are being replaced.
    Rolling,
    /// All nodes of the group have run the target since this time.
    Done(Option<Timestamp>),
    /// The target failed on the group, or the group cannot use it.
    Failed(String),
    /// The wave does not wait for the group.
    Bypassed(WaitReason, String),
}

impl GroupSummary {
    /// An empty summary for the waves of a rollout.
    pub(crate) fn new(view: &RolloutView) -> Self {
        let count = view.policy.waves.len();
        Self { waves: vec![WaveSummary::default(); count], matched: vec![false; count], ..Self::default() }
    }

    /// Counts a group. `is_stuck`: it has made no progress for as long as the policy's patience.
    pub(crate) fn add(&mut self, view: &RolloutView, group: &GroupView, choice: &RevisionDecision, is_stuck: bool) {
        for (wave, is_matched) in view.policy.waves.iter().zip(&mut self.matched) {
            *is_matched = *is_matched || group.is_selected(wave);
        }
        let progress = group_progress(view, group, choice, is_stuck);
        self.last_step = self.last_step.max(last_step(group));
        self.returning += usize::from(group.has_part(view) && group.is_returning(view) && !is_stuck);
        self.has_unjudged |= group.status.boundaries_revision.as_ref().is_some_and(|hash| view.unjudged.contains(hash));
        let is_over = |wait: &Wait| wait.reason == WaitReason::BudgetUsedUp;
        self.begins_wait |= matches!(choice, RevisionDecision::Use { waits: Some(wait), .. } if is_over(wait));
        // Without its content, nothing can be computed for the group before its wave.
        let has_no_content = matches!(choice, RevisionDecision::Use { content: None, .. });
        let is_known = *group.forecast != RevisionImpact::Unknown || group.has(&view.target.hash) || has_no_content;
        if progress != GroupProgress::Ignored && !is_known {
            self.unknown += 1;
        }
        if let Some(pending) = pending(view, group, choice, &progress, is_known) {
            self.pending.add(group.key, content_name(choice), pending);
        }
        if !group.has(&view.target.hash) {
            self.without_target.insert(group.key.to_owned());
        }
        // Nothing returns a group whose status cannot be written, and the others do not wait for it.
        let cannot_return = is_stuck && choice.switches_to().is_some();
        if group.has(&view.target.hash) && group.has_part(view) && !cannot_return {
            self.on_target += 1;
        }
        match progress {
            GroupProgress::Ignored => {}
            GroupProgress::Untouched => self.counts.untouched += 1,
            GroupProgress::InPlace => self.counts.in_place += 1,
            GroupProgress::Moving => {
                self.counts.in_place += 1;
                self.counts.moving += 1;
                self.moving += 1;
            }
            GroupProgress::Stuck(why) => {
                self.counts.in_place += 1;
                let revision = listed_revision(view, group, choice, true);
                self.list_behind(group, revision, WaitReason::Stuck.to_string(), &why);
            }
            GroupProgress::Waiting
            | GroupProgress::Rolling
            | GroupProgress::Done(_)
            | GroupProgress::Failed(_)
            | GroupProgress::Bypassed(..) => self.add_affected(view, group, choice, progress),
        }
    }

    /// Counts a group whose cached object does not catch up with the controller's writes: a failure may not be in it yet.
    pub(crate) fn add_doubtful(&mut self, view: &RolloutView, group: &GroupView) {
        if group.has_part(view) && group.has_switched_to(&view.target) {
            self.waves[group.wave(view)].doubtful += 1;
        }
    }

    /// Counts a group whose Namespace is not known.
    pub(crate) fn add_unseen(&mut self, key: &str) {
        self.unseen += 1;
        self.pending.add(key, None, Pending::unseen());
    }

    fn add_affected(
        &mut self,
        view: &RolloutView,
        group: &GroupView,
        choice: &RevisionDecision,
        progress: GroupProgress,
    ) {
        let index = group.wave(view);
        self.counts.affected += 1;
        self.count_nodes(view, group);
        self.counts.nodes = self.nodes_outdated;
        let selected = view.policy.waves.iter().enumerate().filter(|(_, wave)| group.is_selected(wave));
        self.affected.push((group.uid_hash, selected.fold(0, |bits, (wave, _)| bits | 1 << wave)));
        let wave = &mut self.waves[index];
        wave.groups += 1;
        if let Some(reason) = wait_reason(group, choice, &progress) {
            *wave.reasons.entry(reason).or_default() += 1;
        }
        let mut behind = None;
        match progress {
            GroupProgress::Waiting => {
                wave.waiting += 1;
                behind = skipped_wait(view, index, choice);
            }
            GroupProgress::Rolling => {
                wave.rolling += 1;
                wave.paused += usize::from(matches!(choice, RevisionDecision::Use { rollout_block: Some(_), .. }));
            }
            GroupProgress::Done(at) => {
                wave.done += 1;
                self.counts.done += 1;
                wave.last_settled = wave.last_settled.max(at);
            }
            GroupProgress::Failed(why) => {
                wave.failed += 1;
                let keeps_target = choice.switches_to().is_none() && group.has(&view.target.hash);
                wave.failed_before += usize::from(keeps_target);
                self.counts.failed += 1;
                self.failures.push((group.key.to_owned(), why.clone()));
                behind = Some(("Failed".to_owned(), why));
            }
            GroupProgress::Bypassed(reason, why) => {
                wave.held += 1;
                let has_target = group.has(&view.target.hash);
                let runs_target = has_target && group.status.nodes.as_ref().is_some_and(|nodes| nodes.updated > 0);
                wave.stuck_with_target += usize::from(reason == WaitReason::Stuck && runs_target);
                self.counts.held += 1;
                behind = Some((reason.to_string(), why));
            }
            GroupProgress::Ignored
            | GroupProgress::Untouched
            | GroupProgress::InPlace
            | GroupProgress::Moving
            | GroupProgress::Stuck(_) => {}
        }
        if let Some((reason, message)) = behind {
            let revision = listed_revision(view, group, choice, reason == WaitReason::Stuck.to_string());
            self.list_behind(group, revision, reason, &message);
        }
    }

    fn count_nodes(&mut self, view: &RolloutView, group: &GroupView) {
        if group.has(&view.target.hash) {
            let nodes = group.status.nodes.as_ref();
            self.nodes_updated += nodes.map_or(0, |nodes| nodes.updated);
            self.nodes_outdated += nodes.map_or(0, |nodes| nodes.outdated);
            return;
        }
        self.nodes_outdated += i64::try_from(group.forecast.nodes()).unwrap_or_default();
        self.behind_since.extend(group.behind_since(view).map(|since| (group.key.to_owned(), since)));
    }

    /// Lists a group whose object cannot be decoded, so that nothing is planned for it; `recorded` is the hash of what it
    /// has.
    pub(crate) fn list_undecodable(&mut self, view: &RolloutView, key: &str, recorded: Option<&str>) {
        self.has_undecodable = true;
        if recorded == Some(view.target.hash.as_str()) || self.behind.len() >= MAX_BEHIND {
            return;
        }
        let revision = recorded.and_then(|hash| view.stored.get(hash)).map(|stored| stored.name.clone());
        let message = "its object does not match the schema of InstanceGroup; see its condition Stalled".to_owned();
        let (group, reason) = (key.to_owned(), StalledReason::InvalidSpec.to_string());
        self.behind.push(LaggingGroup { group, revision, reason, message });
    }

    fn list_behind(&mut self, group: &GroupView, revision: Option<String>, reason: String, message: &str) {
        if self.behind.len() >= MAX_BEHIND {
            return;
        }
        let message = shorten(message, 300);
        self.behind.push(LaggingGroup { group: group.key.to_owned(), revision, reason, message });
    }
}

/// When the group switched to its revision, or finished with it.
fn last_step(group: &GroupView) -> Option<Timestamp> {
    let record = group.record()?;
    [&record.since, &record.settled].into_iter().filter_map(|at| at.as_deref()?.parse().ok()).max()
}

/// Name of the revision that a group has, or takes now.
fn content_name(choice: &RevisionDecision) -> Option<String> {
    match choice {
        RevisionDecision::Use { content, .. } => content.as_ref().map(|content| content.name.clone()),
        RevisionDecision::Switch(switch) => Some(switch.content.name.clone()),
    }
}

/// The revision that the status lists for a group. One that cannot take another one stays on what it has.
fn listed_revision(view: &RolloutView, group: &GroupView, choice: &RevisionDecision, is_stuck: bool) -> Option<String> {
    match choice.switches_to() {
        Some(_) if is_stuck => group.recorded(view).map(|own| own.name.clone()),
        Some(_) | None => content_name(choice),
    }
}

/// Why the rollout waits for a group; `None` if it does not.
fn pending(
    view: &RolloutView,
    group: &GroupView,
    choice: &RevisionDecision,
    progress: &GroupProgress,
    is_known: bool,
) -> Option<Pending> {
    let is_unfinished = match (view.phase(), progress) {
        (RolloutPhase::Assessing, GroupProgress::Ignored) => false,
        (RolloutPhase::Assessing, _) => return (!is_known).then(|| Pending::unknown(view)),
        (RolloutPhase::Rolling, GroupProgress::Waiting | GroupProgress::Rolling) => {
            waits_for_wave(view, group.wave(view))
        }
        (RolloutPhase::Rolling | RolloutPhase::Returning, GroupProgress::Moving) => true,
        _ => false,
    };
    is_unfinished.then(|| Pending::unfinished(view, group, choice))
}

/// Why a group of a wave waits, in one word; `None` when it continues, or is done.
fn wait_reason(group: &GroupView, choice: &RevisionDecision, progress: &GroupProgress) -> Option<String> {
    match (progress, choice) {
        (GroupProgress::Bypassed(reason, _), _) => Some(reason.to_string()),
        (GroupProgress::Waiting, RevisionDecision::Use { waits: Some(wait), .. }) => Some(wait.reason.to_string()),
        (GroupProgress::Rolling, _) if group.lock.is_some() => Some(WaitReason::Locked.to_string()),
        (GroupProgress::Rolling, RevisionDecision::Use { rollout_block: Some(_), .. }) => Some("Blocked".to_owned()),
        (GroupProgress::Rolling, _) => {
            drain_blocker(group.status).is_some().then(|| condition::DRAIN_BLOCKED.to_owned())
        }
        _ => None,
    }
}

/// Why a group that has made no progress is not waited for.
const STUCK: &str = "no node was replaced for as long as the patience of the rollout; see the group's conditions";

/// Why a group that does not record its switch is not waited for.
fn unrecorded(switch: &RevisionSwitch) -> String {
    format!(
        "the controller could not record {} in the status of the group for as long as the patience of the rollout; correct what the group's event StatusNotWritten or WritesIneffective names",
        switch.content.name
    )
}

/// Why a group is behind whose wave is not waited for, or no longer: the rollout may be over before its turn.
fn skipped_wait(view: &RolloutView, index: usize, choice: &RevisionDecision) -> Option<(String, String)> {
    let wave = &view.policy.waves[index].name;
    let is_waited_for = !view.is_skipped(wave) && view.wave_state(index) != WaveState::Passed;
    if is_waited_for {
        return None;
    }
    match choice {
        RevisionDecision::Use { waits, .. } => {
            waits.as_ref().map(|wait| (wait.reason.to_string(), wait.message.clone()))
        }
        RevisionDecision::Switch(switch) => {
            Some((WaitReason::WaveNotOpen.to_string(), format!("the group takes {} now", switch.content.name)))
        }
    }
}

/// Whether the group replaces nodes for the target in its wave, and the wave is open, or the next to open.
pub(crate) fn comes_next(view: &RolloutView, group: &GroupView, choice: &RevisionDecision) -> bool {
    let RevisionDecision::Use { waits: Some(wait), .. } = choice else { return false };
    let switches_later = match wait.reason {
        WaitReason::Deferred | WaitReason::ApprovalNeeded => true,
        WaitReason::Aborted => false,
        reason => !reason.is_bypassed(),
    };
    switches_later && matches!(group.forecast, RevisionImpact::Rotate { .. }) && group.wave(view) <= view.next_wave()
}

fn group_progress(view: &RolloutView, group: &GroupView, choice: &RevisionDecision, is_stuck: bool) -> GroupProgress {
    if !group.has_part(view) {
        return GroupProgress::Ignored;
    }
    match choice {
        RevisionDecision::Switch(switch) => switching(view, group, switch, is_stuck),
        RevisionDecision::Use { waits: Some(wait), .. } => waiting(view, group, wait),
        RevisionDecision::Use { content: Some(content), waits: None, .. } if content.hash == view.target.hash => {
            on_target(view, group, is_stuck)
        }
        RevisionDecision::Use { .. } if *group.forecast == RevisionImpact::Untouched => GroupProgress::Untouched,
        RevisionDecision::Use { .. } => GroupProgress::Ignored,
    }
}

fn switching(view: &RolloutView, group: &GroupView, switch: &RevisionSwitch, is_stuck: bool) -> GroupProgress {
    let in_wave = || match is_stuck {
        true => GroupProgress::Bypassed(WaitReason::Stuck, unrecorded(switch)),
        false => GroupProgress::Waiting,
    };
    match &switch.why {
        SwitchReason::Failed(failure) => GroupProgress::Failed(failure.clone()),
        SwitchReason::Wave(_) | SwitchReason::Approved(_) => in_wave(),
        SwitchReason::InPlace if group.keeps_its_wave(view) => in_wave(),
        SwitchReason::InPlace
        | SwitchReason::Reverted
        | SwitchReason::Included
        | SwitchReason::Aborted
        | SwitchReason::Superseded
        | SwitchReason::Stopped => match is_stuck {
            true => GroupProgress::Stuck(unrecorded(switch)),
            false => GroupProgress::Moving,
        },
    }
}

fn on_target(view: &RolloutView, group: &GroupView, is_stuck: bool) -> GroupProgress {
    let record = group.record().filter(|_| group.has_switched_to(&view.target));
    match record {
        None if group.has(&view.target.hash) => GroupProgress::InPlace,
        None => GroupProgress::Untouched,
        Some(record) if record.wave.is_none() && record.settled.is_none() => match is_stuck {
            true => GroupProgress::Stuck(STUCK.to_owned()),
            false => GroupProgress::Moving,
        },
        Some(record) if record.wave.is_none() => GroupProgress::InPlace,
        Some(record) => match &record.settled {
            Some(at) => GroupProgress::Done(at.parse().ok()),
            None if is_stuck => GroupProgress::Bypassed(WaitReason::Stuck, STUCK.to_owned()),
            None => GroupProgress::Rolling,
        },
    }
}

fn waiting(view: &RolloutView, group: &GroupView, wait: &Wait) -> GroupProgress {
    let switches_at_once = view.policy.without_rotation == WithoutRotation::AtOnce;
    let has_wave = group.keeps_its_wave(view) || group.is_returning(view);
    match (wait.reason, group.forecast) {
        (WaitReason::CannotUse, RevisionImpact::CannotUse { reason, .. }) if group.is_blocked_by(reason) => {
            GroupProgress::Bypassed(wait.reason, wait.message.clone())
        }
        (WaitReason::CannotUse | WaitReason::FailedBefore, _) => GroupProgress::Failed(wait.message.clone()),
        (reason, RevisionImpact::InPlace) if switches_at_once && !has_wave && !reason.is_bypassed() => {
            GroupProgress::Moving
        }
        (reason, _) if reason.is_bypassed() => GroupProgress::Bypassed(reason, wait.message.clone()),
        _ => GroupProgress::Waiting,
    }
}
