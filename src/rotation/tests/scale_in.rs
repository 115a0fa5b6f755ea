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
fn surplus_takes_only_instances_within_the_weight() {
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
