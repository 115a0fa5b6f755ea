//! Steps that cordon, drain and terminate nodes, or uncordon them.

use jiff::Timestamp;
use serde::Serialize;

use super::info::{StepFields, StepInfo};
use crate::plan::EventReason;
use crate::plan::event::{Event, EventObject, ObjectEvent};
use crate::plan::in_place::InPlaceChange;

/// One write to a node, to a pod on it, or to its instance.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum NodeStep {
    /// Cordon a node and write the disruption record to it, in one update.
    CordonNode {
        node: String,
        resource_version: String,
        instance: String,
        template_version: String,
        was_cordoned: bool,
    },
    /// Uncordon a node that this group cordoned, and remove its disruption record.
    UncordonNode { node: String, reason: UncordonReason },
    /// Record on a node that its instance is about to enter standby, before the call.
    RecordSurge { node: String, resource_version: String, instance: String, template_version: String },
    /// Remove the surge record of this time from a node whose instance is not in standby.
    ClearSurge { node: String, since: Timestamp },
    /// Set and remove labels and taints of a running node and record them on it, in one update.
    ChangeNodeInPlace { node: String, instance: String, change: InPlaceChange },
    /// EnterStandby without decrement: AWS launches a replacement, and the node keeps its pods until it is Ready.
    EnterStandby { scaling_group: String, instance: String, node: String },
    /// Evict a pod through the eviction API.
    Evict { node: String, pod: PodRef, is_unmanaged: bool },
    /// Delete a pod with its grace period, after `drainTimeout` with `drainForce`.
    ForceDelete { node: String, pod: PodRef },
    /// TerminateInstanceInAutoScalingGroup.
    Terminate { scaling_group: String, instance: String, node: Option<String>, decrement_desired: bool },
}

/// Why a node that was being drained is uncordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncordonReason {
    /// The node is no longer a candidate for replacement or scale-in.
    NoLongerReplaced,
    /// Its disruption record was removed, or belongs to no drain of the InstanceGroup.
    ForeignRecord,
    /// Several Nodes claim the same instance, so it is unknown which pods run on it.
    DuplicateProviderId,
    /// `lock-upgrades` blocks the replacement.
    Locked,
    /// Replacements did not become Ready.
    RotationHalted,
    /// The rotation cannot be planned, because the group is rejected.
    GroupRejected,
    /// A precondition of the rotation is not met.
    RotationBlocked,
    /// The instance left the scaling group without being terminated, and runs on.
    InstanceDetached,
    /// The drain took longer than `drainTimeout`. The next drain of the node is delayed.
    DrainTimeout,
    /// Another client uncordoned the node while it was being drained. The next drain of the node is delayed.
    UncordonedByOthers,
}

impl std::fmt::Display for UncordonReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UncordonReason::NoLongerReplaced => "the node no longer needs to be replaced",
            UncordonReason::ForeignRecord => {
                "its disruption record was removed, or no drain of this InstanceGroup wrote it"
            }
            UncordonReason::DuplicateProviderId => "another Node has the same providerID",
            UncordonReason::Locked => "replacement is blocked, and the condition Locked of the InstanceGroup says why",
            UncordonReason::RotationHalted => {
                "the rotation is halted, and the condition RotationHalted of the InstanceGroup says why"
            }
            UncordonReason::GroupRejected => "the rotation stopped, because the InstanceGroup is rejected",
            UncordonReason::RotationBlocked => {
                "the rotation is blocked, and the condition Stalled of the InstanceGroup says why"
            }
            UncordonReason::InstanceDetached => "its instance left the scaling group and runs on",
            UncordonReason::DrainTimeout => "the drain took longer than drainTimeout",
            UncordonReason::UncordonedByOthers => {
                "another client uncordoned it, so its drain ended; it is drained again later"
            }
        })
    }
}

/// As text, so that a printed plan and the event show the same words.
impl Serialize for UncordonReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The identity of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod: a new pod of the same name has another one.
    pub uid: String,
}

impl StepInfo for NodeStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            NodeStep::CordonNode { node, instance, .. }
            | NodeStep::RecordSurge { node, instance, .. }
            | NodeStep::ChangeNodeInPlace { node, instance, .. }
            | NodeStep::EnterStandby { node, instance, .. } => format!("{node} ({instance})"),
            NodeStep::ClearSurge { node, .. } => node.clone(),
            NodeStep::UncordonNode { node, reason } => format!("{node}: {reason}"),
            NodeStep::Evict { node, pod, .. } | NodeStep::ForceDelete { node, pod } => {
                format!("{}/{} on {node}", pod.namespace, pod.name)
            }
            NodeStep::Terminate { instance, node, .. } => instance_with_node(instance, node.as_deref()),
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        let with_reasons = |reason, text| Some(Event::with_reasons(reason, text, reasons));
        match self {
            NodeStep::CordonNode { node, instance, .. } => {
                with_reasons(EventReason::NodeDraining, format!("draining {node} ({instance})"))
            }
            NodeStep::UncordonNode { node, reason } => {
                Some(Event::normal(EventReason::NodeUncordoned, format!("uncordoned {node}: {reason}")))
            }
            NodeStep::EnterStandby { instance, node, .. } => with_reasons(
                EventReason::InstanceEnteredStandby,
                format!("{node} ({instance}) is in standby until its replacement is Ready"),
            ),
            NodeStep::Terminate { instance, node, .. } => with_reasons(
                EventReason::InstanceTerminated,
                format!("terminated {}", instance_with_node(instance, node.as_deref())),
            ),
            NodeStep::Evict { pod, node, is_unmanaged: true } => Some(Event::warning(
                EventReason::UnmanagedPodEvicted,
                format!("evicted {}/{} from {node}; no controller will recreate it", pod.namespace, pod.name),
            )),
            NodeStep::ForceDelete { pod, node } => Some(Event::warning(
                EventReason::PodDeleted,
                format!("deleted {}/{} from {node} after drainTimeout", pod.namespace, pod.name),
            )),
            // One event of the group reports all nodes that change alike.
            NodeStep::ChangeNodeInPlace { .. }
            | NodeStep::RecordSurge { .. }
            | NodeStep::ClearSurge { .. }
            | NodeStep::Evict { is_unmanaged: false, .. } => None,
        }
    }

    fn log_text(&self) -> String {
        match self {
            NodeStep::RecordSurge { node, instance, .. } => {
                format!("{node} ({instance}) enters standby next, until its replacement is Ready")
            }
            NodeStep::ClearSurge { node, .. } => format!("{node} does not enter standby"),
            NodeStep::ChangeNodeInPlace { node, change, .. } => format!("changed {} of {node}", change.subject()),
            NodeStep::Evict { pod, node, is_unmanaged: false } => {
                format!("evicted {}/{} from {node}", pod.namespace, pod.name)
            }
            _ => self.event("").map(|event| event.message).unwrap_or_default(),
        }
    }

    fn object_event(&self, group: &str, reasons: &str) -> Option<ObjectEvent> {
        let with_reasons = |reason, text| Event::with_reasons(reason, text, reasons);
        Some(match self {
            NodeStep::CordonNode { node, .. } => {
                let text = format!("InstanceGroup {group} drains this node to replace or remove it");
                ObjectEvent::on_node(node, with_reasons(EventReason::NodeDraining, text))
            }
            NodeStep::UncordonNode { node, reason } => {
                let text = format!("InstanceGroup {group} uncordoned this node: {reason}");
                ObjectEvent::on_node(node, Event::normal(EventReason::NodeUncordoned, text))
            }
            NodeStep::ChangeNodeInPlace { node, change, .. } => {
                let text = format!("InstanceGroup {group} changed {} of this node", change.subject());
                ObjectEvent::on_node(node, with_reasons(EventReason::NodeChangedInPlace, text))
            }
            NodeStep::EnterStandby { node, instance, .. } => {
                let text = format!("InstanceGroup {group} put {instance} into standby until its replacement is Ready");
                ObjectEvent::on_node(node, with_reasons(EventReason::InstanceEnteredStandby, text))
            }
            NodeStep::Terminate { node: Some(node), instance, .. } => {
                let text = format!("InstanceGroup {group} terminated {instance}");
                ObjectEvent::on_node(node, with_reasons(EventReason::InstanceTerminated, text))
            }
            NodeStep::Evict { node, pod, .. } => {
                let text = format!("evicted: InstanceGroup {group} drains the node {node}");
                on_pod(pod, Event::normal(EventReason::Evicted, text))
            }
            NodeStep::ForceDelete { node, pod } => {
                let text =
                    format!("deleted: InstanceGroup {group} drains the node {node}, and drainTimeout has passed");
                on_pod(pod, Event::warning(EventReason::PodDeleted, text))
            }
            NodeStep::Terminate { node: None, .. } | NodeStep::RecordSurge { .. } | NodeStep::ClearSurge { .. } => {
                return None;
            }
        })
    }

    fn fields(&self) -> StepFields {
        let (node, instance, pod) = match self {
            NodeStep::CordonNode { node, instance, .. }
            | NodeStep::RecordSurge { node, instance, .. }
            | NodeStep::ChangeNodeInPlace { node, instance, .. }
            | NodeStep::EnterStandby { node, instance, .. } => (Some(node), Some(instance), None),
            NodeStep::UncordonNode { node, .. } | NodeStep::ClearSurge { node, .. } => (Some(node), None, None),
            NodeStep::Evict { node, pod, .. } | NodeStep::ForceDelete { node, pod } => (Some(node), None, Some(pod)),
            NodeStep::Terminate { node, instance, .. } => (node.as_ref(), Some(instance), None),
        };
        StepFields {
            node: node.cloned(),
            instance: instance.cloned(),
            pod: pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            ..StepFields::default()
        }
    }

    fn is_disruptive(&self) -> bool {
        match self {
            NodeStep::CordonNode { .. }
            | NodeStep::RecordSurge { .. }
            | NodeStep::EnterStandby { .. }
            | NodeStep::Evict { .. }
            | NodeStep::ForceDelete { .. }
            | NodeStep::Terminate { .. } => true,
            NodeStep::UncordonNode { .. } | NodeStep::ClearSurge { .. } | NodeStep::ChangeNodeInPlace { .. } => false,
        }
    }
}

fn instance_with_node(instance: &str, node: Option<&str>) -> String {
    node.map_or_else(|| instance.to_owned(), |node| format!("{instance} ({node})"))
}

/// An event on a pod.
pub(crate) fn on_pod(pod: &PodRef, event: Event) -> ObjectEvent {
    let PodRef { namespace, name, uid } = pod.clone();
    ObjectEvent { object: EventObject::Pod { namespace, name, uid }, event }
}
