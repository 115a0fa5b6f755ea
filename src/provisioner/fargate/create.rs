//! Plans the creation of a Fargate profile.

use super::drift::immutable_drift;
use super::input::PlanInput;
use super::observed::ObservedProfiles;
use super::ownership::ownership_conflict;
use super::plan_builder::FargatePlanBuilder;
use super::role;
use super::role_owner::is_own_role;
use crate::aws::Role;
use crate::aws::fargate::{NewFargateProfile, ProfileStatus};
use crate::ownership::has_foreign_tags;
use crate::plan::FargateStep;
use crate::plan::{Outcome, Phase, StalledReason, waiting};
use crate::provisioner::recreated::{deletion_in_progress, recreated, was_ready};
use crate::util::digest::client_token;

/// Plans a new profile. It waits until its role has propagated in IAM and the group holds the cluster's profile slot.
pub(crate) fn profile(
    input: &PlanInput,
    found: &ObservedProfiles,
    conflict: Option<&str>,
    builder: &mut FargatePlanBuilder,
) {
    let r = input.resolved;
    let name = if found.own.is_empty() { r.names.first_profile.clone() } else { r.names.replacement_name(&r.hash) };
    // The group has a profile, or one has the name: a second one would serve the same pods.
    if found.disowned.iter().any(|p| found.own.is_empty() || p.name == name) {
        let conflict = ownership_conflict(found.disowned.iter().copied(), &r.ownership_tags, false);
        return conflict.into_iter().for_each(|outcome| builder.plan.set_outcome_once(outcome));
    }
    let phase = if found.own.is_empty() { Phase::Creating } else { Phase::Modifying };
    if let Some(detail) = conflict {
        let message = format!("{detail}; the Fargate profile is not created, because its pods could not start");
        return builder.plan.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::AuthConflict,
            message,
            is_deleting: false,
        });
    }
    // A new group uses an existing role only if the role is its own.
    let is_foreign =
        |role: &Role| found.own.is_empty() && !is_own_role(role, r, input.status) && !is_recorded_role(role, input);
    if r.is_own_role && (!input.observed.is_role_ready || input.observed.role.as_ref().is_some_and(is_foreign)) {
        return role::create(input, phase, builder);
    }
    if let Some(profile) = found.with_status(ProfileStatus::Deleting) {
        builder.slot.keep();
        if was_ready(input.status) && is_recorded_as_current(input, &profile.name) {
            let what = format!("the Fargate profile {}, and with it its pods,", profile.name);
            builder.plan.events.push(deletion_in_progress(&what, "DeleteFargateProfile"));
        }
        let message =
            format!("the Fargate profile {} is being deleted; another profile is created after that", profile.name);
        return builder.plan.set_outcome_once(waiting(phase, message));
    }
    // The controller gives this name only to this content, so another client created the profile.
    if found.own.iter().any(|p| p.name == name && p.status == ProfileStatus::Active) {
        let message = format!(
            "the Fargate profile {name} carries this group's tags, but is not the one that the controller created, and EKS cannot change it; delete it, and the controller creates it again"
        );
        return builder.plan.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::OwnershipConflict,
            message,
            is_deleting: false,
        });
    }
    if let Err(outcome) = builder.slot.acquire(phase) {
        return builder.plan.set_outcome_once(outcome);
    }
    let outdated = found.own.iter().find(|p| p.status == ProfileStatus::Active);
    let reasons = outdated.map(|old| immutable_drift(r, old, input.status.fargate.as_ref())).unwrap_or_default();
    if let Some(deleted) =
        input.status.active_scaling_group_name.as_ref().filter(|_| found.own.is_empty() && was_ready(input.status))
    {
        let what = format!("the Fargate profile {deleted}");
        builder.plan.events.push(recreated(&what, "DeleteFargateProfile", "; EKS deleted its pods with it"));
    }
    let input = NewFargateProfile {
        cluster: r.desired.cluster.clone(),
        token: client_token(&[&name, &r.desired.id.uid, &r.hash, builder.slot.waiting_since()]),
        role_arn: r.role_arn.clone(),
        own_role: r.is_own_role,
        subnets: r.subnets.clone(),
        selectors: r.desired.selectors.clone(),
        tags: r.tags.clone(),
        replaces: outdated.map(|old| old.name.clone()),
        name: name.clone(),
    };
    if !builder.slot.status.profiles.contains(&name) {
        builder.slot.status.profiles.push(name.clone());
    }
    if !r.subnets.is_empty() {
        builder.slot.status.subnets.insert(name.clone(), r.subnets.clone());
    }
    builder.plan.set_status("activeScalingGroupName", &name);
    builder.plan.push_with_reasons(FargateStep::CreateFargateProfile(input), reasons);
    builder.plan.set_outcome_once(waiting(phase, format!("EKS is creating the Fargate profile {name}")));
}

/// Whether the status shows that the role had the tags of the group and its region, and it has none of another group.
fn is_recorded_role(role: &Role, input: &PlanInput) -> bool {
    let (r, status) = (input.resolved, input.status);
    let region = status.managed.as_ref().and_then(|managed| managed.role_region.as_ref());
    let is_recorded = status.nodes_instance_role_arn.as_ref() == Some(&role.arn) && region == Some(&r.region);
    is_recorded && !has_foreign_tags(&role.tags, &r.ownership_tags)
}

/// Whether the status names a profile as the one that serves the group.
fn is_recorded_as_current(input: &PlanInput, profile: &str) -> bool {
    input.status.active_scaling_group_name.as_deref() == Some(profile)
}
