//! What a status tells of each outcome, which events a transition gives, and that nothing is written when nothing changed.

use std::collections::BTreeMap;

use instance_manager::api::{InstanceGroupStatus, rfc3339};
use instance_manager::apply::{Applied, StepError, TagDenied};
use instance_manager::aws::NewRole;
use instance_manager::controller::report::{Report, report};
use instance_manager::plan::FargateStep;
use instance_manager::plan::{
    ConditionUpdate, IamStep, Outcome, Phase, Plan, PlannedStep, Reason, Recheck, StatusUpdate, Step,
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
        status_update: StatusUpdate { fields: BTreeMap::from([("nodes".to_owned(), nodes)]), nodes_ready: None },
        condition_updates: vec![],
        events: vec![],
        recheck_at: None,
    }
}

fn applied(plan: Plan, error: Option<StepError>) -> Applied {
    Applied {
        steps_done: plan.steps.len(),
        plan,
        error,
        blocked_evictions: vec![],
        tag_denials: vec![],
        resource_version: None,
    }
}

fn report_for(old: &InstanceGroupStatus, outcome: Outcome) -> Report {
    report(old, &applied(plan(outcome), None), None, NOW)
}

fn progressing(phase: Phase) -> Outcome {
    Outcome::Progressing { phase, message: "going on".into(), recheck: Recheck::Poll }
}

fn blocked(is_deleting: bool) -> Outcome {
    Outcome::Blocked { reason: Reason::InvalidSpec, message: "mend it".into(), is_deleting }
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
fn each_outcome_has_its_state_and_its_three_conditions() {
    for (outcome, expected) in [
        (Outcome::Converged, "Ready True False False"),
        (progressing(Phase::Creating), "InitCreate False True False"),
        (progressing(Phase::Modifying), "ReconcileModifying False True False"),
        (progressing(Phase::Rotating), "InitUpgrade False True False"),
        (Outcome::Locked { message: "held".into() }, "Locked False False True Locked"),
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
fn ready_counts_the_nodes() {
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
    assert!(stalled.transition_events[0].is_warning() && stalled.transition_events[0].message == "mend it");

    let halted = Outcome::Blocked { reason: Reason::ReplacementsNotReady, message: "i-1".into(), is_deleting: false };
    assert_eq!(reasons(&report_for(&status_after(&stalled), halted)), ["InstanceGroupUpgradeFailed"]);

    let nodes = |old: &InstanceGroupStatus, ready| {
        let mut plan = plan(progressing(Phase::Modifying));
        plan.status_update.nodes_ready = Some(ready);
        report(old, &applied(plan, None), None, NOW)
    };
    let ready = nodes(&InstanceGroupStatus::default(), true);
    assert_eq!(reasons(&ready), ["InstanceGroupNodesReady"]);
    assert_eq!(reasons(&nodes(&status_after(&ready), false)), ["InstanceGroupNodesNotReady"]);
}

#[test]
fn completed_deletion_writes_no_status() {
    let report = report_for(&InstanceGroupStatus::default(), Outcome::Deleted);
    assert_eq!(report.patch, None);
    assert_eq!(report.step_events[0].reason, "InstanceGroupDeleted");
}

#[test]
fn non_leader_reports_nothing() {
    let applied = applied(plan(Outcome::Converged), Some(StepError::NotLeading));
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
    let because = |step: IamStep| PlannedStep::new(step, vec![instance_manager::plan::Drift::new("role", "", "r")]);
    let role = because(IamStep::CreateRole(NewRole { name: "r".into(), trust_policy: "{}".into(), tags: vec![] }));
    let policy = because(IamStep::AttachPolicy { role: "r".into(), policy: "p".into() });
    let acts = |steps: &[_]| {
        let mut plan = plan(progressing(Phase::Creating));
        plan.steps = steps.to_vec();
        let told = report(&InstanceGroupStatus::default(), &applied(plan, None), None, NOW).step_events;
        told.into_iter().map(|told| told.reason).collect::<Vec<_>>()
    };
    assert_eq!(acts(&[role, policy.clone()]), ["RoleCreated"]);
    assert_eq!(acts(&[policy]), ["RoleUpdated"]);
}

#[test]
fn times_are_whole_seconds() {
    assert_eq!(rfc3339("2026-01-02T00:00:00.123456789Z".parse().expect("a time")), NOW);
}

fn adopted(status: &InstanceGroupStatus) -> (String, String) {
    let told = status.conditions.iter().find(|c| c.r#type == "Adopted").expect("the condition");
    (told.reason.clone().unwrap_or_default(), told.message.clone().unwrap_or_default())
}

#[test]
fn missing_tags_are_reported_until_present() {
    let note = ConditionUpdate {
        condition_type: "Adopted",
        status: true,
        reason: "ResourcesAdopted".into(),
        message: "as it was".into(),
    };
    let taken_over = |old: &InstanceGroupStatus, permissions: &[&str], error| {
        let plan = Plan { condition_updates: vec![note.clone()], ..plan(Outcome::Converged) };
        let tag_denials =
            permissions.iter().map(|right| TagDenied { step_index: 0, permission: (*right).to_owned() }).collect();
        report(old, &Applied { tag_denials, ..applied(plan, error) }, None, NOW)
    };
    let refused = taken_over(&InstanceGroupStatus::default(), &["iam:TagRole"], None);
    let status = status_after(&refused);
    assert_eq!(adopted(&status).0, "TaggingDenied");
    assert!(adopted(&status).1.ends_with("the controller's IAM role lacks iam:TagRole"), "{}", adopted(&status).1);

    let again = taken_over(&status, &["iam:TagRole"], None);
    assert_eq!((again.patch, again.transition_events), (None, vec![]));
    let stopped = taken_over(&status, &[], Some(StepError::Locked("the InstanceGroup")));
    assert_eq!(adopted(&status_after(&stopped)).0, "TaggingDenied");
    let tagged = taken_over(&status, &[], None);
    assert_eq!(tagged.transition_events, vec![]);
    assert_eq!(adopted(&status_after(&tagged)), ("ResourcesAdopted".to_owned(), "as it was".to_owned()));
}

/// The next pass is planned from what this one tells: told as progress, a refusal would be asked for again at once.
#[test]
fn only_denied_tags_is_blocked() {
    let reported = |steps: &[Step], outcome: Outcome, tag_denials: Vec<TagDenied>| {
        let plan = Plan { steps: steps.iter().cloned().map(PlannedStep::from).collect(), ..plan(outcome) };
        report(&InstanceGroupStatus::default(), &Applied { tag_denials, ..applied(plan, None) }, None, NOW)
    };
    let refused = || vec![TagDenied { step_index: 0, permission: "eks:TagResource".to_owned() }];
    let told = |steps: &[Step], outcome: Outcome| reported(steps, outcome, refused()).outcome.expect("an outcome");
    let tag =
        FargateStep::TagFargateProfile { cluster: "demo".into(), profile: "p".into(), arn: "arn".into(), tags: vec![] }
            .into();
    let soon =
        Outcome::Progressing { phase: Phase::Modifying, message: "going on".into(), recheck: Recheck::Immediately };
    for (outcome, wanted) in [(soon.clone(), false), (progressing(Phase::Deleting), true)] {
        let Outcome::Blocked { reason, message, is_deleting } = told(std::slice::from_ref(&tag), outcome) else {
            panic!("it is blocked")
        };
        assert_eq!((reason, is_deleting), (Reason::MissingPermission, wanted));
        assert!(message.contains("eks:TagResource"), "{message}");
    }
    let changed = |tag_denials| {
        let acts = reported(std::slice::from_ref(&tag), soon.clone(), tag_denials).step_events;
        acts.iter().any(|act| act.message.contains("changed the tags"))
    };
    assert_eq!((changed(vec![]), changed(refused())), (true, false), "what was refused is no event");
    let more = [tag, IamStep::DeleteRole { role: "r".into() }.into()];
    assert_eq!(told(&more, soon.clone()), soon, "what else was done is looked at first");
}
