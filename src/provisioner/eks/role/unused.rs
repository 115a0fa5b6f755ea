//! Deletes the role that the controller created, after the spec named another role and the last node with it is gone.
//! Pure.

use serde_json::Value;

use crate::aws::AccessEntry;
use crate::plan::{Drift, Event, EventReason, IamStep, JoinStep, PlanBuilder, PlannedStep};
use crate::provisioner::eks::delete::is_standard_policy;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed::UnusedRole;

impl UnusedRole {
    /// Why the role is not deleted. `recorded` are the policies that the controller attached.
    pub(crate) fn reason_to_keep(&self, recorded: &[String]) -> Option<String> {
        if let Some(other) = &self.other_region {
            return Some(other.to_string());
        }
        if let Some(profile) = self.other_profiles.first() {
            return Some(format!("the instance profile {profile}, which the controller did not create, holds it"));
        }
        let is_own = |policy: &&String| is_standard_policy(policy) || recorded.contains(policy);
        let foreign = self.attached_policies.iter().filter(|policy| !is_own(policy)).chain(&self.inline_policies);
        let foreign: Vec<_> = foreign.map(String::as_str).collect();
        (!foreign.is_empty())
            .then(|| format!("it has policies that the controller did not attach: {}", foreign.join(", ")))
    }
}

/// Deletes the unused role with its profile once nothing else is left to do, then empties the record of its policies.
pub(crate) fn delete(input: &PlanInput, builder: &mut PlanBuilder) {
    let Some(unused) = &input.observed.unused_role else { return };
    if builder.outcome().is_some() || builder.has_changes() {
        return;
    }
    let recorded = input.status.managed.as_ref().map(|managed| managed.policies.as_slice()).unwrap_or_default();
    if unused.role.is_none() && unused.profile.is_none() && unused.access_entry.is_none() {
        return builder.record_managed("policies", Value::Null);
    }
    if let Some(reason) = unused.reason_to_keep(recorded) {
        let name = &input.resolved.names.role;
        let message = format!("keeping the IAM role {name}, which the group no longer uses: {reason}");
        return builder.events.push(Event::warning(EventReason::RoleRetained, message));
    }
    if let Some(AccessEntry { principal, .. }) = &unused.access_entry {
        let (cluster, principal) = (input.resolved.desired.cluster.clone(), principal.clone());
        builder.steps.push(PlannedStep::from(JoinStep::RemoveAccessEntry { cluster, principal }).optional());
    }
    if let Some(profile) = &unused.profile {
        if let Some(profile_role) = &profile.role {
            builder.push(IamStep::RemoveRoleFromProfile {
                profile: profile.name.clone(),
                role: profile_role.name.clone(),
            });
        }
        builder.push(IamStep::DeleteProfile { profile: profile.name.clone() });
    }
    if let Some(role) = &unused.role {
        for policy in &unused.attached_policies {
            builder.push(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
        }
        let reasons = vec![Drift::new("role", &role.arn, &input.resolved.role_arn)];
        builder.push_with_reasons(IamStep::DeleteRole { role: role.name.clone() }, reasons);
    }
}
