//! Decisions of rolling updates and drains, case by case, and invariants that must always hold.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::drain::{AtTimeout, DrainAction, DrainPolicy, eviction_backoff, next_drain_action};
use super::rolling_update::{Candidates, RollingUpdateDecision, RollingUpdateInput, RotationState, decide};
use super::*;
use crate::aws::{Instance, InstanceState};
use crate::plan::{Drift, NodeStep, PodRef, Reason, StepInfo};

pub(super) const UID: &str = "uid-1";

pub(super) fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().expect("a time")
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A Ready node, some hours old, that is not outdated.
pub(super) fn node_instance(name: &str) -> NodeInstance {
    let node = NodeView {
        name: format!("node-{name}"),
        resource_version: "7".into(),
        ready: true,
        was_ready: true,
        ready_changed_at: Some(ago(7_000)),
        cordoned: false,
        disruption: None,
        surge: None,
        created_at: ago(7_060),
        duplicates: Vec::new(),
    };
    let instance = Instance {
        id: name.into(),
        zone: "a".into(),
        state: InstanceState::InService,
        healthy: true,
        template: None,
        launch_configuration: None,
        weight: 1,
        in_service_since: Some(ago(7_100)),
    };
    NodeInstance { instance, node: Some(node), reasons: Vec::new() }
}

pub(super) trait NodeInstanceExt: Sized {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self;
    fn outdated(self) -> Self;
    fn zone(self, zone: &str) -> Self;
    fn state(self, state: InstanceState) -> Self;
    fn cordoned(self) -> Self;
    fn unready_since(self, seconds: i64) -> Self;
    fn never_joined(self) -> Self;
    fn unready(self) -> Self;
    fn in_service_since(self, seconds: i64) -> Self;
}

impl NodeInstanceExt for NodeInstance {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
    fn node(self, change: impl FnOnce(&mut NodeView)) -> Self {
        self.with(|m| change(m.node.as_mut().expect("a node")))
    }
    fn outdated(self) -> Self {
        self.with(|m| m.reasons = vec![Drift::new("image", "ami-1", "ami-2")])
    }
    fn zone(self, zone: &str) -> Self {
        self.with(|m| m.instance.zone = zone.into())
    }
    fn state(self, state: InstanceState) -> Self {
        self.with(|m| m.instance.state = state)
    }
    fn cordoned(self) -> Self {
        self.node(|n| {
            n.cordoned = true;
            n.disruption = Some(DisruptionRecord {
                group: UID.into(),
                template_version: "2".into(),
                since: ago(20),
                cordoned_before: false,
            });
        })
    }
    /// Was Ready, and is not ready since then.
    fn unready_since(self, seconds: i64) -> Self {
        self.node(|n| (n.ready, n.ready_changed_at) = (false, Some(ago(seconds))))
    }
    fn unready(self) -> Self {
        self.node(|n| (n.ready, n.was_ready) = (false, false))
    }
    fn never_joined(self) -> Self {
        self.with(|m| m.node = None)
    }
    /// InService since so many seconds, and joined two seconds later.
    fn in_service_since(self, seconds: i64) -> Self {
        self.with(|m| {
            m.instance.in_service_since = Some(ago(seconds));
            if let Some(n) = m.node.as_mut() {
                (n.created_at, n.ready_changed_at) = (ago(seconds - 2), Some(ago(seconds - 2)));
            }
        })
    }
}

fn policy() -> DrainPolicy {
    DrainPolicy {
        timeout: None,
        at_timeout: AtTimeout::Uncordon,
        decrement_desired: false,
        dead_kubelet_after: SignedDuration::from_mins(5),
        volume_detach_timeout: SignedDuration::from_mins(2),
    }
}

pub(super) fn input<'a>(
    members: &'a [NodeInstance],
    drains: &'a Drains,
    max_unavailable: usize,
) -> RollingUpdateInput<'a> {
    RollingUpdateInput {
        scaling_group: "asg",
        group_uid: UID,
        template_version: "2",
        members,
        desired: members.iter().filter(|m| m.instance.state == InstanceState::InService).count(),
        max_unavailable,
        max_unavailable_in_weight: false,
        max_surge: 0,
        candidates: Candidates::Outdated,
        lock: None,
        precondition: None,
        was_halted: false,
        join_timeout: SignedDuration::from_mins(15),
        ready_hold: SignedDuration::from_secs(30),
        drain_policy: policy(),
        drains,
        cluster_health: ClusterHealth { total: 100, unready: 0 },
        now: now(),
    }
}

fn rotate(members: &[NodeInstance], max_unavailable: usize) -> RollingUpdateDecision {
    decide(&input(members, &Drains::new(), max_unavailable))
}

/// The steps in short, in order.
pub(super) fn step_summaries(decision: &RollingUpdateDecision) -> Vec<String> {
    let name = |step: &NodeStep| match step {
        NodeStep::CordonNode { instance, .. } => Some(format!("cordon {instance}")),
        NodeStep::Terminate { instance, .. } => Some(format!("terminate {instance}")),
        NodeStep::UncordonNode { node, .. } => Some(format!("uncordon {node}")),
        NodeStep::RecordSurge { instance, .. } => Some(format!("record {instance}")),
        NodeStep::EnterStandby { instance, .. } => Some(format!("standby {instance}")),
        NodeStep::ClearSurge { node } => Some(format!("clear {node}")),
        _ => None,
    };
    decision.steps.iter().filter_map(name).collect()
}

fn pod(name: &str) -> PodView {
    let pod = PodRef { namespace: "apps".into(), name: name.into(), uid: name.into() };
    PodView {
        pod,
        is_ignored: false,
        is_finished: false,
        is_unmanaged: false,
        is_terminating: false,
        grace_seconds: 30,
    }
}

fn drains(node: &str, pods: Vec<PodView>) -> Drains {
    [(node.to_owned(), DrainView { pods, ..DrainView::default() })].into()
}

#[test]
fn batch_size_respects_max_unavailable() {
    let old = |n: &str| node_instance(n).outdated();
    let cases: Vec<(&str, usize, Vec<NodeInstance>, Vec<&str>)> = vec![
        ("one of three", 1, vec![old("a"), old("b"), old("c")], vec!["cordon a"]),
        ("two of three", 2, vec![old("a"), old("b"), old("c")], vec!["cordon a", "cordon b"]),
        (
            "a replacement that is not Ready counts",
            1,
            vec![old("a"), node_instance("n").in_service_since(9).unready()],
            vec![],
        ),
        (
            "a replacement that became Ready only now counts",
            1,
            vec![old("a"), node_instance("n").node(|n| n.ready_changed_at = Some(ago(9)))],
            vec![],
        ),
        (
            "a replacement that has been Ready long enough does not",
            1,
            vec![old("a"), node_instance("n").node(|n| n.ready_changed_at = Some(ago(31)))],
            vec!["cordon a"],
        ),
        (
            "a replacement that has not joined counts",
            1,
            vec![old("a"), node_instance("n").in_service_since(9).never_joined()],
            vec![],
        ),
        (
            "a person's cordon elsewhere counts",
            1,
            vec![old("a"), node_instance("n").node(|n| n.cordoned = true)],
            vec![],
        ),
        (
            "an unavailable candidate costs nothing more",
            1,
            vec![old("a"), old("b").node(|n| n.cordoned = true)],
            vec!["cordon b"],
        ),
        (
            "unavailable candidates do not exceed the batch",
            1,
            vec![old("a").never_joined(), old("b").never_joined()],
            vec!["terminate a"],
        ),
        ("a drain under way counts", 1, vec![old("a"), old("b").cordoned()], vec![]),
        (
            "so does an instance that is terminating",
            1,
            vec![old("a"), old("b").state(InstanceState::Terminating)],
            vec![],
        ),
        ("nothing is outdated", 1, vec![node_instance("a"), node_instance("b")], vec![]),
    ];
    for (name, max, members, expected) in cases {
        let desired = members.len();
        let decision = decide(&RollingUpdateInput { desired, ..input(&members, &Drains::new(), max) });
        assert_eq!(step_summaries(&decision), expected, "{name}");
    }
}

#[test]
fn scale_out_pauses_rotation_until_new_nodes_are_ready() {
    let members = [
        node_instance("a").outdated(),
        node_instance("b").outdated(),
        node_instance("new").state(InstanceState::Pending).never_joined(),
    ];
    assert!(
        step_summaries(&decide(&RollingUpdateInput { desired: 3, ..input(&members, &Drains::new(), 1) })).is_empty()
    );
    assert_eq!(
        step_summaries(&decide(&RollingUpdateInput { desired: 2, ..input(&members, &Drains::new(), 1) })),
        ["cordon a"]
    );
}

#[test]
fn candidates_are_ordered_by_health_then_zone_and_age() {
    let aged =
        |name: &str, zone: &str, age: i64| node_instance(name).outdated().zone(zone).node(|n| n.created_at = ago(age));
    let members = [
        aged("a-young", "a", 100),
        aged("a-old", "a", 900),
        aged("a-older", "a", 950),
        aged("b-old", "b", 800),
        aged("c-sick", "c", 700).unready_since(60),
        aged("c-unborn", "c", 0).never_joined(),
    ];
    let all = decide(&RollingUpdateInput { desired: 6, ..input(&members, &Drains::new(), 6) });
    assert_eq!(
        step_summaries(&all),
        ["terminate c-unborn", "cordon c-sick", "cordon a-older", "cordon b-old", "cordon a-old", "cordon a-young"]
    );
}

#[test]
fn blocked_rotation_uncordons_nodes_and_starts_no_batch() {
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let view = drains("node-a", vec![pod("web")]);
    let base = || RollingUpdateInput { max_unavailable: 2, ..input(&members, &view, 2) };
    let blocked = Some((Reason::ProcessSuspended, "Launch is suspended".to_owned()));
    for (held, free) in [
        (RollingUpdateInput { lock: Some("the group"), ..base() }, true),
        (RollingUpdateInput { precondition: blocked, ..base() }, true),
        (RollingUpdateInput { cluster_health: ClusterHealth { total: 10, unready: 3 }, ..base() }, false),
    ] {
        let decision = decide(&held);
        assert!(!matches!(decision.state, RotationState::Going | RotationState::Idle), "{:?}", decision.state);
        assert_eq!(step_summaries(&decision), if free { vec!["uncordon node-a"] } else { vec![] });
        assert!(!decision.steps.iter().any(|step| step.is_disruptive()));
    }
}

#[test]
fn node_no_longer_outdated_is_uncordoned() {
    let members = [node_instance("a").cordoned(), node_instance("b")];
    let decision = rotate(&members, 1);
    assert_eq!(step_summaries(&decision), ["uncordon node-a"]);
    assert_eq!(decision.state, RotationState::Idle);
}

#[test]
fn disruption_record_of_another_group_is_ignored() {
    let foreign = |n: &mut NodeView| n.disruption.as_mut().expect("marked").group = "uid-2".into();
    assert!(
        step_summaries(&rotate(&[node_instance("a").outdated().cordoned().node(foreign), node_instance("b")], 2))
            .is_empty()
    );
    assert!(step_summaries(&rotate(&[node_instance("a").cordoned().node(foreign), node_instance("b")], 2)).is_empty());
}

#[test]
fn failed_replacements_halt_the_rotation() {
    let old = || node_instance("old").outdated();
    let cases: Vec<(&str, NodeInstance, bool)> = vec![
        ("never joined in time", node_instance("n").in_service_since(901).never_joined(), true),
        ("still has time to join", node_instance("n").in_service_since(899).never_joined(), false),
        ("joined and never Ready", node_instance("n").in_service_since(901).unready(), true),
        ("Ready and lost within its time", node_instance("n").in_service_since(300).unready_since(60), true),
        ("flapped for a moment", node_instance("n").in_service_since(300).unready_since(10), false),
        ("lost long after its time", node_instance("n").unready_since(60), false),
        (
            "lost before this process observed the instance",
            node_instance("n").unready_since(600).with(|m| m.instance.in_service_since = Some(ago(5))),
            false,
        ),
        ("only cordoned", node_instance("n").node(|n| n.cordoned = true), false),
    ];
    for (name, replacement, halts) in cases {
        let decision = rotate(&[old(), replacement], 1);
        match &decision.state {
            RotationState::Halted(message) => {
                assert!(halts, "{name}: {message}");
                assert!(message.contains("n (") && message.contains("version 2"), "{name}: {message}");
                assert!(step_summaries(&decision).is_empty(), "{name}");
            }
            state => assert!(!halts, "{name}: {state:?}"),
        }
    }
}

#[test]
fn rotation_stays_halted_until_replacements_are_ready() {
    let none = Drains::new();
    let members = [node_instance("old").outdated(), node_instance("n").in_service_since(60).never_joined()];
    let halted = RollingUpdateInput { was_halted: true, ..input(&members, &none, 2) };
    assert!(matches!(decide(&halted).state, RotationState::Halted(_)));
    let members = [node_instance("old").outdated(), node_instance("n").in_service_since(60)];
    let recovered = RollingUpdateInput { was_halted: true, ..input(&members, &none, 1) };
    assert_eq!(step_summaries(&decide(&recovered)), ["cordon old"]);
}

#[test]
fn many_unready_nodes_stop_the_rotation() {
    let lost = |n: &str| node_instance(n).outdated().unready_since(30);
    assert!(matches!(
        rotate(&[lost("a"), lost("b"), node_instance("c").outdated()], 1).state,
        RotationState::Unhealthy(_)
    ));
    assert!(!matches!(
        rotate(&[lost("a"), lost("b"), node_instance("c").outdated()], 2).state,
        RotationState::Unhealthy(_)
    ));
    let joining = |n: &str| node_instance(n).in_service_since(3).unready();
    assert_eq!(rotate(&[joining("a"), joining("b"), node_instance("c").outdated()], 1).state, RotationState::Going);
    for (total, unready, unhealthy) in
        [(10, 3, true), (10, 2, false), (11, 3, false), (3, 2, false), (3, 3, true), (0, 0, false)]
    {
        assert_eq!(ClusterHealth { total, unready }.is_unhealthy(), unhealthy, "{unready} of {total}");
    }
}

#[test]
fn surplus_prefers_draining_then_outdated_instances() {
    let members = [
        node_instance("a"),
        node_instance("b").outdated(),
        node_instance("c").cordoned(),
        node_instance("s").state(InstanceState::Standby),
    ];
    let of = |n, view: &Drains| {
        step_summaries(&decide(&RollingUpdateInput {
            candidates: Candidates::Surplus(n),
            max_unavailable: 3,
            ..input(&members, view, 3)
        }))
    };
    let view = drains("node-c", vec![pod("web")]);
    assert_eq!(of(1, &view), Vec::<String>::new());
    assert_eq!(of(2, &view), ["cordon b"]);
    assert_eq!(of(3, &view), ["cordon b", "cordon a"]);
    assert_eq!(of(1, &Drains::from([("node-c".into(), DrainView::default())])), ["terminate c"]);
}

#[test]
fn terminating_standby_instance_does_not_decrement_desired() {
    let members = [node_instance("a").cordoned(), node_instance("s").cordoned().state(InstanceState::Standby)];
    let view = Drains::from(["node-a", "node-s"].map(|node| (node.to_owned(), DrainView::default())));
    let drain_policy = DrainPolicy { decrement_desired: true, ..policy() };
    let decision =
        decide(&RollingUpdateInput { candidates: Candidates::All, drain_policy, ..input(&members, &view, 2) });
    let ends: Vec<_> = (decision.steps.iter())
        .filter_map(|s| match s {
            NodeStep::Terminate { instance, decrement_desired, .. } => Some((instance.as_str(), *decrement_desired)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [("a", true), ("s", false)]);
}

#[test]
fn a_weighted_group_counts_units_of_capacity() {
    let heavy = |name: &str, weight| node_instance(name).with(|m| m.instance.weight = weight);
    let decided = |members: &[NodeInstance], desired, max_unavailable, max_unavailable_in_weight| {
        step_summaries(&decide(&RollingUpdateInput {
            desired,
            max_unavailable_in_weight,
            ..input(members, &Drains::new(), max_unavailable)
        }))
    };
    let all = [heavy("a", 4).outdated(), heavy("b", 4).outdated(), heavy("c", 8).outdated()];
    assert_eq!(decided(&all, 16, 1, false), ["cordon a"], "one node is one node, whatever it weighs");
    assert_eq!(decided(&all, 16, 2, false), ["cordon a", "cordon b"]);
    assert_eq!(decided(&all, 16, 4, true), ["cordon a"], "a quarter of 16 units is one node of four");
    assert_eq!(decided(&all, 16, 8, true), ["cordon a", "cordon b"]);
    assert_eq!(decided(&all, 16, 1, true), ["cordon a"], "while nothing is missing one may always go");
    let short = [heavy("a", 4).outdated(), heavy("c", 8).outdated()];
    assert!(decided(&short, 16, 1, false).is_empty(), "four units are missing already");
    assert!(decided(&short, 16, 6, true).is_empty());
    assert_eq!(decided(&short, 16, 8, true), ["cordon a"]);
    let replaced = [heavy("n", 8).in_service_since(60), heavy("a", 4).outdated(), heavy("b", 4).outdated()];
    assert_eq!(decided(&replaced, 16, 1, false), ["cordon a"], "one heavy replacement makes up for two light ones");
}

#[test]
fn surplus_takes_only_instances_within_the_weight() {
    let heavy = |name: &str, weight| node_instance(name).with(|m| m.instance.weight = weight);
    let members = [heavy("a", 4), heavy("b", 2), heavy("c", 2)];
    let of = |n| {
        step_summaries(&decide(&RollingUpdateInput {
            candidates: Candidates::Surplus(n),
            desired: 8,
            max_unavailable: 8,
            ..input(&members, &Drains::new(), 8)
        }))
    };
    assert_eq!(of(1), Vec::<String>::new());
    assert_eq!(of(3), ["cordon b"]);
    assert_eq!(of(4).len(), 1, "one of four units: {:?}", of(4));
    assert_eq!(of(8).len(), 3);
}

#[test]
fn drain_backoff_lets_the_next_node_drain() {
    let rests = |node: &str| {
        (
            node.to_owned(),
            DrainView { retry_drain_at: Some(now() + SignedDuration::from_secs(9)), ..DrainView::default() },
        )
    };
    let members = [node_instance("a").outdated(), node_instance("b").outdated()];
    assert_eq!(step_summaries(&decide(&input(&members, &[rests("node-a")].into(), 1))), ["cordon b"]);
    assert!(matches!(
        decide(&input(&members, &[rests("node-a"), rests("node-b")].into(), 1)).state,
        RotationState::Resting(_)
    ));
}

#[test]
fn blocked_eviction_stays_reported_while_another_drain_continues() {
    let refused =
        DrainView { pods: vec![pod("web")], last_blocked_eviction: Some((ago(1), 3)), ..DrainView::default() };
    let views = |a: DrainView| Drains::from([("node-a".into(), a), ("node-b".into(), DrainView::default())]);
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated().cordoned()];
    let decision = decide(&input(&members, &views(refused), 2));
    assert_eq!((step_summaries(&decision), decision.eviction_blocked), (vec!["terminate b".to_owned()], true));
    let ending = DrainView { pods: vec![PodView { is_terminating: true, ..pod("web") }], ..DrainView::default() };
    assert!(!decide(&input(&members, &views(ending), 2)).eviction_blocked);
}

#[test]
fn drain_backoff_does_not_keep_nodes_cordoned() {
    let until = Some(now() + SignedDuration::from_secs(9));
    let rests = Drains::from([("node-a".into(), DrainView { retry_drain_at: until, ..DrainView::default() })]);
    assert_eq!(
        step_summaries(&decide(&input(&[node_instance("a").outdated(), node_instance("b").cordoned()], &rests, 1))),
        ["uncordon node-b"]
    );
}

#[test]
fn duplicate_provider_id_is_reported_and_skipped() {
    let with_duplicate = |m: NodeInstance| m.node(|n| n.duplicates = vec!["node-liar".into()]);
    let names = "Nodes node-a, node-liar all claim instance a";
    let empty = Drains::from([("node-a".into(), DrainView::default())]);
    for candidates in [Candidates::Outdated, Candidates::Surplus(1), Candidates::All] {
        for a in [node_instance("a").outdated(), node_instance("a").outdated().node(|n| n.ready = false)] {
            let decision =
                decide(&RollingUpdateInput { candidates, max_surge: 1, ..input(&[with_duplicate(a)], &empty, 2) });
            assert_eq!(
                (step_summaries(&decision), decision.state, decision.duplicate_provider_ids),
                (vec![], RotationState::Going, vec![names.to_owned()])
            );
        }
        let members = [with_duplicate(node_instance("a").outdated().cordoned())];
        assert_eq!(
            step_summaries(&decide(&RollingUpdateInput { candidates, ..input(&members, &empty, 2) })),
            ["uncordon node-a"]
        );
    }
    let members = [with_duplicate(node_instance("a").outdated()), node_instance("b").outdated()];
    assert_eq!(step_summaries(&rotate(&members, 2)), ["cordon b"], "other nodes are replaced");
}

#[test]
fn unknown_pods_block_termination() {
    let decision = rotate(&[node_instance("a").outdated().cordoned()], 1);
    assert!(decision.steps.is_empty(), "{:?}", decision.steps);
}

#[test]
fn drain_actions_follow_in_order() {
    let seconds = SignedDuration::from_secs;
    let limited = |at_timeout| DrainPolicy { timeout: Some(seconds(10)), at_timeout, ..policy() };
    let (healthy, unready, dead) = (
        node_instance("a").cordoned(),
        node_instance("a").cordoned().unready_since(299),
        node_instance("a").cordoned().unready_since(300),
    );
    let ending = || PodView { is_terminating: true, ..pod("web") };
    let stays = PodView { is_ignored: true, ..pod("daemon") };
    let finished = PodView { is_finished: true, ..pod("job") };
    let view = |pods: Vec<PodView>| DrainView { pods, ..DrainView::default() };
    let volume = |since| DrainView {
        attached_volumes: vec!["vol".into()],
        empty_since: Some(ago(since)),
        ..DrainView::default()
    };
    let refused =
        |since, times| DrainView { last_blocked_eviction: Some((ago(since), times)), ..view(vec![pod("web")]) };
    let cases: Vec<(&str, &NodeInstance, DrainView, DrainPolicy, &str)> = vec![
        ("a pod is evicted", &healthy, view(vec![pod("web")]), policy(), "evict"),
        ("a terminating pod is waited for", &healthy, view(vec![ending()]), policy(), "wait"),
        ("DaemonSet pods and finished pods do not block", &healthy, view(vec![stays, finished]), policy(), "terminate"),
        ("volumes are waited for", &healthy, volume(119), policy(), "wait"),
        ("until their timeout", &healthy, volume(120), policy(), "terminate"),
        ("a blocked eviction is not retried immediately", &healthy, refused(1, 1), policy(), "wait"),
        ("but after the backoff", &healthy, refused(2, 1), policy(), "evict"),
        ("and every 30 seconds later", &healthy, refused(30, 40), policy(), "evict"),
        (
            "at the timeout the node is uncordoned",
            &healthy,
            view(vec![pod("web")]),
            limited(AtTimeout::Uncordon),
            "give up",
        ),
        ("or pods are deleted", &healthy, view(vec![pod("web")]), limited(AtTimeout::Delete), "force"),
        ("and then waited for", &healthy, view(vec![ending()]), limited(AtTimeout::Delete), "wait"),
        ("or a deletion continues", &healthy, view(vec![pod("web")]), limited(AtTimeout::Terminate), "abandon"),
        (
            "a dead kubelet is waited for no longer than the grace",
            &dead,
            view(vec![PodView { grace_seconds: 20, ..ending() }]),
            policy(),
            "terminate",
        ),
        ("but as long as the grace", &dead, view(vec![PodView { grace_seconds: 21, ..ending() }]), policy(), "wait"),
        (
            "a kubelet is dead after five minutes",
            &unready,
            view(vec![PodView { grace_seconds: 0, ..ending() }]),
            policy(),
            "wait",
        ),
    ];
    for (name, member, view, policy, expected) in cases {
        let record = member.disruption_of(UID).expect("a record").clone();
        let action = match next_drain_action(member, &record, &view, &policy, now()) {
            DrainAction::Evict(_) => "evict",
            DrainAction::Wait(_) => "wait",
            DrainAction::Force(_) => "force",
            DrainAction::GiveUp(_) => "give up",
            DrainAction::Abandon(_) => "abandon",
            DrainAction::Terminate => "terminate",
        };
        assert_eq!(action, expected, "{name}");
    }
    assert_eq!([1, 2, 3, 4, 5, 6, 400].map(|n| eviction_backoff(n).as_secs()), [2, 4, 8, 16, 30, 30, 30]);
}

prop_compose! {
    fn any_member()(
        state in prop_oneof![6 => Just(InstanceState::InService), 1 => Just(InstanceState::Pending), 1 => Just(InstanceState::Terminating), 1 => Just(InstanceState::Standby)],
        joined in prop::bool::weighted(0.9), ready in prop::bool::weighted(0.8), cordoned in prop::bool::weighted(0.2),
        marked in prop::bool::weighted(0.2), outdated: bool, zone in 0u8..3, age in 10i64..5_000,
        weight in prop_oneof![3 => Just(1u32), 1 => 2u32..5],
    ) -> NodeInstance {
        let m = node_instance("x").with(|m| m.instance.weight = weight).state(state).zone(&zone.to_string()).in_service_since(age);
        let m = if outdated { m.outdated() } else { m };
        let m = m.node(|n| (n.ready, n.cordoned) = (ready, cordoned));
        let m = if marked { m.cordoned() } else { m };
        if joined { m } else { m.never_joined() }
    }
}

proptest! {
    #[test]
    fn decision_never_exceeds_max_unavailable(
        mut members in prop::collection::vec(any_member(), 0..12), desired in 0usize..12, max in 1usize..6, known in any::<bool>(),
    ) {
        for (i, m) in members.iter_mut().enumerate() {
            m.instance.id = format!("i-{i}");
            m.node.iter_mut().for_each(|n| n.name = format!("node-i-{i}"));
        }
        let names = members.iter().filter_map(|m| m.node.as_ref()).map(|n| (n.name.clone(), DrainView::default()));
        let drains: Drains = if known { names.collect() } else { Drains::new() };
        let decision = decide(&RollingUpdateInput { desired, ..input(&members, &drains, max) });
        let weigh = |members: &mut dyn Iterator<Item = &NodeInstance>| members.map(NodeInstance::weight).sum::<usize>();
        let available = weigh(&mut members.iter().filter(|m| m.is_available()));
        let hit = |m: &&NodeInstance| decision.steps.iter().any(|s| match s {
            NodeStep::CordonNode { instance, .. } | NodeStep::Terminate { instance, .. } => *instance == m.instance.id,
            _ => false,
        });
        let costs = weigh(&mut members.iter().filter(hit).filter(|m| m.is_available()));
        let heaviest = members.iter().filter(hit).map(NodeInstance::weight).max().unwrap_or(1);
        prop_assert!(costs == 0 || desired.saturating_sub(available) + costs <= max * heaviest, "{costs} of {available} for {desired}");
        let leaving = members.iter().filter(|m| m.instance.state == InstanceState::Terminating).count();
        let begun = members.iter().filter(hit).filter(|m| m.disruption_of(UID).is_none()).count();
        let marked = members.iter().filter(|m| m.disruption_of(UID).is_some() && m.instance.state == InstanceState::InService && !m.reasons.is_empty()).count();
        prop_assert!(begun == 0 || leaving + marked + begun <= max);
        prop_assert!(members.iter().filter(hit).all(|m| !m.reasons.is_empty()), "only outdated instances are removed");
        let undrained = |m: &NodeInstance| decision.steps.iter().any(|s| matches!(s, NodeStep::Terminate { instance, .. } if *instance == m.instance.id));
        prop_assert!(members.iter().filter(|m| undrained(m)).all(|m| m.node.is_none() || m.disruption_of(UID).is_some()), "no node is terminated without its record");
    }

    #[test]
    fn rotation_terminates_and_keeps_minimum_available(size in 1usize..9, max in 1usize..5, luck in prop::collection::vec(any::<u8>(), 400)) {
        let max = max.min(size);
        let mut members: Vec<_> = (0..size).map(|i| node_instance(&format!("i-{i}")).outdated().zone(&(i % 3).to_string())).collect();
        let mut luck = luck.into_iter();
        let mut made = size;
        while members.iter().any(|m| !m.reasons.is_empty()) {
            let Some(event) = luck.next() else { prop_assert!(false, "does not finish: {members:?}"); unreachable!() };
            let views: Drains = members.iter().filter(|m| m.disruption_of(UID).is_some()).map(|m| (format!("node-{}", m.instance.id), DrainView::default())).collect();
            // `now` is constant here, so no node would ever be Ready for long enough.
            let ready_hold = SignedDuration::ZERO;
            for step in decide(&RollingUpdateInput { desired: size, ready_hold, ..input(&members, &views, max) }).steps {
                match step {
                    NodeStep::CordonNode { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| *m = m.clone().cordoned()),
                    NodeStep::Terminate { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| m.instance.state = InstanceState::Terminating),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let available = members.iter().filter(|m| m.is_available()).count();
            prop_assert!(available + max >= size, "{available} of {size}");
            let at = usize::from(event) % members.len();
            match members[at].instance.state {
                InstanceState::Terminating => {
                    members.remove(at);
                    members.push(node_instance(&format!("i-{made}")).in_service_since(30).never_joined());
                    made += 1;
                }
                _ if members[at].node.is_none() => members[at] = node_instance(&members[at].instance.id.clone()).in_service_since(20),
                _ => {}
            }
        }
    }
}
