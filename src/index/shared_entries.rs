//! What becomes of what groups share, when one of them goes.

use std::collections::BTreeSet;

use super::groups::GroupIndex;

/// What becomes of the entry of a role that a living group used before.
#[derive(Debug, PartialEq)]
pub enum EntryDisposition {
    /// Somebody may need it.
    Stays,
    /// Nobody does.
    Goes,
    /// Another group has it on record, and takes it out.
    Handed,
}

/// Of groups that all left a role, the last by name takes its entry out, once the others need it no more.
pub fn entry_disposition(needed: bool, others: &BTreeSet<String>, key: &str) -> EntryDisposition {
    match others.last() {
        _ if needed => EntryDisposition::Stays,
        Some(last) if last.as_str() > key => EntryDisposition::Handed,
        Some(_) => EntryDisposition::Stays,
        None => EntryDisposition::Goes,
    }
}

/// What becomes of a role's entry when one of its groups goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionOrder {
    /// Nobody else needs it: it goes with the group.
    Goes,
    /// All others go as well, this one among them; it goes once they are gone.
    After(String),
    /// Another group needs it, or takes it out.
    Stays,
}

impl GroupIndex {
    /// What becomes of a role's entry when the group `key` goes; `recorded` are the others that have it on record. Of groups
    /// that all go, the last by name takes it out, once the others and with them their nodes are gone. Nobody waits for a
    /// group that stays, or whose deletion cannot go on: the entry is left to it.
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

    /// Whether any of these groups is being deleted: it leaves what it shares to the others, and its nodes may need it yet.
    pub fn any_deleting(&self, groups: &BTreeSet<String>) -> bool {
        let inner = self.read();
        groups.iter().any(|key| inner.entries.get(key).is_some_and(|entry| entry.is_deleting))
    }
}

/// Of roles whose entries a group leaves behind, those whose entry goes with it, and a group that has to be gone before.
pub fn entries_to_remove<'r>(
    roles: impl IntoIterator<Item = &'r String>,
    legacy: impl Fn(&str) -> DeletionOrder,
) -> (Vec<&'r String>, Option<String>) {
    let (mut going, mut after) = (Vec::new(), None);
    for role in roles {
        match legacy(role) {
            DeletionOrder::Goes => going.push(role),
            DeletionOrder::After(other) => after = Some(other),
            DeletionOrder::Stays => {}
        }
    }
    (going, after)
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

    /// With two of them at once, neither may leave it to the other.
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
    /// With a namespace all its groups go at once: the entry must not outlast them, nor go from under nodes that drain.
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
