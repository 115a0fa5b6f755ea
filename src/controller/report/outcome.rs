//! The outcome that is reported: that of the plan, or of the step that failed.

use std::collections::BTreeSet;

use crate::api::names::condition;
use crate::apply::{Applied, StepError};
use crate::aws::error::denying_policy;
use crate::aws::{AwsError, AwsErrorKind};
use crate::ownership;
use crate::plan::{NodeStep, ObjectStep, Outcome, Phase, Plan, Recheck, StalledReason, Step};

/// The outcome of the plan, or of the step that failed.
pub(super) fn reported_outcome(applied: &Applied) -> Outcome {
    let plan = &applied.plan;
    match (&applied.error, &plan.outcome) {
        (None, _) if only_tag_failures(applied) => {
            let message = ownership::missing_tag_permission(&missing_permissions(applied));
            Outcome::Blocked { reason: StalledReason::MissingPermission, message, is_deleting: is_deleting(plan) }
        }
        (None, outcome) => outcome.clone(),
        (Some(_), Outcome::Locked { .. }) if applied.is_complete() => plan.outcome.clone(),
        (Some(_), Outcome::Progressing { phase: Phase::Rotating, message: wait, .. }) if applied.is_complete() => {
            match failure_outcome(applied) {
                Outcome::Blocked { reason, message, is_deleting } => {
                    let message = format!("{message}; meanwhile, the rotation continues: {wait}");
                    Outcome::Blocked { reason, message, is_deleting }
                }
                other => other,
            }
        }
        (Some(_), _) => failure_outcome(applied),
    }
}

/// Whether the group is being deleted.
pub(super) fn is_deleting(plan: &Plan) -> bool {
    matches!(
        plan.outcome,
        Outcome::Deleted
            | Outcome::Progressing { phase: Phase::Deleting, .. }
            | Outcome::Blocked { is_deleting: true, .. }
    )
}

/// The outcome of the step that failed; that of the plan when none did.
pub(super) fn failure_outcome(applied: &Applied) -> Outcome {
    let plan = &applied.plan;
    let Some(error) = &applied.error else { return plan.outcome.clone() };
    let is_deleting = is_deleting(plan);
    let failed = plan.steps.get(applied.steps_done).map(|p| &p.step);
    if let StepError::Locked(holder) = error {
        let step = failed.map(Step::name).unwrap_or_default();
        return Outcome::Locked { message: format!("{step} is blocked by lock-upgrades on {holder}") };
    }
    if let StepError::RolloutBlocked(why) = error {
        let (phase, message) = (phase_of(&plan.outcome), format!("waiting to replace the next node: {why}"));
        return Outcome::Progressing { phase, message, recheck: Recheck::Poll };
    }
    match error.stalled_reason() {
        Some(reason) => {
            let message = failed.map_or_else(|| error_message(error), |step| step_failure(step, error));
            Outcome::Blocked { reason, message, is_deleting }
        }
        None => Outcome::Progressing {
            phase: if is_deleting { Phase::Deleting } else { phase_of(&plan.outcome) },
            message: format!("{} failed and is retried: {error}{}", action(failed), credentials_remedy(error)),
            recheck: Recheck::Poll,
        },
    }
}

/// What follows an error about the controller's credentials; empty for others.
fn credentials_remedy(error: &StepError) -> String {
    match error {
        StepError::Aws(error) if error.is_about_credentials() => format!("; {}", aws_remedy(error)),
        _ => String::new(),
    }
}

/// The reason of the condition `Reconciling` for an AWS error that is not the group's; `None` for other errors.
pub(crate) fn aws_failure(error: &AwsError) -> Option<&'static str> {
    match error.kind {
        AwsErrorKind::Throttled => Some(condition::AWS_THROTTLED),
        AwsErrorKind::Unavailable => Some(condition::AWS_UNAVAILABLE),
        _ if error.is_about_credentials() => Some(condition::AWS_CREDENTIALS_REJECTED),
        _ => None,
    }
}

/// What a user can do about a call that AWS does not answer, or refuses without a word about permissions.
pub(crate) fn aws_remedy(error: &AwsError) -> &'static str {
    match aws_failure(error) {
        Some(condition::AWS_THROTTLED) => "find what else uses up the API rate of the account, or lower --max-workers",
        Some(condition::AWS_CREDENTIALS_REJECTED) => {
            "check the controller's Pod Identity association, or for IRSA the role annotation of its ServiceAccount and the trust policy of the role, and the clock of its node"
        }
        Some(_) => "see AWS's health dashboard, and the controller's network and VPC endpoints",
        None => "look up the code in AWS's documentation of the call, and check the controller's region and account",
    }
}

/// Why the group makes no progress, if AWS throttled a write or did not answer it.
pub(super) fn failed_write(applied: &Applied) -> Option<&'static str> {
    match &applied.error {
        Some(StepError::Aws(error)) => aws_failure(error),
        _ => None,
    }
}

/// Whether an applied step had no effect: nothing was to be changed, AWS denied the tags, or a PodDisruptionBudget
/// blocked the eviction.
pub(crate) fn had_no_effect(index: usize, step: &Step, applied: &Applied) -> bool {
    applied.tag_denials.iter().any(|denied| denied.step_index == index)
        || applied.unchanged_steps.contains(&index)
        || matches!(step, Step::Node(NodeStep::Evict { pod, .. }) if applied.blocked_evictions.iter().any(|r| r.pod == *pod))
}

/// Whether the plan consisted of tag changes only, and AWS denied all of them. For adopted resources, the condition
/// `Adopted` reports it instead.
fn only_tag_failures(applied: &Applied) -> bool {
    let plan = &applied.plan;
    let effective_steps = || {
        plan.steps
            .iter()
            .filter(|p| !p.step.is_status_write() && !matches!(p.step, Step::Object(ObjectStep::AddFinalizer)))
    };
    !applied.tag_denials.is_empty()
        && effective_steps().count() == applied.tag_denials.len()
        && matches!(
            plan.outcome,
            Outcome::Progressing { phase: Phase::Modifying, recheck: Recheck::Immediately, .. }
                | Outcome::Progressing { phase: Phase::Deleting, .. }
        )
        && plan.adoption.is_none()
}

/// The IAM actions that are missing to change tags, sorted, so that the order of the steps does not change the message.
pub(super) fn missing_permissions(applied: &Applied) -> String {
    let actions: BTreeSet<_> = applied.tag_denials.iter().map(|denied| denied.permission.as_str()).collect();
    actions.into_iter().collect::<Vec<_>>().join(" and ")
}

fn phase_of(outcome: &Outcome) -> Phase {
    match outcome {
        Outcome::Progressing { phase, .. } => *phase,
        Outcome::Converged | Outcome::Locked { .. } | Outcome::Blocked { .. } | Outcome::Deleted => Phase::Modifying,
    }
}

/// The message for a step that was refused: what was to be done to which object, and why it is not.
pub(crate) fn step_failure(step: &Step, error: &StepError) -> String {
    let is_rejected = matches!(error, StepError::Aws(error) if error.kind == AwsErrorKind::Invalid);
    let remedy = if is_rejected { "; correct what AWS rejects; what runs stays as it is" } else { "" };
    format!("{}: {}{remedy}", action(Some(step)), error_message(error))
}

/// The step and the object that it changes.
fn action(step: Option<&Step>) -> String {
    step.map(|step| format!("{} {}", step.name(), step.info().subject())).unwrap_or_default().trim_end().into()
}

fn error_message(error: &StepError) -> String {
    match error {
        StepError::Aws(error) => match error.missing_permission() {
            Some(action) => missing_iam_action(&action, &error.to_string()),
            None => error.to_string(),
        },
        StepError::Kube(error) => missing_kubernetes_permission(&error.to_string()),
        StepError::AwsAuth(error) => error.to_string(),
        StepError::OwnershipConflict(_)
        | StepError::GroupGone
        | StepError::Locked(_)
        | StepError::RolloutBlocked(_)
        | StepError::NodeUncordoned(_)
        | StepError::RemovedByAutoscaler(_)
        | StepError::NodeJoined(_)
        | StepError::RejectedBefore(_)
        | StepError::MayNotWrite => error.to_string(),
    }
}

/// The message for a call that AWS denied.
pub(crate) fn missing_iam_action(action: &str, error: &str) -> String {
    match denying_policy(error) {
        Some(policy) => {
            format!("AWS denies {action} by {policy}; change that, and the controller continues by itself ({error})")
        }
        None => format!(
            "the controller's IAM role lacks {action}, or does not allow it for this resource; add the action, or correct the conditions of its statement, and the controller continues by itself ({error})"
        ),
    }
}

/// The message for a call that the API server forbids.
pub(crate) fn missing_kubernetes_permission(error: &str) -> String {
    format!(
        "{error}; if RBAC denies it, add the permission to the controller's Role or ClusterRole; if an admission policy denies it, change the policy or the value"
    )
}
