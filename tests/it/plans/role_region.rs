//! Clusters of one name in two regions: IAM is global, so their groups derive the same IAM names. A role of another
//! region is neither used by a new group, nor changed, nor deleted.

use instance_manager::api::conditions::Condition;
use instance_manager::provisioner::eks::observe::remaining_resources::recorded_names;
use instance_manager::provisioner::eks::ownership::name_conflict;
use instance_manager::provisioner::role_region::iam_tags;

use super::*;

const HERE: &str = "us-west-2";
const ELSEWHERE: &str = "eu-west-1";

/// A new group, and a role with its profile that a group of the same names created in a region (`None`: with an earlier
/// release), and where AWS reports its last use.
fn found(tagged: Option<&str>, last_used: Option<&str>) -> Scenario {
    let mut existing = converged();
    remove_scaling_group(&mut existing);
    new_group(resolved("{}", &[])).with(|s| read_role(s, &existing, tagged, last_used))
}

/// The role and the profile of a group were read with their tags.
fn read_role(s: &mut Scenario, existing: &Scenario, tagged: Option<&str>, last_used: Option<&str>) {
    let ownership = s.resolved.ownership_tags.clone();
    let tags = tagged.map_or(ownership.clone(), |region| iam_tags(&ownership, region));
    let profile = existing.state.instance_profile.clone().expect("a profile");
    let role = Role {
        tags: tags.clone(),
        last_used_region: last_used.map(str::to_owned),
        ..profile.role.clone().expect("a role")
    };
    s.state.instance_profile = Some(InstanceProfile { role: Some(role.clone()), tags, ..profile });
    s.state.role = Some(role);
}

/// A converged group whose nodes launch with that role.
fn running(tagged: Option<&str>, last_used: Option<&str>) -> Scenario {
    let existing = converged();
    converged().with(|s| read_role(s, &existing, tagged, last_used))
}

fn uses_other_names(scenario: &Scenario) -> bool {
    name_conflict(&scenario.resolved, &scenario.state, &scenario.status)
}

fn recorded(scenario: &Scenario) -> ManagedAttributes {
    let mut status = json!(scenario.status);
    for planned in &scenario.plan().steps {
        if let Step::Object(instance_manager::plan::ObjectStep::UpdateStatus { status: written }) = &planned.step {
            instance_manager::api::apply_merge_patch(&mut status, written);
        }
    }
    serde_json::from_value::<InstanceGroupStatus>(status).expect("a status").managed.unwrap_or_default()
}

#[test]
fn new_group_does_not_use_the_role_of_another_region() {
    for (scenario, must_rename) in [
        (found(Some(ELSEWHERE), Some(HERE)), true),
        (found(None, Some(ELSEWHERE)), true),
        (found(None, None), true),
        (found(Some(HERE), Some(ELSEWHERE)), false),
        (found(Some(HERE), None), false),
        (found(None, Some(HERE)), false),
    ] {
        assert_eq!(uses_other_names(&scenario), must_rename, "{:?}", scenario.state.role);
        let changes_iam = step_names(&scenario.plan()).contains(&"AttachPolicy");
        assert_eq!(changes_iam, !must_rename, "{:?}", scenario.state.role);
    }
    let interrupted = found(None, None).with(|s| s.status.managed = Some(ManagedAttributes::default()));
    assert!(!uses_other_names(&interrupted), "the status recorded the creation before");
}

#[test]
fn created_role_and_profile_name_the_region() {
    let scenario = new_group(resolved("{}", &[]));
    let tags: Vec<_> = scenario
        .plan()
        .steps
        .iter()
        .filter_map(|planned| match &planned.step {
            Step::Iam(IamStep::CreateRole(role)) => Some(role.tags.clone()),
            Step::Iam(IamStep::CreateProfile { tags, .. }) => Some(tags.clone()),
            _ => None,
        })
        .collect();
    let expected = iam_tags(&scenario.resolved.ownership_tags, HERE);
    assert_eq!(tags, [expected.clone(), expected]);
    assert_eq!(recorded(&scenario).role_region.as_deref(), Some(HERE), "so that it is never read for the tag");
}

#[test]
fn running_group_adds_the_region_once() {
    for last_used in [None, Some(HERE)] {
        let scenario = running(None, last_used);
        let plan = scenario.plan();
        assert_eq!(
            (step_names(&plan), &plan.outcome),
            (vec!["UpdateStatus", "TagRole", "TagProfile"], &Outcome::Converged)
        );
        let managed = recorded(&scenario);
        assert_eq!(managed.role_region.as_deref(), Some(HERE));
        let adopted = managed.adopted.expect("the IDs");
        assert_eq!((adopted.role.as_deref(), adopted.profile.as_deref()), (Some("AROA-1"), Some("AIPA-1")));
    }
    let tagged = running(Some(HERE), None);
    assert_eq!(step_names(&tagged.plan()), ["UpdateStatus"]);
    assert_eq!(recorded(&tagged).role_region.as_deref(), Some(HERE));
    assert_eq!(step_names(&running(None, Some(ELSEWHERE)).plan()), Vec::<&str>::new(), "it is used as before");
    let denied = running(None, None).with(|s| s.state.tag_retry_pending = true);
    assert_eq!(step_names(&denied.plan()), Vec::<&str>::new());
}

/// Both regions' groups use the role since an earlier release. A rotation to another role would replace all nodes.
#[test]
fn nodes_keep_a_role_of_another_region_that_is_not_changed() {
    let mut scenario = running(Some(ELSEWHERE), Some(HERE));
    assert!(!uses_other_names(&scenario));
    assert_eq!(step_names(&scenario.plan()), ["UpdateStatus"]);
    assert_eq!(recorded(&scenario).role_region.as_deref(), Some(ELSEWHERE));
    scenario.status.managed = Some(recorded(&scenario));
    let recorded =
        scenario.with(|s| (s.state.role, s.state.instance_profile) = (None, converged().state.instance_profile));
    assert_eq!((step_names(&recorded.plan()), recorded.plan().outcome), (vec![], Outcome::Converged));
    let lacks_policy = recorded.with(|s| s.state.attached_policies.clear());
    assert!(blocked(&lacks_policy.plan()).contains(ELSEWHERE));
    assert_eq!(step_names(&lacks_policy.plan()), Vec::<&str>::new());
}

#[test]
fn deletion_keeps_a_role_that_another_region_may_use() {
    let delete = |s: &Scenario| {
        let r = &s.resolved;
        delete::plan_deletion(&delete::DeleteInput {
            id: &r.desired.id,
            ownership_tags: &r.ownership_tags,
            scaling_group: None,
            members: &[],
            drains: &s.state.drains,
            template: None,
            has_derived_template_name: true,
            launch_configurations: &[],
            role: s.state.role.as_ref(),
            attached_policies: &r.managed_policies,
            removable_policies: &r.managed_policies,
            inline_policies: &[],
            instance_profile: s.state.instance_profile.as_ref(),
            region: &r.region,
            status: &s.status,
            adopted: &s.status.managed.as_ref().and_then(|m| m.adopted.clone()).unwrap_or_default(),
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
    };
    let adopted = |s: &mut Scenario| {
        let role = AdoptedResources { role: Some("AROA-1".into()), ..AdoptedResources::default() };
        s.status.managed.get_or_insert_default().adopted = Some(role);
    };
    for (scenario, kept) in [
        (running(Some(HERE), Some(ELSEWHERE)), false),
        (running(Some(HERE), Some(ELSEWHERE)).with(adopted), true),
        (running(Some(HERE), Some(HERE)).with(adopted), false),
        (running(None, Some(ELSEWHERE)), true),
        (running(None, None), false),
        (running(Some(ELSEWHERE), None), true),
    ] {
        let plan = delete(&scenario);
        let role = scenario.state.role.clone();
        assert_eq!(step_names(&plan).contains(&"DeleteRole"), !kept, "{role:?}");
        assert_eq!(step_names(&plan).contains(&"DeleteProfile"), !kept, "{role:?}");
        assert_eq!(step_names(&plan).contains(&"RemoveFinalizer"), !kept, "the condition comes first: {role:?}");
        let conditions: Vec<_> = plan.condition_updates.iter().map(|c| (c.condition_type, &c.message)).collect();
        assert_eq!(conditions.len(), usize::from(kept), "{conditions:?}");
        if kept {
            assert!(conditions[0].0 == "ResourcesRetained" && conditions[0].1.contains(ELSEWHERE), "{conditions:?}");
            let reported = scenario.with(|s| {
                s.status.conditions.push(Condition::new("ResourcesRetained", true, "UsedInOtherRegion", ""));
            });
            assert_eq!(step_names(&delete(&reported)), ["RemoveFinalizer"]);
        }
    }
}

/// The third region of one cluster name, and the deletion of its group, which finds the names in the status.
#[test]
fn deletion_finds_the_names_of_each_naming_scheme_in_the_status() {
    let of = |form| resolve(resolved("{}", &[]).desired, &references(), form).expect("a resolved group").names;
    let [plain, hashed, regional] = [NameForm::Plain, NameForm::Hashed, NameForm::RegionHashed].map(of);
    assert!(plain.role != hashed.role && hashed.role != regional.role);
    let id = resolved("{}", &[]).desired.id;
    for names in [plain, hashed, regional] {
        let status = json!({"activeScalingGroupName": names.scaling_group, "activeLaunchTemplateName": names.template});
        let status = serde_json::from_value(status).expect("a status");
        let found = recorded_names(&id, &status, HERE).expect("names");
        assert_eq!((found.cluster.as_str(), found.names), ("demo", names));
    }
}
