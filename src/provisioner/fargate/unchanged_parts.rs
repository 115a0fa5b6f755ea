//! What stays as it is in EKS while the fields that it depends on cannot be used.
//!
//! The desired values of such a part become those of the profile, so that every later decision finds no difference. Only
//! tags that the status records as the controller's are taken: what others set is kept.

use super::desired::{DesiredSpec, SPEC_PATH};
use super::names::ProfileNames;
use crate::api::InstanceGroupStatus;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::ownership::{has_foreign_tags, has_ownership_tags, ownership_tags};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::{Part, RejectedFields};

/// The parts that depend on a field; `None` when everything does.
pub fn dependent_parts(path: &str) -> Option<&'static [Part]> {
    if path.starts_with("spec.strategy") {
        // A profile has no nodes to replace.
        return Some(&[]);
    }
    let field = path.strip_prefix(SPEC_PATH)?.strip_prefix('.')?;
    match field.split(['.', '[']).next().unwrap_or_default() {
        "clusterName" => None,
        "tags" => Some(&[Part::Tags]),
        _ => Some(&[Part::Immutable]),
    }
}

/// The active profile that the status records; `None` without one that the group owns.
pub(crate) async fn serving_profile(
    o: &Observer<'_>,
    desired: &DesiredSpec,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<FargateProfile>> {
    let tags = ownership_tags(&desired.cluster, &desired.id);
    let Some(fargate) = status.fargate.as_ref().filter(|f| f.cluster.as_ref() == Some(&desired.cluster)) else {
        return Ok(None);
    };
    let is_ours = |p: &FargateProfile| {
        has_ownership_tags(&p.tags, &tags) || (fargate.adopted_hash.is_some() && !has_foreign_tags(&p.tags, &tags))
    };
    let all_names = ProfileNames::all(&desired.cluster, &desired.id, &o.inventory.aws().region);
    let is_derived = |name: &&String| all_names.iter().any(|names| names.covers(name));
    let mut serving = None;
    for name in fargate.profiles.iter().filter(is_derived) {
        let found = o.inventory.fargate_profile(&desired.cluster, name, o.shared_max_cache_age).await;
        let found = found.map_err(ObserveError::Aws)?.filter(|p| p.status == ProfileStatus::Active && is_ours(p));
        let is_active = status.active_scaling_group_name.as_ref() == Some(name);
        serving = match found {
            Some(found) if serving.is_none() || is_active => Some(found),
            _ => serving,
        };
    }
    Ok(serving)
}

/// Replaces the desired values of broken parts with those of the profile. `names` are the group's own.
pub fn keep(
    desired: &mut DesiredSpec,
    found: &FargateProfile,
    names: &ProfileNames,
    broken: &RejectedFields,
    status: &InstanceGroupStatus,
) {
    let managed = status.managed.clone().unwrap_or_default();
    if broken.contains(Part::Immutable) {
        desired.selectors.clone_from(&found.selectors);
        // Subnets that the spec omits are not compared.
        desired.subnets.clear();
        let is_own = !managed.policies.is_empty() && found.role_arn.rsplit('/').next() == Some(&names.role);
        desired.existing_role = (!is_own).then(|| found.role_arn.clone());
    }
    if broken.contains(Part::Tags) {
        desired.tags = found.tags.iter().filter(|t| managed.tags.contains(&t.key)).cloned().collect();
        let ownership = ownership_tags(&desired.cluster, &desired.id);
        desired.tags.retain(|t| ownership.iter().all(|o| o.key != t.key));
    }
}
