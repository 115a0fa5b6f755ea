//! The state of the rollout in this process: the view of the last poll, and what the target would do to each group.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use crate::boundaries::BudgetPolicy;
use crate::plan::{Allowance, NodeUsage, Step};
use crate::rollout::{BudgetUsage, Checks, KnownImpact, RevisionImpact, RolloutView, Running, YieldingGroups};
use crate::util::lookup::Lookup;

/// The rollout, as all reconciles share it.
#[derive(Default)]
pub(crate) struct RolloutState {
    view: RwLock<Option<Arc<RolloutView>>>,
    /// Whether the stored revisions may differ from the view by now, because this process does not lead.
    is_unread: AtomicBool,
    /// What the target would do to each group.
    forecasts: Mutex<HashMap<String, KnownImpact>>,
    /// How many groups of each wave replace nodes.
    running: Mutex<Running>,
    /// What all groups use of the budget; empty without one.
    budget_usage: Mutex<BudgetUsage>,
    /// What will block the drains of groups whose wave is open or next; `None` before the first poll.
    drain_forecast: Mutex<Option<DrainForecasts>>,
    /// Groups whose blocked drains yield to others.
    yielding: Mutex<YieldingGroups>,
    /// What Prometheus answered to the checks.
    checks: Mutex<Checks>,
}

/// What will block the drains of groups whose wave is open or next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainForecasts {
    /// The message of the condition, by group.
    pub known: BTreeMap<String, String>,
    /// Groups whose wave is open or next, and for which the API server did not answer.
    pub unread: BTreeSet<String>,
}

impl DrainForecasts {
    fn get(&self, key: &str) -> Lookup<String> {
        match self.known.get(key) {
            None if self.unread.contains(key) => Lookup::NotQueried,
            found => found.cloned().into(),
        }
    }
}

impl RolloutState {
    /// The rollout of the last poll; `None` without the key `rollout`.
    pub(crate) fn view(&self) -> Option<Arc<RolloutView>> {
        self.view.read().expect("lock is not poisoned").clone()
    }

    /// Replaces the rollout, whatever it is now.
    pub(crate) fn set_view(&self, view: Option<Arc<RolloutView>>) {
        *self.view.write().expect("lock is not poisoned") = view;
    }

    /// Replaces the rollout, unless it is another one than `old` by now: the ConfigMap may have been loaded meanwhile. Returns
    /// whether it did.
    pub(crate) fn replace_view(&self, old: Option<&Arc<RolloutView>>, new: Option<Arc<RolloutView>>) -> bool {
        let mut view = self.view.write().expect("lock is not poisoned");
        let is_same = view.as_ref().map(Arc::as_ptr) == old.map(Arc::as_ptr);
        if is_same {
            *view = new;
        }
        is_same
    }

    /// Whether the stored revisions were read since this process leads. Without a view, only that proves that there is no
    /// rollout.
    pub(crate) fn is_read(&self) -> bool {
        !self.is_unread.load(Ordering::Acquire)
    }

    /// Sets whether the stored revisions were read since this process leads.
    pub(crate) fn set_read(&self, is_read: bool) {
        self.is_unread.store(!is_read, Ordering::Release);
    }

    /// What the target would do to a group, if that is known for `inputs` and since the last of `retries` orders to resume.
    pub(crate) fn forecast(&self, key: &str, inputs: &str, retries: i64) -> RevisionImpact {
        let forecasts = self.forecasts.lock().expect("lock is not poisoned");
        forecasts.get(key).map(|known| known.get(inputs, retries)).unwrap_or_default()
    }

    /// Records what the target would do to a group.
    pub(crate) fn set_forecast(&self, key: &str, known: KnownImpact) {
        self.forecasts.lock().expect("lock is not poisoned").insert(key.to_owned(), known);
    }

    /// What will block the drains of a group whose wave is open or next.
    pub(crate) fn drain_forecast(&self, key: &str) -> Lookup<String> {
        self.drain_forecast
            .lock()
            .expect("lock is not poisoned")
            .as_ref()
            .map_or(Lookup::NotQueried, |found| found.get(key))
    }

    /// Replaces what will block drains. Returns the groups for which it is something else now.
    pub(crate) fn set_drain_forecasts(&self, drain_forecast: DrainForecasts) -> Vec<String> {
        let mut known = self.drain_forecast.lock().expect("lock is not poisoned");
        let before = known.take().unwrap_or_default();
        let keys: BTreeSet<&String> = before.known.keys().chain(drain_forecast.known.keys()).collect();
        let changed = keys.into_iter().filter(|key| before.get(key) != drain_forecast.get(key)).cloned().collect();
        *known = Some(drain_forecast);
        changed
    }

    /// Drops what is known of a group that is gone.
    pub(crate) fn forget(&self, key: &str) {
        self.forecasts.lock().expect("lock is not poisoned").remove(key);
        self.with_budget_usage(|budget_usage| budget_usage.forget(key));
    }

    /// Reads or changes how many groups of each wave replace nodes.
    pub(crate) fn with_running<T>(&self, act: impl FnOnce(&mut Running) -> T) -> T {
        act(&mut self.running.lock().expect("lock is not poisoned"))
    }

    /// Counts a group that switches to the target in its wave, until a poll finds it with the target. Counts its first
    /// node until its next plan does.
    pub(crate) fn count_switch(&self, wave: usize, key: &str) {
        if self.budget().is_some() {
            self.with_budget_usage(|budget_usage| budget_usage.announce(key, Instant::now()));
        }
        self.with_running(|running| running.count_switch(wave, key));
    }

    /// Counts a group that is about to switch to the target in its wave, before that is written. Returns whether there
    /// is room.
    pub(crate) fn reserve_place(&self, view: &RolloutView, wave: usize, key: &str) -> bool {
        self.with_running(|running| running.reserve_place(view, wave, key))
    }

    /// Whether this group of the wave at an index may replace nodes beside the others.
    pub(crate) fn has_room(&self, view: &RolloutView, wave: usize, key: &str) -> bool {
        self.with_running(|running| running.has_room(view, wave, key))
    }

    /// Reads or changes what the groups use of the budget.
    pub(crate) fn with_budget_usage<T>(&self, act: impl FnOnce(&mut BudgetUsage) -> T) -> T {
        act(&mut self.budget_usage.lock().expect("lock is not poisoned"))
    }

    /// Reads or changes which groups yield to others.
    pub(crate) fn with_yielding_groups<T>(&self, act: impl FnOnce(&mut YieldingGroups) -> T) -> T {
        act(&mut self.yielding.lock().expect("lock is not poisoned"))
    }

    /// Reads or changes what is known of the checks.
    pub(crate) fn with_checks<T>(&self, act: impl FnOnce(&mut Checks) -> T) -> T {
        act(&mut self.checks.lock().expect("lock is not poisoned"))
    }

    /// Records what a plan saw of a group's nodes; `None` when it did not get to them.
    pub(crate) fn record_usage(&self, key: &str, usage: Option<NodeUsage>) {
        if self.budget().is_some() {
            self.with_budget_usage(|budget_usage| budget_usage.record(key, usage, Instant::now()));
        }
    }

    /// Reserves what a step needs of the budget. Returns why not, if the budget does not leave it.
    pub(crate) fn reserve_budget(&self, key: &str, step: &Step) -> Option<String> {
        let budget = self.budget()?;
        let instance = step.info().fields().instance;
        if instance.is_none() && !step.begins_batch() {
            return None;
        }
        let reserve =
            |budget_usage: &mut BudgetUsage| budget_usage.reserve(&budget, key, instance.as_deref(), Instant::now());
        let is_left = self.with_budget_usage(reserve);
        (!is_left).then(|| match instance {
            Some(_) => format!("{budget}, which is used up"),
            None => self.with_budget_usage(|budget_usage| budget_usage.wait_reason(&budget, key)),
        })
    }

    /// How many nodes a group may begin to replace, or why its batch has to wait; `None` without a budget.
    pub(crate) fn allowance(&self, key: &str) -> Option<Result<Allowance, String>> {
        let budget = self.budget()?;
        self.with_budget_usage(|budget_usage| match budget_usage.batch_must_wait(&budget, key) {
            true => Some(Err(budget_usage.wait_reason(&budget, key))),
            false => budget_usage.allowance(&budget).map(Ok),
        })
    }

    /// Records that a group replaces no nodes for the rollout now.
    pub(crate) fn record_idle(&self, key: &str) {
        if self.budget().is_some() {
            self.with_budget_usage(|budget_usage| budget_usage.record_idle(key));
        }
    }

    /// Why a group may not begin to replace nodes now, although its wave is open.
    pub(crate) fn budget_used_up(&self, view: &RolloutView, key: &str) -> Option<String> {
        let budget = &view.policy.budget;
        let is_used_up = budget.is_set() && self.with_budget_usage(|budget_usage| budget_usage.is_used_up(budget, key));
        is_used_up.then(|| budget.to_string())
    }

    fn budget(&self) -> Option<BudgetPolicy> {
        Some(self.view()?.policy.budget).filter(BudgetPolicy::is_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only groups for which something changed are reconciled, and what could not be read is not absent.
    #[test]
    fn new_drain_forecasts_name_the_groups_that_changed() {
        let state = RolloutState::default();
        let drains = |known: &[(&str, &str)], unread: &[&str]| DrainForecasts {
            known: known.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect(),
            unread: unread.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(state.drain_forecast("a"), Lookup::NotQueried, "before the first poll");
        assert_eq!(state.set_drain_forecasts(drains(&[("a", "x"), ("b", "y")], &[])), ["a", "b"]);
        assert_eq!(state.set_drain_forecasts(drains(&[("a", "x"), ("b", "z")], &[])), ["b"]);
        assert_eq!(
            (state.drain_forecast("b"), state.drain_forecast("c")),
            (Lookup::Present("z".into()), Lookup::Absent)
        );
        state.set_drain_forecasts(drains(&[("a", "x")], &["b"]));
        assert_eq!(state.drain_forecast("b"), Lookup::NotQueried);
    }
}
