//! Which groups have made no progress for so long that their waves no longer wait for them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::api::InstanceGroupStatus;

/// Groups that replace nodes, with how long they have made no progress. Time in which something of the roll-out holds a group
/// does not count: its windows may be shorter than the policy's patience.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    clocks: HashMap<String, Clock>,
}

/// The clock of one group.
#[derive(Clone, Debug)]
struct Clock {
    /// How many nodes it had replaced at the last look.
    updated: i64,
    /// How long it has made no progress while nothing held it.
    waited: Duration,
    /// When the last look was.
    seen: Instant,
    /// Whether something held it then.
    was_held: bool,
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
        is_held: bool,
        now: Instant,
    ) -> bool {
        let record = status.and_then(|status| status.rollout.as_ref());
        if record.is_none_or(|record| record.settled.is_some() || record.wave.is_none()) {
            self.clocks.remove(key);
            return false;
        }
        let updated = status.and_then(|status| status.nodes.as_ref()).map_or(0, |nodes| nodes.updated);
        let first = || Clock { updated, waited: Duration::ZERO, seen: now, was_held: is_held };
        let clock = self.clocks.entry(key.to_owned()).or_insert_with(first);
        let passed = now.saturating_duration_since(clock.seen);
        if clock.updated != updated {
            (clock.updated, clock.waited) = (updated, Duration::ZERO);
        } else if !clock.was_held && !is_held {
            clock.waited += passed;
        }
        (clock.seen, clock.was_held) = (now, is_held);
        clock.waited >= patience
    }
}
