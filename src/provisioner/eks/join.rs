//! How nodes of the group join the cluster: aws-auth entries and access entries.
//!
//! A conflict is reported, but it does not stop other changes to an existing group.

use super::input::PlanInput;
use crate::auth::access_entries::{JoinPlan, JoinPlanner};
use crate::plan::PlanBuilder;

/// Returns the node role with everything that its join entries depend on.
pub(crate) fn role_join<'a>(input: &'a PlanInput) -> JoinPlanner<'a> {
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

/// Whether the node role has propagated in IAM. A role that the controller owns has propagated once its instance
/// profile holds it and is old enough.
fn role_propagated(input: &PlanInput) -> bool {
    let r = input.resolved;
    let profile = input
        .observed
        .instance_profile
        .as_ref()
        .filter(|p| p.role.as_ref().is_some_and(|role| role.name == r.names.role));
    !r.own_role || profile.is_some_and(|profile| !input.is_propagating(profile.created))
}

/// Adds the steps that put and remove join entries, and records a conflict.
pub(crate) fn authorize(joined: JoinPlan, builder: &mut PlanBuilder) {
    builder.steps.extend(joined.steps);
    builder.join_conflict =
        joined.conflict.map(|detail| format!("{detail}; until this is fixed by hand, new nodes cannot join, and existing nodes may lose access to the cluster"));
}
