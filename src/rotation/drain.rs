//! What is next for one node that carries our record.

use jiff::{SignedDuration, Timestamp};

use super::members::{DisruptionRecord, DrainView, NodeInstance};
use crate::plan::{NodeStep, PodRef};

/// How a drain behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrainPolicy {
    /// How long it may take; `None` waits.
    pub timeout: Option<SignedDuration>,
    /// What then.
    pub at_timeout: AtTimeout,
    /// Terminate with decrement of the desired size, in which it counts unless it stands by.
    pub decrement_desired: bool,
    /// NotReady for so long means a dead kubelet.
    pub dead_kubelet_after: SignedDuration,
    /// How long attached volumes may hold the node.
    pub volume_detach_timeout: SignedDuration,
}

/// What happens to a drain that takes longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTimeout {
    /// The node is given back (`drainForce: false`).
    GiveUp,
    /// What still stands is deleted with its grace (`drainForce: true`).
    Delete,
    /// The group goes away whatever stands (deletion).
    GoOn,
}

/// What is next.
#[derive(Clone, Debug, PartialEq)]
pub enum DrainAction {
    /// Evict these; the rest is on its way.
    Evict(Vec<NodeStep>),
    /// Wait for pods or volumes.
    Wait(String),
    /// Past its timeout: delete these with grace.
    Force(Vec<NodeStep>),
    /// Past its timeout, and nothing may be forced: give the node back.
    GiveUp(Vec<PodRef>),
    /// Past its timeout in a deletion: terminate although these still stand.
    Abandon(Vec<PodRef>),
    /// Nothing holds the node.
    Terminate,
}

/// The longest that pods on a dead kubelet are waited for.
const MAX_DEAD_KUBELET_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// Decides for one marked node.
pub fn next_drain_action(
    member: &NodeInstance,
    mark: &DisruptionRecord,
    view: &DrainView,
    policy: &DrainPolicy,
    now: Timestamp,
) -> DrainAction {
    let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
    let standing: Vec<_> = view.pods.iter().filter(|p| !p.is_ignored && !p.is_finished).collect();
    let under_way = now.duration_since(mark.since);
    if standing.is_empty() {
        return wait_for_volumes(view, policy, now);
    }
    if is_kubelet_dead(member, view, policy, under_way, now) {
        return DrainAction::Terminate;
    }
    let waiting: Vec<_> = standing.iter().filter(|p| !p.is_terminating).collect();
    if policy.timeout.is_some_and(|t| under_way >= t) {
        let pods = || standing.iter().map(|p| p.pod.clone());
        return match (policy.at_timeout, waiting.is_empty()) {
            (AtTimeout::GiveUp, _) => DrainAction::GiveUp(pods().collect()),
            (AtTimeout::GoOn, _) => DrainAction::Abandon(pods().collect()),
            (AtTimeout::Delete, false) => DrainAction::Force(
                waiting.iter().map(|p| NodeStep::ForceDelete { node: node.clone(), pod: p.pod.clone() }).collect(),
            ),
            (AtTimeout::Delete, true) => DrainAction::Wait(format!("{} pods on {node} to end", standing.len())),
        };
    }
    if waiting.is_empty() {
        return DrainAction::Wait(format!("{} pods on {node} to end", standing.len()));
    }
    if view.last_blocked_eviction.is_some_and(|(at, times)| now < at + eviction_backoff(times)) {
        return DrainAction::Wait(format!("a disruption budget to let pods on {node} go"));
    }
    DrainAction::Evict(
        waiting
            .iter()
            .map(|p| NodeStep::Evict { node: node.clone(), pod: p.pod.clone(), is_unmanaged: p.is_unmanaged })
            .collect(),
    )
}

/// A refused eviction is asked again after 2, 4, 8, ... at most 30 seconds.
pub fn eviction_backoff(times: u32) -> SignedDuration {
    SignedDuration::from_secs(1i64.checked_shl(times.min(5)).unwrap_or(30).min(30))
}

fn wait_for_volumes(view: &DrainView, policy: &DrainPolicy, now: Timestamp) -> DrainAction {
    let waited = view.empty_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
    if view.attached_volumes.is_empty() || waited >= policy.volume_detach_timeout {
        DrainAction::Terminate
    } else {
        DrainAction::Wait(format!("volumes to be detached: {}", view.attached_volumes.join(", ")))
    }
}

/// An eviction cannot complete on a dead kubelet: wait at most the pods' own grace.
fn is_kubelet_dead(
    member: &NodeInstance,
    view: &DrainView,
    policy: &DrainPolicy,
    under_way: SignedDuration,
    now: Timestamp,
) -> bool {
    let grace = view.pods.iter().map(|p| p.grace_seconds).max().unwrap_or(0);
    let grace = SignedDuration::from_secs(grace.max(0)).min(MAX_DEAD_KUBELET_GRACE);
    member.unready_for(now).is_some_and(|silent| silent >= policy.dead_kubelet_after) && under_way >= grace
}
