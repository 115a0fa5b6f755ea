//! The status of each outcome, the events of each transition, and that an unchanged status is not written.

use std::collections::BTreeMap;

use instance_manager::api::{Condition, InstanceGroupStatus, rfc3339};
use instance_manager::apply::{Applied, StepError, TagDenied};
use instance_manager::aws::NewRole;
use instance_manager::controller::report::{BoundariesSummary, Report, report};
use instance_manager::lock::LockHolder;
use instance_manager::plan::FargateStep;
use instance_manager::plan::{
    ConditionUpdate, EventKind, IamStep, ObjectStep, Outcome, Phase, Plan, PlannedStep, Recheck, StalledReason,
    StatusUpdate, Step,
};
use serde_json::json;

const NOW: &str = "2026-01-02T00:00:00Z";

fn plan(outcome: Outcome) -> Plan {
    let nodes = json!({"desired": 3, "ready": 3, "updated": 3, "outdated": 0, "draining": 0});
    Plan {
        group: "team/web".into(),
        generation: 3,
        steps: vec![],
        outcome,
        other_outcomes: vec![],
        status_update: StatusUpdate { fields: BTreeMap::from([("nodes".to_owned(), nodes)]), nodes_ready: None },
        condition_updates: vec![],
        rejected_fields: None,
        adoption: None,
        events: vec![],
        evictions_end: None,
        node_usage: None,
        recheck_at: None,
    }
}

fn applied(plan: Plan, error: Option<StepError>) -> Applied {
    Applied { steps_done: plan.steps.len(), error, ..Applied::new(plan) }
}

fn report_for(old: &InstanceGroupStatus, outcome: Outcome) -> Report {
    report(old, &applied(plan(outcome), None), None, NOW)
}

fn progressing(phase: Phase) -> Outcome {
    Outcome::Progressing { phase, message: "in progress".into(), recheck: Recheck::Poll }
}

fn blocked(is_deleting: bool) -> Outcome {
    Outcome::Blocked { reason: StalledReason::InvalidSpec, message: "fix it".into(), is_deleting }
}

/// The status after a report.
fn status_after(report: &Report) -> InstanceGroupStatus {
    serde_json::from_value(report.patch.clone().expect("a patch")).expect("a status")
}

/// `currentState`, then Ready, Reconciling and Stalled, the last with its reason.
fn row(status: &InstanceGroupStatus) -> String {
    let condition = |name: &str| status.conditions.iter().find(|c| c.r#type == name).expect("a condition");
    let stalled = condition("Stalled");
    let reason = if stalled.is_true() { stalled.reason.clone().unwrap_or_default() } else { String::new() };
    let [ready, reconciling] = ["Ready", "Reconciling"].map(|name| condition(name).status.clone());
    let state = status.current_state.clone().unwrap_or_default();
    format!("{state} {ready} {reconciling} {} {reason}", stalled.status).trim_end().to_owned()
}

#[test]
fn each_outcome_has_its_state_and_conditions() {
    for (outcome, expected) in [
        (Outcome::Converged, "Ready True False False"),
        (progressing(Phase::Creating), "InitCreate False True False"),
        (progressing(Phase::Modifying), "ReconcileModifying False True False"),
        (progressing(Phase::Rotating), "InitUpgrade False True False"),
        (Outcome::Locked { message: "blocked".into() }, "Locked True False False"),
        (blocked(false), "Error False False True InvalidSpec"),
        (progressing(Phase::Deleting), "Deleting False True False"),
        (blocked(true), "Deleting False False True InvalidSpec"),
    ] {
        let status = status_after(&report_for(&InstanceGroupStatus::default(), outcome));
        assert_eq!(row(&status), expected);
        assert!(status.conditions.iter().all(|c| c.observed_generation == Some(3)));
        assert!(status.conditions.iter().all(|c| c.last_transition_time.as_deref() == Some(NOW)));
    }
}

#[test]
fn ready_message_counts_nodes() {
    let status = status_after(&report_for(&InstanceGroupStatus::default(), Outcome::Converged));
    assert_eq!(status.conditions[0].message.as_deref(), Some("3 of 3 nodes are ready"));
}

#[test]
fn unchanged_status_is_not_written_or_reported() {
    for outcome in [Outcome::Converged, progressing(Phase::Rotating), blocked(false)] {
        let first = report_for(&InstanceGroupStatus::default(), outcome.clone());
        let again = report_for(&status_after(&first), outcome);
        assert_eq!((again.patch, again.transition_events), (None, vec![]));
    }
}

#[test]
fn events_come_with_transitions() {
    let reasons = |report: &Report| report.transition_events.iter().map(|e| e.reason.clone()).collect::<Vec<_>>();
    let stalled = report_for(&InstanceGroupStatus::default(), blocked(false));
    assert_eq!(reasons(&stalled), ["InvalidSpec"]);
    let event = &stalled.transition_events[0];
    assert!(event.kind == EventKind::Warning && event.message == "fix it");

    let halted =
        Outcome::Blocked { reason: StalledReason::ReplacementsNotReady, message: "i-1".into(), is_deleting: false };
    assert_eq!(reasons(&report_for(&status_after(&stalled), halted)), ["InstanceGroupUpgradeFailed"]);

    let nodes = |old: &InstanceGroupStatus, ready| {
        let mut plan = plan(progressing(Phase::Modifying));
        plan.status_update.nodes_ready = Some(ready);
        report(old, &applied(plan, None), None, NOW)
    };
    let ready = nodes(&InstanceGroupStatus::default(), true);
    assert_eq!(reasons(&ready), ["InstanceGroupNodesReady"]);
    let conditions = status_after(&ready).conditions;
    let shown = conditions.iter().find(|c| c.r#type == "NodesReady").expect("the condition");
    assert_eq!(
        shown.message.as_deref(),
        Some("3 of 3 nodes are ready"),
        "a bare False would not say how many are missing"
    );
    let lost = nodes(&status_after(&ready), false);
    assert_eq!(reasons(&lost), ["InstanceGroupNodesNotReady"]);
    assert!(lost.transition_events[0].message.contains("in progress"), "which node: {:?}", lost.transition_events);
}

#[test]
fn completed_deletion_writes_no_status() {
    let old = InstanceGroupStatus::default();
    let complete = Plan { steps: vec![ObjectStep::RemoveFinalizer.into()], ..plan(Outcome::Deleted) };
    let complete = report(&old, &applied(complete, None), None, NOW);
    assert_eq!((complete.patch, complete.step_events[0].reason.as_str()), (None, "InstanceGroupDeleted"));
    assert!(complete.step_events[0].message.ends_with("no resources of the group are left"));
    let (kind, reason) = (instance_manager::plan::EventKind::Warning, "RoleRetained".to_owned());
    let events = vec![instance_manager::plan::Event { kind, reason, message: "keeping the role web".into() }];
    let retaining = Plan { steps: vec![ObjectStep::RemoveFinalizer.into()], events, ..plan(Outcome::Deleted) };
    let messages = report(&old, &applied(retaining, None), None, NOW).step_events;
    assert!(messages.iter().any(|event| event.message.contains("names the resources that stay")), "{messages:?}");
    // A user removed the finalizer, and the resources may still exist.
    let kept = report_for(&old, Outcome::Deleted);
    assert_eq!((kept.patch, kept.step_events), (None, vec![]));
}

#[test]
fn non_leader_reports_nothing() {
    let applied = applied(plan(Outcome::Converged), Some(StepError::MayNotWrite));
    assert_eq!(report(&InstanceGroupStatus::default(), &applied, None, NOW), Report::default());
}

#[test]
fn name_conflict_blocks_any_plan() {
    let applied = applied(plan(Outcome::Converged), Some(StepError::OwnershipConflict("demo-team-web".into())));
    let status = status_after(&report(&InstanceGroupStatus::default(), &applied, None, NOW));
    assert_eq!(row(&status), "Error False False True OwnershipConflict");
}

#[test]
fn policies_of_new_role_emit_no_event() {
    let with_reason = |step: IamStep| PlannedStep::new(step, vec![instance_manager::plan::Drift::new("role", "", "r")]);
    let role = with_reason(IamStep::CreateRole(NewRole { name: "r".into(), trust_policy: "{}".into(), tags: vec![] }));
    let policy = with_reason(IamStep::AttachPolicy { role: "r".into(), policy: "p".into() });
    let event_reasons = |steps: &[_]| {
        let mut plan = plan(progressing(Phase::Creating));
        plan.steps = steps.to_vec();
        let events = report(&InstanceGroupStatus::default(), &applied(plan, None), None, NOW).step_events;
        events.into_iter().map(|event| event.reason).collect::<Vec<_>>()
    };
    assert_eq!(event_reasons(&[role, policy.clone()]), ["RoleCreated"]);
    assert_eq!(event_reasons(&[policy]), ["RoleUpdated"]);
}

#[test]
fn event_of_missing_nodes_counts_them_and_says_what_is_waited_for() {
    let old = InstanceGroupStatus {
        conditions: vec![Condition::new("NodesReady", true, "NodesReady", "2 of 2 nodes are ready")],
        ..InstanceGroupStatus::default()
    };
    let message = "EKS is working on the node group".to_owned();
    let outcome = Outcome::Progressing { phase: Phase::Modifying, message, recheck: Recheck::Poll };
    let mut plan = plan(outcome);
    plan.status_update.fields.insert("nodes".into(), json!({"desired": 2, "ready": 1}));
    let events = report(&old, &applied(plan, None), None, NOW).transition_events;
    let event = events.iter().find(|event| event.reason == "InstanceGroupNodesNotReady").expect("an event");
    assert_eq!(event.message, "1 of 2 nodes are ready; EKS is working on the node group");
}

/// An autoscaler adds nodes all day. A warning about each of them would hide those about nodes that fail.
#[test]
fn nodes_that_are_to_come_cause_no_warning() {
    let old = InstanceGroupStatus {
        conditions: vec![Condition::new("NodesReady", true, "NodesReady", "2 of 2 nodes are ready")],
        nodes: serde_json::from_value(json!({"desired": 2, "ready": 2})).expect("counts"),
        ..InstanceGroupStatus::default()
    };
    let warns = |desired: i64, ready: i64| {
        let mut plan = plan(progressing(Phase::Modifying));
        plan.status_update.fields.insert("nodes".into(), json!({"desired": desired, "ready": ready}));
        let events = report(&old, &applied(plan, None), None, NOW).transition_events;
        events.iter().any(|event| event.reason == "InstanceGroupNodesNotReady")
    };
    assert!(!warns(3, 2), "one more is starting");
    assert!(warns(3, 1), "one was lost as well");
    assert!(warns(2, 1));
}

/// Two conditions that contradict each other make both worthless.
#[test]
fn unavailable_boundaries_are_not_applied() {
    let boundaries = BoundariesSummary { hash: "h".into(), revision: "r".into(), ..BoundariesSummary::default() };
    let merged =
        report(&InstanceGroupStatus::default(), &applied(plan(Outcome::Converged), None), Some(&boundaries), NOW);
    let before = status_after(&merged);
    let condition = |status: &InstanceGroupStatus| {
        let found = status.conditions.iter().find(|c| c.r#type == "BoundariesApplied").expect("a condition");
        (found.status.clone(), found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default())
    };
    assert_eq!(condition(&before).0, "True");
    let message = "the ConfigMap is broken".to_owned();
    let outcome =
        Outcome::Blocked { reason: StalledReason::BoundariesUnavailable, message: message.clone(), is_deleting: false };
    let report_of =
        |old: &InstanceGroupStatus, outcome: Outcome, summary| report(old, &applied(plan(outcome), None), summary, NOW);
    let broken = report_of(&before, outcome, None);
    let mut patched = json!(before);
    instance_manager::api::apply_merge_patch(&mut patched, broken.patch.as_ref().expect("a patch"));
    let after: InstanceGroupStatus = serde_json::from_value(patched).expect("a status");
    assert_eq!(condition(&after), ("False".into(), "BoundariesUnavailable".into(), message));
    assert_eq!(broken.transition_events.len(), 1, "{:?}", broken.transition_events);
    let good = BoundariesSummary { last_known_good: Some("broken".into()), ..boundaries.clone() };
    let stored = report_of(&after, Outcome::Converged, Some(&good)).transition_events;
    assert!(stored.iter().any(|event| event.reason == "UsingLastKnownGood"), "{stored:?}");
}

#[test]
fn times_are_whole_seconds() {
    assert_eq!(rfc3339("2026-01-02T00:00:00.123456789Z".parse().expect("a time")), NOW);
}

fn adopted(status: &InstanceGroupStatus) -> (String, String) {
    let condition = status.conditions.iter().find(|c| c.r#type == "Adopted").expect("an Adopted condition");
    (condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default())
}

#[test]
fn missing_tags_are_reported_until_present() {
    let note = ConditionUpdate {
        condition_type: "Adopted",
        status: true,
        reason: "ResourcesAdopted".into(),
        message: "adopted".into(),
    };
    let report_adoption = |old: &InstanceGroupStatus, permissions: &[&str], error| {
        let plan = Plan { condition_updates: vec![note.clone()], ..plan(Outcome::Converged) };
        let tag_denials =
            permissions.iter().map(|name| TagDenied { step_index: 0, permission: (*name).to_owned() }).collect();
        report(old, &Applied { tag_denials, ..applied(plan, error) }, None, NOW)
    };
    let denied = report_adoption(&InstanceGroupStatus::default(), &["iam:TagRole"], None);
    let status = status_after(&denied);
    assert_eq!(adopted(&status).0, "TaggingDenied");
    assert!(adopted(&status).1.ends_with("the controller's IAM role lacks iam:TagRole"), "{}", adopted(&status).1);

    let again = report_adoption(&status, &["iam:TagRole"], None);
    assert_eq!((again.patch, again.transition_events), (None, vec![]));
    let stopped = report_adoption(&status, &[], Some(StepError::Locked(LockHolder::Group)));
    assert_eq!(adopted(&status_after(&stopped)).0, "TaggingDenied");
    let tagged = report_adoption(&status, &[], None);
    assert_eq!(tagged.transition_events, vec![]);
    assert_eq!(adopted(&status_after(&tagged)), ("ResourcesAdopted".to_owned(), "adopted".to_owned()));
}

/// A status of an earlier release is written once, and a denial that ended is no longer on record.
#[test]
fn denied_tags_are_on_record_while_the_condition_reports_them() {
    let after = |old: &InstanceGroupStatus, report: &Report| -> InstanceGroupStatus {
        let mut status = json!(old);
        instance_manager::api::apply_merge_patch(&mut status, report.patch.as_ref().expect("a patch"));
        serde_json::from_value(status).expect("a status")
    };
    let is_recorded = |status: &InstanceGroupStatus| status.managed.as_ref().expect("a record").tagging_denied;
    let adopted = Condition::new("Adopted", true, "NotTagged", "adopted");
    let before: InstanceGroupStatus =
        serde_json::from_value(json!({"managed": {}, "conditions": [adopted]})).expect("a status");
    let denied = after(&before, &report_for(&before, Outcome::Converged));
    assert!(is_recorded(&denied));
    assert_eq!(report_for(&denied, Outcome::Converged).patch, None);
    let note = ConditionUpdate {
        condition_type: "Adopted",
        status: true,
        reason: "ResourcesAdopted".into(),
        message: "adopted".into(),
    };
    let retried = Plan { condition_updates: vec![note], ..plan(Outcome::Converged) };
    let tagged = report(&denied, &applied(retried, None), None, NOW);
    assert!(!is_recorded(&after(&denied, &tagged)));
}

/// Reported as progress, denied tags would be retried immediately.
#[test]
fn only_denied_tags_is_blocked() {
    let reported = |steps: &[Step], outcome: Outcome, tag_denials: Vec<TagDenied>| {
        let plan = Plan { steps: steps.iter().cloned().map(PlannedStep::from).collect(), ..plan(outcome) };
        report(&InstanceGroupStatus::default(), &Applied { tag_denials, ..applied(plan, None) }, None, NOW)
    };
    let denied = || vec![TagDenied { step_index: 0, permission: "eks:TagResource".to_owned() }];
    let outcome_of = |steps: &[Step], outcome: Outcome| reported(steps, outcome, denied()).outcome.expect("an outcome");
    let tag =
        FargateStep::TagFargateProfile { cluster: "demo".into(), profile: "p".into(), arn: "arn".into(), tags: vec![] }
            .into();
    let soon =
        Outcome::Progressing { phase: Phase::Modifying, message: "in progress".into(), recheck: Recheck::Immediately };
    for (outcome, expects_deleting) in [(soon.clone(), false), (progressing(Phase::Deleting), true)] {
        let Outcome::Blocked { reason, message, is_deleting } = outcome_of(std::slice::from_ref(&tag), outcome) else {
            panic!("the outcome is not blocked")
        };
        assert_eq!((reason, is_deleting), (StalledReason::MissingPermission, expects_deleting));
        assert!(message.contains("eks:TagResource"), "{message}");
    }
    let changed = |tag_denials| {
        let events = reported(std::slice::from_ref(&tag), soon.clone(), tag_denials).step_events;
        events.iter().any(|event| event.message.contains("changed the tags"))
    };
    assert_eq!((changed(vec![]), changed(denied())), (true, false), "denied tags cause no event");
    let more = [tag, IamStep::DeleteRole { role: "r".into() }.into()];
    assert_eq!(outcome_of(&more, soon.clone()), soon, "other changes are observed first");
}

/// Both nodes were dead while a call was refused, and the status said that both are ready.
#[test]
fn dead_nodes_are_reported_while_a_step_fails_or_the_group_is_deleted() {
    let old = InstanceGroupStatus {
        conditions: vec![Condition::new("NodesReady", true, "NodesReady", "2 of 2 nodes are ready")],
        ..InstanceGroupStatus::default()
    };
    for (outcome, error) in [
        (progressing(Phase::Modifying), Some(StepError::GroupGone)),
        (progressing(Phase::Modifying), None),
        (progressing(Phase::Deleting), None),
    ] {
        let mut plan = plan(outcome.clone());
        plan.status_update.fields.insert("nodes".into(), json!({"desired": 2, "ready": 0}));
        let report = report(&old, &applied(plan, error), None, NOW);
        let patch = report.patch.expect("a patch");
        let conditions = patch["conditions"].as_array().expect("conditions").clone();
        let found = conditions.iter().find(|c| c["type"] == "NodesReady").expect("a condition");
        assert_eq!(
            (&found["status"], &found["message"]),
            (&json!("False"), &json!("0 of 2 nodes are ready")),
            "{outcome:?}"
        );
        let has_event = report.transition_events.iter().any(|e| e.reason == "InstanceGroupNodesNotReady");
        assert_eq!(has_event, outcome == progressing(Phase::Modifying), "a deletion has events of its own");
    }
}
