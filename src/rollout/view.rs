//! The input of every rollout decision: the stored revisions, the target, the policy and the recorded status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::names::{annotation, condition};
use crate::api::{
    BoundariesRevision, BoundariesRevisionStatus, RevisionSource, RolloutOrders, RolloutPhase, RolloutRecord,
    WaveState, WaveStatus,
};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::boundaries::{Boundaries, ConfigErrors, ROLLOUT_KEY, RolloutPolicy, Wave, content_hash};
use crate::lock::ConfigMapLock;
use crate::util::text::shorten;

use super::closed_waves::ClosedWaves;
use super::images::{Images, KnownImages, images_by_name, own_images};
use super::retention::{
    Current, History, HistoryWrite, PolicyUnderWay, has_texts, is_recorded_stable, may_come_from_another, next_write,
    retains_policy, sorted, stable_before, unjudged_between, unverified_names, unverified_stop,
};
use super::stored_phase::{is_aborted, is_ordered_back, phase_of, was_complete};

/// A stored revision, parsed.
#[derive(Clone, Debug)]
pub(crate) struct StoredRevision {
    /// Name, such as r14.
    pub name: String,
    /// Number of the revision, in the order of arrival.
    pub number: i64,
    /// Hash of the content.
    pub hash: String,
    /// When its object was created.
    pub created: Option<Timestamp>,
    /// When its rollout began, if its status says so.
    pub begun: Option<Timestamp>,
    /// The boundaries that the revision's texts parse to.
    pub active: Arc<ActiveBoundaries>,
    /// The images that aliases resolve to.
    pub images: Arc<Images>,
    /// Hash of the ConfigMap's texts alone; `hash` covers the images too.
    pub texts: String,
    /// The images that aliases resolve to, of those that it was stored with or that were first used under it.
    pub own_images: Images,
    /// Whether it is unknown what its image aliases stood for.
    pub has_lost_images: bool,
    /// The names under which its content is stored: one that came back was stored again.
    pub names: Vec<String>,
    /// Whether the last rollout of its content has ended with all groups. What was good long ago may fail now.
    pub is_complete: bool,
    /// How its rollout was stopped, if it was.
    pub stop: Option<RolloutEnd>,
    /// Whether it is the target, and everything that was complete before was deleted. It may be stored under another name
    /// than the one that groups took it by.
    pub is_restored: bool,
}

/// How the rollout of a revision was stopped before another one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolloutEnd {
    /// An admin aborted it.
    Aborted,
    /// It was halted by failures.
    Halted,
    /// A user paused it.
    Paused,
}

/// When a rollout began, by the status of its revision.
fn begun(status: &BoundariesRevisionStatus) -> Option<Timestamp> {
    status.begun.as_deref()?.parse().ok()
}

/// How the rollout of this revision was stopped. The conditions of one that was superseded stay.
fn end_of(revision: &BoundariesRevision) -> Option<RolloutEnd> {
    let conditions = revision.status.iter().flat_map(|status| &status.conditions);
    let is_halted = conditions.into_iter().any(|found| found.r#type == condition::HALTED && found.is_true());
    match revision.spec.orders.paused {
        _ if is_aborted(revision) => Some(RolloutEnd::Aborted),
        _ if is_halted => Some(RolloutEnd::Halted),
        true => Some(RolloutEnd::Paused),
        false => None,
    }
}

impl StoredRevision {
    /// Whether the record of a group that has its content is about it: one that came back has several names, and one that was
    /// deleted with all others may be stored under another name.
    pub(crate) fn is_named_by(&self, record: &RolloutRecord) -> bool {
        self.is_restored || record.revision.as_ref().is_some_and(|name| self.names.contains(name))
    }

    /// Whether it has the texts of the other one, and each alias that both record resolves to the same image in both.
    /// An alias that was first used under one of them has no image in the other.
    pub(crate) fn has_content_of(&self, other: &StoredRevision) -> bool {
        let agrees = |(alias, image): (&String, &String)| other.own_images.get(alias).is_none_or(|own| own == image);
        self.texts == other.texts && self.own_images.iter().all(agrees)
    }
}

/// An older revision whose rollout ends because another one came.
#[derive(Clone, Debug)]
pub(crate) struct Superseded {
    /// Name of the BoundariesRevision, for example `r14`.
    pub name: String,
    /// resourceVersion of its object.
    pub resource_version: String,
    /// The phase that is recorded.
    pub phase: RolloutPhase,
}

/// The rollout under way, or the one that ended last.
#[derive(Clone, Debug)]
pub(crate) struct RolloutView {
    /// The newest revision, which groups are to switch to.
    pub target: StoredRevision,
    /// UID of the target's object.
    pub uid: String,
    /// resourceVersion of the target's object.
    pub resource_version: String,
    /// The last revision that was complete before the target. `None` when the target is the first one, or when it is
    /// unknown whether it is a return.
    pub stable: Option<StoredRevision>,
    /// Whether a revision with the target's content was complete before, but another one may have been after it: that one
    /// was deleted, or its status is lost.
    pub is_return_doubtful: bool,
    /// Hashes of the contents that may have been complete after it.
    pub unjudged: BTreeSet<String>,
    /// The newest stored revision of each content, by hash.
    pub stored: BTreeMap<String, StoredRevision>,
    /// The stored revisions that this release cannot parse, by hash: the name with the error.
    pub unreadable: BTreeMap<String, String>,
    /// Names of what may be revisions of another release of the controller, by hash. They have no effect.
    pub unverified: BTreeMap<String, String>,
    /// Why it is unknown which revision groups return to. No group switches to the target then.
    pub stable_problem: Option<String>,
    /// Why the policy that the target was stored with, and that continues, is not known. No group switches to the
    /// target then.
    pub policy_problem: Option<String>,
    /// How the target reaches the groups.
    pub policy: Arc<RolloutPolicy>,
    /// Whether the policy is the one that the target was stored with, because the ConfigMap has none any more.
    pub is_retained_policy: bool,
    /// Text of the policy that the target was stored with, if it was stored with one.
    pub policy_text: Option<String>,
    /// The orders of users.
    pub orders: RolloutOrders,
    /// The recorded status of the target.
    pub status: BoundariesRevisionStatus,
    /// When the target's object was created.
    pub created: Option<Timestamp>,
    /// How long after the target's arrival its first wave opens in this cluster.
    pub delay: SignedDuration,
    /// Older revisions whose rollout was under way when the target came.
    pub superseded: Vec<Superseded>,
    /// Why no group is given the target now: the live ConfigMap is broken, missing or locked, or what was stored is unreadable.
    pub config_problem: Option<String>,
    /// Which waves windows and freezes close, as computed for the time of a poll.
    pub closed_waves: ClosedWaves,
}

impl RolloutView {
    /// The rollout of `active`, which must be among the stored revisions. `None` without a policy, or when the content is
    /// not stored yet. `known` supplies contents that were parsed before, and `cluster` is the cluster's name.
    pub(crate) fn new(
        revisions: &[BoundariesRevision],
        active: &Arc<ActiveBoundaries>,
        known: Option<&RolloutView>,
        cluster: Option<&str>,
    ) -> Option<Self> {
        let sorted = sorted(revisions);
        let object = sorted.iter().rev().find(|revision| has_texts(revision, &active.revision))?;
        let images = images_by_name(&sorted);
        let mut status = object.status.clone().unwrap_or_default();
        let is_overtaken = is_overtaken(object, &sorted);
        if is_overtaken {
            status.phase = Some(RolloutPhase::Superseded);
        }
        let (policy, policy_problem, is_retained_policy) =
            match active.boundaries.as_ref().and_then(|found| found.rollout.clone()) {
                Some(policy) => (policy, None, false),
                None => retained_policy(object).map(|(policy, problem)| (policy, problem, true))?,
            };
        let of_content = |hash: &str| {
            let hash = hash.to_owned();
            sorted.iter().copied().filter(move |revision| revision.spec.hash == hash)
        };
        let parsed = |revision: &BoundariesRevision| {
            let hash = &revision.spec.hash;
            let content = match known.and_then(|known| known.stored.get(hash)) {
                Some(stored) => stored.active.clone(),
                None => parse(revision).map_err(|error| unreadable(revision, &error))?,
            };
            let name = revision.metadata.name.clone().unwrap_or_default();
            let KnownImages { images, are_lost } = images.get(&name).cloned().unwrap_or_default();
            let (texts, own) = (content_hash(&revision.spec.data), own_images(revision));
            Ok::<_, String>(StoredRevision {
                name,
                number: revision.spec.number,
                hash: hash.clone(),
                created: revision.metadata.creation_timestamp.as_ref().map(|at| at.0),
                begun: revision.status.as_ref().and_then(begun),
                active: content,
                images,
                texts,
                own_images: own,
                has_lost_images: are_lost,
                names: of_content(hash).filter_map(|found| found.metadata.name.clone()).collect(),
                is_complete: of_content(hash).next_back().is_some_and(was_complete),
                stop: end_of(revision),
                is_restored: false,
            })
        };
        let mut target = parsed(object).ok()?;
        target.active = match target.hash == active.revision {
            true => active.clone(),
            // A group's status names the texts together with the images.
            false => Arc::new(ActiveBoundaries { revision: target.hash.clone(), ..(**active).clone() }),
        };
        let found = stable_before(&sorted, object);
        let unjudged = unjudged_between(&sorted, found, object);
        let (stable, unreadable_stable) = match found.map(&parsed) {
            Some(Ok(stable)) => (Some(stable), None),
            Some(Err(unreadable)) => (None, Some(unreadable)),
            None => (None, None),
        };
        // Groups that have what was complete in between would all leave it at once.
        let is_return_doubtful = stable.as_ref().is_some_and(|stable| stable.has_content_of(&target))
            && may_come_from_another(&sorted, object, !unjudged.is_empty());
        let stable = stable.filter(|_| !is_return_doubtful);
        // Groups that have the target do not lose it because their predecessor cannot be read.
        let is_over = status.phase == Some(RolloutPhase::Complete);
        let stable_problem = unreadable_stable.filter(|_| !is_over).map(|unreadable| {
            format!("groups would return to the BoundariesRevision {unreadable}; {UNREADABLE_REMEDY}")
        });
        target.is_restored = stable.is_none() && stable_problem.is_none() && target.number != 1;
        let order_problem = match unverified_stop(revisions, object) {
            Some(name) => Some(unverified_order(&name)),
            // Nothing returns, and an order to stop must not begin the waves.
            None => (target.is_restored && object.spec.orders.aborted).then(|| abort_without_history(&target.name)),
        };
        let has_returned = matches!(status.phase, Some(RolloutPhase::Returning | RolloutPhase::Aborted));
        let order_problem = order_problem.filter(|_| !is_over && !has_returned);
        let order_problem = order_problem.or_else(|| is_overtaken.then(|| DELETED_REVISION.to_owned()));
        let (mut stored, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for revision in &sorted {
            match parsed(revision) {
                Ok(revision) => _ = stored.insert(revision.hash.clone(), revision),
                Err(why) => _ = unreadable.insert(revision.spec.hash.clone(), why),
            }
        }
        stored.insert(target.hash.clone(), target.clone());
        Some(Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            created: object.metadata.creation_timestamp.as_ref().map(|at| at.0),
            delay: policy.delay_in(cluster),
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            superseded: superseded_by(object, &sorted),
            closed_waves: ClosedWaves::default(),
            config_problem: match &active.source {
                BoundariesSource::LastKnownGood(why) => Some(why.clone()),
                _ => policy_problem.clone().or_else(|| stable_problem.clone()).or(order_problem),
            },
            target,
            stable,
            is_return_doubtful,
            unjudged,
            stored,
            unreadable,
            unverified: unverified_names(revisions),
            stable_problem,
            policy_problem,
            policy,
            is_retained_policy,
            policy_text: object.spec.data.get(ROLLOUT_KEY).cloned(),
            orders: object.spec.orders.clone(),
            status,
        })
    }

    /// The rollout that a content of the live ConfigMap begins, or has begun. `before` is the content that is active
    /// until then.
    pub(crate) fn of_content(
        revisions: &[BoundariesRevision],
        before: Option<&BTreeMap<String, String>>,
        data: &BTreeMap<String, String>,
        active: &Arc<ActiveBoundaries>,
        cluster: Option<&str>,
    ) -> Option<Self> {
        let mut all = revisions.to_vec();
        let (current, history) = (Current { data, from: RevisionSource::default() }, History::default());
        while let Some(HistoryWrite::Create(missing)) = next_write(&all, before, &current, &history, "") {
            all.push(*missing);
        }
        Self::new(&all, active, None, cluster)
    }

    /// The same with the lock of the ConfigMap, which keeps it from every further group. It is not the lock of each group,
    /// which its wave would not wait for.
    pub(crate) fn with_lock(mut self, lock: ConfigMapLock) -> Self {
        let name = annotation::LOCK_UPGRADES;
        self.config_problem = match lock {
            ConfigMapLock::None => self.config_problem,
            ConfigMapLock::Present => Some(format!("the ConfigMap has the annotation {name}; remove it to continue")),
            ConfigMapLock::Deleted => Some(format!(
                "the ConfigMap had the annotation {name} when it was deleted; create it again without the annotation to continue"
            )),
        };
        self
    }

    /// The phase; `Assessing` before anything is recorded.
    pub(crate) fn phase(&self) -> RolloutPhase {
        self.status.phase.unwrap_or(RolloutPhase::Assessing)
    }

    /// When the rollout of the target began, if that is recorded.
    pub(crate) fn begun(&self) -> Option<Timestamp> {
        begun(&self.status)
    }

    /// Whether a user resumed the rollout after it had halted. An order of before its status was lost does not count.
    pub(crate) fn is_resumed(&self) -> bool {
        let processed = self.status.retries.unwrap_or_default();
        match self.phase() {
            RolloutPhase::Halted => self.orders.retries > processed,
            _ => processed > 0,
        }
    }

    /// The target as messages for tenants name it: with its release, if the ConfigMap names one.
    pub(super) fn target_with_release(&self) -> String {
        match &self.policy.release {
            Some(release) => format!("{} (release {release})", self.target.name),
            None => self.target.name.clone(),
        }
    }

    /// Whether groups switch to the target without waves: it is the first revision, or it has the content that was
    /// complete before, which makes it a return. A predecessor that a user deleted changes nothing.
    pub(crate) fn is_return(&self) -> bool {
        match &self.stable {
            Some(stable) => stable.has_content_of(&self.target),
            None => self.target.number == 1 && self.status.stable.is_none(),
        }
    }

    /// Whether nothing stored is known to be good: all revisions before the target were deleted, or the return is doubtful.
    pub(crate) fn is_history_lost(&self) -> bool {
        self.stable.is_none() && !self.is_return()
    }

    /// Whether the target differs from what was complete before only in the images that aliases resolve to.
    pub(crate) fn is_image_change(&self) -> bool {
        self.stable.as_ref().is_some_and(|stable| stable.texts == self.target.texts) && !self.is_return()
    }

    /// Whether groups return from the target, or have returned.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self.phase(), RolloutPhase::Returning | RolloutPhase::Aborted)
    }

    /// Whether groups can return from the target to what was complete before.
    pub(crate) fn can_return(&self) -> bool {
        self.stable.is_some() && !self.is_return()
    }

    /// The policy that continues when the ConfigMap loses the key `rollout` and a user deletes the target's object. `None`
    /// when all groups have switched, or when the target was stored without a policy.
    pub(crate) fn policy_under_way(&self) -> Option<PolicyUnderWay> {
        let text = self.policy_text.clone().filter(|_| self.phase() != RolloutPhase::Complete)?;
        Some(PolicyUnderWay { name: self.target.name.clone(), uid: self.uid.clone(), text })
    }

    /// Whether a user deleted the target's object before all groups had switched to it.
    pub(crate) fn is_lost_in(&self, stored: &[BoundariesRevision]) -> bool {
        self.policy_under_way().is_some_and(|policy| policy.is_lost_in(stored))
    }

    /// Whether the target is the newest stored revision. It is not when a user deleted that one, and an older one has
    /// the same texts.
    pub(crate) fn is_newest(&self, stored: &[BoundariesRevision]) -> bool {
        sorted(stored).last().is_some_and(|newest| newest.metadata.name.as_ref() == Some(&self.target.name))
    }

    /// Whether a user deleted the newest stored revision, and an older one with the same texts stands for it. What that one
    /// has recorded is about a rollout that ended long ago.
    pub(crate) fn is_overtaken_in(&self, stored: &[BoundariesRevision]) -> bool {
        let sorted = sorted(stored);
        let object = sorted.iter().find(|revision| revision.metadata.name.as_ref() == Some(&self.target.name));
        object.is_some_and(|object| is_overtaken(object, &sorted))
    }

    /// What a user does about a target that was aborted.
    pub(crate) fn remedy_of_return(&self) -> &'static str {
        match self.is_image_change() {
            true => "name an AMI in the ConfigMap, or wait for the next image of AWS",
            false => "revert the ConfigMap",
        }
    }

    /// The state of the wave at `index`. One that was open before the policy was edited waits for a wave that is before it now.
    /// When the rollout is complete, all have passed, those included that came later.
    pub(crate) fn wave_state(&self, index: usize) -> WaveState {
        if self.phase() == RolloutPhase::Complete {
            return WaveState::Passed;
        }
        let recorded = |wave: &Wave| {
            let found = self.status.waves.iter().find(|status| status.name == wave.name);
            found.and_then(|status| status.state).unwrap_or_default()
        };
        let waves = &self.policy.waves;
        match waves.get(index) {
            Some(wave) if waves[..index].iter().all(|before| recorded(before) == WaveState::Passed) => recorded(wave),
            Some(_) | None => WaveState::Waiting,
        }
    }

    /// When the last wave of a complete rollout opened. Waves that the policy has named since then count as opened with it, so
    /// that an edit of the waves ends no deferral.
    pub(super) fn opened_before_end(&self) -> Option<Timestamp> {
        let opened = |wave: &WaveStatus| wave.opened.as_deref()?.parse().ok();
        let latest = self.status.waves.iter().filter_map(opened).max();
        latest.filter(|_| self.phase() == RolloutPhase::Complete)
    }

    /// The index of the wave that opens next; the last one when all are open.
    pub(crate) fn next_wave(&self) -> usize {
        let count = self.policy.waves.len();
        (0..count).find(|index| self.wave_state(*index) == WaveState::Waiting).unwrap_or(count - 1)
    }

    /// The index of the wave with this name.
    pub(crate) fn wave_index(&self, name: Option<&str>) -> Option<usize> {
        self.policy.waves.iter().position(|wave| Some(wave.name.as_str()) == name)
    }

    /// Whether users ordered not to wait for the wave.
    pub(crate) fn is_skipped(&self, wave: &str) -> bool {
        self.orders.skipped.iter().any(|name| name == wave || name == "*")
    }
}

/// The policy that a revision keeps after the key `rollout` was removed, and why it cannot be read. Without the key, a change
/// under way would reach every group at once.
fn retained_policy(object: &BoundariesRevision) -> Option<(Arc<RolloutPolicy>, Option<String>)> {
    if !retains_policy(object) {
        return None;
    }
    match kept_policy(object) {
        Ok(policy) => Some((policy, None)),
        Err(error) => Some((empty_policy()?, Some(unreadable_policy(object, &error)))),
    }
}

/// Whether the rollout of a newer revision has begun. One that has not begun was replaced in the ConfigMap before that, and
/// ends no other rollout.
fn is_overtaken(object: &BoundariesRevision, sorted: &[&BoundariesRevision]) -> bool {
    sorted.iter().any(|revision| revision.spec.number > object.spec.number && phase_of(revision).is_some())
}

/// Why no group switches to what an older revision has as well.
const DELETED_REVISION: &str =
    "the BoundariesRevision of this content was deleted; the controller stores it again when the ConfigMap is valid";

/// The older revisions whose rollout was under way when the target came, newest first.
fn superseded_by(target: &BoundariesRevision, sorted: &[&BoundariesRevision]) -> Vec<Superseded> {
    let older = sorted.iter().rev().filter(|revision| revision.spec.number < target.spec.number);
    let was_under_way = |revision: &&&BoundariesRevision| {
        let is_unstarted = || !was_complete(revision) && !is_recorded_stable(revision, target);
        phase_of(revision).map_or_else(is_unstarted, |phase| phase.is_under_way() || is_ordered_back(revision))
    };
    let ended = |revision: &&BoundariesRevision| {
        let metadata = &revision.metadata;
        // What users or failures reverted is not forgotten.
        let phase = if is_aborted(revision) { RolloutPhase::Aborted } else { RolloutPhase::Superseded };
        Some(Superseded { name: metadata.name.clone()?, resource_version: metadata.resource_version.clone()?, phase })
    };
    older.filter(was_under_way).filter_map(ended).collect()
}

/// The policy that a revision was stored with.
fn kept_policy(revision: &BoundariesRevision) -> Result<Arc<RolloutPolicy>, String> {
    let text = revision.spec.data.get(ROLLOUT_KEY).map_or("", String::as_str);
    let parsed = parse_policy(text).map_err(|error| error.to_string())?;
    parsed.ok_or_else(|| "the key is empty".to_owned())
}

/// A policy of one wave, for a rollout that waits because its own policy cannot be read.
fn empty_policy() -> Option<Arc<RolloutPolicy>> {
    parse_policy("{}").ok().flatten()
}

fn parse_policy(text: &str) -> Result<Option<Arc<RolloutPolicy>>, ConfigErrors> {
    let data = BTreeMap::from([(ROLLOUT_KEY.to_owned(), text.to_owned())]);
    Ok(Boundaries::parse(&data)?.0.rollout)
}

/// The content of a revision. Its policy is not part of it: only that of the target counts.
fn parse(revision: &BoundariesRevision) -> Result<Arc<ActiveBoundaries>, ConfigErrors> {
    let mut data = revision.spec.data.clone();
    data.remove(ROLLOUT_KEY);
    let (boundaries, _) = Boundaries::parse(&data)?;
    let revision = revision.spec.hash.clone();
    let source = BoundariesSource::Live;
    Ok(Arc::new(ActiveBoundaries { boundaries: Some(Arc::new(boundaries)), revision, source, warnings: vec![] }))
}

/// What to do about a revision that cannot be parsed.
const UNREADABLE_REMEDY: &str =
    "run the release of the controller that stored it, or delete it if no group has to return to it";

fn unreadable(revision: &BoundariesRevision, error: &ConfigErrors) -> String {
    let name = revision.metadata.name.as_deref().unwrap_or_default();
    format!("{name}, which this release cannot read ({})", shorten(&error.to_string(), 300))
}

fn unverified_order(name: &str) -> String {
    format!(
        "a user stopped the rollout of the same content in {name}, of which this release cannot tell who stored it; correct the ConfigMap, or to continue, delete {name}"
    )
}

fn abort_without_history(name: &str) -> String {
    format!(
        "a user aborted {name}, and no earlier BoundariesRevision is stored to which groups could return; correct the ConfigMap, or continue: instance-manager rollout resume {name}"
    )
}

fn unreadable_policy(revision: &BoundariesRevision, error: &str) -> String {
    let name = revision.metadata.name.as_deref().unwrap_or_default();
    format!(
        "the key rollout was removed from the ConfigMap, and this release cannot read the policy that {name} was stored with ({}); put the key back into the ConfigMap",
        shorten(error, 300)
    )
}
