//! What is done follows from what is there and what is remembered.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, InstanceGroupStatus, StrategyProgress};
use crate::plan::Reason;
use crate::rotation::crd::decide::{
    CrdStrategyAction, CrdStrategyDecision, CrdStrategyInput, CrdStrategyState, PreviousResource, ResourcePhase,
    StrategyResource, decide, is_unfinished, previous_resource, state,
};
use crate::rotation::crd::{ResourceKind, StatusMatcher, StatusPath};

const WANTED: &str = "up-20260101000000-3";

struct Scenario {
    status: Value,
    outdated: usize,
    concurrency: ConcurrencyPolicy,
    max_retries: Option<i64>,
    rotate_at: Option<Timestamp>,
    now: Timestamp,
    resources: Vec<StrategyResource>,
}

fn scenario(resources: Vec<StrategyResource>) -> Scenario {
    Scenario {
        status: json!({}),
        outdated: 2,
        concurrency: ConcurrencyPolicy::Forbid,
        max_retries: Some(2),
        rotate_at: None,
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1),
        resources,
    }
}

impl Scenario {
    fn with_recorded(mut self, name: &str, retries: i64, state: &str, uid: Option<&str>) -> Self {
        self.status = json!({"strategyResourceName": name, "strategyResourceNamespace": "ops", "strategyRetryCount": retries,
            "strategyProgress": {"state": state, "uid": uid}});
        self
    }

    fn decide(&self) -> CrdStrategyDecision {
        let status: InstanceGroupStatus = serde_json::from_value(self.status.clone()).expect("a status");
        decide(&CrdStrategyInput {
            kind: &kind("Workflow"),
            namespace: "ops",
            desired_name: WANTED,
            concurrency: self.concurrency,
            max_retries: self.max_retries,
            retry_delay: SignedDuration::from_secs(15),
            max_retry_delay: SignedDuration::from_mins(5),
            status_matcher: &StatusMatcher {
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
    fn after_actions(mut self, acts: &[CrdStrategyAction]) -> Self {
        for act in acts {
            match act {
                CrdStrategyAction::Record(patch) => crate::api::apply_merge_patch(&mut self.status, patch),
                CrdStrategyAction::Delete { uid, .. } => self.resources.retain(|r| r.uid != *uid),
                CrdStrategyAction::Submit => {
                    assert!(!self.resources.iter().any(|r| r.name == WANTED), "one name is one resource");
                    let uid = format!("made-{}", self.status["strategyRetryCount"]);
                    self.resources.push(resource(WANTED, &uid, ResourcePhase::Active(String::new())));
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

fn resource(name: &str, uid: &str, phase: ResourcePhase) -> StrategyResource {
    StrategyResource {
        kind: kind("Workflow"),
        namespace: "ops".into(),
        name: name.into(),
        uid: uid.into(),
        created_at: Some(Timestamp::UNIX_EPOCH),
        is_owned: true,
        is_deleting: false,
        phase,
    }
}

/// The acts in short.
fn action_summaries(decision: &CrdStrategyDecision) -> Vec<String> {
    let act = |act: &CrdStrategyAction| match act {
        CrdStrategyAction::Record(patch) => format!(
            "record {} {}",
            patch["strategyRetryCount"],
            patch["strategyProgress"]["state"].as_str().unwrap_or_default()
        ),
        CrdStrategyAction::Delete { name, uid, .. } => format!("delete {name} {uid}"),
        CrdStrategyAction::Submit => "submit".into(),
    };
    decision.actions.iter().map(act).collect()
}

fn state_name(decision: &CrdStrategyDecision) -> &'static str {
    match decision.state {
        CrdStrategyState::Done => "done",
        CrdStrategyState::Acted(_) => "acted",
        CrdStrategyState::Waiting(_) => "waiting",
        CrdStrategyState::Blocked(reason, _) => match reason {
            Reason::StrategyFailed => "failed",
            Reason::OwnershipConflict => "not ours",
            Reason::InvalidSpec => "invalid",
            _ => "blocked",
        },
    }
}

fn active(name: &str) -> StrategyResource {
    resource(name, "u1", ResourcePhase::Active("Running".into()))
}

#[test]
fn actions_follow_from_resources_and_recorded_status() {
    let wanted = |phase: ResourcePhase| vec![resource(WANTED, "u1", phase)];
    let other = || vec![active("up-20260101000000-2")];
    let cases: Vec<(&str, Scenario, &[&str], &str)> = vec![
        ("nothing is there", scenario(vec![]), &["record 0 Submitted", "submit"], "acted"),
        ("nothing is outdated", Scenario { outdated: 0, ..scenario(vec![]) }, &[], "done"),
        ("it is at work", scenario(vec![active(WANTED)]), &[], "waiting"),
        ("it works on after the last node", Scenario { outdated: 0, ..scenario(vec![active(WANTED)]) }, &[], "waiting"),
        (
            "success",
            Scenario {
                outdated: 0,
                ..scenario(wanted(ResourcePhase::Succeeded)).with_recorded(WANTED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "done",
        ),
        (
            "success a moment too early",
            scenario(wanted(ResourcePhase::Succeeded)).with_recorded(WANTED, 0, state::SUBMITTED, Some("u1")),
            &[],
            "waiting",
        ),
        (
            "success and old nodes",
            scenario(wanted(ResourcePhase::Succeeded)).with_recorded(WANTED, 0, state::SUCCEEDED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a success of an earlier time",
            scenario(wanted(ResourcePhase::Succeeded)).with_recorded(
                "up-20260101000000-2",
                0,
                state::SUCCEEDED,
                Some("u0"),
            ),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a failure of an earlier time",
            scenario(wanted(ResourcePhase::Failed)).with_recorded("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a success before rotate-at",
            Scenario {
                rotate_at: Some(Timestamp::MAX),
                ..scenario(wanted(ResourcePhase::Succeeded)).with_recorded(WANTED, 0, state::SUCCEEDED, Some("u1"))
            },
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the first failure",
            scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 0, state::SUBMITTED, Some("u1")),
            &["record 1 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the last failure",
            scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a failure, retries without end",
            Scenario {
                max_retries: None,
                ..scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 99, state::SUBMITTED, Some("u1"))
            },
            &["record 100 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "no retries",
            Scenario {
                max_retries: Some(0),
                ..scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "failed",
        ),
        (
            "a failure after the last node",
            Scenario {
                outdated: 0,
                ..scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "failed",
        ),
        (
            "an old failure, nothing outdated",
            Scenario { outdated: 0, ..scenario(wanted(ResourcePhase::Failed)) },
            &[],
            "done",
        ),
        (
            "killed after the count",
            scenario(wanted(ResourcePhase::Failed)).with_recorded(WANTED, 1, state::RETRYING, Some("u1")),
            &["delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "killed after the deletion",
            scenario(vec![]).with_recorded(WANTED, 1, state::RETRYING, Some("u1")),
            &["submit"],
            "acted",
        ),
        (
            "killed before the submission",
            scenario(vec![]).with_recorded(WANTED, 0, state::SUBMITTED, None),
            &["submit"],
            "acted",
        ),
        (
            "deleted by someone",
            scenario(vec![]).with_recorded(WANTED, 1, state::SUBMITTED, Some("u1")),
            &["record 2 Submitted", "submit"],
            "acted",
        ),
        (
            "deleted by someone too often",
            scenario(vec![]).with_recorded(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        ("still gone", scenario(vec![]).with_recorded(WANTED, 2, state::GONE, None), &[], "failed"),
        (
            "more retries given",
            Scenario { max_retries: Some(3), ..scenario(vec![]).with_recorded(WANTED, 2, state::GONE, None) },
            &["record 3 Submitted", "submit"],
            "acted",
        ),
        (
            "the failed one was deleted by someone",
            scenario(vec![]).with_recorded(WANTED, 2, state::FAILED, Some("u1")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "another version is wanted",
            scenario(vec![]).with_recorded("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        ("forbid", scenario(other()), &[], "waiting"),
        (
            "allow",
            Scenario { concurrency: ConcurrencyPolicy::Allow, ..scenario(other()) },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace",
            Scenario { concurrency: ConcurrencyPolicy::Replace, ..scenario(other()) },
            &["delete up-20260101000000-2 u1"],
            "acted",
        ),
        (
            "replace, on its way out",
            Scenario {
                concurrency: ConcurrencyPolicy::Replace,
                ..scenario(vec![StrategyResource { is_deleting: true, ..active("x") }])
            },
            &[],
            "waiting",
        ),
        (
            "forbid, and the other has ended",
            scenario(vec![resource("x", "u0", ResourcePhase::Failed)]),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace leaves what is not ours",
            Scenario {
                concurrency: ConcurrencyPolicy::Replace,
                ..scenario(vec![StrategyResource { is_owned: false, ..active("x") }])
            },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "taken back while another works",
            Scenario {
                outdated: 0,
                ..scenario(other()).with_recorded("up-20260101000000-2", 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "waiting",
        ),
        ("someone else's", scenario(vec![StrategyResource { is_owned: false, ..active(WANTED) }]), &[], "not ours"),
        (
            "on its way out",
            scenario(vec![StrategyResource { is_deleting: true, ..resource(WANTED, "u1", ResourcePhase::Failed) }]),
            &[],
            "waiting",
        ),
        ("no text where the status is", scenario(wanted(ResourcePhase::Unreadable("an object"))), &[], "invalid"),
    ];
    for (case, world, wanted, how) in cases {
        let decision = world.decide();
        let found = action_summaries(&decision);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), state_name(&decision)),
            (wanted.to_vec(), how),
            "{case}"
        );
        if let CrdStrategyState::Blocked(_, message) = &decision.state {
            assert!(message.contains(WANTED) && message.contains(';'), "{case}: {message}");
        }
    }
}

/// A controller that dies between any two acts makes no second resource, and gives no retry away or a further one.
#[test]
fn retries_are_exact_wherever_the_controller_is_killed() {
    for killed_after in 0..4 {
        let mut now = scenario(vec![]);
        let (mut submitted, mut passes) = (0, 0);
        let last = loop {
            passes += 1;
            assert!(passes < 50, "it comes to an end");
            let decision = now.decide();
            if let Some(progress) = &decision.progress {
                now.status["strategyProgress"] = json!(progress);
            }
            // Every other pass is cut short.
            let most = if passes % 2 == 0 { killed_after } else { decision.actions.len() };
            let done = &decision.actions[..decision.actions.len().min(most)];
            submitted += done.iter().filter(|act| **act == CrdStrategyAction::Submit).count();
            now = now.after_actions(done);
            match state_name(&decision) {
                "acted" => {}
                // Whatever is made fails.
                "waiting" => now.resources.iter_mut().for_each(|r| r.phase = ResourcePhase::Failed),
                _ => break decision,
            }
        };
        assert_eq!((state_name(&last), submitted), ("failed", 3), "killed after {killed_after}: {last:?}");
    }
}

/// An upgrade that fails at once would be made and deleted many times a second, and have no retry left when it could work.
#[test]
fn retry_delay_doubles_up_to_the_maximum() {
    let mut pauses = Vec::new();
    for retries in 0..8 {
        let mut now = Scenario { max_retries: None, ..scenario(vec![resource(WANTED, "u1", ResourcePhase::Failed)]) };
        now = now.with_recorded(WANTED, retries, state::SUBMITTED, Some("u1"));
        now.now = Timestamp::UNIX_EPOCH;
        while state_name(&now.decide()) == "waiting" {
            let decision = now.decide();
            assert_eq!(decision.actions, [], "it is left to be looked at");
            let CrdStrategyState::Waiting(message) = decision.state else { panic!("it waits") };
            assert!(message.contains(WANTED) && message.contains("1970-01-01T00:0"), "{message}");
            now.now += SignedDuration::from_secs(5);
        }
        assert_eq!(state_name(&now.decide()), "acted");
        pauses.push(now.now.as_second());
    }
    assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300, 300]);
}

/// A new namespace or kind in the template must not let two upgrades take nodes at once.
#[test]
fn active_resource_is_tracked_after_the_template_changes() {
    let moved = StrategyResource { namespace: "before".into(), ..active(WANTED) };
    let other = StrategyResource { kind: kind("CronWorkflow"), ..active(WANTED) };
    let memories = [("before", "Workflow"), ("ops", "CronWorkflow")];
    for (resource, (namespace, kind)) in [moved, other].into_iter().zip(memories) {
        let remembering = |phase: ResourcePhase, concurrency| {
            let resource = StrategyResource { phase, ..resource.clone() };
            let mut world = Scenario { concurrency, ..scenario(vec![resource]) }.with_recorded(
                WANTED,
                1,
                state::SUBMITTED,
                Some("u1"),
            );
            world.status["strategyResourceNamespace"] = json!(namespace);
            world.status["strategyProgress"]["apiVersion"] = json!("argoproj.io/v1");
            world.status["strategyProgress"]["kind"] = json!(kind);
            world
        };
        let works = || ResourcePhase::Active("Running".into());
        let decision = remembering(works(), ConcurrencyPolicy::Forbid).decide();
        let CrdStrategyState::Waiting(message) = &decision.state else { panic!("{decision:?}") };
        assert!(message.contains(&format!("{kind}.argoproj.io {namespace}/{WANTED}")), "{message}");
        assert_eq!((decision.actions, decision.progress), (vec![], None), "it stays remembered");
        let decision = remembering(works(), ConcurrencyPolicy::Replace).decide();
        assert!(
            matches!(decision.actions.as_slice(), [CrdStrategyAction::Delete { namespace: n, kind: k, .. }] if n == namespace && k.kind == kind),
            "{decision:?}"
        );
        for (phase, concurrency) in
            [(ResourcePhase::Failed, ConcurrencyPolicy::Forbid), (works(), ConcurrencyPolicy::Allow)]
        {
            let decision = remembering(phase, concurrency).decide();
            assert_eq!(action_summaries(&decision), ["record 0 Submitted", "submit"], "and no retry is counted");
        }
        // One of the wanted name that ended at another time is no reason to forget it either.
        let mut ended = remembering(works(), ConcurrencyPolicy::Forbid);
        ended.resources.push(super::decisions::resource(WANTED, "u0", ResourcePhase::Succeeded));
        assert_eq!((action_summaries(&ended.decide()), state_name(&ended.decide())), (vec![], "waiting"));
    }
}

#[test]
fn unfinished_resource_of_other_kind_or_namespace_is_previous() {
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
    let here = |kind| Some(PreviousResource { kind, namespace: "ops", name: "x" });
    assert_eq!((previous_resource(&same, &kind, "ops"), previous_resource(&same, &kind, "new")), (None, here(None)));
    assert_eq!(
        (previous_resource(&unrecorded, &kind, "ops"), previous_resource(&unrecorded, &kind, "new")),
        (None, here(None))
    );
    assert_eq!(previous_resource(&other, &kind, "ops"), here(Some(["example.com", "v2", "Workflow"])));
    assert_eq!(previous_resource(&ended, &kind, "new"), None);
}

#[test]
fn unfinished_states_keep_the_group_waiting() {
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
        assert_eq!(is_unfinished(&status), wanted, "{state:?}");
    }
}
