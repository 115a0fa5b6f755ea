//! Reads the join entries of roles that the group's nodes used before.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::JoinMethod;
use crate::auth::aws_auth::{AuthEntry, AuthEntryState};
use crate::aws::{AccessEntryType, NewAccessEntry};
use crate::index::shared_entries::{EntryDisposition, entry_disposition};
use crate::provisioner::eks::observe::unused_role::runs_instances;
use crate::provisioner::eks::observed::{ObservedState, PreviousRoles, version_number};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::role::previous_roles::all_nodes_use_role;
use crate::provisioner::eks::user_data::OsFamily;
use crate::provisioner::join;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::role_users::{KeptEntry, node_user, other_profiles};
use crate::util::recorded_time;

/// How long a running node may use a role after a user took it out of the node's instance profile. The change takes effect
/// within an hour (IAM User Guide, "Use instance profiles"). AWS does not document how long the credentials that the node
/// got before are valid; it is about six hours.
const LONGEST_USE: SignedDuration = SignedDuration::from_hours(12);

/// Reads the entries of previous roles. AWS is called only for an access entry that is about to be removed.
pub(crate) async fn observe(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> ObserveResult<PreviousRoles> {
    let managed = status.managed.clone().unwrap_or_default();
    let (key, mut found) = (resolved.desired.id.key(), PreviousRoles::default());
    let exchanged_at = exchanged_at(o, resolved, state, status).await?;
    let needed = |arn: &str, others: &BTreeSet<String>| {
        exchanged_at.is_some()
            || o.group_index.is_role_shared(arn, &key)
            || o.group_index.any_deleting(others)
            || !all_nodes_use_role(resolved, state, status, o.now)
    };
    // The entry of the group's own role is removed with that role, even without a record of who created it: an adopted
    // group has none.
    let has_own_role = !resolved.own_role && !managed.policies.is_empty() && !o.process_state.is_unused_role_kept(&key);
    let own = Some(&resolved.derived_role_arn).filter(|_| has_own_role);
    let own = own.filter(|arn| !managed.auth_entries.contains(arn) && aws_auth_entry(o, arn).is_some()).cloned();
    for arn in managed.auth_entries.iter().cloned().chain(own).filter(|arn| *arn != resolved.role_arn) {
        let entry = aws_auth_entry(o, &arn);
        let linux = AuthEntry::for_nodes(&arn, false);
        if entry.is_none() && o.map_roles.entry_state(&linux) == AuthEntryState::Absent {
            let joins_by_it = !matches!(resolved.join_method, JoinMethod::AccessEntries { .. })
                && !managed.access_entries.contains(&arn);
            // Its nodes have lost access since the entry was deleted. The record alone is not a reason to authorize a
            // role.
            if joins_by_it && runs_with(o, resolved, state, &arn).await? {
                let windows = resolved.desired.os_family == OsFamily::Windows;
                found.missing_auth_entries.push(AuthEntry::for_nodes(&arn, windows));
                found.recorded_auth_entries.push(arn);
            }
            continue;
        }
        let others = o.group_index.aws_auth_users(&arn, &key);
        match entry_disposition(needed(&arn, &others), &others, &key) {
            EntryDisposition::RemovedByPeer => continue,
            EntryDisposition::Keep if managed.access_entries.contains(&arn) => {}
            // Nodes that still run with the role would lose the cluster once it no longer reads aws-auth.
            EntryDisposition::Keep if misses_access_entry(o, resolved, &arn).await? => {
                if runs_with(o, resolved, state, &arn).await? {
                    found.missing_access_entries.push(access_entry_of(o, resolved, &arn));
                    found.recorded_access_entries.push(arn.clone());
                }
            }
            EntryDisposition::Keep => {}
            // It stays: aws-auth cannot be parsed, or a person changed the entry.
            EntryDisposition::Remove if entry.is_none() => {}
            EntryDisposition::Remove if own_role_runs_instances(o, resolved, &arn).await? => {}
            EntryDisposition::Remove => {
                if let Some(user) = other_user(o, resolved, state, &arn).await? {
                    found.keep(arn, user);
                    continue;
                }
                found.unused_auth_entries.extend(entry);
            }
        }
        found.recorded_auth_entries.push(arn);
    }
    for arn in managed.access_entries.into_iter().filter(|arn| *arn != resolved.role_arn) {
        if misses_access_entry(o, resolved, &arn).await? && runs_with(o, resolved, state, &arn).await? {
            found.missing_access_entries.push(access_entry_of(o, resolved, &arn));
            found.recorded_access_entries.push(arn);
            continue;
        }
        let others = o.group_index.access_entry_users(&arn, &key);
        match entry_disposition(needed(&arn, &others), &others, &key) {
            EntryDisposition::RemovedByPeer => continue,
            EntryDisposition::Keep => {}
            EntryDisposition::Remove if own_role_runs_instances(o, resolved, &arn).await? => {}
            EntryDisposition::Remove => {
                let (cluster, is_own) = (&resolved.desired.cluster, arn == resolved.derived_role_arn);
                let entry = join::remaining_access_entry(o, &key, cluster, &arn, status, is_own).await?;
                let Some(entry) = entry else { continue };
                if let Some(user) = other_user(o, resolved, state, &arn).await? {
                    found.keep(arn, user);
                    continue;
                }
                found.unused_access_entries.push(entry);
            }
        }
        found.recorded_access_entries.push(arn);
    }
    let has_entries = !found.recorded_auth_entries.is_empty() || !found.recorded_access_entries.is_empty();
    found.exchanged_at = exchanged_at.filter(|_| has_entries);
    Ok(found)
}

/// When a user exchanged the role in the instance profile of running nodes, while they may have credentials of the role
/// before. Only the pass in which the role of the spec changes can notice it: the launch template names the profile.
async fn exchanged_at(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<Timestamp>> {
    let has_instances = state.scaling_group.as_ref().is_some_and(|group| !group.instances.is_empty());
    let is_previous = |arn: &&String| **arn != resolved.role_arn && **arn != resolved.derived_role_arn;
    let before = status.nodes_instance_role_arn.as_ref().filter(|arn| has_instances && is_previous(arn));
    // A role that the spec named before, and that no version was launched with, is in another profile.
    let runs_with_profile =
        !resolved.own_role && launched_profiles(resolved, state).contains(name_of(&resolved.template_data.profile_arn));
    if let Some(before) = before.filter(|_| runs_with_profile) {
        let launched = launched_roles(o, resolved, state).await?;
        // With another profile in the spec, the nodes run with that of the role before, which still has it.
        if !launched.is_empty() && !launched.contains(before) {
            return Ok(Some(o.now));
        }
    }
    let recorded = status.managed.as_ref().and_then(|managed| managed.role_exchanged_at.as_ref());
    let recorded = recorded.and_then(|at| recorded_time::past(at, o.now));
    Ok(recorded.filter(|at| o.now.duration_since(*at) < LONGEST_USE))
}

/// The access entry of a role that the group's nodes used before. They may run Windows although the spec names Linux
/// now, and the access entry overrides the role's entry in aws-auth.
fn access_entry_of(o: &Observer<'_>, resolved: &ResolvedGroup, role_arn: &str) -> NewAccessEntry {
    let (principal, own_role) = (role_arn.to_owned(), role_arn == resolved.derived_role_arn);
    let runs_windows = o.map_roles.allows_windows(role_arn);
    let kind = if runs_windows { AccessEntryType::Ec2Windows } else { resolved.access_entry.kind };
    NewAccessEntry { principal, own_role, kind, ..resolved.access_entry.clone() }
}

/// Whether a role that the group's nodes used before lacks the access entry that they need.
async fn misses_access_entry(o: &Observer<'_>, resolved: &ResolvedGroup, role_arn: &str) -> ObserveResult<bool> {
    let entries = [false, true].map(|windows| AuthEntry::for_nodes(role_arn, windows));
    join::misses_access_entry(o, resolved.join_method, &access_entry_of(o, resolved, role_arn), &entries).await
}

/// Whether the group launches or runs instances with a role.
async fn runs_with(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    role_arn: &str,
) -> ObserveResult<bool> {
    Ok(launched_roles(o, resolved, state).await?.contains(role_arn))
}

/// The roles in the instance profiles that the group launches or runs instances with.
async fn launched_roles(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
) -> ObserveResult<BTreeSet<String>> {
    let mut roles = BTreeSet::new();
    for name in launched_profiles(resolved, state) {
        let profile = o.inventory.profile(name, o.shared_max_cache_age).await.map_err(ObserveError::Aws)?;
        roles.extend(profile.and_then(|profile| profile.role).map(|role| role.arn));
    }
    Ok(roles)
}

/// The names of the instance profiles that the group launches or runs instances with, by AWS's data about the versions
/// that they are launched from.
fn launched_profiles<'a>(resolved: &'a ResolvedGroup, state: &'a ObservedState) -> BTreeSet<&'a str> {
    let (Some(group), template) = (&state.scaling_group, state.template.as_ref()) else { return BTreeSet::new() };
    let pins = group.template.iter().chain(group.instances.iter().filter_map(|instance| instance.template.as_ref()));
    let numbers: BTreeSet<_> = pins
        .filter(|pin| template.is_some_and(|template| template.id == pin.id))
        .filter_map(|pin| version_number(pin, template))
        .collect();
    // A version whose content was not read has the desired one.
    let versions = numbers.iter().filter_map(|number| state.versions.get(number));
    let contents = versions.map(|version| version.data.as_ref().unwrap_or(&resolved.template_data));
    let launched = contents.chain(&state.launch_configuration);
    launched.map(|data| name_of(&data.profile_arn)).filter(|name| !name.is_empty()).collect()
}

/// The name in the ARN of an instance profile, which may have a path.
fn name_of(profile_arn: &str) -> &str {
    profile_arn.rsplit('/').next().unwrap_or_default()
}

/// Whether it is the role that the controller created, and instances still run with it. It is then deleted later, with its
/// entries.
async fn own_role_runs_instances(o: &Observer<'_>, resolved: &ResolvedGroup, arn: &str) -> ObserveResult<bool> {
    if arn != resolved.derived_role_arn {
        return Ok(false);
    }
    let profile = o.inventory.profile(&resolved.names.role, o.shared_max_cache_age).await;
    runs_instances(o, profile.map_err(ObserveError::Aws)?.as_ref()).await
}

/// Who else uses a role that the group used before. Of the one that the controller created it is another instance profile:
/// the role stays with it, and nodes that it launches need the entry.
async fn other_user(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    arn: &str,
) -> ObserveResult<Option<String>> {
    if arn == resolved.derived_role_arn {
        let others = other_profiles(o, &resolved.names.role).await?;
        return Ok(others.first().map(|profile| format!("the instance profile {}", profile.name)));
    }
    node_user(o, arn, state.template.as_ref().map(|template| template.id.as_str())).await
}

impl PreviousRoles {
    fn keep(&mut self, role_arn: String, user: String) {
        let kept = KeptEntry { role_arn, user };
        if !self.kept.contains(&kept) {
            self.kept.push(kept);
        }
    }
}

/// A role's entry in aws-auth, when its content is what the controller writes: no step removes one that a person changed.
/// The status does not record whether the entry is for Linux or Windows nodes, so both are tried.
pub(crate) fn aws_auth_entry(o: &Observer<'_>, role_arn: &str) -> Option<AuthEntry> {
    if o.map_roles.is_modified(role_arn) {
        return None;
    }
    let mut entries = [false, true].into_iter().map(|windows| AuthEntry::for_nodes(role_arn, windows));
    entries.find(|entry| o.map_roles.entry_state(entry) == AuthEntryState::Present)
}
