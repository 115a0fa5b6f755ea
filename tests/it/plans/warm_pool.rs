//! Plans for warm pools: creation, changes, deletion, and rotation before the nodes.

use instance_manager::aws::{WarmInstance, WarmPhase, WarmPool, WarmSizes};
use instance_manager::plan::EksStep;
use instance_manager::plan::{NodeStep, ObjectStep, Outcome, StalledReason, Step, UncordonReason};
use instance_manager::rotation::DrainView;

use super::*;

const POOL: &str = "eks: {warmPool: {minSize: 1, maxSize: 4}}";

/// AWS allows a warm pool beside several On-Demand types without weights.
const ON_DEMAND_TYPES_WITH_POOL: &str =
    "eks: {warmPool: {minSize: 1}, configuration: {mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}}}";

fn pool(min: i32, max: Option<i32>) -> WarmPool {
    WarmPool {
        sizes: WarmSizes { min, max },
        state: "Stopped".into(),
        reuse_on_scale_in: None,
        deleting: false,
        size: None,
    }
}

/// A converged group with the desired pool.
fn converged_with_pool() -> Scenario {
    converged_with(resolved(POOL, &[])).with_scaling_group(|g| g.warm_pool = Some(pool(1, Some(4)))).with(|s| {
        s.status.managed.as_mut().expect("a record").warm_pool = true;
        s.status.template.as_mut().expect("a record").warm_pool = Some("1".into());
    })
}

fn warm_instance(id: &str, version: &str, phase: WarmPhase) -> WarmInstance {
    let instance = Instance {
        state: InstanceState::Warmed,
        template: Some(TemplatePin { id: "lt-1".into(), version: version.into() }),
        ..samples::instance(id)
    };
    WarmInstance { instance, phase }
}

/// A new version is pinned; nodes and pool still run the old one.
fn with_outdated_pool(pool: Vec<WarmInstance>) -> Scenario {
    converged_with_pool()
        .with_spec("eks: {warmPool: {minSize: 1, maxSize: 4}, configuration: {image: ami-00000002}}")
        .with(|s| {
            add_desired_version(s);
            s.state.warm_instances = Some(pool);
        })
        .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
}

/// The same group, which may replace two nodes at once and has drained one of them.
fn with_drained_node(scenario: Scenario) -> Scenario {
    let mut scenario = scenario.with_spec(
        "{strategy: {rollingUpdate: {maxUnavailable: 2}}, eks: {warmPool: {minSize: 1, maxSize: 4}, configuration: {image: ami-00000002}}}",
    );
    let node = scenario.state.nodes.get_mut("i-1").expect("a node");
    (node.cordoned, node.disruption) = (true, Some(disruption_record("2")));
    scenario.state.drains.insert("node-i-1".into(), DrainView::default());
    scenario
}

fn replaced_instances(scenario: &Scenario) -> Vec<String> {
    let of = |step: Step| match step {
        Step::Eks(EksStep::ReplaceWarmInstance { instance, .. }) => Some(instance),
        _ => None,
    };
    scenario.plan().steps.into_iter().filter_map(|s| of(s.step)).collect()
}

#[test]
fn plans_match_golden_files() {
    let ready = |id: &str| warm_instance(id, "1", WarmPhase::Ready);
    let scenarios = [
        (
            "warm_pool/with-a-new-group",
            new_group(resolved("eks: {warmPool: {maxSize: -1}, configuration: {roleName: given}}", &[])),
        ),
        ("warm_pool/added", converged().with_spec(POOL)),
        (
            "warm_pool/repaired",
            converged_with_pool().with_scaling_group(|g| {
                g.warm_pool = Some(WarmPool { state: "Running".into(), reuse_on_scale_in: Some(true), ..pool(3, None) })
            }),
        ),
        ("warm_pool/missing", converged_with_pool().with_scaling_group(|g| g.warm_pool = None)),
        ("warm_pool/removed", converged_with_pool().with_spec("{}")),
        ("warm_pool/exchanged-for-spot", converged_with_pool().with_spec(SPOT)),
        (
            "warm_pool/exchanged-for-mixed-instances",
            converged_with_pool().with_spec(
                "eks: {maxSize: 5, configuration: {mixedInstancesPolicy: {spotRatio: 50, instanceTypes: [{type: m5a.large}]}}}",
            ),
        ),
        ("warm_pool/added-to-on-demand-types", converged().with_spec(ON_DEMAND_TYPES_WITH_POOL)),
        (
            "warm_pool/mixed-instances-wait-for-deletion",
            converged_with_pool()
                .with_spec(MIXED)
                .with_scaling_group(|g| g.warm_pool.as_mut().expect("a pool").deleting = true),
        ),
        (
            "warm_pool/foreign-excludes-spot",
            converged().with_scaling_group(|g| g.warm_pool = Some(pool(1, None))).with_spec(SPOT),
        ),
        ("warm_pool/foreign-kept", converged().with_scaling_group(|g| g.warm_pool = Some(pool(1, None)))),
        (
            "warm_pool/requested-while-deleting",
            converged_with_pool().with_scaling_group(|g| g.warm_pool.as_mut().expect("a pool").deleting = true),
        ),
        (
            "warm_pool/first-observed",
            converged_with_pool().with(|s| {
                s.status.template.as_mut().expect("a record").warm_pool = None;
                s.state.warm_instances = Some(vec![ready("i-8")]);
            }),
        ),
        ("warm_pool/rotates-first", with_outdated_pool(vec![ready("i-8"), ready("i-9")])),
    ];
    for (name, scenario) in scenarios {
        assert_golden(name, &scenario.plan());
    }
}

#[test]
fn half_of_the_pool_stays_ready_during_replacement() {
    let ready = |id: &str| warm_instance(id, "1", WarmPhase::Ready);
    assert_eq!(
        replaced_instances(&with_outdated_pool(vec![ready("i-6"), ready("i-7"), ready("i-8"), ready("i-9")])),
        ["i-6", "i-7"]
    );
    // Two instances are launching or terminating already. An outdated one that is still launching is replaced at once.
    let coming = warm_instance("i-5", "2", WarmPhase::Pending);
    let leaving = warm_instance("i-6", "1", WarmPhase::Leaving);
    assert!(
        replaced_instances(&with_outdated_pool(vec![coming.clone(), leaving.clone(), ready("i-8"), ready("i-9")]))
            .is_empty()
    );
    let early = warm_instance("i-4", "1", WarmPhase::Pending);
    assert_eq!(replaced_instances(&with_outdated_pool(vec![early, leaving, ready("i-8"), ready("i-9")])), ["i-4"]);
}

#[test]
fn warm_instance_is_terminated_once() {
    let mut unhealthy = warm_instance("i-8", "1", WarmPhase::Ready);
    unhealthy.instance.healthy = false;
    assert!(
        replaced_instances(&with_outdated_pool(vec![unhealthy, warm_instance("i-9", "2", WarmPhase::Ready)]))
            .is_empty()
    );
}

#[test]
fn unprepared_pool_halts_rotation() {
    let waiting_for = |minutes| {
        with_outdated_pool(vec![
            warm_instance("i-8", "1", WarmPhase::Ready),
            warm_instance("i-9", "2", WarmPhase::Pending),
        ])
        .with(|s| s.state.warm_pool_wait = SignedDuration::from_mins(minutes))
    };
    let halted =
        |plan: &Plan| plan.condition_updates.iter().find(|n| n.condition_type == "RotationHalted").map(|n| n.status);
    let in_time = waiting_for(14).plan();
    assert!(matches!(in_time.outcome, Outcome::Progressing { .. }), "{:?}", in_time.outcome);
    assert_eq!(halted(&in_time), Some(false));
    let late = waiting_for(15).plan();
    let Outcome::Blocked { reason: StalledReason::ReplacementsNotReady, message, .. } = &late.outcome else {
        panic!("{:?}", late.outcome)
    };
    assert!(message.contains("i-9 did not finish launching or terminating within 15m"), "{message}");
    assert_eq!((halted(&late), late.steps.len()), (Some(true), 0));
    // After another spec change, the instance that never became ready is outdated and is replaced too.
    let changed = waiting_for(15)
        .with(|s| {
            let pool = s.state.warm_instances.as_mut().expect("a pool");
            pool[1].instance.template.as_mut().expect("a template").version = "1".into();
        })
        .plan();
    assert_eq!(halted(&changed), Some(false));
    assert!(
        matches!(&changed.steps[0].step, Step::Eks(EksStep::ReplaceWarmInstance { instance, .. }) if instance == "i-9")
    );
}

#[test]
fn pool_rotates_before_nodes() {
    let scenario = with_outdated_pool(vec![
        warm_instance("i-8", "2", WarmPhase::Ready),
        warm_instance("i-9", "2", WarmPhase::Pending),
    ]);
    let plan = scenario.plan();
    assert!(matches!(plan.steps[0].step, Step::Node(NodeStep::CordonNode { .. })), "{:?}", plan.steps);
    assert_eq!(plan.status_update.fields["template"]["warmPool"], "2");
}

/// Auto Scaling would replace the next node with an outdated instance of the pool, which is then replaced again.
#[test]
fn drain_in_progress_lets_no_further_node_overtake_the_pool() {
    let outdated = with_drained_node(with_outdated_pool(vec![warm_instance("i-8", "1", WarmPhase::Ready)]));
    assert_eq!(step_names(&outdated.plan()), ["ReplaceWarmInstance", "Terminate"]);
    let current = with_drained_node(with_outdated_pool(vec![warm_instance("i-8", "2", WarmPhase::Ready)]));
    assert_eq!(step_names(&current.plan()), ["Terminate", "CordonNode"]);
}

/// The group would report at once that its rotation is halted and that it continues.
#[test]
fn unprepared_pool_undoes_drains_in_progress() {
    let stuck = with_outdated_pool(vec![
        warm_instance("i-8", "1", WarmPhase::Ready),
        warm_instance("i-9", "2", WarmPhase::Pending),
    ]);
    let plan = with_drained_node(stuck).with(|s| s.state.warm_pool_wait = SignedDuration::from_mins(15)).plan();
    assert_eq!(step_names(&plan), ["UncordonNode"]);
    let updates = plan.condition_updates.iter().filter(|update| update.condition_type == "RotationHalted");
    let halts: Vec<_> = updates.map(|update| update.status).collect();
    assert_eq!(halts, [true], "{:?}", plan.condition_updates);
    let Outcome::Blocked { reason: StalledReason::ReplacementsNotReady, message, .. } = &plan.outcome else {
        panic!("{:?}", plan.outcome)
    };
    assert!(message.contains("i-9 did not finish launching"), "{message}");
    let is_repeated = plan.other_outcomes.iter().any(|other| matches!(other, Outcome::Blocked { .. }));
    assert!(!is_repeated, "{:?}", plan.other_outcomes);
}

#[test]
fn adoption_reports_foreign_pool() {
    let mut scenario = converged().with_scaling_group(|g| g.warm_pool = Some(pool(1, None)));
    scenario.status = InstanceGroupStatus::default();
    scenario.state.versions.get_mut(&1).expect("a version").fingerprint = None;
    let conditions = scenario.plan().condition_updates;
    assert!(conditions[0].message.ends_with("not in the spec and left unchanged: the warm pool"), "{conditions:?}");
}

#[test]
fn lock_blocks_pool_replacement() {
    let scenario =
        with_outdated_pool(vec![warm_instance("i-8", "1", WarmPhase::Ready)]).with(|s| s.lock = Some("a test"));
    assert!(matches!(scenario.plan().outcome, Outcome::Locked { .. }));
    assert!(replaced_instances(&scenario).is_empty());
}

#[test]
fn suspended_pool_does_not_block_rotation() {
    let scenario = with_outdated_pool(vec![warm_instance("i-8", "1", WarmPhase::Ready)])
        .with_scaling_group(|g| g.suspended_processes = vec!["ReplaceUnhealthy".into()]);
    assert!(replaced_instances(&scenario).is_empty());
    assert!(matches!(scenario.plan().steps[0].step, Step::Node(NodeStep::CordonNode { .. })));
}

#[test]
fn unsupported_pool_combination_names_both_fields() {
    let errors_with = |extra: &str| {
        let spec: Value = serde_yaml::from_str(&format!(
            "eks: {{warmPool: {{minSize: -1}}, configuration: {{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [a], securityGroups: [b], {extra}}}}}"
        ))
        .expect("YAML");
        let id = converged().resolved.desired.id;
        let found =
            desired::parse(&id, &common::annotations(&[]), &decode_spec(&spec).expect("a spec")).expect_err("errors");
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (field, extra) in [
        ("spotPrice", "spotPrice: '0.1'"),
        ("mixedInstancesPolicy.spotRatio", "mixedInstancesPolicy: {spotRatio: 50}"),
        ("weight", "mixedInstancesPolicy: {instanceTypes: [{type: m5a.large, weight: 2}]}"),
    ] {
        let errors = errors_with(extra);
        assert!(errors.iter().any(|p| p.contains("spec.eks.warmPool") && p.contains(field)), "{errors:?}");
        assert!(errors.iter().any(|p| p.starts_with("spec.eks.warmPool.minSize `-1`")), "{errors:?}");
    }
}

/// AWS does not document whether weights can be removed, so the group keeps them, and AWS would refuse the pool.
#[test]
fn weights_that_the_group_keeps_exclude_a_pool() {
    let weighted = converged().with_spec(ON_DEMAND_TYPES_WITH_POOL);
    let plan = weighted.plan();
    let policy = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => change.mixed.clone(),
        _ => None,
    });
    let policy = MixedPolicy { weighted: true, ..policy.expect("a policy") };
    let kept = weighted.with_scaling_group(|g| g.mixed = Some(policy));
    let Outcome::Blocked { reason: StalledReason::RefusedByAws, message, .. } = kept.plan().outcome else {
        panic!("{:?}", kept.plan().outcome)
    };
    assert!(message.contains("has weights"), "{message}");
    let without = kept.with_spec("eks: {warmPool: {minSize: 1, maxSize: 4}, configuration: {securityGroups: [sg-1]}}");
    let plan = without.plan();
    assert!(plan.steps.iter().any(|p| p.step.name() == "PutWarmPool"), "the weights leave with the policy: {plan:?}");
}

/// The spec goes back to the old image before the pool was replaced: instances of the new version would stay forever,
/// because the record says that the pool runs the old one.
#[test]
fn record_of_a_current_pool_ends_before_the_group_changes() {
    let records = |plan: &Plan| {
        let of = |step: &Step| match step {
            Step::Object(ObjectStep::UpdateStatus { status }) => status["template"].get("warmPool").cloned(),
            _ => None,
        };
        plan.steps.iter().filter_map(|planned| of(&planned.step)).collect::<Vec<_>>()
    };
    let pinned = converged_with_pool()
        .with_spec("eks: {warmPool: {minSize: 1, maxSize: 4}, configuration: {image: ami-00000002}}");
    let plan = pinned.plan();
    let position = |name| plan.steps.iter().position(|planned| planned.step.name() == name);
    assert!(position("UpdateStatus") < position("UpdateGroup") && position("UpdateGroup").is_some(), "{plan:?}");
    assert_eq!(records(&plan), [Value::Null]);
    let reported = plan.status_update.fields.get("template").and_then(|template| template.get("warmPool"));
    assert_eq!(reported, None, "the report must not bring it back");
    let converged = converged_with_pool().plan();
    assert_eq!((records(&converged), &converged.status_update.fields["template"]["warmPool"]), (vec![], &"1".into()));
}

/// Someone else may pin another version, and go back to the first one.
#[test]
fn record_of_another_version_ends_while_the_pool_is_outdated() {
    let outdated = with_outdated_pool(vec![warm_instance("i-8", "1", WarmPhase::Ready)]);
    assert_eq!(outdated.plan().status_update.fields["template"].get("warmPool"), None);
    let current = with_outdated_pool(vec![warm_instance("i-8", "2", WarmPhase::Ready)]);
    assert_eq!(current.plan().status_update.fields["template"]["warmPool"], "2");
}

/// AWS answers for the group and for its pool separately, and each answer may be old. An instance of the old version
/// that is not listed yet would stay in the pool, because the record says that all are current.
#[test]
fn pool_is_not_recorded_as_current_while_fewer_instances_are_listed_than_it_has() {
    let recorded = |size| {
        let listed = with_outdated_pool(vec![warm_instance("i-8", "2", WarmPhase::Ready)]);
        let shown = listed.with_scaling_group(|g| g.warm_pool.as_mut().expect("a pool").size = Some(size));
        shown.plan().status_update.fields["template"].get("warmPool").cloned()
    };
    assert_eq!(recorded(2), None);
    assert_eq!(recorded(1), Some(Value::from("2")));
}

/// A client removed the record, or the group was restored with another UID.
#[test]
fn lock_uncordons_an_orphaned_node_although_the_warm_pool_is_outdated() {
    let locked = with_outdated_pool(vec![warm_instance("i-8", "1", WarmPhase::Ready)]).with(|s| {
        s.lock = Some("a lock");
        let node = s.state.nodes.get_mut("i-1").expect("a node");
        (node.cordoned, node.orphaned_disruption) = (true, Some(disruption_record("2")));
    });
    let steps = locked.plan().steps;
    let uncordon = NodeStep::UncordonNode { node: "node-i-1".into(), reason: UncordonReason::ForeignRecord };
    assert!(steps.iter().any(|planned| planned.step == Step::from(uncordon.clone())), "{steps:?}");
}
