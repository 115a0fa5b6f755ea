//! The state that the parts of the planner share while they build a plan.

use jiff::Timestamp;

use super::profile_slot::ProfileSlot;
use crate::api::ManagedAttributes;
use crate::plan::PlanBuilder;

/// A plan under construction together with what it records.
pub(crate) struct FargatePlanBuilder {
    /// The plan's steps, outcome and condition updates.
    pub plan: PlanBuilder,
    /// The group's place in the queue for Fargate profile operations.
    pub slot: ProfileSlot,
    /// The attributes that the controller sets, as the status records them once all steps are applied.
    pub managed: Option<ManagedAttributes>,
    /// When the group must be reconciled again, if it is known.
    pub recheck_at: Option<Timestamp>,
    /// Whether this plan adopts (tags) the role derived for the group.
    pub adopts_role: bool,
}
