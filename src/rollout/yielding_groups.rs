//! Which groups yield to others: their drains are blocked, and use up nodes of the budget that others wait for.

use std::collections::BTreeMap;

use super::summary::GroupSummary;
use super::view::RolloutView;
use crate::api::WaveState;
use crate::util::duration;

/// Groups without progress whose blocked drains are undone, with the reason. They continue when no other group of an open wave,
/// and none that returns, has nodes to replace.
#[derive(Clone, Debug, Default)]
pub(crate) struct YieldingGroups {
    groups: BTreeMap<String, String>,
}

impl YieldingGroups {
    /// Why a group yields; `None` while it does not.
    pub(crate) fn reason(&self, key: &str) -> Option<String> {
        self.groups.get(key).cloned()
    }

    /// Takes over what a poll found. `stuck` has the groups without progress, with what blocks their drains.
    pub(crate) fn update(
        &mut self,
        view: &RolloutView,
        summary: &GroupSummary,
        stuck: BTreeMap<String, Option<String>>,
    ) {
        let is_at_work = |index: usize| {
            let wave = &summary.waves[index];
            view.wave_state(index) != WaveState::Waiting && wave.waiting + wave.rolling > 0
        };
        // After an abort no group takes the target, whatever the state of its wave.
        let are_waves_at_work = !view.is_aborted() && (0..summary.waves.len()).any(is_at_work);
        if !view.policy.budget.is_set() || !(are_waves_at_work || summary.returning > 0) {
            self.groups.clear();
            return;
        }
        self.groups.retain(|key, _| stuck.contains_key(key));
        let patience = duration::format(view.policy.patience);
        for (key, blocker) in stuck {
            if let Some(blocker) = blocker.filter(|_| !self.groups.contains_key(&key)) {
                let why = format!(
                    "other groups go first, because no node of this one was replaced for {patience} ({blocker})"
                );
                self.groups.insert(key, why);
            }
        }
    }
}
