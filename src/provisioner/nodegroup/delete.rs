//! Taking a group down: EKS drains and deletes its node groups. It needs no valid spec where the status names them.

use super::observe::{busy, recorded};
use super::observed::{proven, tags, whose};
use super::resolve::Resolved;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::nodegroup::{Nodegroup, NodegroupStatus};
use crate::ownership::{owned, untaggable};
use crate::plan::NodegroupStep;
use crate::plan::{Draft, Drift, ObjectStep, Outcome, Phase, Plan, Reason, blocked, waiting};
use crate::provisioner::GroupId;

/// Everything that the plan of a deletion depends on.
pub struct Input<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The tags that say whose a node group is, for each cluster that the status names.
    pub ownership: &'a dyn Fn(&str) -> Vec<Tag>,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// What is wanted, where nothing is on record and the spec can be worked with.
    pub resolved: Option<&'a Resolved>,
    /// The node groups that are there, by the names on record or else by those that the spec gives them.
    pub nodegroups: &'a [Nodegroup],
    /// AWS refused to tag what another controller made, less than a resync period ago.
    pub tagging_rests: bool,
}

/// Plans one pass of a deletion.
pub fn plan(input: &Input) -> Plan {
    if unknown(input) {
        return blocked(input.id, Reason::InvalidSpec, UNKNOWN.into());
    }
    let mut draft = Draft::default();
    let ours = input.nodegroups.iter().filter(|n| match input.resolved {
        Some(resolved) => whose(resolved, input.status, n).may_go(),
        None => proven(input.status, n, &(input.ownership)(&n.name.cluster)),
    });
    for nodegroup in ours {
        if nodegroup.status == NodegroupStatus::Deleting
            || owned(&tags(&nodegroup.tags), &(input.ownership)(&nodegroup.name.cluster))
        {
            delete(nodegroup, &mut draft);
        } else {
            claim(input, nodegroup, &mut draft);
        }
    }
    if draft.outcome.is_none() && input.id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
    draft.decide(Outcome::Deleted);
    draft.finish(input.id, None)
}

/// Whether the status names a scaling group: somebody made one for this group.
pub fn told(status: &InstanceGroupStatus) -> bool {
    status.active_scaling_group_name.as_deref().is_some_and(|name| !name.is_empty())
}

/// There was a node group, and neither the record nor the spec says which.
fn unknown(input: &Input) -> bool {
    told(input.status) && input.resolved.is_none() && recorded(input.status).next().is_none()
}

const UNKNOWN: &str = "the status names a scaling group, and the spec is refused, so that nobody knows its node group; mend the spec of eks-managed, or remove the finalizer when there is no node group";

/// What another controller made is tagged before it is deleted, so that it stays provable whose it was; the rights that
/// are shipped reach nothing without the tags.
fn claim(input: &Input, nodegroup: &Nodegroup, draft: &mut Draft) {
    if input.tagging_rests {
        return draft.decide(untaggable(true, false, true));
    }
    let ownership = (input.ownership)(&nodegroup.name.cluster).into_iter();
    let tags = ownership.map(|tag| (tag.key, tag.value)).collect();
    draft.step(NodegroupStep::TagNodegroup { nodegroup: nodegroup.name.clone(), arn: nodegroup.arn.clone(), tags });
    let message = format!(
        "the node group {} is deleted once it is tagged as this group's; for that the controller needs eks:TagResource",
        nodegroup.name.nodegroup
    );
    draft.decide(waiting(Phase::Deleting, message));
}

fn delete(nodegroup: &Nodegroup, draft: &mut Draft) {
    let name = &nodegroup.name.nodegroup;
    let going = |what: &str| waiting(Phase::Deleting, format!("{what} the node group {name}"));
    if nodegroup.status == NodegroupStatus::Deleting {
        return draft.decide(going("EKS drains and deletes"));
    }
    if busy(nodegroup.status) {
        return draft.decide(going("EKS takes one change at a time and still works on"));
    }
    if nodegroup.status == NodegroupStatus::DeleteFailed {
        let issues: Vec<_> = nodegroup.issues.iter().map(ToString::to_string).collect();
        let why = if issues.is_empty() { "EKS gives no reason".to_owned() } else { issues.join("; ") };
        let message =
            format!("the node group {name} could not be deleted: {why}; mend it, and the deletion goes on by itself");
        let reason = nodegroup.issues.first().and_then(|issue| super::health::reason(&issue.code));
        draft.decide(Outcome::Blocked { reason: reason.unwrap_or(Reason::Degraded), message, deleting: true });
    }
    let because = vec![Drift::new("InstanceGroup", "present", "deleted")];
    draft.because(NodegroupStep::DeleteNodegroup { nodegroup: nodegroup.name.clone() }, because);
    draft.decide(going("EKS drains and deletes"));
}
