//! How nodes of the group join. What cannot be done here is told and stops nothing else.

use super::input::PlanInput;
use crate::auth::access_entries::{JoinPlan, JoinPlanner};
use crate::plan::{ConditionUpdate, PlanBuilder, Reason};

/// The role with everything that its entries depend on.
pub fn role_join<'a>(input: &'a PlanInput) -> JoinPlanner<'a> {
    let r = input.resolved;
    JoinPlanner {
        method: r.join_method,
        auth_entry: &r.aws_auth_entry,
        access_entry: &r.access_entry,
        observed: &input.observed.join,
        owns_role: r.own_role,
        role_propagated: role_propagated(input),
        handover_delay: input.timing.auth_handover,
        now: input.now,
    }
}

/// Whether IAM knows the role everywhere: a role of our own is complete, and old enough.
fn role_propagated(input: &PlanInput) -> bool {
    let r = input.resolved;
    let profile = input
        .observed
        .instance_profile
        .as_ref()
        .filter(|p| p.role.as_ref().is_some_and(|role| role.name == r.names.role));
    !r.own_role || profile.is_some_and(|profile| !input.is_propagating(profile.created))
}

/// Puts and removes entries.
pub fn authorize(joined: JoinPlan, draft: &mut PlanBuilder) {
    draft.steps.extend(joined.steps);
    draft.condition_updates.extend(joined.conflict.map(|detail| ConditionUpdate {
        condition_type: AUTH_CONFLICT,
        status: false,
        reason: Reason::AuthConflict.to_string(),
        message: format!("{detail}; new nodes cannot join until this is fixed manually"),
    }));
}

/// A note of this name blocks the group instead of becoming a condition.
pub const AUTH_CONFLICT: &str = "aws-auth";
