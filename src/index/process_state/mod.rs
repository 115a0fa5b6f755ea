//! State that one process keeps in memory between reconciles. No safety check depends on it: after a restart it is
//! empty, and at worst a wait starts again. Waits that decide when a node is given up or drained again are on record: in
//! `status.joining`, on the Node, and in the VolumeAttachments.

mod clocks;
mod reported_failures;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use self::reported_failures::{FailedObservation, UnwrittenStatus};
use crate::api::NodeDemand;
use crate::index::cache_state::OwnWrites;
use crate::index::clock_jumps::ClockJumps;
use crate::index::denied_calls::{DeniedAttempt, DeniedCall, DeniedCalls};
use crate::index::denied_rotations::{DeniedRotations, Permission, PermissionAnswer};
use crate::index::drain_clocks::DrainClocks;
use crate::index::failure_streak::{FailureStreak, PassResult};
use crate::index::image_aliases::ImageAliases;
use crate::index::lost_instances::LostInstances;
use crate::index::refused_tags::RefusedTags;
use crate::index::rejected_changes::RejectedChanges;
use crate::index::seen_names::SeenNames;
use crate::index::write_memory::WriteMemory;
use crate::plan::{PersistentFailure, Write};
use crate::util::lookup::Lookup;

/// Clocks and counters by group and by node.
#[derive(Default)]
pub(crate) struct ProcessState {
    inner: Mutex<TrackedState>,
    /// The image aliases that groups use.
    pub(crate) image_aliases: ImageAliases,
}

/// What the process keeps of groups, nodes and clusters.
#[derive(Default)]
struct TrackedState {
    groups: HashMap<String, GroupState>,
    nodes: HashMap<String, DrainClocks>,
    clock_jumps: ClockJumps,
    /// When a termination was last sent, by instance: one that lowers the desired capacity must not follow at once. If
    /// it lowered that itself, the record on the Node says the same to the next process.
    terminations: HashMap<String, Timestamp>,
    /// When the access entries of a cluster could last not be read, to explain missing nodes.
    unread_access_entries: HashMap<String, Timestamp>,
    /// Writes that belong to no group: role labels of nodes, and the stored boundaries.
    other_writes: WriteMemory,
    /// Groups that wait for a missing permission.
    denied_calls: DeniedCalls,
    /// Rotations that are blocked because a call was denied.
    denied_rotations: DeniedRotations,
    /// Changes of nodes in place that the API server rejected.
    rejected_changes: RejectedChanges,
}

#[derive(Default, Clone)]
struct GroupState {
    /// Since when fewer instances than desired have been running. It decides when a failed launch is reported, and when a
    /// smaller `maxSize` stops waiting for launches. A restart makes both later, which costs no node.
    shortage_since: Option<Timestamp>,
    /// Since when the warm pool has had fewer instances than AWS keeps in it. It decides when a failed launch is looked
    /// for.
    warm_pool_short_since: Option<Timestamp>,
    /// Since when instances of the warm pool have been waited for. It decides when the wait is reported: no node is
    /// replaced before or after.
    warm_pool_wait_since: Option<Timestamp>,
    /// Since when EKS has rejected the role of the group.
    role_rejected_since: Option<Timestamp>,
    /// Since when other AWS services do not know the group's role or instance profile. It only decides how it is logged.
    profile_unknown_since: Option<Timestamp>,
    /// Since when AWS has not answered reads of the group.
    unobserved_since: Option<Timestamp>,
    /// Since when EKS has been working on the group's node groups while nodes are being drained.
    paused_since: Option<Timestamp>,
    /// Since when EKS could not create the group's node group. It decides when it is created again.
    creation_failed_since: Option<Timestamp>,
    /// When the last failed launch began, and whether the launch template version was read again for it.
    failed_launch: Option<(Timestamp, bool)>,
    /// While the group cannot be read. It only decides when the failure is reported.
    failed_observation: Option<FailedObservation>,
    /// While the API server refuses the group's status.
    unwritten_status: Option<UnwrittenStatus>,
    /// What AWS showed of the attributes of the group.
    seen_names: SeenNames,
    /// Number of failures since the last success.
    failures: u32,
    /// Until when the group waits because AWS throttled its last pass.
    throttled_until: Option<Timestamp>,
    /// This controller's own writes of the object.
    own_writes: OwnWrites,
    /// The group is changing, so cached reads must be recent.
    progressing: bool,
    /// Derived names whose resource belongs to another owner.
    name_conflicts: BTreeSet<String>,
    /// The tags of the group's role were read, and do not allow the tag of the region.
    role_region_checked: bool,
    /// The role that the controller created is no longer used, and is kept.
    unused_role_kept: bool,
    /// When AWS last denied tagging adopted resources.
    tag_denied_at: Option<Timestamp>,
    /// Tags that EKS refused.
    refused_tags: RefusedTags,
    /// The UID of an object whose finalizer was removed. The watch may return the object a little longer.
    finalized_uid: Option<String>,
    /// What was written to the attributes of the group.
    writes: WriteMemory,
    /// Passes that AWS or Kubernetes refused.
    failure_streak: FailureStreak,
    /// What the last pass could not write because it is refused each time, and what no node depends on.
    failing_writes: BTreeSet<Write>,
    /// Instances that leave the group.
    lost_instances: LostInstances,
    /// When a rotation last took a node out of service, so that Auto Scaling launches another.
    last_node_removal: Lookup<Timestamp>,
    /// What the merged spec asks for, and a digest of what was merged.
    demand: Option<(u64, Arc<NodeDemand>)>,
}

impl ProcessState {
    fn with<T>(&self, update: impl FnOnce(&mut TrackedState) -> T) -> T {
        update(&mut self.inner.lock().expect("lock is not poisoned"))
    }

    fn group<T>(&self, group: &str, update: impl FnOnce(&mut GroupState) -> T) -> T {
        self.with(|inner| update(inner.groups.entry(group.into()).or_default()))
    }

    /// See [`SeenNames::observe`].
    pub(crate) fn observe_names(
        &self,
        group: &str,
        shown: BTreeSet<String>,
        dropped: BTreeSet<String>,
        delay: SignedDuration,
        now: Timestamp,
    ) -> BTreeSet<String> {
        self.group(group, |g| g.seen_names.observe(shown, dropped, delay, now))
    }

    /// Records a failure; returns the number of consecutive failures.
    pub(crate) fn record_failure(&self, group: &str) -> u32 {
        self.group(group, |g| {
            g.failures = g.failures.saturating_add(1);
            g.failures
        })
    }

    /// Resets the number of consecutive failures.
    pub(crate) fn reset_failures(&self, group: &str) {
        self.group(group, |g| g.failures = 0);
    }

    /// This controller's own writes of the object, to which the cached object is compared.
    pub(crate) fn own_writes<T>(&self, group: &str, update: impl FnOnce(&mut OwnWrites) -> T) -> T {
        self.group(group, |g| update(&mut g.own_writes))
    }

    /// Whether the group is changing.
    pub(crate) fn is_progressing(&self, group: &str) -> bool {
        self.group(group, |g| g.progressing)
    }

    /// Records whether the group is changing.
    pub(crate) fn set_progressing(&self, group: &str, progressing: bool) {
        self.group(group, |g| g.progressing = progressing);
    }

    /// Whether a resource with one of these names belongs to another owner.
    pub(crate) fn has_name_conflict(&self, group: &str, names: &[&str]) -> bool {
        self.group(group, |g| names.iter().any(|name| g.name_conflicts.contains(*name)))
    }

    /// How many names are known to belong to another owner.
    pub(crate) fn name_conflicts(&self, group: &str) -> usize {
        self.group(group, |g| g.name_conflicts.len())
    }

    /// Records that the resource with this name belongs to another owner.
    pub(crate) fn set_name_conflict(&self, group: &str, name: &str) {
        self.group(group, |g| _ = g.name_conflicts.insert(name.to_owned()));
    }

    /// Whether the unused role of the group is known to be kept.
    pub(crate) fn is_unused_role_kept(&self, group: &str) -> bool {
        self.group(group, |g| g.unused_role_kept)
    }

    /// Records that the unused role of the group is kept.
    pub(crate) fn set_unused_role_kept(&self, group: &str, is_kept: bool) {
        self.group(group, |g| g.unused_role_kept = is_kept);
    }

    /// Whether this process need not read the tags of the group's role for the region.
    pub(crate) fn is_role_region_checked(&self, group: &str) -> bool {
        self.group(group, |g| g.role_region_checked)
    }

    /// Records that the tags of the group's role do not allow the tag of the region.
    pub(crate) fn set_role_region_checked(&self, group: &str) {
        self.group(group, |g| g.role_region_checked = true);
    }

    /// The jumps of the wall clock.
    pub(crate) fn clock_jumps<T>(&self, update: impl FnOnce(&mut ClockJumps) -> T) -> T {
        self.with(|inner| update(&mut inner.clock_jumps))
    }

    /// Whether the wall clock jumped forward less than `limit` ago. A wait of this length that seems to be over may
    /// then have just begun.
    pub(crate) fn has_clock_jumped_within(&self, limit: SignedDuration) -> bool {
        let since = self.clock_jumps(|clocks| clocks.since_jump(Instant::now()));
        since.is_some_and(|since| since < limit.unsigned_abs())
    }

    /// The times of a node's drain.
    pub(crate) fn drain_clocks<T>(&self, node: &str, update: impl FnOnce(&mut DrainClocks) -> T) -> T {
        self.with(|inner| update(inner.nodes.entry(node.into()).or_default()))
    }

    /// When a termination of the instance was last sent.
    pub(crate) fn termination_sent_at(&self, instance: &str) -> Option<Timestamp> {
        self.with(|inner| inner.terminations.get(instance).copied())
    }

    /// Records a termination of the instance, so that none that lowers the desired capacity is sent within `interval`.
    pub(crate) fn record_termination(&self, instance: &str, interval: SignedDuration, now: Timestamp) {
        self.with(|inner| {
            inner.terminations.retain(|_, at| now.duration_since(*at) < interval);
            inner.terminations.insert(instance.into(), now);
        });
    }

    /// Forgets a termination that AWS rejected.
    pub(crate) fn forget_termination(&self, instance: &str) {
        self.with(|inner| inner.terminations.remove(instance));
    }

    /// Records that a group is deleted and its finalizer is removed.
    pub(crate) fn set_finalized(&self, group: &str, uid: &str) {
        self.with(|inner| {
            inner.groups.insert(group.into(), GroupState { finalized_uid: Some(uid.into()), ..Default::default() })
        });
    }

    /// Whether the finalizer of this object was removed. A new object of the same name has another UID.
    pub(crate) fn is_finalized(&self, group: &str, uid: Option<&str>) -> bool {
        self.group(group, |g| g.finalized_uid.is_some() && g.finalized_uid.as_deref() == uid)
    }

    /// The writes of a group, to find those without effect.
    pub(crate) fn group_writes<T>(&self, group: &str, update: impl FnOnce(&mut WriteMemory) -> T) -> T {
        self.group(group, |g| update(&mut g.writes))
    }

    /// Reads or updates what EKS refused of the group's tags.
    pub(crate) fn refused_tags<T>(&self, group: &str, update: impl FnOnce(&mut RefusedTags) -> T) -> T {
        self.group(group, |g| update(&mut g.refused_tags))
    }

    /// Writes to the group's attributes that were repeated without effect, or that are refused each time.
    pub(crate) fn ineffective_writes(&self, group: &str) -> BTreeSet<Write> {
        self.group(group, |g| g.writes.ineffective().into_iter().chain(g.failing_writes.iter().cloned()).collect())
    }

    /// Records what is refused each time, and what no node depends on.
    pub(crate) fn set_failing_writes(&self, group: &str, writes: impl Iterator<Item = Write>) {
        self.group(group, |g| g.failing_writes = writes.collect());
    }

    /// Records how a pass ended; `delay`: see [`FailureStreak::record`]. Returns whether it was refused for so long that a retry
    /// at once is of no use.
    pub(crate) fn record_pass(
        &self,
        group: &str,
        generation: i64,
        result: PassResult,
        delay: SignedDuration,
        now: Timestamp,
    ) -> bool {
        self.group(group, |g| {
            g.failure_streak.record(generation, result, delay, now);
            g.failure_streak.is_lasting()
        })
    }

    /// Whether the next refusal of the same lasts.
    pub(crate) fn is_nearly_lasting(&self, group: &str) -> bool {
        self.group(group, |g| g.failure_streak.is_nearly_lasting())
    }

    /// The changes of nodes in place that the API server rejected.
    pub(crate) fn rejected_changes<T>(&self, update: impl FnOnce(&mut RejectedChanges) -> T) -> T {
        self.with(|inner| update(&mut inner.rejected_changes))
    }

    /// The rotations that are blocked because a call was denied.
    pub(crate) fn denied_rotations<T>(&self, update: impl FnOnce(&mut DeniedRotations) -> T) -> T {
        self.with(|inner| update(&mut inner.denied_rotations))
    }

    /// Records an answer about a permission. Returns the groups whose rotation continues because of it.
    pub(crate) fn answer_permission(
        &self,
        permission: &Permission,
        answer: PermissionAnswer,
        now: Timestamp,
    ) -> Vec<String> {
        self.resume_denied_rotations(now, |rotations| rotations.answer(permission, answer, now))
    }

    /// Records the steps that a group got through. Returns the groups whose rotation continues because of it.
    pub(crate) fn record_success(&self, group: &str, steps: &BTreeSet<&'static str>, now: Timestamp) -> Vec<String> {
        self.resume_denied_rotations(now, |rotations| rotations.succeed(group, steps, now))
    }

    fn resume_denied_rotations(
        &self,
        now: Timestamp,
        update: impl FnOnce(&mut DeniedRotations) -> Vec<String>,
    ) -> Vec<String> {
        self.with(|inner| {
            let unblocked_groups = update(&mut inner.denied_rotations);
            for group in &unblocked_groups {
                inner.groups.entry(group.clone()).or_default().failure_streak.retry_now(now);
            }
            unblocked_groups
        })
    }

    /// What has been refused for long.
    pub(crate) fn persistent_failure(&self, group: &str, generation: i64, now: Timestamp) -> PersistentFailure {
        self.group(group, |g| g.failure_streak.lasting(generation, now))
    }

    /// Ends what a group waits for before it tries a call again, because a person asked for a reconcile.
    pub(crate) fn end_waits(&self, group: &str, now: Timestamp) {
        self.group(group, |g| {
            g.failure_streak.retry_now(now);
            g.tag_denied_at = None;
            g.refused_tags = RefusedTags::default();
            g.writes = WriteMemory::default();
            g.failing_writes.clear();
        });
        self.denied_calls(|denied_calls| denied_calls.remove(group));
    }

    /// What a group asks for; `merge` is only called when `inputs`, the digest of what is merged, is new.
    pub(crate) fn demand(&self, group: &str, inputs: u64, merge: impl FnOnce() -> NodeDemand) -> Arc<NodeDemand> {
        let known = self.group(group, |g| g.demand.clone());
        if let Some((_, demand)) = known.filter(|(known, _)| *known == inputs) {
            return demand;
        }
        let demand = Arc::new(merge());
        self.group(group, |g| g.demand = Some((inputs, demand.clone())));
        demand
    }

    /// The writes that belong to no group, to find those without effect.
    pub(crate) fn other_writes<T>(&self, update: impl FnOnce(&mut WriteMemory) -> T) -> T {
        self.with(|inner| update(&mut inner.other_writes))
    }

    /// When a rotation of the group last took a node out of service. A process that has just started does not know it.
    pub(crate) fn last_node_removal(&self, group: &str) -> Lookup<Timestamp> {
        self.group(group, |g| g.last_node_removal)
    }

    /// Records when a rotation of the group took a node out of service, or that none did.
    pub(crate) fn record_node_removal(&self, group: &str, removed_at: Option<Timestamp>) {
        self.group(group, |g| g.last_node_removal = removed_at.into());
    }

    /// The instances that leave a group.
    pub(crate) fn lost_instances<T>(&self, group: &str, update: impl FnOnce(&mut LostInstances) -> T) -> T {
        self.group(group, |g| update(&mut g.lost_instances))
    }

    /// The groups that wait for a missing permission.
    pub(crate) fn denied_calls<T>(&self, update: impl FnOnce(&mut DeniedCalls) -> T) -> T {
        self.with(|inner| update(&mut inner.denied_calls))
    }

    /// A call that is denied, and that the group does not try before its turn.
    pub(crate) fn call_in_backoff(&self, group: &str, attempt: &DeniedAttempt, now: Timestamp) -> Option<DeniedCall> {
        self.denied_calls(|denied_calls| denied_calls.call_in_backoff(group, attempt, now).cloned())
    }

    /// Forgets a deleted group.
    pub(crate) fn forget_group(&self, group: &str) {
        self.with(|inner| {
            inner.groups.remove(group);
            inner.denied_calls.remove(group);
            inner.denied_rotations.remove(group);
        });
    }

    /// Forgets a node that was deleted or uncordoned.
    pub(crate) fn forget_node(&self, node: &str) {
        self.with(|inner| inner.nodes.remove(node));
    }
}
