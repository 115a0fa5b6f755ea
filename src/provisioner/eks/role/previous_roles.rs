//! Restores and removes the join entries of roles that the group's nodes used before. Pure.
//!
//! A stale entry would let the nodes of any new role with that name join the cluster.

use jiff::Timestamp;

use crate::api::InstanceGroupStatus;
use crate::aws::{AccessEntry, InstanceState};
use crate::plan::{Drift, JoinStep, PlanBuilder};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_template::pin_state::{PinState, pin_state};
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::outdated::members;
use crate::provisioner::eks::warm_pool;
use crate::provisioner::join;
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::role_users::KeptEntry;

/// Whether all instances, and the version that the group launches, use the desired role. While a field of the launch
/// cannot be used, no instance counts as outdated. Those from before a change of the role may still run with the role
/// before.
pub(crate) fn all_nodes_use_role(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    now: Timestamp,
) -> bool {
    let Some(group) = state.scaling_group.as_ref().filter(|_| !resolved.broken.contains(Part::Launch)) else {
        return false;
    };
    let Some(pin) = &group.template else { return false };
    let warmed = status.template.as_ref().and_then(|t| t.warm_pool.clone());
    let pool = group.warm_pool.is_none() || warm_pool::current_version_key(resolved, group, status, now) == warmed;
    pool && matches!(pin_state(resolved, state, status, pin), PinState::Current { .. })
        && members(resolved, state, status).iter().all(|m| m.reasons.is_empty())
}

/// Restores entries that another client deleted while nodes run with these roles. All of them are silent, and a group
/// whose nodes are all silent is not rotated, so it would wait for itself forever.
pub(crate) fn restore_missing(input: &PlanInput, builder: &mut PlanBuilder) {
    let previous = &input.observed.previous_roles;
    builder.steps.extend(join::restore(&previous.missing_auth_entries, &previous.missing_access_entries));
}

/// Whether the last nodes that may run with a previous role are leaving, so that its entries, or the role, are unused
/// soon. No watch reports when AWS has terminated them.
pub(crate) fn waits_for_departure(input: &PlanInput) -> bool {
    let (resolved, previous) = (input.resolved, &input.observed.previous_roles);
    let managed = input.status.managed.as_ref();
    let has_unused_role = !resolved.own_role && managed.is_some_and(|managed| !managed.policies.is_empty());
    let has_entries = !previous.recorded_auth_entries.is_empty() || !previous.recorded_access_entries.is_empty();
    (has_entries || has_unused_role)
        && members(resolved, input.observed, input.status)
            .iter()
            .any(|member| member.instance.state == InstanceState::Terminating && !member.reasons.is_empty())
}

/// Removes unused entries, once nothing else is left to do.
pub(crate) fn remove_unused(input: &PlanInput, builder: &mut PlanBuilder) {
    builder.events.extend(input.observed.previous_roles.kept.iter().map(KeptEntry::event));
    if builder.outcome().is_some() || builder.has_changes() {
        return;
    }
    let r = input.resolved;
    let reasons = |from: &str| vec![Drift::new("role", from, &r.role_arn)];
    for entry in &input.observed.previous_roles.unused_auth_entries {
        builder.push_with_reasons(JoinStep::RemoveAwsAuthEntry(entry.clone()), reasons(&entry.role_arn));
    }
    for AccessEntry { principal, .. } in &input.observed.previous_roles.unused_access_entries {
        let step = JoinStep::RemoveAccessEntry { cluster: r.desired.cluster.clone(), principal: principal.clone() };
        builder.push_with_reasons(step, reasons(principal));
    }
}
