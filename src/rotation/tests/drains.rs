//! Drains of single nodes, and their effect on the rotation.

use super::*;
use crate::rotation::drain::{DrainAction, eviction_backoff, next_drain_action};

#[test]
fn drain_backoff_lets_the_next_node_drain() {
    let in_backoff = |node: &str| {
        (
            node.to_owned(),
            DrainView { retry_drain_at: Some(now() + SignedDuration::from_secs(9)), ..DrainView::default() },
        )
    };
    let members = [node_instance("a").outdated(), node_instance("b").outdated()];
    assert_eq!(step_summaries(&decide(&input(&members, &[in_backoff("node-a")].into(), 1))), ["cordon b"]);
    assert!(matches!(
        decide(&input(&members, &[in_backoff("node-a"), in_backoff("node-b")].into(), 1)).state,
        RotationState::DrainBackoff(_)
    ));
}

#[test]
fn blocked_eviction_stays_reported_while_another_drain_continues() {
    let blocked =
        DrainView { pods: vec![pod("web")], last_blocked_eviction: Some((ago(1), 3)), ..DrainView::default() };
    let views = |a: DrainView| Drains::from([("node-a".into(), a), ("node-b".into(), DrainView::default())]);
    let members = [node_instance("a").outdated().cordoned(), node_instance("b").outdated().cordoned()];
    let decision = decide(&input(&members, &views(blocked), 2));
    assert_eq!((step_summaries(&decision), decision.eviction_blocked), (vec!["terminate b".to_owned()], true));
    let terminating = DrainView { pods: vec![PodView { is_terminating: true, ..pod("web") }], ..DrainView::default() };
    assert!(!decide(&input(&members, &views(terminating), 2)).eviction_blocked);
}

#[test]
fn drain_backoff_does_not_keep_nodes_cordoned() {
    let until = Some(now() + SignedDuration::from_secs(9));
    let drains = Drains::from([("node-a".into(), DrainView { retry_drain_at: until, ..DrainView::default() })]);
    assert_eq!(
        step_summaries(&decide(&input(&[node_instance("a").outdated(), node_instance("b").cordoned()], &drains, 1))),
        ["uncordon node-b"]
    );
}

/// A group that is deleted minutes after a drain timed out has only `drainTimeout` to evict its pods. Waiting for the
/// retry would use that time up, and the pods would end without one eviction.
#[test]
fn deletion_evicts_without_waiting_for_the_retry_of_a_drain() {
    let in_backoff = DrainView {
        pods: vec![pod("web")],
        retry_drain_at: Some(now() + SignedDuration::from_mins(5)),
        ..DrainView::default()
    };
    let views = Drains::from(["node-a", "node-b"].map(|node| (node.to_owned(), in_backoff.clone())));
    let delete = |members: &[NodeInstance]| {
        decide(&RollingUpdateInput { candidates: Candidates::All, ..input(members, &views, 1) })
    };
    let fresh = delete(&[node_instance("a"), node_instance("b")]);
    assert_eq!(
        (step_summaries(&fresh).join(", "), &fresh.state),
        ("cordon a, cordon b".into(), &RotationState::InProgress)
    );
    let recorded = delete(&[node_instance("a").cordoned(), node_instance("b").cordoned()]);
    let evicted = |step: &NodeStep| matches!(step, NodeStep::Evict { .. });
    assert!(recorded.steps.len() == 2 && recorded.steps.iter().all(evicted), "{:?}", recorded.steps);
}

#[test]
fn duplicate_provider_id_is_reported_and_skipped() {
    let with_duplicate = |m: NodeInstance| m.node(|n| n.duplicates = vec!["node-duplicate".into()]);
    let message = "Nodes node-a, node-duplicate all claim instance a";
    let empty = Drains::from([("node-a".into(), DrainView::default())]);
    for candidates in [Candidates::Outdated, Candidates::Surplus(1), Candidates::All] {
        for a in [node_instance("a").outdated(), node_instance("a").outdated().node(|n| n.ready = false)] {
            let decision =
                decide(&RollingUpdateInput { candidates, max_surge: 1, ..input(&[with_duplicate(a)], &empty, 2) });
            assert_eq!(
                (step_summaries(&decision), decision.state, decision.duplicate_provider_ids),
                (vec![], RotationState::InProgress, vec![message.to_owned()])
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
fn node_uncordoned_by_a_user_is_released_or_cordoned_again() {
    let uncordoned = |name: &str| node_instance(name).outdated().cordoned().node(|n| n.cordoned = false);
    let empty = Drains::from([("node-a".into(), DrainView::default())]);
    for drains in [&empty, &drains("node-a", vec![pod("web")])] {
        let steps = |candidates, members: &[NodeInstance]| {
            decide(&RollingUpdateInput { candidates, ..input(members, drains, 1) }).steps
        };
        let given_back =
            vec![NodeStep::UncordonNode { node: "node-a".into(), reason: UncordonReason::UncordonedByOthers }];
        for candidates in [Candidates::Outdated, Candidates::Surplus(1)] {
            assert_eq!(steps(candidates, &[uncordoned("a"), node_instance("b").outdated()]), given_back);
        }
        assert!(matches!(&steps(Candidates::All, &[uncordoned("a")])[..], [NodeStep::CordonNode { .. }]));
    }
}

#[test]
fn scale_in_terminates_another_node_while_a_drain_is_retried_later() {
    let retried = DrainView { retry_drain_at: Some(now() + SignedDuration::from_secs(9)), ..DrainView::default() };
    let drains = Drains::from([("node-a".into(), retried)]);
    let members = [node_instance("a").outdated(), node_instance("b")];
    let surplus = RollingUpdateInput { candidates: Candidates::Surplus(1), ..input(&members, &drains, 1) };
    assert_eq!(step_summaries(&decide(&surplus)), ["cordon b"]);
}

#[test]
fn unknown_pods_block_termination() {
    let decision = rotate(&[node_instance("a").outdated().cordoned()], 1);
    assert!(decision.steps.is_empty(), "{:?}", decision.steps);
}

/// A rotation may have waited for a budget for hours when the group is deleted.
#[test]
fn deletion_timeout_counts_from_the_request() {
    let minutes = SignedDuration::from_mins;
    let member = node_instance("a").cordoned().node(|n| {
        n.disruption.as_mut().expect("a record").since = now() - minutes(60);
    });
    let record = member.disruption_of(UID).expect("a record").clone();
    let view = DrainView { pods: vec![pod("web")], ..DrainView::default() };
    let action = |requested| {
        let policy = DrainPolicy {
            timeout: Some(minutes(15)),
            timeout_since: Some(now() - requested),
            at_timeout: AtTimeout::Terminate,
            ..policy()
        };
        next_drain_action(&member, &record, &view, &policy, now())
    };
    assert!(matches!(action(minutes(14)), DrainAction::Evict(_)));
    assert!(matches!(action(minutes(15)), DrainAction::TerminateWithPods(_)));
}

#[test]
fn drain_actions_follow_in_order() {
    let seconds = SignedDuration::from_secs;
    let limited = |at_timeout| DrainPolicy { timeout: Some(seconds(10)), at_timeout, ..policy() };
    let silent_since = |seconds| node_instance("a").cordoned().unready_since(seconds).node(|n| n.kubelet_silent = true);
    let healthy = node_instance("a").cordoned();
    let (silent, dead) = (silent_since(299), silent_since(300));
    let not_ready = node_instance("a").cordoned().unready_since(7_000);
    let terminating = || PodView { is_terminating: true, ..pod("web") };
    let daemon = PodView { is_ignored: true, ..pod("daemon") };
    let finished = PodView { is_finished: true, ..pod("job") };
    let view = |pods: Vec<PodView>| DrainView { pods, ..DrainView::default() };
    let volume = |since| DrainView {
        attached_volumes: vec!["vol".into()],
        empty_since: Some(ago(since)),
        ..DrainView::default()
    };
    let blocked =
        |since, times| DrainView { last_blocked_eviction: Some((ago(since), times)), ..view(vec![pod("web")]) };
    let jumped = |since, view| DrainView { since_clock_jump: Some(seconds(since)), ..view };
    let cases: Vec<(&str, &NodeInstance, DrainView, DrainPolicy, &str)> = vec![
        ("a pod is evicted", &healthy, view(vec![pod("web")]), policy(), "evict"),
        ("a terminating pod is waited for", &healthy, view(vec![terminating()]), policy(), "wait"),
        (
            "DaemonSet pods and finished pods do not block",
            &healthy,
            view(vec![daemon, finished]),
            policy(),
            "terminate",
        ),
        ("volumes are waited for", &healthy, volume(119), policy(), "wait"),
        ("until their timeout", &healthy, volume(120), policy(), "terminate"),
        ("a blocked eviction is not retried immediately", &healthy, blocked(1, 1), policy(), "wait"),
        ("but after the backoff", &healthy, blocked(2, 1), policy(), "evict"),
        ("and every 30 seconds later", &healthy, blocked(30, 40), policy(), "evict"),
        (
            "at the timeout the node is uncordoned",
            &healthy,
            view(vec![pod("web")]),
            limited(AtTimeout::Uncordon),
            "uncordon",
        ),
        ("or pods are deleted", &healthy, view(vec![pod("web")]), limited(AtTimeout::Delete), "force delete"),
        ("and then waited for", &healthy, view(vec![terminating()]), limited(AtTimeout::Delete), "wait"),
        (
            "or a deletion continues",
            &healthy,
            view(vec![pod("web")]),
            limited(AtTimeout::Terminate),
            "terminate with pods",
        ),
        (
            "a dead kubelet is waited for no longer than the grace",
            &dead,
            view(vec![PodView { grace_seconds: 20, ..terminating() }]),
            policy(),
            "terminate",
        ),
        (
            "but as long as the grace",
            &dead,
            view(vec![PodView { grace_seconds: 21, ..terminating() }]),
            policy(),
            "wait",
        ),
        (
            "a kubelet is dead after five minutes",
            &silent,
            view(vec![PodView { grace_seconds: 0, ..terminating() }]),
            policy(),
            "wait",
        ),
        (
            "but not while the clock has jumped",
            &dead,
            jumped(299, view(vec![PodView { grace_seconds: 0, ..pod("web") }])),
            policy(),
            "evict",
        ),
        ("nor has a drain timed out", &healthy, jumped(9, view(vec![pod("web")])), limited(AtTimeout::Delete), "evict"),
        ("and volumes are waited for", &healthy, jumped(119, volume(120)), policy(), "wait"),
        ("until it has been steady for long", &healthy, jumped(120, volume(120)), policy(), "terminate"),
        (
            "pods run on a node whose kubelet reports that it is not ready",
            &not_ready,
            view(vec![PodView { grace_seconds: 0, ..pod("web") }]),
            policy(),
            "evict",
        ),
        ("and their budgets hold", &not_ready, blocked(1, 1), policy(), "wait"),
        ("without pods it is terminated", &not_ready, view(vec![]), policy(), "terminate"),
    ];
    for (name, member, view, policy, expected) in cases {
        let record = member.disruption_of(UID).expect("a record").clone();
        let action = match next_drain_action(member, &record, &view, &policy, now()) {
            DrainAction::Evict(_) => "evict",
            DrainAction::Wait(_) => "wait",
            DrainAction::ForceDelete(_) => "force delete",
            DrainAction::Uncordon(_) => "uncordon",
            DrainAction::TerminateWithPods(_) => "terminate with pods",
            DrainAction::Terminate => "terminate",
        };
        assert_eq!(action, expected, "{name}");
    }
    assert_eq!([1, 2, 3, 4, 5, 6, 400].map(|n| eviction_backoff(n).as_secs()), [2, 4, 8, 16, 30, 30, 30]);
}

/// The scheduler places it on the emptiest node again, which is the one that is drained: it would be evicted forever.
#[test]
fn pod_that_returns_to_its_cordoned_node_does_not_block_the_drain() {
    let members = [node_instance("a").outdated().cordoned()];
    let action = |pod: PodView| {
        let view = DrainView { pods: vec![pod], ..DrainView::default() };
        let record = members[0].disruption_of(UID).expect("a record").clone();
        next_drain_action(&members[0], &record, &view, &policy(), now() + SignedDuration::from_secs(60))
    };
    let before = PodView { tolerates_cordon: true, ..pod("agent") };
    assert!(matches!(action(before.clone()), DrainAction::Evict(_)), "it is evicted once");
    let after = PodView { is_newer_than_drain: true, ..before };
    assert!(matches!(action(after.clone()), DrainAction::Terminate));
    let of_others = PodView { tolerates_cordon: false, ..after };
    assert!(matches!(action(of_others), DrainAction::Evict(_)), "a person placed it, with nodeName");
}

/// The kubelet reports, and cannot end the pod: a volume hangs, for example. `drainForce` requests an end.
#[test]
fn forced_drain_does_not_wait_for_pods_that_hang() {
    let member = node_instance("a").outdated().cordoned();
    let record = member.disruption_of(UID).expect("a record").clone();
    let limited =
        DrainPolicy { timeout: Some(SignedDuration::from_secs(10)), at_timeout: AtTimeout::Delete, ..policy() };
    let action = |ended: i64, limit: &DrainPolicy| {
        let hanging = PodView { is_terminating: true, terminating_until: Some(ago(ended)), ..pod("web") };
        next_drain_action(&member, &record, &DrainView { pods: vec![hanging], ..DrainView::default() }, limit, now())
    };
    assert!(matches!(action(299, &limited), DrainAction::Wait(_)));
    assert!(matches!(action(300, &limited), DrainAction::TerminateWithPods(pods) if pods.len() == 1));
    let without_force = DrainPolicy { at_timeout: AtTimeout::Uncordon, ..limited };
    assert!(matches!(action(300, &without_force), DrainAction::Uncordon(_)));
}

/// The Cluster Autoscaler may be gone, or have given up. The rotation would wait forever for a node that nothing drains.
#[test]
fn wait_for_the_cluster_autoscaler_tells_after_a_while_how_to_end_it() {
    let waits = |minutes: i64| {
        let leaving = node_instance("a").outdated().node(|n| {
            (n.is_removed_by_autoscaler, n.autoscaler_since) = (true, Some(ago(minutes * 60)));
        });
        decide(&input(&[leaving, node_instance("b").outdated()], &Drains::new(), 1)).waiting_for.join("; ")
    };
    assert!(!waits(29).contains("remove the taint"), "{}", waits(29));
    assert!(waits(30).contains("remove the taint ToBeDeletedByClusterAutoscaler"), "{}", waits(30));
}

/// Both would terminate it: AWS would terminate another node for the second call, without a drain.
#[test]
fn node_that_the_cluster_autoscaler_drains_is_left_to_it() {
    let leaving = node_instance("a").outdated().node(|n| n.is_removed_by_autoscaler = true);
    let members = [leaving, node_instance("b").outdated(), node_instance("c").outdated()];
    let one = decide(&input(&members, &Drains::new(), 1));
    assert!(step_summaries(&one).is_empty(), "it is unavailable: {one:?}");
    assert!(one.waiting_for.iter().any(|what| what.contains("Cluster Autoscaler")), "{:?}", one.waiting_for);
    assert_eq!(step_summaries(&decide(&input(&members, &Drains::new(), 2))), ["cordon b"]);
    let surplus =
        |n| decide(&RollingUpdateInput { candidates: Candidates::Surplus(n), ..input(&members, &Drains::new(), 3) });
    assert!(step_summaries(&surplus(1)).is_empty(), "the surplus leaves already");
    assert_eq!(step_summaries(&surplus(2)).len(), 1);
}

/// AWS refuses to terminate an instance that still deregisters, and one that it has just refused to terminate. The nodes behind
/// it are drained meanwhile.
#[test]
fn busy_instance_waits_and_holds_back_no_other() {
    let refused = |seconds| move |m: &mut NodeInstance| m.instance.activity_refused_at = Some(ago(seconds));
    let old = |n: &str| node_instance(n).outdated();
    let entering = || old("a").cordoned().with(|m| m.is_recorded_standby = true).state(InstanceState::EnteringStandby);
    let views = Drains::from([("node-a".to_owned(), DrainView::default())]);
    for (what, member, expected, wait) in [
        ("it deregisters", entering(), vec!["cordon b"], "i-a (node-a) to have entered standby"),
        ("it is in standby", entering().state(InstanceState::Standby), vec!["terminate a", "cordon b"], ""),
        ("AWS has just refused", old("a").cordoned().with(refused(29)), vec!["cordon b"], "a scaling activity of i-a"),
        ("AWS refused a while ago", old("a").cordoned().with(refused(30)), vec!["terminate a", "cordon b"], ""),
        ("the clock was set back", old("a").cordoned().with(refused(-30)), vec!["terminate a", "cordon b"], ""),
    ] {
        let members = [member, old("b")];
        let decision = decide(&input(&members, &views, 2));
        assert_eq!(step_summaries(&decision), expected, "{what}");
        let waits = decision.waiting_for.join("; ");
        assert_eq!(
            waits.contains("scaling activity") || waits.contains("entered standby"),
            !wait.is_empty(),
            "{what}: {waits}"
        );
    }
}

/// A hook may hold a launch for hours. The deletion drains and terminates all other nodes before.
#[test]
fn deletion_terminates_instances_that_are_launched_last() {
    let pending = |seconds| {
        let refused_at = (seconds > 0).then(|| ago(seconds));
        node_instance("a")
            .never_joined()
            .state(InstanceState::Pending)
            .with(|m| m.instance.activity_refused_at = refused_at)
    };
    let views = Drains::from([("node-c".to_owned(), DrainView::default())]);
    let steps = |seconds| {
        let members = [pending(seconds), node_instance("b"), node_instance("c").cordoned()];
        let decision = decide(&RollingUpdateInput { candidates: Candidates::All, ..input(&members, &views, 3) });
        (step_summaries(&decision), decision.waiting_for.join("; "))
    };
    assert_eq!(steps(0).0, ["terminate c", "cordon b", "terminate a"]);
    let (refused, waits) = steps(10);
    assert_eq!(refused, ["terminate c", "cordon b"]);
    assert!(waits.contains("to be launched, before which AWS does not terminate it"), "{waits}");
    assert_eq!(steps(30).0, ["terminate c", "cordon b", "terminate a"], "it is tried again");
}

/// Time synchronization may correct a clock by hours. No pod would be evicted for as long.
#[test]
fn clock_that_is_set_back_ends_the_wait_after_a_blocked_eviction() {
    let steps = |blocked_at: Timestamp| {
        let last_blocked_eviction = Some((blocked_at, 3));
        let view = DrainView { pods: vec![pod("web")], last_blocked_eviction, ..DrainView::default() };
        let views = Drains::from([("node-a".to_owned(), view)]);
        let members = [node_instance("a").outdated().cordoned()];
        let decision = decide(&input(&members, &views, 1));
        decision.steps
    };
    assert!(steps(ago(1)).is_empty());
    assert!(matches!(&steps(ago(-3600))[..], [NodeStep::Evict { .. }]));
}

/// The clock was ahead when an earlier drain of the node ended, and the node was drained again before the clock was corrected.
#[test]
fn drain_that_has_begun_does_not_wait_for_its_retry() {
    let retry_drain_at = Some(now() + SignedDuration::from_mins(5));
    let view = DrainView { pods: vec![pod("web")], retry_drain_at, ..DrainView::default() };
    let (members, views) = ([node_instance("a").outdated().cordoned()], Drains::from([("node-a".to_owned(), view)]));
    let decision = decide(&input(&members, &views, 1));
    assert!(matches!(decision.steps[..], [NodeStep::Evict { .. }]), "{:?}", decision.state);
}
