//! Plain values for scaling groups, their instances and their warm pools.

use jiff::Timestamp;
use serde::Serialize;

use super::mixed_instances::MixedPolicy;
use super::types::{Tag, TemplatePin};

/// A scaling group as returned by DescribeAutoScalingGroups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingGroup {
    /// The name, unique in an account and region.
    pub name: String,
    /// Minimum size.
    pub min: i32,
    /// Maximum size.
    pub max: i32,
    /// Desired capacity, which the autoscaler changes.
    pub desired: i32,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// The launch template that it uses, if it uses one directly.
    pub template: Option<TemplatePin>,
    /// The launch configuration that it uses, if any.
    pub launch_configuration: Option<String>,
    /// Its mixed instances policy, if it has one; the template is the policy's then.
    pub mixed: Option<MixedPolicy>,
    /// All tags.
    pub tags: Vec<Tag>,
    /// Keys of the tags that do not propagate to instances.
    pub unpropagated_tags: Vec<String>,
    /// Sorted names of suspended processes.
    pub suspended_processes: Vec<String>,
    /// Sorted names of enabled group metrics.
    pub enabled_metrics: Vec<String>,
    /// Its instances in any state, without those of the warm pool.
    pub instances: Vec<Instance>,
    /// Its warm pool, if it has one.
    pub warm_pool: Option<WarmPool>,
    /// True while AWS is deleting it.
    pub deleting: bool,
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
    /// `EnteringStandby`, `Standby`.
    Standby,
    /// `Warmed:*`.
    Warmed,
    /// `Detaching`, `Detached` or a state that AWS added since.
    Other,
}

/// An instance of a scaling group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// `i-...`
    pub id: String,
    /// Availability zone.
    pub zone: String,
    /// Where it is in its life cycle.
    pub state: InstanceState,
    /// False if Auto Scaling reports it as `Unhealthy`.
    pub healthy: bool,
    /// The template version that it was launched with.
    pub template: Option<TemplatePin>,
    /// The launch configuration that it was launched with, while it exists.
    pub launch_configuration: Option<String>,
    /// How many units of desired capacity it is: 1 in a group without weights.
    pub weight: u32,
    /// When this process first saw it `InService`; the clock of `joinTimeout`.
    pub in_service_since: Option<Timestamp>,
}

/// How large a warm pool is: what the group may still grow by up to `max`, and never less than `min`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarmSizes {
    /// The fewest instances in the pool.
    pub min: i32,
    /// The most instances in pool and group together; `None` is the group's largest size.
    pub max: Option<i32>,
}

/// A warm pool as returned by DescribeAutoScalingGroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarmPool {
    /// Its sizes.
    pub sizes: WarmSizes,
    /// How its instances wait: `Stopped`, `Running` or `Hibernated`.
    pub state: String,
    /// True while AWS is deleting it.
    pub deleting: bool,
}

/// An instance of a warm pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmInstance {
    /// The instance.
    pub instance: Instance,
    /// Its lifecycle phase in the pool.
    pub phase: WarmPhase,
}

/// The lifecycle phase of an instance in a warm pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WarmPhase {
    /// `Warmed:Pending` and its sub-states: it is being prepared.
    Coming,
    /// `Warmed:Stopped`, `Warmed:Running` or `Warmed:Hibernated`.
    Ready,
    /// `Warmed:Terminating` and its sub-states, `Warmed:Terminated`.
    Leaving,
}

/// A lifecycle hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LifecycleHook {
    /// Unique in its group.
    pub name: String,
    /// `autoscaling:EC2_INSTANCE_LAUNCHING` or `autoscaling:EC2_INSTANCE_TERMINATING`.
    pub transition: String,
    /// `ABANDON` or `CONTINUE`.
    pub default_result: String,
    /// Seconds.
    pub heartbeat_timeout: i32,
    /// SNS topic or SQS queue.
    pub notification_arn: Option<String>,
    /// Free text for the target.
    pub metadata: Option<String>,
    /// The role that may notify.
    pub role_arn: Option<String>,
}

/// One entry of DescribeScalingActivities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScalingActivity {
    /// `Successful`, `Failed`, `Cancelled`, `InProgress`, ...
    pub status: String,
    /// What AWS was doing.
    pub description: String,
    /// Failure reason from AWS.
    pub message: String,
    /// When it began.
    pub started: Option<Timestamp>,
}

/// Input of CreateAutoScalingGroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewScalingGroup {
    /// The derived name.
    pub name: String,
    /// Smallest size; also the first desired size.
    pub min: i32,
    /// Maximum size.
    pub max: i32,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// The launch template, by id, and the version's number.
    pub template: TemplatePin,
    /// Several types, on demand and spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedPolicy>,
    /// Ownership tags and the spec's.
    pub tags: Vec<Tag>,
    /// Present from the first instance on.
    pub hooks: Vec<LifecycleHook>,
}

/// Input of UpdateAutoScalingGroup. `None` fields are not changed; the desired capacity is never sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScalingGroupChange {
    /// New smallest size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// New largest size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// New subnets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// The policy that the group has once its template is pinned: it goes with the pin, which without it removes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedPolicy>,
}
