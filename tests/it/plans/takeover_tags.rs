//! Tags that AWS denied at the adoption are set once the controller has the permission.

use instance_manager::api::conditions::Condition;
use instance_manager::plan::ObjectStep;

use super::*;

const ADOPTION_MESSAGE: &str = "adopted at template version 1; nothing differs";

/// A group that was adopted without permission to tag: only the scaling group has the ownership tags.
fn untagged() -> Scenario {
    converged().with(|s| {
        s.state.template.as_mut().expect("a template").tags.clear();
        let profile = s.state.instance_profile.as_mut().expect("a profile");
        profile.tags.clear();
        profile.role.as_mut().expect("a role").tags.clear();
        let message =
            format!("{ADOPTION_MESSAGE}; not tagged, which blocks deletion: the controller's IAM role lacks tag");
        s.status.conditions.push(Condition::new("Adopted", true, "TaggingDenied", message));
    })
}

fn adoption_conditions(plan: &Plan) -> Vec<(&str, &str)> {
    let conditions = plan.condition_updates.iter().filter(|condition| condition.condition_type == "Adopted");
    conditions.map(|condition| (condition.reason.as_str(), condition.message.as_str())).collect()
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
    let recorded_before = untagged().with(|s| {
        let mut status = json!(s.status);
        instance_manager::api::apply_merge_patch(&mut status, &recorded);
        s.status = serde_json::from_value(status).expect("a status");
    });
    assert_eq!(step_names(&recorded_before.plan()), ["TagTemplate", "TagRole", "TagProfile"]);
    let reworded = recorded_before.with(|s| s.status.conditions[0].message = Some("reworded since".into()));
    assert_eq!(
        adoption_conditions(&reworded.plan()),
        [("ResourcesAdopted", ADOPTION_MESSAGE)],
        "the record is used, not the condition"
    );
}

#[test]
fn denied_tagging_is_not_retried_immediately() {
    let plan = untagged().with(|s| s.state.tag_retry_pending = true).plan();
    assert_eq!((step_names(&plan), adoption_conditions(&plan)), (vec![], vec![]));
}

#[test]
fn tagged_or_foreign_resources_are_not_tagged() {
    let tagged = untagged().with(|s| {
        s.state.template.as_mut().expect("a template").tags = s.resolved.ownership_tags.clone();
        s.status.conditions[0].reason = Some("ResourcesAdopted".into());
    });
    assert_eq!(step_names(&tagged.plan()), Vec::<&str>::new());
    let foreign = untagged().with(|s| {
        s.state.instance_profile.as_mut().expect("a profile").arn = "arn:aws:iam::1:instance-profile/another".into();
        s.state.template.as_mut().expect("a template").tags =
            vec![Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "another".into() }];
    });
    assert_eq!(step_names(&foreign.plan()), Vec::<&str>::new());
}
