//! Reads the references of the spec and the group's resources from AWS. Makes no decisions.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;

use super::desired::DesiredSpec;
use super::names::ProfileNames;
use super::observed::{ObservedProfiles, ObservedState, PreviousRole, recorded_role_id};
use super::ownership::{OwnershipEvidence, RemainingProfiles, has_created_resources};
use super::resolve::{References, ResolvedGroup};
use super::unused_role::{observe_unused_role, present_auth_entry, role_of_deleted_group, role_user};
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::JoinMethod;
use crate::auth::aws_auth::{AuthEntry, AuthEntryState};
use crate::aws::fargate::{FargateProfile, ProfileStatus, RouteTable};
use crate::aws::{AccessEntry, NewAccessEntry, Role, Tag};
use crate::index::profile_queue::QueuePosition;
use crate::index::shared_entries::{EntryDisposition, entries_to_remove, entry_disposition};
use crate::ownership::{has_foreign_tags, has_ownership_tags, ownership_tags};
use crate::provisioner::observe::network::network;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::role_region::{RegionClaim, region_claim};
use crate::provisioner::role_users::{KeptEntry, profile_user};
use crate::provisioner::{GroupId, join};

/// Longest cache age for profiles of an idle group. EKS changes only the tags of a profile, and the list shows a deleted
/// one, unless a user creates another of its name before the next list.
const IDLE_MAX_AGE: Duration = Duration::from_secs(3600);
/// The same as a multiple of the age of shared reads, which is half a resync period.
const IDLE_SHARED_READS: u32 = 6;

/// Looks up the cluster and the subnets that the spec refers to.
pub(crate) async fn references(o: &Observer<'_>, desired: &DesiredSpec) -> ObserveResult<References> {
    let aws = ObserveError::Aws;
    let Some(cluster) = o.inventory.cluster(&desired.cluster).await.map_err(aws)? else {
        return Ok(References::default());
    };
    let network = network(o, &cluster, &desired.subnets, &[]).await?;
    Ok(References { cluster: Some(cluster), subnets: network.subnets, in_other_vpcs: network.in_other_vpcs })
}

/// Reads the observed state of a group.
pub(crate) async fn observed_state(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    let aws = ObserveError::Aws;
    let idle = o.shared_max_cache_age.saturating_mul(IDLE_SHARED_READS).min(IDLE_MAX_AGE);
    let age = if o.max_cache_age < o.shared_max_cache_age { o.max_cache_age } else { idle };
    let profiles = read_profiles(o, &r.desired.cluster, &r.names, status, (o.max_cache_age, age)).await?;
    let (role, policy) = (&r.names.role, &r.managed_policy);
    let listed = match r.is_own_role {
        true => o.inventory.role_with_policy(role, policy, o.shared_max_cache_age).await.map_err(aws)?,
        false => None,
    };
    let is_role_ready = listed.is_some();
    // The list may be older than the record, so that the role is read.
    let is_recreated = listed.and_then(|listed| listed.id).is_some_and(|id| is_other_role(&id, r, status));
    let recorded = status.managed.iter().flat_map(|m| &m.auth_entries);
    let key = r.desired.id.key();
    let mut found = None;
    if r.is_own_role && (!is_role_ready || is_recreated) {
        found = o.inventory.aws().iam.get_role(role).await.map_err(aws)?;
    }
    let role = role_in_iam(o, r, is_role_ready && !is_recreated, found.as_ref(), status).await?;
    let query = join::JoinQuery {
        group_key: &key,
        join_method: r.join_method,
        aws_auth_entry: &r.aws_auth_entry,
        access_entry: &r.access_entry,
        own_role: r.is_own_role,
        role_id: role.as_ref().map(|(id, _)| id.as_str()),
        role_created_at: role.as_ref().and_then(|(_, created)| *created),
    };
    let previous = recorded.filter(|arn| **arn != r.role_arn);
    let is_aws_auth_readable = o.map_roles.problem().is_none();
    // As long as it cannot be parsed, every entry may be there.
    let (unused, mut kept_auth_entries) = match is_aws_auth_readable {
        true => classify_previous_roles(o, &r.desired.id, previous, |arn, key| o.group_index.aws_auth_users(arn, key)),
        false => (Vec::new(), previous.cloned().collect()),
    };
    // An entry that a person changed is removed once the change is undone.
    kept_auth_entries.extend(unused.iter().copied().filter(|arn| o.map_roles.is_modified(arn)).cloned());
    let mut unused_auth_entries: Vec<_> = unused.into_iter().filter_map(|arn| present_auth_entry(o, arn)).collect();
    let (mut unused_access_entries, kept_access_entries) = previous_access_entries(o, r, status).await?;
    let roles = unused_auth_entries.iter().map(|entry| &entry.role_arn);
    let roles: BTreeSet<_> = roles.chain(unused_access_entries.iter().map(|entry| &entry.principal)).cloned().collect();
    let mut entries_of_others = Vec::new();
    // A profile of the group itself is deleted before the entry is removed.
    let is_in_use = |arn: &String| profiles.iter().any(|profile| profile.role_arn == *arn);
    for role_arn in roles.into_iter().filter(|arn| !is_in_use(arn)) {
        if let Some(user) = profile_user(o, &r.desired.cluster, &role_arn).await? {
            unused_auth_entries.retain(|entry| entry.role_arn != role_arn);
            unused_access_entries.retain(|entry| entry.principal != role_arn);
            entries_of_others.push(KeptEntry { role_arn, user });
        }
    }
    let (missing_auth_entries, missing_access_entries) = missing_entries(o, r, status, &profiles).await?;
    let mut state = ObservedState {
        unseen_tags: unseen_tags(o, r, status, &profiles),
        profiles,
        is_role_ready,
        role: found,
        join_state: join::observe(o, query, status).await?,
        missing_auth_entries,
        missing_access_entries,
        unused_access_entries,
        unused_auth_entries,
        entries_of_others,
        kept_auth_entries,
        kept_access_entries,
        previous_role: None,
        is_own_role_unknown: false,
        rivals: o.group_index.profile_rivals(&r.desired.id, has_created_resources(status)),
        is_derived_role_shared: o.group_index.is_role_shared(&r.derived_role_arn, &key)
            || !o.group_index.aws_auth_users(&r.derived_role_arn, &key).is_empty()
            || !o.group_index.access_entry_users(&r.derived_role_arn, &key).is_empty(),
        tag_retry_pending: o.process_state.is_tagging_in_backoff(&r.desired.id.key(), o.shared_max_cache_age, o.now),
        queue_position: queue_position(o, &r.desired.id, &r.desired.cluster, status),
    };
    let recorded_region = status.managed.as_ref().and_then(|m| m.role_region.as_ref());
    let is_region_known = recorded_region == Some(&r.region) || o.process_state.is_role_region_checked(&key);
    let is_read = state.role.is_some() || !r.is_own_role || !is_role_ready;
    if !is_read && (!is_region_known || needs_role(r, &state, status)) {
        state.role = o.inventory.aws().iam.get_role(&r.names.role).await.map_err(aws)?;
    }
    let claim = state.role.as_ref().map(|role| region_claim(role, None, &r.ownership_tags, &r.region));
    let is_claimed = matches!(claim, Some(RegionClaim::Tagged | RegionClaim::Claimable));
    if claim.is_some() && (!is_claimed || state.tag_retry_pending) {
        o.process_state.set_role_region_checked(&key);
    }
    // The role's entry would stay, and admit any later role of that name.
    match join::aws_auth_problem(o, &r.desired.cluster).await? {
        None => observe_unused_role(o, r, status, &mut state).await?,
        Some(_) => state.is_own_role_unknown = true,
    }
    Ok(state)
}

/// The recorded keys of tags that the spec dropped and that EKS does not show, although it may soon.
fn unseen_tags(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    status: &InstanceGroupStatus,
    profiles: &[FargateProfile],
) -> BTreeSet<String> {
    let Some(managed) = status.managed.as_ref().filter(|_| !o.is_forecast) else { return BTreeSet::new() };
    let is_dropped = |key: &&String| r.tags.iter().all(|tag| tag.key != **key);
    let dropped = managed.tags.iter().filter(is_dropped).cloned().collect();
    let shown = profiles.iter().flat_map(|profile| &profile.tags).map(|tag| tag.key.clone()).collect();
    o.process_state.observe_names(&r.desired.id.key(), shown, dropped, o.consistency_delay, o.now)
}

/// Whether the tags and the trust policy of a role that has its policy matter: a profile is adopted, it fails, or it is
/// about to be created. EKS creates no profile with a role whose trust policy does not admit it.
fn needs_role(r: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> bool {
    let found = ObservedProfiles::classify(r, state, status);
    let fails = |p: &FargateProfile| p.status == ProfileStatus::CreateFailed || !p.issues.is_empty();
    let is_busy = |p: &FargateProfile| matches!(p.status, ProfileStatus::Creating | ProfileStatus::Deleting);
    let is_missing = found.current(r, status.fargate.as_ref(), None).is_none();
    (found.untagged.is_some() && !state.tag_retry_pending)
        || found.own.iter().any(|p| fails(p))
        || is_missing && !found.own.iter().any(|p| is_busy(p))
}

/// Whether the status records another id of the controller-created role: a user deleted the role and created it again.
fn is_other_role(id: &str, r: &ResolvedGroup, status: &InstanceGroupStatus) -> bool {
    recorded_role_id(status, &r.role_arn).is_some_and(|recorded| recorded != id)
}

/// The unique id of the controller-created role, and its creation time if it was read, if the join method uses access
/// entries. An access entry admits only the role that existed when the entry was created. The id is recorded in status
/// until the role is recreated.
async fn role_in_iam(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    role_ready: bool,
    role: Option<&Role>,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<(String, Option<Timestamp>)>> {
    if !r.is_own_role || !role_ready {
        return Ok(role.map(|role| (role.id.clone(), role.created)));
    }
    if let Some(id) = recorded_role_id(status, &r.role_arn) {
        return Ok(Some((id.clone(), None)));
    }
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.contains(&r.role_arn));
    if !r.join_method.queries_access_entry(
        &o.map_roles.entry_state(&r.aws_auth_entry),
        o.group_index.has_aws_auth_entry(&r.role_arn),
        recorded,
    ) {
        return Ok(None);
    }
    let role = o.inventory.aws().iam.get_role(&r.names.role).await.map_err(ObserveError::Aws)?;
    Ok(role.map(|role| (role.id, role.created)))
}

/// The route tables of the cluster's VPC, if a profile is about to be created in subnets from the spec.
pub(crate) async fn route_tables(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> ObserveResult<Vec<RouteTable>> {
    let recorded = status.fargate.as_ref();
    let is_adopted = recorded.is_some_and(|recorded| recorded.adopted_hash.is_some());
    let found = ObservedProfiles::classify(r, state, status);
    let is_first_observation = found.untagged.is_some() && !is_adopted;
    if is_first_observation || r.subnets.is_empty() || found.current(r, recorded, None).is_some() {
        return Ok(Vec::new());
    }
    let Some(vpc) = &r.vpc else { return Ok(Vec::new()) };
    let tables = o.inventory.route_tables(vpc).await.map_err(ObserveError::Aws)?;
    Ok(tables.map(|tables| tables.to_vec()).unwrap_or_default())
}

/// Reads the profiles whose names the group could have derived, and those recorded in its status.
async fn read_profiles(
    o: &Observer<'_>,
    cluster: &str,
    names: &ProfileNames,
    status: &InstanceGroupStatus,
    (list_age, profile_age): (Duration, Duration),
) -> ObserveResult<Vec<FargateProfile>> {
    let aws = ObserveError::Aws;
    let listed = o.inventory.fargate_profile_names(cluster, list_age).await.map_err(aws)?;
    let recorded = status.fargate.iter().flat_map(|f| &f.profiles);
    let names: BTreeSet<_> = listed.iter().chain(recorded).filter(|name| names.covers(name)).collect();
    // A recorded profile that is not listed is deleted, or too new for the cached list.
    let age = |name: &String| if listed.contains(name) { profile_age } else { profile_age.min(list_age) };
    let found = names.iter().map(|name| o.inventory.fargate_profile(cluster, name, age(name)));
    Ok(try_join_all(found).await.map_err(aws)?.into_iter().flatten().collect())
}

/// The name of a profile with the group's tags, whatever the status records.
pub(super) async fn tagged_profile(o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>> {
    let (tags, no_status, max_age) = (ownership_tags(cluster, id), InstanceGroupStatus::default(), o.max_cache_age);
    for names in ProfileNames::all(cluster, id, &o.inventory.aws().region) {
        let found = read_profiles(o, cluster, &names, &no_status, (max_age, max_age)).await?;
        if let Some(own) = found.into_iter().find(|profile| has_ownership_tags(&profile.tags, &tags)) {
            return Ok(Some(own.name));
        }
    }
    Ok(None)
}

/// Splits previous roles into those whose entry is removed and those whose entry is kept and recorded. Other groups that
/// stopped using the role may still run pods with it.
fn classify_previous_roles<'r>(
    o: &Observer<'_>,
    id: &GroupId,
    roles: impl Iterator<Item = &'r String>,
    recorded: impl Fn(&str, &str) -> BTreeSet<String>,
) -> (Vec<&'r String>, Vec<String>) {
    let (key, mut unused, mut kept) = (id.key(), Vec::new(), Vec::new());
    for arn in roles.collect::<BTreeSet<_>>() {
        let others = recorded(arn, &key);
        let needed = o.group_index.is_role_shared(arn, &key) || o.group_index.any_deleting(&others);
        match entry_disposition(needed, &others, &key) {
            EntryDisposition::Remove => unused.push(arn),
            EntryDisposition::Keep => kept.push(arn.clone()),
            EntryDisposition::RemovedByPeer => {}
        }
    }
    (unused, kept)
}

async fn previous_access_entries(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<(Vec<AccessEntry>, Vec<String>)> {
    let recorded = status.managed.iter().flat_map(|m| &m.access_entries).filter(|arn| **arn != r.role_arn);
    let (unused, kept) =
        classify_previous_roles(o, &r.desired.id, recorded, |arn, key| o.group_index.access_entry_users(arn, key));
    let key = r.desired.id.key();
    let remaining = unused
        .into_iter()
        .map(|arn| join::remaining_access_entry(o, &key, &r.desired.cluster, arn, status, *arn == r.derived_role_arn));
    Ok((try_join_all(remaining).await?.into_iter().flatten().collect(), kept))
}

/// The recorded entries that are missing, of previous roles that a profile of the group still has: a lock may keep it for
/// long. The record alone is not a reason to authorize a role.
async fn missing_entries(
    o: &Observer<'_>,
    r: &ResolvedGroup,
    status: &InstanceGroupStatus,
    profiles: &[FargateProfile],
) -> ObserveResult<(Vec<AuthEntry>, Vec<NewAccessEntry>)> {
    let (mut auth_entries, mut access_entries) = (Vec::new(), Vec::new());
    let is_known = !o.is_forecast && !r.broken.contains(Part::Join);
    let Some(managed) = status.managed.as_ref().filter(|_| is_known) else { return Ok((auth_entries, access_entries)) };
    let runs_pods = |arn: &String| profiles.iter().any(|p| p.role_arn == *arn && p.status != ProfileStatus::Deleting);
    let recorded = managed.auth_entries.iter().chain(&managed.access_entries);
    let roles: BTreeSet<_> = recorded.filter(|arn| **arn != r.role_arn && runs_pods(arn)).collect();
    for arn in roles {
        let (entry, own_role) = (AuthEntry::for_pods(arn), *arn == r.derived_role_arn);
        let access_entry = NewAccessEntry { principal: arn.clone(), own_role, ..r.access_entry.clone() };
        let joins_by_aws_auth =
            !matches!(r.join_method, JoinMethod::AccessEntries { .. }) && !managed.access_entries.contains(arn);
        if joins_by_aws_auth && o.map_roles.entry_state(&entry) == AuthEntryState::Absent {
            auth_entries.push(entry);
        } else if join::misses_access_entry(o, r.join_method, &access_entry, std::slice::from_ref(&entry)).await? {
            access_entries.push(access_entry);
        }
    }
    Ok((auth_entries, access_entries))
}

fn queue_position(o: &Observer<'_>, id: &GroupId, cluster: &str, status: &InstanceGroupStatus) -> QueuePosition {
    let since = status.fargate.as_ref().and_then(|f| f.waiting_since.as_deref());
    o.group_index.profile_queue_position(cluster, since, &id.key(), o.now)
}

/// The remaining resources of a group that is being deleted.
pub(crate) struct RemainingResources {
    /// The group's profiles.
    pub profiles: RemainingProfiles,
    /// The role of an adopted profile, if it has the name derived for the group and no ownership tags.
    pub untagged_role: Option<String>,
    /// The controller-created role, once the profiles are deleted.
    pub previous_role: Option<PreviousRole>,
    /// The name of the recorded role, if its tags do not show anymore that it is the group's.
    pub unproven_role: Option<String>,
    /// The controller-created role if others use it, by name, and who does.
    pub role_in_use: Option<(String, String)>,
    /// The group's aws-auth entries that no other group uses.
    pub aws_auth_entries: Vec<AuthEntry>,
    /// The group's access entries that no other group uses.
    pub access_entries: Vec<AccessEntry>,
    /// The group's entries that no other group uses, and that stay because another profile uses the role.
    pub kept_entries: Vec<KeptEntry>,
    /// ARNs of the roles whose entry in aws-auth stays because a person changed it.
    pub modified_auth_entries: Vec<String>,
    /// Another group that must be deleted first.
    pub wait_for: Option<String>,
    /// Why the group's entries in aws-auth cannot be searched for, if they may exist.
    pub unreadable_aws_auth: Option<String>,
    /// The group's position in the cluster's queue for Fargate profile operations.
    pub queue_position: QueuePosition,
}

/// Reads the remaining resources of a group, under its names in every form.
pub(crate) async fn remaining_resources(
    o: &Observer<'_>,
    id: &GroupId,
    cluster: &str,
    evidence: &OwnershipEvidence<'_>,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> ObserveResult<RemainingResources> {
    let all_names = ProfileNames::all(cluster, id, &o.inventory.aws().region);
    let mut found = Vec::new();
    for names in &all_names {
        found.extend(read_profiles(o, cluster, names, status, (Duration::ZERO, Duration::ZERO)).await?);
    }
    let mut remaining = RemainingResources {
        profiles: RemainingProfiles::classify(found, &all_names[0], ownership, evidence),
        untagged_role: None,
        previous_role: None,
        unproven_role: None,
        role_in_use: None,
        aws_auth_entries: Vec::new(),
        access_entries: Vec::new(),
        kept_entries: Vec::new(),
        modified_auth_entries: Vec::new(),
        wait_for: None,
        unreadable_aws_auth: None,
        queue_position: queue_position(o, id, cluster, status),
    };
    if let Some(profile) = &remaining.profiles.untagged {
        remaining.untagged_role = unclaimed_role(o, profile, &all_names[0].role, ownership).await?;
        return Ok(remaining);
    }
    let RemainingProfiles { own, unverified, disowned, contested, .. } = &remaining.profiles;
    if !own.is_empty() || unverified.is_some() || !disowned.is_empty() || contested.is_some() {
        return Ok(remaining);
    }
    let role = role_of_deleted_group(o, &all_names, ownership, status).await?;
    (remaining.previous_role, remaining.unproven_role) = (role.own, role.unproven);
    if let Some(previous) = remaining.previous_role.take_if(|previous| previous.other_region.is_none()) {
        match role_user(o, id, cluster, &previous).await? {
            Some(user) => remaining.role_in_use = Some((previous.role.name, user)),
            None => remaining.previous_role = Some(previous),
        }
    }
    read_remaining_entries(o, id, cluster, status, &all_names, &mut remaining).await?;
    Ok(remaining)
}

/// The derived role of a profile without ownership tags, if no other group owns it.
async fn unclaimed_role(
    o: &Observer<'_>,
    profile: &FargateProfile,
    derived: &str,
    ownership: &[Tag],
) -> ObserveResult<Option<String>> {
    if !profile.role_arn.ends_with(&format!("/{derived}")) {
        return Ok(None);
    }
    let role = o.inventory.aws().iam.get_role(derived).await.map_err(ObserveError::Aws)?;
    let unclaimed = role.filter(|r| !has_ownership_tags(&r.tags, ownership) && !has_foreign_tags(&r.tags, ownership));
    Ok(unclaimed.map(|role| role.name))
}

/// Reads the entries in aws-auth and the access entries of the group's roles.
async fn read_remaining_entries(
    o: &Observer<'_>,
    id: &GroupId,
    cluster: &str,
    status: &InstanceGroupStatus,
    all_names: &[ProfileNames],
    remaining: &mut RemainingResources,
) -> ObserveResult<()> {
    // The entry of a role that is deleted is removed too, even if another controller wrote it.
    let own = |arn: &&String| all_names.iter().any(|names| arn.ends_with(&format!(":role/{}", names.role)));
    let own = status.nodes_instance_role_arn.as_ref().filter(own);
    // A user may have removed the status.
    let deleted = remaining.previous_role.as_ref().filter(|previous| previous.other_region.is_none());
    let deleted = deleted.map(|previous| previous.role.arn.clone());
    let own = own.or(deleted.as_ref());
    let (groups, key, managed) = (o.group_index, id.key(), status.managed.iter());
    let roles: BTreeSet<_> = managed.clone().flat_map(|m| &m.auth_entries).chain(own).collect();
    let problem = join::aws_auth_problem(o, cluster).await?;
    let unreadable = join::with_unreadable_entry(problem.as_ref(), &roles, status).into_iter();
    let (unreadable, unreadable_wait) =
        entries_to_remove(unreadable, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let unremovable = unreadable.first().zip(problem.as_ref());
    remaining.unreadable_aws_auth = unremovable.map(|(arn, problem)| join::unremovable_entry(arn, problem));
    let modified = roles.iter().copied().filter(|arn| o.map_roles.is_modified(arn));
    let (modified, _) =
        entries_to_remove(modified, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let present = roles.into_iter().filter(|arn| present_auth_entry(o, arn).is_some());
    let (auth_roles, auth_wait) =
        entries_to_remove(present, |arn| groups.deletion_order(arn, &groups.aws_auth_users(arn, &key), &key));
    let is_kept = remaining.role_in_use.is_some()
        || remaining.previous_role.as_ref().is_some_and(|previous| previous.other_region.is_some());
    let deleted = own.filter(|_| !is_kept);
    let seen = match deleted {
        Some(_) if !join::may_have_access_entry(o, cluster, status).await? => None,
        deleted => deleted,
    };
    let recorded: BTreeSet<_> = managed.flat_map(|m| &m.access_entries).chain(seen).collect();
    let (access_roles, access_wait) =
        entries_to_remove(recorded, |arn| groups.deletion_order(arn, &groups.access_entry_users(arn, &key), &key));
    let given: BTreeSet<_> = auth_roles.iter().chain(&access_roles).copied().filter(|arn| Some(*arn) != own).collect();
    for arn in given {
        if let Some(user) = profile_user(o, cluster, arn).await? {
            remaining.kept_entries.push(KeptEntry { role_arn: arn.clone(), user });
        }
    }
    let stays = |arn: &String| remaining.role_in_use.is_some() && Some(arn) == own;
    remaining.modified_auth_entries = modified.into_iter().filter(|arn| !stays(arn)).cloned().collect();
    let is_kept = |arn: &String| stays(arn) || remaining.kept_entries.iter().any(|kept| kept.role_arn == *arn);
    let removed = auth_roles.into_iter().filter(|arn| !is_kept(arn));
    remaining.aws_auth_entries = removed.filter_map(|arn| present_auth_entry(o, arn)).collect();
    for arn in access_roles.into_iter().filter(|arn| !is_kept(arn)).collect::<Vec<_>>() {
        let is_own = Some(arn) == deleted;
        let entry = join::remaining_access_entry(o, &key, cluster, arn, status, is_own).await?;
        remaining.access_entries.extend(entry);
    }
    remaining.wait_for = auth_wait.or(unreadable_wait).or(access_wait);
    Ok(())
}
