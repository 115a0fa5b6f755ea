//! The budget of the roll-out: what the groups use of it, and who goes on when it leaves a node again.

use crate::api::{BudgetLimit, BudgetUser, RolloutBudget, group_id};
use crate::boundaries::Budget;
use crate::controller::context::Context;
use crate::rollout::{Ledger, RolloutView};

/// The most groups that the status lists as those that use most of the budget.
const MAX_USERS: usize = 5;

/// The most groups that a look wakes because the budget leaves nodes again.
const MAX_WOKEN: usize = 50;

/// Counts the groups that were not planned yet, so that a new leader does not begin with an empty budget.
pub(super) fn expect_groups(ctx: &Context, view: &RolloutView) {
    if !view.policy.budget.is_set() {
        return ctx.stores.rollout.with_ledger(|ledger| *ledger = Ledger::default());
    }
    let groups = ctx.stores.groups.state();
    let unknown: Vec<_> = ctx.stores.rollout.with_ledger(|ledger| {
        let groups = groups.iter().filter_map(|stored| stored.0.as_ref().ok());
        groups.filter(|group| !ledger.knows(&group_id(group).key())).collect()
    });
    for group in unknown {
        let nodes = group.status.as_ref().and_then(|status| status.nodes.clone()).unwrap_or_default();
        let count = |number: i64| usize::try_from(number).unwrap_or_default();
        let (desired, ready, draining) = (count(nodes.desired), count(nodes.ready), count(nodes.draining));
        // A process that ended right after it took a node did not write that into the status.
        let uid = group.metadata.uid.as_deref().unwrap_or_default();
        let recorded = ctx.planner.node_index.with_records_of(uid).len();
        let unavailable = desired.saturating_sub(ready).max(draining).max(recorded);
        ctx.stores.rollout.with_ledger(|ledger| ledger.expect(&group_id(group).key(), desired, unavailable));
    }
}

/// The groups that go on, because the budget leaves nodes again.
pub(super) fn woken(ctx: &Context, view: &RolloutView) -> Vec<String> {
    let budget = &view.policy.budget;
    let mut woken = ctx.stores.rollout.with_ledger(|ledger| ledger.woken(budget));
    woken.truncate(MAX_WOKEN);
    woken
}

/// What is used of the budget, while groups wait for it. Otherwise it is not written: the number of unavailable nodes of a
/// large cluster changes all the time.
pub(super) fn status(ctx: &Context, view: &RolloutView, begins_wait: bool) -> Option<RolloutBudget> {
    let budget = &view.policy.budget;
    ctx.stores.rollout.with_ledger(|ledger| {
        (begins_wait || ledger.has_waiting()).then(|| RolloutBudget {
            limits: limits(ledger, budget),
            users: ledger.largest(MAX_USERS).into_iter().map(|(group, nodes)| user(group, nodes)).collect(),
        })
    })
}

/// What is used of each limit, for the metrics.
pub(super) fn limits(ledger: &Ledger, budget: &Budget) -> Vec<BudgetLimit> {
    let all = ledger.nodes(budget).map(|used| ("nodes".to_owned(), used));
    let surge = ledger.surge(budget).map(|used| ("surge".to_owned(), used));
    let zones = ledger.zones(budget).map(|(zone, used)| (format!("zone {zone}"), used));
    let limits = all.into_iter().chain(surge).chain(zones);
    limits.map(|(of, used)| BudgetLimit { of, used: number(used.nodes), limit: number(used.limit) }).collect()
}

fn user(group: &str, nodes: usize) -> BudgetUser {
    BudgetUser { group: group.to_owned(), nodes: number(nodes) }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
