//! Looks at what roles that were in use before have left.

use std::collections::BTreeSet;

use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::{self, AuthEntry, EntryState};
use crate::index::groups::{Fate, fate};
use crate::provisioner::eks::observed::{Former, State};
use crate::provisioner::eks::resolve::Resolved;
use crate::provisioner::eks::role::previous_roles::settled;
use crate::provisioner::join;
use crate::provisioner::observe::{Observed, Observer};

/// Looks at what former roles have left. AWS is asked about an access entry that is about to go, and about nothing else.
pub async fn look(
    o: &Observer<'_>,
    resolved: &Resolved,
    state: &State,
    status: &InstanceGroupStatus,
) -> Observed<Former> {
    let managed = status.managed.clone().unwrap_or_default();
    let (key, mut found) = (resolved.wanted.id.key(), Former::default());
    let needed = |arn: &str, others: &BTreeSet<String>| {
        o.groups.shares_role(arn, &key) || o.groups.any_leaving(others) || !settled(resolved, state, status, o.now)
    };
    for arn in managed.auth_entries.into_iter().filter(|arn| *arn != resolved.role_arn) {
        let entry = entry(o, &arn);
        if entry.is_none() && aws_auth::state(o.map_roles, &AuthEntry::for_nodes(&arn, false)) == EntryState::Absent {
            continue;
        }
        let others = o.groups.authorised_by(&arn, &key);
        match fate(needed(&arn, &others), &others, &key) {
            Fate::Handed => continue,
            Fate::Stays => {}
            Fate::Goes => found.auth_gone.extend(entry),
        }
        found.auth.push(arn);
    }
    for arn in managed.access_entries.into_iter().filter(|arn| *arn != resolved.role_arn) {
        let others = o.groups.admitted_by(&arn, &key);
        match fate(needed(&arn, &others), &others, &key) {
            Fate::Handed => continue,
            Fate::Stays => {}
            Fate::Goes => match join::left(o, &key, &resolved.wanted.cluster, &arn, status).await? {
                Some(entry) => found.access_gone.push(entry),
                None => continue,
            },
        }
        found.access.push(arn);
    }
    Ok(found)
}

/// A role's entry in aws-auth, when it says what the controller writes. What is left of a group may not tell which of the
/// two it was.
pub fn entry(o: &Observer<'_>, role_arn: &str) -> Option<AuthEntry> {
    let mut entries = [false, true].into_iter().map(|windows| AuthEntry::for_nodes(role_arn, windows));
    entries.find(|entry| aws_auth::state(o.map_roles, entry) == EntryState::Present)
}
