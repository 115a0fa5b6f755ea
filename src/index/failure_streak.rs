//! Counts refused passes of a group. After several of them its nodes must not stay cordoned.

use jiff::{SignedDuration, Timestamp};

use crate::plan::{PersistentFailure, StalledReason};

/// After how many refused passes in a row nodes in progress are uncordoned. The fifth is 15 seconds after the first.
const LASTING_AFTER: u32 = 5;

/// The longest time for which a refused rotation is not tried again.
const MAX_RETRY_DELAY: SignedDuration = SignedDuration::from_hours(1);

/// A step that was refused.
pub(crate) struct FailedStep {
    /// Whether it is a step of the rotation itself.
    pub is_of_rotation: bool,
    /// Reason of the `Stalled` condition.
    pub reason: StalledReason,
    /// What was refused, and the remedy.
    pub message: String,
    /// Whether other groups have been denied the same call for long.
    pub is_known: bool,
    /// Whether the controller checks the missing permission, and continues when it is restored.
    pub is_watched: bool,
}

/// How a pass ended.
pub(crate) enum PassResult {
    /// All steps were applied. `removed_node`: one of them terminated an instance or put it into standby.
    Applied { removed_node: bool },
    /// A step was refused, and only a user can change that.
    NeedsIntervention(FailedStep),
    /// A step failed for another reason; a retry may succeed.
    Failed,
}

/// The failures of one group. After a restart of the process, a rotation that is still refused is tried once more.
#[derive(Clone, Default)]
pub(crate) struct FailureStreak {
    /// A change of the spec ends all waits.
    generation: i64,
    /// Refused passes in a row.
    times: u32,
    /// How often in a row the rotation was stopped because a step of it was refused.
    rotation_blocks: u32,
    blocked_rotation: PersistentFailure,
    /// When that was. A clock that was set back since ends the wait, which would be as long as it was set back.
    blocked_at: Timestamp,
}

impl FailureStreak {
    /// What the next plan takes into account.
    pub(crate) fn lasting(&self, generation: i64, now: Timestamp) -> PersistentFailure {
        match &self.blocked_rotation {
            _ if generation != self.generation => PersistentFailure::None,
            PersistentFailure::Rotation { until, .. } if self.blocked_at <= now && now < *until => {
                self.blocked_rotation.clone()
            }
            _ if self.times >= LASTING_AFTER => PersistentFailure::Pass,
            _ => PersistentFailure::None,
        }
    }

    /// Whether the next refusal of the same lasts.
    pub(crate) fn is_nearly_lasting(&self) -> bool {
        self.times.saturating_add(1) >= LASTING_AFTER
    }

    /// Lets a rotation that is blocked continue, because the permission seems to be there.
    pub(crate) fn retry_now(&mut self, now: Timestamp) {
        if let PersistentFailure::Rotation { until, .. } = &mut self.blocked_rotation {
            *until = now;
        }
    }

    /// Whether the same failure has occurred so often that an immediate retry is useless.
    pub(crate) fn is_lasting(&self) -> bool {
        self.times >= LASTING_AFTER
    }

    /// Records how a pass ended. `delay`: how long a rotation is not tried again after it was refused for the first time.
    pub(crate) fn record(&mut self, generation: i64, result: PassResult, delay: SignedDuration, now: Timestamp) {
        if generation != self.generation {
            *self = FailureStreak { generation, ..FailureStreak::default() };
        }
        match result {
            PassResult::Applied { removed_node } => {
                self.times = 0;
                if removed_node {
                    self.rotation_blocks = 0;
                }
            }
            PassResult::Failed => {}
            PassResult::NeedsIntervention(step) => {
                self.times = self.times.saturating_add(1).max(if step.is_known { LASTING_AFTER } else { 0 });
                if step.is_of_rotation && self.times >= LASTING_AFTER {
                    let delay = (delay * (1 << self.rotation_blocks.min(10))).min(MAX_RETRY_DELAY.max(delay));
                    let until = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
                    let FailedStep { reason, message, is_watched, .. } = step;
                    self.blocked_rotation = PersistentFailure::Rotation { until, reason, message, is_watched };
                    self.blocked_at = now;
                    (self.times, self.rotation_blocks) = (0, self.rotation_blocks.saturating_add(1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: SignedDuration = SignedDuration::from_mins(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn refused(is_of_rotation: bool) -> PassResult {
        PassResult::NeedsIntervention(FailedStep {
            is_of_rotation,
            reason: StalledReason::MissingPermission,
            message: "no".into(),
            is_known: false,
            is_watched: false,
        })
    }

    /// A throttled call or a role that IAM does not know everywhere yet must not stop a rotation.
    #[test]
    fn refusal_lasts_after_five_passes_in_a_row() {
        let mut failure_streak = FailureStreak::default();
        for (seconds, result) in [(0, refused(false)), (1, refused(false)), (2, refused(false)), (3, refused(false))] {
            failure_streak.record(1, result, DELAY, at(seconds));
            assert_eq!(failure_streak.lasting(1, at(seconds)), PersistentFailure::None);
        }
        failure_streak.record(1, PassResult::Failed, DELAY, at(4));
        assert_eq!(
            failure_streak.lasting(1, at(4)),
            PersistentFailure::None,
            "a lost response says nothing about a refusal"
        );
        failure_streak.record(1, refused(false), DELAY, at(15));
        assert_eq!(failure_streak.lasting(1, at(16)), PersistentFailure::Pass);
        assert_eq!(failure_streak.lasting(2, at(16)), PersistentFailure::None, "the spec changed");
        failure_streak.record(1, PassResult::Applied { removed_node: false }, DELAY, at(20));
        assert_eq!(failure_streak.lasting(1, at(20)), PersistentFailure::None);
    }

    /// The nodes of a second group need not wait until it has been refused five times as well.
    #[test]
    fn refusal_that_other_groups_know_lasts_at_once() {
        let mut failure_streak = FailureStreak::default();
        let PassResult::NeedsIntervention(step) = refused(false) else { panic!("a refusal") };
        failure_streak.record(1, PassResult::NeedsIntervention(FailedStep { is_known: true, ..step }), DELAY, at(0));
        assert_eq!(failure_streak.lasting(1, at(1)), PersistentFailure::Pass);
    }

    /// Each attempt of a refused termination evicts the pods of a node.
    #[test]
    fn refused_rotation_is_tried_at_growing_intervals() {
        let (mut failure_streak, mut now) = (FailureStreak::default(), 0);
        for minutes in [5, 10, 20, 40, 60, 60] {
            (0..5).for_each(|_| failure_streak.record(1, refused(true), DELAY, at(now)));
            let PersistentFailure::Rotation { until, .. } = failure_streak.lasting(1, at(now)) else {
                panic!("it is not blocked")
            };
            assert_eq!(until, at(now + minutes * 60));
            failure_streak.record(1, PassResult::Applied { removed_node: false }, DELAY, at(now + 1));
            assert!(
                failure_streak
                    .lasting(1, at(now + 1))
                    .rotation_blocker()
                    .is_some_and(|(_, text)| text.starts_with("no"))
            );
            now += minutes * 60;
            assert_eq!(failure_streak.lasting(1, at(now)), PersistentFailure::None);
        }
        failure_streak.record(1, PassResult::Applied { removed_node: true }, DELAY, at(now));
        (0..5).for_each(|_| failure_streak.record(1, refused(true), DELAY, at(now)));
        assert_eq!(failure_streak.lasting(1, at(now)).retry_at(), Some(at(now + 300)), "it went on meanwhile");
    }

    /// Time synchronization may correct a clock by hours.
    #[test]
    fn clock_that_is_set_back_ends_the_wait_of_a_refused_rotation() {
        let mut failure_streak = FailureStreak::default();
        (0..5).for_each(|_| failure_streak.record(1, refused(true), DELAY, at(0)));
        assert!(failure_streak.lasting(1, at(0)).rotation_blocker().is_some());
        assert_eq!(failure_streak.lasting(1, at(-3600)), PersistentFailure::None);
    }
}
