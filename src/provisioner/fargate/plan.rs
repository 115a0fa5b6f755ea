//! From what is wanted and what there is to what is to be done. Pure.

use super::step::FargateStep;
use jiff::Timestamp;
use serde_json::json;

use super::input::Input;
use super::resolve::differences;
use super::state::{Found, serves};
use super::turn::{Again, Turn};
use super::{adopt, role};
use crate::api::{InstanceGroupStatus, ProvisionerKind, StrategyType};
use crate::auth::access_entries::{Joined, Joining};
use crate::aws::fargate::{FargateProfile, NewFargateProfile, ProfileStatus};
use crate::aws::{Tag, tag_map};
use crate::plan::{Draft, Drift, ObjectStep, Outcome, Phase, Plan, Reason, Recheck, waiting};
use crate::provisioner::eks::create::token;
use crate::provisioner::ownership::{owned, untaggable};

/// A plan in the making, with what the status shall remember.
pub struct Making {
    /// The plan.
    pub draft: Draft,
    /// Its place among the groups that wait for EKS.
    pub turn: Turn,
    /// The status when all is done.
    pub next: InstanceGroupStatus,
    /// When there is more to do.
    pub wake: Option<Timestamp>,
}

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
        None => create(input, found, conflict, making),
    }
}

/// Everything up to the new profile, which waits until IAM knows its role, and until it is the group's turn.
fn create(input: &Input, found: &Found, conflict: Option<&str>, making: &mut Making) {
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
        crate::report::stamp(again)
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

/// What we set is recorded before it is set; what is not there any more leaves the record.
fn record(input: &Input, found: &Found, joined: &Joined, making: &mut Making) {
    let r = input.resolved;
    let next = &mut making.next;
    next.provisioner = Some(ProvisionerKind::EksFargate.as_str().into());
    next.strategy = Some(StrategyType::Managed.as_str().into());
    next.nodes_instance_role_arn = Some(r.role_arn.clone());
    if next.active_scaling_group_name.is_none() {
        next.active_scaling_group_name = Some(r.names.first.clone());
    }
    let managed = next.managed.get_or_insert_default();
    let there = |key: &String| found.own.iter().any(|p| p.tags.iter().any(|t| t.key == *key));
    managed.tags.retain(there);
    managed.tags.extend(r.tags.iter().map(|t| t.key.clone()));
    managed.tags.sort();
    managed.tags.dedup();
    // What a role that was in use before has is dropped from the record once it is gone.
    let split =
        |all: &[String]| -> (Vec<String>, Vec<String>) { all.iter().cloned().partition(|arn| *arn == r.role_arn) };
    let ((auth, former_auth), (access, former_access)) = (split(&managed.auth_entries), split(&managed.access_entries));
    let joining = joining(input);
    managed.auth_entries = joining.auth_entries(joined, &r.role_arn, &auth);
    managed.auth_entries.extend(former_auth);
    managed.access_entries = joining.access_entries(joined, &access);
    managed.access_entries.extend(former_access);
    if r.own_role {
        managed.policies = vec![r.policy.clone()];
    }
    making.turn.status.cluster = Some(r.wanted.cluster.clone());
    making.turn.status.profiles = found.own.iter().map(|p| p.name.clone()).collect();
}

/// The role with everything that its entries depend on.
fn joining<'a>(input: &Input<'a>) -> Joining<'a> {
    let r = input.resolved;
    Joining {
        way: r.way,
        entry: &r.auth,
        wanted: &r.access,
        found: &input.state.join,
        own_role: r.own_role,
        settled: !r.own_role || input.state.role_ready,
        handover: input.timing.handover,
        now: input.now,
    }
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
