//! The strategy `rollingUpdate`: from what there is and what may be
//! unavailable to the next batch.
//!
//! Three kinds of victims share one corridor: outdated instances, surplus ones
//! when the largest size is lowered, and all of them when the group goes away.

pub mod report;
pub mod settings;
pub mod surge;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::drain::{self, DrainAction, DrainPolicy};
use super::members::{ClusterHealth, Drains, NodeInstance};
use crate::aws::InstanceState;
use crate::plan::{NodeStep, PodRef, Reason};

/// Everything that a decision depends on.
pub struct RollingUpdateInput<'a> {
    /// The scaling group's name.
    pub scaling_group: &'a str,
    /// The InstanceGroup's UID, as it stands in records.
    pub group_uid: &'a str,
    /// The version that the group is pinned to.
    pub template_version: &'a str,
    /// All instances.
    pub members: &'a [NodeInstance],
    /// How many there should be, in units of weight.
    pub desired: usize,
    /// How many nodes may be unavailable at once, resolved.
    pub max_unavailable: usize,
    /// `max_unavailable` was a share of desired: it is in units of weight.
    pub max_unavailable_in_weight: bool,
    /// How many healthy nodes may stand by at once while their replacements come; 0 drains them first.
    pub max_surge: usize,
    /// Who is to go.
    pub candidates: Candidates,
    /// Who holds the brake, if anyone.
    pub lock: Option<&'a str>,
    /// Why nothing may be cordoned now, if anything.
    pub precondition: Option<(Reason, String)>,
    /// The condition RotationHalted stood for the wanted version already.
    pub was_halted: bool,
    /// How long a replacement may take from InService to Ready.
    pub join_timeout: SignedDuration,
    /// How long a replacement must have been Ready before a healthy node goes.
    pub ready_hold: SignedDuration,
    /// How a drain behaves.
    pub drain_policy: DrainPolicy,
    /// What is on the nodes that carry our record.
    pub drains: &'a Drains,
    /// All nodes of the cluster.
    pub cluster_health: ClusterHealth,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Who is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// Those that are outdated, to be replaced.
    Outdated,
    /// So many units of weight, for good; and who stands by, whose replacement was asked for before.
    Surplus(usize),
    /// All, for good.
    All,
}

/// What is to be done now, and how it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RollingUpdateDecision {
    /// In order.
    pub steps: Vec<NodeStep>,
    /// Where the rotation stands.
    pub state: RotationState,
    /// What it waits for, in words.
    pub waiting_for: Vec<String>,
    /// A drain waits because a budget refused, and is not asked again yet.
    pub eviction_blocked: bool,
    /// Drains that ran into their timeout now: the node and what stood on it.
    pub timed_out_drains: Vec<(String, Vec<PodRef>)>,
    /// Pods that a deletion did not wait for.
    pub abandoned_pods: Vec<PodRef>,
    /// What victims that several nodes say they are wait for, in words.
    pub duplicate_provider_ids: Vec<String>,
}

/// Where a rotation stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RotationState {
    /// Nobody is to go.
    #[default]
    Idle,
    /// Under way.
    Going,
    /// The brake is pulled.
    Locked(String),
    /// Nothing may be cordoned.
    Obstacle(Reason, String),
    /// Replacements did not become Ready.
    Halted(String),
    /// Too many nodes are not ready at once.
    Unhealthy(String),
    /// Every victim's drain ran into its timeout.
    Resting(String),
}

/// A replacement that is lost for less than this may only have blinked.
const FLAP_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// Decides the next steps.
pub fn decide(input: &RollingUpdateInput) -> RollingUpdateDecision {
    let mut victims = select_candidates(input);
    let mut decision = RollingUpdateDecision { steps: revert(input, &victims), ..RollingUpdateDecision::default() };
    let contested: Vec<_> = victims.extract_if(.., |m| m.duplicate_provider_id().is_some()).collect();
    if !contested.is_empty() {
        decision.steps.extend(uncordon_steps(
            contested.iter().copied(),
            input.group_uid,
            "another node has the same providerID",
        ));
        decision.duplicate_provider_ids = contested.iter().filter_map(|m| m.duplicate_provider_id()).collect();
        decision.waiting_for = decision.duplicate_provider_ids.clone();
        decision.state = RotationState::Going;
    }
    if victims.is_empty() {
        return decision;
    }
    decision.state = match blocker(input, &victims) {
        Some(stand) => {
            decision.steps = match &stand {
                RotationState::Resting(_) => decision.steps,
                _ => uncordon_all(input, &stand),
            };
            stand
        }
        None => RotationState::Going,
    };
    if decision.state == RotationState::Going {
        let gone = continue_drains(input, &victims, &mut decision);
        start_batch(input, &victims, gone, &mut decision);
    }
    decision
}

fn select_candidates<'a>(input: &'a RollingUpdateInput) -> Vec<&'a NodeInstance> {
    let going = |m: &&NodeInstance| m.instance.state == InstanceState::InService;
    // Who stands by has been replaced, whatever is wanted by now.
    let leaving = |m: &&NodeInstance| m.is_in_standby(input.group_uid) || (going(m) && !m.reasons.is_empty());
    match input.candidates {
        Candidates::All => input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating).collect(),
        Candidates::Outdated => order_candidates(input.members.iter().filter(leaving).collect()),
        Candidates::Surplus(n) => {
            let standing_by = input.members.iter().filter(|m| m.is_in_standby(input.group_uid));
            let going = order_candidates(input.members.iter().filter(going).collect());
            select_surplus(going, n, input.group_uid).into_iter().chain(standing_by).collect()
        }
    }
}

/// Who is on the way already stays on the way; then the outdated ones, and from the fullest zone, so that AWS finds
/// nothing to rebalance by taking nodes undrained.
fn select_surplus<'a>(mut left: Vec<&'a NodeInstance>, n: usize, uid: &str) -> Vec<&'a NodeInstance> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &left {
        *zones.entry(member.instance.zone.as_str()).or_default() += 1;
    }
    let mut gone = Vec::new();
    let mut rest = n;
    loop {
        // One that weighs more than what is surplus would leave too little.
        left.retain(|m| m.weight() <= rest);
        let rank = |m: &NodeInstance| {
            (
                m.disruption_of(uid).is_none(),
                m.reasons.is_empty(),
                m.is_available(),
                Reverse(zones[m.instance.zone.as_str()]),
            )
        };
        let Some(at) = (0..left.len()).min_by_key(|at| rank(left[*at])) else { break };
        let member = left.remove(at);
        zones.entry(member.instance.zone.as_str()).and_modify(|count| *count -= 1);
        rest -= member.weight();
        gone.push(member);
    }
    gone
}

/// Never joined and unhealthy first, then the oldest, taking zones in turn.
fn order_candidates(mut members: Vec<&NodeInstance>) -> Vec<&NodeInstance> {
    members.sort_by_key(|m| (m.is_available(), m.node.as_ref().map(|n| n.created_at), m.instance.id.clone()));
    let mut taken: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    let mut turns: Vec<_> = (members.into_iter())
        .map(|m| {
            let turn = taken.entry((m.is_available(), m.instance.zone.as_str())).or_default();
            *turn += 1;
            (m.is_available(), *turn, m)
        })
        .collect();
    turns.sort_by_key(|(available, turn, _)| (*available, *turn));
    turns.into_iter().map(|(_, _, m)| m).collect()
}

/// Marked nodes that are no longer to go get their life back.
fn revert(input: &RollingUpdateInput, victims: &[&NodeInstance]) -> Vec<NodeStep> {
    let going: BTreeSet<_> = victims.iter().map(|m| m.instance.id.as_str()).collect();
    let leaving = |m: &NodeInstance| m.instance.state == InstanceState::Terminating;
    let stay = || input.members.iter().filter(|m| !going.contains(m.instance.id.as_str()) && !leaving(m));
    let mut steps = uncordon_steps(stay(), input.group_uid, "no longer to be replaced");
    steps.extend(super::rolling_update::surge::clear_unused_records(input, stay()));
    steps
}

fn uncordon_steps<'a>(members: impl Iterator<Item = &'a NodeInstance>, uid: &str, why: &str) -> Vec<NodeStep> {
    members
        .filter(|m| m.disruption_of(uid).is_some())
        .filter_map(|m| Some(NodeStep::UncordonNode { node: m.node.as_ref()?.name.clone(), reason: why.into() }))
        .collect()
}

/// What stops everything, if anything does.
fn blocker(input: &RollingUpdateInput, victims: &[&NodeInstance]) -> Option<RotationState> {
    if input.candidates != Candidates::All {
        if let Some(lock) = input.lock {
            return Some(RotationState::Locked(lock.into()));
        }
        if let Some((reason, message)) = &input.precondition {
            return Some(RotationState::Obstacle(*reason, message.clone()));
        }
        if let Some(message) = unhealthy_message(input) {
            return Some(RotationState::Unhealthy(message));
        }
    }
    if input.candidates == Candidates::Outdated
        && let Some(message) = halt_message(input)
    {
        return Some(RotationState::Halted(message));
    }
    victims
        .iter()
        .all(|m| is_in_drain_backoff(input, m))
        .then(|| RotationState::Resting("every drain ran into its drainTimeout".into()))
}

/// Its drain ran into its timeout and is not tried again yet.
pub(super) fn is_in_drain_backoff(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    drain_view(input, member).is_some_and(|v| v.retry_drain_at.is_some_and(|t| input.now < t))
}

fn drain_view<'a>(input: &'a RollingUpdateInput, member: &NodeInstance) -> Option<&'a super::DrainView> {
    input.drains.get(&member.node.as_ref()?.name)
}

/// A brake, an obstacle or a halt gives drained nodes back; an unhealthy
/// cluster keeps its records, for giving back is a change too.
fn uncordon_all(input: &RollingUpdateInput, stand: &RotationState) -> Vec<NodeStep> {
    let why = match stand {
        RotationState::Locked(_) => "locked",
        RotationState::Halted(_) => "the rotation is halted",
        RotationState::Obstacle(..) => "the rotation is blocked",
        RotationState::Idle | RotationState::Going | RotationState::Unhealthy(_) | RotationState::Resting(_) => {
            return Vec::new();
        }
    };
    uncordon_steps(
        input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating),
        input.group_uid,
        why,
    )
}

fn unhealthy_message(input: &RollingUpdateInput) -> Option<String> {
    let ClusterHealth { total, unready } = input.cluster_health;
    let own = input.members.iter().filter(|m| m.node.as_ref().is_some_and(|n| n.has_become_unready())).count();
    let joined = input.members.iter().filter(|m| m.node.is_some()).count();
    if input.cluster_health.is_unhealthy() {
        return Some(format!(
            "{unready} of {total} nodes of the cluster are not ready at once; nothing is terminated until they are fewer"
        ));
    }
    (own * 2 > joined && own > input.max_unavailable).then(|| {
        format!(
            "{own} of {joined} nodes of this group are not ready at once; nothing is terminated until they are fewer"
        )
    })
}

/// Replacements that did not become Ready, or became Ready and died.
fn halt_message(input: &RollingUpdateInput) -> Option<String> {
    let replacements: Vec<_> =
        input.members.iter().filter(|m| m.reasons.is_empty() && m.instance.state == InstanceState::InService).collect();
    let failed: Vec<_> =
        replacements.iter().filter(|m| failed_to_become_ready(input, m)).map(|m| describe_instance(m)).collect();
    if !failed.is_empty() {
        return Some(format!(
            "{} of template version {} did not become Ready within {}",
            failed.join(", "),
            input.template_version,
            crate::util::duration::format(input.join_timeout)
        ));
    }
    let recovering = input.was_halted && !replacements.iter().all(|m| m.is_ready());
    recovering.then(|| {
        format!("replacements of template version {} have failed and are not all Ready again", input.template_version)
    })
}

/// Not Ready in time, or Ready and lost within that time. A node that was lost later is no verdict on its version.
fn failed_to_become_ready(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    if member.is_ready() {
        return false;
    }
    let seen = member.instance.in_service_since.unwrap_or(input.now);
    let lost =
        member.node.as_ref().filter(|n| n.has_become_unready()).and_then(|n| Some((n.created_at, n.ready_changed_at?)));
    let Some((created, lost)) = lost else {
        return input.now.duration_since(seen) >= input.join_timeout;
    };
    // This process may have seen the instance only after it was lost.
    let began = if seen <= lost { seen } else { created };
    lost.duration_since(began) < input.join_timeout
        && input.now.duration_since(lost) >= input.join_timeout.min(FLAP_TOLERANCE)
}

pub(super) fn describe_instance(member: &NodeInstance) -> String {
    match &member.node {
        Some(node) => format!("{} ({})", member.instance.id, node.name),
        None => format!("{} (never joined)", member.instance.id),
    }
}

/// Takes the drains under way one step further; tells which instances leave now.
fn continue_drains(
    input: &RollingUpdateInput,
    victims: &[&NodeInstance],
    decision: &mut RollingUpdateDecision,
) -> usize {
    let mut leaving = 0;
    for member in victims {
        let Some(mark) = member.disruption_of(input.group_uid) else { continue };
        // Not looked at yet: unknown is not empty.
        let Some(view) = drain_view(input, member) else {
            decision.waiting_for.push(format!("the pods of {} to be known", describe_instance(member)));
            continue;
        };
        let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
        match drain::next_drain_action(member, mark, view, &input.drain_policy, input.now) {
            DrainAction::Evict(steps) | DrainAction::Force(steps) => {
                decision.waiting_for.push(format!("{node} to be drained"));
                decision.steps.extend(steps);
            }
            DrainAction::Wait(what) => {
                decision.eviction_blocked |= view.last_blocked_eviction.is_some()
                    && view.pods.iter().any(|p| !p.is_ignored && !p.is_finished && !p.is_terminating);
                decision.waiting_for.push(what);
            }
            DrainAction::GiveUp(pods) => {
                decision.steps.push(NodeStep::UncordonNode {
                    node: node.clone(),
                    reason: "the drain took longer than drainTimeout".into(),
                });
                decision.timed_out_drains.push((node, pods));
            }
            DrainAction::Abandon(pods) => {
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

fn terminate_step(input: &RollingUpdateInput, member: &NodeInstance) -> NodeStep {
    NodeStep::Terminate {
        scaling_group: input.scaling_group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()),
        // Who stands by counts for nothing in desired: less of that would take another one.
        decrement_desired: input.drain_policy.decrement_desired && member.instance.state != InstanceState::Standby,
    }
}

/// Takes the next victims, as many as may be unavailable.
fn start_batch(
    input: &RollingUpdateInput,
    victims: &[&NodeInstance],
    mut leaving: usize,
    decision: &mut RollingUpdateDecision,
) {
    let settling =
        |m: &&NodeInstance| m.reasons.is_empty() && m.ready_for(input.now).is_some_and(|d| d < input.ready_hold);
    let settled = |m: &&NodeInstance| m.is_available() && !(input.candidates == Candidates::Outdated && settling(m));
    let available: usize = input.members.iter().filter(settled).map(NodeInstance::weight).sum();
    let mut unavailable = input.desired.saturating_sub(available);
    let surged = |m: &NodeInstance| {
        m.is_in_standby(input.group_uid) || (m.has_surge_record(input.group_uid) && m.is_available())
    };
    let terminating = input.members.iter().filter(|m| m.instance.state == InstanceState::Terminating);
    let marked = victims.iter().copied().filter(|m| m.disruption_of(input.group_uid).is_some() && !surged(m));
    let (mut flying, mut in_flight) =
        terminating.chain(marked).fold((0, 0), |(nodes, units), m| (nodes + 1, units + m.weight()));
    let all = input.candidates == Candidates::All;
    let replaced = input.candidates == Candidates::Outdated;
    let mut surge =
        if all { 0 } else { super::rolling_update::surge::continue_surge(input, victims, unavailable, decision) };
    let waits = |m: &NodeInstance| !all && (m.is_in_standby(input.group_uid) || (replaced && surged(m)));
    for member in victims.iter().filter(|m| m.disruption_of(input.group_uid).is_none() && !waits(m)) {
        let healthy = member.is_available();
        if healthy && replaced && input.max_surge > 0 {
            let free = member.node.as_ref().is_some_and(|n| n.disruption.is_none() && n.surge.is_none());
            if surge < input.max_surge && free && !is_in_drain_backoff(input, member) {
                decision.steps.extend(super::rolling_update::surge::start_surge(input, member));
                surge += 1;
            }
            continue;
        }
        let crowded = !input.max_unavailable_in_weight && flying >= input.max_unavailable;
        if !all
            && (crowded
                || exceeds_max_unavailable(input, in_flight, member)
                || (healthy && replaced && exceeds_max_unavailable(input, unavailable, member)))
        {
            let wait = format!(
                "at most {} unavailable at once: {unavailable} of {} are, or have only just become Ready",
                input.max_unavailable, input.desired
            );
            if decision.waiting_for.is_empty() && leaving == 0 {
                decision.waiting_for.push(wait);
            }
            break;
        }
        if is_in_drain_backoff(input, member) || member.node.as_ref().is_some_and(|n| n.disruption.is_some()) {
            continue;
        }
        match cordon_step(input, member) {
            Some(step) => decision.steps.push(step),
            None => {
                decision.steps.push(terminate_step(input, member));
                leaving += 1;
            }
        }
        flying += 1;
        in_flight += member.weight();
        unavailable += if healthy { member.weight() } else { 0 };
    }
}

/// Cordon and record, for an instance that has a node.
pub(super) fn cordon_step(input: &RollingUpdateInput, member: &NodeInstance) -> Option<NodeStep> {
    let node = member.node.as_ref()?;
    Some(NodeStep::CordonNode {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        instance: member.instance.id.clone(),
        template_version: input.template_version.into(),
        was_cordoned: node.cordoned,
    })
}

/// Whether one more would be too many. A number of nodes is so many of this one's weight; and while nothing is missing
/// one may always go, for otherwise a heavy one never could.
fn exceeds_max_unavailable(input: &RollingUpdateInput, missing: usize, member: &NodeInstance) -> bool {
    let room = input.max_unavailable * if input.max_unavailable_in_weight { 1 } else { member.weight() };
    missing > 0 && missing + member.weight() > room
}
