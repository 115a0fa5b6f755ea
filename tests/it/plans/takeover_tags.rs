//! What a takeover could not tag, because the right was missing, is tagged once it is there.

use instance_manager::api::conditions::Condition;
use instance_manager::plan::{ObjectStep, Planned};

use super::*;

const TOLD: &str = "taken over at template version 1; nothing differs";

/// Taken over without the right to tag: nothing but the scaling group carries our tags.
fn untagged() -> World {
    plain().with(|w| {
        w.state.template.as_mut().expect("a template").tags.clear();
        let profile = w.state.profile.as_mut().expect("a profile");
        profile.tags.clear();
        profile.role.as_mut().expect("a role").tags.clear();
        let message = format!("{TOLD}; not tagged, which deleting the group needs: the controller may not tag");
        w.status.conditions.push(Condition::new("Adopted", true, "NotTagged", message));
    })
}

fn names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|Planned { step, .. }| step.name()).collect()
}

fn adopted(plan: &Plan) -> Vec<(&str, &str)> {
    let notes = plan.notes.iter().filter(|note| note.condition == "Adopted");
    notes.map(|note| (note.reason.as_str(), note.message.as_str())).collect()
}

#[test]
fn what_could_not_be_tagged_is_tried_again_without_unsettling_the_group() {
    let plan = untagged().plan();
    assert_eq!(names(&plan), ["Record", "TagTemplate", "TagRole", "TagProfile"]);
    assert_eq!(plan.outcome, Outcome::Converged);
    assert_eq!(adopted(&plan), [("TakenOver", TOLD)]);
}

#[test]
fn what_has_no_tags_is_recorded_once_and_before_they_are_tried() {
    let recorded = json!({"managed": {"adopted": {"template": "lt-1", "role": "AROA-1", "profile": "AIPA-1"}}});
    let plan = untagged().plan();
    assert_eq!(plan.steps[0].step, ObjectStep::Record { status: recorded.clone() }.into());
    let again = untagged().with(|w| {
        let mut status = json!(w.status);
        instance_manager::api::merge_patch(&mut status, &recorded);
        w.status = serde_json::from_value(status).expect("a status");
    });
    assert_eq!(names(&again.plan()), ["TagTemplate", "TagRole", "TagProfile"]);
}

#[test]
fn a_refusal_is_not_tried_again_at_once() {
    let plan = untagged().with(|w| w.state.tagging_rests = true).plan();
    assert_eq!((names(&plan), adopted(&plan)), (vec![], vec![]));
}

#[test]
fn what_is_tagged_or_of_others_is_not_tagged_again() {
    let settled = untagged().with(|w| w.status.conditions[0].reason = Some("TakenOver".into()));
    assert_eq!(names(&settled.plan()), Vec::<&str>::new());
    let elsewhere = untagged().with(|w| {
        w.state.profile.as_mut().expect("a profile").arn = "arn:aws:iam::1:instance-profile/another".into();
        w.state.template.as_mut().expect("a template").tags =
            vec![Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "another".into() }];
    });
    assert_eq!(names(&elsewhere.plan()), Vec::<&str>::new());
}
