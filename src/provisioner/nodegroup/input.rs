//! The types of the planner's input for `eks-managed`.

use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use crate::provisioner::plan_input;

/// The resolved group and its observed state.
pub type Snapshot = plan_input::Snapshot<ResolvedGroup, ObservedState>;

/// Everything that a plan depends on.
pub type PlanInput<'a> = plan_input::PlanInput<'a, ResolvedGroup, ObservedState>;
