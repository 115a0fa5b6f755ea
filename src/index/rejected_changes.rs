//! Changes of labels and taints on nodes that the API server rejected, for example because of an admission policy. The same
//! change is tried again after a while, and another one immediately.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::plan::InPlaceChange;
use crate::util::duration::later;

/// How long the first rejected change is not tried again. The time doubles with each rejection.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// The longest time for which a rejected change is not tried again.
const MAX_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// The last rejected change of each node.
#[derive(Default)]
pub(crate) struct RejectedChanges {
    nodes: HashMap<String, RejectedChange>,
}

/// A change that the API server rejected, and how often in a row.
struct RejectedChange {
    change: InPlaceChange,
    message: String,
    times: u32,
    at: Timestamp,
}

impl RejectedChange {
    fn delay(&self) -> SignedDuration {
        (FIRST_DELAY * (1 << (self.times - 1).min(10))).min(MAX_DELAY)
    }

    /// A clock that was set back ends the wait.
    fn is_in_backoff(&self, now: Timestamp) -> bool {
        self.at <= now && now < later(self.at, self.delay())
    }
}

impl RejectedChanges {
    /// Why the change is not tried now: the API server's message about the same change of this node.
    pub(crate) fn backoff(&self, node: &str, change: &InPlaceChange, now: Timestamp) -> Option<String> {
        let known = self.nodes.get(node).filter(|known| known.change == *change && known.is_in_backoff(now))?;
        Some(known.message.clone())
    }

    /// Records that the API server rejected a change. Nodes whose change is long overdue are gone, and forgotten.
    pub(crate) fn record(&mut self, node: &str, change: &InPlaceChange, message: String, now: Timestamp) {
        self.nodes.retain(|_, known| now.duration_since(known.at) < MAX_DELAY * 2);
        let before = self.nodes.get(node).filter(|known| known.change == *change).map_or(0, |known| known.times);
        let rejected = RejectedChange { change: change.clone(), message, times: before.saturating_add(1), at: now };
        self.nodes.insert(node.to_owned(), rejected);
    }

    /// Forgets a node whose change was not rejected.
    pub(crate) fn remove(&mut self, node: &str) {
        self.nodes.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn change(value: &str) -> InPlaceChange {
        InPlaceChange { set_labels: [("team".to_owned(), value.to_owned())].into(), ..InPlaceChange::default() }
    }

    /// A policy that rejects a label would be asked for each node in each pass.
    #[test]
    fn rejected_change_is_tried_at_growing_intervals_and_another_one_at_once() {
        let (mut known, mut now) = (RejectedChanges::default(), 0);
        for delay in [30, 60, 120, 240, 480, 600, 600] {
            known.record("n", &change("a"), "no".to_owned(), at(now));
            assert_eq!(known.backoff("n", &change("a"), at(now + delay - 1)).as_deref(), Some("no"), "{delay}");
            assert_eq!(known.backoff("n", &change("a"), at(now + delay)), None, "{delay}");
            assert_eq!(known.backoff("n", &change("b"), at(now)), None, "the spec has another value");
            assert_eq!(known.backoff("m", &change("a"), at(now)), None, "it may be right for another node");
            assert_eq!(known.backoff("n", &change("a"), at(now - 1)), None, "the clock was set back");
            now += delay;
        }
        known.record("n", &change("b"), "no".to_owned(), at(now));
        assert_eq!(known.backoff("n", &change("b"), at(now + 30)), None);
        known.remove("n");
        assert_eq!(known.backoff("n", &change("b"), at(now)), None);
        known.record("gone", &change("a"), "no".to_owned(), at(now));
        known.record("n", &change("a"), "no".to_owned(), at(now + 1200));
        assert_eq!(known.nodes.len(), 1);
    }
}
