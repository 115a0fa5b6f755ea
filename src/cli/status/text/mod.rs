//! The text of `status`. Pure.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::read::{DrainedPod, GroupDetails, Readable, is_drained};
use crate::api::names::{annotation, condition, label};
use crate::api::{Condition, InstanceGroup, InstanceGroupStatus, NodeCounts, ProvisionerKind};
use crate::cli::table::table;
use crate::util::duration;
use crate::util::escape::escape_control;

/// How many of the newest events are shown.
const SHOWN_EVENTS: usize = 10;

/// A line for each group; those with a problem come first and carry their message.
pub(super) fn list(groups: &[InstanceGroup], namespace: Option<&str>, now: Timestamp) -> String {
    if groups.is_empty() {
        let scope = namespace.map_or("the cluster".to_owned(), |name| format!("the namespace {name}"));
        let hint = namespace.map_or("", |_| "; use -n NAMESPACE, or -A for all namespaces");
        return format!("no InstanceGroups in {scope}{hint}\n");
    }
    let mut sorted: Vec<_> = groups.iter().collect();
    let key = |group: &InstanceGroup| (group.namespace().unwrap_or_default(), group.name_any());
    sorted.sort_by_key(|group| (problem(group).is_none(), key(group)));
    let header = ["GROUP", "STATE", "READY", "UPDATED", "REASON", "AGE"].map(str::to_owned);
    let rows = sorted.iter().map(|group| {
        let status = group.status.clone().unwrap_or_default();
        let (namespace, name) = key(group);
        let reason = ready(&status).and_then(|ready| ready.reason.clone()).unwrap_or_default();
        let state = status.current_state.clone().unwrap_or_else(|| "(not observed)".into());
        // A Fargate profile has no nodes to count, and the others are counted when AWS has answered once.
        let counts = status.nodes.as_ref().map_or(("-".to_owned(), "-".to_owned()), |nodes| {
            (format!("{}/{}", nodes.ready, nodes.desired), nodes.updated.to_string())
        });
        let age = group.creation_timestamp().map(|at| since(at.0, now)).unwrap_or_default();
        [format!("{namespace}/{name}"), state, counts.0, counts.1, reason, age]
    });
    let mut out = table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "");
    for group in sorted {
        if let Some(problem) = problem(group) {
            let (namespace, name) = key(group);
            out += &format!("\n{namespace}/{name}: {}\n", escape_control(&problem));
        }
    }
    out
}

/// One group, from what the tenant sees first to the details.
pub(super) fn group(details: &GroupDetails, now: Timestamp) -> String {
    let status = details.group.status.clone().unwrap_or_default();
    let mut out = headline(&details.group, &status);
    for section in [
        conditions(&status, now),
        resources(&status),
        if is_fargate(&status) { fargate_nodes(&status) } else { nodes(&details.nodes, &status, now) },
        drains(&details.pods_to_evict, now),
        events(details, now),
    ] {
        if !section.is_empty() {
            out += &format!("\n{section}");
        }
    }
    out
}

fn headline(group: &InstanceGroup, status: &InstanceGroupStatus) -> String {
    let unobserved = match status.conditions.is_empty() {
        true => "not observed: no controller has reconciled it yet",
        false => "not observed yet; the conditions say why",
    };
    let state = status.current_state.as_deref().unwrap_or(unobserved);
    let mut out = format!("{}/{}: {state}\n", group.namespace().unwrap_or_default(), group.name_any());
    let generation = group.metadata.generation.unwrap_or_default();
    let observed = status.observed_generation.unwrap_or(-1);
    if observed != generation && status.current_state.is_some() {
        writeln!(out, "  the status describes generation {observed} of the spec; generation {generation} waits")
            .expect("writing to a String does not fail");
    }
    if let Some(nodes) = &status.nodes {
        let (NodeCounts { desired, ready, updated, outdated, draining, .. }, unit) = (nodes, nodes.unit());
        out += &format!(
            "  {ready} of {desired} {unit} are ready (updated: {updated}, outdated: {outdated}, draining: {draining})\n"
        );
    }
    out
}

/// The conditions that matter: Ready, and those that report a problem or a change.
fn conditions(status: &InstanceGroupStatus, now: Timestamp) -> String {
    let is_shown = |found: &&Condition| {
        let is_quiet = [condition::NODES_READY, condition::BOUNDARIES_APPLIED].contains(&found.r#type.as_str());
        match found.is_true() {
            true => !is_quiet || found.message.as_deref().is_some_and(|message| !message.is_empty()),
            false => found.r#type == condition::READY || is_quiet,
        }
    };
    // Ready, Stalled and others often have the same message; the message stands once, below all of them.
    let mut by_message: Vec<(&str, String)> = Vec::new();
    for found in status.conditions.iter().filter(is_shown) {
        let time = found.last_transition_time.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
        let age = time.map(|at| format!(", for {}", since(at, now))).unwrap_or_default();
        let reason = found.reason.as_deref().unwrap_or_default();
        let message = found.message.as_deref().unwrap_or_default();
        let line = format!("  {} {} ({reason}{age})\n", found.r#type, found.status);
        match by_message.iter_mut().find(|(known, _)| !known.is_empty() && *known == message) {
            Some((_, lines)) => *lines += &line,
            None => by_message.push((message, line)),
        }
    }
    let mut out = String::new();
    for (message, lines) in by_message {
        out += &lines;
        if !message.is_empty() {
            out += &format!("    {}\n", escape_control(message));
        }
    }
    titled("Conditions", &out)
}

fn resources(status: &InstanceGroupStatus) -> String {
    let row = |name: &str, value: Option<String>| value.filter(|v| !v.is_empty()).map(|v| [name.to_owned(), v]);
    let effective = status.effective.clone().unwrap_or_default();
    let template = status.template.as_ref();
    let version = template.and_then(|t| t.version.as_ref()).map(|v| format!(" version {v}")).unwrap_or_default();
    let unit = status.nodes.as_ref().map_or("nodes", NodeCounts::unit);
    let sizes = status.current_min.zip(status.current_max).map(|(min, max)| format!("{min} to {max} {unit}"));
    let versions = effective.versions.iter().map(|(version, count)| format!("{version}: {count}"));
    let strategy = status
        .strategy_resource_name
        .as_ref()
        .map(|name| format!("{}/{name}", status.strategy_resource_namespace.as_deref().unwrap_or_default()));
    let is_fargate = is_fargate(status);
    let [resource, role] =
        if is_fargate { ["Fargate profile", "pod execution role"] } else { ["scaling group", "node role"] };
    let rows: Vec<_> = [
        row("provisioner", status.provisioner.clone()),
        row(resource, status.active_scaling_group_name.clone()),
        row("sizes", sizes),
        row("launch template", status.active_launch_template_name.as_ref().map(|name| format!("{name}{version}"))),
        row("launch configuration", status.active_launch_configuration_name.clone()),
        row("instances by version", Some(versions.collect::<Vec<_>>().join(", "))),
        row("image", effective.image),
        row("instance types", Some(effective.instance_types.join(", "))),
        row("subnets", Some(effective.subnets.join(", "))),
        row("zones", Some(effective.zones.join(", "))),
        row(role, status.nodes_instance_role_arn.clone()),
        row("strategy", status.strategy.clone()),
        row("strategy resource", strategy),
        row("boundaries revision", status.boundaries_revision.clone()),
    ]
    .into_iter()
    .flatten()
    .collect();
    titled("Resources", &table(&rows, "  "))
}

fn is_fargate(status: &InstanceGroupStatus) -> bool {
    let kind = status.provisioner.as_deref().and_then(ProvisionerKind::parse);
    kind == Some(ProvisionerKind::EksFargate)
}

/// Where the pods of a Fargate profile are: its nodes have no labels of the group.
fn fargate_nodes(status: &InstanceGroupStatus) -> String {
    let profile = status.active_scaling_group_name.as_deref().unwrap_or("PROFILE");
    titled(
        "Pods",
        &format!(
            "  AWS Fargate runs each pod on a node of its own, which this group neither counts nor replaces.\n  \
             The pods: kubectl get pods --all-namespaces -o wide -l eks.amazonaws.com/fargate-profile={profile}\n  \
             A pod gets that label only when it is created while the profile exists; restart older ones.\n"
        ),
    )
}

/// The nodes, and the instances without a Node.
fn nodes(nodes: &Readable<Vec<Node>>, status: &InstanceGroupStatus, now: Timestamp) -> String {
    let found = match nodes {
        Ok(found) => found,
        Err(why) => return titled("Nodes", &format!("  not shown: {why}\n")),
    };
    let outdated = status.nodes.as_ref().map(|nodes| nodes.outdated_instances.as_slice()).unwrap_or_default();
    let state = |instance: &String, state: String| {
        let outdated = Some("outdated".to_owned()).filter(|_| outdated.contains(instance));
        outdated.into_iter().chain(Some(state).filter(|state| !state.is_empty())).collect::<Vec<_>>().join(", ")
    };
    let of_nodes = found.iter().map(|node| {
        let instance = instance_of(node);
        let age = node.creation_timestamp().map(|at| since(at.0, now)).unwrap_or_default();
        let state = state(&instance, node_state(node, now));
        let version = version_of(&instance, status);
        [node.name_any(), instance, ready_state(node, now), age, version, image_of(node), state]
    });
    let without_node = status.joining.iter().filter(|(id, _)| found.iter().all(|node| instance_of(node) != **id));
    let of_others = without_node.map(|(instance, since_text)| {
        let waited = since_text.parse().map(|at| format!(" for {}", since(at, now))).unwrap_or_default();
        let state = state(instance, format!("without a Node{waited}"));
        let version = version_of(instance, status);
        ["(no Node)".to_owned(), instance.clone(), String::new(), String::new(), version, String::new(), state]
    });
    let rows: Vec<_> = of_nodes.chain(of_others).collect();
    if rows.is_empty() {
        return titled("Nodes", "  none with the labels of this group\n");
    }
    let header = ["NODE", "INSTANCE", "READY", "AGE", "VERSION", "IMAGE", "STATE"].map(str::to_owned);
    titled("Nodes", &table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "  "))
}

/// What an instance was launched from: the version of the launch template, or the launch configuration. Empty when the
/// status does not record it, as for managed node groups.
fn version_of(instance: &str, status: &InstanceGroupStatus) -> String {
    let effective = status.effective.as_ref();
    let of_instance = effective.and_then(|values| values.instance_versions.get(instance));
    let only_one = effective.and_then(|values| values.versions.keys().next().filter(|_| values.versions.len() == 1));
    of_instance.or(only_one).cloned().unwrap_or_default()
}

/// The ID of the image that a node was launched from, by the label of this controller or of EKS.
fn image_of(node: &Node) -> String {
    [label::IMAGE, label::NODEGROUP_IMAGE]
        .into_iter()
        .find_map(|key| node.labels().get(key).cloned())
        .unwrap_or_default()
}

/// The ID of the instance that a node runs on.
fn instance_of(node: &Node) -> String {
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    provider.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The Ready condition of a node; with its time unless the node is ready.
fn ready_state(node: &Node, now: Timestamp) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    match conditions.into_iter().flatten().find(|found| found.type_ == "Ready") {
        None => "not reported".into(),
        Some(found) if found.status == "True" => "True".into(),
        Some(found) => {
            let age = found.last_transition_time.as_ref().map(|at| format!(" for {}", since(at.0, now)));
            format!("{}{}", found.status, age.unwrap_or_default())
        }
    }
}

fn node_state(node: &Node, now: Timestamp) -> String {
    let started = |key: &str| -> Option<String> {
        let record: serde_json::Value = serde_json::from_str(node.annotations().get(key)?).ok()?;
        Some(since(record["since"].as_str()?.parse().ok()?, now))
    };
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    match (started(annotation::DISRUPTION), started(annotation::SURGE)) {
        (Some(age), _) => format!("draining for {age}"),
        (None, Some(age)) => format!("standby for {age}"),
        (None, None) if is_drained(node) => "draining".into(),
        (None, None) if is_cordoned => "cordoned".into(),
        (None, None) if node.annotations().contains_key(annotation::IN_PLACE) => "changed in place".into(),
        (None, None) => String::new(),
    }
}

/// What a pod that is being deleted waits for. The API server sets its deletion timestamp to the end of its grace period.
fn terminating_state(until: Timestamp, finalizers: &[String], now: Timestamp) -> String {
    let waits_for = match finalizers {
        [] => "its kubelet has not stopped it".to_owned(),
        names => format!("its finalizers are {}", names.join(", ")),
    };
    match until > now {
        true => format!("terminating; its grace period ends in {}", since(now, until)),
        false => format!("terminating; its grace period ended {} ago, and {waits_for}", since(until, now)),
    }
}

fn drains(pods: &Readable<Vec<DrainedPod>>, now: Timestamp) -> String {
    let found = match pods {
        Ok(found) => found,
        Err(why) => return titled("Pods that drains wait for", &format!("  not shown: {why}\n")),
    };
    let mut out = String::new();
    for DrainedPod { node, pod, terminating, obstacle } in found {
        let why = match (terminating, obstacle) {
            (Some((until, finalizers)), _) => terminating_state(*until, finalizers, now),
            (None, Err(why)) => format!("budgets not shown: {why}"),
            (None, Ok(Some(obstacle))) => obstacle.describe(),
            (None, Ok(None)) => "may be evicted".to_owned(),
        };
        out += &format!("  {pod} on {node}: {why}\n");
    }
    titled("Pods that drains wait for", &out)
}

fn events(details: &GroupDetails, now: Timestamp) -> String {
    let found = match &details.events {
        Ok(found) => found,
        Err(why) => return titled("Events", &format!("  not shown: {why}\n")),
    };
    let newest = found.iter().skip(found.len().saturating_sub(SHOWN_EVENTS));
    let lines = newest.map(|event| {
        let age = event.event_time.as_ref().map(|at| since(at.0, now)).unwrap_or_default();
        let kind = event.type_.as_deref().unwrap_or_default();
        let (reason, note) = (event.reason.as_deref().unwrap_or_default(), event.note.as_deref().unwrap_or_default());
        [age, kind.to_owned(), reason.to_owned(), note.to_owned()]
    });
    titled("Events", &table(&lines.collect::<Vec<_>>(), "  "))
}

fn ready(status: &InstanceGroupStatus) -> Option<&Condition> {
    status.conditions.iter().find(|found| found.r#type == condition::READY)
}

/// The message of a group that is stalled, not read or not ready, or whose drain or fields need manual intervention.
fn problem(group: &InstanceGroup) -> Option<String> {
    let status = group.status.as_ref()?;
    let is_true = |kind: &str| status.conditions.iter().find(|found| found.r#type == kind && found.is_true());
    let unread = is_true(condition::RECONCILING)
        .filter(|found| condition::READ_FAILURES.iter().any(|reason| found.has_reason(reason)));
    let others = [condition::DRAIN_BLOCKED, condition::FIELDS_REJECTED, condition::WRITES_INEFFECTIVE];
    let found = is_true(condition::STALLED)
        .or(unread)
        .or_else(|| ready(status).filter(|ready| !ready.is_true()))
        .or_else(|| others.iter().find_map(|kind| is_true(kind)))?;
    found.message.clone().filter(|message| !message.is_empty())
}

fn titled(title: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{title}\n{text}") }
}

/// The time since `at`, as kubectl writes it: the largest unit, with the next smaller one below ten.
fn since(at: Timestamp, now: Timestamp) -> String {
    let elapsed = now.duration_since(at).max(SignedDuration::ZERO);
    match elapsed.as_hours() {
        hours if hours >= 48 => format!("{}d", hours / 24),
        hours if hours >= 1 => duration::format(SignedDuration::from_mins(elapsed.as_mins())),
        _ => duration::format(SignedDuration::from_secs(elapsed.as_secs())),
    }
}

#[cfg(test)]
mod tests;
