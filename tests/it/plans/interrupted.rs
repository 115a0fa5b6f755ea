//! Rotations that cannot continue for long: their nodes must not stay cordoned meanwhile.

use instance_manager::plan::{EksStep, NodeStep, UncordonReason};

use super::*;

const OTHER_SIZE: &str = "eks: {maxSize: 9}";

/// The group drains the node of `i-1`.
fn draining(scenario: Scenario) -> Scenario {
    scenario.with(|s| {
        let node = s.state.nodes.get_mut("i-1").expect("a node");
        (node.cordoned, node.disruption) = (true, Some(disruption_record("2")));
    })
}

fn names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

fn uncordon() -> Step {
    Step::from(NodeStep::UncordonNode { node: "node-i-1".into(), reason: UncordonReason::RotationBlocked })
}

/// The first step uncordons the node, so that it does not depend on whether the others succeed.
fn uncordons_first(scenario: &Scenario) -> bool {
    scenario.plan().steps.first().is_some_and(|planned| planned.step == uncordon())
}

#[test]
fn nodes_of_a_blocked_group_are_uncordoned() {
    let foreign = draining(converged()).with_scaling_group(|g| g.tags.iter_mut().for_each(|t| t.value.push('x')));
    assert_eq!(names(&foreign.plan()), ["UncordonNode"]);
    assert!(matches!(foreign.plan().outcome, Outcome::Blocked { reason: StalledReason::OwnershipConflict, .. }));
    assert!(uncordons_first(&foreign) && foreign.plan().recheck_at.is_some());
    let terminating = foreign.with_scaling_group(|g| g.instances[0].state = InstanceState::Terminating);
    assert_eq!(names(&terminating.plan()), Vec::<&str>::new());
    let healthy = draining(converged()).with(|s| s.state.cluster_health = ClusterHealth { total: 4, unready: 4 });
    assert!(!healthy.plan().steps.iter().any(|p| p.step == uncordon()), "the rotation decides about its nodes itself");
}

/// Another pass may follow at once, so a moment's wait reverts nothing.
#[test]
fn change_in_place_uncordons_no_nodes() {
    let changing = draining(converged()).with_spec(OTHER_SIZE);
    assert_eq!(names(&changing.plan()), ["UpdateGroup"]);
}

#[test]
fn long_refused_write_uncordons_nodes() {
    let refused = draining(converged()).with_spec(OTHER_SIZE).with(|s| s.persistent_failure = PersistentFailure::Pass);
    assert_eq!(names(&refused.plan()), ["UncordonNode", "UpdateGroup"]);
    assert!(uncordons_first(&refused));
    let idle = converged().with_spec(OTHER_SIZE).with(|s| s.persistent_failure = PersistentFailure::Pass);
    assert_eq!(names(&idle.plan()), ["UpdateGroup"]);
}

/// An instance in standby has a replacement already. Its pods are evicted, and it is terminated.
#[test]
fn refused_write_lets_an_instance_leave_standby() {
    let scenario = converged().with_spec(OTHER_SIZE).with(|s| s.persistent_failure = PersistentFailure::Pass);
    let standby = scenario.with_scaling_group(|g| g.instances[0].state = InstanceState::Standby).with(|s| {
        let record = json!({"group": "uid-1", "templateVersion": "2", "since": LONG_AGO});
        let node = s.state.nodes.get_mut("i-1").expect("a node");
        node.surge = Some(serde_json::from_value(record).expect("a record"));
        s.state.scaling_group.as_mut().expect("a group").desired = 1;
    });
    assert_eq!(names(&standby.plan()), ["UpdateStatus", "CordonNode", "UpdateGroup"]);
    let recorded = standby.with(|s| s.status.managed.as_mut().expect("a record").standby = vec!["i-1".into()]);
    assert_eq!(names(&recorded.plan()), ["CordonNode", "UpdateGroup"]);
}

/// Otherwise a group that a deletion stopped would launch no instance as long as another write is refused.
#[test]
fn refused_write_does_not_keep_launches_suspended() {
    let suspended = converged().with_spec(OTHER_SIZE).with_scaling_group(|g| {
        g.suspended_processes = vec!["Launch".into()];
        g.tags.push(Tag { key: "instancegroups.keikoproj.io/SuspendedByDeletion".into(), value: "Launch".into() });
    });
    assert_eq!(names(&suspended.plan()), ["UpdateGroup", "ResumeProcesses", "DeleteTags"]);
    let refused = suspended.with(|s| s.persistent_failure = PersistentFailure::Pass);
    assert_eq!(names(&refused.plan()), ["ResumeProcesses", "UpdateGroup", "DeleteTags"]);
}

#[test]
fn ineffective_write_uncordons_nodes() {
    let changing = draining(converged()).with_spec(OTHER_SIZE);
    let repeated: BTreeSet<_> = changing.plan().steps.iter().flat_map(|planned| planned.writes()).collect();
    let plan = changing.plan_without_effect(&repeated);
    assert_eq!(names(&plan), ["UncordonNode", "UpdateGroup"]);
    // No node depends on tags: the rotation continues.
    let tagging = draining(converged()).with_spec("eks: {configuration: {tags: [{key: a, value: b}]}}");
    let repeated: BTreeSet<_> = tagging.plan().steps.iter().flat_map(|planned| planned.writes()).collect();
    let plan = tagging.plan_without_effect(&repeated);
    assert!(plan.steps.iter().any(|p| matches!(p.step, Step::Eks(EksStep::PutTags { .. }))));
    assert!(!plan.steps.iter().any(|p| p.step == uncordon()), "{:?}", names(&plan));
}

/// Each try of a refused termination evicts the pods of a node, so the rotation waits until the next one is due.
#[test]
fn refused_step_of_a_rotation_is_not_tried_at_once() {
    let until = timestamp("2026-01-02T00:05:00Z");
    let persistent_failure = PersistentFailure::Rotation {
        until,
        reason: StalledReason::MissingPermission,
        message: "Terminate: the controller may not".into(),
        is_watched: false,
    };
    let outdated = draining(converged().with_spec(NEW_IMAGE))
        .with(add_desired_version)
        .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
        .with(|s| s.persistent_failure = persistent_failure);
    let plan = outdated.plan();
    let node_steps: Vec<_> = plan.steps.iter().filter(|p| matches!(p.step, Step::Node(_))).map(|p| &p.step).collect();
    assert_eq!(node_steps, [&uncordon()]);
    let (reason, message) = match &plan.outcome {
        Outcome::Blocked { reason, message, .. } => (*reason, message.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!((reason, plan.recheck_at), (StalledReason::MissingPermission, Some(until)));
    assert!(message.contains("may not") && message.contains("2026-01-02T00:05:00Z"), "{message}");
}

/// A client removed the record, or the group was restored with another UID.
#[test]
fn blocked_group_uncordons_a_node_with_an_orphaned_record() {
    let orphaned = |s: &mut Scenario| {
        let node = s.state.nodes.get_mut("i-1").expect("a node");
        (node.cordoned, node.orphaned_disruption) = (true, Some(disruption_record("2")));
    };
    let refused = converged().with_spec(OTHER_SIZE).with(orphaned).with(|s| {
        s.persistent_failure = PersistentFailure::Pass;
    });
    let plan = refused.plan();
    assert_eq!(names(&plan), ["UncordonNode", "UpdateGroup"]);
    let uncordon = NodeStep::UncordonNode { node: "node-i-1".into(), reason: UncordonReason::ForeignRecord };
    assert_eq!(plan.steps[0].step, Step::from(uncordon));
    let foreign = refused.with_scaling_group(|g| g.tags.iter_mut().for_each(|t| t.value.push('x')));
    assert_eq!(names(&foreign.plan()), [""; 0], "nothing proves whose the node is");
}
