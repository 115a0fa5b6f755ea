//! Steps that take nodes out of service, or give them back.

use serde::Serialize;

use super::StepInfo;
use crate::plan::Event;

/// One write to a node, to a pod on it or to its instance.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum NodeStep {
    /// Cordon a node and write the disruption record on it, in one update.
    CordonNode {
        node: String,
        resource_version: String,
        instance: String,
        template_version: String,
        was_cordoned: bool,
    },
    /// Uncordon a node of ours and take the record off.
    UncordonNode { node: String, reason: String },
    /// Write on a node that its instance is about to stand by, before it does.
    RecordSurge { node: String, resource_version: String, instance: String, template_version: String },
    /// Take that record off a node whose instance does not stand by.
    ClearSurge { node: String },
    /// EnterStandby without decrement: AWS launches the replacement, and the node keeps its pods until then.
    EnterStandby { scaling_group: String, instance: String, node: String },
    /// The eviction API.
    Evict { node: String, pod: PodRef, is_unmanaged: bool },
    /// Delete with grace, after `drainTimeout` with `drainForce`.
    ForceDelete { node: String, pod: PodRef },
    /// TerminateInstanceInAutoScalingGroup.
    Terminate { scaling_group: String, instance: String, node: Option<String>, decrement_desired: bool },
}

/// A pod, by what identifies it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: another pod of the same name is another pod.
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
            | NodeStep::EnterStandby { node, instance, .. } => format!("{node} ({instance})"),
            NodeStep::ClearSurge { node } => node.clone(),
            NodeStep::UncordonNode { node, reason } => format!("{node}: {reason}"),
            NodeStep::Evict { node, pod, .. } | NodeStep::ForceDelete { node, pod } => {
                format!("{}/{} on {node}", pod.namespace, pod.name)
            }
            NodeStep::Terminate { instance, node, .. } => instance_with_node(instance, node.as_deref()),
        }
    }

    fn event(&self, why: &str) -> Option<Event> {
        let because = |reason, text| Some(Event::with_reasons(reason, text, why));
        match self {
            NodeStep::CordonNode { node, instance, .. } => {
                because("NodeDraining", format!("draining {node} ({instance})"))
            }
            NodeStep::UncordonNode { node, reason: why } => {
                Some(Event::normal("NodeUncordoned", format!("uncordoned {node}: {why}")))
            }
            NodeStep::EnterStandby { instance, node, .. } => because(
                "InstanceEnteredStandby",
                format!("{node} ({instance}) stands by until its replacement is Ready"),
            ),
            NodeStep::Terminate { instance, node, .. } => {
                because("InstanceTerminated", format!("terminated {}", instance_with_node(instance, node.as_deref())))
            }
            NodeStep::Evict { pod, node, is_unmanaged: true } => Some(Event::warning(
                "UnmanagedPodEvicted",
                format!("evicted {}/{} from {node}; nothing will make it again", pod.namespace, pod.name),
            )),
            NodeStep::ForceDelete { pod, node } => Some(Event::warning(
                "PodDeleted",
                format!("deleted {}/{} from {node} after drainTimeout", pod.namespace, pod.name),
            )),
            NodeStep::RecordSurge { .. }
            | NodeStep::ClearSurge { .. }
            | NodeStep::Evict { is_unmanaged: false, .. } => None,
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
            NodeStep::UncordonNode { .. } | NodeStep::ClearSurge { .. } => false,
        }
    }
}

fn instance_with_node(instance: &str, node: Option<&str>) -> String {
    node.map_or_else(|| instance.to_owned(), |node| format!("{instance} ({node})"))
}
