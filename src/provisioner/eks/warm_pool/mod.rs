//! Warm pools: made, changed, taken away, and brought up to date.
//!
//! Instances of a pool are no nodes and carry no pods. A replacement of a node
//! comes out of the pool, so the pool is brought to a new version first.

use serde_json::json;

use super::input::Input;
use super::observed::State;
use super::resolve::Resolved;
use super::rotation::outdated;
use crate::api::{InstanceGroupStatus, ManagedAttributes};
use crate::aws::{ScalingGroup, WarmInstance, WarmPhase, WarmPool, WarmSizes};
use crate::plan::EksStep;
use crate::plan::{Draft, Drift, Outcome, Phase, Planned, Reason, Recheck, Step, waiting};
use crate::rotation::rolling_update::report::halted;
use crate::util::duration;

/// What all instances of a pool were last seen to run: the pinned version, and `rotate-at` once it has come.
pub fn marker(resolved: &Resolved, group: &ScalingGroup, now: jiff::Timestamp) -> Option<String> {
    let pinned =
        group.template.as_ref().map(|pin| pin.version.clone()).or_else(|| group.launch_configuration.clone())?;
    Some(match resolved.wanted.strategy.rotate_at.filter(|at| *at <= now) {
        Some(at) => format!("{pinned} {at}"),
        None => pinned,
    })
}

/// Whether the group has a pool that we neither made nor are asked for.
pub fn of_others(input: &Input) -> bool {
    let recorded = input.status.managed.as_ref().is_some_and(|m| m.warm_pool);
    let there = input.state.group.as_ref().is_some_and(|g| g.warm_pool.is_some());
    there && !recorded && input.resolved.wanted.warm_pool.is_none()
}

/// Makes the pool what the spec asks for; one that others made lives on.
pub fn pool(input: &Input, group: &ScalingGroup, managed: &ManagedAttributes, draft: &mut Draft) {
    match (&input.resolved.wanted.warm_pool, &group.warm_pool) {
        (Some(_), Some(found)) if found.deleting => {
            draft.decide(waiting(Phase::Modifying, "AWS deletes the warm pool; it is made again when it is gone"))
        }
        (Some(wanted), found) => {
            let because = differences(found.as_ref(), wanted);
            if !because.is_empty() {
                draft.because(put(group, found.as_ref(), wanted), because);
            }
        }
        (None, Some(found)) if managed.warm_pool && !found.deleting => draft.because(
            EksStep::DeleteWarmPool { group: group.name.clone() },
            vec![Drift::new("warmPool", shown(&found.sizes), "")],
        ),
        (None, _) => {}
    }
}

/// PutWarmPool; how the instances wait, which no field of ours says, stays as it is.
fn put(group: &ScalingGroup, found: Option<&WarmPool>, wanted: &WarmSizes) -> Step {
    EksStep::PutWarmPool { group: group.name.clone(), sizes: wanted.clone(), state: found.map(|f| f.state.clone()) }
        .into()
}

fn differences(found: Option<&WarmPool>, wanted: &WarmSizes) -> Vec<Drift> {
    let Some(found) = found else { return vec![Drift::new("warmPool", "", shown(wanted))] };
    let mut because = Vec::new();
    if found.sizes.min != wanted.min {
        because.push(Drift::new("warmPool.minSize", found.sizes.min, wanted.min));
    }
    if found.sizes.max != wanted.max {
        because.push(Drift::new("warmPool.maxSize", largest(&found.sizes), largest(wanted)));
    }
    because
}

fn largest(sizes: &WarmSizes) -> i32 {
    sizes.max.unwrap_or(-1)
}

fn shown(sizes: &WarmSizes) -> String {
    format!("minSize {}, maxSize {}", sizes.min, largest(sizes))
}

/// Replaces instances of the pool that are outdated. True while the next node has to wait for it.
pub fn rotate(input: &Input, group: &ScalingGroup, draft: &mut Draft) -> bool {
    let (Some(pool), Some(_)) = (&input.state.warm, &group.warm_pool) else { return false };
    let old = outdated(input.resolved, input.state, input.status);
    if old.is_empty() {
        let at_rest = marker(input.resolved, group, input.now);
        if let (Some(template), Some(marker)) = (draft.facts.status.get_mut("template"), at_rest) {
            template["warmPool"] = json!(marker);
        }
        return false;
    }
    let message = format!("{} of {} instances of the warm pool are outdated", old.len(), pool.len());
    if let Some(lock) = input.lock {
        draft.decide(Outcome::Locked { message: format!("{message}, and {lock} holds them") });
        return true;
    }
    // Nobody would replace them; nodes that come out of the pool outdated are replaced in their turn.
    let stopped = |p: &String| ["Launch", "Terminate", "ReplaceUnhealthy"].contains(&p.as_str());
    if group.suspended.iter().any(stopped) || input.state.refreshing || input.state.fleet.unhealthy() {
        return false;
    }
    let steps = batch(pool, old);
    if steps.is_empty() && input.state.pool_waits >= input.resolved.wanted.strategy.join_timeout {
        halt(input, pool, message, draft);
        return true;
    }
    draft.notes.push(halted(false, "Rotating", String::new()));
    let recheck = if steps.is_empty() { Recheck::Poll } else { Recheck::Soon };
    draft.steps.extend(steps.into_iter().map(|(instance, because)| {
        Planned::new(EksStep::ReplaceWarmed { group: group.name.clone(), instance }, because)
    }));
    draft.decide(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
    true
}

/// The replacements have had their time: what holds them is for a person to find.
fn halt(input: &Input, pool: &[WarmInstance], message: String, draft: &mut Draft) {
    let held = pool.iter().filter(|w| w.phase != WarmPhase::Ready).map(|w| w.instance.id.clone());
    let message = format!(
        "{message}, and for {} {} have neither come nor gone; the nodes stay; complete the lifecycle hook that holds them in Warmed:Pending or Warmed:Terminating, or mend what new ones start from (image, user data, role), and the rotation goes on by itself",
        duration::text(input.resolved.wanted.strategy.join_timeout),
        held.collect::<Vec<_>>().join(", "),
    );
    draft.notes.push(halted(true, "ReplacementsNotReady", message.clone()));
    draft.decide(Outcome::Blocked { reason: Reason::ReplacementsNotReady, message, deleting: false });
}

/// Whether outdated instances stay only because others of the pool are still coming or going.
pub fn waits(resolved: &Resolved, state: &State, status: &InstanceGroupStatus) -> bool {
    let old = outdated(resolved, state, status);
    let pool = state.warm.as_deref().unwrap_or_default();
    !old.is_empty() && pool.iter().any(|w| w.phase != WarmPhase::Ready) && batch(pool, old).is_empty()
}

/// One that is on its way out already is not asked to go again.
fn outdated<'a>(
    resolved: &Resolved,
    state: &'a State,
    status: &InstanceGroupStatus,
) -> Vec<(&'a WarmInstance, Vec<Drift>)> {
    let stays = |warm: &&WarmInstance| warm.phase != WarmPhase::Leaving && warm.instance.healthy;
    let pool = state.warm.iter().flatten().filter(stays);
    let because = |warm: &'a WarmInstance| (warm, outdated::outdated(resolved, state, status, &warm.instance));
    pool.map(because).filter(|(_, because)| !because.is_empty()).collect()
}

/// Those that are still being prepared at once, and of the others so many that half of the pool stays of use.
fn batch(pool: &[WarmInstance], old: Vec<(&WarmInstance, Vec<Drift>)>) -> Vec<(String, Vec<Drift>)> {
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
