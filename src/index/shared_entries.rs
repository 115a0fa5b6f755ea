//! Decides which group removes the join entry of a role that several groups share.

use std::collections::BTreeSet;

use super::groups::GroupIndex;

/// What an active group does with the entry of a role that it no longer uses.
#[derive(Debug, PartialEq)]
pub enum EntryDisposition {
    /// Keep it: another group may need it.
    Stays,
    /// Remove it: no group needs it.
    Goes,
    /// Another group has recorded it and removes it.
    Handed,
}

/// Among groups that no longer use a role, the last by name removes its entry, once no group needs it.
pub fn entry_disposition(needed: bool, others: &BTreeSet<String>, key: &str) -> EntryDisposition {
    match others.last() {
        _ if needed => EntryDisposition::Stays,
        Some(last) if last.as_str() > key => EntryDisposition::Handed,
        Some(_) => EntryDisposition::Stays,
        None => EntryDisposition::Goes,
    }
}

/// What a group that is being deleted does with the entry of its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionOrder {
    /// Remove it: no other group needs it.
    Goes,
    /// All other users are being deleted too. Wait for this one before removing the entry.
    After(String),
    /// Keep it: another group needs it, or removes it.
    Stays,
}

impl GroupIndex {
    /// What the deletion of the group `key` does with a role's entry; `recorded` are the other groups that have recorded it.
    /// If all users are being deleted, the last by name removes the entry after the others and their nodes are gone. If a
    /// group remains, or its deletion is stalled, the entry is kept for it.
    pub fn deletion_order(&self, role_arn: &str, recorded: &BTreeSet<String>, key: &str) -> DeletionOrder {
        let inner = self.read();
        let users = inner.by_role.0.get(role_arn).into_iter().flatten();
        let others = users.chain(recorded).chain(&inner.unknown).filter(|other| other.as_str() != key);
        let leaving = |other: &String| inner.entries.get(other).is_some_and(|entry| entry.is_deleting);
        let mut first: Option<&String> = None;
        for other in others {
            if other.as_str() > key || !leaving(other) {
                return DeletionOrder::Stays;
            }
            first = Some(first.map_or(other, |first| first.min(other)));
        }
        first.map_or(DeletionOrder::Goes, |other| DeletionOrder::After(other.clone()))
    }

    /// Whether any of these groups is being deleted. It does not remove shared entries, and its nodes may still need them.
    pub fn any_deleting(&self, groups: &BTreeSet<String>) -> bool {
        let inner = self.read();
        groups.iter().any(|key| inner.entries.get(key).is_some_and(|entry| entry.is_deleting))
    }
}

/// Of the roles of a deleted group: the roles whose entries it removes, and a group that must be deleted first.
pub fn entries_to_remove<'r>(
    roles: impl IntoIterator<Item = &'r String>,
    deletion_order: impl Fn(&str) -> DeletionOrder,
) -> (Vec<&'r String>, Option<String>) {
    let (mut removed, mut wait_for) = (Vec::new(), None);
    for role in roles {
        match deletion_order(role) {
            DeletionOrder::Goes => removed.push(role),
            DeletionOrder::After(other) => wait_for = Some(other),
            DeletionOrder::Stays => {}
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

    fn put(index: &GroupIndex, name: &str, deleting: bool, extra: &Value) {
        let mut object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": { "namespace": "team", "name": name, "finalizers": [FINALIZER] },
            "spec": {}, "status": { "nodesInstanceRoleArn": "arn:r", "managed": { "authEntries": ["arn:r"] } },
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        }
        crate::api::apply_merge_patch(&mut object, extra);
        index.upsert(&serde_json::from_value::<GroupObject>(object).expect("an object"));
    }

    fn deletion_order_of(index: &GroupIndex, name: &str) -> DeletionOrder {
        let key = format!("team/{name}");
        index.deletion_order("arn:r", &index.aws_auth_users("arn:r", &key), &key)
    }

    fn wait_for(name: &str) -> DeletionOrder {
        DeletionOrder::After(format!("team/{name}"))
    }

    /// If two groups leave a role at the same time, exactly one of them removes the entry.
    #[test]
    fn exactly_one_group_removes_the_entry_of_an_abandoned_role() {
        let others = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(entry_disposition(false, &others(&[]), "team/b"), EntryDisposition::Goes);
        assert_eq!(entry_disposition(true, &others(&[]), "team/b"), EntryDisposition::Stays);
        assert_eq!(entry_disposition(true, &others(&["team/c"]), "team/b"), EntryDisposition::Stays);
        assert_eq!(
            entry_disposition(false, &others(&["team/a"]), "team/b"),
            EntryDisposition::Stays,
            "team/a may need it"
        );
        assert_eq!(entry_disposition(false, &others(&["team/a", "team/c"]), "team/b"), EntryDisposition::Handed);
    }
    /// Deleting a namespace deletes all its groups at once. The entry must not remain, and must not be removed while nodes drain.
    #[test]
    fn last_of_several_deleted_groups_removes_the_entry() {
        let (index, none) = (GroupIndex::default(), json!({}));
        for name in ["a", "b", "c"] {
            put(&index, name, true, &none);
        }
        assert_eq!(
            [deletion_order_of(&index, "a"), deletion_order_of(&index, "b"), deletion_order_of(&index, "c")],
            [DeletionOrder::Stays, DeletionOrder::Stays, wait_for("a")]
        );
        index.remove("team/a");
        assert_eq!(
            [deletion_order_of(&index, "b"), deletion_order_of(&index, "c")],
            [DeletionOrder::Stays, wait_for("b")]
        );
        index.remove("team/b");
        assert_eq!(deletion_order_of(&index, "c"), DeletionOrder::Goes);
    }

    #[test]
    fn entry_is_kept_for_a_remaining_or_stalled_group() {
        let (index, none) = (GroupIndex::default(), json!({}));
        let stalled = json!({ "status": { "conditions": [{ "type": "Stalled", "status": "True" }] } });
        put(&index, "b", true, &none);
        for (deleting, extra) in [
            (false, none),
            (true, stalled),
            (true, json!({ "metadata": { "finalizers": ["somebody/elses"] } })),
            (true, json!({ "spec": { "eks": "no object" } })),
        ] {
            put(&index, "a", deleting, &extra);
            assert_eq!(deletion_order_of(&index, "b"), DeletionOrder::Stays, "{extra}");
        }
        assert!(
            index.any_deleting(&["team/b".to_owned()].into()) && !index.any_deleting(&["team/a".to_owned()].into())
        );
        put(&index, "a", true, &json!({ "status": { "nodesInstanceRoleArn": "arn:next" } }));
        assert_eq!(deletion_order_of(&index, "b"), wait_for("a"), "its nodes may still have the role that it left");
    }
}
