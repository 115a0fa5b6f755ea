//! The plan is a value: what would be done to one group, why, and how the
//! group stands once it is done. It is tested against golden files, printed by
//! `plan`, applied by [`crate::apply`] and told by [`crate::report`].

mod draft;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::NewFargateProfile;
use crate::aws::nodegroup::{NewNodegroup, NodegroupChange, NodegroupName, NodegroupVersion};
use crate::aws::{
    LifecycleHook, NewAccessEntry, NewRole, NewScalingGroup, NewTemplate, NewVersion, ScalingGroupChange, Tag,
    WarmSizes,
};

use crate::redact::Redacted;
use crate::upgrade::crd::ResourceKind;
pub use draft::{Draft, blocked, waiting};

/// One difference between what is and what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The field in the terms of the InstanceGroup, for example `image`.
    pub field: String,
    /// What is there.
    pub from: String,
    /// What is wanted.
    pub to: String,
}

impl Drift {
    /// A difference of one field.
    pub fn new(field: impl Into<String>, from: impl ToString, to: impl ToString) -> Self {
        Drift { field: field.into(), from: from.to_string(), to: to.to_string() }
    }
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} -> {}", self.field, or_none(&self.from), or_none(&self.to))
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

/// Everything to be done to one group in one pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// `namespace/name`.
    pub group: String,
    /// The generation of the InstanceGroup that this answers.
    pub generation: i64,
    /// In order; a failing one ends the pass.
    pub steps: Vec<Planned>,
    /// How the group stands when all steps have succeeded.
    pub outcome: Outcome,
    /// What the status tells, beside conditions.
    pub facts: Facts,
    /// Conditions other than Ready, Reconciling and Stalled.
    pub notes: Vec<Note>,
    /// Events to be told when the plan has been applied.
    pub events: Vec<Told>,
    /// A moment at which there is more to do, however quiet the group is until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
}

/// A step with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// What is done.
    #[serde(flatten)]
    pub step: Step,
    /// Why; empty where the step's own words say it all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Drift>,
}

impl From<Step> for Planned {
    fn from(step: Step) -> Self {
        Planned { step, because: Vec::new() }
    }
}

/// Which launch template version a scaling group is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Pin {
    /// A version that is there.
    Version {
        /// `lt-...`
        template: String,
        /// 1, 2, ...
        number: i64,
    },
    /// The version that an earlier step of this plan makes, by its hash.
    Made {
        /// The hash line of its description.
        hash: String,
    },
}

/// One write. It carries its complete input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum Step {
    /// Put our finalizer on the InstanceGroup, before anything else exists.
    AddFinalizer,
    /// Remove our finalizer, and only ours.
    RemoveFinalizer,
    /// Write into status what must be known before the act that follows.
    Record {
        /// A merge patch under `status`.
        status: Value,
    },
    /// CreateRole; one that is there with our tags is adopted.
    CreateRole(NewRole),
    /// AttachRolePolicy.
    AttachPolicy { role: String, policy: String },
    /// DetachRolePolicy.
    DetachPolicy { role: String, policy: String },
    /// CreateInstanceProfile.
    CreateProfile { profile: String, tags: Vec<Tag> },
    /// AddRoleToInstanceProfile.
    AddRoleToProfile { profile: String, role: String },
    /// RemoveRoleFromInstanceProfile.
    RemoveRoleFromProfile { profile: String, role: String },
    /// DeleteInstanceProfile.
    DeleteProfile { profile: String },
    /// DeleteRole.
    DeleteRole { role: String },
    /// CreateLaunchTemplate with its first version.
    CreateTemplate(NewTemplate),
    /// CreateLaunchTemplateVersion.
    PutTemplateVersion {
        template: String,
        #[serde(flatten)]
        version: NewVersion,
    },
    /// DeleteLaunchTemplateVersions that nothing uses.
    DeleteTemplateVersions { template: String, numbers: Vec<i64> },
    /// DeleteLaunchTemplate.
    DeleteTemplate { template: String },
    /// DeleteLaunchConfiguration of one that this group launched from.
    DeleteConfiguration { configuration: String },
    /// CreateTags on a launch template that we adopted.
    TagTemplate { template: String, tags: Vec<Tag> },
    /// TagRole on a role that we adopted.
    TagRole { role: String, tags: Vec<Tag> },
    /// TagInstanceProfile on a profile that we adopted.
    TagProfile { profile: String, tags: Vec<Tag> },
    /// CreateAutoScalingGroup; `group.template` is filled from `pin`.
    CreateGroup {
        #[serde(flatten)]
        group: NewScalingGroup,
        pin: Pin,
    },
    /// UpdateAutoScalingGroup.
    UpdateGroup {
        group: String,
        #[serde(flatten)]
        change: ScalingGroupChange,
        #[serde(skip_serializing_if = "Option::is_none")]
        pin: Option<Pin>,
    },
    /// CreateOrUpdateTags.
    PutTags { group: String, tags: Vec<Tag> },
    /// DeleteTags.
    DeleteTags { group: String, keys: Vec<String> },
    /// SuspendProcesses.
    SuspendProcesses { group: String, processes: Vec<String> },
    /// ResumeProcesses.
    ResumeProcesses { group: String, processes: Vec<String> },
    /// EnableMetricsCollection.
    EnableMetrics { group: String, metrics: Vec<String> },
    /// DisableMetricsCollection.
    DisableMetrics { group: String, metrics: Vec<String> },
    /// PutLifecycleHook.
    PutHook { group: String, hook: LifecycleHook },
    /// DeleteLifecycleHook.
    DeleteHook { group: String, hook: String },
    /// PutWarmPool.
    PutWarmPool { group: String, sizes: WarmSizes, state: Option<String> },
    /// DeleteWarmPool with its instances, which carry no pods.
    DeleteWarmPool { group: String },
    /// SetInstanceHealth: Auto Scaling terminates an instance of the warm pool and fills its place.
    ReplaceWarmed { group: String, instance: String },
    /// DeleteAutoScalingGroup, without force.
    DeleteGroup { group: String },
    /// CreateFargateProfile; one that is there with our tags is ours.
    CreateFargateProfile(NewFargateProfile),
    /// DeleteFargateProfile; EKS deletes the pods that run by it.
    DeleteFargateProfile {
        cluster: String,
        profile: String,
        /// Pods may run by it.
        serves: bool,
    },
    /// TagResource of a Fargate profile.
    TagFargateProfile { cluster: String, profile: String, arn: String, tags: Vec<Tag> },
    /// UntagResource of a Fargate profile.
    UntagFargateProfile { cluster: String, profile: String, arn: String, keys: Vec<String> },
    /// CreateNodegroup.
    CreateNodegroup(NewNodegroup),
    /// UpdateNodegroupConfig; the update's id is written into the status at once.
    UpdateNodegroup {
        nodegroup: NodegroupName,
        change: NodegroupChange,
        token: String,
        of: String,
        /// EKS takes nodes away for it, because more are there than the new sizes let stand.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        shrinks: bool,
    },
    /// UpdateNodegroupVersion, never with force; the update's id is written into the status at once.
    UpdateNodegroupVersion { nodegroup: NodegroupName, to: NodegroupVersion, token: String, of: String },
    /// TagResource on a managed node group.
    TagNodegroup { nodegroup: NodegroupName, arn: String, tags: BTreeMap<String, String> },
    /// UntagResource on a managed node group.
    UntagNodegroup { nodegroup: NodegroupName, arn: String, keys: Vec<String> },
    /// DeleteNodegroup: EKS takes its nodes away.
    DeleteNodegroup { nodegroup: NodegroupName },
    /// The role's entry in kube-system/aws-auth.
    PutAuthEntry(AuthEntry),
    /// Take our entry out of kube-system/aws-auth.
    RemoveAuthEntry(AuthEntry),
    /// CreateAccessEntry; one that is there and lets such nodes join is left as it is.
    PutAccessEntry(NewAccessEntry),
    /// DeleteAccessEntry of one that carries our tags.
    RemoveAccessEntry { cluster: String, principal: String },
    /// Cordon a node and write the disruption record on it, in one update.
    MarkNode { node: String, resource_version: String, instance: String, template_version: String, cordoned: bool },
    /// Uncordon a node of ours and take the record off.
    UnmarkNode { node: String, why: String },
    /// Write on a node that its instance is about to stand by, before it does.
    SurgeNode { node: String, resource_version: String, instance: String, template_version: String },
    /// Take that record off a node whose instance does not stand by.
    UnsurgeNode { node: String },
    /// EnterStandby without decrement: AWS launches the replacement, and the node keeps its pods until then.
    EnterStandby { group: String, instance: String, node: String },
    /// Create the resource of the crd strategy.
    SubmitStrategy { kind: ResourceKind, namespace: String, name: String, object: Redacted<Value> },
    /// Delete a resource of the crd strategy that failed, or makes room.
    DeleteStrategy { kind: ResourceKind, namespace: String, name: String, uid: String },
    /// The eviction API.
    Evict { node: String, pod: PodRef, bare: bool },
    /// Delete with grace, after `drainTimeout` with `drainForce`.
    ForceDelete { node: String, pod: PodRef },
    /// TerminateInstanceInAutoScalingGroup.
    Terminate { group: String, instance: String, node: Option<String>, decrement: bool },
}

/// A pod, by what identifies it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: another pod of the same name is another pod.
    pub uid: String,
}

impl Step {
    /// Whether a person's brake stops it: what takes nodes away.
    pub fn disrupts(&self) -> bool {
        matches!(
            self,
            Step::MarkNode { .. }
                | Step::SurgeNode { .. }
                | Step::EnterStandby { .. }
                | Step::SubmitStrategy { .. }
                | Step::DeleteStrategy { .. }
                | Step::Evict { .. }
                | Step::ForceDelete { .. }
                | Step::ReplaceWarmed { .. }
                | Step::UpdateNodegroup { shrinks: true, .. }
                | Step::UpdateNodegroupVersion { .. }
                | Step::DeleteNodegroup { .. }
                | Step::Terminate { .. }
                | Step::DeleteFargateProfile { serves: true, .. }
        )
    }

    /// Whether it makes the nodes of a group for the first time.
    pub fn makes(&self) -> bool {
        match self {
            Step::CreateGroup { .. } | Step::CreateNodegroup(_) => true,
            Step::CreateFargateProfile(profile) => profile.replaces.is_none(),
            _ => false,
        }
    }

    /// A bounded name for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Step::AddFinalizer => "AddFinalizer",
            Step::RemoveFinalizer => "RemoveFinalizer",
            Step::Record { .. } => "Record",
            Step::CreateRole(_) => "CreateRole",
            Step::AttachPolicy { .. } => "AttachPolicy",
            Step::DetachPolicy { .. } => "DetachPolicy",
            Step::CreateProfile { .. } => "CreateProfile",
            Step::AddRoleToProfile { .. } => "AddRoleToProfile",
            Step::RemoveRoleFromProfile { .. } => "RemoveRoleFromProfile",
            Step::DeleteProfile { .. } => "DeleteProfile",
            Step::DeleteRole { .. } => "DeleteRole",
            Step::CreateTemplate(_) => "CreateTemplate",
            Step::PutTemplateVersion { .. } => "PutTemplateVersion",
            Step::DeleteTemplateVersions { .. } => "DeleteTemplateVersions",
            Step::DeleteTemplate { .. } => "DeleteTemplate",
            Step::DeleteConfiguration { .. } => "DeleteConfiguration",
            Step::TagTemplate { .. } => "TagTemplate",
            Step::TagRole { .. } => "TagRole",
            Step::TagProfile { .. } => "TagProfile",
            Step::CreateGroup { .. } => "CreateGroup",
            Step::UpdateGroup { .. } => "UpdateGroup",
            Step::PutTags { .. } => "PutTags",
            Step::DeleteTags { .. } => "DeleteTags",
            Step::SuspendProcesses { .. } => "SuspendProcesses",
            Step::ResumeProcesses { .. } => "ResumeProcesses",
            Step::EnableMetrics { .. } => "EnableMetrics",
            Step::DisableMetrics { .. } => "DisableMetrics",
            Step::PutHook { .. } => "PutHook",
            Step::DeleteHook { .. } => "DeleteHook",
            Step::PutWarmPool { .. } => "PutWarmPool",
            Step::DeleteWarmPool { .. } => "DeleteWarmPool",
            Step::ReplaceWarmed { .. } => "ReplaceWarmed",
            Step::DeleteGroup { .. } => "DeleteGroup",
            Step::CreateFargateProfile(_) => "CreateFargateProfile",
            Step::DeleteFargateProfile { .. } => "DeleteFargateProfile",
            Step::TagFargateProfile { .. } => "TagFargateProfile",
            Step::UntagFargateProfile { .. } => "UntagFargateProfile",
            Step::CreateNodegroup(_) => "CreateNodegroup",
            Step::UpdateNodegroup { .. } => "UpdateNodegroup",
            Step::UpdateNodegroupVersion { .. } => "UpdateNodegroupVersion",
            Step::TagNodegroup { .. } => "TagNodegroup",
            Step::UntagNodegroup { .. } => "UntagNodegroup",
            Step::DeleteNodegroup { .. } => "DeleteNodegroup",
            Step::PutAuthEntry(_) => "PutAuthEntry",
            Step::RemoveAuthEntry(_) => "RemoveAuthEntry",
            Step::PutAccessEntry(_) => "PutAccessEntry",
            Step::RemoveAccessEntry { .. } => "RemoveAccessEntry",
            Step::MarkNode { .. } => "MarkNode",
            Step::UnmarkNode { .. } => "UnmarkNode",
            Step::SurgeNode { .. } => "SurgeNode",
            Step::UnsurgeNode { .. } => "UnsurgeNode",
            Step::EnterStandby { .. } => "EnterStandby",
            Step::SubmitStrategy { .. } => "SubmitStrategy",
            Step::DeleteStrategy { .. } => "DeleteStrategy",
            Step::Evict { .. } => "Evict",
            Step::ForceDelete { .. } => "ForceDelete",
            Step::Terminate { .. } => "Terminate",
        }
    }
}

/// How a group stands after its plan. It decides requeue and conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Everything is as wanted.
    Converged,
    /// Something changes and more is to do.
    Progressing {
        /// Which kind of change.
        phase: Phase,
        /// What a person reads.
        message: String,
        /// Look again after this long.
        recheck: Recheck,
    },
    /// Outdated, and a lock holds it.
    Locked {
        /// Whose lock, and what it holds.
        message: String,
    },
    /// Nothing goes on until someone acts.
    Blocked {
        /// CamelCase, bounded.
        reason: Reason,
        /// What is wrong, where, and the remedy.
        message: String,
        /// Deletion is blocked rather than a change.
        deleting: bool,
    },
    /// The group is gone.
    Deleted,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recheck {
    /// At once: the next step needs only what this one wrote.
    Soon,
    /// With the poll of groups in flux.
    Poll,
    /// After a time.
    After(#[serde(serialize_with = "seconds")] SignedDuration),
}

fn seconds<S: serde::Serializer>(d: &SignedDuration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_i64(d.as_secs())
}

/// What a group in flux is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// The scaling group does not exist yet.
    Creating,
    /// Changing in place, or waiting for AWS or nodes.
    Modifying,
    /// Replacing nodes.
    Rotating,
    /// Taking everything down.
    Deleting,
}

/// Why a group is blocked: the closed set of `Stalled` reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Reason {
    /// The merged spec cannot be worked with.
    InvalidSpec,
    /// A right is missing in AWS or Kubernetes.
    MissingPermission,
    /// AWS refused a value.
    RefusedByAws,
    /// No boundaries can be known.
    BoundariesUnavailable,
    /// The cluster does not read the kind of entry that `--join-auth` asks for.
    AuthModeUnsupported,
    /// aws-auth holds another entry for the role or cannot be parsed, or its access entry has another type.
    AuthConflict,
    /// A name that another owner has.
    NotOurs,
    /// `Launch` or `Terminate` is suspended, or a refresh runs.
    ProcessSuspended,
    /// Too many nodes are not ready at once.
    ClusterUnhealthy,
    /// Replacements of a rotation did not become Ready.
    ReplacementsNotReady,
    /// A drain cannot go on.
    DrainBlocked,
    /// Pods that were evicted find no room.
    NeedsCapacity,
    /// An image alias leads nowhere.
    ImageNotFound,
    /// A subnet, security group or cluster is not there.
    NotFound,
    /// Instances do not come, for want of capacity.
    InsufficientCapacity,
    /// Instances do not come, for a quota.
    QuotaExceeded,
    /// Instances do not come, for another reason.
    LaunchFailed,
    /// Instances run and their nodes do not become Ready.
    NodesNotReady,
    /// A resource of the crd strategy failed, was deleted by someone, or left nodes as they were.
    StrategyFailed,
    /// The kind of the crd strategy's resource is not installed.
    StrategyMissing,
    /// EKS could not make or delete a Fargate profile, or says that one is not healthy.
    ProfileFailed,
    /// EKS says that a managed node group has issues.
    Degraded,
    /// An update of a managed node group ended without its end reached.
    UpdateFailed,
    /// The admin's policy forbids it.
    PolicyViolation,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A condition beside Ready, Reconciling and Stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The condition's type.
    pub condition: &'static str,
    /// True or false.
    pub status: bool,
    /// CamelCase.
    pub reason: String,
    /// What a person reads.
    pub message: String,
}

/// An event to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Warning rather than Normal.
    pub warning: bool,
    /// CamelCase.
    pub reason: String,
    /// What a person reads.
    pub message: String,
}

/// What status tells about the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// Fields of `.status` by their JSON name; `null` removes one.
    pub status: BTreeMap<String, Value>,
    /// `NodesReady`: whether every desired node is Ready.
    pub nodes_ready: Option<bool>,
}
