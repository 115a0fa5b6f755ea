//! No healthy node is drained before its replacement is Ready, and no node stays in standby.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::aws::InstanceState;
use crate::plan::NodeStep;
use crate::rotation::drain::DrainPolicy;
use crate::rotation::rolling_update::{RotationState, decide};
use crate::rotation::tests::{NodeInstanceExt, UID, ago, drains, input, node_instance, step_summaries};
use crate::rotation::{DrainView, Drains, NodeInstance, SurgeRecord};

fn with_surge_record(member: NodeInstance) -> NodeInstance {
    with_surge_record_since(member, 120)
}

fn with_surge_record_since(member: NodeInstance, seconds: i64) -> NodeInstance {
    let since = ago(seconds);
    member.node(|n| n.surge = Some(SurgeRecord { group: UID.into(), template_version: "2".into(), since }))
}

fn in_standby(name: &str) -> NodeInstance {
    with_surge_record(node_instance(name).outdated()).state(InstanceState::Standby)
}

/// In standby, by the record in the status alone.
fn recorded(member: NodeInstance) -> NodeInstance {
    NodeInstance { is_recorded_standby: true, ..member }.state(InstanceState::Standby)
}

/// A window that closes, or a freeze that begins, must leave no instance in standby and no node half drained.
#[test]
fn blocked_rotation_finishes_its_surge_and_begins_no_other() {
    let old = |n: &str| node_instance(n).outdated();
    let pending = |n: &str| node_instance(n).never_joined().state(InstanceState::Pending);
    let (empty, none) = (drains("node-a", vec![]), Drains::new());
    for (what, members, drains, steps) in [
        ("nothing has begun", vec![old("a"), old("b")], &none, vec![]),
        ("EnterStandby was not called", vec![with_surge_record(old("a")), old("b")], &none, vec!["standby a"]),
        ("the replacement is Pending", vec![in_standby("a"), pending("n"), old("b")], &none, vec![]),
        ("the replacement is Ready", vec![in_standby("a"), node_instance("n"), old("b")], &none, vec!["cordon a"]),
        ("it is drained", vec![in_standby("a").cordoned(), node_instance("n"), old("b")], &empty, vec!["terminate a"]),
    ] {
        let rollout_block = Some("the rollout of r2: its window is closed");
        let decision =
            decide(&RollingUpdateInput { desired: 2, max_surge: 1, rollout_block, ..input(&members, drains, 1) });
        assert_eq!(step_summaries(&decision), steps, "{what}");
        let is_blocked = matches!(decision.state, RotationState::Locked(_));
        assert_eq!(is_blocked, what == "nothing has begun", "{what}: {:?}", decision.state);
    }
}

#[test]
fn healthy_nodes_enter_standby_and_unhealthy_ones_are_replaced_immediately() {
    let old = |n: &str| node_instance(n).outdated();
    type Case<'a> = (&'a str, usize, usize, Vec<NodeInstance>, Vec<&'a str>);
    let cases: Vec<Case> = vec![
        ("one at a time", 1, 2, vec![old("a"), old("b")], vec!["record a", "standby a"]),
        (
            "an unhealthy one needs no surge",
            1,
            2,
            vec![old("a"), old("b").never_joined()],
            vec!["terminate b", "record a", "standby a"],
        ),
        (
            "the record was written and EnterStandby was not called",
            1,
            2,
            vec![with_surge_record(old("a")), old("b")],
            vec!["standby a"],
        ),
        ("its replacement does not exist", 1, 1, vec![in_standby("a")], vec![]),
        (
            "its replacement became Ready only now",
            1,
            1,
            vec![in_standby("a"), node_instance("n").node(|n| n.ready_changed_at = Some(ago(9)))],
            vec![],
        ),
        (
            "its replacement has been Ready long enough",
            1,
            1,
            vec![in_standby("a"), node_instance("n")],
            vec!["cordon a"],
        ),
        (
            "its Node was deleted in standby",
            1,
            1,
            vec![recorded(node_instance("a").outdated().never_joined()), node_instance("n")],
            vec!["terminate a"],
        ),
        (
            "the mark on its Node was taken off",
            1,
            1,
            vec![recorded(node_instance("a").outdated()), node_instance("n")],
            vec!["cordon a"],
        ),
        (
            "a person put it into standby",
            1,
            1,
            vec![node_instance("a").outdated().never_joined().state(InstanceState::Standby), node_instance("n")],
            vec![],
        ),
        ("one replacement of two", 2, 2, vec![in_standby("a"), in_standby("b"), node_instance("n")], vec!["cordon a"]),
        (
            "a node that fails in standby is not waited for",
            1,
            1,
            vec![in_standby("a").unready_since(400)],
            vec!["cordon a"],
        ),
        (
            "a node that is silent for a moment in standby keeps its pods until its replacement is Ready",
            1,
            1,
            vec![in_standby("a").unready_since(299)],
            vec![],
        ),
        (
            "one replacement does not stand in for a node that may be Ready again and for another",
            2,
            2,
            vec![in_standby("a").unready_since(299), in_standby("b"), node_instance("n")],
            vec!["cordon a"],
        ),
        (
            "maxSurge was removed from the spec during the surge",
            0,
            2,
            vec![in_standby("a"), node_instance("n"), old("b")],
            vec!["cordon a", "cordon b"],
        ),
        (
            "maxSurge was removed before the node entered standby",
            0,
            2,
            vec![with_surge_record(old("a")), node_instance("n")],
            vec!["clear node-a"],
        ),
        (
            "maxSurge was removed, and EnterStandby may not be visible yet",
            0,
            2,
            vec![with_surge_record_since(old("a"), 119), node_instance("n")],
            vec![],
        ),
        (
            "maxSurge was removed, and the node with the record has become unready",
            0,
            2,
            vec![with_surge_record(old("a")).unready_since(600), node_instance("n")],
            vec!["cordon a"],
        ),
        (
            "a revert finds one in standby",
            1,
            1,
            vec![with_surge_record(node_instance("a")).state(InstanceState::Standby), node_instance("n")],
            vec!["cordon a"],
        ),
        (
            "a revert finds a record and no standby",
            1,
            1,
            vec![with_surge_record(node_instance("a"))],
            vec!["clear node-a"],
        ),
        (
            "a revert finds a record, and EnterStandby may not be visible yet",
            1,
            1,
            vec![with_surge_record_since(node_instance("a"), 119)],
            vec![],
        ),
        (
            "an instance that a person put into standby",
            1,
            1,
            vec![old("a").state(InstanceState::Standby), node_instance("n")],
            vec![],
        ),
    ];
    for (name, max_surge, desired, members, expected) in cases {
        let decision = decide(&RollingUpdateInput { desired, max_surge, ..input(&members, &Drains::new(), 1) });
        assert_eq!(step_summaries(&decision), expected, "{name}");
        let standby = expected.iter().filter_map(|step| step.strip_prefix("standby "));
        assert!(decision.entering_standby.iter().map(String::as_str).eq(standby), "each is recorded in time: {name}");
    }
}

#[test]
fn standby_nodes_are_drained_after_a_switch_to_the_crd_strategy() {
    let (drains, joining) = (Drains::new(), node_instance("n").in_service_since(5).never_joined());
    let decide_for = |members: &[NodeInstance]| {
        step_summaries(&decide(&RollingUpdateInput {
            desired: 1,
            candidates: Candidates::Surplus(0),
            ..input(members, &drains, 1)
        }))
    };
    assert!(decide_for(&[in_standby("a"), joining.clone()]).is_empty());
    assert_eq!(decide_for(&[in_standby("a"), node_instance("n")]), ["cordon a"]);
    assert_eq!(
        decide_for(&[with_surge_record(node_instance("a")).state(InstanceState::Standby), node_instance("n")]),
        ["cordon a"],
        "after a revert too"
    );
    assert_eq!(decide_for(&[with_surge_record(node_instance("a").outdated())]), ["clear node-a"]);
    assert!(
        decide_for(&[node_instance("a").outdated().state(InstanceState::Standby), node_instance("n")]).is_empty(),
        "an instance that a person put into standby"
    );
}

/// `maxSize` is lowered right after EnterStandby, which AWS may not show yet. The instance in standby does not count in
/// the desired capacity, and AWS would terminate another node for it, with its pods.
#[test]
fn surplus_takes_no_node_that_may_be_in_standby_already() {
    let drains = drains("node-a", vec![]);
    let steps_for = |entering: NodeInstance| {
        let members = [entering, node_instance("b"), node_instance("c")];
        let input = input(&members, &drains, 2);
        let drain_policy = DrainPolicy { decrement_desired: true, ..input.drain_policy };
        let candidates = Candidates::Surplus(1);
        step_summaries(&decide(&RollingUpdateInput { candidates, drain_policy, ..input }))
    };
    let entering = |seconds| with_surge_record_since(node_instance("a").outdated(), seconds);
    assert_eq!(steps_for(entering(119)), ["cordon b"]);
    assert_eq!(steps_for(entering(120)), ["cordon a"], "EnterStandby was not called");
    assert_eq!(steps_for(entering(119).cordoned()), Vec::<String>::new(), "it was shown in standby, and drained there");
    assert_eq!(steps_for(entering(120).cordoned()), ["terminate a"]);
}

/// A window that closes must not leave a node in standby, whose replacement costs money, until it opens again.
#[test]
fn node_in_standby_is_replaced_to_its_end_when_a_window_closes() {
    let pending = || node_instance("n").in_service_since(5).never_joined();
    let old = || node_instance("b").outdated();
    let cases = [
        ("its replacement has not joined", vec![in_standby("a"), pending(), old()], vec![]),
        ("its replacement is Ready", vec![in_standby("a"), node_instance("n"), old()], vec!["cordon a"]),
        ("its record is written", vec![with_surge_record(node_instance("a").outdated()), old()], vec!["standby a"]),
        ("it is drained", vec![in_standby("a").cordoned(), node_instance("n"), old()], vec!["terminate a"]),
    ];
    for (name, members, expected) in cases {
        let drains = drains("node-a", vec![]);
        let closed = RollingUpdateInput {
            desired: 2,
            max_surge: 2,
            rollout_block: Some("the rollout of r2: its window is closed"),
            ..input(&members, &drains, 2)
        };
        let decision = decide(&closed);
        assert_eq!(step_summaries(&decision), expected, "{name}");
        assert_eq!(decision.state, RotationState::InProgress, "{name}");
    }
}

#[test]
fn lock_uncordons_standby_nodes() {
    let members = [in_standby("a").cordoned(), node_instance("n")];
    let decision = decide(&RollingUpdateInput {
        desired: 1,
        max_surge: 1,
        lock: Some("a lock"),
        rollout_block: None,
        allowance: None,
        ..input(&members, &Drains::new(), 1)
    });
    assert_eq!(step_summaries(&decision), ["uncordon node-a"]);
}

/// A simulated scaling group. There are two versions, `false` and `true`.
struct Simulation {
    members: Vec<NodeInstance>,
    version: BTreeMap<String, bool>,
    launched: usize,
}

impl Simulation {
    fn launch(&mut self, version: bool) {
        let id = format!("i-{}", self.launched);
        self.launched += 1;
        self.members.push(node_instance(&id).in_service_since(30).never_joined());
        self.version.insert(id, version);
    }

    /// Number of nodes that run pods and accept new ones.
    fn serving(&self) -> usize {
        let is_serving = |m: &&NodeInstance| {
            m.instance.state != InstanceState::Terminating && m.node.as_ref().is_some_and(|n| n.ready && !n.cordoned)
        };
        self.members.iter().filter(is_serving).count()
    }

    fn update_reasons(&mut self, desired: bool) {
        for m in &mut self.members {
            let is_outdated = self.version[&m.instance.id] != desired;
            m.reasons = if is_outdated { node_instance("x").outdated().reasons } else { Vec::new() };
        }
    }

    fn change(&mut self, instance: &str, change: impl Fn(NodeInstance) -> NodeInstance) {
        self.members.iter_mut().filter(|m| m.instance.id == *instance).for_each(|m| *m = change(m.clone()));
    }

    /// Whether every instance is available and current.
    fn is_finished(&self) -> bool {
        self.members.iter().all(|m| m.is_available() && m.reasons.is_empty())
    }
}

proptest! {
    #[test]
    fn surge_drains_only_replaced_nodes_and_leaves_none_in_standby(
        size in 1usize..6, surge in 1usize..4, events in prop::collection::vec(any::<u8>(), 600), revert in prop::option::of(0usize..40),
        switch in prop::option::of(0usize..40), crash in 0u8..4,
    ) {
        let mut group = Simulation { members: Vec::new(), version: BTreeMap::new(), launched: 0 };
        for _ in 0..size {
            group.launch(false);
        }
        group.members.iter_mut().for_each(|m| *m = node_instance(&m.instance.id.clone()));
        let mut desired_version = true;
        for (round, event) in events.into_iter().enumerate() {
            desired_version ^= revert == Some(round);
            group.update_reasons(desired_version);
            // From this round on, a resource of the strategy crd replaces the outdated nodes.
            let switched = switch.is_some_and(|at| at <= round);
            let candidates = if switched { Candidates::Surplus(0) } else { Candidates::Outdated };
            let done = if switched { group.members.iter().all(|m| m.is_available() && !m.has_surge_record(UID)) } else { group.is_finished() };
            if done && revert.into_iter().chain(switch).all(|at| at < round) {
                return Ok(());
            }
            let views: Drains = (group.members.iter())
                .filter(|m| m.disruption_of(UID).is_some())
                .map(|m| (format!("node-{}", m.instance.id), DrainView::default()))
                .collect();
            let (members, min_ready_time) = (group.members.clone(), SignedDuration::ZERO);
            let steps = decide(&RollingUpdateInput { desired: size, max_surge: surge, min_ready_time, candidates, ..input(&members, &views, 1) }).steps;
            // A crash between any two steps.
            let cut = if event % 4 < crash { usize::from(event / 4) % (steps.len() + 1) } else { steps.len() };
            for step in steps.into_iter().take(cut) {
                match step {
                    NodeStep::RecordSurge { instance, .. } => group.change(&instance, with_surge_record),
                    NodeStep::ClearSurge { node, .. } => group.change(&node["node-".len()..], |m| m.node(|n| n.surge = None)),
                    NodeStep::EnterStandby { instance, .. } => {
                        group.change(&instance, |m| m.state(InstanceState::EnteringStandby));
                        group.launch(desired_version);
                    }
                    NodeStep::CordonNode { instance, .. } => group.change(&instance, NodeInstanceExt::cordoned),
                    NodeStep::UncordonNode { node, .. } => {
                        group.change(&node["node-".len()..], |m| m.node(|n| (n.cordoned, n.disruption) = (false, None)));
                    }
                    NodeStep::Terminate { instance, .. } => {
                        let is_entering = |m: &NodeInstance| m.instance.state == InstanceState::EnteringStandby;
                        prop_assert!(!group.members.iter().any(|m| m.instance.id == instance && is_entering(m)), "AWS refuses it");
                        let was_in_standby = |m: &NodeInstance| m.instance.state == InstanceState::Standby;
                        let is_replaced = group.members.iter().any(|m| m.instance.id == instance && !was_in_standby(m));
                        group.members.retain(|m| m.instance.id != instance);
                        if is_replaced {
                            group.launch(desired_version);
                        }
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(group.serving() >= size, "{} of {size}: {:?}", group.serving(), group.members);
            let standby = group.members.iter().filter(|m| m.instance.state.is_standby()).count();
            prop_assert!(standby <= surge, "{standby} in standby");
            let at = usize::from(event) % group.members.len();
            if group.members[at].node.is_none() {
                group.members[at] = node_instance(&group.members[at].instance.id.clone()).in_service_since(20);
            } else if group.members[at].instance.state == InstanceState::EnteringStandby {
                group.members[at].instance.state = InstanceState::Standby;
            }
        }
        prop_assert!(false, "does not finish: {:?}", group.members);
    }
}
