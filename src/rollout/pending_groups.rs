//! The names of the groups that a rollout waits for now, for a user who wants to know why it makes no progress.

use super::group::GroupView;
use super::group_revision::RevisionDecision;
use super::view::RolloutView;
use super::wait::WaitReason;
use crate::api::names::condition;
use crate::api::{LaggingGroup, RolloutPhase, WaveState};
use crate::util::text::shorten;

/// The most groups that the status lists. The size of a status is limited.
const MAX_LISTED: usize = 10;

/// The groups that the rollout waits for: the first ones, and how many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingGroups {
    /// Groups that do not continue without a change elsewhere.
    blocked: Vec<LaggingGroup>,
    /// Groups that make progress, or whose wave comes.
    others: Vec<LaggingGroup>,
    count: usize,
}

impl PendingGroups {
    /// The groups to list, those that are blocked first, and how many more there are.
    pub(crate) fn listed(&self) -> (Vec<LaggingGroup>, i64) {
        let listed: Vec<_> = self.blocked.iter().chain(&self.others).take(MAX_LISTED).cloned().collect();
        let more = self.count.saturating_sub(listed.len());
        (listed, i64::try_from(more).unwrap_or(i64::MAX))
    }

    /// Adds a group, with the revision that it has.
    pub(super) fn add(&mut self, key: &str, revision: Option<String>, why: Pending) {
        self.count += 1;
        let list = if why.is_blocked { &mut self.blocked } else { &mut self.others };
        if list.len() < MAX_LISTED {
            let (reason, message) = (why.reason, shorten(&why.message, 300));
            list.push(LaggingGroup { group: key.to_owned(), revision, reason, message });
        }
    }
}

/// Why the rollout waits for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    reason: String,
    message: String,
    is_blocked: bool,
}

impl Pending {
    fn new(reason: impl ToString, message: impl Into<String>, is_blocked: bool) -> Self {
        Self { reason: reason.to_string(), message: message.into(), is_blocked }
    }

    /// A group whose Namespace is not known: nothing of it is decided.
    pub(super) fn unseen() -> Self {
        Self::new("NamespaceUnknown", "the controller has not seen its Namespace, which decides its wave", true)
    }

    /// A group whose impact is not known yet, while the controller assesses it.
    pub(super) fn unknown(view: &RolloutView) -> Self {
        let name = &view.target.name;
        let text = format!("the controller has not found out what {name} changes; AWS may not answer for the group");
        Self::new(WaitReason::Assessing, text, true)
    }

    /// A group that has not switched yet, or whose nodes are being replaced.
    pub(super) fn unfinished(view: &RolloutView, group: &GroupView, choice: &RevisionDecision) -> Self {
        match choice {
            RevisionDecision::Switch(switch) => {
                Self::new("Switching", format!("the group takes {} now", switch.content.name), false)
            }
            RevisionDecision::Use { waits: Some(wait), .. } => {
                Self::new(wait.reason, &wait.message, wait.reason != WaitReason::WaveBusy)
            }
            RevisionDecision::Use { rollout_block, .. } => {
                let block = rollout_block.as_ref().map(|block| block.why.as_str());
                Self::rotating(view, group, block)
            }
        }
    }

    fn rotating(view: &RolloutView, group: &GroupView, block: Option<&str>) -> Self {
        let problems = [condition::DRAIN_BLOCKED, condition::ROTATION_HALTED, condition::STALLED];
        let conditions = &group.status.conditions;
        let find = |name: &str| conditions.iter().find(|found| found.r#type == name && found.is_true());
        if let Some(why) = group.lock.or(block) {
            let reason = if group.lock.is_some() { "Locked" } else { "Blocked" };
            return Self::new(reason, format!("its nodes are not replaced: {}", why.trim_end_matches(',')), true);
        }
        if let Some(found) = problems.into_iter().find_map(find) {
            let reason = if found.r#type == condition::DRAIN_BLOCKED { Some(found.r#type.as_str()) } else { None };
            let reason = reason.or(found.reason.as_deref()).unwrap_or_default();
            return Self::new(reason, found.message.as_deref().unwrap_or_default(), true);
        }
        let nodes = group.status.nodes.clone().unwrap_or_default();
        let has = match group.has(&view.target.hash) {
            true => &view.target.name,
            false => group.recorded(view).map_or(&view.target.name, |own| &own.name),
        };
        let counts = format!("{} of {} {} run {has}", nodes.updated, nodes.desired, nodes.unit());
        let doing = find(condition::RECONCILING).and_then(|found| found.message.as_deref()).unwrap_or_default();
        let message =
            [counts.as_str(), doing].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        Self::new("Rotating", message, false)
    }
}

/// Whether the rollout waits for the groups of the wave at an index.
pub(super) fn waits_for_wave(view: &RolloutView, index: usize) -> bool {
    let is_open = matches!(view.wave_state(index), WaveState::Open | WaveState::Soaking);
    let is_skipped = || view.is_skipped(&view.policy.waves[index].name);
    view.phase() == RolloutPhase::Rolling && (view.is_return() || is_open && !is_skipped())
}
