//! Applies a plan, and remembers what was written.

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::Context;
use super::planner::Planning;
use super::report;
use crate::api::{GroupId, InstanceGroup, group_id};
use crate::apply::{Applied, Applier, StepError, apply};
use crate::plan::{Plan, PlannedStep, Step};

/// Applies a plan, as far as this process may write. `was_blocked`: the rollout blocked the group before it was planned, so the
/// plan starts no replacement.
pub(super) async fn apply_plan(
    group: &InstanceGroup,
    plan: Plan,
    spec_fingerprint: &str,
    was_blocked: bool,
    ctx: &Context,
    now: Timestamp,
) -> Applied {
    let request_write = || ctx.request_write();
    let (stores, planner) = (&ctx.stores, &ctx.planner);
    let rollout_block = |step: &Step| match was_blocked {
        true => None,
        false => stores.rollout_block(group, planner).or_else(|| stores.reserve_budget(group, planner, step)),
    };
    stores.rollout.record_usage(&GroupId::key_of(&group.metadata), plan.node_usage.clone());
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
    apply(&applier, &group_id(group), &resource_version, &finalizers, plan).await
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

/// Remembers the steps that were applied, also when this process may not write any more: it may be the leader again soon.
pub(super) fn record_writes(key: &str, applied: &Applied, ctx: &Context, now: Timestamp) {
    let state = &ctx.planner.process_state;
    if let Some(version) = &applied.resource_version {
        state.own_writes(key, |own| own.record(version, Timestamp::now()));
    }
    let steps = applied.plan.steps[..applied.steps_done].iter().enumerate();
    // A failed call may have been performed although its response was lost. One that this process may not make was not.
    let tried = applied.steps_done + usize::from(!matches!(applied.error, Some(StepError::MayNotWrite)));
    let tried = || applied.plan.steps.iter().take(tried);
    // A call that AWS refused because of a scaling activity removed nothing.
    let may_have_removed = |(index, planned): (usize, &PlannedStep)| {
        planned.step.removes_from_service() && !applied.unchanged_steps.contains(&index)
    };
    if tried().enumerate().any(may_have_removed) {
        state.record_node_removal(key, Some(now));
    }
    let removals = tried().filter(|planned| planned.step.removes_instance());
    for instance in removals.filter_map(|planned| planned.step.info().fields().instance).collect::<Vec<_>>() {
        state.lost_instances(key, |known| known.record_own(&instance));
    }
    let effective = steps.filter(|(index, planned)| !report::had_no_effect(*index, &planned.step, applied));
    let unchanged = applied.unchanged_steps.iter().filter_map(|index| applied.plan.steps.get(*index));
    state.group_writes(key, |writes| {
        writes.record(effective.map(|(_, planned)| planned), now);
        unchanged.filter(|p| p.step.is_seen_by_watch()).for_each(|planned| writes.record_unchanged(planned, now));
        if applied.is_complete() {
            writes.record_events(&applied.plan.events, now);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::InstanceGroupSpec;
    use crate::controller::fake;
    use crate::plan::{NodeStep, Outcome, PlanBuilder};

    /// Otherwise a watch that is late, or an entry that the controller must not touch, costs a read every 20 milliseconds.
    #[tokio::test]
    async fn step_that_finds_nothing_to_change_is_not_repeated_at_once() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
        let steps: [(Step, bool); 2] = [
            (NodeStep::ClearSurge { node: "n".into(), since: Timestamp::UNIX_EPOCH }.into(), true),
            // Auto Scaling refused it because of a scaling activity, which has a wait of its own.
            (
                NodeStep::EnterStandby { scaling_group: "asg".into(), instance: "i-1".into(), node: "n".into() }.into(),
                false,
            ),
        ];
        for (step, is_paced) in steps {
            let plan = || {
                let mut builder = PlanBuilder::with_outcome(Outcome::Converged);
                builder.push(step.clone());
                builder.build(&id, None)
            };
            let applied = Applied { steps_done: 1, unchanged_steps: vec![0], ..Applied::new(plan()) };
            record_writes("team/web", &applied, &test.ctx, Timestamp::UNIX_EPOCH);
            let mut again = plan();
            test.ctx.planner.process_state.group_writes("team/web", |writes| {
                writes.suppress_repeats(&mut again, "", std::time::Duration::from_secs(60), Timestamp::UNIX_EPOCH)
            });
            assert_eq!(again.steps.is_empty(), is_paced, "{step:?}");
            (1..5).for_each(|_| record_writes("team/web", &applied, &test.ctx, Timestamp::UNIX_EPOCH));
            let ineffective = test.ctx.planner.process_state.group_writes("team/web", |writes| writes.ineffective());
            assert!(ineffective.is_empty(), "nothing was written: {ineffective:?}");
        }
    }

    /// Otherwise the rotation takes the next node although AWS launches no replacement of this one.
    #[tokio::test]
    async fn termination_before_a_pause_of_all_writes_is_remembered() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        for (steps_done, is_removed) in [(1, true), (0, false)] {
            let test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
            let mut builder = PlanBuilder::with_outcome(Outcome::Converged);
            let (scaling_group, instance, node) = ("asg".into(), "i-1".into(), None);
            builder.push(NodeStep::Terminate { scaling_group, instance, node, decrement_desired: false });
            let (plan, error) = (builder.build(&id, None), Some(StepError::MayNotWrite));
            let applied = Applied { steps_done, error, resource_version: Some("8".into()), ..Applied::new(plan) };
            record_writes("team/web", &applied, &test.ctx, Timestamp::UNIX_EPOCH);
            let state = &test.ctx.planner.process_state;
            assert_eq!(state.last_node_removal("team/web").is_queried(), is_removed, "{steps_done}");
            assert_eq!(state.own_writes("team/web", |own| own.last_version()), Some(8), "the status was written");
        }
    }
}
