//! What a takeover could not tag, because the right was missing, is tagged once it is there.

use instance_manager::api::conditions::Condition;
use instance_manager::plan::{ObjectStep, PlannedStep};

use super::*;

const ADOPTION_MESSAGE: &str = "adopted at template version 1; nothing differs";

/// Taken over without the right to tag: nothing but the scaling group carries our tags.
fn untagged() -> Scenario {
    converged().with(|w| {
        w.state.template.as_mut().expect("a template").tags.clear();
        let profile = w.state.instance_profile.as_mut().expect("a profile");
        profile.tags.clear();
        profile.role.as_mut().expect("a role").tags.clear();
        let message =
            format!("{ADOPTION_MESSAGE}; not tagged, which blocks deletion: the controller's IAM role lacks tag");
        w.status.conditions.push(Condition::new("Adopted", true, "TaggingDenied", message));
    })
}

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|PlannedStep { step, .. }| step.name()).collect()
}

fn adoption_conditions(plan: &Plan) -> Vec<(&str, &str)> {
    let notes = plan.condition_updates.iter().filter(|note| note.condition_type == "Adopted");
    notes.map(|note| (note.reason.as_str(), note.message.as_str())).collect()
}

#[test]
fn denied_tagging_is_retried_while_converged() {
    let plan = untagged().plan();
    assert_eq!(step_names(&plan), ["UpdateStatus", "TagTemplate", "TagRole", "TagProfile"]);
    assert_eq!(plan.outcome, Outcome::Converged);
    assert_eq!(adoption_conditions(&plan), [("ResourcesAdopted", ADOPTION_MESSAGE)]);
}

#[test]
fn untagged_resources_are_recorded_before_tagging() {
    let recorded = json!({"managed": {"adopted": {
        "template": "lt-1", "role": "AROA-1", "profile": "AIPA-1", "summary": ADOPTION_MESSAGE,
    }}});
    let plan = untagged().plan();
    assert_eq!(plan.steps[0].step, ObjectStep::UpdateStatus { status: recorded.clone() }.into());
    let again = untagged().with(|w| {
        let mut status = json!(w.status);
        instance_manager::api::apply_merge_patch(&mut status, &recorded);
        w.status = serde_json::from_value(status).expect("a status");
    });
    assert_eq!(step_names(&again.plan()), ["TagTemplate", "TagRole", "TagProfile"]);
    let reworded = again.with(|w| w.status.conditions[0].message = Some("reworded since".into()));
    assert_eq!(adoption_conditions(&reworded.plan()), [("ResourcesAdopted", ADOPTION_MESSAGE)], "the record decides");
}

#[test]
fn denied_tagging_is_not_retried_immediately() {
    let plan = untagged().with(|w| w.state.tag_retry_pending = true).plan();
    assert_eq!((step_names(&plan), adoption_conditions(&plan)), (vec![], vec![]));
}

#[test]
fn tagged_or_foreign_resources_are_not_tagged() {
    let settled = untagged().with(|w| w.status.conditions[0].reason = Some("ResourcesAdopted".into()));
    assert_eq!(step_names(&settled.plan()), Vec::<&str>::new());
    let elsewhere = untagged().with(|w| {
        w.state.instance_profile.as_mut().expect("a profile").arn = "arn:aws:iam::1:instance-profile/another".into();
        w.state.template.as_mut().expect("a template").tags =
            vec![Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "another".into() }];
    });
    assert_eq!(step_names(&elsewhere.plan()), Vec::<&str>::new());
}
