//! What the planner is given.

use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use crate::provisioner::plan_input;

/// What is wanted and what there is.
pub type Snapshot = plan_input::Snapshot<ResolvedGroup, ObservedState>;

/// Everything that a plan depends on.
pub type PlanInput<'a> = plan_input::PlanInput<'a, ResolvedGroup, ObservedState>;
