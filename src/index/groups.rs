//! What one reconcile asks about all groups, kept up by the watch of the groups:
//! the answer costs the same for ten groups and for ten thousand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::names::condition;
use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, ProvisionerKind, Stored, identity};
use crate::auth::aws_auth::without_path;

use crate::index::profile_queue::Line;
pub use crate::index::profile_queue::Queue;
pub use crate::index::shared_entries::{Fate, Legacy, bequeathed, fate};

/// Which groups share something, by what they share.
#[derive(Default)]
pub struct GroupIndex(RwLock<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) entries: HashMap<String, Entry>,
    auth: Relation,
    access: Relation,
    pub(super) roles: Relation,
    /// Groups without an access entry by role.
    without_entry: Relation,
    scaling_groups: Relation,
    namespaces: Relation,
    types: Relation,
    lines: HashMap<String, Line>,
    new_ones: BTreeMap<String, GroupId>,
    /// Groups of which nobody knows what they share.
    pub(super) unknown: BTreeSet<String>,
}

/// What of one group stands in the index; it is taken out by it again.
#[derive(Default)]
pub(super) struct Entry {
    auth: Vec<String>,
    access: Vec<String>,
    role: Option<String>,
    without_entry: bool,
    scaling_group: Option<String>,
    /// The cluster in whose line it waits, and since when.
    waits: Option<(String, String)>,
    namespace: String,
    types: BTreeSet<String>,
    /// It is being deleted, and nothing is known that would hold it.
    pub(super) leaving: bool,
}

impl Entry {
    fn of(namespace: String, status: Option<&InstanceGroupStatus>) -> Self {
        let mut entry = Entry { namespace, ..Entry::default() };
        let Some(status) = status else { return entry };
        entry.auth = status.managed.iter().flat_map(|m| m.auth_entries.clone()).collect();
        entry.access = status.managed.iter().flat_map(|m| m.access_entries.clone()).collect();
        entry.role = status.nodes_instance_role_arn.clone();
        // EKS itself lets the nodes of a managed node group join.
        let managed = status.provisioner.as_deref().and_then(ProvisionerKind::parse);
        entry.without_entry = managed != Some(ProvisionerKind::EksManaged)
            && status.join.as_ref().is_none_or(|join| join.access_entry.is_none());
        entry.scaling_group = status.active_scaling_group_name.clone();
        entry.waits = waits(status);
        entry
    }
}

/// Keys of groups (`namespace/name`) by what they share.
#[derive(Default)]
pub(super) struct Relation(pub(super) HashMap<String, BTreeSet<String>>);

impl Relation {
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

    fn of(&self, shared: &str) -> BTreeSet<String> {
        self.0.get(shared).cloned().unwrap_or_default()
    }
}

impl GroupIndex {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().expect("nobody panics holding it")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().expect("nobody panics holding it")
    }

    /// The watch showed a group. Of one that cannot be decoded what was known before stays, and at first what its status
    /// says counts; where nobody can read that either, it may share anything.
    pub fn put(&self, stored: &Stored) {
        let namespace = stored.namespace().unwrap_or_default();
        let key = format!("{namespace}/{}", stored.name_any());
        let mut inner = self.write();
        let guessed = inner.unknown.contains(&key);
        let entry = match (&stored.0, inner.take_out(&key)) {
            (Ok(group), _) => {
                if group.status.is_none() {
                    inner.new_ones.insert(key.clone(), identity(group));
                }
                let entry = Entry::of(namespace, group.status.as_ref());
                Entry { types: types(&group.spec), leaving: leaving(group), ..entry }
            }
            // It cannot go on, and lets the others pass.
            (Err(_), Some(known)) if !guessed => Entry { waits: None, leaving: false, ..known },
            (Err(broken), _) => {
                if broken.status.is_none() {
                    inner.unknown.insert(key.clone());
                }
                Entry { waits: None, ..Entry::of(namespace, broken.status.as_ref()) }
            }
        };
        inner.put_in(key, entry);
    }

    /// The watch showed that a group is gone.
    pub fn remove(&self, key: &str) {
        self.write().take_out(key);
    }

    /// Drops what a complete new list does not hold, and tells which groups these were.
    pub fn retain(&self, listed: &BTreeSet<String>) -> Vec<String> {
        let mut inner = self.write();
        let gone: Vec<_> = inner.entries.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| _ = inner.take_out(key));
        gone
    }

    /// Whether some group has recorded that it put the role's entry into aws-auth.
    pub fn authorised(&self, role_arn: &str) -> bool {
        self.read().auth.0.contains_key(role_arn)
    }

    /// The groups other than `key` that have recorded so.
    pub fn authorised_by(&self, role_arn: &str, key: &str) -> BTreeSet<String> {
        self.read().auth.of(role_arn).into_iter().filter(|other| other != key).collect()
    }

    /// The groups other than `key` that have recorded that the controller made the role's access entry.
    pub fn admitted_by(&self, role_arn: &str, key: &str) -> BTreeSet<String> {
        self.read().access.of(role_arn).into_iter().filter(|other| other != key).collect()
    }

    /// Those roles as aws-auth compares them: without path and case.
    pub fn authorised_roles(&self) -> BTreeSet<String> {
        self.read().auth.0.keys().map(|role| without_path(role).to_lowercase()).collect()
    }

    /// Whether a group other than `key` uses a role, or may use it for all that is known.
    pub fn shares_role(&self, role_arn: &str, key: &str) -> bool {
        let inner = self.read();
        let mut users = inner.roles.0.get(role_arn).into_iter().flatten().chain(&inner.unknown);
        users.any(|other| other != key)
    }

    /// Whether every group other than `key` that uses a role has seen its access entry.
    pub fn others_have_entry(&self, role_arn: &str, key: &str) -> bool {
        let inner = self.read();
        let mut without = inner.without_entry.0.get(role_arn).into_iter().flatten().chain(&inner.unknown);
        without.all(|other| other == key)
    }

    /// How many roles the groups use, and those of them of which some group has not seen an access entry.
    pub fn roles_without_entry(&self) -> (usize, Vec<String>) {
        let inner = self.read();
        let mut without: Vec<_> = inner.without_entry.0.keys().cloned().collect();
        without.sort();
        (inner.roles.0.len(), without)
    }

    /// The groups that a scaling group belongs to: one, or none.
    pub fn with_scaling_group(&self, name: &str) -> BTreeSet<String> {
        self.read().scaling_groups.of(name)
    }

    /// Where the group `key`, which has waited since `since` (RFC 3339, whole seconds), stands among those that wait for
    /// EKS to make or delete a Fargate profile of a cluster.
    pub fn queue(&self, cluster: &str, since: Option<&str>, key: &str, now: Timestamp) -> Queue {
        let mut inner = self.write();
        inner.lines.get_mut(cluster).map_or_else(Queue::default, |line| line.queue(since, key, now))
    }

    /// The groups of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> BTreeSet<String> {
        self.read().namespaces.of(namespace)
    }

    /// The instance types that groups of the provisioner eks name, without what defaults add.
    pub fn instance_types(&self) -> Vec<String> {
        self.read().types.0.keys().cloned().collect()
    }

    /// Groups other than `key` that nobody has looked at yet.
    pub fn new_ones(&self, key: &str) -> Vec<GroupId> {
        self.read().new_ones.iter().filter(|(other, _)| *other != key).map(|(_, id)| id.clone()).collect()
    }
}

impl Inner {
    fn put_in(&mut self, key: String, entry: Entry) {
        entry.auth.iter().for_each(|role| self.auth.insert(role, &key));
        entry.access.iter().for_each(|role| self.access.insert(role, &key));
        entry.role.iter().for_each(|role| self.roles.insert(role, &key));
        entry.role.iter().filter(|_| entry.without_entry).for_each(|role| self.without_entry.insert(role, &key));
        entry.scaling_group.iter().for_each(|name| self.scaling_groups.insert(name, &key));
        entry.types.iter().for_each(|name| self.types.insert(name, &key));
        if let Some((cluster, since)) = &entry.waits {
            self.lines.entry(cluster.clone()).or_default().join((since.clone(), key.clone()));
        }
        self.namespaces.insert(&entry.namespace, &key);
        self.entries.insert(key, entry);
    }

    fn take_out(&mut self, key: &str) -> Option<Entry> {
        self.new_ones.remove(key);
        self.unknown.remove(key);
        let entry = self.entries.remove(key)?;
        entry.auth.iter().for_each(|role| self.auth.remove(role, key));
        entry.access.iter().for_each(|role| self.access.remove(role, key));
        entry.role.iter().for_each(|role| self.roles.remove(role, key));
        entry.role.iter().for_each(|role| self.without_entry.remove(role, key));
        entry.scaling_group.iter().for_each(|name| self.scaling_groups.remove(name, key));
        self.namespaces.remove(&entry.namespace, key);
        entry.types.iter().for_each(|name| self.types.remove(name, key));
        if let Some((cluster, since)) = &entry.waits {
            let place = (since.clone(), key.to_owned());
            if self.lines.get_mut(cluster).is_some_and(|line| line.leave(&place)) {
                self.lines.remove(cluster);
            }
        }
        Some(entry)
    }
}

fn types(spec: &InstanceGroupSpec) -> BTreeSet<String> {
    let configuration = spec.eks.iter().flat_map(|eks| &eks.configuration);
    let named = configuration.flat_map(|c| {
        let mixed = c.mixed_instances_policy.iter().flat_map(|m| m.instance_types.iter().flatten());
        c.instance_type.iter().chain(mixed.flat_map(|t| &t.r#type))
    });
    named.cloned().collect()
}

fn leaving(group: &InstanceGroup) -> bool {
    let id = identity(group);
    id.deleting && id.finalizer && !group.status.as_ref().is_some_and(stalled)
}

fn stalled(status: &InstanceGroupStatus) -> bool {
    status.conditions.iter().any(|c| c.r#type == condition::STALLED && c.is_true())
}

/// A group that cannot go on lets the others pass.
fn waits(status: &InstanceGroupStatus) -> Option<(String, String)> {
    let fargate = status.fargate.as_ref()?;
    if stalled(status) { None } else { Some((fargate.cluster.clone()?, fargate.waiting_since.clone()?)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(name: &str, status: Value) -> Stored {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name },
            "spec": {}, "status": status,
        });
        serde_json::from_value(object).expect("an object")
    }

    /// One whose spec does not decode.
    fn broken(name: &str, status: Value) -> Stored {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name },
            "spec": { "eks": "no object" }, "status": status,
        });
        let stored: Stored = serde_json::from_value(object).expect("an object");
        assert!(stored.0.is_err());
        stored
    }

    fn made(name: &str, role: &str, auth: &[&str]) -> Stored {
        stored(
            name,
            json!({ "nodesInstanceRoleArn": role, "activeScalingGroupName": format!("c-team-{name}"), "managed": { "authEntries": auth } }),
        )
    }

    fn names(keys: &BTreeSet<String>) -> Vec<&str> {
        keys.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_role_is_shared_exactly_while_another_group_uses_it() {
        let index = GroupIndex::default();
        index.put(&made("a", "arn:r", &["arn:r"]));
        assert!(!index.shares_role("arn:r", "team/a"));
        index.put(&made("b", "arn:r", &[]));
        assert!(index.shares_role("arn:r", "team/a") && index.authorised("arn:r"));
        index.put(&made("b", "arn:other", &[]));
        assert!(!index.shares_role("arn:r", "team/a"));
        index.remove("team/a");
        assert!(!index.authorised("arn:r"));
    }

    #[test]
    fn what_a_group_shares_is_not_forgotten_when_it_cannot_be_decoded_any_more() {
        let index = GroupIndex::default();
        index.put(&made("a", "arn:r", &["arn:r"]));
        index.put(&broken("a", json!({ "nodesInstanceRoleArn": "arn:forged" })));
        assert!(index.shares_role("arn:r", "team/b") && index.authorised("arn:r"));
        assert!(!index.others_have_entry("arn:r", "team/b"));
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
        index.put(&made("a", "arn:other", &[]));
        assert!(!index.shares_role("arn:r", "team/b"), "decoded again, it says what it uses");
    }

    #[test]
    fn of_a_group_that_never_decoded_its_status_counts_and_where_that_is_unknown_it_may_share_anything() {
        let index = GroupIndex::default();
        index.put(&broken("a", json!({ "nodesInstanceRoleArn": "arn:r", "activeScalingGroupName": "c-team-a" })));
        assert!(index.shares_role("arn:r", "team/b") && !index.shares_role("arn:other", "team/b"));
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
        index.put(&broken("new", Value::Null));
        assert!(!index.shares_role("arn:other", "team/b"), "without a status nothing was made");
        index.put(&broken("odd", json!("no object")));
        assert!(index.shares_role("arn:other", "team/b") && !index.others_have_entry("arn:other", "team/b"));
        assert!(!index.shares_role("arn:other", "team/odd"), "itself is no other");
        index.remove("team/odd");
        assert!(!index.shares_role("arn:other", "team/b"));
    }

    #[test]
    fn a_role_has_its_access_entry_once_every_group_has_seen_it() {
        let index = GroupIndex::default();
        let joined = |name: &str, provisioner: &str, entry: Value| {
            let status = json!({ "nodesInstanceRoleArn": "arn:r", "provisioner": provisioner, "join": entry });
            index.put(&stored(name, status));
        };
        joined("a", "eks", json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
        joined("b", "eks", json!({ "awsAuth": true }));
        joined("managed", "eks-managed", Value::Null);
        assert!(index.others_have_entry("arn:r", "team/b") && !index.others_have_entry("arn:r", "team/a"));
        assert_eq!(index.roles_without_entry(), (1, vec!["arn:r".to_owned()]));
        joined("b", "eks", json!({ "awsAuth": true, "accessEntry": "EC2_LINUX" }));
        assert!(index.others_have_entry("arn:r", "team/a"));
        assert_eq!(index.roles_without_entry(), (1, vec![]));
    }

    #[test]
    fn a_group_is_new_until_it_has_a_status() {
        let index = GroupIndex::default();
        index.put(&stored("a", Value::Null));
        assert_eq!(index.new_ones("team/b").len(), 1);
        assert!(index.new_ones("team/a").is_empty());
        index.put(&made("a", "arn:r", &[]));
        assert!(index.new_ones("team/b").is_empty());
        assert_eq!(names(&index.with_scaling_group("c-team-a")), ["team/a"]);
    }

    #[test]
    fn the_types_that_groups_name_are_told_while_they_name_them() {
        let index = GroupIndex::default();
        let names = |group: &str, spec: Value| {
            let mut object = serde_json::to_value(stored(group, Value::Null).0.unwrap()).unwrap();
            object["spec"] = spec;
            index.put(&serde_json::from_value(object).unwrap());
        };
        let mixed = json!({ "instanceType": "m5.large", "mixedInstancesPolicy": { "instanceTypes": [{ "type": "m5a.large" }] } });
        names("a", json!({ "eks": { "configuration": mixed } }));
        names("b", json!({ "eks": { "configuration": { "instanceType": "m5.large" } } }));
        assert_eq!(index.instance_types().len(), 2);
        names("a", json!({ "eks": { "configuration": { "instanceType": "c5.large" } } }));
        let mut told = index.instance_types();
        told.sort();
        assert_eq!(told, ["c5.large", "m5.large"]);
        index.remove("team/b");
        assert_eq!(index.instance_types(), ["c5.large"]);
    }

    #[test]
    fn what_a_new_list_does_not_hold_is_gone() {
        let index = GroupIndex::default();
        for name in ["a", "b"] {
            index.put(&made(name, "arn:r", &["arn:r"]));
        }
        assert_eq!(index.retain(&["team/b".to_owned()].into()), ["team/a"]);
        assert_eq!(names(&index.in_namespace("team")), ["team/b"]);
        assert!(!index.shares_role("arn:r", "team/b"));
    }

    #[test]
    fn groups_stand_in_line_by_the_moment_since_when_they_wait() {
        let index = GroupIndex::default();
        let waits = |name: &str, since: &str, stalled: bool| {
            let condition = json!({ "type": "Stalled", "status": if stalled { "True" } else { "False" } });
            let fargate = json!({ "cluster": "c", "waitingSince": since });
            stored(name, json!({ "fargate": fargate, "conditions": [condition] }))
        };
        let (early, late) = ("2026-01-02T00:00:00Z", "2026-01-02T00:00:09Z");
        index.put(&waits("b", early, false));
        index.put(&waits("a", late, false));
        index.put(&waits("c", early, true));
        let now = "2026-01-02T00:00:10Z".parse().expect("a time");
        let ahead = |since, key| index.queue("c", Some(since), key, now).ahead;
        assert_eq!((ahead(early, "team/b"), ahead(late, "team/a"), ahead(late, "team/z")), (0, 1, 2));
        assert_eq!(index.queue("c", None, "team/z", now).ahead, 2, "who comes now is last");
        assert_eq!(index.queue("other", Some(late), "team/z", now), Queue::default());
        index.put(&broken("b", json!({ "fargate": { "cluster": "c", "waitingSince": early } })));
        assert_eq!(ahead(late, "team/a"), 0, "it cannot go on");
        index.put(&waits("b", early, false));
        assert_eq!(ahead(late, "team/a"), 1);
        index.put(&stored("b", json!({ "fargate": { "cluster": "c" } })));
        assert_eq!(ahead(late, "team/a"), 0, "it has had its turn");
        index.remove("team/a");
        assert_eq!(ahead(late, "team/z"), 0);
    }
}
