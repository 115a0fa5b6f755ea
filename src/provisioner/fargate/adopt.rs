//! First sight of a profile that another controller made: it is taken over as it is.

use super::input::Input;
use super::observed::Found;
use super::plan_builder::Making;
use super::resolve::differences;
use crate::api::names::condition;
use crate::aws::Tag;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::ownership::{UNTAGGED, foreign, not_tagged, owned};
use crate::plan::FargateStep;
use crate::plan::{IamStep, Note};

/// What is found is up to date; it is tagged, and what differs is told once. What could not be tagged is tried again.
pub fn profile(input: &Input, found: &Found, making: &mut Making) {
    let Some(profile) = found.untagged.filter(|p| p.status != ProfileStatus::Deleting) else {
        return told_apart(input, making);
    };
    let first_sight = making.turn.status.adopted_hash.is_none();
    if !first_sight && input.state.tagging_rests {
        return;
    }
    let message = match (first_sight, not_tagged(input.status)) {
        (false, Some(told)) => {
            let message = told.message.as_deref().unwrap_or_default();
            message.split(UNTAGGED).next().unwrap_or_default().to_owned()
        }
        _ => message(input, profile),
    };
    if first_sight {
        making.turn.status.adopted_hash = Some(input.resolved.hash.clone());
    }
    tag(input, profile, making);
    making.draft.notes.push(Note { condition: condition::ADOPTED, status: true, reason: "TakenOver".into(), message });
}

/// Once something else is wanted than at the takeover, the profile that was taken over is like any other.
fn told_apart(input: &Input, making: &mut Making) {
    let adopted = &mut making.turn.status.adopted_hash;
    if adopted.as_ref().is_some_and(|hash| *hash != input.resolved.hash) {
        *adopted = None;
    }
}

fn tag(input: &Input, profile: &FargateProfile, making: &mut Making) {
    let r = input.resolved;
    making.draft.step(FargateStep::TagFargateProfile {
        cluster: r.wanted.cluster.clone(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags: r.ownership.clone(),
    });
    let unclaimed = |held: &[Tag]| !owned(held, &r.ownership) && !foreign(held, &r.ownership);
    let refers = profile.role_arn.ends_with(&format!("/{}", r.names.role));
    if let Some(role) = input.state.role.as_ref().filter(|role| refers && unclaimed(&role.tags)) {
        // Once the profile is gone, nothing else shows whose a role is that may not be tagged.
        let managed = making.next.managed.get_or_insert_default();
        managed.adopted.get_or_insert_default().role = Some(role.id.clone());
        making.draft.step(IamStep::TagRole { role: role.name.clone(), tags: r.ownership.clone() });
    }
}

fn message(input: &Input, profile: &FargateProfile) -> String {
    let differences: Vec<_> = differences(input.resolved, profile).iter().map(ToString::to_string).collect();
    let differences = match differences.is_empty() {
        true => "nothing differs".to_owned(),
        false => format!("these differences arrive with the next change: {}", differences.join("; ")),
    };
    format!("taken over the Fargate profile {}; {differences}", profile.name)
}
