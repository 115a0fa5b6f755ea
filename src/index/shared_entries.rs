//! Decides which group removes what several groups share: the join entry of a role, or a managed node group.

use std::collections::BTreeSet;

use super::groups::{GroupIndex, IndexedGroups};

/// What an active group does with the join entry of a role that it no longer uses.
#[derive(Debug, PartialEq)]
pub(crate) enum EntryDisposition {
    /// Keep it: another group may need it.
    Keep,
    /// Remove it: no group needs it.
    Remove,
    /// Another group has recorded it and removes it.
    RemovedByPeer,
}

/// Among groups that no longer use a role, the last by name removes its entry, once no group needs it.
pub(crate) fn entry_disposition(needed: bool, other_users: &BTreeSet<String>, key: &str) -> EntryDisposition {
    match other_users.last() {
        _ if needed => EntryDisposition::Keep,
        Some(last) if last.as_str() > key => EntryDisposition::RemovedByPeer,
        Some(_) => EntryDisposition::Keep,
        None => EntryDisposition::Remove,
    }
}

/// What a group that is being deleted does with something that it shares, such as the join entry of its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeletionOrder {
    /// Remove it: no other group needs it.
    RemoveNow,
    /// All other users are being deleted too. Wait for this group before removing it.
    WaitFor(String),
    /// Keep it: another group needs it, or removes it.
    Keep,
}

impl GroupIndex {
    /// What the deletion of the group `key` does with a role's entry; `recorded` are the other groups that have recorded it.
    /// If all users are being deleted, the last by name removes the entry after the others and their nodes are gone. If a
    /// group remains, or its deletion is stalled, the entry is kept for it.
    pub(crate) fn deletion_order(&self, role_arn: &str, recorded: &BTreeSet<String>, key: &str) -> DeletionOrder {
        let inner = self.read();
        let users = inner.by_role.0.get(role_arn).into_iter().flatten();
        order_among(&inner, users.chain(recorded).chain(&inner.unknown), key)
    }

    /// What the deletion of the group `key` does with something that these other groups may use, by the same rule.
    pub(crate) fn deletion_order_among(&self, others: &BTreeSet<String>, key: &str) -> DeletionOrder {
        order_among(&self.read(), others.iter(), key)
    }

    /// Whether any of these groups is being deleted. It does not remove shared entries, and its nodes may still need them.
    pub(crate) fn any_deleting(&self, groups: &BTreeSet<String>) -> bool {
        let inner = self.read();
        groups.iter().any(|key| inner.entries.get(key).is_some_and(|entry| entry.is_deleting))
    }
}

/// The last by name waits for the others. A group that remains, or whose deletion is stalled, keeps what is shared.
fn order_among<'a>(inner: &IndexedGroups, users: impl Iterator<Item = &'a String>, key: &str) -> DeletionOrder {
    let is_deleting = |other: &String| inner.entries.get(other).is_some_and(|entry| entry.is_deleting);
    let mut next: Option<&String> = None;
    for other in users.filter(|other| other.as_str() != key) {
        if other.as_str() > key || !is_deleting(other) {
            return DeletionOrder::Keep;
        }
        next = Some(next.map_or(other, |next| next.min(other)));
    }
    next.map_or(DeletionOrder::RemoveNow, |other| DeletionOrder::WaitFor(other.clone()))
}

/// Decides for each role of a deleted group. Returns the roles whose entries it removes, and a group that must be deleted
/// first.
pub(crate) fn entries_to_remove<'r>(
    roles: impl IntoIterator<Item = &'r String>,
    deletion_order: impl Fn(&str) -> DeletionOrder,
) -> (Vec<&'r String>, Option<String>) {
    let (mut removed, mut wait_for) = (Vec::new(), None);
    for role in roles {
        match deletion_order(role) {
            DeletionOrder::RemoveNow => removed.push(role),
            DeletionOrder::WaitFor(other) => wait_for = Some(other),
            DeletionOrder::Keep => {}
        }
    }
    (removed, wait_for)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::GroupObject;
    use crate::api::names::FINALIZER;

    fn upsert_group(index: &GroupIndex, name: &str, deleting: bool, patch: &Value) {
        let mut object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name, "finalizers": [FINALIZER] },
            "spec": {}, "status": { "nodesInstanceRoleArn": "arn:r", "managed": { "authEntries": ["arn:r"] } },
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        }
        crate::api::apply_merge_patch(&mut object, patch);
        index.upsert(&serde_json::from_value::<GroupObject>(object).expect("an object"));
    }

    fn deletion_order_of(index: &GroupIndex, name: &str) -> DeletionOrder {
        let key = format!("team/{name}");
        index.deletion_order("arn:r", &index.aws_auth_users("arn:r", &key), &key)
    }

    fn wait_for(name: &str) -> DeletionOrder {
        DeletionOrder::WaitFor(format!("team/{name}"))
    }

    /// If two groups leave a role at the same time, exactly one of them removes the entry.
    #[test]
    fn exactly_one_group_removes_the_entry_of_an_abandoned_role() {
        let users = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(entry_disposition(false, &users(&[]), "team/b"), EntryDisposition::Remove);
        assert_eq!(entry_disposition(true, &users(&[]), "team/b"), EntryDisposition::Keep);
        assert_eq!(entry_disposition(true, &users(&["team/c"]), "team/b"), EntryDisposition::Keep);
        assert_eq!(
            entry_disposition(false, &users(&["team/a"]), "team/b"),
            EntryDisposition::Keep,
            "team/a may need it"
        );
        assert_eq!(entry_disposition(false, &users(&["team/a", "team/c"]), "team/b"), EntryDisposition::RemovedByPeer);
    }

    /// Deleting a namespace deletes all its groups at the same time. The entry must be removed, but not while nodes drain.
    #[test]
    fn last_of_several_deleted_groups_removes_the_entry() {
        let (index, no_patch) = (GroupIndex::default(), json!({}));
        for name in ["a", "b", "c"] {
            upsert_group(&index, name, true, &no_patch);
        }
        assert_eq!(
            [deletion_order_of(&index, "a"), deletion_order_of(&index, "b"), deletion_order_of(&index, "c")],
            [DeletionOrder::Keep, DeletionOrder::Keep, wait_for("a")]
        );
        index.remove("team/a");
        assert_eq!(
            [deletion_order_of(&index, "b"), deletion_order_of(&index, "c")],
            [DeletionOrder::Keep, wait_for("b")]
        );
        index.remove("team/b");
        assert_eq!(deletion_order_of(&index, "c"), DeletionOrder::RemoveNow);
    }

    #[test]
    fn entry_is_kept_for_a_remaining_or_stalled_group() {
        let (index, no_patch) = (GroupIndex::default(), json!({}));
        let stalled = json!({ "status": { "conditions": [{ "type": "Stalled", "status": "True" }] } });
        upsert_group(&index, "b", true, &no_patch);
        for (deleting, patch) in [(false, no_patch), (true, stalled), (true, json!({ "spec": { "eks": "no object" } }))]
        {
            upsert_group(&index, "a", deleting, &patch);
            assert_eq!(deletion_order_of(&index, "b"), DeletionOrder::Keep, "{patch}");
        }
        assert!(
            index.any_deleting(&["team/b".to_owned()].into()) && !index.any_deleting(&["team/a".to_owned()].into())
        );
        upsert_group(&index, "a", true, &json!({ "status": { "nodesInstanceRoleArn": "arn:next" } }));
        assert_eq!(deletion_order_of(&index, "b"), wait_for("a"), "nodes of team/a may still have its previous role");
    }

    /// Another client's finalizer may keep the object forever, and then no group would ever remove the entry.
    #[test]
    fn group_whose_deletion_is_complete_uses_no_role() {
        let index = GroupIndex::default();
        let held = json!({ "metadata": { "finalizers": ["example.com/other"] } });
        upsert_group(&index, "b", true, &json!({}));
        upsert_group(&index, "a", true, &held);
        assert_eq!(deletion_order_of(&index, "b"), DeletionOrder::RemoveNow);
        assert!(!index.is_role_shared("arn:r", "team/b") && index.role_user("arn:r", "team/b").is_none());
        assert!(index.others_have_access_entry("arn:r", "team/b"), "the migration to access entries continues");
        upsert_group(&index, "a", false, &held);
        assert_eq!(deletion_order_of(&index, "b"), DeletionOrder::Keep, "a new group has no finalizer yet");
        let served = |finalizer: &str| json!({ "metadata": { "finalizers": [finalizer] }, "status": { "activeScalingGroupName": "asg-1" } });
        for (finalizer, users) in [(FINALIZER, 1), ("example.com/other", 0)] {
            upsert_group(&index, "a", true, &served(finalizer));
            assert_eq!(index.with_scaling_group("asg-1").len(), users, "{finalizer}: whose node group it may be");
        }
    }
}
