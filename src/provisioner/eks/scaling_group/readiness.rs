//! Whether all nodes of a group are Ready, and why not.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;

use crate::api::rfc3339;
use crate::aws::error::without_period;
use crate::aws::{Instance, InstanceState, MAX_ACTIVITIES, ScalingActivity, ScalingGroup};
use crate::plan::{Outcome, Phase, PlanBuilder, StalledReason, waiting};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::rotation::outdated;
use crate::provisioner::eks::scaling_group::{scale_in, suspended};
use crate::provisioner::launch_failures;
use crate::rotation::NodeInstance;
use crate::rotation::node_health::{ReadyLimits, unready_nodes};

/// How long before the shortage was seen a termination may have begun that explains it.
const TERMINATION_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// How many terminations a message quotes.
const MAX_TERMINATIONS: usize = 2;
/// How many starting instances a message names.
const MAX_STARTING: usize = 5;
/// How many instance types a message names.
const MAX_TYPES: usize = 4;

/// Checks the readiness of the nodes, and sets the outcome when nothing else has set it.
pub(crate) fn check_readiness(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let members = outdated::members(input.resolved, input.observed, input.status);
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let ready: usize = members.iter().filter(|m| m.is_ready()).map(NodeInstance::weight).sum();
    let all = ready >= desired;
    builder.status_update.nodes_ready = Some(all);
    if let Some(message) = builder.join_conflict.take() {
        builder.set_outcome_once(Outcome::Blocked { reason: StalledReason::AuthConflict, message, is_deleting: false });
    }
    if all {
        let stays = |m: &&NodeInstance| m.instance.state != InstanceState::Terminating;
        // A node that changes in place proves nothing about a version that it was not launched from.
        let is_launched_so = |m: &NodeInstance| {
            m.reasons.is_empty() && m.in_place.is_none() && m.node.as_ref().is_none_or(|node| node.in_place.is_none())
        };
        let current = members.iter().filter(stays).all(is_launched_so);
        if current && let Some(template) = builder.status_update.fields.get_mut("template") {
            template["lastReadyVersion"] = template["version"].clone();
        }
        return;
    }
    let blocked = |reason, message| Outcome::Blocked { reason, message, is_deleting: false };
    let missing = missing_capacity(group);
    if let Some(message) = launch_suspended(input, group, missing) {
        builder.set_outcome_once(blocked(StalledReason::ProcessSuspended, message));
    }
    if let Some((reason, message)) = launch_failure(input, group, missing) {
        builder.set_outcome_once(blocked(reason, message));
    }
    let unready = unready_nodes(&members, limits(input), join_entry(input), input.now);
    if let Some(message) = unready.overdue {
        builder.set_outcome_once(blocked(StalledReason::NodesNotReady, message));
    }
    builder.status_update.fields.entry("nodes".into()).or_insert_with(|| json!({}));
    let waits = unready.waiting.into_iter().chain(starting(group)).chain(terminations(input, missing));
    let message = waits.collect::<Vec<_>>().join("; ");
    let message = if message.is_empty() { "waiting for the nodes to become Ready".to_owned() } else { message };
    builder.set_outcome_once(waiting(phase(input), message));
}

fn limits(input: &PlanInput) -> ReadyLimits {
    ReadyLimits { join: input.resolved.desired.rolling_update.join_timeout, recover: input.timing.kubelet_timeout }
}

/// What authorizes the nodes to join. With an access entry, EKS ignores the entry in aws-auth.
fn join_entry(input: &PlanInput) -> &'static str {
    match input.observed.join.access_entry.kind() {
        Some(_) => "the access entry of the role",
        None => "the role in kube-system/aws-auth",
    }
}

/// How much of the desired capacity is neither running nor starting.
fn missing_capacity(group: &ScalingGroup) -> i64 {
    let runs = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let running: i64 = group.instances.iter().filter(runs).map(|i| i64::from(i.weight)).sum();
    (i64::from(group.desired) - running).max(0)
}

/// What the desired capacity counts.
fn unit(group: &ScalingGroup) -> &'static str {
    if scale_in::is_weighted(group) { "units of capacity" } else { "instances" }
}

/// Why Auto Scaling launches nothing, and how to let it.
fn launch_suspended(input: &PlanInput, group: &ScalingGroup, missing: i64) -> Option<String> {
    let is_launch = |process: &String| process == "Launch";
    if missing == 0 || !group.suspended_processes.iter().any(is_launch) {
        return None;
    }
    let remedy = suspended::remedy(&input.resolved.desired.suspended_processes, group, &["Launch".to_owned()]);
    Some(format!(
        "{missing} of {} {} are missing, and Launch is suspended on the scaling group; {remedy}",
        group.desired,
        unit(group)
    ))
}

/// The instances that have yet to enter service.
fn starting(group: &ScalingGroup) -> Option<String> {
    let pending: Vec<_> = group.instances.iter().filter(|i| i.state == InstanceState::Pending).collect();
    let names: Vec<_> = pending.iter().take(MAX_STARTING).map(|i| i.id.as_str()).collect();
    match pending.len() {
        0 => None,
        all if all > names.len() => Some(format!("{} and {} others are starting", names.join(", "), all - names.len())),
        _ => Some(format!("starting: {}", names.join(", "))),
    }
}

/// Auto Scaling's messages about the latest terminations, while instances are missing.
fn terminations(input: &PlanInput, missing: i64) -> Vec<String> {
    if missing == 0 {
        return Vec::new();
    }
    let since = input.now - input.observed.shortage_duration - TERMINATION_WINDOW;
    let is_recent = |a: &&ScalingActivity| a.is_termination() && a.started.is_some_and(|started| started >= since);
    let recent = input.observed.activities.iter().filter(is_recent).take(MAX_TERMINATIONS);
    let quoted = recent.map(|a| format!("{} ({})", a.description, a.cause)).collect::<Vec<_>>();
    std::iter::once(format!("waiting for Auto Scaling to launch instances: {missing} missing")).chain(quoted).collect()
}

/// A rotation ends when its last replacement is Ready, not when the last outdated node is terminated.
fn phase(input: &PlanInput) -> Phase {
    if input.status.is_rotating() { Phase::Rotating } else { Phase::Modifying }
}

/// Why instances fail to launch, from the scaling activities.
fn launch_failure(input: &PlanInput, group: &ScalingGroup, missing: i64) -> Option<(StalledReason, String)> {
    let mut launches = input.observed.activities.iter().filter(|a| a.is_launch());
    let failed = launches.find(|a| a.is_finished()).filter(|last| last.has_failed())?;
    let reason = launch_failures::reason(&failed.message);
    // These failures last. The others may pass: a new instance profile needs time, for example.
    let lasts = matches!(reason, StalledReason::InsufficientCapacity | StalledReason::QuotaExceeded);
    if !lasts && input.observed.shortage_duration < input.timing.launch_shortfall {
        return None;
    }
    let (types, zones) = (instance_types(input), failed_zones(input));
    let zones = if zones.is_empty() { String::new() } else { format!(" in {}", zones.join(", ")) };
    let since = failed_launches(input).filter_map(|a| a.started).min();
    let attempts = failed_launches(input).count();
    let is_truncated = usize::try_from(MAX_ACTIVITIES).is_ok_and(|max| input.observed.activities.len() >= max);
    let since = match (since, attempts == input.observed.activities.len() && is_truncated) {
        // The first ones are older than what is read. The oldest of the others is another one after each attempt.
        (Some(_), true) => format!(" at each of the last {attempts} attempts"),
        (Some(since), false) => format!(" since {}", rfc3339(since)),
        (None, _) => String::new(),
    };
    let shortage = if missing == 0 {
        String::new()
    } else {
        format!("{missing} of {} {} are missing: ", group.desired, unit(group))
    };
    // AWS's messages are sentences; another clause follows.
    let remedy = launch_failures::remedy(&failed.message);
    let message = failed.message.as_str();
    let message = if remedy.is_empty() { message } else { without_period(message) };
    Some((reason, format!("{shortage}{types} failed to launch{zones}{since}: {message}{remedy}")))
}

/// The instance types that the group asks for.
fn instance_types(input: &PlanInput) -> String {
    let desired = &input.resolved.desired;
    let listed = desired.mixed_instances.iter().flat_map(|mixed| &mixed.overrides).map(|o| o.instance_type.as_str());
    let mut types: Vec<_> = std::iter::once(desired.instance_type.as_str()).chain(listed).collect();
    let mut seen = BTreeSet::new();
    types.retain(|kind| seen.insert(*kind));
    match types.len() {
        0..=MAX_TYPES => types.join(", "),
        all => format!("{} and {} other types", types[..MAX_TYPES].join(", "), all - MAX_TYPES),
    }
}

/// The launches that failed since the last one that did not.
fn failed_launches<'a>(input: &PlanInput<'a>) -> impl Iterator<Item = &'a ScalingActivity> {
    let launches = input.observed.activities.iter().filter(|a| a.is_launch() && a.is_finished());
    launches.take_while(|a| a.has_failed())
}

fn failed_zones<'a>(input: &PlanInput<'a>) -> Vec<&'a str> {
    failed_launches(input).filter_map(|a| a.zone.as_deref()).collect::<BTreeSet<_>>().into_iter().collect()
}
