//! Roles that the group's nodes joined by before. Their entries go when no node needs them any more: one that stayed would
//! let in whoever makes a role of that name. Pure.

use jiff::Timestamp;

use crate::api::InstanceGroupStatus;
use crate::aws::AccessEntry;
use crate::plan::{Draft, Drift, JoinStep};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::observed::State;
use crate::provisioner::eks::resolve::Resolved;
use crate::provisioner::eks::rotation::outdated::{Pinned, members, pinned};
use crate::provisioner::eks::warm_pool;

/// Whether everything that the group runs or launches has the role that is wanted now.
pub fn settled(resolved: &Resolved, state: &State, status: &InstanceGroupStatus, now: Timestamp) -> bool {
    let Some(group) = &state.group else { return false };
    let Some(pin) = &group.template else { return false };
    let warmed = status.template.as_ref().and_then(|t| t.warm_pool.clone());
    let pool = group.warm_pool.is_none() || warm_pool::marker(resolved, group, now) == warmed;
    pool && matches!(pinned(resolved, state, status, pin), Pinned::Current { .. })
        && members(resolved, state, status).iter().all(|m| m.outdated.is_empty())
}

/// Takes out what nobody needs, once nothing else is to be done.
pub fn retire(input: &Input, draft: &mut Draft) {
    if draft.outcome.is_some() || draft.steps.iter().any(|planned| !planned.step.records()) {
        return;
    }
    let r = input.resolved;
    let because = |from: &str| vec![Drift::new("role", from, &r.role_arn)];
    for entry in &input.state.former.auth_gone {
        draft.because(JoinStep::RemoveAuthEntry(entry.clone()), because(&entry.role_arn));
    }
    for AccessEntry { principal, .. } in &input.state.former.access_gone {
        let step = JoinStep::RemoveAccessEntry { cluster: r.wanted.cluster.clone(), principal: principal.clone() };
        draft.because(step, because(principal));
    }
}
