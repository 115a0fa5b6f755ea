//! What one process remembers between reconciles. Nothing in it guards an act:
//! after a restart it is empty, and the worst that follows is a wait begun anew.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Clocks and counters by group and by node.
#[derive(Default)]
pub struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: HashMap<String, GroupMemory>,
    nodes: HashMap<String, NodeMemory>,
}

#[derive(Default, Clone)]
struct GroupMemory {
    /// Since when fewer instances than desired have been running.
    short_since: Option<Timestamp>,
    /// Since when instances of the warm pool have been waited for.
    pool_since: Option<Timestamp>,
    /// Since when EKS has refused the group's own role.
    role_refused_since: Option<Timestamp>,
    /// Failures in a row.
    failures: u32,
    /// The resourceVersion that our own last write gave.
    written: Option<u64>,
    /// Something is under way, so that cached reads must be young.
    in_flux: bool,
    /// A name of ours belongs to someone else.
    collided: bool,
    /// When AWS last refused to tag what was taken over.
    untagged: Option<Timestamp>,
    /// The UID of an object whose finalizer we took off; the watch may show it a moment longer.
    gone: Option<String>,
}

#[derive(Default, Clone)]
struct NodeMemory {
    empty_since: Option<Timestamp>,
    refused: Option<(Timestamp, u32)>,
    resting_until: Option<Timestamp>,
}

/// What is remembered of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrainMemory {
    /// Since when no evictable pod has been there.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last refused, and how often in a row.
    pub refused: Option<(Timestamp, u32)>,
    /// Until when it is left alone.
    pub resting_until: Option<Timestamp>,
}

impl Memory {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().expect("nobody panics holding it"))
    }

    fn group<T>(&self, group: &str, act: impl FnOnce(&mut GroupMemory) -> T) -> T {
        self.with(|inner| act(inner.groups.entry(group.into()).or_default()))
    }

    /// How long a shortage of instances has lasted.
    pub fn short_for(&self, group: &str, short: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.short_since = if short { g.short_since.or(Some(now)) } else { None };
            g.short_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// How long EKS has refused the group's own role.
    pub fn role_refused(&self, group: &str, refused: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.role_refused_since = if refused { g.role_refused_since.or(Some(now)) } else { None };
            g.role_refused_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// How long a rotation has been waiting for instances of the warm pool.
    pub fn pool_waits(&self, group: &str, waits: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| {
            g.pool_since = if waits { g.pool_since.or(Some(now)) } else { None };
            g.pool_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
        })
    }

    /// Counts a failure; the number of failures in a row.
    pub fn failed(&self, group: &str) -> u32 {
        self.group(group, |g| {
            g.failures = g.failures.saturating_add(1);
            g.failures
        })
    }

    /// Forgets failures.
    pub fn succeeded(&self, group: &str) {
        self.group(group, |g| g.failures = 0);
    }

    /// Our own write gave this resourceVersion.
    pub fn wrote(&self, group: &str, resource_version: &str) {
        let version = resource_version.parse().ok();
        self.group(group, |g| g.written = version.max(g.written));
    }

    /// Whether a stored object is older than our own last write of it.
    pub fn stale(&self, group: &str, resource_version: Option<&str>) -> bool {
        let seen: Option<u64> = resource_version.and_then(|v| v.parse().ok());
        self.group(group, |g| matches!((g.written, seen), (Some(written), Some(seen)) if seen < written))
    }

    /// Whether something is under way.
    pub fn in_flux(&self, group: &str) -> bool {
        self.group(group, |g| g.in_flux)
    }

    /// Something is under way, or no longer is.
    pub fn set_in_flux(&self, group: &str, in_flux: bool) {
        self.group(group, |g| g.in_flux = in_flux);
    }

    /// A derived name belongs to someone else.
    pub fn collided(&self, group: &str) -> bool {
        self.group(group, |g| g.collided)
    }

    /// Remembers that a derived name belongs to someone else.
    pub fn set_collided(&self, group: &str) {
        self.group(group, |g| g.collided = true);
    }

    /// AWS refused to tag what was taken over.
    pub fn untagged(&self, group: &str, now: Timestamp) {
        self.group(group, |g| g.untagged = Some(now));
    }

    /// Whether AWS refused that less than `rest` ago.
    pub fn tagging_rests(&self, group: &str, rest: Duration, now: Timestamp) -> bool {
        let since = self.group(group, |g| g.untagged.map(|at| now.duration_since(at)));
        since.is_some_and(|since| since.unsigned_abs() < rest)
    }

    /// What is remembered of a node's drain, told whether an evictable pod is there now.
    pub fn drain(&self, node: &str, empty: bool, now: Timestamp) -> DrainMemory {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            n.empty_since = if empty { n.empty_since.or(Some(now)) } else { None };
            DrainMemory { empty_since: n.empty_since, refused: n.refused, resting_until: n.resting_until }
        })
    }

    /// Until when the drain of a node is left alone.
    pub fn resting(&self, node: &str) -> Option<Timestamp> {
        self.with(|inner| inner.nodes.get(node).and_then(|n| n.resting_until))
    }

    /// Evictions on a node were refused; all of one pass, at one moment, count once.
    pub fn refused(&self, node: &str, now: Timestamp) {
        self.with(|inner| {
            let n = inner.nodes.entry(node.into()).or_default();
            let before = n.refused.map_or(0, |(at, times)| if at == now { times.saturating_sub(1) } else { times });
            n.refused = Some((now, before.saturating_add(1)));
        });
    }

    /// An eviction on a node went through.
    pub fn evicted(&self, node: &str) {
        self.with(|inner| inner.nodes.entry(node.into()).or_default().refused = None);
    }

    /// The drain of a node ran into its timeout.
    pub fn rest(&self, node: &str, until: Timestamp) {
        self.with(|inner| {
            inner.nodes.insert(node.into(), NodeMemory { resting_until: Some(until), ..NodeMemory::default() });
        });
    }

    /// Everything of a group is gone, and our finalizer with it.
    pub fn set_gone(&self, group: &str, uid: &str) {
        self.with(|inner| {
            inner.groups.insert(group.into(), GroupMemory { gone: Some(uid.into()), ..Default::default() })
        });
    }

    /// Whether our finalizer is off the object that a watch shows still. A new one of the same name is another one.
    pub fn is_gone(&self, group: &str, uid: Option<&str>) -> bool {
        self.group(group, |g| g.gone.is_some() && g.gone.as_deref() == uid)
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
    fn an_object_that_is_shown_after_its_end_is_known_by_its_uid() {
        let memory = Memory::default();
        assert!(!memory.is_gone("team/web", Some("a")) && !memory.is_gone("team/web", None));
        memory.set_gone("team/web", "a");
        assert!(memory.is_gone("team/web", Some("a")) && !memory.is_gone("team/web", Some("b")));
        memory.forget_group("team/web");
        assert!(!memory.is_gone("team/web", Some("a")));
    }

    #[test]
    fn tags_that_were_refused_rest_for_their_own_group() {
        let memory = Memory::default();
        let (now, rest) = (Timestamp::UNIX_EPOCH, Duration::from_secs(300));
        assert!(!memory.tagging_rests("team/web", rest, now));
        memory.untagged("team/web", now);
        assert!(memory.tagging_rests("team/web", rest, now + Duration::from_secs(299)));
        assert!(!memory.tagging_rests("team/web", rest, now + rest));
        assert!(!memory.tagging_rests("team/api", rest, now));
    }
}
