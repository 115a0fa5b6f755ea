//! Joining by access entries, pass by pass: the role first, then its entry, then the scaling group; moving over and back.

use instance_manager::auth::access_entries::Way;
use instance_manager::plan::{ObjectStep, Step};

use super::*;

const ONLY: Way = Way::AccessEntries { retire: false };
const MOVING: Way = Way::AccessEntries { retire: true };

/// A group whose nodes join by an access entry, as the cluster has it.
fn joining(way: Way, auth: EntryState, access: Access) -> World {
    plain().with(|w| {
        w.resolved.way = way;
        w.state.join.auth_is_ours = auth == EntryState::Present;
        (w.state.join.auth, w.state.join.access) = (auth, access);
        let managed = w.status.managed.as_mut().expect("a record");
        if !w.state.join.auth_is_ours {
            managed.auth_entries.clear();
        }
        if w.state.join.access.kind().is_some() {
            managed.access_entries = vec![w.resolved.role_arn.clone()];
        }
    })
}

fn entry(created: &str) -> Access {
    Access::Present { kind: "EC2_LINUX".into(), ours: true, created: Some(at(created)), role_id: None }
}

fn names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

/// The role has just been made, so that IAM does not know it everywhere.
fn young(world: World) -> World {
    world.with(|w| w.state.profile.as_mut().expect("a profile").created = Some(at(NOW)))
}

#[test]
fn plans_with_access_entries_are_what_the_golden_files_hold() {
    use EntryState::{Absent, Present};
    for (name, world) in [
        ("access-entry-second-pass", joining(ONLY, Absent, Access::Absent).with(ungrouped)),
        ("access-entry-beside-aws-auth", joining(Way::Both, Present, Access::Absent)),
        ("access-entry-takes-over", joining(MOVING, Present, entry(LONG_AGO))),
        ("access-entry-goes-back", joining(Way::AwsAuth { retire: true }, Present, entry(LONG_AGO))),
    ] {
        hold(name, &world.plan());
    }
}

#[test]
fn the_first_pass_makes_the_role_and_leaves_its_entry_to_the_next() {
    let first = joining(ONLY, EntryState::Absent, Access::Absent).with(|w| {
        let settled = fresh(w.resolved.clone());
        w.state = settled.state;
        w.state.join.access = Access::Absent;
        w.status = settled.status;
    });
    let plan = first.plan();
    assert!(names(&plan).contains(&"CreateRole") && !names(&plan).contains(&"PutAccessEntry"), "{:?}", names(&plan));
    let second = young(joining(ONLY, EntryState::Absent, Access::Absent)).with(ungrouped).plan();
    assert!(!names(&second).contains(&"PutAccessEntry") && !names(&second).contains(&"CreateGroup"));
    let third = joining(ONLY, EntryState::Absent, Access::Absent).with(ungrouped).plan();
    let order: Vec<_> = names(&third).into_iter().filter(|n| matches!(*n, "PutAccessEntry" | "CreateGroup")).collect();
    assert_eq!(order, ["PutAccessEntry", "CreateGroup"]);
}

#[test]
fn what_is_ours_is_recorded_before_it_is_made() {
    let plan = joining(Way::Both, EntryState::Present, Access::Absent).plan();
    assert_eq!(names(&plan)[..2], ["Record", "PutAccessEntry"]);
    let Step::Object(ObjectStep::Record { status }) = &plan.steps[0].step else { panic!("a record") };
    assert_eq!(status["managed"]["accessEntries"], json!([plain().resolved.role_arn]));
}

#[test]
fn a_group_at_rest_plans_nothing_whichever_way_it_joins() {
    use EntryState::{Absent, Present};
    for (way, auth, access) in [
        (ONLY, Absent, entry(LONG_AGO)),
        (MOVING, Absent, entry(LONG_AGO)),
        (Way::Both, Present, entry(LONG_AGO)),
        (Way::Either, Present, Access::Unasked),
        (Way::Either, Absent, entry(LONG_AGO)),
        (Way::AwsAuth { retire: true }, Present, Access::Absent),
    ] {
        let plan = joining(way, auth.clone(), access).plan();
        assert_eq!(names(&plan), [] as [&str; 0], "{way:?} {auth:?}");
        assert_eq!(plan.outcome, Outcome::Converged, "{way:?} {auth:?}");
    }
}

#[test]
fn a_group_that_never_heard_of_access_entries_is_told_nothing_about_them() {
    assert!(!plain().plan().facts.status.contains_key("join"));
    let told = joining(Way::Both, EntryState::Present, entry(LONG_AGO)).plan();
    assert_eq!(told.facts.status["join"], json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
}

#[test]
fn the_entry_in_aws_auth_goes_when_the_access_entry_has_been_there_for_a_minute() {
    let young = joining(MOVING, EntryState::Present, entry("2026-01-01T23:59:30Z")).plan();
    assert_eq!((names(&young), young.outcome), (vec![], Outcome::Converged));
    assert_eq!(young.wake, Some(at("2026-01-02T00:00:30Z")));
}

#[test]
fn an_entry_of_a_wrong_type_keeps_the_group_from_being_made_and_a_standing_one_from_being_ready() {
    let standard = || Access::Present { kind: "STANDARD".into(), ours: false, created: None, role_id: None };
    for world in
        [joining(ONLY, EntryState::Absent, standard()), joining(ONLY, EntryState::Absent, standard()).with(ungrouped)]
    {
        let plan = world.plan();
        assert!(matches!(
            &plan.outcome,
            Outcome::Blocked { reason: Reason::AuthConflict, message, .. } if message.contains("STANDARD")
        ));
        assert!(!names(&plan).contains(&"CreateGroup"));
    }
}
