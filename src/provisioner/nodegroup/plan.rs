//! From what is wanted and what there is to what is to be done. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::input::Input;
use super::observed::{Group, Split, split};
use super::record::record;
use super::{adopt, blue_green, create, health, update};
use crate::aws::nodegroup::NodegroupStatus;
use crate::plan::{Draft, Facts, ObjectStep, Outcome, Phase, Plan, waiting};

/// Plans one pass for a group that is to live.
pub fn plan(input: &Input) -> Plan {
    let halves = split(input.resolved, input.state, input.status);
    let mut draft = Draft { facts: facts(input, &halves), ..Draft::default() };
    let mut wake = None;
    if !input.resolved.wanted.id.finalizer {
        draft.step(ObjectStep::AddFinalizer);
    }
    match (halves.current, halves.others.as_slice()) {
        (None, []) => create::nodegroup(input, None, &mut draft),
        (None, others) => {
            record(input, &halves, None, &mut draft);
            blue_green::begin(input, others, &mut draft);
        }
        (Some(current), _) => {
            record(input, &halves, None, &mut draft);
            if halves.adopting {
                adopt::nodegroup(input, current, &mut draft);
            }
            wake = living(input, current, &halves, &mut draft);
        }
    }
    draft.finish(&input.resolved.wanted.id, wake)
}

fn living(input: &Input, current: &Group, halves: &Split, draft: &mut Draft) -> Option<Timestamp> {
    let others = halves.others.as_slice();
    let tags = update::tags(input, current, draft);
    let alone = others.is_empty();
    match current.nodegroup.status {
        NodegroupStatus::Creating => {
            let phase = if alone { Phase::Creating } else { Phase::Rotating };
            let message =
                format!("EKS makes the node group {}; {}", current.name().nodegroup, health::readiness(current));
            draft.decide(waiting(phase, message));
        }
        NodegroupStatus::CreateFailed if alone => draft.decide(health::blocked(input, current)),
        NodegroupStatus::CreateFailed => blue_green::halted(input, current, "could not be made", draft),
        NodegroupStatus::DeleteFailed => draft.decide(health::blocked(input, current)),
        NodegroupStatus::Deleting => {
            let message = format!(
                "the node group {} is being deleted; it is made again when it is gone",
                current.name().nodegroup
            );
            draft.decide(waiting(Phase::Modifying, message));
        }
        NodegroupStatus::Updating => draft.decide(health::updating(input, current)),
        NodegroupStatus::Active | NodegroupStatus::Degraded | NodegroupStatus::Other => {
            if health::under_way(input) {
                draft.decide(health::updating(input, current));
            }
        }
    }
    if draft.outcome.is_none() {
        update::in_place(input, current, draft);
    }
    if halves.adopting && !alone {
        draft.decide(waiting(Phase::Modifying, format!("the node group {} was taken over", current.name().nodegroup)));
    }
    // The takeover itself replaces no node: what it records holds from the next pass on.
    if draft.outcome.is_none() && !halves.adopting {
        blue_green::go_on(input, current, others, draft);
    }
    if draft.outcome.is_none() && !halves.adopting {
        update::version(input, current, draft);
    }
    if draft.outcome.is_none() {
        draft.outcome = update::held(input, current);
    }
    if draft.outcome.is_none() {
        // Nothing is wanted any more of what an update was to reach.
        if input.status.update_of.is_some() {
            draft.facts.status.insert("updateOf".into(), Value::Null);
        }
        health::standing(input, current, draft);
    }
    if let Some(outcome) = tags {
        draft.decide(outcome);
    }
    let failed = input.status.update_of.as_deref().and_then(|of| input.again(of));
    failed.filter(|_| matches!(draft.outcome, Some(Outcome::Blocked { .. })))
}

fn facts(input: &Input, halves: &Split) -> Facts {
    let w = &input.resolved.wanted;
    let lifecycle = if w.shape.capacity_type.as_deref() == Some("SPOT") { "spot" } else { "normal" };
    let mut status = BTreeMap::from([
        ("provisioner".to_owned(), json!("eks-managed")),
        ("strategy".into(), json!("managed")),
        ("lifecycle".into(), json!(lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(w.shape.node_role)),
    ]);
    let serving = halves.current.or(halves.others.last().copied());
    if let Some(group) = serving {
        let names = group.scaling_groups();
        if !names.is_empty() {
            status.insert("activeScalingGroupName".into(), json!(names));
        }
        status.insert("currentMin".into(), json!(group.nodegroup.sizes.min));
        status.insert("currentMax".into(), json!(group.nodegroup.sizes.max));
    }
    if let Some(group) = serving {
        status.insert("nodes".into(), health::counts(input, group, &halves.others));
    }
    Facts { status, nodes_ready: None }
}
