//! The tag with the region in which the group's own role is used. Pure.
//!
//! A group adds the tag to an existing role when its scaling group launches with the role's instance profile in this
//! region. Nothing may indicate a use in another region. A role without the tag is used all the same.

use serde_json::json;

use crate::api::AdoptedResources;
use crate::aws::{InstanceProfile, Role, Tag};
use crate::ownership::{has_ownership_tags, is_tagging_denied};
use crate::plan::{IamStep, Outcome, PlanBuilder, StalledReason};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::ownership::foreign_resource;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::role_region::{self, OtherRegion, RegionClaim, tagged_for_other};

/// The group's own role and its instance profile with their tags, if they were read.
fn own_role(state: &ObservedState) -> Option<(&Role, &InstanceProfile)> {
    let (role, profile) = (state.role.as_ref()?, state.instance_profile.as_ref()?);
    profile.role.as_ref().filter(|profile_role| profile_role.name == role.name).map(|_| (role, profile))
}

/// The region in the tags of the group's own role; `None` when they were not read.
pub(crate) fn claim_of(resolved: &ResolvedGroup, state: &ObservedState) -> Option<RegionClaim> {
    let (role, profile) = own_role(state)?;
    Some(role_region::region_claim(role, Some(profile), &resolved.ownership_tags, &resolved.region))
}

/// The other region whose role the group's nodes launch with, as an earlier release let them. The controller does not
/// change such a role.
pub(crate) fn role_of_other_region(input: &PlanInput) -> Option<String> {
    let (r, state) = (input.resolved, input.observed);
    if own_role(state).is_some() {
        let tags = state.instance_profile.as_ref().map_or(&[][..], |p| &p.tags);
        return match tagged_for_other(state.role.as_ref(), tags, &r.region) {
            Some(OtherRegion::Tagged(region)) => Some(region),
            Some(OtherRegion::Trusted(_) | OtherRegion::LastUsed(_)) | None => None,
        };
    }
    let recorded = input.status.managed.as_ref().and_then(|managed| managed.role_region.clone());
    recorded.filter(|region| *region != r.region)
}

/// Adds the tag of the region to the group's own role and instance profile, and records the region.
pub(crate) fn plan_claim(input: &PlanInput, builder: &mut PlanBuilder) {
    let (r, state) = (input.resolved, input.observed);
    let recorded = input.status.managed.as_ref().and_then(|managed| managed.role_region.as_ref());
    let (Some((role, profile)), Some(claim), Some(managed)) =
        (own_role(state), claim_of(r, state), &input.status.managed)
    else {
        return;
    };
    let is_proven = foreign_resource(r, state, input.status).is_none();
    if !r.own_role || !is_proven || is_tagging_denied(input.status) || state.tag_retry_pending {
        return;
    }
    match claim {
        RegionClaim::Other(OtherRegion::Tagged(other)) if recorded != Some(&other) => {
            builder.record_managed("roleRegion", json!(other));
        }
        RegionClaim::Tagged if recorded != Some(&r.region) => {
            builder.record_managed("roleRegion", json!(r.region));
            add_missing_tags(role, profile, &r.iam_tags(), builder);
        }
        RegionClaim::Claimable => {
            // Another region may have used the role before it was tagged, so its deletion reads the last use again.
            let ids = AdoptedResources {
                role: Some(role.id.clone()),
                profile: Some(profile.id.clone()),
                ..managed.adopted.clone().unwrap_or_default()
            };
            builder.record_managed("adopted", json!(ids));
            builder.record_managed("roleRegion", json!(r.region));
            add_missing_tags(role, profile, &r.iam_tags(), builder);
        }
        RegionClaim::Tagged => add_missing_tags(role, profile, &r.iam_tags(), builder),
        RegionClaim::Other(OtherRegion::LastUsed(_) | OtherRegion::Trusted(_)) => {
            add_missing_tags(role, profile, &r.ownership_tags, builder);
        }
        RegionClaim::Other(OtherRegion::Tagged(_)) | RegionClaim::OtherGroup => {}
    }
}

/// Adds tags that a role or its instance profile lacks, also those that were removed by hand. The scaling group proves that both
/// are the group's.
fn add_missing_tags(role: &Role, profile: &InstanceProfile, tags: &[Tag], builder: &mut PlanBuilder) {
    if !has_ownership_tags(&role.tags, tags) {
        builder.push(IamStep::TagRole { role: role.name.clone(), tags: tags.to_vec() });
    }
    if !has_ownership_tags(&profile.tags, tags) {
        builder.push(IamStep::TagProfile { profile: profile.name.clone(), tags: tags.to_vec() });
    }
}

/// Blocks a group whose role belongs to another region and lacks the policies that the spec requests.
pub(crate) fn report_foreign_role(input: &PlanInput, builder: &mut PlanBuilder) {
    let r = input.resolved;
    let Some(region) = role_of_other_region(input).filter(|_| r.own_role) else { return };
    let missing: Vec<_> =
        r.managed_policies.iter().filter(|p| !input.observed.attached_policies.contains(p)).cloned().collect();
    if missing.is_empty() {
        return;
    }
    let message = format!(
        "the IAM role {} belongs to {region} and lacks {}; attach them, or set spec.eks.configuration.roleName",
        r.names.role,
        missing.join(", ")
    );
    builder.set_outcome_once(Outcome::Blocked {
        reason: StalledReason::OwnershipConflict,
        message,
        is_deleting: false,
    });
}
