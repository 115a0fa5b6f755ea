//! The line of groups that wait for EKS to make or delete a Fargate profile of one cluster.
//!
//! Who has waited longest goes first. One whose passes fail before anything comes of it would hold up all others: after a
//! while it is passed over, and waits anew at the end.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// How long a group may be first while others wait. EKS makes or deletes a profile within minutes.
const MAX_HEAD_TIME: SignedDuration = SignedDuration::from_mins(30);

/// Since when a group waits (RFC 3339, whole seconds), and its key.
pub type Ticket = (String, String);

/// Where a group stands in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// How many groups of the cluster wait longer for EKS.
    pub ahead: usize,
    /// It was first for [`MAX_HEAD_TIME`] and others went before it: its place is lost.
    pub skipped: bool,
}

/// The groups that wait, and how long the first of them has been it. The clock begins anew after a restart.
#[derive(Default)]
pub struct ProfileQueue {
    tickets: BTreeSet<Ticket>,
    skipped: BTreeSet<Ticket>,
    current_head: Option<(Ticket, Timestamp)>,
}

impl ProfileQueue {
    /// A group waits.
    pub fn enqueue(&mut self, place: Ticket) {
        self.tickets.insert(place);
    }

    /// A group waits no more, or not there; whether nobody is left.
    pub fn remove(&mut self, place: &Ticket) -> bool {
        self.tickets.remove(place);
        self.tickets.is_empty()
    }

    /// Where a group stands that has waited since `since`, or has no place yet.
    pub fn position(&mut self, since: Option<&str>, key: &str, now: Timestamp) -> QueuePosition {
        self.skip_stalled_head(now);
        let stamp = crate::api::rfc3339(now);
        let place = |since: &str| (since.to_owned(), key.to_owned());
        let skipped = since.is_some_and(|since| self.skipped.contains(&place(since)));
        let me = place(since.filter(|_| !skipped).unwrap_or(&stamp));
        let before = self.tickets.range(..me).filter(|other| other.1 != key && !self.skipped.contains(*other));
        QueuePosition { ahead: before.count(), skipped }
    }

    fn skip_stalled_head(&mut self, now: Timestamp) {
        self.skipped.retain(|place| self.tickets.contains(place));
        let others = self.tickets.len() > self.skipped.len() + 1;
        if let Some((first, since)) = self.current_head.take().filter(|(first, _)| self.head() == Some(first)) {
            if !others || now.duration_since(since) < MAX_HEAD_TIME {
                self.current_head = Some((first, since));
                return;
            }
            self.skipped.insert(first);
        }
        self.current_head = self.head().cloned().map(|place| (place, now));
    }

    fn head(&self) -> Option<&Ticket> {
        self.tickets.iter().find(|place| !self.skipped.contains(*place))
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

    fn place(since: &str, key: &str) -> Ticket {
        (since.into(), key.into())
    }

    fn line() -> ProfileQueue {
        let mut line = ProfileQueue::default();
        line.enqueue(place(EARLY, "a"));
        line.enqueue(place(LATE, "b"));
        line
    }

    /// One group whose passes fail before they come to its profile must not keep the others from theirs for ever.
    #[test]
    fn stalled_head_is_skipped_and_requeued_at_the_end() {
        let mut line = line();
        let at = |line: &mut ProfileQueue, since, key, minutes| line.position(Some(since), key, after(minutes));
        for minutes in [1, 10, 30] {
            assert_eq!(at(&mut line, LATE, "b", minutes), QueuePosition { ahead: 1, skipped: false }, "{minutes}");
        }
        assert_eq!(at(&mut line, LATE, "b", 31), QueuePosition { ahead: 0, skipped: false });
        assert_eq!(
            at(&mut line, EARLY, "a", 32),
            QueuePosition { ahead: 1, skipped: true },
            "it queues behind those that wait"
        );
        let anew = "1970-01-01T00:32:00Z";
        line.remove(&place(EARLY, "a"));
        line.enqueue(place(anew, "a"));
        line.enqueue(place("1970-01-01T00:33:00Z", "c"));
        assert_eq!(at(&mut line, anew, "a", 33), QueuePosition { ahead: 1, skipped: false });
        line.remove(&place(LATE, "b"));
        assert_eq!(
            at(&mut line, anew, "a", 34),
            QueuePosition { ahead: 0, skipped: false },
            "and before who came later"
        );
    }

    #[test]
    fn active_or_only_group_is_not_skipped() {
        let mut both = line();
        both.position(Some(LATE), "b", after(1));
        both.remove(&place(EARLY, "a"));
        both.enqueue(place("1970-01-01T00:02:00Z", "a"));
        assert_eq!(
            both.position(Some(LATE), "b", after(40)),
            QueuePosition::default(),
            "it has been first for no time yet"
        );
        let mut alone = line();
        alone.remove(&place(LATE, "b"));
        for minutes in [1, 99] {
            assert_eq!(alone.position(Some(EARLY), "a", after(minutes)), QueuePosition::default());
        }
    }
}
