//! From members to the rotation's next steps and what is told of them.

pub mod crd_strategy;
pub mod outdated;

use serde_json::json;

use super::input::Input;
use super::scaling_group::scale_in;
use super::warm_pool;
use crate::api::names::condition;
use crate::aws::{InstanceState, ScalingGroup};
use crate::plan::{Draft, Note, Outcome, Reason};
use crate::rotation::Member;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update;
use crate::rotation::rolling_update::report::tell;
use crate::rotation::rolling_update::settings::Amount;
use crate::rotation::rolling_update::{Stand, Victims, decide};

/// Replaces what is outdated, or takes away what is surplus.
pub fn nodes(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let members = outdated::members(input.resolved, input.state, input.status);
    counts(input, group, &members, draft);
    let under_way = |m: &Member| m.mark(&input.resolved.wanted.id.uid).is_some();
    if warm_pool::rotate(input, group, draft) && !members.iter().any(under_way) {
        return;
    }
    let rolling = &input.resolved.wanted.strategy;
    let surplus = scale_in::surplus(input, group);
    let crd = input.resolved.wanted.crd.as_ref();
    let left = if crd.is_some() { None } else { crd_strategy::left(input, &members, draft) };
    // What is outdated is then the resource's to replace; what is surplus stays ours, and so does giving nodes back.
    let victims =
        if surplus > 0 || crd.is_some() || left.is_some() { Victims::Surplus(surplus) } else { Victims::Outdated };
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let version = group.template.as_ref().map(|t| t.version.clone()).or_else(|| group.launch_configuration.clone());
    let version = version.unwrap_or_default();
    let decision = decide(&rolling_update::Input {
        group: &group.name,
        uid: &input.resolved.wanted.id.uid,
        version: &version,
        members: &members,
        desired,
        max_unavailable: rolling.max_unavailable.of(desired),
        in_units: matches!(rolling.max_unavailable, Amount::Percent(_)),
        max_surge: surge(rolling.max_surge, desired, &members),
        victims,
        lock: input.lock,
        obstacle: obstacle(input, group),
        was_halted: was_halted(input),
        join_timeout: rolling.join_timeout,
        settle: input.timing.settle,
        drain: DrainPolicy {
            timeout: rolling.drain_timeout,
            at_timeout: if rolling.drain_force { AtTimeout::Delete } else { AtTimeout::GiveUp },
            decrement: surplus > 0,
            dead_after: input.timing.dead_kubelet,
            volumes_for: input.timing.volumes,
        },
        drains: &input.state.drains,
        fleet: input.state.fleet,
        now: input.now,
    });
    if decision.refused {
        // What one drain waits for stays told while another goes on.
        let told = input.status.conditions.iter().find(|c| c.r#type == condition::DRAIN_BLOCKED && c.is_true());
        draft.notes.extend(told.map(|c| Note {
            condition: condition::DRAIN_BLOCKED,
            status: true,
            reason: c.reason.clone().unwrap_or_default(),
            message: c.message.clone().unwrap_or_default(),
        }));
    }
    // What a replacement that does not come waits for may be the resource itself.
    let waits = decision.stand == Stand::Going && decision.steps.is_empty() && decision.contested.is_empty();
    let stood_by = |m: &Member| m.standing_by(&input.resolved.wanted.id.uid);
    let others = members.iter().any(|m| !m.outdated.is_empty() && !stood_by(m));
    if !(victims == Victims::Surplus(0) && waits && others) {
        tell(&members, decision, surplus, draft);
    }
    if let Some(left) = left {
        draft.decide(left);
    }
    if let Some(crd) = crd.filter(|_| draft.outcome.is_none()) {
        let held = held(input, group, crd_strategy::outdated(&members));
        crd_strategy::nodes(input, crd, &members, held, draft);
    }
}

/// What holds the submission of a resource, as it holds a cordon.
fn held(input: &Input, group: &ScalingGroup, outdated: usize) -> Option<Outcome> {
    let blocked = |reason, message| Outcome::Blocked { reason, message, deleting: false };
    let locked = |lock| Outcome::Locked { message: format!("{outdated} nodes are outdated, and {lock} holds them") };
    let unhealthy = || {
        let message =
            "too many nodes of the cluster are not ready at once; no upgrade is submitted until they are fewer";
        input.state.fleet.unhealthy().then(|| blocked(Reason::ClusterUnhealthy, message.into()))
    };
    let obstacle = || obstacle(input, group).map(|(reason, message)| blocked(reason, message));
    input.lock.map(locked).or_else(obstacle).or_else(unhealthy)
}

fn surge(amount: Amount, desired: usize, members: &[Member]) -> usize {
    let heaviest = members.iter().map(Member::weight).max().unwrap_or(1);
    if amount.or_none(desired) == 0 { 0 } else { amount.nodes(desired, heaviest) }
}

fn was_halted(input: &Input) -> bool {
    let same = input.status.template.as_ref().and_then(|t| t.hash.as_ref()) == Some(&input.resolved.fingerprint.hash);
    same && input.status.conditions.iter().any(|c| c.r#type == condition::ROTATION_HALTED && c.is_true())
}

fn obstacle(input: &Input, group: &ScalingGroup) -> Option<(Reason, String)> {
    let stopped: Vec<_> =
        group.suspended.iter().filter(|p| matches!(p.as_str(), "Launch" | "Terminate")).cloned().collect();
    if !stopped.is_empty() {
        let message = format!(
            "{} is suspended on the scaling group, so that a terminated node would not be replaced; resume it, or remove it from suspendProcesses",
            stopped.join(" and ")
        );
        return Some((Reason::ProcessSuspended, message));
    }
    let message = "an instance refresh runs on the scaling group; wait for it to end, or cancel it";
    input.state.refreshing.then(|| (Reason::ProcessSuspended, message.into()))
}

fn counts(input: &Input, group: &ScalingGroup, members: &[Member], draft: &mut Draft) {
    let uid = &input.resolved.wanted.id.uid;
    let live: Vec<_> = members
        .iter()
        .filter(|m| matches!(m.instance.state, InstanceState::InService | InstanceState::Pending) || m.standing_by(uid))
        .collect();
    let count = |test: &dyn Fn(&&&Member) -> bool| live.iter().filter(test).map(|m| m.weight()).sum::<usize>();
    draft.facts.status.insert(
        "nodes".into(),
        json!({
            "desired": group.desired,
            "ready": count(&|m| m.ready()),
            "updated": count(&|m| m.outdated.is_empty()),
            "outdated": count(&|m| !m.outdated.is_empty()),
            "draining": members.iter().filter(|m| m.mark(uid).is_some()).map(Member::weight).sum::<usize>(),
        }),
    );
}
