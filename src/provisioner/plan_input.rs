//! What every planner depends on. Each provisioner's `input.rs` names its own desired and observed types.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{InstanceGroupStatus, ScalingConfigurationKind};
use crate::auth::JoinAuth;
use crate::settings::Timing;

/// Settings of this process that plans depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Durations.
    pub timing: Timing,
    /// `--resync-period`.
    pub resync_period: Duration,
    /// `--config-retention`: how many unused launch template versions are kept.
    pub config_retention: usize,
    /// `--cluster-name`.
    pub cluster_name: Option<String>,
    /// `--default-scaling-configuration`: the default of `spec.eks.type`.
    pub default_scaling_configuration: ScalingConfigurationKind,
    /// `--disable-windows-cluster-ca-injection`: Windows nodes read the cluster's endpoint and certificate from EKS.
    pub windows_discovers_endpoint: bool,
    /// `--join-auth`.
    pub join_auth: JoinAuth,
    /// `--config-namespace`: resources of the crd strategy are allowed in this namespace.
    pub config_namespace: String,
}

/// What a plan depends on besides the desired and the observed state.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Settings of this process.
    pub settings: &'a Settings,
    /// Reference time of the plan.
    pub now: Timestamp,
}

/// Desired and observed state of a group.
#[derive(Clone)]
pub struct Snapshot<Resolved, State> {
    /// Desired state.
    pub resolved: Resolved,
    /// Observed state.
    pub observed: State,
}

impl<Resolved, State> Snapshot<Resolved, State> {
    /// The complete input of a planner.
    pub fn plan_input<'a>(&'a self, context: &PlanContext<'a>) -> PlanInput<'a, Resolved, State> {
        PlanInput {
            resolved: &self.resolved,
            observed: &self.observed,
            status: context.status,
            lock: context.lock,
            config_retention: context.settings.config_retention,
            timing: &context.settings.timing,
            now: context.now,
        }
    }
}

/// The complete input of a planner.
pub struct PlanInput<'a, Resolved, State> {
    /// Desired state.
    pub resolved: &'a Resolved,
    /// Observed state.
    pub observed: &'a State,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// `--config-retention`: how many unused launch template versions are kept.
    pub config_retention: usize,
    /// Durations.
    pub timing: &'a Timing,
    /// Reference time of the plan.
    pub now: Timestamp,
}

impl<Resolved, State> PlanInput<'_, Resolved, State> {
    /// Whether an IAM resource that was created then may not have propagated yet. Without a time it is old enough.
    pub fn is_propagating(&self, created: Option<Timestamp>) -> bool {
        created.is_some_and(|created| self.now.duration_since(created) < self.timing.iam_propagation)
    }
}
