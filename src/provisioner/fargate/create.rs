//! A profile is made.

use super::input::Input;
use super::observed::Found;
use super::plan_builder::Making;
use super::resolve::differences;
use super::role;
use crate::aws::fargate::{NewFargateProfile, ProfileStatus};
use crate::plan::FargateStep;
use crate::plan::{Outcome, Phase, Reason, waiting};
use crate::provisioner::eks::create::token;

/// Everything up to the new profile, which waits until IAM knows its role, and until it is the group's turn.
pub fn profile(input: &Input, found: &Found, conflict: Option<&str>, making: &mut Making) {
    let r = input.resolved;
    let phase = if found.own.is_empty() { Phase::Creating } else { Phase::Modifying };
    if let Some(detail) = conflict {
        let message = format!("{detail}; the Fargate profile is not made, because its pods could not start");
        return making.draft.decide(Outcome::Blocked { reason: Reason::AuthConflict, message, deleting: false });
    }
    if r.own_role && !input.state.role_ready {
        return role::make(input, phase, making);
    }
    if let Some(profile) = found.in_status(ProfileStatus::Deleting) {
        making.turn.hold();
        let message = format!("the Fargate profile {} is being deleted; another is made when it is gone", profile.name);
        return making.draft.decide(waiting(phase, message));
    }
    if let Err(outcome) = making.turn.ask(phase) {
        return making.draft.decide(outcome);
    }
    let name = if found.own.is_empty() { r.names.first.clone() } else { r.names.generation(&r.hash) };
    let outdated = found.own.iter().find(|p| p.status == ProfileStatus::Active);
    let input = NewFargateProfile {
        cluster: r.wanted.cluster.clone(),
        token: token(&[&name, &r.wanted.id.uid, &r.hash, making.turn.since()]),
        role_arn: r.role_arn.clone(),
        own_role: r.own_role,
        subnets: r.subnets.clone(),
        selectors: r.wanted.selectors.clone(),
        tags: r.tags.clone(),
        replaces: outdated.map(|old| old.name.clone()),
        name: name.clone(),
    };
    if !making.turn.status.profiles.contains(&name) {
        making.turn.status.profiles.push(name.clone());
    }
    making.next.active_scaling_group_name = Some(name.clone());
    making
        .draft
        .because(FargateStep::CreateFargateProfile(input), outdated.map(|old| differences(r, old)).unwrap_or_default());
    making.draft.decide(waiting(phase, format!("EKS makes the Fargate profile {name}")));
}
