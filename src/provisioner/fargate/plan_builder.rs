//! The state that the parts of the planner share while they build a plan.

use jiff::Timestamp;

use super::profile_slot::ProfileSlot;
use crate::api::InstanceGroupStatus;
use crate::plan::PlanBuilder;

/// A plan under construction together with the next status.
pub(crate) struct FargatePlanBuilder {
    /// The plan's steps, outcome and condition updates.
    pub plan: PlanBuilder,
    /// The group's place in the queue for Fargate profile operations.
    pub slot: ProfileSlot,
    /// The status to record once all steps are applied.
    pub next_status: InstanceGroupStatus,
    /// When the group must be reconciled again, if it is known.
    pub recheck_at: Option<Timestamp>,
    /// Whether this plan adopts (tags) the role derived for the group.
    pub adopts_role: bool,
}
