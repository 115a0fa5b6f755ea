//! A group that changes between its own role and one that the spec names.

use instance_manager::provisioner::eks::observed::UnusedRole;
use instance_manager::provisioner::role_users::KeptEntry;

use super::*;

const GIVEN: &str = "eks: {configuration: {roleName: given}}";
const EXTRA: &str = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore";

/// What the status records once the plan is applied.
fn recorded(scenario: &Scenario, plan: &Plan) -> ManagedAttributes {
    let mut status = json!(scenario.status);
    for planned in &plan.steps {
        if let Step::Object(instance_manager::plan::ObjectStep::UpdateStatus { status: written }) = &planned.step {
            instance_manager::api::apply_merge_patch(&mut status, written);
        }
    }
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    status.managed.unwrap_or_default()
}

/// The policies that the status records once the plan is applied.
fn recorded_policies(scenario: &Scenario, plan: &Plan) -> Vec<String> {
    recorded(scenario, plan).policies
}

/// A converged group whose spec names a role, and whose status records the policies on the role that it had before.
fn changed_to_given() -> Scenario {
    let own = converged().resolved.managed_policies;
    converged_with(resolved(GIVEN, &[])).with(|s| {
        (s.state.instance_profile, s.state.attached_policies) = (None, Vec::new());
        s.status.managed.as_mut().expect("a record").policies = own.into_iter().chain([EXTRA.to_owned()]).collect();
    })
}

fn unused_role(scenario: &Scenario) -> UnusedRole {
    let profile = converged().state.instance_profile.expect("a profile");
    let tags = scenario.resolved.ownership_tags.clone();
    let role = Role { tags: tags.clone(), ..profile.role.clone().expect("a role") };
    UnusedRole {
        role: Some(role),
        profile: Some(InstanceProfile { tags, ..profile }),
        attached_policies: scenario.status.managed.as_ref().expect("a record").policies.clone(),
        ..UnusedRole::default()
    }
}

/// Otherwise the next pass would remove the entry of the role before, with whose credentials nodes still run. A record that
/// stayed would keep the entries of later roles.
#[test]
fn time_at_which_the_role_in_the_profile_was_exchanged_is_recorded_while_it_matters() {
    let exchanged = changed_to_given().with(|s| s.state.previous_roles.exchanged_at = Some(timestamp(LONG_AGO)));
    let recorded_at = |s: &Scenario| recorded(s, &s.plan()).role_exchanged_at;
    assert_eq!(recorded_at(&exchanged), Some(timestamp(LONG_AGO).to_string()));
    let is_over = changed_to_given().with(|s| {
        s.status.managed.as_mut().expect("a record").role_exchanged_at = Some(timestamp(LONG_AGO).to_string());
    });
    assert_eq!(recorded_at(&is_over), None);
}

/// IAM does not delete a role that another instance profile holds, and the group would never be Ready.
#[test]
fn own_role_that_another_instance_profile_holds_stays_without_its_group() {
    let scenario = changed_to_given();
    let held = UnusedRole { other_profiles: vec!["of-a-person".into()], ..unused_role(&scenario) };
    let plan = scenario.with(|s| s.state.unused_role = Some(held)).plan();
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    assert!(plan.events.iter().any(|event| event.message.contains("of-a-person")), "{:?}", plan.events);
}

/// A person removes the record just after the spec has named another role: the group's own role would stay forever.
#[test]
fn own_role_that_nothing_records_is_found_again() {
    let lost = changed_to_given().with(|s| {
        s.status.managed = None;
        s.state.unrecorded_policies = vec![EXTRA.into()];
    });
    assert_eq!(recorded_policies(&lost, &lost.plan()), [EXTRA]);
}

/// Otherwise the deletion would call the controller's own policy another owner's, and a policy that is no longer wanted would
/// stay when the group takes its own role back.
#[test]
fn record_of_policies_outlasts_a_given_role() {
    let scenario = changed_to_given();
    let plan = scenario.plan();
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    assert!(recorded_policies(&scenario, &plan).contains(&EXTRA.to_owned()));
    let recorded = scenario.status.managed.clone().expect("a record").policies;
    let own_role_again = converged().with(|s| {
        s.status.managed.as_mut().expect("a record").policies = recorded.clone();
        s.state.attached_policies = recorded.clone();
    });
    let detached: Vec<_> = own_role_again
        .plan()
        .steps
        .iter()
        .filter_map(|planned| match &planned.step {
            Step::Iam(IamStep::DetachPolicy { policy, .. }) => Some(policy.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(detached, [EXTRA]);
}

#[test]
fn unused_role_is_deleted_and_then_forgotten() {
    let unused = changed_to_given().with(|s| s.state.unused_role = Some(unused_role(s)));
    let names = step_names(&unused.plan());
    assert_eq!(names[..2], ["RemoveRoleFromProfile", "DeleteProfile"]);
    assert_eq!(names.last(), Some(&"DeleteRole"));
    assert_eq!(names.iter().filter(|name| **name == "DetachPolicy").count(), 4);
    let entry = instance_manager::aws::AccessEntry {
        principal: "arn".into(),
        kind: "EC2_LINUX".into(),
        created: None,
        tags: vec![],
    };
    let with_entry = |role| UnusedRole { access_entry: Some(entry.clone()), ..role };
    let entered = unused.clone().with(|s| s.state.unused_role = Some(with_entry(unused_role(s))));
    assert_eq!(step_names(&entered.plan())[0], "RemoveAccessEntry", "it would lock out the next role of that name");
    let deleted_by_user = unused.clone().with(|s| s.state.unused_role = Some(with_entry(UnusedRole::default())));
    assert_eq!(step_names(&deleted_by_user.plan()), ["RemoveAccessEntry"]);
    let gone = unused.clone().with(|s| s.state.unused_role = Some(UnusedRole::default()));
    let plan = gone.plan();
    assert_eq!((step_names(&plan), recorded_policies(&gone, &plan)), (vec!["UpdateStatus"], vec![]));
    let changing = unused.with_spec("eks: {maxSize: 5, configuration: {roleName: given}}");
    assert!(!step_names(&changing.plan()).contains(&"DeleteRole"), "other changes come first");
}

#[test]
fn unused_role_with_foreign_policies_is_kept() {
    for keep in [
        |role: &mut UnusedRole| role.inline_policies.push("theirs".into()),
        |role: &mut UnusedRole| role.attached_policies.push("arn:aws:iam::1:policy/theirs".into()),
    ] {
        let scenario = changed_to_given().with(|s| {
            s.state.unused_role = Some(unused_role(s));
            keep(s.state.unused_role.as_mut().expect("a role"));
        });
        let plan = scenario.plan();
        assert_eq!((step_names(&plan), &plan.outcome), (vec![], &Outcome::Converged));
        assert!(plan.events.iter().any(|event| event.message.contains("theirs")), "{:?}", plan.events);
    }
}

/// Nodes of eksctl or Terraform joined through the entry, because the controller created it before they could.
#[test]
fn entry_of_a_given_role_stays_for_other_nodes() {
    let kept = KeptEntry { role_arn: "arn:aws:iam::1:role/given".into(), user: "the instance i-9".into() };
    let scenario = changed_to_given();
    let r = &scenario.resolved;
    let (entries, modified) = ([kept.clone()], ["arn:aws:iam::1:role/changed".to_owned()]);
    let adopted = AdoptedResources::default();
    let timing = Timing::default();
    let delete_beside = |status: &InstanceGroupStatus, own: Option<&UnusedRole>, user: Option<&str>| {
        delete::plan_deletion(&delete::DeleteInput {
            id: &r.desired.id,
            ownership_tags: &r.ownership_tags,
            scaling_group: None,
            members: &[],
            drains: &scenario.state.drains,
            template: None,
            has_derived_template_name: true,
            launch_configurations: &[],
            role: own.and_then(|own| own.role.as_ref()),
            attached_policies: &[],
            removable_policies: &[],
            inline_policies: &[],
            instance_profile: own.and_then(|own| own.profile.as_ref()),
            region: &r.region,
            status,
            adopted: &adopted,
            aws_auth_entries: &[],
            access_entries: &[],
            kept_entries: &entries,
            modified_auth_entries: &modified,
            wait_for: None,
            unreadable_aws_auth: None,
            role_in_use: user,
            template_in_use: None,
            timing: &timing,
            drain_timeout: Timing::default().deletion_drain_timeout,
            now: timestamp(NOW),
        })
    };
    let delete = |status: &InstanceGroupStatus| delete_beside(status, None, None);
    let plan = delete(&scenario.status);
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    let update = &plan.condition_updates[0];
    assert_eq!((update.condition_type, update.reason.as_str()), ("ResourcesRetained", "RoleInUse"));
    assert!(update.message.contains("i-9") && update.message.contains("role/changed"), "{}", update.message);
    let mut reported = scenario.status.clone();
    reported.conditions.push(instance_manager::api::conditions::Condition::new(
        "ResourcesRetained",
        true,
        "RoleInUse",
        "",
    ));
    assert_eq!(step_names(&delete(&reported)), ["RemoveFinalizer"]);
    // The group's own role, with which another group or a detached instance runs nodes: they would lose the cluster.
    let own = unused_role(&scenario);
    let unused = step_names(&delete_beside(&reported, Some(&own), None)).join(" ");
    assert!(unused.contains("DeleteProfile") && unused.contains("DeleteRole"), "{unused}");
    let used = delete_beside(&scenario.status, Some(&own), Some("the InstanceGroup team/b"));
    assert!(used.condition_updates.iter().any(|update| update.message.contains("team/b uses the role")), "{used:?}");
    assert_eq!(
        step_names(&delete_beside(&reported, Some(&own), Some("the InstanceGroup team/b"))),
        ["RemoveFinalizer"]
    );
    let left = scenario.clone().with(|s| s.state.previous_roles.kept = vec![kept]);
    assert!(left.plan().events.iter().any(|event| event.reason == "JoinEntryRetained"));
}
