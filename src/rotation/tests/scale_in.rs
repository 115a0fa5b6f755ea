//! Removal of surplus instances without replacement.

use super::*;

#[test]
fn surplus_prefers_draining_then_outdated_instances() {
    let members = [
        node_instance("a"),
        node_instance("b").outdated(),
        node_instance("c").cordoned(),
        node_instance("s").state(InstanceState::Standby),
    ];
    let steps_for = |n, view: &Drains| {
        step_summaries(&decide(&RollingUpdateInput {
            candidates: Candidates::Surplus(n),
            max_unavailable: 3,
            ..input(&members, view, 3)
        }))
    };
    let view = drains("node-c", vec![pod("web")]);
    assert_eq!(steps_for(1, &view), Vec::<String>::new());
    assert_eq!(steps_for(2, &view), ["cordon b"]);
    assert_eq!(steps_for(3, &view), ["cordon b", "cordon a"]);
    assert_eq!(steps_for(1, &Drains::from([("node-c".into(), DrainView::default())])), ["terminate c"]);
}

#[test]
fn terminating_standby_instance_does_not_decrement_desired() {
    let members = [node_instance("a").cordoned(), node_instance("s").cordoned().state(InstanceState::Standby)];
    let view = Drains::from(["node-a", "node-s"].map(|node| (node.to_owned(), DrainView::default())));
    let drain_policy = DrainPolicy { decrement_desired: true, ..policy() };
    let decision =
        decide(&RollingUpdateInput { candidates: Candidates::All, drain_policy, ..input(&members, &view, 2) });
    let decrements: Vec<_> = (decision.steps.iter())
        .filter_map(|s| match s {
            NodeStep::Terminate { instance, decrement_desired, .. } => Some((instance.as_str(), *decrement_desired)),
            _ => None,
        })
        .collect();
    assert_eq!(decrements, [("a", true), ("s", false)]);
}

#[test]
fn scale_in_terminates_only_instances_within_the_weight() {
    let heavy = |name: &str, weight| node_instance(name).with(|m| m.instance.weight = weight);
    let members = [heavy("a", 4), heavy("b", 2), heavy("c", 2)];
    let steps_for = |n| {
        step_summaries(&decide(&RollingUpdateInput {
            candidates: Candidates::Surplus(n),
            desired: 8,
            max_unavailable: 8,
            ..input(&members, &Drains::new(), 8)
        }))
    };
    assert_eq!(steps_for(1), Vec::<String>::new());
    assert_eq!(steps_for(3), ["cordon b"]);
    assert_eq!(steps_for(4), ["cordon b", "cordon c"], "the lightest first");
    assert_eq!(steps_for(8).len(), 3);
}

/// AWS may answer from before the termination, with the instance in service. Each further call lowers the desired
/// capacity and terminates a node that still has pods.
#[test]
fn termination_that_aws_does_not_show_yet_is_not_repeated() {
    let steps_after = |seconds: i64, decrement_desired, state| {
        let sent = node_instance("a").cordoned().state(state).node(|n| {
            n.disruption.as_mut().expect("a record").terminated_at = Some(ago(seconds));
        });
        let members = [sent, node_instance("b")];
        let view = Drains::from([("node-a".into(), DrainView::default())]);
        let drain_policy = DrainPolicy { decrement_desired, ..policy() };
        let candidates = Candidates::Surplus(1);
        let decision = decide(&RollingUpdateInput { candidates, drain_policy, ..input(&members, &view, 1) });
        (step_summaries(&decision), decision.waiting_for)
    };
    let waits = (vec![], vec!["a (node-a) to terminate".to_owned()]);
    assert_eq!(steps_after(3, true, InstanceState::InService), waits);
    assert_eq!(steps_after(119, true, InstanceState::InService), waits, "and no other node is taken instead");
    assert_eq!(steps_after(120, true, InstanceState::InService).0, ["terminate a"], "the call had no effect");
    assert_eq!(steps_after(3, false, InstanceState::InService).0, ["terminate a"], "it lowers nothing");
}

/// A tenant raises `maxSize` again, or sets a lock, right after the termination was sent. Pods that are scheduled to the node
/// would end with its instance, without a drain.
#[test]
fn node_whose_termination_is_sent_is_not_uncordoned() {
    let on_node = |n: &mut NodeView, at| n.disruption.as_mut().expect("a record").terminated_at = Some(at);
    // The record says nothing of a termination that keeps the desired capacity.
    let in_process = |n: &mut NodeView, at| n.termination_sent_at = Some(at);
    for record in [on_node as fn(&mut NodeView, Timestamp), in_process] {
        assert_terminating_node_stays_cordoned(record);
    }
}

fn assert_terminating_node_stays_cordoned(record: fn(&mut NodeView, Timestamp)) {
    let steps_after = |seconds: i64, lock| {
        let sent = node_instance("a").cordoned().node(|n| record(n, ago(seconds)));
        let members = [sent, node_instance("b").outdated()];
        let drains = Drains::new();
        step_summaries(&decide(&RollingUpdateInput { lock, ..input(&members, &drains, 1) }))
    };
    for lock in [None, Some("the InstanceGroup")] {
        assert!(!steps_after(119, lock).contains(&"uncordon node-a".to_owned()), "AWS may not show it yet");
        assert!(steps_after(120, lock).contains(&"uncordon node-a".to_owned()), "the call had no effect");
    }
}
