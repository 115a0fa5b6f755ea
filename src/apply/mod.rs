//! Does what a plan says, step by step, and answers what came of it.
//!
//! Nothing is decided here but this: a step that fails ends the pass, the
//! brake and the lease are looked at again before every act that takes nodes
//! away, and a create that finds its name taken looks whose it is.

mod aws_auth;
mod iam;
mod join;
mod node;
mod object;
mod strategy;

use std::collections::HashMap;

use jiff::Timestamp;

use crate::api::GroupId;
use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, AwsErrorKind, Role, Tag, TemplatePin};
use crate::index::process_state::ProcessState;
use crate::k8s::{KubeApi, KubeError};
use crate::ownership::has_ownership_tags;
use crate::plan::{NodeStep, Plan, PlannedStep, PodRef, Reason, Step};
pub use aws_auth::{AwsAuthEdit, AwsAuthWriter};

/// What an apply needs.
pub struct Applier<'a> {
    /// AWS, with the memory of our own writes.
    pub inventory: &'a Inventory,
    /// Kubernetes writes.
    pub kube: &'a dyn KubeApi,
    /// Clocks of drains.
    pub process_state: &'a ProcessState,
    /// The only writer of aws-auth.
    pub aws_auth: &'a AwsAuthWriter,
    /// Whether this process may write, asked again at every step.
    pub is_leader: &'a (dyn Fn() -> bool + Sync),
    /// Where the ConfigMap with the brake is.
    pub config_namespace: &'a str,
    /// How long a drain that ran into its timeout rests.
    pub drain_retry_delay: jiff::SignedDuration,
    /// The moment of the plan.
    pub now: Timestamp,
}

/// What came of a plan.
#[derive(Debug)]
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// How many of its steps were done.
    pub steps_done: usize,
    /// Why the next one was not.
    pub error: Option<StepError>,
    /// Evictions that a budget refused.
    pub blocked_evictions: Vec<BlockedEviction>,
    /// Rights that are missing to tag what was taken over, which stops nothing.
    pub tag_denials: Vec<TagDenied>,
    /// The resourceVersion that our last write to the InstanceGroup gave.
    pub resource_version: Option<String>,
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// AWS refused or did not answer.
    #[error("{0}")]
    Aws(#[source] AwsError),
    /// Kubernetes refused or did not answer.
    #[error("{0}")]
    Cluster(#[source] KubeError),
    /// aws-auth cannot be edited.
    #[error("{0}")]
    Auth(#[source] crate::auth::aws_auth::AwsAuthError),
    /// The name belongs to someone else.
    #[error("{0} is there and carries another owner's tags")]
    OwnershipConflict(String),
    /// Somebody pulled the brake.
    #[error("lock-upgrades is set on {0}")]
    Locked(&'static str),
    /// The lease is gone.
    #[error("another instance of the controller leads now")]
    NotLeading,
}

/// A step that AWS refused, because a right to change tags is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagDenied {
    /// Its number among the plan's steps.
    pub step_index: usize,
    /// The right.
    pub permission: String,
}

/// An eviction that a budget refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedEviction {
    /// The pod.
    pub pod: PodRef,
    /// The budgets that select it.
    pub budgets: Vec<String>,
    /// The API server's words.
    pub message: String,
    /// Pods of the same owner that find no room.
    pub unschedulable: Vec<String>,
}

/// How a step was done.
pub enum StepOutcome {
    /// As planned.
    Yes,
    /// A budget refused an eviction.
    Refused(BlockedEviction),
    /// The right that is missing to tag what was taken over.
    TagDenied(String),
    /// The resourceVersion of the InstanceGroup that was written.
    Version(String),
}

/// What came of a step.
pub type StepResult = Result<StepOutcome, StepError>;

/// How a topic's steps are done.
pub trait Apply {
    /// Does one step, or says why not.
    ///
    /// # Errors
    /// What AWS or Kubernetes answers, or whose the thing is.
    fn apply(&self, run: &mut ApplyRun<'_>) -> impl Future<Output = StepResult> + Send;
}

/// Applies a plan to the group it was made for.
pub async fn apply(
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
        finalizers,
        created_versions: HashMap::new(),
        roles: HashMap::new(),
    };
    let mut applied = Applied {
        steps_done: 0,
        error: None,
        blocked_evictions: Vec::new(),
        tag_denials: Vec::new(),
        resource_version: None,
        plan,
    };
    for index in 0..applied.plan.steps.len() {
        let PlannedStep { step, reasons } = &applied.plan.steps[index];
        match run.apply_step(step).await {
            Ok(StepOutcome::Yes) => {}
            Ok(StepOutcome::Refused(refusal)) => applied.blocked_evictions.push(refusal),
            Ok(StepOutcome::TagDenied(permission)) => {
                ctx.process_state.record_tag_denied(&id.key(), ctx.now);
                applied.tag_denials.push(TagDenied { step_index: index, permission });
            }
            Ok(StepOutcome::Version(version)) => {
                run.resource_version.clone_from(&version);
                applied.resource_version = Some(version);
            }
            Err(stopped) => {
                tracing::warn!(group = %id.key(), step = step.name(), %stopped, "a step was not done");
                applied.error = Some(stopped);
                break;
            }
        }
        let refused = applied
            .blocked_evictions
            .last()
            .filter(|r| matches!(step, Step::Node(NodeStep::Evict { pod, .. }) if *pod == r.pod));
        if let Some(refusal) = refused {
            tracing::info!(group = %id.key(), step = step.name(), budgets = ?refusal.budgets, "refused");
            applied.steps_done = index + 1;
            continue;
        }
        let why: Vec<_> = reasons.iter().map(ToString::to_string).collect();
        tracing::info!(group = %id.key(), step = step.name(), reasons = %why.join("; "), "done");
        applied.steps_done = index + 1;
    }
    applied
}

/// One pass under way.
pub struct ApplyRun<'a> {
    /// What it needs.
    pub ctx: &'a Applier<'a>,
    /// The group.
    pub id: &'a GroupId,
    /// The newest resourceVersion of the InstanceGroup that this pass knows.
    pub resource_version: String,
    finalizers: &'a [String],
    /// Versions that this pass made, by hash line.
    pub created_versions: HashMap<String, TemplatePin>,
    /// Roles that this pass made or found, by name.
    roles: HashMap<String, Role>,
}

/// A step is done once AWS says so.
pub fn done<T>(result: Result<T, AwsError>) -> StepResult {
    result.map(|_| StepOutcome::Yes).map_err(StepError::Aws)
}

/// Tags say whose a thing is; without the right to set them everything else goes on.
pub fn allow_tag_denied(result: Result<(), AwsError>) -> StepResult {
    match result {
        Err(error) if error.kind == AwsErrorKind::Denied => {
            Ok(StepOutcome::TagDenied(error.missing_permission().unwrap_or_default()))
        }
        other => done(other),
    }
}

/// A delete of what is gone already is done.
pub fn ignore_not_found<T>(result: Result<T, AwsError>) -> StepResult {
    match result {
        Err(error) if error.kind == AwsErrorKind::NotFound => Ok(StepOutcome::Yes),
        other => done(other),
    }
}

impl ApplyRun<'_> {
    async fn apply_step(&mut self, step: &Step) -> StepResult {
        if step.is_disruptive() && !self.id.is_deleting {
            self.check_locks().await?;
        }
        // Last, so that nothing is waited for between the answer and the act.
        if !(self.ctx.is_leader)() {
            return Err(StepError::NotLeading);
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

    /// Read from the objects themselves, right before the act.
    async fn check_locks(&self) -> Result<(), StepError> {
        let locks = self
            .ctx
            .kube
            .locks(&self.id.namespace, &self.id.name, self.ctx.config_namespace)
            .await
            .map_err(StepError::Cluster)?;
        match (locks.group, locks.namespace, locks.config_map) {
            (true, _, _) => Err(StepError::Locked("the InstanceGroup")),
            (_, true, _) => Err(StepError::Locked("its Namespace")),
            (_, _, true) => Err(StepError::Locked("the instance-manager ConfigMap")),
            (false, false, false) => Ok(()),
        }
    }

    /// What EKS says of a role that it does not know. One of the group's own was made a moment ago; any other, and one that
    /// it has refused for [`Applier::rest`], is refused until a person acts.
    pub(crate) fn classify_role_error(&self, error: AwsError, own_role: bool, field: &str) -> StepError {
        if error.kind != AwsErrorKind::InvalidProfile {
            return StepError::Aws(error);
        }
        let Applier { process_state, drain_retry_delay, now, .. } = self.ctx;
        if own_role && process_state.track_role_refusal(&self.id.key(), true, *now) < *drain_retry_delay {
            return StepError::Aws(error);
        }
        let remedy = match own_role {
            true => {
                "the role is the group's own: mend what was changed of it by hand, its trust policy above all".into()
            }
            false => format!("mend the role, or name another in {field}"),
        };
        StepError::Aws(AwsError {
            kind: AwsErrorKind::Invalid,
            message: format!("{}; {remedy}", error.message),
            ..error
        })
    }

    /// What refused a create is ours, or someone else's. A read that does not show it lags behind: nobody knows yet.
    pub fn adopt_if_owned(&self, name: &str, refusal: AwsError, found: Option<Vec<Tag>>, tags: &[Tag]) -> StepResult {
        match found {
            None => Err(StepError::Aws(refusal)),
            Some(held) if has_ownership_tags(&held, tags) => Ok(StepOutcome::Yes),
            Some(_) => {
                self.ctx.process_state.set_name_conflict(&self.id.key());
                Err(StepError::OwnershipConflict(name.to_owned()))
            }
        }
    }
}

impl StepError {
    /// The reason that a person sees, and whether waiting helps.
    pub fn stalled_reason(&self) -> Option<Reason> {
        match self {
            StepError::Aws(error) => match error.kind {
                AwsErrorKind::Denied => Some(Reason::MissingPermission),
                AwsErrorKind::Quota => Some(Reason::QuotaExceeded),
                AwsErrorKind::Invalid => Some(Reason::RefusedByAws),
                AwsErrorKind::NotFound
                | AwsErrorKind::AlreadyExists
                | AwsErrorKind::Throttled
                | AwsErrorKind::InUse
                | AwsErrorKind::InvalidProfile
                | AwsErrorKind::Unavailable
                | AwsErrorKind::Other => None,
            },
            StepError::Cluster(KubeError::Forbidden { .. }) => Some(Reason::MissingPermission),
            StepError::Cluster(_) | StepError::NotLeading | StepError::Locked(_) => None,
            StepError::Auth(_) => Some(Reason::AuthConflict),
            StepError::OwnershipConflict(_) => Some(Reason::OwnershipConflict),
        }
    }
}
