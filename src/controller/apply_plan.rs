//! Applies a plan, and remembers what was written.

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::Context;
use super::planner::Planning;
use super::report;
use crate::api::{InstanceGroup, group_id};
use crate::apply::{Applied, Applier, apply};
use crate::plan::{Plan, PlannedStep, Step};

/// Applies a plan. `was_blocked`: the rollout blocked the group before it was planned, so the plan starts no
/// replacement. Returns `None` when this process may no longer write: the new leader then reports on the group.
pub(super) async fn apply_plan(
    group: &InstanceGroup,
    plan: Plan,
    spec_fingerprint: &str,
    was_blocked: bool,
    ctx: &Context,
    now: Timestamp,
) -> Option<Applied> {
    let request_write = || ctx.request_write();
    let (stores, planner) = (&ctx.stores, &ctx.planner);
    let rollout_block = |step: &Step| match was_blocked {
        true => None,
        false => stores.rollout_block(group, planner).or_else(|| stores.reserve_budget(group, planner, step)),
    };
    stores.rollout.record_usage(&group_id(group).key(), plan.node_usage.clone());
    let node_of = |instance: &str| planner.node_index.get(instance).map(|node| node.name);
    let applier = Applier {
        inventory: &ctx.planner.inventory,
        kube: ctx.planner.kube.as_ref(),
        process_state: &ctx.planner.process_state,
        aws_auth: &ctx.aws_auth_writer,
        request_write: &request_write,
        counted_locks: ctx.stores.counted_locks(group),
        rollout_block: &rollout_block,
        node_of: &node_of,
        config_namespace: &ctx.config_namespace,
        retry_delay: ctx.planner.settings.timing.retry_delay,
        decrement_interval: ctx.planner.settings.timing.decrement_interval,
        spec: spec_fingerprint,
        now,
    };
    let resource_version = group.resource_version().unwrap_or_default();
    let finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    let applied = apply(&applier, &group_id(group), &resource_version, &finalizers, plan).await;
    ctx.request_write().then_some(applied)
}

/// Removes steps that would repeat an ineffective write too early, and adds the condition about such writes. Returns a
/// fingerprint of the merged spec: when it changes, the controller retries the writes at once.
pub(super) fn suppress_repetitions(planned: &mut Planning, key: &str, ctx: &Context, now: Timestamp) -> String {
    let Planning { plan, boundaries, .. } = planned;
    let resync = ctx.planner.settings.resync_period;
    // Neither the revision of the boundaries nor the annotations. An edit for another tenant, or a tool that changes an
    // annotation all the time, must not let repeated writes start again.
    let merged_spec = boundaries.as_ref().map(|summary| summary.spec_fingerprint).unwrap_or_default();
    let fingerprint = format!("{} {merged_spec}", plan.generation);
    let condition = ctx.planner.process_state.group_writes(key, |writes| {
        let has_changes = writes.suppress_repeats(plan, &fingerprint, resync, now);
        ctx.metrics.set_ineffective_writes(key, writes.ineffective().len());
        writes.condition(has_changes)
    });
    plan.condition_updates.extend(condition);
    fingerprint
}

/// Remembers the steps that were applied.
pub(super) fn record_writes(key: &str, applied: &Applied, ctx: &Context, now: Timestamp) {
    let steps = applied.plan.steps[..applied.steps_done].iter().enumerate();
    // A failed call may have been performed although its response was lost.
    let tried =
        applied.plan.steps.iter().take(applied.steps_done + 1).filter(|planned| planned.step.removes_instance());
    // A call that AWS refused because of a scaling activity removed nothing.
    let may_have_removed = |(index, planned): (usize, &PlannedStep)| {
        planned.step.removes_from_service() && !applied.unchanged_steps.contains(&index)
    };
    if applied.plan.steps.iter().take(applied.steps_done + 1).enumerate().any(may_have_removed) {
        ctx.planner.process_state.record_node_removal(key, Some(now));
    }
    for instance in tried.filter_map(|planned| planned.step.info().fields().instance).collect::<Vec<_>>() {
        ctx.planner.process_state.lost_instances(key, |known| known.record_own(&instance));
    }
    let effective = steps.filter(|(index, planned)| !report::had_no_effect(*index, &planned.step, applied));
    ctx.planner.process_state.group_writes(key, |writes| {
        writes.record(effective.map(|(_, planned)| planned), now);
        if applied.is_complete() {
            writes.record_events(&applied.plan.events, now);
        }
    });
}
