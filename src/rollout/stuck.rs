//! When a rollout that makes no progress counts as stuck, for an alert.

use jiff::Timestamp;

use super::summary::GroupSummary;
use super::view::RolloutView;
use crate::api::RolloutPhase;

/// After how many times the patience without progress a rollout counts as stuck. A group without progress is bypassed
/// after the patience itself.
const PATIENCES: i32 = 2;

/// Whether the rollout could make progress now: groups replace nodes, or would begin if the budget had nodes left.
/// Windows, orders, soaks and approvals that keep all groups from it are not progress that is missing.
pub(crate) fn is_active(view: &RolloutView, summary: &GroupSummary) -> bool {
    let is_replacing = summary.waves.iter().any(|wave| wave.rolling > wave.paused);
    view.phase() == RolloutPhase::Rolling && (is_replacing || summary.begins_wait)
}

/// The last progress; `None` when none is known. `seen` is the last that this process saw; the other times are recorded,
/// so that the next leader does not begin to count again.
pub(crate) fn last_progress(view: &RolloutView, summary: &GroupSummary, seen: Option<Timestamp>) -> Option<Timestamp> {
    let parse = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let of_waves = view.status.waves.iter().flat_map(|wave| [&wave.opened, &wave.settled, &wave.passed]);
    let recorded = of_waves.chain([&view.status.begun]).filter_map(parse);
    recorded.chain(summary.last_step).chain(seen).max()
}

/// When the rollout counts as stuck: twice the patience after its last progress. `None` while it could make none, or
/// when no progress is known.
pub(crate) fn stuck_at(view: &RolloutView, summary: &GroupSummary, last: Option<Timestamp>) -> Option<Timestamp> {
    last?.checked_add(view.policy.patience * PATIENCES).ok().filter(|_| is_active(view, summary))
}
