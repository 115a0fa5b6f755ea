//! What becomes of what groups share, when one of them goes.

use std::collections::BTreeSet;

use super::groups::GroupIndex;

/// What becomes of the entry of a role that a living group used before.
#[derive(Debug, PartialEq)]
pub enum Fate {
    /// Somebody may need it.
    Stays,
    /// Nobody does.
    Goes,
    /// Another group has it on record, and takes it out.
    Handed,
}

/// Of groups that all left a role, the last by name takes its entry out, once the others need it no more.
pub fn fate(needed: bool, others: &BTreeSet<String>, key: &str) -> Fate {
    match others.last() {
        _ if needed => Fate::Stays,
        Some(last) if last.as_str() > key => Fate::Handed,
        Some(_) => Fate::Stays,
        None => Fate::Goes,
    }
}

/// What becomes of a role's entry when one of its groups goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Legacy {
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
    pub fn legacy(&self, role_arn: &str, recorded: &BTreeSet<String>, key: &str) -> Legacy {
        let inner = self.read();
        let users = inner.roles.0.get(role_arn).into_iter().flatten();
        let others = users.chain(recorded).chain(&inner.unknown).filter(|other| other.as_str() != key);
        let leaving = |other: &String| inner.entries.get(other).is_some_and(|entry| entry.leaving);
        let mut first: Option<&String> = None;
        for other in others {
            if other.as_str() > key || !leaving(other) {
                return Legacy::Stays;
            }
            first = Some(first.map_or(other, |first| first.min(other)));
        }
        first.map_or(Legacy::Goes, |other| Legacy::After(other.clone()))
    }

    /// Whether any of these groups is being deleted: it leaves what it shares to the others, and its nodes may need it yet.
    pub fn any_leaving(&self, groups: &BTreeSet<String>) -> bool {
        let inner = self.read();
        groups.iter().any(|key| inner.entries.get(key).is_some_and(|entry| entry.leaving))
    }
}

/// Of roles whose entries a group leaves behind, those whose entry goes with it, and a group that has to be gone before.
pub fn bequeathed<'r>(
    roles: impl IntoIterator<Item = &'r String>,
    legacy: impl Fn(&str) -> Legacy,
) -> (Vec<&'r String>, Option<String>) {
    let (mut going, mut after) = (Vec::new(), None);
    for role in roles {
        match legacy(role) {
            Legacy::Goes => going.push(role),
            Legacy::After(other) => after = Some(other),
            Legacy::Stays => {}
        }
    }
    (going, after)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Stored;
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
        crate::api::merge_patch(&mut object, extra);
        index.put(&serde_json::from_value::<Stored>(object).expect("an object"));
    }

    fn of(index: &GroupIndex, name: &str) -> Legacy {
        let key = format!("team/{name}");
        index.legacy("arn:r", &index.authorised_by("arn:r", &key), &key)
    }

    fn after(name: &str) -> Legacy {
        Legacy::After(format!("team/{name}"))
    }

    /// With two of them at once, neither may leave it to the other.
    #[test]
    fn of_groups_that_left_a_role_exactly_one_takes_its_entry_out() {
        let others = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(fate(false, &others(&[]), "team/b"), Fate::Goes);
        assert_eq!(fate(true, &others(&[]), "team/b"), Fate::Stays);
        assert_eq!(fate(true, &others(&["team/c"]), "team/b"), Fate::Stays);
        assert_eq!(fate(false, &others(&["team/a"]), "team/b"), Fate::Stays, "team/a may need it");
        assert_eq!(fate(false, &others(&["team/a", "team/c"]), "team/b"), Fate::Handed);
    }
    /// With a namespace all its groups go at once: the entry must not outlast them, nor go from under nodes that drain.
    #[test]
    fn of_groups_that_go_together_the_last_takes_the_entry_out_once_the_others_are_gone() {
        let (index, none) = (GroupIndex::default(), json!({}));
        for name in ["a", "b", "c"] {
            put(&index, name, true, &none);
        }
        assert_eq!([of(&index, "a"), of(&index, "b"), of(&index, "c")], [Legacy::Stays, Legacy::Stays, after("a")]);
        index.remove("team/a");
        assert_eq!([of(&index, "b"), of(&index, "c")], [Legacy::Stays, after("b")]);
        index.remove("team/b");
        assert_eq!(of(&index, "c"), Legacy::Goes);
    }

    #[test]
    fn an_entry_is_left_to_a_group_that_stays_or_cannot_go_on() {
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
            assert_eq!(of(&index, "b"), Legacy::Stays, "{extra}");
        }
        assert!(index.any_leaving(&["team/b".to_owned()].into()) && !index.any_leaving(&["team/a".to_owned()].into()));
        put(&index, "a", true, &json!({ "status": { "nodesInstanceRoleArn": "arn:next" } }));
        assert_eq!(of(&index, "b"), after("a"), "its nodes may still have the role that it left");
    }
}
