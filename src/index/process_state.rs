//! State that one process keeps in memory between reconciles. No safety check depends on it: after a restart it is
//! empty, and at worst a wait starts again.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Clocks and counters by group and by node.
#[derive(Default)]
pub struct ProcessState {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: HashMap<String, GroupState>,
    nodes: HashMap<String, NodeState>,
    /// UIDs in records on Nodes that no InstanceGroup has. A UID is never used again.
    unused_uids: HashSet<String>,
}

#[derive(Default, Clone)]
struct GroupState {
    /// Since when fewer instances than desired have been running.
    shortage_since: Option<Timestamp>,
    /// Since when instances of the warm pool have been waited for.
    warm_pool_wait_since: Option<Timestamp>,
    /// Since when EKS has rejected the role of the group.
    role_rejected_since: Option<Timestamp>,
    /// Consecutive failures.
    failures: u32,
    /// The resourceVersion of this controller's last write.
    last_written_version: Option<u64>,
    /// The group is changing, so cached reads must be recent.
    progressing: bool,
    /// A resource with a derived name belongs to another owner.
    name_conflict: bool,
    /// When AWS last denied tagging adopted resources.
    tag_denied_at: Option<Timestamp>,
    /// The UID of an object whose finalizer was removed. The watch may return the object a little longer.
    finalized_uid: Option<String>,
}

#[derive(Default, Clone)]
struct NodeState {
    empty_since: Option<Timestamp>,
    evictions_blocked: Option<(Timestamp, u32)>,
    retry_at: Option<Timestamp>,
}

/// The times that a drain depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DrainClocks {
    /// Since when the node has had no evictable pod.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last blocked, and how often in a row.
    pub evictions_blocked: Option<(Timestamp, u32)>,
    /// When the drain is retried.
    pub retry_at: Option<Timestamp>,
}

impl ProcessState {
    fn with<T>(&self, update: impl FnOnce(&mut Inner) -> T) -> T {
        update(&mut self.inner.lock().expect("lock is not poisoned"))
    }

    fn group<T>(&self, group: &str, update: impl FnOnce(&mut GroupState) -> T) -> T {
        self.with(|inner| update(inner.groups.entry(group.into()).or_default()))
    }

    /// Records whether instances are missing; returns for how long they have been.
    pub(crate) fn track_shortage(&self, group: &str, is_short: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.shortage_since = if is_short { g.shortage_since.or(Some(now)) } else { None };
            g.shortage_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// Records whether EKS rejects the role of the group; returns for how long it has.
    pub(crate) fn track_role_refusal(&self, group: &str, is_rejected: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.role_rejected_since = if is_rejected { g.role_rejected_since.or(Some(now)) } else { None };
            g.role_rejected_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// Records whether a rotation waits for the warm pool; returns for how long it has.
    pub(crate) fn track_warm_pool_wait(&self, group: &str, is_waiting: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.warm_pool_wait_since = if is_waiting { g.warm_pool_wait_since.or(Some(now)) } else { None };
            g.warm_pool_wait_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// Records a failure; returns the number of consecutive failures.
    pub(crate) fn record_failure(&self, group: &str) -> u32 {
        self.group(group, |g| {
            g.failures = g.failures.saturating_add(1);
            g.failures
        })
    }

    /// Resets the number of consecutive failures.
    pub(crate) fn reset_failures(&self, group: &str) {
        self.group(group, |g| g.failures = 0);
    }

    /// Records the resourceVersion of this controller's own write.
    pub(crate) fn record_write(&self, group: &str, resource_version: &str) {
        let version = resource_version.parse().ok();
        self.group(group, |g| g.last_written_version = version.max(g.last_written_version));
    }

    /// Whether a cached object is older than this controller's last write of it.
    pub(crate) fn is_stale(&self, group: &str, resource_version: Option<&str>) -> bool {
        let seen: Option<u64> = resource_version.and_then(|v| v.parse().ok());
        self.group(group, |g| matches!((g.last_written_version, seen), (Some(written), Some(seen)) if seen < written))
    }

    /// Whether the group is changing.
    pub(crate) fn is_progressing(&self, group: &str) -> bool {
        self.group(group, |g| g.progressing)
    }

    /// Records whether the group is changing.
    pub(crate) fn set_progressing(&self, group: &str, progressing: bool) {
        self.group(group, |g| g.progressing = progressing);
    }

    /// Whether a resource with a derived name belongs to another owner.
    pub(crate) fn has_name_conflict(&self, group: &str) -> bool {
        self.group(group, |g| g.name_conflict)
    }

    /// Records that a resource with a derived name belongs to another owner.
    pub(crate) fn set_name_conflict(&self, group: &str) {
        self.group(group, |g| g.name_conflict = true);
    }

    /// Records that AWS denied tagging adopted resources.
    pub(crate) fn record_tag_denied(&self, group: &str, now: Timestamp) {
        self.group(group, |g| g.tag_denied_at = Some(now));
    }

    /// Whether AWS denied tagging less than `delay` ago.
    pub(crate) fn is_tagging_in_backoff(&self, group: &str, delay: Duration, now: Timestamp) -> bool {
        let since = self.group(group, |g| g.tag_denied_at.map(|at| now.duration_since(at)));
        since.is_some_and(|since| since.unsigned_abs() < delay)
    }

    /// Records whether a node has no evictable pod; returns the times of its drain.
    pub(crate) fn track_drain(&self, node: &str, empty: bool, now: Timestamp) -> DrainClocks {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            n.empty_since = if empty { n.empty_since.or(Some(now)) } else { None };
            DrainClocks { empty_since: n.empty_since, evictions_blocked: n.evictions_blocked, retry_at: n.retry_at }
        })
    }

    /// When the drain of a node is retried.
    pub(crate) fn drain_retry_at(&self, node: &str) -> Option<Timestamp> {
        self.with(|inner| inner.nodes.get(node).and_then(|n| n.retry_at))
    }

    /// Records that evictions on a node were blocked. All of one reconcile, with the same `now`, count once.
    pub(crate) fn record_blocked_eviction(&self, node: &str, now: Timestamp) {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            let before =
                n.evictions_blocked.map_or(0, |(at, times)| if at == now { times.saturating_sub(1) } else { times });
            n.evictions_blocked = Some((now, before.saturating_add(1)));
        });
    }

    /// Records that an eviction on a node succeeded.
    pub(crate) fn reset_blocked_evictions(&self, node: &str) {
        self.with(|inner| inner.nodes.entry(node.into()).or_default().evictions_blocked = None);
    }

    /// Records that the drain of a node ran into its timeout.
    pub(crate) fn delay_drain(&self, node: &str, until: Timestamp) {
        self.with(|inner| {
            inner.nodes.insert(node.into(), NodeState { retry_at: Some(until), ..NodeState::default() });
        });
    }

    /// Whether it is known that no InstanceGroup has this UID.
    pub(crate) fn is_uid_unused(&self, uid: &str) -> bool {
        self.with(|inner| inner.unused_uids.contains(uid))
    }

    /// Records that no InstanceGroup has this UID.
    pub(crate) fn set_uid_unused(&self, uid: &str) {
        self.with(|inner| inner.unused_uids.insert(uid.into()));
    }

    /// Records that a group is deleted and its finalizer is removed.
    pub(crate) fn set_finalized(&self, group: &str, uid: &str) {
        self.with(|inner| {
            inner.groups.insert(group.into(), GroupState { finalized_uid: Some(uid.into()), ..Default::default() })
        });
    }

    /// Whether the finalizer of this object was removed. A new object of the same name has another UID.
    pub(crate) fn is_finalized(&self, group: &str, uid: Option<&str>) -> bool {
        self.group(group, |g| g.finalized_uid.is_some() && g.finalized_uid.as_deref() == uid)
    }

    /// Forgets a deleted group.
    pub(crate) fn forget_group(&self, group: &str) {
        self.with(|inner| inner.groups.remove(group));
    }

    /// Forgets a node that was deleted or uncordoned.
    pub(crate) fn forget_node(&self, node: &str) {
        self.with(|inner| inner.nodes.remove(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalized_object_is_recognized_by_uid() {
        let process_state = ProcessState::default();
        assert!(!process_state.is_finalized("team/web", Some("a")) && !process_state.is_finalized("team/web", None));
        process_state.set_finalized("team/web", "a");
        assert!(
            process_state.is_finalized("team/web", Some("a")) && !process_state.is_finalized("team/web", Some("b"))
        );
        process_state.forget_group("team/web");
        assert!(!process_state.is_finalized("team/web", Some("a")));
    }

    #[test]
    fn tag_backoff_is_per_group() {
        let process_state = ProcessState::default();
        let (now, delay) = (Timestamp::UNIX_EPOCH, Duration::from_secs(300));
        assert!(!process_state.is_tagging_in_backoff("team/web", delay, now));
        process_state.record_tag_denied("team/web", now);
        assert!(process_state.is_tagging_in_backoff("team/web", delay, now + Duration::from_secs(299)));
        assert!(!process_state.is_tagging_in_backoff("team/web", delay, now + delay));
        assert!(!process_state.is_tagging_in_backoff("team/api", delay, now));
    }
}
