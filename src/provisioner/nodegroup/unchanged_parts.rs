//! What stays as it is in EKS while the fields that it depends on cannot be used.
//!
//! The desired values of such a part become those of the node group, so that every later decision finds no difference. Only
//! attributes that the status records as the controller's are taken: what others set is kept.

use super::desired::{CONFIGURATION_PATH, DesiredSpec};
use super::update::taint_key;
use super::{names, ownership};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::{ImmutableFields, MaxUnavailable, Nodegroup, NodegroupStatus};
use crate::ownership::ownership_tags;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::{Part, RejectedFields};

/// The parts that depend on a field; `None` when everything does.
pub fn dependent_parts(path: &str) -> Option<&'static [Part]> {
    if let Some(field) = path.strip_prefix(CONFIGURATION_PATH).and_then(|rest| rest.strip_prefix('.')) {
        return match field.split(['.', '[']).next().unwrap_or_default() {
            "clusterName" => None,
            "nodeLabels" | "taints" => Some(&[Part::Labels]),
            "tags" => Some(&[Part::Tags]),
            _ => Some(&[Part::Immutable]),
        };
    }
    match path {
        "spec.eks-managed.minSize" | "spec.eks-managed.maxSize" => Some(&[Part::Sizes]),
        // A second node group would have to be drained.
        _ if path.starts_with("spec.strategy") => Some(&[Part::Rotation, Part::Immutable]),
        _ if path.starts_with("metadata.annotations[") => Some(&[Part::Rotation, Part::Immutable]),
        _ => None,
    }
}

/// The recorded node group that serves: the one whose scaling group the status names, else the newest. After a reverted
/// change, the newest is the one that the group leaves. One that EKS could not create or delete serves only if there is no
/// other one. `None` without one that the group owns.
pub(crate) async fn serving_nodegroup(
    o: &Observer<'_>,
    desired: &DesiredSpec,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<Nodegroup>> {
    let tags = ownership_tags(&desired.cluster, &desired.id);
    let active = status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty());
    let has_failed = |n: &Nodegroup| matches!(n.status, NodegroupStatus::CreateFailed | NodegroupStatus::DeleteFailed);
    let rank = |n: &Nodegroup| (!has_failed(n), active == Some(n.scaling_groups.join(",").as_str()), n.created);
    let mut serving: Option<Nodegroup> = None;
    for name in names::recorded_nodegroups(status).filter(|name| name.cluster == desired.cluster) {
        let found = o.inventory.nodegroup(&name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
        let Some(found) = found.filter(|n| n.status != NodegroupStatus::Deleting) else { continue };
        if ownership::is_owned(&desired.id, status, &found, &tags)
            && serving.as_ref().is_none_or(|n| rank(n) < rank(&found))
        {
            serving = Some((*found).clone());
        }
    }
    Ok(serving)
}

/// Replaces the desired values of broken parts with those of the node group.
pub fn keep(desired: &mut DesiredSpec, found: &Nodegroup, broken: &RejectedFields, status: &InstanceGroupStatus) {
    let managed = status.managed.clone().unwrap_or_default();
    let sizes = &found.sizes;
    if broken.contains(Part::Sizes) {
        (desired.min_size, desired.max_size) = (sizes.min, sizes.max);
    }
    if broken.contains(Part::Growth) {
        (desired.min_size, desired.max_size) = (desired.min_size.min(sizes.min), desired.max_size.min(sizes.max));
    }
    if broken.contains(Part::Immutable) {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        desired.immutable = ImmutableFields {
            node_role: found.node_role.clone(),
            subnets: found.subnets.clone(),
            instance_types: found.instance_types.clone(),
            capacity_type: text(&found.capacity_type),
            ami_type: text(&found.ami_type),
            disk_size: found.disk_size,
            key_pair: found.key_pair.clone(),
            security_groups: found.security_groups.clone(),
        };
    }
    if broken.contains(Part::Labels) {
        let labels = found.labels.iter().filter(|(key, _)| managed.labels.contains(key));
        desired.labels = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
        desired.taints = found.taints.iter().filter(|t| managed.taints.contains(&taint_key(t))).cloned().collect();
    }
    if broken.contains(Part::Tags) {
        let tags = found.tags.iter().filter(|(key, _)| managed.tags.contains(key));
        desired.tags = tags.map(|(key, value)| (key.clone(), value.clone())).collect();
    }
    if broken.contains(Part::Rotation) {
        // `None` leaves the value in EKS as it is.
        desired.max_unavailable = None;
    }
    // EKS refuses a count above the maximum size, and with it every other change of the call.
    if (broken.contains(Part::Sizes) || broken.contains(Part::Growth))
        && matches!(desired.max_unavailable, Some(MaxUnavailable::Count(count)) if count > desired.max_size)
    {
        desired.max_unavailable = None;
    }
}
