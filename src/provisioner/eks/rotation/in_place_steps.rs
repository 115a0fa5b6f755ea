//! Plans the changes of labels and taints on running nodes.

use super::outdated;
use crate::aws::InstanceState;
use crate::plan::in_place::describe_changes;
use crate::plan::{Event, EventReason, NodeStep, Outcome, Phase, PlanBuilder, Recheck, waiting};
use crate::provisioner::eks::input::PlanInput;
use crate::rotation::NodeInstance;
use crate::util::counted::counted;

/// How many nodes one pass changes. Each is read and written, and other groups wait for the same worker.
const NODES_PER_PASS: usize = 100;

/// Changes the nodes whose labels and taints differ. No pod leaves its node by that, so neither locks, budgets nor the
/// block of a rollout stop it.
pub(crate) fn change_nodes(input: &PlanInput, builder: &mut PlanBuilder) {
    let members = outdated::members(input.resolved, input.observed, input.status);
    let stays = |m: &&NodeInstance| m.instance.state != InstanceState::Terminating;
    // A node that has not joined yet changes when it has.
    let (due, duplicates): (Vec<_>, Vec<_>) = (members.iter().filter(stays))
        .filter_map(|m| Some((m, m.node.as_ref()?, m.in_place.as_ref()?)))
        .partition(|(m, ..)| m.duplicate_provider_id().is_none());
    let now = &due[..due.len().min(NODES_PER_PASS)];
    for (member, node, update) in now {
        let (node, instance) = (node.name.clone(), member.instance.id.clone());
        let step = NodeStep::ChangeNodeInPlace { node, instance, change: update.change.clone() };
        builder.push_with_reasons(step, update.reasons.clone());
    }
    if !now.is_empty() {
        let changes = describe_changes(now.iter().map(|(.., update)| update.reasons.as_slice())).join("; ");
        let left = due.len() - now.len();
        let more = if left > 0 { format!("; {} follow", counted(left, "more node")) } else { String::new() };
        builder
            .events
            .push(Event::normal(EventReason::NodesChangedInPlace, format!("changed in place: {changes}{more}")));
        builder.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: format!("changing {} in place: {changes}", counted(due.len(), "node")),
            recheck: Recheck::Immediately,
        });
    }
    if !duplicates.is_empty() {
        let found: Vec<_> = duplicates.iter().filter_map(|(m, ..)| m.duplicate_provider_id()).collect();
        let message = format!("waiting for duplicate Nodes to be deleted ({})", found.join("; "));
        builder.set_outcome_once(waiting(Phase::Modifying, message));
    }
}
