//! Whose the resources are that bear a group's names: what is not provably its own is neither used, changed nor deleted.

use instance_manager::plan::IamStep;
use instance_manager::provisioner::eks::observe::remaining_resources;
use instance_manager::provisioner::eks::ownership::taken;

use super::*;

const PREFIX: &str = "instancegroups.keikoproj.io/";

fn names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

/// A role and a profile that a person made under the name which the group derives, and the group that finds them.
fn found_by_name(extra: &str) -> World {
    let mut made = plain();
    ungrouped(&mut made);
    fresh(resolved(extra, &[])).with(|w| {
        let profile = made.state.profile.clone().expect("a profile");
        let role = Role { tags: vec![], ..profile.role.clone().expect("a role") };
        w.state.profile = Some(InstanceProfile { role: Some(role.clone()), tags: vec![], ..profile });
        w.state.role = Some(role);
    })
}

/// What follows when the derived names turned out to be someone else's.
fn falls_back(world: &World) -> bool {
    taken(&world.resolved, &world.state, &world.status)
}

fn of_another(world: &World) -> Vec<Tag> {
    let mut tags = world.resolved.ownership.clone();
    tags.iter_mut().filter(|t| t.key == format!("{PREFIX}InstanceGroup")).for_each(|t| t.value = "another".into());
    tags
}

/// Else a tenant gets the rights of whatever role bears the name, past `policy.roles`.
#[test]
fn a_role_of_the_name_that_is_not_provably_ours_is_not_used() {
    let theirs = found_by_name("{}");
    assert!(falls_back(&theirs));
    assert!(blocked(&theirs.plan()).contains("the instance profile demo-team-web"));
    assert_eq!(names(&theirs.plan()), Vec::<&str>::new(), "no policy is put on it, and nobody may join by it");
    let half = found_by_name("{}").with(|w| {
        let ours = w.resolved.ownership.clone();
        w.state.profile.as_mut().expect("a profile").tags = ours;
    });
    assert!(falls_back(&half) && blocked(&half.plan()).contains("the IAM role demo-team-web"));
    let claimed = found_by_name("{}").with(|w| {
        let tags = of_another(w);
        (w.state.role.as_mut().expect("a role").tags, w.state.profile) = (tags, None);
    });
    assert!(falls_back(&claimed), "another tenant's role, whose profile is not made yet");
    assert!(!falls_back(&found_by_name("eks: {configuration: {roleName: given}}")), "the group has one of its own");
}

#[test]
fn a_role_is_not_taken_out_of_a_profile_that_is_not_provably_ours() {
    let theirs = found_by_name("{}").with(|w| {
        let profile = w.state.profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "somebodys".into();
        w.state.role = None;
    });
    assert!(falls_back(&theirs));
    assert_eq!(names(&theirs.plan()), Vec::<&str>::new());
}

#[test]
fn what_carries_the_three_tags_or_was_taken_over_is_used() {
    let tagged = plain().with(ungrouped);
    assert!(!falls_back(&tagged));
    assert!(names(&tagged.plan()).contains(&"CreateGroup"));
    let adopted = found_by_name("{}").with(|w| {
        let adopted = json!({"managed": {"adopted": {"role": "AROA-1", "profile": "AIPA-1"}}});
        w.status = serde_json::from_value(adopted).expect("a status");
    });
    assert!(!falls_back(&adopted));
    assert!(!names(&adopted.plan()).contains(&"CreateRole"));
    let nothing = fresh(resolved("{}", &[]));
    assert!(!falls_back(&nothing) && names(&nothing.plan()).contains(&"CreateRole"));
}

/// The other controller tags neither role nor profile: that the group launches with them proves whose they are.
#[test]
fn a_scaling_group_of_ours_proves_the_profile_that_it_launches_with() {
    let without_proof = |w: &mut World| {
        let given = resolved("eks: {configuration: {roleName: given}}", &[]);
        w.state.versions.get_mut(&1).expect("a version").data = Some(given.data);
        w.state.versions.get_mut(&1).expect("a version").fingerprint = Some(given.fingerprint);
    };
    assert_eq!(plain().plan().outcome, Outcome::Converged);
    let role_taken_away = plain().with(without_proof);
    assert!(!falls_back(&role_taken_away), "the scaling group keeps its name, and no second one is made");
    let plan = role_taken_away.plan();
    assert!(blocked(&plan).contains("roleName"), "{:?}", plan.outcome);
    assert_eq!(names(&plan), Vec::<&str>::new());
    assert!(!plan.facts.status.contains_key("nodesInstanceRoleArn"), "its nodes run by the one that was given");
}

/// Else everything else that runs by a profile which a person made would run by the group's role from then on.
#[test]
fn a_profile_that_the_spec_had_given_does_not_become_the_groups_own() {
    let holds_another = plain().with(|w| {
        let profile = w.state.profile.as_mut().expect("a profile");
        profile.role.as_mut().expect("a role").name = "made-by-a-person".into();
    });
    let holds_that_name = plain().with(|w| {
        w.state.attached.clear();
        w.status.managed.as_mut().expect("a record").policies.clear();
    });
    for world in [&holds_another, &holds_that_name] {
        assert!(!falls_back(world), "the scaling group keeps its name");
        let plan = world.plan();
        assert!(blocked(&plan).contains("the instance profile demo-team-web"), "{:?}", plan.outcome);
        assert_eq!(names(&plan), Vec::<&str>::new());
    }
    let tagged = holds_that_name.with(|w| {
        let (ours, profile) = (w.resolved.ownership.clone(), w.state.profile.as_mut().expect("a profile"));
        profile.role.as_mut().expect("a role").tags.clone_from(&ours);
        profile.tags = ours;
    });
    assert!(names(&tagged.plan()).contains(&"AttachPolicy"));
    let found = plain().with(|w| w.status.managed = None);
    assert_eq!(names(&found.plan()), ["Record"], "the other controller left no record");
}

/// Else a wrong clusterName could not be corrected, and the deletion would wait for tags that a tenant may not set.
#[test]
fn a_scaling_group_that_is_not_provably_ours_is_no_record_of_what_was_made() {
    let on_record = |plan: &Plan| {
        let status = serde_json::from_value(json!(plan.facts.status)).expect("a status");
        remaining_resources::traces(&plain().resolved.wanted.id, &status).map(|traces| traces.cluster)
    };
    let new = |w: &mut World| w.status = InstanceGroupStatus::default();
    assert_eq!(on_record(&plain().with(new).plan()).as_deref(), Some("demo"));
    let half = plain().with(new).group(|g| g.tags.retain(|t| t.key != format!("{PREFIX}Namespace")));
    assert!(blocked(&half.plan()).contains("is missing"));
    assert_eq!(on_record(&half.plan()), None);
}

/// Its tags were denied at the takeover, and somebody deleted the profile: CreateRole would find the name taken.
#[test]
fn an_untagged_role_that_was_taken_over_gets_its_profile_back() {
    let world = plain().with(|w| {
        let role = w.state.profile.take().and_then(|p| p.role).expect("a role");
        w.state.role = Some(role);
        let adopted = AdoptedResources { role: Some("AROA-1".into()), ..AdoptedResources::default() };
        w.status.managed.as_mut().expect("a record").adopted = Some(adopted);
    });
    assert!(!falls_back(&world));
    let plan = world.plan();
    assert_eq!(names(&plan), ["CreateProfile", "AddRoleToProfile"]);
    let stranger = world.with(|w| w.status.managed.as_mut().expect("a record").adopted = None);
    assert!(!falls_back(&stranger));
    assert!(blocked(&stranger.plan()).contains("the IAM role demo-team-web"));
    let create = |p: &Plan| p.steps.iter().any(|s| matches!(s.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(!create(&plan) && !create(&stranger.plan()));
}

/// Else a second scaling group is made beside the first, whose nodes nobody looks after any more.
#[test]
fn a_scaling_group_whose_tags_were_damaged_keeps_its_name_and_says_which() {
    for key in ["ClusterName", "InstanceGroup", "Namespace"] {
        let key = format!("{PREFIX}{key}");
        let lost = plain().group(|g| g.tags.retain(|t| t.key != key));
        let edited = plain().group(|g| {
            g.tags.iter_mut().filter(|t| t.key == key).for_each(|t| t.value = "edited".into());
        });
        for (world, how) in [(lost, "is missing"), (edited, "says edited and not")] {
            assert!(!falls_back(&world), "{key} {how}");
            let plan = world.plan();
            assert!(blocked(&plan).contains(&format!("the tag {key}")), "{:?}", plan.outcome);
            assert!(blocked(&plan).contains(how) && blocked(&plan).contains("put its tags back"));
            assert!(plan.steps.is_empty());
        }
    }
    let theirs = plain().group(|g| {
        g.name = "demo-team-web".into();
        let other = |t: &mut Tag, value: &str| t.value = value.into();
        g.tags.iter_mut().for_each(|t| match t.key.strip_prefix(PREFIX) {
            Some("ClusterName") => other(t, "demo-team"),
            Some("Namespace") => other(t, "team"),
            _ => {}
        });
    });
    assert!(!falls_back(&theirs), "one group of this namespace and name has this name, in one cluster");
    let mut collides = plain();
    collides.resolved.ownership = [("ClusterName", "demo"), ("InstanceGroup", "team-web"), ("Namespace", "x")]
        .map(|(key, value)| Tag { key: format!("{PREFIX}{key}"), value: value.into() })
        .into();
    assert!(falls_back(&collides), "team/web has it");
}

/// Else the nodes of the role before could not come back after a restart, or its entry would let in whoever makes a role
/// of that name.
#[test]
fn an_entry_of_a_former_role_stays_on_record_until_nothing_needs_it() {
    let old = "arn:aws:iam::1:role/before".to_owned();
    let recorded = |w: &World| w.status.managed.clone().expect("a record").auth_entries;
    let moved = plain().with(|w| {
        w.status.managed.as_mut().expect("a record").auth_entries.push(old.clone());
        w.state.former.auth = vec![old.clone()];
    });
    assert_eq!(recorded(&moved), [moved.resolved.role_arn.clone(), old.clone()]);
    assert_eq!(names(&moved.plan()), Vec::<&str>::new(), "a node runs by it still");
    let entry = instance_manager::auth::aws_auth::AuthEntry::for_nodes(&old, false);
    let due = moved.clone().with(|w| w.state.former.auth_gone = vec![entry]);
    assert_eq!(names(&due.plan()), ["RemoveAuthEntry"]);
    let busy = due.wants(NEW_IMAGE);
    assert!(!names(&busy.plan()).contains(&"RemoveAuthEntry"), "one thing after the other");
    let gone = moved.with(|w| w.state.former.auth.clear());
    assert_eq!(names(&gone.plan()), ["Record"]);
}
