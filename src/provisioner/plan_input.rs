//! What a planner is given. Each provisioner says in an `input.rs` of its own what is wanted of it and what there can be.

use jiff::Timestamp;

use crate::api::InstanceGroupStatus;
use crate::settings::{Settings, Timing};

/// What a plan depends on, beside what is wanted and what was seen.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// Who holds the brake, in words.
    pub lock: Option<&'a str>,
    /// What this process was started with.
    pub settings: &'a Settings,
    /// The moment.
    pub now: Timestamp,
}

/// What is wanted and what there is.
#[derive(Clone)]
pub struct Snapshot<Resolved, State> {
    /// What is wanted.
    pub resolved: Resolved,
    /// What there is.
    pub observed: State,
}

impl<Resolved, State> Snapshot<Resolved, State> {
    /// What a plan depends on.
    pub fn plan_input<'a>(&'a self, given: &PlanContext<'a>) -> PlanInput<'a, Resolved, State> {
        PlanInput {
            resolved: &self.resolved,
            observed: &self.observed,
            status: given.status,
            lock: given.lock,
            config_retention: given.settings.config_retention,
            timing: &given.settings.timing,
            now: given.now,
        }
    }
}

/// Everything that a plan depends on.
pub struct PlanInput<'a, Resolved, State> {
    /// What is wanted.
    pub resolved: &'a Resolved,
    /// What there is.
    pub observed: &'a State,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// Who holds the brake, if anyone.
    pub lock: Option<&'a str>,
    /// `--config-retention`: unused versions to keep.
    pub config_retention: usize,
    /// How long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

impl<Resolved, State> PlanInput<'_, Resolved, State> {
    /// Whether IAM may not know everywhere yet what was made then; what has no moment is old.
    pub fn is_propagating(&self, created: Option<Timestamp>) -> bool {
        created.is_some_and(|created| self.now.duration_since(created) < self.timing.iam_propagation)
    }
}
