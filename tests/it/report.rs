//! What a status tells of each outcome, which events a transition gives, and that nothing is written when nothing changed.

use std::collections::BTreeMap;

use instance_manager::api::{InstanceGroupStatus, stamp};
use instance_manager::apply::{Applied, Stopped, Untagged};
use instance_manager::aws::NewRole;
use instance_manager::controller::report::{Report, report};
use instance_manager::plan::FargateStep;
use instance_manager::plan::{Facts, IamStep, Note, Outcome, Phase, Plan, Planned, Reason, Recheck, Step};
use serde_json::json;

const NOW: &str = "2026-01-02T00:00:00Z";

fn plan(outcome: Outcome) -> Plan {
    let nodes = json!({"desired": 3, "ready": 3, "updated": 3, "outdated": 0, "draining": 0});
    Plan {
        group: "team/web".into(),
        generation: 3,
        steps: vec![],
        outcome,
        facts: Facts { status: BTreeMap::from([("nodes".to_owned(), nodes)]), nodes_ready: None },
        notes: vec![],
        events: vec![],
        wake: None,
    }
}

fn applied(plan: Plan, stopped: Option<Stopped>) -> Applied {
    Applied { done: plan.steps.len(), plan, stopped, refusals: vec![], untagged: vec![], resource_version: None }
}

fn told(old: &InstanceGroupStatus, outcome: Outcome) -> Report {
    report(old, &applied(plan(outcome), None), None, NOW)
}

fn progressing(phase: Phase) -> Outcome {
    Outcome::Progressing { phase, message: "going on".into(), recheck: Recheck::Poll }
}

fn blocked(deleting: bool) -> Outcome {
    Outcome::Blocked { reason: Reason::InvalidSpec, message: "mend it".into(), deleting }
}

/// The status after a report.
fn after(report: &Report) -> InstanceGroupStatus {
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
        let status = after(&told(&InstanceGroupStatus::default(), outcome));
        assert_eq!(row(&status), expected);
        assert!(status.conditions.iter().all(|c| c.observed_generation == Some(3)));
        assert!(status.conditions.iter().all(|c| c.last_transition_time.as_deref() == Some(NOW)));
    }
}

#[test]
fn ready_counts_the_nodes() {
    let status = after(&told(&InstanceGroupStatus::default(), Outcome::Converged));
    assert_eq!(status.conditions[0].message.as_deref(), Some("3 of 3 nodes are ready"));
}

#[test]
fn what_has_not_changed_is_not_written_nor_told_again() {
    for outcome in [Outcome::Converged, progressing(Phase::Rotating), blocked(false)] {
        let first = told(&InstanceGroupStatus::default(), outcome.clone());
        let again = told(&after(&first), outcome);
        assert_eq!((again.patch, again.events), (None, vec![]));
    }
}

#[test]
fn events_come_with_transitions() {
    let reasons = |report: &Report| report.events.iter().map(|e| e.reason.clone()).collect::<Vec<_>>();
    let stalled = told(&InstanceGroupStatus::default(), blocked(false));
    assert_eq!(reasons(&stalled), ["InvalidSpec"]);
    assert!(stalled.events[0].warning && stalled.events[0].message == "mend it");

    let halted = Outcome::Blocked { reason: Reason::ReplacementsNotReady, message: "i-1".into(), deleting: false };
    assert_eq!(reasons(&told(&after(&stalled), halted)), ["InstanceGroupUpgradeFailed"]);

    let nodes = |old: &InstanceGroupStatus, ready| {
        let mut plan = plan(progressing(Phase::Modifying));
        plan.facts.nodes_ready = Some(ready);
        report(old, &applied(plan, None), None, NOW)
    };
    let ready = nodes(&InstanceGroupStatus::default(), true);
    assert_eq!(reasons(&ready), ["InstanceGroupNodesReady"]);
    assert_eq!(reasons(&nodes(&after(&ready), false)), ["InstanceGroupNodesNotReady"]);
}

#[test]
fn a_deletion_that_is_done_writes_no_status() {
    let report = told(&InstanceGroupStatus::default(), Outcome::Deleted);
    assert_eq!(report.patch, None);
    assert_eq!(report.acts[0].reason, "InstanceGroupDeleted");
}

#[test]
fn who_does_not_lead_tells_nothing() {
    let applied = applied(plan(Outcome::Converged), Some(Stopped::NotLeading));
    assert_eq!(report(&InstanceGroupStatus::default(), &applied, None, NOW), Report::default());
}

#[test]
fn a_name_that_others_have_blocks_whatever_was_planned() {
    let applied = applied(plan(Outcome::Converged), Some(Stopped::NotOurs("demo-team-web".into())));
    let status = after(&report(&InstanceGroupStatus::default(), &applied, None, NOW));
    assert_eq!(row(&status), "Error False False True NotOurs");
}

#[test]
fn policies_that_come_with_a_new_role_are_no_event_of_their_own() {
    let because = |step: IamStep| Planned::new(step, vec![instance_manager::plan::Drift::new("role", "", "r")]);
    let role = because(IamStep::CreateRole(NewRole { name: "r".into(), trust: "{}".into(), tags: vec![] }));
    let policy = because(IamStep::AttachPolicy { role: "r".into(), policy: "p".into() });
    let acts = |steps: &[_]| {
        let mut plan = plan(progressing(Phase::Creating));
        plan.steps = steps.to_vec();
        let told = report(&InstanceGroupStatus::default(), &applied(plan, None), None, NOW).acts;
        told.into_iter().map(|told| told.reason).collect::<Vec<_>>()
    };
    assert_eq!(acts(&[role, policy.clone()]), ["RoleCreated"]);
    assert_eq!(acts(&[policy]), ["RoleUpdated"]);
}

#[test]
fn times_are_whole_seconds() {
    assert_eq!(stamp("2026-01-02T00:00:00.123456789Z".parse().expect("a time")), NOW);
}

fn adopted(status: &InstanceGroupStatus) -> (String, String) {
    let told = status.conditions.iter().find(|c| c.r#type == "Adopted").expect("the condition");
    (told.reason.clone().unwrap_or_default(), told.message.clone().unwrap_or_default())
}

#[test]
fn missing_tags_are_told_until_they_are_there() {
    let note = Note { condition: "Adopted", status: true, reason: "TakenOver".into(), message: "as it was".into() };
    let taken_over = |old: &InstanceGroupStatus, untagged: &[&str], stopped| {
        let plan = Plan { notes: vec![note.clone()], ..plan(Outcome::Converged) };
        let untagged = untagged.iter().map(|right| Untagged { step: 0, right: (*right).to_owned() }).collect();
        report(old, &Applied { untagged, ..applied(plan, stopped) }, None, NOW)
    };
    let refused = taken_over(&InstanceGroupStatus::default(), &["iam:TagRole"], None);
    let status = after(&refused);
    assert_eq!(adopted(&status).0, "NotTagged");
    assert!(adopted(&status).1.ends_with("the controller may not iam:TagRole"), "{}", adopted(&status).1);

    let again = taken_over(&status, &["iam:TagRole"], None);
    assert_eq!((again.patch, again.events), (None, vec![]));
    let stopped = taken_over(&status, &[], Some(Stopped::Locked("the InstanceGroup")));
    assert_eq!(adopted(&after(&stopped)).0, "NotTagged");
    let tagged = taken_over(&status, &[], None);
    assert_eq!(tagged.events, vec![]);
    assert_eq!(adopted(&after(&tagged)), ("TakenOver".to_owned(), "as it was".to_owned()));
}

/// The next pass is planned from what this one tells: told as progress, a refusal would be asked for again at once.
#[test]
fn a_pass_of_nothing_but_tags_that_were_refused_is_blocked() {
    let reported = |steps: &[Step], outcome: Outcome, untagged: Vec<Untagged>| {
        let plan = Plan { steps: steps.iter().cloned().map(Planned::from).collect(), ..plan(outcome) };
        report(&InstanceGroupStatus::default(), &Applied { untagged, ..applied(plan, None) }, None, NOW)
    };
    let refused = || vec![Untagged { step: 0, right: "eks:TagResource".to_owned() }];
    let told = |steps: &[Step], outcome: Outcome| reported(steps, outcome, refused()).outcome.expect("an outcome");
    let tag =
        FargateStep::TagFargateProfile { cluster: "demo".into(), profile: "p".into(), arn: "arn".into(), tags: vec![] }
            .into();
    let soon = Outcome::Progressing { phase: Phase::Modifying, message: "going on".into(), recheck: Recheck::Soon };
    for (outcome, wanted) in [(soon.clone(), false), (progressing(Phase::Deleting), true)] {
        let Outcome::Blocked { reason, message, deleting } = told(std::slice::from_ref(&tag), outcome) else {
            panic!("it is blocked")
        };
        assert_eq!((reason, deleting), (Reason::MissingPermission, wanted));
        assert!(message.contains("eks:TagResource"), "{message}");
    }
    let changed = |untagged| {
        let acts = reported(std::slice::from_ref(&tag), soon.clone(), untagged).acts;
        acts.iter().any(|act| act.message.contains("changed the tags"))
    };
    assert_eq!((changed(vec![]), changed(refused())), (true, false), "what was refused is no event");
    let more = [tag, IamStep::DeleteRole { role: "r".into() }.into()];
    assert_eq!(told(&more, soon.clone()), soon, "what else was done is looked at first");
}
