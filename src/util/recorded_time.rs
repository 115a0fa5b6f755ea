//! Times that a status, an annotation or another record holds. After a clock that was ahead is corrected, such a time lies
//! in the future, and what counts from it would wait for as long as the clock was ahead.

use jiff::{SignedDuration, Timestamp};

/// When something happened, by its record in RFC 3339; `None` if that is not a time. A time in the future counts as `now`.
/// The caller records the answer, or it would move with `now`.
pub(crate) fn past(recorded: &str, now: Timestamp) -> Option<Timestamp> {
    recorded.parse::<Timestamp>().ok().map(|at| at.min(now))
}

/// Whether a recorded time lies more than `by` after `now`: the clock of its writer was ahead.
pub(crate) fn is_ahead(at: Timestamp, by: SignedDuration, now: Timestamp) -> bool {
    at.duration_since(now) > by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_future_are_recognized() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let (text, limit) = ("1970-01-01T00:01:00Z", SignedDuration::from_secs(10));
        assert_eq!((past(text, at(61)), past(text, at(59)), past("x", at(60))), (Some(at(60)), Some(at(59)), None));
        assert!(!is_ahead(at(60), limit, at(50)) && is_ahead(at(60), limit, at(49)));
        assert!(is_ahead(Timestamp::MAX, limit, Timestamp::MIN), "a record may hold any time");
    }
}
