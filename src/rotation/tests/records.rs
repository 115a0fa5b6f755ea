//! Records on this group's nodes that no drain of the group wrote.

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

/// A cordoned node whose annotation has this record, as the group observes it.
fn annotated(name: &str, record: DisruptionRecord) -> NodeInstance {
    node_instance(name).node(|n| {
        n.cordoned = true;
        n.disruption = Some(record);
        n.adopt_records(UID, now());
    })
}

fn decide_for(candidates: Candidates, members: &[NodeInstance]) -> RollingUpdateDecision {
    decide(&RollingUpdateInput { candidates, ..input(members, &Drains::new(), 1) })
}

#[test]
fn record_of_a_deleted_group_is_adopted_or_removed() {
    let uncordon = NodeStep::UncordonNode { node: "node-a".into(), reason: UncordonReason::ForeignRecord };
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

/// A kubelet writes the UID of another group of its tenant, and the admin's image never reaches its node.
#[test]
fn record_of_another_group_keeps_no_node_from_the_rotation() {
    let foreign = |name: &str| annotated(name, record("other", false));
    let outdated = [foreign("a").outdated(), node_instance("b")];
    assert_eq!(step_summaries(&decide_for(Candidates::Outdated, &outdated)), ["cordon a"]);
    let current = [foreign("a"), node_instance("b").outdated()];
    let uncordon = NodeStep::UncordonNode { node: "node-a".into(), reason: UncordonReason::ForeignRecord };
    assert_eq!(decide_for(Candidates::Outdated, &current).steps, [uncordon]);
    for members in [&outdated, &current] {
        assert_eq!(step_summaries(&decide_for(Candidates::All, members)), ["cordon a", "cordon b"]);
    }
}

/// A drain that began in the year 9999 never runs into its timeout, and a termination of that year is never repeated.
#[test]
fn times_far_ahead_in_a_record_are_not_believed() {
    let own = || record(UID, false);
    let far_ahead = now() + SignedDuration::from_hours(24 * 365);
    let clock_differs = now() + SignedDuration::from_secs(50);
    let is_adopted = |record: DisruptionRecord| annotated("a", record).has_orphaned_disruption();
    assert!(is_adopted(DisruptionRecord { since: far_ahead, ..own() }));
    assert!(is_adopted(DisruptionRecord { terminated_at: Some(far_ahead), ..own() }));
    assert!(!is_adopted(DisruptionRecord { since: clock_differs, terminated_at: Some(clock_differs), ..own() }));
}

#[test]
fn surge_record_of_another_group_is_adopted_and_one_far_ahead_is_dropped() {
    let observed = |group: &str, since: Timestamp| {
        let surge = SurgeRecord { group: group.into(), template_version: "2".into(), since };
        let member = node_instance("a").node(|n| {
            n.surge = Some(surge);
            n.adopt_records(UID, now());
        });
        member.has_surge_record(UID)
    };
    assert!(observed(UID, ago(9)) && observed("other", ago(9)));
    assert!(!observed(UID, now() + SignedDuration::from_hours(24 * 365)));
}
