//! No healthy node is drained before its replacement is Ready, and no node stays in standby.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::plan::NodeStep;
use crate::rotation::rolling_update::decide;
use crate::rotation::tests::{NodeInstanceExt, UID, ago, input, node_instance, step_summaries};
use crate::rotation::{DrainView, Drains, NodeInstance, SurgeRecord};

fn with_surge_record(member: NodeInstance) -> NodeInstance {
    member.node(|n| n.surge = Some(SurgeRecord { group: UID.into(), template_version: "2".into(), since: ago(20) }))
}

fn in_standby(name: &str) -> NodeInstance {
    with_surge_record(node_instance(name).outdated()).state(InstanceState::Standby)
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
        ("one replacement of two", 2, 2, vec![in_standby("a"), in_standby("b"), node_instance("n")], vec!["cordon a"]),
        (
            "a node that fails in standby is not waited for",
            1,
            1,
            vec![in_standby("a").unready_since(400)],
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
    }
}

#[test]
fn standby_nodes_are_drained_when_the_crd_strategy_takes_over() {
    let (none, young) = (Drains::new(), node_instance("n").in_service_since(5).never_joined());
    let of = |members: &[NodeInstance]| {
        step_summaries(&decide(&RollingUpdateInput {
            desired: 1,
            candidates: Candidates::Surplus(0),
            ..input(members, &none, 1)
        }))
    };
    assert!(of(&[in_standby("a"), young.clone()]).is_empty());
    assert_eq!(of(&[in_standby("a"), node_instance("n")]), ["cordon a"]);
    assert_eq!(
        of(&[with_surge_record(node_instance("a")).state(InstanceState::Standby), node_instance("n")]),
        ["cordon a"],
        "after a revert too"
    );
    assert_eq!(of(&[with_surge_record(node_instance("a").outdated())]), ["clear node-a"]);
    assert!(
        of(&[node_instance("a").outdated().state(InstanceState::Standby), node_instance("n")]).is_empty(),
        "an instance that a person put into standby"
    );
}

#[test]
fn lock_uncordons_standby_nodes() {
    let members = [in_standby("a").cordoned(), node_instance("n")];
    let decision = decide(&RollingUpdateInput {
        desired: 1,
        max_surge: 1,
        lock: Some("a lock"),
        ..input(&members, &Drains::new(), 1)
    });
    assert_eq!(step_summaries(&decision), ["uncordon node-a"]);
}

/// A scaling group whose instances know their version.
struct World {
    members: Vec<NodeInstance>,
    version: BTreeMap<String, bool>,
    made: usize,
}

impl World {
    fn launch(&mut self, version: bool) {
        let id = format!("i-{}", self.made);
        self.made += 1;
        self.members.push(node_instance(&id).in_service_since(30).never_joined());
        self.version.insert(id, version);
    }

    /// Number of nodes that run pods and accept new ones.
    fn serving(&self) -> usize {
        let serves = |m: &&NodeInstance| {
            m.instance.state != InstanceState::Terminating && m.node.as_ref().is_some_and(|n| n.ready && !n.cordoned)
        };
        self.members.iter().filter(serves).count()
    }

    fn update_reasons(&mut self, wanted: bool) {
        for m in &mut self.members {
            let other = self.version[&m.instance.id] != wanted;
            m.reasons = if other { node_instance("x").outdated().reasons } else { Vec::new() };
        }
    }

    fn change(&mut self, instance: &str, change: impl Fn(NodeInstance) -> NodeInstance) {
        self.members.iter_mut().filter(|m| m.instance.id == *instance).for_each(|m| *m = change(m.clone()));
    }

    /// Whether every instance is available and current.
    fn done(&self) -> bool {
        self.members.iter().all(|m| m.is_available() && m.reasons.is_empty())
    }
}

proptest! {
    #[test]
    fn surge_drains_only_replaced_nodes_and_leaves_none_in_standby(
        size in 1usize..6, surge in 1usize..4, luck in prop::collection::vec(any::<u8>(), 600), revert in prop::option::of(0usize..40),
        switch in prop::option::of(0usize..40), crash in 0u8..4,
    ) {
        let mut world = World { members: Vec::new(), version: BTreeMap::new(), made: 0 };
        for _ in 0..size {
            world.launch(false);
        }
        world.members.iter_mut().for_each(|m| *m = node_instance(&m.instance.id.clone()));
        let mut wanted = true;
        for (turn, event) in luck.into_iter().enumerate() {
            wanted ^= revert == Some(turn);
            world.update_reasons(wanted);
            // From then on a resource of the strategy crd replaces what is outdated.
            let switched = switch.is_some_and(|at| at <= turn);
            let candidates = if switched { Candidates::Surplus(0) } else { Candidates::Outdated };
            let done = if switched { world.members.iter().all(|m| m.is_available() && !m.has_surge_record(UID)) } else { world.done() };
            if done && revert.into_iter().chain(switch).all(|at| at < turn) {
                return Ok(());
            }
            let views: Drains = (world.members.iter())
                .filter(|m| m.disruption_of(UID).is_some())
                .map(|m| (format!("node-{}", m.instance.id), DrainView::default()))
                .collect();
            let (members, ready_hold) = (world.members.clone(), SignedDuration::ZERO);
            let steps = decide(&RollingUpdateInput { desired: size, max_surge: surge, ready_hold, candidates, ..input(&members, &views, 1) }).steps;
            // A crash between any two steps.
            let cut = if event % 4 < crash { usize::from(event / 4) % (steps.len() + 1) } else { steps.len() };
            for step in steps.into_iter().take(cut) {
                match step {
                    NodeStep::RecordSurge { instance, .. } => world.change(&instance, with_surge_record),
                    NodeStep::ClearSurge { node } => world.change(&node["node-".len()..], |m| m.node(|n| n.surge = None)),
                    NodeStep::EnterStandby { instance, .. } => {
                        world.change(&instance, |m| m.state(InstanceState::Standby));
                        world.launch(wanted);
                    }
                    NodeStep::CordonNode { instance, .. } => world.change(&instance, NodeInstanceExt::cordoned),
                    NodeStep::UncordonNode { node, .. } => {
                        world.change(&node["node-".len()..], |m| m.node(|n| (n.cordoned, n.disruption) = (false, None)));
                    }
                    NodeStep::Terminate { instance, .. } => {
                        let stood_by = |m: &NodeInstance| m.instance.state == InstanceState::Standby;
                        let replaced = world.members.iter().any(|m| m.instance.id == instance && !stood_by(m));
                        world.members.retain(|m| m.instance.id != instance);
                        if replaced {
                            world.launch(wanted);
                        }
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(world.serving() >= size, "{} of {size}: {:?}", world.serving(), world.members);
            let up = world.members.iter().filter(|m| m.instance.state == InstanceState::Standby).count();
            prop_assert!(up <= surge, "{up} in standby");
            let at = usize::from(event) % world.members.len();
            if world.members[at].node.is_none() {
                world.members[at] = node_instance(&world.members[at].instance.id.clone()).in_service_since(20);
            }
        }
        prop_assert!(false, "does not finish: {:?}", world.members);
    }
}
