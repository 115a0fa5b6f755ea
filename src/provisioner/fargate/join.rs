//! How the group's pods are authorized to join the cluster.

use super::input::PlanInput;
use crate::auth::access_entries::JoinPlanner;

/// The join planner for the pod execution role.
pub(crate) fn join_planner<'a>(input: &PlanInput<'a>) -> JoinPlanner<'a> {
    let r = input.resolved;
    JoinPlanner {
        method: r.join_method,
        auth_entry: &r.aws_auth_entry,
        access_entry: &r.access_entry,
        observed: &input.observed.join_state,
        owns_role: r.is_own_role,
        role_propagated: !r.is_own_role || input.observed.is_role_ready,
        handover_delay: input.timing.auth_handover,
        now: input.now,
    }
}
