//! What is done follows from what is there and what is remembered.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, InstanceGroupStatus, StrategyProgress};
use crate::plan::Reason;
use crate::rotation::crd::decide::{
    Act, Decision, Elsewhere, Input, Phase, Resource, Stand, decide, elsewhere, open, state,
};
use crate::rotation::crd::{ResourceKind, StatusPath, Words};

const WANTED: &str = "up-20260101000000-3";

struct World {
    status: Value,
    outdated: usize,
    concurrency: ConcurrencyPolicy,
    max_retries: Option<i64>,
    rotate_at: Option<Timestamp>,
    now: Timestamp,
    resources: Vec<Resource>,
}

fn world(resources: Vec<Resource>) -> World {
    World {
        status: json!({}),
        outdated: 2,
        concurrency: ConcurrencyPolicy::Forbid,
        max_retries: Some(2),
        rotate_at: None,
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1),
        resources,
    }
}

impl World {
    fn remembers(mut self, name: &str, retries: i64, state: &str, uid: Option<&str>) -> Self {
        self.status = json!({"strategyResourceName": name, "strategyResourceNamespace": "ops", "strategyRetryCount": retries,
            "strategyProgress": {"state": state, "uid": uid}});
        self
    }

    fn decide(&self) -> Decision {
        let status: InstanceGroupStatus = serde_json::from_value(self.status.clone()).expect("a status");
        decide(&Input {
            kind: &kind("Workflow"),
            namespace: "ops",
            wanted: WANTED,
            concurrency: self.concurrency,
            max_retries: self.max_retries,
            pause: SignedDuration::from_secs(15),
            longest_pause: SignedDuration::from_mins(5),
            words: &Words {
                path: StatusPath::parse(".status.phase").expect("a path"),
                success: "Succeeded".into(),
                failure: "Failed".into(),
            },
            outdated: self.outdated,
            rotate_at: self.rotate_at,
            now: self.now,
            status: &status,
            resources: &self.resources,
        })
    }

    /// What a controller that was killed after so many acts finds: only what those left.
    fn after(mut self, acts: &[Act]) -> Self {
        for act in acts {
            match act {
                Act::Record(patch) => crate::api::merge_patch(&mut self.status, patch),
                Act::Delete { uid, .. } => self.resources.retain(|r| r.uid != *uid),
                Act::Submit => {
                    assert!(!self.resources.iter().any(|r| r.name == WANTED), "one name is one resource");
                    let uid = format!("made-{}", self.status["strategyRetryCount"]);
                    self.resources.push(made(WANTED, &uid, Phase::Active(String::new())));
                }
            }
        }
        self
    }
}

fn kind(name: &str) -> ResourceKind {
    let text = |text: &str| text.to_owned();
    ResourceKind {
        group: text("argoproj.io"),
        version: text("v1"),
        kind: text(name),
        plural: name.to_lowercase() + "s",
    }
}

fn made(name: &str, uid: &str, phase: Phase) -> Resource {
    Resource {
        kind: kind("Workflow"),
        namespace: "ops".into(),
        name: name.into(),
        uid: uid.into(),
        created: Some(Timestamp::UNIX_EPOCH),
        ours: true,
        deleting: false,
        phase,
    }
}

/// The acts in short.
fn acts(decision: &Decision) -> Vec<String> {
    let act = |act: &Act| match act {
        Act::Record(patch) => format!(
            "record {} {}",
            patch["strategyRetryCount"],
            patch["strategyProgress"]["state"].as_str().unwrap_or_default()
        ),
        Act::Delete { name, uid, .. } => format!("delete {name} {uid}"),
        Act::Submit => "submit".into(),
    };
    decision.acts.iter().map(act).collect()
}

fn stand(decision: &Decision) -> &'static str {
    match decision.stand {
        Stand::Done => "done",
        Stand::Acted(_) => "acted",
        Stand::Waiting(_) => "waiting",
        Stand::Blocked(reason, _) => match reason {
            Reason::StrategyFailed => "failed",
            Reason::NotOurs => "not ours",
            Reason::InvalidSpec => "invalid",
            _ => "blocked",
        },
    }
}

fn active(name: &str) -> Resource {
    made(name, "u1", Phase::Active("Running".into()))
}

#[test]
fn what_is_done_follows_from_what_is_there_and_what_is_remembered() {
    let wanted = |phase: Phase| vec![made(WANTED, "u1", phase)];
    let other = || vec![active("up-20260101000000-2")];
    let cases: Vec<(&str, World, &[&str], &str)> = vec![
        ("nothing is there", world(vec![]), &["record 0 Submitted", "submit"], "acted"),
        ("nothing is outdated", World { outdated: 0, ..world(vec![]) }, &[], "done"),
        ("it is at work", world(vec![active(WANTED)]), &[], "waiting"),
        ("it works on after the last node", World { outdated: 0, ..world(vec![active(WANTED)]) }, &[], "waiting"),
        (
            "success",
            World { outdated: 0, ..world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")) },
            &[],
            "done",
        ),
        (
            "success a moment too early",
            world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")),
            &[],
            "waiting",
        ),
        (
            "success and old nodes",
            world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUCCEEDED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a success of an earlier time",
            world(wanted(Phase::Succeeded)).remembers("up-20260101000000-2", 0, state::SUCCEEDED, Some("u0")),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a failure of an earlier time",
            world(wanted(Phase::Failed)).remembers("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a success before rotate-at",
            World {
                rotate_at: Some(Timestamp::MAX),
                ..world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUCCEEDED, Some("u1"))
            },
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the first failure",
            world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")),
            &["record 1 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the last failure",
            world(wanted(Phase::Failed)).remembers(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a failure, retries without end",
            World {
                max_retries: None,
                ..world(wanted(Phase::Failed)).remembers(WANTED, 99, state::SUBMITTED, Some("u1"))
            },
            &["record 100 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "no retries",
            World {
                max_retries: Some(0),
                ..world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "failed",
        ),
        (
            "a failure after the last node",
            World { outdated: 0, ..world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")) },
            &[],
            "failed",
        ),
        ("an old failure, nothing outdated", World { outdated: 0, ..world(wanted(Phase::Failed)) }, &[], "done"),
        (
            "killed after the count",
            world(wanted(Phase::Failed)).remembers(WANTED, 1, state::RETRYING, Some("u1")),
            &["delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "killed after the deletion",
            world(vec![]).remembers(WANTED, 1, state::RETRYING, Some("u1")),
            &["submit"],
            "acted",
        ),
        (
            "killed before the submission",
            world(vec![]).remembers(WANTED, 0, state::SUBMITTED, None),
            &["submit"],
            "acted",
        ),
        (
            "deleted by someone",
            world(vec![]).remembers(WANTED, 1, state::SUBMITTED, Some("u1")),
            &["record 2 Submitted", "submit"],
            "acted",
        ),
        (
            "deleted by someone too often",
            world(vec![]).remembers(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        ("still gone", world(vec![]).remembers(WANTED, 2, state::GONE, None), &[], "failed"),
        (
            "more retries given",
            World { max_retries: Some(3), ..world(vec![]).remembers(WANTED, 2, state::GONE, None) },
            &["record 3 Submitted", "submit"],
            "acted",
        ),
        (
            "the failed one was deleted by someone",
            world(vec![]).remembers(WANTED, 2, state::FAILED, Some("u1")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "another version is wanted",
            world(vec![]).remembers("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        ("forbid", world(other()), &[], "waiting"),
        (
            "allow",
            World { concurrency: ConcurrencyPolicy::Allow, ..world(other()) },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace",
            World { concurrency: ConcurrencyPolicy::Replace, ..world(other()) },
            &["delete up-20260101000000-2 u1"],
            "acted",
        ),
        (
            "replace, on its way out",
            World {
                concurrency: ConcurrencyPolicy::Replace,
                ..world(vec![Resource { deleting: true, ..active("x") }])
            },
            &[],
            "waiting",
        ),
        (
            "forbid, and the other has ended",
            world(vec![made("x", "u0", Phase::Failed)]),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace leaves what is not ours",
            World { concurrency: ConcurrencyPolicy::Replace, ..world(vec![Resource { ours: false, ..active("x") }]) },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "taken back while another works",
            World { outdated: 0, ..world(other()).remembers("up-20260101000000-2", 0, state::SUBMITTED, Some("u1")) },
            &[],
            "waiting",
        ),
        ("someone else's", world(vec![Resource { ours: false, ..active(WANTED) }]), &[], "not ours"),
        (
            "on its way out",
            world(vec![Resource { deleting: true, ..made(WANTED, "u1", Phase::Failed) }]),
            &[],
            "waiting",
        ),
        ("no text where the status is", world(wanted(Phase::Unreadable("an object"))), &[], "invalid"),
    ];
    for (case, world, wanted, how) in cases {
        let decision = world.decide();
        let found = acts(&decision);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), stand(&decision)),
            (wanted.to_vec(), how),
            "{case}"
        );
        if let Stand::Blocked(_, message) = &decision.stand {
            assert!(message.contains(WANTED) && message.contains(';'), "{case}: {message}");
        }
    }
}

/// A controller that dies between any two acts makes no second resource, and gives no retry away or a further one.
#[test]
fn a_failing_upgrade_is_tried_as_often_as_it_may_be_wherever_the_controller_is_killed() {
    for killed_after in 0..4 {
        let mut now = world(vec![]);
        let (mut submitted, mut passes) = (0, 0);
        let last = loop {
            passes += 1;
            assert!(passes < 50, "it comes to an end");
            let decision = now.decide();
            if let Some(progress) = &decision.progress {
                now.status["strategyProgress"] = json!(progress);
            }
            // Every other pass is cut short.
            let most = if passes % 2 == 0 { killed_after } else { decision.acts.len() };
            let done = &decision.acts[..decision.acts.len().min(most)];
            submitted += done.iter().filter(|act| **act == Act::Submit).count();
            now = now.after(done);
            match stand(&decision) {
                "acted" => {}
                // Whatever is made fails.
                "waiting" => now.resources.iter_mut().for_each(|r| r.phase = Phase::Failed),
                _ => break decision,
            }
        };
        assert_eq!((stand(&last), submitted), ("failed", 3), "killed after {killed_after}: {last:?}");
    }
}

/// An upgrade that fails at once would be made and deleted many times a second, and have no retry left when it could work.
#[test]
fn one_that_fails_again_and_again_is_left_alone_for_longer_each_time() {
    let mut pauses = Vec::new();
    for retries in 0..8 {
        let mut now = World { max_retries: None, ..world(vec![made(WANTED, "u1", Phase::Failed)]) };
        now = now.remembers(WANTED, retries, state::SUBMITTED, Some("u1"));
        now.now = Timestamp::UNIX_EPOCH;
        while stand(&now.decide()) == "waiting" {
            let decision = now.decide();
            assert_eq!(decision.acts, [], "it is left to be looked at");
            let Stand::Waiting(message) = decision.stand else { panic!("it waits") };
            assert!(message.contains(WANTED) && message.contains("1970-01-01T00:0"), "{message}");
            now.now += SignedDuration::from_secs(5);
        }
        assert_eq!(stand(&now.decide()), "acted");
        pauses.push(now.now.as_second());
    }
    assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300, 300]);
}

/// A new namespace or kind in the template must not let two upgrades take nodes at once.
#[test]
fn an_upgrade_that_is_at_work_elsewhere_is_not_forgotten_when_the_template_changes() {
    let moved = Resource { namespace: "before".into(), ..active(WANTED) };
    let other = Resource { kind: kind("CronWorkflow"), ..active(WANTED) };
    let memories = [("before", "Workflow"), ("ops", "CronWorkflow")];
    for (resource, (namespace, kind)) in [moved, other].into_iter().zip(memories) {
        let remembering = |phase: Phase, concurrency| {
            let resource = Resource { phase, ..resource.clone() };
            let mut world =
                World { concurrency, ..world(vec![resource]) }.remembers(WANTED, 1, state::SUBMITTED, Some("u1"));
            world.status["strategyResourceNamespace"] = json!(namespace);
            world.status["strategyProgress"]["apiVersion"] = json!("argoproj.io/v1");
            world.status["strategyProgress"]["kind"] = json!(kind);
            world
        };
        let works = || Phase::Active("Running".into());
        let decision = remembering(works(), ConcurrencyPolicy::Forbid).decide();
        let Stand::Waiting(message) = &decision.stand else { panic!("{decision:?}") };
        assert!(message.contains(&format!("{kind}.argoproj.io {namespace}/{WANTED}")), "{message}");
        assert_eq!((decision.acts, decision.progress), (vec![], None), "it stays remembered");
        let decision = remembering(works(), ConcurrencyPolicy::Replace).decide();
        assert!(
            matches!(decision.acts.as_slice(), [Act::Delete { namespace: n, kind: k, .. }] if n == namespace && k.kind == kind),
            "{decision:?}"
        );
        for (phase, concurrency) in [(Phase::Failed, ConcurrencyPolicy::Forbid), (works(), ConcurrencyPolicy::Allow)] {
            let decision = remembering(phase, concurrency).decide();
            assert_eq!(acts(&decision), ["record 0 Submitted", "submit"], "and no retry is counted");
        }
        // One of the wanted name that ended at another time is no reason to forget it either.
        let mut ended = remembering(works(), ConcurrencyPolicy::Forbid);
        ended.resources.push(made(WANTED, "u0", Phase::Succeeded));
        assert_eq!((acts(&ended.decide()), stand(&ended.decide())), (vec![], "waiting"));
    }
}

#[test]
fn a_resource_is_elsewhere_while_it_has_yet_to_end_in_another_namespace_or_of_another_kind() {
    let status = |state: &str, version: Value, kind: Value| -> InstanceGroupStatus {
        let progress = json!({"state": state, "apiVersion": version, "kind": kind});
        let status =
            json!({"strategyResourceName": "x", "strategyResourceNamespace": "ops", "strategyProgress": progress});
        serde_json::from_value(status).expect("a status")
    };
    let same = status(state::SUBMITTED, json!("argoproj.io/v0"), json!("Workflow"));
    let unrecorded = status(state::RETRYING, Value::Null, Value::Null);
    let other = status(state::SUBMITTED, json!("example.com/v2"), json!("Workflow"));
    let ended = status(state::SUCCEEDED, json!("example.com/v2"), json!("Workflow"));
    let kind = kind("Workflow");
    let here = |kind| Some(Elsewhere { kind, namespace: "ops", name: "x" });
    assert_eq!((elsewhere(&same, &kind, "ops"), elsewhere(&same, &kind, "new")), (None, here(None)));
    assert_eq!((elsewhere(&unrecorded, &kind, "ops"), elsewhere(&unrecorded, &kind, "new")), (None, here(None)));
    assert_eq!(elsewhere(&other, &kind, "ops"), here(Some(["example.com", "v2", "Workflow"])));
    assert_eq!(elsewhere(&ended, &kind, "new"), None);
}

#[test]
fn a_group_waits_for_what_its_strategy_has_yet_to_say() {
    for (state, wanted) in [
        (Some(state::SUBMITTED), true),
        (Some(state::RETRYING), true),
        (Some(state::FAILED), true),
        (Some(state::GONE), true),
        (Some(state::SUCCEEDED), false),
        (None, false),
    ] {
        let progress = state.map(|state| StrategyProgress { state: Some(state.into()), ..StrategyProgress::default() });
        let status = InstanceGroupStatus { strategy_progress: progress, ..InstanceGroupStatus::default() };
        assert_eq!(open(&status), wanted, "{state:?}");
    }
}
