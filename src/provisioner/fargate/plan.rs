//! Plans one reconcile of an `eks-fargate` group from its resolved spec and observed state. Pure.

use std::collections::BTreeSet;

use serde_json::json;

use super::drift::immutable_drift;
use super::health::profile_failed;
use super::input::PlanInput;
use super::join::join_planner;
use super::observed::{ObservedProfiles, is_current};
use super::ownership::{contested_profile, is_adoptable, ownership_conflict};
use super::plan_builder::FargatePlanBuilder;
use super::profile_slot::{ProfileSlot, Retry};
use super::record::{managed_attributes, record};
use super::{adopt, create, role};
use crate::api::names::tag;
use crate::api::{EffectiveValues, FargateStatus, InstanceGroupStatus, ProvisionerKind, StrategyType};
use crate::auth::access_entries::JoinPlan;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{Tag, tag_map};
use crate::ownership::{OWNERSHIP_TAG_KEYS, has_ownership_tags, tagging_blocked};
use crate::plan::FargateStep;
use crate::plan::{Drift, Outcome, Phase, Plan, PlanBuilder, Recheck, StalledReason, StatusUpdate, Step, waiting};
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::{join, recreated, unseen_names};

/// Plans one reconcile of a group that is not being deleted.
pub fn plan(input: &PlanInput) -> Plan {
    let found = ObservedProfiles::classify(input.resolved, input.observed, input.status);
    let mut builder = FargatePlanBuilder {
        plan: PlanBuilder::with_status(status_update(input.status), BTreeSet::new()),
        slot: ProfileSlot::new(input.status.fargate.as_ref(), input.observed.queue_position, input.timing, input.now),
        managed: input.status.managed.clone(),
        recheck_at: None,
        adopts_role: false,
    };
    let disowned = || found.disowned.iter().copied();
    let conflict = ownership_conflict(disowned(), &input.resolved.ownership_tags, false);
    match found.foreign_profile {
        Some(profile) => {
            let recorded = conflict.filter(|_| disowned().any(|p| p.name == profile.name));
            builder.plan.set_outcome_once(recorded.unwrap_or_else(|| foreign_profile(input, profile)));
        }
        None => {
            builder.plan.ensure_finalizer(&input.resolved.desired.id);
            input.resolved.broken.report(input.status, &mut builder.plan);
            plan_profiles(input, &found, &mut builder);
            let broken = input.resolved.broken.outcome();
            broken.into_iter().chain(conflict).for_each(|outcome| builder.plan.set_outcome_once(outcome));
            let FargateStatus { profiles, subnets, .. } = &mut builder.slot.status;
            subnets.retain(|name, _| profiles.contains(name));
            builder.plan.set_status("fargate", &builder.slot.status);
            builder.plan.set_status("managed", &builder.managed);
            record(input, &mut builder);
        }
    }
    let FargatePlanBuilder { plan, recheck_at, .. } = builder;
    plan.build(&input.resolved.desired.id, recheck_at)
}

fn foreign_profile(input: &PlanInput, profile: &FargateProfile) -> Outcome {
    let (r, rivals) = (input.resolved, &input.observed.rivals);
    // Without the other groups, it would be adopted.
    if !rivals.is_empty() && is_adoptable(profile, &r.names, r.desired.existing_role.as_deref(), &r.ownership_tags) {
        return contested_profile(profile, rivals, &r.ownership_tags, false);
    }
    let message = format!(
        "the Fargate profile {} already exists and has neither this group's three tags nor its role; rename the InstanceGroup, or delete the profile",
        profile.name
    );
    Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting: false }
}

fn plan_profiles(input: &PlanInput, found: &ObservedProfiles, builder: &mut FargatePlanBuilder) {
    adopt::profile(input, found, builder);
    let untagged = adopt::restore_tags(input, found, builder);
    let planner = join_planner(input);
    let keeps_entries = input.resolved.broken.contains(Part::Join);
    let joined = if keeps_entries { JoinPlan::default() } else { planner.plan() };
    set_known_status(input, found, &joined, builder);
    role::plan_region(input, found, builder);
    builder.plan.set_status("join", planner.join_status(input.status.join.as_ref()));
    builder.recheck_at = joined.recheck_at;
    builder.plan.events.extend(recreated::entries(&planner, &joined, input.status));
    builder.plan.steps.extend(joined.steps);
    let missing = join::restore(&input.observed.missing_auth_entries, &input.observed.missing_access_entries);
    builder.plan.steps.extend(missing);
    let conflict = joined.conflict.as_deref();
    if let Some(profile) = found.with_status(ProfileStatus::Creating) {
        builder.slot.keep();
        let phase = if found.own.len() > 1 { Phase::Modifying } else { Phase::Creating };
        return builder
            .plan
            .set_outcome_once(waiting(phase, format!("EKS is creating the Fargate profile {}", profile.name)));
    }
    if let Some(profile) = found.with_status(ProfileStatus::Other) {
        builder.slot.keep();
        let message = format!(
            "waiting for the Fargate profile {}: EKS shows a status that this release does not know",
            profile.name
        );
        return builder.plan.set_outcome_once(waiting(Phase::Modifying, message));
    }
    let recorded = builder.slot.status.clone();
    let serving = |p: &&FargateProfile| is_current(p, input.resolved, Some(&recorded));
    let create_failed = found.with_status(ProfileStatus::CreateFailed);
    if let Some(profile) = create_failed.or_else(|| found.with_status(ProfileStatus::DeleteFailed).filter(serving)) {
        return retry_failed(input, profile, builder);
    }
    if found.with_status(ProfileStatus::DeleteFailed).is_none() {
        builder.slot.clear_retry();
    }
    match found.current(input.resolved, Some(&recorded), input.status.active_scaling_group_name.as_deref()) {
        Some(current) => plan_current(input, found, current, conflict, builder),
        None => create::profile(input, found, conflict, builder),
    }
    if let Some(outcome) = untagged {
        builder.plan.set_outcome_once(outcome);
    }
}

/// Sets what is known before the profiles are planned. Later parts add the profile and the role that they create.
fn set_known_status(input: &PlanInput, found: &ObservedProfiles, joined: &JoinPlan, builder: &mut FargatePlanBuilder) {
    let r = input.resolved;
    builder.plan.set_status("provisioner", ProvisionerKind::EksFargate);
    builder.plan.set_status("strategy", StrategyType::Managed);
    builder.plan.set_status("nodesInstanceRoleArn", &r.role_arn);
    let profile = input.status.active_scaling_group_name.as_ref().unwrap_or(&r.names.first_profile);
    builder.plan.set_status("activeScalingGroupName", profile);
    let old = builder.managed.take().unwrap_or_default();
    builder.managed = Some(managed_attributes(input, found, joined, old));
    builder.slot.status.cluster = Some(r.desired.cluster.clone());
    builder.slot.status.profiles = found.own.iter().chain(&found.disowned).map(|p| p.name.clone()).collect();
}

/// A matching profile is active: applies in-profile_id changes, then deletes outdated profiles.
fn plan_current(
    input: &PlanInput,
    found: &ObservedProfiles,
    current: &FargateProfile,
    conflict: Option<&str>,
    builder: &mut FargatePlanBuilder,
) {
    let r = input.resolved;
    builder.plan.set_status("activeScalingGroupName", &current.name);
    let subnets = current.subnets.clone();
    builder.plan.set_status("effective", EffectiveValues { subnets, ..EffectiveValues::default() });
    // The record may be lost, or another controller created the profile.
    if !r.subnets.is_empty() && current.subnets == r.subnets {
        builder.slot.status.subnets.insert(current.name.clone(), r.subnets.clone());
    }
    if r.is_own_role && !input.observed.is_role_ready {
        role::repair(input, builder);
    }
    let tagging_outcome = plan_tags(input, current, builder);
    if let Some(issues) = (!current.issues.is_empty()).then(|| current.issues.join("; ")) {
        let message = format!("EKS reports issues with the Fargate profile {}: {issues}", current.name);
        builder.plan.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::ProfileFailed,
            message,
            is_deleting: false,
        });
    }
    if let Some(detail) = conflict {
        let message = format!("{detail}; new pods cannot start until the entry is fixed manually");
        builder.plan.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::AuthConflict,
            message,
            is_deleting: false,
        });
    }
    let outdated: Vec<_> = found.own.iter().copied().filter(|p| p.name != current.name).collect();
    let restores_tags = !found.lost_tags.is_empty() && !input.observed.tag_retry_pending;
    match outdated.first() {
        // Pods of a deleted profile must be able to start with the current one. Tags are restored first.
        Some(_) if builder.plan.outcome().is_none() && !restores_tags => {
            delete_outdated(input, &outdated, current, builder)
        }
        Some(_) => {}
        // A profile whose owner is unclear may need the previous role.
        None if !found.disowned.is_empty() => {}
        None => {
            builder.slot.record_success();
            role::remove_unused(input, builder);
        }
    }
    // Nothing waits for the hash of an adoption: without the permission, the group is as good as before.
    let is_only_hash = has_ownership_tags(&current.tags, &r.ownership_tags)
        && builder.plan.steps.iter().all(|planned| is_hash_change(&planned.step));
    if !builder.plan.steps.is_empty() && !is_only_hash {
        builder.plan.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Immediately,
        });
    }
    unseen_names::outcome(&input.observed.unseen_tags).into_iter().for_each(|o| builder.plan.set_outcome_once(o));
    if let Some(outcome) = tagging_outcome {
        builder.plan.set_outcome_once(outcome);
    }
}

/// Whether a step changes no other tag of an owned profile than the hash of its adoption.
fn is_hash_change(step: &Step) -> bool {
    let is_hash = |key: &str| key == tag::ADOPTED_HASH;
    match step {
        Step::Fargate(FargateStep::TagFargateProfile { tags, .. }) => {
            let is_ownership = |key: &str| OWNERSHIP_TAG_KEYS.contains(&key);
            tags.iter().any(|t| is_hash(&t.key)) && tags.iter().all(|t| is_hash(&t.key) || is_ownership(&t.key))
        }
        Step::Fargate(FargateStep::UntagFargateProfile { keys, .. }) => keys.iter().all(|key| is_hash(key)),
        _ => false,
    }
}

/// Deletes outdated profiles one at a time, once the current one is active. EKS deletes the pods that run on a deleted
/// profile.
fn delete_outdated(
    input: &PlanInput,
    outdated: &[&FargateProfile],
    current: &FargateProfile,
    builder: &mut FargatePlanBuilder,
) {
    let in_status = |status| outdated.iter().copied().find(|p| p.status == status);
    if let Some(old) = in_status(ProfileStatus::Deleting) {
        builder.slot.keep();
        let message =
            format!("the Fargate profile {} is active; EKS is deleting the older profile {}", current.name, old.name);
        return builder.plan.set_outcome_once(waiting(Phase::Rotating, message));
    }
    let Some(old) = in_status(ProfileStatus::DeleteFailed).or_else(|| outdated.first().copied()) else { return };
    if let Some(lock) = input.lock.or(input.rollout_block) {
        let message = format!(
            "deletion of the older Fargate profile {}, which replaces its pods, is blocked by {lock}",
            old.name
        );
        return builder.plan.set_outcome_once(Outcome::Locked { message });
    }
    if !has_ownership_tags(&old.tags, &input.resolved.ownership_tags) {
        let message = format!(
            "keeping the older Fargate profile {}: it is not tagged as this group's; allow the controller eks:TagResource",
            old.name
        );
        return builder.plan.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::OwnershipConflict,
            message,
            is_deleting: false,
        });
    }
    if old.status == ProfileStatus::DeleteFailed {
        return retry_failed(input, old, builder);
    }
    if let Err(outcome) = builder.slot.acquire(Phase::Rotating) {
        return builder.plan.set_outcome_once(outcome);
    }
    let reasons = immutable_drift(input.resolved, old, Some(&builder.slot.status));
    push_delete(input, old, builder, reasons);
    let message =
        format!("the Fargate profile {} is active; EKS is deleting the older profile {}", current.name, old.name);
    builder.plan.set_outcome_once(waiting(Phase::Rotating, message));
}

/// Deletes a profile that EKS failed to create or delete: after a delay, or at once if the spec no longer needs it.
fn retry_failed(input: &PlanInput, profile: &FargateProfile, builder: &mut FargatePlanBuilder) {
    let is_needed = profile.status != ProfileStatus::CreateFailed
        || is_current(profile, input.resolved, Some(&builder.slot.status));
    if is_needed && let Retry::At(at) = builder.slot.record_failure() {
        builder.recheck_at = Some(builder.recheck_at.map_or(at, |earlier| earlier.min(at)));
        return builder.plan.set_outcome_once(profile_failed(profile, at, false));
    }
    if let Err(outcome) = builder.slot.acquire(Phase::Modifying) {
        return builder.plan.set_outcome_once(outcome);
    }
    push_delete(input, profile, builder, Vec::new());
    let message = format!("EKS is deleting the failed Fargate profile {}", profile.name);
    builder.plan.set_outcome_once(waiting(Phase::Modifying, message));
}

fn push_delete(input: &PlanInput, profile: &FargateProfile, builder: &mut FargatePlanBuilder, reasons: Vec<Drift>) {
    let may_run_pods = profile.status != ProfileStatus::CreateFailed;
    let (cluster, profile) = (input.resolved.desired.cluster.clone(), profile.name.clone());
    builder.plan.push_with_reasons(FargateStep::DeleteFargateProfile { cluster, profile, may_run_pods }, reasons);
}

/// Plans tag changes, the only in-profile_id change of a profile. Tags of other owners are kept. Recorded tags that the spec no
/// longer has are removed, and so is the hash of an adoption that has ended. Returns a blocked outcome while AWS denies
/// tagging; tagging is retried after a delay.
fn plan_tags(input: &PlanInput, current: &FargateProfile, builder: &mut FargatePlanBuilder) -> Option<Outcome> {
    let r = input.resolved;
    if !has_ownership_tags(&current.tags, &r.ownership_tags) {
        return None;
    }
    let current_tags = tag_map(&current.tags);
    let missing =
        |t: &&Tag| !r.ownership_tags.contains(t) && current_tags.get(t.key.as_str()) != Some(&t.value.as_str());
    let (adopted, adoption_key) = (adopt::hash_tag(input, current, builder), tag::ADOPTED_HASH.to_owned());
    let added: Vec<_> = r.tags.iter().chain(&adopted).filter(missing).cloned().collect();
    let recorded = input.status.managed.iter().flat_map(|m| &m.tags);
    let recorded = recorded.chain(adopted.is_none().then_some(&adoption_key));
    let removed =
        recorded.filter(|key| current_tags.contains_key(key.as_str()) && r.tags.iter().all(|t| t.key != **key));
    let removed: Vec<_> = removed.cloned().collect();
    let profile_id = || (r.desired.cluster.clone(), current.name.clone(), current.arn.clone());
    if input.observed.tag_retry_pending {
        let lacks_tag = added.iter().any(|tag| tag.key != adoption_key);
        let lacks_untag = removed.iter().any(|key| *key != adoption_key);
        return (lacks_tag || lacks_untag).then(|| tagging_blocked(lacks_tag, lacks_untag, false));
    }
    // EKS allows 50 tags, so room for new ones is made first.
    if !removed.is_empty() {
        let reasons = removed.iter().map(|k| Drift::new(format!("tags.{k}"), current_tags[k.as_str()], "")).collect();
        let (cluster, profile, arn) = profile_id();
        builder
            .plan
            .push_with_reasons(FargateStep::UntagFargateProfile { cluster, profile, arn, keys: removed }, reasons);
    }
    if !added.is_empty() {
        let from = |t: &Tag| current_tags.get(t.key.as_str()).copied().unwrap_or_default();
        let reasons = added.iter().map(|t| Drift::new(format!("tags.{}", t.key), from(t), &t.value)).collect();
        let (cluster, profile, arn) = profile_id();
        // The shipped IAM policy requires the ownership tags in every tagging call.
        let tags = added.into_iter().chain(r.ownership_tags.iter().cloned()).collect();
        builder.plan.push_with_reasons(FargateStep::TagFargateProfile { cluster, profile, arn, tags }, reasons);
    }
    None
}

/// The status fields of a profile group as they are stored. The parts of the plan set those that they know.
fn status_update(stored: &InstanceGroupStatus) -> StatusUpdate {
    let fields = [
        ("activeScalingGroupName", json!(stored.active_scaling_group_name)),
        ("nodesInstanceRoleArn", json!(stored.nodes_instance_role_arn)),
        ("provisioner", json!(stored.provisioner)),
        ("strategy", json!(stored.strategy)),
        ("managed", json!(stored.managed)),
        ("join", json!(stored.join)),
        ("fargate", json!(stored.fargate)),
        ("effective", json!(stored.effective)),
    ];
    StatusUpdate { fields: fields.map(|(key, value)| (key.to_owned(), value)).into(), nodes_ready: None }
}
