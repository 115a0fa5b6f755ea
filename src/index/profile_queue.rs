//! The line of groups that wait for EKS to make or delete a Fargate profile of one cluster.
//!
//! Who has waited longest goes first. One whose passes fail before anything comes of it would hold up all others: after a
//! while it is passed over, and waits anew at the end.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// How long a group may be first while others wait. EKS makes or deletes a profile within minutes.
const PATIENCE: SignedDuration = SignedDuration::from_mins(30);

/// Since when a group waits (RFC 3339, whole seconds), and its key.
pub type Place = (String, String);

/// Where a group stands in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// How many groups of the cluster wait longer for EKS.
    pub ahead: usize,
    /// It was first for [`PATIENCE`] and others went before it: its place is lost.
    pub passed: bool,
}

/// The groups that wait, and how long the first of them has been it. The clock begins anew after a restart.
#[derive(Default)]
pub struct Line {
    places: BTreeSet<Place>,
    passed: BTreeSet<Place>,
    first: Option<(Place, Timestamp)>,
}

impl Line {
    /// A group waits.
    pub fn join(&mut self, place: Place) {
        self.places.insert(place);
    }

    /// A group waits no more, or not there; whether nobody is left.
    pub fn leave(&mut self, place: &Place) -> bool {
        self.places.remove(place);
        self.places.is_empty()
    }

    /// Where a group stands that has waited since `since`, or has no place yet.
    pub fn queue(&mut self, since: Option<&str>, key: &str, now: Timestamp) -> Queue {
        self.pass_over(now);
        let stamp = crate::api::stamp(now);
        let place = |since: &str| (since.to_owned(), key.to_owned());
        let passed = since.is_some_and(|since| self.passed.contains(&place(since)));
        let me = place(since.filter(|_| !passed).unwrap_or(&stamp));
        let before = self.places.range(..me).filter(|other| other.1 != key && !self.passed.contains(*other));
        Queue { ahead: before.count(), passed }
    }

    fn pass_over(&mut self, now: Timestamp) {
        self.passed.retain(|place| self.places.contains(place));
        let others = self.places.len() > self.passed.len() + 1;
        if let Some((first, since)) = self.first.take().filter(|(first, _)| self.foremost() == Some(first)) {
            if !others || now.duration_since(since) < PATIENCE {
                self.first = Some((first, since));
                return;
            }
            self.passed.insert(first);
        }
        self.first = self.foremost().cloned().map(|place| (place, now));
    }

    fn foremost(&self) -> Option<&Place> {
        self.places.iter().find(|place| !self.passed.contains(*place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: &str = "1970-01-01T00:00:01Z";
    const LATE: &str = "1970-01-01T00:00:02Z";

    fn after(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn place(since: &str, key: &str) -> Place {
        (since.into(), key.into())
    }

    fn line() -> Line {
        let mut line = Line::default();
        line.join(place(EARLY, "a"));
        line.join(place(LATE, "b"));
        line
    }

    /// One group whose passes fail before they come to its profile must not keep the others from theirs for ever.
    #[test]
    fn who_is_first_for_long_and_gets_nowhere_is_passed_over_and_waits_anew_at_the_end() {
        let mut line = line();
        let at = |line: &mut Line, since, key, minutes| line.queue(Some(since), key, after(minutes));
        for minutes in [1, 10, 30] {
            assert_eq!(at(&mut line, LATE, "b", minutes), Queue { ahead: 1, passed: false }, "{minutes}");
        }
        assert_eq!(at(&mut line, LATE, "b", 31), Queue { ahead: 0, passed: false });
        assert_eq!(at(&mut line, EARLY, "a", 32), Queue { ahead: 1, passed: true }, "it queues behind those that wait");
        let anew = "1970-01-01T00:32:00Z";
        line.leave(&place(EARLY, "a"));
        line.join(place(anew, "a"));
        line.join(place("1970-01-01T00:33:00Z", "c"));
        assert_eq!(at(&mut line, anew, "a", 33), Queue { ahead: 1, passed: false });
        line.leave(&place(LATE, "b"));
        assert_eq!(at(&mut line, anew, "a", 34), Queue { ahead: 0, passed: false }, "and before who came later");
    }

    #[test]
    fn who_has_its_turn_in_time_or_keeps_nobody_waiting_is_not_passed_over() {
        let mut both = line();
        both.queue(Some(LATE), "b", after(1));
        both.leave(&place(EARLY, "a"));
        both.join(place("1970-01-01T00:02:00Z", "a"));
        assert_eq!(both.queue(Some(LATE), "b", after(40)), Queue::default(), "it has been first for no time yet");
        let mut alone = line();
        alone.leave(&place(LATE, "b"));
        for minutes in [1, 99] {
            assert_eq!(alone.queue(Some(EARLY), "a", after(minutes)), Queue::default());
        }
    }
}
