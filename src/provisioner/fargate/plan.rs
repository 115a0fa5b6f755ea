//! Plans one reconcile of an `eks-fargate` group from its resolved spec and observed state. Pure.

use serde_json::json;

use super::drift::immutable_drift;
use super::health::profile_failed;
use super::input::PlanInput;
use super::join::join_planner;
use super::observed::{ObservedProfiles, is_current};
use super::plan_builder::FargatePlanBuilder;
use super::profile_slot::{ProfileSlot, Retry};
use super::record::record;
use super::{adopt, create, role};
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{Tag, tag_map};
use crate::ownership::{has_ownership_tags, tagging_blocked};
use crate::plan::FargateStep;
use crate::plan::{Drift, ObjectStep, Outcome, Phase, Plan, PlanBuilder, Reason, Recheck, waiting};

/// Plans one reconcile of a group that is not being deleted.
pub fn plan(input: &PlanInput) -> Plan {
    let found = ObservedProfiles::classify(input.resolved, input.observed, input.status);
    let mut making = FargatePlanBuilder {
        draft: PlanBuilder::default(),
        slot: ProfileSlot::new(input.status.fargate.as_ref(), input.observed.queue_position, input.timing, input.now),
        next_status: input.status.clone(),
        recheck_at: None,
        adopts_role: false,
    };
    match found.foreign_profile {
        Some(profile) => making.draft.set_outcome_once(foreign_profile(profile)),
        None => plan_profiles(input, &found, &mut making),
    }
    build(input, &found, making)
}

fn foreign_profile(profile: &FargateProfile) -> Outcome {
    let message = format!(
        "the Fargate profile {} already exists and has neither this group's three tags nor its role; rename the InstanceGroup, or delete the profile",
        profile.name
    );
    Outcome::Blocked { reason: Reason::OwnershipConflict, message, is_deleting: false }
}

fn plan_profiles(input: &PlanInput, found: &ObservedProfiles, making: &mut FargatePlanBuilder) {
    adopt::profile(input, found, making);
    let planner = join_planner(input);
    let joined = planner.plan();
    record(input, found, &joined, making);
    making.next_status.join = planner.join_status(input.status.join.as_ref());
    making.recheck_at = joined.recheck_at;
    making.draft.steps.extend(joined.steps);
    let conflict = joined.conflict.as_deref();
    if let Some(profile) = found.with_status(ProfileStatus::Creating) {
        making.slot.keep();
        let phase = if found.own.len() > 1 { Phase::Modifying } else { Phase::Creating };
        return making
            .draft
            .set_outcome_once(waiting(phase, format!("EKS is creating the Fargate profile {}", profile.name)));
    }
    if let Some(profile) = found.with_status(ProfileStatus::Other) {
        making.slot.keep();
        let message = format!("the Fargate profile {} has an unknown status", profile.name);
        return making.draft.set_outcome_once(waiting(Phase::Modifying, message));
    }
    let adopted = making.slot.status.adopted_hash.clone();
    let serving = |p: &&FargateProfile| is_current(p, input.resolved, adopted.as_ref());
    let create_failed = found.with_status(ProfileStatus::CreateFailed);
    if let Some(profile) = create_failed.or_else(|| found.with_status(ProfileStatus::DeleteFailed).filter(serving)) {
        return retry_failed(input, profile, making);
    }
    if found.with_status(ProfileStatus::DeleteFailed).is_none() {
        making.slot.clear_retry();
    }
    match found.current(input.resolved, adopted.as_ref()) {
        Some(current) => plan_current(input, found, current, conflict, making),
        None => create::profile(input, found, conflict, making),
    }
}

/// A matching profile is active: applies in-place changes, then deletes outdated profiles.
fn plan_current(
    input: &PlanInput,
    found: &ObservedProfiles,
    current: &FargateProfile,
    conflict: Option<&str>,
    making: &mut FargatePlanBuilder,
) {
    let r = input.resolved;
    making.next_status.active_scaling_group_name = Some(current.name.clone());
    if r.is_own_role && !input.observed.is_role_ready {
        role::repair(input, making);
    }
    let refused = plan_tags(input, current, making);
    if let Some(issues) = (!current.issues.is_empty()).then(|| current.issues.join("; ")) {
        let message = format!("EKS reports issues with the Fargate profile {}: {issues}", current.name);
        making.draft.set_outcome_once(Outcome::Blocked { reason: Reason::ProfileFailed, message, is_deleting: false });
    }
    if let Some(detail) = conflict {
        let message = format!("{detail}; new pods cannot start until the entry is fixed manually");
        making.draft.set_outcome_once(Outcome::Blocked { reason: Reason::AuthConflict, message, is_deleting: false });
    }
    let others: Vec<_> = found.own.iter().copied().filter(|p| p.name != current.name).collect();
    match others.first() {
        // Pods of a deleted profile must be able to start with the current one.
        Some(_) if making.draft.outcome.is_none() => delete_outdated(input, &others, current, making),
        Some(_) => {}
        None => {
            making.slot.record_success();
            role::remove_unused(input, making);
        }
    }
    if !making.draft.steps.is_empty() {
        making.draft.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Immediately,
        });
    }
    if let Some(refused) = refused {
        making.draft.set_outcome_once(refused);
    }
}

/// Deletes outdated profiles one at a time, once the current one is active. EKS deletes the pods that run on a deleted
/// profile.
fn delete_outdated(
    input: &PlanInput,
    others: &[&FargateProfile],
    current: &FargateProfile,
    making: &mut FargatePlanBuilder,
) {
    let in_status = |status| others.iter().copied().find(|p| p.status == status);
    if let Some(old) = in_status(ProfileStatus::Deleting) {
        making.slot.keep();
        let message =
            format!("the Fargate profile {} is active; EKS is deleting the older profile {}", current.name, old.name);
        return making.draft.set_outcome_once(waiting(Phase::Rotating, message));
    }
    let Some(old) = in_status(ProfileStatus::DeleteFailed).or_else(|| others.first().copied()) else { return };
    if let Some(lock) = input.lock {
        let message = format!(
            "deletion of the older Fargate profile {}, which replaces its pods, is blocked by {lock}",
            old.name
        );
        return making.draft.set_outcome_once(Outcome::Locked { message });
    }
    if !has_ownership_tags(&old.tags, &input.resolved.ownership_tags) {
        let message = format!(
            "keeping the older Fargate profile {}: it is not tagged as this group's; allow the controller eks:TagResource",
            old.name
        );
        return making.draft.set_outcome_once(Outcome::Blocked {
            reason: Reason::OwnershipConflict,
            message,
            is_deleting: false,
        });
    }
    if old.status == ProfileStatus::DeleteFailed {
        return retry_failed(input, old, making);
    }
    if let Err(outcome) = making.slot.acquire(Phase::Rotating) {
        return making.draft.set_outcome_once(outcome);
    }
    push_delete(input, old, making, immutable_drift(input.resolved, old));
    let message =
        format!("the Fargate profile {} is active; EKS is deleting the older profile {}", current.name, old.name);
    making.draft.set_outcome_once(waiting(Phase::Rotating, message));
}

/// Deletes a profile that EKS failed to create or delete: after a delay, or at once if the spec no longer needs it.
fn retry_failed(input: &PlanInput, profile: &FargateProfile, making: &mut FargatePlanBuilder) {
    let adopted = making.slot.status.adopted_hash.clone();
    let is_needed =
        profile.status != ProfileStatus::CreateFailed || is_current(profile, input.resolved, adopted.as_ref());
    if is_needed && let Retry::At(at) = making.slot.record_failure() {
        making.recheck_at = Some(making.recheck_at.map_or(at, |earlier| earlier.min(at)));
        return making.draft.set_outcome_once(profile_failed(profile, at, false));
    }
    if let Err(outcome) = making.slot.acquire(Phase::Modifying) {
        return making.draft.set_outcome_once(outcome);
    }
    push_delete(input, profile, making, Vec::new());
    let message = format!("EKS is deleting the failed Fargate profile {}", profile.name);
    making.draft.set_outcome_once(waiting(Phase::Modifying, message));
}

fn push_delete(input: &PlanInput, profile: &FargateProfile, making: &mut FargatePlanBuilder, because: Vec<Drift>) {
    let may_run_pods = profile.status != ProfileStatus::CreateFailed;
    let (cluster, profile) = (input.resolved.desired.cluster.clone(), profile.name.clone());
    making.draft.push_with_reasons(FargateStep::DeleteFargateProfile { cluster, profile, may_run_pods }, because);
}

/// Plans tag changes, the only in-place change of a profile. Tags of other owners are kept. Recorded tags that the spec no
/// longer has are removed. Returns a blocked outcome while AWS denies tagging; tagging is retried after a delay.
fn plan_tags(input: &PlanInput, current: &FargateProfile, making: &mut FargatePlanBuilder) -> Option<Outcome> {
    let r = input.resolved;
    if !has_ownership_tags(&current.tags, &r.ownership_tags) {
        return None;
    }
    let held = tag_map(&current.tags);
    let missing = |t: &&Tag| !r.ownership_tags.contains(t) && held.get(t.key.as_str()) != Some(&t.value.as_str());
    let put: Vec<_> = r.tags.iter().filter(missing).cloned().collect();
    let recorded = input.status.managed.iter().flat_map(|m| &m.tags);
    let gone = recorded.filter(|key| held.contains_key(key.as_str()) && r.tags.iter().all(|t| t.key != **key));
    let gone: Vec<_> = gone.cloned().collect();
    let place = || (r.desired.cluster.clone(), current.name.clone(), current.arn.clone());
    if input.observed.tag_retry_pending {
        let differ = !put.is_empty() || !gone.is_empty();
        return differ.then(|| tagging_blocked(!put.is_empty(), !gone.is_empty(), false));
    }
    if !put.is_empty() {
        let from = |t: &Tag| held.get(t.key.as_str()).copied().unwrap_or_default();
        let because = put.iter().map(|t| Drift::new(format!("tags.{}", t.key), from(t), &t.value)).collect();
        let (cluster, profile, arn) = place();
        // The shipped IAM policy requires the ownership tags in every tagging call.
        let tags = put.into_iter().chain(r.ownership_tags.iter().cloned()).collect();
        making.draft.push_with_reasons(FargateStep::TagFargateProfile { cluster, profile, arn, tags }, because);
    }
    if !gone.is_empty() {
        let because = gone.iter().map(|k| Drift::new(format!("tags.{k}"), held[k.as_str()], "")).collect();
        let (cluster, profile, arn) = place();
        making.draft.push_with_reasons(FargateStep::UntagFargateProfile { cluster, profile, arn, keys: gone }, because);
    }
    None
}

fn build(input: &PlanInput, found: &ObservedProfiles, making: FargatePlanBuilder) -> Plan {
    let FargatePlanBuilder { mut draft, slot, mut next_status, recheck_at, adopts_role: _ } = making;
    let id = &input.resolved.desired.id;
    if found.foreign_profile.is_none() {
        next_status.fargate = Some(slot.status);
        if !draft.steps.is_empty()
            && let Some(status) = next_status.patch_from(input.status)
        {
            draft.steps.insert(0, ObjectStep::UpdateStatus { status }.into());
        }
        if !id.has_finalizer {
            draft.steps.insert(0, ObjectStep::AddFinalizer.into());
        }
    }
    draft.status_update.fields = [
        ("activeScalingGroupName", json!(next_status.active_scaling_group_name)),
        ("nodesInstanceRoleArn", json!(next_status.nodes_instance_role_arn)),
        ("provisioner", json!(next_status.provisioner)),
        ("strategy", json!(next_status.strategy)),
        ("managed", json!(next_status.managed)),
        ("join", json!(next_status.join)),
        ("fargate", json!(next_status.fargate)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    draft.build(id, recheck_at)
}
