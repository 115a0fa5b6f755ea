//! Warm pools: made, changed, taken away, and brought to a new version before the nodes are.

use instance_manager::aws::{WarmInstance, WarmPhase, WarmPool, WarmSizes};
use instance_manager::plan::EksStep;
use instance_manager::plan::{NodeStep, Outcome, Reason, Step};

use super::*;

const POOL: &str = "eks: {warmPool: {minSize: 1, maxSize: 4}}";

fn pool(min: i32, max: Option<i32>) -> WarmPool {
    WarmPool { sizes: WarmSizes { min, max }, state: "Stopped".into(), deleting: false }
}

/// A group with the pool that it asks for.
fn warm() -> World {
    standing(resolved(POOL, &[])).group(|g| g.warm_pool = Some(pool(1, Some(4)))).with(|w| {
        w.status.managed.as_mut().expect("a record").warm_pool = true;
        w.status.template.as_mut().expect("a record").warm_pool = Some("1".into());
    })
}

fn warmed(id: &str, version: &str, phase: WarmPhase) -> WarmInstance {
    let instance = Instance {
        id: id.into(),
        zone: "us-west-2a".into(),
        state: InstanceState::Warmed,
        healthy: true,
        weight: 1,
        template: Some(TemplatePin { id: "lt-1".into(), version: version.into() }),
        configuration: None,
        in_service_since: None,
    };
    WarmInstance { instance, phase }
}

/// A new version is pinned; nodes and pool still run the old one.
fn changed(pool: Vec<WarmInstance>) -> World {
    warm()
        .wants("eks: {warmPool: {minSize: 1, maxSize: 4}, configuration: {image: ami-00000002}}")
        .with(|w| {
            let newer =
                Version { fingerprint: Some(w.resolved.fingerprint.clone()), data: Some(w.resolved.data.clone()) };
            w.state.versions.insert(2, newer);
            w.state.template.as_mut().expect("a template").latest_version = 2;
            w.state.warm = Some(pool);
        })
        .group(|g| g.template.as_mut().expect("a pin").version = "2".into())
}

fn replaced(world: &World) -> Vec<String> {
    let of = |step: Step| match step {
        Step::Eks(EksStep::ReplaceWarmed { instance, .. }) => Some(instance),
        _ => None,
    };
    world.plan().steps.into_iter().filter_map(|s| of(s.step)).collect()
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    let ready = |id: &str| warmed(id, "1", WarmPhase::Ready);
    let scenarios = [
        (
            "warm-pool-with-a-new-group",
            fresh(resolved("eks: {warmPool: {maxSize: -1}, configuration: {roleName: given}}", &[])),
        ),
        ("warm-pool-added", plain().wants(POOL)),
        (
            "warm-pool-repaired",
            warm().group(|g| g.warm_pool = Some(WarmPool { state: "Running".into(), ..pool(3, None) })),
        ),
        ("warm-pool-gone", warm().group(|g| g.warm_pool = None)),
        ("warm-pool-removed", warm().wants("{}")),
        ("warm-pool-of-others-lives-on", plain().group(|g| g.warm_pool = Some(pool(1, None)))),
        ("warm-pool-wanted-while-it-goes", warm().group(|g| g.warm_pool.as_mut().expect("a pool").deleting = true)),
        (
            "warm-pool-seen-for-the-first-time",
            warm().with(|w| {
                w.status.template.as_mut().expect("a record").warm_pool = None;
                w.state.warm = Some(vec![ready("i-8")]);
            }),
        ),
        ("warm-pool-rotates-first", changed(vec![ready("i-8"), ready("i-9")])),
    ];
    for (name, world) in scenarios {
        hold(name, &world.plan());
    }
}

#[test]
fn half_of_the_pool_stays_of_use_while_it_is_replaced() {
    let ready = |id: &str| warmed(id, "1", WarmPhase::Ready);
    assert_eq!(replaced(&changed(vec![ready("i-6"), ready("i-7"), ready("i-8"), ready("i-9")])), ["i-6", "i-7"]);
    // Two are on their way already; what is only being prepared is of no use and goes at once.
    let coming = warmed("i-5", "2", WarmPhase::Coming);
    let leaving = warmed("i-6", "1", WarmPhase::Leaving);
    assert!(replaced(&changed(vec![coming.clone(), leaving.clone(), ready("i-8"), ready("i-9")])).is_empty());
    let early = warmed("i-4", "1", WarmPhase::Coming);
    assert_eq!(replaced(&changed(vec![early, leaving, ready("i-8"), ready("i-9")])), ["i-4"]);
}

#[test]
fn one_that_is_given_up_is_not_given_up_again() {
    let mut given_up = warmed("i-8", "1", WarmPhase::Ready);
    given_up.instance.healthy = false;
    assert!(replaced(&changed(vec![given_up, warmed("i-9", "2", WarmPhase::Ready)])).is_empty());
}

#[test]
fn a_pool_that_is_not_prepared_in_time_halts_the_rotation_until_something_changes() {
    let held = |minutes| {
        changed(vec![warmed("i-8", "1", WarmPhase::Ready), warmed("i-9", "2", WarmPhase::Coming)])
            .with(|w| w.state.pool_waits = SignedDuration::from_mins(minutes))
    };
    let halted = |plan: &Plan| plan.notes.iter().find(|n| n.condition == "RotationHalted").map(|n| n.status);
    let in_time = held(14).plan();
    assert!(matches!(in_time.outcome, Outcome::Progressing { .. }), "{:?}", in_time.outcome);
    assert_eq!(halted(&in_time), Some(false));
    let late = held(15).plan();
    let Outcome::Blocked { reason: Reason::ReplacementsNotReady, message, .. } = &late.outcome else {
        panic!("{:?}", late.outcome)
    };
    assert!(message.contains("for 15m i-9 have neither come nor gone"), "{message}");
    assert_eq!((halted(&late), late.steps.len()), (Some(true), 0));
    // Another wanted version, and what never came is replaced as well.
    let mended = held(15)
        .with(|w| {
            let pool = w.state.warm.as_mut().expect("a pool");
            pool[1].instance.template.as_mut().expect("a template").version = "1".into();
        })
        .plan();
    assert_eq!(halted(&mended), Some(false));
    assert!(matches!(&mended.steps[0].step, Step::Eks(EksStep::ReplaceWarmed { instance, .. }) if instance == "i-9"));
}

#[test]
fn nodes_are_replaced_once_the_pool_is_new() {
    let world = changed(vec![warmed("i-8", "2", WarmPhase::Ready), warmed("i-9", "2", WarmPhase::Coming)]);
    let plan = world.plan();
    assert!(matches!(plan.steps[0].step, Step::Node(NodeStep::MarkNode { .. })), "{:?}", plan.steps);
    assert_eq!(plan.facts.status["template"]["warmPool"], "2");
}

#[test]
fn a_pool_of_others_is_told_at_a_takeover() {
    let mut world = plain().group(|g| g.warm_pool = Some(pool(1, None)));
    world.status = InstanceGroupStatus::default();
    world.state.versions.get_mut(&1).expect("a version").fingerprint = None;
    let notes = world.plan().notes;
    assert!(notes[0].message.ends_with("not in the spec and left as they are: the warm pool"), "{notes:?}");
}

#[test]
fn a_lock_holds_the_pool_too() {
    let world = changed(vec![warmed("i-8", "1", WarmPhase::Ready)]).with(|w| w.lock = Some("a test"));
    assert!(matches!(world.plan().outcome, Outcome::Locked { .. }));
    assert!(replaced(&world).is_empty());
}

#[test]
fn a_pool_that_nobody_would_refill_does_not_stop_a_rotation() {
    let world =
        changed(vec![warmed("i-8", "1", WarmPhase::Ready)]).group(|g| g.suspended = vec!["ReplaceUnhealthy".into()]);
    assert!(replaced(&world).is_empty());
    assert!(matches!(world.plan().steps[0].step, Step::Node(NodeStep::MarkNode { .. })));
}

#[test]
fn what_aws_keeps_no_pool_for_is_told_with_both_fields() {
    let problems = |extra: &str| {
        let spec: Value = serde_yaml::from_str(&format!(
            "eks: {{warmPool: {{minSize: -1}}, configuration: {{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [a], securityGroups: [b], {extra}}}}}"
        ))
        .expect("YAML");
        let id = plain().resolved.wanted.id;
        let found = desired::parse(&id, &BTreeMap::new(), &decode_spec(&spec).expect("a spec")).expect_err("problems");
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (field, extra) in
        [("spotPrice", "spotPrice: '0.1'"), ("mixedInstancesPolicy", "mixedInstancesPolicy: {spotRatio: 50}")]
    {
        let told = problems(extra);
        assert!(told.iter().any(|p| p.contains("spec.eks.warmPool") && p.contains(field)), "{told:?}");
        assert!(told.iter().any(|p| p.starts_with("spec.eks.warmPool.minSize `-1`")), "{told:?}");
    }
}
