//! Simulates what follows the first reconcile: which nodes are replaced or removed.

use super::drift::{immutable_drift, is_unchanged_since_adoption, version_drift};
use super::input::Snapshot;
use super::observed::{ObservedNodegroup, partition};
use super::{update, usage};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::NodegroupStatus;
use crate::plan::{Drift, Plan, StalledReason};
use crate::provisioner::{
    ExtraNodes, NodeReplacement, PlanContext, PlanSnapshot, Projection, Release, ReplacementLimits,
};

/// UpdateNodegroupVersion in the EKS API reference: a node group cannot be rolled back.
const IRREVERSIBLE: &str = "EKS does not take a node group back to an earlier version or releaseVersion";

impl PlanSnapshot for Snapshot {
    fn cluster(&self) -> &str {
        &self.resolved.desired.cluster
    }

    fn rejection(&self) -> Option<(StalledReason, String)> {
        self.resolved.broken.rejection()
    }

    fn simulate(&self, first: &Plan, context: &PlanContext) -> Projection {
        let partitioned = partition(&self.resolved, &self.observed, context.status);
        let mut replacements: Vec<_> = partitioned
            .outgoing
            .iter()
            .flat_map(|group| node_replacements(group, &immutable_drift(&self.resolved, &group.nodegroup)))
            .collect();
        let extra_nodes = if replacements.is_empty() { ExtraNodes::None } else { ExtraNodes::SecondGroup };
        let mut irreversible = None;
        let serving = partitioned.current.filter(|current| update::evicting_taint(&self.resolved, current).is_some());
        let evictions = serving.map(|current| current.members.len()).filter(|nodes| *nodes > 0);
        if let Some(current) = partitioned.current.filter(|_| !partitioned.is_adopting) {
            let reasons = version_drift(&self.resolved, &current.nodegroup);
            if !reasons.is_empty() && !is_unchanged_since_adoption(&self.resolved, context.status, &current.nodegroup) {
                replacements.extend(node_replacements(current, &reasons));
                irreversible = Some(IRREVERSIBLE);
            }
        }
        let max_unavailable_nodes =
            usage::max_unavailable_nodes(self.resolved.desired.max_unavailable, replacements.len());
        Projection {
            steps: Vec::new(),
            outcome: first.outcome.clone(),
            max_unavailable: max_unavailable_nodes,
            replacements,
            in_place: Vec::new(),
            // EKS drains the nodes of its own updates, and the controller those of a node group that it replaces.
            limits: matches!(extra_nodes, ExtraNodes::SecondGroup).then_some(ReplacementLimits {
                drain: self.resolved.desired.rolling_update.drain_timeout,
                join: self.resolved.desired.rolling_update.join_timeout,
            }),
            scale_in: self.surplus(context),
            evictions,
            extra_nodes,
            irreversible,
        }
    }

    fn is_recreated(&self) -> bool {
        self.observed.nodegroups.iter().all(|group| group.has_status(NodegroupStatus::Deleting))
    }

    /// Keiko controller finds only a node group named after the InstanceGroup, and would create a second one.
    fn release(&self, status: &InstanceGroupStatus) -> Release {
        if let Some(old) = partition(&self.resolved, &self.observed, status).outgoing.first() {
            return Release::RotationInProgress(format!("the node group {}", old.name().nodegroup));
        }
        let name = &self.resolved.desired.id.name;
        let known = self.observed.nodegroups.iter().all(|group| group.name().nodegroup == *name);
        Release::NotNeeded(match known {
            true => "has the node group that the Keiko controller knows",
            false => "has a node group that the Keiko controller does not know: it would create a second one",
        })
    }
}

impl Snapshot {
    /// Number of nodes above the maximum size in the spec.
    fn surplus(&self, context: &PlanContext) -> usize {
        let partitioned = partition(&self.resolved, &self.observed, context.status);
        let desired = partitioned.current.map_or(0, ObservedNodegroup::desired_size);
        usize::try_from(desired - self.resolved.desired.max_size).unwrap_or(0)
    }
}

fn node_replacements(group: &ObservedNodegroup, reasons: &[Drift]) -> Vec<NodeReplacement> {
    let replacement = |member: &crate::rotation::NodeInstance| NodeReplacement {
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|node| node.name.clone()),
        zone: member.instance.zone.clone(),
        reasons: reasons.to_vec(),
    };
    group.members.iter().map(replacement).collect()
}
