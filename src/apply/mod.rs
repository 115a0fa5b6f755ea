//! Applies a plan step by step and returns what was done.
//!
//! A failing step ends the pass. The exceptions are a denied step that the rest does not depend on, a rejected change of
//! a node in place, and a denied join entry: see `independent_failures`. A missing permission for a tag does not stop a
//! rotation. When AWS denies a call to many groups, only a few of them try it.
//!
//! The right to write is checked before every step, and `lock-upgrades` before every disruptive step. Before every step
//! of a deletion, the controller reads from the API server whether the group is still being deleted. A new group may
//! have the name. A create that finds its name taken adopts the resource only if it carries the group's tags.

mod aws_auth;
mod error;
mod iam;
mod in_place;
mod independent_failures;
mod join;
mod node;
mod object;
mod run;
mod strategy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::api::GroupId;
use crate::aws::AwsErrorKind;
use crate::index::process_state::ProcessState;
use crate::plan::{EksStep, Pin, Plan, PlannedStep, Step, StepFields, TEMPLATE_VERSION};
pub(crate) use aws_auth::AwsAuthWriter;
pub use error::StepError;
pub use independent_failures::IndependentFailure;
use independent_failures::{IndependentFailures, Remainder, eks_tag_refusal};
pub(crate) use run::{
    Applier, Apply, ApplyRun, BlockedEviction, StepOutcome, StepResult, allow_tag_denied, done, ignore_not_found,
};

/// How long AWS may not know a new role or instance profile before this counts as an error. IAM documents no limit
/// ("Changes that I make are not always immediately visible"); a few seconds are usual.
const PROPAGATION_LIMIT: SignedDuration = SignedDuration::from_secs(30);

/// A plan, and how far it was applied.
#[derive(Debug)]
pub struct Applied {
    /// The plan as it was made, with the steps that were not reached.
    pub plan: Plan,
    /// How many of its steps were applied.
    pub steps_done: usize,
    /// Why the next step failed; `None` when all steps were applied.
    pub error: Option<StepError>,
    /// Steps that were refused while the pass went on. In the plan, they follow those that were tried, and those that depend
    /// on them come last. If no other step failed, `error` is that of the first of them.
    pub independent_failures: Vec<IndependentFailure>,
    /// Names of the steps that wait for them.
    pub waiting_steps: Vec<&'static str>,
    /// Whether `error` is that of a step in `independent_failures`.
    pub is_error_independent: bool,
    /// Evictions that a PodDisruptionBudget blocked.
    pub blocked_evictions: Vec<BlockedEviction>,
    /// Tagging steps that AWS denied; they do not end the pass.
    pub tag_denials: Vec<TagDenied>,
    /// Indexes of applied steps that found nothing to change.
    pub unchanged_steps: Vec<usize>,
    /// UID of the resource of the crd strategy that was created.
    pub created_strategy_uid: Option<String>,
    /// The resourceVersion after the last write of this pass to the InstanceGroup.
    pub resource_version: Option<String>,
}

/// A tagging step that AWS denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagDenied {
    /// Index of the step in the plan.
    pub step_index: usize,
    /// The IAM action that the controller lacks, such as `iam:TagRole`.
    pub permission: String,
}

/// Applies a plan to the group that it was made for.
pub(crate) async fn apply(
    ctx: &Applier<'_>,
    id: &GroupId,
    resource_version: &str,
    finalizers: &[String],
    plan: Plan,
) -> Applied {
    let mut run = ApplyRun {
        ctx,
        id,
        resource_version: resource_version.to_owned(),
        evictions_end: plan.evictions_end,
        finalizers,
        created_versions: HashMap::new(),
        replaced_warm_instances: BTreeSet::new(),
        roles: HashMap::new(),
    };
    let mut applied = Applied::new(plan);
    let mut refused = IndependentFailures::default();
    while let Some(planned) = applied.plan.steps.get_mut(applied.steps_done) {
        let index = applied.steps_done;
        name_created_version(planned, &run);
        if refused.blocks(planned) {
            refused.add_dependent(applied.plan.steps.remove(index));
            continue;
        }
        let backoff_error = ctx.backoff_error(&id.key(), planned);
        let was_tried = backoff_error.is_none();
        let result = match backoff_error {
            Some(error) => Err(error),
            None => run.apply_step(&planned.step).await,
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                if was_tried {
                    let is_expected = is_propagating(ctx.process_state, &id.key(), &error, ctx.now);
                    log_failed_step(id, planned, &error, is_expected);
                    if let Some(refusal) = eks_tag_refusal(&planned.step, &error) {
                        let (writes, refusal) = (planned.writes(), refusal.clone());
                        ctx.process_state.refused_tags(&id.key(), |known| known.record(writes, refusal, ctx.now));
                    }
                }
                if !id.is_deleting() && IndependentFailures::can_continue_without(planned, &error) {
                    refused.add(applied.plan.steps.remove(index), error);
                    continue;
                }
                applied.error = Some(error);
                break;
            }
        };
        let had_effect = !matches!(outcome, StepOutcome::Unchanged | StepOutcome::EvictionBlocked(_));
        if had_effect {
            log_applied_step(id, planned);
        }
        applied.record_outcome(outcome, &mut run);
        applied.steps_done = index + 1;
    }
    let Remainder { first_error, failures, waiting, steps } = refused.finish();
    // The step that ended the pass stays the next one.
    let index = applied.steps_done + usize::from(applied.error.is_some());
    applied.plan.steps.splice(index..index, steps);
    if applied.error.is_none() && first_error.is_some() {
        (applied.error, applied.is_error_independent) = (first_error, true);
    }
    (applied.independent_failures, applied.waiting_steps) = (failures, waiting);
    if applied.error.is_none() {
        ctx.process_state.track_unknown_profile(&id.key(), false, ctx.now);
    }
    applied
}

impl Applied {
    /// A plan of which nothing has been applied.
    pub fn new(plan: Plan) -> Self {
        Applied {
            plan,
            steps_done: 0,
            error: None,
            independent_failures: Vec::new(),
            waiting_steps: Vec::new(),
            is_error_independent: false,
            blocked_evictions: Vec::new(),
            tag_denials: Vec::new(),
            unchanged_steps: Vec::new(),
            created_strategy_uid: None,
            resource_version: None,
        }
    }

    /// Whether all steps were applied but those that were refused, and those that depend on them.
    pub(crate) fn is_complete(&self) -> bool {
        self.error.is_none() || self.is_error_independent
    }

    /// Records how the next step ended.
    fn record_outcome(&mut self, outcome: StepOutcome, run: &mut ApplyRun<'_>) {
        let (key, step_index) = (run.id.key(), self.steps_done);
        match outcome {
            StepOutcome::Applied => {}
            StepOutcome::Unchanged => self.unchanged_steps.push(step_index),
            StepOutcome::EvictionBlocked(blocked) => {
                // It is tried again and again; the condition DrainBlocked is logged once.
                tracing::debug!(group = %key, pod = %blocked.pod.name, budgets = blocked.blocker.cause, "eviction blocked");
                self.blocked_evictions.push(blocked);
            }
            StepOutcome::TagDenied(permission) => {
                run.ctx.process_state.record_tag_denied(&key, run.ctx.now);
                self.tag_denials.push(TagDenied { step_index, permission });
            }
            StepOutcome::StrategyResourceCreated(uid) => self.created_strategy_uid = Some(uid),
            StepOutcome::ObjectUpdated(version) => {
                run.resource_version.clone_from(&version);
                self.resource_version = Some(version);
            }
        }
    }
}

/// Names the launch template version that this pass created in the reasons of the step that pins it: the plan could not know
/// its number.
fn name_created_version(planned: &mut PlannedStep, run: &ApplyRun<'_>) {
    let Step::Eks(EksStep::UpdateGroup { pin: Some(Pin::Made { hash }), .. }) = &planned.step else { return };
    let Some(created) = run.created_version(hash) else { return };
    for reason in planned.reasons.iter_mut().filter(|reason| reason.field == TEMPLATE_VERSION) {
        reason.to.clone_from(&created.version);
    }
}

/// Whether a step failed only because IAM has yet to make a new role or instance profile known to other services. That
/// happens at the creation of nearly every group.
fn is_propagating(state: &ProcessState, group: &str, error: &StepError, now: Timestamp) -> bool {
    let is_unknown = matches!(error, StepError::Aws(error) if error.kind == AwsErrorKind::InvalidProfile);
    is_unknown && state.track_unknown_profile(group, true, now) < PROPAGATION_LIMIT
}

/// Logs one line for each write, with the text of its event and its objects as fields. Events expire after an hour;
/// then only the log shows which instance was terminated, and why.
fn log_applied_step(id: &GroupId, planned: &PlannedStep) {
    let StepFields { node, instance, pod, resource, version } = planned.step.info().fields();
    let (group, step, reasons) = (id.key(), planned.step.name(), Some(planned.why()).filter(|why| !why.is_empty()));
    let change = planned.step.info().log_text();
    tracing::info!(group, step, change, node, instance, pod, resource, version, reasons, "step applied");
}

fn log_failed_step(id: &GroupId, planned: &PlannedStep, error: &StepError, is_expected: bool) {
    let StepFields { node, instance, pod, resource, version } = planned.step.info().fields();
    let (group, step) = (id.key(), planned.step.name());
    if matches!(error, StepError::RolloutBlocked(_)) {
        return tracing::info!(group, step, node, instance, resource, %error, "step waits for the rollout");
    }
    if is_expected {
        return tracing::info!(group, step, resource, %error, "waiting for IAM to propagate a new role or profile");
    }
    tracing::warn!(group, step, node, instance, pod, resource, version, %error, "step failed");
}

impl ApplyRun<'_> {
    async fn apply_step(&mut self, step: &Step) -> StepResult {
        match self.id.is_deleting() {
            true => self.check_deletion().await?,
            false if step.is_disruptive() => self.check_locks().await?,
            false => {}
        }
        if step.begins_replacement()
            && let Some(rollout_block) = (self.ctx.rollout_block)(step)
        {
            return Err(StepError::RolloutBlocked(rollout_block));
        }
        // The last check, so that nothing is awaited between it and the write.
        if !(self.ctx.request_write)() {
            return Err(StepError::MayNotWrite);
        }
        match step {
            Step::Object(step) => step.apply(self).await,
            Step::Iam(step) => step.apply(self).await,
            Step::Join(step) => step.apply(self).await,
            Step::Node(step) => step.apply(self).await,
            Step::Strategy(step) => step.apply(self).await,
            Step::Eks(step) => step.apply(self).await,
            Step::Nodegroup(step) => step.apply(self).await,
            Step::Fargate(step) => step.apply(self).await,
        }
    }

    /// Reads from the API server, not from a cache, whether this group is still being deleted.
    async fn check_deletion(&self) -> Result<(), StepError> {
        let uid = self.ctx.kube.group_deletion(&self.id.namespace, &self.id.name).await.map_err(StepError::Kube)?;
        if uid.as_deref() == Some(self.id.uid.as_str()) { Ok(()) } else { Err(StepError::GroupGone) }
    }

    /// Reads `lock-upgrades` from the objects themselves, not from a cache, right before a disruptive step.
    async fn check_locks(&self) -> Result<(), StepError> {
        let locks = self
            .ctx
            .kube
            .locks(&self.id.namespace, &self.id.name, self.ctx.config_namespace)
            .await
            .map_err(StepError::Kube)?;
        locks.only(self.ctx.counted_locks).holder().map_or(Ok(()), |holder| Err(StepError::Locked(holder)))
    }
}
