//! Reads the role that the controller created and that no profile of the group uses anymore, and its entries. Makes no
//! decisions.

use super::names::ProfileNames;
use super::observed::{ObservedState, PreviousRole};
use super::resolve::ResolvedGroup;
use super::role::reason_to_keep;
use super::role_owner::{adopted_role, is_own_role, owns_role};
use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::{AuthEntry, AuthEntryState};
use crate::aws::fargate::FargateProfile;
use crate::aws::{AwsErrorKind, Role, Tag};
use crate::ownership::{has_foreign_tags, has_ownership_tags};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::role_region::other_region;
use crate::provisioner::role_users::profile_user;
use crate::provisioner::{GroupId, join};

/// Reads the controller-created role that no profile of the group uses anymore, and its entries. EKS may have created the
/// access entry while the pods joined through aws-auth, so that the status does not record it.
pub(crate) async fn observe_unused_role(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let arn = &r.derived_role_arn;
    let is_ours = |profile: &FargateProfile| has_ownership_tags(&profile.tags, &r.ownership_tags);
    let may_exist = match &status.managed {
        Some(managed) => !managed.policies.is_empty(),
        // The status was lost. The role may be one that the group used before.
        None => state.profiles.iter().any(is_ours),
    };
    // The role of a profile that the group still has stays as well, until the profile is gone.
    let is_in_use = r.uses_derived_role() || state.profiles.iter().any(|profile| profile.role_arn == *arn);
    if !may_exist || is_in_use || state.is_derived_role_shared {
        return Ok(());
    }
    let role = match o.inventory.aws().iam.get_role(&r.names.role).await {
        // A group that never had a role of its own needs no permissions for roles.
        Err(error) if error.kind == AwsErrorKind::Denied && status.managed.is_none() => return Ok(()),
        found => found.map_err(ObserveError::Aws)?,
    };
    let is_deleted = match role {
        None => true,
        Some(role) if is_own_role(&role, r, status) => {
            let previous = with_policies(o, role, &r.region, status).await?;
            if profile_user(o, &r.desired.cluster, arn).await?.is_some() {
                state.is_derived_role_shared = true;
                return Ok(());
            }
            let recorded = status.managed.as_ref().map(|m| m.policies.as_slice()).unwrap_or_default();
            let is_deleted = reason_to_keep(&previous, recorded).is_none();
            state.previous_role = Some(previous);
            is_deleted
        }
        Some(role) => {
            state.is_own_role_unknown = !has_foreign_tags(&role.tags, &r.ownership_tags);
            false
        }
    };
    if is_deleted {
        let is_known = state.unused_auth_entries.iter().any(|known| known.role_arn == *arn);
        state.unused_auth_entries.extend(present_auth_entry(o, arn).filter(|_| !is_known));
        let entry = join::remaining_access_entry(o, &r.desired.id.key(), &r.desired.cluster, arn, status, true).await?;
        let is_known = state.unused_access_entries.iter().any(|known| known.principal == *arn);
        state.unused_access_entries.extend(entry.filter(|_| !is_known));
    }
    Ok(())
}

/// Reads the policies of the controller-created role, and who else uses it.
async fn with_policies(
    o: &Observer<'_>,
    role: Role,
    region: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<PreviousRole> {
    let (aws, iam, name) = (ObserveError::Aws, &o.inventory.aws().iam, &role.name);
    let attached_policies = iam.attached_policies(name).await.map_err(aws)?;
    let inline_policies = iam.inline_policies(name).await.map_err(aws)?;
    let other_region = other_region(Some(&role), &[], adopted_role(status) == Some(&role.id), region);
    let instance_profile = iam.profiles_of_role(name).await.map_err(aws)?.into_iter().map(|held| held.name).next();
    Ok(PreviousRole { role, attached_policies, inline_policies, other_region, instance_profile })
}

/// Who uses the controller-created role besides the group: its pods or instances would get no credentials without the role.
pub(crate) async fn role_user(
    o: &Observer<'_>,
    id: &GroupId,
    cluster: &str,
    previous: &PreviousRole,
) -> ObserveResult<Option<String>> {
    if o.group_index.is_role_shared(&previous.role.arn, &id.key()) {
        return Ok(Some("another group".to_owned()));
    }
    let of_profile = || previous.instance_profile.as_ref().map(|name| format!("the instance profile {name}"));
    Ok(profile_user(o, cluster, &previous.role.arn).await?.or_else(of_profile))
}

/// The controller-created role of a group that is being deleted.
#[derive(Default)]
pub(crate) struct DeletedGroupRole {
    /// The role, if it provably is the group's.
    pub own: Option<PreviousRole>,
    /// The name of the recorded role, if its tags do not show anymore that it is the group's.
    pub unproven: Option<String>,
}

/// The group's role under one of its names; that of this region before the recorded one of another region.
pub(crate) async fn role_of_deleted_group(
    o: &Observer<'_>,
    all_names: &[ProfileNames],
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> ObserveResult<DeletedGroupRole> {
    let is_recorded = |role: &Role| status.nodes_instance_role_arn.as_ref() == Some(&role.arn);
    let had_own_role = status.managed.as_ref().is_some_and(|managed| !managed.policies.is_empty());
    let mut found = DeletedGroupRole::default();
    for names in all_names {
        // The role of another region's group with the same identity has one of these names, and the same three tags.
        if found.own.as_ref().is_some_and(|own| own.other_region.is_none()) {
            break;
        }
        let role = o.inventory.aws().iam.get_role(&names.role).await.map_err(ObserveError::Aws)?;
        let Some(role) = role else { continue };
        if owns_role(&role, ownership, status) {
            let own = with_policies(o, role, &o.inventory.aws().region, status).await?;
            let own = Some(own).filter(|own| own.other_region.is_none() || is_recorded(&own.role));
            found.own = own.or(found.own);
        } else if had_own_role && (is_recorded(&role) || !has_foreign_tags(&role.tags, ownership)) {
            found.unproven = Some(role.name);
        }
    }
    if found.own.is_some() {
        found.unproven = None;
    }
    Ok(found)
}

/// A role's aws-auth entry, if it has the content that the controller writes. No step removes one that a person changed.
pub(crate) fn present_auth_entry(o: &Observer<'_>, role_arn: &str) -> Option<AuthEntry> {
    let is_present = |entry: &AuthEntry| o.map_roles.entry_state(entry) == AuthEntryState::Present;
    Some(AuthEntry::for_pods(role_arn)).filter(|entry| is_present(entry) && !o.map_roles.is_modified(role_arn))
}
