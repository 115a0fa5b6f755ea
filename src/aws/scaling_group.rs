//! Plain values for scaling groups, their instances and their warm pools.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::mixed_instances::MixedPolicy;
use super::types::{Tag, TemplatePin};

/// A scaling group as returned by DescribeAutoScalingGroups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingGroup {
    /// Name, unique in an account and region.
    pub name: String,
    /// Minimum size, in units of capacity (instances, without weights).
    pub min: i32,
    /// Maximum size, in units of capacity.
    pub max: i32,
    /// Desired capacity, in units of capacity. The cluster autoscaler changes it.
    pub desired: i32,
    /// Sorted subnet IDs.
    pub subnets: Vec<String>,
    /// Launch template of the group or of its mixed instances policy.
    pub template: Option<TemplatePin>,
    /// Name of its launch configuration, if it has no launch template.
    pub launch_configuration: Option<String>,
    /// Mixed instances policy, if any.
    pub mixed: Option<MixedPolicy>,
    /// All tags of the scaling group, also those of others.
    pub tags: Vec<Tag>,
    /// Keys of the tags that do not propagate to instances.
    pub unpropagated_tags: Vec<String>,
    /// Sorted names of suspended processes.
    pub suspended_processes: Vec<String>,
    /// Why each of them is suspended, in the words of AWS; for display.
    pub suspension_reasons: BTreeMap<String, String>,
    /// Sorted names of enabled group metrics.
    pub enabled_metrics: Vec<String>,
    /// Instances in any state, without those in the warm pool.
    pub instances: Vec<Instance>,
    /// Warm pool, if any.
    pub warm_pool: Option<WarmPool>,
    /// Whether AWS is deleting the group.
    pub deleting: bool,
    /// Whether its deletion protection makes AWS refuse DeleteAutoScalingGroup. AWS empties a protected group all the same.
    pub is_deletion_protected: bool,
}

/// The states of the Auto Scaling instance lifecycle that the controller distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum InstanceState {
    /// `Pending`, `Pending:Wait`, `Pending:Proceed`.
    Pending,
    /// `InService`.
    InService,
    /// `Terminating` and its sub-states, `Terminated`.
    Terminating,
    /// `EnteringStandby`: AWS deregisters it from load balancers, and refuses to terminate it meanwhile.
    EnteringStandby,
    /// `Standby`.
    Standby,
    /// `Warmed:*`.
    Warmed,
    /// `Detaching`, `Detached` or a state that is unknown to this release.
    Other,
}

impl InstanceState {
    /// Whether the instance is in standby or enters it. Both do not count in the desired capacity.
    pub(crate) fn is_standby(self) -> bool {
        matches!(self, InstanceState::EnteringStandby | InstanceState::Standby)
    }
}

/// An instance of a scaling group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// `i-...`
    pub id: String,
    /// Availability zone, for example `us-west-2a`.
    pub zone: String,
    /// For example `m5.large`.
    pub instance_type: String,
    /// Lifecycle state in Auto Scaling, without its sub-states.
    pub state: InstanceState,
    /// Whether Auto Scaling does not report it as `Unhealthy`.
    pub healthy: bool,
    /// Whether it waits for a lifecycle action to be completed: its state ends in `:Wait`.
    pub waits_in_hook: bool,
    /// Whether Auto Scaling keeps it after a termination hook was abandoned: its state ends in `:Retained`. It remains
    /// until TerminateInstanceInAutoScalingGroup is called (Amazon EC2 Auto Scaling API Reference, "RetentionTriggers").
    pub is_retained: bool,
    /// Launch template version that it was launched with.
    pub template: Option<TemplatePin>,
    /// Name of the launch configuration that it was launched with, while that exists.
    pub launch_configuration: Option<String>,
    /// Units of desired capacity that it counts as: 1 in a group without weights.
    pub weight: u32,
    /// When this process first observed it as `InService`; `joinTimeout` counts from this time.
    pub in_service_since: Option<Timestamp>,
    /// Whether it was in service already when this process first read its group, so that `in_service_since` is too late.
    pub was_in_service: bool,
    /// When AWS last refused a call of this process on it because of a scaling activity in progress; `None` when it did not, and
    /// once the state has changed since.
    pub activity_refused_at: Option<Timestamp>,
}

/// How an instance was launched. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLaunch {
    /// When it was launched.
    pub time: Timestamp,
    /// ID of its subnet; empty once it is terminated.
    pub subnet: String,
}

/// Why EC2 last changed the state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateReason {
    /// For example `Client.UserInitiatedShutdown` (Amazon EC2 API Reference, StateReason).
    pub code: String,
    /// The words of EC2.
    pub message: String,
}

impl StateReason {
    /// Whether EC2 took the Spot Instance back.
    pub(crate) fn is_spot_interruption(&self) -> bool {
        matches!(self.code.as_str(), "Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown")
    }

    /// Whether EC2 did it, and no client requested it.
    pub(crate) fn is_by_ec2(&self) -> bool {
        self.code.starts_with("Server.")
    }
}

/// Sizes of a warm pool. AWS keeps `max` minus the desired capacity of the group in the pool, but at least `min`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarmSizes {
    /// Minimum number of instances in the pool.
    pub min: i32,
    /// Maximum number of instances in the pool and the group together; `None` means the group's maximum size.
    pub max: Option<i32>,
}

/// A warm pool as returned by DescribeAutoScalingGroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarmPool {
    /// Limits of the pool, in instances.
    pub sizes: WarmSizes,
    /// State of its instances: `Stopped`, `Running` or `Hibernated`.
    pub state: String,
    /// Whether a scale-in returns instances to the pool; `None` without an instance reuse policy.
    pub reuse_on_scale_in: Option<bool>,
    /// Whether AWS is deleting the pool.
    pub deleting: bool,
    /// Number of its instances; `None` when AWS did not return it.
    pub size: Option<i32>,
}

impl WarmPool {
    /// How many instances AWS keeps in the pool of a group of this desired capacity and maximum size (Amazon EC2 Auto
    /// Scaling User Guide, "Create a warm pool for an Auto Scaling group").
    pub(crate) fn target(&self, desired: i32, max: i32) -> i32 {
        self.sizes.min.max(self.sizes.max.unwrap_or(max).saturating_sub(desired))
    }
}

/// An instance of a warm pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmInstance {
    /// The instance, as DescribeWarmPool returns it.
    pub instance: Instance,
    /// Lifecycle phase in the pool.
    pub phase: WarmPhase,
}

/// The lifecycle phase of an instance in a warm pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WarmPhase {
    /// `Warmed:Pending` and its sub-states: AWS is preparing the instance.
    Pending,
    /// `Warmed:Stopped`, `Warmed:Running` or `Warmed:Hibernated`.
    Ready,
    /// `Warmed:Terminating` and its sub-states, `Warmed:Terminated`, or a state outside of the pool.
    Leaving,
}

/// A lifecycle hook: Auto Scaling waits for its completion when it launches or terminates an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LifecycleHook {
    /// Name, unique in its group.
    pub name: String,
    /// Transition that it applies to: `autoscaling:EC2_INSTANCE_LAUNCHING` or `autoscaling:EC2_INSTANCE_TERMINATING`.
    pub transition: String,
    /// Result after the timeout: `ABANDON` or `CONTINUE`.
    pub default_result: String,
    /// Seconds after which Auto Scaling continues with `default_result`.
    pub heartbeat_timeout: i32,
    /// ARN of the SNS topic or SQS queue that is notified.
    pub notification_arn: Option<String>,
    /// Free text in the notification.
    pub metadata: Option<String>,
    /// ARN of the role that may send the notification.
    pub role_arn: Option<String>,
}

/// How many of a group's newest scaling activities are read: enough to find other activities behind repetitions of one
/// failure.
pub(crate) const MAX_ACTIVITIES: i32 = 20;

/// One entry of DescribeScalingActivities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScalingActivity {
    /// Status code: `Successful`, `Failed`, `Cancelled`, `InProgress`, ...
    pub status: String,
    /// What Auto Scaling did, in AWS's words, such as `Launching a new EC2 instance: i-...`.
    pub description: String,
    /// Why Auto Scaling did it, in AWS's words: for a termination, who or what requested it.
    pub cause: String,
    /// The Availability Zone of a launch, if AWS returns it.
    pub zone: Option<String>,
    /// Status message from AWS, which gives the reason of a failure.
    pub message: String,
    /// When Auto Scaling began it; `None` if AWS did not return it.
    pub started: Option<Timestamp>,
}

impl ScalingActivity {
    /// Whether it terminates an instance. AWS gives activities no type, only this description.
    pub(crate) fn is_termination(&self) -> bool {
        self.description.starts_with("Terminating EC2 instance")
    }

    /// Whether it launches an instance: "Launching a new EC2 instance", or for some Spot Instances "Placing Spot instance
    /// request". Others move one into or out of standby or a warm pool: "Moving EC2 instance to Standby" (Amazon EC2 Auto
    /// Scaling API Reference, EnterStandby, Examples).
    pub(crate) fn is_launch(&self) -> bool {
        ["Launching", "Placing"].iter().any(|word| self.description.starts_with(word))
    }

    /// Whether it takes this instance out of the group: AWS names the instance only in the description, which for a launch
    /// begins with "Launching".
    pub(crate) fn removes(&self, instance: &str) -> bool {
        !self.is_launch()
            && self.description.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == instance)
    }

    /// Whether it ended without success.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.status.as_str(), "Failed" | "Cancelled")
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_failed() || self.status == "Successful"
    }
}

/// Input of CreateAutoScalingGroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewScalingGroup {
    /// The derived name.
    pub name: String,
    /// Minimum size, in units of capacity; also the initial desired capacity.
    pub min: i32,
    /// Maximum size, in units of capacity.
    pub max: i32,
    /// Sorted subnet IDs.
    pub subnets: Vec<String>,
    /// The launch template with a version number.
    pub template: TemplatePin,
    /// Mixed instances policy, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedPolicy>,
    /// Ownership tags and the tags of the spec.
    pub tags: Vec<Tag>,
    /// Lifecycle hooks, which apply to the first instance already.
    pub hooks: Vec<LifecycleHook>,
}

/// Input of UpdateAutoScalingGroup. `None` fields are not changed; the desired capacity is never sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScalingGroupChange {
    /// New minimum size, in units of capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// New maximum size, in units of capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// IDs of all subnets from now on, which replace the present ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// New mixed instances policy. It is sent together with a new pin; a pin without a policy removes the group's
    /// policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedPolicy>,
}
