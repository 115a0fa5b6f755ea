//! Why a whole rotation makes no progress.

use jiff::SignedDuration;

use crate::api::rfc3339;
use crate::aws::InstanceState;
use crate::rotation::drain;
use crate::rotation::members::{ClusterHealth, NodeInstance};
use crate::rotation::node_health;
use crate::rotation::rolling_update::types::{Candidates, RollingUpdateInput, RotationState, WarmPoolRotation};

/// A node that is not ready for less than this may be flapping, so its rotation is not halted.
const FLAP_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// Why the whole rotation makes no progress, if that is the case.
pub(super) fn blocker(input: &RollingUpdateInput, candidates: &[&NodeInstance]) -> Option<RotationState> {
    // A deletion uncordons no node, so nothing blocks it, not even a drain that a rotation would retry later.
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
        "each node to be replaced was drained for longer than drainTimeout ({remedy}), or was uncordoned by another client (set lock-upgrades to keep it); drained again: {}",
        first_texts(candidates.iter().filter_map(retry).collect()).join(", ")
    )
}

/// How many nodes a message names.
const NAMED_NODES: usize = 3;

/// The first texts, and how many others there are: a remedy that follows must not be cut off.
fn first_texts(mut texts: Vec<String>) -> Vec<String> {
    let others = texts.len().saturating_sub(NAMED_NODES);
    if others > 0 {
        texts.truncate(NAMED_NODES);
        texts.push(format!("{others} others"));
    }
    texts
}

fn unhealthy_message(input: &RollingUpdateInput) -> Option<String> {
    let ClusterHealth { total, unready } = input.cluster_health;
    let unready_members: Vec<_> =
        input.members.iter().filter(|m| m.node.as_ref().is_some_and(|n| n.has_become_unready())).collect();
    let own = unready_members.len();
    let joined = input.members.iter().filter(|m| m.node.is_some()).count();
    if input.cluster_health.is_unhealthy() {
        return Some(format!(
            "{unready} of {total} nodes of the cluster are not ready (limit: 30 %); check the API server, the network and the kubelets; no node is terminated until more nodes are ready"
        ));
    }
    (own * 2 > joined && own > input.max_unavailable).then(|| {
        let some: Vec<_> = unready_members.iter().take(NAMED_NODES).map(|m| node_health::describe(m)).collect();
        let more = if own > NAMED_NODES { ", ..." } else { "" };
        format!(
            "{own} of {joined} nodes of this group are not ready ({}{more}); no node is terminated until more nodes are ready; if they cannot become ready, let the rotation replace them: set spec.strategy.rollingUpdate.maxUnavailable to {own}",
            some.join(", ")
        )
    })
}

/// Why the rotation is halted, and what to do: the warm pool, from which replacements come, is stuck, or replacements
/// failed.
fn halt_message(input: &RollingUpdateInput) -> Option<String> {
    if let WarmPoolRotation::Halted(message) = &input.warm_pool {
        return Some(message.clone());
    }
    let failure = replacement_failure(input)?;
    Some(format!(
        "{failure}; the old nodes are kept; fix the image, user data or role that the replacements launch from, and the rotation resumes"
    ))
}

/// How replacements failed: they did not become Ready, or did not stay so.
fn replacement_failure(input: &RollingUpdateInput) -> Option<String> {
    let replacements: Vec<_> =
        input.members.iter().filter(|m| m.reasons.is_empty() && m.instance.state == InstanceState::InService).collect();
    let failed: Vec<_> =
        replacements.iter().filter(|m| failed_to_become_ready(input, m)).map(|m| node_health::describe(m)).collect();
    let failed = first_texts(failed);
    if !failed.is_empty() {
        return Some(format!(
            "replacements of template version {} did not become Ready within {}, or did not stay so: {}",
            input.template_version,
            crate::util::duration::format(input.join_timeout),
            failed.join("; ")
        ));
    }
    if let Some(gone) = &input.failed_replacements {
        return Some(format!("replacements of template version {} {gone}", input.template_version));
    }
    let recovering: Vec<_> = replacements
        .iter()
        .filter(|m| !m.is_ready() && !stayed_ready(input, m))
        .map(|m| node_health::describe(m))
        .collect();
    (input.was_halted && !recovering.is_empty()).then(|| {
        format!(
            "replacements of template version {} failed, and not all of them are Ready yet: {}",
            input.template_version,
            first_texts(recovering).join("; ")
        )
    })
}

/// Whether the node did not become Ready within the join timeout, or stopped being Ready within it. A node that fails
/// later does not count against its template version.
fn failed_to_become_ready(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    if member.is_ready() {
        return false;
    }
    let Some((started, lost)) = member.loss(input.now) else {
        let in_service_since = member.instance.in_service_since.unwrap_or(input.now);
        return input.now.duration_since(in_service_since) >= input.join_timeout;
    };
    lost.duration_since(started) < input.join_timeout
        && input.now.duration_since(lost) >= input.join_timeout.min(FLAP_TOLERANCE)
}

/// Whether the node stayed Ready for the join timeout, and failed later.
fn stayed_ready(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    member.loss(input.now).is_some_and(|(started, lost)| lost.duration_since(started) >= input.join_timeout)
}
