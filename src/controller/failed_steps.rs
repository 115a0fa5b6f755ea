//! Passes that AWS or the API server refused: what is remembered of them, and what a group without a permission says.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::context::Context;
use super::planner::{self, ObserveError, Planning};
use super::{permission_probes, report, requeue};
use crate::api::{InstanceGroup, group_id};
use crate::apply::{Applied, StepError};
use crate::aws::AwsErrorKind;
use crate::index::denied_calls::{DeniedAttempt, DeniedCall};
use crate::index::denied_rotations::{Permission, PermissionAnswer};
use crate::index::failure_streak::{FailedStep, PassResult};
use crate::k8s::KubeError;
use crate::plan::{StalledReason, Step};

/// The blocked plan of a group whose reads are denied, with the denied call; other results as they are.
pub(super) fn block_denied_reads(
    group: &InstanceGroup,
    planned: Result<Planning, ObserveError>,
) -> Result<Planning, ObserveError> {
    let (blocked, denied_read) = match planned {
        Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {
            let blocked = missing_permission(group, error.missing_permission(), &error.to_string());
            (blocked, Some(DeniedCall::Aws(error)))
        }
        Err(ObserveError::Kube(error @ KubeError::Forbidden { .. })) => {
            (missing_permission(group, None, &error.to_string()), DeniedCall::of_kube(&error))
        }
        other => return other,
    };
    Ok(Planning { denied_read, ..blocked })
}

/// Counts passes that AWS or Kubernetes refused. A group that lacks a permission waits for its turn to try again. A
/// group whose call succeeds enqueues those that wait for the same permission.
pub(super) async fn record_failed_step(
    key: &str,
    spec_fingerprint: String,
    denied_read: Option<DeniedCall>,
    cluster: Option<&str>,
    applied: &Applied,
    ctx: &Context,
    now: Timestamp,
) {
    let Applied { plan, steps_done, error, independent_failures, .. } = applied;
    wake_denied_rotations(key, applied, ctx, now);
    let (state, step) = (&ctx.planner.process_state, plan.steps.get(*steps_done).map(|planned| &planned.step));
    // A rotation has waits of its own, because each try drains nodes.
    let is_of_rotation = step.is_some_and(Step::is_of_rotation);
    let (denied_rotation, denied_step) = match error.as_ref().and_then(StepError::denied_call) {
        Some(call) if is_of_rotation => (Some(call), None),
        other => (None, other),
    };
    let is_known =
        denied_step.as_ref().is_some_and(|call| state.denied_calls(|denied_calls| denied_calls.is_known(call)));
    let mut result = match (error, step) {
        (None, _) => PassResult::Applied { removed_node: plan.steps.iter().any(|p| p.step.removes_instance()) },
        (Some(error), Some(step)) if let Some(reason) = error.stalled_reason() => {
            let message = report::step_failure(step, error);
            PassResult::NeedsIntervention(FailedStep { is_of_rotation, reason, message, is_known, is_watched: false })
        }
        (Some(_), _) => PassResult::Failed,
    };
    let period = requeue::permission_period(ctx.planner.settings.resync_period);
    let retry_delay = ctx.planner.settings.timing.retry_delay;
    let is_lasting = match denied_rotation.zip(step) {
        None => state.record_pass(key, plan.generation, result, retry_delay, now),
        Some((call, step)) => {
            let pod = step.info().fields().pod;
            let namespace = pod.as_ref().and_then(|pod| pod.split_once('/')).map(|(namespace, _)| namespace);
            let permission = Permission::for_call(&call, cluster.unwrap_or_default(), namespace);
            let is_watched = state.is_nearly_lasting(key)
                && permission_probes::probe(&permission, ctx, now).await == PermissionAnswer::Denied;
            if let PassResult::NeedsIntervention(refused) = &mut result {
                refused.is_watched = is_watched;
            }
            // Where nothing shows when the permission is restored, only a try does.
            let delay = if is_watched { retry_delay } else { retry_delay.min(period) };
            let is_lasting = state.record_pass(key, plan.generation, result, delay, now);
            if let Some(until) = state.persistent_failure(key, plan.generation, now).retry_at() {
                state.denied_rotations(|holds| holds.record(key, permission, step.name(), until));
            }
            is_lasting
        }
    };
    // A rotation continues without what no node depends on.
    state.set_failing_writes(
        key,
        independent_failures.iter().filter(|_| is_lasting).flat_map(|failure| &failure.writes).cloned(),
    );
    let wait = |call: DeniedCall, step: Option<&'static str>| {
        state.denied_calls(|denied_calls| {
            denied_calls.record(key, call, DeniedAttempt { spec: spec_fingerprint.clone(), step }, period, now)
        });
    };
    if let Some(call) = denied_read {
        return wait(call, None);
    }
    // The first tries follow each other soon: a new role may not be known everywhere yet. Another error says nothing
    // about the permission.
    if is_lasting {
        denied_step.into_iter().for_each(|call| wait(call, step.map(Step::name)));
        let denied =
            independent_failures.iter().filter_map(|failure| Some((failure.step, failure.denied_call.clone()?)));
        denied.for_each(|(step, call)| wait(call, Some(step)));
    }
    if applied.is_complete() {
        // What waits for them was not tried, either.
        let refused = independent_failures.iter().map(|failure| failure.step);
        let still_denied: Vec<_> = refused.chain(applied.waiting_steps.iter().copied()).collect();
        ctx.enqueue_keys(state.denied_calls(|denied_calls| denied_calls.end(key, &still_denied)));
    }
}

/// Unblocks rotations that wait for a step which succeeded for this group.
fn wake_denied_rotations(key: &str, applied: &Applied, ctx: &Context, now: Timestamp) {
    let done = applied.plan.steps[..applied.steps_done].iter().map(|planned| &planned.step);
    let of_rotation: BTreeSet<_> = done.filter(|step| step.is_of_rotation()).map(Step::name).collect();
    if !of_rotation.is_empty() {
        ctx.enqueue_keys(ctx.planner.process_state.record_success(key, &of_rotation, now));
    }
}

/// A blocked plan for a group that cannot be read because a permission is missing.
fn missing_permission(group: &InstanceGroup, action: Option<String>, error: &str) -> Planning {
    let message = match action {
        Some(action) => report::missing_iam_action(&action, error),
        None => report::missing_kubernetes_permission(error),
    };
    planner::blocked(&group_id(group), StalledReason::MissingPermission, message)
}
