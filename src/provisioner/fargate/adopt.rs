//! First sight of a profile that another controller made: it is taken over as it is.

use super::input::PlanInput;
use super::observed::ObservedProfiles;
use super::plan_builder::FargatePlanBuilder;
use super::resolve::immutable_drift;
use crate::api::names::condition;
use crate::aws::Tag;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::ownership::{UNTAGGED_SUFFIX, has_foreign_tags, has_ownership_tags, tagging_denied_condition};
use crate::plan::FargateStep;
use crate::plan::{ConditionUpdate, IamStep};

/// What is found is up to date; it is tagged, and what differs is told once. What could not be tagged is tried again.
pub fn profile(input: &PlanInput, found: &ObservedProfiles, making: &mut FargatePlanBuilder) {
    let Some(profile) = found.untagged.filter(|p| p.status != ProfileStatus::Deleting) else {
        return drop_adoption(input, making);
    };
    let first_sight = making.slot.status.adopted_hash.is_none();
    if !first_sight && input.observed.tag_retry_pending {
        return;
    }
    let message = match (first_sight, tagging_denied_condition(input.status)) {
        (false, Some(told)) => {
            let message = told.message.as_deref().unwrap_or_default();
            message.split(UNTAGGED_SUFFIX).next().unwrap_or_default().to_owned()
        }
        _ => adoption_message(input, profile),
    };
    if first_sight {
        making.slot.status.adopted_hash = Some(input.resolved.hash.clone());
    }
    tag_adopted(input, profile, making);
    making.draft.condition_updates.push(ConditionUpdate {
        condition_type: condition::ADOPTED,
        status: true,
        reason: "ResourcesAdopted".into(),
        message,
    });
}

/// Once something else is wanted than at the takeover, the profile that was taken over is like any other.
fn drop_adoption(input: &PlanInput, making: &mut FargatePlanBuilder) {
    let adopted = &mut making.slot.status.adopted_hash;
    if adopted.as_ref().is_some_and(|hash| *hash != input.resolved.hash) {
        *adopted = None;
    }
}

fn tag_adopted(input: &PlanInput, profile: &FargateProfile, making: &mut FargatePlanBuilder) {
    let r = input.resolved;
    making.draft.push(FargateStep::TagFargateProfile {
        cluster: r.desired.cluster.clone(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags: r.ownership_tags.clone(),
    });
    let unclaimed =
        |held: &[Tag]| !has_ownership_tags(held, &r.ownership_tags) && !has_foreign_tags(held, &r.ownership_tags);
    let refers = profile.role_arn.ends_with(&format!("/{}", r.names.role));
    if let Some(role) = input.observed.role.as_ref().filter(|role| refers && unclaimed(&role.tags)) {
        // Once the profile is gone, nothing else shows whose a role is that may not be tagged.
        let managed = making.next_status.managed.get_or_insert_default();
        managed.adopted.get_or_insert_default().role = Some(role.id.clone());
        making.draft.push(IamStep::TagRole { role: role.name.clone(), tags: r.ownership_tags.clone() });
    }
}

fn adoption_message(input: &PlanInput, profile: &FargateProfile) -> String {
    let differences: Vec<_> = immutable_drift(input.resolved, profile).iter().map(ToString::to_string).collect();
    let differences = match differences.is_empty() {
        true => "nothing differs".to_owned(),
        false => format!("these differences arrive with the next change: {}", differences.join("; ")),
    };
    format!("taken over the Fargate profile {}; {differences}", profile.name)
}
