//! What the parts of the planner write to.

use jiff::Timestamp;

use super::profile_slot::Turn;
use crate::api::InstanceGroupStatus;
use crate::plan::Draft;

/// A plan in the making, with what the status shall remember.
pub struct Making {
    /// The plan.
    pub draft: Draft,
    /// Its place among the groups that wait for EKS.
    pub turn: Turn,
    /// The status when all is done.
    pub next: InstanceGroupStatus,
    /// When there is more to do.
    pub wake: Option<Timestamp>,
}
