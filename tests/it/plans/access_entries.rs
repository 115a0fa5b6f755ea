//! Plans for access entries: the role, then its entry, then the scaling group; migration in both directions.

use instance_manager::auth::access_entries::{JoinMethod, RoleAccessEntry};
use instance_manager::plan::{ObjectStep, Step};

use super::*;

const ACCESS_ENTRIES_ONLY: JoinMethod = JoinMethod::AccessEntries { remove_other: false };
const MIGRATING: JoinMethod = JoinMethod::AccessEntries { remove_other: true };

/// A converged group with this join method and these observed entries.
fn joining(join_method: JoinMethod, auth: AuthEntryState, access: AccessEntryState) -> Scenario {
    converged().with(|s| {
        s.resolved.join_method = join_method;
        s.state.join.owns_auth_entry = auth == AuthEntryState::Present;
        (s.state.join.auth_entry, s.state.join.access_entry) = (auth, access);
        let managed = s.status.managed.as_mut().expect("a record");
        if !s.state.join.owns_auth_entry {
            managed.auth_entries.clear();
        }
        if s.state.join.access_entry.kind().is_some() {
            managed.access_entries = vec![s.resolved.role_arn.clone()];
        }
    })
}

fn entry(created: &str) -> AccessEntryState {
    AccessEntryState::Present(RoleAccessEntry {
        kind: "EC2_LINUX".into(),
        is_owned: true,
        created_at: Some(timestamp(created)),
        role_id: None,
    })
}

/// The role was created just now, so it has not propagated in IAM.
fn with_new_role(scenario: Scenario) -> Scenario {
    scenario.with(|s| s.state.instance_profile.as_mut().expect("a profile").created = Some(timestamp(NOW)))
}

#[test]
fn plans_match_golden_files() {
    use AuthEntryState::{Absent, Present};
    for (name, scenario) in [
        (
            "access_entries/second-pass",
            joining(ACCESS_ENTRIES_ONLY, Absent, AccessEntryState::Absent).with(remove_scaling_group),
        ),
        ("access_entries/beside-aws-auth", joining(JoinMethod::Both, Present, AccessEntryState::Absent)),
        ("access_entries/replaces-aws-auth", joining(MIGRATING, Present, entry(LONG_AGO))),
        (
            "access_entries/rolled-back-to-aws-auth",
            joining(JoinMethod::AwsAuth { remove_other: true }, Present, entry(LONG_AGO)),
        ),
    ] {
        assert_golden(name, &scenario.plan());
    }
}

/// Otherwise a new group would wait for an hour.
#[test]
fn clock_that_is_behind_does_not_delay_a_new_group() {
    let group = |created: Timestamp| {
        converged().with(remove_scaling_group).with(|s| {
            s.state.instance_profile.as_mut().expect("a profile").created = Some(created);
        })
    };
    let creates = |scenario: &Scenario| step_names(&scenario.plan()).contains(&"CreateGroup");
    let ahead = |seconds| timestamp(NOW) + SignedDuration::from_secs(seconds);
    assert!(!creates(&group(ahead(2))), "the profile is new");
    assert!(creates(&group(ahead(3600))), "the clock is an hour behind that of AWS");
}

#[test]
fn access_entry_is_created_after_the_role() {
    let first = joining(ACCESS_ENTRIES_ONLY, AuthEntryState::Absent, AccessEntryState::Absent).with(|s| {
        let new = new_group(s.resolved.clone());
        s.state = new.state;
        s.state.join.access_entry = AccessEntryState::Absent;
        s.status = new.status;
    });
    let plan = first.plan();
    assert!(
        step_names(&plan).contains(&"CreateRole") && !step_names(&plan).contains(&"PutAccessEntry"),
        "{:?}",
        step_names(&plan)
    );
    let second = with_new_role(joining(ACCESS_ENTRIES_ONLY, AuthEntryState::Absent, AccessEntryState::Absent))
        .with(remove_scaling_group)
        .plan();
    assert!(!step_names(&second).contains(&"PutAccessEntry") && !step_names(&second).contains(&"CreateGroup"));
    let third = joining(ACCESS_ENTRIES_ONLY, AuthEntryState::Absent, AccessEntryState::Absent)
        .with(remove_scaling_group)
        .plan();
    let order: Vec<_> =
        step_names(&third).into_iter().filter(|n| matches!(*n, "PutAccessEntry" | "CreateGroup")).collect();
    assert_eq!(order, ["PutAccessEntry", "CreateGroup"]);
}

#[test]
fn entry_is_recorded_before_creation() {
    let plan = joining(JoinMethod::Both, AuthEntryState::Present, AccessEntryState::Absent).plan();
    assert_eq!(step_names(&plan)[..2], ["UpdateStatus", "PutAccessEntry"]);
    let Step::Object(ObjectStep::UpdateStatus { status }) = &plan.steps[0].step else { panic!("a record") };
    assert_eq!(status["managed"]["accessEntries"], json!([converged().resolved.role_arn]));
}

#[test]
fn converged_group_plans_nothing_for_any_join_method() {
    use AuthEntryState::{Absent, Present};
    for (join_method, auth, access) in [
        (ACCESS_ENTRIES_ONLY, Absent, entry(LONG_AGO)),
        (MIGRATING, Absent, entry(LONG_AGO)),
        (JoinMethod::Both, Present, entry(LONG_AGO)),
        (JoinMethod::Either, Present, AccessEntryState::NotQueried),
        (JoinMethod::Either, Absent, entry(LONG_AGO)),
        (JoinMethod::AwsAuth { remove_other: true }, Present, AccessEntryState::Absent),
    ] {
        let plan = joining(join_method, auth.clone(), access).plan();
        assert_eq!(step_names(&plan), [] as [&str; 0], "{join_method:?} {auth:?}");
        assert_eq!(plan.outcome, Outcome::Converged, "{join_method:?} {auth:?}");
    }
}

#[test]
fn no_access_entry_status_without_access_entries() {
    assert!(!converged().plan().status_update.fields.contains_key("join"));
    let plan = joining(JoinMethod::Both, AuthEntryState::Present, entry(LONG_AGO)).plan();
    assert_eq!(plan.status_update.fields["join"], json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
}

#[test]
fn aws_auth_entry_is_removed_after_handover_delay() {
    let young = joining(MIGRATING, AuthEntryState::Present, entry("2026-01-01T23:59:30Z")).plan();
    assert_eq!((step_names(&young), young.outcome), (vec![], Outcome::Converged));
    assert_eq!(young.recheck_at, Some(timestamp("2026-01-02T00:00:30Z")));
}

#[test]
fn wrong_entry_type_blocks_creation_and_readiness() {
    let standard = || {
        AccessEntryState::Present(RoleAccessEntry {
            kind: "STANDARD".into(),
            is_owned: false,
            created_at: None,
            role_id: None,
        })
    };
    for scenario in [
        joining(ACCESS_ENTRIES_ONLY, AuthEntryState::Absent, standard()),
        joining(ACCESS_ENTRIES_ONLY, AuthEntryState::Absent, standard()).with(remove_scaling_group),
    ] {
        let plan = scenario.plan();
        assert!(matches!(
            &plan.outcome,
            Outcome::Blocked { reason: StalledReason::AuthConflict, message, .. } if message.contains("STANDARD")
        ));
        assert!(!step_names(&plan).contains(&"CreateGroup"));
    }
}
