//! The annotation `lock-upgrades`, which stops the replacement of nodes: on an InstanceGroup, its Namespace, or the
//! ConfigMap of the boundaries (then for every group).
//!
//! A lock blocks the steps whose `StepInfo::is_disruptive` is true, unless the group is being deleted. The plan of a locked
//! group has no such steps, and the annotation is read again from the API before each of them is applied.

use std::collections::BTreeMap;

use strum::IntoEnumIterator;

use crate::api::annotations::is_true_word;
use crate::api::names::annotation;

/// Whether these annotations lock.
pub(crate) fn is_locked(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(annotation::LOCK_UPGRADES).is_some_and(|value| is_true_word(value))
}

/// The kinds of objects that can carry the lock, in the order in which they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter, strum::Display)]
pub enum LockHolder {
    /// The group itself.
    #[strum(to_string = "the InstanceGroup")]
    Group,
    /// The group's Namespace.
    #[strum(to_string = "the Namespace")]
    Namespace,
    /// The ConfigMap of the boundaries.
    #[strum(to_string = "the instance-manager ConfigMap")]
    ConfigMap,
    /// The ConfigMap of the boundaries, which was deleted with the lock.
    #[strum(to_string = "the instance-manager ConfigMap that was deleted (create it again without the annotation)")]
    DeletedConfigMap,
}

/// The lock of the ConfigMap, which outlives the ConfigMap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfigMapLock {
    /// The ConfigMap does not lock.
    #[default]
    None,
    /// The ConfigMap has the annotation.
    Present,
    /// The ConfigMap had the annotation when it was deleted.
    Deleted,
}

impl ConfigMapLock {
    /// The lock of a ConfigMap that exists, and has these annotations.
    pub(crate) fn of(annotations: &BTreeMap<String, String>) -> Self {
        if is_locked(annotations) { ConfigMapLock::Present } else { ConfigMapLock::None }
    }

    /// The same after the ConfigMap was deleted.
    pub(crate) fn after_deletion(self) -> Self {
        if self == ConfigMapLock::None { self } else { ConfigMapLock::Deleted }
    }
}

/// The lock of the ConfigMap as it was seen last, and as it counts for all groups.
///
/// A lock counts at once. It is lifted only with the content of the same edit, which may correct what the lock is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockState {
    /// What the watch returned last.
    pub seen: ConfigMapLock,
    /// What counts.
    pub active: ConfigMapLock,
}

impl LockState {
    /// Records the annotations of the ConfigMap that the watch returned; `None` when it was deleted.
    pub(crate) fn see(&mut self, annotations: Option<&BTreeMap<String, String>>) {
        self.seen = annotations.map_or_else(|| self.seen.after_deletion(), ConfigMapLock::of);
        self.active = self.with_content(self.active);
    }

    /// The lock of the content that is loaded now. The deletion of the ConfigMap lifts none, not even one that an edit lifted
    /// whose content never became active: the content before stays active.
    pub(crate) fn loaded(&self, is_present: bool) -> ConfigMapLock {
        if is_present { self.seen } else { self.active.after_deletion() }
    }

    /// What counts once the content is active with which `loaded` was seen.
    pub(crate) fn with_content(&self, loaded: ConfigMapLock) -> ConfigMapLock {
        if self.seen == ConfigMapLock::None { loaded } else { self.seen }
    }

    /// The content with which `loaded` was seen is active.
    pub(crate) fn activate(&mut self, loaded: ConfigMapLock) {
        self.active = self.with_content(loaded);
    }
}

/// Which of the three objects carry the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locks {
    /// The lock is on the InstanceGroup.
    pub group: bool,
    /// The lock is on its Namespace.
    pub namespace: bool,
    /// The lock is on the ConfigMap.
    pub config_map: ConfigMapLock,
}

impl Locks {
    /// These locks without those that do not count.
    pub(crate) fn only(self, counted: Locks) -> Locks {
        Locks {
            group: self.group && counted.group,
            namespace: self.namespace && counted.namespace,
            config_map: if counted.config_map == ConfigMapLock::None { counted.config_map } else { self.config_map },
        }
    }

    /// The first object that carries the lock.
    pub(crate) fn holder(self) -> Option<LockHolder> {
        LockHolder::iter().find(|holder| match holder {
            LockHolder::Group => self.group,
            LockHolder::Namespace => self.namespace,
            LockHolder::ConfigMap => self.config_map == ConfigMapLock::Present,
            LockHolder::DeletedConfigMap => self.config_map == ConfigMapLock::Deleted,
        })
    }

    /// The first lock as a phrase for messages: `the annotation ... on the Namespace`.
    pub(crate) fn describe(self) -> Option<String> {
        self.holder().map(|holder| format!("the annotation {} on {holder}", annotation::LOCK_UPGRADES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(value: &str) -> bool {
        is_locked(&BTreeMap::from([(annotation::LOCK_UPGRADES.to_owned(), value.to_owned())]))
    }

    #[test]
    fn every_usual_truth_locks() {
        for value in ["true", "True", "TRUE", " true ", "yes", "Yes", "on", "1", "t", "y"] {
            assert!(locked(value), "{value:?} must lock");
        }
        for value in ["false", "no", "off", "0", ""] {
            assert!(!locked(value), "{value:?} must not lock");
        }
        assert!(!is_locked(&BTreeMap::new()));
    }

    /// An edit may lift the lock and correct what it is about, and the content of an edit may be loaded for minutes.
    #[test]
    fn lock_is_lifted_only_with_the_content_that_has_none() {
        use ConfigMapLock::{Deleted, None, Present};
        let (on, off) = ([(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned())].into(), BTreeMap::new());
        let mut lock = LockState::default();
        let mut see = |annotations: Option<&BTreeMap<String, String>>| {
            lock.see(annotations);
            (lock.seen, lock.active)
        };
        assert_eq!(see(Option::None), (None, None), "there was never one");
        assert_eq!(see(Some(&on)), (Present, Present), "it counts at once");
        assert_eq!(see(Option::None), (Deleted, Deleted), "a deletion lifts nothing");
        assert_eq!(see(Some(&off)), (None, Deleted), "the content without a lock is not active yet");
        lock.activate(None);
        assert_eq!(lock.active, None);
    }

    #[test]
    fn lock_that_changes_during_a_load_is_that_of_the_last_edit() {
        use ConfigMapLock::{Deleted, None, Present};
        let (on, off) = ([(annotation::LOCK_UPGRADES.to_owned(), "true".to_owned())].into(), BTreeMap::new());
        let mut set_again = LockState { seen: Present, active: Present };
        let mut deleted = set_again;
        // Both edits lift the lock, and are loaded while the next one comes.
        [&mut set_again, &mut deleted].into_iter().for_each(|lock| lock.see(Some(&off)));
        set_again.see(Some(&on));
        set_again.activate(None);
        assert_eq!(set_again.active, Present, "an admin has set it again");
        deleted.see(Option::None);
        let (mut loaded_late, mut loaded_in_time) = (deleted, deleted);
        loaded_late.activate(loaded_late.loaded(false));
        assert_eq!(loaded_late.active, Deleted, "the content that the lock is about is still active");
        loaded_in_time.activate(None);
        loaded_in_time.activate(loaded_in_time.loaded(false));
        assert_eq!(loaded_in_time.active, None, "the content without a lock is active");
    }

    #[test]
    fn lock_that_does_not_count_is_none() {
        let all = Locks { group: true, namespace: true, config_map: ConfigMapLock::Present };
        let counted = Locks { namespace: false, ..all };
        assert_eq!(Locks { namespace: true, ..Locks::default() }.only(counted).holder(), None);
        assert_eq!(all.only(counted), counted);
        assert_eq!(Locks::default().only(all), Locks::default());
    }

    #[test]
    fn group_is_named_before_namespace_and_config_map() {
        let all = Locks { group: true, namespace: true, config_map: ConfigMapLock::Present };
        assert_eq!(all.holder(), Some(LockHolder::Group));
        let name = annotation::LOCK_UPGRADES;
        let namespace = Locks { group: false, ..all };
        assert_eq!(namespace.describe(), Some(format!("the annotation {name} on the Namespace")));
        let map = Locks { namespace: false, ..namespace };
        assert_eq!(map.describe(), Some(format!("the annotation {name} on the instance-manager ConfigMap")));
        assert_eq!(Locks::default().describe(), None);
    }

    /// An admin would look for the annotation on an object that does not exist.
    #[test]
    fn lock_of_a_deleted_config_map_names_the_deletion_and_the_remedy() {
        let deleted = Locks { config_map: ConfigMapLock::Present.after_deletion(), ..Locks::default() };
        let text = deleted.describe().expect("a lock");
        assert!(text.contains("that was deleted (create it again without the annotation)"), "{text}");
        let unlocked = Locks { config_map: ConfigMapLock::None.after_deletion(), ..Locks::default() };
        assert_eq!(unlocked.describe(), None);
    }
}
