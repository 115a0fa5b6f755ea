use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::k8s::fake;
use crate::k8s::fake::Call;

/// An API server that keeps one Lease, with the resourceVersion rules of a real one.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u32,
    /// The next write fails.
    fault: Option<Fault>,
    reads: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The request is lost, and nothing is stored.
    LostBefore,
    /// The write is stored, and the response is lost.
    LostAfter,
}

impl Server {
    fn respond(&self, call: Call) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        if call.method == "GET" {
            state.reads += 1;
            return match &state.lease {
                Some(lease) => (200, lease.clone()),
                None => fake::failure(404, "NotFound", "no such lease"),
            };
        }
        let fault = state.fault.take();
        if fault == Some(Fault::LostBefore) {
            return fake::failure(503, "ServiceUnavailable", "away");
        }
        let current = state.lease.as_ref().map(|lease| &lease["metadata"]["resourceVersion"]);
        if call.method == "PUT" && current.is_none() {
            return fake::failure(404, "NotFound", "no such lease");
        }
        let accepted = match (call.method.as_str(), current) {
            ("POST", None) => true,
            ("PUT", Some(version)) => *version == call.body["metadata"]["resourceVersion"],
            _ => false,
        };
        if !accepted {
            return fake::failure(409, "Conflict", "changed");
        }
        state.version += 1;
        let mut lease = call.body;
        lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.lease = Some(lease.clone());
        match fault {
            Some(Fault::LostAfter) => fake::failure(504, "Timeout", "lost"),
            _ => (200, lease),
        }
    }

    fn elector(&self, identity: &str) -> Elector {
        let server = self.clone();
        let client = fake::client(move |call| server.respond(call));
        Elector::new(client, LeaderConfig::new("im", identity))
    }

    fn fail_next(&self, fault: Fault) {
        self.0.lock().unwrap().fault = Some(fault);
    }

    fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.as_ref().unwrap()["spec"].clone()
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn is_leader(elector: &Elector, now: Instant) -> bool {
    elector.leadership().is_leader_at(now)
}

fn observed(holder: Option<&str>, seconds: Option<i32>, first_seen: Instant) -> ObservedLease {
    let spec = LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: seconds,
        ..LeaseSpec::default()
    };
    let lease = Lease { spec: Some(spec), ..Lease::default() };
    ObservedLease { lease, first_seen, deleted: false }
}

#[test]
fn next_lease_action_depends_on_holder_and_age() {
    let start = Instant::now();
    let config = LeaderConfig::new("im", "me");
    let other = |seconds| Some(observed(Some("other"), seconds, start));
    let deleted = || {
        let mut deleted = other(Some(15));
        deleted.iter_mut().for_each(|record| record.deleted = true);
        deleted
    };
    for (name, record, elapsed, expected) in [
        ("no lease", None, 0, LeaseAction::Create),
        ("never held", Some(observed(None, None, start)), 0, LeaseAction::Acquire),
        ("released", Some(observed(Some(""), Some(1), start)), 0, LeaseAction::Acquire),
        ("own", Some(observed(Some("me"), Some(15), start)), 99, LeaseAction::Renew),
        ("first seen", other(Some(15)), 0, LeaseAction::Wait),
        ("still fresh", other(Some(15)), 14, LeaseAction::Wait),
        ("expired", other(Some(15)), 15, LeaseAction::Acquire),
        ("the holder's own duration counts", other(Some(60)), 59, LeaseAction::Wait),
        ("no duration stated", other(None), 14, LeaseAction::Wait),
        ("no duration stated, expired", other(None), 15, LeaseAction::Acquire),
        ("deleted while held", deleted(), 14, LeaseAction::Wait),
        ("deleted long ago", deleted(), 15, LeaseAction::Create),
        ("a negative duration", other(Some(-5)), 14, LeaseAction::Wait),
        ("a user wrote a shorter one", other(Some(1)), 14, LeaseAction::Wait),
        ("a user wrote none", other(Some(0)), 14, LeaseAction::Wait),
        ("a user wrote none, expired", other(Some(0)), 15, LeaseAction::Acquire),
    ] {
        let action = next_lease_action(record.as_ref(), &config, start + seconds(elapsed));
        assert_eq!(action, expected, "{name}");
    }
}

#[tokio::test]
async fn first_candidate_leads_and_second_waits() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    assert_eq!(a.run_round(|| now).await, None);
    assert_eq!(b.run_round(|| now).await, None);
    assert!(b.leadership().has_other_leader() && !a.leadership().has_other_leader());
    assert!(is_leader(&a, now) && !is_leader(&b, now));
    assert_eq!(server.spec()["holderIdentity"], "a");
}

#[tokio::test]
async fn renewal_is_one_write_without_a_read() {
    let server = Server::default();
    let mut a = server.elector("a");
    let now = Instant::now();
    a.run_round(|| now).await;
    a.run_round(|| now + seconds(2)).await;
    assert!(is_leader(&a, now + seconds(11)));
    let state = server.0.lock().unwrap();
    assert_eq!((state.reads, state.version), (1, 2));
}

#[tokio::test]
async fn expired_lease_is_acquired_after_the_locally_observed_duration() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    b.run_round(|| now + seconds(5)).await;
    b.run_round(|| now + seconds(19)).await;
    assert!(!is_leader(&b, now + seconds(19)));
    b.run_round(|| now + seconds(20)).await;
    assert!(is_leader(&b, now + seconds(20)));
    assert!(!is_leader(&a, now + seconds(20)));
    assert_eq!(b.term(), 1);
}

#[tokio::test]
async fn paused_leader_steps_down_before_it_sees_its_successor() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    let leadership = a.leadership();
    b.run_round(|| now).await;
    b.run_round(|| now + seconds(15)).await;
    assert!(is_leader(&b, now + seconds(15)));
    assert!(!leadership.is_leader_at(now + seconds(10)));
    assert_eq!(a.run_round(|| now + seconds(16)).await, Some(ElectionEnd::Lost));
    assert!(!is_leader(&a, now + seconds(16)));
    assert_eq!(server.spec()["holderIdentity"], "b");
}

#[tokio::test]
async fn process_paused_during_its_renewal_loses_leadership() {
    let server = Server::default();
    let mut a = server.elector("a");
    let now = Instant::now();
    a.run_round(|| now).await;
    let reads = Mutex::new(0);
    let pausing_clock = || {
        *reads.lock().unwrap() += 1;
        let paused = *reads.lock().unwrap() > 1;
        now + seconds(if paused { 60 } else { 2 })
    };
    assert_eq!(a.run_round(pausing_clock).await, Some(ElectionEnd::Lost));
}

/// A tool that labels the Lease must not end the process, with what it is in the middle of.
#[tokio::test]
async fn edit_of_the_lease_by_another_client_does_not_end_leadership() {
    let server = Server::default();
    let mut a = server.elector("a");
    let now = Instant::now();
    a.run_round(|| now).await;
    {
        let mut server = server.0.lock().unwrap();
        server.version = 77;
        server.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("77");
    }
    assert_eq!(a.run_round(|| now + seconds(2)).await, None);
    assert!(is_leader(&a, now + seconds(2)));
}

#[tokio::test]
async fn conflict_with_another_holder_ends_leadership_immediately() {
    let server = Server::default();
    let mut a = server.elector("a");
    let now = Instant::now();
    a.run_round(|| now).await;
    {
        let mut server = server.0.lock().unwrap();
        let lease = server.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!("77");
        lease["spec"]["holderIdentity"] = json!("b");
    }
    assert_eq!(a.run_round(|| now + seconds(2)).await, Some(ElectionEnd::Lost));
    assert!(!is_leader(&a, now + seconds(2)));
}

/// After a restore of etcd, the watches of a standby may be silent. It must not lead with the caches that it has.
#[tokio::test]
async fn standby_process_ends_when_resource_versions_decrease() {
    let server = Server::default();
    server.0.lock().unwrap().version = 1000;
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    assert_eq!(b.run_round(|| now).await, None);
    server.0.lock().unwrap().lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("500");
    assert_eq!(b.run_round(|| now + seconds(60)).await, Some(ElectionEnd::Lost));
    assert!(!is_leader(&b, now + seconds(60)));
    assert_eq!(server.spec()["holderIdentity"], "a", "nothing was written");
}

#[tokio::test]
async fn lost_response_is_reread_and_leadership_continues() {
    for fault in [Fault::LostBefore, Fault::LostAfter] {
        let server = Server::default();
        let mut a = server.elector("a");
        let now = Instant::now();
        a.run_round(|| now).await;
        server.fail_next(fault);
        assert_eq!(a.run_round(|| now + seconds(2)).await, None);
        assert!(is_leader(&a, now + seconds(9)) && !is_leader(&a, now + seconds(10)));
        assert_eq!(a.run_round(|| now + seconds(4)).await, None);
        assert!(is_leader(&a, now + seconds(13)));
        assert_eq!(a.term(), 0);
    }
}

#[tokio::test]
async fn leader_that_cannot_renew_steps_down_at_its_deadline() {
    let server = Server::default();
    let mut a = server.elector("a");
    let now = Instant::now();
    a.run_round(|| now).await;
    server.fail_next(Fault::LostBefore);
    assert_eq!(a.run_round(|| now + seconds(9)).await, None);
    server.fail_next(Fault::LostBefore);
    assert_eq!(a.run_round(|| now + seconds(10)).await, Some(ElectionEnd::Lost));
}

#[tokio::test]
async fn deleted_lease_ends_leadership_and_is_recreated_after_the_lease_duration() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    b.run_round(|| now).await;
    server.0.lock().unwrap().lease = None;
    b.run_round(|| now + seconds(1)).await;
    assert!(!is_leader(&b, now + seconds(1)));
    assert_eq!(a.run_round(|| now + seconds(2)).await, Some(ElectionEnd::Lost));
    b.run_round(|| now + seconds(15)).await;
    assert!(is_leader(&b, now + seconds(15)));
    assert_eq!(b.term(), 1);
}

#[tokio::test]
async fn released_lease_is_acquired_without_waiting() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    a.release(now + seconds(1)).await;
    assert_eq!(server.spec().get("holderIdentity"), None);
    b.run_round(|| now + seconds(1)).await;
    assert!(is_leader(&b, now + seconds(1)) && !is_leader(&a, now + seconds(1)));
}

#[tokio::test]
async fn deposed_leader_does_not_release_the_lease() {
    let server = Server::default();
    let (mut a, mut b) = (server.elector("a"), server.elector("b"));
    let now = Instant::now();
    a.run_round(|| now).await;
    b.run_round(|| now).await;
    b.run_round(|| now + seconds(15)).await;
    a.release(now + seconds(15)).await;
    assert_eq!(server.spec()["holderIdentity"], "b");
}

#[tokio::test]
async fn shutdown_releases_the_lease_and_ends_the_task() {
    let server = Server::default();
    let handler = server.clone();
    let client = fake::client(move |call| handler.respond(call));
    let (stop, stopped) = watch::channel(false);
    let (mut leadership, task) = spawn(client, LeaderConfig::new("im", "a"), stopped);
    leadership.wait_for(Leadership::is_leader).await.unwrap();
    stop.send(true).unwrap();
    assert_eq!(task.await.unwrap(), ElectionEnd::Released);
    assert!(!leadership.borrow().is_leader());
    assert_eq!(server.spec().get("holderIdentity"), None);
}

#[test]
fn single_replica_without_election_always_leads() {
    assert!(always().borrow().is_leader());
}
