//! A node group is made.

use super::input::Input;
use super::observed::Split;
use super::record::record;
use super::resolve::Resolved;
use crate::api::spec_error::sentence;
use crate::aws::nodegroup::{NewNodegroup, NodegroupName, NodegroupSizes};
use crate::plan::NodegroupStep;
use crate::plan::{Draft, Drift, Outcome, Phase, Reason, waiting};

/// Makes the node group that has what is wanted, beside another or as the first.
pub fn nodegroup(input: &Input, beside: Option<(i32, Vec<Drift>)>, draft: &mut Draft) {
    let (r, w) = (input.resolved, &input.resolved.wanted);
    let id = &r.name.nodegroup;
    if let Some(taken) = &input.state.taken {
        let message = format!(
            "the node group {} is there and does not carry this group's three tags; rename the InstanceGroup, or remove the node group",
            taken.nodegroup
        );
        return draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
    }
    if let Some(older) = input.state.older.as_ref().filter(|_| beside.is_none()) {
        return draft.decide(Outcome::Blocked {
            reason: Reason::NotOurs,
            message: not_adopted(r, older),
            deleting: false,
        });
    }
    if let Some(first) = input.state.problems.first() {
        let message = sentence(&input.state.problems);
        return draft.decide(Outcome::Blocked { reason: first.reason, message, deleting: false });
    }
    let leaving = input.state.groups.iter().find(|group| *group.name() == r.name);
    if leaving.is_some() {
        let message = format!("the node group {id} is being deleted; it is made again when it is gone");
        return draft.decide(waiting(Phase::Modifying, message));
    }
    let none = Split { current: None, adopting: false, others: input.state.groups.iter().collect() };
    record(input, &none, Some(&r.name), draft);
    let phase = if beside.is_some() { Phase::Rotating } else { Phase::Creating };
    let (desired, because) = beside.unwrap_or((w.min, Vec::new()));
    let mut tags = w.tags.clone();
    tags.extend(r.ownership.iter().map(|t| (t.key.clone(), t.value.clone())));
    let sizes = NodegroupSizes { min: w.min, max: w.max, desired: Some(desired.clamp(w.min, w.max)) };
    let nodegroup = NewNodegroup {
        name: r.name.clone(),
        sizes,
        version: w.version.clone(),
        release_version: w.release_version.clone(),
        shape: w.shape.clone(),
        labels: w.labels.clone(),
        taints: w.taints.clone(),
        max_unavailable: w.max_unavailable,
        repair: w.repair,
        tags,
    };
    draft.because(NodegroupStep::CreateNodegroup(nodegroup), because);
    draft.decide(waiting(phase, format!("EKS makes the node group {id}")));
}

fn not_adopted(resolved: &Resolved, older: &NodegroupName) -> String {
    let tags: Vec<_> = resolved.ownership.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    format!(
        "the node group {} was there before this InstanceGroup, and nothing shows that it is this group's; tag it by hand with {} and it is taken over, or rename the InstanceGroup",
        older.nodegroup,
        tags.join(", ")
    )
}
