//! What a stored revision shows of its rollout: its phase, whether it was complete, and whether a user aborted it.

use crate::api::{BoundariesRevision, BoundariesRevisionStatus, RolloutPhase};
use crate::boundaries::ROLLOUT_KEY;

/// The recorded phase; `None` before the rollout, and after the status was lost.
pub(super) fn phase_of(revision: &BoundariesRevision) -> Option<RolloutPhase> {
    revision.status.as_ref().and_then(|status| status.phase)
}

/// Whether all groups have switched to a revision, so that a failed one returns to it. Without a phase that is so if
/// there was no policy, or nothing before it; otherwise a newer revision came before its rollout began.
pub(super) fn was_complete(revision: &BoundariesRevision) -> bool {
    match phase_of(revision) {
        Some(phase) => phase == RolloutPhase::Complete && !is_ordered_back(revision),
        None => revision.spec.number == 1 || !revision.spec.data.contains_key(ROLLOUT_KEY),
    }
}

/// Whether its groups have returned, or return. The order of a user stands although the status was lost that showed the return.
pub(super) fn is_aborted(revision: &BoundariesRevision) -> bool {
    match phase_of(revision) {
        Some(RolloutPhase::Returning | RolloutPhase::Aborted) => true,
        Some(_) => is_ordered_back(revision),
        None => revision.spec.orders.aborted && !was_complete(revision),
    }
}

/// Whether its images are those of an aborted revision, which no later one brings again. It may have been recorded as superseded
/// when its status was lost.
pub(super) fn has_refused_images(revision: &BoundariesRevision) -> bool {
    let is_superseded = phase_of(revision) == Some(RolloutPhase::Superseded);
    is_aborted(revision) || revision.spec.orders.aborted && is_superseded
}

/// Whether a user aborted it, and the phase does not show that yet: the next edit of the ConfigMap may come first.
pub(super) fn is_ordered_back(revision: &BoundariesRevision) -> bool {
    use RolloutPhase::{Assessing, Complete, Halted, Rolling};
    let can_return = |status: &&BoundariesRevisionStatus| status.stable.is_some() && status.without_waves != Some(true);
    let phase = revision.status.as_ref().filter(can_return).and_then(|status| status.phase);
    revision.spec.orders.aborted && matches!(phase, Some(Assessing | Rolling | Halted | Complete))
}
