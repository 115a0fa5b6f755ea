//! From what is wanted and what there is to what is to be done. Pure.

use jiff::Timestamp;
use serde_json::json;

use super::input::Input;
use super::join::joining;
use super::observed::{Found, serves};
use super::plan_builder::Making;
use super::profile_slot::{Again, Turn};
use super::record::record;
use super::resolve::differences;
use super::{adopt, create, role};
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{Tag, tag_map};
use crate::ownership::{owned, untaggable};
use crate::plan::FargateStep;
use crate::plan::{Draft, Drift, ObjectStep, Outcome, Phase, Plan, Reason, Recheck, waiting};

/// Plans one pass for a group that is to live.
pub fn plan(input: &Input) -> Plan {
    let found = Found::of(input.resolved, input.state, input.status);
    let mut making = Making {
        draft: Draft::default(),
        turn: Turn::new(input.status.fargate.as_ref(), input.state.queue, input.timing, input.now),
        next: input.status.clone(),
        wake: None,
    };
    match found.stranger {
        Some(profile) => making.draft.decide(strange(profile)),
        None => own(input, &found, &mut making),
    }
    finish(input, &found, making)
}

fn strange(profile: &FargateProfile) -> Outcome {
    let message = format!(
        "the Fargate profile {} is there and carries neither this group's three tags nor its role; rename the InstanceGroup, or remove the profile",
        profile.name
    );
    Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false }
}

fn own(input: &Input, found: &Found, making: &mut Making) {
    adopt::profile(input, found, making);
    let joining = joining(input);
    let joined = joining.decide();
    record(input, found, &joined, making);
    making.next.join = joining.told(input.status.join.as_ref());
    making.wake = joined.wake;
    making.draft.steps.extend(joined.steps);
    let conflict = joined.conflict.as_deref();
    if let Some(profile) = found.in_status(ProfileStatus::Creating) {
        making.turn.hold();
        let phase = if found.own.len() > 1 { Phase::Modifying } else { Phase::Creating };
        return making.draft.decide(waiting(phase, format!("EKS makes the Fargate profile {}", profile.name)));
    }
    if let Some(profile) = found.in_status(ProfileStatus::Other) {
        making.turn.hold();
        let message = format!("the Fargate profile {} is in a status that is not known yet", profile.name);
        return making.draft.decide(waiting(Phase::Modifying, message));
    }
    let adopted = making.turn.status.adopted_hash.clone();
    let serving = |p: &&FargateProfile| serves(p, input.resolved, adopted.as_ref());
    let in_the_way = found.in_status(ProfileStatus::CreateFailed);
    if let Some(profile) = in_the_way.or_else(|| found.in_status(ProfileStatus::DeleteFailed).filter(serving)) {
        return retry(input, profile, making);
    }
    if found.in_status(ProfileStatus::DeleteFailed).is_none() {
        making.turn.goes_on();
    }
    match found.current(input.resolved, adopted.as_ref()) {
        Some(current) => standing(input, found, current, conflict, making),
        None => create::profile(input, found, conflict, making),
    }
}

/// The wanted profile is there: what can be changed in place, then what is left of the others.
fn standing(input: &Input, found: &Found, current: &FargateProfile, conflict: Option<&str>, making: &mut Making) {
    let r = input.resolved;
    making.next.active_scaling_group_name = Some(current.name.clone());
    if r.own_role && !input.state.role_ready {
        role::mend(input, making);
    }
    let refused = tags(input, current, making);
    if let Some(issues) = (!current.issues.is_empty()).then(|| current.issues.join("; ")) {
        let message = format!("EKS says of the Fargate profile {}: {issues}", current.name);
        making.draft.decide(Outcome::Blocked { reason: Reason::ProfileFailed, message, deleting: false });
    }
    if let Some(detail) = conflict {
        let message = format!("{detail}; new pods cannot start until it is mended by hand");
        making.draft.decide(Outcome::Blocked { reason: Reason::AuthConflict, message, deleting: false });
    }
    let others: Vec<_> = found.own.iter().copied().filter(|p| p.name != current.name).collect();
    match others.first() {
        // Pods that lose their profile must find one that they can start by.
        Some(_) if making.draft.outcome.is_none() => retire(input, &others, current, making),
        Some(_) => {}
        None => {
            making.turn.succeeded();
            role::retire(input, making);
        }
    }
    if !making.draft.steps.is_empty() {
        making.draft.decide(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Soon,
        });
    }
    if let Some(refused) = refused {
        making.draft.decide(refused);
    }
}

/// Older profiles go, one after the other, once the wanted one serves their pods: EKS deletes the pods that run by them.
fn retire(input: &Input, others: &[&FargateProfile], current: &FargateProfile, making: &mut Making) {
    let in_status = |status| others.iter().copied().find(|p| p.status == status);
    if let Some(old) = in_status(ProfileStatus::Deleting) {
        making.turn.hold();
        let message = format!("{} serves; EKS deletes the older Fargate profile {}", current.name, old.name);
        return making.draft.decide(waiting(Phase::Rotating, message));
    }
    let Some(old) = in_status(ProfileStatus::DeleteFailed).or_else(|| others.first().copied()) else { return };
    if let Some(lock) = input.lock {
        let message = format!(
            "lock-upgrades on {lock} holds the deletion of the older Fargate profile {}, and with it the replacement of its pods",
            old.name
        );
        return making.draft.decide(Outcome::Locked { message });
    }
    if !owned(&old.tags, &input.resolved.ownership) {
        let message = format!(
            "the older Fargate profile {} is not tagged as this group's, so it stays; allow the controller eks:TagResource",
            old.name
        );
        return making.draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
    }
    if old.status == ProfileStatus::DeleteFailed {
        return retry(input, old, making);
    }
    if let Err(outcome) = making.turn.ask(Phase::Rotating) {
        return making.draft.decide(outcome);
    }
    delete(input, old, making, differences(input.resolved, old));
    let message = format!("{} serves; EKS deletes the older Fargate profile {}", current.name, old.name);
    making.draft.decide(waiting(Phase::Rotating, message));
}

/// EKS could not make a profile, or not delete it: it is deleted after a pause, and at once when nobody wants it.
fn retry(input: &Input, profile: &FargateProfile, making: &mut Making) {
    let adopted = making.turn.status.adopted_hash.clone();
    let wanted = profile.status != ProfileStatus::CreateFailed || serves(profile, input.resolved, adopted.as_ref());
    if wanted && let Again::At(at) = making.turn.failed() {
        making.wake = Some(making.wake.map_or(at, |wake| wake.min(at)));
        return making.draft.decide(failed(profile, at, false));
    }
    if let Err(outcome) = making.turn.ask(Phase::Modifying) {
        return making.draft.decide(outcome);
    }
    delete(input, profile, making, Vec::new());
    let message = format!("EKS deletes the Fargate profile {}, which failed", profile.name);
    making.draft.decide(waiting(Phase::Modifying, message));
}

/// What a person reads of a profile that EKS failed with.
pub(super) fn failed(profile: &FargateProfile, again: Timestamp, deleting: bool) -> Outcome {
    let what = if profile.status == ProfileStatus::DeleteFailed { "delete" } else { "make" };
    let why = if profile.issues.is_empty() { "it does not say why".into() } else { profile.issues.join("; ") };
    let message = format!(
        "EKS could not {what} the Fargate profile {}: {why}; mend that, and it is tried again after {}",
        profile.name,
        crate::api::stamp(again)
    );
    Outcome::Blocked { reason: Reason::ProfileFailed, message, deleting }
}

fn delete(input: &Input, profile: &FargateProfile, making: &mut Making, because: Vec<Drift>) {
    let serves = profile.status != ProfileStatus::CreateFailed;
    let (cluster, profile) = (input.resolved.wanted.cluster.clone(), profile.name.clone());
    making.draft.because(FargateStep::DeleteFargateProfile { cluster, profile, serves }, because);
}

/// Tags are what EKS can change. Those of others stay; ours go when they are recorded and no longer wanted. What AWS
/// refuses of it is told, and tried again when that has rested.
fn tags(input: &Input, current: &FargateProfile, making: &mut Making) -> Option<Outcome> {
    let r = input.resolved;
    if !owned(&current.tags, &r.ownership) {
        return None;
    }
    let held = tag_map(&current.tags);
    let missing = |t: &&Tag| !r.ownership.contains(t) && held.get(t.key.as_str()) != Some(&t.value.as_str());
    let put: Vec<_> = r.tags.iter().filter(missing).cloned().collect();
    let recorded = input.status.managed.iter().flat_map(|m| &m.tags);
    let gone = recorded.filter(|key| held.contains_key(key.as_str()) && r.tags.iter().all(|t| t.key != **key));
    let gone: Vec<_> = gone.cloned().collect();
    let place = || (r.wanted.cluster.clone(), current.name.clone(), current.arn.clone());
    if input.state.tagging_rests {
        let differ = !put.is_empty() || !gone.is_empty();
        return differ.then(|| untaggable(!put.is_empty(), !gone.is_empty(), false));
    }
    if !put.is_empty() {
        let from = |t: &Tag| held.get(t.key.as_str()).copied().unwrap_or_default();
        let because = put.iter().map(|t| Drift::new(format!("tags.{}", t.key), from(t), &t.value)).collect();
        let (cluster, profile, arn) = place();
        // The rights that are shipped ask for the tags of ownership in every such call.
        let tags = put.into_iter().chain(r.ownership.iter().cloned()).collect();
        making.draft.because(FargateStep::TagFargateProfile { cluster, profile, arn, tags }, because);
    }
    if !gone.is_empty() {
        let because = gone.iter().map(|k| Drift::new(format!("tags.{k}"), held[k.as_str()], "")).collect();
        let (cluster, profile, arn) = place();
        making.draft.because(FargateStep::UntagFargateProfile { cluster, profile, arn, keys: gone }, because);
    }
    None
}

fn finish(input: &Input, found: &Found, making: Making) -> Plan {
    let Making { mut draft, turn, mut next, wake } = making;
    let id = &input.resolved.wanted.id;
    if found.stranger.is_none() {
        next.fargate = Some(turn.status);
        if !draft.steps.is_empty()
            && let Some(status) = next.patch_from(input.status)
        {
            draft.steps.insert(0, ObjectStep::Record { status }.into());
        }
        if !id.finalizer {
            draft.steps.insert(0, ObjectStep::AddFinalizer.into());
        }
    }
    draft.facts.status = [
        ("activeScalingGroupName", json!(next.active_scaling_group_name)),
        ("nodesInstanceRoleArn", json!(next.nodes_instance_role_arn)),
        ("provisioner", json!(next.provisioner)),
        ("strategy", json!(next.strategy)),
        ("managed", json!(next.managed)),
        ("join", json!(next.join)),
        ("fargate", json!(next.fargate)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    draft.finish(id, wake)
}
