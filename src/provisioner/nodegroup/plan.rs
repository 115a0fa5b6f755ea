//! Plans one reconcile of an `eks-managed` group from its resolved spec and observed state. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::input::PlanInput;
use super::observed::{ObservedNodegroup, Partition, partition};
use super::record::record;
use super::{adopt, blue_green, create, health, update};
use crate::aws::nodegroup::NodegroupStatus;
use crate::plan::{ObjectStep, Outcome, Phase, Plan, PlanBuilder, StatusUpdate, waiting};

/// Plans one reconcile of a group that is not being deleted.
pub fn plan(input: &PlanInput) -> Plan {
    let partitioned = partition(input.resolved, input.observed, input.status);
    let mut draft = PlanBuilder { status_update: status_update(input, &partitioned), ..PlanBuilder::default() };
    let mut recheck_at = None;
    if !input.resolved.desired.id.has_finalizer {
        draft.push(ObjectStep::AddFinalizer);
    }
    match (partitioned.current, partitioned.outgoing.as_slice()) {
        (None, []) => create::nodegroup(input, None, &mut draft),
        (None, others) => {
            record(input, &partitioned, None, &mut draft);
            blue_green::create_replacement(input, others, &mut draft);
        }
        (Some(current), _) => {
            record(input, &partitioned, None, &mut draft);
            if partitioned.is_adopting {
                adopt::report_adoption(input, current, &mut draft);
            }
            recheck_at = plan_active(input, current, &partitioned, &mut draft);
        }
    }
    draft.build(&input.resolved.desired.id, recheck_at)
}

fn plan_active(
    input: &PlanInput,
    current: &ObservedNodegroup,
    partitioned: &Partition,
    draft: &mut PlanBuilder,
) -> Option<Timestamp> {
    let others = partitioned.outgoing.as_slice();
    let tags = update::plan_tags(input, current, partitioned.is_adopting, draft);
    let alone = others.is_empty();
    match current.nodegroup.status {
        NodegroupStatus::Creating => {
            let phase = if alone { Phase::Creating } else { Phase::Rotating };
            let message = format!(
                "EKS is creating the node group {}; {}",
                current.name().nodegroup,
                health::ready_summary(current)
            );
            draft.set_outcome_once(waiting(phase, message));
        }
        NodegroupStatus::CreateFailed if alone => {
            draft.set_outcome_once(health::create_or_delete_failed(input, current))
        }
        NodegroupStatus::CreateFailed => blue_green::rotation_halted(input, current, "could not be created", draft),
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
    if partitioned.is_adopting && !alone {
        draft.set_outcome_once(waiting(
            Phase::Modifying,
            format!("adopted the node group {}", current.name().nodegroup),
        ));
    }
    // An adoption replaces no nodes. Its record takes effect with the next reconcile.
    if draft.outcome.is_none() && !partitioned.is_adopting {
        blue_green::drain_outgoing(input, current, others, draft);
    }
    if draft.outcome.is_none() && !partitioned.is_adopting {
        update::plan_version_update(input, current, draft);
    }
    if draft.outcome.is_none() {
        draft.outcome = update::size_change_blocker(input, current);
    }
    if draft.outcome.is_none() {
        // The spec no longer asks for the change of the recorded update.
        if input.status.update_of.is_some() {
            draft.status_update.fields.insert("updateOf".into(), Value::Null);
        }
        health::check_readiness(input, current, draft);
    }
    if let Some(outcome) = tags {
        draft.set_outcome_once(outcome);
    }
    let failed = input.status.update_of.as_deref().and_then(|of| input.update_retry_at(of));
    failed.filter(|_| matches!(draft.outcome, Some(Outcome::Blocked { .. })))
}

fn status_update(input: &PlanInput, partitioned: &Partition) -> StatusUpdate {
    let w = &input.resolved.desired;
    let lifecycle = if w.immutable.capacity_type.as_deref() == Some("SPOT") { "spot" } else { "normal" };
    let mut fields = BTreeMap::from([
        ("provisioner".to_owned(), json!("eks-managed")),
        ("strategy".into(), json!("managed")),
        ("lifecycle".into(), json!(lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(w.immutable.node_role)),
    ]);
    let serving = partitioned.current.or(partitioned.outgoing.last().copied());
    if let Some(group) = serving {
        let names = group.scaling_group_names();
        if !names.is_empty() {
            fields.insert("activeScalingGroupName".into(), json!(names));
        }
        fields.insert("currentMin".into(), json!(group.nodegroup.sizes.min));
        fields.insert("currentMax".into(), json!(group.nodegroup.sizes.max));
    }
    if let Some(group) = serving {
        fields.insert("nodes".into(), health::node_counts(input, group, &partitioned.outgoing));
    }
    StatusUpdate { fields, nodes_ready: None }
}
