//! Input of a rotation: instances with their nodes, pods and records.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::aws::{Instance, InstanceState};
use crate::plan::{Drift, InPlaceChange, InPlaceRecord, PodRef};
use crate::util::recorded_time;

/// The taint with which the Cluster Autoscaler marks a node that it drains (kubernetes/autoscaler, `taints`). It does not
/// cordon the node unless its flag `--cordon-node-before-terminating` is set.
pub(crate) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The taint of a cordoned node, which the node lifecycle controller of Kubernetes sets.
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// How far ahead of the controller's clock the times in its records can be. The clocks of two processes differ less.
const MAX_TIME_AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// The disruption record in the annotation of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionRecord {
    /// UID of the InstanceGroup that drains the node.
    pub group: String,
    /// The launch template version that replaces the node's version.
    pub template_version: String,
    /// When the drain began.
    pub since: Timestamp,
    /// Whether the node was already cordoned, so that reverting the drain leaves it cordoned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned_before: bool,
    /// Whether the record's writer keeps the Cluster Autoscaler from the node, and lets it back with the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scale_down_disabled: bool,
    /// When a termination that lowers the desired capacity was last sent, so that no process repeats it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminated_at: Option<Timestamp>,
}

/// The surge record in the annotation of a Node: the group put the instance into standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SurgeRecord {
    /// UID of the InstanceGroup that put the instance into standby.
    pub group: String,
    /// The launch template version that replaces the node's version.
    pub template_version: String,
    /// When the record was written, just before EnterStandby.
    pub since: Timestamp,
}

/// The fields of a Node that rotations use.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Name of the Node.
    pub name: String,
    /// resourceVersion, for the update that cordons it.
    pub resource_version: String,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether it has ever been Ready.
    pub was_ready: bool,
    /// When the Ready condition last changed.
    pub ready_changed_at: Option<Timestamp>,
    /// The reason of its Ready condition while that is not True.
    pub ready_reason: Option<String>,
    /// Whether its kubelet stopped reporting: the node controller set the Ready condition to Unknown.
    pub kubelet_silent: bool,
    /// Whether it is cordoned, by the controller or by a user.
    pub cordoned: bool,
    /// When Kubernetes tainted it because it is cordoned, by the clock of the control plane.
    pub unschedulable_since: Option<Timestamp>,
    /// Whether the Cluster Autoscaler drains it: it terminates the instance, and lowers the desired capacity.
    pub is_removed_by_autoscaler: bool,
    /// Since when, from the value of the taint.
    pub autoscaler_since: Option<Timestamp>,
    /// Disruption record of this group or of another one.
    pub disruption: Option<DisruptionRecord>,
    /// Disruption record that belongs to no drain of this group, see [`NodeView::adopt_records`], or that stands for one which a
    /// client removed. The group takes the drain over or uncordons the node.
    pub orphaned_disruption: Option<DisruptionRecord>,
    /// When this process last sent a termination of its instance. Of one that keeps the desired capacity, the disruption record
    /// says nothing.
    pub termination_sent_at: Option<Timestamp>,
    /// Surge record of this group or of another one.
    pub surge: Option<SurgeRecord>,
    /// Until when a drain is not repeated that ran into its timeout or ended with another client's uncordon.
    pub drain_after: Option<Timestamp>,
    /// Whether pods are known to block its drain; the other nodes of the group are then drained first.
    pub drain_last: bool,
    /// The labels and taints that the controller gave it after it had joined.
    pub in_place: Option<InPlaceRecord>,
    /// The InstanceGroup in the node's labels, as `namespace/name`.
    pub labeled_group: Option<String>,
    /// The managed node group in its labels.
    pub nodegroup: Option<String>,
    /// The availability zone in its `providerID`.
    pub zone: Option<String>,
    /// When the Node was created, that is when it joined.
    pub created_at: Timestamp,
    /// Names of younger Nodes with the same providerID.
    pub duplicates: Vec<String>,
}

impl NodeView {
    /// Sorts out the records on the node of an instance that is in the scaling group of the InstanceGroup `uid`.
    ///
    /// AWS says that the instance is in this scaling group, and an instance is in one only. So no drain of another
    /// InstanceGroup wrote a record here: the instance came from that group, or the group was deleted or restored with another
    /// UID. Or the kubelet wrote the record, which may change annotations of its own Node. Such a record, and one of a time
    /// that the controller never writes, must not keep the node out of every rotation. A disruption record becomes
    /// [`NodeView::orphaned_disruption`], and a surge record becomes this group's.
    pub(crate) fn adopt_records(&mut self, uid: &str, now: Timestamp) {
        let is_ahead = |at: Timestamp| recorded_time::is_ahead(at, MAX_TIME_AHEAD, now);
        let is_foreign = |record: &DisruptionRecord| {
            record.group != uid || is_ahead(record.since) || record.terminated_at.is_some_and(is_ahead)
        };
        if self.disruption.as_ref().is_some_and(is_foreign) {
            self.orphaned_disruption = self.disruption.take();
        }
        self.surge = self.surge.take().filter(|record| !is_ahead(record.since));
        if let Some(record) = &mut self.surge {
            uid.clone_into(&mut record.group);
        }
    }

    /// The UIDs in its records; an empty one for a record that a client removed.
    pub(crate) fn record_uids(&self) -> impl Iterator<Item = &str> {
        let disruption = self.disruption.iter().chain(&self.orphaned_disruption).map(|record| record.group.as_str());
        disruption.chain(self.surge.iter().map(|record| record.group.as_str()))
    }

    /// Whether it was Ready before and is not ready now.
    pub(crate) fn has_become_unready(&self) -> bool {
        !self.ready && self.was_ready
    }
}

/// A Node that the API server no longer has, although its instance may still be in service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNode {
    /// Name of the Node.
    pub name: String,
    /// When it was seen to be gone.
    pub since: Timestamp,
}

/// An instance of the group with its node, if it has joined.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInstance {
    /// The instance as Auto Scaling lists it.
    pub instance: Instance,
    /// Its Node; `None` before it has joined, after the Node was deleted, and while the cache does not have it yet.
    pub node: Option<NodeView>,
    /// The Node that it had, if the API server no longer has one.
    pub lost_node: Option<LostNode>,
    /// Whether the status records that the controller put it into standby.
    pub is_recorded_standby: bool,
    /// Why it must be replaced; empty when it is current, or when it is enough to change it in place.
    pub reasons: Vec<Drift>,
    /// What changes in place on its node; `None` for an instance that must be replaced.
    pub in_place: Option<InPlaceUpdate>,
}

/// A change of labels and taints that makes a running node current.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlaceUpdate {
    /// What to write to the Node.
    pub change: InPlaceChange,
    /// The differences that it resolves.
    pub reasons: Vec<Drift>,
}

impl NodeInstance {
    /// How many units of desired capacity it counts for.
    pub(crate) fn weight(&self) -> usize {
        self.instance.weight.max(1) as usize
    }

    /// Whether it is InService and its node is Ready, not cordoned, and not being removed by another controller. Auto
    /// Scaling terminates an instance that it reports as unhealthy, however Ready its node is.
    pub(crate) fn is_available(&self) -> bool {
        let is_free = |n: &NodeView| n.ready && !n.cordoned && !n.is_removed_by_autoscaler;
        self.instance.state == InstanceState::InService
            && self.instance.healthy
            && self.node.as_ref().is_some_and(is_free)
    }

    /// Whether the Cluster Autoscaler is about to terminate it.
    pub(crate) fn is_removed_by_autoscaler(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_removed_by_autoscaler)
    }

    /// Whether it is InService and its node is Ready, cordoned or not.
    pub(crate) fn is_ready(&self) -> bool {
        self.instance.state == InstanceState::InService && self.node.as_ref().is_some_and(|n| n.ready)
    }

    /// The disruption record on its node, if this group wrote it.
    pub(crate) fn disruption_of(&self, group_uid: &str) -> Option<&DisruptionRecord> {
        self.node.as_ref()?.disruption.as_ref().filter(|d| d.group == group_uid)
    }

    /// Whether a termination that lowers the desired capacity was sent so recently that AWS may not show it yet.
    pub(crate) fn is_termination_sent(&self, group_uid: &str, interval: SignedDuration, now: Timestamp) -> bool {
        let sent_at = self.disruption_of(group_uid).and_then(|record| record.terminated_at);
        sent_at.is_some_and(|at| now.duration_since(at) < interval)
    }

    /// Whether its instance terminates, or a termination was sent so recently that AWS may not show it yet. Pods that are
    /// scheduled to its node would end with it, without a drain.
    pub(crate) fn is_terminating(&self, group_uid: &str, interval: SignedDuration, now: Timestamp) -> bool {
        let sent_at = self.node.as_ref().and_then(|node| node.termination_sent_at);
        self.instance.state == InstanceState::Terminating
            || self.is_termination_sent(group_uid, interval, now)
            || sent_at.is_some_and(|at| now.duration_since(at).abs() < interval)
    }

    /// Whether its node has a disruption record that belongs to no drain of this group.
    pub(crate) fn has_orphaned_disruption(&self) -> bool {
        self.node.as_ref().is_some_and(|n| n.orphaned_disruption.is_some())
    }

    /// Whether this group wrote a surge record on its node.
    pub(crate) fn has_surge_record(&self, group_uid: &str) -> bool {
        self.node.as_ref().and_then(|n| n.surge.as_ref()).is_some_and(|s| s.group == group_uid)
    }

    /// Whether this group put it into standby. Its pods keep running, and AWS launches its replacement. The status
    /// outlives the surge record on the Node. AWS checks no health in standby, so without it an instance whose Node is
    /// gone would stay forever.
    pub(crate) fn is_in_standby(&self, group_uid: &str) -> bool {
        let is_ours = self.is_recorded_standby || self.has_surge_record(group_uid);
        self.instance.state.is_standby() && is_ours
    }

    /// A sentence that names all Nodes with this instance's providerID, if there are several. It is then unknown which
    /// pods run on the instance.
    pub(crate) fn duplicate_provider_id(&self) -> Option<String> {
        let node = self.node.as_ref().filter(|n| !n.duplicates.is_empty())?;
        let names = [std::slice::from_ref(&node.name), &node.duplicates].concat().join(", ");
        Some(format!("Nodes {names} all claim instance {}", self.instance.id))
    }

    /// Instance and node for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.node {
            Some(node) => format!("{} ({})", self.instance.id, node.name),
            None => format!("{} (no Node)", self.instance.id),
        }
    }

    /// The key of its pods in [`Drains`].
    pub(crate) fn drain_key(&self) -> &str {
        self.node.as_ref().map_or(&self.instance.id, |node| &node.name)
    }

    /// How long its node has been Ready; `None` when it is not.
    pub(crate) fn ready_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let node = self.node.as_ref().filter(|n| n.ready)?;
        node.ready_changed_at.map(|since| now.duration_since(since))
    }

    /// When the instance began to serve, and when its node stopped being Ready; `None` if it has never been Ready, or
    /// is Ready now. If this process did not observe the beginning, the earlier one of its first observation and the
    /// creation of the Node counts. The Node alone proves nothing: one of a warm pool is older, and one that was
    /// registered again is younger.
    pub(crate) fn loss(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let node = self.node.as_ref().filter(|node| node.has_become_unready())?;
        let (in_service_since, lost) = (self.instance.in_service_since.unwrap_or(now), node.ready_changed_at?);
        let was_observed = !self.instance.was_in_service && in_service_since <= lost;
        Some((if was_observed { in_service_since } else { in_service_since.min(node.created_at) }, lost))
    }

    /// How long its kubelet has not reported; `None` while it reports, and when it has not joined.
    pub(crate) fn silent_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let node = self.node.as_ref().filter(|n| n.kubelet_silent)?;
        Some(now.duration_since(node.ready_changed_at.unwrap_or(node.created_at)))
    }
}

/// Number of all nodes of the cluster, and of the unready ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterHealth {
    /// All nodes of the cluster, those of other groups included.
    pub total: usize,
    /// Nodes that were Ready and are not anymore. A node that has yet to become Ready does not count.
    pub unready: usize,
}

impl ClusterHealth {
    /// Whether 30 % of all nodes, and at least three, are unready. The cause is then unlikely to be the nodes.
    pub(crate) fn is_unhealthy(&self) -> bool {
        self.unready >= 3 && self.unready * 10 >= self.total * 3
    }
}

/// A pod on a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Namespace, name and UID of the pod.
    pub pod: PodRef,
    /// Whether it belongs to a DaemonSet or is a static pod, which a drain ignores.
    pub is_ignored: bool,
    /// Whether it is finished, so that it does not block the drain.
    pub is_finished: bool,
    /// Whether no controller will recreate it.
    pub is_unmanaged: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// The end of its grace period, if it is being deleted.
    pub terminating_until: Option<Timestamp>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether the scheduler may place it on a cordoned node.
    pub tolerates_cordon: bool,
    /// Whether it came to the node after the drain of the node had begun.
    pub is_newer_than_drain: bool,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
}

impl PodView {
    /// Whether a drain leaves the pod on its node. A pod that returned to the cordoned node after its eviction would always
    /// return.
    pub(crate) fn is_left_by_drain(&self) -> bool {
        self.is_ignored || self.is_finished || (self.tolerates_cordon && self.is_newer_than_drain)
    }

    /// When the pod should have ended, if that is long enough ago to be reported.
    pub(crate) fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        self.terminating_until.filter(|until| now.duration_since(*until) >= OVERDUE_AFTER)
    }

    /// Whether the pod hangs: its grace period ended long ago.
    pub(crate) fn outlives_grace_period(&self, now: Timestamp) -> bool {
        self.terminating_until.is_some_and(|until| now.duration_since(until) >= HANGS_AFTER)
    }
}

/// How long after its grace period a pod that is still there is reported.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// How long after its grace period a pod that is still there hangs.
pub(super) const HANGS_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Observed state of a node that is being drained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainView {
    /// All pods on it.
    pub pods: Vec<PodView>,
    /// Names of the volumes attached to it.
    pub attached_volumes: Vec<String>,
    /// Since when it has no evictable pod, or since when all its volumes are being detached, whichever is earlier.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last blocked, and how often in a row.
    pub last_blocked_eviction: Option<(Timestamp, u32)>,
    /// `drain_after`, unless its time cannot be right.
    pub retry_drain_at: Option<Timestamp>,
    /// How long ago the controller's clock jumped forward; `None` if it did not. Times that others recorded look older since.
    pub since_clock_jump: Option<SignedDuration>,
}

impl DrainView {
    /// Whether a wait of this length that is over by the wall clock is over indeed. After a jump of the clock, a
    /// kubelet that missed one heartbeat looks dead. A drain that has just begun looks as if it had taken hours.
    pub(crate) fn is_clock_steady_for(&self, limit: SignedDuration) -> bool {
        self.since_clock_jump.is_none_or(|since| since >= limit)
    }
}

/// Nodes that are being drained, or whose drain is delayed, by name; and instances without a Node, by instance ID, once they
/// have been verified.
pub type Drains = BTreeMap<String, DrainView>;
