//! The input of a rollout's decisions about one group.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::impact::RevisionImpact;
use super::view::{RolloutEnd, RolloutView, StoredRevision};
use crate::api::names::condition;
use crate::api::{Condition, InstanceGroupStatus, NodeCounts, RolloutRecord, rfc3339};
use crate::boundaries::Wave;
use crate::boundaries::selector::AnnotationSelector;
use crate::plan::StalledReason;
use crate::util::digest::sha256_hex;
use crate::util::recorded_time;

/// One group in a rollout, from the caches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView<'a> {
    /// `namespace/name`.
    pub key: &'a str,
    /// The [`uid_hash`] of the InstanceGroup, which decides whether a wave with a percentage selects it. One that was created
    /// again is another group.
    pub uid_hash: i64,
    /// Generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The group's status.
    pub status: &'a InstanceGroupStatus,
    /// The group's annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// Name of its Namespace.
    pub namespace: &'a str,
    /// Annotations of its Namespace.
    pub namespace_annotations: &'a BTreeMap<String, String>,
    /// Labels and annotations of its Namespace; an annotation wins over a label of its name.
    pub namespace_texts: &'a BTreeMap<String, String>,
    /// Describes the lock that applies to the group, if there is one.
    pub lock: Option<&'a str>,
    /// The impact of the target on the group.
    pub forecast: &'a RevisionImpact,
    /// Whether a record on one of its nodes shows that the group replaces it.
    pub has_marked_nodes: bool,
    /// Why its blocked drain yields to other groups, if it does.
    pub yielding: Option<&'a str>,
    /// Whether it has nodes, and no record of what was made of it: a backup brought it back without its status.
    pub has_lost_status: bool,
}

impl GroupView<'_> {
    /// The record of the last revision that it switched to.
    pub(crate) fn record(&self) -> Option<&RolloutRecord> {
        self.status.rollout.as_ref()
    }

    /// Whether it switched to this content by a rollout. One that came back has several names, and one that was deleted
    /// with all others may be stored under another name.
    pub(crate) fn has_switched_to(&self, target: &StoredRevision) -> bool {
        self.has(&target.hash) && self.record().is_some_and(|record| target.is_named_by(record))
    }

    /// Whether it switched to this revision by the rollout, and not all its nodes run it yet.
    pub(crate) fn is_switching(&self, own: &StoredRevision) -> bool {
        self.has_switched_to(own) && !self.is_settled()
    }

    /// Whether nodes of it are replaced because it switched to this revision by the rollout, and not for an edit of its
    /// tenant.
    pub(crate) fn rotates_for_revision(&self, own: &StoredRevision) -> bool {
        let generation = self.record().and_then(|record| record.generation);
        self.is_switching(own) && generation == Some(self.generation)
    }

    /// Whether what it took last is a return: a content that was good before, from which it does not return again.
    pub(crate) fn is_return(&self) -> bool {
        self.record().is_some_and(|record| record.previous.is_none() && record.wave.is_none())
    }

    /// Whether it returns, and not all its nodes run what was good before: some of them still run the target, so that taking
    /// that again would seem to replace none.
    pub(crate) fn is_returning(&self, view: &RolloutView) -> bool {
        self.is_return() && self.recorded(view).is_some_and(|own| self.is_switching(own))
    }

    /// Whether the revision that it switched to was superseded before it was complete: nothing has proved it for other
    /// groups.
    pub(crate) fn is_unproven(&self, view: &RolloutView) -> bool {
        let is_unproven = |own: &StoredRevision| {
            let is_stable = view.stable.as_ref().is_none_or(|stable| stable.hash == own.hash);
            self.has_switched_to(own) && own.hash != view.target.hash && !own.is_complete && !is_stable
        };
        self.recorded(view).is_some_and(is_unproven)
    }

    /// Whether it replaces nodes for an unproven revision in its wave, or soaks with it: both continue with the target,
    /// if that replaces no node.
    pub(crate) fn keeps_its_wave(&self, view: &RolloutView) -> bool {
        self.is_unproven(view) && self.record().is_some_and(|record| record.wave.is_some())
    }

    /// Whether a content excludes its namespace, so that the group is not merged.
    pub(crate) fn is_excluded_by(&self, content: &StoredRevision) -> bool {
        content.active.excludes(self.namespace, self.namespace_annotations)
    }

    /// The stored content that its status names.
    pub(crate) fn recorded<'v>(&self, view: &'v RolloutView) -> Option<&'v StoredRevision> {
        view.stored.get(self.status.boundaries_revision.as_deref()?)
    }

    /// Since when a newer content than its own has been stored, as far as the history goes back. One that was aborted does
    /// not count.
    pub(crate) fn behind_since(&self, view: &RolloutView) -> Option<Timestamp> {
        let own = self.recorded(view)?;
        let is_newer =
            |stored: &&StoredRevision| stored.number > own.number && stored.stop != Some(RolloutEnd::Aborted);
        let since = view.stored.values().filter(is_newer).filter_map(|stored| stored.created).min()?;
        // Contents that left the group untouched are not recorded in its status.
        let pending = self.status.conditions.iter().find(|found| found.r#type == condition::ROLLOUT_PENDING);
        let pending = pending.filter(|found| found.is_true()).and_then(|found| found.last_transition_time.as_deref());
        Some(pending.and_then(|at| at.parse().ok()).map_or(since, |at: Timestamp| at.max(since)))
    }

    /// Whether no content has an effect on it: the one that it has and the target exclude its namespace.
    pub(crate) fn is_excluded(&self, view: &RolloutView) -> bool {
        let own = self.recorded(view).or(view.stable.as_ref()).unwrap_or(&view.target);
        self.is_excluded_by(own) && self.is_excluded_by(&view.target)
    }

    /// Whether it has a part in the rollout of the target: it is neither deleted nor excluded.
    pub(crate) fn has_part(&self, view: &RolloutView) -> bool {
        !self.is_deleting && !self.is_excluded(view)
    }

    /// Whether its status names this content.
    pub(crate) fn has(&self, hash: &str) -> bool {
        self.status.boundaries_revision.as_deref() == Some(hash)
    }

    /// Whether no node was replaced for the revision that it switched to last, and none is about to be.
    pub(crate) fn has_replaced_none(&self) -> bool {
        let is_untouched = |nodes: &NodeCounts| nodes.updated == 0 && nodes.draining == 0;
        // EKS takes no update of a managed node group back.
        let has_update = self.status.update_of.is_some();
        !has_update && !self.has_marked_nodes && self.status.nodes.as_ref().is_none_or(is_untouched)
    }

    /// The record of a failure of this revision on it. One without a hash is of an earlier release.
    pub(crate) fn refused(&self, target: &StoredRevision) -> Option<&RolloutRecord> {
        let is_same = |record: &&RolloutRecord| {
            record.refused.as_ref() == Some(&target.name)
                && record.refused_hash.as_ref().is_none_or(|hash| *hash == target.hash)
        };
        self.record().filter(is_same)
    }

    /// Whether all its nodes run the revision that it switched to last.
    pub(crate) fn is_settled(&self) -> bool {
        self.record().is_some_and(|record| record.settled.is_some())
    }

    /// The index of the wave that it is in: the one in which it switched to the target, or else the first that selects
    /// it.
    pub(crate) fn wave(&self, view: &RolloutView) -> usize {
        let waves = &view.policy.waves;
        let recorded_wave =
            self.record().filter(|_| self.has_switched_to(&view.target)).and_then(|record| record.wave.as_deref());
        let position = |name: &str| waves.iter().position(|wave| wave.name == name);
        recorded_wave.and_then(position).unwrap_or_else(|| self.selected_wave(view))
    }

    fn selected_wave(&self, view: &RolloutView) -> usize {
        let waves = &view.policy.waves;
        let last = waves.len() - 1;
        let selects = |wave: &Wave| {
            let cut = view.status.waves.iter().find(|status| status.name == wave.name).and_then(|status| status.cut);
            self.is_selected(wave) && (wave.percent.is_none() || cut.is_some_and(|cut| self.uid_hash <= cut))
        };
        waves[..last].iter().position(selects).unwrap_or(last)
    }

    /// Whether the selectors of a wave match the group, whatever its percentage.
    pub(crate) fn is_selected(&self, wave: &Wave) -> bool {
        let matches =
            |selector: &Option<AnnotationSelector>, texts| selector.as_ref().is_none_or(|found| found.matches(texts));
        matches(&wave.namespaces, self.namespace_texts) && matches(&wave.groups, self.annotations)
    }

    /// Whether the group is blocked for this reason already, with the content that it has: a mistake of its tenant does not
    /// halt the rollout.
    pub(crate) fn is_blocked_by(&self, reason: &str) -> bool {
        self.status.conditions.iter().any(|found| {
            [condition::STALLED, condition::FIELDS_REJECTED].contains(&found.r#type.as_str())
                && found.is_true()
                && found.has_reason(reason)
        })
    }

    /// Problems that begin at this time or later count as failures of the revision that the group switches to now.
    pub(crate) fn since(&self, now: Timestamp) -> Timestamp {
        let has_begun_now = |found: &Condition| {
            let begun: Option<Timestamp> = found.last_transition_time.as_deref().and_then(|text| text.parse().ok());
            found.is_true() && begun.is_some_and(|begun| begun.as_second() == now.as_second())
        };
        let is_same_second = self.status.conditions.iter().any(has_begun_now);
        if is_same_second { now + SignedDuration::from_secs(1) } else { now }
    }

    /// Whether all its nodes ran the revision, and so few are not Ready that chance explains it: a reclaimed Spot Instance
    /// or a broken machine.
    fn is_within_node_loss_tolerance(&self) -> bool {
        let was_settled = self.record().is_some_and(|record| record.settled.is_some());
        was_settled
            && self.status.nodes.as_ref().is_some_and(|nodes| {
                let lost = nodes.desired - nodes.ready;
                lost < nodes.desired && (lost <= 1 || lost * 100 <= nodes.desired * NODE_LOSS_TOLERANCE_PERCENT)
            })
    }

    /// Why the revision that the group switched to fails on it; `None` while it does not. A problem that began before,
    /// or with a later edit of its tenant, is not the revision's.
    pub(crate) fn failure(&self, now: Timestamp, delay: SignedDuration) -> Option<Failure> {
        let record = self.record()?;
        let since: Timestamp = record.since.as_deref()?.parse().ok()?;
        if record.generation != Some(self.generation) {
            return None;
        }
        self.status.conditions.iter().filter(|found| found.is_true()).find_map(|found| {
            let reason = condition::current_reason(found.reason.as_deref().unwrap_or_default());
            let begun: Timestamp = found.last_transition_time.as_deref()?.parse().ok()?;
            let fails = match found.r#type.as_str() {
                condition::ROTATION_HALTED => true,
                condition::STALLED => {
                    let reason = StalledReason::of_name(reason).filter(|reason| reason.is_failure_of_revision());
                    let is_chance =
                        reason == Some(StalledReason::NodesNotReady) && self.is_within_node_loss_tolerance();
                    reason.is_some() && !is_chance && now.duration_since(begun) >= delay
                }
                _ => false,
            };
            let message = found.message.as_deref().unwrap_or_default();
            // The API server's times have whole seconds. One that lies ahead was written before the clock went back.
            let begun_after = (since.as_second()..=now.as_second()).contains(&begun.as_second());
            (fails && begun_after).then(|| Failure { begun, text: format!("{reason}: {message}") })
        })
    }

    /// Whether all its nodes run a revision whose rollout, by its status, began only after this problem. A user deleted that
    /// revision, or its status, after it was complete: a problem from before is no proof against it.
    /// A beginning that lies ahead was recorded before the clock went back, and proves nothing.
    pub(crate) fn had_before(&self, failure: &Failure, begun: Option<Timestamp>, now: Timestamp) -> bool {
        self.is_settled() && begun.is_none_or(|begun| begun <= now && failure.begun.as_second() < begun.as_second())
    }
}

/// A problem that counts as a failure of the revision that a group switched to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// When it began.
    pub begun: Timestamp,
    /// The reason and the message of its condition.
    pub text: String,
}

/// The record of a switch with the present time as its time, if that one lies ahead, because the clock went back after it.
/// A problem that begins now would count as older than the switch for good. `None` when there is nothing to correct.
pub(crate) fn corrected_record(status: &InstanceGroupStatus, now: Timestamp) -> Option<RolloutRecord> {
    let record = status.rollout.as_ref()?;
    let since: Timestamp = record.since.as_deref()?.parse().ok()?;
    // By one second it may lie ahead with a right clock, see `GroupView::since`.
    let is_ahead = since.as_second() > now.as_second() + 1;
    // A problem from before the switch, whose time lies ahead as well, would count as one that began after it.
    let began_before = |found: &Condition| {
        let begun: Option<Timestamp> = found.last_transition_time.as_deref().and_then(|text| text.parse().ok());
        let is_failure = [condition::ROTATION_HALTED, condition::STALLED].contains(&found.r#type.as_str());
        is_failure && found.is_true() && begun.is_some_and(|begun| now < begun && begun.as_second() < since.as_second())
    };
    let is_corrected = is_ahead && !status.conditions.iter().any(began_before);
    is_corrected.then(|| RolloutRecord { since: Some(rfc3339(now)), ..record.clone() })
}

/// The conditions of a group, with the present time as that of a problem whose time lies ahead, because the clock went back
/// after it. It would not count as a failure until that time comes, and its wave could pass before. All nodes ran the
/// revision, so the problem began after the switch. Of another group that is not known, see `corrected_record`.
pub(crate) fn corrected_conditions(status: &InstanceGroupStatus, now: Timestamp) -> Vec<Condition> {
    let is_settled = status.rollout.as_ref().is_some_and(|record| record.settled.is_some());
    let is_ahead = |found: &Condition| {
        let begun: Option<Timestamp> = found.last_transition_time.as_deref().and_then(|text| text.parse().ok());
        let is_failure = [condition::ROTATION_HALTED, condition::STALLED].contains(&found.r#type.as_str());
        let is_ahead = begun.is_some_and(|begun| recorded_time::is_ahead(begun, SignedDuration::ZERO, now));
        is_failure && found.is_true() && is_ahead
    };
    let mut conditions = status.conditions.clone();
    for found in conditions.iter_mut().filter(|found| is_settled && is_ahead(found)) {
        found.last_transition_time = Some(rfc3339(now));
    }
    conditions
}

/// Which part of the nodes a group may lose during the soak without the revision being to blame.
const NODE_LOSS_TOLERANCE_PERCENT: i64 = 5;

/// The first 32 bits of the hash of a UID. The same groups are early in each rollout, so that the others are not disturbed.
pub(crate) fn uid_hash(uid: &str) -> i64 {
    let digest = sha256_hex(uid);
    i64::from_str_radix(&digest[..8], 16).unwrap_or_default()
}

/// What blocks a drain of the group now.
pub(crate) fn drain_blocker(status: &InstanceGroupStatus) -> Option<String> {
    let is_blocked = |found: &&Condition| found.r#type == condition::DRAIN_BLOCKED && found.is_true();
    let found = status.conditions.iter().find(is_blocked)?;
    Some(found.message.clone().unwrap_or_default())
}
