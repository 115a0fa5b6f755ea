//! Steps that take nodes out of service, or give them back.

use serde::Serialize;

use super::Act;
use crate::plan::Told;

/// One write to a node, to a pod on it or to its instance.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum NodeStep {
    /// Cordon a node and write the disruption record on it, in one update.
    MarkNode { node: String, resource_version: String, instance: String, template_version: String, cordoned: bool },
    /// Uncordon a node of ours and take the record off.
    UnmarkNode { node: String, why: String },
    /// Write on a node that its instance is about to stand by, before it does.
    SurgeNode { node: String, resource_version: String, instance: String, template_version: String },
    /// Take that record off a node whose instance does not stand by.
    UnsurgeNode { node: String },
    /// EnterStandby without decrement: AWS launches the replacement, and the node keeps its pods until then.
    EnterStandby { group: String, instance: String, node: String },
    /// The eviction API.
    Evict { node: String, pod: PodRef, bare: bool },
    /// Delete with grace, after `drainTimeout` with `drainForce`.
    ForceDelete { node: String, pod: PodRef },
    /// TerminateInstanceInAutoScalingGroup.
    Terminate { group: String, instance: String, node: Option<String>, decrement: bool },
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

impl Act for NodeStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            NodeStep::MarkNode { node, instance, .. }
            | NodeStep::SurgeNode { node, instance, .. }
            | NodeStep::EnterStandby { node, instance, .. } => format!("{node} ({instance})"),
            NodeStep::UnsurgeNode { node } => node.clone(),
            NodeStep::UnmarkNode { node, why } => format!("{node}: {why}"),
            NodeStep::Evict { node, pod, .. } | NodeStep::ForceDelete { node, pod } => {
                format!("{}/{} on {node}", pod.namespace, pod.name)
            }
            NodeStep::Terminate { instance, node, .. } => terminated(instance, node.as_deref()),
        }
    }

    fn event(&self, why: &str) -> Option<Told> {
        let because = |reason, text| Some(Told::because(reason, text, why));
        match self {
            NodeStep::MarkNode { node, instance, .. } => {
                because("NodeDraining", format!("draining {node} ({instance})"))
            }
            NodeStep::UnmarkNode { node, why } => {
                Some(Told::normal("NodeGivenBack", format!("uncordoned {node}: {why}")))
            }
            NodeStep::EnterStandby { instance, node, .. } => {
                because("NodeStandsBy", format!("{node} ({instance}) stands by until its replacement is Ready"))
            }
            NodeStep::Terminate { instance, node, .. } => {
                because("InstanceTerminated", format!("terminated {}", terminated(instance, node.as_deref())))
            }
            NodeStep::Evict { pod, node, bare: true } => Some(Told::warning(
                "BarePodEvicted",
                format!("evicted {}/{} from {node}; nothing will make it again", pod.namespace, pod.name),
            )),
            NodeStep::ForceDelete { pod, node } => Some(Told::warning(
                "PodDeleted",
                format!("deleted {}/{} from {node} after drainTimeout", pod.namespace, pod.name),
            )),
            NodeStep::SurgeNode { .. } | NodeStep::UnsurgeNode { .. } | NodeStep::Evict { bare: false, .. } => None,
        }
    }

    fn disrupts(&self) -> bool {
        match self {
            NodeStep::MarkNode { .. }
            | NodeStep::SurgeNode { .. }
            | NodeStep::EnterStandby { .. }
            | NodeStep::Evict { .. }
            | NodeStep::ForceDelete { .. }
            | NodeStep::Terminate { .. } => true,
            NodeStep::UnmarkNode { .. } | NodeStep::UnsurgeNode { .. } => false,
        }
    }
}

fn terminated(instance: &str, node: Option<&str>) -> String {
    node.map_or_else(|| instance.to_owned(), |node| format!("{instance} ({node})"))
}
