//! How many nodes are replaced at once, and in which order.

use super::*;

#[test]
fn retained_instance_is_named() {
    let retained = node_instance("a").state(InstanceState::Terminating).with(|m| m.instance.is_retained = true);
    let decision = rotate(&[retained.clone(), node_instance("b").outdated()], 1);
    assert_eq!(step_summaries(&decision), [""; 0], "it counts against maxUnavailable");
    let named = |waiting: &[String]| {
        waiting
            .iter()
            .any(|w| w.contains("a (node-a)") && w.contains("terminate-instance-in-auto-scaling-group --instance-id a"))
    };
    assert!(named(&decision.waiting_for), "{:?}", decision.waiting_for);
    let none = Drains::new();
    let deletion =
        RollingUpdateInput { candidates: Candidates::All, ..input(std::slice::from_ref(&retained), &none, 1) };
    assert!(named(&decide(&deletion).waiting_for), "a deletion waits for it too");
}

/// Auto Scaling terminates it soon, so that one more node would exceed maxUnavailable.
#[test]
fn instance_that_auto_scaling_reports_as_unhealthy_is_not_available() {
    let unhealthy = node_instance("a").with(|m| m.instance.healthy = false);
    let decision = rotate(&[unhealthy, node_instance("b").outdated()], 1);
    assert_eq!(step_summaries(&decision), [""; 0]);
    let named = decision.waiting_for.iter().any(|what| what.contains("a (node-a)") && what.contains("Unhealthy"));
    assert!(named, "{:?}", decision.waiting_for);
    let outdated = node_instance("a").outdated().with(|m| m.instance.healthy = false);
    assert_eq!(step_summaries(&rotate(&[outdated, node_instance("b").outdated()], 1)), ["cordon a"]);
}

/// A drain that hangs would delay nodes that could be drained at once.
#[test]
fn nodes_with_a_blocked_drain_are_replaced_last() {
    let drain_will_block = |name: &str| node_instance(name).outdated().node(|n| n.drain_last = true);
    let members = [drain_will_block("a"), node_instance("b").outdated(), node_instance("c").outdated()];
    assert_eq!(step_summaries(&rotate(&members, 2)), ["cordon b", "cordon c"]);
    assert_eq!(step_summaries(&rotate(&members[..1], 1)), ["cordon a"]);
}

#[test]
fn instance_without_a_node_has_time_to_join() {
    let steps = |candidates, age| {
        let members = [node_instance("a").outdated().in_service_since(age).never_joined()];
        let decision = decide(&RollingUpdateInput { candidates, ..input(&members, &Drains::new(), 1) });
        (step_summaries(&decision), decision.waiting_for.len())
    };
    for candidates in [Candidates::Outdated, Candidates::Surplus(1)] {
        assert_eq!(steps(candidates, 899), (vec![], 1));
        assert_eq!(steps(candidates, 900), (vec!["terminate a".to_owned()], 0));
    }
    assert_eq!(steps(Candidates::All, 1), (vec!["terminate a".to_owned()], 0));
}

#[test]
fn instance_without_a_node_keeps_its_pods() {
    let members = [node_instance("a").outdated().never_joined()];
    let bound = drains("a", vec![pod("web")]);
    let decision = rotate_with(&members, &bound);
    assert!(decision.steps.is_empty() && decision.waiting_for[0].contains("apps/web"), "{decision:?}");
    let others = drains("a", vec![PodView { is_ignored: true, ..pod("daemon") }]);
    assert_eq!(step_summaries(&rotate_with(&members, &others)), ["terminate a"]);
    for (requested, expected) in [(899, vec![]), (900, vec!["terminate a"])] {
        let drain_policy = DrainPolicy {
            timeout: Some(SignedDuration::from_mins(15)),
            timeout_since: Some(ago(requested)),
            at_timeout: AtTimeout::Terminate,
            ..policy()
        };
        let deletion = RollingUpdateInput { candidates: Candidates::All, drain_policy, ..input(&members, &bound, 1) };
        let decision = decide(&deletion);
        assert_eq!(
            (step_summaries(&decision), decision.abandoned_pods.len()),
            (expected.iter().map(ToString::to_string).collect(), expected.len())
        );
    }
}

fn rotate_with(members: &[NodeInstance], drains: &Drains) -> RollingUpdateDecision {
    decide(&input(members, drains, 1))
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
        aged("c-unready", "c", 700).unready_since(600),
        aged("c-not-joined", "c", 0).never_joined(),
    ];
    let all = decide(&RollingUpdateInput { desired: 6, ..input(&members, &Drains::new(), 6) });
    assert_eq!(
        step_summaries(&all),
        [
            "terminate c-not-joined",
            "cordon c-unready",
            "cordon a-older",
            "cordon b-old",
            "cordon a-old",
            "cordon a-young"
        ]
    );
}

#[test]
fn weighted_group_counts_units_of_capacity() {
    let heavy = |name: &str, weight| node_instance(name).with(|m| m.instance.weight = weight);
    let steps_for = |members: &[NodeInstance], desired, max_unavailable, max_unavailable_in_weight| {
        step_summaries(&decide(&RollingUpdateInput {
            desired,
            max_unavailable_in_weight,
            ..input(members, &Drains::new(), max_unavailable)
        }))
    };
    let all = [heavy("a", 4).outdated(), heavy("b", 4).outdated(), heavy("c", 8).outdated()];
    assert_eq!(steps_for(&all, 16, 1, false), ["cordon a"], "a number of nodes does not depend on their weight");
    assert_eq!(steps_for(&all, 16, 2, false), ["cordon a", "cordon b"]);
    assert_eq!(steps_for(&all, 16, 4, true), ["cordon a"], "a quarter of 16 units is one node of four");
    assert_eq!(steps_for(&all, 16, 8, true), ["cordon a", "cordon b"]);
    assert_eq!(steps_for(&all, 16, 1, true), ["cordon a"], "one node may always be removed while none is unavailable");
    let short = [heavy("a", 4).outdated(), heavy("c", 8).outdated()];
    assert!(steps_for(&short, 16, 1, false).is_empty(), "four units are unavailable already");
    assert!(steps_for(&short, 16, 6, true).is_empty());
    assert_eq!(steps_for(&short, 16, 8, true), ["cordon a"]);
    let replaced = [heavy("n", 8).in_service_since(60), heavy("a", 4).outdated(), heavy("b", 4).outdated()];
    assert_eq!(steps_for(&replaced, 16, 1, false), ["cordon a"], "one heavy replacement covers two light nodes");
}

#[test]
fn plan_depends_on_nodes_that_it_replaces_or_counts() {
    let to_reread = |members: &[NodeInstance], max, removes_all: bool, known: &[&str]| {
        let candidates = if removes_all { Candidates::All } else { Candidates::Outdated };
        let decision = decide(&RollingUpdateInput { candidates, ..input(members, &Drains::new(), max) });
        let steps: Vec<_> = decision.steps.into_iter().map(crate::plan::PlannedStep::from).collect();
        let known = known.iter().map(ToString::to_string).collect();
        let found = stale_nodes::nodes_to_reread(&steps, removes_all, members, &known);
        found.into_iter().map(|m| m.instance.id.clone()).collect::<Vec<_>>().join(" ")
    };
    let (old, joining) =
        (|n: &str| node_instance(n).outdated(), |n: &str| node_instance(n).in_service_since(9).unready());
    let members = [old("a"), old("b"), node_instance("c"), joining("d")];
    assert_eq!(to_reread(&members, 2, false, &[]), "a b c", "a cordon relies on everything that is available");
    assert_eq!(to_reread(&members, 2, false, &["a", "c"]), "b");
    assert_eq!(to_reread(&members, 1, false, &[]), "", "nothing is taken");
    assert_eq!(to_reread(&[old("a"), old("b").never_joined()], 1, false, &[]), "b");
    assert_eq!(to_reread(&members, 1, true, &[]), "a b c d", "a deletion takes all");
    let empty = Drains::from([("node-a".into(), DrainView::default())]);
    let draining = [old("a").cordoned(), node_instance("b")];
    let steps: Vec<_> =
        (decide(&input(&draining, &empty, 1)).steps.into_iter()).map(crate::plan::PlannedStep::from).collect();
    let found = stale_nodes::nodes_to_reread(&steps, false, &draining, &Default::default());
    assert_eq!(found.len(), 1, "someone may have uncordoned the node that is terminated");
    let nodegroup = crate::aws::nodegroup::NodegroupName::new("demo", "old");
    let steps = [crate::plan::PlannedStep::from(crate::plan::NodegroupStep::DeleteNodegroup { nodegroup })];
    let outgoing = [old("a").never_joined(), old("b").cordoned(), node_instance("c")];
    let found = stale_nodes::nodes_to_reread(&steps, false, &outgoing, &Default::default());
    assert_eq!(found.len(), 2, "EKS removes the outgoing nodes");
}

/// In an outage of the cluster's API, all kubelets are silent. The nodes are Ready again after it, and would be drained.
#[test]
fn briefly_silent_node_is_not_treated_as_dead() {
    let none = Drains::new();
    let replacement = || node_instance("n").in_service_since(60).never_joined();
    for (seconds, expected) in [(10, vec![]), (299, vec![]), (301, vec!["cordon a"])] {
        let members = [node_instance("a").outdated().unready_since(seconds), replacement()];
        let decision = decide(&RollingUpdateInput { desired: 2, ..input(&members, &none, 1) });
        assert_eq!(step_summaries(&decision), expected, "silent for {seconds} s");
        if expected.is_empty() {
            assert!(decision.waiting_for.iter().any(|wait| wait.contains("to be Ready again")), "{decision:?}");
        }
    }
    let surplus = [node_instance("a").unready_since(10), node_instance("b")];
    let input = RollingUpdateInput { candidates: Candidates::Surplus(1), ..input(&surplus, &none, 1) };
    assert_eq!(step_summaries(&decide(&input)), ["cordon a"], "the tenant wants fewer nodes");
}

/// A node whose kubelet missed one heartbeat looks dead after a jump of the clock.
#[test]
fn silence_is_not_believed_right_after_a_jump_of_the_clock() {
    let members = [node_instance("a").outdated().unready_since(3_600), node_instance("b")];
    let taken = |since_clock_jump: Option<i64>| {
        let since_clock_jump = since_clock_jump.map(SignedDuration::from_secs);
        let drains = Drains::from([("node-a".into(), DrainView { since_clock_jump, ..DrainView::default() })]);
        step_summaries(&decide(&input(&members, &drains, 1)))
    };
    assert_eq!(taken(None), ["cordon a"]);
    assert_eq!(taken(Some(60)), [""; 0], "it may be Ready again in a moment");
    assert_eq!(taken(Some(300)), ["cordon a"], "it has been silent since the jump");
}
