//! What a rotation sees: instances with their nodes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::aws::{Instance, InstanceState};
use crate::plan::PodRef;

/// The record of a disruption, as it stands in the Node's annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionRecord {
    /// UID of the InstanceGroup that drains the node.
    pub group: String,
    /// The template version that the group is going to.
    pub template_version: String,
    /// When the drain began.
    pub since: Timestamp,
    /// Whether a person had cordoned the node before us.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned_before: bool,
}

/// The record that a group put a node's instance into standby, as it stands in the Node's annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SurgeRecord {
    /// UID of the InstanceGroup.
    pub group: String,
    /// The template version that the group is going to.
    pub template_version: String,
    /// When it was told to stand by.
    pub since: Timestamp,
}

/// What we keep of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// For the one update that marks it.
    pub resource_version: String,
    /// Whether its kubelet says Ready.
    pub ready: bool,
    /// Whether it has been Ready at any time.
    pub was_ready: bool,
    /// Since when Ready has its present value.
    pub ready_changed_at: Option<Timestamp>,
    /// Whether anyone cordoned it.
    pub cordoned: bool,
    /// Our record, or another group's.
    pub disruption: Option<DisruptionRecord>,
    /// The record of a surge.
    pub surge: Option<SurgeRecord>,
    /// When it joined.
    pub created_at: Timestamp,
    /// Younger nodes that say they are the same instance.
    pub duplicates: Vec<String>,
}

impl NodeView {
    /// Ready once, and now not.
    pub fn has_become_unready(&self) -> bool {
        !self.ready && self.was_ready
    }
}

/// An instance of the group with its node, if it has joined.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInstance {
    /// The instance.
    pub instance: Instance,
    /// Its node.
    pub node: Option<NodeView>,
    /// Why it must be replaced; empty when it need not be.
    pub reasons: Vec<crate::plan::Drift>,
}

impl NodeInstance {
    /// How many units of desired capacity it is.
    pub fn weight(&self) -> usize {
        self.instance.weight.max(1) as usize
    }

    /// InService, its node Ready and not cordoned.
    pub fn is_available(&self) -> bool {
        self.instance.state == InstanceState::InService && self.node.as_ref().is_some_and(|n| n.ready && !n.cordoned)
    }

    /// InService and its node Ready, cordoned or not.
    pub fn is_ready(&self) -> bool {
        self.instance.state == InstanceState::InService && self.node.as_ref().is_some_and(|n| n.ready)
    }

    /// The record that this group wrote on its node.
    pub fn disruption_of(&self, group_uid: &str) -> Option<&DisruptionRecord> {
        self.node.as_ref()?.disruption.as_ref().filter(|d| d.group == group_uid)
    }

    /// Whether this group told it to stand by.
    pub fn has_surge_record(&self, group_uid: &str) -> bool {
        self.node.as_ref().and_then(|n| n.surge.as_ref()).is_some_and(|s| s.group == group_uid)
    }

    /// Whether it stands by because this group told it to: its pods run on, and AWS launches another in its place.
    pub fn is_in_standby(&self, group_uid: &str) -> bool {
        self.instance.state == InstanceState::Standby && self.has_surge_record(group_uid)
    }

    /// Who else says that it is this instance, in words; while anybody does, nobody knows whose pods run on it.
    pub fn duplicate_provider_id(&self) -> Option<String> {
        let node = self.node.as_ref().filter(|n| !n.duplicates.is_empty())?;
        let names = [std::slice::from_ref(&node.name), &node.duplicates].concat().join(", ");
        Some(format!("one Node alone to have the providerID of {}, which {names} have", self.instance.id))
    }

    /// How long its node has been Ready.
    pub fn ready_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let node = self.node.as_ref().filter(|n| n.ready)?;
        node.ready_changed_at.map(|since| now.duration_since(since))
    }

    /// How long its node has been NotReady.
    pub fn unready_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let node = self.node.as_ref().filter(|n| !n.ready)?;
        Some(now.duration_since(node.ready_changed_at.unwrap_or(node.created_at)))
    }
}

/// All nodes of the cluster, in two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterHealth {
    /// Nodes that are there.
    pub total: usize,
    /// Of these, not Ready any more; a node that has yet to become Ready is no sign of trouble.
    pub unready: usize,
}

impl ClusterHealth {
    /// 30 % of all known nodes, and at least three, at once: not the nodes' own fault.
    pub fn is_unhealthy(&self) -> bool {
        self.unready >= 3 && self.unready * 10 >= self.total * 3
    }
}

/// A pod on a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Which.
    pub pod: PodRef,
    /// A DaemonSet's or a static pod: it stays.
    pub is_ignored: bool,
    /// Finished: it blocks nothing.
    pub is_finished: bool,
    /// Nothing will make it again.
    pub is_unmanaged: bool,
    /// Already on its way out.
    pub is_terminating: bool,
    /// Its grace period in seconds.
    pub grace_seconds: i64,
}

/// A node that is being drained, as seen a moment ago.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainView {
    /// Every pod on it.
    pub pods: Vec<PodView>,
    /// Volumes still attached to it.
    pub attached_volumes: Vec<String>,
    /// Since when no evictable pod has been there.
    pub empty_since: Option<Timestamp>,
    /// When an eviction was last refused, and how often in a row.
    pub last_blocked_eviction: Option<(Timestamp, u32)>,
    /// Until when a drain that ran into its timeout is not tried again.
    pub retry_drain_at: Option<Timestamp>,
}

/// By node name.
pub type Drains = BTreeMap<String, DrainView>;
