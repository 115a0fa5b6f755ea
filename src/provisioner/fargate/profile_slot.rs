//! EKS makes or deletes one Fargate profile of a cluster at a time. Groups take turns, and who waits longest goes first:
//! since when a group waits stands in its status, so that a restart changes nothing.

use jiff::{SignedDuration, Timestamp};

use crate::api::FargateStatus;
use crate::index::groups::QueuePosition;
use crate::plan::{Outcome, Phase, waiting};
use crate::settings::Timing;

/// A group's place in the line, and how its status remembers it.
pub struct ProfileSlot {
    /// What the status shall remember.
    pub status: FargateStatus,
    waiting_since: Option<String>,
    queue: QueuePosition,
    base_delay: SignedDuration,
    now: Timestamp,
}

/// What follows a failure of EKS.
pub enum Retry {
    /// Not before this moment.
    At(Timestamp),
    /// It is time.
    Now,
}

impl ProfileSlot {
    /// The group has no place until it asks for one, or keeps it. One that was passed over has lost the place that it had.
    pub fn new(status: Option<&FargateStatus>, queue: QueuePosition, timing: &Timing, now: Timestamp) -> Self {
        let mut status = status.cloned().unwrap_or_default();
        let waiting_since = status.waiting_since.take().filter(|_| !queue.skipped);
        ProfileSlot { status, waiting_since, queue, base_delay: timing.drain_retry_delay, now }
    }

    /// Keeps the place: what EKS does for the group is under way.
    pub fn keep(&mut self) {
        self.status.waiting_since.clone_from(&self.waiting_since);
    }

    /// Asks for a turn.
    ///
    /// # Errors
    /// The outcome of waiting, when others come first.
    pub fn acquire(&mut self, phase: Phase) -> Result<(), Outcome> {
        let since = self.waiting_since.get_or_insert_with(|| crate::api::rfc3339(self.now)).clone();
        self.status.waiting_since = Some(since);
        let QueuePosition { ahead, skipped } = self.queue;
        if ahead == 0 {
            return Ok(());
        }
        let anew = if skipped { " anew, because nothing came of it while others waited" } else { "" };
        Err(waiting(
            phase,
            format!(
                "waiting for its turn{anew}: {ahead} before it; EKS makes or deletes one Fargate profile of a cluster at a time"
            ),
        ))
    }

    /// What tells one act from another of the same kind: the moment since when it has been waited for.
    pub fn waiting_since(&self) -> &str {
        self.waiting_since.as_deref().unwrap_or_default()
    }

    /// EKS failed. A fifth of [`Timing::rest`] passes before it is asked again, then twice as long, at most six times
    /// [`Timing::rest`].
    pub fn record_failure(&mut self) -> Retry {
        let at = self.status.retry_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let at = at.unwrap_or_else(|| {
            let failures = self.status.failures.unwrap_or_default().saturating_add(1);
            let pause = ((self.base_delay / 5) * (1 << (failures - 1).min(10))).min(self.base_delay * 6);
            self.status.failures = Some(failures);
            self.now.saturating_add(pause).unwrap_or(self.now)
        });
        self.status.retry_at = Some(at.to_string());
        if at > self.now { Retry::At(at) } else { Retry::Now }
    }

    /// No failed profile is in sight; the next failure has its own pause.
    pub fn clear_retry(&mut self) {
        self.status.retry_at = None;
    }

    /// EKS did what it was asked for.
    pub fn record_success(&mut self) {
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
        let mut turn =
            ProfileSlot::new(Some(&status), QueuePosition { ahead: 1, skipped: true }, &timing, timestamp(99));
        let Err(Outcome::Progressing { message, .. }) = turn.acquire(Phase::Creating) else { panic!("it waits") };
        assert!(message.contains("anew, because nothing came of it while others waited: 1 before it"), "{message}");
        assert_eq!(turn.status.waiting_since.as_deref(), Some("1970-01-01T00:01:39Z"));
    }

    #[test]
    fn waiting_group_keeps_its_place_until_idle() {
        let timing = Timing::default();
        let mut turn = ProfileSlot::new(None, queue(2), &timing, timestamp(10));
        let Err(Outcome::Progressing { message, .. }) = turn.acquire(Phase::Creating) else { panic!("it waits") };
        assert!(message.starts_with("waiting for its turn: 2 before it"), "{message}");
        let waiting = turn.status;
        let mut later = ProfileSlot::new(Some(&waiting), queue(0), &timing, timestamp(99));
        assert!(later.acquire(Phase::Creating).is_ok());
        assert_eq!(later.status, waiting);
        assert_eq!(ProfileSlot::new(Some(&waiting), queue(0), &timing, timestamp(99)).status.waiting_since, None);
    }

    #[test]
    fn retry_delay_grows_with_failures() {
        let timing = Timing::default();
        let mut status = FargateStatus::default();
        let mut pauses = Vec::new();
        let mut now = 0;
        for _ in 0..8 {
            let mut turn = ProfileSlot::new(Some(&status), queue(0), &timing, timestamp(now));
            let Retry::At(until) = turn.record_failure() else { panic!("it rests") };
            pauses.push(until.as_second() - now);
            let mut turn = ProfileSlot::new(Some(&turn.status), queue(0), &timing, until);
            assert!(matches!(turn.record_failure(), Retry::Now));
            turn.clear_retry();
            (status, now) = (turn.status, until.as_second());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800, 1800]);
    }
}
