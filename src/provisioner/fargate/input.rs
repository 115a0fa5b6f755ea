//! What the planner is given.

use super::resolve::Resolved;
use super::state::State;
use crate::provisioner::input;

/// What is wanted and what there is.
pub type World = input::World<Resolved, State>;

/// Everything that a plan depends on.
pub type Input<'a> = input::Input<'a, Resolved, State>;
