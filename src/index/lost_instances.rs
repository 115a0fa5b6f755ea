//! Instances that leave a scaling group without the controller. A user, a spot interruption, a health check of Auto
//! Scaling, or another controller took them away. Each is reported once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// How long the cause is searched for. A quiet group searches once in a resync period.
const SEARCH_TIME: SignedDuration = SignedDuration::from_mins(30);

/// How long it is searched for at each poll: AWS usually reports the cause within seconds.
const POLLED_SEARCH: SignedDuration = SignedDuration::from_mins(2);

/// The instances of one scaling group, as this process knows them. After a restart nothing has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostInstances {
    /// Instances that stayed when the group was last read.
    present: BTreeSet<String>,
    /// Instances that the controller terminates.
    own: BTreeSet<String>,
    /// Instances that left, with the time when that was seen, and the time of the pass that reported it.
    left: BTreeMap<String, (Timestamp, Option<Timestamp>)>,
    /// The version that is rotated to, and what waited to be Ready with it when the group was last read.
    replacements: (String, BTreeMap<String, Timestamp>),
    /// When that was.
    replacements_seen: Option<Timestamp>,
    /// Instances of that version that left while they waited.
    failed_replacements: BTreeSet<String>,
}

impl LostInstances {
    /// Compares the group with what was known. Returns the instances that left without the controller, and whose cause has
    /// not been reported by an earlier pass. `now` identifies the pass, which may plan more than once.
    pub(crate) fn observe(&mut self, present: BTreeSet<String>, now: Timestamp) -> Vec<String> {
        let gone: Vec<_> = self.present.difference(&present).cloned().collect();
        for instance in gone {
            if !self.own.remove(&instance) {
                self.left.insert(instance, (now, None));
            }
        }
        self.left.retain(|_, (seen, reported)| {
            reported.map_or(now.duration_since(*seen) <= SEARCH_TIME, |pass| pass == now)
        });
        self.own.retain(|instance| present.contains(instance));
        self.present = present;
        self.left.keys().cloned().collect()
    }

    /// Compares the instances of the desired version that wait to be Ready with those of the last pass. Their nodes
    /// have never been Ready, or failed within `joinTimeout`. Each has the time since when it waits. Returns those that
    /// left after they had waited for at least `least`, and without the controller, until they are in the status:
    /// `recorded`. It follows [`Self::observe`].
    pub(crate) fn observe_replacements(
        &mut self,
        version: &str,
        waiting: BTreeMap<String, Timestamp>,
        recorded: &[String],
        least: SignedDuration,
        now: Timestamp,
    ) -> Vec<String> {
        let (known, before) = std::mem::replace(&mut self.replacements, (version.to_owned(), waiting));
        let seen = self.replacements_seen.replace(now);
        if known != version {
            self.failed_replacements.clear();
        } else if seen.is_some_and(|seen| now.duration_since(seen) < SEARCH_TIME) {
            let has_left = |id: &String| self.left.contains_key(id) && !self.present.contains(id);
            let failed = before.into_iter().filter(|(id, since)| has_left(id) && now.duration_since(*since) >= least);
            self.failed_replacements.extend(failed.map(|(id, _)| id));
        }
        self.failed_replacements.retain(|id| !recorded.contains(id));
        self.failed_replacements.iter().cloned().collect()
    }

    /// Records that the pass `now` reports why an instance left.
    pub(crate) fn record_reported(&mut self, instance: &str, now: Timestamp) {
        if let Some((_, reported)) = self.left.get_mut(instance) {
            *reported = Some(now);
        }
    }

    /// Whether an instance left a moment ago, and AWS has not reported the cause.
    pub(crate) fn is_cause_expected(&self, now: Timestamp) -> bool {
        self.left.values().any(|(seen, reported)| reported.is_none() && now.duration_since(*seen) < POLLED_SEARCH)
    }

    /// Records that the controller terminates an instance, or tried to.
    pub(crate) fn record_own(&mut self, instance: &str) {
        self.own.insert(instance.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn set(instances: &[&str]) -> BTreeSet<String> {
        instances.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn each_instance_removed_by_another_client_is_reported_once() {
        let mut known = LostInstances::default();
        assert_eq!(
            known.observe(set(&["i-1", "i-2", "i-3"]), at(0)),
            [""; 0],
            "nothing is known before the first observation"
        );
        assert_eq!(known.observe(set(&["i-2", "i-3"]), at(10)), ["i-1"]);
        assert_eq!(known.observe(set(&["i-2", "i-3"]), at(20)), ["i-1"], "AWS had not said why");
        assert!(known.is_cause_expected(at(20)) && !known.is_cause_expected(at(130)), "it usually does within seconds");
        known.record_reported("i-1", at(20));
        assert_eq!(
            known.observe(set(&["i-2", "i-3"]), at(20)),
            ["i-1"],
            "the second plan of one pass reports it as well"
        );
        assert_eq!(known.observe(set(&["i-2", "i-3"]), at(30)), [""; 0]);
        assert!(!known.is_cause_expected(at(30)));
        assert_eq!(known.observe(set(&["i-2"]), at(40)), ["i-3"]);
        assert_eq!(known.observe(set(&["i-2"]), at(40 + 1801)), [""; 0], "AWS does not say why");
    }

    /// The Cluster Autoscaler removes an instance that does not join, and nothing of it is left to see.
    #[test]
    fn replacement_that_leaves_unready_is_reported_until_it_is_recorded() {
        let mut known = LostInstances::default();
        let waiting = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), at(0))).collect::<BTreeMap<_, _>>();
        let least = SignedDuration::from_mins(5);
        let mut pass = |present: &[&str], ids: &[&str], version: &str, recorded: &[&str], seconds| {
            known.observe(set(present), at(seconds));
            let recorded: Vec<_> = recorded.iter().map(|id| (*id).to_owned()).collect();
            known.observe_replacements(version, waiting(ids), &recorded, least, at(seconds))
        };
        assert_eq!(pass(&["old", "i-1"], &["i-1"], "v2", &[], 600), [""; 0]);
        assert_eq!(pass(&["old"], &[], "v2", &[], 900), ["i-1"]);
        assert_eq!(pass(&["old"], &[], "v2", &[], 915), ["i-1"], "the status could not be written");
        assert_eq!(pass(&["old"], &[], "v2", &["i-1"], 930), [""; 0]);
        pass(&["old", "i-2"], &["i-2"], "v2", &["i-1"], 60);
        assert_eq!(pass(&["old"], &[], "v2", &["i-1"], 90), [""; 0], "a Spot Instance may be reclaimed while it boots");
        pass(&["old", "i-3"], &["i-3"], "v2", &[], 1000);
        assert_eq!(pass(&["old"], &[], "v3", &[], 1900), [""; 0], "the spec has changed");
    }

    #[test]
    fn instance_that_the_controller_terminates_is_not_reported_again() {
        let mut known = LostInstances::default();
        known.observe(set(&["i-1", "i-2"]), at(0));
        known.record_own("i-1");
        assert_eq!(known.observe(set(&["i-1", "i-2"]), at(10)), [""; 0], "it is still there");
        assert_eq!(known.observe(set(&["i-2"]), at(20)), [""; 0]);
        assert!(known.own.is_empty());
    }
}
