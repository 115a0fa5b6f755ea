//! Ownership of the resources that have the names which a group derives. Pure.
//!
//! A matching name is not proof of ownership.

use super::launch_configuration;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::rotation::outdated::current_launch_data;
use super::rotation::template_origin::{TemplateOrigin, pinned_version};
use crate::api::InstanceGroupStatus;
use crate::api::names::tag;
use crate::aws::Tag;
use crate::ownership::{Ownership, classify_ownership, has_foreign_tags, has_ownership_tags, is_owned};
use crate::provisioner::role_region::{other_region, tagged_region};

/// Whether the derived names belong to another owner. Either the scaling group belongs to another group with the same
/// derived name. Or there is no scaling group, and the role, profile or template is not this group's. A scaling group
/// with modified tags is not a conflict, or the controller would create a second one beside it.
pub fn name_conflict(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> bool {
    let ownership = &resolved.ownership_tags;
    match &state.scaling_group {
        Some(group) => classify_ownership(&group.name, &group.tags, ownership) == Ownership::OtherGroup,
        None => {
            state.template.as_ref().is_some_and(|t| has_foreign_tags(&t.tags, ownership))
                || foreign_resource(resolved, state, status).is_some()
        }
    }
}

/// The derived names of which a conflict counts that a create call of this process met.
///
/// If the role or the profile of the derived name is the group's own, the conflict was a scaling group that a user created
/// under that name. The group waits for its end: under other names, nothing would look for its role any more.
pub(crate) fn names_with_conflicts<'a>(
    resolved: &'a ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Vec<&'a str> {
    let is_present = state.role.is_some() || state.instance_profile.is_some();
    match resolved.own_role && is_present && foreign_resource(resolved, state, status).is_none() {
        true => vec![resolved.names.template.as_str()],
        false => resolved.names.all().to_vec(),
    }
}

/// Describes the role or instance profile that has the derived name and is not provably this group's; `None` without one.
///
/// A name is not proof, because nodes get the permissions of the role that they launch with. Proof is: the three
/// ownership tags, the id recorded at the adoption, or a scaling group of this group that launches with the profile
/// which holds the role.
pub(crate) fn foreign_resource(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Option<String> {
    if !resolved.own_role {
        return None;
    }
    let adopted = status.managed.as_ref().and_then(|m| m.adopted.clone()).unwrap_or_default();
    let is_own = |id: &str, tags: &[Tag], recorded: &Option<String>| {
        is_owned(id, tags, recorded.as_ref(), &resolved.ownership_tags)
    };
    let (name, profile) = (&resolved.names.role, state.instance_profile.as_ref());
    let profile_role = profile.and_then(|p| p.role.as_ref()).filter(|role| role.name == *name);
    if profile_role.is_some() && launches_with_own_profile(resolved, state, status) {
        return None;
    }
    if let Some(evidence) = evidence_of_other_region(resolved, state, status) {
        return Some(format!("the IAM role {name} ({evidence})"));
    }
    if profile.is_some_and(|p| !is_own(&p.id, &p.tags, &adopted.profile)) {
        return Some(format!("the instance profile {name}"));
    }
    let role = state.role.as_ref().or(profile_role);
    role.filter(|r| !is_own(&r.id, &r.tags, &adopted.role)).map(|_| format!("the IAM role {name}"))
}

/// Evidence of another region's use of the role or instance profile with the derived name, which no scaling group of
/// this group launches with.
///
/// Without the tag of a region, a role that was never used and that the status does not record may be new in another
/// region.
fn evidence_of_other_region(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Option<String> {
    let profile_tags = state.instance_profile.as_ref().map_or(&[][..], |p| &p.tags);
    let role = state.role.as_ref();
    if let Some(other) = other_region(role, profile_tags, false, &resolved.region) {
        return Some(other.to_string());
    }
    let tags = role.map_or(profile_tags, |role| &role.tags);
    let may_be_new = tagged_region(tags).is_none() && role.is_none_or(|role| role.last_used_region.is_none());
    let is_claimed = has_ownership_tags(tags, &resolved.ownership_tags);
    (is_claimed && may_be_new && status.managed.is_none()).then(|| format!("without the tag {}", tag::REGION))
}

/// Whether this group's scaling group launches with the profile of the derived name although the spec does not name it.
/// With a role from the spec, the status records no policies.
fn launches_with_own_profile(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> bool {
    let Some(group) = state.scaling_group.as_ref().filter(|g| has_ownership_tags(&g.tags, &resolved.ownership_tags))
    else {
        return false;
    };
    if status.managed.as_ref().is_some_and(|managed| managed.policies.is_empty()) {
        return false;
    }
    let arn = state.instance_profile.as_ref().map_or(&resolved.template_data.profile_arn, |p| &p.arn);
    if let Some(data) = current_launch_data(state) {
        return data.profile_arn == *arn;
    }
    // The content is not read while the recorded hash equals the desired one.
    let same = match launch_configuration::current_name(group) {
        Some(name) => launch_configuration::matches_adoption(resolved, status, name),
        None => pinned_version(state)
            .is_some_and(|n| TemplateOrigin::of_version(state, status, n).has_content(&resolved.fingerprint.hash)),
    };
    same && resolved.template_data.profile_arn == *arn
}
