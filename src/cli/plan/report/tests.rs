use super::*;
use crate::api::{Condition, InstanceGroupSpec, group_id};
use crate::plan::blocked_plan;

/// A pipeline that merges on `nothing would change` must not merge what was not planned.
#[test]
fn report_without_a_plan_is_an_error_although_it_names_no_group() {
    let mut report = PlanReport::new(vec![], &ActiveBoundaries::default());
    assert_eq!(report.exit_code(), 0, "a cluster without groups");
    report.is_planned = false;
    assert_eq!(report.exit_code(), 1, "the caller may not list the groups");
}

fn blocked_deletion(reason: StalledReason) -> Plan {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    let deleted_at = serde_json::from_value(serde_json::json!("2026-01-02T12:00:00Z")).expect("a time");
    group.metadata.deletion_timestamp = Some(deleted_at);
    blocked_plan(&group_id(&group), reason, "why".into())
}

/// `plan` must not announce the loss of nodes that a protection keeps, or of a scaling group that the controller
/// does not find.
#[test]
fn blocked_deletion_removes_nothing_unless_it_is_retried() {
    for reason in [StalledReason::DeletionProtected, StalledReason::NotFound, StalledReason::InvalidSpec] {
        assert!(keeps_nodes(&blocked_deletion(reason)), "{reason}");
    }
    let step = Step::from(ObjectStep::RemoveFinalizer);
    let planned = PlannedStep { step, reasons: vec![], is_retry: false, is_optional: false };
    let retried = Plan { steps: vec![planned], ..blocked_deletion(StalledReason::DrainBlocked) };
    assert!(!keeps_nodes(&retried), "EKS drains the nodes again");
}

/// A daily `plan -A` in CI must not report the same waiting deletion as a change forever.
#[test]
fn deletion_that_was_blocked_before_is_no_change() {
    let stalled = Condition::new(condition::STALLED, true, "DeletionProtected", "");
    let state = Some(CurrentState::Deleting.as_str().to_owned());
    let mut status = InstanceGroupStatus { current_state: state, ..InstanceGroupStatus::default() };
    for (conditions, has_changes) in [(vec![], true), (vec![stalled], false)] {
        status.conditions = conditions;
        let mut plan = GroupPlan::empty("team/web".into());
        let made = blocked_deletion(StalledReason::DeletionProtected);
        let outcome = made.outcome.clone();
        plan.classify(made, outcome, was_blocked(&status));
        assert_eq!((plan.change, plan.has_changes), (ChangeKind::Blocked, has_changes));
    }
}

/// Once the lock is removed, the nodes go. Who reads the exit code alone must learn of it in both cases.
#[test]
fn locked_surplus_counts_as_a_change_as_locked_replacements_do() {
    let node = NodeReplacement { instance: "i-1".into(), node: None, zone: "us-west-2a".into(), reasons: vec![] };
    let locked = || Outcome::Locked { message: "lock-upgrades".into() };
    let empty = || GroupPlan::empty("team/web".into());
    for (mut plan, change) in [
        (GroupPlan { nodes_to_rotate: vec![node], ..empty() }, ChangeKind::Rotate),
        (GroupPlan { nodes_to_remove: 2, ..empty() }, ChangeKind::InPlace),
    ] {
        let made = Plan { outcome: locked(), ..blocked_deletion(StalledReason::InvalidSpec) };
        plan.classify(made, locked(), false);
        assert_eq!((plan.change, plan.has_changes), (change, true));
    }
}

/// Three instances that count for eight units each are three nodes.
#[test]
fn units_of_capacity_are_not_called_nodes() {
    let status = |nodes: serde_json::Value| -> InstanceGroupStatus {
        serde_json::from_value(serde_json::json!({"nodes": nodes, "effective": {"versions": {"1": 1, "2": 2}}}))
            .expect("a status")
    };
    let weighted = status(serde_json::json!({"desired": 24, "ready": 16, "weighted": true}));
    assert_eq!(reported_nodes(&weighted), 3);
    assert_eq!(reported_nodes(&status(serde_json::json!({"desired": 5}))), 5, "one instance has not come yet");
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.status = Some(weighted);
    let message = GroupPlan::without_rights(&GroupObject(Ok(group))).message;
    assert!(message.contains("16 of 24 units of capacity ready"), "{message}");
}
