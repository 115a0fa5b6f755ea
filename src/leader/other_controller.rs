//! Another controller that works on the same groups: the original has no Lease, so it is seen by what it writes.
//!
//! Nobody's clock is compared with another's. What the first list shows is history; a status that somebody else changes
//! after it is live, and this process only reads until no such write has come for a while. Only `status` counts: a tenant
//! may write any `managedFields` into a group, but not its status.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::k8s::{EventTarget, FIELD_MANAGER};

/// Who wrote the status of a group, and what it said: enough to tell a new write from an old one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusWriters {
    /// Last writes of field managers other than ours, newest last.
    foreign_writes: Vec<(String, Option<Time>)>,
    /// Our own last write.
    own_write: Option<Time>,
    /// Stands for what the status says.
    status_hash: u64,
}

impl StatusWriters {
    /// From `metadata.managedFields`, of which nothing else is needed, and the status beside it.
    pub fn new(fields: Vec<ManagedFieldsEntry>, status: &impl Serialize) -> Self {
        let mut said = DefaultHasher::new();
        // A status always serialises; if not, it never changes and nobody is suspected.
        serde_json::to_vec(status).unwrap_or_default().hash(&mut said);
        let mut trace = StatusWriters { status_hash: said.finish(), ..StatusWriters::default() };
        for entry in fields.into_iter().filter(|entry| entry.subresource.as_deref() == Some("status")) {
            match entry.manager {
                Some(manager) if manager == FIELD_MANAGER => trace.own_write = trace.own_write.max(entry.time),
                manager => trace.foreign_writes.push((manager.unwrap_or_default(), entry.time)),
            }
        }
        trace.foreign_writes.sort_by(|a, b| a.1.cmp(&b.1));
        trace
    }

    /// Who else wrote the status between two sights of the same group.
    fn new_writer_since(&self, before: &StatusWriters) -> Option<&str> {
        let newest = self.foreign_writes.iter().rev().find(|other| !before.foreign_writes.contains(other))?;
        (self.status_hash != before.status_hash).then_some(newest.0.as_str())
    }

    /// Whether the last word on this group was somebody else's.
    fn is_last_writer_foreign(&self) -> bool {
        self.foreign_writes.last().is_some_and(|(_, time)| *time > self.own_write)
    }
}

/// A live write of another controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignWrite {
    /// The field manager that it writes under.
    pub manager: String,
    /// The group that it wrote to.
    pub target: EventTarget,
}

/// Why this process only reads, and until when.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteHold {
    /// Longer when another write comes.
    pub until: Instant,
    /// What was seen; `None` while a controller that the groups were taken over from is given time to end.
    pub conflict: Option<ForeignWrite>,
}

/// What is known of other controllers.
pub struct ConflictDetector {
    quiet_period: Duration,
    startup_grace: Duration,
    writers: Mutex<HashMap<String, StatusWriters>>,
    hold: watch::Sender<Option<WriteHold>>,
}

impl ConflictDetector {
    /// `quiet`: how long after its last write another controller counts as gone. `overlap`: how long nothing is written
    /// at the start when groups were last written by another one, which may be about to end.
    pub fn new(quiet_period: Duration, startup_grace: Duration) -> Self {
        ConflictDetector { quiet_period, startup_grace, writers: Mutex::default(), hold: watch::Sender::default() }
    }

    /// Why this process may not write now, if so.
    pub fn hold(&self) -> Option<WriteHold> {
        self.hold_at(Instant::now())
    }

    fn hold_at(&self, now: Instant) -> Option<WriteHold> {
        self.hold.borrow().clone().filter(|hold| now < hold.until)
    }

    /// Changes with every hold that begins or grows longer.
    pub fn subscribe(&self) -> watch::Receiver<Option<WriteHold>> {
        self.hold.subscribe()
    }

    /// The watch showed a group. Its first sight is history.
    pub fn observe(&self, key: &str, trace: StatusWriters, about: impl FnOnce() -> EventTarget) {
        self.observe_at(Instant::now(), key, trace, about);
    }

    fn observe_at(&self, now: Instant, key: &str, trace: StatusWriters, about: impl FnOnce() -> EventTarget) {
        let before = self.writers.lock().expect("nobody panics holding it").insert(key.to_owned(), trace.clone());
        if let Some(manager) = before.as_ref().and_then(|before| trace.new_writer_since(before)) {
            self.extend_hold(
                now,
                self.quiet_period,
                Some(ForeignWrite { manager: manager.to_owned(), target: about() }),
            );
        }
    }

    /// The group is gone.
    pub fn forget(&self, key: &str) {
        self.writers.lock().expect("nobody panics holding it").remove(key);
    }

    /// The first list is complete: whether groups are taken over from another controller shows now.
    pub fn initial_list_done(&self) {
        self.initial_list_done_at(Instant::now());
    }

    fn initial_list_done_at(&self, now: Instant) {
        if self.writers.lock().expect("nobody panics holding it").values().any(StatusWriters::is_last_writer_foreign) {
            self.extend_hold(now, self.startup_grace, None);
        }
    }

    fn extend_hold(&self, now: Instant, time: Duration, by: Option<ForeignWrite>) {
        let before = self.hold_at(now);
        let until = now + time;
        let until = before.as_ref().map_or(until, |before| before.until.max(until));
        self.hold.send_replace(Some(WriteHold { until, conflict: by.or(before.and_then(|before| before.conflict)) }));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn trace(writers: &[(&str, &str, i64)], status: &str) -> StatusWriters {
        let entry = |(manager, subresource, second): &(&str, &str, i64)| ManagedFieldsEntry {
            manager: Some((*manager).to_owned()),
            subresource: Some((*subresource).to_owned()).filter(|s| !s.is_empty()),
            time: Some(Time(jiff::Timestamp::from_second(*second).unwrap())),
            ..ManagedFieldsEntry::default()
        };
        StatusWriters::new(writers.iter().map(entry).collect(), &json!({ "currentState": status }))
    }

    fn others() -> ConflictDetector {
        ConflictDetector::new(MINUTE, MINUTE / 2)
    }

    fn about() -> EventTarget {
        let (api_version, kind, name, uid) = (String::new(), String::new(), "web".to_owned(), String::new());
        EventTarget { api_version, kind, namespace: None, name, uid }
    }

    const OURS: (&str, &str, i64) = (FIELD_MANAGER, "status", 2);

    #[test]
    fn foreign_write_holds_writes_for_the_quiet_period() {
        let (others, start) = (others(), Instant::now());
        others.observe_at(start, "a/web", trace(&[("manager", "status", 1), OURS], "Ready"), about);
        others.initial_list_done_at(start);
        assert_eq!(others.hold_at(start), None);
        others.observe_at(start, "a/web", trace(&[("manager", "status", 9), OURS], "Init"), about);
        assert_eq!(others.hold_at(start).unwrap().conflict.unwrap().manager, "manager");
        let later = start + MINUTE / 2;
        others.observe_at(later, "a/web", trace(&[("manager", "status", 40), OURS], "Ready"), about);
        assert!(others.hold_at(start + MINUTE).is_some(), "counted from the last write");
        assert_eq!(others.hold_at(later + MINUTE), None);
    }

    #[test]
    fn tenant_and_own_writes_are_not_conflicts() {
        let (others, now) = (others(), Instant::now());
        others.observe_at(now, "a/web", trace(&[("manager", "status", 1), OURS], "Ready"), about);
        others.initial_list_done_at(now);
        let forged = [("forged", "status", 7), ("manager", "status", 8), OURS];
        // A tenant can forge the record of a write to the status, but not the status; ours follows, and an edit of the spec.
        others.observe_at(now, "a/web", trace(&forged, "Ready"), about);
        others.observe_at(now, "a/web", trace(&forged, "Locked"), about);
        others.observe_at(now, "a/web", trace(&[forged[0], forged[1], ("kubectl", "", 9), OURS], "Init"), about);
        assert_eq!(others.hold_at(now), None);
    }

    #[test]
    fn first_observation_of_a_group_is_not_a_conflict() {
        let (others, now) = (others(), Instant::now());
        others.observe_at(now, "a/new", trace(&[], ""), about);
        others.observe_at(now, "b/new", trace(&[("manager", "status", 5)], "Init"), about);
        assert_eq!(others.hold_at(now), None);
        others.observe_at(now, "a/new", trace(&[("manager", "status", 5)], "Init"), about);
        assert!(others.hold_at(now).is_some());
    }

    #[test]
    fn takeover_holds_writes_for_the_startup_grace() {
        let (others, now) = (others(), Instant::now());
        others.observe_at(now, "a/web", trace(&[OURS, ("manager", "status", 3)], "Ready"), about);
        others.initial_list_done_at(now);
        assert_eq!(others.hold_at(now).unwrap().conflict, None);
        assert_eq!(others.hold_at(now + MINUTE / 2), None);
    }
}
