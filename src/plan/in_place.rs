//! Labels and taints that change on a running node: what the controller gave it, and what that becomes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::drift::Drift;
use crate::util::counted::counted;

/// The effect of a taint that evicts running pods.
const NO_EXECUTE: &str = "NoExecute";
/// The domains whose labels and taints Kubernetes and its components give a meaning to.
const RESERVED_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// A taint in the spelling of Kubernetes. Key and effect identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeTaint {
    /// Key, such as `example.com/team`.
    pub key: String,
    /// Value; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl NodeTaint {
    /// Whether both are the same taint to Kubernetes, with any value.
    pub(crate) fn is_same(&self, other: &NodeTaint) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// What identifies it, as `key:effect`.
    pub(crate) fn identity(&self) -> String {
        format!("{}:{}", self.key, self.effect)
    }
}

/// The labels and taints of a node that come from the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAttributes {
    /// Labels, without that of the image.
    pub labels: BTreeMap<String, String>,
    /// Taints. Their order has no meaning.
    pub taints: BTreeSet<NodeTaint>,
}

/// The record in the annotation of a Node: what the controller gave it after it had joined. An absent list is as the
/// node's launch template version has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlaceRecord {
    /// ID of the instance. A later instance may get a Node of the same name.
    pub instance: String,
    /// All labels from the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// All taints from the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taints: Option<BTreeSet<NodeTaint>>,
}

impl InPlaceRecord {
    /// The attributes of a node that was launched with `launched` and has this record. A kubelet can write to its own
    /// Node, so the record counts only for labels and taints that come from the spec (`is_known`). Otherwise a node
    /// could have the controller remove another client's taint.
    pub(crate) fn over(
        &self,
        launched: &NodeAttributes,
        is_known: (impl Fn(&str) -> bool, impl Fn(&NodeTaint) -> bool),
    ) -> NodeAttributes {
        let (is_known_label, is_known_taint) = is_known;
        let labels = self.labels.as_ref().map(|labels| {
            let known = labels.iter().filter(|(key, _)| is_known_label(key));
            known.map(|(key, value)| (key.clone(), value.clone())).collect()
        });
        let taints = self.taints.as_ref().map(|taints| taints.iter().filter(|t| is_known_taint(t)).cloned().collect());
        NodeAttributes {
            labels: labels.unwrap_or_else(|| launched.labels.clone()),
            taints: taints.unwrap_or_else(|| launched.taints.clone()),
        }
    }
}

/// One change of a node's labels and taints. It contains only the differences between the spec that the node has and
/// the current one. What others set on the node stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceChange {
    /// Labels to add, or to give another value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_labels: BTreeMap<String, String>,
    /// Labels to remove, with the value that the node got. A label that has another value is another client's and
    /// stays.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remove_labels: BTreeMap<String, String>,
    /// Taints to add, or to give another value.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub set_taints: BTreeSet<NodeTaint>,
    /// Taints to remove, with the value that the node got.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub remove_taints: BTreeSet<NodeTaint>,
    /// The record that goes with the change.
    pub record: InPlaceRecord,
}

impl InPlaceChange {
    /// The change from the attributes that a node was given to the desired ones. `old` is its record, if it has one.
    pub(crate) fn between(
        instance: &str,
        given: &NodeAttributes,
        desired: &NodeAttributes,
        old: Option<&InPlaceRecord>,
    ) -> Self {
        let is_new_label = |(key, value): &(&String, &String)| given.labels.get(*key) != Some(*value);
        let is_gone_label = |(key, _): &(&String, &String)| !desired.labels.contains_key(*key);
        let is_gone_taint = |taint: &&NodeTaint| !desired.taints.iter().any(|other| other.is_same(taint));
        let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
        let mut change = InPlaceChange {
            set_labels: desired.labels.iter().filter(is_new_label).map(owned).collect(),
            remove_labels: given.labels.iter().filter(is_gone_label).map(owned).collect(),
            set_taints: desired.taints.difference(&given.taints).cloned().collect(),
            remove_taints: given.taints.iter().filter(is_gone_taint).cloned().collect(),
            record: old.cloned().unwrap_or_default(),
        };
        instance.clone_into(&mut change.record.instance);
        if change.changes_labels() {
            change.record.labels = Some(desired.labels.clone());
        }
        if change.changes_taints() {
            change.record.taints = Some(desired.taints.clone());
        }
        change
    }

    /// Whether it changes labels.
    pub(crate) fn changes_labels(&self) -> bool {
        !self.set_labels.is_empty() || !self.remove_labels.is_empty()
    }

    /// Whether it changes taints.
    pub(crate) fn changes_taints(&self) -> bool {
        !self.set_taints.is_empty() || !self.remove_taints.is_empty()
    }

    /// Whether it sets a taint that evicts running pods, past every budget.
    pub(crate) fn evicts_pods(&self) -> bool {
        self.set_taints.iter().any(|taint| taint.effect == NO_EXECUTE)
    }

    /// The keys of all labels and taints that it sets or removes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let labels = self.set_labels.keys().chain(self.remove_labels.keys()).map(String::as_str);
        labels.chain(self.set_taints.iter().chain(&self.remove_taints).map(|taint| taint.key.as_str()))
    }

    /// What changes, in one or two words.
    pub(crate) fn subject(&self) -> &'static str {
        match (self.changes_labels(), self.changes_taints()) {
            (true, true) => "labels and taints",
            (true, false) => "labels",
            (false, _) => "taints",
        }
    }
}

/// How many different changes a message lists.
const LISTED: usize = 3;

/// The changes of nodes as text, each with the number of its nodes.
pub(crate) fn describe_changes<'a>(nodes: impl Iterator<Item = &'a [Drift]>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for reasons in nodes {
        let text = reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    let others: usize = counts.iter().skip(LISTED).map(|(_, count)| count).sum();
    let more = (others > 0).then(|| format!("other changes on {}", counted(others, "node")));
    let listed = counts.iter().take(LISTED).map(|(text, count)| format!("{text} on {}", counted(*count, "node")));
    listed.chain(more).collect()
}

/// Whether the key of a label or taint is in a domain of Kubernetes. The kubelet and others act on such labels, and read
/// some of them only when the node joins.
pub(crate) fn is_reserved_key(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    RESERVED_DOMAINS.iter().any(|reserved| {
        domain.strip_suffix(reserved).is_some_and(|subdomain| subdomain.is_empty() || subdomain.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn taints(all: &[(&str, &str, &str)]) -> BTreeSet<NodeTaint> {
        let taint = |(key, value, effect): &(&str, &str, &str)| NodeTaint {
            key: (*key).into(),
            value: (*value).into(),
            effect: (*effect).into(),
        };
        all.iter().map(taint).collect()
    }

    #[test]
    fn only_what_differs_is_set_or_removed() {
        let given = NodeAttributes {
            labels: labels(&[("team", "a"), ("tier", "1"), ("old", "x")]),
            taints: taints(&[("gpu", "a", "NoSchedule"), ("old", "", "NoSchedule"), ("same", "", "NoExecute")]),
        };
        let desired = NodeAttributes {
            labels: labels(&[("team", "b"), ("tier", "1"), ("new", "y")]),
            taints: taints(&[("gpu", "b", "NoSchedule"), ("same", "", "NoExecute"), ("gpu", "a", "PreferNoSchedule")]),
        };
        let change = InPlaceChange::between("i-1", &given, &desired, None);
        assert_eq!(change.set_labels, labels(&[("team", "b"), ("new", "y")]));
        assert_eq!(change.remove_labels, labels(&[("old", "x")]));
        assert_eq!(change.set_taints, taints(&[("gpu", "b", "NoSchedule"), ("gpu", "a", "PreferNoSchedule")]));
        assert_eq!(change.remove_taints, taints(&[("old", "", "NoSchedule")]));
        let after = change.record.over(&given, (|_: &str| true, |_: &NodeTaint| true));
        assert_eq!(after, desired, "the record says what the node has afterwards");
        let known = change.record.over(&given, (|key: &str| key == "team", |taint: &NodeTaint| taint.key == "same"));
        assert_eq!(known.labels, labels(&[("team", "b")]), "a forged record makes no label the controller's");
        assert_eq!(known.taints, taints(&[("same", "", "NoExecute")]));
        assert!(!change.evicts_pods(), "the taint with NoExecute was there before");
        assert_eq!(InPlaceChange::between("i-1", &desired, &desired, Some(&change.record)).keys().count(), 0);
    }

    /// A list that never changed in place is that of the launch template version, also after later versions.
    #[test]
    fn record_names_only_changed_lists() {
        let given = NodeAttributes { labels: labels(&[("team", "a")]), taints: taints(&[("gpu", "", "NoSchedule")]) };
        let desired = NodeAttributes { labels: labels(&[("team", "b")]), ..given.clone() };
        let record = InPlaceChange::between("i-1", &given, &desired, None).record;
        assert_eq!((record.labels.clone(), record.taints.clone()), (Some(labels(&[("team", "b")])), None));
        let text = serde_json::to_string(&record).expect("a record serializes");
        assert_eq!(text, r#"{"instance":"i-1","labels":{"team":"b"}}"#);
        assert_eq!(serde_json::from_str::<InPlaceRecord>(&text).expect("a record"), record);
    }

    #[test]
    fn new_or_changed_no_execute_taints_evict_pods() {
        let given = NodeAttributes { taints: taints(&[("a", "1", "NoExecute")]), ..NodeAttributes::default() };
        for (desired, evicts) in [
            (taints(&[("a", "2", "NoExecute")]), true),
            (taints(&[("a", "1", "NoExecute"), ("b", "", "NoExecute")]), true),
            (taints(&[("a", "1", "NoExecute"), ("b", "", "NoSchedule")]), false),
            (taints(&[]), false),
        ] {
            let desired = NodeAttributes { taints: desired, ..NodeAttributes::default() };
            let change = InPlaceChange::between("i-1", &given, &desired, None);
            assert_eq!(change.evicts_pods(), evicts, "{change:?}");
        }
    }

    #[test]
    fn keys_of_kubernetes_are_reserved() {
        for (key, reserved) in [
            ("node.kubernetes.io/role", true),
            ("node-role.kubernetes.io/web", true),
            ("kubernetes.io/role", true),
            ("k8s.io/x", true),
            ("x.k8s.io/y", true),
            ("team", false),
            ("example.com/team", false),
            ("notkubernetes.io/team", false),
            ("kubernetes.io.example.com/team", false),
        ] {
            assert_eq!(is_reserved_key(key), reserved, "{key}");
        }
    }
}
