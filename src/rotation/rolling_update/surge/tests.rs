//! What `maxSurge` promises: no healthy node goes before its replacement serves, and none stands by for ever.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::plan::NodeStep;
use crate::rotation::rolling_update::{Victims, decide};
use crate::rotation::tests::{UID, With, ago, input, member, taken};
use crate::rotation::{DrainView, Drains, Member, Surge};

fn surged(member: Member) -> Member {
    member.node(|n| n.surge = Some(Surge { group: UID.into(), template_version: "2".into(), since: ago(20) }))
}

fn standing(name: &str) -> Member {
    surged(member(name).old()).state(InstanceState::Standby)
}

#[test]
fn healthy_nodes_stand_by_and_broken_ones_go_at_once() {
    let old = |n: &str| member(n).old();
    type Case<'a> = (&'a str, usize, usize, Vec<Member>, Vec<&'a str>);
    let cases: Vec<Case> = vec![
        ("one at a time", 1, 2, vec![old("a"), old("b")], vec!["record a", "stand by a"]),
        (
            "a broken one needs no surge",
            1,
            2,
            vec![old("a"), old("b").never_joined()],
            vec!["end b", "record a", "stand by a"],
        ),
        ("the record was written and the act was not done", 1, 2, vec![surged(old("a")), old("b")], vec!["stand by a"]),
        ("its replacement is not there", 1, 1, vec![standing("a")], vec![]),
        (
            "its replacement has only just become Ready",
            1,
            1,
            vec![standing("a"), member("n").node(|n| n.ready_since = Some(ago(9)))],
            vec![],
        ),
        ("its replacement has settled", 1, 1, vec![standing("a"), member("n")], vec!["mark a"]),
        ("one replacement of two", 2, 2, vec![standing("a"), standing("b"), member("n")], vec!["mark a"]),
        ("a node that dies while it stands by is not waited for", 1, 1, vec![standing("a").lost(400)], vec!["mark a"]),
        (
            "the surge was taken out of the spec half way",
            0,
            2,
            vec![standing("a"), member("n"), old("b")],
            vec!["mark a", "mark b"],
        ),
        (
            "a revert finds one standing by",
            1,
            1,
            vec![surged(member("a")).state(InstanceState::Standby), member("n")],
            vec!["mark a"],
        ),
        ("a revert finds a record and no act", 1, 1, vec![surged(member("a"))], vec!["forget node-a"]),
        ("a person's standby is a person's", 1, 1, vec![old("a").state(InstanceState::Standby), member("n")], vec![]),
    ];
    for (name, max_surge, desired, members, expected) in cases {
        let decision = decide(&Input { desired, max_surge, ..input(&members, &Drains::new(), 1) });
        assert_eq!(taken(&decision), expected, "{name}");
    }
}

#[test]
fn who_stands_by_when_a_resource_takes_over_goes_as_soon_as_its_replacement_serves() {
    let (none, young) = (Drains::new(), member("n").since(5).never_joined());
    let of = |members: &[Member]| {
        taken(&decide(&Input { desired: 1, victims: Victims::Surplus(0), ..input(members, &none, 1) }))
    };
    assert!(of(&[standing("a"), young.clone()]).is_empty());
    assert_eq!(of(&[standing("a"), member("n")]), ["mark a"]);
    assert_eq!(of(&[surged(member("a")).state(InstanceState::Standby), member("n")]), ["mark a"], "after a revert too");
    assert_eq!(of(&[surged(member("a").old())]), ["forget node-a"]);
    assert!(of(&[member("a").old().state(InstanceState::Standby), member("n")]).is_empty(), "a person's is a person's");
}

#[test]
fn a_brake_leaves_who_stands_by_in_service_of_its_pods() {
    let members = [standing("a").marked(), member("n")];
    let decision =
        decide(&Input { desired: 1, max_surge: 1, lock: Some("a lock"), ..input(&members, &Drains::new(), 1) });
    assert_eq!(taken(&decision), ["free node-a"]);
}

/// A scaling group whose instances know their version.
struct World {
    members: Vec<Member>,
    version: BTreeMap<String, bool>,
    made: usize,
}

impl World {
    fn launch(&mut self, version: bool) {
        let id = format!("i-{}", self.made);
        self.made += 1;
        self.members.push(member(&id).since(30).never_joined());
        self.version.insert(id, version);
    }

    /// Nodes that take and keep pods.
    fn serving(&self) -> usize {
        let serves = |m: &&Member| {
            m.instance.state != InstanceState::Terminating && m.node.as_ref().is_some_and(|n| n.ready && !n.cordoned)
        };
        self.members.iter().filter(serves).count()
    }

    fn judge(&mut self, wanted: bool) {
        for m in &mut self.members {
            let other = self.version[&m.instance.id] != wanted;
            m.outdated = if other { member("x").old().outdated } else { Vec::new() };
        }
    }

    fn change(&mut self, instance: &str, change: impl Fn(Member) -> Member) {
        self.members.iter_mut().filter(|m| m.instance.id == *instance).for_each(|m| *m = change(m.clone()));
    }

    /// Whether everything is as wanted and nobody stands by.
    fn done(&self) -> bool {
        self.members.iter().all(|m| m.available() && m.outdated.is_empty())
    }
}

proptest! {
    #[test]
    fn a_surge_never_takes_a_node_before_its_replacement_serves_and_leaves_nobody_standing_by(
        size in 1usize..6, surge in 1usize..4, luck in prop::collection::vec(any::<u8>(), 600), revert in prop::option::of(0usize..40),
        switch in prop::option::of(0usize..40), crash in 0u8..4,
    ) {
        let mut world = World { members: Vec::new(), version: BTreeMap::new(), made: 0 };
        for _ in 0..size {
            world.launch(false);
        }
        world.members.iter_mut().for_each(|m| *m = member(&m.instance.id.clone()));
        let mut wanted = true;
        for (turn, event) in luck.into_iter().enumerate() {
            wanted ^= revert == Some(turn);
            world.judge(wanted);
            // From then on a resource of the strategy crd replaces what is outdated.
            let switched = switch.is_some_and(|at| at <= turn);
            let victims = if switched { Victims::Surplus(0) } else { Victims::Outdated };
            let done = if switched { world.members.iter().all(|m| m.available() && !m.surged(UID)) } else { world.done() };
            if done && revert.into_iter().chain(switch).all(|at| at < turn) {
                return Ok(());
            }
            let views: Drains = (world.members.iter())
                .filter(|m| m.mark(UID).is_some())
                .map(|m| (format!("node-{}", m.instance.id), DrainView::default()))
                .collect();
            let (members, settle) = (world.members.clone(), SignedDuration::ZERO);
            let steps = decide(&Input { desired: size, max_surge: surge, settle, victims, ..input(&members, &views, 1) }).steps;
            // A crash between any two steps.
            let cut = if event % 4 < crash { usize::from(event / 4) % (steps.len() + 1) } else { steps.len() };
            for step in steps.into_iter().take(cut) {
                match step {
                    NodeStep::SurgeNode { instance, .. } => world.change(&instance, surged),
                    NodeStep::UnsurgeNode { node } => world.change(&node["node-".len()..], |m| m.node(|n| n.surge = None)),
                    NodeStep::EnterStandby { instance, .. } => {
                        world.change(&instance, |m| m.state(InstanceState::Standby));
                        world.launch(wanted);
                    }
                    NodeStep::MarkNode { instance, .. } => world.change(&instance, With::marked),
                    NodeStep::UnmarkNode { node, .. } => {
                        world.change(&node["node-".len()..], |m| m.node(|n| (n.cordoned, n.disruption) = (false, None)));
                    }
                    NodeStep::Terminate { instance, .. } => {
                        let stood_by = |m: &Member| m.instance.state == InstanceState::Standby;
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
            prop_assert!(up <= surge, "{up} stand by");
            let at = usize::from(event) % world.members.len();
            if world.members[at].node.is_none() {
                world.members[at] = member(&world.members[at].instance.id.clone()).since(20);
            }
        }
        prop_assert!(false, "no end in sight: {:?}", world.members);
    }
}
