//! The times and pods that the drain of a node depends on. After a restart of the process, they start again.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// The times of one drain, and its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DrainClocks {
    /// Since when the node has had no evictable pod.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last blocked, and how often in a row.
    pub evictions_blocked: Option<(Timestamp, u32)>,
    /// When the drain began, and the UIDs of the pods that the process first found on the node.
    first_pods: Option<(Timestamp, BTreeSet<String>)>,
}

impl DrainClocks {
    /// Records whether the node has no evictable pod. A time in the future becomes now: the wall clock was set back.
    pub(crate) fn track(&mut self, is_empty: bool, now: Timestamp) {
        self.empty_since = is_empty.then(|| self.empty_since.map_or(now, |since| since.min(now)));
    }

    /// The UIDs of the pods that the process found on the node when it first saw the drain that began at `since`. The first
    /// call records `present`, and forgets an earlier drain: another process may have ended it, or another instance may have
    /// got the name of the node.
    pub(crate) fn first_pods(&mut self, since: Timestamp, present: impl Iterator<Item = String>) -> &BTreeSet<String> {
        let known = self.first_pods.take().filter(|(began, _)| *began == since);
        if known.is_none() {
            *self = Self::default();
        }
        &self.first_pods.insert(known.unwrap_or_else(|| (since, present.collect()))).1
    }

    /// Records that evictions were blocked. All of one reconcile, with the same `now`, count once.
    pub(crate) fn record_blocked_eviction(&mut self, now: Timestamp) {
        let before = self.evictions_blocked;
        let before = before.map_or(0, |(at, times)| if at == now { times.saturating_sub(1) } else { times });
        self.evictions_blocked = Some((now, before.saturating_add(1)));
    }

    /// Records that an eviction succeeded.
    pub(crate) fn reset_blocked_evictions(&mut self) {
        self.evictions_blocked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The volumes of the node would not be waited for.
    #[test]
    fn new_drain_does_not_count_the_waits_of_an_earlier_one() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut clocks = DrainClocks::default();
        clocks.first_pods(at(10), std::iter::empty());
        clocks.track(true, at(20));
        clocks.record_blocked_eviction(at(20));
        clocks.first_pods(at(10), std::iter::empty());
        assert_eq!((clocks.empty_since, clocks.evictions_blocked), (Some(at(20)), Some((at(20), 1))), "the same drain");
        clocks.first_pods(at(1000), std::iter::empty());
        clocks.track(true, at(1001));
        assert_eq!((clocks.empty_since, clocks.evictions_blocked), (Some(at(1001)), None));
    }

    /// Volumes that never detach would be waited for as long as the clock was ahead.
    #[test]
    fn node_is_empty_since_now_if_the_clock_was_set_back() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut clocks = DrainClocks::default();
        clocks.track(true, at(3600));
        clocks.track(true, at(10));
        clocks.track(true, at(20));
        assert_eq!(clocks.empty_since, Some(at(10)));
    }
}
