//! Decisions of the crd strategy, which follow from the existing resources and the recorded status.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, InstanceGroupStatus, StrategyProgress};
use crate::plan::StalledReason;
use crate::rotation::crd::decide::{
    CrdStrategyAction, CrdStrategyDecision, CrdStrategyInput, CrdStrategyState, PreviousResource, ResourcePhase,
    StrategyResource, decide, is_unfinished, previous_resource, state,
};
use crate::rotation::crd::{ResourceKind, StatusMatcher, StatusPath, StatusValues};

const DESIRED: &str = "up-20260101000000-3";

struct Scenario {
    status: Value,
    outdated: usize,
    concurrency: ConcurrencyPolicy,
    max_retries: Option<i64>,
    rotate_at: Option<Timestamp>,
    has_time_to_live: bool,
    is_requested: bool,
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
        has_time_to_live: false,
        is_requested: false,
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
            desired_name: DESIRED,
            concurrency: self.concurrency,
            max_retries: self.max_retries,
            retry_delay: SignedDuration::from_secs(15),
            max_retry_delay: SignedDuration::from_mins(5),
            status_matcher: &StatusMatcher {
                path: StatusPath::parse(".status.phase").expect("a path"),
                success: StatusValues::new("Succeeded"),
                failure: StatusValues::new("Failed"),
            },
            outdated: self.outdated,
            rotate_at: self.rotate_at,
            has_time_to_live: self.has_time_to_live,
            is_requested: self.is_requested,
            now: self.now,
            status: &status,
            resources: &self.resources,
        })
    }

    /// The state that a controller finds after a restart, if the killed controller had finished these actions.
    fn after_actions(mut self, actions: &[CrdStrategyAction]) -> Self {
        for action in actions {
            match action {
                CrdStrategyAction::UpdateStatus(patch) => crate::api::apply_merge_patch(&mut self.status, patch),
                CrdStrategyAction::Delete { uid, .. } => self.resources.retain(|r| r.uid != *uid),
                CrdStrategyAction::Submit => {
                    assert!(!self.resources.iter().any(|r| r.name == DESIRED), "a resource is created once");
                    let uid = format!("created-{}", self.status["strategyRetryCount"]);
                    self.resources.push(resource(DESIRED, &uid, ResourcePhase::Active(String::new())));
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

/// A short text for each action, in order.
fn action_summaries(decision: &CrdStrategyDecision) -> Vec<String> {
    let summary = |action: &CrdStrategyAction| match action {
        CrdStrategyAction::UpdateStatus(patch) => format!(
            "record {} {}",
            patch["strategyRetryCount"],
            patch["strategyProgress"]["state"].as_str().unwrap_or_default()
        ),
        CrdStrategyAction::Delete { name, uid, .. } => format!("delete {name} {uid}"),
        CrdStrategyAction::Submit => "submit".into(),
    };
    decision.actions.iter().map(summary).collect()
}

fn state_name(decision: &CrdStrategyDecision) -> &'static str {
    match decision.state {
        CrdStrategyState::Done => "done",
        CrdStrategyState::Acted(_) => "acted",
        CrdStrategyState::Waiting(_) => "waiting",
        CrdStrategyState::Blocked(reason, _) => match reason {
            StalledReason::StrategyFailed => "failed",
            StalledReason::OwnershipConflict => "ownership conflict",
            StalledReason::InvalidSpec => "invalid",
            _ => "blocked",
        },
    }
}

fn active(name: &str) -> StrategyResource {
    resource(name, "u1", ResourcePhase::Active("Running".into()))
}

#[test]
fn actions_follow_from_resources_and_recorded_status() {
    let desired = |phase: ResourcePhase| vec![resource(DESIRED, "u1", phase)];
    let other = || vec![active("up-20260101000000-2")];
    let cases: Vec<(&str, Scenario, &[&str], &str)> = vec![
        ("no resource", scenario(vec![]), &["record 0 Submitted", "submit"], "acted"),
        ("no outdated node", Scenario { outdated: 0, ..scenario(vec![]) }, &[], "done"),
        ("active", scenario(vec![active(DESIRED)]), &[], "waiting"),
        (
            "active after the last node was replaced",
            Scenario { outdated: 0, ..scenario(vec![active(DESIRED)]) },
            &[],
            "done",
        ),
        (
            "success",
            Scenario {
                outdated: 0,
                ..scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "done",
        ),
        (
            "success before the node cache is current",
            scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1")),
            &[],
            "waiting",
        ),
        (
            "success although nodes are outdated",
            scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 0, state::SUCCEEDED, Some("u1")),
            &["record 1 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "success although nodes are outdated, retry is counted",
            scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 1, state::RETRYING, Some("u1")),
            &["delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "success although nodes are outdated, no retries left",
            scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 2, state::SUCCEEDED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "success of an earlier upgrade",
            scenario(desired(ResourcePhase::Succeeded)).with_recorded(
                "up-20260101000000-2",
                0,
                state::SUCCEEDED,
                Some("u0"),
            ),
            &["record 0 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "failure of an earlier upgrade",
            scenario(desired(ResourcePhase::Failed)).with_recorded("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "success before rotate-at",
            Scenario {
                rotate_at: Some(Timestamp::MAX),
                ..scenario(desired(ResourcePhase::Succeeded)).with_recorded(DESIRED, 0, state::SUCCEEDED, Some("u1"))
            },
            &["record 0 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "first failure",
            scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1")),
            &["record 1 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "last failure",
            scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "failure with unlimited retries",
            Scenario {
                max_retries: None,
                ..scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 99, state::SUBMITTED, Some("u1"))
            },
            &["record 100 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "no retries",
            Scenario {
                max_retries: Some(0),
                ..scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "failed",
        ),
        (
            "failure after the last node was replaced",
            Scenario {
                outdated: 0,
                ..scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "done",
        ),
        (
            "unreadable, no outdated node",
            Scenario { outdated: 0, ..scenario(desired(ResourcePhase::Unreadable("an object"))) },
            &[],
            "done",
        ),
        (
            "being deleted, no outdated node",
            Scenario { outdated: 0, ..scenario(vec![StrategyResource { is_deleting: true, ..active(DESIRED) }]) },
            &[],
            "done",
        ),
        (
            "of another owner, no outdated node",
            Scenario { outdated: 0, ..scenario(vec![StrategyResource { is_owned: false, ..active(DESIRED) }]) },
            &[],
            "done",
        ),
        (
            "old failure, no outdated node",
            Scenario { outdated: 0, ..scenario(desired(ResourcePhase::Failed)) },
            &[],
            "done",
        ),
        (
            "killed after the retry was counted",
            scenario(desired(ResourcePhase::Failed)).with_recorded(DESIRED, 1, state::RETRYING, Some("u1")),
            &["delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "killed after the deletion",
            scenario(vec![]).with_recorded(DESIRED, 1, state::RETRYING, Some("u1")),
            &["submit"],
            "acted",
        ),
        (
            "killed before the submission",
            scenario(vec![]).with_recorded(DESIRED, 0, state::SUBMITTED, None),
            &["submit"],
            "acted",
        ),
        (
            "deleted by a user",
            scenario(vec![]).with_recorded(DESIRED, 1, state::SUBMITTED, Some("u1")),
            &["record 2 Submitted", "submit"],
            "acted",
        ),
        (
            "deleted by a user, no retries left",
            scenario(vec![]).with_recorded(DESIRED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "still deleted, no retries left",
            scenario(vec![]).with_recorded(DESIRED, 2, state::GONE, None),
            &[],
            "failed",
        ),
        (
            "maxRetries raised",
            Scenario { max_retries: Some(3), ..scenario(vec![]).with_recorded(DESIRED, 2, state::GONE, None) },
            &["record 3 Submitted", "submit"],
            "acted",
        ),
        (
            "failed resource deleted by a user",
            scenario(vec![]).with_recorded(DESIRED, 2, state::FAILED, Some("u1")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "another version is desired",
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
            "replace, other resource is being deleted",
            Scenario {
                concurrency: ConcurrencyPolicy::Replace,
                ..scenario(vec![StrategyResource { is_deleting: true, ..active("x") }])
            },
            &[],
            "waiting",
        ),
        (
            "forbid, other resource has ended",
            scenario(vec![resource("x", "u0", ResourcePhase::Failed)]),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace keeps resources of other owners",
            Scenario {
                concurrency: ConcurrencyPolicy::Replace,
                ..scenario(vec![StrategyResource { is_owned: false, ..active("x") }])
            },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "reverted while another resource is active",
            Scenario {
                outdated: 0,
                ..scenario(other()).with_recorded("up-20260101000000-2", 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "done",
        ),
        (
            "resource of another owner",
            scenario(vec![StrategyResource { is_owned: false, ..active(DESIRED) }]),
            &[],
            "ownership conflict",
        ),
        (
            "being deleted",
            scenario(vec![StrategyResource { is_deleting: true, ..resource(DESIRED, "u1", ResourcePhase::Failed) }]),
            &[],
            "waiting",
        ),
        ("status is not a scalar", scenario(desired(ResourcePhase::Unreadable("an object"))), &[], "invalid"),
    ];
    for (case, scenario, actions, state) in cases {
        let decision = scenario.decide();
        let found = action_summaries(&decision);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), state_name(&decision)),
            (actions.to_vec(), state),
            "{case}"
        );
        if let CrdStrategyState::Blocked(_, message) = &decision.state {
            assert!(message.contains(DESIRED) && message.contains(';'), "{case}: {message}");
        }
    }
}

/// A controller that is killed between any two actions creates no second resource, and counts each retry once.
#[test]
fn retries_are_exact_wherever_the_controller_is_killed() {
    for killed_after in 0..4 {
        let mut scenario = scenario(vec![]);
        let (mut submitted, mut passes) = (0, 0);
        let last = loop {
            passes += 1;
            assert!(passes < 50, "the upgrade does not end");
            let decision = scenario.decide();
            if let Some(progress) = &decision.progress {
                scenario.status["strategyProgress"] = json!(progress);
            }
            // Every other pass is interrupted.
            let limit = if passes % 2 == 0 { killed_after } else { decision.actions.len() };
            let done = &decision.actions[..decision.actions.len().min(limit)];
            submitted += done.iter().filter(|action| **action == CrdStrategyAction::Submit).count();
            scenario = scenario.after_actions(done);
            match state_name(&decision) {
                "acted" => {}
                // Every created resource fails.
                "waiting" => scenario.resources.iter_mut().for_each(|r| r.phase = ResourcePhase::Failed),
                _ => break decision,
            }
        };
        assert_eq!((state_name(&last), submitted), ("failed", 3), "killed after {killed_after}: {last:?}");
    }
}

/// A time to live deletes each resource after its end. Without the limit, an upgrade that always fails would drain nodes
/// forever.
#[test]
fn time_to_live_does_not_reset_the_retries() {
    let expired = |retries, state| {
        let scenario = Scenario { has_time_to_live: true, ..scenario(vec![]) };
        scenario.with_recorded(DESIRED, retries, state, Some("u1"))
    };
    let last = expired(2, state::FAILED).decide();
    assert_eq!((action_summaries(&last), state_name(&last)), (vec![], "failed"));
    let CrdStrategyState::Blocked(_, message) = &last.state else { panic!("{last:?}") };
    assert!(message.contains("maxRetries") && message.contains("instance-manager reconcile"), "{message}");
    let progress = last.progress.expect("a progress");
    assert_eq!(progress.state.as_deref(), Some(state::FAILED), "the next pass decides the same");
    assert_eq!(action_summaries(&expired(1, state::SUCCEEDED).decide()), ["record 2 Submitted", "submit"]);
    assert_eq!(action_summaries(&expired(1, state::FAILED).decide()), ["record 2 Submitted", "submit"], "raised");
    for (what, scenario) in [
        ("a user asks", Scenario { is_requested: true, ..expired(2, state::FAILED) }),
        ("a user deleted it", Scenario { has_time_to_live: false, ..expired(2, state::FAILED) }),
        ("it may belong to an earlier upgrade", expired(0, state::SUCCEEDED)),
    ] {
        assert_eq!(action_summaries(&scenario.decide()), ["record 0 Submitted", "submit"], "{what}");
    }
}

/// A success that left nodes outdated and has no retries left is a failure, also after a time to live deleted it.
#[test]
fn success_without_effect_is_recorded_as_failed() {
    let succeeded = |state| {
        let scenario = scenario(vec![resource(DESIRED, "u1", ResourcePhase::Succeeded)]);
        scenario.with_recorded(DESIRED, 2, state, Some("u1")).decide()
    };
    for recorded in [state::SUCCEEDED, state::FAILED] {
        let decision = succeeded(recorded);
        let state = decision.progress.as_ref().and_then(|progress| progress.state.as_deref());
        assert_eq!((state_name(&decision), state), ("failed", Some(state::FAILED)), "after {recorded}");
    }
}

/// The UID is recorded with the submission. Without it, a missing resource means that the create was lost.
#[test]
fn resource_that_was_deleted_before_it_was_observed_counts_as_a_retry() {
    let absent = |uid: Option<&str>| scenario(vec![]).with_recorded(DESIRED, 0, state::SUBMITTED, uid).decide();
    assert_eq!(action_summaries(&absent(None)).len(), 1, "it is submitted as before");
    let CrdStrategyAction::UpdateStatus(patch) = &absent(Some("created")).actions[0] else { panic!("no record") };
    assert_eq!(patch["strategyRetryCount"], 1);
}

/// Without the delay, an upgrade that fails immediately would use up its retries within a second.
#[test]
fn retry_delay_doubles_up_to_the_maximum() {
    let mut delays = Vec::new();
    for retries in 0..8 {
        let mut scenario =
            Scenario { max_retries: None, ..scenario(vec![resource(DESIRED, "u1", ResourcePhase::Failed)]) };
        scenario = scenario.with_recorded(DESIRED, retries, state::SUBMITTED, Some("u1"));
        scenario.now = Timestamp::UNIX_EPOCH;
        while state_name(&scenario.decide()) == "waiting" {
            let decision = scenario.decide();
            assert_eq!(decision.actions, [], "the failed resource is kept for inspection");
            let CrdStrategyState::Waiting(message) = decision.state else { panic!("not waiting") };
            assert!(message.contains(DESIRED) && message.contains("1970-01-01T00:0"), "{message}");
            scenario.now += SignedDuration::from_secs(5);
        }
        assert_eq!(state_name(&scenario.decide()), "acted");
        delays.push(scenario.now.as_second());
    }
    assert_eq!(delays, [15, 30, 60, 120, 240, 300, 300, 300]);
}

/// The clock of the API server was ahead, or that of this process is behind.
#[test]
fn resource_from_the_future_is_retried() {
    let mut ahead = resource(DESIRED, "u1", ResourcePhase::Failed);
    ahead.created_at = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(3));
    let scenario = scenario(vec![ahead]).with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1"));
    assert_eq!(action_summaries(&scenario.decide()), ["record 1 Retrying", "delete up-20260101000000-3 u1"]);
    let mut skewed = resource(DESIRED, "u1", ResourcePhase::Failed);
    skewed.created_at = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1));
    let late = Scenario { max_retries: None, ..self::scenario(vec![skewed]) };
    let mut late = late.with_recorded(DESIRED, 8, state::SUBMITTED, Some("u1"));
    late.now = Timestamp::UNIX_EPOCH;
    assert_eq!(state_name(&late.decide()), "waiting", "a second of skew ends no delay");
}

/// After a change of namespace or kind in the template, two upgrades must not replace nodes at the same time.
#[test]
fn active_resource_is_tracked_after_the_template_changes() {
    let moved = StrategyResource { namespace: "before".into(), ..active(DESIRED) };
    let other = StrategyResource { kind: kind("CronWorkflow"), ..active(DESIRED) };
    let recorded = [("before", "Workflow"), ("ops", "CronWorkflow")];
    for (resource, (namespace, kind)) in [moved, other].into_iter().zip(recorded) {
        let with_recorded = |phase: ResourcePhase, concurrency| {
            let resource = StrategyResource { phase, ..resource.clone() };
            let mut scenario = Scenario { concurrency, ..scenario(vec![resource]) }.with_recorded(
                DESIRED,
                1,
                state::SUBMITTED,
                Some("u1"),
            );
            scenario.status["strategyResourceNamespace"] = json!(namespace);
            scenario.status["strategyProgress"]["apiVersion"] = json!("argoproj.io/v1");
            scenario.status["strategyProgress"]["kind"] = json!(kind);
            scenario
        };
        let running = || ResourcePhase::Active("Running".into());
        let decision = with_recorded(running(), ConcurrencyPolicy::Forbid).decide();
        let CrdStrategyState::Waiting(message) = &decision.state else { panic!("{decision:?}") };
        assert!(message.contains(&format!("{kind}.argoproj.io {namespace}/{DESIRED}")), "{message}");
        assert_eq!((decision.actions, decision.progress), (vec![], None), "the active resource stays recorded");
        let decision = with_recorded(running(), ConcurrencyPolicy::Replace).decide();
        assert!(
            matches!(decision.actions.as_slice(), [CrdStrategyAction::Delete { namespace: n, kind: k, .. }] if n == namespace && k.kind == kind),
            "{decision:?}"
        );
        for (phase, concurrency) in
            [(ResourcePhase::Failed, ConcurrencyPolicy::Forbid), (running(), ConcurrencyPolicy::Allow)]
        {
            let decision = with_recorded(phase, concurrency).decide();
            assert_eq!(action_summaries(&decision), ["record 0 Submitted", "submit"], "the retry count starts again");
        }
        // An older resource of the desired name that has ended changes nothing.
        let mut ended = with_recorded(running(), ConcurrencyPolicy::Forbid);
        ended.resources.push(super::decisions::resource(DESIRED, "u0", ResourcePhase::Succeeded));
        assert_eq!((action_summaries(&ended.decide()), state_name(&ended.decide())), (vec![], "waiting"));
    }
}

#[test]
fn unfinished_resource_of_other_kind_namespace_or_name_is_previous() {
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
    let previous = |kind| Some(PreviousResource { kind, namespace: "ops", name: "x" });
    assert_eq!(
        (previous_resource(&same, &kind, "ops", "x"), previous_resource(&same, &kind, "new", "x")),
        (None, previous(None))
    );
    assert_eq!(
        (previous_resource(&unrecorded, &kind, "ops", "x"), previous_resource(&unrecorded, &kind, "new", "x")),
        (None, previous(None))
    );
    assert_eq!(previous_resource(&other, &kind, "ops", "x"), previous(Some(["example.com", "v2", "Workflow"])));
    assert_eq!(previous_resource(&ended, &kind, "new", "y"), None);
    assert_eq!(previous_resource(&same, &kind, "ops", "y"), previous(None), "another version is desired");
}

#[test]
fn unfinished_states_keep_the_group_waiting() {
    for (state, unfinished) in [
        (Some(state::SUBMITTED), true),
        (Some(state::RETRYING), true),
        (Some(state::FAILED), true),
        (Some(state::GONE), true),
        (Some(state::SUCCEEDED), false),
        (None, false),
    ] {
        let progress = state.map(|state| StrategyProgress { state: Some(state.into()), ..StrategyProgress::default() });
        let status = InstanceGroupStatus { strategy_progress: progress, ..InstanceGroupStatus::default() };
        assert_eq!(is_unfinished(&status), unfinished, "{state:?}");
    }
}

/// The next upgrade must know a resource that is still active.
#[test]
fn resource_is_observed_until_it_ends() {
    let recorded = |resources| {
        let scenario = Scenario { outdated: 0, ..scenario(resources) };
        scenario.with_recorded(DESIRED, 0, state::SUBMITTED, Some("u1")).decide().progress.map(|p| p.state)
    };
    let of = |state: &str| Some(Some(state.to_owned()));
    assert_eq!(recorded(vec![active(DESIRED)]), of(state::SUBMITTED));
    assert_eq!(recorded(vec![resource(DESIRED, "u1", ResourcePhase::Succeeded)]), Some(None), "the upgrade is over");
    assert_eq!(recorded(vec![resource(DESIRED, "u1", ResourcePhase::Failed)]), of(state::FAILED));
    assert_eq!(recorded(vec![active("up-20260101000000-2")]), None, "the record stays");
    assert_eq!(recorded(vec![]), Some(None), "it is cleared");
}

/// After a revert, the resource of the older version exists, too. A record of it would hide the active one: after a
/// change to `rollingUpdate`, both would replace nodes.
#[test]
fn reverted_change_keeps_the_record_of_the_active_resource() {
    let last = "up-20260101000000-4";
    let before = || resource(DESIRED, "u0", ResourcePhase::Succeeded);
    let reverted = |outdated, last_phase| {
        let resources = vec![before(), resource(last, "u1", last_phase)];
        let scenario = Scenario { outdated, ..scenario(resources) };
        scenario.with_recorded(last, 0, state::SUBMITTED, Some("u1")).decide()
    };
    let running = || ResourcePhase::Active("Running".into());
    let decision = reverted(0, running());
    assert_eq!((state_name(&decision), decision.progress), ("done", None), "it stays recorded");
    let decision = reverted(2, running());
    assert_eq!((state_name(&decision), decision.actions, decision.progress), ("waiting", vec![], None));
    let decision = reverted(0, ResourcePhase::Failed);
    assert_eq!((state_name(&decision), decision.progress), ("done", Some(StrategyProgress::default())), "it has ended");
}

/// Otherwise the second attempt of a reverted change would begin with the result of the first, and with `maxRetries: 0`
/// it would fail at once.
#[test]
fn resource_that_ended_unrecorded_belongs_to_an_earlier_upgrade() {
    for phase in [ResourcePhase::Succeeded, ResourcePhase::Failed] {
        let mut again = Scenario { max_retries: Some(0), ..scenario(vec![resource(DESIRED, "u1", phase)]) };
        again = again.with_recorded(DESIRED, 0, state::SUBMITTED, None);
        again.status["strategyProgress"] = json!({});
        let decision = again.decide();
        assert_eq!(action_summaries(&decision), ["record 0 Retrying", "delete up-20260101000000-3 u1"]);
    }
}

/// A lock, an error or a restart may stop the pass between the record and the deletion. With `maxRetries: 0`, the upgrade
/// would fail although nothing was submitted.
#[test]
fn leftover_resource_whose_deletion_was_stopped_is_deleted_next() {
    for phase in [ResourcePhase::Succeeded, ResourcePhase::Failed] {
        for rotate_at in [None, Some(Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1))] {
            let leftover = scenario(vec![resource(DESIRED, "u1", phase.clone())]);
            let leftover = Scenario { max_retries: Some(0), rotate_at, ..leftover };
            let leftover = leftover.with_recorded("up-20260101000000-2", 2, state::FAILED, Some("u0"));
            let stopped = leftover.decide().actions[..1].to_vec();
            let next = leftover.after_actions(&stopped);
            let decision = next.decide();
            assert_eq!(action_summaries(&decision).last().map(String::as_str), Some("delete up-20260101000000-3 u1"));
            let deleted = next.after_actions(&decision.actions);
            assert_eq!(action_summaries(&deleted.decide()), ["submit"], "{phase:?} {rotate_at:?}");
        }
    }
}
