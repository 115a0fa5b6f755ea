//! Plans the creation of a node group.

use super::desired::CONFIGURATION_PATH;
use super::drift::immutable_drift;
use super::input::PlanInput;
use super::names::{is_recorded, nodegroup_in_arn};
use super::omitted_fields::{DEFAULT_IMAGE, image_without_default};
use super::ownership::to_tags;
use crate::api::NodegroupDeletion;
use crate::api::spec_error::join_messages;
use crate::aws::nodegroup::{NewNodegroup, NodegroupName, NodegroupSizes, NodegroupStatus};
use crate::ownership::disowned_outcome;
use crate::plan::NodegroupStep;
use crate::plan::{Drift, Event, Outcome, Phase, PlanBuilder, PlannedStep, StalledReason, waiting};
use crate::provisioner::recreated::{deleted_by_controller, recreated};

/// Plans a node group that matches the spec. `replacement` holds the desired size and the reasons if it replaces
/// another. `None` if something prevents the creation; the outcome names it.
pub(crate) fn nodegroup(
    input: &PlanInput,
    replacement: Option<(i32, Vec<Drift>)>,
    builder: &mut PlanBuilder,
) -> Option<PlannedStep> {
    if let Some(outcome) = creation_blocker(input, replacement.is_some()) {
        builder.set_outcome_once(outcome);
        return None;
    }
    let (r, desired) = (input.resolved, &input.resolved.desired);
    let phase = if replacement.is_some() { Phase::Rotating } else { Phase::Creating };
    let is_replacement = replacement.is_some();
    let (desired_size, reasons) = replacement.unwrap_or((desired.min_size, Vec::new()));
    let desired_size = desired_size.clamp(desired.min_size, desired.max_size);
    let mut tags = desired.tags.clone();
    tags.extend(r.ownership_tags.iter().map(|t| (t.key.clone(), t.value.clone())));
    let sizes = NodegroupSizes {
        // The Cluster Autoscaler would remove the nodes again while they are empty: EKS gives it every node group to scale.
        min: if is_replacement { desired_size } else { desired.min_size },
        max: desired.max_size,
        desired: Some(desired_size),
    };
    let nodegroup = NewNodegroup {
        name: r.name.clone(),
        sizes,
        version: desired.kubernetes_version(desired.immutable.ami_type.as_deref()),
        release_version: desired.release_version.clone(),
        immutable: desired.immutable.clone(),
        labels: desired.labels.clone(),
        taints: desired.taints.clone(),
        max_unavailable: desired.max_unavailable,
        repair: desired.node_repair,
        tags,
    };
    if phase == Phase::Creating {
        builder.events.extend(recreation_event(input));
    }
    builder.set_outcome_once(waiting(phase, format!("EKS is creating the node group {}", r.name.nodegroup)));
    Some(PlannedStep::new(NodegroupStep::CreateNodegroup(nodegroup), reasons))
}

/// The event about a node group that was deleted and is created again. The controller itself deletes one for a recorded
/// reason, or one whose deletion another client began.
fn recreation_event(input: &PlanInput) -> Option<Event> {
    let what = format!("the node group {}", deleted_nodegroup(input)?);
    let consequence = " with new nodes";
    let reason = input.status.managed.as_ref().and_then(|managed| managed.nodegroup_deletion);
    Some(match reason {
        Some(NodegroupDeletion::CreateFailed) => deleted_by_controller(&what, "EKS could not create it", consequence),
        Some(NodegroupDeletion::LostScalingGroup) => {
            deleted_by_controller(&what, "it had lost its scaling group", consequence)
        }
        None => recreated(&what, "DeleteNodegroup", consequence),
    })
}

/// The node group of this cluster that was observed before and is gone: its ARN is recorded with its observation.
fn deleted_nodegroup(input: &PlanInput) -> Option<String> {
    let arns = input.status.managed.as_ref().map(|managed| managed.nodegroup_arns.as_slice()).unwrap_or_default();
    let exists = |name: &NodegroupName| input.observed.disowned.iter().any(|found| found.name == *name);
    let names = arns.iter().filter_map(|arn| nodegroup_in_arn(arn));
    let mut gone = names.filter(|name| name.cluster == input.resolved.desired.cluster && !exists(name));
    gone.next_back().filter(|_| input.observed.nodegroups.is_empty()).map(|name| name.nodegroup)
}

/// The outcome that prevents the creation of a node group.
fn creation_blocker(input: &PlanInput, is_replacement: bool) -> Option<Outcome> {
    let (r, observed) = (input.resolved, input.observed);
    let blocked = |reason, message| Some(Outcome::Blocked { reason, message, is_deleting: false });
    // The only node group of this group is there: a second one would double its nodes. One that is recorded under the
    // wanted name was created beside the others, and is created again.
    let is_only = !is_replacement && !is_recorded(&r.name, &r.desired.id, input.status);
    if observed.disowned.iter().any(|found| is_only || found.name == r.name) {
        return ownership_conflict(input);
    }
    if let Some(existing) = &observed.name_conflict {
        let message = format!(
            "the node group {} already exists and does not carry this group's three tags; rename the InstanceGroup, or delete the node group",
            existing.nodegroup
        );
        return blocked(StalledReason::OwnershipConflict, message);
    }
    if let Some(unproven) = observed.unproven_nodegroup.as_ref().filter(|_| !is_replacement) {
        return blocked(StalledReason::OwnershipConflict, unproven.message(&r.ownership_tags));
    }
    if let Some(first) = observed.reference_errors.first() {
        return blocked(first.reason, join_messages(&observed.reference_errors));
    }
    if let Some(message) = lost_image(input).filter(|_| is_replacement) {
        return blocked(StalledReason::InvalidSpec, message);
    }
    let existing = observed.nodegroups.iter().find(|group| *group.name() == r.name)?;
    let name = &r.name.nodegroup;
    if existing.has_status(NodegroupStatus::Deleting) {
        let message = format!("the node group {name} is being deleted; it is recreated after that");
        return Some(waiting(Phase::Modifying, message));
    }
    // The controller gives this name only to this content, so another client created the node group.
    let differences: Vec<_> = immutable_drift(r, &existing.nodegroup).iter().map(ToString::to_string).collect();
    let message = format!(
        "the node group {name} carries this group's tags, but is not the one that the controller created ({}), and EKS cannot change that; move its pods and delete it, and the controller creates it again",
        differences.join("; ")
    );
    blocked(StalledReason::OwnershipConflict, message)
}

/// Why a node group that replaces another must not be created: the image of the other one would be lost.
fn lost_image(input: &PlanInput) -> Option<String> {
    let groups = input.observed.nodegroups.iter();
    let mut images =
        groups.filter_map(|found| Some((found.name(), image_without_default(input.resolved, &found.nodegroup)?)));
    let (name, image) = images.next()?;
    Some(format!(
        "{CONFIGURATION_PATH}.amiType is omitted, so that the node group which replaces {} would have EKS's default {DEFAULT_IMAGE} instead of {image}; set amiType to {image} to keep it, or to the image that the instance types need",
        name.nodegroup
    ))
}

/// The outcome while a node group that other groups may share runs beside the group's own one.
pub(crate) fn shared_nodegroup(input: &PlanInput) -> Option<Outcome> {
    let shared = input.observed.unproven_nodegroup.as_ref().filter(|unproven| unproven.is_shared())?;
    let message = shared.message(&input.resolved.ownership_tags);
    Some(Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting: false })
}

/// The outcome while the tags of recorded node groups do not prove anymore that this group owns them.
pub(crate) fn ownership_conflict(input: &PlanInput) -> Option<Outcome> {
    let disowned = input.observed.disowned.iter();
    let resources = disowned.map(|f| (f.name.nodegroup.as_str(), to_tags(&f.tags)));
    disowned_outcome("the node group", resources, &input.resolved.ownership_tags, "it as it is", false)
}
