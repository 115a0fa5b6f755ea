//! Which groups have made no progress for so long that their waves no longer wait for them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::api::InstanceGroupStatus;

/// Groups that replace nodes, with how long they have made no progress. Time in which the rollout blocks a group
/// does not count: its windows may be shorter than the policy's patience.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    clocks: HashMap<String, Clock>,
}

/// The clock of one group.
#[derive(Clone, Debug)]
struct Clock {
    /// Since when it has had its revision. The next switch restarts the clock.
    since: Option<String>,
    /// How many nodes it had replaced at the last poll.
    updated: i64,
    /// How long it has made no progress while nothing blocked it.
    waited: Duration,
    /// When the last poll was.
    seen: Instant,
    /// Whether something blocked it then.
    was_blocked: bool,
}

impl Patience {
    /// Forgets the groups that were deleted.
    pub(crate) fn retain(&mut self, keys: &HashSet<String>) {
        self.clocks.retain(|key, _| keys.contains(key));
    }

    /// Looks at a group, and returns whether it has made no progress for as long as `patience`.
    pub(crate) fn is_stuck(
        &mut self,
        key: &str,
        status: Option<&InstanceGroupStatus>,
        patience: Duration,
        is_blocked: bool,
        now: Instant,
    ) -> bool {
        let record = status.and_then(|status| status.rollout.as_ref());
        let Some(record) = record.filter(|record| record.settled.is_none()) else {
            self.clocks.remove(key);
            return false;
        };
        let since = &record.since;
        let updated = status.and_then(|status| status.nodes.as_ref()).map_or(0, |nodes| nodes.updated);
        let first =
            || Clock { since: since.clone(), updated, waited: Duration::ZERO, seen: now, was_blocked: is_blocked };
        let clock = self.clocks.entry(key.to_owned()).or_insert_with(first);
        let passed = now.saturating_duration_since(clock.seen);
        if clock.updated != updated || clock.since != *since {
            *clock = first();
        } else if !clock.was_blocked && !is_blocked {
            clock.waited += passed;
        }
        (clock.seen, clock.was_blocked) = (now, is_blocked);
        clock.waited >= patience
    }
}
