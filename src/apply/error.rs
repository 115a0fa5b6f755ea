//! Why a step could not be applied, and the `Stalled` reason that follows.

use crate::auth::aws_auth::AwsAuthError;
use crate::aws::{AwsError, AwsErrorKind};
use crate::index::denied_calls::DeniedCall;
use crate::k8s::KubeError;
use crate::lock::LockHolder;
use crate::plan::stalled_reason::StalledReason;

/// Why a step was not applied. The reconcile ends with it, unless `independent_failures` lets the steps after it go on.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// An AWS call failed.
    #[error("{0}")]
    Aws(#[source] AwsError),
    /// A Kubernetes call failed.
    #[error("{0}")]
    Kube(#[source] KubeError),
    /// kube-system/aws-auth cannot be edited.
    #[error("{0}")]
    AwsAuth(#[source] AwsAuthError),
    /// The name of a resource to be created belongs to another owner.
    #[error("{0} already exists and is tagged for another owner")]
    OwnershipConflict(String),
    /// `lock-upgrades` was set after the plan was made.
    #[error("lock-upgrades is set on {0}")]
    Locked(LockHolder),
    /// The InstanceGroup that was being deleted is gone, perhaps because a user removed its finalizer. Its name may be
    /// another InstanceGroup's by now.
    #[error("the InstanceGroup that was being deleted no longer exists")]
    GroupGone,
    /// A window closed, or the rollout was paused, after the plan was made.
    #[error("{0}")]
    RolloutBlocked(String),
    /// The node to be drained further or to be terminated was uncordoned after the plan was made.
    #[error("the node {0} was uncordoned by another client")]
    NodeUncordoned(String),
    /// The Cluster Autoscaler began to remove the node after the plan was made. AWS would take another node for the second
    /// termination of its instance.
    #[error("the Cluster Autoscaler is removing the node {0}")]
    RemovedByAutoscaler(String),
    /// The instance to be terminated had no Node when the plan was made.
    #[error("the node {0} joined after the plan was made; the controller drains it first")]
    NodeJoined(String),
    /// The API server rejected the same change of a node a short time ago, with this message.
    #[error("{0}")]
    RejectedBefore(String),
    /// This process may no longer write: it lost the lease, or another controller writes the status of groups.
    #[error("this process may no longer write: another process is the leader, or another controller is active")]
    MayNotWrite,
}

impl From<DeniedCall> for StepError {
    fn from(call: DeniedCall) -> Self {
        match call {
            DeniedCall::Aws(error) => StepError::Aws(error),
            DeniedCall::Kube { verb, resource, message } => {
                let source = message.clone().into();
                StepError::Kube(KubeError::Forbidden { verb, resource: resource.into(), message, source })
            }
        }
    }
}

impl StepError {
    /// The call that was denied, if that is the cause.
    pub(crate) fn denied_call(&self) -> Option<DeniedCall> {
        match self {
            StepError::Aws(error) if error.kind == AwsErrorKind::Denied => Some(DeniedCall::Aws(error.clone())),
            StepError::Kube(error) => DeniedCall::of_kube(error),
            _ => None,
        }
    }

    /// The `Stalled` reason; `None` for an error that a retry can clear.
    pub(crate) fn stalled_reason(&self) -> Option<StalledReason> {
        match self {
            StepError::Aws(error) => match error.kind {
                AwsErrorKind::Denied => Some(StalledReason::MissingPermission),
                AwsErrorKind::Quota => Some(StalledReason::QuotaExceeded),
                AwsErrorKind::Invalid => Some(StalledReason::RefusedByAws),
                AwsErrorKind::NotFound
                | AwsErrorKind::AlreadyExists
                | AwsErrorKind::Throttled
                | AwsErrorKind::InUse
                | AwsErrorKind::InvalidProfile
                | AwsErrorKind::Unavailable
                | AwsErrorKind::Other => None,
            },
            StepError::Kube(KubeError::Forbidden { .. }) => Some(StalledReason::MissingPermission),
            StepError::Kube(_)
            | StepError::MayNotWrite
            | StepError::GroupGone
            | StepError::Locked(_)
            | StepError::RolloutBlocked(_)
            | StepError::NodeUncordoned(_)
            | StepError::RemovedByAutoscaler(_)
            | StepError::NodeJoined(_)
            | StepError::RejectedBefore(_) => None,
            // Another group has just added an entry for the role. The next plan widens it, or reports the conflict.
            StepError::AwsAuth(AwsAuthError::Conflict { .. }) => None,
            StepError::AwsAuth(_) => Some(StalledReason::AuthConflict),
            StepError::OwnershipConflict(_) => Some(StalledReason::OwnershipConflict),
        }
    }
}
