//! A person edits or removes the ownership tags of a recorded profile. It exists, so it is neither replaced nor forgotten.

use super::*;

const NAMESPACE: &str = "instancegroups.keikoproj.io/Namespace";

fn is_ownership(tag: &Tag) -> bool {
    tag.key.starts_with("instancegroups.keikoproj.io/")
}

fn edit(profile: &mut FargateProfile) {
    profile.tags.iter_mut().filter(|tag| tag.key == NAMESPACE).for_each(|tag| tag.value = "edited".into());
}

fn remove(profile: &mut FargateProfile) {
    profile.tags.retain(|tag| !is_ownership(tag));
}

/// A Ready group whose only profile has replaced the first one.
fn replaced() -> Scenario {
    let settled = settle(converged().with_spec(OTHER)).with(|s| {
        s.status.conditions =
            serde_json::from_value(serde_json::json!([{ "type": "Ready", "status": "True" }])).expect("conditions");
    });
    assert_eq!((settled.observed.profiles.len(), settled.plan().outcome), (1, Outcome::Converged));
    settled
}

fn recorded(scenario: &Scenario) -> Vec<String> {
    let mut after = scenario.clone();
    after.apply_records(&scenario.plan());
    after.status.fargate.expect("a record").profiles
}

/// A second profile beside it would serve the same pods, and the first one would be left behind forever.
#[test]
fn only_profile_with_edited_tags_is_not_replaced() {
    let fewer = |p: &mut FargateProfile| p.tags.retain(|tag| tag.key != NAMESPACE);
    let of_others = |p: &mut FargateProfile| {
        remove(p);
        p.role_arn = "arn:aws:iam::1:role/others".into();
    };
    for change in [edit as fn(&mut FargateProfile), fewer, of_others] {
        let scenario = replaced().with(|s| change(&mut s.observed.profiles[0]));
        let name = scenario.observed.profiles[0].name.clone();
        let plan = scenario.plan();
        let (reason, message) = blocked(&plan);
        assert_eq!((reason, step_names(&plan)), (StalledReason::OwnershipConflict, vec![]));
        assert!(message.contains(&name) && message.contains(NAMESPACE), "{message}");
        assert!(plan.events.is_empty(), "no client deleted it: {:?}", plan.events);
        assert_eq!(recorded(&scenario), [name]);
    }
    let first = converged().with(|s| edit(&mut s.observed.profiles[0]));
    let plan = first.plan();
    let (reason, message) = blocked(&plan);
    assert!(reason == StalledReason::OwnershipConflict && message.contains(NAMESPACE), "{message}");
    assert_eq!(recorded(&first).len(), 1);
}

#[test]
fn profile_without_any_of_its_tags_is_tagged_again() {
    let mut removed = replaced().with(|s| remove(&mut s.observed.profiles[0]));
    let denied = removed.clone().with(|s| s.observed.tag_retry_pending = true);
    assert_eq!((denied.step_names(), blocked(&denied.plan()).0), (vec![], StalledReason::MissingPermission));
    let plan = removed.plan();
    assert_eq!(step_names(&plan), ["TagFargateProfile"]);
    assert!(plan.events.iter().all(|event| event.reason != "ResourceRecreated"), "{:?}", plan.events);
    removed.apply(&plan);
    let r = &removed.resolved;
    assert!(r.ownership_tags.iter().all(|tag| removed.observed.profiles[0].tags.contains(tag)));
    assert_eq!((removed.step_names(), removed.plan().outcome), (vec![], Outcome::Converged));
}

/// The pods of the old profile run on with the old role. Without a word, both would stay forever, or only the profile.
#[test]
fn outgoing_profile_with_edited_tags_keeps_its_record_and_its_role() {
    let policy = resolved("{}").managed_policy;
    let both = pass(converged().with_spec(GIVEN), 1);
    assert_eq!(both.observed.profiles.len(), 2);
    let edited = settle(both.clone().with(|s| edit(&mut s.observed.profiles[0])))
        .with(|s| s.observed.previous_role = Some(own_role(&[&policy])));
    assert_eq!((edited.step_names(), edited.observed.profiles.len()), (vec![], 2));
    let plan = edited.plan();
    let (reason, message) = blocked(&plan);
    assert!(
        reason == StalledReason::OwnershipConflict && message.contains(&edited.observed.profiles[0].name),
        "{message}"
    );
    assert_eq!(recorded(&edited).len(), 2);
    let restored = edited.with(|s| s.observed.profiles[0].tags = s.resolved.tags.clone());
    assert!(restored.step_names().contains(&"DeleteFargateProfile"), "{:?}", restored.step_names());
    let removed = both.with(|s| remove(&mut s.observed.profiles[0]));
    let steps = removed.step_names();
    assert!(steps.contains(&"TagFargateProfile") && !steps.contains(&"DeleteFargateProfile"), "{steps:?}");
    assert!(matches!(removed.plan().outcome, Outcome::Progressing { .. }), "it is tagged before it is deleted");
    assert_eq!(settle(removed).observed.profiles.len(), 1);
}

/// The spec names another role, and the new profile is not created yet. The group would not replace the profile, and its
/// deletion would wait forever.
#[test]
fn outgoing_profile_with_a_previous_role_is_tagged_again() {
    let next = GIVEN.replace("role/given", "role/next");
    let mut waiting = settle(converged().with_spec(GIVEN)).with_spec(&next);
    waiting.observed.queue_position.ahead = 1;
    let plan = waiting.plan();
    waiting.apply_records(&plan);
    assert_eq!(waiting.status.nodes_instance_role_arn.as_ref(), Some(&waiting.resolved.role_arn));
    let removed = waiting.with(|s| remove(&mut s.observed.profiles[0]));
    assert_ne!(removed.observed.profiles[0].role_arn, removed.resolved.role_arn);
    let plan = removed.plan();
    assert!(step_names(&plan).contains(&"TagFargateProfile"), "{plan:?}");
    assert!(!matches!(plan.outcome, Outcome::Blocked { .. }), "{:?}", plan.outcome);
    assert_eq!(step_names(&deletion_plan(&removed, &removed.observed.profiles, None)), ["TagFargateProfile"]);
}

/// The pods of a profile that stays behind could not start anymore without its role.
#[test]
fn deletion_waits_for_a_recorded_profile_with_edited_tags() {
    let scenario = replaced().with(|s| s.resolved.desired.id.has_finalizer = true);
    let role = own_role(&[&scenario.resolved.managed_policy]);
    let of = |change: fn(&mut FargateProfile)| {
        let mut profile = scenario.observed.profiles[0].clone();
        change(&mut profile);
        [profile]
    };
    let plan = deletion_plan(&scenario, &of(edit), Some(&role));
    let (reason, message) = blocked(&plan);
    assert_eq!((reason, step_names(&plan)), (StalledReason::OwnershipConflict, vec![]));
    assert!(message.contains(&scenario.observed.profiles[0].name) && message.contains(NAMESPACE), "{message}");
    let beside = [of(edit), of(|profile| profile.name += "-2")].concat();
    assert_eq!(step_names(&deletion_plan(&scenario, &beside, None)), ["DeleteFargateProfile"], "the others go");
    assert_eq!(step_names(&deletion_plan(&scenario, &of(remove), None)), ["TagFargateProfile"]);
    assert_eq!(step_names(&deletion_plan(&scenario, &of(|_| ()), None)), ["DeleteFargateProfile"]);
    assert!(step_names(&deletion_plan(&scenario, &[], Some(&role))).ends_with(&["DeleteRole", "RemoveFinalizer"]));
}
