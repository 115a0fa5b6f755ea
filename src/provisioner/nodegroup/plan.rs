//! From what is wanted and what there is to what is to be done. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::input::PlanInput;
use super::observed::{ObservedNodegroup, Partition, partition};
use super::record::record;
use super::{adopt, blue_green, create, health, update};
use crate::aws::nodegroup::NodegroupStatus;
use crate::plan::{ObjectStep, Outcome, Phase, Plan, PlanBuilder, StatusUpdate, waiting};

/// Plans one pass for a group that is to live.
pub fn plan(input: &PlanInput) -> Plan {
    let halves = partition(input.resolved, input.observed, input.status);
    let mut draft = PlanBuilder { status_update: status_update(input, &halves), ..PlanBuilder::default() };
    let mut wake = None;
    if !input.resolved.desired.id.has_finalizer {
        draft.push(ObjectStep::AddFinalizer);
    }
    match (halves.current, halves.outgoing.as_slice()) {
        (None, []) => create::nodegroup(input, None, &mut draft),
        (None, others) => {
            record(input, &halves, None, &mut draft);
            blue_green::create_replacement(input, others, &mut draft);
        }
        (Some(current), _) => {
            record(input, &halves, None, &mut draft);
            if halves.is_adopting {
                adopt::nodegroup(input, current, &mut draft);
            }
            wake = plan_active(input, current, &halves, &mut draft);
        }
    }
    draft.build(&input.resolved.desired.id, wake)
}

fn plan_active(
    input: &PlanInput,
    current: &ObservedNodegroup,
    halves: &Partition,
    draft: &mut PlanBuilder,
) -> Option<Timestamp> {
    let others = halves.outgoing.as_slice();
    let tags = update::plan_tags(input, current, draft);
    let alone = others.is_empty();
    match current.nodegroup.status {
        NodegroupStatus::Creating => {
            let phase = if alone { Phase::Creating } else { Phase::Rotating };
            let message =
                format!("EKS makes the node group {}; {}", current.name().nodegroup, health::ready_summary(current));
            draft.set_outcome_once(waiting(phase, message));
        }
        NodegroupStatus::CreateFailed if alone => {
            draft.set_outcome_once(health::create_or_delete_failed(input, current))
        }
        NodegroupStatus::CreateFailed => blue_green::rotation_halted(input, current, "could not be made", draft),
        NodegroupStatus::DeleteFailed => draft.set_outcome_once(health::create_or_delete_failed(input, current)),
        NodegroupStatus::Deleting => {
            let message = format!(
                "the node group {} is being deleted; it is made again when it is gone",
                current.name().nodegroup
            );
            draft.set_outcome_once(waiting(Phase::Modifying, message));
        }
        NodegroupStatus::Updating => draft.set_outcome_once(health::update_progress(input, current)),
        NodegroupStatus::Active | NodegroupStatus::Degraded | NodegroupStatus::Other => {
            if health::is_update_in_progress(input) {
                draft.set_outcome_once(health::update_progress(input, current));
            }
        }
    }
    if draft.outcome.is_none() {
        update::plan_config_update(input, current, draft);
    }
    if halves.is_adopting && !alone {
        draft.set_outcome_once(waiting(
            Phase::Modifying,
            format!("the node group {} was taken over", current.name().nodegroup),
        ));
    }
    // The takeover itself replaces no node: what it records holds from the next pass on.
    if draft.outcome.is_none() && !halves.is_adopting {
        blue_green::drain_outgoing(input, current, others, draft);
    }
    if draft.outcome.is_none() && !halves.is_adopting {
        update::plan_version_update(input, current, draft);
    }
    if draft.outcome.is_none() {
        draft.outcome = update::size_change_blocker(input, current);
    }
    if draft.outcome.is_none() {
        // Nothing is wanted any more of what an update was to reach.
        if input.status.update_of.is_some() {
            draft.status_update.fields.insert("updateOf".into(), Value::Null);
        }
        health::check_readiness(input, current, draft);
    }
    if let Some(outcome) = tags {
        draft.set_outcome_once(outcome);
    }
    let failed = input.status.update_of.as_deref().and_then(|of| input.again(of));
    failed.filter(|_| matches!(draft.outcome, Some(Outcome::Blocked { .. })))
}

fn status_update(input: &PlanInput, halves: &Partition) -> StatusUpdate {
    let w = &input.resolved.desired;
    let lifecycle = if w.immutable.capacity_type.as_deref() == Some("SPOT") { "spot" } else { "normal" };
    let mut fields = BTreeMap::from([
        ("provisioner".to_owned(), json!("eks-managed")),
        ("strategy".into(), json!("managed")),
        ("lifecycle".into(), json!(lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(w.immutable.node_role)),
    ]);
    let serving = halves.current.or(halves.outgoing.last().copied());
    if let Some(group) = serving {
        let names = group.scaling_group_names();
        if !names.is_empty() {
            fields.insert("activeScalingGroupName".into(), json!(names));
        }
        fields.insert("currentMin".into(), json!(group.nodegroup.sizes.min));
        fields.insert("currentMax".into(), json!(group.nodegroup.sizes.max));
    }
    if let Some(group) = serving {
        fields.insert("nodes".into(), health::node_counts(input, group, &halves.outgoing));
    }
    StatusUpdate { fields, nodes_ready: None }
}
