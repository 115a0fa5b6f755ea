//! Passes that AWS or the API server refused: what is remembered of them, and what a group without a permission says.

use jiff::Timestamp;

use super::context::Context;
use super::planner::{self, ObserveError, Planning};
use super::{report, requeue};
use crate::api::{InstanceGroup, group_id};
use crate::apply::{Applied, StepError};
use crate::aws::AwsErrorKind;
use crate::index::denials::{Attempt, DeniedCall};
use crate::index::refusals::{PassResult, RefusedStep};
use crate::k8s::KubeError;
use crate::plan::{Reason, Step};

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

/// Counts passes that AWS or Kubernetes refused. A group that lacks a permission waits for its turn to try again, and a
/// group that got through wakes those that wait for the same permission.
pub(super) fn record_refusal(
    key: &str,
    spec: String,
    denied_read: Option<DeniedCall>,
    applied: &Applied,
    ctx: &Context,
    now: Timestamp,
) {
    let Applied { plan, steps_done, error, .. } = applied;
    let (state, step) = (&ctx.planner.process_state, plan.steps.get(*steps_done).map(|planned| &planned.step));
    // A rotation has waits of its own, because each try drains nodes.
    let is_of_rotation = matches!(step, Some(Step::Node(_)));
    let denied_step = error.as_ref().and_then(StepError::denied_call).filter(|_| !is_of_rotation);
    let is_known = denied_step.as_ref().is_some_and(|call| state.denials(|denials| denials.is_known(call)));
    let result = match (error, step) {
        (None, _) => PassResult::Applied { removed_node: plan.steps.iter().any(|p| p.step.removes_instance()) },
        (Some(error), Some(step)) if let Some(reason) = error.stalled_reason() => {
            let message = report::step_failure(step, error);
            PassResult::Refused(RefusedStep { is_of_rotation, reason, message, is_known })
        }
        (Some(_), _) => PassResult::Failed,
    };
    let is_lasting = state.record_pass(key, plan.generation, result, ctx.planner.settings.timing.retry_delay, now);
    let period = requeue::permission_period(ctx.planner.settings.resync_period);
    let wait = |call: DeniedCall, step: Option<&'static str>| {
        state.denials(|denials| denials.record(key, call, Attempt { spec, step }, period, now));
    };
    match (denied_read, denied_step) {
        (Some(call), _) => wait(call, None),
        (None, Some(call)) if is_lasting => wait(call, step.map(Step::name)),
        (None, None) if error.is_none() => ctx.enqueue_keys(state.denials(|denials| denials.end(key))),
        // The first tries follow each other soon: a new role may not be known everywhere yet. Another error says nothing
        // about the permission.
        (None, Some(_) | None) => {}
    }
}

/// A blocked plan for a group that cannot be read because a permission is missing.
fn missing_permission(group: &InstanceGroup, action: Option<String>, error: &str) -> Planning {
    let message = match action {
        Some(action) => report::missing_iam_action(&action, error),
        None => report::missing_kubernetes_permission(error),
    };
    planner::blocked(&group_id(group), Reason::MissingPermission, message)
}
