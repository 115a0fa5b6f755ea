//! Whether all nodes of a group are Ready, and why not.

use serde_json::json;

use crate::api::CurrentState;
use crate::aws::{InstanceState, ScalingActivity, ScalingGroup};
use crate::plan::{Outcome, Phase, PlanBuilder, Reason, waiting};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::rotation::outdated;
use crate::rotation::NodeInstance;

/// Checks the readiness of the nodes, and sets the outcome when nothing else has set it.
pub(crate) fn check_readiness(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let members = outdated::members(input.resolved, input.observed, input.status);
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let ready: usize = members.iter().filter(|m| m.is_ready()).map(NodeInstance::weight).sum();
    let all = ready >= desired;
    builder.status_update.nodes_ready = Some(all);
    if let Some(message) = builder.join_conflict.take() {
        builder.set_outcome_once(Outcome::Blocked { reason: Reason::AuthConflict, message, is_deleting: false });
    }
    if all {
        let stays = |m: &&NodeInstance| m.instance.state != InstanceState::Terminating;
        let current = members.iter().filter(stays).all(|m| m.reasons.is_empty());
        if current && let Some(template) = builder.status_update.fields.get_mut("template") {
            template["lastReadyVersion"] = template["version"].clone();
        }
        return;
    }
    if let Some((reason, message)) = launch_failure(input) {
        builder.set_outcome_once(Outcome::Blocked { reason, message, is_deleting: false });
    }
    if let Some(message) = unready_instances(input, &members) {
        builder.set_outcome_once(Outcome::Blocked { reason: Reason::NodesNotReady, message, is_deleting: false });
    }
    let joining = members.iter().filter(|m| m.instance.state == InstanceState::InService && m.node.is_none()).count();
    let detail =
        if joining > 0 { format!("; {joining} instances are running but have not joined yet") } else { String::new() };
    builder.status_update.fields.entry("nodes".into()).or_insert_with(|| json!({}));
    let units = if members.iter().any(|m| m.weight() > 1) { "units of capacity" } else { "nodes" };
    builder.set_outcome_once(waiting(phase(input), format!("{ready} of {desired} {units} are ready{detail}")));
}

/// A rotation ends when its last replacement is Ready, not when the last outdated node is terminated.
fn phase(input: &PlanInput) -> Phase {
    let rotating = input.status.current_state.as_deref() == Some(CurrentState::InitUpgrade.as_str());
    if rotating { Phase::Rotating } else { Phase::Modifying }
}

/// Instances that are not Ready after the join timeout.
fn unready_instances(input: &PlanInput, members: &[NodeInstance]) -> Option<String> {
    let timeout = input.resolved.desired.rolling_update.join_timeout;
    let late = |m: &&NodeInstance| {
        let since = m.instance.in_service_since.unwrap_or(input.now);
        m.instance.state == InstanceState::InService && !m.is_ready() && input.now.duration_since(since) >= timeout
    };
    let named = |m: &NodeInstance| match &m.node {
        Some(node) => format!("{} ({} is not ready)", m.instance.id, node.name),
        None => format!("{} (never joined)", m.instance.id),
    };
    let names: Vec<_> = members.iter().filter(late).map(named).collect();
    (!names.is_empty()).then(|| {
        let timeout = crate::util::duration::format(timeout);
        // With an access entry, EKS ignores the entry in aws-auth.
        let entry = match input.observed.join.access_entry.kind() {
            Some(_) => "the access entry of the role",
            None => "the role in kube-system/aws-auth",
        };
        format!(
            "{} did not become Ready within {timeout}; check the image, the user data and {entry}",
            names.join(", ")
        )
    })
}

/// Why instances fail to launch, from the scaling activities.
fn launch_failure(input: &PlanInput) -> Option<(Reason, String)> {
    if input.observed.shortage_duration < input.timing.launch_shortfall {
        return None;
    }
    let failed = input.observed.activities.iter().find(|a| a.status == "Failed" || a.status == "Cancelled")?;
    Some((launch_failure_reason(failed), format!("instances failed to launch: {}", failed.message)))
}

fn launch_failure_reason(activity: &ScalingActivity) -> Reason {
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
