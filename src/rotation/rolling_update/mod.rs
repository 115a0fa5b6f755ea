//! The strategy `rollingUpdate`: decides which nodes are drained and terminated next.
//!
//! The same decision serves three kinds of candidates: outdated instances, surplus instances after
//! `maxSize` was lowered, and all instances of a group that is being deleted.

pub(crate) mod report;
pub mod settings;
pub(crate) mod surge;
pub(crate) mod types;
mod waits;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::api::rfc3339;
use crate::aws::InstanceState;
use crate::plan::{Allowance, Begin, NodeStep, UncordonReason};
use crate::rotation::drain::{self, DrainAction};
use crate::rotation::members::{ClusterHealth, NodeInstance};
use crate::rotation::node_health;
pub(crate) use types::{Candidates, RollingUpdateDecision, RollingUpdateInput, RotationState};

/// A node that is not ready for less than this may be flapping, so its rotation is not halted.
const FLAP_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// Decides the next steps of a rotation.
pub(crate) fn decide(input: &RollingUpdateInput) -> RollingUpdateDecision {
    let mut decision = decide_steps(input);
    decision.waiting_for.extend(input.members.iter().filter(|m| m.instance.is_retained).map(retained_message));
    decision
}

/// Why an instance that AWS terminates does not go away.
fn retained_message(member: &NodeInstance) -> String {
    format!(
        "TerminateInstanceInAutoScalingGroup for {}: a termination hook was abandoned, so the instance lifecycle policy retains it, and it counts against maxUnavailable",
        member.describe()
    )
}

fn decide_steps(input: &RollingUpdateInput) -> RollingUpdateDecision {
    let mut candidates = select_candidates(input);
    let mut decision = RollingUpdateDecision { steps: revert(input, &candidates), ..RollingUpdateDecision::default() };
    let duplicates: Vec<_> = candidates.extract_if(.., |m| m.duplicate_provider_id().is_some()).collect();
    if !duplicates.is_empty() {
        decision.steps.extend(uncordon_steps(
            duplicates.iter().copied(),
            input.group_uid,
            UncordonReason::DuplicateProviderId,
        ));
        decision.duplicate_provider_ids = duplicates.iter().filter_map(|m| m.duplicate_provider_id()).collect();
        decision.waiting_for = (decision.duplicate_provider_ids.iter())
            .map(|duplicate| format!("duplicate Nodes to be deleted ({duplicate})"))
            .collect();
        decision.state = RotationState::InProgress;
    }
    if candidates.is_empty() {
        return decision;
    }
    decision.state = match blocker(input, &candidates) {
        Some(state) => {
            decision.steps = match &state {
                RotationState::DrainBackoff(_) => decision.steps,
                _ => uncordon_all(input, &state),
            };
            state
        }
        None => RotationState::InProgress,
    };
    if decision.state == RotationState::InProgress {
        let leaving = continue_drains(input, &candidates, &mut decision);
        start_batch(input, &candidates, leaving, &mut decision);
        report_hold(input, &candidates, &mut decision);
    }
    decision
}

/// Says what a roll-out holds: the whole group, or the next node of one that has begun.
fn report_hold(input: &RollingUpdateInput, candidates: &[&NodeInstance], decision: &mut RollingUpdateDecision) {
    let has_begun = !decision.begins.is_empty() || has_begun(input, candidates);
    let budget = input.allowance.filter(|_| !decision.waits_for.is_empty());
    let used_up = budget.map(|allowance| format!("{}, which is used up", allowance.budget));
    match (input.begins_held_by(), used_up) {
        (Some(hold), _) if !has_begun => decision.state = RotationState::Locked(hold.into()),
        // Nodes that are not available are replaced at any time.
        (None, Some(used_up)) if !has_begun && decision.steps.is_empty() && decision.waiting_for.is_empty() => {
            decision.state = RotationState::Locked(used_up);
        }
        (None, Some(used_up)) => decision.waiting_for.push(used_up),
        (Some(_) | None, _) => {}
    }
}

/// Whether the replacement of a candidate is under way.
fn has_begun(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> bool {
    let uid = input.group_uid;
    candidates.iter().any(|m| m.disruption_of(uid).is_some() || m.is_in_standby(uid) || m.has_surge_record(uid))
}

fn select_candidates<'a>(input: &'a RollingUpdateInput) -> Vec<&'a NodeInstance> {
    let in_service = |m: &&NodeInstance| m.instance.state == InstanceState::InService;
    // An instance in standby has a replacement already, even if the desired state has changed since.
    let outdated = |m: &&NodeInstance| m.is_in_standby(input.group_uid) || (in_service(m) && !m.reasons.is_empty());
    match input.candidates {
        Candidates::All => input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating).collect(),
        Candidates::Outdated => order_candidates(input.members.iter().filter(outdated).collect()),
        Candidates::Surplus(n) => {
            let standby = input.members.iter().filter(|m| m.is_in_standby(input.group_uid));
            let in_service = order_candidates(input.members.iter().filter(in_service).collect());
            select_surplus(input, in_service, n).into_iter().chain(standby).collect()
        }
    }
}

/// Selects surplus instances: the lightest first (all instances of a group without weights are equal). Among these, first
/// those that are already being drained, last those whose drain is retried later. The others: first the outdated ones,
/// then from the zone with the most instances. Balanced zones keep Auto Scaling from terminating undrained nodes to
/// rebalance.
fn select_surplus<'a>(
    input: &RollingUpdateInput,
    mut remaining: Vec<&'a NodeInstance>,
    n: usize,
) -> Vec<&'a NodeInstance> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &remaining {
        *zones.entry(member.instance.zone.as_str()).or_default() += 1;
    }
    let mut selected = Vec::new();
    let mut surplus = n;
    loop {
        // Without an instance that weighs more than the surplus, the group would have too little capacity.
        remaining.retain(|m| m.weight() <= surplus);
        let rank = |m: &NodeInstance| {
            (
                m.weight(),
                m.disruption_of(input.group_uid).is_none() && !m.has_orphaned_disruption(),
                input.is_in_drain_backoff(m),
                m.reasons.is_empty(),
                m.is_available(),
                Reverse(zones[m.instance.zone.as_str()]),
            )
        };
        let Some(index) = (0..remaining.len()).min_by_key(|index| rank(remaining[*index])) else { break };
        let member = remaining.remove(index);
        zones.entry(member.instance.zone.as_str()).and_modify(|count| *count -= 1);
        surplus -= member.weight();
        selected.push(member);
    }
    selected
}

/// Orders candidates: unavailable ones first (no node, or not ready), last those whose drain will be held up; among these
/// the oldest, round-robin over the zones.
fn order_candidates(mut members: Vec<&NodeInstance>) -> Vec<&NodeInstance> {
    let rank = |m: &NodeInstance| (m.is_available(), m.is_available() && m.node.as_ref().is_some_and(|n| n.drain_last));
    members.sort_by_key(|m| (rank(m), m.node.as_ref().map(|n| n.created_at), m.instance.id.clone()));
    let mut rounds: BTreeMap<((bool, bool), &str), usize> = BTreeMap::new();
    let mut ranked: Vec<_> = (members.into_iter())
        .map(|m| {
            let round = rounds.entry((rank(m), m.instance.zone.as_str())).or_default();
            *round += 1;
            (rank(m), *round, m)
        })
        .collect();
    ranked.sort_by_key(|(rank, round, _)| (*rank, *round));
    ranked.into_iter().map(|(_, _, m)| m).collect()
}

/// Uncordons nodes that are no longer candidates, and removes their unused surge records.
fn revert(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> Vec<NodeStep> {
    let candidate_ids: BTreeSet<_> = candidates.iter().map(|m| m.instance.id.as_str()).collect();
    let terminating = |m: &NodeInstance| m.instance.state == InstanceState::Terminating;
    let kept = || input.members.iter().filter(|m| !candidate_ids.contains(m.instance.id.as_str()) && !terminating(m));
    let mut steps = uncordon_steps(kept(), input.group_uid, UncordonReason::NoLongerReplaced);
    steps.extend(surge::clear_unused_records(input, kept()));
    steps
}

fn uncordon_steps<'a>(
    members: impl Iterator<Item = &'a NodeInstance>,
    uid: &str,
    reason: UncordonReason,
) -> Vec<NodeStep> {
    members
        .filter_map(|m| {
            let reason = match m.has_orphaned_disruption() {
                true => UncordonReason::GroupDeleted,
                false => m.disruption_of(uid).map(|_| reason)?,
            };
            Some(NodeStep::UncordonNode { node: m.node.as_ref()?.name.clone(), reason })
        })
        .collect()
}

/// Why the whole rotation makes no progress, if that is the case.
fn blocker(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> Option<RotationState> {
    // A deletion gives no node back, so nothing holds it, not even a drain that a rotation would retry later.
    if input.candidates == Candidates::All {
        return None;
    }
    if let Some(lock) = input.lock {
        return Some(RotationState::Locked(lock.into()));
    }
    if let Some((reason, message)) = &input.precondition {
        return Some(RotationState::Blocked(*reason, message.clone()));
    }
    if let Some(message) = unhealthy_message(input) {
        return Some(RotationState::Unhealthy(message));
    }
    if input.candidates == Candidates::Outdated
        && let Some(message) = halt_message(input)
    {
        return Some(RotationState::Halted(message));
    }
    candidates
        .iter()
        .all(|m| input.is_in_drain_backoff(m))
        .then(|| RotationState::DrainBackoff(backoff_message(input, candidates)))
}

fn backoff_message(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> String {
    let retry = |m: &&NodeInstance| {
        let at = input.drain_view(m)?.retry_drain_at?;
        Some(format!("{} at {}", m.drain_key(), rfc3339(at)))
    };
    let remedy = match input.drain_policy.at_timeout == drain::AtTimeout::Delete {
        true => {
            "relax what blocks them; drainForce is set, so that the next drain deletes the remaining pods at drainTimeout"
        }
        false => "relax what blocks them, or set drainForce, which deletes the remaining pods at drainTimeout",
    };
    format!(
        "each node to be replaced was drained for longer than drainTimeout, or uncordoned by someone else; drained again: {}; {remedy}",
        candidates.iter().filter_map(retry).collect::<Vec<_>>().join(", ")
    )
}

/// Uncordons all nodes of a rotation that is locked, halted or blocked. In an unhealthy cluster the nodes stay as they
/// are, because uncordoning is a change too.
fn uncordon_all(input: &RollingUpdateInput, state: &RotationState) -> Vec<NodeStep> {
    let reason = match state {
        RotationState::Locked(_) => UncordonReason::Locked,
        RotationState::Halted(_) => UncordonReason::RotationHalted,
        RotationState::Blocked(..) => UncordonReason::RotationBlocked,
        RotationState::Idle
        | RotationState::InProgress
        | RotationState::Unhealthy(_)
        | RotationState::DrainBackoff(_) => {
            return Vec::new();
        }
    };
    uncordon_steps(
        input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating),
        input.group_uid,
        reason,
    )
}

/// How many nodes a message names.
const NAMED_NODES: usize = 3;

fn unhealthy_message(input: &RollingUpdateInput) -> Option<String> {
    let ClusterHealth { total, unready } = input.cluster_health;
    let unready_members: Vec<_> =
        input.members.iter().filter(|m| m.node.as_ref().is_some_and(|n| n.has_become_unready())).collect();
    let own = unready_members.len();
    let joined = input.members.iter().filter(|m| m.node.is_some()).count();
    if input.cluster_health.is_unhealthy() {
        return Some(format!(
            "{unready} of {total} nodes of the cluster are not ready; no node is terminated until more nodes are ready"
        ));
    }
    (own * 2 > joined && own > input.max_unavailable).then(|| {
        let some: Vec<_> = unready_members.iter().take(NAMED_NODES).map(|m| node_health::describe(m)).collect();
        let more = if own > NAMED_NODES { ", ..." } else { "" };
        format!(
            "{own} of {joined} nodes of this group are not ready ({}{more}); no node is terminated until more nodes are ready",
            some.join(", ")
        )
    })
}

/// Why the rotation is halted: replacements did not become Ready, or failed soon after.
fn halt_message(input: &RollingUpdateInput) -> Option<String> {
    let replacements: Vec<_> =
        input.members.iter().filter(|m| m.reasons.is_empty() && m.instance.state == InstanceState::InService).collect();
    let failed: Vec<_> =
        replacements.iter().filter(|m| failed_to_become_ready(input, m)).map(|m| node_health::describe(m)).collect();
    if !failed.is_empty() {
        return Some(format!(
            "replacements of template version {} did not become Ready within {}, or did not stay so: {}",
            input.template_version,
            crate::util::duration::format(input.join_timeout),
            failed.join("; ")
        ));
    }
    let recovering = input.was_halted && !replacements.iter().all(|m| m.is_ready());
    recovering.then(|| {
        format!("replacements of template version {} failed, and not all of them are Ready yet", input.template_version)
    })
}

/// Whether the node did not become Ready within the join timeout, or stopped being Ready within it. A node that fails
/// later does not count against its template version.
fn failed_to_become_ready(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    if member.is_ready() {
        return false;
    }
    let in_service_since = member.instance.in_service_since.unwrap_or(input.now);
    let lost =
        member.node.as_ref().filter(|n| n.has_become_unready()).and_then(|n| Some((n.created_at, n.ready_changed_at?)));
    let Some((created, lost)) = lost else {
        return input.now.duration_since(in_service_since) >= input.join_timeout;
    };
    // This process may have observed the instance only after the node stopped being Ready.
    let started = if in_service_since <= lost { in_service_since } else { created };
    lost.duration_since(started) < input.join_timeout
        && input.now.duration_since(lost) >= input.join_timeout.min(FLAP_TOLERANCE)
}

/// Continues the drains in progress and returns how many instances are terminated now.
fn continue_drains(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    decision: &mut RollingUpdateDecision,
) -> usize {
    let mut leaving = 0;
    for member in candidates {
        let Some(record) = member.disruption_of(input.group_uid) else { continue };
        if member.node.as_ref().is_some_and(|node| !node.cordoned) {
            return_uncordoned(input, member, decision);
            continue;
        }
        if lowers_desired(input, member)
            && member.is_termination_sent(input.group_uid, input.drain_policy.decrement_interval, input.now)
        {
            decision.waiting_for.push(format!("{} to terminate", member.describe()));
            continue;
        }
        // Unknown pods are not absent pods.
        let Some(view) = input.drain_view(member) else {
            decision.waiting_for.push(format!("the pods on {} to be read", member.describe()));
            continue;
        };
        let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
        match drain::next_drain_action(member, record, view, &input.drain_policy, input.now) {
            DrainAction::Evict(steps) | DrainAction::ForceDelete(steps) => {
                decision.waiting_for.push(format!("{node} to be drained"));
                decision.steps.extend(steps);
            }
            DrainAction::Wait(what) => {
                decision.eviction_blocked |= view.last_blocked_eviction.is_some()
                    && view.pods.iter().any(|p| !p.is_ignored && !p.is_finished && !p.is_terminating);
                decision.waiting_for.push(what);
            }
            DrainAction::Uncordon(pods) => {
                decision
                    .steps
                    .push(NodeStep::UncordonNode { node: node.clone(), reason: UncordonReason::DrainTimeout });
                decision.timed_out_drains.push((node, pods));
            }
            DrainAction::TerminateWithPods(pods) => {
                decision.abandoned_pods.extend(pods);
                decision.steps.push(terminate_step(input, member));
                leaving += 1;
            }
            DrainAction::Terminate => {
                decision.steps.push(terminate_step(input, member));
                leaving += 1;
            }
        }
    }
    leaving
}

/// A node whose drain is in progress was uncordoned by someone else. It is given back, and drained again later. Nothing
/// can be given back in a deletion, so there it is cordoned again.
fn return_uncordoned(input: &RollingUpdateInput, member: &NodeInstance, decision: &mut RollingUpdateDecision) {
    let Some(node) = &member.node else { return };
    let (step, wait) = match input.candidates {
        Candidates::All => (input.cordon_step(member), "to be cordoned again"),
        Candidates::Outdated | Candidates::Surplus(_) => {
            let reason = UncordonReason::UncordonedByOthers;
            (Some(NodeStep::UncordonNode { node: node.name.clone(), reason }), "to be drained again later")
        }
    };
    decision.steps.extend(step);
    decision.waiting_for.push(format!("{}, which someone else uncordoned, {wait}", node.name));
}

fn terminate_step(input: &RollingUpdateInput, member: &NodeInstance) -> NodeStep {
    NodeStep::Terminate {
        scaling_group: input.scaling_group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()),
        decrement_desired: lowers_desired(input, member),
    }
}

/// Whether the termination of this member lowers the desired capacity. An instance in standby does not count in it, so a
/// decrement would remove another instance.
fn lowers_desired(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    input.drain_policy.decrement_desired && member.instance.state != InstanceState::Standby
}

/// Cordons or terminates the next candidates, as many as may be unavailable.
fn start_batch(
    input: &RollingUpdateInput,
    candidates: &[&NodeInstance],
    mut leaving: usize,
    decision: &mut RollingUpdateDecision,
) {
    let recently_ready =
        |m: &&NodeInstance| m.reasons.is_empty() && m.ready_for(input.now).is_some_and(|d| d < input.ready_hold);
    let counts_as_available =
        |m: &&NodeInstance| m.is_available() && !(input.candidates == Candidates::Outdated && recently_ready(m));
    let available: usize = input.members.iter().filter(counts_as_available).map(NodeInstance::weight).sum();
    let mut unavailable = input.desired.saturating_sub(available);
    let is_surging = |m: &NodeInstance| {
        m.is_in_standby(input.group_uid) || (m.has_surge_record(input.group_uid) && m.is_available())
    };
    let terminating = input.members.iter().filter(|m| m.instance.state == InstanceState::Terminating);
    let draining = candidates.iter().copied().filter(|m| m.disruption_of(input.group_uid).is_some() && !is_surging(m));
    let (mut nodes_in_flight, mut weight_in_flight) =
        terminating.chain(draining).fold((0, 0), |(nodes, weight), m| (nodes + 1, weight + m.weight()));
    let removes_all = input.candidates == Candidates::All;
    let replaces = input.candidates == Candidates::Outdated;
    let mut surging = if removes_all { 0 } else { surge::continue_surge(input, candidates, unavailable, decision) };
    if input.begins_held_by().is_some() {
        return;
    }
    let mut allowance = input.allowance.filter(|_| replaces).cloned();
    let waits_for_surge =
        |m: &NodeInstance| !removes_all && (m.is_in_standby(input.group_uid) || (replaces && is_surging(m)));
    for member in candidates.iter().filter(|m| m.disruption_of(input.group_uid).is_none() && !waits_for_surge(m)) {
        let healthy = member.is_available();
        if healthy && replaces && input.max_surge > 0 {
            let free = member.node.as_ref().is_some_and(|n| n.disruption.is_none() && n.surge.is_none());
            let may_surge = surging < input.max_surge && free && !input.is_in_drain_backoff(member);
            if may_surge && is_allowed(allowance.as_mut(), member, Begin::Surge, decision) {
                decision.steps.extend(surge::start_surge(input, member));
                surging += 1;
            }
            continue;
        }
        let at_node_limit = !input.max_unavailable_in_weight && nodes_in_flight >= input.max_unavailable;
        if !removes_all
            && (at_node_limit
                || exceeds_max_unavailable(input, weight_in_flight, member)
                || (healthy && replaces && exceeds_max_unavailable(input, unavailable, member)))
        {
            if decision.waiting_for.is_empty() && leaving == 0 {
                decision.waiting_for = waits::for_availability(input, unavailable, &decision.steps);
            }
            break;
        }
        // Only this group's instances are members, so a deletion takes every record over.
        if !removes_all && (input.is_in_drain_backoff(member) || member.foreign_record(input.group_uid).is_some()) {
            continue;
        }
        let begin = || Begin::Drain(member.instance.zone.clone());
        if healthy && !is_allowed(allowance.as_mut(), member, begin(), decision) {
            continue;
        }
        match input.cordon_step(member) {
            Some(step) => decision.steps.push(step),
            None if remove_without_node(input, member, decision) => leaving += 1,
            None => continue,
        }
        nodes_in_flight += 1;
        weight_in_flight += member.weight();
        unavailable += if healthy { member.weight() } else { 0 };
    }
    if !removes_all {
        decision.waiting_for.extend(input.members.iter().filter_map(|m| foreign_record_message(input, m)));
    }
}

/// Whether the budget of a roll-out leaves this node.
fn is_allowed(
    allowance: Option<&mut Allowance>,
    member: &NodeInstance,
    begin: Begin,
    decision: &mut RollingUpdateDecision,
) -> bool {
    let Some(allowance) = allowance else { return true };
    if allowance.take(&begin) {
        decision.begins.insert(member.instance.id.clone(), begin);
        return true;
    }
    decision.waits_for.insert(begin);
    false
}

/// What a rotation waits for when another InstanceGroup claims a node of this group.
fn foreign_record_message(input: &RollingUpdateInput, member: &NodeInstance) -> Option<String> {
    let (uid, node) = (member.foreign_record(input.group_uid)?, &member.node.as_ref()?.name);
    Some(format!("the InstanceGroup with the UID {uid} to remove its record from {node}"))
}

/// Terminates an instance without a Node, unless it may still join or pods are bound to it. Returns whether it does.
fn remove_without_node(
    input: &RollingUpdateInput,
    member: &NodeInstance,
    decision: &mut RollingUpdateDecision,
) -> bool {
    let age = input.now.duration_since(member.instance.in_service_since.unwrap_or(input.now));
    // Nodes are deleted with their group, so a deletion does not wait for them to join.
    if input.candidates != Candidates::All && age < input.join_timeout {
        decision.waiting_for.extend(waits::for_member(input, member));
        return false;
    }
    let bound = input.drain_view(member).into_iter().flat_map(|view| &view.pods);
    let pods: Vec<_> = bound.filter(|p| !p.is_ignored && !p.is_finished).map(|p| p.pod.clone()).collect();
    if !pods.is_empty() {
        let deadline_passed =
            input.drain_policy.timeout_since.is_some_and(|at| input.drain_policy.is_timed_out(at, input.now));
        if !deadline_passed {
            let wait = format!("pods of {} to be deleted: {}", member.describe(), report::pod_names(&pods));
            decision.waiting_for.push(wait);
            return false;
        }
        decision.abandoned_pods.extend(pods);
    }
    decision.steps.push(terminate_step(input, member));
    true
}

/// Whether removing this member would make too much capacity unavailable. A number of nodes counts as that many nodes of
/// this member's weight. While no capacity is unavailable, one member may always be removed: otherwise an instance that
/// weighs more than the limit could never be replaced.
fn exceeds_max_unavailable(input: &RollingUpdateInput, unavailable: usize, member: &NodeInstance) -> bool {
    let limit = input.max_unavailable * if input.max_unavailable_in_weight { 1 } else { member.weight() };
    unavailable > 0 && unavailable + member.weight() > limit
}
