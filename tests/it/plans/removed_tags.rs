//! Ownership tags that another client removed from a launch template, a role or an instance profile.

use instance_manager::api::conditions::Condition;
use instance_manager::plan::ObjectStep;
use instance_manager::provisioner::role_region::iam_tags;

use super::*;

/// A converged group whose template lost its tags, and whose role and profile were read for theirs.
fn stripped() -> Scenario {
    converged().with(|s| {
        s.status.managed.as_mut().expect("a record").role_region = Some("us-west-2".into());
        s.state.template.as_mut().expect("a template").tags.clear();
        s.state.role = s.state.instance_profile.as_ref().and_then(|profile| profile.role.clone());
    })
}

#[test]
fn removed_tags_are_restored_while_the_scaling_group_proves_the_owner() {
    let scenario = stripped();
    assert_eq!(step_names(&scenario.plan()), ["UpdateStatus", "TagTemplate", "TagRole", "TagProfile"]);
    let tags = scenario.resolved.ownership_tags.clone();
    let role_only = scenario.clone().with(|s| {
        s.state.template.as_mut().expect("a template").tags = tags.clone();
        s.state.instance_profile.as_mut().expect("a profile").tags = iam_tags(&tags, "us-west-2");
    });
    assert_eq!(step_names(&role_only.plan()), ["UpdateStatus", "TagRole"]);
    let other_group = scenario.clone().with(|s| {
        let foreign = vec![Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "api".into() }];
        s.state.template.as_mut().expect("a template").tags.clone_from(&foreign);
        s.state.role.as_mut().expect("a role").tags = foreign;
    });
    assert_eq!(step_names(&other_group.plan()), Vec::<&str>::new());
    let replaced = scenario.clone().with(|s| s.status.template.as_mut().expect("a record").id = Some("lt-0".into()));
    assert!(!step_names(&replaced.plan()).contains(&"TagTemplate"), "the group never recorded this template");
    let denied = scenario.with(|s| s.state.tag_retry_pending = true);
    assert_eq!(step_names(&denied.plan()), Vec::<&str>::new());
}

/// The deletion of a group whose template, role and profile have no tags.
fn deletion(s: &Scenario, scaling_group: Option<&ScalingGroup>, adopted: &AdoptedResources) -> Plan {
    let r = &s.resolved;
    delete::plan_deletion(&delete::DeleteInput {
        id: &r.desired.id,
        ownership_tags: &r.ownership_tags,
        scaling_group,
        members: &[],
        drains: &s.state.drains,
        template: s.state.template.as_ref(),
        has_derived_template_name: true,
        launch_configurations: &[],
        role: s.state.role.as_ref(),
        attached_policies: &r.managed_policies,
        removable_policies: &r.managed_policies,
        inline_policies: &[],
        instance_profile: s.state.instance_profile.as_ref(),
        region: &r.region,
        status: &s.status,
        adopted,
        aws_auth_entries: &[],
        access_entries: &[],
        kept_entries: &[],
        modified_auth_entries: &[],
        wait_for: None,
        unreadable_aws_auth: None,
        role_in_use: None,
        template_in_use: None,
        timing: &Timing::default(),
        drain_timeout: Timing::default().deletion_drain_timeout,
        now: timestamp(NOW),
    })
}

#[test]
fn deletion_records_what_the_empty_scaling_group_proves() {
    let scenario = stripped();
    let ids = AdoptedResources {
        template: Some("lt-1".into()),
        role: Some("AROA-1".into()),
        profile: Some("AIPA-1".into()),
        summary: None,
    };
    let empty = ScalingGroup {
        min: 0,
        suspended_processes: vec!["Launch".into()],
        instances: vec![],
        ..scenario.state.scaling_group.clone().expect("a group")
    };
    let plan = deletion(&scenario, Some(&empty), &ids);
    assert_eq!(step_names(&plan), ["UpdateStatus", "DeleteGroup"]);
    assert_eq!(plan.steps[0].step, ObjectStep::UpdateStatus { status: json!({"managed": {"adopted": ids}}) }.into());
    let recorded = scenario.with(|s| s.status.managed.as_mut().expect("a record").adopted = Some(ids.clone()));
    assert_eq!(step_names(&deletion(&recorded, Some(&empty), &ids)), ["DeleteGroup"]);
    let names = step_names(&deletion(&recorded, None, &ids));
    assert!(
        ["DeleteTemplate", "DeleteProfile", "DeleteRole", "RemoveFinalizer"].iter().all(|name| names.contains(name))
    );
}

/// Another client deleted the scaling group as well.
#[test]
fn deletion_reports_resources_that_nothing_proves() {
    let scenario = stripped().with(|s| s.status.template = None);
    let plan = deletion(&scenario, None, &AdoptedResources::default());
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    let update = &plan.condition_updates[0];
    assert_eq!((update.condition_type, update.reason.as_str()), ("ResourcesRetained", "OwnershipUnproven"));
    for named in ["launch template demo-team-web-", "instance profile demo-team-web", "IAM role demo-team-web"] {
        assert!(update.message.contains(named), "{}", update.message);
    }
    let reported = scenario.clone().with(|s| {
        s.status.conditions.push(Condition::new("ResourcesRetained", true, "OwnershipUnproven", ""));
    });
    assert_eq!(step_names(&deletion(&reported, None, &AdoptedResources::default())), ["RemoveFinalizer"]);
    let given = scenario.with(|s| {
        s.state.template = None;
        s.status.managed.as_mut().expect("a record").policies.clear();
    });
    assert_eq!(
        step_names(&deletion(&given, None, &AdoptedResources::default())),
        ["RemoveFinalizer"],
        "a person's role"
    );
    let by_id = stripped();
    assert!(step_names(&deletion(&by_id, None, &AdoptedResources::default())).contains(&"DeleteTemplate"), "by its ID");
}
