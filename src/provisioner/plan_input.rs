//! What a planner is given. Each provisioner says in an `input.rs` of its own what is wanted of it and what there can be.

use jiff::Timestamp;

use super::Settings;
use crate::api::InstanceGroupStatus;
use crate::settings::Timing;

/// What a plan depends on, beside what is wanted and what was seen.
#[derive(Clone, Copy)]
pub struct Given<'a> {
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
pub struct World<Resolved, State> {
    /// What is wanted.
    pub resolved: Resolved,
    /// What there is.
    pub state: State,
}

impl<Resolved, State> World<Resolved, State> {
    /// What a plan depends on.
    pub fn input<'a>(&'a self, given: &Given<'a>) -> Input<'a, Resolved, State> {
        Input {
            resolved: &self.resolved,
            state: &self.state,
            status: given.status,
            lock: given.lock,
            retention: given.settings.retention,
            timing: &given.settings.timing,
            now: given.now,
        }
    }
}

/// Everything that a plan depends on.
pub struct Input<'a, Resolved, State> {
    /// What is wanted.
    pub resolved: &'a Resolved,
    /// What there is.
    pub state: &'a State,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// Who holds the brake, if anyone.
    pub lock: Option<&'a str>,
    /// `--config-retention`: unused versions to keep.
    pub retention: usize,
    /// How long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

impl<Resolved, State> Input<'_, Resolved, State> {
    /// Whether IAM may not know everywhere yet what was made then; what has no moment is old.
    pub fn is_young(&self, created: Option<Timestamp>) -> bool {
        created.is_some_and(|created| self.now.duration_since(created) < self.timing.propagation)
    }
}
