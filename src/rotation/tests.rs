//! What a rotation decides, case by case, and what it may never decide.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::drain::{AtTimeout, DrainPolicy, Next, backoff, next};
use super::rolling_update::{Decision, Input, Stand, Victims, decide};
use super::*;
use crate::aws::{Instance, InstanceState};
use crate::plan::{Act, Drift, NodeStep, PodRef, Reason};

pub(super) const UID: &str = "uid-1";

pub(super) fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().expect("a time")
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A Ready node, some hours old, that runs what is wanted.
pub(super) fn member(name: &str) -> Member {
    let node = NodeView {
        name: format!("node-{name}"),
        resource_version: "7".into(),
        ready: true,
        was_ready: true,
        ready_since: Some(ago(7_000)),
        cordoned: false,
        disruption: None,
        surge: None,
        created: ago(7_060),
        rivals: Vec::new(),
    };
    let instance = Instance {
        id: name.into(),
        zone: "a".into(),
        state: InstanceState::InService,
        healthy: true,
        template: None,
        configuration: None,
        weight: 1,
        in_service_since: Some(ago(7_100)),
    };
    Member { instance, node: Some(node), outdated: Vec::new() }
}

pub(super) trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self;
    fn old(self) -> Self;
    fn zone(self, zone: &str) -> Self;
    fn state(self, state: InstanceState) -> Self;
    fn marked(self) -> Self;
    fn lost(self, seconds: i64) -> Self;
    fn never_joined(self) -> Self;
    fn unready(self) -> Self;
    fn since(self, seconds: i64) -> Self;
}

impl With for Member {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self {
        self.with(|m| change(m.node.as_mut().expect("a node")))
    }
    fn old(self) -> Self {
        self.with(|m| m.outdated = vec![Drift::new("image", "ami-1", "ami-2")])
    }
    fn zone(self, zone: &str) -> Self {
        self.with(|m| m.instance.zone = zone.into())
    }
    fn state(self, state: InstanceState) -> Self {
        self.with(|m| m.instance.state = state)
    }
    fn marked(self) -> Self {
        self.node(|n| {
            n.cordoned = true;
            n.disruption = Some(Disruption {
                group: UID.into(),
                template_version: "2".into(),
                since: ago(20),
                cordoned_before: false,
            });
        })
    }
    /// Ready once, and not since.
    fn lost(self, seconds: i64) -> Self {
        self.node(|n| (n.ready, n.ready_since) = (false, Some(ago(seconds))))
    }
    fn unready(self) -> Self {
        self.node(|n| (n.ready, n.was_ready) = (false, false))
    }
    fn never_joined(self) -> Self {
        self.with(|m| m.node = None)
    }
    /// In service for so long, and joined two seconds later.
    fn since(self, seconds: i64) -> Self {
        self.with(|m| {
            m.instance.in_service_since = Some(ago(seconds));
            if let Some(n) = m.node.as_mut() {
                (n.created, n.ready_since) = (ago(seconds - 2), Some(ago(seconds - 2)));
            }
        })
    }
}

fn policy() -> DrainPolicy {
    DrainPolicy {
        timeout: None,
        at_timeout: AtTimeout::GiveUp,
        decrement: false,
        dead_after: SignedDuration::from_mins(5),
        volumes_for: SignedDuration::from_mins(2),
    }
}

pub(super) fn input<'a>(members: &'a [Member], drains: &'a Drains, max_unavailable: usize) -> Input<'a> {
    Input {
        group: "asg",
        uid: UID,
        version: "2",
        members,
        desired: members.iter().filter(|m| m.instance.state == InstanceState::InService).count(),
        max_unavailable,
        in_units: false,
        max_surge: 0,
        victims: Victims::Outdated,
        lock: None,
        obstacle: None,
        was_halted: false,
        join_timeout: SignedDuration::from_mins(15),
        settle: SignedDuration::from_secs(30),
        drain: policy(),
        drains,
        fleet: Fleet { known: 100, not_ready: 0 },
        now: now(),
    }
}

fn rotate(members: &[Member], max_unavailable: usize) -> Decision {
    decide(&input(members, &Drains::new(), max_unavailable))
}

/// Who is cordoned and who is terminated, in order.
pub(super) fn taken(decision: &Decision) -> Vec<String> {
    let name = |step: &NodeStep| match step {
        NodeStep::MarkNode { instance, .. } => Some(format!("mark {instance}")),
        NodeStep::Terminate { instance, .. } => Some(format!("end {instance}")),
        NodeStep::UnmarkNode { node, .. } => Some(format!("free {node}")),
        NodeStep::SurgeNode { instance, .. } => Some(format!("record {instance}")),
        NodeStep::EnterStandby { instance, .. } => Some(format!("stand by {instance}")),
        NodeStep::UnsurgeNode { node } => Some(format!("forget {node}")),
        _ => None,
    };
    decision.steps.iter().filter_map(name).collect()
}

fn pod(name: &str) -> PodView {
    let pod = PodRef { namespace: "apps".into(), name: name.into(), uid: name.into() };
    PodView { pod, stays: false, finished: false, bare: false, terminating: false, grace: 30 }
}

fn drains(node: &str, pods: Vec<PodView>) -> Drains {
    [(node.to_owned(), DrainView { pods, ..DrainView::default() })].into()
}

#[test]
fn as_many_are_taken_as_may_be_unavailable() {
    let old = |n: &str| member(n).old();
    let cases: Vec<(&str, usize, Vec<Member>, Vec<&str>)> = vec![
        ("one of three", 1, vec![old("a"), old("b"), old("c")], vec!["mark a"]),
        ("two of three", 2, vec![old("a"), old("b"), old("c")], vec!["mark a", "mark b"]),
        ("a replacement that is not Ready counts", 1, vec![old("a"), member("n").since(9).unready()], vec![]),
        (
            "a replacement that has only just become Ready counts",
            1,
            vec![old("a"), member("n").node(|n| n.ready_since = Some(ago(9)))],
            vec![],
        ),
        (
            "a replacement that has settled does not",
            1,
            vec![old("a"), member("n").node(|n| n.ready_since = Some(ago(31)))],
            vec!["mark a"],
        ),
        ("a replacement that has not joined counts", 1, vec![old("a"), member("n").since(9).never_joined()], vec![]),
        ("a person's cordon elsewhere counts", 1, vec![old("a"), member("n").node(|n| n.cordoned = true)], vec![]),
        (
            "an unavailable victim costs nothing more",
            1,
            vec![old("a"), old("b").node(|n| n.cordoned = true)],
            vec!["mark b"],
        ),
        ("nor may it be more than the batch", 1, vec![old("a").never_joined(), old("b").never_joined()], vec!["end a"]),
        ("a drain under way counts", 1, vec![old("a"), old("b").marked()], vec![]),
        (
            "so does an instance that is terminating",
            1,
            vec![old("a"), old("b").state(InstanceState::Terminating)],
            vec![],
        ),
        ("nothing is outdated", 1, vec![member("a"), member("b")], vec![]),
    ];
    for (name, max, members, expected) in cases {
        let desired = members.len();
        let decision = decide(&Input { desired, ..input(&members, &Drains::new(), max) });
        assert_eq!(taken(&decision), expected, "{name}");
    }
}

#[test]
fn an_autoscaler_that_asks_for_more_nodes_pauses_the_rotation_until_they_are_there() {
    let members = [member("a").old(), member("b").old(), member("new").state(InstanceState::Pending).never_joined()];
    assert!(taken(&decide(&Input { desired: 3, ..input(&members, &Drains::new(), 1) })).is_empty());
    assert_eq!(taken(&decide(&Input { desired: 2, ..input(&members, &Drains::new(), 1) })), ["mark a"]);
}

#[test]
fn never_joined_and_unhealthy_go_first_then_the_oldest_of_each_zone_in_turn() {
    let aged = |name: &str, zone: &str, age: i64| member(name).old().zone(zone).node(|n| n.created = ago(age));
    let members = [
        aged("a-young", "a", 100),
        aged("a-old", "a", 900),
        aged("a-older", "a", 950),
        aged("b-old", "b", 800),
        aged("c-sick", "c", 700).lost(60),
        aged("c-unborn", "c", 0).never_joined(),
    ];
    let all = decide(&Input { desired: 6, ..input(&members, &Drains::new(), 6) });
    assert_eq!(
        taken(&all),
        ["end c-unborn", "mark c-sick", "mark a-older", "mark b-old", "mark a-old", "mark a-young"]
    );
}

#[test]
fn what_holds_a_rotation_gives_the_nodes_back_and_takes_no_further_one() {
    let members = [member("a").old().marked(), member("b").old()];
    let view = drains("node-a", vec![pod("web")]);
    let base = || Input { max_unavailable: 2, ..input(&members, &view, 2) };
    let blocked = Some((Reason::ProcessSuspended, "Launch is suspended".to_owned()));
    for (held, free) in [
        (Input { lock: Some("the group"), ..base() }, true),
        (Input { obstacle: blocked, ..base() }, true),
        (Input { fleet: Fleet { known: 10, not_ready: 3 }, ..base() }, false),
    ] {
        let decision = decide(&held);
        assert!(!matches!(decision.stand, Stand::Going | Stand::Idle), "{:?}", decision.stand);
        assert_eq!(taken(&decision), if free { vec!["free node-a"] } else { vec![] });
        assert!(!decision.steps.iter().any(|step| step.disrupts()));
    }
}

#[test]
fn a_node_that_is_no_longer_outdated_is_given_back_and_its_group_stands_still() {
    let members = [member("a").marked(), member("b")];
    let decision = rotate(&members, 1);
    assert_eq!(taken(&decision), ["free node-a"]);
    assert_eq!(decision.stand, Stand::Idle);
}

#[test]
fn a_record_of_another_group_is_left_alone() {
    let foreign = |n: &mut NodeView| n.disruption.as_mut().expect("marked").group = "uid-2".into();
    assert!(taken(&rotate(&[member("a").old().marked().node(foreign), member("b")], 2)).is_empty());
    assert!(taken(&rotate(&[member("a").marked().node(foreign), member("b")], 2)).is_empty());
}

#[test]
fn replacements_that_fail_halt_the_rotation_and_are_named() {
    let old = || member("old").old();
    let cases: Vec<(&str, Member, bool)> = vec![
        ("never joined in time", member("n").since(901).never_joined(), true),
        ("still has time to join", member("n").since(899).never_joined(), false),
        ("joined and never Ready", member("n").since(901).unready(), true),
        ("Ready and lost within its time", member("n").since(300).lost(60), true),
        ("only blinked", member("n").since(300).lost(10), false),
        ("lost long after its time", member("n").lost(60), false),
        (
            "lost before this process began to look",
            member("n").lost(600).with(|m| m.instance.in_service_since = Some(ago(5))),
            false,
        ),
        ("only cordoned", member("n").node(|n| n.cordoned = true), false),
    ];
    for (name, replacement, halts) in cases {
        let decision = rotate(&[old(), replacement], 1);
        match &decision.stand {
            Stand::Halted(message) => {
                assert!(halts, "{name}: {message}");
                assert!(message.contains("n (") && message.contains("version 2"), "{name}: {message}");
                assert!(taken(&decision).is_empty(), "{name}");
            }
            stand => assert!(!halts, "{name}: {stand:?}"),
        }
    }
}

#[test]
fn a_halt_lasts_until_every_replacement_is_ready_again() {
    let none = Drains::new();
    let members = [member("old").old(), member("n").since(60).never_joined()];
    let halted = Input { was_halted: true, ..input(&members, &none, 2) };
    assert!(matches!(decide(&halted).stand, Stand::Halted(_)));
    let members = [member("old").old(), member("n").since(60)];
    let recovered = Input { was_halted: true, ..input(&members, &none, 1) };
    assert_eq!(taken(&decide(&recovered)), ["mark old"]);
}

#[test]
fn many_nodes_lost_at_once_stop_everything() {
    let lost = |n: &str| member(n).old().lost(30);
    assert!(matches!(rotate(&[lost("a"), lost("b"), member("c").old()], 1).stand, Stand::Unhealthy(_)));
    assert!(!matches!(rotate(&[lost("a"), lost("b"), member("c").old()], 2).stand, Stand::Unhealthy(_)));
    let joining = |n: &str| member(n).since(3).unready();
    assert_eq!(rotate(&[joining("a"), joining("b"), member("c").old()], 1).stand, Stand::Going);
    for (known, not_ready, unhealthy) in
        [(10, 3, true), (10, 2, false), (11, 3, false), (3, 2, false), (3, 3, true), (0, 0, false)]
    {
        assert_eq!(Fleet { known, not_ready }.unhealthy(), unhealthy, "{not_ready} of {known}");
    }
}

#[test]
fn only_what_is_surplus_goes_those_under_way_first_then_the_outdated() {
    let members = [member("a"), member("b").old(), member("c").marked(), member("s").state(InstanceState::Standby)];
    let of = |n, view: &Drains| {
        taken(&decide(&Input { victims: Victims::Surplus(n), max_unavailable: 3, ..input(&members, view, 3) }))
    };
    let view = drains("node-c", vec![pod("web")]);
    assert_eq!(of(1, &view), Vec::<String>::new());
    assert_eq!(of(2, &view), ["mark b"]);
    assert_eq!(of(3, &view), ["mark b", "mark a"]);
    assert_eq!(of(1, &Drains::from([("node-c".into(), DrainView::default())])), ["end c"]);
}

#[test]
fn who_stands_by_leaves_desired_to_those_in_service() {
    let members = [member("a").marked(), member("s").marked().state(InstanceState::Standby)];
    let view = Drains::from(["node-a", "node-s"].map(|node| (node.to_owned(), DrainView::default())));
    let drain = DrainPolicy { decrement: true, ..policy() };
    let decision = decide(&Input { victims: Victims::All, drain, ..input(&members, &view, 2) });
    let ends: Vec<_> = (decision.steps.iter())
        .filter_map(|s| match s {
            NodeStep::Terminate { instance, decrement, .. } => Some((instance.as_str(), *decrement)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [("a", true), ("s", false)]);
}

#[test]
fn a_weighted_group_counts_units_of_capacity() {
    let heavy = |name: &str, weight| member(name).with(|m| m.instance.weight = weight);
    let decided = |members: &[Member], desired, max_unavailable, in_units| {
        taken(&decide(&Input { desired, in_units, ..input(members, &Drains::new(), max_unavailable) }))
    };
    let all = [heavy("a", 4).old(), heavy("b", 4).old(), heavy("c", 8).old()];
    assert_eq!(decided(&all, 16, 1, false), ["mark a"], "one node is one node, whatever it weighs");
    assert_eq!(decided(&all, 16, 2, false), ["mark a", "mark b"]);
    assert_eq!(decided(&all, 16, 4, true), ["mark a"], "a quarter of 16 units is one node of four");
    assert_eq!(decided(&all, 16, 8, true), ["mark a", "mark b"]);
    assert_eq!(decided(&all, 16, 1, true), ["mark a"], "while nothing is missing one may always go");
    let short = [heavy("a", 4).old(), heavy("c", 8).old()];
    assert!(decided(&short, 16, 1, false).is_empty(), "four units are missing already");
    assert!(decided(&short, 16, 6, true).is_empty());
    assert_eq!(decided(&short, 16, 8, true), ["mark a"]);
    let replaced = [heavy("n", 8).since(60), heavy("a", 4).old(), heavy("b", 4).old()];
    assert_eq!(decided(&replaced, 16, 1, false), ["mark a"], "one heavy replacement makes up for two light ones");
}

#[test]
fn of_a_surplus_only_nodes_that_fit_into_it_go() {
    let heavy = |name: &str, weight| member(name).with(|m| m.instance.weight = weight);
    let members = [heavy("a", 4), heavy("b", 2), heavy("c", 2)];
    let of = |n| {
        taken(&decide(&Input {
            victims: Victims::Surplus(n),
            desired: 8,
            max_unavailable: 8,
            ..input(&members, &Drains::new(), 8)
        }))
    };
    assert_eq!(of(1), Vec::<String>::new());
    assert_eq!(of(3), ["mark b"]);
    assert_eq!(of(4).len(), 1, "one of four units: {:?}", of(4));
    assert_eq!(of(8).len(), 3);
}

#[test]
fn a_drain_that_rests_lets_the_next_node_try() {
    let rests = |node: &str| {
        (
            node.to_owned(),
            DrainView { resting_until: Some(now() + SignedDuration::from_secs(9)), ..DrainView::default() },
        )
    };
    let members = [member("a").old(), member("b").old()];
    assert_eq!(taken(&decide(&input(&members, &[rests("node-a")].into(), 1))), ["mark b"]);
    assert!(matches!(decide(&input(&members, &[rests("node-a"), rests("node-b")].into(), 1)).stand, Stand::Resting(_)));
}

#[test]
fn a_refusal_stays_told_while_another_drain_goes_on() {
    let refused = DrainView { pods: vec![pod("web")], refused: Some((ago(1), 3)), ..DrainView::default() };
    let views = |a: DrainView| Drains::from([("node-a".into(), a), ("node-b".into(), DrainView::default())]);
    let members = [member("a").old().marked(), member("b").old().marked()];
    let decision = decide(&input(&members, &views(refused), 2));
    assert_eq!((taken(&decision), decision.refused), (vec!["end b".to_owned()], true));
    let ending = DrainView { pods: vec![PodView { terminating: true, ..pod("web") }], ..DrainView::default() };
    assert!(!decide(&input(&members, &views(ending), 2)).refused);
}

#[test]
fn a_rest_keeps_no_node_that_is_not_to_go() {
    let until = Some(now() + SignedDuration::from_secs(9));
    let rests = Drains::from([("node-a".into(), DrainView { resting_until: until, ..DrainView::default() })]);
    assert_eq!(taken(&decide(&input(&[member("a").old(), member("b").marked()], &rests, 1))), ["free node-b"]);
}

#[test]
fn an_instance_that_two_nodes_say_they_are_is_left_alone_and_told() {
    let rival = |m: Member| m.node(|n| n.rivals = vec!["node-liar".into()]);
    let names = "one Node alone to have the providerID of a, which node-a, node-liar have";
    let empty = Drains::from([("node-a".into(), DrainView::default())]);
    for victims in [Victims::Outdated, Victims::Surplus(1), Victims::All] {
        for a in [member("a").old(), member("a").old().node(|n| n.ready = false)] {
            let decision = decide(&Input { victims, max_surge: 1, ..input(&[rival(a)], &empty, 2) });
            assert_eq!(
                (taken(&decision), decision.stand, decision.contested),
                (vec![], Stand::Going, vec![names.to_owned()])
            );
        }
        let members = [rival(member("a").old().marked())];
        assert_eq!(taken(&decide(&Input { victims, ..input(&members, &empty, 2) })), ["free node-a"]);
    }
    let members = [rival(member("a").old()), member("b").old()];
    assert_eq!(taken(&rotate(&members, 2)), ["mark b"], "others go on");
}

#[test]
fn unknown_pods_are_not_no_pods() {
    let decision = rotate(&[member("a").old().marked()], 1);
    assert!(decision.steps.is_empty(), "{:?}", decision.steps);
}

#[test]
fn a_drain_takes_one_step_after_the_other() {
    let seconds = SignedDuration::from_secs;
    let limited = |at_timeout| DrainPolicy { timeout: Some(seconds(10)), at_timeout, ..policy() };
    let (well, silent, dead) = (member("a").marked(), member("a").marked().lost(299), member("a").marked().lost(300));
    let ending = || PodView { terminating: true, ..pod("web") };
    let stays = PodView { stays: true, ..pod("daemon") };
    let finished = PodView { finished: true, ..pod("job") };
    let view = |pods: Vec<PodView>| DrainView { pods, ..DrainView::default() };
    let volume =
        |since| DrainView { volumes: vec!["vol".into()], empty_since: Some(ago(since)), ..DrainView::default() };
    let refused = |since, times| DrainView { refused: Some((ago(since), times)), ..view(vec![pod("web")]) };
    let cases: Vec<(&str, &Member, DrainView, DrainPolicy, &str)> = vec![
        ("a pod is evicted", &well, view(vec![pod("web")]), policy(), "evict"),
        ("a pod on its way out is waited for", &well, view(vec![ending()]), policy(), "wait"),
        ("what stays and what is finished holds nothing", &well, view(vec![stays, finished]), policy(), "terminate"),
        ("volumes are waited for", &well, volume(119), policy(), "wait"),
        ("but not for ever", &well, volume(120), policy(), "terminate"),
        ("a refusal is not asked again at once", &well, refused(1, 1), policy(), "wait"),
        ("but soon", &well, refused(2, 1), policy(), "evict"),
        ("and every half minute in the end", &well, refused(30, 40), policy(), "evict"),
        ("at the timeout it is given back", &well, view(vec![pod("web")]), limited(AtTimeout::GiveUp), "give up"),
        ("or pods are deleted", &well, view(vec![pod("web")]), limited(AtTimeout::Delete), "force"),
        ("and then waited for", &well, view(vec![ending()]), limited(AtTimeout::Delete), "wait"),
        ("or a deletion goes on", &well, view(vec![pod("web")]), limited(AtTimeout::GoOn), "abandon"),
        (
            "a dead kubelet is waited for no longer than the grace",
            &dead,
            view(vec![PodView { grace: 20, ..ending() }]),
            policy(),
            "terminate",
        ),
        ("but that long", &dead, view(vec![PodView { grace: 21, ..ending() }]), policy(), "wait"),
        (
            "a kubelet is dead after five minutes",
            &silent,
            view(vec![PodView { grace: 0, ..ending() }]),
            policy(),
            "wait",
        ),
    ];
    for (name, member, view, policy, expected) in cases {
        let mark = member.mark(UID).expect("marked").clone();
        let told = match next(member, &mark, &view, &policy, now()) {
            Next::Evict(_) => "evict",
            Next::Wait(_) => "wait",
            Next::Force(_) => "force",
            Next::GiveUp(_) => "give up",
            Next::Abandon(_) => "abandon",
            Next::Terminate => "terminate",
        };
        assert_eq!(told, expected, "{name}");
    }
    assert_eq!([1, 2, 3, 4, 5, 6, 400].map(|n| backoff(n).as_secs()), [2, 4, 8, 16, 30, 30, 30]);
}

prop_compose! {
    fn any_member()(
        state in prop_oneof![6 => Just(InstanceState::InService), 1 => Just(InstanceState::Pending), 1 => Just(InstanceState::Terminating), 1 => Just(InstanceState::Standby)],
        joined in prop::bool::weighted(0.9), ready in prop::bool::weighted(0.8), cordoned in prop::bool::weighted(0.2),
        marked in prop::bool::weighted(0.2), outdated: bool, zone in 0u8..3, age in 10i64..5_000,
        weight in prop_oneof![3 => Just(1u32), 1 => 2u32..5],
    ) -> Member {
        let m = member("x").with(|m| m.instance.weight = weight).state(state).zone(&zone.to_string()).since(age);
        let m = if outdated { m.old() } else { m };
        let m = m.node(|n| (n.ready, n.cordoned) = (ready, cordoned));
        let m = if marked { m.marked() } else { m };
        if joined { m } else { m.never_joined() }
    }
}

proptest! {
    #[test]
    fn no_decision_takes_more_available_nodes_than_may_be_unavailable(
        mut members in prop::collection::vec(any_member(), 0..12), desired in 0usize..12, max in 1usize..6, known in any::<bool>(),
    ) {
        for (i, m) in members.iter_mut().enumerate() {
            m.instance.id = format!("i-{i}");
            m.node.iter_mut().for_each(|n| n.name = format!("node-i-{i}"));
        }
        let names = members.iter().filter_map(|m| m.node.as_ref()).map(|n| (n.name.clone(), DrainView::default()));
        let drains: Drains = if known { names.collect() } else { Drains::new() };
        let decision = decide(&Input { desired, ..input(&members, &drains, max) });
        let weigh = |members: &mut dyn Iterator<Item = &Member>| members.map(Member::weight).sum::<usize>();
        let available = weigh(&mut members.iter().filter(|m| m.available()));
        let hit = |m: &&Member| decision.steps.iter().any(|s| match s {
            NodeStep::MarkNode { instance, .. } | NodeStep::Terminate { instance, .. } => *instance == m.instance.id,
            _ => false,
        });
        let costs = weigh(&mut members.iter().filter(hit).filter(|m| m.available()));
        let heaviest = members.iter().filter(hit).map(Member::weight).max().unwrap_or(1);
        prop_assert!(costs == 0 || desired.saturating_sub(available) + costs <= max * heaviest, "{costs} of {available} for {desired}");
        let leaving = members.iter().filter(|m| m.instance.state == InstanceState::Terminating).count();
        let begun = members.iter().filter(hit).filter(|m| m.mark(UID).is_none()).count();
        let marked = members.iter().filter(|m| m.mark(UID).is_some() && m.instance.state == InstanceState::InService && !m.outdated.is_empty()).count();
        prop_assert!(begun == 0 || leaving + marked + begun <= max);
        prop_assert!(members.iter().filter(hit).all(|m| !m.outdated.is_empty()), "only what is outdated goes");
        let undrained = |m: &Member| decision.steps.iter().any(|s| matches!(s, NodeStep::Terminate { instance, .. } if *instance == m.instance.id));
        prop_assert!(members.iter().filter(|m| undrained(m)).all(|m| m.node.is_none() || m.mark(UID).is_some()), "no node goes without its record");
    }

    #[test]
    fn a_rotation_ends_and_never_falls_below_what_must_be_available(size in 1usize..9, max in 1usize..5, luck in prop::collection::vec(any::<u8>(), 400)) {
        let max = max.min(size);
        let mut members: Vec<_> = (0..size).map(|i| member(&format!("i-{i}")).old().zone(&(i % 3).to_string())).collect();
        let mut luck = luck.into_iter();
        let mut made = size;
        while members.iter().any(|m| !m.outdated.is_empty()) {
            let Some(event) = luck.next() else { prop_assert!(false, "no end in sight: {members:?}"); unreachable!() };
            let views: Drains = members.iter().filter(|m| m.mark(UID).is_some()).map(|m| (format!("node-{}", m.instance.id), DrainView::default())).collect();
            // Time stands still in this world, so nothing would ever settle.
            let settle = SignedDuration::ZERO;
            for step in decide(&Input { desired: size, settle, ..input(&members, &views, max) }).steps {
                match step {
                    NodeStep::MarkNode { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| *m = m.clone().marked()),
                    NodeStep::Terminate { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| m.instance.state = InstanceState::Terminating),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let available = members.iter().filter(|m| m.available()).count();
            prop_assert!(available + max >= size, "{available} of {size}");
            let at = usize::from(event) % members.len();
            match members[at].instance.state {
                InstanceState::Terminating => {
                    members.remove(at);
                    members.push(member(&format!("i-{made}")).since(30).never_joined());
                    made += 1;
                }
                _ if members[at].node.is_none() => members[at] = member(&members[at].instance.id.clone()).since(20),
                _ => {}
            }
        }
    }
}
