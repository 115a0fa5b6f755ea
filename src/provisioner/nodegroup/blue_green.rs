//! Blue/green replacement for changes that EKS cannot make in place. A second node group is created; once its nodes are
//! Ready, the nodes of the outgoing groups are drained and those groups are deleted.

use super::drift::immutable_drift;
use super::input::PlanInput;
use super::issues::SCALING_GROUP_NOT_FOUND;
use super::observed::{ObservedNodegroup, serving_of};
use super::ownership::to_tags;
use super::{create, health, usage};
use crate::api::names::condition;
use crate::aws::InstanceState;
use crate::aws::nodegroup::NodegroupStatus;
use crate::ownership::{has_ownership_tags, tagging_blocked};
use crate::plan::NodegroupStep;
use crate::plan::{
    ConditionUpdate, NodeStep, Outcome, PersistentFailure, Phase, PlanBuilder, PlannedStep, StalledReason,
    UncordonReason, waiting,
};
use crate::rotation::drain;
use crate::rotation::drain::{AtTimeout, DrainAction, DrainPolicy};
use crate::rotation::rolling_update;
use crate::rotation::rolling_update::report::{RotatedNodes, report};
use crate::rotation::rolling_update::{Candidates, RollingUpdateDecision, RotationState, WarmPoolRotation, decide};
use crate::rotation::{NodeInstance, NodeView};
use crate::util::counted::are;

/// Creates the replacement with the desired size of the node groups that it replaces. Returns the step that creates it;
/// `None` if something prevents the creation, and the outcome names it.
pub(crate) fn create_replacement(
    input: &PlanInput,
    outgoing: &[&ObservedNodegroup],
    builder: &mut PlanBuilder,
) -> Option<PlannedStep> {
    let serving = serving_of(outgoing)?;
    let reasons = immutable_drift(input.resolved, &serving.nodegroup);
    if outgoing.iter().all(|group| group.nodegroup.status == NodegroupStatus::Deleting) {
        return create::nodegroup(input, None, builder);
    }
    let drift: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if let Some(lock) = input.lock.or(input.rollout_block) {
        update_serving(input, serving, builder);
        let nodes: usize = outgoing.iter().map(|group| group.members.len()).sum();
        let message =
            format!("{} outdated ({}); replacement is blocked by {lock}", are(nodes, "node"), drift.join("; "));
        builder.set_outcome_once(Outcome::Locked { message });
        health::report_readiness(input, serving, builder);
        return None;
    }
    if let Some(outcome) = health::cluster_unhealthy(input) {
        update_serving(input, serving, builder);
        builder.set_outcome_once(outcome);
        return None;
    }
    // EKS adds nodes for an update, which the replacement would get as well.
    if let Some(busy) = outgoing.iter().find(|group| group.nodegroup.status == NodegroupStatus::Updating) {
        let message = format!(
            "EKS is working on the node group {}, which is replaced after that ({})",
            busy.name().nodegroup,
            drift.join("; ")
        );
        builder.set_outcome_once(waiting(Phase::Rotating, message));
        return None;
    }
    let replaced = outgoing.iter().filter(|group| has_nodes_to_replace(group));
    let desired = replaced.map(|group| group.desired_size()).max().unwrap_or_default();
    let creation = create::nodegroup(input, Some((desired, reasons)), builder);
    // Something prevents the creation, or EKS refuses it for an unknown time.
    if creation.is_none() || *input.persistent_failure != PersistentFailure::None {
        update_serving(input, serving, builder);
    }
    creation
}

/// Whether a replacement has to be as large as this node group. What EKS could not create or delete may have no nodes,
/// whatever size it was to have.
fn has_nodes_to_replace(group: &ObservedNodegroup) -> bool {
    match group.nodegroup.status {
        NodegroupStatus::Deleting => false,
        NodegroupStatus::CreateFailed | NodegroupStatus::DeleteFailed => group.ready_nodes() > 0,
        _ => true,
    }
}

/// Changes tags, sizes, labels and taints of the node group that serves while its replacement does not come. EKS refuses
/// other changes than those of tags while it works on a node group, and when it could not create or delete it.
pub(crate) fn update_serving(input: &PlanInput, serving: &ObservedNodegroup, builder: &mut PlanBuilder) {
    super::update::plan_tags(input, serving, false, builder);
    let status = serving.nodegroup.status;
    let has_failed = matches!(status, NodegroupStatus::CreateFailed | NodegroupStatus::DeleteFailed);
    if !status.is_busy() && !has_failed {
        super::update::plan_config_update(input, serving, None, builder);
    }
}

/// Reports a halted rotation: the replacement could not be created, or its nodes did not join. The old nodes are kept.
/// `next` describes what follows.
pub(crate) fn rotation_halted(
    input: &PlanInput,
    current: &ObservedNodegroup,
    (problem, next): (&str, &str),
    builder: &mut PlanBuilder,
) {
    let message = format!(
        "the node group {} {problem}: {}; the old nodes are kept; {next}",
        current.name().nodegroup,
        health::issue_summary(input, &current.nodegroup.issues)
    );
    builder.condition_updates.push(ConditionUpdate {
        condition_type: condition::ROTATION_HALTED,
        status: true,
        reason: StalledReason::ReplacementsNotReady.to_string(),
        message: message.clone(),
    });
    builder.set_outcome_once(Outcome::Blocked {
        reason: StalledReason::ReplacementsNotReady,
        message,
        is_deleting: false,
    });
}

/// Drains the outgoing node groups once the current one is ready, and deletes them when they are empty.
pub(crate) fn drain_outgoing(
    input: &PlanInput,
    current: &ObservedNodegroup,
    outgoing: &[&ObservedNodegroup],
    builder: &mut PlanBuilder,
) {
    let mut members = current.members.clone();
    members.extend(outgoing.iter().flat_map(|group| outgoing_members(input, group)));
    let outgoing_nodes = members.len() - current.members.len();
    let mut decision = decide(&rolling_update_input(input, current, &members, outgoing_nodes));
    if outgoing.is_empty() {
        return report(&members, decision, &RotatedNodes::Outdated, builder);
    }
    decision.steps.retain(|step| !matches!(step, NodeStep::Terminate { .. }));
    let has_started = !decision.steps.is_empty() || has_disruption_record(input, &members[current.members.len()..]);
    let waits_for_current = matches!(decision.state, RotationState::Idle | RotationState::InProgress)
        && current.ready_nodes() < needed_nodes(current)
        && !has_started;
    if waits_for_current && !current.nodegroup.issues.is_empty() {
        let texts = ("has no nodes yet", "correct the spec, then another node group is created");
        return rotation_halted(input, current, texts, builder);
    }
    if waits_for_current {
        return health::check_readiness(input, current, builder);
    }
    if outgoing_nodes > 0 || !decision.steps.is_empty() {
        let kept = outgoing.iter().filter(|group| group.nodegroup.status != NodegroupStatus::Deleting);
        let total = kept.flat_map(|group| &group.members).filter(is_running).count();
        let drained = total.saturating_sub(outgoing_nodes);
        report(&members, decision, &RotatedNodes::OldGroups { drained, total }, builder);
        if let Some(message) = remaining_message(outgoing, &members[current.members.len()..]) {
            builder.set_outcome_once(waiting(Phase::Rotating, message));
        }
        return;
    }
    delete_outgoing(input, current, outgoing, builder);
}

/// How many nodes of the outgoing node groups serve, as long as none of them is drained. The current one must be as
/// large before. 0 while none may be drained.
pub(crate) fn nodes_to_replace(input: &PlanInput, outgoing: &[&ObservedNodegroup]) -> i32 {
    let kept = || outgoing.iter().filter(|group| group.nodegroup.status != NodegroupStatus::Deleting);
    let has_begun = kept().any(|group| has_disruption_record(input, &group.members));
    if has_begun || input.lock.is_some() {
        return 0;
    }
    kept().map(|group| group.ready_nodes()).max().unwrap_or_default()
}

/// How many nodes of the current node group must be Ready before an old one is drained. It was created with a minimum size for
/// that, and the desired size of its scaling group may be lower for a moment.
fn needed_nodes(current: &ObservedNodegroup) -> i32 {
    current.desired_size().max(current.nodegroup.sizes.min)
}

/// What keeps the outgoing node groups while no node is drained: an instance that does not serve and is not gone.
fn remaining_message(outgoing: &[&ObservedNodegroup], remaining: &[NodeInstance]) -> Option<String> {
    let member = remaining.iter().find(|m| m.instance.state != InstanceState::InService)?;
    let id = &member.instance.id;
    let group = outgoing.iter().find(|group| group.members.iter().any(|m| m.instance.id == *id))?;
    let wait = match member.instance.state {
        InstanceState::Pending => "Pending, and is replaced when it is in service",
        InstanceState::Standby => "in Standby: return it to service, so that it is replaced, or terminate it",
        _ => "not in service, and waits for AWS",
    };
    Some(format!("the old node group {} still has {}, which is {wait}", group.name().nodegroup, member.describe()))
}

/// Uncordons the nodes that a group cordoned which cannot be planned anymore. Needs no valid spec.
pub(crate) fn stop_rotation(members: &[NodeInstance], uid: &str) -> RollingUpdateDecision {
    let steps = uncordon_all(members, uid, UncordonReason::GroupRejected);
    RollingUpdateDecision { steps, ..RollingUpdateDecision::default() }
}

/// Uncordons nodes in progress when the plan does not reach the rotation for long: also while EKS works on a node group,
/// which may take hours. EKS drains the nodes of a node group
/// that it deletes.
pub(crate) fn uncordon_nodes_in_progress(input: &PlanInput, builder: &mut PlanBuilder) {
    let is_locked = matches!(builder.outcome(), Some(Outcome::Locked { .. })) && !builder.rotation_planned;
    let is_paused = !builder.rotation_planned && input.observed.pause >= input.timing.pause_limit;
    // EKS did not reach the API server for work of its own, and may try again an hour later. The nodes are well.
    let is_unreachable = !builder.rotation_planned
        && !input.observed.cluster_health.is_unhealthy()
        && matches!(builder.outcome(), Some(Outcome::Blocked { reason: StalledReason::ClusterUnhealthy, .. }));
    if !is_locked && !is_paused && !is_unreachable && !builder.leaves_nodes_waiting(input.persistent_failure) {
        return;
    }
    let cause = if is_locked { UncordonReason::Locked } else { UncordonReason::RotationBlocked };
    let kept = input.observed.nodegroups.iter().filter(|group| group.nodegroup.status != NodegroupStatus::Deleting);
    let uid = &input.resolved.desired.id.uid;
    let steps: Vec<_> = kept.flat_map(|group| uncordon_all(&group.members, uid, cause)).collect();
    builder.prepend(steps.into_iter().map(PlannedStep::from));
}

/// Uncordons the nodes of node groups whose tags do not prove anymore that this group owns them, because their drains do not
/// continue. The records on the nodes prove who cordoned them.
pub(crate) fn uncordon_disowned_nodes(input: &PlanInput, builder: &mut PlanBuilder) {
    let uid = &input.resolved.desired.id.uid;
    let steps = uncordon_all(&input.observed.disowned_members, uid, UncordonReason::RotationBlocked);
    builder.prepend(steps.into_iter().map(PlannedStep::from));
}

fn uncordon_all(members: &[NodeInstance], uid: &str, reason: UncordonReason) -> Vec<NodeStep> {
    let cordoned = members.iter().filter(|m| m.disruption_of(uid).is_some());
    let running = cordoned.filter(|m| m.instance.state != InstanceState::Terminating);
    let uncordon = |node: &NodeView| NodeStep::UncordonNode { node: node.name.clone(), reason };
    running.filter_map(|m| m.node.as_ref()).map(uncordon).collect()
}

fn has_disruption_record(input: &PlanInput, members: &[NodeInstance]) -> bool {
    members.iter().any(|m| m.disruption_of(&input.resolved.desired.id.uid).is_some())
}

/// The nodes of an outgoing node group that still have to be drained. Drained nodes stay cordoned until EKS deletes the
/// group.
fn outgoing_members(input: &PlanInput, group: &ObservedNodegroup) -> Vec<NodeInstance> {
    if group.nodegroup.status == NodegroupStatus::Deleting {
        return Vec::new();
    }
    let uid = &input.resolved.desired.id.uid;
    let policy = drain_policy(input);
    let drained = |m: &NodeInstance| {
        let Some(node) = &m.node else { return !has_pods(input, m) };
        let (Some(record), Some(view)) = (m.disruption_of(uid), input.observed.drains.get(&node.name)) else {
            return false;
        };
        // EKS drains what is left on the nodes of a node group that it deletes.
        let action = drain::next_drain_action(m, record, view, &policy, input.now);
        node.cordoned && matches!(action, DrainAction::Terminate | DrainAction::TerminateWithPods(_))
    };
    group.members.iter().filter(is_running).filter(|m| input.lock.is_some() || !drained(m)).cloned().collect()
}

fn is_running(member: &&NodeInstance) -> bool {
    !matches!(member.instance.state, InstanceState::Terminating | InstanceState::Other)
}

/// Whether pods are bound to an instance without a Node. They are read at the source before the node group is deleted.
fn has_pods(input: &PlanInput, member: &NodeInstance) -> bool {
    let pods = input.observed.drains.get(&member.instance.id).map(|view| &view.pods);
    pods.into_iter().flatten().any(|pod| !pod.is_ignored && !pod.is_finished)
}

fn drain_policy(input: &PlanInput) -> DrainPolicy {
    let strategy = &input.resolved.desired.rolling_update;
    DrainPolicy {
        timeout: strategy.drain_timeout,
        timeout_since: None,
        at_timeout: if strategy.drain_force { AtTimeout::Delete } else { AtTimeout::Uncordon },
        decrement_desired: false,
        dead_kubelet_after: input.timing.kubelet_timeout,
        volume_detach_timeout: input.timing.volume_detach_timeout,
        decrement_interval: input.timing.decrement_interval,
    }
}

fn rolling_update_input<'a>(
    input: &'a PlanInput,
    current: &'a ObservedNodegroup,
    members: &'a [NodeInstance],
    outgoing_nodes: usize,
) -> rolling_update::RollingUpdateInput<'a> {
    let desired = usize::try_from(current.desired_size()).unwrap_or(0);
    let max_unavailable = usage::max_unavailable_nodes(input.resolved.desired.max_unavailable, desired);
    // No old node is drained until every new node is Ready.
    let ready = current.ready_nodes() >= needed_nodes(current);
    let has_started = has_disruption_record(input, &members[current.members.len()..]);
    rolling_update::RollingUpdateInput {
        scaling_group: &current.name().nodegroup,
        group_uid: &input.resolved.desired.id.uid,
        template_version: &current.name().nodegroup,
        members,
        desired: desired + outgoing_nodes,
        max_unavailable: if ready || has_started { max_unavailable } else { 0 },
        max_unavailable_in_weight: false,
        max_surge: 0,
        candidates: Candidates::Outdated,
        uncordon_reason: UncordonReason::NoLongerReplaced,
        lock: input.lock,
        // The new nodes exist already: what has begun is finished.
        rollout_block: None,
        allowance: None,
        warm_pool: WarmPoolRotation::Done,
        precondition: input.persistent_failure.rotation_blocker(),
        failed_replacements: None,
        failed_launch: None,
        unhealthy_stay: None,
        was_halted: was_halted(input),
        join_timeout: input.resolved.desired.rolling_update.join_timeout,
        min_ready_time: input.timing.min_ready_time,
        drain_policy: drain_policy(input),
        drains: &input.observed.drains,
        cluster_health: input.observed.cluster_health,
        now: input.now,
    }
}

fn was_halted(input: &PlanInput) -> bool {
    input.status.conditions.iter().any(|c| c.r#type == condition::ROTATION_HALTED && c.is_true())
}

/// Deletes the outgoing node groups, whose nodes are drained.
fn delete_outgoing(
    input: &PlanInput,
    current: &ObservedNodegroup,
    outgoing: &[&ObservedNodegroup],
    builder: &mut PlanBuilder,
) {
    if let Some(lock) = input.lock {
        let message =
            format!("the node group {} is drained; its deletion is blocked by {lock}", outgoing[0].name().nodegroup);
        return builder.set_outcome_once(Outcome::Locked { message });
    }
    if let Some(outcome) = health::cluster_unhealthy(input) {
        return builder.set_outcome_once(outcome);
    }
    for group in outgoing {
        match group.nodegroup.status {
            NodegroupStatus::Deleting => {}
            NodegroupStatus::Creating | NodegroupStatus::Updating => {
                let message =
                    format!("EKS is working on the node group {}; it is deleted after that", group.name().nodegroup);
                builder.set_outcome_once(waiting(Phase::Rotating, message));
            }
            _ if input.observed.unlisted_nodes.contains_key(group.name()) => {
                builder.set_outcome_once(waits_for_scaling_group(input, group));
            }
            _ if has_unseen_nodes(group) => {
                let message = format!(
                    "AWS does not show the scaling group of the node group {}, which is deleted once its nodes are known to be drained",
                    group.name().nodegroup
                );
                builder.set_outcome_once(waiting(Phase::Rotating, message));
            }
            _ if !has_ownership_tags(&to_tags(&group.nodegroup.tags), &input.resolved.ownership_tags) => {
                tag_before_delete(input, group, builder);
            }
            status => {
                if status == NodegroupStatus::DeleteFailed {
                    builder.set_outcome_once(health::outgoing_delete_failed(input, group, &current.nodegroup));
                }
                let mut reasons = immutable_drift(input.resolved, &group.nodegroup);
                reasons.retain(|_| status != NodegroupStatus::DeleteFailed);
                builder.push_with_reasons(NodegroupStep::DeleteNodegroup { nodegroup: group.name().clone() }, reasons);
            }
        }
    }
    let names: Vec<_> = outgoing.iter().map(|group| group.name().nodegroup.clone()).collect();
    let message = format!("the node group {} is ready; EKS is deleting {}", current.name().nodegroup, names.join(", "));
    builder.set_outcome_once(waiting(Phase::Rotating, message));
}

/// Whether the answer of AWS lacks a scaling group that EKS names and does not report as lost. Which nodes it has is then not
/// known.
fn has_unseen_nodes(group: &ObservedNodegroup) -> bool {
    let found = &group.nodegroup;
    let is_lost = found.issues.iter().any(|issue| issue.code == SCALING_GROUP_NOT_FOUND);
    let has_failed = matches!(found.status, NodegroupStatus::CreateFailed | NodegroupStatus::DeleteFailed);
    group.scaling_groups.len() < found.scaling_groups.len() && !is_lost && !has_failed
}

/// The outcome while AWS does not show the scaling group of an outgoing node group that still has a Ready node.
fn waits_for_scaling_group(input: &PlanInput, group: &ObservedNodegroup) -> Outcome {
    let node = input.observed.unlisted_nodes.get(group.name()).map_or("", String::as_str);
    let message = format!(
        "the old node group {} still has the node {node}, and AWS does not show its scaling group {}, so that the node cannot be drained; if you deleted the scaling group, drain and delete the node",
        group.name().nodegroup,
        group.scaling_group_names()
    );
    waiting(Phase::Rotating, message)
}

/// Tags an outgoing node group that lost the tags of this group, or never had them. Ownership stays provable, and the
/// shipped IAM policy allows deleting tagged node groups only.
fn tag_before_delete(input: &PlanInput, group: &ObservedNodegroup, builder: &mut PlanBuilder) {
    if input.observed.tag_retry_pending {
        return builder.set_outcome_once(tagging_blocked(true, false, false));
    }
    let tags = input.resolved.ownership_tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect();
    let (nodegroup, arn) = (group.name().clone(), group.nodegroup.arn.clone());
    let message = format!("the node group {} is tagged as this group's before it is deleted", nodegroup.nodegroup);
    builder.push(NodegroupStep::TagNodegroup { nodegroup, arn, tags });
    builder.set_outcome_once(waiting(Phase::Rotating, message));
}
