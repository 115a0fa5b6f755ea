//! Plans the creation of a node group.

use super::input::PlanInput;
use super::observed::Partition;
use super::record::record;
use super::resolve::ResolvedGroup;
use crate::api::spec_error::join_messages;
use crate::aws::nodegroup::{NewNodegroup, NodegroupName, NodegroupSizes};
use crate::plan::NodegroupStep;
use crate::plan::{Drift, Outcome, Phase, PlanBuilder, Reason, waiting};

/// Plans a node group that matches the spec. `replacement` holds the desired size and the reasons if it replaces another.
pub fn nodegroup(input: &PlanInput, replacement: Option<(i32, Vec<Drift>)>, draft: &mut PlanBuilder) {
    let (r, w) = (input.resolved, &input.resolved.desired);
    let id = &r.name.nodegroup;
    if let Some(taken) = &input.observed.name_conflict {
        let message = format!(
            "the node group {} already exists and does not carry this group's three tags; rename the InstanceGroup, or delete the node group",
            taken.nodegroup
        );
        return draft.set_outcome_once(Outcome::Blocked {
            reason: Reason::OwnershipConflict,
            message,
            is_deleting: false,
        });
    }
    if let Some(older) = input.observed.predating_nodegroup.as_ref().filter(|_| replacement.is_none()) {
        return draft.set_outcome_once(Outcome::Blocked {
            reason: Reason::OwnershipConflict,
            message: not_adopted_message(r, older),
            is_deleting: false,
        });
    }
    if let Some(first) = input.observed.reference_errors.first() {
        let message = join_messages(&input.observed.reference_errors);
        return draft.set_outcome_once(Outcome::Blocked { reason: first.reason, message, is_deleting: false });
    }
    let deleting = input.observed.nodegroups.iter().find(|group| *group.name() == r.name);
    if deleting.is_some() {
        let message = format!("the node group {id} is being deleted; it is recreated after that");
        return draft.set_outcome_once(waiting(Phase::Modifying, message));
    }
    let none = Partition { current: None, is_adopting: false, outgoing: input.observed.nodegroups.iter().collect() };
    record(input, &none, Some(&r.name), draft);
    let phase = if replacement.is_some() { Phase::Rotating } else { Phase::Creating };
    let (desired, because) = replacement.unwrap_or((w.min_size, Vec::new()));
    let mut tags = w.tags.clone();
    tags.extend(r.ownership_tags.iter().map(|t| (t.key.clone(), t.value.clone())));
    let sizes =
        NodegroupSizes { min: w.min_size, max: w.max_size, desired: Some(desired.clamp(w.min_size, w.max_size)) };
    let nodegroup = NewNodegroup {
        name: r.name.clone(),
        sizes,
        version: w.version.clone(),
        release_version: w.release_version.clone(),
        immutable: w.immutable.clone(),
        labels: w.labels.clone(),
        taints: w.taints.clone(),
        max_unavailable: w.max_unavailable,
        repair: w.node_repair,
        tags,
    };
    draft.push_with_reasons(NodegroupStep::CreateNodegroup(nodegroup), because);
    draft.set_outcome_once(waiting(phase, format!("EKS is creating the node group {id}")));
}

fn not_adopted_message(resolved: &ResolvedGroup, older: &NodegroupName) -> String {
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    format!(
        "the node group {} is older than this InstanceGroup and not provably this group's; to have it adopted, tag it with {}; otherwise rename the InstanceGroup",
        older.nodegroup,
        tags.join(", ")
    )
}
