//! Which BoundariesRevisions to create and to delete, so that the history of the ConfigMap is complete and bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::content_diff::describe_change;
use super::images::{carried, identity, is_of_aws};
use super::stored_phase::{has_refused_images, phase_of, was_complete};
use crate::api::{
    BoundariesRevision, BoundariesRevisionSpec, InstanceGroupStatus, RevisionSource, RolloutOrders, RolloutPhase,
};
use crate::boundaries::{CONFIG_MAP_KEYS, DEFAULT_HISTORY, ROLLOUT_KEY, content_hash};

/// Which revisions are kept.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The admin's name of the change, `rollout.release`.
    pub release: String,
    /// How many revisions are kept, the newest among them: `rollout.history`.
    pub kept: usize,
    /// Hashes of the contents that groups have, or would return to.
    pub needed: BTreeSet<String>,
    /// Whether it is unknown what some group needs, so that nothing is deleted.
    pub has_unknown_needs: bool,
    /// Whether the polls of a rollout delete what is not kept, one revision at a time. Otherwise `next_write` does.
    pub is_deleted_by_polls: bool,
    /// The policy of the rollout under way.
    pub policy_under_way: Option<PolicyUnderWay>,
    /// The numbers that are known to be used, also by revisions that a user deleted.
    pub used_numbers: UsedNumbers,
}

/// Numbers of revisions, each with the hash of its content.
pub(crate) type UsedNumbers = BTreeSet<(i64, String)>;

/// The numbers that the status of a group names: of the revision that it took, and of the one that failed on it.
pub(crate) fn used_numbers(status: &InstanceGroupStatus) -> UsedNumbers {
    let Some(record) = &status.rollout else { return UsedNumbers::new() };
    let names = [(&record.revision, &status.boundaries_revision), (&record.refused, &record.refused_hash)];
    let used = names.into_iter().filter_map(|(name, hash)| {
        let number = number_of(name.as_deref()?).filter(|number| *number < MAX_USED_NUMBER)?;
        Some((number, hash.clone().unwrap_or_default()))
    });
    used.collect()
}

/// A larger number in a status is none that the controller gave.
const MAX_USED_NUMBER: i64 = 1_000_000_000;

/// The least number of a revision with this hash. An approval or an order may still name a revision that a user deleted, and
/// must not count for another content.
pub(super) fn first_number(used: &UsedNumbers, hash: &str) -> i64 {
    let of_others = used.iter().filter(|(_, other)| other != hash).map(|(number, _)| number.saturating_add(1));
    of_others.max().unwrap_or(1)
}

/// The policy that the target of a rollout was stored with. Until all groups have switched, it continues without the key
/// `rollout`, also when a user deletes the target's object.
#[derive(Clone, Debug)]
pub(crate) struct PolicyUnderWay {
    /// Name of the target's object.
    pub name: String,
    /// UID of the target's object.
    pub uid: String,
    /// Text of the key `rollout`.
    pub text: String,
}

impl PolicyUnderWay {
    /// Whether the target's object was deleted.
    pub(super) fn is_lost_in(&self, stored: &[BoundariesRevision]) -> bool {
        let is_same = |revision: &BoundariesRevision| {
            let metadata = &revision.metadata;
            metadata.name.as_ref() == Some(&self.name) && metadata.uid.as_deref().unwrap_or_default() == self.uid
        };
        !stored.iter().any(is_same)
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            release: String::new(),
            kept: DEFAULT_HISTORY,
            needed: BTreeSet::new(),
            has_unknown_needs: false,
            is_deleted_by_polls: false,
            policy_under_way: None,
            used_numbers: UsedNumbers::new(),
        }
    }
}

/// A content of the ConfigMap, with where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Current<'a> {
    /// Data of the ConfigMap.
    pub data: &'a BTreeMap<String, String>,
    /// Where it came from, without the change.
    pub from: RevisionSource,
}

/// The next write, so that the history is complete and not too long.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HistoryWrite {
    /// Create this revision.
    Create(Box<BoundariesRevision>),
    /// Delete the revision with this name and UID.
    Delete {
        /// Name, such as `r3`.
        name: String,
        /// UID, so that no other object of the name is deleted.
        uid: String,
    },
}

/// The next write for the stored revisions; `None` when nothing has to be done. `before` is the content that was active
/// before this one, as far as it is known: a history begins with it, so that the first change has a predecessor.
pub(crate) fn next_write(
    stored: &[BoundariesRevision],
    before: Option<&BTreeMap<String, String>>,
    current: &Current,
    history: &History,
    namespace: &str,
) -> Option<HistoryWrite> {
    let sorted = sorted(stored);
    let newest = sorted.last();
    let hash = content_hash(current.data);
    let under_way = history.policy_under_way.as_ref().filter(|policy| policy.is_lost_in(stored));
    let lost_policy = under_way.filter(|_| !current.data.contains_key(ROLLOUT_KEY)).map(|policy| policy.text.as_str());
    // The deleted one may have differed from the newest one in its images alone.
    let is_stored =
        |newest: &BoundariesRevision| has_texts(newest, &hash) && (lost_policy.is_none() || retains_policy(newest));
    if newest.is_some_and(|newest| is_stored(newest)) {
        let found = oldest_dispensable(&sorted, history, |_| false).filter(|_| !history.is_deleted_by_polls);
        return found.map(|(name, uid)| HistoryWrite::Delete { name, uid });
    }
    let first = before.filter(|before| newest.is_none() && content_hash(before) != hash);
    let (data, mut from) = match first {
        Some(before) => (known_keys(before), RevisionSource::default()),
        None => (known_keys(current.data), current.from.clone()),
    };
    let data = with_kept_policy(data, newest.copied(), lost_policy);
    if let Some(newest) = newest {
        let change = describe_change(&newest.spec.data, &data);
        from.change = if change.is_empty() { "no value; the text alone".to_owned() } else { change };
    }
    let images = carried(&sorted, &data);
    let hash = identity(&content_hash(&data), &images);
    // Where groups have other contents, there was a revision 1, and a user deleted it with its status.
    let least = if history.needed.iter().any(|needed| *needed != hash) { 2 } else { 1 };
    let (name, number) = next_name(stored, least.max(first_number(&history.used_numbers, &hash)));
    let spec = BoundariesRevisionSpec { number, hash, data, images, from, orders: Default::default() };
    let mut revision = BoundariesRevision::new(&name, spec);
    revision.metadata.namespace = Some(namespace.to_owned());
    Some(HistoryWrite::Create(Box::new(revision)))
}

/// The data of the next revision, with the policy of the newest one if the ConfigMap lost its own and that one
/// still counts. `lost` is the policy of a rollout under way whose revision a user deleted.
fn with_kept_policy(
    mut data: BTreeMap<String, String>,
    newest: Option<&BoundariesRevision>,
    lost: Option<&str>,
) -> BTreeMap<String, String> {
    let kept = newest.filter(|newest| retains_policy(newest)).and_then(|newest| newest.spec.data.get(ROLLOUT_KEY));
    if let Some(text) = lost.or(kept.map(String::as_str)).filter(|_| !data.contains_key(ROLLOUT_KEY)) {
        data.insert(ROLLOUT_KEY.to_owned(), text.to_owned());
    }
    data
}

/// Whether the policy that a revision was stored with continues when the ConfigMap has none any more: not all groups
/// have switched to it, or it was aborted. A change of the ConfigMap that lost the key must not reach every group at
/// once.
pub(super) fn retains_policy(revision: &BoundariesRevision) -> bool {
    let has_ended = was_complete(revision) || phase_of(revision) == Some(RolloutPhase::Superseded);
    revision.spec.data.contains_key(ROLLOUT_KEY) && !has_ended
}

/// Whether the policy of the newest stored revision continues when the ConfigMap has none.
pub(crate) fn policy_is_retained(stored: &[BoundariesRevision]) -> bool {
    sorted(stored).last().is_some_and(|newest| retains_policy(newest))
}

/// The name and the number of the next revision, which is at least `first`.
pub(super) fn next_name(stored: &[BoundariesRevision], first: i64) -> (String, i64) {
    let newest = sorted(stored).last().map(|newest| newest.spec.number.saturating_add(1));
    // A name may be taken by an object that the controller did not make, whatever its spec is.
    let taken: BTreeSet<i64> = stored.iter().filter_map(number_in_name).collect();
    let mut number = newest.unwrap_or_default().max(first);
    while taken.contains(&number) {
        number += 1;
    }
    (format!("r{number}"), number)
}

/// Whether a revision has the texts with this hash, whatever its image aliases resolve to. Another release may have
/// stored another hash of the same texts.
pub(crate) fn has_texts(revision: &BoundariesRevision, hash: &str) -> bool {
    let spec = &revision.spec;
    (spec.images.is_empty() && spec.hash == hash) || content_hash(&spec.data) == hash
}

/// The revisions that the controller stored, by number, oldest first.
pub(crate) fn sorted(stored: &[BoundariesRevision]) -> Vec<&BoundariesRevision> {
    let mut found: Vec<_> = stored.iter().filter(|revision| is_genuine(revision)).collect();
    found.sort_by_key(|revision| revision.spec.number);
    found
}

/// Whether the controller stored the revision: its status has a phase, or its hash is that of its data. A user who
/// creates such an object does not know the hash.
fn is_genuine(revision: &BoundariesRevision) -> bool {
    let spec = &revision.spec;
    let has_hash = || spec.hash == identity(&content_hash(&spec.data), &spec.images);
    number_in_name(revision) == Some(spec.number) && (phase_of(revision).is_some() || has_hash())
}

/// Names of the objects that are not known to be the controller's, each with the reason and the remedy. They have no effect.
pub(crate) fn foreign_names(stored: &[BoundariesRevision]) -> Vec<(String, &'static str)> {
    let foreign = stored.iter().filter(|revision| !is_genuine(revision));
    let named = foreign.filter_map(|revision| Some((revision.metadata.name.clone()?, is_unverified(revision))));
    named.map(|(name, is_unverified)| (name, if is_unverified { UNVERIFIED } else { FOREIGN })).collect()
}

const FOREIGN: &str = "is none that the controller stored, and has no effect; delete it";

/// An object from a backup has no status.
const UNVERIFIED: &str = "has no effect, because it has no status and this release computes another hash of its data; if a backup restored it, run the release of the controller that stored it; otherwise delete it";

/// Whether another release of the controller may have stored it, with a hash that this one does not compute. A user may
/// have written it as well, so that its content counts for nothing.
fn is_unverified(revision: &BoundariesRevision) -> bool {
    number_in_name(revision) == Some(revision.spec.number) && !is_genuine(revision)
}

/// The names of what may be revisions of another release, by hash.
pub(super) fn unverified_names(stored: &[BoundariesRevision]) -> BTreeMap<String, String> {
    let found = stored.iter().filter(|revision| is_unverified(revision));
    found.filter_map(|revision| Some((revision.spec.hash.clone(), revision.metadata.name.clone()?))).collect()
}

/// The name of what may be the target, as another release stored it, if a user stopped its rollout: the target is the
/// first one that this release stored of the same texts.
pub(super) fn unverified_stop(stored: &[BoundariesRevision], target: &BoundariesRevision) -> Option<String> {
    let texts = content_hash(&target.spec.data);
    let before = stored.iter().filter(|revision| revision.spec.number < target.spec.number);
    let newest = before.filter(|found| is_genuine(found) || is_unverified(found)).max_by_key(|found| found.spec.number);
    let is_stopped = |orders: &RolloutOrders| orders.paused || orders.aborted;
    let found = newest.filter(|found| is_unverified(found) && is_stopped(&found.spec.orders))?;
    found.metadata.name.clone().filter(|_| content_hash(&found.spec.data) == texts)
}

fn number_in_name(revision: &BoundariesRevision) -> Option<i64> {
    number_of(revision.metadata.name.as_deref()?)
}

/// The number of the revision with this name.
fn number_of(name: &str) -> Option<i64> {
    name.strip_prefix('r')?.parse().ok().filter(|number| format!("r{number}") == name)
}

/// The oldest revision that is not kept, without those whose UID `is_sent` knows: its name and UID. `None` while it is
/// unknown what some group needs.
pub(crate) fn revision_to_delete(
    stored: &[BoundariesRevision],
    history: &History,
    is_sent: impl Fn(&str) -> bool,
) -> Option<(String, String)> {
    oldest_dispensable(&sorted(stored), history, is_sent)
}

fn oldest_dispensable(
    sorted: &[&BoundariesRevision],
    history: &History,
    is_sent: impl Fn(&str) -> bool,
) -> Option<(String, String)> {
    if history.has_unknown_needs {
        return None;
    }
    let (newest, older) = sorted.split_last()?;
    let stable = stable_before(sorted, newest).map(|revision| revision.spec.number);
    // An image of an aborted revision is not rolled out again while the revision is stored.
    let refused = older.iter().rev().find(|revision| has_refused_images(revision) && is_of_aws(revision));
    let refused = refused.map(|revision| revision.spec.number);
    // Until the newest one records what groups return to, one without a status may be that.
    let is_judged = newest.status.as_ref().is_some_and(|status| status.stable.is_some());
    let is_needed = |revision: &BoundariesRevision| {
        [stable, refused].contains(&Some(revision.spec.number))
            || !is_judged && phase_of(revision).is_none() && !was_complete(revision)
            || history.needed.contains(&revision.spec.hash) && revision.spec.hash != newest.spec.hash
    };
    let dispensable = older.len().saturating_sub(history.kept.saturating_sub(1));
    // One with a finalizer stays for a while, and must not keep the others.
    let is_present = |revision: &BoundariesRevision| {
        revision.metadata.deletion_timestamp.is_none() && !is_sent(revision.metadata.uid.as_deref().unwrap_or_default())
    };
    let mut found = older[..dispensable].iter().filter(|revision| is_present(revision));
    let oldest = found.find(|revision| !is_needed(revision))?;
    Some((oldest.metadata.name.clone()?, oldest.metadata.uid.clone()?))
}

/// The revision that groups return to: the last complete revision before the target. If none is complete, it is
/// revision 1, which all groups use without waves. The oldest revision of an incomplete history does not count.
pub(super) fn stable_before<'a>(
    sorted: &[&'a BoundariesRevision],
    target: &BoundariesRevision,
) -> Option<&'a BoundariesRevision> {
    let older = sorted.iter().copied().filter(|revision| revision.spec.number < target.spec.number);
    let complete = older.clone().rev().find(|revision| was_complete(revision) || is_recorded_stable(revision, target));
    complete.or_else(|| older.into_iter().next().filter(|oldest| oldest.spec.number == 1))
}

/// Hashes of the revisions between the one that `stable_before` found and the target of which no status says how far
/// their rollouts came.
pub(super) fn unjudged_between(
    sorted: &[&BoundariesRevision],
    stable: Option<&BoundariesRevision>,
    target: &BoundariesRevision,
) -> BTreeSet<String> {
    let Some(stable) = stable else { return BTreeSet::new() };
    let is_between = |number: i64| stable.spec.number < number && number < target.spec.number;
    let found = sorted.iter().filter(|revision| is_between(revision.spec.number) && phase_of(revision).is_none());
    found.map(|revision| revision.spec.hash.clone()).collect()
}

/// Whether groups may have come to the target from another revision than the one that `stable_before` finds: the one that
/// its status names was deleted, or it names none, and there are unjudged ones in between. `status.withoutWaves` records it.
pub(super) fn may_come_from_another(
    sorted: &[&BoundariesRevision],
    target: &BoundariesRevision,
    has_unjudged: bool,
) -> bool {
    let status = target.status.as_ref();
    let is_stored = |name: &String| sorted.iter().any(|revision| revision.metadata.name.as_ref() == Some(name));
    match (status.and_then(|status| status.without_waves), status.and_then(|status| status.stable.as_ref())) {
        (Some(without_waves), _) => !without_waves,
        (None, Some(recorded)) => !is_stored(recorded),
        (None, None) => has_unjudged,
    }
}

/// The name of the revision to which groups return from a target, as the controller finds it. The one that a status names may
/// have been deleted.
pub(crate) fn returns_to(stored: &[BoundariesRevision], target: &BoundariesRevision) -> Option<String> {
    // One with the target's content is no revision to return to from it.
    let is_doubtful = target.status.as_ref().is_some_and(|status| status.without_waves == Some(false));
    let found = stable_before(&sorted(stored), target)?;
    let is_other = !is_doubtful || content_hash(&found.spec.data) != content_hash(&target.spec.data);
    found.metadata.name.clone().filter(|_| is_other)
}

/// Whether a target records that groups return to this revision, whose own status is gone, as after a restore from a
/// backup.
pub(super) fn is_recorded_stable(revision: &BoundariesRevision, target: &BoundariesRevision) -> bool {
    let recorded = target.status.as_ref().and_then(|status| status.stable.as_ref());
    phase_of(revision).is_none() && recorded.is_some() && revision.metadata.name.as_ref() == recorded
}

pub(super) fn known_keys(data: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_known = |key: &str| key == ROLLOUT_KEY || CONFIG_MAP_KEYS.contains(&key);
    let known = data.iter().filter(|(key, _)| is_known(key));
    known.map(|(key, text)| (key.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RolloutRecord;

    fn data(image: &str) -> BTreeMap<String, String> {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        [("defaults".to_owned(), defaults), ("unknown".to_owned(), "x".to_owned())].into()
    }

    /// The revisions after the ConfigMap had these images one after another, and what was created and deleted.
    fn play(stored: &mut Vec<BoundariesRevision>, before: Option<&str>, images: &[&str]) -> Vec<String> {
        let mut log = vec![];
        let before = before.map(data);
        for image in images {
            let data = data(image);
            let current = Current { data: &data, from: RevisionSource::default() };
            while let Some(step) = next_write(stored, before.as_ref(), &current, &History::default(), "im") {
                match step {
                    HistoryWrite::Create(mut revision) => {
                        log.push(format!("+{} {}", revision.metadata.name.clone().unwrap(), revision.spec.from.change));
                        revision.metadata.uid = revision.metadata.name.clone();
                        stored.push(*revision);
                    }
                    HistoryWrite::Delete { name, uid } => {
                        assert_eq!(name, uid);
                        log.push(format!("-{name}"));
                        stored.retain(|revision| revision.metadata.name.as_ref() != Some(&name));
                    }
                }
                assert!(log.len() < 100, "{log:?}");
            }
        }
        log
    }

    #[test]
    fn each_change_is_stored_once_with_what_changed() {
        let mut stored = vec![];
        let log = play(&mut stored, None, &["ami-1", "ami-1", "ami-2", "ami-1"]);
        assert_eq!(log, ["+r1 ", "+r2 image: \"ami-1\" -> \"ami-2\"", "+r3 image: \"ami-2\" -> \"ami-1\""]);
        assert_eq!(stored[0].spec.hash, stored[2].spec.hash, "the return has the same content");
        assert_ne!(stored[0].spec.hash, stored[1].spec.hash);
        assert_eq!(stored[0].spec.data.keys().collect::<Vec<_>>(), ["defaults"], "unknown keys are left out");
    }

    /// A change that was made while the controller was down must have a predecessor to return to.
    #[test]
    fn history_begins_with_the_content_that_was_active() {
        let mut stored = vec![];
        let log = play(&mut stored, Some("ami-0"), &["ami-1", "ami-2"]);
        let change = |from: &str, to: &str| format!("image: \"{from}\" -> \"{to}\"");
        assert_eq!(
            log,
            [
                "+r1 ".to_owned(),
                format!("+r2 {}", change("ami-0", "ami-1")),
                format!("+r3 {}", change("ami-1", "ami-2"))
            ]
        );
        assert_eq!(play(&mut vec![], Some("ami-1"), &["ami-1"]), ["+r1 "]);
    }

    #[test]
    fn oldest_revisions_beyond_the_limit_are_deleted() {
        let images: Vec<_> = (0..13).map(|number| format!("ami-{number}")).collect();
        let mut stored = vec![];
        let log = play(&mut stored, None, &images.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(log.iter().filter(|line| line.starts_with('-')).collect::<Vec<_>>(), ["-r1", "-r2", "-r3"]);
        assert_eq!((stored.len(), sorted(&stored).last().unwrap().spec.number), (DEFAULT_HISTORY, 13));
    }

    /// Otherwise the aborted image would roll out again once the admin has edited the ConfigMap ten times.
    #[test]
    fn image_of_an_aborted_revision_is_remembered_beyond_the_limit() {
        let mut stored = vec![];
        play(&mut stored, None, &["ami-1", "ami-2"]);
        let mut refused = stored[1].clone();
        refused.spec.number = 3;
        refused.spec.from.manager = "AWS".into();
        (refused.metadata.name, refused.metadata.uid) = (Some("r3".into()), Some("r3".into()));
        refused.status.get_or_insert_default().phase = Some(RolloutPhase::Aborted);
        stored.push(refused);
        let images: Vec<_> = (10..30).map(|number| format!("ami-{number}")).collect();
        let log = play(&mut stored, None, &images.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(log.contains(&"-r2".to_owned()) && !log.contains(&"-r3".to_owned()), "{log:?}");
    }

    /// A revision with a policy, and the phase of its rollout.
    fn staged(number: i64, phase: Option<RolloutPhase>) -> BoundariesRevision {
        let mut data = known_keys(&data(&format!("ami-{number}")));
        data.insert(ROLLOUT_KEY.to_owned(), "waves: [{name: all}]".to_owned());
        let spec = BoundariesRevisionSpec { number, hash: content_hash(&data), data, ..Default::default() };
        let mut revision = BoundariesRevision::new(&format!("r{number}"), spec);
        revision.metadata.uid = Some(format!("r{number}"));
        revision.status.get_or_insert_default().phase = phase;
        revision
    }

    /// The names of what is left when nothing more is deleted.
    fn kept(mut stored: Vec<BoundariesRevision>, kept: usize, needed: &[i64]) -> String {
        let data = stored.last().expect("a revision").spec.data.clone();
        let current = Current { data: &data, from: RevisionSource::default() };
        let needed = needed.iter().map(|number| staged(*number, None).spec.hash).collect();
        let history = History { kept, needed, ..History::default() };
        while let Some(HistoryWrite::Delete { name, .. }) = next_write(&stored, None, &current, &history, "im") {
            stored.retain(|revision| revision.metadata.name.as_ref() != Some(&name));
        }
        let names: Vec<_> = stored.iter().filter_map(|revision| revision.metadata.name.as_deref()).collect();
        names.join(" ")
    }

    /// A user deleted revisions, and a tenant's approval of one of them, or an order about it, must not count for the next
    /// edit. The same content has the name that groups know it by. What another writer put into a status does no harm.
    #[test]
    fn number_that_a_group_took_for_another_content_is_not_given_again() {
        let mut stored = vec![];
        play(&mut stored, None, &["ami-1"]);
        let data = data("ami-2");
        let (same, current) = (content_hash(&data), Current { data: &data, from: RevisionSource::default() });
        for (name, hash, expected) in [
            ("r3", "deleted", "r4"),
            ("r2", same.as_str(), "r2"),
            ("r9000000000000000000", "deleted", "r2"),
            ("other", "deleted", "r2"),
        ] {
            let (name, hash) = (Some(name.to_owned()), Some(hash.to_owned()));
            let took = RolloutRecord { revision: name.clone(), ..RolloutRecord::default() };
            let refused = RolloutRecord { refused: name, refused_hash: hash.clone(), ..RolloutRecord::default() };
            for (boundaries_revision, record) in [(hash, took), (None, refused)] {
                let rollout = Some(record);
                let status = InstanceGroupStatus { boundaries_revision, rollout, ..InstanceGroupStatus::default() };
                let history = History { used_numbers: used_numbers(&status), ..History::default() };
                let step = next_write(&stored, None, &current, &history, "im");
                let Some(HistoryWrite::Create(created)) = step else { panic!("{step:?}") };
                assert_eq!(created.metadata.name.as_deref(), Some(expected), "{:?}", status.rollout);
            }
        }
    }

    /// Groups return to the revision that was complete last, also after a restore from a backup, which has no statuses.
    /// While none was complete, they return to the very first one.
    #[test]
    fn revision_to_which_groups_return_is_never_deleted() {
        use RolloutPhase::{Complete, Halted, Rolling, Superseded};
        let stored = |phases: [Option<RolloutPhase>; 5]| -> Vec<_> {
            (1..).zip(phases).map(|(number, phase)| staged(number, phase)).collect()
        };
        let ended = Some(Superseded);
        assert_eq!(kept(stored([Some(Complete), Some(Complete), ended, Some(Halted), Some(Rolling)]), 1, &[]), "r2 r5");
        assert_eq!(kept(stored([ended, ended, ended, ended, Some(Rolling)]), 2, &[]), "r1 r4 r5", "none was complete");
        let mut restored = stored([Some(Complete), None, ended, ended, Some(Rolling)]);
        restored[4].status.get_or_insert_default().stable = Some("r2".into());
        assert_eq!(kept(restored.clone(), 1, &[]), "r2 r5", "the rollout under way has recorded it");
        restored[4].status = None;
        assert_eq!(kept(restored, 1, &[]), "r1 r2 r5", "it is not known yet which one it is");
        let complete = stored([Some(Complete), None, None, None, Some(Complete)]);
        assert_eq!(kept(complete[..4].to_vec(), 1, &[]), "r1 r2 r3 r4");
    }

    /// A group that is locked, or that was deferred for weeks, still has an old revision.
    #[test]
    fn revision_that_a_group_needs_is_not_deleted() {
        use RolloutPhase::Complete;
        let stored: Vec<_> = (1..6).map(|number| staged(number, Some(Complete))).collect();
        assert_eq!(kept(stored.clone(), 2, &[]), "r4 r5");
        assert_eq!(kept(stored.clone(), 2, &[1, 3]), "r1 r3 r4 r5");
        // The newest one has its content as well.
        let mut again = stored;
        again[0].spec = BoundariesRevisionSpec { number: 1, ..again[4].spec.clone() };
        assert_eq!(kept(again, 2, &[5]), "r4 r5");
    }

    /// A group that cannot be decoded may need any of them, to return to it once it is corrected.
    #[test]
    fn nothing_is_deleted_while_it_is_unknown_what_a_group_needs() {
        let mut stored = vec![];
        let images: Vec<_> = (0..10).map(|number| format!("ami-{number}")).collect();
        play(&mut stored, None, &images.iter().map(String::as_str).collect::<Vec<_>>());
        let (data, newest) = (data("ami-9"), stored.last().expect("a revision").clone());
        stored.push(BoundariesRevision::new("r11", BoundariesRevisionSpec { number: 11, ..newest.spec }));
        let current = Current { data: &data, from: RevisionSource::default() };
        for (has_unknown_needs, is_kept) in [(false, false), (true, true)] {
            let history = History { has_unknown_needs, ..History::default() };
            assert_eq!(next_write(&stored, None, &current, &history, "im").is_none(), is_kept);
        }
    }

    /// The status of a group names its revision by the hash. By the hash, a stored revision without a status also
    /// proves that the controller made it. A release with a further key of the ConfigMap must hash contents without
    /// that key as before.
    #[test]
    fn hash_of_a_content_is_the_same_in_each_release() {
        let data = [("defaults", "spec: {}"), ("unknown", "x")].map(|(key, text)| (key.to_owned(), text.to_owned()));
        let texts = content_hash(&data.into());
        assert_eq!(texts, "470928b400e97115");
        assert_eq!(identity(&texts, &[("latest".to_owned(), "ami-1".to_owned())].into()), "3d8d791ac415ff4d");
    }

    /// A user may create an object of this kind; it is neither used nor deleted, and its name is left to it.
    #[test]
    fn foreign_objects_are_not_changed() {
        let mut foreign = BoundariesRevision::new("r2", BoundariesRevisionSpec { number: 3, ..Default::default() });
        foreign.metadata.uid = Some("foreign".into());
        let named = BoundariesRevision::new("mine", BoundariesRevisionSpec { number: i64::MAX, ..Default::default() });
        let last = format!("r{}", i64::MAX);
        let last = BoundariesRevision::new(&last, BoundariesRevisionSpec { number: i64::MAX, ..Default::default() });
        let mut stored = vec![foreign, named, last];
        let images: Vec<_> = (0..12).map(|number| format!("ami-{number}")).collect();
        let log = play(&mut stored, None, &images.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(log[0].starts_with("+r1 ") && log[1].starts_with("+r3 "), "{log:?}");
        assert!(!log.iter().any(|line| ["-r2", "-mine"].contains(&line.as_str())), "{log:?}");
        assert_eq!(stored.len(), DEFAULT_HISTORY + 3);
    }
}
