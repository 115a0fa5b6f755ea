//! The pod execution role, if the controller creates it.

use super::input::PlanInput;
use super::observed::{ObservedProfiles, PreviousRole};
use super::plan_builder::FargatePlanBuilder;
use super::resolve::{POD_EXECUTION_POLICY, PODS_SERVICE};
use super::role_owner::is_own_role;
use crate::aws::{AccessEntry, NewRole};
use crate::ownership::has_ownership_tags;
use crate::plan::{
    Drift, Event, EventReason, IamStep, JoinStep, Outcome, Phase, PlanBuilder, PlannedStep, Recheck, StalledReason,
};
use crate::provisioner::recreated::{detached, recreated, was_ready};
use crate::provisioner::role_region::{RegionClaim, admits_profiles, region_claim};
use crate::provisioner::role_users::KeptEntry;

/// Creates the role and attaches its policy. The profile waits until the role has propagated in IAM.
pub(crate) fn create(input: &PlanInput, phase: Phase, builder: &mut FargatePlanBuilder) {
    repair(input, builder);
    builder.plan.set_outcome_once(Outcome::Progressing {
        phase,
        message: "waiting for the pod execution role to propagate in IAM".into(),
        recheck: Recheck::After(input.timing.iam_propagation),
    });
}

/// Creates the role or attaches a missing policy. A role with this name that the group does not own blocks the plan.
pub(crate) fn repair(input: &PlanInput, builder: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let name = &r.names.role;
    match &input.observed.role {
        None => {
            if was_ready(input.status) {
                let consequence = "; its pods could not get new credentials until then";
                builder.plan.events.push(recreated(&format!("the role {name}"), "DeleteRole", consequence));
            }
            let role = NewRole { name: name.clone(), trust_policy: r.trust_policy.clone(), tags: r.iam_tags() };
            builder
                .plan
                .push_with_reasons(IamStep::CreateRole(role), vec![Drift::new("podExecutionRoleArn", "", &r.role_arn)]);
        }
        Some(role) if has_ownership_tags(&role.tags, &r.ownership_tags) => {
            if was_ready(input.status) {
                builder.plan.events.push(detached(&r.managed_policy, name));
            }
        }
        Some(_) if builder.adopts_role => {}
        Some(_) => {
            let message = format!(
                "the role {name} already exists and does not carry this group's three tags; delete it, or name it in spec.eks-fargate.podExecutionRoleArn"
            );
            return builder.plan.set_outcome_once(Outcome::Blocked {
                reason: StalledReason::OwnershipConflict,
                message,
                is_deleting: false,
            });
        }
    }
    let reasons = vec![Drift::new("managedPolicies", "", &r.managed_policy)];
    builder
        .plan
        .push_with_reasons(IamStep::AttachPolicy { role: name.clone(), policy: r.managed_policy.clone() }, reasons);
}

/// Adds the tag of the region to the group's role, and lets its trust policy admit the cluster's profiles. A role that
/// another region may use is not changed.
pub(crate) fn plan_region(input: &PlanInput, found: &ObservedProfiles, builder: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let Some(role) = input.observed.role.as_ref().filter(|_| r.is_own_role) else { return };
    if !is_own_role(role, r, input.status) {
        return;
    }
    let recorded = input.status.managed.as_ref().and_then(|managed| managed.role_region.as_ref());
    let is_recorded = recorded == Some(&r.region);
    let admits = role.trust_policy.as_ref().is_none_or(|trust| admits_profiles(trust, PODS_SERVICE, &r.profile_arns));
    match region_claim(role, None, &r.ownership_tags, &r.region) {
        RegionClaim::Other(other) if !admits => {
            let message = format!(
                "pods cannot start with the role {} ({other}); name another role in spec.eks-fargate.podExecutionRoleArn",
                role.name
            );
            let reason = StalledReason::OwnershipConflict;
            return builder.plan.set_outcome_once(Outcome::Blocked { reason, message, is_deleting: false });
        }
        RegionClaim::Other(_) | RegionClaim::OtherGroup => return,
        // Without the tag, a profile of this group in this region proves where the role is used.
        RegionClaim::Claimable if found.own.is_empty() || input.observed.tag_retry_pending => {}
        RegionClaim::Claimable if builder.adopts_role || is_recorded => {}
        RegionClaim::Claimable => {
            let managed = builder.managed.get_or_insert_default();
            managed.adopted.get_or_insert_default().role = Some(role.id.clone());
            managed.role_region = Some(r.region.clone());
            builder.plan.push(IamStep::TagRole { role: role.name.clone(), tags: r.iam_tags() });
        }
        RegionClaim::Tagged => {}
    }
    if !admits {
        let step = IamStep::UpdateTrustPolicy { role: role.name.clone(), policy: r.trust_policy.clone() };
        let from = role.trust_policy.clone().unwrap_or_default();
        builder.plan.push_with_reasons(step, vec![Drift::new("trustPolicy", from, &r.trust_policy)]);
    }
}

/// Removes the entries and the controller-created role of previous roles, once no profile uses them.
pub(crate) fn remove_unused(input: &PlanInput, builder: &mut FargatePlanBuilder) {
    for entry in &input.observed.unused_auth_entries {
        builder.plan.push(JoinStep::RemoveAwsAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in &input.observed.unused_access_entries {
        let (cluster, principal) = (input.resolved.desired.cluster.clone(), principal.clone());
        builder.plan.steps.push(PlannedStep::from(JoinStep::RemoveAccessEntry { cluster, principal }).optional());
    }
    builder.plan.events.extend(input.observed.entries_of_others.iter().map(KeptEntry::event));
    let Some(managed) = builder.managed.as_mut() else { return };
    if input.observed.unused_auth_entries.is_empty() {
        let kept = &input.observed.kept_auth_entries;
        managed.auth_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.observed.unused_access_entries.is_empty() {
        let kept = &input.observed.kept_access_entries;
        managed.access_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.resolved.uses_derived_role() || input.observed.is_derived_role_shared {
        return;
    }
    let arn = &input.resolved.derived_role_arn;
    let is_in_use = input.observed.profiles.iter().any(|profile| profile.role_arn == *arn);
    match &input.observed.previous_role {
        // The record of policies is the reason to look for the role and its entries until they are gone.
        None if is_in_use || input.observed.is_own_role_unknown || has_unused_entry(input) => {}
        None => managed.policies.clear(),
        Some(previous) => match reason_to_keep(previous, &managed.policies) {
            // The group's pods run with another role, so nothing waits for this one. The deletion of the group does.
            Some(reason) => {
                let name = &previous.role.name;
                let message = format!("keeping the role {name}, which the group no longer uses: {reason}");
                builder.plan.events.push(Event::warning(EventReason::RoleRetained, message));
                managed.policies.clear();
            }
            None => push_delete(previous, &mut builder.plan),
        },
    }
}

/// Whether the role that the controller creates has an entry that is about to be removed.
fn has_unused_entry(input: &PlanInput) -> bool {
    let (arn, observed) = (&input.resolved.derived_role_arn, input.observed);
    observed.unused_auth_entries.iter().any(|entry| entry.role_arn == *arn)
        || observed.unused_access_entries.iter().any(|entry| entry.principal == *arn)
}

/// Whether the controller-created role exists, or is left with an entry, although the spec names another role. A status
/// that was lost does not record it.
pub(crate) fn has_unrecorded_role(input: &PlanInput, found: &ObservedProfiles) -> bool {
    let (r, observed) = (input.resolved, input.observed);
    let is_found = || observed.previous_role.is_some() || has_unused_entry(input);
    let is_in_use = found.own.iter().any(|profile| profile.role_arn == r.derived_role_arn);
    !r.uses_derived_role() && (is_in_use || input.status.managed.is_none() && is_found())
}

/// Why an unused role is not deleted. `recorded` are the policies that the controller attached.
pub(crate) fn reason_to_keep(previous: &PreviousRole, recorded: &[String]) -> Option<String> {
    let foreign = || {
        let foreign = foreign_policies(previous, recorded);
        (!foreign.is_empty())
            .then(|| format!("it has policies that the controller did not attach: {}", foreign.join(", ")))
    };
    let held = || {
        let profile = previous.instance_profile.as_ref()?;
        Some(format!("the instance profile {profile}, which the controller did not create, holds it"))
    };
    previous.other_region.as_ref().map(ToString::to_string).or_else(held).or_else(foreign)
}

fn foreign_policies(previous: &PreviousRole, recorded: &[String]) -> Vec<String> {
    let standard = |policy: &String| policy.ends_with(&format!("/{POD_EXECUTION_POLICY}")) || recorded.contains(policy);
    let attached = previous.attached_policies.iter().filter(|p| !standard(p));
    attached.chain(&previous.inline_policies).cloned().collect()
}

/// Deletes the role of a group that is being deleted. Policies attached by others block the deletion.
pub(crate) fn delete(previous: &PreviousRole, recorded: &[String], builder: &mut PlanBuilder) {
    let foreign = foreign_policies(previous, recorded);
    if !foreign.is_empty() {
        let message = format!(
            "cannot delete the role {}: it has policies that the controller did not attach: {}; detach them",
            previous.role.name,
            foreign.join(", ")
        );
        let reason = StalledReason::OwnershipConflict;
        return builder.set_outcome_once(Outcome::Blocked { reason, message, is_deleting: true });
    }
    push_delete(previous, builder);
}

fn push_delete(previous: &PreviousRole, builder: &mut PlanBuilder) {
    let PreviousRole { role, attached_policies, .. } = previous;
    for policy in attached_policies {
        builder.push(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
    }
    builder.push(IamStep::DeleteRole { role: role.name.clone() });
}
