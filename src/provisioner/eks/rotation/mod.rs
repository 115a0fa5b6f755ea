//! Plans the next steps of a rotation from the group's instances, and reports its progress.

pub mod crd_strategy;
pub(crate) mod in_place;
pub(crate) mod in_place_steps;
pub(crate) mod outdated;
pub(crate) mod stop_rotation;
pub(crate) mod template_origin;
mod usage;

use std::collections::BTreeSet;

use serde_json::json;

use super::input::PlanInput;
use super::observed::FailedLaunch;
use super::scaling_group::{scale_in, suspended};
use super::warm_pool;
use crate::api::names::condition;
use crate::api::rfc3339;
use crate::api::status::MAX_LISTED_INSTANCES;
use crate::aws::error::without_period;
use crate::aws::{InstanceState, ScalingGroup};
use crate::plan::{
    ConditionUpdate, Drift, EksStep, NodeStep, Outcome, Phase, PlanBuilder, StalledReason, UncordonReason, waiting,
};
use crate::provisioner::failed_replacements::Replacements;
use crate::provisioner::launch_failures;
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update::report::{RotatedNodes, report};
use crate::rotation::rolling_update::settings::IntOrPercent;
use crate::rotation::rolling_update::{
    Candidates, RollingUpdateDecision, RollingUpdateInput, RotationState, WarmPoolRotation, decide,
};
use crate::util::counted::are;

/// Replaces outdated nodes, or removes surplus nodes. Returns the instances that enter standby.
pub(crate) fn rotate_nodes(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) -> BTreeSet<String> {
    let members = outdated::members(input.resolved, input.observed, input.status);
    let mut usage = usage::node_usage(input, group, &members);
    if scale_in::removes_last(group) {
        builder.set_outcome_once(waiting(Phase::Modifying, "waiting for Auto Scaling to terminate the last node"));
        return BTreeSet::new();
    }
    let uid = &input.resolved.desired.id.uid;
    let is_draining = |m: &NodeInstance| m.disruption_of(uid).is_some() || m.has_orphaned_disruption();
    // Without a version to launch, a replaced instance of the pool would come back as it was.
    let pool = match replacement_problem(input) {
        None => warm_pool::rotate_pool(input, group, builder),
        Some(_) => WarmPoolRotation::Done,
    };
    if pool != WarmPoolRotation::Done && !members.iter().any(is_draining) {
        return BTreeSet::new();
    }
    let surplus = scale_in::surplus(input, group);
    let (candidates, superseded) = candidates(input, &members, surplus, builder);
    let replacements = replacements(input, &members);
    // Without a usable launch field, the hash is not the desired one, and no node counts as outdated.
    if !input.resolved.broken.contains(Part::Launch) {
        let failed = replacements.update(input.status).map(|failed| ("failedReplacements".to_owned(), failed));
        builder.status_update.fields.extend(failed);
    }
    let mut decision = decide(&RollingUpdateInput {
        warm_pool: pool,
        ..rolling_update_input(input, group, &replacements, surplus, candidates)
    });
    let shrinks = || Drift::new("maxSize", group.max, input.resolved.desired.max_size);
    if let Some(step) = limit_terminations(input, group, &members, &mut decision.steps) {
        builder.push_with_reasons(step, vec![shrinks()]);
    }
    usage.waits_for = std::mem::take(&mut decision.waits_for);
    usage.begins = std::mem::take(&mut decision.begins);
    builder.node_usage = Some(usage);
    let entering_standby = std::mem::take(&mut decision.entering_standby);
    if decision.eviction_blocked {
        keep_drain_blocked(input, builder);
    }
    if !is_left_to_strategy(input, &members, &decision, candidates) {
        let rotated = if surplus > 0 { RotatedNodes::Surplus(surplus, shrinks()) } else { RotatedNodes::Outdated };
        report(&members, decision, &rotated, builder);
    }
    if let Some(outcome) = superseded {
        builder.set_outcome_once(outcome);
    }
    let crd = input.resolved.desired.crd_strategy.as_ref();
    if let Some(crd) = crd.filter(|_| builder.outcome().is_none()) {
        let blocker = submission_blocker(input, group, crd_strategy::outdated_count(&members));
        crd_strategy::plan_strategy(input, crd, &members, blocker, builder);
    }
    entering_standby
}

/// The nodes that the controller itself may replace or remove. Also the outcome while a resource of a strategy that the
/// group no longer has is still active.
fn candidates(
    input: &PlanInput,
    members: &[NodeInstance],
    surplus: usize,
    builder: &mut PlanBuilder,
) -> (Candidates, Option<Outcome>) {
    let has_crd = input.resolved.desired.crd_strategy.is_some();
    // The strategy may be `crd` when it cannot be used.
    let keeps_strategy = input.resolved.broken.contains(Part::Rotation);
    let superseded = match has_crd || keeps_strategy {
        true => None,
        false => crd_strategy::superseded_outcome(input, members, builder),
    };
    // With the strategy `crd` its resource replaces outdated nodes. The controller still removes surplus nodes and
    // uncordons nodes.
    let candidates = if surplus > 0 || has_crd || superseded.is_some() || keeps_strategy {
        Candidates::Surplus(surplus)
    } else {
        Candidates::Outdated
    };
    (candidates, superseded)
}

fn replacements<'a>(input: &PlanInput<'a>, members: &'a [NodeInstance]) -> Replacements<'a> {
    Replacements {
        hash: &input.resolved.fingerprint.hash,
        left: &input.observed.failed_replacements,
        members,
        min_ready_time: input.timing.min_ready_time,
        is_requested: input.is_requested,
        now: input.now,
    }
}

fn rolling_update_input<'a>(
    input: &PlanInput<'a>,
    group: &'a ScalingGroup,
    replacements: &Replacements<'a>,
    surplus: usize,
    candidates: Candidates,
) -> RollingUpdateInput<'a> {
    let rolling = &input.resolved.desired.rolling_update;
    let members = replacements.members;
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let heaviest = members.iter().map(NodeInstance::weight).max().unwrap_or(1);
    let version = group.template.as_ref().map(|t| t.version.as_str()).or(group.launch_configuration.as_deref());
    RollingUpdateInput {
        scaling_group: &group.name,
        group_uid: &input.resolved.desired.id.uid,
        template_version: version.unwrap_or_default(),
        members,
        desired,
        max_unavailable: rolling.max_unavailable.resolve(desired),
        max_unavailable_in_weight: matches!(rolling.max_unavailable, IntOrPercent::Percent(_)),
        max_surge: rolling.max_surge.resolve_surge(desired, heaviest),
        candidates,
        uncordon_reason: UncordonReason::NoLongerReplaced,
        lock: input.lock,
        rollout_block: input.rollout_block,
        allowance: input.allowance,
        warm_pool: WarmPoolRotation::Done,
        precondition: precondition(input, group, surplus == 0),
        failed_replacements: replacements.halt(input.status, input.timing.launch_retry),
        failed_launch: failed_launch(input),
        unhealthy_stay: unhealthy_stay(input, group),
        was_halted: was_halted_with_same_template(input),
        join_timeout: rolling.join_timeout,
        min_ready_time: input.timing.min_ready_time,
        drain_policy: DrainPolicy {
            timeout: rolling.drain_timeout,
            timeout_since: None,
            at_timeout: if rolling.drain_force { AtTimeout::Delete } else { AtTimeout::Uncordon },
            decrement_desired: surplus > 0,
            dead_kubelet_after: input.timing.kubelet_timeout,
            volume_detach_timeout: input.timing.volume_detach_timeout,
            decrement_interval: input.timing.decrement_interval,
        },
        drains: &input.observed.drains,
        cluster_health: input.observed.cluster_health,
        now: input.now,
    }
}

/// Removes terminations that must wait for AWS. Returns the step that lowers the sizes instead of a termination.
fn limit_terminations(
    input: &PlanInput,
    group: &ScalingGroup,
    members: &[NodeInstance],
    steps: &mut Vec<NodeStep>,
) -> Option<EksStep> {
    // With weights, the next decrement depends on what AWS shows of the last one.
    let uid = &input.resolved.desired.id.uid;
    let is_unseen = |m: &NodeInstance| {
        m.instance.state == InstanceState::InService
            && m.is_termination_sent(uid, input.timing.decrement_interval, input.now)
    };
    if scale_in::is_weighted(group) && members.iter().any(is_unseen) {
        steps.retain(|step| !matches!(step, NodeStep::Terminate { decrement_desired: true, .. }));
    }
    scale_in::pace_terminations(input, group, steps)
}

/// Keeps the reason of a blocked drain reported while another drain continues.
fn keep_drain_blocked(input: &PlanInput, builder: &mut PlanBuilder) {
    let blocked = input.status.conditions.iter().find(|c| c.r#type == condition::DRAIN_BLOCKED && c.is_true());
    builder.condition_updates.extend(blocked.map(|c| ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: true,
        reason: condition::current_reason(c.reason.as_deref().unwrap_or_default()).to_owned(),
        message: c.message.clone().unwrap_or_default(),
    }));
}

/// Whether only a strategy's resource has something to do. What this rotation waits for is then no problem: a missing
/// replacement may be waiting for the resource itself.
fn is_left_to_strategy(
    input: &PlanInput,
    members: &[NodeInstance],
    decision: &RollingUpdateDecision,
    candidates: Candidates,
) -> bool {
    let only_waits = decision.state == RotationState::InProgress
        && decision.steps.is_empty()
        && decision.duplicate_provider_ids.is_empty();
    let in_standby = |m: &NodeInstance| m.is_in_standby(&input.resolved.desired.id.uid);
    let has_outdated = members.iter().any(|m| !m.reasons.is_empty() && !in_standby(m));
    candidates == Candidates::Surplus(0) && only_waits && has_outdated
}

/// Why no resource may be submitted now; the same reasons prevent a cordon.
fn submission_blocker(input: &PlanInput, group: &ScalingGroup, outdated: usize) -> Option<Outcome> {
    let blocked = |reason, message| Outcome::Blocked { reason, message, is_deleting: false };
    let locked = |lock| Outcome::Locked {
        message: format!("{} outdated; replacement is blocked by {lock}", are(outdated, "node")),
    };
    let unhealthy = || {
        let health = input.observed.cluster_health;
        let message = format!(
            "{} of {} nodes of the cluster are not ready (limit: 30 %); check the API server, the network and the kubelets; no upgrade is submitted until more nodes are ready",
            health.unready, health.total
        );
        health.is_unhealthy().then(|| blocked(StalledReason::ClusterUnhealthy, message))
    };
    let unmet = || precondition(input, group, true).map(|(reason, message)| blocked(reason, message));
    input.lock.or(input.rollout_block).map(locked).or_else(unmet).or_else(unhealthy)
}

/// Whether the rotation was halted, and the desired launch template has not changed since. A new one may fix what
/// halted the rotation.
fn was_halted_with_same_template(input: &PlanInput) -> bool {
    let same = input.status.template.as_ref().and_then(|t| t.hash.as_ref()) == Some(&input.resolved.fingerprint.hash);
    same && input.status.conditions.iter().any(|c| c.r#type == condition::ROTATION_HALTED && c.is_true())
}

/// Why no node can be replaced: a field is broken that defines how, or with what.
fn replacement_problem(input: &PlanInput) -> Option<(StalledReason, String)> {
    input.resolved.broken.problem_of(&[Part::Launch, Part::Rotation])
}

/// Why no node may be taken. `replaces`: Auto Scaling has to launch another node for it, which surplus nodes do not need.
fn precondition(input: &PlanInput, group: &ScalingGroup, replaces: bool) -> Option<(StalledReason, String)> {
    let problem = match replaces {
        true => replacement_problem(input),
        false => input.resolved.broken.problem_of(&[Part::Rotation]),
    };
    if let Some(problem) = problem.or_else(|| input.persistent_failure.rotation_blocker()) {
        return Some(problem);
    }
    let is_needed = |process: &&String| *process == "Terminate" || (replaces && *process == "Launch");
    let stopped: Vec<_> = group.suspended_processes.iter().filter(is_needed).cloned().collect();
    if !stopped.is_empty() {
        let message = format!(
            "{} is suspended on the scaling group, so a terminated node would not be replaced; {}",
            stopped.join(" and "),
            suspended::remedy(&input.resolved.desired.suspended_processes, group, &stopped)
        );
        return Some((StalledReason::ProcessSuspended, message));
    }
    let message = format!(
        "an instance refresh is running on the scaling group; wait for it to end, or cancel it with `aws autoscaling cancel-instance-refresh --auto-scaling-group-name {}`",
        group.name
    );
    input.observed.instance_refresh_active.then_some((StalledReason::ProcessSuspended, message))
}

/// Why Auto Scaling launched no replacement for the last terminated node. The next one would be lost as well: an
/// autoscaler lowers the desired capacity, and in a shortage EC2 does not return a released instance.
fn failed_launch(input: &PlanInput) -> Option<(StalledReason, String)> {
    let FailedLaunch { message, retry_at } = input.observed.failed_launch.as_ref().filter(|_| !input.is_requested)?;
    let text = format!(
        "Auto Scaling launched no replacement for the last node that was replaced: {}{}; no further node is replaced until a launch succeeds, or until {}",
        without_period(message),
        launch_failures::remedy(message),
        rfc3339(*retry_at)
    );
    Some((launch_failures::reason(message), text))
}

/// Why Auto Scaling terminates no instance that it reports as Unhealthy, and the remedy.
fn unhealthy_stay(input: &PlanInput, group: &ScalingGroup) -> Option<String> {
    let process = "ReplaceUnhealthy".to_owned();
    group.suspended_processes.contains(&process).then(|| {
        let remedy = suspended::remedy(&input.resolved.desired.suspended_processes, group, &[process]);
        format!("ReplaceUnhealthy is suspended on the scaling group; {remedy}")
    })
}

/// Counts the nodes for the status.
pub(crate) fn count_nodes(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let members = outdated::members(input.resolved, input.observed, input.status);
    let uid = &input.resolved.desired.id.uid;
    let live: Vec<_> = members
        .iter()
        .filter(|m| {
            matches!(m.instance.state, InstanceState::InService | InstanceState::Pending) || m.is_in_standby(uid)
        })
        .collect();
    let count = |test: &dyn Fn(&&&NodeInstance) -> bool| live.iter().filter(test).map(|m| m.weight()).sum::<usize>();
    let mut counts = json!({
        "desired": group.desired,
        "ready": count(&|m| m.is_ready()),
        "updated": count(&|m| m.reasons.is_empty() && m.in_place.is_none()),
        "outdated": count(&|m| !m.reasons.is_empty()),
        "draining": members.iter().filter(|m| m.disruption_of(uid).is_some()).map(NodeInstance::weight).sum::<usize>(),
    });
    let outdated = live.iter().filter(|m| !m.reasons.is_empty()).map(|m| m.instance.id.as_str());
    let outdated: Vec<_> = outdated.take(MAX_LISTED_INSTANCES).collect();
    if members.iter().any(|m| m.weight() > 1) {
        counts["weighted"] = json!(true);
    }
    if !outdated.is_empty() {
        counts["outdatedInstances"] = json!(outdated);
    }
    builder.set_status("nodes", counts);
}
