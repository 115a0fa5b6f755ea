//! What one process remembers between reconciles. Nothing in it guards an act:
//! after a restart it is empty, and the worst that follows is a wait begun anew.

use std::collections::HashMap;
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
}

#[derive(Default, Clone)]
struct GroupState {
    /// Since when fewer instances than desired have been running.
    shortage_since: Option<Timestamp>,
    /// Since when instances of the warm pool have been waited for.
    warm_pool_wait_since: Option<Timestamp>,
    /// Since when EKS has refused the group's own role.
    role_refused_since: Option<Timestamp>,
    /// Failures in a row.
    failures: u32,
    /// The resourceVersion that our own last write gave.
    last_written_version: Option<u64>,
    /// Something is under way, so that cached reads must be young.
    progressing: bool,
    /// A name of ours belongs to someone else.
    name_conflict: bool,
    /// When AWS last refused to tag what was taken over.
    tag_denied_at: Option<Timestamp>,
    /// The UID of an object whose finalizer we took off; the watch may show it a moment longer.
    finalized_uid: Option<String>,
}

#[derive(Default, Clone)]
struct NodeState {
    empty_since: Option<Timestamp>,
    evictions_blocked: Option<(Timestamp, u32)>,
    retry_at: Option<Timestamp>,
}

/// What is remembered of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrainClocks {
    /// Since when no evictable pod has been there.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last refused, and how often in a row.
    pub evictions_blocked: Option<(Timestamp, u32)>,
    /// Until when it is left alone.
    pub retry_at: Option<Timestamp>,
}

impl ProcessState {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().expect("nobody panics holding it"))
    }

    fn group<T>(&self, group: &str, act: impl FnOnce(&mut GroupState) -> T) -> T {
        self.with(|inner| act(inner.groups.entry(group.into()).or_default()))
    }

    /// How long a shortage of instances has lasted.
    pub fn track_shortage(&self, group: &str, short: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.shortage_since = if short { g.shortage_since.or(Some(now)) } else { None };
            g.shortage_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// How long EKS has refused the group's own role.
    pub fn track_role_refusal(&self, group: &str, refused: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.role_refused_since = if refused { g.role_refused_since.or(Some(now)) } else { None };
            g.role_refused_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// How long a rotation has been waiting for instances of the warm pool.
    pub fn track_warm_pool_wait(&self, group: &str, waits: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.warm_pool_wait_since = if waits { g.warm_pool_wait_since.or(Some(now)) } else { None };
            g.warm_pool_wait_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// Counts a failure; the number of failures in a row.
    pub fn record_failure(&self, group: &str) -> u32 {
        self.group(group, |g| {
            g.failures = g.failures.saturating_add(1);
            g.failures
        })
    }

    /// Forgets failures.
    pub fn reset_failures(&self, group: &str) {
        self.group(group, |g| g.failures = 0);
    }

    /// Our own write gave this resourceVersion.
    pub fn record_write(&self, group: &str, resource_version: &str) {
        let version = resource_version.parse().ok();
        self.group(group, |g| g.last_written_version = version.max(g.last_written_version));
    }

    /// Whether a stored object is older than our own last write of it.
    pub fn is_stale(&self, group: &str, resource_version: Option<&str>) -> bool {
        let seen: Option<u64> = resource_version.and_then(|v| v.parse().ok());
        self.group(group, |g| matches!((g.last_written_version, seen), (Some(written), Some(seen)) if seen < written))
    }

    /// Whether something is under way.
    pub fn is_progressing(&self, group: &str) -> bool {
        self.group(group, |g| g.progressing)
    }

    /// Something is under way, or no longer is.
    pub fn set_progressing(&self, group: &str, in_flux: bool) {
        self.group(group, |g| g.progressing = in_flux);
    }

    /// A derived name belongs to someone else.
    pub fn has_name_conflict(&self, group: &str) -> bool {
        self.group(group, |g| g.name_conflict)
    }

    /// Remembers that a derived name belongs to someone else.
    pub fn set_name_conflict(&self, group: &str) {
        self.group(group, |g| g.name_conflict = true);
    }

    /// AWS refused to tag what was taken over.
    pub fn record_tag_denied(&self, group: &str, now: Timestamp) {
        self.group(group, |g| g.tag_denied_at = Some(now));
    }

    /// Whether AWS refused that less than `rest` ago.
    pub fn is_tagging_in_backoff(&self, group: &str, rest: Duration, now: Timestamp) -> bool {
        let since = self.group(group, |g| g.tag_denied_at.map(|at| now.duration_since(at)));
        since.is_some_and(|since| since.unsigned_abs() < rest)
    }

    /// What is remembered of a node's drain, told whether an evictable pod is there now.
    pub fn track_drain(&self, node: &str, empty: bool, now: Timestamp) -> DrainClocks {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            n.empty_since = if empty { n.empty_since.or(Some(now)) } else { None };
            DrainClocks { empty_since: n.empty_since, evictions_blocked: n.evictions_blocked, retry_at: n.retry_at }
        })
    }

    /// Until when the drain of a node is left alone.
    pub fn drain_retry_at(&self, node: &str) -> Option<Timestamp> {
        self.with(|inner| inner.nodes.get(node).and_then(|n| n.retry_at))
    }

    /// Evictions on a node were refused; all of one pass, at one moment, count once.
    pub fn record_blocked_eviction(&self, node: &str, now: Timestamp) {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            let before =
                n.evictions_blocked.map_or(0, |(at, times)| if at == now { times.saturating_sub(1) } else { times });
            n.evictions_blocked = Some((now, before.saturating_add(1)));
        });
    }

    /// An eviction on a node went through.
    pub fn reset_blocked_evictions(&self, node: &str) {
        self.with(|inner| inner.nodes.entry(node.into()).or_default().evictions_blocked = None);
    }

    /// The drain of a node ran into its timeout.
    pub fn delay_drain(&self, node: &str, until: Timestamp) {
        self.with(|inner| {
            inner.nodes.insert(node.into(), NodeState { retry_at: Some(until), ..NodeState::default() });
        });
    }

    /// Everything of a group is gone, and our finalizer with it.
    pub fn set_finalized(&self, group: &str, uid: &str) {
        self.with(|inner| {
            inner.groups.insert(group.into(), GroupState { finalized_uid: Some(uid.into()), ..Default::default() })
        });
    }

    /// Whether our finalizer is off the object that a watch shows still. A new one of the same name is another one.
    pub fn is_finalized(&self, group: &str, uid: Option<&str>) -> bool {
        self.group(group, |g| g.finalized_uid.is_some() && g.finalized_uid.as_deref() == uid)
    }

    /// The group is gone.
    pub fn forget_group(&self, group: &str) {
        self.with(|inner| inner.groups.remove(group));
    }

    /// The node is gone, or given back.
    pub fn forget_node(&self, node: &str) {
        self.with(|inner| inner.nodes.remove(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalized_object_is_recognized_by_uid() {
        let memory = ProcessState::default();
        assert!(!memory.is_finalized("team/web", Some("a")) && !memory.is_finalized("team/web", None));
        memory.set_finalized("team/web", "a");
        assert!(memory.is_finalized("team/web", Some("a")) && !memory.is_finalized("team/web", Some("b")));
        memory.forget_group("team/web");
        assert!(!memory.is_finalized("team/web", Some("a")));
    }

    #[test]
    fn tag_backoff_is_per_group() {
        let memory = ProcessState::default();
        let (now, rest) = (Timestamp::UNIX_EPOCH, Duration::from_secs(300));
        assert!(!memory.is_tagging_in_backoff("team/web", rest, now));
        memory.record_tag_denied("team/web", now);
        assert!(memory.is_tagging_in_backoff("team/web", rest, now + Duration::from_secs(299)));
        assert!(!memory.is_tagging_in_backoff("team/web", rest, now + rest));
        assert!(!memory.is_tagging_in_backoff("team/api", rest, now));
    }
}
