//! What the budget of a rollout leaves to one group.

use super::*;
use crate::plan::{Allowance, NodeStart};

fn allowance(nodes: Option<usize>, zones: &[(&str, usize)], surge: Option<usize>) -> Allowance {
    let zones = zones.iter().map(|(zone, left)| ((*zone).to_owned(), *left));
    let zones = (!zones.clone().collect::<Vec<_>>().is_empty()).then(|| zones.collect());
    Allowance { budget: "the budget of the rollout (nodes 5%)".into(), nodes, zones, surge }
}

fn outdated_in(name: &str, zone: &str) -> NodeInstance {
    let mut member = node_instance(name).outdated();
    member.instance.zone = zone.into();
    member
}

#[test]
fn rotation_begins_no_more_nodes_than_the_budget_leaves() {
    let members = ["a", "b", "c"].map(|name| node_instance(name).outdated());
    let none = Drains::new();
    let with =
        |allowance: &Allowance| decide(&RollingUpdateInput { allowance: Some(allowance), ..input(&members, &none, 3) });
    let decision = with(&allowance(Some(2), &[], None));
    assert_eq!(step_summaries(&decision), ["cordon a", "cordon b"]);
    assert_eq!(decision.begins.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(decision.waiting_for.last().is_some_and(|wait| wait.contains("which is used up")), "{decision:?}");
    let decision = with(&allowance(Some(0), &[], None));
    assert_eq!(step_summaries(&decision), [""; 0]);
    let RotationState::Locked(why) = &decision.state else { panic!("{:?}", decision.state) };
    assert_eq!(why, "the budget of the rollout (nodes 5%), which is used up");
}

/// A zone that is down, or in which other groups replace nodes, does not block the other zones.
#[test]
fn zones_have_limits_of_their_own() {
    let members = [outdated_in("a", "zone-a"), outdated_in("b", "zone-b"), outdated_in("b2", "zone-b")];
    let left = allowance(None, &[("zone-a", 0), ("zone-b", 1)], None);
    let decision = decide(&RollingUpdateInput { allowance: Some(&left), ..input(&members, &Drains::new(), 3) });
    assert_eq!(decision.begins, [("b".to_owned(), NodeStart::Drain("zone-b".into()))].into());
    assert_eq!(decision.waits_for, [NodeStart::Drain("zone-a".into()), NodeStart::Drain("zone-b".into())].into());
}

/// Otherwise broken nodes would use the budget up forever.
#[test]
fn node_that_is_not_available_is_replaced_at_any_time() {
    let members = [node_instance("a").outdated(), node_instance("b").outdated().unready_since(600)];
    let used_up = allowance(Some(0), &[], None);
    let decision = decide(&RollingUpdateInput { allowance: Some(&used_up), ..input(&members, &Drains::new(), 1) });
    assert_eq!(step_summaries(&decision), ["cordon b"]);
    assert!(decision.begins.is_empty(), "it takes nothing of the budget");
}

#[test]
fn nodes_that_stand_by_and_removed_nodes_do_not_use_the_budget_of_drains() {
    let members = [node_instance("a").outdated(), node_instance("b").outdated()];
    let (none, one) = (Drains::new(), allowance(Some(0), &[], Some(1)));
    let surging = RollingUpdateInput { allowance: Some(&one), max_surge: 2, ..input(&members, &none, 1) };
    let decision = decide(&surging);
    assert_eq!(step_summaries(&decision), ["record a", "standby a"]);
    assert_eq!(decision.begins, [("a".to_owned(), NodeStart::Surge)].into());
    let surplus =
        RollingUpdateInput { allowance: Some(&one), candidates: Candidates::Surplus(1), ..input(&members, &none, 1) };
    let decision = decide(&surplus);
    assert_eq!((step_summaries(&decision).len(), decision.begins.len()), (1, 0), "the tenant wants fewer nodes");
}
