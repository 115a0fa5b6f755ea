//! Decides whether the pod execution role with the derived name is the group's own. Pure.

use super::observed::{ObservedProfiles, ObservedState};
use super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::aws::{Role, Tag};
use crate::ownership::is_owned;
use crate::provisioner::role_region::{OtherRegion, other_region};

/// Evidence of another region's use of the role with the derived name, for a group without a profile. The group then
/// uses other names.
pub fn role_of_other_region(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Option<OtherRegion> {
    let role = state.role.as_ref().filter(|_| resolved.is_own_role)?;
    let has_profile = !ObservedProfiles::classify(resolved, state, status).own.is_empty();
    if has_profile { None } else { other_region(Some(role), &[], false, &resolved.region) }
}

/// Whether the controller-created role provably belongs to this group.
pub(crate) fn is_own_role(role: &Role, resolved: &ResolvedGroup, status: &InstanceGroupStatus) -> bool {
    owns_role(role, &resolved.ownership_tags, status)
}

/// The same for a group whose spec is not resolved.
pub(crate) fn owns_role(role: &Role, ownership: &[Tag], status: &InstanceGroupStatus) -> bool {
    is_owned(&role.id, &role.tags, adopted_role(status), ownership)
}

/// The id of the role that the group adopted.
pub(crate) fn adopted_role(status: &InstanceGroupStatus) -> Option<&String> {
    status.managed.as_ref().and_then(|m| m.adopted.as_ref()).and_then(|a| a.role.as_ref())
}
