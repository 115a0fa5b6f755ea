//! Weights in a group with a mixed instances policy: how they are added and changed, and how nodes are removed.

use instance_manager::plan::EksStep;
use instance_manager::plan::{NodeStep, ObjectStep, Step};
use instance_manager::rotation::DrainView;

use super::*;

/// Ten nodes of type m5.large, with these weights in AWS and in the spec.
fn ten_nodes(present: &str, desired: &str) -> Scenario {
    let policy = |types: &str| format!("eks: {{minSize: 1, maxSize: 40, configuration: {{{types}}}}}");
    converged_with(resolved(&policy(present), &[]))
        .with(|s| s.resolved = resolved(&policy(desired), &[]))
        .with_scaling_group(|g| {
            (g.min, g.max, g.desired) = (1, 40, 10);
            let one = g.instances[0].clone();
            let weight = g.mixed.as_ref().map_or(1, |m| m.overrides[0].weight);
            g.instances = (0..10).map(|n| Instance { id: format!("i-{n}"), weight, ..one.clone() }).collect();
            g.desired = 10 * weight as i32;
        })
        .with(|s| s.state.nodes = (0..10).map(|n| format!("i-{n}")).map(|id| (id.clone(), node(&id))).collect())
}

/// A configuration without a mixed instances policy.
const UNWEIGHTED: &str = "securityGroups: [sg-1]";
const LIGHT: &str =
    "mixedInstancesPolicy: {instanceTypes: [{type: m5.large, weight: 1}, {type: m5.xlarge, weight: 2}]}";
const HEAVY: &str =
    "mixedInstancesPolicy: {instanceTypes: [{type: m5.large, weight: 2}, {type: m5.xlarge, weight: 4}]}";

/// The policy's weights and the `minSize` that the plan sets, if it sets a policy.
fn policy_update(scenario: &Scenario) -> Option<(Vec<u32>, Option<i32>)> {
    scenario.plan().steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => {
            let policy = change.mixed.as_ref()?;
            Some((policy.overrides.iter().map(|o| o.weight).collect(), change.min))
        }
        _ => None,
    })
}

fn blocked_message(scenario: &Scenario) -> String {
    match scenario.plan().outcome {
        Outcome::Blocked { reason: StalledReason::InvalidSpec, message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_that_would_cost_nodes_are_refused_with_sizes() {
    for (present, name) in [(UNWEIGHTED, "added"), (LIGHT, "changed")] {
        let scenario = ten_nodes(present, HEAVY);
        assert_eq!(policy_update(&scenario), None, "{name}");
        let message = blocked_message(&scenario);
        assert!(message.contains("the 10 nodes count for 20 units, but the desired capacity is 10"), "{message}");
        assert!(message.contains("together with minSize 20 and a maxSize of at least 20"), "{message}");
    }
}

#[test]
fn weights_are_set_together_with_sizes_that_keep_the_nodes() {
    let with_min = |min| ten_nodes(LIGHT, HEAVY).with(|s| s.resolved.desired.min_size = min);
    assert_eq!(policy_update(&with_min(20)), Some((vec![2, 4], Some(20))));
    assert_eq!(policy_update(&with_min(19)), Some((vec![2, 4], Some(19))), "one unit costs no node of two");
    assert_eq!(policy_update(&with_min(18)), None);
    let steps = with_min(18).plan().steps;
    assert!(steps.is_empty(), "minSize is in units of the new weights: {steps:?}");
    // A lock holds nothing, because no node is lost.
    assert!(policy_update(&with_min(20).with(|s| s.lock = Some("a test"))).is_some());
    assert!(policy_update(&ten_nodes(HEAVY, LIGHT)).is_some(), "smaller weights cost no node");
}

/// With a `maxSize` by the old weights, Auto Scaling would launch nodes, and the controller drain them at once.
#[test]
fn smaller_weights_come_with_the_sizes_of_the_spec() {
    let lighter = ten_nodes(HEAVY, LIGHT).with(|s| s.resolved.desired.max_size = 10);
    let plan = lighter.plan();
    let sizes = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Eks(EksStep::UpdateGroup { change, .. }) => Some((change.mixed.is_some(), change.max)),
        _ => None,
    });
    assert_eq!(sizes, Some((true, Some(10))));
    assert!(!plan.steps.iter().any(|p| p.step.is_disruptive()), "ten nodes of one unit are no surplus: {plan:?}");
    let launching = lighter.with_scaling_group(|g| g.desired = 30);
    assert_eq!(super::planned_max_size(&launching), Some(30), "Auto Scaling would terminate what it launches");
}

#[test]
fn weights_wait_for_instances_that_are_launching() {
    let launching = ten_nodes(LIGHT, HEAVY).with_scaling_group(|g| g.instances.truncate(5));
    let Outcome::Progressing { message, .. } = launching.plan().outcome else { panic!("{:?}", launching.plan()) };
    assert!(policy_update(&launching).is_none() && !message.is_empty(), "{message}");
}

fn listed_types(policy: &MixedPolicy) -> Vec<String> {
    policy.overrides.iter().map(ToString::to_string).collect()
}

fn one_other_type(group: &mut ScalingGroup) {
    group.instances[0].instance_type = "c5.large".into();
}

/// AWS refuses new weights without a type that runs, and nothing replaces the nodes of a type that left the list: the
/// group would be stalled for good.
#[test]
fn running_types_are_listed_until_the_weights_are_set() {
    let without_weights = "mixedInstancesPolicy: {instanceTypes: [{type: c5.large}]}";
    for present in [UNWEIGHTED, without_weights] {
        let scenario = ten_nodes(present, LIGHT).with_scaling_group(one_other_type);
        let policy = planned_policy(&scenario).expect("a policy");
        assert_eq!(listed_types(&policy), ["m5.large", "m5.xlarge x2", "c5.large"], "{present}");
        let set = scenario.with_scaling_group(|g| g.mixed = Some(policy));
        let policy = planned_policy(&set).expect("a policy");
        assert_eq!(listed_types(&policy), ["m5.large", "m5.xlarge x2"], "{present}");
        let done = set.with_scaling_group(|g| g.mixed = Some(policy));
        assert_eq!(done.plan().steps, vec![], "{present}");
    }
    let refused = ten_nodes(UNWEIGHTED, HEAVY).with_scaling_group(one_other_type);
    assert!(blocked_message(&refused).contains("the 10 nodes count for 19 units"), "it counts for one");
}

/// AWS would refuse the policy in every pass.
#[test]
fn new_weights_wait_for_nodes_of_types_beyond_the_limit_of_aws() {
    let full = ten_nodes(UNWEIGHTED, LIGHT).with_scaling_group(one_other_type).with(|s| {
        let mixed = s.resolved.desired.mixed_instances.as_mut().expect("a policy");
        mixed.overrides.extend((0..38).map(|n| type_override(&format!("m6i.{n}xlarge"))));
    });
    assert_eq!(planned_policy(&full), None);
    assert!(blocked_message(&full).contains("at most 40 types; c5.large runs, too"), "{}", blocked_message(&full));
    let outdated = full.with_scaling_group(|g| {
        g.instances.iter_mut().for_each(|i| i.template.as_mut().expect("a pin").id = "lt-other".into());
    });
    assert!(outdated.plan().steps.iter().any(|p| p.step.is_disruptive()) && planned_policy(&outdated).is_none());
}

#[test]
fn weights_of_one_are_sent_only_where_the_group_has_weights() {
    let weighted = |scenario: &Scenario| planned_policy(scenario).expect("a policy").weighted;
    assert!(!weighted(&with_mixed_instances().with(remove_scaling_group)));
    assert!(!weighted(&converged().with_spec(MIXED)));
    assert!(weighted(&converged().with_spec(WEIGHTED)));
    let removed = with_mixed_instances().with_scaling_group(|g| {
        let policy = g.mixed.as_mut().expect("a policy");
        policy.weighted = true;
        policy.distribution.on_demand_base = 0;
    });
    assert!(weighted(&removed), "AWS does not document what the removal of weights does");
    let unchanged = with_mixed_instances().with_scaling_group(|g| g.mixed.as_mut().expect("a policy").weighted = true);
    assert_eq!(unchanged.plan().steps, vec![], "weights of one are no difference");
}

/// The deletion of a group whose two nodes, of this weight, are drained.
fn deletion_of_drained_nodes(weight: u32) -> Plan {
    let scenario = converged().with_scaling_group(|g| {
        g.instances.iter_mut().for_each(|i| i.weight = weight);
        (g.min, g.suspended_processes) = (0, vec!["Launch".into()]);
    });
    let drained = |id: &str| NodeView { cordoned: true, disruption: Some(disruption_record("1")), ..node(id) };
    let group = scenario.state.scaling_group.as_ref().expect("a group");
    let member = |i: &Instance| NodeInstance {
        is_recorded_standby: false,
        instance: i.clone(),
        node: Some(drained(&i.id)),
        lost_node: None,
        reasons: vec![],
        in_place: None,
    };
    let members: Vec<_> = group.instances.iter().map(member).collect();
    let drains = ["node-i-1", "node-i-2"].map(|node| (node.to_owned(), DrainView::default())).into();
    delete::plan_deletion(&delete::DeleteInput {
        id: &scenario.resolved.desired.id,
        ownership_tags: &scenario.resolved.ownership_tags,
        scaling_group: Some(group),
        members: &members,
        drains: &drains,
        template: None,
        has_derived_template_name: true,
        launch_configurations: &[],
        role: None,
        attached_policies: &[],
        removable_policies: &[],
        inline_policies: &[],
        instance_profile: None,
        region: &scenario.resolved.region,
        status: &scenario.status,
        adopted: &AdoptedResources::default(),
        aws_auth_entries: &[],
        access_entries: &[],
        kept_entries: &[],
        modified_auth_entries: &[],
        wait_for: None,
        unreadable_aws_auth: None,
        role_in_use: None,
        template_in_use: None,
        drain_timeout: SignedDuration::from_mins(30),
        timing: &Timing::default(),
        now: timestamp(NOW),
    })
}

#[test]
fn deletion_decrements_no_group() {
    let decrements = |weight: u32| {
        let plan = deletion_of_drained_nodes(weight);
        let decrement = |p: &instance_manager::plan::PlannedStep| match &p.step {
            Step::Node(NodeStep::Terminate { decrement_desired, .. }) => Some(*decrement_desired),
            _ => None,
        };
        plan.steps.iter().filter_map(decrement).collect::<Vec<_>>()
    };
    assert_eq!(decrements(1), [false, false], "a repeated decrement makes AWS take a node that still has pods");
    assert_eq!(decrements(4), [false, false], "decrements by the weight could end below zero");
}

/// The desired capacity of such a group is in units. Counted in instances, its deletion would look as if most of its nodes
/// were missing, and an alert would say so.
#[test]
fn deletion_counts_nodes_in_units_of_the_desired_capacity() {
    let counts = |weight: u32| {
        let plan = deletion_of_drained_nodes(weight);
        let nodes = &plan.status_update.fields["nodes"];
        let count = |name: &str| nodes[name].as_u64();
        ([count("ready"), count("outdated"), count("draining")], nodes["weighted"].as_bool())
    };
    assert_eq!(counts(1), ([Some(2); 3], None));
    assert_eq!(counts(4), ([Some(8); 3], Some(true)));
}

/// A scaling group as AWS runs it: with weights, and a decrement by one or by the weight.
#[derive(Clone, Debug)]
struct WeightedGroup {
    nodes: BTreeMap<String, (i32, bool)>,
    sizes: (i32, i32, i32),
    by_weight: bool,
    launched: usize,
    undrained: usize,
    refused: usize,
}

impl WeightedGroup {
    fn capacity(&self) -> i32 {
        self.nodes.values().map(|(weight, _)| weight).sum()
    }

    /// Launches nodes up to the desired capacity, and terminates those that fit in the excess.
    fn settle(&mut self) {
        while self.capacity() < self.sizes.2 {
            self.launched += 1;
            self.nodes.insert(format!("new-{}", self.launched), (1, false));
        }
        while let Some(id) =
            self.nodes.iter().find(|(_, (w, _))| *w <= self.capacity() - self.sizes.2).map(|n| n.0.clone())
        {
            let (_, drained) = self.nodes.remove(&id).expect("a node");
            self.undrained += usize::from(!drained);
        }
    }

    fn scenario(&self, sizes: (i32, i32), max_unavailable: usize) -> Scenario {
        let strategy = format!("{{strategy: {{rollingUpdate: {{maxUnavailable: {max_unavailable}}}}}, {WEIGHTED}}}");
        converged_with(resolved(&strategy, &[]))
            .with_scaling_group(|g| {
                let one = g.instances[0].clone();
                let instance = |(id, (weight, _)): (&String, &(i32, bool))| Instance {
                    id: id.clone(),
                    weight: *weight as u32,
                    ..one.clone()
                };
                g.instances = self.nodes.iter().map(instance).collect();
                (g.min, g.max, g.desired) = self.sizes;
            })
            .with(|s| {
                (s.resolved.desired.min_size, s.resolved.desired.max_size) = sizes;
                s.state.nodes = self.nodes.keys().map(|id| (id.clone(), node(id))).collect();
                for (id, _) in self.nodes.iter().filter(|(_, (_, drained))| *drained) {
                    let node = s.state.nodes.get_mut(id).expect("a node");
                    (node.cordoned, node.disruption) = (true, Some(disruption_record("1")));
                    s.state.drains.insert(node.name.clone(), DrainView::default());
                }
            })
    }

    /// Applies a step. Returns false if AWS refuses it.
    fn apply(&mut self, step: &Step) -> bool {
        match step {
            Step::Eks(EksStep::UpdateGroup { change, .. }) => {
                let (min, max, desired) = self.sizes;
                let (min, max) = (change.min.unwrap_or(min), change.max.unwrap_or(max));
                self.sizes = (min, max, desired.clamp(min, max));
            }
            Step::Node(NodeStep::CordonNode { instance, .. }) => {
                self.nodes.get_mut(instance).expect("a node").1 = true;
            }
            Step::Node(NodeStep::UncordonNode { node, .. }) => {
                self.nodes.get_mut(node.trim_start_matches("node-")).expect("a node").1 = false;
            }
            Step::Node(NodeStep::Terminate { instance, decrement_desired, .. }) => {
                let weight = self.nodes[instance].0;
                let units = if self.by_weight { weight } else { 1 };
                if *decrement_desired && self.sizes.2 - units < self.sizes.0 {
                    self.refused += 1;
                    return false;
                }
                self.sizes.2 -= if *decrement_desired { units } else { 0 };
                self.nodes.remove(instance);
            }
            other => panic!("{other:?}"),
        }
        self.settle();
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn weighted_scale_in_is_right_for_both_decrements(
        weights in prop::collection::vec(1i32..6, 1..8),
        (max, min) in (0i32..30, 0i32..30),
        slack in 0i32..5,
        max_unavailable in 1usize..4,
        by_weight: bool,
    ) {
        let nodes: BTreeMap<_, _> = weights.iter().enumerate().map(|(n, w)| (format!("i-{n}"), (*w, false))).collect();
        let capacity: i32 = weights.iter().sum();
        let lightest = *weights.iter().min().expect("a node");
        let (max, desired) = (max.min(capacity), capacity - slack.min(lightest - 1));
        let min = min.min(max);
        let sizes = (min.min(desired), capacity, desired);
        let mut group = WeightedGroup { nodes, sizes, by_weight, launched: 0, undrained: 0, refused: 0 };
        let mut passes = 0;
        loop {
            let steps = group.scenario((min, max), max_unavailable).plan().steps;
            if steps.is_empty() {
                break;
            }
            for planned in &steps {
                if !group.apply(&planned.step) {
                    break;
                }
            }
            passes += 1;
            prop_assert!(passes < 200, "never ends: {group:?}");
        }
        prop_assert_eq!((group.launched, group.undrained, group.refused), (0, 0, 0), "{:?}", group);
        prop_assert_eq!((group.sizes.0, group.sizes.1), (min, max));
        let rest = group.nodes.values().map(|(weight, _)| *weight).min().unwrap_or(0);
        prop_assert!(group.capacity() >= max.min(capacity) && (group.capacity() - max < rest.max(1)), "{:?}", group);
    }
}

/// A tenant tries a mixed instances policy, which has its own price. The group would ignore the recommendation for good
/// once the policy leaves the spec.
#[test]
fn recommendation_outlives_a_policy_and_ends_with_another_price() {
    let recommended = |over: &str| SpotRecommendation {
        use_spot: true,
        spot_price: "0.05".into(),
        given: "2026-01-01T00:00:00Z".into(),
        namespace: None,
        over: over.into(),
        ended: None,
    };
    let ends = |spec: &str| {
        let scenario =
            converged_with(resolved(spec, &[])).with(|s| s.status.spot_recommendation = Some(recommended("0.08")));
        let steps = scenario.plan().steps;
        let is_end = |step: &Step| match step {
            Step::Object(ObjectStep::UpdateStatus { status }) => status["spotRecommendation"]["ended"] == true,
            _ => false,
        };
        steps.iter().any(|planned| is_end(&planned.step))
    };
    assert!(!ends(&format!("eks: {{configuration: {{spotPrice: '0.08', {LIGHT}}}}}")));
    assert!(ends("eks: {configuration: {spotPrice: '0.1'}}"));
}
