//! Steps of the provisioner `eks-managed`: managed node groups.

use std::collections::BTreeMap;

use serde::Serialize;

use super::info::StepInfo;
use crate::aws::nodegroup::{NewNodegroup, NodegroupChange, NodegroupName, NodegroupVersion};
use crate::plan::EventReason;
use crate::plan::event::Event;

/// One write to a managed node group.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum NodegroupStep {
    /// CreateNodegroup.
    CreateNodegroup(NewNodegroup),
    /// UpdateNodegroupConfig; the id of the update is written to the status in the same pass.
    UpdateNodegroup {
        nodegroup: NodegroupName,
        change: NodegroupChange,
        token: String,
        change_hash: String,
        /// EKS removes nodes, because the group has more than the new sizes allow, or puts a taint on nodes that evicts pods.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        disrupts_nodes: bool,
    },
    /// UpdateNodegroupVersion, never with force; the id of the update is written to the status in the same pass.
    UpdateNodegroupVersion { nodegroup: NodegroupName, to: NodegroupVersion, token: String, change_hash: String },
    /// TagResource on a managed node group.
    TagNodegroup { nodegroup: NodegroupName, arn: String, tags: BTreeMap<String, String> },
    /// UntagResource on a managed node group.
    UntagNodegroup { nodegroup: NodegroupName, arn: String, keys: Vec<String> },
    /// DeleteNodegroup: EKS drains and terminates its nodes.
    DeleteNodegroup { nodegroup: NodegroupName },
}

impl NodegroupStep {
    /// The node group that the step acts on.
    pub(crate) fn nodegroup(&self) -> &NodegroupName {
        match self {
            NodegroupStep::CreateNodegroup(new) => &new.name,
            NodegroupStep::UpdateNodegroup { nodegroup, .. }
            | NodegroupStep::UpdateNodegroupVersion { nodegroup, .. }
            | NodegroupStep::TagNodegroup { nodegroup, .. }
            | NodegroupStep::UntagNodegroup { nodegroup, .. }
            | NodegroupStep::DeleteNodegroup { nodegroup } => nodegroup,
        }
    }
}

impl StepInfo for NodegroupStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        let name = &self.nodegroup().nodegroup;
        match self {
            NodegroupStep::CreateNodegroup(new) => {
                format!("{name} with {} to {} nodes", new.sizes.min, new.sizes.max)
            }
            _ => name.clone(),
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        let (reason, action) = match self {
            NodegroupStep::CreateNodegroup(_) => (EventReason::InstanceGroupCreated, "created the node group"),
            NodegroupStep::UpdateNodegroup { .. } => {
                (EventReason::NodegroupUpdated, "started an in-place change of the node group")
            }
            NodegroupStep::UpdateNodegroupVersion { .. } => {
                (EventReason::NodegroupUpdated, "started an update of the node group")
            }
            NodegroupStep::TagNodegroup { .. } | NodegroupStep::UntagNodegroup { .. } => {
                (EventReason::NodegroupUpdated, "changed the tags of the node group")
            }
            NodegroupStep::DeleteNodegroup { .. } => (EventReason::NodegroupDeleted, "EKS is deleting the node group"),
        };
        Some(Event::with_reasons(reason, format!("{action} {}", self.subject()), reasons))
    }

    fn is_disruptive(&self) -> bool {
        matches!(
            self,
            NodegroupStep::UpdateNodegroup { disrupts_nodes: true, .. }
                | NodegroupStep::UpdateNodegroupVersion { .. }
                | NodegroupStep::DeleteNodegroup { .. }
        )
    }

    fn creates_nodes(&self) -> bool {
        matches!(self, NodegroupStep::CreateNodegroup(_))
    }
}
