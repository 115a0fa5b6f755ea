//! The queue of groups that wait to create or delete a Fargate profile of one cluster.
//!
//! The group that has waited longest is the head. A head whose reconciles keep failing would block all other groups, so it
//! is skipped after [`MAX_HEAD_TIME`] and queues again at the end.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// How long a group may be the head while others wait. EKS creates or deletes a profile within minutes.
const MAX_HEAD_TIME: SignedDuration = SignedDuration::from_mins(30);

/// Since when a group waits (RFC 3339, whole seconds), and its key.
pub(crate) type Ticket = (String, String);

/// The position of a group in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// Number of groups before this one.
    pub ahead: usize,
    /// The group was the head for [`MAX_HEAD_TIME`] and lost its position.
    pub skipped: bool,
}

/// The waiting groups, and since when the head is the head. That time restarts with the process.
#[derive(Default)]
pub(crate) struct ProfileQueue {
    tickets: BTreeSet<Ticket>,
    skipped: BTreeSet<Ticket>,
    current_head: Option<(Ticket, Timestamp)>,
}

impl ProfileQueue {
    /// Adds a group at the place that its ticket gives it.
    pub(crate) fn enqueue(&mut self, ticket: Ticket) {
        self.tickets.insert(ticket);
    }

    /// Removes a group; returns whether the queue is now empty.
    pub(crate) fn remove(&mut self, ticket: &Ticket) -> bool {
        self.tickets.remove(ticket);
        self.tickets.is_empty()
    }

    /// The position of the group `key`. `since` (RFC 3339) is when it started to wait; `None` if it starts now.
    pub(crate) fn position(&mut self, since: Option<&str>, key: &str, now: Timestamp) -> QueuePosition {
        self.skip_stalled_head(now);
        let now_text = crate::api::rfc3339(now);
        let ticket = |since: &str| (since.to_owned(), key.to_owned());
        let skipped = since.is_some_and(|since| self.skipped.contains(&ticket(since)));
        let own_ticket = ticket(since.filter(|_| !skipped).unwrap_or(&now_text));
        let ahead = self.tickets.range(..own_ticket).filter(|other| other.1 != key && !self.skipped.contains(*other));
        QueuePosition { ahead: ahead.count(), skipped }
    }

    fn skip_stalled_head(&mut self, now: Timestamp) {
        self.skipped.retain(|ticket| self.tickets.contains(ticket));
        let others_wait = self.tickets.len() > self.skipped.len() + 1;
        if let Some((head, since)) = self.current_head.take().filter(|(head, _)| self.head() == Some(head)) {
            if !others_wait || now.duration_since(since) < MAX_HEAD_TIME {
                self.current_head = Some((head, since));
                return;
            }
            self.skipped.insert(head);
        }
        self.current_head = self.head().cloned().map(|ticket| (ticket, now));
    }

    fn head(&self) -> Option<&Ticket> {
        self.tickets.iter().find(|ticket| !self.skipped.contains(*ticket))
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

    fn ticket(since: &str, key: &str) -> Ticket {
        (since.into(), key.into())
    }

    fn queue_of_two() -> ProfileQueue {
        let mut queue = ProfileQueue::default();
        queue.enqueue(ticket(EARLY, "a"));
        queue.enqueue(ticket(LATE, "b"));
        queue
    }

    /// A group whose reconciles fail before they reach its profile must not block the other groups permanently.
    #[test]
    fn stalled_head_is_skipped_and_requeued_at_the_end() {
        let mut queue = queue_of_two();
        let position_at =
            |queue: &mut ProfileQueue, since, key, minutes| queue.position(Some(since), key, after(minutes));
        for minutes in [1, 10, 30] {
            assert_eq!(
                position_at(&mut queue, LATE, "b", minutes),
                QueuePosition { ahead: 1, skipped: false },
                "{minutes}"
            );
        }
        assert_eq!(position_at(&mut queue, LATE, "b", 31), QueuePosition { ahead: 0, skipped: false });
        assert_eq!(
            position_at(&mut queue, EARLY, "a", 32),
            QueuePosition { ahead: 1, skipped: true },
            "it waits behind the other group"
        );
        let requeued = "1970-01-01T00:32:00Z";
        queue.remove(&ticket(EARLY, "a"));
        queue.enqueue(ticket(requeued, "a"));
        queue.enqueue(ticket("1970-01-01T00:33:00Z", "c"));
        assert_eq!(position_at(&mut queue, requeued, "a", 33), QueuePosition { ahead: 1, skipped: false });
        queue.remove(&ticket(LATE, "b"));
        assert_eq!(
            position_at(&mut queue, requeued, "a", 34),
            QueuePosition { ahead: 0, skipped: false },
            "before groups that came later"
        );
    }

    #[test]
    fn active_or_only_group_is_not_skipped() {
        let mut queue = queue_of_two();
        queue.position(Some(LATE), "b", after(1));
        queue.remove(&ticket(EARLY, "a"));
        queue.enqueue(ticket("1970-01-01T00:02:00Z", "a"));
        assert_eq!(queue.position(Some(LATE), "b", after(40)), QueuePosition::default(), "it just became the head");
        let mut single = queue_of_two();
        single.remove(&ticket(LATE, "b"));
        for minutes in [1, 99] {
            assert_eq!(single.position(Some(EARLY), "a", after(minutes)), QueuePosition::default());
        }
    }
}
