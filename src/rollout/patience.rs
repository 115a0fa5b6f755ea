//! Which groups have made no progress for so long that their waves no longer wait for them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::api::{InstanceGroupStatus, SlowGroup};

/// Groups that replace nodes, with how long they have made no progress. Time in which the rollout blocks a group
/// does not count: its windows may be shorter than the policy's patience.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    clocks: HashMap<String, Clock>,
    /// Whether a group has made progress since this was last asked.
    has_progress: bool,
}

/// In how many parts of the patience the status counts.
const QUARTERS: u32 = 4;

/// How many groups without progress the status lists.
const MAX_SLOW: usize = 50;

/// The clock of one group.
#[derive(Clone, Debug)]
struct Clock {
    /// Since when it has had its revision. The next switch restarts the clock.
    since: Option<String>,
    /// The revision that it is about to record.
    switches_to: Option<String>,
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
    pub(crate) fn retain(&mut self, keys: &HashSet<&str>) {
        self.clocks.retain(|key, _| keys.contains(key.as_str()));
    }

    /// Whether a group has replaced a node, or switched, since the last call.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }

    /// Continues to count where the leader before ended. What this process has counted itself stays.
    pub(crate) fn seed(&mut self, slow: &[SlowGroup], patience: Duration, now: Instant) {
        for SlowGroup { group, since, switches_to, updated, quarters } in slow {
            let quarters = u32::try_from(*quarters).unwrap_or_default().min(QUARTERS);
            let clock = || Clock {
                since: since.clone(),
                switches_to: switches_to.clone(),
                updated: *updated,
                waited: patience * quarters / QUARTERS,
                seen: now,
                was_blocked: true,
            };
            self.clocks.entry(group.clone()).or_insert_with(clock);
        }
    }

    /// The groups that have made no progress for a quarter of `patience` or longer, for the next leader. It is something
    /// else only after another quarter, so that waiting writes nothing.
    pub(crate) fn slow_groups(&self, patience: Duration) -> Vec<SlowGroup> {
        let quarters = |clock: &Clock| (1..=QUARTERS).rev().find(|part| clock.waited * QUARTERS >= patience * *part);
        let slow = self.clocks.iter().filter_map(|(group, clock)| {
            let quarters = i64::from(quarters(clock)?);
            let (since, switches_to) = (clock.since.clone(), clock.switches_to.clone());
            Some(SlowGroup { group: group.clone(), since, switches_to, updated: clock.updated, quarters })
        });
        let mut slow: Vec<_> = slow.collect();
        slow.sort_by(|a, b| b.quarters.cmp(&a.quarters).then_with(|| a.group.cmp(&b.group)));
        slow.truncate(MAX_SLOW);
        slow
    }

    /// Records what a group has done since the last poll, and returns whether it has made no progress for as long as
    /// `patience`. `switches_to` is the revision that it is about to record: its status may not be writable.
    pub(crate) fn track(
        &mut self,
        key: &str,
        status: Option<&InstanceGroupStatus>,
        switches_to: Option<&str>,
        patience: Duration,
        is_blocked: bool,
        now: Instant,
    ) -> bool {
        let record = status.and_then(|status| status.rollout.as_ref()).filter(|record| record.settled.is_none());
        if switches_to.is_none() && record.is_none() {
            self.clocks.remove(key);
            return false;
        }
        let switches_to = switches_to.map(str::to_owned);
        let since = record.filter(|_| switches_to.is_none()).and_then(|record| record.since.clone());
        let updated = status.and_then(|status| status.nodes.as_ref()).map_or(0, |nodes| nodes.updated);
        let first = || Clock {
            since: since.clone(),
            switches_to: switches_to.clone(),
            updated,
            waited: Duration::ZERO,
            seen: now,
            was_blocked: is_blocked,
        };
        let clock = self.clocks.entry(key.to_owned()).or_insert_with(first);
        let passed = now.saturating_duration_since(clock.seen);
        if clock.updated != updated || clock.since != since || clock.switches_to != switches_to {
            *clock = first();
            self.has_progress = true;
        } else if !clock.was_blocked && !is_blocked {
            clock.waited += passed;
        }
        (clock.seen, clock.was_blocked) = (now, is_blocked);
        clock.waited >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{NodeCounts, RolloutRecord};

    /// Whether a group is stuck at each of these polls. They are a minute apart, and the patience is three minutes. Of
    /// a poll: how many nodes the group has replaced, since when it has its revision, and whether the rollout blocks
    /// it.
    fn stuck<const N: usize>(polls: [(i64, &str, bool); N]) -> [bool; N] {
        let (mut patience, start, mut minutes) = (Patience::default(), Instant::now(), 0);
        polls.map(|(updated, since, is_blocked)| {
            let status = InstanceGroupStatus {
                nodes: Some(NodeCounts { updated, ..NodeCounts::default() }),
                rollout: Some(RolloutRecord { since: Some(since.to_owned()), ..RolloutRecord::default() }),
                ..InstanceGroupStatus::default()
            };
            let now = start + Duration::from_secs(60 * minutes);
            minutes += 1;
            patience.track("team/web", Some(&status), None, Duration::from_secs(180), is_blocked, now)
        })
    }

    /// A wave continues without a group that makes no progress. Each node that the group replaces gives it the whole
    /// time again, and so does the next revision.
    #[test]
    fn patience_begins_again_with_progress_and_with_the_next_revision() {
        let [still, node, next] = [(0, "one", false), (1, "one", false), (1, "two", false)];
        assert_eq!(stuck([still; 4]), [false, false, false, true]);
        assert_eq!(
            stuck([still, still, still, node, node, node, node]),
            [false, false, false, false, false, false, true]
        );
        assert_eq!(stuck([node, node, node, next, next, next, next]), [false, false, false, false, false, false, true]);
    }

    /// An alert for a rollout without progress must not fire while a large group replaces one node after the other.
    #[test]
    fn progress_of_any_group_is_seen_once() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        let mut poll = |updated: i64| {
            let status = InstanceGroupStatus {
                nodes: Some(NodeCounts { updated, ..NodeCounts::default() }),
                rollout: Some(RolloutRecord { since: Some("one".into()), ..RolloutRecord::default() }),
                ..InstanceGroupStatus::default()
            };
            patience.track("team/web", Some(&status), None, Duration::from_secs(180), false, now);
            patience.take_progress()
        };
        assert_eq!([0, 0, 1, 1, 2].map(&mut poll), [false, false, true, false, true], "a new leader has seen none");
    }

    /// Windows that are shorter than the patience, a halt and a pause must not make a group look stuck: it could not
    /// continue. A minute at whose beginning or end it was blocked does not count.
    #[test]
    fn patience_rests_while_the_rollout_blocks_the_group() {
        let [free, blocked] = [(0, "one", false), (0, "one", true)];
        assert_eq!(
            stuck([free, free, blocked, blocked, free, free, free]),
            [false, false, false, false, false, false, true]
        );
        assert_eq!(stuck([free, blocked, free, blocked, free, blocked, free]), [false; 7]);
    }

    /// A webhook refuses the status of a group that is to switch. The next leader must not begin to wait again.
    #[test]
    fn patience_for_a_switch_that_is_not_recorded_continues_with_the_next_leader() {
        let (limit, start) = (Duration::from_secs(240), Instant::now());
        let mut first = Patience::default();
        for seconds in [0, 120] {
            first.track("team/web", None, Some("two"), limit, false, start + Duration::from_secs(seconds));
        }
        let slow = first.slow_groups(limit);
        assert_eq!((slow[0].switches_to.as_deref(), slow[0].quarters), (Some("two"), 2));
        let mut next = Patience::default();
        next.seed(&slow, limit, start);
        next.track("team/web", None, Some("two"), limit, false, start);
        assert_eq!(next.slow_groups(limit), slow);
        next.track("team/web", None, Some("three"), limit, false, start);
        assert!(next.slow_groups(limit).is_empty(), "it is another switch");
    }

    /// A controller that restarts more often than the patience, with each deployment or node drain, would wait for a group
    /// without end. It loses at most a quarter each time, and writes nothing in between.
    #[test]
    fn patience_continues_with_the_next_leader() {
        let (limit, start) = (Duration::from_secs(240), Instant::now());
        let status = InstanceGroupStatus {
            rollout: Some(RolloutRecord { since: Some("one".into()), ..RolloutRecord::default() }),
            ..InstanceGroupStatus::default()
        };
        let (mut slow, mut polls, mut is_stuck, mut writes) = (vec![], 0, false, 0);
        while !is_stuck {
            assert!(polls < 100, "it waits without end");
            let mut leader = Patience::default();
            leader.seed(&slow, limit, start + Duration::from_secs(20 * polls));
            for _ in 0..6 {
                let now = start + Duration::from_secs(20 * polls);
                is_stuck = leader.track("team/web", Some(&status), None, limit, false, now);
                polls += 1;
                let next = leader.slow_groups(limit);
                writes += usize::from(next != slow);
                slow = next;
            }
        }
        assert_eq!((writes, slow.len(), slow[0].quarters), (4, 1, 4));
        let mut leader = Patience::default();
        leader.seed(&slow, limit, start);
        assert!(leader.track("team/web", Some(&status), None, limit, false, start), "it is known at once");
        let next = InstanceGroupStatus {
            rollout: Some(RolloutRecord { since: Some("two".into()), ..RolloutRecord::default() }),
            ..InstanceGroupStatus::default()
        };
        assert!(!leader.track("team/web", Some(&next), None, limit, false, start), "it has another revision");
        assert!(leader.slow_groups(limit).is_empty());
    }
}
