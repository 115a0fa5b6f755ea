//! Warm pools: creation, changes, deletion and rotation.
//!
//! Warm instances are not nodes and run no pods. Replacements of nodes come from the pool, so the pool is rotated first.

use std::collections::BTreeSet;

use serde_json::json;

use super::input::PlanInput;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::rotation::outdated;
use super::scaling_group::{mixed_instances, subnets};
use crate::api::{InstanceGroupStatus, ManagedAttributes};
use crate::aws::{ScalingGroup, WarmInstance, WarmPhase, WarmPool, WarmSizes};
use crate::plan::EksStep;
use crate::plan::{Drift, Outcome, Phase, PlanBuilder, PlannedStep, Recheck, StalledReason, Step, waiting};
use crate::provisioner::recreated::{recreated, was_ready};
use crate::rotation::rolling_update::WarmPoolRotation;
use crate::rotation::rolling_update::report::report_halted;
use crate::util::duration;

/// Identifies what all instances of a pool should be: of the pinned version, launched after `rotate-at` once it has
/// passed, and outside of subnets that have left the group.
pub(crate) fn current_version_key(
    resolved: &ResolvedGroup,
    group: &ScalingGroup,
    status: &InstanceGroupStatus,
    now: jiff::Timestamp,
) -> Option<String> {
    let pinned =
        group.template.as_ref().map(|pin| pin.version.clone()).or_else(|| group.launch_configuration.clone())?;
    let rotate_at = resolved.desired.rolling_update.rotate_at.filter(|at| *at <= now).map(|at| at.to_string());
    let left = subnets::detached_subnets(resolved, group, status).into_iter().map(|subnet| format!("without {subnet}"));
    Some([pinned].into_iter().chain(rotate_at).chain(left).collect::<Vec<_>>().join(" "))
}

/// Whether the group has a warm pool that neither the controller created nor the spec requests.
pub(crate) fn is_foreign(input: &PlanInput) -> bool {
    let recorded = input.status.managed.as_ref().is_some_and(|m| m.warm_pool);
    let exists = input.observed.scaling_group.as_ref().is_some_and(|g| g.warm_pool.is_some());
    exists && !recorded && input.resolved.desired.warm_pool.is_none()
}

/// The field of the spec that AWS does not allow beside the group's warm pool (Amazon EC2 Auto Scaling User Guide, "Warm
/// pools", Limitations). Until the pool is gone, AWS rejects an update that brings this field to the group.
pub(crate) fn excluded_by(input: &PlanInput, group: &ScalingGroup) -> Option<&'static str> {
    let desired = &input.resolved.desired;
    let field = match (&desired.mixed_instances, &desired.spot_price) {
        (Some(mixed), _) if mixed.excludes_warm_pool() => "mixedInstancesPolicy",
        (None, Some(_)) => "spotPrice",
        _ => return None,
    };
    group.warm_pool.is_some().then_some(field)
}

/// Removes the record that the pool is current once that is no longer so, and before it ends. Otherwise a change that is
/// reverted would find the old record, and instances of the pool that were launched meanwhile would stay. The plan
/// ends it if instances launch from another version, or into other subnets, after it (`launches_others`).
pub(crate) fn forget_current_pool(
    input: &PlanInput,
    group: &ScalingGroup,
    launches_others: bool,
    builder: &mut PlanBuilder,
) {
    let Some(recorded) = input.status.template.as_ref().and_then(|t| t.warm_pool.as_ref()) else { return };
    let current = current_version_key(input.resolved, group, input.status, input.now);
    if !launches_others && current.as_ref() == Some(recorded) {
        return;
    }
    let template = builder.status_update.fields.get_mut("template").and_then(|template| template.as_object_mut());
    let in_status = template.map(|template| template.remove("warmPool")).is_some();
    if launches_others || !in_status {
        builder.recorded.get_or_insert_with(|| json!({}))["template"]["warmPool"] = json!(null);
    }
}

/// Creates, changes or deletes the warm pool as the spec requests; a foreign pool is kept.
pub(crate) fn plan_pool(
    input: &PlanInput,
    group: &ScalingGroup,
    managed: &ManagedAttributes,
    builder: &mut PlanBuilder,
) {
    match (&input.resolved.desired.warm_pool, &group.warm_pool) {
        (Some(_), Some(found)) if found.deleting => builder.set_outcome_once(waiting(
            Phase::Modifying,
            "AWS is deleting the warm pool; it is created again once it is gone",
        )),
        // Something prevented the update that ends the purchase of Spot Instances; AWS would reject the pool.
        (Some(_), None) if builder.outcome().is_some() => {}
        // AWS does not document whether weights can be removed from a policy, so it keeps them. They leave with the policy.
        (Some(_), None) if keeps_weights(input, group) => {
            builder.set_outcome_once(weights_exclude_pool(group));
        }
        (Some(desired), found) => {
            if found.is_none() && managed.warm_pool && was_ready(input.status) {
                let what = format!("the warm pool of {}", group.name);
                builder.events.push(recreated(&what, "DeleteWarmPool", " with new instances"));
            }
            let reasons = pool_drift(found.as_ref(), desired);
            if !reasons.is_empty() {
                builder.push_with_reasons(put_step(group, found.as_ref(), desired), reasons);
            }
        }
        (None, Some(found)) => {
            if managed.warm_pool && !found.deleting {
                builder.push_with_reasons(
                    EksStep::DeleteWarmPool { group: group.name.clone() },
                    vec![Drift::new("warmPool", display_sizes(&found.sizes), "")],
                );
            }
            if let Some(field) = excluded_by(input, group) {
                builder.set_outcome_once(wait_for_deletion(group, managed.warm_pool || found.deleting, field));
            }
        }
        (None, None) => {}
    }
}

/// The outcome while a warm pool excludes `field`. `is_leaving`: the pool is being deleted, or is about to be.
fn wait_for_deletion(group: &ScalingGroup, is_leaving: bool, field: &str) -> Outcome {
    let rule = format!("AWS allows no warm pool together with spec.eks.configuration.{field}");
    if is_leaving {
        return waiting(Phase::Modifying, format!("{rule}; it is set once the warm pool is deleted"));
    }
    let message = format!(
        "{rule}, and the controller did not create the warm pool of {}; delete that warm pool, or remove {field}",
        group.name
    );
    Outcome::Blocked { reason: StalledReason::RefusedByAws, message, is_deleting: false }
}

/// Whether the group keeps a policy with weights.
fn keeps_weights(input: &PlanInput, group: &ScalingGroup) -> bool {
    let desired = mixed_instances::desired_policy(input, Some(group), false);
    group.mixed.as_ref().is_some_and(|mixed| mixed.weighted) && desired.is_some()
}

fn weights_exclude_pool(group: &ScalingGroup) -> Outcome {
    let message = format!(
        "AWS allows no warm pool for the scaling group {}, whose mixed instances policy has weights; remove spec.eks.warmPool, or create an InstanceGroup with another name",
        group.name
    );
    Outcome::Blocked { reason: StalledReason::RefusedByAws, message, is_deleting: false }
}

/// The PutWarmPool step. It keeps the pool state of the instances and the reuse policy, which the spec does not set.
fn put_step(group: &ScalingGroup, found: Option<&WarmPool>, desired: &WarmSizes) -> Step {
    EksStep::PutWarmPool {
        group: group.name.clone(),
        sizes: desired.clone(),
        state: found.map(|f| f.state.clone()),
        reuse_on_scale_in: found.and_then(|f| f.reuse_on_scale_in),
    }
    .into()
}

fn pool_drift(found: Option<&WarmPool>, desired: &WarmSizes) -> Vec<Drift> {
    let Some(found) = found else { return vec![Drift::new("warmPool", "", display_sizes(desired))] };
    let mut reasons = Vec::new();
    if found.sizes.min != desired.min {
        reasons.push(Drift::new("warmPool.minSize", found.sizes.min, desired.min));
    }
    if found.sizes.max != desired.max {
        reasons.push(Drift::new("warmPool.maxSize", max_size_or_default(&found.sizes), max_size_or_default(desired)));
    }
    reasons
}

fn max_size_or_default(sizes: &WarmSizes) -> i32 {
    sizes.max.unwrap_or(-1)
}

fn display_sizes(sizes: &WarmSizes) -> String {
    format!("minSize {}, maxSize {}", sizes.min, max_size_or_default(sizes))
}

/// Replaces outdated warm instances, for which the rotation of nodes has to wait.
pub(crate) fn rotate_pool(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) -> WarmPoolRotation {
    let (Some(pool), Some(shown)) = (&input.observed.warm_instances, &group.warm_pool) else {
        return WarmPoolRotation::Done;
    };
    if input.resolved.desired.warm_pool.is_none() {
        return WarmPoolRotation::Done;
    }
    let old = outdated_instances(input.resolved, input.observed, input.status);
    if old.is_empty() {
        // A list that is older than the size lacks instances, which may be outdated. A later pass reads it again.
        let is_complete = shown.size.is_none_or(|size| usize::try_from(size).unwrap_or(0) <= pool.len());
        let version_key = current_version_key(input.resolved, group, input.status, input.now).filter(|_| is_complete);
        if let (Some(template), Some(key)) = (builder.status_update.fields.get_mut("template"), version_key) {
            template["warmPool"] = json!(key);
        }
        return WarmPoolRotation::Done;
    }
    let message = format!("{} of {} instances of the warm pool are outdated", old.len(), pool.len());
    if let Some(lock) = input.lock.or(input.rollout_block) {
        builder.set_outcome_once(Outcome::Locked { message: format!("{message}; replacement is blocked by {lock}") });
        return WarmPoolRotation::InProgress;
    }
    // Auto Scaling would not replace them now. Nodes that come from the pool outdated are replaced later.
    let stopped = |p: &String| ["Launch", "Terminate", "ReplaceUnhealthy"].contains(&p.as_str());
    if group.suspended_processes.iter().any(stopped)
        || input.observed.instance_refresh_active
        || input.observed.cluster_health.is_unhealthy()
    {
        return WarmPoolRotation::Done;
    }
    let steps = next_batch(pool, old);
    if steps.is_empty() && input.observed.warm_pool_wait >= input.resolved.desired.rolling_update.join_timeout {
        return halt_rotation(input, pool, message, builder);
    }
    report_halted(builder, false, "Rotating", String::new());
    let recheck = if steps.is_empty() { Recheck::Poll } else { Recheck::Immediately };
    builder.steps.extend(steps.into_iter().map(|(instance, reasons)| {
        PlannedStep::new(EksStep::ReplaceWarmInstance { group: group.name.clone(), instance }, reasons)
    }));
    builder.set_outcome_once(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
    WarmPoolRotation::InProgress
}

/// Halts the rotation when warm instances did not launch or terminate in time; this needs manual intervention.
fn halt_rotation(
    input: &PlanInput,
    pool: &[WarmInstance],
    message: String,
    builder: &mut PlanBuilder,
) -> WarmPoolRotation {
    let not_ready = pool.iter().filter(|w| w.phase != WarmPhase::Ready).map(|w| w.instance.id.clone());
    let message = format!(
        "{message}; {} did not finish launching or terminating within {}; no node is replaced until they do; complete the lifecycle hook that holds them in Warmed:Pending or Warmed:Terminating, or fix the image, user data or role that new instances launch from; the rotation then continues automatically",
        not_ready.collect::<Vec<_>>().join(", "),
        duration::format(input.resolved.desired.rolling_update.join_timeout),
    );
    report_halted(builder, true, "ReplacementsNotReady", message.clone());
    let reason = StalledReason::ReplacementsNotReady;
    builder.set_outcome_once(Outcome::Blocked { reason, message: message.clone(), is_deleting: false });
    WarmPoolRotation::Halted(message)
}

/// Whether outdated warm instances are kept only because others are still launching or terminating.
pub(crate) fn is_blocked_by_transitions(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> bool {
    let old = outdated_instances(resolved, state, status);
    let pool = state.warm_instances.as_deref().unwrap_or_default();
    !old.is_empty() && pool.iter().any(|w| w.phase != WarmPhase::Ready) && next_batch(pool, old).is_empty()
}

/// Outdated warm instances that are not terminating yet. Those that were marked unhealthy count: AWS checks the health
/// of an instance in its launch hook only when that ends (Amazon EC2 Auto Scaling User Guide, "Health checks for
/// instances in a warm pool"). It may enter service until then.
fn outdated_instances<'a>(
    resolved: &ResolvedGroup,
    state: &'a ObservedState,
    status: &InstanceGroupStatus,
) -> Vec<(&'a WarmInstance, Vec<Drift>)> {
    let stays = |warm: &&WarmInstance| warm.phase != WarmPhase::Leaving;
    let is_desired = resolved.desired.warm_pool.is_some();
    let pool = state.warm_instances.iter().flatten().filter(|warm| is_desired && stays(warm));
    let reasons =
        |warm: &'a WarmInstance| (warm, outdated::warm_instance_drift(resolved, state, status, &warm.instance));
    pool.map(reasons).filter(|(_, reasons)| !reasons.is_empty()).collect()
}

/// Whether an instance may still be replaced, by the pool that AWS shows right before that. `replaced` are the instances
/// that this pass has marked already, which AWS may not show yet.
pub(crate) fn may_replace(pool: &[WarmInstance], instance: &str, replaced: &BTreeSet<String>) -> bool {
    let Some(found) = pool.iter().find(|w| w.instance.id == instance) else { return false };
    let is_busy =
        |w: &&WarmInstance| w.phase != WarmPhase::Ready || !w.instance.healthy || replaced.contains(&w.instance.id);
    match found.phase {
        WarmPhase::Leaving => false,
        WarmPhase::Pending => found.instance.healthy,
        WarmPhase::Ready => found.instance.healthy && pool.iter().filter(is_busy).count() < pool.len().div_ceil(2),
    }
}

/// The instances to replace now: all that are still being prepared, and so many others that half of the pool stays
/// usable.
fn next_batch(pool: &[WarmInstance], old: Vec<(&WarmInstance, Vec<Drift>)>) -> Vec<(String, Vec<Drift>)> {
    let busy = pool.iter().filter(|w| w.phase != WarmPhase::Ready || !w.instance.healthy).count();
    let mut free = pool.len().div_ceil(2).saturating_sub(busy);
    let mut batch = Vec::new();
    for (warm, reasons) in old.into_iter().filter(|(warm, _)| warm.instance.healthy) {
        let ready = warm.phase == WarmPhase::Ready;
        if ready && free == 0 {
            continue;
        }
        free -= usize::from(ready);
        batch.push((warm.instance.id.clone(), reasons));
    }
    batch
}
