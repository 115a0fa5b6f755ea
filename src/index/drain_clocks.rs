//! The times that the drain of a node depends on. After a restart of the process, they start again.

use jiff::Timestamp;

/// The times of one drain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DrainClocks {
    /// Since when the node has had no evictable pod.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last blocked, and how often in a row.
    pub evictions_blocked: Option<(Timestamp, u32)>,
}

impl DrainClocks {
    /// Records whether the node has no evictable pod; returns the times.
    pub(crate) fn track(&mut self, is_empty: bool, now: Timestamp) -> Self {
        self.empty_since = is_empty.then(|| self.empty_since.unwrap_or(now));
        *self
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
