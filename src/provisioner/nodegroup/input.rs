//! What the planner is given.

use super::observed::State;
use super::resolve::Resolved;
use crate::provisioner::plan_input;

/// What is wanted and what there is.
pub type World = plan_input::World<Resolved, State>;

/// Everything that a plan depends on.
pub type Input<'a> = plan_input::Input<'a, Resolved, State>;
