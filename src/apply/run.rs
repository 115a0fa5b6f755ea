//! What the step topics share: the clients and the state of one pass, and the outcome of a step.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::aws_auth::AwsAuthWriter;
use super::error::StepError;
use super::independent_failures::is_eks_tag;
use crate::api::GroupId;
use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, AwsErrorKind, Role, Tag, TemplatePin};
use crate::index::denied_calls::DeniedAttempt;
use crate::index::process_state::ProcessState;
use crate::k8s::{EvictionBlocker, KubeApi};
use crate::lock::Locks;
use crate::ownership::has_ownership_tags;
use crate::plan::{NodeStep, PlannedStep, PodRef, Step};

/// Clients and settings to apply plans with.
pub(crate) struct Applier<'a> {
    /// AWS clients, and the caches that the writes of steps must update.
    pub inventory: &'a Inventory,
    /// The API server, for Nodes, pods, status and strategy resources.
    pub kube: &'a dyn KubeApi,
    /// Timers of drains and other state of this process.
    pub process_state: &'a ProcessState,
    /// The only writer of kube-system/aws-auth.
    pub aws_auth: &'a AwsAuthWriter,
    /// Checks whether this process may write: it is the leader, and no other controller is active. Called before every
    /// step; a refusal is recorded.
    pub request_write: &'a (dyn Fn() -> bool + Sync),
    /// Which of the locks count under the boundaries and the policy, if they are set.
    pub counted_locks: Locks,
    /// Called right before a step that starts to replace nodes. Returns why the rollout does not allow it; `None` when
    /// it does, and when the rollout blocked the group as the plan was made, so that the plan starts no replacement.
    pub rollout_block: &'a (dyn Fn(&Step) -> Option<String> + Sync),
    /// The name of an instance's Node; `None` until the watch has delivered the Node.
    pub node_of: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Namespace of the ConfigMap that can carry `lock-upgrades`.
    pub config_namespace: &'a str,
    /// How long a node is not drained again after its drain ran into `drainTimeout`.
    pub retry_delay: jiff::SignedDuration,
    /// How long a termination that lowers the desired capacity is not repeated.
    pub decrement_interval: jiff::SignedDuration,
    /// What the plan was made from. When that changes, a call that was denied is tried at once.
    pub spec: &'a str,
    /// Reference time of the plan.
    pub now: Timestamp,
}

#[cfg(test)]
impl<'a> Applier<'a> {
    /// One that may write, at the epoch. Nothing is locked or blocked.
    pub(crate) fn for_tests(
        inventory: &'a Inventory,
        kube: &'a dyn KubeApi,
        process_state: &'a ProcessState,
        aws_auth: &'a AwsAuthWriter,
    ) -> Self {
        let timing = crate::settings::Timing::default();
        Applier {
            inventory,
            kube,
            process_state,
            aws_auth,
            request_write: &|| true,
            counted_locks: Locks::default(),
            rollout_block: &|_| None,
            node_of: &|_| None,
            config_namespace: "instance-manager",
            retry_delay: timing.retry_delay,
            decrement_interval: timing.decrement_interval,
            spec: "",
            now: Timestamp::UNIX_EPOCH,
        }
    }
}

/// An eviction that a PodDisruptionBudget blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedEviction {
    /// The pod whose eviction was refused. It is tried again in the next pass.
    pub pod: PodRef,
    /// The budgets that select the pod, and what to do about them.
    pub blocker: EvictionBlocker,
    /// Unschedulable pods of the same owner, as `namespace/name`.
    pub unschedulable: Vec<String>,
    /// When the node is terminated with the pod, because the group is being deleted.
    pub terminated_at: Option<Timestamp>,
}

/// How a step that did not fail ended.
pub(crate) enum StepOutcome {
    /// The step was applied as planned.
    Applied,
    /// There was nothing to change: no write was made, and none is reported.
    Unchanged,
    /// A PodDisruptionBudget blocked the eviction.
    EvictionBlocked(BlockedEviction),
    /// AWS denied the tagging of an adopted resource; the value is the missing permission.
    TagDenied(String),
    /// A resource of the crd strategy was created; the value is its UID.
    StrategyResourceCreated(String),
    /// The InstanceGroup was written; the value is its new resourceVersion.
    ObjectUpdated(String),
}

/// Outcome of a step, or its error.
pub(crate) type StepResult = Result<StepOutcome, StepError>;

/// Applies the steps of one topic.
pub(crate) trait Apply {
    /// Applies one step.
    ///
    /// # Errors
    /// The error of AWS or Kubernetes, or a resource that belongs to another owner.
    fn apply(&self, run: &mut ApplyRun<'_>) -> impl Future<Output = StepResult> + Send;
}

/// One pass in progress.
pub(crate) struct ApplyRun<'a> {
    /// Clients and settings, which are the same for all groups.
    pub ctx: &'a Applier<'a>,
    /// The InstanceGroup that the plan was made for, with its UID.
    pub id: &'a GroupId,
    /// The newest resourceVersion of the InstanceGroup that this pass knows.
    pub resource_version: String,
    /// See [`crate::plan::Plan::evictions_end`].
    pub(super) evictions_end: Option<Timestamp>,
    /// Finalizers of the InstanceGroup when the plan was made.
    pub(super) finalizers: &'a [String],
    /// Launch template versions that this pass created, by hash line.
    pub created_versions: HashMap<String, TemplatePin>,
    /// Instances of the warm pool that this pass marked unhealthy.
    pub replaced_warm_instances: BTreeSet<String>,
    /// Roles that this pass created or found, by name.
    pub(super) roles: HashMap<String, Role>,
}

/// The result of an AWS call as the result of a step.
pub(crate) fn done<T>(result: Result<T, AwsError>) -> StepResult {
    result.map(|_| StepOutcome::Applied).map_err(StepError::Aws)
}

/// Like [`done`], but a missing permission to tag does not end the pass.
pub(crate) fn allow_tag_denied(result: Result<(), AwsError>) -> StepResult {
    match result {
        Err(error) if error.kind == AwsErrorKind::Denied => {
            Ok(StepOutcome::TagDenied(error.missing_permission().unwrap_or_default()))
        }
        other => done(other),
    }
}

/// Like [`done`], but deleting a resource that does not exist succeeds.
pub(crate) fn ignore_not_found<T>(result: Result<T, AwsError>) -> StepResult {
    match result {
        Err(error) if error.kind == AwsErrorKind::NotFound => Ok(StepOutcome::Applied),
        other => done(other),
    }
}

impl Applier<'_> {
    /// The error of a step that is not tried before its time: AWS denies its call, the API server rejected the same change
    /// of a node, or EKS refused the same tags.
    pub(super) fn backoff_error(&self, group: &str, planned: &PlannedStep) -> Option<StepError> {
        let step = &planned.step;
        if is_eks_tag(step)
            && let Some(error) =
                self.process_state.refused_tags(group, |known| known.backoff(&planned.writes(), self.now))
        {
            return Some(StepError::Aws(error));
        }
        if let Step::Node(NodeStep::ChangeNodeInPlace { node, change, .. }) = step
            && let Some(message) = self.process_state.rejected_changes(|known| known.backoff(node, change, self.now))
        {
            return Some(StepError::RejectedBefore(message));
        }
        let attempt = DeniedAttempt { spec: self.spec.to_owned(), step: Some(step.name()) };
        self.process_state.call_in_backoff(group, &attempt, self.now).map(StepError::from)
    }
}

impl ApplyRun<'_> {
    /// The launch template version that this pass created from the inputs with this hash.
    pub(crate) fn created_version(&self, hash: &str) -> Option<&TemplatePin> {
        self.created_versions.iter().find(|(description, _)| description.contains(hash)).map(|(_, pin)| pin)
    }

    /// Decides whether an `InvalidProfile` error of EKS about a role is retried or needs manual intervention.
    ///
    /// The group's own role may be too new for EKS, so the error is retried for [`Applier::retry_delay`]. For any
    /// other role, and after that time, the error becomes `Invalid` with a remedy; `field` names the role in the spec.
    pub(crate) fn classify_role_error(&self, error: AwsError, own_role: bool, field: &str) -> StepError {
        if error.kind != AwsErrorKind::InvalidProfile {
            return StepError::Aws(error);
        }
        let Applier { process_state, retry_delay, now, .. } = self.ctx;
        if own_role && process_state.track_role_rejection(&self.id.key(), true, *now) < *retry_delay {
            return StepError::Aws(error);
        }
        let remedy = match own_role {
            true => "the controller created this role: revert manual changes to it, especially its trust policy".into(),
            false => format!("fix the role, or name another one in {field}"),
        };
        StepError::Aws(AwsError {
            kind: AwsErrorKind::Invalid,
            message: format!("{}; {remedy}", error.message),
            ..error
        })
    }

    /// After a create failed because the name exists: success when the resource carries the group's tags.
    ///
    /// `found` is the tags of the existing resource; `None` means the read lags behind the create, so the call is
    /// retried.
    ///
    /// # Errors
    /// `create_error` when the resource was not found, and `OwnershipConflict` when it has other tags.
    pub(crate) fn adopt_if_owned(
        &self,
        name: &str,
        create_error: AwsError,
        found: Option<Vec<Tag>>,
        tags: &[Tag],
    ) -> StepResult {
        match found {
            None => Err(StepError::Aws(create_error)),
            Some(existing) if has_ownership_tags(&existing, tags) => Ok(StepOutcome::Applied),
            Some(_) => {
                self.ctx.process_state.set_name_conflict(&self.id.key(), name);
                Err(StepError::OwnershipConflict(name.to_owned()))
            }
        }
    }
}
