//! Detects another controller that manages the same groups. keikoproj/instance-manager has no Lease, so it is detected by
//! its writes.
//!
//! Clocks of different hosts are never compared. The first list shows past writes only. When another writer changes a
//! status after that list, this process pauses its writes until no such write has come for the quiet period. Only `status`
//! counts: a tenant can put any `managedFields` into a group, but cannot write its status.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::k8s::{EventTarget, FIELD_MANAGER};

/// How often the event about a conflict is repeated while it lasts.
const REPEAT_AFTER: Duration = Duration::from_secs(30 * 60);

/// The writers of the status of a group, and a hash of the status: enough to recognize a new write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatusWriters {
    /// Last writes of other field managers, newest last.
    foreign_writes: Vec<(String, Option<Time>)>,
    /// The last write of this controller.
    own_write: Option<Time>,
    /// Hash of the content of the status.
    status_hash: u64,
}

impl StatusWriters {
    /// Built from `metadata.managedFields` and the status of the same object.
    pub(crate) fn new(fields: Vec<ManagedFieldsEntry>, status: &impl Serialize) -> Self {
        let mut hasher = DefaultHasher::new();
        // A status always serializes. If it did not, its hash would never change, and no conflict would be reported.
        serde_json::to_vec(status).unwrap_or_default().hash(&mut hasher);
        let mut writers = StatusWriters { status_hash: hasher.finish(), ..StatusWriters::default() };
        for entry in fields.into_iter().filter(|entry| entry.subresource.as_deref() == Some("status")) {
            match entry.manager {
                Some(manager) if manager == FIELD_MANAGER => writers.own_write = writers.own_write.max(entry.time),
                manager => writers.foreign_writes.push((manager.unwrap_or_default(), entry.time)),
            }
        }
        writers.foreign_writes.sort_by(|a, b| a.1.cmp(&b.1));
        writers
    }

    /// The other field manager that changed the status since an earlier observation of the same group.
    fn new_writer_since(&self, before: &StatusWriters) -> Option<&str> {
        let newest = self.foreign_writes.iter().rev().find(|other| !before.foreign_writes.contains(other))?;
        (self.status_hash != before.status_hash).then_some(newest.0.as_str())
    }

    /// Whether another field manager was the last writer of the status.
    fn is_last_writer_foreign(&self) -> bool {
        self.foreign_writes.last().is_some_and(|(_, time)| *time > self.own_write)
    }
}

/// A live write of another controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForeignWrite {
    /// The field manager that it writes under.
    pub manager: String,
    /// The group that it wrote to.
    pub target: EventTarget,
}

/// A pause of all writes of this process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteHold {
    /// End of the pause; another foreign write extends it.
    pub until: Instant,
    /// The write that caused it; `None` for the grace period after a start that takes over groups.
    pub conflict: Option<ForeignWrite>,
}

/// Detects writes of other controllers and holds the writes of this process meanwhile.
pub(crate) struct ConflictDetector {
    quiet_period: Duration,
    startup_grace: Duration,
    writers: Mutex<HashMap<String, StatusWriters>>,
    hold: watch::Sender<Option<WriteHold>>,
    /// When the groups that wait for the end of the conflict, and the ConfigMap, last had an event about it.
    notified: Mutex<HashMap<String, Instant>>,
}

impl ConflictDetector {
    /// `quiet_period`: how long after its last write another controller counts as stopped. `startup_grace`: how long writes
    /// are paused at startup when another controller was the last writer, because it may be about to stop.
    pub(crate) fn new(quiet_period: Duration, startup_grace: Duration) -> Self {
        ConflictDetector {
            quiet_period,
            startup_grace,
            writers: Mutex::default(),
            hold: watch::Sender::default(),
            notified: Mutex::default(),
        }
    }

    /// The current hold; `None` when this process may write.
    pub(crate) fn hold(&self) -> Option<WriteHold> {
        self.hold_at(Instant::now())
    }

    fn hold_at(&self, now: Instant) -> Option<WriteHold> {
        self.hold.borrow().clone().filter(|hold| now < hold.until)
    }

    /// The conflict that a group waits for, if its last event about it is half an hour old: the API server forgets events
    /// after an hour. `key` is empty for the ConfigMap.
    pub(crate) fn unreported_conflict(&self, key: &str) -> Option<ForeignWrite> {
        self.unreported_conflict_at(Instant::now(), key)
    }

    fn unreported_conflict_at(&self, now: Instant, key: &str) -> Option<ForeignWrite> {
        let conflict = self.hold_at(now)?.conflict?;
        let mut notified = self.notified.lock().expect("lock is not poisoned");
        if notified.get(key).is_some_and(|before| now.duration_since(*before) < REPEAT_AFTER) {
            return None;
        }
        notified.insert(key.to_owned(), now);
        Some(conflict)
    }

    /// A channel that changes with every hold that starts or is extended.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<WriteHold>> {
        self.hold.subscribe()
    }

    /// Observes a group that the watch returned. The first observation of a group is never a conflict.
    pub(crate) fn observe(&self, key: &str, writers: StatusWriters, target: impl FnOnce() -> EventTarget) {
        self.observe_at(Instant::now(), key, writers, target);
    }

    fn observe_at(&self, now: Instant, key: &str, writers: StatusWriters, target: impl FnOnce() -> EventTarget) {
        let before = self.writers.lock().expect("lock is not poisoned").insert(key.to_owned(), writers.clone());
        if let Some(manager) = before.as_ref().and_then(|before| writers.new_writer_since(before)) {
            self.extend_hold(
                now,
                self.quiet_period,
                Some(ForeignWrite { manager: manager.to_owned(), target: target() }),
            );
        }
    }

    /// Forgets a deleted group.
    pub(crate) fn forget(&self, key: &str) {
        self.writers.lock().expect("lock is not poisoned").remove(key);
    }

    /// The first list is complete. If another controller was the last writer of any group, writes pause for the startup grace.
    pub(crate) fn initial_list_done(&self) {
        self.initial_list_done_at(Instant::now());
    }

    fn initial_list_done_at(&self, now: Instant) {
        if self.writers.lock().expect("lock is not poisoned").values().any(StatusWriters::is_last_writer_foreign) {
            self.extend_hold(now, self.startup_grace, None);
        }
    }

    fn extend_hold(&self, now: Instant, duration: Duration, conflict: Option<ForeignWrite>) {
        let before = self.hold_at(now);
        if conflict.is_some() && before.as_ref().is_none_or(|before| before.conflict.is_none()) {
            self.notified.lock().expect("lock is not poisoned").clear();
        }
        let until = before.as_ref().map_or(now + duration, |before| before.until.max(now + duration));
        self.hold
            .send_replace(Some(WriteHold { until, conflict: conflict.or(before.and_then(|before| before.conflict)) }));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn status_writers(writers: &[(&str, &str, i64)], status: &str) -> StatusWriters {
        let entry = |(manager, subresource, second): &(&str, &str, i64)| ManagedFieldsEntry {
            manager: Some((*manager).to_owned()),
            subresource: Some((*subresource).to_owned()).filter(|s| !s.is_empty()),
            time: Some(Time(jiff::Timestamp::from_second(*second).unwrap())),
            ..ManagedFieldsEntry::default()
        };
        StatusWriters::new(writers.iter().map(entry).collect(), &json!({ "currentState": status }))
    }

    fn detector() -> ConflictDetector {
        ConflictDetector::new(MINUTE, MINUTE / 2)
    }

    fn target() -> EventTarget {
        let (api_version, kind, name, uid) = (String::new(), String::new(), "web".to_owned(), String::new());
        EventTarget { api_version, kind, namespace: None, name, uid }
    }

    const OURS: (&str, &str, i64) = (FIELD_MANAGER, "status", 2);

    #[test]
    fn foreign_write_holds_writes_for_the_quiet_period() {
        let (detector, start) = (detector(), Instant::now());
        detector.observe_at(start, "a/web", status_writers(&[("manager", "status", 1), OURS], "Ready"), target);
        detector.initial_list_done_at(start);
        assert_eq!(detector.hold_at(start), None);
        detector.observe_at(start, "a/web", status_writers(&[("manager", "status", 9), OURS], "Init"), target);
        assert_eq!(detector.hold_at(start).unwrap().conflict.unwrap().manager, "manager");
        let later = start + MINUTE / 2;
        detector.observe_at(later, "a/web", status_writers(&[("manager", "status", 40), OURS], "Ready"), target);
        assert!(detector.hold_at(start + MINUTE).is_some(), "counted from the last write");
        assert_eq!(detector.hold_at(later + MINUTE), None);
    }

    /// A forgotten controller writes for days. An hour after its first write, nothing would say any more why edits have no
    /// effect.
    #[test]
    fn event_about_a_long_conflict_is_repeated() {
        let (detector, start) = (detector(), Instant::now());
        detector.initial_list_done_at(start);
        let mut events = 0;
        for number in 0..140 {
            let (at, state, second) = (start + MINUTE / 2 * number, number.to_string(), i64::from(number) * 30);
            detector.observe_at(at, "a/web", status_writers(&[("manager", "status", second), OURS], &state), target);
            events += usize::from(detector.unreported_conflict_at(at, "b/api").is_some());
        }
        assert_eq!(events, 3);
    }

    /// A tenant whose edit has no effect must find out why on its own group, and need not read it twice.
    #[test]
    fn each_waiting_group_gets_one_event_per_conflict() {
        let (detector, start) = (detector(), Instant::now());
        detector.initial_list_done_at(start);
        let reported = |at: Instant, key: &str| detector.unreported_conflict_at(at, key).map(|write| write.manager);
        assert_eq!(reported(start, "b/api"), None, "there is no conflict");
        let write = |at: Instant, second: i64, state: &str| {
            detector.observe_at(at, "a/web", status_writers(&[("manager", "status", second), OURS], state), target);
        };
        write(start, 1, "Ready");
        write(start, 9, "Init");
        assert_eq!(reported(start, "b/api").as_deref(), Some("manager"));
        assert_eq!(reported(start, "a/web").as_deref(), Some("manager"));
        write(start, 10, "Ready");
        assert_eq!(reported(start, "b/api"), None, "it is the same conflict");
        let later = start + 2 * MINUTE;
        assert_eq!(reported(later, "c/new"), None, "the conflict is over");
        write(later, 200, "Init");
        assert_eq!(reported(later, "b/api").as_deref(), Some("manager"), "another conflict");
    }

    #[test]
    fn tenant_and_own_writes_are_not_conflicts() {
        let (detector, now) = (detector(), Instant::now());
        detector.observe_at(now, "a/web", status_writers(&[("manager", "status", 1), OURS], "Ready"), target);
        detector.initial_list_done_at(now);
        let forged = [("forged", "status", 7), ("manager", "status", 8), OURS];
        // A tenant can forge the record of a status write, but not the status. A write of this controller and an edit of the
        // spec follow.
        detector.observe_at(now, "a/web", status_writers(&forged, "Ready"), target);
        detector.observe_at(now, "a/web", status_writers(&forged, "Locked"), target);
        detector.observe_at(
            now,
            "a/web",
            status_writers(&[forged[0], forged[1], ("kubectl", "", 9), OURS], "Init"),
            target,
        );
        assert_eq!(detector.hold_at(now), None);
    }

    #[test]
    fn first_observation_of_a_group_is_not_a_conflict() {
        let (detector, now) = (detector(), Instant::now());
        detector.observe_at(now, "a/new", status_writers(&[], ""), target);
        detector.observe_at(now, "b/new", status_writers(&[("manager", "status", 5)], "Init"), target);
        assert_eq!(detector.hold_at(now), None);
        detector.observe_at(now, "a/new", status_writers(&[("manager", "status", 5)], "Init"), target);
        assert!(detector.hold_at(now).is_some());
    }

    #[test]
    fn takeover_holds_writes_for_the_startup_grace() {
        let (detector, now) = (detector(), Instant::now());
        detector.observe_at(now, "a/web", status_writers(&[OURS, ("manager", "status", 3)], "Ready"), target);
        detector.initial_list_done_at(now);
        assert_eq!(detector.hold_at(now).unwrap().conflict, None);
        assert_eq!(detector.hold_at(now + MINUTE / 2), None);
    }
}
