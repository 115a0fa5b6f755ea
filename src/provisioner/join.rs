//! Observes how nodes with a role join the cluster: by the entry in aws-auth, and by the access entry if it is used.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::observe::{ObserveError, ObserveResult, Observer};
use crate::api::InstanceGroupStatus;
use crate::api::names::condition;
use crate::api::spec_error::SpecError;
use crate::auth::access_entries::{self, AccessEntryState, JoinAuth, JoinMethod, ObservedEntries, RoleAccessEntry};
use crate::auth::aws_auth::{AuthEntry, AuthEntryState};
use crate::aws::inventory::NEVER_EXPIRES;
use crate::aws::{AccessEntry, AccessEntryType, AwsErrorKind, Cluster, NewAccessEntry};
use crate::plan::{Drift, JoinStep, Outcome, Phase, PlannedStep, StalledReason, waiting};

/// Which kinds of entries the roles of a cluster need.
///
/// # Errors
/// The cluster's authentication mode does not support `--join-auth`; `path` is the field that names the cluster.
pub(crate) fn join_method(join_auth: JoinAuth, cluster: &Cluster, path: &str) -> Result<JoinMethod, SpecError> {
    access_entries::join_method(join_auth, &cluster.authentication_mode).map_err(|unsupported| {
        SpecError::invalid(path, &cluster.name, unsupported.rule, unsupported.remedy)
            .with_reason(StalledReason::AuthModeUnsupported)
    })
}

/// A role whose entries are observed.
pub(crate) struct JoinQuery<'a> {
    /// The group that uses it, as `namespace/name`.
    pub group_key: &'a str,
    /// Which kinds of entries it needs.
    pub join_method: JoinMethod,
    /// The desired entry in aws-auth.
    pub aws_auth_entry: &'a AuthEntry,
    /// The desired access entry.
    pub access_entry: &'a NewAccessEntry,
    /// Whether the controller created the role for this group.
    pub own_role: bool,
    /// Unique id of the role; `None` when unknown.
    pub role_id: Option<&'a str>,
    /// Creation time of the role, if it was read.
    pub role_created_at: Option<Timestamp>,
}

/// Observes the entries of a role. No AWS call is made while the group uses aws-auth only, unless nodes are missing or an
/// access entry of another type could keep them out.
pub(crate) async fn observe(
    o: &Observer<'_>,
    query: JoinQuery<'_>,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedEntries> {
    let JoinQuery {
        group_key,
        join_method,
        aws_auth_entry,
        access_entry: desired_entry,
        own_role,
        role_id,
        role_created_at,
    } = query;
    let NewAccessEntry { cluster, principal, kind, .. } = desired_entry;
    let auth_entry = o.map_roles.entry_state(aws_auth_entry);
    let owns_auth_entry = o.group_index.has_aws_auth_entry(principal);
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.contains(principal));
    let recorded_join = status.join.as_ref().filter(|join| join.role_id.as_deref() == role_id);
    let recorded_kind = recorded_join.and_then(|join| join.access_entry.clone()).filter(|found| kind.allows(found));
    let fresh = join_method.needs_fresh_read(&auth_entry, owns_auth_entry || own_role);
    // Another client may have deleted the entry, and created one of a type that lets no node join.
    let is_short = status.conditions.iter().any(|c| c.r#type == condition::NODES_READY && !c.is_true());
    let entry_age = match (fresh, is_short) {
        (true, _) => Duration::ZERO,
        (false, true) => o.shared_max_cache_age,
        (false, false) => NEVER_EXPIRES,
    };
    let same_role = status.nodes_instance_role_arn.as_ref() == Some(principal);
    // Without the record, only the entry's tags show that the controller created it.
    let is_known = same_role && status.managed.is_some();
    // An entry that was seen last may be gone: another group of the role removed it. The status must not name it forever.
    let was_seen = recorded || recorded_kind.is_some();
    let queries_entry = join_method.queries_access_entry(&auth_entry, owns_auth_entry, was_seen);
    let allows_windows = *kind == AccessEntryType::Ec2Linux && o.map_roles.allows_windows(principal);
    let checks_override = join_method.may_be_overridden() && (is_short || *kind == AccessEntryType::Ec2Windows);
    let access_entry = if !queries_entry && checks_override {
        let entry_age = if is_short { o.shared_max_cache_age } else { NEVER_EXPIRES };
        overriding_entry(o, desired_entry, entry_age).await
    } else if !queries_entry {
        AccessEntryState::NotQueried
    } else if let (Some(kind), NEVER_EXPIRES, true) = (recorded_kind, entry_age, is_known) {
        // The type of an entry never changes. One list call for all groups shows whether it still exists.
        match o
            .inventory
            .has_access_entry(cluster, principal, o.shared_max_cache_age)
            .await
            .map_err(ObserveError::Aws)?
        {
            true => {
                AccessEntryState::Present(RoleAccessEntry { kind, is_owned: false, created_at: None, role_id: None })
            }
            false => AccessEntryState::Absent,
        }
    } else {
        let found = o
            .inventory
            .access_entry(cluster, principal, o.shared_max_cache_age, entry_age)
            .await
            .map_err(ObserveError::Aws)?;
        AccessEntryState::from_entry(found.as_ref(), cluster)
    };
    let observed = ObservedEntries {
        auth_entry,
        owns_auth_entry,
        is_auth_entry_modified: o.map_roles.is_modified(principal),
        allows_windows,
        access_entry,
        is_shared: o.group_index.is_role_shared(principal, group_key),
        peers_have_access_entry: o.group_index.others_have_access_entry(principal, group_key),
        role_id: role_id.map(str::to_owned),
        role_created_at,
    };
    match entry_age.is_zero() || o.is_forecast {
        true => Ok(observed),
        false => with_present_entry(o, desired_entry, own_role, observed).await,
    }
}

/// The observed entries. An access entry that is to be replaced is read again: the cached answer may be about one of the
/// controller that a person deleted, and replaced by another one between two listings.
async fn with_present_entry(
    o: &Observer<'_>,
    desired: &NewAccessEntry,
    own_role: bool,
    observed: ObservedEntries,
) -> ObserveResult<ObservedEntries> {
    let NewAccessEntry { cluster, principal, kind, .. } = desired;
    if !observed.replaces_access_entry(*kind, own_role) {
        return Ok(observed);
    }
    let found = o.inventory.access_entry(cluster, principal, Duration::ZERO, Duration::ZERO).await;
    let found = found.map_err(ObserveError::Aws)?;
    Ok(ObservedEntries { access_entry: AccessEntryState::from_entry(found.as_ref(), cluster), ..observed })
}

/// The access entry of a role that joins through aws-auth, if it lets no node of the group join: it takes precedence. It
/// only explains why nodes are missing, so that EKS need not answer. After a failure, no group of the cluster asks again
/// for the age that a shared read may have.
async fn overriding_entry(o: &Observer<'_>, desired: &NewAccessEntry, entry_age: Duration) -> AccessEntryState {
    let NewAccessEntry { cluster, principal, kind, .. } = desired;
    if o.process_state.are_access_entries_in_backoff(cluster, o.shared_max_cache_age, o.now) {
        return AccessEntryState::NotQueried;
    }
    match o.inventory.access_entry(cluster, principal, o.shared_max_cache_age, entry_age).await {
        // Even if the controller created it, this group does not take it over.
        Ok(Some(found)) if !kind.allows(&found.kind) => AccessEntryState::Present(RoleAccessEntry {
            kind: found.kind,
            is_owned: false,
            created_at: None,
            role_id: None,
        }),
        Ok(_) => AccessEntryState::NotQueried,
        Err(_) => {
            o.process_state.record_unread_access_entries(cluster, o.now);
            AccessEntryState::NotQueried
        }
    }
}

/// Whether the role of `desired` lacks an access entry that the cluster's nodes need. Where either kind of entry lets nodes
/// in, one of `auth_entries` in aws-auth is enough.
pub(crate) async fn misses_access_entry(
    o: &Observer<'_>,
    join_method: JoinMethod,
    desired: &NewAccessEntry,
    auth_entries: &[AuthEntry],
) -> ObserveResult<bool> {
    let is_mapped = || auth_entries.iter().any(|entry| o.map_roles.entry_state(entry) != AuthEntryState::Absent);
    let needs_entry = match join_method {
        JoinMethod::AwsAuth { .. } => false,
        JoinMethod::Either => !is_mapped(),
        JoinMethod::AccessEntries { .. } | JoinMethod::Both => true,
    };
    if !needs_entry {
        return Ok(false);
    }
    let has_entry = o.inventory.has_access_entry(&desired.cluster, &desired.principal, o.shared_max_cache_age).await;
    Ok(!has_entry.map_err(ObserveError::Aws)?)
}

/// The steps that restore entries of previous roles, which nodes or pods still need. No other step waits for them.
pub(crate) fn restore(auth_entries: &[AuthEntry], access_entries: &[NewAccessEntry]) -> Vec<PlannedStep> {
    let put = |entry: &AuthEntry| {
        let reasons = vec![Drift::new("aws-auth", "", &entry.role_arn)];
        PlannedStep::new(JoinStep::PutAwsAuthEntry(entry.clone()), reasons).optional()
    };
    let put_access_entry = |entry: &NewAccessEntry| {
        let reasons = vec![Drift::new("access entry", "", &entry.principal)];
        PlannedStep::new(JoinStep::PutAccessEntry(entry.clone()), reasons).optional()
    };
    auth_entries.iter().map(put).chain(access_entries.iter().map(put_access_entry)).collect()
}

/// Why aws-auth cannot be parsed, and the remedy; `None` when it can, and in a cluster that does not read it.
pub(crate) async fn aws_auth_problem(o: &Observer<'_>, cluster: &str) -> ObserveResult<Option<String>> {
    let Some(problem) = o.map_roles.problem() else { return Ok(None) };
    let found = o.inventory.fresh_cluster(cluster).await.map_err(ObserveError::Aws)?;
    let is_read = found.is_none_or(|cluster| cluster.authentication_mode != access_entries::API_MODE);
    Ok(is_read.then(|| problem.to_owned()))
}

/// Which of these roles may have an entry in aws-auth, which cannot be parsed. The entry of a role that is deleted would
/// admit any later role of that name.
pub(crate) fn with_unreadable_entry<'a>(
    problem: Option<&String>,
    roles: &BTreeSet<&'a String>,
    status: &InstanceGroupStatus,
) -> Vec<&'a String> {
    let is_recorded = |arn: &String| status.managed.iter().any(|managed| managed.auth_entries.contains(arn));
    let joined_by_it = status.join.as_ref().is_none_or(|join| join.aws_auth);
    let may_exist = |arn: &&String| problem.is_some() && (joined_by_it || is_recorded(arn));
    roles.iter().copied().filter(may_exist).collect()
}

/// Why the entry of a role that a deletion removes cannot be removed.
pub(crate) fn unremovable_entry(role_arn: &str, problem: &str) -> String {
    format!("the entry of {role_arn} cannot be removed: {problem}")
}

/// The outcome of a deletion that waits until aws-auth can be read.
pub(crate) fn wait_for_aws_auth(problem: &str) -> Outcome {
    let message = format!("{problem}; the rest of the group is deleted after that");
    Outcome::Blocked { reason: StalledReason::AuthConflict, message, is_deleting: true }
}

/// The outcome of a deletion that waits for another group, which is being deleted too and may still need the entry.
pub(crate) fn wait_for_group(other: &str) -> Outcome {
    let message = format!(
        "waiting for {other} to be deleted, because it uses or used the same role; the role's entry is removed with the last group that uses it"
    );
    waiting(Phase::Deleting, message)
}

/// The access entry to delete with a group, or with a role that it no longer uses; one that another group needs stays.
///
/// When the controller deletes a role that it created, it deletes the role's entry too, even if EKS or a user created
/// the entry. EKS identifies a role by its id. The old entry would let no node join, and would lock out the next role
/// of that name. The entry of another role is deleted if the status records it and the controller tagged it.
pub(crate) async fn remaining_access_entry(
    o: &Observer<'_>,
    key: &str,
    cluster: &str,
    principal: &str,
    status: &InstanceGroupStatus,
    is_own_role: bool,
) -> ObserveResult<Option<AccessEntry>> {
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.iter().any(|e| e == principal));
    let known = recorded || is_own_role && may_have_access_entry(o, cluster, status).await?;
    if !known || o.group_index.is_role_shared(principal, key) {
        return Ok(None);
    }
    let found = match o.inventory.access_entry(cluster, principal, Duration::ZERO, Duration::ZERO).await {
        // Groups that join through aws-auth need no permissions for access entries. An entry that cannot be read stays.
        Err(error) if error.kind == AwsErrorKind::Denied && !recorded => return Ok(None),
        found => found.map_err(ObserveError::Aws)?,
    };
    Ok(found.filter(|entry| is_own_role || access_entries::is_owned_by_cluster(&entry.tags, cluster)))
}

/// Whether a role that is deleted may have an access entry: it was last seen with one, or the cluster reads them. While
/// nodes join through aws-auth, the controller does not read the entry that EKS creates for a Fargate profile.
pub(crate) async fn may_have_access_entry(
    o: &Observer<'_>,
    cluster: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<bool> {
    if status.join.as_ref().is_some_and(|join| join.access_entry.is_some()) {
        return Ok(true);
    }
    // The cluster may read entries since a minute ago.
    let found = o.inventory.fresh_cluster(cluster).await.map_err(ObserveError::Aws)?;
    Ok(found.is_some_and(|cluster| cluster.authentication_mode != access_entries::CONFIG_MAP_MODE))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::names::tag;
    use crate::api::{Condition, JoinStatus, ManagedAttributes};
    use crate::auth::aws_auth;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::cluster;
    use crate::aws::{AccessEntry, Cluster, Tag};

    use crate::provisioner::observe::fake::FakeCluster;

    /// What a group in a cluster with access entries observes of its role, which the last pass saw with EC2_LINUX.
    async fn observe_entry(aws: &Arc<FakeAws>, role: &str, status: InstanceGroupStatus) -> RoleAccessEntry {
        let status = InstanceGroupStatus {
            nodes_instance_role_arn: Some(role.into()),
            join: Some(JoinStatus { aws_auth: false, access_entry: Some("EC2_LINUX".into()), role_id: None }),
            ..status
        };
        let query = JoinQuery {
            group_key: "team/web",
            join_method: JoinMethod::AccessEntries { remove_other: false },
            aws_auth_entry: &AuthEntry::for_nodes(role, false),
            access_entry: &NewAccessEntry {
                cluster: "demo".into(),
                principal: role.into(),
                kind: AccessEntryType::Ec2Linux,
                tags: vec![],
                own_role: false,
            },
            own_role: false,
            role_id: None,
            role_created_at: None,
        };
        match observe(&FakeCluster::new(aws).observer(), query, &status).await.expect("an answer").access_entry {
            AccessEntryState::Present(found) => found,
            other => panic!("{other:?}"),
        }
    }

    /// Another group of the role may remove the entry. Without a read, the status would name it until the role changes.
    #[tokio::test]
    async fn access_entry_that_was_seen_last_is_looked_for_again() {
        for (seen, expected) in [(None, AccessEntryState::NotQueried), (Some("EC2_LINUX"), AccessEntryState::Absent)] {
            let cluster = FakeCluster::new(&Arc::new(FakeAws::default()));
            let observer = cluster.observer();
            let role = "arn:aws:iam::1:role/given";
            let entry = NewAccessEntry {
                cluster: "demo".into(),
                principal: role.into(),
                kind: AccessEntryType::Ec2Linux,
                tags: vec![],
                own_role: false,
            };
            let status = InstanceGroupStatus {
                nodes_instance_role_arn: Some(role.into()),
                join: Some(JoinStatus { aws_auth: true, access_entry: seen.map(str::to_owned), role_id: None }),
                ..InstanceGroupStatus::default()
            };
            let query = JoinQuery {
                group_key: "team/web",
                join_method: JoinMethod::AwsAuth { remove_other: true },
                aws_auth_entry: &AuthEntry::for_nodes(role, false),
                access_entry: &entry,
                own_role: false,
                role_id: None,
                role_created_at: None,
            };
            let found = observe(&observer, query, &status).await.expect("an answer");
            assert_eq!(found.access_entry, expected, "{seen:?}");
        }
    }

    /// EKS reads both lists, and aws-auth does not show why the nodes that an access entry keeps out are missing.
    #[tokio::test]
    async fn access_entry_that_overrides_aws_auth_is_found_where_it_keeps_nodes_out() {
        use AccessEntryType::{Ec2Linux, Ec2Windows};
        let role = "arn:aws:iam::1:role/given";
        for (needed, nodes_ready, existing, found) in [
            (Ec2Linux, false, "STANDARD", Some("STANDARD")),
            (Ec2Linux, true, "STANDARD", None),
            (Ec2Linux, false, "EC2_WINDOWS", None),
            (Ec2Windows, true, "EC2_LINUX", Some("EC2_LINUX")),
        ] {
            let aws = Arc::new(FakeAws::default());
            let entry = AccessEntry { principal: role.into(), kind: existing.into(), created: None, tags: vec![] };
            aws.update(|state| state.access_entries.push(entry));
            let auth_entry = AuthEntry::for_nodes(role, needed == Ec2Windows);
            let map_roles = aws_auth::add_entries(None, std::slice::from_ref(&auth_entry)).unwrap().unwrap();
            let status = InstanceGroupStatus {
                conditions: vec![Condition::new(condition::NODES_READY, nodes_ready, "", "")],
                ..InstanceGroupStatus::default()
            };
            let query = JoinQuery {
                group_key: "team/web",
                join_method: JoinMethod::Either,
                aws_auth_entry: &auth_entry,
                access_entry: &NewAccessEntry {
                    cluster: "demo".into(),
                    principal: role.into(),
                    kind: needed,
                    tags: vec![],
                    own_role: false,
                },
                own_role: false,
                role_id: None,
                role_created_at: None,
            };
            let cluster = FakeCluster::new(&aws).with_map_roles(&map_roles);
            let observed = observe(&cluster.observer(), query, &status).await.expect("an answer");
            assert_eq!(observed.access_entry.kind(), found, "{needed:?} {nodes_ready} {existing}");
        }
    }

    /// Each pass of each group that lacks nodes would call EKS in vain, and raise the alert about denied calls.
    #[tokio::test]
    async fn denied_list_of_access_entries_is_asked_for_once_per_cache_age() {
        let (aws, role) = (Arc::new(FakeAws::default()), "arn:aws:iam::1:role/given");
        aws.update(|state| state.denied = Some("access entries"));
        let access_entry = NewAccessEntry {
            cluster: "demo".into(),
            principal: role.into(),
            kind: AccessEntryType::Ec2Linux,
            tags: vec![],
            own_role: false,
        };
        let cluster = FakeCluster::new(&aws);
        for (minutes, calls) in [(0, 1), (4, 1), (5, 2)] {
            let observer = Observer {
                shared_max_cache_age: Duration::from_secs(300),
                now: jiff::Timestamp::from_second(minutes * 60).expect("a time"),
                ..cluster.observer()
            };
            let found = overriding_entry(&observer, &access_entry, observer.shared_max_cache_age).await;
            assert_eq!((found, aws.calls("access entries")), (AccessEntryState::NotQueried, calls), "{minutes}");
        }
    }

    /// Otherwise the entry would stay, and admit whatever runs with the role.
    #[tokio::test]
    async fn entry_whose_record_was_lost_is_recognized_by_its_tags() {
        let (aws, role) = (Arc::new(FakeAws::default()), "arn:aws:iam::1:role/given");
        let names = [(tag::CLUSTER_NAME, "demo"), (tag::NAMESPACE, "team"), (tag::INSTANCE_GROUP, "other")];
        let tags = names.map(|(key, value)| Tag { key: key.into(), value: value.into() }).to_vec();
        let kind = "EC2_LINUX";
        aws.update(|state| {
            let entry = AccessEntry { principal: role.into(), kind: kind.into(), created: None, tags };
            state.access_entries.push(entry);
        });
        for (managed, is_owned) in [(None, true), (Some(ManagedAttributes::default()), false)] {
            let found =
                observe_entry(&aws, role, InstanceGroupStatus { managed, ..InstanceGroupStatus::default() }).await;
            assert_eq!(found.is_owned, is_owned, "one list call is enough for an entry that is on record or others'");
        }
    }

    /// Between two listings, a person deleted the controller's entry and created another one. When the spec asks for Windows
    /// nodes, the controller would delete the person's entry for what its own one was.
    #[tokio::test]
    async fn entry_of_a_person_is_not_replaced_for_what_the_controllers_entry_was() {
        let (aws, role) = (Arc::new(FakeAws::default()), "arn:aws:iam::1:role/given");
        let put = |tags: Vec<Tag>| {
            let entry = AccessEntry { principal: role.into(), kind: "EC2_LINUX".into(), created: None, tags };
            aws.update(|state| state.access_entries = vec![entry]);
        };
        let names = [(tag::CLUSTER_NAME, "demo"), (tag::NAMESPACE, "team"), (tag::INSTANCE_GROUP, "web")];
        put(names.map(|(key, value)| Tag { key: key.into(), value: value.into() }).to_vec());
        let cluster = FakeCluster::new(&aws);
        let observer = Observer { shared_max_cache_age: Duration::from_secs(150), ..cluster.observer() };
        let entry = NewAccessEntry {
            cluster: "demo".into(),
            principal: role.into(),
            kind: AccessEntryType::Ec2Windows,
            tags: vec![],
            own_role: false,
        };
        let is_owned = async || {
            let query = JoinQuery {
                group_key: "team/web",
                join_method: JoinMethod::AccessEntries { remove_other: false },
                aws_auth_entry: &AuthEntry::for_nodes(role, true),
                access_entry: &entry,
                own_role: false,
                role_id: None,
                role_created_at: None,
            };
            match observe(&observer, query, &InstanceGroupStatus::default()).await.expect("an answer").access_entry {
                AccessEntryState::Present(found) => found.is_owned,
                other => panic!("{other:?}"),
            }
        };
        assert!(is_owned().await, "it is replaced");
        put(Vec::new());
        assert!(!is_owned().await, "it stays, and the conflict is reported");
    }

    /// Its nodes cannot join, and the recorded type would hide why for good.
    #[tokio::test]
    async fn entry_that_was_made_again_with_another_type_is_found_while_nodes_are_missing() {
        let (aws, role) = (Arc::new(FakeAws::default()), "arn:aws:iam::1:role/own");
        let kind = "STANDARD".to_owned();
        aws.update(|d| {
            d.access_entries = vec![AccessEntry { principal: role.into(), kind, created: None, tags: vec![] }]
        });
        for (nodes_ready, expected) in [(true, "EC2_LINUX"), (false, "STANDARD")] {
            let status = InstanceGroupStatus {
                conditions: vec![Condition::new(condition::NODES_READY, nodes_ready, "", "")],
                managed: Some(ManagedAttributes::default()),
                ..InstanceGroupStatus::default()
            };
            assert_eq!(observe_entry(&aws, role, status).await.kind, expected, "NodesReady is {nodes_ready}");
        }
    }

    /// EKS makes an entry for a Fargate profile, also while its pods join through aws-auth. Without a read, the entry
    /// would outlive the role, and lock out the next role of that name.
    #[tokio::test]
    async fn unobserved_entry_is_deleted_with_its_role_if_the_cluster_reads_entries() {
        let aws = Arc::new(FakeAws::default());
        let role = "arn:aws:iam::1:role/own";
        aws.update(|state| {
            for mode in ["CONFIG_MAP", "API_AND_CONFIG_MAP", "API"] {
                let cluster = Cluster { authentication_mode: mode.into(), ..cluster(mode) };
                state.clusters.insert(mode.into(), cluster);
            }
            let kind = "FARGATE_LINUX".into();
            state.access_entries.push(AccessEntry { principal: role.into(), kind, created: None, tags: vec![] });
        });
        let status = InstanceGroupStatus::default();
        for (name, is_own, found) in [
            ("API_AND_CONFIG_MAP", true, true),
            ("API", true, true),
            ("API", false, false),
            ("CONFIG_MAP", true, false),
            ("gone", true, false),
        ] {
            let cluster = FakeCluster::new(&aws);
            let observer = cluster.observer();
            let entry = remaining_access_entry(&observer, "team/web", name, role, &status, is_own).await;
            assert_eq!(entry.expect("an answer").is_some(), found, "{name} {is_own}");
        }
    }
}
