//! Warm pools: made, changed, taken away, and brought up to date.
//!
//! Instances of a pool are no nodes and carry no pods. A replacement of a node
//! comes out of the pool, so the pool is brought to a new version first.

use serde_json::json;

use super::input::PlanInput;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::rotation::outdated;
use crate::api::{InstanceGroupStatus, ManagedAttributes};
use crate::aws::{ScalingGroup, WarmInstance, WarmPhase, WarmPool, WarmSizes};
use crate::plan::EksStep;
use crate::plan::{Drift, Outcome, Phase, PlanBuilder, PlannedStep, Reason, Recheck, Step, waiting};
use crate::rotation::rolling_update::report::rotation_halted;
use crate::util::duration;

/// What all instances of a pool were last seen to run: the pinned version, and `rotate-at` once it has come.
pub fn current_version_key(resolved: &ResolvedGroup, group: &ScalingGroup, now: jiff::Timestamp) -> Option<String> {
    let pinned =
        group.template.as_ref().map(|pin| pin.version.clone()).or_else(|| group.launch_configuration.clone())?;
    Some(match resolved.desired.rolling_update.rotate_at.filter(|at| *at <= now) {
        Some(at) => format!("{pinned} {at}"),
        None => pinned,
    })
}

/// Whether the group has a pool that we neither made nor are asked for.
pub fn is_foreign(input: &PlanInput) -> bool {
    let recorded = input.status.managed.as_ref().is_some_and(|m| m.warm_pool);
    let there = input.observed.scaling_group.as_ref().is_some_and(|g| g.warm_pool.is_some());
    there && !recorded && input.resolved.desired.warm_pool.is_none()
}

/// Makes the pool what the spec asks for; one that others made lives on.
pub fn plan_pool(input: &PlanInput, group: &ScalingGroup, managed: &ManagedAttributes, draft: &mut PlanBuilder) {
    match (&input.resolved.desired.warm_pool, &group.warm_pool) {
        (Some(_), Some(found)) if found.deleting => draft.set_outcome_once(waiting(
            Phase::Modifying,
            "AWS is deleting the warm pool; it is created again once it is gone",
        )),
        (Some(wanted), found) => {
            let because = pool_drift(found.as_ref(), wanted);
            if !because.is_empty() {
                draft.push_with_reasons(put_step(group, found.as_ref(), wanted), because);
            }
        }
        (None, Some(found)) if managed.warm_pool && !found.deleting => draft.push_with_reasons(
            EksStep::DeleteWarmPool { group: group.name.clone() },
            vec![Drift::new("warmPool", display_sizes(&found.sizes), "")],
        ),
        (None, _) => {}
    }
}

/// PutWarmPool; how the instances wait, which no field of ours says, stays as it is.
fn put_step(group: &ScalingGroup, found: Option<&WarmPool>, wanted: &WarmSizes) -> Step {
    EksStep::PutWarmPool { group: group.name.clone(), sizes: wanted.clone(), state: found.map(|f| f.state.clone()) }
        .into()
}

fn pool_drift(found: Option<&WarmPool>, wanted: &WarmSizes) -> Vec<Drift> {
    let Some(found) = found else { return vec![Drift::new("warmPool", "", display_sizes(wanted))] };
    let mut because = Vec::new();
    if found.sizes.min != wanted.min {
        because.push(Drift::new("warmPool.minSize", found.sizes.min, wanted.min));
    }
    if found.sizes.max != wanted.max {
        because.push(Drift::new("warmPool.maxSize", max_size_or_default(&found.sizes), max_size_or_default(wanted)));
    }
    because
}

fn max_size_or_default(sizes: &WarmSizes) -> i32 {
    sizes.max.unwrap_or(-1)
}

fn display_sizes(sizes: &WarmSizes) -> String {
    format!("minSize {}, maxSize {}", sizes.min, max_size_or_default(sizes))
}

/// Replaces instances of the pool that are outdated. True while the next node has to wait for it.
pub fn rotate_pool(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) -> bool {
    let (Some(pool), Some(_)) = (&input.observed.warm_instances, &group.warm_pool) else { return false };
    let old = outdated_instances(input.resolved, input.observed, input.status);
    if old.is_empty() {
        let at_rest = current_version_key(input.resolved, group, input.now);
        if let (Some(template), Some(marker)) = (draft.status_update.fields.get_mut("template"), at_rest) {
            template["warmPool"] = json!(marker);
        }
        return false;
    }
    let message = format!("{} of {} instances of the warm pool are outdated", old.len(), pool.len());
    if let Some(lock) = input.lock {
        draft.set_outcome_once(Outcome::Locked { message: format!("{message}; replacement is blocked by {lock}") });
        return true;
    }
    // Nobody would replace them; nodes that come out of the pool outdated are replaced in their turn.
    let stopped = |p: &String| ["Launch", "Terminate", "ReplaceUnhealthy"].contains(&p.as_str());
    if group.suspended_processes.iter().any(stopped)
        || input.observed.instance_refresh_active
        || input.observed.cluster_health.is_unhealthy()
    {
        return false;
    }
    let steps = next_batch(pool, old);
    if steps.is_empty() && input.observed.warm_pool_wait >= input.resolved.desired.rolling_update.join_timeout {
        halt_rotation(input, pool, message, draft);
        return true;
    }
    draft.condition_updates.push(rotation_halted(false, "Rotating", String::new()));
    let recheck = if steps.is_empty() { Recheck::Poll } else { Recheck::Soon };
    draft.steps.extend(steps.into_iter().map(|(instance, because)| {
        PlannedStep::new(EksStep::ReplaceWarmInstance { group: group.name.clone(), instance }, because)
    }));
    draft.set_outcome_once(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
    true
}

/// The replacements have had their time: what holds them is for a person to find.
fn halt_rotation(input: &PlanInput, pool: &[WarmInstance], message: String, draft: &mut PlanBuilder) {
    let held = pool.iter().filter(|w| w.phase != WarmPhase::Ready).map(|w| w.instance.id.clone());
    let message = format!(
        "{message}; {} did not finish launching or terminating within {}; no node is replaced until they do; complete the lifecycle hook that holds them in Warmed:Pending or Warmed:Terminating, or fix the image, user data or role that new instances launch from; the rotation then continues automatically",
        held.collect::<Vec<_>>().join(", "),
        duration::format(input.resolved.desired.rolling_update.join_timeout),
    );
    draft.condition_updates.push(rotation_halted(true, "ReplacementsNotReady", message.clone()));
    draft.set_outcome_once(Outcome::Blocked { reason: Reason::ReplacementsNotReady, message, is_deleting: false });
}

/// Whether outdated instances stay only because others of the pool are still coming or going.
pub fn is_blocked_by_transitions(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> bool {
    let old = outdated_instances(resolved, state, status);
    let pool = state.warm_instances.as_deref().unwrap_or_default();
    !old.is_empty() && pool.iter().any(|w| w.phase != WarmPhase::Ready) && next_batch(pool, old).is_empty()
}

/// One that is on its way out already is not asked to go again.
fn outdated_instances<'a>(
    resolved: &ResolvedGroup,
    state: &'a ObservedState,
    status: &InstanceGroupStatus,
) -> Vec<(&'a WarmInstance, Vec<Drift>)> {
    let stays = |warm: &&WarmInstance| warm.phase != WarmPhase::Leaving && warm.instance.healthy;
    let pool = state.warm_instances.iter().flatten().filter(stays);
    let because = |warm: &'a WarmInstance| (warm, outdated::instance_drift(resolved, state, status, &warm.instance));
    pool.map(because).filter(|(_, because)| !because.is_empty()).collect()
}

/// Those that are still being prepared at once, and of the others so many that half of the pool stays of use.
fn next_batch(pool: &[WarmInstance], old: Vec<(&WarmInstance, Vec<Drift>)>) -> Vec<(String, Vec<Drift>)> {
    let busy = pool.iter().filter(|w| w.phase != WarmPhase::Ready || !w.instance.healthy).count();
    let mut free = pool.len().div_ceil(2).saturating_sub(busy);
    let mut batch = Vec::new();
    for (warm, because) in old {
        let ready = warm.phase == WarmPhase::Ready;
        if ready && free == 0 {
            continue;
        }
        free -= usize::from(ready);
        batch.push((warm.instance.id.clone(), because));
    }
    batch
}
