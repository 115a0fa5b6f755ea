//! Taking a group down: EKS drains and deletes its node groups. It needs no valid spec where the status names them.

use super::observe::{is_busy, recorded_nodegroups};
use super::observed::{is_owned, owner_of, to_tags};
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::nodegroup::{Nodegroup, NodegroupStatus};
use crate::ownership::{has_ownership_tags, tagging_blocked};
use crate::plan::NodegroupStep;
use crate::plan::{Drift, ObjectStep, Outcome, Phase, Plan, PlanBuilder, Reason, blocked_plan, waiting};
use crate::provisioner::GroupId;

/// Everything that the plan of a deletion depends on.
pub struct DeleteInput<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The tags that say whose a node group is, for each cluster that the status names.
    pub ownership_tags: &'a dyn Fn(&str) -> Vec<Tag>,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// What is wanted, where nothing is on record and the spec can be worked with.
    pub resolved: Option<&'a ResolvedGroup>,
    /// The node groups that are there, by the names on record or else by those that the spec gives them.
    pub nodegroups: &'a [Nodegroup],
    /// AWS refused to tag what another controller made, less than a resync period ago.
    pub tag_retry_pending: bool,
}

/// Plans one pass of a deletion.
pub fn plan(input: &DeleteInput) -> Plan {
    if is_nodegroup_unknown(input) {
        return blocked_plan(input.id, Reason::InvalidSpec, UNKNOWN_NODEGROUP.into());
    }
    let mut draft = PlanBuilder::default();
    let ours = input.nodegroups.iter().filter(|n| match input.resolved {
        Some(resolved) => owner_of(resolved, input.status, n).is_deletable(),
        None => is_owned(input.status, n, &(input.ownership_tags)(&n.name.cluster)),
    });
    for nodegroup in ours {
        if nodegroup.status == NodegroupStatus::Deleting
            || has_ownership_tags(&to_tags(&nodegroup.tags), &(input.ownership_tags)(&nodegroup.name.cluster))
        {
            plan_delete(nodegroup, &mut draft);
        } else {
            tag_before_delete(input, nodegroup, &mut draft);
        }
    }
    if draft.outcome.is_none() && input.id.has_finalizer {
        draft.push(ObjectStep::RemoveFinalizer);
    }
    draft.set_outcome_once(Outcome::Deleted);
    draft.build(input.id, None)
}

/// Whether the status names a scaling group: somebody made one for this group.
pub fn has_recorded_group(status: &InstanceGroupStatus) -> bool {
    status.active_scaling_group_name.as_deref().is_some_and(|name| !name.is_empty())
}

/// There was a node group, and neither the record nor the spec says which.
fn is_nodegroup_unknown(input: &DeleteInput) -> bool {
    has_recorded_group(input.status) && input.resolved.is_none() && recorded_nodegroups(input.status).next().is_none()
}

const UNKNOWN_NODEGROUP: &str = "the status names a scaling group, and the spec is refused, so that nobody knows its node group; mend the spec of eks-managed, or remove the finalizer when there is no node group";

/// What another controller made is tagged before it is deleted, so that it stays provable whose it was; the rights that
/// are shipped reach nothing without the tags.
fn tag_before_delete(input: &DeleteInput, nodegroup: &Nodegroup, draft: &mut PlanBuilder) {
    if input.tag_retry_pending {
        return draft.set_outcome_once(tagging_blocked(true, false, true));
    }
    let ownership = (input.ownership_tags)(&nodegroup.name.cluster).into_iter();
    let tags = ownership.map(|tag| (tag.key, tag.value)).collect();
    draft.push(NodegroupStep::TagNodegroup { nodegroup: nodegroup.name.clone(), arn: nodegroup.arn.clone(), tags });
    let message = format!(
        "the node group {} is deleted once it is tagged as this group's; for that the controller needs eks:TagResource",
        nodegroup.name.nodegroup
    );
    draft.set_outcome_once(waiting(Phase::Deleting, message));
}

fn plan_delete(nodegroup: &Nodegroup, draft: &mut PlanBuilder) {
    let name = &nodegroup.name.nodegroup;
    let going = |what: &str| waiting(Phase::Deleting, format!("{what} the node group {name}"));
    if nodegroup.status == NodegroupStatus::Deleting {
        return draft.set_outcome_once(going("EKS drains and deletes"));
    }
    if is_busy(nodegroup.status) {
        return draft.set_outcome_once(going("EKS takes one change at a time and still works on"));
    }
    if nodegroup.status == NodegroupStatus::DeleteFailed {
        let issues: Vec<_> = nodegroup.issues.iter().map(ToString::to_string).collect();
        let why = if issues.is_empty() { "EKS gives no reason".to_owned() } else { issues.join("; ") };
        let message =
            format!("the node group {name} could not be deleted: {why}; mend it, and the deletion goes on by itself");
        let reason = nodegroup.issues.first().and_then(|issue| super::health::issue_reason(&issue.code));
        draft.set_outcome_once(Outcome::Blocked {
            reason: reason.unwrap_or(Reason::Degraded),
            message,
            is_deleting: true,
        });
    }
    let because = vec![Drift::new("InstanceGroup", "present", "deleted")];
    draft.push_with_reasons(NodegroupStep::DeleteNodegroup { nodegroup: nodegroup.name.clone() }, because);
    draft.set_outcome_once(going("EKS drains and deletes"));
}
