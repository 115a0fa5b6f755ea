//! Failures of a group that are reported once they have lasted.

use jiff::{SignedDuration, Timestamp};

/// How often the event about a refused status is repeated: the API server forgets an event after an hour.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// A group that cannot be read.
#[derive(Clone)]
pub(super) struct FailedObservation {
    /// Since when it cannot be read.
    pub(super) since: Timestamp,
    /// The failure that its condition reports.
    pub(super) reported: Option<String>,
}

impl FailedObservation {
    /// A failure that no condition reports yet.
    pub(super) fn new(since: Timestamp) -> Self {
        FailedObservation { since, reported: None }
    }
}

/// A status that the API server refuses.
#[derive(Clone)]
pub(super) struct UnwrittenStatus {
    since: Timestamp,
    /// When an event last said so.
    reported_at: Option<Timestamp>,
}

impl UnwrittenStatus {
    /// A refusal without an event.
    pub(super) fn new(since: Timestamp) -> Self {
        UnwrittenStatus { since, reported_at: None }
    }

    /// Since when the status has been refused, when an event is due: once that has lasted for the delay, and then again
    /// and again. The caller publishes the event.
    pub(super) fn take_due(&mut self, delay: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        let is_due = match self.reported_at {
            None => now.duration_since(self.since) >= delay,
            Some(at) => now.duration_since(at) >= REPEAT_AFTER,
        };
        if is_due {
            self.reported_at = Some(now);
        }
        is_due.then_some(self.since)
    }
}
