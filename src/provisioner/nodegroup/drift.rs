//! Compares a node group with the spec. Pure.

use super::omitted_fields;
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::api::names::tag;
use crate::aws::nodegroup::Nodegroup;
use crate::plan::Drift;

/// Differences in fields that EKS cannot change in place. Fields that the spec omits are compared only if the node
/// group was created with them. Those that EKS always has a value for and did not return are not compared.
pub fn immutable_drift(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<Drift> {
    let desired = &resolved.desired.immutable;
    let mut all = Vec::new();
    let mut differs = |field: &str, from: &str, to: &str| {
        if from != to {
            all.push(Drift::new(field, from, to));
        }
    };
    let mut compare_if_present = |field: &str, from: &str, to: &str| {
        if !from.is_empty() {
            differs(field, from, to);
        }
    };
    compare_if_present("nodeRole", &found.node_role, &desired.node_role);
    compare_if_present("subnets", &found.subnets.join(", "), &desired.subnets.join(", "));
    if !desired.instance_types.is_empty() {
        let field = if desired.instance_types.len() == 1 { "instanceType" } else { "instanceTypes" };
        compare_if_present(field, &found.instance_types.join(", "), &desired.instance_types.join(", "));
    }
    if let Some(capacity) = &desired.capacity_type {
        compare_if_present("capacityType", &found.capacity_type, capacity);
    }
    if let Some(ami) = &desired.ami_type {
        compare_if_present("amiType", &found.ami_type, ami);
    }
    if let (Some(size), Some(found_size)) = (desired.disk_size, found.disk_size) {
        differs("volSize", &found_size.to_string(), &size.to_string());
    }
    let key = |key: &Option<String>| key.clone().unwrap_or_default();
    differs("keyPairName", &key(&found.key_pair), &key(&desired.key_pair));
    if desired.key_pair.is_some() {
        differs("securityGroups", &found.security_groups.join(", "), &desired.security_groups.join(", "));
    }
    all.extend(omitted_fields::dropped(resolved, found));
    all
}

/// Differences in the Kubernetes version and the image release.
pub(crate) fn version_drift(resolved: &ResolvedGroup, found: &Nodegroup) -> Vec<Drift> {
    let desired = &resolved.desired;
    let differs = |field: &str, from: &String, to: &Option<String>| {
        to.as_ref().filter(|to| *to != from && !from.is_empty()).map(|to| Drift::new(field, from, to))
    };
    differs("version", &found.version, &desired.version)
        .into_iter()
        .chain(differs("releaseVersion", &found.release_version, &desired.release_version))
        .collect()
}

/// Whether a node group was adopted and the spec has not changed since. Such a node group counts as up to date.
pub(crate) fn is_unchanged_since_adoption(
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    found: &Nodegroup,
) -> bool {
    adopted_hash(status, found) == Some(resolved.hash.as_str())
}

/// The hash of the spec that a node group was adopted with: the recorded one, or that in its tags if the status was lost.
pub(crate) fn adopted_hash<'a>(status: &'a InstanceGroupStatus, found: &'a Nodegroup) -> Option<&'a str> {
    let recorded = status.template.as_ref().and_then(|t| t.adopted_hash_of(&found.name.nodegroup));
    recorded.or_else(|| found.tags.get(tag::ADOPTED_HASH).map(String::as_str))
}
