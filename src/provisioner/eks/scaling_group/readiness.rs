//! When nothing is to be done: whether every node is there, and if not, why.

use serde_json::json;

use crate::api::CurrentState;
use crate::aws::{InstanceState, ScalingActivity, ScalingGroup};
use crate::plan::{Draft, Outcome, Phase, Reason, waiting};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::join::AUTH;
use crate::provisioner::eks::rotation::outdated;
use crate::rotation::Member;

/// Judges the nodes; decides the outcome when nothing else has.
pub fn nodes(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let members = outdated::members(input.resolved, input.state, input.status);
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let ready: usize = members.iter().filter(|m| m.ready()).map(Member::weight).sum();
    let all = ready >= desired;
    draft.facts.nodes_ready = Some(all);
    if let Some(position) = draft.notes.iter().position(|n| n.condition == AUTH) {
        let note = draft.notes.remove(position);
        draft.decide(Outcome::Blocked { reason: Reason::AuthConflict, message: note.message, deleting: false });
    }
    if all {
        let stays = |m: &&Member| m.instance.state != InstanceState::Terminating;
        let current = members.iter().filter(stays).all(|m| m.outdated.is_empty());
        if current && let Some(template) = draft.facts.status.get_mut("template") {
            template["lastReadyVersion"] = template["version"].clone();
        }
        return;
    }
    if let Some((reason, message)) = shortage(input) {
        draft.decide(Outcome::Blocked { reason, message, deleting: false });
    }
    if let Some(message) = silent(input, &members) {
        draft.decide(Outcome::Blocked { reason: Reason::NodesNotReady, message, deleting: false });
    }
    let joining = members.iter().filter(|m| m.instance.state == InstanceState::InService && m.node.is_none()).count();
    let detail = if joining > 0 { format!("; {joining} instances run and have not joined yet") } else { String::new() };
    draft.facts.status.entry("nodes".into()).or_insert_with(|| json!({}));
    let units = if members.iter().any(|m| m.weight() > 1) { "units of capacity" } else { "nodes" };
    draft.decide(waiting(phase(input), format!("{ready} of {desired} {units} are ready{detail}")));
}

/// A rotation ends when its last replacement is Ready, not when the last old node is gone.
fn phase(input: &Input) -> Phase {
    let rotating = input.status.current_state.as_deref() == Some(CurrentState::InitUpgrade.as_str());
    if rotating { Phase::Rotating } else { Phase::Modifying }
}

/// Instances that have had their time to join and are not Ready.
fn silent(input: &Input, members: &[Member]) -> Option<String> {
    let timeout = input.resolved.wanted.strategy.join_timeout;
    let late = |m: &&Member| {
        let since = m.instance.in_service_since.unwrap_or(input.now);
        m.instance.state == InstanceState::InService && !m.ready() && input.now.duration_since(since) >= timeout
    };
    let named = |m: &Member| match &m.node {
        Some(node) => format!("{} ({} is not ready)", m.instance.id, node.name),
        None => format!("{} (never joined)", m.instance.id),
    };
    let names: Vec<_> = members.iter().filter(late).map(named).collect();
    (!names.is_empty()).then(|| {
        let timeout = crate::util::duration::text(timeout);
        // An access entry counts, whatever aws-auth says.
        let entry = match input.state.join.access.kind() {
            Some(_) => "the access entry of the role",
            None => "the role in kube-system/aws-auth",
        };
        format!(
            "{} did not become Ready within {timeout}; check the image, the user data and {entry}",
            names.join(", ")
        )
    })
}

/// Why instances do not come, in AWS's words.
fn shortage(input: &Input) -> Option<(Reason, String)> {
    if input.state.short_for < input.timing.shortfall {
        return None;
    }
    let failed = input.state.activities.iter().find(|a| a.status == "Failed" || a.status == "Cancelled")?;
    Some((reason(failed), format!("instances do not come: {}", failed.message)))
}

fn reason(activity: &ScalingActivity) -> Reason {
    let text = activity.message.as_str();
    let any = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
    if any(&[
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "do not have sufficient",
        "UnfulfillableCapacity",
        "Insufficient capacity",
    ]) {
        Reason::InsufficientCapacity
    } else if any(&[
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "vCPU limit",
        "LimitExceeded",
    ]) {
        Reason::QuotaExceeded
    } else {
        Reason::LaunchFailed
    }
}
