//! The state of a group once its plan is applied. It decides the requeue, the conditions and `currentState`.

use jiff::SignedDuration;
use serde::Serialize;

/// The state of a group once its plan is applied. It decides the requeue and the conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The observed state equals the desired state.
    Converged,
    /// A change is in progress, and later passes continue it.
    Progressing {
        /// The kind of change.
        phase: Phase,
        /// What the change does or waits for, for the `Reconciling` condition.
        message: String,
        /// When the next pass runs.
        recheck: Recheck,
    },
    /// Nodes are outdated, and `lock-upgrades` blocks their replacement.
    Locked {
        /// Which object carries the lock, and what it blocks.
        message: String,
    },
    /// The group makes no progress until a person acts.
    Blocked {
        /// Reason of the `Stalled` condition.
        reason: Reason,
        /// What is wrong, where, and what to do.
        message: String,
        /// The deletion of the group is blocked, not a change to it.
        is_deleting: bool,
    },
    /// All resources of the group are deleted.
    Deleted,
}

/// When the next pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recheck {
    /// Immediately: the next step needs only what this pass wrote.
    Immediately,
    /// After the poll interval of groups that are changing.
    Poll,
    /// After this duration, in seconds when serialized.
    After(#[serde(serialize_with = "serialize_seconds")] SignedDuration),
}

fn serialize_seconds<S: serde::Serializer>(d: &SignedDuration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_i64(d.as_secs())
}

/// The kind of change in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// The group's nodes are created for the first time.
    Creating,
    /// The group is changed in place, or waits for AWS or for nodes.
    Modifying,
    /// Nodes are being replaced.
    Rotating,
    /// The group's resources are being deleted.
    Deleting,
}

/// Why a group is blocked: the closed set of `Stalled` reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Reason {
    /// The merged spec is invalid.
    InvalidSpec,
    /// The controller lacks a permission in AWS or Kubernetes.
    MissingPermission,
    /// AWS rejected a value.
    RefusedByAws,
    /// The controller has no valid boundaries to apply.
    BoundariesUnavailable,
    /// The cluster's authentication mode does not support the method set by `--join-auth`.
    AuthModeUnsupported,
    /// aws-auth cannot be parsed or holds another entry for the role, or the role's access entry has another type.
    AuthConflict,
    /// A resource of the derived name belongs to another owner.
    OwnershipConflict,
    /// `Launch` or `Terminate` is suspended, or an instance refresh runs.
    ProcessSuspended,
    /// Too many nodes are not ready at once.
    ClusterUnhealthy,
    /// Replacement nodes of a rotation did not become Ready.
    ReplacementsNotReady,
    /// A node cannot be drained.
    DrainBlocked,
    /// Evicted pods are unschedulable.
    UnschedulablePods,
    /// An image alias does not resolve to an image.
    ImageNotFound,
    /// A subnet, a security group or the cluster does not exist.
    NotFound,
    /// AWS has no capacity to launch instances.
    InsufficientCapacity,
    /// A quota prevents AWS from launching instances.
    QuotaExceeded,
    /// Instances failed to launch for another reason.
    LaunchFailed,
    /// Instances run, and their nodes do not become Ready.
    NodesNotReady,
    /// A resource of the crd strategy failed, was deleted by another user, or left nodes outdated.
    StrategyFailed,
    /// The CRD of the crd strategy's resource is not installed.
    StrategyKindNotFound,
    /// EKS could not create or delete a Fargate profile, or reports it as unhealthy.
    ProfileFailed,
    /// EKS reports health issues of a managed node group.
    Degraded,
    /// An update of a managed node group failed or was cancelled.
    UpdateFailed,
    /// The cluster admin's policy forbids a value.
    PolicyViolation,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
