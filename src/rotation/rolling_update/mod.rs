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

use super::drain::{self, DrainPolicy, Next};
use super::members::{Drains, Fleet, Member};
use crate::aws::InstanceState;
use crate::plan::{NodeStep, PodRef, Reason};

/// Everything that a decision depends on.
pub struct Input<'a> {
    /// The scaling group's name.
    pub group: &'a str,
    /// The InstanceGroup's UID, as it stands in records.
    pub uid: &'a str,
    /// The version that the group is pinned to.
    pub version: &'a str,
    /// All instances.
    pub members: &'a [Member],
    /// How many there should be, in units of weight.
    pub desired: usize,
    /// How many nodes may be unavailable at once, resolved.
    pub max_unavailable: usize,
    /// `max_unavailable` was a share of desired: it is in units of weight.
    pub in_units: bool,
    /// How many healthy nodes may stand by at once while their replacements come; 0 drains them first.
    pub max_surge: usize,
    /// Who is to go.
    pub victims: Victims,
    /// Who holds the brake, if anyone.
    pub lock: Option<&'a str>,
    /// Why nothing may be cordoned now, if anything.
    pub obstacle: Option<(Reason, String)>,
    /// The condition RotationHalted stood for the wanted version already.
    pub was_halted: bool,
    /// How long a replacement may take from InService to Ready.
    pub join_timeout: SignedDuration,
    /// How long a replacement must have been Ready before a healthy node goes.
    pub settle: SignedDuration,
    /// How a drain behaves.
    pub drain: DrainPolicy,
    /// What is on the nodes that carry our record.
    pub drains: &'a Drains,
    /// All nodes of the cluster.
    pub fleet: Fleet,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Who is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// Those that are outdated, to be replaced.
    Outdated,
    /// So many units of weight, for good; and who stands by, whose replacement was asked for before.
    Surplus(usize),
    /// All, for good.
    All,
}

/// What is to be done now, and how it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// In order.
    pub steps: Vec<NodeStep>,
    /// Where the rotation stands.
    pub stand: Stand,
    /// What it waits for, in words.
    pub waiting: Vec<String>,
    /// A drain waits because a budget refused, and is not asked again yet.
    pub refused: bool,
    /// Drains that ran into their timeout now: the node and what stood on it.
    pub given_up: Vec<(String, Vec<PodRef>)>,
    /// Pods that a deletion did not wait for.
    pub abandoned: Vec<PodRef>,
    /// What victims that several nodes say they are wait for, in words.
    pub contested: Vec<String>,
}

/// Where a rotation stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Stand {
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
const BLINK: SignedDuration = SignedDuration::from_secs(30);

/// Decides the next steps.
pub fn decide(input: &Input) -> Decision {
    let mut victims = victims(input);
    let mut decision = Decision { steps: undo(input, &victims), ..Decision::default() };
    let contested: Vec<_> = victims.extract_if(.., |m| m.contested().is_some()).collect();
    if !contested.is_empty() {
        decision.steps.extend(unmark(contested.iter().copied(), input.uid, "another node has the same providerID"));
        decision.contested = contested.iter().filter_map(|m| m.contested()).collect();
        decision.waiting = decision.contested.clone();
        decision.stand = Stand::Going;
    }
    if victims.is_empty() {
        return decision;
    }
    decision.stand = match hold(input, &victims) {
        Some(stand) => {
            decision.steps = match &stand {
                Stand::Resting(_) => decision.steps,
                _ => give_back(input, &stand),
            };
            stand
        }
        None => Stand::Going,
    };
    if decision.stand == Stand::Going {
        let gone = go_on(input, &victims, &mut decision);
        begin(input, &victims, gone, &mut decision);
    }
    decision
}

fn victims<'a>(input: &'a Input) -> Vec<&'a Member> {
    let going = |m: &&Member| m.instance.state == InstanceState::InService;
    // Who stands by has been replaced, whatever is wanted by now.
    let leaving = |m: &&Member| m.standing_by(input.uid) || (going(m) && !m.outdated.is_empty());
    match input.victims {
        Victims::All => input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating).collect(),
        Victims::Outdated => ordered(input.members.iter().filter(leaving).collect()),
        Victims::Surplus(n) => {
            let standing_by = input.members.iter().filter(|m| m.standing_by(input.uid));
            let going = ordered(input.members.iter().filter(going).collect());
            surplus(going, n, input.uid).into_iter().chain(standing_by).collect()
        }
    }
}

/// Who is on the way already stays on the way; then the outdated ones, and from the fullest zone, so that AWS finds
/// nothing to rebalance by taking nodes undrained.
fn surplus<'a>(mut left: Vec<&'a Member>, n: usize, uid: &str) -> Vec<&'a Member> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &left {
        *zones.entry(member.instance.zone.as_str()).or_default() += 1;
    }
    let mut gone = Vec::new();
    let mut rest = n;
    loop {
        // One that weighs more than what is surplus would leave too little.
        left.retain(|m| m.weight() <= rest);
        let rank = |m: &Member| {
            (m.mark(uid).is_none(), m.outdated.is_empty(), m.available(), Reverse(zones[m.instance.zone.as_str()]))
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
fn ordered(mut members: Vec<&Member>) -> Vec<&Member> {
    members.sort_by_key(|m| (m.available(), m.node.as_ref().map(|n| n.created), m.instance.id.clone()));
    let mut taken: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    let mut turns: Vec<_> = (members.into_iter())
        .map(|m| {
            let turn = taken.entry((m.available(), m.instance.zone.as_str())).or_default();
            *turn += 1;
            (m.available(), *turn, m)
        })
        .collect();
    turns.sort_by_key(|(available, turn, _)| (*available, *turn));
    turns.into_iter().map(|(_, _, m)| m).collect()
}

/// Marked nodes that are no longer to go get their life back.
fn undo(input: &Input, victims: &[&Member]) -> Vec<NodeStep> {
    let going: BTreeSet<_> = victims.iter().map(|m| m.instance.id.as_str()).collect();
    let leaving = |m: &Member| m.instance.state == InstanceState::Terminating;
    let stay = || input.members.iter().filter(|m| !going.contains(m.instance.id.as_str()) && !leaving(m));
    let mut steps = unmark(stay(), input.uid, "no longer to be replaced");
    steps.extend(super::rolling_update::surge::undo(input, stay()));
    steps
}

fn unmark<'a>(members: impl Iterator<Item = &'a Member>, uid: &str, why: &str) -> Vec<NodeStep> {
    members
        .filter(|m| m.mark(uid).is_some())
        .filter_map(|m| Some(NodeStep::UnmarkNode { node: m.node.as_ref()?.name.clone(), why: why.into() }))
        .collect()
}

/// What stops everything, if anything does.
fn hold(input: &Input, victims: &[&Member]) -> Option<Stand> {
    if input.victims != Victims::All {
        if let Some(lock) = input.lock {
            return Some(Stand::Locked(lock.into()));
        }
        if let Some((reason, message)) = &input.obstacle {
            return Some(Stand::Obstacle(*reason, message.clone()));
        }
        if let Some(message) = unhealthy(input) {
            return Some(Stand::Unhealthy(message));
        }
    }
    if input.victims == Victims::Outdated
        && let Some(message) = halted(input)
    {
        return Some(Stand::Halted(message));
    }
    victims.iter().all(|m| resting(input, m)).then(|| Stand::Resting("every drain ran into its drainTimeout".into()))
}

/// Its drain ran into its timeout and is not tried again yet.
pub(super) fn resting(input: &Input, member: &Member) -> bool {
    view(input, member).is_some_and(|v| v.resting_until.is_some_and(|t| input.now < t))
}

fn view<'a>(input: &'a Input, member: &Member) -> Option<&'a super::DrainView> {
    input.drains.get(&member.node.as_ref()?.name)
}

/// A brake, an obstacle or a halt gives drained nodes back; an unhealthy
/// cluster keeps its records, for giving back is a change too.
fn give_back(input: &Input, stand: &Stand) -> Vec<NodeStep> {
    let why = match stand {
        Stand::Locked(_) => "locked",
        Stand::Halted(_) => "the rotation is halted",
        Stand::Obstacle(..) => "the rotation is blocked",
        Stand::Idle | Stand::Going | Stand::Unhealthy(_) | Stand::Resting(_) => return Vec::new(),
    };
    unmark(input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating), input.uid, why)
}

fn unhealthy(input: &Input) -> Option<String> {
    let Fleet { known, not_ready } = input.fleet;
    let own = input.members.iter().filter(|m| m.node.as_ref().is_some_and(|n| n.lost())).count();
    let joined = input.members.iter().filter(|m| m.node.is_some()).count();
    if input.fleet.unhealthy() {
        return Some(format!(
            "{not_ready} of {known} nodes of the cluster are not ready at once; nothing is terminated until they are fewer"
        ));
    }
    (own * 2 > joined && own > input.max_unavailable).then(|| {
        format!(
            "{own} of {joined} nodes of this group are not ready at once; nothing is terminated until they are fewer"
        )
    })
}

/// Replacements that did not become Ready, or became Ready and died.
fn halted(input: &Input) -> Option<String> {
    let replacements: Vec<_> = input
        .members
        .iter()
        .filter(|m| m.outdated.is_empty() && m.instance.state == InstanceState::InService)
        .collect();
    let failed: Vec<_> = replacements.iter().filter(|m| failed(input, m)).map(|m| told(m)).collect();
    if !failed.is_empty() {
        return Some(format!(
            "{} of template version {} did not become Ready within {}",
            failed.join(", "),
            input.version,
            crate::util::duration::text(input.join_timeout)
        ));
    }
    let recovering = input.was_halted && !replacements.iter().all(|m| m.ready());
    recovering
        .then(|| format!("replacements of template version {} have failed and are not all Ready again", input.version))
}

/// Not Ready in time, or Ready and lost within that time. A node that was lost later is no verdict on its version.
fn failed(input: &Input, member: &Member) -> bool {
    if member.ready() {
        return false;
    }
    let seen = member.instance.in_service_since.unwrap_or(input.now);
    let lost = member.node.as_ref().filter(|n| n.lost()).and_then(|n| Some((n.created, n.ready_since?)));
    let Some((created, lost)) = lost else {
        return input.now.duration_since(seen) >= input.join_timeout;
    };
    // This process may have seen the instance only after it was lost.
    let began = if seen <= lost { seen } else { created };
    lost.duration_since(began) < input.join_timeout && input.now.duration_since(lost) >= input.join_timeout.min(BLINK)
}

pub(super) fn told(member: &Member) -> String {
    match &member.node {
        Some(node) => format!("{} ({})", member.instance.id, node.name),
        None => format!("{} (never joined)", member.instance.id),
    }
}

/// Takes the drains under way one step further; tells which instances leave now.
fn go_on(input: &Input, victims: &[&Member], decision: &mut Decision) -> usize {
    let mut leaving = 0;
    for member in victims {
        let Some(mark) = member.mark(input.uid) else { continue };
        // Not looked at yet: unknown is not empty.
        let Some(view) = view(input, member) else {
            decision.waiting.push(format!("the pods of {} to be known", told(member)));
            continue;
        };
        let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
        match drain::next(member, mark, view, &input.drain, input.now) {
            Next::Evict(steps) | Next::Force(steps) => {
                decision.waiting.push(format!("{node} to be drained"));
                decision.steps.extend(steps);
            }
            Next::Wait(what) => {
                decision.refused |=
                    view.refused.is_some() && view.pods.iter().any(|p| !p.stays && !p.finished && !p.terminating);
                decision.waiting.push(what);
            }
            Next::GiveUp(pods) => {
                decision.steps.push(NodeStep::UnmarkNode {
                    node: node.clone(),
                    why: "the drain took longer than drainTimeout".into(),
                });
                decision.given_up.push((node, pods));
            }
            Next::Abandon(pods) => {
                decision.abandoned.extend(pods);
                decision.steps.push(terminate(input, member));
                leaving += 1;
            }
            Next::Terminate => {
                decision.steps.push(terminate(input, member));
                leaving += 1;
            }
        }
    }
    leaving
}

fn terminate(input: &Input, member: &Member) -> NodeStep {
    NodeStep::Terminate {
        group: input.group.into(),
        instance: member.instance.id.clone(),
        node: member.node.as_ref().map(|n| n.name.clone()),
        // Who stands by counts for nothing in desired: less of that would take another one.
        decrement: input.drain.decrement && member.instance.state != InstanceState::Standby,
    }
}

/// Takes the next victims, as many as may be unavailable.
fn begin(input: &Input, victims: &[&Member], mut leaving: usize, decision: &mut Decision) {
    let settling = |m: &&Member| m.outdated.is_empty() && m.ready_for(input.now).is_some_and(|d| d < input.settle);
    let settled = |m: &&Member| m.available() && !(input.victims == Victims::Outdated && settling(m));
    let available: usize = input.members.iter().filter(settled).map(Member::weight).sum();
    let mut unavailable = input.desired.saturating_sub(available);
    let surged = |m: &Member| m.standing_by(input.uid) || (m.surged(input.uid) && m.available());
    let terminating = input.members.iter().filter(|m| m.instance.state == InstanceState::Terminating);
    let marked = victims.iter().copied().filter(|m| m.mark(input.uid).is_some() && !surged(m));
    let (mut flying, mut in_flight) =
        terminating.chain(marked).fold((0, 0), |(nodes, units), m| (nodes + 1, units + m.weight()));
    let all = input.victims == Victims::All;
    let replaced = input.victims == Victims::Outdated;
    let mut surge = if all { 0 } else { super::rolling_update::surge::go_on(input, victims, unavailable, decision) };
    let waits = |m: &Member| !all && (m.standing_by(input.uid) || (replaced && surged(m)));
    for member in victims.iter().filter(|m| m.mark(input.uid).is_none() && !waits(m)) {
        let healthy = member.available();
        if healthy && replaced && input.max_surge > 0 {
            let free = member.node.as_ref().is_some_and(|n| n.disruption.is_none() && n.surge.is_none());
            if surge < input.max_surge && free && !resting(input, member) {
                decision.steps.extend(super::rolling_update::surge::begin(input, member));
                surge += 1;
            }
            continue;
        }
        let crowded = !input.in_units && flying >= input.max_unavailable;
        if !all
            && (crowded || full(input, in_flight, member) || (healthy && replaced && full(input, unavailable, member)))
        {
            let wait = format!(
                "at most {} unavailable at once: {unavailable} of {} are, or have only just become Ready",
                input.max_unavailable, input.desired
            );
            if decision.waiting.is_empty() && leaving == 0 {
                decision.waiting.push(wait);
            }
            break;
        }
        if resting(input, member) || member.node.as_ref().is_some_and(|n| n.disruption.is_some()) {
            continue;
        }
        match mark(input, member) {
            Some(step) => decision.steps.push(step),
            None => {
                decision.steps.push(terminate(input, member));
                leaving += 1;
            }
        }
        flying += 1;
        in_flight += member.weight();
        unavailable += if healthy { member.weight() } else { 0 };
    }
}

/// Cordon and record, for an instance that has a node.
pub(super) fn mark(input: &Input, member: &Member) -> Option<NodeStep> {
    let node = member.node.as_ref()?;
    Some(NodeStep::MarkNode {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        instance: member.instance.id.clone(),
        template_version: input.version.into(),
        cordoned: node.cordoned,
    })
}

/// Whether one more would be too many. A number of nodes is so many of this one's weight; and while nothing is missing
/// one may always go, for otherwise a heavy one never could.
fn full(input: &Input, missing: usize, member: &Member) -> bool {
    let room = input.max_unavailable * if input.in_units { 1 } else { member.weight() };
    missing > 0 && missing + member.weight() > room
}
