//! Plans the deletion of a group: EKS drains and deletes its node groups. No valid spec is needed if the status names the
//! node groups.

use super::names::{is_derived_name, is_recorded, recorded_nodegroups};
use super::ownership::{Doubt, UnprovenNodegroup, is_keiko_nodegroup, is_owned, owner_of, to_tags};
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::aws::Tag;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::ownership::{disowned_outcome, group_list, has_ownership_tags, tagging_blocked};
use crate::plan::NodegroupStep;
use crate::plan::{Drift, ObjectStep, Outcome, Phase, Plan, PlanBuilder, StalledReason, blocked_plan, waiting};
use crate::provisioner::GroupId;
use crate::provisioner::retained::{Retained, report_retained};

/// Everything that the plan of a deletion depends on.
pub struct DeleteInput<'a> {
    /// The group to delete.
    pub id: &'a GroupId,
    /// The tags that prove ownership of a node group, by cluster.
    pub ownership_tags: &'a dyn Fn(&str) -> Vec<Tag>,
    /// The group's status.
    pub status: &'a InstanceGroupStatus,
    /// The resolved spec, if no node group is recorded and the spec is valid.
    pub resolved: Option<&'a ResolvedGroup>,
    /// The existing node groups, found by their recorded names or else by the names derived from the spec.
    pub nodegroups: &'a [Nodegroup],
    /// A recorded node group that EKS has never shown; it may have been created right before the deletion.
    pub unseen: Option<&'a NodegroupName>,
    /// Node groups that match, and of which nothing proves that they are this group's.
    pub unproven: &'a [UnprovenNodegroup],
    /// Another group that is being deleted, and that a node group in `unproven` may belong to as well.
    pub wait_for: Option<&'a str>,
    /// AWS denied tagging the adopted node group less than one resync period ago.
    pub tag_retry_pending: bool,
}

/// Plans one reconcile of a deletion.
pub fn plan(input: &DeleteInput) -> Plan {
    if is_nodegroup_unknown(input) {
        return blocked_plan(input.id, StalledReason::InvalidSpec, UNKNOWN_NODEGROUP.into());
    }
    let mut builder = PlanBuilder::default();
    let (owned, others): (Vec<_>, Vec<_>) = input.nodegroups.iter().partition(|n| match input.resolved {
        Some(resolved) => owner_of(resolved, input.status, n).is_deletable(),
        None => {
            let tags = (input.ownership_tags)(&n.name.cluster);
            let is_tagged = is_derived_name(&n.name, input.id) && has_ownership_tags(&to_tags(&n.tags), &tags);
            is_tagged || is_owned(input.id, input.status, n, &tags) || is_keiko_nodegroup(input.id, input.status, n)
        }
    });
    for nodegroup in owned {
        if nodegroup.status == NodegroupStatus::Deleting
            || has_ownership_tags(&to_tags(&nodegroup.tags), &(input.ownership_tags)(&nodegroup.name.cluster))
        {
            plan_delete(nodegroup, &mut builder);
        } else {
            tag_before_delete(input, nodegroup, &mut builder);
        }
    }
    let disowned = others.into_iter().filter(|n| is_recorded(&n.name, input.id, input.status));
    disowned.filter_map(|n| ownership_conflict(input, n)).for_each(|conflict| builder.set_outcome_once(conflict));
    if let Some(unseen) = input.unseen {
        // Nothing would delete it once the finalizer is gone.
        let message = format!(
            "EKS does not show the node group {}, which may just have been created; looking for it again",
            unseen.nodegroup
        );
        builder.set_outcome_once(waiting(Phase::Deleting, message));
    }
    leave_unproven(input, &mut builder);
    if builder.outcome().is_none() && input.id.has_finalizer {
        builder.push(ObjectStep::RemoveFinalizer);
    }
    builder.set_outcome_once(Outcome::Deleted);
    builder.build(input.id, None)
}

/// The outcome while the tags of a recorded node group do not prove anymore that this group owns it. Without the
/// finalizer, no controller would find it again.
fn ownership_conflict(input: &DeleteInput, nodegroup: &Nodegroup) -> Option<Outcome> {
    let resource = [(nodegroup.name.nodegroup.as_str(), to_tags(&nodegroup.tags))];
    let ownership = (input.ownership_tags)(&nodegroup.name.cluster);
    disowned_outcome("the node group", resource, &ownership, "it as it is", true)
}

/// Leaves the node groups that are not provably this group's. If other groups may be served by one, and if those are being deleted too, the last group deletes it.
fn leave_unproven(input: &DeleteInput, builder: &mut PlanBuilder) {
    let mut kept = Vec::new();
    for unproven in input.unproven {
        let UnprovenNodegroup { name, doubt } = unproven;
        match (doubt, input.wait_for) {
            (Doubt::NoEvidence, _) => {}
            // The group had a node group, and this one may have followed it. Without the finalizer, it would stay.
            (Doubt::OtherScalingGroup { .. }, _) => {
                let message = unproven.message(&(input.ownership_tags)(&name.cluster));
                let reason = StalledReason::OwnershipConflict;
                builder.set_outcome_once(Outcome::Blocked { reason, message, is_deleting: true });
            }
            (Doubt::SharedWith(_), Some(other)) => {
                let message = format!(
                    "waiting for the InstanceGroup {other} to be deleted, because the node group {} may run its nodes as well",
                    name.nodegroup
                );
                builder.set_outcome_once(waiting(Phase::Deleting, message));
            }
            (Doubt::SharedWith(groups), None) => {
                kept.push(Retained::nodegroup_in_use(&name.nodegroup, &group_list(groups)));
            }
        }
    }
    if builder.outcome().is_none() {
        report_retained(input.status, &kept, builder);
    }
}

/// Whether the status names a scaling group, so that a controller has created one for this group.
pub(crate) fn has_recorded_group(status: &InstanceGroupStatus) -> bool {
    status.active_scaling_group_name.as_deref().is_some_and(|name| !name.is_empty())
}

/// Whether a node group was created and neither the status nor the spec names it.
fn is_nodegroup_unknown(input: &DeleteInput) -> bool {
    has_recorded_group(input.status) && input.resolved.is_none() && recorded_nodegroups(input.status).next().is_none()
}

const UNKNOWN_NODEGROUP: &str = "cannot find the node group of the scaling group in status, because the spec is rejected; fix spec.eks-managed, or remove the finalizer if there is no node group";

/// Tags an adopted node group before it is deleted, so that ownership stays provable. The shipped IAM policy allows
/// deleting tagged node groups only.
fn tag_before_delete(input: &DeleteInput, nodegroup: &Nodegroup, builder: &mut PlanBuilder) {
    if input.tag_retry_pending {
        return builder.set_outcome_once(tagging_blocked(true, false, true));
    }
    let ownership = (input.ownership_tags)(&nodegroup.name.cluster).into_iter();
    let tags = ownership.map(|tag| (tag.key, tag.value)).collect();
    builder.push(NodegroupStep::TagNodegroup { nodegroup: nodegroup.name.clone(), arn: nodegroup.arn.clone(), tags });
    let message = format!(
        "the controller tags the node group {} as this group's before it deletes it, which needs eks:TagResource",
        nodegroup.name.nodegroup
    );
    builder.set_outcome_once(waiting(Phase::Deleting, message));
}

fn plan_delete(nodegroup: &Nodegroup, builder: &mut PlanBuilder) {
    let name = &nodegroup.name.nodegroup;
    let deleting = |what: &str| waiting(Phase::Deleting, format!("EKS is {what} the node group {name}"));
    if nodegroup.status == NodegroupStatus::Deleting {
        return builder.set_outcome_once(deleting("draining and deleting"));
    }
    if nodegroup.status.is_busy() {
        return builder.set_outcome_once(deleting("still working on another change of"));
    }
    if nodegroup.status == NodegroupStatus::DeleteFailed {
        let issues: Vec<_> = nodegroup.issues.iter().map(ToString::to_string).collect();
        let why = if issues.is_empty() { "EKS gives no reason".to_owned() } else { issues.join("; ") };
        let remedy = nodegroup.issues.first().map(|issue| super::issues::issue_remedy(&issue.code));
        let remedy = remedy.filter(|remedy| !remedy.is_empty()).unwrap_or("fix the cause; ");
        let message = format!("EKS failed to delete the node group {name}: {why}; {remedy}the deletion is retried");
        let reason = nodegroup.issues.first().and_then(super::issues::issue_reason);
        builder.set_outcome_once(Outcome::Blocked {
            reason: reason.unwrap_or(StalledReason::Degraded),
            message,
            is_deleting: true,
        });
    }
    let reasons = vec![Drift::new("InstanceGroup", "present", "deleted")];
    builder.push_with_reasons(NodegroupStep::DeleteNodegroup { nodegroup: nodegroup.name.clone() }, reasons);
    builder.set_outcome_once(deleting("draining and deleting"));
}
