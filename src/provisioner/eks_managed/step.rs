//! Steps of this provisioner: managed node groups.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::names::event;
use crate::aws::nodegroup::{NewNodegroup, NodegroupChange, NodegroupName, NodegroupVersion};
use crate::plan::{Act, Told};

/// One write to a managed node group.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum EksManagedStep {
    /// CreateNodegroup.
    CreateNodegroup(NewNodegroup),
    /// UpdateNodegroupConfig; the update's id is written into the status at once.
    UpdateNodegroup {
        nodegroup: NodegroupName,
        change: NodegroupChange,
        token: String,
        of: String,
        /// EKS takes nodes away for it, because more are there than the new sizes let stand.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        shrinks: bool,
    },
    /// UpdateNodegroupVersion, never with force; the update's id is written into the status at once.
    UpdateNodegroupVersion { nodegroup: NodegroupName, to: NodegroupVersion, token: String, of: String },
    /// TagResource on a managed node group.
    TagNodegroup { nodegroup: NodegroupName, arn: String, tags: BTreeMap<String, String> },
    /// UntagResource on a managed node group.
    UntagNodegroup { nodegroup: NodegroupName, arn: String, keys: Vec<String> },
    /// DeleteNodegroup: EKS takes its nodes away.
    DeleteNodegroup { nodegroup: NodegroupName },
}

impl EksManagedStep {
    /// The node group that it acts on.
    pub fn nodegroup(&self) -> &NodegroupName {
        match self {
            EksManagedStep::CreateNodegroup(new) => &new.name,
            EksManagedStep::UpdateNodegroup { nodegroup, .. }
            | EksManagedStep::UpdateNodegroupVersion { nodegroup, .. }
            | EksManagedStep::TagNodegroup { nodegroup, .. }
            | EksManagedStep::UntagNodegroup { nodegroup, .. }
            | EksManagedStep::DeleteNodegroup { nodegroup } => nodegroup,
        }
    }
}

impl Act for EksManagedStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        let name = &self.nodegroup().nodegroup;
        match self {
            EksManagedStep::CreateNodegroup(new) => {
                format!("{name} with {} to {} nodes", new.sizes.min, new.sizes.max)
            }
            _ => name.clone(),
        }
    }

    fn event(&self, why: &str) -> Option<Told> {
        let (reason, did) = match self {
            EksManagedStep::CreateNodegroup(_) => (event::CREATED, "created the node group"),
            EksManagedStep::UpdateNodegroup { .. } => ("NodeGroupUpdated", "changed the node group"),
            EksManagedStep::UpdateNodegroupVersion { .. } => ("NodeGroupUpdated", "began an update of the node group"),
            EksManagedStep::TagNodegroup { .. } | EksManagedStep::UntagNodegroup { .. } => {
                ("NodeGroupUpdated", "changed the tags of the node group")
            }
            EksManagedStep::DeleteNodegroup { .. } => ("NodeGroupDeleted", "EKS deletes the node group"),
        };
        Some(Told::because(reason, format!("{did} {}", self.subject()), why))
    }

    fn disrupts(&self) -> bool {
        matches!(
            self,
            EksManagedStep::UpdateNodegroup { shrinks: true, .. }
                | EksManagedStep::UpdateNodegroupVersion { .. }
                | EksManagedStep::DeleteNodegroup { .. }
        )
    }

    fn makes(&self) -> bool {
        matches!(self, EksManagedStep::CreateNodegroup(_))
    }
}
