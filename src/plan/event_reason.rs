//! The reasons of events. Each has a row in docs/operations.md, which a test compares.

use serde::Serialize;
use strum::IntoEnumIterator;

/// Why an event is published. Kubernetes shows the name of the variant as its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::EnumIter)]
pub enum EventReason {
    /// The group's scaling group, node group or Fargate profile was created.
    InstanceGroupCreated,
    /// All resources of the group were deleted.
    InstanceGroupDeleted,
    /// All nodes became Ready.
    InstanceGroupNodesReady,
    /// A node is no longer Ready (Warning).
    InstanceGroupNodesNotReady,
    /// A rotation failed (Warning).
    InstanceGroupUpgradeFailed,
    /// A drain began.
    NodeDraining,
    /// A node was uncordoned instead of replaced.
    NodeUncordoned,
    /// An instance was terminated.
    InstanceTerminated,
    /// An instance is in standby until its replacement is Ready.
    InstanceEnteredStandby,
    /// An instance left the scaling group without this controller.
    InstanceLost,
    /// A pod was evicted; on the pod.
    Evicted,
    /// A pod was evicted that no controller recreates (Warning).
    UnmanagedPodEvicted,
    /// A pod was deleted after `drainTimeout` (Warning).
    PodDeleted,
    /// A PodDisruptionBudget blocks a drain (Warning).
    DrainBlocked,
    /// Nodes are terminated although pods still run on them, because their drain took too long (Warning).
    TerminatedWithPods,
    /// An outdated instance of the warm pool was replaced.
    WarmInstanceReplaced,
    /// Tags of running instances were changed.
    InstancesTagged,
    /// Labels or taints of running nodes were changed.
    NodesChangedInPlace,
    /// Labels or taints of the Node were changed; on the Node.
    NodeChangedInPlace,
    /// All nodes run the desired version.
    RotationCompleted,
    /// A launch template version was created.
    TemplateVersionCreated,
    /// The scaling group was changed in place.
    ScalingGroupUpdated,
    /// A field has no effect (Warning).
    FieldIgnored,
    /// New nodes run an operating system without updates (Warning).
    OsFamilyOutOfSupport,
    /// AWS accepts no new launch configurations (Warning).
    LaunchConfigurationUnsupported,
    /// An unused launch template was not deleted, because others launch from it (Warning).
    TemplateRetained,
    /// The group moved to a launch template.
    LaunchConfigurationReplaced,
    /// The launch configuration was deleted after the move to a launch template.
    LaunchConfigurationDeleted,
    /// Another client deleted a resource, and the controller creates it again (Warning).
    ResourceRecreated,
    /// A managed node group was changed.
    NodegroupUpdated,
    /// EKS deletes a managed node group.
    NodegroupDeleted,
    /// EKS creates a Fargate profile.
    FargateProfileCreated,
    /// Tags of a Fargate profile were changed.
    FargateProfileUpdated,
    /// EKS deletes a Fargate profile.
    FargateProfileDeleted,
    /// An IAM role was created.
    RoleCreated,
    /// Policies or the trust policy of an IAM role were changed.
    RoleUpdated,
    /// An IAM role was not deleted (Warning).
    RoleRetained,
    /// The entry of the group's previous role stays (Warning).
    JoinEntryRetained,
    /// The role's entry in aws-auth, or its access entry, was added.
    NodeRoleAuthorized,
    /// The role's entry in aws-auth, or its access entry, was removed.
    NodeRoleRevoked,
    /// A resource of the crd strategy was created.
    StrategyResourceCreated,
    /// A resource of the crd strategy was deleted.
    StrategyResourceDeleted,
    /// A spot recommendation is not valid (Warning).
    SpotRecommendationIgnored,
    /// Existing resources were adopted.
    Adopted,
    /// A newer revision of the boundaries will reach the group.
    RevisionAnnounced,
    /// The group switches to another revision of the boundaries.
    RevisionTaken,
    /// The group returns to the revision that it had (Warning).
    RevisionReturned,
    /// A rollout began; on the ConfigMap and the revision.
    RolloutStarted,
    /// A rollout is halted (Warning); on the ConfigMap and the revision.
    RolloutHalted,
    /// All groups return to the revision before (Warning); on the ConfigMap and the revision.
    RolloutReturning,
    /// All groups have returned (Warning); on the ConfigMap and the revision.
    RolloutAborted,
    /// All waves have passed; on the ConfigMap and the revision.
    RolloutCompleted,
    /// A check of the rollout fails (Warning); on the ConfigMap.
    RolloutCheckFailing,
    /// A check of the rollout has no result (Warning); on the ConfigMap.
    RolloutCheckUnknown,
    /// The API server refuses the status of a revision (Warning); on the ConfigMap.
    RolloutNotRecorded,
    /// The key `rollout` is gone in the middle of a rollout (Warning); on the ConfigMap.
    RolloutKeyMissing,
    /// A revision of the boundaries makes groups invalid (Warning); on the ConfigMap.
    GroupsRejected,
    /// A revision of the boundaries is active; on the ConfigMap.
    BoundariesApplied,
    /// A part of the ConfigMap has no effect, or leaves a choice open (Warning); on the ConfigMap.
    BoundariesWarning,
    /// The ConfigMap does not exist (Warning).
    BoundariesMissing,
    /// The ConfigMap is valid, and the API server does not store it as a BoundariesRevision (Warning).
    BoundariesNotStored,
    /// Another controller manages the groups (Warning).
    ConflictingController,
    /// The other controller has stopped.
    ConflictResolved,
    /// aws-auth is nearly as large as a ConfigMap may be (Warning).
    AwsAuthNearLimit,
    /// The API server refuses the status of the group (Warning).
    StatusNotWritten,
    /// AWS answers again.
    AWSAvailable,
    /// Access entries are missing for the migration from aws-auth (Warning).
    AccessEntriesMissing,
    /// Every role has an access entry.
    AccessEntriesComplete,
    /// aws-auth still has entries that access entries replace.
    AwsAuthEntriesRemaining,
    /// The cluster does not read aws-auth, or it contains no roles.
    AwsAuthNotUsed,
}

impl EventReason {
    /// Every reason, for the documentation.
    pub fn all() -> impl Iterator<Item = EventReason> {
        Self::iter()
    }
}

impl std::fmt::Display for EventReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
