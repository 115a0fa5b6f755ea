//! Serializes Fargate profile operations: EKS creates or deletes one profile per cluster at a time. The group that has
//! waited longest is next. The start of the wait is recorded in status, so that it survives a restart.

use jiff::{SignedDuration, Timestamp};

use crate::api::FargateStatus;
use crate::index::groups::QueuePosition;
use crate::plan::{Outcome, Phase, waiting};
use crate::settings::Timing;
use crate::util::recorded_time;

/// A group's place in the queue, and its record in status.
pub(crate) struct ProfileSlot {
    /// The status to record.
    pub status: FargateStatus,
    waiting_since: Option<String>,
    queue: QueuePosition,
    base_delay: SignedDuration,
    now: Timestamp,
}

/// When an operation that EKS failed is retried.
pub(crate) enum Retry {
    /// Not before this time.
    At(Timestamp),
    /// The delay is over.
    Now,
}

impl ProfileSlot {
    /// A slot without a place in the queue; [`Self::acquire`] and [`Self::keep`] take one. A group that was skipped loses its
    /// previous place.
    pub(crate) fn new(status: Option<&FargateStatus>, queue: QueuePosition, timing: &Timing, now: Timestamp) -> Self {
        let mut status = status.cloned().unwrap_or_default();
        let waiting_since = status.waiting_since.take().filter(|_| !queue.skipped);
        // A wait that began in the future would end after those of all groups that begin to wait until then.
        let waiting_since = waiting_since.and_then(|since| recorded_time::past(&since, now)).map(crate::api::rfc3339);
        ProfileSlot { status, waiting_since, queue, base_delay: timing.retry_delay, now }
    }

    /// Keeps the place while EKS works on an operation of this group.
    pub(crate) fn keep(&mut self) {
        self.status.waiting_since.clone_from(&self.waiting_since);
    }

    /// Requests the slot.
    ///
    /// # Errors
    /// A waiting outcome if other groups are ahead.
    pub(crate) fn acquire(&mut self, phase: Phase) -> Result<(), Outcome> {
        let since = self.waiting_since.get_or_insert_with(|| crate::api::rfc3339(self.now)).clone();
        self.status.waiting_since = Some(since);
        let QueuePosition { ahead, skipped } = self.queue;
        if ahead == 0 {
            return Ok(());
        }
        let groups = if ahead == 1 { "group" } else { "groups" };
        let queued = match skipped {
            true => {
                format!("requeued behind {ahead} {groups}: this group made no progress while at the head of the queue")
            }
            false => format!("queued behind {ahead} {groups}"),
        };
        Err(waiting(phase, format!("{queued}; EKS creates or deletes one Fargate profile per cluster at a time")))
    }

    /// When the wait for this operation began. It distinguishes repeated operations of the same kind in client tokens.
    pub(crate) fn waiting_since(&self) -> &str {
        self.waiting_since.as_deref().unwrap_or_default()
    }

    /// Records a failed operation and returns when to retry. The first delay is a fifth of [`Timing::retry_delay`]; it
    /// doubles with each failure, up to six times [`Timing::retry_delay`].
    pub(crate) fn record_failure(&mut self) -> Retry {
        let longest = self.base_delay * 6;
        let at = self.status.retry_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let at = at.filter(|at| !recorded_time::is_ahead(*at, longest, self.now)).unwrap_or_else(|| {
            let failures = self.status.failures.unwrap_or_default().saturating_add(1);
            let pause = ((self.base_delay / 5) * (1 << (failures - 1).min(10))).min(longest);
            self.status.failures = Some(failures);
            self.now.saturating_add(pause).unwrap_or(self.now)
        });
        self.status.retry_at = Some(at.to_string());
        if at > self.now { Retry::At(at) } else { Retry::Now }
    }

    /// Clears the retry time once no failed profile remains; the next failure gets a new delay.
    pub(crate) fn clear_retry(&mut self) {
        self.status.retry_at = None;
    }

    /// Resets the failure count after a success.
    pub(crate) fn record_success(&mut self) {
        (self.status.failures, self.status.retry_at) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn queue(ahead: usize) -> QueuePosition {
        QueuePosition { ahead, skipped: false }
    }

    #[test]
    fn skipped_group_rejoins_the_end_of_the_queue() {
        let timing = Timing::default();
        let status = FargateStatus { waiting_since: Some("1970-01-01T00:00:10Z".into()), ..FargateStatus::default() };
        let mut slot =
            ProfileSlot::new(Some(&status), QueuePosition { ahead: 1, skipped: true }, &timing, timestamp(99));
        let Err(Outcome::Progressing { message, .. }) = slot.acquire(Phase::Creating) else {
            panic!("the group waits")
        };
        assert!(
            message.contains("requeued behind 1 group: this group made no progress while at the head of the queue"),
            "{message}"
        );
        assert_eq!(slot.status.waiting_since.as_deref(), Some("1970-01-01T00:01:39Z"));
    }

    #[test]
    fn waiting_group_keeps_its_place_until_idle() {
        let timing = Timing::default();
        let mut slot = ProfileSlot::new(None, queue(2), &timing, timestamp(10));
        let Err(Outcome::Progressing { message, .. }) = slot.acquire(Phase::Creating) else {
            panic!("the group waits")
        };
        assert!(message.starts_with("queued behind 2 groups"), "{message}");
        let waiting = slot.status;
        let mut later = ProfileSlot::new(Some(&waiting), queue(0), &timing, timestamp(99));
        assert!(later.acquire(Phase::Creating).is_ok());
        assert_eq!(later.status, waiting);
        assert_eq!(ProfileSlot::new(Some(&waiting), queue(0), &timing, timestamp(99)).status.waiting_since, None);
    }

    /// The clock was an hour ahead when the records were written.
    #[test]
    fn times_from_the_future_delay_no_operation() {
        let timing = Timing::default();
        let ahead = Some("1970-01-01T01:00:00Z".to_owned());
        let status = FargateStatus { waiting_since: ahead.clone(), retry_at: ahead, ..FargateStatus::default() };
        let mut slot = ProfileSlot::new(Some(&status), queue(1), &timing, timestamp(99));
        let Retry::At(until) = slot.record_failure() else { panic!("there is a delay") };
        assert_eq!(until, timestamp(99 + 60));
        assert!(slot.acquire(Phase::Creating).is_err());
        assert_eq!(slot.status.waiting_since.as_deref(), Some("1970-01-01T00:01:39Z"));
    }

    #[test]
    fn retry_delay_grows_with_failures() {
        let timing = Timing::default();
        let mut status = FargateStatus::default();
        let mut pauses = Vec::new();
        let mut now = 0;
        for _ in 0..8 {
            let mut slot = ProfileSlot::new(Some(&status), queue(0), &timing, timestamp(now));
            let Retry::At(until) = slot.record_failure() else { panic!("there is a delay") };
            pauses.push(until.as_second() - now);
            let mut slot = ProfileSlot::new(Some(&slot.status), queue(0), &timing, until);
            assert!(matches!(slot.record_failure(), Retry::Now));
            slot.clear_retry();
            (status, now) = (slot.status, until.as_second());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800, 1800]);
    }
}
