//! What the process that leads remembers between two polls of a rollout.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::delete_revision::RevisionDeleter;
use super::drain_forecast::DrainWatch;
use crate::api::{BoundariesRevisionStatus, RolloutPhase};
use crate::k8s::KubeError;
use crate::rollout::{GroupSummary, Images, Patience, RolloutView, is_active, last_progress, stuck_at};

/// What this process remembers between two polls.
#[derive(Default)]
pub(super) struct PollState {
    /// Name and UID of the revision that all of this is about. One that a user deleted may be stored again by its name.
    pub target: (String, String),
    /// Since when each wave has soaked, as far as this process saw it begin.
    pub soaks: HashMap<String, Instant>,
    /// The waves that the last poll found ready to pass.
    pub ready: Vec<String>,
    /// How long each group has made no progress.
    pub patience: Patience,
    /// The last progress of the rollout that this process saw, later by the time in which it could make none.
    pub progress_at: Option<Timestamp>,
    /// When the last poll looked for progress.
    pub looked_at: Option<Timestamp>,
    /// Groups that would switch to another content and were enqueued for it.
    pub enqueued: HashSet<String>,
    /// Groups that a window, a freeze or an order blocked at the last poll.
    pub blocked: HashSet<String>,
    /// The image aliases that the last poll found to resolve to other images.
    pub moved_images: Images,
    /// What was reported of stored revisions that cannot be used.
    pub reported_problems: BTreeSet<String>,
    /// What was reported of orders and waves without effect.
    pub reported_ignored: BTreeSet<String>,
    /// What was reported of orders that came too late for older revisions.
    pub reported_late_orders: BTreeSet<String>,
    /// The older revisions of which it was reported that the API server refuses their status.
    pub reported_unrecorded: BTreeSet<String>,
    /// Whether it was reported that the ConfigMap has no policy any more.
    pub is_kept_policy_reported: bool,
    /// What was read of pods and budgets.
    pub drains: DrainWatch,
    /// What was found of stored revisions that are not kept.
    pub dispensable: RevisionDeleter,
    /// When the status was written last.
    pub written_at: Option<Timestamp>,
    /// A halt or a return that the API server refuses to record. It counts nevertheless, for as long as this process leads.
    pub unrecorded_stop: Option<BoundariesRevisionStatus>,
    /// Since when the API server has refused the status, and whether that was reported.
    pub refused: Option<(Timestamp, bool)>,
}

impl PollState {
    /// Records which waves have begun to soak. `since_jump`: how long ago the wall clock jumped forward, if it did.
    pub(super) fn record_soaks(
        &mut self,
        before: &BoundariesRevisionStatus,
        after: &BoundariesRevisionStatus,
        since_jump: Option<Duration>,
        now: Timestamp,
    ) {
        // The soak of a wave whose groups were done with an earlier revision continues. A jump is no time that passed.
        let begun = |settled: &str| {
            let age: Duration = now.duration_since(settled.parse().ok()?).try_into().ok()?;
            Instant::now().checked_sub(since_jump.map_or(age, |since| age.min(since)))
        };
        for wave in &after.waves {
            let old = before.waves.iter().find(|old| old.name == wave.name);
            match (&old.and_then(|old| old.settled.clone()), &wave.settled) {
                (None, Some(settled)) => {
                    self.soaks.insert(wave.name.clone(), begun(settled).unwrap_or_else(Instant::now));
                }
                (_, None) => _ = self.soaks.remove(&wave.name),
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// Keeps what stops the groups, if the API server refused to record it. After a conflict, the next poll decides again.
    pub(super) fn keep_stop(&mut self, written: &Result<(), KubeError>, status: &BoundariesRevisionStatus) {
        use RolloutPhase::{Aborted, Halted, Returning};
        let stops = || matches!(status.phase, Some(Halted | Returning | Aborted));
        match written {
            Ok(()) => self.unrecorded_stop = None,
            Err(error) if error.is_conflict() => {}
            Err(_) => self.unrecorded_stop = stops().then(|| status.clone()),
        }
    }

    /// Since when the status has been refused, once that has lasted for `delay`, and only once.
    pub(super) fn track_refusal(
        &mut self,
        is_refused: bool,
        delay: SignedDuration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !is_refused {
            self.refused = None;
            return None;
        }
        let (since, is_reported) = self.refused.get_or_insert((now, false));
        let is_due = !*is_reported && now.duration_since(*since) >= delay;
        *is_reported |= is_due;
        is_due.then_some(*since)
    }

    /// When the rollout counts as stuck. Time in which it could make no progress does not count.
    pub(super) fn stuck_at(&mut self, view: &RolloutView, summary: &GroupSummary, now: Timestamp) -> Option<Timestamp> {
        let (before, is_idle) = (self.looked_at.replace(now), !is_active(view, summary));
        let known = last_progress(view, summary, self.progress_at);
        self.progress_at = match before {
            _ if self.patience.take_progress() => Some(now),
            // For how long it could make none before this process led is not known.
            None if is_idle => Some(now),
            Some(before) if is_idle => {
                let idle = now.duration_since(before).max(SignedDuration::ZERO);
                known.map(|at| at.checked_add(idle).map_or(now, |at| at.min(now)))
            }
            _ => self.progress_at,
        };
        stuck_at(view, summary, last_progress(view, summary, self.progress_at))
    }

    /// Forgets the groups that were deleted.
    pub(super) fn retain(&mut self, keys: &HashSet<&str>) {
        self.blocked.retain(|key| keys.contains(key.as_str()));
        self.patience.retain(keys);
    }
}
