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

use crate::k8s::{FIELD_MANAGER, Regarding};

/// Who wrote the status of a group, and what it said: enough to tell a new write from an old one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Last writes of field managers other than ours, newest last.
    others: Vec<(String, Option<Time>)>,
    /// Our own last write.
    ours: Option<Time>,
    /// Stands for what the status says.
    said: u64,
}

impl Trace {
    /// From `metadata.managedFields`, of which nothing else is needed, and the status beside it.
    pub fn new(fields: Vec<ManagedFieldsEntry>, status: &impl Serialize) -> Self {
        let mut said = DefaultHasher::new();
        // A status always serialises; if not, it never changes and nobody is suspected.
        serde_json::to_vec(status).unwrap_or_default().hash(&mut said);
        let mut trace = Trace { said: said.finish(), ..Trace::default() };
        for entry in fields.into_iter().filter(|entry| entry.subresource.as_deref() == Some("status")) {
            match entry.manager {
                Some(manager) if manager == FIELD_MANAGER => trace.ours = trace.ours.max(entry.time),
                manager => trace.others.push((manager.unwrap_or_default(), entry.time)),
            }
        }
        trace.others.sort_by(|a, b| a.1.cmp(&b.1));
        trace
    }

    /// Who else wrote the status between two sights of the same group.
    fn since(&self, before: &Trace) -> Option<&str> {
        let newest = self.others.iter().rev().find(|other| !before.others.contains(other))?;
        (self.said != before.said).then_some(newest.0.as_str())
    }

    /// Whether the last word on this group was somebody else's.
    fn is_others(&self) -> bool {
        self.others.last().is_some_and(|(_, time)| *time > self.ours)
    }
}

/// A live write of another controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// The field manager that it writes under.
    pub manager: String,
    /// The group that it wrote to.
    pub about: Regarding,
}

/// Why this process only reads, and until when.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Longer when another write comes.
    pub until: Instant,
    /// What was seen; `None` while a controller that the groups were taken over from is given time to end.
    pub by: Option<Sighting>,
}

/// What is known of other controllers.
pub struct Others {
    quiet: Duration,
    overlap: Duration,
    traces: Mutex<HashMap<String, Trace>>,
    hold: watch::Sender<Option<Hold>>,
}

impl Others {
    /// `quiet`: how long after its last write another controller counts as gone. `overlap`: how long nothing is written
    /// at the start when groups were last written by another one, which may be about to end.
    pub fn new(quiet: Duration, overlap: Duration) -> Self {
        Others { quiet, overlap, traces: Mutex::default(), hold: watch::Sender::default() }
    }

    /// Why this process may not write now, if so.
    pub fn hold(&self) -> Option<Hold> {
        self.hold_at(Instant::now())
    }

    fn hold_at(&self, now: Instant) -> Option<Hold> {
        self.hold.borrow().clone().filter(|hold| now < hold.until)
    }

    /// Changes with every hold that begins or grows longer.
    pub fn subscribe(&self) -> watch::Receiver<Option<Hold>> {
        self.hold.subscribe()
    }

    /// The watch showed a group. Its first sight is history.
    pub fn saw(&self, key: &str, trace: Trace, about: impl FnOnce() -> Regarding) {
        self.saw_at(Instant::now(), key, trace, about);
    }

    fn saw_at(&self, now: Instant, key: &str, trace: Trace, about: impl FnOnce() -> Regarding) {
        let before = self.traces.lock().expect("nobody panics holding it").insert(key.to_owned(), trace.clone());
        if let Some(manager) = before.as_ref().and_then(|before| trace.since(before)) {
            self.keep(now, self.quiet, Some(Sighting { manager: manager.to_owned(), about: about() }));
        }
    }

    /// The group is gone.
    pub fn forget(&self, key: &str) {
        self.traces.lock().expect("nobody panics holding it").remove(key);
    }

    /// The first list is complete: whether groups are taken over from another controller shows now.
    pub fn listed(&self) {
        self.listed_at(Instant::now());
    }

    fn listed_at(&self, now: Instant) {
        if self.traces.lock().expect("nobody panics holding it").values().any(Trace::is_others) {
            self.keep(now, self.overlap, None);
        }
    }

    fn keep(&self, now: Instant, time: Duration, by: Option<Sighting>) {
        let before = self.hold_at(now);
        let until = now + time;
        let until = before.as_ref().map_or(until, |before| before.until.max(until));
        self.hold.send_replace(Some(Hold { until, by: by.or(before.and_then(|before| before.by)) }));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn trace(writers: &[(&str, &str, i64)], status: &str) -> Trace {
        let entry = |(manager, subresource, second): &(&str, &str, i64)| ManagedFieldsEntry {
            manager: Some((*manager).to_owned()),
            subresource: Some((*subresource).to_owned()).filter(|s| !s.is_empty()),
            time: Some(Time(jiff::Timestamp::from_second(*second).unwrap())),
            ..ManagedFieldsEntry::default()
        };
        Trace::new(writers.iter().map(entry).collect(), &json!({ "currentState": status }))
    }

    fn others() -> Others {
        Others::new(MINUTE, MINUTE / 2)
    }

    fn about() -> Regarding {
        let (api_version, kind, name, uid) = (String::new(), String::new(), "web".to_owned(), String::new());
        Regarding { api_version, kind, namespace: None, name, uid }
    }

    const OURS: (&str, &str, i64) = (FIELD_MANAGER, "status", 2);

    #[test]
    fn a_live_write_of_another_manager_holds_until_it_has_been_quiet() {
        let (others, start) = (others(), Instant::now());
        others.saw_at(start, "a/web", trace(&[("manager", "status", 1), OURS], "Ready"), about);
        others.listed_at(start);
        assert_eq!(others.hold_at(start), None);
        others.saw_at(start, "a/web", trace(&[("manager", "status", 9), OURS], "Init"), about);
        assert_eq!(others.hold_at(start).unwrap().by.unwrap().manager, "manager");
        let later = start + MINUTE / 2;
        others.saw_at(later, "a/web", trace(&[("manager", "status", 40), OURS], "Ready"), about);
        assert!(others.hold_at(start + MINUTE).is_some(), "counted from the last write");
        assert_eq!(others.hold_at(later + MINUTE), None);
    }

    #[test]
    fn what_a_tenant_or_this_controller_writes_is_nobody_elses() {
        let (others, now) = (others(), Instant::now());
        others.saw_at(now, "a/web", trace(&[("manager", "status", 1), OURS], "Ready"), about);
        others.listed_at(now);
        let forged = [("forged", "status", 7), ("manager", "status", 8), OURS];
        // A tenant can forge the record of a write to the status, but not the status; ours follows, and an edit of the spec.
        others.saw_at(now, "a/web", trace(&forged, "Ready"), about);
        others.saw_at(now, "a/web", trace(&forged, "Locked"), about);
        others.saw_at(now, "a/web", trace(&[forged[0], forged[1], ("kubectl", "", 9), OURS], "Init"), about);
        assert_eq!(others.hold_at(now), None);
    }

    #[test]
    fn a_group_that_comes_into_being_is_history_until_its_status_changes() {
        let (others, now) = (others(), Instant::now());
        others.saw_at(now, "a/new", trace(&[], ""), about);
        others.saw_at(now, "b/new", trace(&[("manager", "status", 5)], "Init"), about);
        assert_eq!(others.hold_at(now), None);
        others.saw_at(now, "a/new", trace(&[("manager", "status", 5)], "Init"), about);
        assert!(others.hold_at(now).is_some());
    }

    #[test]
    fn groups_that_another_controller_wrote_last_are_left_alone_while_it_may_be_ending() {
        let (others, now) = (others(), Instant::now());
        others.saw_at(now, "a/web", trace(&[OURS, ("manager", "status", 3)], "Ready"), about);
        others.listed_at(now);
        assert_eq!(others.hold_at(now).unwrap().by, None);
        assert_eq!(others.hold_at(now + MINUTE / 2), None);
    }
}
