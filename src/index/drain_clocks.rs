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
    /// Records whether the node has no evictable pod.
    pub(crate) fn track(&mut self, is_empty: bool, now: Timestamp) {
        self.empty_since = is_empty.then(|| self.empty_since.unwrap_or(now));
    }

    /// The UIDs of the pods that the process found on the node when it first saw the drain that began at `since`. The first
    /// call records `present`.
    pub(crate) fn first_pods(&mut self, since: Timestamp, present: impl Iterator<Item = String>) -> &BTreeSet<String> {
        let known = self.first_pods.take().filter(|(began, _)| *began == since);
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
