//! How many nodes of the cluster are unavailable, and which group replaces the next one: `rollout.budget`.
//!
//! What each group's latest plan saw is on record. A later reservation counts until a plan sees it. Groups that are
//! reconciled at the same time therefore do not reserve the same node of the budget.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::boundaries::BudgetPolicy;
use crate::plan::node_usage::{Allowance, BATCH, NodeStart, NodeUsage, ZoneUsage};

/// How long a reservation counts although no plan sees its node: the write may have failed.
const UNSEEN_LIMIT: Duration = Duration::from_secs(120);

/// Stands among the instances for the first node that a group will replace.
const ANNOUNCED: &str = "announced";

/// The usage of the budget by all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetUsage {
    groups: HashMap<String, Entry>,
    /// The groups that would replace a node if the budget left one, and how.
    waiting: BTreeMap<String, BTreeSet<NodeStart>>,
    /// The groups whose batch waits.
    waiting_batches: BTreeSet<String>,
    all: ZoneUsage,
    zones: BTreeMap<String, ZoneUsage>,
    surging: usize,
    /// Unavailable nodes of groups that were not planned yet: each may be in any zone.
    unplaced: usize,
    /// Whether the groups that were not planned yet are among these.
    is_counted: bool,
}

/// The usage of one group.
#[derive(Clone, Debug, Default)]
struct Entry {
    usage: NodeUsage,
    /// Whether `usage` comes from the status alone, because this process has not planned the group yet.
    is_unplanned: bool,
    reservations: Vec<Reservation>,
}

/// A node, or a batch, whose replacement was allowed and that counts against the budget.
#[derive(Clone, Debug)]
struct Reservation {
    instance: String,
    /// `None` for a batch of several nodes.
    begin: Option<NodeStart>,
    nodes: usize,
    progress: NodeProgress,
}

/// How far the replacement of a reserved node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeProgress {
    /// No plan has seen it yet.
    Unseen(Instant),
    /// The latest plan saw it: it counts there.
    Seen,
    /// It is gone, and its replacement is missing: it counts there, but in no zone.
    Gone,
}

/// The usage of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitUsage {
    /// How many nodes are unavailable, or in standby.
    pub nodes: usize,
    /// How many the policy allows.
    pub limit: usize,
}

impl Entry {
    /// What the group adds to the sums: to all nodes, by zone, to those in standby, and to those of unknown zones.
    fn sums(&self) -> (ZoneUsage, BTreeMap<&str, ZoneUsage>, usize, usize) {
        let NodeUsage { desired, unavailable, zones, surging, .. } = &self.usage;
        let mut all = ZoneUsage { nodes: *desired, unavailable: *unavailable };
        let mut by_zone: BTreeMap<&str, ZoneUsage> =
            zones.iter().map(|(zone, usage)| (zone.as_str(), *usage)).collect();
        let mut surging = *surging;
        for reservation in &self.reservations {
            let is_unseen = matches!(reservation.progress, NodeProgress::Unseen(_));
            match &reservation.begin {
                Some(NodeStart::Surge) => surging += usize::from(is_unseen),
                Some(NodeStart::Drain(zone)) => {
                    all.unavailable += usize::from(is_unseen);
                    by_zone.entry(zone).or_default().unavailable +=
                        usize::from(reservation.progress != NodeProgress::Seen);
                }
                None => all.unavailable += if is_unseen { reservation.nodes } else { 0 },
            }
        }
        (all, by_zone, surging, if self.is_unplanned { *unavailable } else { 0 })
    }

    /// Updates the reservations by what a plan saw.
    fn update(&mut self, usage: NodeUsage, now: Instant) {
        let in_zones: usize = usage.zones.values().map(|zone| zone.unavailable).sum();
        let mut missing = usage.unavailable.saturating_sub(in_zones);
        // The latest first: it is the likeliest whose replacement is missing.
        for reservation in self.reservations.iter_mut().rev() {
            let is_seen = usage.in_progress.contains(&reservation.instance);
            reservation.progress = match reservation.progress {
                _ if is_seen => NodeProgress::Seen,
                NodeProgress::Unseen(since) => NodeProgress::Unseen(since),
                NodeProgress::Seen | NodeProgress::Gone => NodeProgress::Gone,
            };
            if reservation.progress == NodeProgress::Gone {
                let is_missing = missing > 0 && reservation.begin.is_some();
                missing -= usize::from(is_missing);
                reservation.nodes = usize::from(is_missing);
            }
        }
        self.end_announcement();
        self.reservations.retain(|reservation| match reservation.progress {
            NodeProgress::Unseen(since) => now.duration_since(since) < UNSEEN_LIMIT,
            NodeProgress::Seen => true,
            NodeProgress::Gone => reservation.nodes > 0,
        });
        self.usage = usage;
        self.is_unplanned = false;
    }

    /// The group was planned with its new revision, so that its nodes count from now on, and not the first one in
    /// advance.
    fn end_announcement(&mut self) {
        self.reservations.retain(|reservation| reservation.instance != ANNOUNCED);
    }
}

impl BudgetUsage {
    /// Whether a group is counted, by its plan or by its status.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.groups.contains_key(key)
    }

    /// Whether the groups that were not planned yet are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Records that they are.
    pub(crate) fn set_counted(&mut self) {
        self.is_counted = true;
    }

    /// Adds a group that was not planned yet, with what is known of its nodes. One that is known stays as it is.
    pub(crate) fn expect(&mut self, key: &str, usage: NodeUsage) {
        if !self.groups.contains_key(key) {
            self.change(key, |entry| *entry = Entry { usage, is_unplanned: true, reservations: vec![] });
        }
    }

    /// Records what a plan saw of a group; `None` when it did not get to the nodes, so that those of before count.
    pub(crate) fn record(&mut self, key: &str, usage: Option<NodeUsage>, now: Instant) {
        match usage.as_ref().map(|usage| usage.waits_for.clone()).filter(|begins| !begins.is_empty()) {
            Some(begins) => _ = self.waiting.insert(key.to_owned(), begins),
            // A group that cannot continue must not keep the others from beginning.
            None => _ = self.waiting.remove(key),
        }
        match usage {
            Some(usage) => self.change(key, |entry| entry.update(usage, now)),
            // It replaces no node, however long it stays so: a Fargate profile, or a group whose reads AWS denies.
            None if self.groups.contains_key(key) => self.change(key, Entry::end_announcement),
            None => {}
        }
    }

    /// Records that a group will replace a node as soon as it is planned with its new revision.
    pub(crate) fn announce(&mut self, key: &str, now: Instant) {
        let reservation =
            Reservation { instance: ANNOUNCED.to_owned(), begin: None, nodes: 1, progress: NodeProgress::Unseen(now) };
        self.change(key, |entry| entry.reservations.push(reservation));
    }

    /// Reserves budget for a node of a group, or with `None` for its batch, as the latest plan has it. Returns whether
    /// the budget leaves it.
    pub(crate) fn reserve(&mut self, budget: &BudgetPolicy, key: &str, instance: Option<&str>, now: Instant) -> bool {
        let Some(entry) = self.groups.get(key) else { return true };
        let begin = instance.and_then(|instance| entry.usage.begins.get(instance)).cloned();
        let name = instance.unwrap_or(BATCH);
        let nodes = match (instance, &begin) {
            (Some(_), Some(_)) => 1,
            // It is replaced for another reason, or is not available anyway.
            (Some(_), None) => return true,
            (None, _) => entry.usage.batch.unwrap_or_default(),
        };
        if nodes == 0 || entry.reservations.iter().any(|reservation| reservation.instance == name) {
            return true;
        }
        let is_left = match &begin {
            Some(begin) => self.allowance(budget).is_none_or(|mut allowance| allowance.spend(begin)),
            None => self.leaves_batch(budget, nodes),
        };
        if is_left {
            let reservation =
                Reservation { instance: name.to_owned(), begin, nodes, progress: NodeProgress::Unseen(now) };
            self.change(key, |entry| entry.reservations.push(reservation));
        }
        is_left
    }

    /// What the budget leaves; `None` when it limits nothing.
    pub(crate) fn allowance(&self, budget: &BudgetPolicy) -> Option<Allowance> {
        let left = |used: LimitUsage| used.limit.saturating_sub(used.nodes);
        budget.is_set().then(|| Allowance {
            budget: budget.to_string(),
            nodes: self.nodes(budget).map(left),
            zones: budget.zone.map(|_| self.zones(budget).map(|(zone, used)| (zone.to_owned(), left(used))).collect()),
            surge: self.surge(budget).map(left),
        })
    }

    /// Whether the batch of a group has to wait.
    pub(crate) fn batch_must_wait(&mut self, budget: &BudgetPolicy, key: &str) -> bool {
        let Some(entry) = self.groups.get(key) else { return false };
        let is_at_work = entry.usage.in_progress.contains(BATCH)
            || entry.reservations.iter().any(|reservation| reservation.instance == BATCH);
        let must_wait = entry.usage.batch.is_some_and(|nodes| !is_at_work && !self.leaves_batch(budget, nodes));
        match must_wait {
            true => _ = self.waiting_batches.insert(key.to_owned()),
            false => _ = self.waiting_batches.remove(key),
        }
        must_wait
    }

    /// Why a group may not replace nodes now, as a phrase for messages. What would not fit into an unused budget waits
    /// for other nodes that the rollout may never make available. The admin must be informed of it.
    pub(crate) fn wait_reason(&self, budget: &BudgetPolicy, key: &str) -> String {
        let nodes = self.batch(key);
        match self.exceeds_limit(budget, nodes) {
            true => format!(
                "{budget}, which is less than the {nodes} nodes that the group replaces at once: it waits until no other node is unavailable; raise budget.nodes, or let the group replace fewer at once"
            ),
            false => format!("{budget}, which is used up"),
        }
    }

    /// The groups whose batch waits and is larger than the whole budget, with its number of nodes.
    pub(crate) fn oversized(&self, budget: &BudgetPolicy) -> Vec<(&str, usize)> {
        let batches = self.waiting_batches.iter().map(|key| (key.as_str(), self.batch(key)));
        batches.filter(|(_, nodes)| self.exceeds_limit(budget, *nodes)).collect()
    }

    fn exceeds_limit(&self, budget: &BudgetPolicy, nodes: usize) -> bool {
        self.nodes(budget).is_some_and(|used| nodes > used.limit)
    }

    /// Records that a group replaces no nodes for the rollout now, whatever it did before.
    pub(crate) fn record_idle(&mut self, key: &str) {
        self.waiting_batches.remove(key);
        self.waiting.remove(key);
    }

    /// Records that nothing is planned for a group, because its object cannot be decoded: it neither waits, nor replaces the
    /// node that it has announced. The nodes of it that are unavailable count on.
    pub(crate) fn suspend(&mut self, key: &str) {
        self.record_idle(key);
        if self.groups.contains_key(key) {
            self.change(key, Entry::end_announcement);
        }
    }

    /// Whether a group that begins now would have to wait: groups that have begun go first, if they can.
    pub(crate) fn is_used_up(&self, budget: &BudgetPolicy, key: &str) -> bool {
        let batches = self.waiting_batches.iter().filter(|key| self.leaves_batch_later(budget, self.batch(key)));
        let others_wait = self.with_nodes_left(budget).chain(batches).any(|waiting| waiting != key);
        budget.is_set() && (others_wait || self.nodes(budget).is_some_and(|used| used.nodes >= used.limit))
    }

    /// Whether the group would continue if the budget left nodes.
    pub(crate) fn is_waiting(&self, key: &str) -> bool {
        self.waiting.contains_key(key) || self.waiting_batches.contains(key)
    }

    /// Whether any group would continue if the budget left nodes.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.waiting_batches.is_empty()
    }

    /// The groups that can continue, because the budget leaves what they wait for.
    pub(crate) fn unblocked_groups(&self, budget: &BudgetPolicy) -> Vec<String> {
        let batches = self.waiting_batches.iter().filter(|key| self.leaves_batch(budget, self.batch(key)));
        self.with_nodes_left(budget).chain(batches).cloned().collect()
    }

    /// The groups that wait for single nodes, and for which the budget leaves one. A zone that is down keeps others waiting.
    fn with_nodes_left(&self, budget: &BudgetPolicy) -> impl Iterator<Item = &String> {
        let allowance = self.allowance(budget);
        let has_budget = move |begins: &BTreeSet<NodeStart>| {
            begins.iter().any(|begin| allowance.clone().is_none_or(|mut allowance| allowance.spend(begin)))
        };
        self.waiting.iter().filter(move |(_, begins)| has_budget(begins)).map(|(key, _)| key)
    }

    /// The groups that use most of it, with their number of nodes.
    pub(crate) fn largest(&self, count: usize) -> Vec<(&str, usize)> {
        let mut all: Vec<_> =
            self.groups.iter().map(|(key, entry)| (key.as_str(), entry.sums().0.unavailable)).collect();
        all.retain(|(_, nodes)| *nodes > 0);
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        all.truncate(count);
        all
    }

    /// The usage of `budget.nodes`; `None` without it.
    pub(crate) fn nodes(&self, budget: &BudgetPolicy) -> Option<LimitUsage> {
        budget
            .nodes
            .map(|amount| LimitUsage { nodes: self.all.unavailable, limit: amount.at_least_one(self.all.nodes) })
    }

    /// The usage of `budget.zone`, by zone.
    pub(crate) fn zones(&self, budget: &BudgetPolicy) -> impl Iterator<Item = (&str, LimitUsage)> {
        let zones = budget.zone.into_iter().flat_map(|amount| self.zones.iter().map(move |zone| (amount, zone)));
        zones.map(|(amount, (zone, usage))| {
            let nodes = usage.unavailable + self.unplaced;
            (zone.as_str(), LimitUsage { nodes, limit: amount.at_least_one(usage.nodes) })
        })
    }

    /// The usage of `budget.surge`; `None` without it.
    pub(crate) fn surge(&self, budget: &BudgetPolicy) -> Option<LimitUsage> {
        budget.surge.map(|limit| LimitUsage { nodes: self.surging, limit })
    }

    /// Drops a group that is gone.
    pub(crate) fn forget(&mut self, key: &str) {
        self.change(key, |entry| *entry = Entry::default());
        self.groups.remove(key);
        self.record_idle(key);
    }

    /// A batch that is larger than the budget starts when nothing else is unavailable.
    fn leaves_batch(&self, budget: &BudgetPolicy, nodes: usize) -> bool {
        self.nodes(budget).is_none_or(|used| used.nodes == 0 || used.nodes + nodes <= used.limit)
    }

    /// Whether the budget leaves a batch once the nodes are back that groups replace for the rollout. Others need not wait for a
    /// batch that nodes keep waiting which are broken anyway.
    fn leaves_batch_later(&self, budget: &BudgetPolicy, nodes: usize) -> bool {
        let reservations = self.groups.values().flat_map(|entry| &entry.reservations);
        let unavailable = reservations.filter(|reservation| reservation.begin != Some(NodeStart::Surge));
        let reserved: usize = unavailable.map(|reservation| reservation.nodes).sum();
        self.nodes(budget).is_none_or(|used| {
            let others = used.nodes.saturating_sub(reserved);
            others == 0 || others + nodes <= used.limit
        })
    }

    fn batch(&self, key: &str) -> usize {
        self.groups.get(key).and_then(|entry| entry.usage.batch).unwrap_or_default()
    }

    fn change(&mut self, key: &str, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.groups.remove(key).unwrap_or_default();
        self.add(&entry, |sum, part| sum.saturating_sub(part));
        change(&mut entry);
        self.add(&entry, usize::saturating_add);
        self.zones.retain(|_, usage| usage.nodes + usage.unavailable > 0);
        self.groups.insert(key.to_owned(), entry);
    }

    fn add(&mut self, entry: &Entry, add: impl Fn(usize, usize) -> usize) {
        let (all, zones, surging, unplaced) = entry.sums();
        let sum = |sum: ZoneUsage, part: ZoneUsage| ZoneUsage {
            nodes: add(sum.nodes, part.nodes),
            unavailable: add(sum.unavailable, part.unavailable),
        };
        self.all = sum(self.all, all);
        for (zone, usage) in zones {
            let known = self.zones.entry(zone.to_owned()).or_default();
            *known = sum(*known, usage);
        }
        self.surging = add(self.surging, surging);
        self.unplaced = add(self.unplaced, unplaced);
    }
}

#[cfg(test)]
mod tests;
