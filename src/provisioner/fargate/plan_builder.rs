//! What the parts of the planner write to.

use jiff::Timestamp;

use super::profile_slot::ProfileSlot;
use crate::api::InstanceGroupStatus;
use crate::plan::PlanBuilder;

/// A plan in the making, with what the status shall remember.
pub struct FargatePlanBuilder {
    /// The plan.
    pub draft: PlanBuilder,
    /// Its place among the groups that wait for EKS.
    pub slot: ProfileSlot,
    /// The status when all is done.
    pub next_status: InstanceGroupStatus,
    /// When there is more to do.
    pub recheck_at: Option<Timestamp>,
}
