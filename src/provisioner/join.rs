//! Looks how a role joins: its entry in aws-auth, and its access entry where that plays a part.

use std::time::Duration;

use super::SpecError;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::{self, AccessEntryState, JoinAuth, JoinMethod, ObservedEntries};
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::{AccessEntry, AccessEntryType, Cluster, NewAccessEntry};
use crate::plan::{Outcome, Phase, Reason, waiting};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};

/// Which kinds of entry the roles of a cluster are to have.
///
/// # Errors
/// The cluster does not read what `--join-auth` asks for; `path` is the field that names the cluster.
pub fn join_method(asked: JoinAuth, cluster: &Cluster, path: &str) -> Result<JoinMethod, SpecError> {
    access_entries::join_method(asked, &cluster.authentication_mode).map_err(|unread| {
        SpecError::invalid(path, &cluster.name, unread.rule, unread.remedy).with_reason(Reason::AuthModeUnsupported)
    })
}

/// A role whose entries are looked at.
pub struct JoinQuery<'a> {
    /// The group that uses it, as `namespace/name`.
    pub group_key: &'a str,
    /// Which kinds of entry it is to have.
    pub join_method: JoinMethod,
    /// The entry that it is to have in aws-auth.
    pub aws_auth_entry: &'a AuthEntry,
    /// The access entry that it is to have.
    pub access_entry: &'a NewAccessEntry,
    /// It is the group's own.
    pub own_role: bool,
    /// Its id, where it is known.
    pub role_id: Option<&'a str>,
}

/// What there is for a role. Nothing is asked of AWS while a group joins by aws-auth.
pub async fn observe(
    o: &Observer<'_>,
    asked: JoinQuery<'_>,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedEntries> {
    let JoinQuery { group_key, join_method, aws_auth_entry, access_entry: wanted, own_role, role_id } = asked;
    let NewAccessEntry { cluster, principal, kind, .. } = wanted;
    let auth_entry = aws_auth::entry_state(o.map_roles, aws_auth_entry);
    let owns_auth_entry = o.group_index.has_aws_auth_entry(principal);
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.contains(principal));
    let remembered = status.join.as_ref().filter(|join| join.role_id.as_deref() == role_id);
    let known = remembered.and_then(|join| join.access_entry.clone()).filter(|found| kind.allows(found));
    let fresh = join_method.needs_fresh_read(&auth_entry, owns_auth_entry || own_role);
    let same_role = status.nodes_instance_role_arn.as_ref() == Some(principal);
    let looks = join_method.queries_access_entry(&auth_entry, owns_auth_entry, recorded);
    let allows_windows =
        looks && *kind == AccessEntryType::Ec2Linux && aws_auth::allows_windows(o.map_roles, principal);
    let access_entry = if !looks {
        AccessEntryState::NotQueried
    } else if let (Some(kind), false, true) = (known, fresh, same_role) {
        // What it is was read once and never changes; one listing for all groups says whether it is still there.
        match o
            .inventory
            .has_access_entry(cluster, principal, o.shared_max_cache_age)
            .await
            .map_err(ObserveError::Aws)?
        {
            true => AccessEntryState::Present { kind, is_owned: false, created_at: None, role_id: None },
            false => AccessEntryState::Absent,
        }
    } else {
        let found = o
            .inventory
            .access_entry(cluster, principal, o.shared_max_cache_age, fresh)
            .await
            .map_err(ObserveError::Aws)?;
        AccessEntryState::from_entry(found.as_ref(), cluster)
    };
    Ok(ObservedEntries {
        auth_entry,
        owns_auth_entry,
        allows_windows,
        access_entry,
        is_shared: o.group_index.is_role_shared(principal, group_key),
        peers_have_access_entry: o.group_index.others_have_access_entry(principal, group_key),
        role_id: role_id.map(str::to_owned),
    })
}

/// How a deletion stands whose entry another group that goes as well may still need.
pub fn wait_for_group(other: &str) -> Outcome {
    let message = format!(
        "the entry of the nodes' role goes with the last group that uses it, and {other}, which does or did, is not gone yet"
    );
    waiting(Phase::Deleting, message)
}

/// The access entry that a group leaves behind, when it is recorded as ours, its tags prove it and no other group uses
/// the role.
pub async fn remaining_access_entry(
    o: &Observer<'_>,
    key: &str,
    cluster: &str,
    principal: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<AccessEntry>> {
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.iter().any(|e| e == principal));
    if !recorded || o.group_index.is_role_shared(principal, key) {
        return Ok(None);
    }
    let found = o.inventory.access_entry(cluster, principal, Duration::ZERO, true).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|entry| access_entries::is_owned_by_cluster(&entry.tags, cluster)))
}
