//! Which nodes must be read again before a plan is applied, because their cached state may be stale.
//!
//! The cache of nodes may lag behind the API server, by minutes if its watch hangs. A plan that takes a node out of
//! service is therefore made once more, from nodes that were read from the API server.

use std::collections::BTreeSet;

use super::members::NodeInstance;
use crate::plan::{NodeStep, NodegroupStep, PlannedStep, Step};

/// The members on which the steps depend, without those in `verified`. `removes_all`: the steps remove all members, so
/// that none has to stay available.
pub(crate) fn nodes_to_reread<'a>(
    steps: &[PlannedStep],
    removes_all: bool,
    members: &'a [NodeInstance],
    verified: &BTreeSet<String>,
) -> Vec<&'a NodeInstance> {
    let (mut needed, mut drained, mut cordons) = (BTreeSet::new(), BTreeSet::new(), false);
    for planned in steps {
        let step = match &planned.step {
            Step::Node(step) => step,
            // EKS removes the nodes. "No Node in the cache" is not "never joined", and a client may have uncordoned
            // others.
            Step::Nodegroup(NodegroupStep::DeleteNodegroup { .. }) => {
                let is_removed = |m: &&NodeInstance| !m.reasons.is_empty() || !m.is_ready();
                needed.extend(members.iter().filter(is_removed).map(|m| m.instance.id.as_str()));
                continue;
            }
            Step::Nodegroup(
                NodegroupStep::CreateNodegroup(_)
                | NodegroupStep::UpdateNodegroup { .. }
                | NodegroupStep::UpdateNodegroupVersion { .. }
                | NodegroupStep::TagNodegroup { .. }
                | NodegroupStep::UntagNodegroup { .. },
            )
            | Step::Object(_)
            | Step::Iam(_)
            | Step::Join(_)
            | Step::Eks(_)
            | Step::Fargate(_)
            | Step::Strategy(_) => continue,
        };
        match step {
            // "No Node in the cache" is not "never joined".
            NodeStep::Terminate { instance, node: None, .. } => {
                needed.insert(instance.as_str());
            }
            // Its Node may carry the disruption record already.
            NodeStep::CordonNode { instance, .. } => {
                needed.insert(instance.as_str());
                cordons = true;
            }
            // Someone may have uncordoned it.
            NodeStep::Terminate { node: Some(node), .. }
            | NodeStep::Evict { node, .. }
            | NodeStep::ForceDelete { node, .. } => {
                drained.insert(node.as_str());
            }
            NodeStep::UncordonNode { .. }
            | NodeStep::RecordSurge { .. }
            | NodeStep::ClearSurge { .. }
            | NodeStep::ChangeNodeInPlace { .. }
            | NodeStep::EnterStandby { .. } => {}
        }
    }
    // maxUnavailable relies on every member that counts as available. The others count as unavailable anyway.
    let counts = cordons && !removes_all;
    let is_drained = |m: &NodeInstance| m.node.as_ref().is_some_and(|node| drained.contains(node.name.as_str()));
    let is_needed =
        |m: &&NodeInstance| needed.contains(m.instance.id.as_str()) || is_drained(m) || (counts && m.is_available());
    members.iter().filter(|m| !verified.contains(&m.instance.id)).filter(is_needed).collect()
}
