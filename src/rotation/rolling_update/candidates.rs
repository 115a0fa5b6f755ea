//! Which instances are drained and terminated, and in which order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::aws::InstanceState;
use crate::rotation::members::NodeInstance;
use crate::rotation::rolling_update::standby_entry::may_be_in_standby;
use crate::rotation::rolling_update::types::{Candidates, RollingUpdateInput};

pub(super) fn select_candidates<'a>(input: &'a RollingUpdateInput) -> Vec<&'a NodeInstance> {
    let in_service = |m: &&NodeInstance| m.instance.state == InstanceState::InService;
    // An instance in standby has a replacement already, even if the desired state has changed since.
    let outdated = |m: &&NodeInstance| m.is_in_standby(input.group_uid) || (in_service(m) && !m.reasons.is_empty());
    match input.candidates {
        Candidates::All => order_for_deletion(input),
        Candidates::Outdated => order_candidates(input.members.iter().filter(outdated).collect()),
        Candidates::Surplus(n) => {
            let standby = input.members.iter().filter(|m| m.is_in_standby(input.group_uid));
            let counts = |m: &&NodeInstance| m.disruption_of(input.group_uid).is_some() || !may_be_in_standby(input, m);
            let counted = input.members.iter().filter(in_service).filter(counts);
            let in_service = order_candidates(counted.collect());
            select_surplus(input, in_service, n).into_iter().chain(standby).collect()
        }
    }
}

/// All instances. Those that are being launched come last, because AWS may refuse to terminate them.
fn order_for_deletion<'a>(input: &'a RollingUpdateInput) -> Vec<&'a NodeInstance> {
    let mut members: Vec<_> = input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating).collect();
    members.sort_by_key(|m| m.instance.state == InstanceState::Pending);
    members
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

/// The class of a candidate, in the order in which they are replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CandidateClass {
    /// It has no node, or its node is not ready.
    Unavailable,
    /// Its pods can be evicted, as far as it is known.
    Available,
    /// Pods will block its drain.
    DrainBlocked,
}

impl CandidateClass {
    fn of(member: &NodeInstance) -> Self {
        if !member.is_available() {
            Self::Unavailable
        } else if member.node.as_ref().is_some_and(|node| node.drain_last) {
            Self::DrainBlocked
        } else {
            Self::Available
        }
    }
}

/// Orders candidates by their class. Within each class the oldest come first, round-robin over the zones.
fn order_candidates(mut members: Vec<&NodeInstance>) -> Vec<&NodeInstance> {
    members.sort_by_key(|m| (CandidateClass::of(m), m.node.as_ref().map(|n| n.created_at), m.instance.id.clone()));
    let mut rounds: BTreeMap<(CandidateClass, &str), usize> = BTreeMap::new();
    let mut ranked: Vec<_> = (members.into_iter())
        .map(|m| {
            let round = rounds.entry((CandidateClass::of(m), m.instance.zone.as_str())).or_default();
            *round += 1;
            (CandidateClass::of(m), *round, m)
        })
        .collect();
    ranked.sort_by_key(|(class, round, _)| (*class, *round));
    ranked.into_iter().map(|(_, _, m)| m).collect()
}
