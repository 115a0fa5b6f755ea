//! Records of other InstanceGroups on this group's nodes.

use super::*;

fn record(group: &str, cordoned_before: bool) -> DisruptionRecord {
    DisruptionRecord {
        group: group.into(),
        template_version: "2".into(),
        since: ago(9_000),
        cordoned_before,
        scale_down_disabled: false,
        terminated_at: None,
    }
}

/// A node that an InstanceGroup cordoned which no longer exists.
fn orphaned(name: &str) -> NodeInstance {
    node_instance(name).node(|n| {
        n.cordoned = true;
        n.orphaned_disruption = Some(record("gone", false));
    })
}

/// A node that another existing InstanceGroup cordoned.
fn foreign(name: &str) -> NodeInstance {
    node_instance(name).node(|n| {
        n.cordoned = true;
        n.disruption = Some(record("other", false));
    })
}

fn decide_for(candidates: Candidates, members: &[NodeInstance]) -> RollingUpdateDecision {
    decide(&RollingUpdateInput { candidates, ..input(members, &Drains::new(), 1) })
}

#[test]
fn record_of_a_deleted_group_is_adopted_or_removed() {
    let uncordon = NodeStep::UncordonNode { node: "node-a".into(), reason: UncordonReason::GroupDeleted };
    for candidates in [Candidates::Outdated, Candidates::Surplus(0)] {
        let decision = decide_for(candidates, &[orphaned("a"), node_instance("b")]);
        assert_eq!(decision.steps, std::slice::from_ref(&uncordon));
    }
    let outdated = [orphaned("a").outdated(), node_instance("b").outdated()];
    assert_eq!(step_summaries(&decide_for(Candidates::Outdated, &outdated)), ["cordon a"]);
    let both = [orphaned("a"), node_instance("b")];
    assert_eq!(step_summaries(&decide_for(Candidates::Surplus(1), &both)), ["cordon a"]);
    assert_eq!(step_summaries(&decide_for(Candidates::All, &both)), ["cordon a", "cordon b"]);
    let none = Drains::new();
    let locked = RollingUpdateInput { lock: Some("a lock"), ..input(&outdated, &none, 1) };
    assert_eq!(decide(&locked).steps, [uncordon]);
}

#[test]
fn adopted_record_keeps_whether_the_node_was_cordoned_before() {
    let was_cordoned = |before| {
        let member = orphaned("a").outdated().node(|n| n.orphaned_disruption = Some(record("gone", before)));
        match &decide_for(Candidates::Outdated, &[member]).steps[..] {
            [NodeStep::CordonNode { was_cordoned, .. }] => *was_cordoned,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((was_cordoned(false), was_cordoned(true)), (false, true));
}

#[test]
fn rotation_waits_for_another_group_by_name_and_a_deletion_does_not() {
    for members in [[foreign("a").outdated(), node_instance("b")], [foreign("a"), node_instance("b").outdated()]] {
        let decision = decide_for(Candidates::Outdated, &members);
        assert_eq!((step_summaries(&decision), &decision.state), (vec![], &RotationState::InProgress));
        let waiting = decision.waiting_for.join("; ");
        assert!(waiting.contains("the UID other to remove its record from node-a"), "{waiting}");
        assert_eq!(step_summaries(&decide_for(Candidates::All, &members)), ["cordon a", "cordon b"]);
    }
}
