//! Decides the next action for one node that is being drained.

use jiff::{SignedDuration, Timestamp};

use super::members::{DisruptionRecord, DrainView, HANGS_AFTER, NodeInstance, PodView};
use crate::api::rfc3339;
use crate::plan::{NodeStep, PodRef};
use crate::util::duration::later;

/// Timeouts of a drain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DrainPolicy {
    /// How long a drain may take; `None` waits without limit.
    pub timeout: Option<SignedDuration>,
    /// Since when `timeout` counts; `None`: since each node's disruption record.
    pub timeout_since: Option<Timestamp>,
    /// What happens when the drain takes longer.
    pub at_timeout: AtTimeout,
    /// Whether termination decrements the desired capacity. An instance in standby does not count in it.
    pub decrement_desired: bool,
    /// After how long without a report the kubelet counts as dead.
    pub dead_kubelet_after: SignedDuration,
    /// How long to wait for volumes to be detached.
    pub volume_detach_timeout: SignedDuration,
    /// How long a termination that lowers the desired capacity is not repeated.
    pub decrement_interval: SignedDuration,
}

impl DrainPolicy {
    /// Whether a drain that began at `since` has run into its timeout.
    pub(crate) fn is_timed_out(&self, since: Timestamp, now: Timestamp) -> bool {
        let since = self.timeout_since.unwrap_or(since);
        self.timeout.is_some_and(|timeout| now.duration_since(since) >= timeout)
    }

    /// Since when a drain lasts, and until when it may. Times are absolute, so that a wait costs no writes.
    fn limit_text(&self, since: Timestamp) -> String {
        let begun = rfc3339(since);
        match self.timeout {
            Some(timeout) => {
                let until = rfc3339(later(self.timeout_since.unwrap_or(since), timeout));
                format!("draining since {begun}, until {until} at most")
            }
            None => format!("draining since {begun}, without a limit, because drainTimeout is not set"),
        }
    }
}

/// What happens to a drain that runs into its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtTimeout {
    /// Uncordon the node (`drainForce: false`).
    Uncordon,
    /// Delete the remaining pods with their grace period (`drainForce: true`).
    Delete,
    /// Terminate the instance although pods remain (deletion of the group).
    Terminate,
}

/// The next action of a drain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DrainAction {
    /// Evict these pods; the other pods are terminating.
    Evict(Vec<NodeStep>),
    /// Wait for pods or volumes; a phrase that follows "waiting for".
    Wait(String),
    /// At the timeout: delete these pods with their grace period.
    ForceDelete(Vec<NodeStep>),
    /// At the timeout, when pods may not be deleted: uncordon the node. Holds the remaining pods.
    Uncordon(Vec<PodRef>),
    /// At the timeout of a deletion: terminate although these pods remain.
    TerminateWithPods(Vec<PodRef>),
    /// No pod and no volume is left: terminate.
    Terminate,
}

/// How many pods a message names.
const MAX_NAMES: usize = 3;

/// The longest wait for pods on a dead kubelet.
const MAX_DEAD_KUBELET_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// Decides the next action for one node that carries this group's disruption record.
pub(crate) fn next_drain_action(
    member: &NodeInstance,
    record: &DisruptionRecord,
    view: &DrainView,
    policy: &DrainPolicy,
    now: Timestamp,
) -> DrainAction {
    let node = member.node.as_ref().map(|n| n.name.clone()).unwrap_or_default();
    let remaining: Vec<_> = view.pods.iter().filter(|p| !p.is_left_by_drain()).collect();
    let elapsed = now.duration_since(record.since);
    if remaining.is_empty() {
        return wait_for_volumes(&node, view, policy, now);
    }
    if is_kubelet_dead(member, view, policy, elapsed, now) {
        return DrainAction::Terminate;
    }
    let evictable: Vec<_> = remaining.iter().copied().filter(|p| !p.is_terminating).collect();
    if policy.is_timed_out(record.since, now) && policy.timeout.is_some_and(|limit| view.is_clock_steady_for(limit)) {
        let pods = || remaining.iter().map(|p| p.pod.clone());
        return match (policy.at_timeout, evictable.is_empty()) {
            (AtTimeout::Uncordon, _) => DrainAction::Uncordon(pods().collect()),
            (AtTimeout::Terminate, _) => DrainAction::TerminateWithPods(pods().collect()),
            (AtTimeout::Delete, false) => DrainAction::ForceDelete(
                evictable.iter().map(|p| NodeStep::ForceDelete { node: node.clone(), pod: p.pod.clone() }).collect(),
            ),
            // Their kubelet reports, and does not end them.
            (AtTimeout::Delete, true)
                if remaining.iter().all(|p| p.outlives_grace_period(now)) && view.is_clock_steady_for(HANGS_AFTER) =>
            {
                DrainAction::TerminateWithPods(pods().collect())
            }
            (AtTimeout::Delete, true) => {
                DrainAction::Wait(format!("{} on {node} to terminate", first_pod_names(&remaining)))
            }
        };
    }
    let limit = policy.limit_text(record.since);
    if evictable.is_empty() {
        return DrainAction::Wait(format!("{} on {node} to terminate ({limit})", first_pod_names(&remaining)));
    }
    // A clock that was set back since ends the wait, which would be as long as it was set back.
    if view.last_blocked_eviction.is_some_and(|(at, times)| at <= now && now < at + eviction_backoff(times)) {
        let pods = first_pod_names(&evictable);
        return DrainAction::Wait(format!("the eviction of {pods} on {node} to be allowed ({limit})"));
    }
    DrainAction::Evict(
        evictable
            .iter()
            .map(|p| NodeStep::Evict { node: node.clone(), pod: p.pod.clone(), is_unmanaged: p.is_unmanaged })
            .collect(),
    )
}

/// The first pods by name, and how many others there are.
fn first_pod_names(pods: &[&PodView]) -> String {
    let names = pods.iter().take(MAX_NAMES).map(|p| format!("{}/{}", p.pod.namespace, p.pod.name));
    let others = pods.len().saturating_sub(MAX_NAMES);
    let others = (others > 0).then(|| format!("{others} other pods"));
    names.chain(others).collect::<Vec<_>>().join(", ")
}

/// A blocked eviction is retried after 2, 4, 8, ... at most 30 seconds.
pub(crate) fn eviction_backoff(times: u32) -> SignedDuration {
    SignedDuration::from_secs(1i64.checked_shl(times.min(5)).unwrap_or(30).min(30))
}

fn wait_for_volumes(node: &str, view: &DrainView, policy: &DrainPolicy, now: Timestamp) -> DrainAction {
    let waited = view.empty_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
    let limit = policy.volume_detach_timeout;
    if view.attached_volumes.is_empty() || (waited >= limit && view.is_clock_steady_for(limit)) {
        DrainAction::Terminate
    } else {
        let until = view.empty_since.map(|since| format!(" (until {} at most)", rfc3339(later(since, limit))));
        let (until, volumes) = (until.unwrap_or_default(), view.attached_volumes.join(", "));
        DrainAction::Wait(format!("the volumes of {node} to be detached{until}: {volumes}"))
    }
}

/// Whether the kubelet is dead and the pods' grace period is over: their eviction cannot complete anymore. A kubelet that
/// reports that its node is not ready still ends pods, so such a node is drained like any other.
fn is_kubelet_dead(
    member: &NodeInstance,
    view: &DrainView,
    policy: &DrainPolicy,
    elapsed: SignedDuration,
    now: Timestamp,
) -> bool {
    let grace = view.pods.iter().map(|p| p.grace_seconds).max().unwrap_or(0);
    let grace = SignedDuration::from_secs(grace.max(0)).min(MAX_DEAD_KUBELET_GRACE);
    let is_over = |silent: SignedDuration| silent >= policy.dead_kubelet_after;
    view.is_clock_steady_for(policy.dead_kubelet_after)
        && member.silent_for(now).is_some_and(is_over)
        && elapsed >= grace
}
