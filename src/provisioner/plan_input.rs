//! What every planner depends on. Each provisioner's `input.rs` names its own desired and observed types.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::api::InstanceGroupStatus;
use crate::plan::{Allowance, PersistentFailure, Write};
use crate::settings::{Settings, Timing};

/// What a plan depends on besides the desired and the observed state.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Why no further node may be replaced; replacements in progress are finished. `None` when nodes may be replaced.
    pub rollout_block: Option<&'a str>,
    /// How many further nodes may be replaced; `None` for any number.
    pub allowance: Option<&'a Allowance>,
    /// Settings of this process.
    pub settings: &'a Settings,
    /// Writes that this process repeated without effect.
    pub ineffective_writes: &'a BTreeSet<Write>,
    /// What AWS or Kubernetes has refused for long.
    pub persistent_failure: &'a PersistentFailure,
    /// Whether a user requested this reconcile: what would be retried later is retried now.
    pub is_requested: bool,
    /// Reference time of the plan.
    pub now: Timestamp,
}

/// Desired and observed state of a group.
#[derive(Clone)]
pub struct Snapshot<Resolved, State> {
    /// The desired spec with every reference replaced by a concrete id.
    pub resolved: Resolved,
    /// What AWS and Kubernetes have of the group now.
    pub observed: State,
}

impl<Resolved, State> Snapshot<Resolved, State> {
    /// The complete input of a planner.
    pub(crate) fn plan_input<'a>(&'a self, context: &PlanContext<'a>) -> PlanInput<'a, Resolved, State> {
        PlanInput {
            resolved: &self.resolved,
            observed: &self.observed,
            status: context.status,
            lock: context.lock,
            rollout_block: context.rollout_block,
            allowance: context.allowance,
            config_retention: context.settings.config_retention,
            timing: &context.settings.timing,
            ineffective_writes: context.ineffective_writes,
            persistent_failure: context.persistent_failure,
            is_requested: context.is_requested,
            now: context.now,
        }
    }
}

/// The complete input of a planner.
pub struct PlanInput<'a, Resolved, State> {
    /// The desired spec with every reference replaced by a concrete id.
    pub resolved: &'a Resolved,
    /// What AWS and Kubernetes have of the group now.
    pub observed: &'a State,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Why no node may be begun to be replaced, while what has begun is finished; `None` when nodes may be.
    pub rollout_block: Option<&'a str>,
    /// How many nodes may be begun to be replaced; `None` for any number.
    pub allowance: Option<&'a Allowance>,
    /// `--config-retention`: how many unused launch template versions are kept.
    pub config_retention: usize,
    /// How long the plan waits, for example before it retries a drain or removes an entry.
    pub timing: &'a Timing,
    /// Writes that this process repeated without effect.
    pub ineffective_writes: &'a BTreeSet<Write>,
    /// What AWS or Kubernetes has refused for long.
    pub persistent_failure: &'a PersistentFailure,
    /// Whether a user requested this reconcile: what would be retried later is retried now.
    pub is_requested: bool,
    /// Reference time of the plan.
    pub now: Timestamp,
}

impl<Resolved, State> PlanInput<'_, Resolved, State> {
    /// Whether an IAM resource that was created then may not have propagated yet. Without a time it is old enough. A
    /// clock that is behind that of AWS must not delay anything for as long as it is behind.
    pub(crate) fn is_propagating(&self, created: Option<Timestamp>) -> bool {
        created.is_some_and(|created| self.now.duration_since(created).abs() < self.timing.iam_propagation)
    }
}
