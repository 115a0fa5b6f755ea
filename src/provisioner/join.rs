//! Looks how a role joins: its entry in aws-auth, and its access entry where that plays a part.

use std::time::Duration;

use super::Problem;
use crate::api::InstanceGroupStatus;
use crate::auth::access_entries::{self, Access, Found, JoinAuth, Way};
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::{AccessEntry, AccessKind, Cluster, NewAccessEntry};
use crate::plan::{Outcome, Phase, Reason, waiting};
use crate::provisioner::observe::{ObserveError, Observed, Observer};

/// Which kinds of entry the roles of a cluster are to have.
///
/// # Errors
/// The cluster does not read what `--join-auth` asks for; `path` is the field that names the cluster.
pub fn way(asked: JoinAuth, cluster: &Cluster, path: &str) -> Result<Way, Problem> {
    access_entries::way(asked, &cluster.authentication_mode).map_err(|unread| {
        Problem::invalid(path, &cluster.name, unread.rule, unread.remedy).because(Reason::AuthModeUnsupported)
    })
}

/// A role whose entries are looked at.
pub struct Asked<'a> {
    /// The group that uses it, as `namespace/name`.
    pub key: &'a str,
    /// Which kinds of entry it is to have.
    pub way: Way,
    /// The entry that it is to have in aws-auth.
    pub entry: &'a AuthEntry,
    /// The access entry that it is to have.
    pub wanted: &'a NewAccessEntry,
    /// It is the group's own.
    pub own_role: bool,
    /// Its id, where it is known.
    pub role_id: Option<&'a str>,
}

/// What there is for a role. Nothing is asked of AWS while a group joins by aws-auth.
pub async fn look(o: &Observer<'_>, asked: Asked<'_>, status: &InstanceGroupStatus) -> Observed<Found> {
    let Asked { key, way, entry, wanted, own_role, role_id } = asked;
    let NewAccessEntry { cluster, principal, kind, .. } = wanted;
    let auth = aws_auth::state(o.map_roles, entry);
    let auth_is_ours = o.groups.authorised(principal);
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.contains(principal));
    let remembered = status.join.as_ref().filter(|join| join.role_id.as_deref() == role_id);
    let known = remembered.and_then(|join| join.access_entry.clone()).filter(|found| kind.admits(found));
    let fresh = way.needs_fresh(&auth, auth_is_ours || own_role);
    let same_role = status.nodes_instance_role_arn.as_ref() == Some(principal);
    let looks = way.looks(&auth, auth_is_ours, recorded);
    let windows = looks && *kind == AccessKind::Ec2Linux && aws_auth::admits_windows(o.map_roles, principal);
    let access = if !looks {
        Access::Unasked
    } else if let (Some(kind), false, true) = (known, fresh, same_role) {
        // What it is was read once and never changes; one listing for all groups says whether it is still there.
        match o.inventory.has_access_entry(cluster, principal, o.resync).await.map_err(ObserveError::Aws)? {
            true => Access::Present { kind, ours: false, created: None, role_id: None },
            false => Access::Absent,
        }
    } else {
        let found = o.inventory.access_entry(cluster, principal, o.resync, fresh).await.map_err(ObserveError::Aws)?;
        Access::of(found.as_ref(), cluster)
    };
    Ok(Found {
        auth,
        auth_is_ours,
        windows,
        access,
        shared: o.groups.shares_role(principal, key),
        others_have_it: o.groups.others_have_entry(principal, key),
        role_id: role_id.map(str::to_owned),
    })
}

/// How a deletion stands whose entry another group that goes as well may still need.
pub fn goes_after(other: &str) -> Outcome {
    let message = format!(
        "the entry of the nodes' role goes with the last group that uses it, and {other}, which does or did, is not gone yet"
    );
    waiting(Phase::Deleting, message)
}

/// The access entry that a group leaves behind, when it is recorded as ours, its tags prove it and no other group uses
/// the role.
pub async fn left(
    o: &Observer<'_>,
    key: &str,
    cluster: &str,
    principal: &str,
    status: &InstanceGroupStatus,
) -> Observed<Option<AccessEntry>> {
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.iter().any(|e| e == principal));
    if !recorded || o.groups.shares_role(principal, key) {
        return Ok(None);
    }
    let found = o.inventory.access_entry(cluster, principal, Duration::ZERO, true).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|entry| access_entries::ours(&entry.tags, cluster)))
}
