//! What blocks, halts or ends a rotation.

use super::*;

#[test]
fn blocked_rotation_uncordons_nodes_and_starts_no_batch() {
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let view = drains("node-a", vec![pod("web")]);
    let base = || RollingUpdateInput { max_unavailable: 2, ..input(&members, &view, 2) };
    let blocked = Some((StalledReason::ProcessSuspended, "Launch is suspended".to_owned()));
    for (input, uncordons) in [
        (RollingUpdateInput { lock: Some("the group"), ..base() }, true),
        (RollingUpdateInput { precondition: blocked, ..base() }, true),
        (RollingUpdateInput { cluster_health: ClusterHealth { total: 10, unready: 3 }, ..base() }, false),
    ] {
        let decision = decide(&input);
        assert!(!matches!(decision.state, RotationState::InProgress | RotationState::Idle), "{:?}", decision.state);
        assert_eq!(step_summaries(&decision), if uncordons { vec!["uncordon node-a"] } else { vec![] });
        assert!(!decision.steps.iter().any(|step| step.is_disruptive()));
    }
}

/// A window that closes must not leave a node half drained, and must not begin another one.
#[test]
fn blocked_rotation_finishes_its_drains_and_begins_none() {
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let empty = drains("node-a", vec![]);
    let block = |input| RollingUpdateInput { rollout_block: Some("the rollout of r2: its window is closed"), ..input };
    let decision = decide(&block(RollingUpdateInput { max_unavailable: 2, ..input(&members, &empty, 2) }));
    assert_eq!(
        (step_summaries(&decision), &decision.state),
        (vec!["terminate a".to_owned()], &RotationState::InProgress)
    );
    let busy = drains("node-a", vec![pod("web")]);
    let decision = decide(&block(input(&members, &busy, 2)));
    assert!(step_summaries(&decision).is_empty() && decision.state == RotationState::InProgress);
    let (fresh, none) = ([node_instance("a").outdated(), node_instance("b").outdated()], Drains::new());
    for max_surge in [0, 1] {
        let decision = decide(&block(RollingUpdateInput { max_surge, ..input(&fresh, &none, 2) }));
        assert_eq!(step_summaries(&decision), [""; 0]);
        assert!(
            matches!(&decision.state, RotationState::Locked(why) if why.contains("window")),
            "{:?}",
            decision.state
        );
    }
    let all = RollingUpdateInput { candidates: Candidates::All, ..input(&fresh, &none, 2) };
    assert_eq!(step_summaries(&decide(&block(all))).len(), 2, "a deletion waits for no window");
}

/// An admin who lowers the default of maxSize expects that no node leaves outside of the window.
#[test]
fn blocked_rotation_removes_no_further_surplus_node() {
    let why = Some("the rollout of r2: its window is closed");
    let (none, empty) = (Drains::new(), drains("node-a", vec![]));
    let (fresh, begun) =
        ([node_instance("a"), node_instance("b")], [node_instance("a").cordoned(), node_instance("b")]);
    let surplus = |input| RollingUpdateInput { candidates: Candidates::Surplus(1), rollout_block: why, ..input };
    let decision = decide(&surplus(input(&fresh, &none, 2)));
    assert_eq!(step_summaries(&decision), [""; 0]);
    assert!(matches!(&decision.state, RotationState::Locked(why) if why.contains("window")), "{:?}", decision.state);
    let decision = decide(&surplus(input(&begun, &empty, 2)));
    assert_eq!(step_summaries(&decision), ["terminate a"], "what has begun is finished");
}

/// Auto Scaling would replace it from the pool with an outdated instance, which is then replaced again.
#[test]
fn no_further_node_is_taken_while_the_warm_pool_is_replaced() {
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let empty = drains("node-a", vec![]);
    let rotate = |warm_pool| decide(&RollingUpdateInput { warm_pool, ..input(&members, &empty, 2) });
    assert_eq!(step_summaries(&rotate(WarmPoolRotation::Done)), ["terminate a", "cordon b"]);
    assert_eq!(step_summaries(&rotate(WarmPoolRotation::InProgress)), ["terminate a"]);
}

/// An instance that does not finish its launch in the pool may be what replaces the next node.
#[test]
fn stuck_warm_pool_halts_the_rotation_and_no_scale_in() {
    let halted = || WarmPoolRotation::Halted("i-9 did not finish launching".to_owned());
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let empty = drains("node-a", vec![]);
    let decision = decide(&RollingUpdateInput { warm_pool: halted(), ..input(&members, &empty, 2) });
    assert_eq!(step_summaries(&decision), ["uncordon node-a"]);
    assert!(matches!(&decision.state, RotationState::Halted(why) if why.contains("i-9")), "{:?}", decision.state);
    let surplus = RollingUpdateInput { candidates: Candidates::Surplus(1), ..input(&members, &empty, 2) };
    let decision = decide(&RollingUpdateInput { warm_pool: halted(), ..surplus });
    assert_eq!(step_summaries(&decision), ["terminate a"], "the tenant wants fewer nodes");
}

#[test]
fn node_no_longer_outdated_is_uncordoned() {
    let members = [node_instance("a").cordoned(), node_instance("b")];
    let decision = rotate(&members, 1);
    assert_eq!(step_summaries(&decision), ["uncordon node-a"]);
    assert_eq!(decision.state, RotationState::Idle);
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
        (
            "lost soon after this process started",
            node_instance("n")
                .unready_since(60)
                .with(|m| (m.instance.in_service_since, m.instance.was_in_service) = (Some(ago(300)), true))
                .node(|n| n.created_at = ago(7200)),
            false,
        ),
        (
            "Ready and lost within its time, after it had joined from a warm pool",
            node_instance("n").in_service_since(300).unready_since(60).node(|n| n.created_at = ago(7200)),
            true,
        ),
        (
            "Ready and lost within its time, and deleted and registered again",
            node_instance("n").in_service_since(300).unready_since(60).node(|n| n.created_at = ago(70)),
            true,
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

/// The Cluster Autoscaler removes an instance that does not join, and lowers the desired capacity: nothing seems to be missing.
#[test]
fn failed_replacement_that_is_gone_halts_the_rotation() {
    let (members, none) = ([node_instance("a").outdated(), node_instance("b").outdated()], Drains::new());
    let failed = |candidates| RollingUpdateInput {
        failed_replacements: Some("left unready: i-9".to_owned()),
        candidates,
        ..input(&members, &none, 2)
    };
    let decision = decide(&failed(Candidates::Outdated));
    assert!(matches!(&decision.state, RotationState::Halted(why) if why.contains("i-9")), "{:?}", decision.state);
    assert_eq!(step_summaries(&decision), [""; 0]);
    assert_eq!(step_summaries(&decide(&failed(Candidates::Surplus(1)))).len(), 1, "the tenant wants fewer nodes");
}

/// In a shortage, a node that goes back to EC2 is not to be had again.
#[test]
fn no_healthy_node_is_given_up_after_a_failed_launch() {
    let none = Drains::new();
    let failed = |members, drains, desired| RollingUpdateInput {
        failed_launch: Some((StalledReason::InsufficientCapacity, "no m5.large".to_owned())),
        max_unavailable: 2,
        ..input(members, drains, desired)
    };
    let healthy = [node_instance("a").outdated(), node_instance("b").outdated()];
    let decision = decide(&failed(&healthy, &none, 2));
    let blocked = RotationState::Blocked(StalledReason::InsufficientCapacity, "no m5.large".to_owned());
    assert_eq!((step_summaries(&decision), decision.state), (vec![], blocked));
    for max_surge in [0, 1] {
        let input = RollingUpdateInput { max_surge, ..failed(&healthy, &none, 2) };
        assert_eq!(step_summaries(&decide(&input)), [""; 0], "maxSurge {max_surge}");
    }
    let begun = [node_instance("a").outdated().cordoned(), node_instance("b").outdated()];
    let empty = drains("node-a", vec![]);
    let decision = decide(&failed(&begun, &empty, 2));
    assert_eq!(
        (step_summaries(&decision), decision.state),
        (vec!["terminate a".to_owned()], RotationState::InProgress)
    );
    let dead = [node_instance("a").outdated().unready(), node_instance("b").outdated()];
    assert_eq!(step_summaries(&decide(&failed(&dead, &none, 3))), ["cordon a"], "it serves no pods");
}

/// If the controller terminates the instance too, Auto Scaling terminates another node for the second call.
#[test]
fn node_that_the_cluster_autoscaler_terminates_during_a_drain_is_left_to_it() {
    let scaled_in = node_instance("a").outdated().cordoned().node(|n| n.is_removed_by_autoscaler = true);
    let (members, empty) = ([scaled_in, node_instance("b").outdated()], drains("node-a", vec![]));
    let decision = decide(&input(&members, &empty, 1));
    assert_eq!(step_summaries(&decision), [""; 0]);
    assert!(decision.waiting_for[0].contains("the Cluster Autoscaler drains"), "{:?}", decision.waiting_for);
    let all = RollingUpdateInput { candidates: Candidates::All, ..input(&members, &empty, 1) };
    assert!(step_summaries(&decide(&all)).contains(&"terminate a".to_owned()), "the group is deleted");
}

/// A kubelet may write any time to its Node.
#[test]
fn times_on_a_node_that_cannot_be_added_to_stop_no_reconcile() {
    let none = Drains::new();
    for time in [Timestamp::MIN, Timestamp::MAX] {
        let record = |n: &mut NodeView| n.disruption.iter_mut().for_each(|record| record.since = time);
        let members = [
            node_instance("a").outdated().cordoned().node(record),
            node_instance("b").node(|n| (n.ready_changed_at, n.created_at) = (Some(time), time)),
            node_instance("c").unready_since(60).node(|n| (n.ready_changed_at, n.created_at) = (Some(time), time)),
            node_instance("d").node(|n| (n.is_removed_by_autoscaler, n.autoscaler_since) = (true, Some(time))),
            node_instance("e").node(|n| n.drain_after = Some(time)),
        ];
        let pods = drains("node-a", vec![pod("p")]);
        for drains in [&none, &pods] {
            for timeout in [None, Some(SignedDuration::from_hours(168))] {
                for was_halted in [false, true] {
                    let drain_policy = DrainPolicy { timeout, ..policy() };
                    decide(&RollingUpdateInput { drain_policy, was_halted, ..input(&members, drains, 5) });
                }
            }
        }
    }
}

#[test]
fn rotation_stays_halted_until_replacements_are_ready() {
    let none = Drains::new();
    let members = [node_instance("old").outdated(), node_instance("n").in_service_since(60).never_joined()];
    let halted = RollingUpdateInput { was_halted: true, ..input(&members, &none, 2) };
    assert!(matches!(decide(&halted).state, RotationState::Halted(_)));
    let unrelated = || node_instance("m").unready_since(60);
    let members =
        [node_instance("old").outdated(), node_instance("n").in_service_since(60), unrelated(), node_instance("o")];
    let halted = RollingUpdateInput { was_halted: true, max_unavailable: 2, ..input(&members, &none, 4) };
    assert_eq!(step_summaries(&decide(&halted)), ["cordon old"], "a node that failed long after its start");
    let members = [node_instance("old").outdated(), node_instance("n").in_service_since(60)];
    let recovered = RollingUpdateInput { was_halted: true, ..input(&members, &none, 1) };
    assert_eq!(step_summaries(&decide(&recovered)), ["cordon old"]);
}

#[test]
fn many_unready_nodes_stop_the_rotation() {
    let unready = |n: &str| node_instance(n).outdated().unready_since(30);
    assert!(matches!(
        rotate(&[unready("a"), unready("b"), node_instance("c").outdated()], 1).state,
        RotationState::Unhealthy(_)
    ));
    assert!(!matches!(
        rotate(&[unready("a"), unready("b"), node_instance("c").outdated()], 2).state,
        RotationState::Unhealthy(_)
    ));
    let joining = |n: &str| node_instance(n).in_service_since(3).unready();
    assert_eq!(
        rotate(&[joining("a"), joining("b"), node_instance("c").outdated()], 1).state,
        RotationState::InProgress
    );
    for (total, unready, unhealthy) in
        [(10, 3, true), (10, 2, false), (11, 3, false), (3, 2, false), (3, 3, true), (0, 0, false)]
    {
        assert_eq!(ClusterHealth { total, unready }.is_unhealthy(), unhealthy, "{unready} of {total}");
    }
}
