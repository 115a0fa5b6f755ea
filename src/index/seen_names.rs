//! Which names AWS shows among those that a group no longer uses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// What the answers of AWS showed of one group. An answer may be older than a creation, and older than the answer before,
/// so a name that it lacks may still appear. If the spec had dropped a name that was shown, the controller removed it.
#[derive(Clone, Default)]
pub(crate) struct SeenNames {
    removed: BTreeSet<String>,
    missing_since: BTreeMap<String, Timestamp>,
}

impl SeenNames {
    /// Takes in what an answer shows. Returns which of the dropped names may still appear: those that were missed
    /// for less than `delay`.
    pub(crate) fn observe(
        &mut self,
        shown: BTreeSet<String>,
        dropped: BTreeSet<String>,
        delay: SignedDuration,
        now: Timestamp,
    ) -> BTreeSet<String> {
        self.removed.retain(|name| dropped.contains(name));
        self.removed.extend(dropped.intersection(&shown).cloned());
        let missed: BTreeSet<_> = dropped.into_iter().filter(|name| !self.removed.contains(name)).collect();
        self.missing_since.retain(|name, _| missed.contains(name));
        for name in &missed {
            self.missing_since.entry(name.clone()).or_insert(now);
        }
        let may_appear = |name: &String| now.duration_since(self.missing_since[name]) < delay;
        missed.into_iter().filter(may_appear).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The answer that comes with the change of the spec is older than the one before.
    #[test]
    fn name_that_an_older_answer_lacks_may_appear_for_a_while() {
        let mut seen = SeenNames::default();
        let (delay, at) = (SignedDuration::from_secs(30), |second| Timestamp::from_second(second).expect("a time"));
        let mut observe =
            |shown: &[&str], dropped: &[&str], second| seen.observe(names(shown), names(dropped), delay, at(second));
        assert_eq!(observe(&["a", "b"], &[], 0), names(&[]), "the spec has both");
        assert_eq!(observe(&["a"], &["b"], 10), names(&["b"]));
        assert_eq!(observe(&["a", "b"], &["b"], 20), names(&[]), "it is removed now");
        assert_eq!(observe(&["a"], &["b"], 30), names(&[]), "it was removed");
    }

    /// The spec adds a hook and drops it at once, and AWS does not show the hook yet: it would stay forever.
    #[test]
    fn name_that_no_answer_showed_may_appear_for_a_while() {
        let mut seen = SeenNames::default();
        let (delay, at) = (SignedDuration::from_secs(30), |second| Timestamp::from_second(second).expect("a time"));
        let mut observe =
            |shown: &[&str], dropped: &[&str], second| seen.observe(names(shown), names(dropped), delay, at(second));
        assert_eq!(observe(&["a"], &["b"], 0), names(&["b"]));
        assert_eq!(observe(&["a", "b"], &["b"], 10), names(&[]), "it appeared, and is removed now");
        assert_eq!(observe(&["a"], &["b"], 20), names(&[]), "it was removed");
        assert_eq!(observe(&["a"], &["c"], 30), names(&["c"]));
        assert_eq!(observe(&["a"], &["c"], 59), names(&["c"]));
        assert_eq!(observe(&["a"], &["c"], 60), names(&[]), "it does not exist");
    }
}
