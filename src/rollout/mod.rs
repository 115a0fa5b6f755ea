//! Revisions of the boundaries: what is stored of each content of the ConfigMap, and how it reaches the groups.
//!
//! The code is pure. `controller/revisions.rs` and `controller/rollout/` read and write the resources.

mod budget;
mod check_answer;
mod checks;
mod closed_waves;
mod content_diff;
mod gates;
mod group;
mod group_revision;
mod ignored;
mod images;
mod impact;
mod new_images;
mod opening;
mod patience;
mod pending_groups;
mod progress;
mod retention;
mod running;
mod stored_phase;
mod stuck;
mod summary;
#[cfg(test)]
mod tests;
mod view;
mod wait;
mod yielding_groups;

pub(crate) use budget::BudgetUsage;
pub(crate) use check_answer::{CheckAnswer, read_answer};
pub(crate) use checks::{CheckResult, Checks, query};
pub(crate) use content_diff::changes;
pub(crate) use gates::urgent_until;
pub(crate) use group::{GroupView, corrected_conditions, corrected_record, drain_blocker, uid_hash};
pub(crate) use group_revision::{DecisionInput, RevisionDecision, RevisionSwitch, SwitchReason, choose};
pub(crate) use ignored::{LateOrders, empty_waves, knows_all_groups, late_orders, unknown_groups, unknown_waves};
pub(crate) use images::{Images, image_changes, is_of_aws, refused_first_images};
pub(crate) use impact::{KnownImpact, RevisionImpact};
pub(crate) use new_images::{is_confirmed, may_move_images, moved, with_images, without_images};
pub(crate) use patience::Patience;
pub(crate) use progress::{ProgressInput, advance};
pub(crate) use retention::{
    Current, History, HistoryWrite, UsedNumbers, foreign_names, has_texts, next_write, policy_is_retained, returns_to,
    revision_to_delete, sorted, used_numbers,
};
pub(crate) use running::Running;
pub(crate) use stuck::{is_active, last_progress, stuck_at};
pub(crate) use summary::{GroupSummary, WaveSummary, comes_next};
pub(crate) use view::{RolloutView, StoredRevision};
pub(crate) use wait::{RotationBlock, Wait, WaitReason, is_announced, is_assessing};
pub(crate) use yielding_groups::YieldingGroups;
