//! Reads the role that the controller created for a group whose spec names another role now.

use crate::api::InstanceGroupStatus;
use crate::aws::{InstanceProfile, Role, Tag};
use crate::ownership::{has_foreign_tags, has_ownership_tags, is_owned};
use crate::provisioner::eks::delete::is_standard_policy;
use crate::provisioner::eks::observed::{ObservedState, UnusedRole};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::role::previous_roles::all_nodes_use_role;
use crate::provisioner::join;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::role_region::other_region;
use crate::provisioner::role_users::other_profiles;

/// Reads the controller's own role once nothing runs with it; `None` while it may be in use, or without one.
///
/// The record of its policies shows that there is one. It is read until the record is empty, or until the plan keeps
/// it. Its join entries are gone before, except one in aws-auth that a person changed and that no step removes. What the
/// status still records of them is not used: the plan that forgets the last one deletes the role as well. Otherwise the
/// group would be Ready first, and the role would stay until the next resync.
pub(crate) async fn observe(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<UnusedRole>> {
    let Some(managed) = status.managed.as_ref().filter(|managed| !managed.policies.is_empty()) else { return Ok(None) };
    let (key, arn) = (resolved.desired.id.key(), &resolved.derived_role_arn);
    if resolved.own_role && o.process_state.is_unused_role_kept(&key) {
        o.process_state.set_unused_role_kept(&key, false);
    }
    let is_used = resolved.own_role
        || resolved.role_arn == *arn
        || state.previous_roles.recorded_auth_entries.contains(arn) && !o.map_roles.is_modified(arn)
        || state.previous_roles.recorded_access_entries.contains(arn)
        || o.group_index.is_role_shared(arn, &key)
        || !o.group_index.aws_auth_users(arn, &key).is_empty()
        || !o.group_index.access_entry_users(arn, &key).is_empty()
        || o.process_state.is_unused_role_kept(&key);
    if is_used || !all_nodes_use_role(resolved, state, status, o.now) {
        return Ok(None);
    }
    // Its entry would stay, and admit any role of that name.
    if join::aws_auth_problem(o, &resolved.desired.cluster).await?.is_some() {
        return Ok(None);
    }
    let (iam, name, aws) = (&o.inventory.aws().iam, &resolved.names.role, ObserveError::Aws);
    let adopted = managed.adopted.clone().unwrap_or_default();
    let ownership = &resolved.ownership_tags;
    let profile = iam.get_profile(name).await.map_err(aws)?;
    let is_own_profile = |p: &InstanceProfile| is_owned(&p.id, &p.tags, adopted.profile.as_ref(), ownership);
    let is_own_role = |role: &Role| is_owned(&role.id, &role.tags, adopted.role.as_ref(), ownership);
    // A user may have taken the tags off, which may come back. Nothing would look for the role without its record.
    let is_untagged = |tags: &[Tag]| !has_foreign_tags(tags, ownership);
    if profile.as_ref().is_some_and(|p| !is_own_profile(p) && is_untagged(&p.tags)) {
        return Ok(None);
    }
    let profile = profile.filter(is_own_profile);
    if runs_instances(o, profile.as_ref()).await? {
        return Ok(None);
    }
    let found = iam.get_role(name).await.map_err(aws)?;
    if found.as_ref().is_some_and(|role| !is_own_role(role) && is_untagged(&role.tags)) {
        return Ok(None);
    }
    let is_of_others = found.as_ref().is_some_and(|role| !is_own_role(role));
    let role = found.filter(is_own_role);
    let (mut attached_policies, mut inline_policies) = (Vec::new(), Vec::new());
    if role.is_some() {
        attached_policies = iam.attached_policies(name).await.map_err(aws)?;
        inline_policies = iam.inline_policies(name).await.map_err(aws)?;
    }
    let is_tag_added = role.as_ref().is_some_and(|role| adopted.role.as_ref() == Some(&role.id));
    let profile_tags = profile.as_ref().map_or(&[][..], |profile| &profile.tags);
    let other_region = other_region(role.as_ref(), profile_tags, is_tag_added, &resolved.region);
    let other_profiles = match &role {
        Some(role) => other_profiles(o, &role.name).await?.into_iter().map(|p| p.name).collect(),
        None => Vec::new(),
    };
    let access_entry = None;
    let mut unused =
        UnusedRole { role, profile, attached_policies, inline_policies, other_region, other_profiles, access_entry };
    if unused.reason_to_keep(&managed.policies).is_some() {
        o.process_state.set_unused_role_kept(&key, true);
    } else if !is_of_others {
        // The status does not record what a user created while the nodes joined through aws-auth.
        let cluster = &resolved.desired.cluster;
        unused.access_entry = join::remaining_access_entry(o, &key, cluster, arn, status, true).await?;
    }
    Ok(Some(unused))
}

/// Whether instances run with the profile of the group's own role. The scaling group does not show one that a user
/// detached from it or launched beside it; a deletion of the group leaves the role to such an instance as well.
pub(super) async fn runs_instances(o: &Observer<'_>, profile: Option<&InstanceProfile>) -> ObserveResult<bool> {
    let Some(profile) = profile else { return Ok(false) };
    let running = o.inventory.aws().ec2.instances_with_profiles(std::slice::from_ref(&profile.arn)).await;
    Ok(!running.map_err(ObserveError::Aws)?.is_empty())
}

/// The policies that the controller attaches, on the group's own role. Its tags prove whose it is.
pub(crate) async fn unrecorded_policies(o: &Observer<'_>, resolved: &ResolvedGroup) -> ObserveResult<Vec<String>> {
    let (iam, name) = (&o.inventory.aws().iam, &resolved.names.role);
    let role = iam.get_role(name).await.map_err(ObserveError::Aws)?;
    if !role.is_some_and(|role| has_ownership_tags(&role.tags, &resolved.ownership_tags)) {
        return Ok(Vec::new());
    }
    let mut attached = iam.attached_policies(name).await.map_err(ObserveError::Aws)?;
    attached.retain(|policy| is_standard_policy(policy) || resolved.managed_policies.contains(policy));
    Ok(attached)
}
