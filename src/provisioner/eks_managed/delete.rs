//! Taking a group down: EKS drains and deletes its node groups. It needs no valid spec where the status names them.

use super::observe::busy;
use super::state::tags;
use crate::aws::Tag;
use crate::aws::nodegroup::{Nodegroup, NodegroupStatus};
use crate::plan::{Draft, Drift, Outcome, Phase, Plan, Reason, Step, waiting};
use crate::provisioner::GroupId;
use crate::provisioner::ownership::foreign;

/// Everything that the plan of a deletion depends on.
pub struct Input<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The tags that say whose a node group is, for each cluster that the status names.
    pub ownership: &'a dyn Fn(&str) -> Vec<Tag>,
    /// The node groups that are there and are on record.
    pub nodegroups: &'a [Nodegroup],
}

/// Plans one pass of a deletion.
pub fn plan(input: &Input) -> Plan {
    let mut draft = Draft::default();
    let ours = input.nodegroups.iter().filter(|n| !foreign(&tags(&n.tags), &(input.ownership)(&n.name.cluster)));
    for nodegroup in ours {
        delete(nodegroup, &mut draft);
    }
    if draft.outcome.is_none() && input.id.finalizer {
        draft.step(Step::RemoveFinalizer);
    }
    draft.decide(Outcome::Deleted);
    draft.finish(input.id, None)
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
    draft.because(Step::DeleteNodegroup { nodegroup: nodegroup.name.clone() }, because);
    draft.decide(going("EKS drains and deletes"));
}
