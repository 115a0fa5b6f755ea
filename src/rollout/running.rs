//! How many groups of each wave replace nodes for the target, for the limit `atOnce`.

use std::collections::BTreeMap;

use super::summary::GroupSummary;
use super::view::RolloutView;
use crate::api::InstanceGroupStatus;

/// The state in this process of the groups that replace nodes. Nothing at first: a new leader must not begin further
/// ones before it has counted those that its predecessor began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// What all of this is about.
    subject: Option<Subject>,
    /// How many groups of each wave the last poll found.
    waves: Vec<usize>,
    /// Groups that switched to the target and that no poll has found with it yet: their wave, and whether a poll has
    /// missed them.
    switched: BTreeMap<String, (usize, bool)>,
}

/// The target, and the waves in their order. An admin may edit the waves while groups replace nodes for the target, and the
/// counts of other waves would let more groups begin than `atOnce` allows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    target: String,
    waves: Vec<String>,
}

impl Subject {
    fn of(view: &RolloutView) -> Self {
        let waves = view.policy.waves.iter().map(|wave| wave.name.clone()).collect();
        Self { target: view.target.name.clone(), waves }
    }
}

impl Running {
    /// Whether the groups were counted for this target and these waves.
    pub(crate) fn is_known(&self, view: &RolloutView) -> bool {
        self.subject.as_ref() == Some(&Subject::of(view))
    }

    /// Counts the groups by their statuses alone, before the first poll.
    pub(crate) fn count<'a>(&mut self, view: &RolloutView, statuses: impl Iterator<Item = &'a InstanceGroupStatus>) {
        let waves = &view.policy.waves;
        let mut found = vec![0; waves.len()];
        for status in statuses {
            let has_it = status.boundaries_revision.as_ref() == Some(&view.target.hash);
            let Some(record) = status.rollout.as_ref().filter(|record| has_it && record.settled.is_none()) else {
                continue;
            };
            if let Some(name) = record.wave.as_ref().filter(|_| view.target.is_named_by(record)) {
                let position = waves.iter().position(|wave| wave.name == *name);
                found[position.unwrap_or(waves.len() - 1)] += 1;
            }
        }
        *self = Self { subject: Some(Subject::of(view)), waves: found, switched: BTreeMap::new() };
    }

    /// Takes over what a poll found. A group whose switch it did not see yet stays counted until the next one.
    pub(crate) fn update(&mut self, view: &RolloutView, summary: &GroupSummary) {
        if !self.is_known(view) {
            self.switched.clear();
        }
        self.subject = Some(Subject::of(view));
        self.waves = summary.waves.iter().map(|wave| wave.rolling).collect();
        self.switched
            .retain(|key, (_, is_missed)| summary.without_target.contains(key) && !std::mem::replace(is_missed, true));
    }

    /// Counts a group that switches to the target in its wave.
    pub(crate) fn count_switch(&mut self, wave: usize, key: &str) {
        self.switched.insert(key.to_owned(), (wave, false));
    }

    /// Counts a group that switches to the target in its wave, if there is room. Several workers decide at the same
    /// time.
    pub(crate) fn reserve_place(&mut self, view: &RolloutView, wave: usize, key: &str) -> bool {
        let has_room = self.has_room(view, wave, key);
        if has_room {
            self.count_switch(wave, key);
        }
        has_room
    }

    /// How many further groups of each wave may begin; `None` for any number.
    pub(crate) fn places(&self, view: &RolloutView) -> Vec<Option<usize>> {
        let places = |index: usize, limit: usize| {
            let unseen = self.switched.values().filter(|(wave, _)| *wave == index).count();
            limit.saturating_sub(self.waves.get(index).copied().unwrap_or_default() + unseen)
        };
        let limits = view.policy.waves.iter().map(|wave| wave.max_concurrent_groups).enumerate();
        limits.map(|(index, limit)| limit.map(|limit| places(index, limit))).collect()
    }

    /// Whether this group of the wave at an index may replace nodes beside the others.
    pub(crate) fn has_room(&self, view: &RolloutView, wave: usize, key: &str) -> bool {
        let Some(limit) = view.policy.waves.get(wave).and_then(|wave| wave.max_concurrent_groups) else { return true };
        let unseen = self.switched.iter().filter(|(other, (index, _))| *index == wave && *other != key).count();
        self.is_known(view) && self.waves.get(wave).copied().unwrap_or_default() + unseen < limit
    }
}
