//! The plan is a value: what would be done to one group, why, and how the
//! group stands once it is done. It is tested against golden files, printed by
//! `plan`, applied by [`crate::apply`] and told by [`crate::controller::report`].

mod builder;
mod step;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

pub use builder::{PlanBuilder, blocked_plan, waiting};
pub use step::{
    EksStep, FargateStep, IamStep, JoinStep, NodeStep, NodegroupStep, ObjectStep, Pin, PodRef, Step, StepInfo,
    StrategyStep,
};

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
        write!(f, "{}: {} -> {}", self.field, display_or_none(&self.from), display_or_none(&self.to))
    }
}

fn display_or_none(text: &str) -> &str {
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
    pub steps: Vec<PlannedStep>,
    /// How the group stands when all steps have succeeded.
    pub outcome: Outcome,
    /// What the status tells, beside conditions.
    pub status_update: StatusUpdate,
    /// Conditions other than Ready, Reconciling and Stalled.
    pub condition_updates: Vec<ConditionUpdate>,
    /// Events to be told when the plan has been applied.
    pub events: Vec<Event>,
    /// A moment at which there is more to do, however quiet the group is until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck_at: Option<Timestamp>,
}

/// A step with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// What is done.
    #[serde(flatten)]
    pub step: Step,
    /// Why; empty where the step's own words say it all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Drift>,
}

impl<S: Into<Step>> From<S> for PlannedStep {
    fn from(step: S) -> Self {
        PlannedStep::new(step, Vec::new())
    }
}

impl PlannedStep {
    /// A step with its reasons.
    pub fn new(step: impl Into<Step>, reasons: Vec<Drift>) -> Self {
        PlannedStep { step: step.into(), reasons }
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
        is_deleting: bool,
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
    After(#[serde(serialize_with = "serialize_seconds")] SignedDuration),
}

fn serialize_seconds<S: serde::Serializer>(d: &SignedDuration, s: S) -> Result<S::Ok, S::Error> {
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
    OwnershipConflict,
    /// `Launch` or `Terminate` is suspended, or a refresh runs.
    ProcessSuspended,
    /// Too many nodes are not ready at once.
    ClusterUnhealthy,
    /// Replacements of a rotation did not become Ready.
    ReplacementsNotReady,
    /// A drain cannot go on.
    DrainBlocked,
    /// Pods that were evicted find no room.
    UnschedulablePods,
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
    StrategyKindNotFound,
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
pub struct ConditionUpdate {
    /// The condition's type.
    pub condition_type: &'static str,
    /// True or false.
    pub status: bool,
    /// CamelCase.
    pub reason: String,
    /// What a person reads.
    pub message: String,
}

/// An event to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Warning rather than Normal.
    pub warning: bool,
    /// CamelCase.
    pub reason: String,
    /// What a person reads.
    pub message: String,
}

impl Event {
    /// A normal event.
    pub fn normal(reason: &str, message: impl Into<String>) -> Self {
        Event { warning: false, reason: reason.into(), message: message.into() }
    }

    /// A warning.
    pub fn warning(reason: &str, message: impl Into<String>) -> Self {
        Event { warning: true, reason: reason.into(), message: message.into() }
    }

    /// A normal event with the reasons of what it tells; none where they are empty.
    pub fn with_reasons(reason: &str, message: String, why: &str) -> Self {
        Self::normal(reason, if why.is_empty() { message } else { format!("{message}: {why}") })
    }
}

/// What status tells about the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatusUpdate {
    /// Fields of `.status` by their JSON name; `null` removes one.
    pub fields: BTreeMap<String, Value>,
    /// `NodesReady`: whether every desired node is Ready.
    pub nodes_ready: Option<bool>,
}
