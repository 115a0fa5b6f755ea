//! Whose the resources are that bear a group's names: what is not provably its own is neither used, changed nor deleted.

use instance_manager::plan::IamStep;
use instance_manager::provisioner::eks::observe::remaining_resources;
use instance_manager::provisioner::eks::ownership::name_conflict;

use super::*;

const PREFIX: &str = "instancegroups.keikoproj.io/";

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

/// A role and a profile that a person made under the name which the group derives, and the group that finds them.
fn found_by_name(extra: &str) -> Scenario {
    let mut made = converged();
    remove_scaling_group(&mut made);
    new_group(resolved(extra, &[])).with(|w| {
        let profile = made.state.instance_profile.clone().expect("a profile");
        let role = Role { tags: vec![], ..profile.role.clone().expect("a role") };
        w.state.instance_profile = Some(InstanceProfile { role: Some(role.clone()), tags: vec![], ..profile });
        w.state.role = Some(role);
    })
}

/// What follows when the derived names turned out to be someone else's.
fn uses_hashed_names(world: &Scenario) -> bool {
    name_conflict(&world.resolved, &world.state, &world.status)
}

fn other_group_tags(world: &Scenario) -> Vec<Tag> {
    let mut tags = world.resolved.ownership_tags.clone();
    tags.iter_mut().filter(|t| t.key == format!("{PREFIX}InstanceGroup")).for_each(|t| t.value = "another".into());
    tags
}

/// Else a tenant gets the rights of whatever role bears the name, past `policy.roles`.
#[test]
fn unowned_role_is_not_used() {
    let theirs = found_by_name("{}");
    assert!(uses_hashed_names(&theirs));
    assert!(blocked(&theirs.plan()).contains("the instance profile demo-team-web"));
    assert_eq!(step_names(&theirs.plan()), Vec::<&str>::new(), "no policy is put on it, and nobody may join by it");
    let half = found_by_name("{}").with(|w| {
        let ours = w.resolved.ownership_tags.clone();
        w.state.instance_profile.as_mut().expect("a profile").tags = ours;
    });
    assert!(uses_hashed_names(&half) && blocked(&half.plan()).contains("the IAM role demo-team-web"));
    let claimed = found_by_name("{}").with(|w| {
        let tags = other_group_tags(w);
        (w.state.role.as_mut().expect("a role").tags, w.state.instance_profile) = (tags, None);
    });
    assert!(uses_hashed_names(&claimed), "another tenant's role, whose profile is not made yet");
    assert!(
        !uses_hashed_names(&found_by_name("eks: {configuration: {roleName: given}}")),
        "the group has one of its own"
    );
}

#[test]
fn unowned_profile_keeps_its_role() {
    let theirs = found_by_name("{}").with(|w| {
        let profile = w.state.instance_profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "somebodys".into();
        w.state.role = None;
    });
    assert!(uses_hashed_names(&theirs));
    assert_eq!(step_names(&theirs.plan()), Vec::<&str>::new());
}

#[test]
fn tagged_or_adopted_role_is_used() {
    let tagged = converged().with(remove_scaling_group);
    assert!(!uses_hashed_names(&tagged));
    assert!(step_names(&tagged.plan()).contains(&"CreateGroup"));
    let adopted = found_by_name("{}").with(|w| {
        let adopted = json!({"managed": {"adopted": {"role": "AROA-1", "profile": "AIPA-1"}}});
        w.status = serde_json::from_value(adopted).expect("a status");
    });
    assert!(!uses_hashed_names(&adopted));
    assert!(!step_names(&adopted.plan()).contains(&"CreateRole"));
    let nothing = new_group(resolved("{}", &[]));
    assert!(!uses_hashed_names(&nothing) && step_names(&nothing.plan()).contains(&"CreateRole"));
}

/// The other controller tags neither role nor profile: that the group launches with them proves whose they are.
#[test]
fn owned_scaling_group_proves_its_profile() {
    let without_proof = |w: &mut Scenario| {
        let given = resolved("eks: {configuration: {roleName: given}}", &[]);
        w.state.versions.get_mut(&1).expect("a version").data = Some(given.template_data);
        w.state.versions.get_mut(&1).expect("a version").fingerprint = Some(given.fingerprint);
    };
    assert_eq!(converged().plan().outcome, Outcome::Converged);
    let role_taken_away = converged().with(without_proof);
    assert!(!uses_hashed_names(&role_taken_away), "the scaling group keeps its name, and no second one is made");
    let plan = role_taken_away.plan();
    assert!(blocked(&plan).contains("roleName"), "{:?}", plan.outcome);
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    assert!(!plan.status_update.fields.contains_key("nodesInstanceRoleArn"), "its nodes run by the one that was given");
}

/// Else everything else that runs by a profile which a person made would run by the group's role from then on.
#[test]
fn existing_profile_never_becomes_owned() {
    let holds_another = converged().with(|w| {
        let profile = w.state.instance_profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "made-by-a-person".into();
    });
    let holds_that_name = converged().with(|w| {
        w.state.attached_policies.clear();
        w.status.managed.as_mut().expect("a record").policies.clear();
    });
    for world in [&holds_another, &holds_that_name] {
        assert!(!uses_hashed_names(world), "the scaling group keeps its name");
        let plan = world.plan();
        assert!(blocked(&plan).contains("the instance profile demo-team-web"), "{:?}", plan.outcome);
        assert_eq!(step_names(&plan), Vec::<&str>::new());
    }
    let tagged = holds_that_name.with(|w| {
        let (ours, profile) =
            (w.resolved.ownership_tags.clone(), w.state.instance_profile.as_mut().expect("a profile"));
        profile.role.as_mut().expect("a role").tags.clone_from(&ours);
        profile.tags = ours;
    });
    assert!(step_names(&tagged.plan()).contains(&"AttachPolicy"));
    let found = converged().with(|w| w.status.managed = None);
    assert_eq!(step_names(&found.plan()), ["UpdateStatus"], "the other controller left no record");
}

/// Else a wrong clusterName could not be corrected, and the deletion would wait for tags that a tenant may not set.
#[test]
fn unowned_scaling_group_is_no_record() {
    let on_record = |plan: &Plan| {
        let status = serde_json::from_value(json!(plan.status_update.fields)).expect("a status");
        remaining_resources::recorded_names(&converged().resolved.desired.id, &status).map(|traces| traces.cluster)
    };
    let new = |w: &mut Scenario| w.status = InstanceGroupStatus::default();
    assert_eq!(on_record(&converged().with(new).plan()).as_deref(), Some("demo"));
    let half = converged().with(new).with_scaling_group(|g| g.tags.retain(|t| t.key != format!("{PREFIX}Namespace")));
    assert!(blocked(&half.plan()).contains("is missing"));
    assert_eq!(on_record(&half.plan()), None);
}

/// Its tags were denied at the takeover, and somebody deleted the profile: CreateRole would find the name taken.
#[test]
fn adopted_untagged_role_gets_its_profile() {
    let world = converged().with(|w| {
        let role = w.state.instance_profile.take().and_then(|p| p.role).expect("a role");
        w.state.role = Some(role);
        let adopted = AdoptedResources { role: Some("AROA-1".into()), ..AdoptedResources::default() };
        w.status.managed.as_mut().expect("a record").adopted = Some(adopted);
    });
    assert!(!uses_hashed_names(&world));
    let plan = world.plan();
    assert_eq!(step_names(&plan), ["CreateProfile", "AddRoleToProfile"]);
    let stranger = world.with(|w| w.status.managed.as_mut().expect("a record").adopted = None);
    assert!(!uses_hashed_names(&stranger));
    assert!(blocked(&stranger.plan()).contains("the IAM role demo-team-web"));
    let create = |p: &Plan| p.steps.iter().any(|s| matches!(s.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(!create(&plan) && !create(&stranger.plan()));
}

/// Else a second scaling group is made beside the first, whose nodes nobody looks after any more.
#[test]
fn modified_tags_are_reported() {
    for key in ["ClusterName", "InstanceGroup", "Namespace"] {
        let key = format!("{PREFIX}{key}");
        let lost = converged().with_scaling_group(|g| g.tags.retain(|t| t.key != key));
        let edited = converged().with_scaling_group(|g| {
            g.tags.iter_mut().filter(|t| t.key == key).for_each(|t| t.value = "edited".into());
        });
        for (world, how) in [(lost, "is missing"), (edited, "has the value edited instead of")] {
            assert!(!uses_hashed_names(&world), "{key} {how}");
            let plan = world.plan();
            assert!(blocked(&plan).contains(&format!("the tag {key}")), "{:?}", plan.outcome);
            assert!(blocked(&plan).contains(how) && blocked(&plan).contains("restore its tags"));
            assert!(plan.steps.is_empty());
        }
    }
    let theirs = converged().with_scaling_group(|g| {
        g.name = "demo-team-web".into();
        let other = |t: &mut Tag, value: &str| t.value = value.into();
        g.tags.iter_mut().for_each(|t| match t.key.strip_prefix(PREFIX) {
            Some("ClusterName") => other(t, "demo-team"),
            Some("Namespace") => other(t, "team"),
            _ => {}
        });
    });
    assert!(!uses_hashed_names(&theirs), "one group of this namespace and name has this name, in one cluster");
    let mut collides = converged();
    collides.resolved.ownership_tags = [("ClusterName", "demo"), ("InstanceGroup", "team-web"), ("Namespace", "x")]
        .map(|(key, value)| Tag { key: format!("{PREFIX}{key}"), value: value.into() })
        .into();
    assert!(uses_hashed_names(&collides), "team/web has it");
}

/// Else the nodes of the role before could not come back after a restart, or its entry would let in whoever makes a role
/// of that name.
#[test]
fn previous_role_entry_stays_recorded_while_needed() {
    let old = "arn:aws:iam::1:role/before".to_owned();
    let recorded = |w: &Scenario| w.status.managed.clone().expect("a record").auth_entries;
    let moved = converged().with(|w| {
        w.status.managed.as_mut().expect("a record").auth_entries.push(old.clone());
        w.state.previous_roles.recorded_auth_entries = vec![old.clone()];
    });
    assert_eq!(recorded(&moved), [moved.resolved.role_arn.clone(), old.clone()]);
    assert_eq!(step_names(&moved.plan()), Vec::<&str>::new(), "a node runs by it still");
    let entry = instance_manager::auth::aws_auth::AuthEntry::for_nodes(&old, false);
    let due = moved.clone().with(|w| w.state.previous_roles.unused_auth_entries = vec![entry]);
    assert_eq!(step_names(&due.plan()), ["RemoveAwsAuthEntry"]);
    let busy = due.with_spec(NEW_IMAGE);
    assert!(!step_names(&busy.plan()).contains(&"RemoveAwsAuthEntry"), "one thing after the other");
    let gone = moved.with(|w| w.state.previous_roles.recorded_auth_entries.clear());
    assert_eq!(step_names(&gone.plan()), ["UpdateStatus"]);
}
