//! What stays as it is in AWS while the fields that it depends on cannot be used. Pure.
//!
//! The desired values of such a part become the observed ones, so later decisions find no difference. Only attributes
//! that the status records as the controller's are taken: what others set is kept.

use std::collections::BTreeSet;

use super::desired::CONFIGURATION_FIELD;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::api::names::{annotation, tag};
use crate::aws::{ScalingGroup, Tag};
use crate::provisioner::rejected_fields::Part;
use crate::rotation::rolling_update::settings::IntOrPercent;

/// The tags from which the Cluster Autoscaler reads the properties of the group's nodes.
const NODE_TEMPLATE: &str = "node-template/";

/// The parts that depend on a field; `None` when everything does.
pub fn dependent_parts(path: &str) -> Option<&'static [Part]> {
    let field = path.strip_prefix(CONFIGURATION_FIELD).and_then(|rest| rest.strip_prefix('.'));
    if let Some(field) = field {
        return match field.split(['.', '[']).next().unwrap_or_default() {
            "clusterName" => None,
            "subnets" => Some(&[Part::Subnets]),
            "roleName" | "instanceProfileName" => Some(&[Part::Role, Part::Launch]),
            "managedPolicies" => Some(&[Part::Policies]),
            "tags" => Some(&[Part::Tags]),
            "lifecycleHooks" => Some(&[Part::Hooks]),
            "suspendProcesses" => Some(&[Part::Processes]),
            "metricsCollection" => Some(&[Part::Metrics]),
            _ => Some(&[Part::Launch]),
        };
    }
    if path.starts_with("metadata.annotations[") {
        let rotates = path.contains(annotation::ROTATE_AT);
        return Some(if rotates { &[Part::Rotation] } else { &[Part::Launch] });
    }
    match path {
        "spec.eks.type" => Some(&[Part::Launch]),
        "spec.eks.minSize" | "spec.eks.maxSize" => Some(&[Part::Sizes]),
        // A warm pool beside a purchase option that excludes it.
        "spec.eks.warmPool" => Some(&[Part::WarmPool, Part::Launch]),
        _ if path.starts_with("spec.eks.warmPool.") => Some(&[Part::WarmPool]),
        _ if path.starts_with("spec.strategy") => Some(&[Part::Rotation]),
        _ => None,
    }
}

/// Replaces the desired values of broken parts with those of an existing scaling group.
pub fn keep(resolved: &mut ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) {
    let Some(group) = state.scaling_group.as_ref().filter(|_| !resolved.broken.is_empty()) else { return };
    let managed = status.managed.clone().unwrap_or_default();
    let broken = resolved.broken.clone();
    let desired = &mut resolved.desired;
    if broken.contains(Part::Sizes) {
        (desired.min_size, desired.max_size) = (group.min, group.max);
    }
    let pool = group.warm_pool.as_ref().filter(|_| managed.warm_pool).map(|pool| pool.sizes.clone());
    if broken.contains(Part::WarmPool) {
        desired.warm_pool = pool.clone();
    }
    if broken.contains(Part::Growth) {
        (desired.min_size, desired.max_size) = (desired.min_size.min(group.min), desired.max_size.min(group.max));
        // A pool without a maximum grows with the group.
        desired.warm_pool = match (desired.warm_pool.take(), pool) {
            (Some(wanted), Some(found)) if wanted.min <= found.min && wanted.max == found.max => Some(wanted),
            (Some(_), found) => found,
            (None, _) => None,
        };
        // Nodes are replaced one after the other, within maxUnavailable.
        desired.rolling_update.max_surge = IntOrPercent::Count(0);
    }
    let recorded = |present: &[String], recorded: &[String]| -> BTreeSet<String> {
        present.iter().filter(|name| recorded.contains(name)).cloned().collect()
    };
    if broken.contains(Part::Processes) {
        desired.suspended_processes = recorded(&group.suspended_processes, &managed.processes);
    }
    if broken.contains(Part::Metrics) {
        desired.metrics = recorded(&group.enabled_metrics, &managed.metrics);
    }
    if broken.contains(Part::Hooks) {
        let present = state.lifecycle_hooks.iter().flatten();
        desired.lifecycle_hooks = present.filter(|hook| managed.hooks.contains(&hook.name)).cloned().collect();
    }
    if broken.contains(Part::Policies) {
        resolved.managed_policies = managed.policies.clone();
    }
    if broken.contains(Part::Subnets) {
        resolved.subnets = group.subnets.clone();
    }
    let node_template = format!("{}{NODE_TEMPLATE}", tag::CLUSTER_AUTOSCALER_PREFIX);
    if broken.contains(Part::Tags) {
        let own: Vec<_> = resolved.ownership_tags.iter().map(|t| t.key.clone()).collect();
        let is_known = |key: &str| own.iter().any(|k| k == key) || [tag::KUBERNETES_CLUSTER, tag::NAME].contains(&key);
        keep_tags(resolved, group, &managed.tags, |key| !is_known(key));
    } else if broken.contains(Part::Launch) {
        keep_tags(resolved, group, &managed.tags, |key| key.starts_with(&node_template));
    }
}

/// Keeps the recorded tags whose keys are in question, with the values that they have.
fn keep_tags(
    resolved: &mut ResolvedGroup,
    group: &ScalingGroup,
    recorded: &[String],
    is_in_question: impl Fn(&str) -> bool,
) {
    resolved.tags.retain(|t| !is_in_question(&t.key));
    let kept = |t: &&Tag| is_in_question(&t.key) && recorded.contains(&t.key);
    resolved.tags.extend(group.tags.iter().filter(kept).cloned());
    resolved.tags.sort_by(|a, b| a.key.cmp(&b.key));
}
