//! Ownership of resources with a group's derived names: the controller uses, changes and deletes only resources that are
//! provably the group's.

use instance_manager::plan::{IamStep, ObjectStep};
use instance_manager::provisioner::eks::observe::remaining_resources;
use instance_manager::provisioner::eks::ownership::name_conflict;

use super::*;

const PREFIX: &str = "instancegroups.keikoproj.io/";

/// A new group, and a role and an instance profile with its derived name that the controller did not create.
fn found_by_name(extra: &str) -> Scenario {
    let mut existing = converged();
    remove_scaling_group(&mut existing);
    new_group(resolved(extra, &[])).with(|s| {
        let profile = existing.state.instance_profile.clone().expect("a profile");
        let role = Role { tags: vec![], ..profile.role.clone().expect("a role") };
        s.state.instance_profile = Some(InstanceProfile { role: Some(role.clone()), tags: vec![], ..profile });
        s.state.role = Some(role);
    })
}

/// Whether the group changes to names with a hash, because its plain names belong to another owner.
fn uses_hashed_names(scenario: &Scenario) -> bool {
    name_conflict(&scenario.resolved, &scenario.state, &scenario.status)
}

fn other_group_tags(scenario: &Scenario) -> Vec<Tag> {
    let mut tags = scenario.resolved.ownership_tags.clone();
    tags.iter_mut().filter(|t| t.key == format!("{PREFIX}InstanceGroup")).for_each(|t| t.value = "another".into());
    tags
}

/// Otherwise a tenant would get the permissions of any role with that name, in spite of `policy.roles`.
#[test]
fn unowned_role_is_not_used() {
    let foreign = found_by_name("{}");
    assert!(uses_hashed_names(&foreign));
    let plan = foreign.plan();
    let message = blocked(&plan);
    assert!(message.contains("the instance profile demo-team-web"));
    let is_named = |tag: &Tag| message.contains(&format!("{}={}", tag.key, tag.value));
    assert!(foreign.resolved.ownership_tags.iter().all(is_named), "a user can restore them: {message}");
    assert_eq!(step_names(&plan), Vec::<&str>::new(), "it gets no policy and no join entry");
    let foreign_role = found_by_name("{}").with(|s| {
        let ours = s.resolved.ownership_tags.clone();
        s.state.instance_profile.as_mut().expect("a profile").tags = ours;
    });
    assert!(uses_hashed_names(&foreign_role) && blocked(&foreign_role.plan()).contains("the IAM role demo-team-web"));
    let of_other_group = found_by_name("{}").with(|s| {
        let tags = other_group_tags(s);
        (s.state.role.as_mut().expect("a role").tags, s.state.instance_profile) = (tags, None);
    });
    assert!(uses_hashed_names(&of_other_group), "another group's role without a profile");
    assert!(
        !uses_hashed_names(&found_by_name("eks: {configuration: {roleName: given}}")),
        "the spec names another role"
    );
}

#[test]
fn unowned_profile_keeps_its_role() {
    let foreign = found_by_name("{}").with(|s| {
        let profile = s.state.instance_profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "foreign".into();
        s.state.role = None;
    });
    assert!(uses_hashed_names(&foreign));
    assert_eq!(step_names(&foreign.plan()), Vec::<&str>::new());
}

#[test]
fn tagged_or_adopted_role_is_used() {
    let tagged = converged().with(remove_scaling_group);
    assert!(!uses_hashed_names(&tagged));
    assert!(step_names(&tagged.plan()).contains(&"CreateGroup"));
    let adopted = found_by_name("{}").with(|s| {
        let adopted = json!({"managed": {"adopted": {"role": "AROA-1", "profile": "AIPA-1"}}});
        s.status = serde_json::from_value(adopted).expect("a status");
    });
    assert!(!uses_hashed_names(&adopted));
    assert!(!step_names(&adopted.plan()).contains(&"CreateRole"));
    let nothing = new_group(resolved("{}", &[]));
    assert!(!uses_hashed_names(&nothing) && step_names(&nothing.plan()).contains(&"CreateRole"));
}

/// Keiko controller tags neither role nor profile. The scaling group that launches with them proves their owner.
#[test]
fn owned_scaling_group_proves_its_profile() {
    let without_proof = |s: &mut Scenario| {
        let given = resolved("eks: {configuration: {roleName: given}}", &[]);
        s.state.versions.get_mut(&1).expect("a version").data = Some(given.template_data);
        s.state.versions.get_mut(&1).expect("a version").fingerprint = Some(given.fingerprint);
    };
    assert_eq!(converged().plan().outcome, Outcome::Converged);
    let launches_with_other_role = converged().with(without_proof);
    assert!(!uses_hashed_names(&launches_with_other_role), "the scaling group keeps its name");
    let plan = launches_with_other_role.plan();
    assert!(blocked(&plan).contains("roleName"), "{:?}", plan.outcome);
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    assert!(!plan.status_update.fields.contains_key("nodesInstanceRoleArn"), "its nodes use another role");
}

/// Otherwise other instances that use a manually created profile would get the group's role.
#[test]
fn existing_profile_never_becomes_owned() {
    let has_other_role = converged().with(|s| {
        let profile = s.state.instance_profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "created-manually".into();
    });
    let has_role_of_that_name = converged().with(|s| {
        s.state.attached_policies.clear();
        s.status.managed.as_mut().expect("a record").policies.clear();
    });
    for scenario in [&has_other_role, &has_role_of_that_name] {
        assert!(!uses_hashed_names(scenario), "the scaling group keeps its name");
        let plan = scenario.plan();
        assert!(blocked(&plan).contains("the instance profile demo-team-web"), "{:?}", plan.outcome);
        assert_eq!(step_names(&plan), Vec::<&str>::new());
    }
    let tagged = has_role_of_that_name.with(|s| {
        let (ours, profile) =
            (s.resolved.ownership_tags.clone(), s.state.instance_profile.as_mut().expect("a profile"));
        profile.role.as_mut().expect("a role").tags.clone_from(&ours);
        profile.tags = ours;
    });
    assert!(step_names(&tagged.plan()).contains(&"AttachPolicy"));
    let without_record = converged().with(|s| s.status.managed = None);
    assert_eq!(step_names(&without_record.plan()), ["UpdateStatus"], "Keiko controller leaves no record");
}

/// Otherwise a wrong clusterName could not be corrected, and the deletion would wait for tags that a tenant may not set.
#[test]
fn unowned_scaling_group_is_not_a_record() {
    let recorded_cluster = |plan: &Plan| {
        let status = serde_json::from_value(json!(plan.status_update.fields)).expect("a status");
        remaining_resources::recorded_names(&converged().resolved.desired.id, &status, "us-west-2")
            .map(|recorded| recorded.cluster)
    };
    let new = |s: &mut Scenario| s.status = InstanceGroupStatus::default();
    assert_eq!(recorded_cluster(&converged().with(new).plan()).as_deref(), Some("demo"));
    let with_missing_tag =
        converged().with(new).with_scaling_group(|g| g.tags.retain(|t| t.key != format!("{PREFIX}Namespace")));
    assert!(blocked(&with_missing_tag.plan()).contains("is missing"));
    assert_eq!(recorded_cluster(&with_missing_tag.plan()), None);
}

/// AWS denied the tags at the adoption, and the profile was deleted manually. CreateRole would fail, because the role exists.
#[test]
fn adopted_untagged_role_gets_its_profile() {
    let scenario = converged().with(|s| {
        let role = s.state.instance_profile.take().and_then(|p| p.role).expect("a role");
        s.state.role = Some(role);
        let adopted = AdoptedResources { role: Some("AROA-1".into()), ..AdoptedResources::default() };
        s.status.managed.as_mut().expect("a record").adopted = Some(adopted);
    });
    assert!(!uses_hashed_names(&scenario));
    let plan = scenario.plan();
    assert_eq!(step_names(&plan), ["CreateProfile", "AddRoleToProfile"]);
    let not_adopted = scenario.with(|s| s.status.managed.as_mut().expect("a record").adopted = None);
    assert!(!uses_hashed_names(&not_adopted));
    assert!(blocked(&not_adopted.plan()).contains("the IAM role demo-team-web"));
    let create = |p: &Plan| p.steps.iter().any(|s| matches!(s.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(!create(&plan) && !create(&not_adopted.plan()));
}

/// Otherwise the controller would create a second scaling group and no longer manage the nodes of the first.
#[test]
fn modified_tags_are_reported() {
    for key in ["ClusterName", "InstanceGroup", "Namespace"] {
        let key = format!("{PREFIX}{key}");
        let missing = converged().with_scaling_group(|g| g.tags.retain(|t| t.key != key));
        let edited = converged().with_scaling_group(|g| {
            g.tags.iter_mut().filter(|t| t.key == key).for_each(|t| t.value = "edited".into());
        });
        for (scenario, how) in [(missing, "is missing"), (edited, "has the value edited instead of")] {
            assert!(!uses_hashed_names(&scenario), "{key} {how}");
            let plan = scenario.plan();
            assert!(blocked(&plan).contains(&format!("the tag {key}")), "{:?}", plan.outcome);
            assert!(blocked(&plan).contains(how) && blocked(&plan).contains("restore its tags"));
            assert!(plan.steps.is_empty());
        }
    }
    let of_other_cluster = converged().with_scaling_group(|g| {
        g.name = "demo-team-web".into();
        let other = |t: &mut Tag, value: &str| t.value = value.into();
        g.tags.iter_mut().for_each(|t| match t.key.strip_prefix(PREFIX) {
            Some("ClusterName") => other(t, "demo-team"),
            Some("Namespace") => other(t, "team"),
            _ => {}
        });
    });
    assert!(!uses_hashed_names(&of_other_cluster), "no other group derives this name");
    let mut conflicting = converged();
    conflicting.resolved.ownership_tags = [("ClusterName", "demo"), ("InstanceGroup", "team-web"), ("Namespace", "x")]
        .map(|(key, value)| Tag { key: format!("{PREFIX}{key}"), value: value.into() })
        .into();
    assert!(uses_hashed_names(&conflicting), "the name belongs to team/web");
}

/// Otherwise nodes with the previous role could not join again after a restart, or the entry would stay and admit any new
/// role with that name.
#[test]
fn previous_role_entry_stays_recorded_while_needed() {
    let old = "arn:aws:iam::1:role/before".to_owned();
    let recorded = |s: &Scenario| s.status.managed.clone().expect("a record").auth_entries;
    let with_previous_role = converged().with(|s| {
        s.status.managed.as_mut().expect("a record").auth_entries.push(old.clone());
        s.state.previous_roles.recorded_auth_entries = vec![old.clone()];
    });
    assert_eq!(recorded(&with_previous_role), [with_previous_role.resolved.role_arn.clone(), old.clone()]);
    assert_eq!(step_names(&with_previous_role.plan()), Vec::<&str>::new(), "a node still uses the role");
    let entry = instance_manager::auth::aws_auth::AuthEntry::for_nodes(&old, false);
    let cut_off =
        with_previous_role.clone().with(|s| s.state.previous_roles.missing_auth_entries = vec![entry.clone()]);
    assert_eq!(step_names(&cut_off.plan()), ["PutAwsAuthEntry"], "its nodes are silent until then");
    let unused = with_previous_role.clone().with(|s| s.state.previous_roles.unused_auth_entries = vec![entry]);
    assert_eq!(step_names(&unused.plan()), ["RemoveAwsAuthEntry"]);
    let busy = unused.with_spec(NEW_IMAGE);
    assert!(!step_names(&busy.plan()).contains(&"RemoveAwsAuthEntry"), "other changes come first");
    let removed = with_previous_role.with(|s| s.state.previous_roles.recorded_auth_entries.clear());
    assert_eq!(step_names(&removed.plan()), ["UpdateStatus"]);
}

/// Otherwise the entry would admit any role of that name until the next resync: no watch reports that an instance is gone.
#[test]
fn previous_role_entry_is_looked_at_again_while_its_last_node_is_leaving() {
    let with_leaving_instance = |recorded: bool| {
        converged().with(|s| {
            if recorded {
                s.state.previous_roles.recorded_auth_entries = vec!["arn:aws:iam::1:role/before".to_owned()];
            }
            let group = s.state.scaling_group.as_mut().expect("a group");
            let mut leaving = group.instances[0].clone();
            leaving.id = "i-old".into();
            leaving.state = instance_manager::aws::InstanceState::Terminating;
            leaving.template.as_mut().expect("a version").version = "99".into();
            group.instances.push(leaving);
        })
    };
    assert!(with_leaving_instance(true).plan().recheck_at.is_some());
    assert_eq!(with_leaving_instance(false).plan().recheck_at, None, "nothing waits for it");
}

/// The controller creates a deleted resource again, and an event must report the deletion.
#[test]
fn externally_deleted_resource_is_reported() {
    let deletion_events = |plan: &Plan| -> Vec<String> {
        let events = plan.events.iter().filter(|event| event.reason == "ResourceRecreated");
        events.map(|event| event.message.clone()).collect()
    };
    let known = || {
        converged().with(|s| {
            s.status.nodes = Some(instance_manager::api::NodeCounts { desired: 2, ready: 2, ..Default::default() });
            s.status.template.get_or_insert_default().id = Some("lt-1".into());
        })
    };
    assert_eq!(deletion_events(&known().plan()), [""; 0]);
    let without_group = known().with(remove_scaling_group).plan();
    assert!(
        deletion_events(&without_group)[0].starts_with("the scaling group demo-team-web was deleted by another client")
    );
    let with_another_name = known().with(remove_scaling_group).with(|s| {
        s.status.active_scaling_group_name = Some("demo-team-before".into());
        s.status.active_launch_template_name = Some("demo-team-before-20260102030405".into());
        s.state.template = None;
        s.state.versions.clear();
    });
    let messages = deletion_events(&with_another_name.plan());
    assert!(
        messages[0].starts_with("the scaling group demo-team-before was deleted by another client; the controller creates it again as demo-team-web with new nodes"),
        "{messages:?}"
    );
    assert_eq!(messages.len(), 1, "the controller itself deletes the template of the old name: {messages:?}");
    let without_template = known().with(|s| {
        let tags = s.resolved.ownership_tags.clone();
        let profile = s.state.instance_profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").tags.clone_from(&tags);
        profile.tags = tags;
        s.state.template = None;
        s.state.versions.clear();
    });
    let other_content = without_template.clone().with(|s| {
        s.status.template.as_mut().expect("a record").hash = Some("other".into());
    });
    let message = &deletion_events(&other_content.plan())[0];
    for word in ["2 nodes launched from the deleted one are outdated", "lock-upgrades=true", "DeleteLaunchTemplate"] {
        assert!(message.contains(word), "a rotation follows, and can be stopped: {message}");
    }
    let same_content = without_template.clone().with(|s| {
        let pin = s.state.scaling_group.as_ref().expect("a group").instances[0].template.clone().expect("a version");
        let recorded = s.status.template.as_mut().expect("a record");
        (recorded.id, recorded.version) = (Some(pin.id), Some(pin.version));
        recorded.hash = Some(s.resolved.fingerprint.hash.clone());
    });
    let message = &deletion_events(&same_content.plan())[0];
    assert!(message.contains("DeleteLaunchTemplate") && !message.contains("outdated"), "the nodes stay: {message}");
    let without_both = known().with(remove_scaling_group).with(|s| {
        s.state.template = None;
        s.state.versions.clear();
    });
    let messages = deletion_events(&without_both.plan());
    assert!(messages.iter().any(|message| message.starts_with("the launch template demo-team-web-")), "{messages:?}");
    let new = without_both.with(|s| s.status = InstanceGroupStatus::default()).plan();
    assert_eq!(deletion_events(&new), [""; 0], "a new group");
}

fn reported_deletions(plan: &Plan) -> Vec<String> {
    let events = plan.events.iter().filter(|event| event.reason == "ResourceRecreated");
    events.map(|event| event.message.clone()).collect()
}

/// Without the event, a person reads that a new role was created, and looks for the cause in the controller.
#[test]
fn role_deleted_by_another_client_is_distinguished_from_a_new_one() {
    let without_profile = |s: &mut Scenario| {
        s.state.role = s.state.instance_profile.take().and_then(|profile| profile.role);
        s.state.role.as_mut().expect("a role").tags.clone_from(&s.resolved.ownership_tags);
    };
    let without_both = |s: &mut Scenario| {
        s.state.instance_profile = None;
        s.state.attached_policies.clear();
    };
    let profile = reported_deletions(&converged().with(without_profile).plan());
    let words = ["the instance profile demo-team-web was deleted by another client", "DeleteInstanceProfile"];
    assert!(profile.len() == 1 && words.iter().all(|word| profile[0].contains(word)), "{profile:?}");
    assert!(profile[0].contains("instancemgr.keikoproj.io/rotate-at"), "the nodes need another profile: {profile:?}");
    let both = reported_deletions(&converged().with(without_both).plan());
    assert!(both.len() == 2 && both[0].contains("the role demo-team-web was deleted"), "{both:?}");
    let without_role = |s: &mut Scenario| {
        let profile = s.state.instance_profile.as_mut().expect("a profile");
        profile.tags.clone_from(&s.resolved.ownership_tags);
        s.state.role = profile.role.take();
        s.state.role.as_mut().expect("a role").tags.clone_from(&s.resolved.ownership_tags);
    };
    let removed = reported_deletions(&converged().with(without_role).plan());
    let words =
        ["was removed from the instance profile demo-team-web", "no credentials", "RemoveRoleFromInstanceProfile"];
    assert!(removed.len() == 1 && words.iter().all(|word| removed[0].contains(word)), "{removed:?}");
    // Another role was used before: nothing of the new one was there.
    let switched = converged().with(without_both).with(|s| {
        let version = s.state.versions.get_mut(&1).expect("a version");
        version.data.as_mut().expect("its content").profile_arn = "arn:aws:iam::1:instance-profile/given".into();
        s.status.nodes_instance_role_arn = Some("arn:aws:iam::1:role/given".into());
    });
    assert_eq!(reported_deletions(&switched.plan()), [""; 0]);

    // Nothing is left but the record.
    let waiting_for = |scenario: &Scenario| match scenario.plan().outcome {
        Outcome::Progressing { message, .. } => message,
        other => panic!("{other:?}"),
    };
    let gone = converged().with(|s| {
        let new = new_group(s.resolved.clone());
        (s.state, s.lock) = (new.state, None);
        s.status.nodes = Some(Default::default());
        s.status.nodes_instance_role_arn = Some(s.resolved.role_arn.clone());
    });
    assert!(waiting_for(&gone).starts_with("the instance profile demo-team-web was deleted"), "{}", waiting_for(&gone));
    let new = new_group(resolved("{}", &[]));
    assert_eq!(waiting_for(&new), "waiting for the new instance profile to propagate in IAM");
    assert_eq!(reported_deletions(&new.plan()), [""; 0]);
}

/// The controller reports attributes of the group that another client removed, but only those that existed: it records
/// each attribute before it sets it.
#[test]
fn externally_removed_attribute_is_reported_if_it_was_there() {
    use instance_manager::auth::access_entries::{AccessEntryState, JoinMethod};
    use instance_manager::auth::aws_auth::AuthEntryState;
    let ready = |s: &mut Scenario| {
        s.status.conditions =
            serde_json::from_value(json!([{ "type": "Ready", "status": "True" }])).expect("conditions");
    };
    let hook = "eks: {configuration: {lifecycleHooks: [{name: drain, lifecycle: launch}]}}";
    let pool = "eks: {warmPool: {minSize: 1, maxSize: 4}}";
    type Change = fn(&mut Scenario);
    let removals: [(&str, Change, &str); 5] = [
        (hook, |s| s.state.lifecycle_hooks = Some(vec![]), "DeleteLifecycleHook"),
        (pool, |s| s.status.managed.as_mut().expect("a record").warm_pool = true, "DeleteWarmPool"),
        ("{}", |s| _ = s.state.attached_policies.pop(), "DetachRolePolicy"),
        ("{}", |s| s.state.join.auth_entry = AuthEntryState::Absent, "kube-system/aws-auth"),
        (
            "{}",
            |s| {
                s.resolved.join_method = JoinMethod::Both;
                s.state.join.access_entry = AccessEntryState::Absent;
                s.status.managed.as_mut().expect("a record").access_entries = vec![s.resolved.role_arn.clone()];
            },
            "DeleteAccessEntry",
        ),
    ];
    for (extra, remove, call) in removals {
        let removed = attributes::converged_after(extra).with(remove);
        assert_eq!(reported_deletions(&removed.plan()), [""; 0], "{call}: it may never have been there");
        let events = reported_deletions(&removed.with(ready).plan());
        assert!(
            events.len() == 1 && events[0].contains(call) && events[0].contains("by another client"),
            "{call}: {events:?}"
        );
        assert_eq!(
            reported_deletions(&converged().with(ready).with_spec(extra).plan()),
            [""; 0],
            "{call}: newly wanted"
        );
    }
}

/// An answer of AWS may be older than the scaling group. A controller that then forgot what it had set would leave it there
/// forever.
#[test]
fn record_of_what_was_set_outlives_an_answer_without_the_scaling_group() {
    let metrics = "{eks: {configuration: {metricsCollection: [GroupMinSize], suspendProcesses: [AlarmNotification]}}}";
    let set = converged_with(resolved(metrics, &[])).with(|s| s.status.managed = None);
    let recorded = |plan: &Plan| {
        let patch = plan.steps.iter().find_map(|planned| match &planned.step {
            Step::Object(ObjectStep::UpdateStatus { status }) => status.get("managed").cloned(),
            _ => None,
        });
        patch.unwrap_or_default()
    };
    let before = recorded(&set.plan());
    assert_eq!(before["metrics"], json!(["GroupMinSize"]), "{before}");
    let unseen = set.with(remove_scaling_group).with(|s| {
        s.resolved = resolved("{}", &[]);
        s.status.managed = Some(serde_json::from_value(before.clone()).expect("a record"));
    });
    let after = recorded(&unseen.plan());
    let kept = |key: &str| after.get(key).is_none_or(|value| *value == before[key]);
    assert!(kept("metrics") && kept("processes"), "{after}");
}
