//! The input of the planner of the provisioner `eks`.

use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use crate::provisioner::plan_input;

/// The desired and the observed state of one group.
pub type Snapshot = plan_input::Snapshot<ResolvedGroup, ObservedState>;

/// Everything that a plan depends on: snapshot, status, settings and time.
pub type PlanInput<'a> = plan_input::PlanInput<'a, ResolvedGroup, ObservedState>;
