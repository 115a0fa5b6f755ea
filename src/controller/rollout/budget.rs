//! The budget of the rollout: what the groups use of it, and which group continues when the budget allows a node again.

use crate::api::{BudgetLimit, BudgetUser, GroupId, NodeCounts, RolloutBudget};
use crate::boundaries::BudgetPolicy;
use crate::controller::context::Context;
use crate::controller::stores::Stores;
use crate::index::nodes::NodeIndex;
use crate::plan::NodeUsage;
use crate::rollout::{BudgetUsage, RolloutView};
use crate::rotation::NodeView;

/// The most groups that the status lists as those that use most of the budget.
const MAX_USERS: usize = 5;

/// The most groups that a poll enqueues because the budget leaves nodes again.
const MAX_WOKEN: usize = 50;

/// Counts the groups that were not planned yet. Otherwise a new leader would start with an unused budget.
pub(super) fn expect_groups(stores: &Stores, nodes: &NodeIndex, view: &RolloutView) {
    if !view.policy.budget.is_set() {
        return stores.rollout.with_budget_usage(|budget_usage| *budget_usage = BudgetUsage::default());
    }
    // What is counted once stays, and so would a count without the records on the nodes.
    if !nodes.is_synced() {
        return;
    }
    let groups = stores.groups.state();
    let unknown: Vec<_> = stores.rollout.with_budget_usage(|budget_usage| {
        let groups = groups.iter().filter_map(|stored| stored.0.as_ref().ok());
        groups.filter(|group| !budget_usage.knows(&GroupId::key_of(&group.metadata))).collect()
    });
    for group in unknown {
        let counts = group.status.as_ref().and_then(|status| status.nodes.clone()).unwrap_or_default();
        let records = nodes.with_records_of(group.metadata.uid.as_deref().unwrap_or_default());
        stores.rollout.with_budget_usage(|budget_usage| {
            budget_usage.expect(&GroupId::key_of(&group.metadata), expected(&counts, &records))
        });
    }
    stores.rollout.with_budget_usage(BudgetUsage::set_counted);
}

/// What a group uses of the budget, from its status and the records on its nodes. A process that ended right after it
/// started a replacement has not written that into the status.
fn expected(counts: &NodeCounts, records: &[NodeView]) -> NodeUsage {
    let count = |number: i64| usize::try_from(number).unwrap_or_default();
    let (desired, ready, draining) = (count(counts.desired), count(counts.ready), count(counts.draining));
    let surging = records.iter().filter(|node| node.surge.is_some()).count();
    let unavailable = desired.saturating_sub(ready).max(draining).max(records.len());
    NodeUsage { desired, unavailable, surging, ..NodeUsage::default() }
}

/// The groups that continue, because the budget leaves nodes again.
pub(super) fn unblocked_groups(ctx: &Context, view: &RolloutView) -> Vec<String> {
    let budget = &view.policy.budget;
    let mut unblocked_groups =
        ctx.stores.rollout.with_budget_usage(|budget_usage| budget_usage.unblocked_groups(budget));
    unblocked_groups.truncate(MAX_WOKEN);
    unblocked_groups
}

/// How many groups may begin with what the budget leaves, as far as that is known before they are planned; `None` without
/// a budget.
pub(super) fn groups_to_begin(ctx: &Context, view: &RolloutView) -> Option<usize> {
    let budget = &view.policy.budget;
    let allowance = ctx.stores.rollout.with_budget_usage(|budget_usage| budget_usage.allowance(budget))?;
    Some(allowance.nodes.unwrap_or(MAX_WOKEN).min(MAX_WOKEN))
}

/// What is used of the budget, while groups wait for it. Otherwise it is not written: the number of unavailable nodes of a
/// large cluster changes all the time.
pub(super) fn status(ctx: &Context, view: &RolloutView, begins_wait: bool) -> Option<RolloutBudget> {
    let budget = &view.policy.budget;
    ctx.stores.rollout.with_budget_usage(|budget_usage| {
        (begins_wait || budget_usage.has_waiting()).then(|| RolloutBudget {
            limits: limits(budget_usage, budget),
            users: budget_usage.largest(MAX_USERS).into_iter().map(|(group, nodes)| user(group, nodes)).collect(),
            oversized: {
                let groups = budget_usage.oversized(budget).into_iter().take(MAX_USERS);
                groups.map(|(group, nodes)| user(group, nodes)).collect()
            },
        })
    })
}

/// What is used of each limit, for the metrics.
pub(super) fn limits(budget_usage: &BudgetUsage, budget: &BudgetPolicy) -> Vec<BudgetLimit> {
    let all = budget_usage.nodes(budget).map(|used| ("nodes".to_owned(), used));
    let surge = budget_usage.surge(budget).map(|used| ("surge".to_owned(), used));
    let zones = budget_usage.zones(budget).map(|(zone, used)| (format!("zone {zone}"), used));
    let limits = all.into_iter().chain(surge).chain(zones);
    limits.map(|(of, used)| BudgetLimit { of, used: number(used.nodes), limit: number(used.limit) }).collect()
}

fn user(group: &str, nodes: usize) -> BudgetUser {
    BudgetUser { group: group.to_owned(), nodes: number(nodes) }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::GroupObject;
    use crate::api::names::annotation;
    use crate::boundaries::active::select_active;
    use crate::controller::rollout::count_unavailable;

    const POLICY: &str = "budget: {nodes: 2, surge: 1}";

    /// The caches of a process that has just synced: two groups, of one of which the predecessor began to replace a
    /// node.
    fn caches(policy: &str, record: &str) -> (Stores, NodeIndex) {
        let group = |name: &str, ready: usize| -> GroupObject {
            let metadata = json!({"name": name, "namespace": "team", "uid": format!("uid-{name}")});
            let status = json!({"nodes": {"desired": 3, "ready": ready}});
            let kind = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup"});
            let mut object = json!({"metadata": metadata, "spec": {}, "status": status});
            object.as_object_mut().expect("an object").extend(kind.as_object().expect("an object").clone());
            serde_json::from_value(object).expect("a group")
        };
        let (groups, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Apply(group("a", 3)));
        writer.apply_watcher_event(&Event::Apply(group("b", 2)));
        let stores = Stores::new(groups, reflector::store().0);
        let data = [("rollout".to_owned(), policy.to_owned())].into();
        let active = Arc::new(select_active(Some(&data), None, true).0);
        stores.rollout.set_view(RolloutView::of_content(&[], None, &data, &active, None).map(Arc::new));
        let value: Value = json!({"group": "uid-a", "templateVersion": "2", "since": "2026-01-01T00:00:00Z"});
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "resourceVersion": "1", "annotations": {record: value.to_string()}},
            "spec": {"providerID": "aws:///us-west-2a/i-1"},
        }))
        .expect("a node");
        let nodes = NodeIndex::default();
        for event in [Event::Init, Event::InitApply(node), Event::InitDone] {
            nodes.apply(&event);
        }
        (stores, nodes)
    }

    fn used(stores: &Stores) -> Vec<(String, i64)> {
        let budget = stores.rollout.view().expect("a rollout").policy.budget;
        let limits = stores.rollout.with_budget_usage(|budget_usage| limits(budget_usage, &budget));
        limits.into_iter().map(|limit| (limit.of, limit.used)).collect()
    }

    /// The previous leader may have ended right after it began to replace a node. The new leader must not exceed the
    /// budget with another one.
    #[test]
    fn new_leader_counts_its_predecessors_replacements_before_it_replaces_a_node() {
        let (stores, nodes) = caches(POLICY, annotation::DISRUPTION);
        // While it stood by, it counted nothing.
        stores.rollout.with_budget_usage(|budget_usage| *budget_usage = BudgetUsage::default());
        count_unavailable(&stores, &nodes);
        assert_eq!(used(&stores), [("nodes".to_owned(), 2), ("surge".to_owned(), 0)]);
        let view = stores.rollout.view().expect("a rollout");
        assert!(stores.rollout.budget_used_up(&view, "team/c").is_some());
        // What a plan saw since then stays.
        stores.rollout.record_usage("team/a", Some(NodeUsage { desired: 3, ..NodeUsage::default() }));
        count_unavailable(&stores, &nodes);
        assert_eq!(used(&stores)[0], ("nodes".to_owned(), 1));
        // It lost the Lease, and has it again.
        stores.rollout.with_budget_usage(|budget_usage| *budget_usage = BudgetUsage::default());
        count_unavailable(&stores, &nodes);
        assert_eq!(used(&stores)[0], ("nodes".to_owned(), 2));
    }

    /// Only `maxSurge` makes nodes in addition; a restart must not allow as many again.
    #[test]
    fn new_leader_counts_nodes_that_stand_by() {
        let (stores, nodes) = caches(POLICY, annotation::SURGE);
        count_unavailable(&stores, &nodes);
        assert_eq!(used(&stores)[1], ("surge".to_owned(), 1));
    }

    /// A count without the records on the nodes would stay.
    #[test]
    fn nothing_is_counted_before_the_nodes_are_known_or_without_a_budget() {
        let (stores, _) = caches(POLICY, annotation::DISRUPTION);
        count_unavailable(&stores, &NodeIndex::default());
        assert!(
            !stores.rollout.with_budget_usage(|budget_usage| budget_usage.is_counted() || budget_usage.knows("team/a"))
        );
        let (stores, nodes) = caches("onFailure: halt", annotation::DISRUPTION);
        count_unavailable(&stores, &nodes);
        assert!(!stores.rollout.with_budget_usage(|budget_usage| budget_usage.knows("team/a")));
    }
}
