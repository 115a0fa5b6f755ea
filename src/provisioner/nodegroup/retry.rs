//! What EKS could not create or delete, and what lost its scaling group. None of these comes back to life, also after
//! its cause is gone.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::input::PlanInput;
use super::observed::ObservedNodegroup;
use super::ownership::to_tags;
use super::{blue_green, health};
use crate::api::{NodegroupDeletion, rfc3339};
use crate::ownership::has_ownership_tags;
use crate::plan::{NodegroupStep, Outcome, PlanBuilder};
use crate::provisioner::rejected_fields::Part;
use crate::settings::Timing;

/// How long after it failed a node group is deleted and created again: 15 minutes by default. EKS itself takes about as long
/// until it gives up on nodes that do not join.
fn delay(timing: &Timing) -> SignedDuration {
    timing.retry_delay * 3
}

/// Deletes a node group that EKS could not create, or that lost its scaling group, after a while; the group then gets
/// another one. Pods may run on a node that was Ready at any time, so a user must delete such a node group. Returns
/// when to check again.
pub(crate) fn creation(
    input: &PlanInput,
    failed: &ObservedNodegroup,
    outgoing: &[&ObservedNodegroup],
    is_adopting: bool,
    builder: &mut PlanBuilder,
) -> Option<Timestamp> {
    let name = &failed.name().nodegroup;
    let retry_in = delay(input.timing) - input.observed.creation_failed_for;
    let is_due = retry_in <= SignedDuration::ZERO || input.is_requested;
    let is_unhealthy = health::cluster_unhealthy(input).is_some();
    // The next one may have another release than one that had Ready nodes.
    let (reason, problem, fix, lock) = match input.observed.has_lost_scaling_group {
        true => {
            let lock = input.lock.or(input.rollout_block);
            (NodegroupDeletion::LostScalingGroup, "has lost its scaling group", "", lock)
        }
        false => (NodegroupDeletion::CreateFailed, "could not be created", "fix the cause; ", input.lock),
    };
    let (has_served, is_rejected) = (has_served(input, failed), is_rejected(input));
    let next = match (has_served, lock) {
        (true, _) => format!(
            "the node group is kept because pods may run on its nodes; fix the cause, then delete the node group {name}; it is recreated after that"
        ),
        (false, Some(lock)) => format!("{fix}another attempt is blocked by {lock}"),
        (false, None) if is_rejected => {
            format!("{fix}the node group is deleted and recreated once the rejected fields of the spec are corrected")
        }
        (false, None) if is_due && is_unhealthy => {
            format!("{fix}the node group is deleted and recreated once more nodes of the cluster are ready")
        }
        (false, None) if is_due => format!("{fix}the node group is deleted now, and recreated after that"),
        (false, None) => {
            let at =
                input.now.checked_add(retry_in).map_or_else(|_| "later".into(), |at| format!("at {}", rfc3339(at)));
            format!("{fix}the node group is deleted and recreated {at}, or now by instance-manager reconcile")
        }
    };
    if outgoing.is_empty() {
        builder.set_outcome_once(health::unusable(input, failed, &next));
    } else {
        blue_green::rotation_halted(input, failed, (problem, &next), builder);
    }
    if has_served || lock.is_some() || is_rejected {
        return None;
    }
    if !is_due {
        return input.now.checked_add(retry_in).ok();
    }
    if !is_unhealthy {
        // The creation of the next one is reported with it, unless that replaces another one.
        let reason = outgoing.is_empty().then_some(reason);
        delete(input, failed, reason, is_adopting, builder);
    }
    None
}

/// Whether a node of the node group is or was Ready, also one that AWS does not show. An instance without a Node never was.
fn has_served(input: &PlanInput, group: &ObservedNodegroup) -> bool {
    let was_ready = |node: &crate::rotation::NodeView| node.ready || node.was_ready;
    let is_listed = group.members.iter().any(|m| m.lost_node.is_some() || m.node.as_ref().is_some_and(was_ready));
    is_listed || input.observed.unlisted_nodes.contains_key(group.name())
}

/// Deletes a node group whose deletion EKS could not finish. EKS cannot make it active again; the controller creates
/// another one of its name after the deletion. A spec that could not create that one leaves it as it is.
pub(crate) fn deletion(input: &PlanInput, current: &ObservedNodegroup, is_adopting: bool, builder: &mut PlanBuilder) {
    if let Some(lock) = input.lock {
        let message =
            format!("{}; another attempt is blocked by {lock}", health::deletion_failure(input, &current.nodegroup));
        return builder.set_outcome_once(Outcome::Locked { message });
    }
    if let Some(outcome) = health::cluster_unhealthy(input) {
        return builder.set_outcome_once(outcome);
    }
    let condition = if is_rejected(input) { " once the rejected fields of the spec are corrected" } else { "" };
    builder.set_outcome_once(health::delete_failed(input, current, condition));
    delete(input, current, None, is_adopting, builder);
}

/// Whether the spec has fields that cannot be used, and without which no node group can be created.
fn is_rejected(input: &PlanInput) -> bool {
    let broken = &input.resolved.broken;
    broken.contains(Part::Rotation) || broken.contains(Part::Immutable)
}

/// Deletes a node group, and records why before; without a reason, another client began the deletion.
fn delete(
    input: &PlanInput,
    current: &ObservedNodegroup,
    reason: Option<NodegroupDeletion>,
    is_adopting: bool,
    builder: &mut PlanBuilder,
) {
    // One without the tags gets them before. The shipped IAM policy does not allow its deletion until then.
    let is_tagged = has_ownership_tags(&to_tags(&current.nodegroup.tags), &input.resolved.ownership_tags);
    if is_tagged && !is_adopting && !is_rejected(input) {
        let recorded = input.status.managed.as_ref().and_then(|managed| managed.nodegroup_deletion);
        if reason.is_some() && reason != recorded {
            builder.record_after_steps(json!({ "managed": { "nodegroupDeletion": reason } }));
        }
        builder.push(NodegroupStep::DeleteNodegroup { nodegroup: current.name().clone() });
    }
}
