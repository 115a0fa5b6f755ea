//! The reasons of the condition `Stalled`. Each has a row in docs/operations.md, which a test compares.

use serde::Serialize;
use strum::IntoEnumIterator;

/// Why a group is blocked. The condition `Stalled` has the name of the variant as its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::EnumIter)]
pub enum StalledReason {
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
    /// Too many nodes are not ready at once, or EKS does not reach the API server.
    ClusterUnhealthy,
    /// Replacement nodes of a rotation did not become Ready.
    ReplacementsNotReady,
    /// A node cannot be drained.
    DrainBlocked,
    /// Evicted pods are unschedulable; also a reason of the condition `DrainBlocked`.
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
    /// A resource of the crd strategy failed, was deleted by another client, or left nodes outdated.
    StrategyFailed,
    /// The CRD of the crd strategy's resource is not installed.
    StrategyKindNotFound,
    /// EKS could not create or delete a Fargate profile, or reports it as unhealthy.
    ProfileFailed,
    /// EKS reports health issues of a managed node group.
    Degraded,
    /// AWS failed at work of its own for a managed node group, or throttled it.
    AwsFailed,
    /// An update of a managed node group failed or was canceled.
    UpdateFailed,
    /// The cluster admin's policy forbids a value.
    PolicyViolation,
    /// The group is protected, and its deletion is not confirmed.
    DeletionProtected,
}

impl StalledReason {
    /// Whether it may be why nodes are not ready, so that it is reported before their state.
    fn explains_nodes(self) -> bool {
        matches!(self, Self::AuthConflict | Self::AuthModeUnsupported)
    }

    /// Whether the reason is only that nodes are not ready, whatever the cause.
    fn is_about_nodes(self) -> bool {
        matches!(self, Self::ClusterUnhealthy | Self::ReplacementsNotReady | Self::NodesNotReady)
    }

    /// Whether AWS launches no instances because of it.
    pub(crate) fn prevents_launches(self) -> bool {
        matches!(self, Self::InsufficientCapacity | Self::QuotaExceeded | Self::LaunchFailed | Self::ProcessSuspended)
    }

    /// Whether a group that is blocked for this reason counts as a failure of the revision that it switched to last.
    /// The other reasons depend on budgets, capacity, other owners, AWS or the controller itself.
    pub(crate) fn is_failure_of_revision(self) -> bool {
        match self {
            Self::InvalidSpec
            | Self::MissingPermission
            | Self::RefusedByAws
            | Self::ReplacementsNotReady
            | Self::ImageNotFound
            | Self::NotFound
            | Self::LaunchFailed
            | Self::NodesNotReady
            | Self::StrategyFailed
            | Self::StrategyKindNotFound
            | Self::ProfileFailed
            | Self::Degraded
            | Self::UpdateFailed
            | Self::PolicyViolation => true,
            Self::BoundariesUnavailable
            | Self::AuthModeUnsupported
            | Self::AuthConflict
            | Self::OwnershipConflict
            | Self::ProcessSuspended
            | Self::ClusterUnhealthy
            | Self::DrainBlocked
            | Self::UnschedulablePods
            | Self::InsufficientCapacity
            | Self::QuotaExceeded
            | Self::AwsFailed
            | Self::DeletionProtected => false,
        }
    }

    /// The reason with this name, as in a status.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::iter().find(|reason| reason.to_string() == name)
    }

    /// Whether it is the root cause of the other one.
    pub(crate) fn causes(self, other: StalledReason) -> bool {
        self.explains_nodes() && other.is_about_nodes()
    }
}

impl std::fmt::Display for StalledReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
