//! EKS makes or deletes one Fargate profile of a cluster at a time. Groups take turns, and who waits longest goes first:
//! since when a group waits stands in its status, so that a restart changes nothing.

use jiff::{SignedDuration, Timestamp};

use crate::api::FargateStatus;
use crate::index::groups::Queue;
use crate::plan::{Outcome, Phase, waiting};
use crate::settings::Timing;

/// A group's place in the line, and how its status remembers it.
pub struct Turn {
    /// What the status shall remember.
    pub status: FargateStatus,
    since: Option<String>,
    queue: Queue,
    rest: SignedDuration,
    now: Timestamp,
}

/// What follows a failure of EKS.
pub enum Again {
    /// Not before this moment.
    At(Timestamp),
    /// It is time.
    Now,
}

impl Turn {
    /// The group has no place until it asks for one, or keeps it. One that was passed over has lost the place that it had.
    pub fn new(status: Option<&FargateStatus>, queue: Queue, timing: &Timing, now: Timestamp) -> Self {
        let mut status = status.cloned().unwrap_or_default();
        let since = status.waiting_since.take().filter(|_| !queue.passed);
        Turn { status, since, queue, rest: timing.rest, now }
    }

    /// Keeps the place: what EKS does for the group is under way.
    pub fn hold(&mut self) {
        self.status.waiting_since.clone_from(&self.since);
    }

    /// Asks for a turn.
    ///
    /// # Errors
    /// The outcome of waiting, when others come first.
    pub fn ask(&mut self, phase: Phase) -> Result<(), Outcome> {
        let since = self.since.get_or_insert_with(|| crate::api::stamp(self.now)).clone();
        self.status.waiting_since = Some(since);
        let Queue { ahead, passed } = self.queue;
        if ahead == 0 {
            return Ok(());
        }
        let anew = if passed { " anew, because nothing came of it while others waited" } else { "" };
        Err(waiting(
            phase,
            format!(
                "waiting for its turn{anew}: {ahead} before it; EKS makes or deletes one Fargate profile of a cluster at a time"
            ),
        ))
    }

    /// What tells one act from another of the same kind: the moment since when it has been waited for.
    pub fn since(&self) -> &str {
        self.since.as_deref().unwrap_or_default()
    }

    /// EKS failed. A fifth of [`Timing::rest`] passes before it is asked again, then twice as long, at most six times
    /// [`Timing::rest`].
    pub fn failed(&mut self) -> Again {
        let at = self.status.retry_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let at = at.unwrap_or_else(|| {
            let failures = self.status.failures.unwrap_or_default().saturating_add(1);
            let pause = ((self.rest / 5) * (1 << (failures - 1).min(10))).min(self.rest * 6);
            self.status.failures = Some(failures);
            self.now.saturating_add(pause).unwrap_or(self.now)
        });
        self.status.retry_at = Some(at.to_string());
        if at > self.now { Again::At(at) } else { Again::Now }
    }

    /// No failed profile is in sight; the next failure has its own pause.
    pub fn goes_on(&mut self) {
        self.status.retry_at = None;
    }

    /// EKS did what it was asked for.
    pub fn succeeded(&mut self) {
        (self.status.failures, self.status.retry_at) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn queue(ahead: usize) -> Queue {
        Queue { ahead, passed: false }
    }

    #[test]
    fn who_was_passed_over_waits_from_now_on_and_is_told_so() {
        let timing = Timing::default();
        let status = FargateStatus { waiting_since: Some("1970-01-01T00:00:10Z".into()), ..FargateStatus::default() };
        let mut turn = Turn::new(Some(&status), Queue { ahead: 1, passed: true }, &timing, at(99));
        let Err(Outcome::Progressing { message, .. }) = turn.ask(Phase::Creating) else { panic!("it waits") };
        assert!(message.contains("anew, because nothing came of it while others waited: 1 before it"), "{message}");
        assert_eq!(turn.status.waiting_since.as_deref(), Some("1970-01-01T00:01:39Z"));
    }

    #[test]
    fn who_waits_keeps_its_place_and_who_has_nothing_to_do_leaves() {
        let timing = Timing::default();
        let mut turn = Turn::new(None, queue(2), &timing, at(10));
        let Err(Outcome::Progressing { message, .. }) = turn.ask(Phase::Creating) else { panic!("it waits") };
        assert!(message.starts_with("waiting for its turn: 2 before it"), "{message}");
        let waiting = turn.status;
        let mut later = Turn::new(Some(&waiting), queue(0), &timing, at(99));
        assert!(later.ask(Phase::Creating).is_ok());
        assert_eq!(later.status, waiting);
        assert_eq!(Turn::new(Some(&waiting), queue(0), &timing, at(99)).status.waiting_since, None);
    }

    #[test]
    fn after_each_failure_eks_is_left_alone_for_longer() {
        let timing = Timing::default();
        let mut status = FargateStatus::default();
        let mut pauses = Vec::new();
        let mut now = 0;
        for _ in 0..8 {
            let mut turn = Turn::new(Some(&status), queue(0), &timing, at(now));
            let Again::At(until) = turn.failed() else { panic!("it rests") };
            pauses.push(until.as_second() - now);
            let mut turn = Turn::new(Some(&turn.status), queue(0), &timing, until);
            assert!(matches!(turn.failed(), Again::Now));
            turn.goes_on();
            (status, now) = (turn.status, until.as_second());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800, 1800]);
    }
}
