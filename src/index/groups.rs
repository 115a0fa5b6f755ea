//! Indexes of all groups by the resources that they share. The watch of groups keeps them up to date, so that a lookup does
//! not depend on the number of groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::names::condition;
use crate::api::{
    GroupId, GroupObject, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, ProvisionerKind, group_id,
};
use crate::auth::aws_auth::without_path;

use crate::index::profile_queue::ProfileQueue;
pub use crate::index::profile_queue::QueuePosition;

/// Groups by the resources that they share.
#[derive(Default)]
pub(crate) struct GroupIndex(RwLock<IndexedGroups>);

/// The indexed values of all groups, and the groups that have each of them.
#[derive(Default)]
pub(super) struct IndexedGroups {
    pub(super) entries: HashMap<String, IndexedGroup>,
    by_aws_auth_role: ReverseIndex,
    by_access_entry_role: ReverseIndex,
    pub(super) by_role: ReverseIndex,
    /// Groups without an access entry by the role that they use.
    without_access_entry: ReverseIndex,
    by_scaling_group: ReverseIndex,
    /// Groups by the managed node groups that they record, as `cluster/nodegroup`.
    by_nodegroup: ReverseIndex,
    by_namespace: ReverseIndex,
    /// Groups that may have a Fargate profile, by namespace and name as the names of profiles join them.
    by_joined_name: ReverseIndex,
    by_instance_type: ReverseIndex,
    profile_queues: HashMap<String, ProfileQueue>,
    unreconciled: BTreeMap<String, GroupId>,
    /// Groups whose shared resources are unknown, because neither spec nor status can be decoded.
    pub(super) unknown: BTreeSet<String>,
}

/// The indexed values of one group. They are kept to remove the group from all indexes again.
#[derive(Default)]
pub(super) struct IndexedGroup {
    aws_auth_roles: Vec<String>,
    access_entry_roles: Vec<String>,
    role: Option<String>,
    lacks_access_entry: bool,
    scaling_group: Option<String>,
    nodegroups: Vec<String>,
    /// The group may be served by a managed node group that its status does not name.
    may_have_unrecorded_nodegroup: bool,
    /// The group may be of the provisioner `eks-fargate`.
    may_be_fargate: bool,
    /// The status shows that a Fargate profile was created.
    has_profile: bool,
    /// The cluster whose profile queue the group is in, and since when.
    profile_wait: Option<(String, String)>,
    namespace: String,
    instance_types: BTreeSet<String>,
    /// The group is being deleted, and the deletion is not stalled.
    pub(super) is_deleting: bool,
}

impl IndexedGroup {
    fn from_status(namespace: String, status: Option<&InstanceGroupStatus>) -> Self {
        let mut entry = IndexedGroup {
            namespace,
            may_have_unrecorded_nodegroup: true,
            may_be_fargate: true,
            ..IndexedGroup::default()
        };
        let Some(status) = status else { return entry };
        entry.aws_auth_roles = status.managed.iter().flat_map(|m| m.auth_entries.clone()).collect();
        entry.access_entry_roles = status.managed.iter().flat_map(|m| m.access_entries.clone()).collect();
        entry.role = status.nodes_instance_role_arn.clone();
        // EKS authorizes the nodes of a managed node group by itself.
        let managed = status.provisioner.as_deref().and_then(ProvisionerKind::parse);
        entry.lacks_access_entry = managed != Some(ProvisionerKind::EksManaged)
            && status.join.as_ref().is_none_or(|join| join.access_entry.is_none());
        entry.scaling_group = status.active_scaling_group_name.clone();
        entry.nodegroups = status.managed.iter().flat_map(|m| m.nodegroups.clone()).collect();
        entry.may_have_unrecorded_nodegroup = managed.is_none_or(|kind| kind == ProvisionerKind::EksManaged)
            && entry.scaling_group.as_ref().is_none_or(String::is_empty)
            && entry.nodegroups.is_empty();
        entry.may_be_fargate = managed.is_none_or(|kind| kind == ProvisionerKind::EksFargate);
        entry.has_profile = status.shows_fargate_profile();
        entry.profile_wait = profile_wait(status);
        entry
    }

    /// The group's role if it lacks an access entry.
    fn role_without_access_entry(&self) -> Option<&String> {
        self.role.as_ref().filter(|_| self.lacks_access_entry)
    }

    /// For a group that is gone for the controller: it uses no role and no node group, removes no join entry and waits in no
    /// queue.
    fn without_shared_resources(self) -> Self {
        IndexedGroup { namespace: self.namespace, ..IndexedGroup::default() }
    }
}

/// A group that uses another group's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleUser {
    /// Key of the group.
    pub group: String,
    /// Whether it is being deleted, so that it leaves the role soon.
    pub is_deleting: bool,
}

/// Keys of groups (`namespace/name`) by a shared resource.
#[derive(Default)]
pub(super) struct ReverseIndex(pub(super) HashMap<String, BTreeSet<String>>);

impl ReverseIndex {
    fn insert(&mut self, shared: &str, key: &str) {
        self.0.entry(shared.to_owned()).or_default().insert(key.to_owned());
    }

    fn remove(&mut self, shared: &str, key: &str) {
        if let Some(keys) = self.0.get_mut(shared) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(shared);
            }
        }
    }

    fn get(&self, shared: &str) -> BTreeSet<String> {
        self.0.get(shared).cloned().unwrap_or_default()
    }
}

impl GroupIndex {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, IndexedGroups> {
        self.0.read().expect("lock is not poisoned")
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexedGroups> {
        self.0.write().expect("lock is not poisoned")
    }

    /// Adds or updates a group. An invalid object keeps its previous entry; without one, it is indexed by its status. If
    /// the status cannot be decoded either, the group is assumed to share every role.
    pub(crate) fn upsert(&self, stored: &GroupObject) {
        let namespace = stored.namespace().unwrap_or_default();
        let key = format!("{namespace}/{}", stored.name_any());
        let mut inner = self.write();
        let was_unknown = inner.unknown.contains(&key);
        let entry = match (&stored.0, inner.remove(&key)) {
            (Ok(group), _) => {
                if group.status.as_ref().is_none_or(InstanceGroupStatus::is_unwritten) {
                    inner.unreconciled.insert(key.clone(), group_id(group));
                }
                let entry = match IndexedGroup::from_status(namespace, group.status.as_ref()) {
                    known if is_finalized(group) => known.without_shared_resources(),
                    known => known,
                };
                let kind = group.spec.provisioner.as_deref().and_then(ProvisionerKind::parse);
                let may_be = |expected: ProvisionerKind| kind.is_none_or(|kind| kind == expected);
                IndexedGroup {
                    may_have_unrecorded_nodegroup: entry.may_have_unrecorded_nodegroup
                        && may_be(ProvisionerKind::EksManaged),
                    may_be_fargate: entry.may_be_fargate && may_be(ProvisionerKind::EksFargate),
                    instance_types: named_instance_types(&group.spec),
                    is_deleting: is_deleting(group),
                    ..entry
                }
            }
            // An invalid group cannot make progress, so it leaves the profile queue.
            (Err(_), Some(known)) if !was_unknown => IndexedGroup { profile_wait: None, is_deleting: false, ..known },
            (Err(invalid), _) => {
                if invalid.status.is_none() {
                    inner.unknown.insert(key.clone());
                }
                IndexedGroup { profile_wait: None, ..IndexedGroup::from_status(namespace, invalid.status.as_ref()) }
            }
        };
        inner.insert(key, entry);
    }

    /// Removes a deleted group.
    pub(crate) fn remove(&self, key: &str) {
        self.write().remove(key);
    }

    /// Removes the groups that are not in a complete new list; returns their keys.
    pub(crate) fn retain(&self, listed: &BTreeSet<String>) -> Vec<String> {
        let mut inner = self.write();
        let removed: Vec<_> = inner.entries.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        removed.iter().for_each(|key| _ = inner.remove(key));
        removed
    }

    /// Whether any group has recorded that it added the role's entry to aws-auth.
    pub(crate) fn has_aws_auth_entry(&self, role_arn: &str) -> bool {
        self.read().by_aws_auth_role.0.contains_key(role_arn)
    }

    /// The groups other than `key` that have recorded that they added the role's entry to aws-auth.
    pub(crate) fn aws_auth_users(&self, role_arn: &str, key: &str) -> BTreeSet<String> {
        self.read().by_aws_auth_role.get(role_arn).into_iter().filter(|other| other != key).collect()
    }

    /// The groups other than `key` that have recorded that the controller created the role's access entry.
    pub(crate) fn access_entry_users(&self, role_arn: &str, key: &str) -> BTreeSet<String> {
        self.read().by_access_entry_role.get(role_arn).into_iter().filter(|other| other != key).collect()
    }

    /// All roles with a recorded entry in aws-auth, in the form in which aws-auth is compared: without path, in lower case.
    pub(crate) fn aws_auth_roles(&self) -> BTreeSet<String> {
        self.read().by_aws_auth_role.0.keys().map(|role| without_path(role).to_lowercase()).collect()
    }

    /// Whether a group other than `key` uses a role. A group of unknown resources counts as a user.
    pub(crate) fn is_role_shared(&self, role_arn: &str, key: &str) -> bool {
        let inner = self.read();
        let mut users = inner.by_role.0.get(role_arn).into_iter().flatten().chain(&inner.unknown);
        users.any(|other| other != key)
    }

    /// A group other than `key` that uses a role. A group that stays is preferred to one that is being deleted.
    pub(crate) fn role_user(&self, role_arn: &str, key: &str) -> Option<RoleUser> {
        let inner = self.read();
        let users = inner.by_role.0.get(role_arn).into_iter().flatten().chain(&inner.unknown);
        let is_deleting = |other: &str| inner.entries.get(other).is_some_and(|entry| entry.is_deleting);
        let users = users.filter(|other| *other != key);
        let found = users.map(|other| RoleUser { group: other.clone(), is_deleting: is_deleting(other) });
        found.min_by_key(|user| user.is_deleting)
    }

    /// Whether every other group that uses a role has observed its access entry.
    pub(crate) fn others_have_access_entry(&self, role_arn: &str, key: &str) -> bool {
        let inner = self.read();
        let mut lacking = inner.without_access_entry.0.get(role_arn).into_iter().flatten().chain(&inner.unknown);
        lacking.all(|other| other == key)
    }

    /// The number of roles that groups use, and the roles for which at least one group has not observed an access entry.
    /// A previous role counts until a group records its access entry. If another group uses the role, only what that
    /// group observes counts: its access entry lets in all nodes of the role, so the group that left it creates none.
    pub(crate) fn roles_without_access_entry(&self) -> (usize, Vec<String>) {
        let inner = self.read();
        let joins_by_aws_auth_alone =
            |role: &&String| !inner.by_role.0.contains_key(*role) && !inner.by_access_entry_role.0.contains_key(*role);
        let previous = inner.by_aws_auth_role.0.keys().filter(joins_by_aws_auth_alone);
        let mut roles: Vec<_> = inner.without_access_entry.0.keys().chain(previous).cloned().collect();
        roles.sort();
        let all: BTreeSet<_> = inner.by_role.0.keys().chain(&roles).collect();
        (all.len(), roles)
    }

    /// The group that a scaling group belongs to; empty if there is none.
    pub(crate) fn with_scaling_group(&self, name: &str) -> BTreeSet<String> {
        self.read().by_scaling_group.get(name)
    }

    /// The other groups of the name of `id` that may be served by a managed node group of this name, although their status
    /// does not say so: Keiko controller names it without the namespace, and records nothing while EKS creates it.
    pub(crate) fn unrecorded_namesakes(&self, id: &GroupId) -> BTreeSet<String> {
        let inner = self.read();
        let unrecorded = inner.entries.iter().filter(|(_, entry)| entry.may_have_unrecorded_nodegroup);
        namesakes(unrecorded.map(|(key, _)| key), id)
    }

    /// The other groups of the name of `id` that record a managed node group (`cluster/nodegroup`).
    pub(crate) fn recording_namesakes(&self, nodegroup: &str, id: &GroupId) -> BTreeSet<String> {
        namesakes(self.read().by_nodegroup.0.get(nodegroup).into_iter().flatten(), id)
    }

    /// The other groups of the name of `id` whose status cannot be decoded.
    pub(crate) fn undecodable_namesakes(&self, id: &GroupId) -> BTreeSet<String> {
        namesakes(self.read().unknown.iter(), id)
    }

    /// The other groups for which the controller derives the same names of a Fargate profile and its role as for `id`, and
    /// which may have them. If the group itself has created a profile, only groups that may have done so count.
    pub(crate) fn profile_rivals(&self, id: &GroupId, has_profile: bool) -> BTreeSet<String> {
        let (inner, own) = (self.read(), id.key());
        let may_have_profile =
            |key: &String| inner.unknown.contains(key) || inner.entries.get(key).is_some_and(|entry| entry.has_profile);
        let mut rivals = inner.by_joined_name.get(&joined_name(&own));
        rivals.retain(|key| *key != own && (!has_profile || may_have_profile(key)));
        rivals
    }

    /// The position of the group `key` in the queue of groups that wait to create or delete a Fargate profile of a cluster.
    /// `since` (RFC 3339, whole seconds) is when it started to wait.
    pub(crate) fn profile_queue_position(
        &self,
        cluster: &str,
        since: Option<&str>,
        key: &str,
        now: Timestamp,
    ) -> QueuePosition {
        let mut inner = self.write();
        inner
            .profile_queues
            .get_mut(cluster)
            .map_or_else(QueuePosition::default, |queue| queue.position(since, key, now))
    }

    /// The groups of a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> BTreeSet<String> {
        self.read().by_namespace.get(namespace)
    }

    /// The instance types in the specs of groups of the provisioner `eks`, without those from defaults.
    pub(crate) fn instance_types(&self) -> Vec<String> {
        self.read().by_instance_type.0.keys().cloned().collect()
    }

    /// Groups other than `key` that have no status yet. Each is returned once, so that many new groups do not cost the
    /// square of their number.
    pub(crate) fn take_unreconciled(&self, key: &str) -> Vec<GroupId> {
        let mut unreconciled = std::mem::take(&mut self.write().unreconciled);
        unreconciled.remove(key);
        unreconciled.into_values().collect()
    }
}

impl IndexedGroups {
    fn insert(&mut self, key: String, entry: IndexedGroup) {
        entry.aws_auth_roles.iter().for_each(|role| self.by_aws_auth_role.insert(role, &key));
        entry.access_entry_roles.iter().for_each(|role| self.by_access_entry_role.insert(role, &key));
        entry.role.iter().for_each(|role| self.by_role.insert(role, &key));
        entry.role_without_access_entry().into_iter().for_each(|role| self.without_access_entry.insert(role, &key));
        entry.scaling_group.iter().for_each(|name| self.by_scaling_group.insert(name, &key));
        entry.nodegroups.iter().for_each(|name| self.by_nodegroup.insert(name, &key));
        entry.instance_types.iter().for_each(|name| self.by_instance_type.insert(name, &key));
        if let Some((cluster, since)) = &entry.profile_wait {
            self.profile_queues.entry(cluster.clone()).or_default().enqueue((since.clone(), key.clone()));
        }
        self.by_namespace.insert(&entry.namespace, &key);
        if entry.may_be_fargate {
            self.by_joined_name.insert(&joined_name(&key), &key);
        }
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &str) -> Option<IndexedGroup> {
        self.unreconciled.remove(key);
        self.unknown.remove(key);
        let entry = self.entries.remove(key)?;
        entry.aws_auth_roles.iter().for_each(|role| self.by_aws_auth_role.remove(role, key));
        entry.access_entry_roles.iter().for_each(|role| self.by_access_entry_role.remove(role, key));
        entry.role.iter().for_each(|role| self.by_role.remove(role, key));
        entry.role_without_access_entry().into_iter().for_each(|role| self.without_access_entry.remove(role, key));
        entry.scaling_group.iter().for_each(|name| self.by_scaling_group.remove(name, key));
        entry.nodegroups.iter().for_each(|name| self.by_nodegroup.remove(name, key));
        self.by_namespace.remove(&entry.namespace, key);
        self.by_joined_name.remove(&joined_name(key), key);
        entry.instance_types.iter().for_each(|name| self.by_instance_type.remove(name, key));
        if let Some((cluster, since)) = &entry.profile_wait {
            let ticket = (since.clone(), key.to_owned());
            if self.profile_queues.get_mut(cluster).is_some_and(|queue| queue.remove(&ticket)) {
                self.profile_queues.remove(cluster);
            }
        }
        Some(entry)
    }
}

/// The namespace and name of a key, joined as in the names of Fargate profiles.
fn joined_name(key: &str) -> String {
    key.replacen('/', "-", 1)
}

/// Those of the keys that are of another group of the name of `id`.
fn namesakes<'a>(keys: impl Iterator<Item = &'a String>, id: &GroupId) -> BTreeSet<String> {
    let own = id.key();
    let is_namesake = |key: &&String| **key != own && key.rsplit_once('/').is_some_and(|(_, name)| name == id.name);
    keys.filter(is_namesake).cloned().collect()
}

fn named_instance_types(spec: &InstanceGroupSpec) -> BTreeSet<String> {
    let configuration = spec.eks.iter().flat_map(|eks| &eks.configuration);
    let named = configuration.flat_map(|c| {
        let mixed = c.mixed_instances_policy.iter().flat_map(|m| m.instance_types.iter().flatten());
        c.instance_type.iter().chain(mixed.flat_map(|t| &t.r#type))
    });
    named.cloned().collect()
}

fn is_deleting(group: &InstanceGroup) -> bool {
    let id = group_id(group);
    id.is_deleting() && id.has_finalizer && !group.status.as_ref().is_some_and(is_stalled)
}

/// Whether the deletion of the group is complete, and only another client's finalizer keeps the object, perhaps forever.
fn is_finalized(group: &InstanceGroup) -> bool {
    let id = group_id(group);
    id.is_deleting() && !id.has_finalizer
}

fn is_stalled(status: &InstanceGroupStatus) -> bool {
    status.conditions.iter().any(|c| c.r#type == condition::STALLED && c.is_true())
}

/// The cluster and start of the wait for a Fargate profile. A stalled or locked group does not wait, so
/// that others can proceed.
fn profile_wait(status: &InstanceGroupStatus) -> Option<(String, String)> {
    let fargate = status.fargate.as_ref()?;
    let is_locked = status.conditions.iter().any(|c| c.r#type == condition::LOCKED && c.is_true());
    if is_stalled(status) || is_locked {
        None
    } else {
        Some((fargate.cluster.clone()?, fargate.waiting_since.clone()?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(name: &str, status: Value) -> GroupObject {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name },
            "spec": {}, "status": status,
        });
        serde_json::from_value(object).expect("an object")
    }

    /// A group whose spec cannot be decoded.
    fn invalid_group(name: &str, status: Value) -> GroupObject {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name },
            "spec": { "eks": "no object" }, "status": status,
        });
        let stored: GroupObject = serde_json::from_value(object).expect("an object");
        assert!(stored.0.is_err());
        stored
    }

    fn group_with_role(name: &str, role: &str, auth: &[&str]) -> GroupObject {
        stored(
            name,
            json!({ "nodesInstanceRoleArn": role, "activeScalingGroupName": format!("c-team-{name}"), "managed": { "authEntries": auth } }),
        )
    }

    fn names(keys: &BTreeSet<String>) -> Vec<&str> {
        keys.iter().map(String::as_str).collect()
    }

    #[test]
    fn role_is_shared_while_another_group_uses_it() {
        let index = GroupIndex::default();
        index.upsert(&group_with_role("a", "arn:r", &["arn:r"]));
        assert!(!index.is_role_shared("arn:r", "team/a"));
        index.upsert(&group_with_role("b", "arn:r", &[]));
        assert!(index.is_role_shared("arn:r", "team/a") && index.has_aws_auth_entry("arn:r"));
        index.upsert(&group_with_role("b", "arn:other", &[]));
        assert!(!index.is_role_shared("arn:r", "team/a"));
        index.remove("team/a");
        assert!(!index.has_aws_auth_entry("arn:r"));
    }

    #[test]
    fn invalid_object_keeps_its_previous_index_entry() {
        let index = GroupIndex::default();
        index.upsert(&group_with_role("a", "arn:r", &["arn:r"]));
        index.upsert(&invalid_group("a", json!({ "nodesInstanceRoleArn": "arn:forged" })));
        assert!(index.is_role_shared("arn:r", "team/b") && index.has_aws_auth_entry("arn:r"));
        assert!(!index.others_have_access_entry("arn:r", "team/b"));
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
        index.upsert(&group_with_role("a", "arn:other", &[]));
        assert!(!index.is_role_shared("arn:r", "team/b"), "a valid object replaces the kept entry");
    }

    #[test]
    fn invalid_object_without_history_is_indexed_by_status_or_assumed_to_share_everything() {
        let index = GroupIndex::default();
        index.upsert(&invalid_group(
            "a",
            json!({ "nodesInstanceRoleArn": "arn:r", "activeScalingGroupName": "c-team-a" }),
        ));
        assert!(index.is_role_shared("arn:r", "team/b") && !index.is_role_shared("arn:other", "team/b"));
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
        index.upsert(&invalid_group("new", Value::Null));
        assert!(!index.is_role_shared("arn:other", "team/b"), "a group without a status has no resources");
        index.upsert(&invalid_group("unreadable", json!("no object")));
        assert!(index.is_role_shared("arn:other", "team/b") && !index.others_have_access_entry("arn:other", "team/b"));
        assert!(!index.is_role_shared("arn:other", "team/unreadable"), "the group itself does not count");
        index.remove("team/unreadable");
        assert!(!index.is_role_shared("arn:other", "team/b"));
    }

    #[test]
    fn role_has_access_entry_once_every_group_recorded_it() {
        let index = GroupIndex::default();
        let upsert_joined = |name: &str, provisioner: &str, entry: Value| {
            let status = json!({ "nodesInstanceRoleArn": "arn:r", "provisioner": provisioner, "join": entry });
            index.upsert(&stored(name, status));
        };
        upsert_joined("a", "eks", json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
        upsert_joined("b", "eks", json!({ "awsAuth": true }));
        upsert_joined("managed", "eks-managed", Value::Null);
        assert!(
            index.others_have_access_entry("arn:r", "team/b") && !index.others_have_access_entry("arn:r", "team/a")
        );
        assert_eq!(index.roles_without_access_entry(), (1, vec!["arn:r".to_owned()]));
        upsert_joined("b", "eks", json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
        assert!(index.others_have_access_entry("arn:r", "team/a"));
        assert_eq!(index.roles_without_access_entry(), (1, vec![]));
        let managed = |entries: &[&str]| json!({ "authEntries": ["arn:r", "arn:previous"], "accessEntries": entries });
        let with_previous_role = |entries: &[&str]| {
            let join = json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" });
            let status = json!({ "nodesInstanceRoleArn": "arn:r", "join": join, "managed": managed(entries) });
            index.upsert(&stored("b", status));
            index.roles_without_access_entry()
        };
        assert_eq!(with_previous_role(&["arn:r"]), (2, vec!["arn:previous".to_owned()]), "nodes still run with it");
        assert_eq!(with_previous_role(&["arn:r", "arn:previous"]), (1, vec![]));
    }

    /// A group that left a role keeps the record of its aws-auth entry while another group uses the role. It never
    /// records the access entry that the other group creates. If that counted, no group would ever remove the aws-auth
    /// entry.
    #[test]
    fn role_that_one_group_left_has_an_access_entry_once_its_user_observed_it() {
        let index = GroupIndex::default();
        let upsert_group = |name: &str, role: &str, join: Value, managed: Value| {
            let status = json!({ "nodesInstanceRoleArn": role, "join": join, "managed": managed });
            index.upsert(&stored(name, status));
        };
        let by_aws_auth = json!({ "awsAuth": true });
        let by_both = json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" });
        let left = json!({ "authEntries": ["arn:next", "arn:r"], "accessEntries": ["arn:next"] });
        upsert_group("a", "arn:next", by_both.clone(), left.clone());
        upsert_group("b", "arn:r", by_aws_auth, json!({ "authEntries": ["arn:r"] }));
        assert_eq!(index.roles_without_access_entry(), (2, vec!["arn:r".to_owned()]));
        let created = json!({ "authEntries": ["arn:r"], "accessEntries": ["arn:r"] });
        upsert_group("b", "arn:r", by_both.clone(), created);
        assert_eq!(index.roles_without_access_entry(), (2, vec![]));
        assert!(index.others_have_access_entry("arn:r", "team/b"), "it may remove the entry from aws-auth");
        upsert_group("b", "arn:next", by_both.clone(), left);
        assert_eq!(index.roles_without_access_entry(), (2, vec!["arn:r".to_owned()]), "nodes may still run with it");
        let recorded = json!({ "authEntries": ["arn:next", "arn:r"], "accessEntries": ["arn:next", "arn:r"] });
        upsert_group("b", "arn:next", by_both, recorded);
        assert_eq!(index.roles_without_access_entry(), (1, vec![]), "one access entry lets in the nodes of both");
    }

    #[test]
    fn group_is_unreconciled_until_it_has_a_status() {
        let index = GroupIndex::default();
        index.upsert(&stored("a", Value::Null));
        assert_eq!(index.take_unreconciled("team/b").len(), 1);
        assert!(index.take_unreconciled("team/b").is_empty(), "each is returned once");
        index.upsert(&group_with_role("a", "arn:r", &[]));
        assert!(index.take_unreconciled("team/b").is_empty());
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
    }

    #[test]
    fn instance_types_follow_group_specs() {
        let index = GroupIndex::default();
        let upsert_spec = |group: &str, spec: Value| {
            let mut object = serde_json::to_value(stored(group, Value::Null).0.unwrap()).unwrap();
            object["spec"] = spec;
            index.upsert(&serde_json::from_value(object).unwrap());
        };
        let mixed = json!({ "instanceType": "m5.large", "mixedInstancesPolicy": { "instanceTypes": [{ "type": "m5a.large" }] } });
        upsert_spec("a", json!({ "eks": { "configuration": mixed } }));
        upsert_spec("b", json!({ "eks": { "configuration": { "instanceType": "m5.large" } } }));
        assert_eq!(index.instance_types().len(), 2);
        upsert_spec("a", json!({ "eks": { "configuration": { "instanceType": "c5.large" } } }));
        let mut types = index.instance_types();
        types.sort();
        assert_eq!(types, ["c5.large", "m5.large"]);
        index.remove("team/b");
        assert_eq!(index.instance_types(), ["c5.large"]);
    }

    #[test]
    fn retain_drops_unlisted_groups() {
        let index = GroupIndex::default();
        for name in ["a", "b"] {
            index.upsert(&group_with_role(name, "arn:r", &["arn:r"]));
        }
        assert_eq!(index.retain(&["team/b".to_owned()].into()), ["team/a"]);
        assert_eq!(names(&index.in_namespace("team")), ["team/b"]);
        assert!(!index.is_role_shared("arn:r", "team/b"));
    }

    #[test]
    fn profile_queue_is_ordered_by_waiting_since() {
        let index = GroupIndex::default();
        let waiting = |name: &str, since: &str, stalled: bool| {
            let condition = json!({ "type": "Stalled", "status": if stalled { "True" } else { "False" } });
            let fargate = json!({ "cluster": "c", "waitingSince": since });
            stored(name, json!({ "fargate": fargate, "conditions": [condition] }))
        };
        let (early, late) = ("2026-01-02T00:00:00Z", "2026-01-02T00:00:09Z");
        index.upsert(&waiting("b", early, false));
        index.upsert(&waiting("a", late, false));
        index.upsert(&waiting("c", early, true));
        let now = "2026-01-02T00:00:10Z".parse().expect("a time");
        let ahead = |since, key| index.profile_queue_position("c", Some(since), key, now).ahead;
        assert_eq!((ahead(early, "team/b"), ahead(late, "team/a"), ahead(late, "team/z")), (0, 1, 2));
        assert_eq!(index.profile_queue_position("c", None, "team/z", now).ahead, 2, "a new group is last");
        assert_eq!(index.profile_queue_position("other", Some(late), "team/z", now), QueuePosition::default());
        index.upsert(&invalid_group("b", json!({ "fargate": { "cluster": "c", "waitingSince": early } })));
        assert_eq!(ahead(late, "team/a"), 0, "an invalid group leaves the queue");
        index.upsert(&waiting("b", early, false));
        assert_eq!(ahead(late, "team/a"), 1);
        index.upsert(&stored("b", json!({ "fargate": { "cluster": "c" } })));
        assert_eq!(ahead(late, "team/a"), 0, "the group no longer waits");
        index.remove("team/a");
        assert_eq!(ahead(late, "team/z"), 0);
    }
}
