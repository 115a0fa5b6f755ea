//! Counts the groups that the active revision of the boundaries made invalid.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::plan::{Event, EventReason, FieldRejection, StalledReason};

/// Groups that the active revision made invalid.
#[derive(Default)]
pub(crate) struct InvalidGroups(Mutex<InvalidatedGroups>);

/// Groups that one revision made invalid.
#[derive(Clone, Default)]
pub(crate) struct InvalidatedGroups {
    revision: String,
    /// The reason of each group, by key.
    pub invalid: BTreeMap<String, StalledReason>,
    /// What is wrong in the first group that was found.
    example: String,
}

impl InvalidGroups {
    /// Counts a group. Returns true for the first one of a revision, when the summary must be scheduled.
    pub(crate) fn count(&self, revision: &str, key: &str, rejection: &FieldRejection) -> bool {
        let mut tally = self.0.lock().expect("lock is not poisoned");
        if tally.revision != revision {
            *tally = InvalidatedGroups { revision: revision.to_owned(), ..InvalidatedGroups::default() };
        }
        let is_first = tally.invalid.is_empty();
        if is_first {
            tally.example = format!("{key}: {}", rejection.message);
        }
        tally.invalid.insert(key.to_owned(), rejection.reason);
        is_first
    }

    /// The tally of a revision; `None` when another one is active by now.
    pub(crate) fn tally(&self, revision: &str) -> Option<InvalidatedGroups> {
        let tally = self.0.lock().expect("lock is not poisoned");
        (tally.revision == revision).then(|| tally.clone())
    }
}

impl InvalidatedGroups {
    /// The event on the ConfigMap. `stored` is the name under which the revision is stored, if it is.
    pub(crate) fn event(&self, groups: usize, stored: Option<&str>) -> Event {
        let mut by_reason: BTreeMap<String, usize> = BTreeMap::new();
        self.invalid.values().for_each(|reason| *by_reason.entry(reason.to_string()).or_default() += 1);
        let counts: Vec<_> =
            by_reason.iter().map(|(reason, count)| format!("{count} of {groups} groups ({reason})")).collect();
        let example: String = self.example.chars().take(500).collect();
        let (name, hash) = (stored.unwrap_or(&self.revision), &self.revision);
        let hash = if stored.is_some() { format!(" ({hash})") } else { String::new() };
        let message = format!(
            "revision {name}{hash} makes {} invalid: their nodes keep running, and the controller changes nothing that depends on the rejected values; correct the ConfigMap, or apply its previous revision; `instance-manager status -A` lists them; for example {example}",
            counts.join(" and ")
        );
        Event::warning(EventReason::GroupsRejected, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_summary_for_each_revision_names_counts_and_an_example() {
        let effects = InvalidGroups::default();
        let rejection = |reason| FieldRejection { reason, message: "spec.a `x` is wrong".into() };
        assert!(effects.count("r1", "team/a", &rejection(StalledReason::InvalidSpec)));
        assert!(!effects.count("r1", "team/b", &rejection(StalledReason::InvalidSpec)));
        assert!(!effects.count("r1", "team/c", &rejection(StalledReason::PolicyViolation)));
        let event = effects.tally("r1").expect("the tally").event(7, None);
        assert_eq!(
            event.message,
            "revision r1 makes 2 of 7 groups (InvalidSpec) and 1 of 7 groups (PolicyViolation) invalid: their nodes keep running, and the controller changes nothing that depends on the rejected values; correct the ConfigMap, or apply its previous revision; `instance-manager status -A` lists them; for example team/a: spec.a `x` is wrong"
        );
        let stored = effects.tally("r1").expect("the tally").event(7, Some("r14"));
        assert!(stored.message.starts_with("revision r14 (r1) makes"), "as rollout history names it: {stored:?}");
        assert!(
            effects.count("r2", "team/a", &rejection(StalledReason::InvalidSpec)),
            "another revision has its own summary"
        );
        assert!(effects.tally("r1").is_none());
    }
}
