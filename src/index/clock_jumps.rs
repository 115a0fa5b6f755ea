//! Jumps of the wall clock, which make times that others recorded look older than they are.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// How far the wall clock may move ahead of the monotonic one. A time service slews by less between two reconciles.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(10);

/// The latest reading of both clocks, and the latest jump forward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockJumps {
    latest: Option<(Instant, Timestamp)>,
    jumped_at: Option<Instant>,
}

impl ClockJumps {
    /// Compares the clocks with the reading before.
    pub(crate) fn observe(&mut self, now: Timestamp, instant: Instant) {
        let has_jumped = self.latest.is_some_and(|(before, then)| {
            let passed = SignedDuration::try_from(instant.saturating_duration_since(before)).unwrap_or_default();
            now.duration_since(then) - passed > TOLERANCE
        });
        if has_jumped {
            self.jumped_at = Some(instant);
        }
        self.latest = Some((instant, now));
    }

    /// How long ago the wall clock jumped forward; `None` if it did not since the process began.
    pub(crate) fn since_jump(&self, instant: Instant) -> Option<Duration> {
        self.jumped_at.map(|at| instant.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_jump_forward_counts() {
        let (start, mut clocks) = (Instant::now(), ClockJumps::default());
        let mut observe = |wall: i64, monotonic: u64| {
            let instant = start + Duration::from_secs(monotonic);
            clocks.observe(Timestamp::from_second(wall).expect("a time"), instant);
            clocks.since_jump(instant).map(|since| since.as_secs())
        };
        assert_eq!(observe(1000, 0), None);
        assert_eq!(observe(4605, 3600), None, "slewed by five seconds in an hour");
        assert_eq!(observe(1005, 3610), None, "went back");
        assert_eq!(observe(4620, 3620), Some(0), "corrected again");
        assert_eq!(observe(4720, 3720), Some(100));
    }
}
