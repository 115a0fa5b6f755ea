//! Adopts a Fargate profile that another controller created. An adopted profile is not replaced until the spec changes.

use super::drift::immutable_drift;
use super::input::PlanInput;
use super::observed::ObservedProfiles;
use super::plan_builder::FargatePlanBuilder;
use crate::aws::Tag;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::ownership::{adopted_hash, adoption_tag, has_foreign_tags, has_ownership_tags, tagging_blocked};
use crate::plan::FargateStep;
use crate::plan::{Drift, IamStep, Outcome};
use crate::provisioner::role_region::{RegionClaim, region_claim};

/// Tags an adopted profile and reports how it differs from the spec. Until the spec changes, the profile counts as up to
/// date. Tags that AWS denied are retried.
pub(crate) fn profile(input: &PlanInput, found: &ObservedProfiles, builder: &mut FargatePlanBuilder) {
    let Some(profile) = found.untagged.filter(|p| p.status != ProfileStatus::Deleting) else {
        return update_adoption(input, found, builder);
    };
    let is_first_observation = builder.slot.status.adopted_hash.is_none();
    if !is_first_observation && input.observed.tag_retry_pending {
        return;
    }
    if is_first_observation {
        builder.slot.status.adopted_hash = Some(input.resolved.hash.clone());
    }
    tag_adopted(input, profile, builder);
    builder.plan.report_adoption(adoption_message(input, profile));
}

/// Tags the recorded profiles again whose tags were all removed. Returns the outcome while AWS denies tagging; it is retried
/// after a delay.
pub(crate) fn restore_tags(
    input: &PlanInput,
    found: &ObservedProfiles,
    builder: &mut FargatePlanBuilder,
) -> Option<Outcome> {
    let r = input.resolved;
    let lost: Vec<_> = found.lost_tags.iter().filter(|p| p.status != ProfileStatus::Deleting).collect();
    if input.observed.tag_retry_pending {
        return (!lost.is_empty()).then(|| tagging_blocked(true, false, false));
    }
    for profile in lost {
        let reasons = r.ownership_tags.iter().map(|t| Drift::new(format!("tags.{}", t.key), "", &t.value)).collect();
        let step = FargateStep::TagFargateProfile {
            cluster: r.desired.cluster.clone(),
            profile: profile.name.clone(),
            arn: profile.arn.clone(),
            tags: r.ownership_tags.clone(),
        };
        builder.plan.push_with_reasons(step, reasons);
    }
    None
}

/// The tag with the hash that the status records for the adopted profile.
pub(crate) fn hash_tag(input: &PlanInput, profile: &FargateProfile, builder: &FargatePlanBuilder) -> Option<Tag> {
    let r = input.resolved;
    let hash = builder.slot.status.adopted_hash.as_ref().filter(|_| profile.name == r.names.first_profile)?;
    adoption_tag(hash, profile.tags.iter().chain(&r.tags).map(|tag| &tag.key))
}

/// Restores the hash in a status that was lost from the tags of the adopted profile. Ends the adoption once the spec differs
/// from the spec at adoption; the profile is then handled like any other.
fn update_adoption(input: &PlanInput, found: &ObservedProfiles, builder: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let adopted = &mut builder.slot.status.adopted_hash;
    if adopted.is_none() {
        let first = found.own.iter().find(|p| p.name == r.names.first_profile);
        *adopted = first.and_then(|p| adopted_hash(&p.tags)).map(str::to_owned);
    }
    if adopted.as_ref().is_some_and(|hash| *hash != r.hash) {
        *adopted = None;
    }
}

fn tag_adopted(input: &PlanInput, profile: &FargateProfile, builder: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let tags = r.ownership_tags.iter().cloned().chain(hash_tag(input, profile, builder)).collect();
    builder.plan.push(FargateStep::TagFargateProfile {
        cluster: r.desired.cluster.clone(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags,
    });
    let unclaimed =
        |tags: &[Tag]| !has_ownership_tags(tags, &r.ownership_tags) && !has_foreign_tags(tags, &r.ownership_tags);
    let refers = profile.role_arn.ends_with(&format!("/{}", r.names.role));
    if let Some(role) = input.observed.role.as_ref().filter(|role| refers && unclaimed(&role.tags)) {
        // If tagging is denied, this record is the only proof of ownership once the profile is deleted.
        builder.adopts_role = true;
        let managed = builder.managed.get_or_insert_default();
        managed.adopted.get_or_insert_default().role = Some(role.id.clone());
        // Without the tag of the region where another region may use the role.
        let claim = region_claim(role, None, &r.ownership_tags, &r.region);
        let is_claimed = matches!(claim, RegionClaim::Tagged | RegionClaim::Claimable);
        if is_claimed {
            managed.role_region = Some(r.region.clone());
        }
        let tags = if is_claimed { r.iam_tags() } else { r.ownership_tags.clone() };
        builder.plan.push(IamStep::TagRole { role: role.name.clone(), tags });
    }
}

fn adoption_message(input: &PlanInput, profile: &FargateProfile) -> String {
    let differences: Vec<_> = immutable_drift(input.resolved, profile, None).iter().map(ToString::to_string).collect();
    let differences = match differences.is_empty() {
        true => "it matches the spec".to_owned(),
        false => format!("these differences are applied with the next spec change: {}", differences.join("; ")),
    };
    format!("adopted the Fargate profile {}; {differences}", profile.name)
}
