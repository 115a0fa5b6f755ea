//! Reads labels and taints back from user data that the controller rendered, so that a difference is named by keys and
//! values. A version's description has only digests of them. A place counts if its content has the digest. It also
//! counts if it is the only such place in the user data: then it is the controller's own. No part of a user's script is
//! taken for a label.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use base64::Engine;
use flate2::read::GzDecoder;
use serde_json::json;

use super::fingerprint::{Fingerprint, part_digest};
use crate::api::names::label;
use crate::aws::TemplateData;
use crate::plan::{Drift, NodeAttributes, NodeTaint};
use crate::provisioner::eks::user_data::{Taint, canonical_effect};

/// The largest user data that is unpacked.
const MAX_UNPACKED: u64 = 1 << 20;
/// With more taints than this, their order is not searched for.
const MAX_SEARCHED: usize = 5;
/// The most taints or labels of one side of a difference that are written out.
const MAX_SHOWN: usize = 5;
/// What is shown for a side that cannot be read back.
const UNREADABLE: &str = "others, which cannot be read back from the user data";

pub(crate) type Labels = BTreeMap<String, String>;

/// The labels and taints that a version's user data gives to its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Labels without that of the image; `None` when they cannot be read back.
    labels: Option<Labels>,
    /// Taints; `None` when they cannot be read back.
    taints: Option<Vec<Taint>>,
}

impl NodeSettings {
    /// Reads the labels and taints of a version back. This unpacks the user data.
    pub(crate) fn decode(data: &TemplateData, print: &Fingerprint) -> Self {
        let text = text(data).unwrap_or_default();
        Self { labels: labels(&text, print.parts.get("labels")), taints: taints(&text, print.parts.get("taints")) }
    }

    /// Labels and taints, if both can be read back.
    pub(crate) fn known(&self) -> Option<(&Labels, &[Taint])> {
        Some((self.labels.as_ref()?, self.taints.as_deref()?))
    }
}

/// Labels and taints as Kubernetes has them on a Node.
pub(crate) fn attributes(labels: &Labels, taints: &[Taint]) -> NodeAttributes {
    let taint = |taint: &Taint| NodeTaint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: canonical_effect(&taint.effect).to_owned(),
    };
    NodeAttributes { labels: labels.clone(), taints: taints.iter().map(taint).collect() }
}

/// The differences of a node's attributes by key.
pub(crate) fn attribute_drift(from: &NodeAttributes, to: &NodeAttributes) -> Vec<Drift> {
    let taint = |NodeTaint { key, value, effect }: &NodeTaint| Taint {
        key: key.clone(),
        value: value.clone(),
        effect: effect.clone(),
    };
    let list = |of: &NodeAttributes| of.taints.iter().map(taint).collect::<Vec<_>>();
    let taints = (from.taints != to.taints).then(|| taint_drift(&list(from), &list(to)));
    label_drift(&from.labels, &to.labels).into_iter().chain(taints).collect()
}

/// The differences of a part of the user data whose digests differ; `None` for a part other than `labels` and `taints`.
/// `from` is `None` when the version's content was not read.
pub(super) fn drift(
    part: &str,
    from: Option<&NodeSettings>,
    (to_labels, to_taints): (&Labels, &[Taint]),
) -> Option<Vec<Drift>> {
    match part {
        "labels" => Some(match from.and_then(|from| from.labels.as_ref()) {
            Some(from) => label_drift(from, to_labels),
            None => {
                let to = to_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                vec![Drift::new(part, UNREADABLE, bounded(to, &BTreeSet::new()))]
            }
        }),
        "taints" => Some(vec![match from.and_then(|from| from.taints.as_ref()) {
            Some(from) => taint_drift(from, to_taints),
            None => Drift::new(part, UNREADABLE, bounded(shown_taints(to_taints), &BTreeSet::new())),
        }]),
        _ => None,
    }
}

fn label_drift(from: &Labels, to: &Labels) -> Vec<Drift> {
    let keys: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let value = |of: &Labels, key: &String| of.get(key).cloned().unwrap_or_default();
    let differs = |key: &&String| from.get(*key) != to.get(*key);
    keys.into_iter().filter(differs).map(|k| Drift::new(format!("labels[{k}]"), value(from, k), value(to, k))).collect()
}

/// Both lists, with what differs first where not all can be shown.
fn taint_drift(from: &[Taint], to: &[Taint]) -> Drift {
    let (from, to) = (shown_taints(from), shown_taints(to));
    let (olds, news) = (BTreeSet::from_iter(from.clone()), BTreeSet::from_iter(to.clone()));
    let both: BTreeSet<String> = if olds == news {
        // The order alone differs: what stands at its place comes last.
        from.iter().zip(&to).filter(|(a, b)| a == b).map(|(a, _)| a.clone()).collect()
    } else {
        olds.intersection(&news).cloned().collect()
    };
    Drift::new("taints", bounded(from, &both), bounded(to, &both))
}

/// The items as text. Where they are too many, those that are in `common` are left out first.
fn bounded(mut items: Vec<String>, common: &BTreeSet<String>) -> String {
    let left_out = items.len().saturating_sub(MAX_SHOWN);
    if left_out == 0 {
        return items.join(", ");
    }
    items.sort_by_key(|item| common.contains(item));
    format!("{} and {left_out} more", items[..MAX_SHOWN].join(", "))
}

fn shown_taints(taints: &[Taint]) -> Vec<String> {
    taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, canonical_effect(&taint.effect))).collect()
}

/// The user data as text.
fn text(data: &TemplateData) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(data.user_data.expose()).ok()?;
    let mut unpacked = Vec::new();
    let bytes = match GzDecoder::new(&bytes[..]).take(MAX_UNPACKED).read_to_end(&mut unpacked) {
        Ok(_) => unpacked,
        Err(_) => bytes,
    };
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The labels with this digest. The image label is not part of it.
fn labels(text: &str, digest: Option<&String>) -> Option<Labels> {
    let Some(digest) = digest else { return Some(BTreeMap::new()) };
    let from_arguments = values_of(text, "--node-labels=").map(|list| {
        list.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    });
    let from_settings = section(text, "[settings.kubernetes.node-labels]")
        .map(|pairs| pairs.into_iter().map(|(key, value)| (key, value.trim_matches('"').to_owned())).collect());
    let found = from_arguments.chain(from_settings).map(|mut labels: Labels| {
        labels.remove(label::IMAGE);
        labels
    });
    one_of(found.collect(), |labels| (part_digest(&json!(labels)) == *digest).then(|| labels.clone()))
}

/// The candidate that is proven, or else the only one.
fn one_of<T: Clone>(candidates: Vec<T>, proven: impl Fn(&T) -> Option<T>) -> Option<T> {
    let found = candidates.iter().find_map(proven);
    found.or_else(|| if let [only] = candidates.as_slice() { Some(only.clone()) } else { None })
}

/// The taints with this digest, which depends on their order in the spec; in the order of the user data where that of the
/// spec cannot be found.
fn taints(text: &str, digest: Option<&String>) -> Option<Vec<Taint>> {
    let Some(digest) = digest else { return Some(Vec::new()) };
    let from_arguments = values_of(text, "--register-with-taints=").map(|list| {
        list.split(',')
            .filter_map(|entry| {
                let (key, rest) = entry.split_once('=')?;
                taint(key, rest)
            })
            .collect()
    });
    let from_settings = section(text, "[settings.kubernetes.node-taints]").map(|pairs| {
        let entries = pairs.iter().flat_map(|(key, value)| {
            value.trim_matches(['[', ']']).split(',').filter_map(|one| taint(key, one.trim().trim_matches('"')))
        });
        entries.collect()
    });
    one_of(from_arguments.chain(from_settings).collect(), |taints: &Vec<Taint>| in_order(taints, digest))
}

fn taint(key: &str, rest: &str) -> Option<Taint> {
    let (value, effect) = rest.rsplit_once(':')?;
    Some(Taint { key: key.into(), value: value.into(), effect: effect.into() })
}

/// The order of the taints that has this digest.
fn in_order(taints: &[Taint], digest: &str) -> Option<Vec<Taint>> {
    fn search(done: &mut Vec<Taint>, left: &[Taint], digest: &str) -> bool {
        if left.is_empty() {
            return part_digest(&json!(done)) == digest;
        }
        (0..left.len()).any(|index| {
            let mut rest = left.to_vec();
            done.push(rest.remove(index));
            let found = search(done, &rest, digest);
            if !found {
                done.pop();
            }
            found
        })
    }
    if part_digest(&json!(taints)) == digest {
        return Some(taints.to_vec());
    }
    let mut ordered = Vec::new();
    (taints.len() <= MAX_SEARCHED && search(&mut ordered, taints, digest)).then_some(ordered)
}

/// The values of a kubelet argument, wherever it is written.
fn values_of<'a>(text: &'a str, argument: &'a str) -> impl Iterator<Item = &'a str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"');
    text.split(argument).skip(1).map(move |rest| rest.split(ends).next().unwrap_or_default())
}

/// The keys and values of a section of Bottlerocket's settings.
fn section<'a>(text: &'a str, header: &'a str) -> impl Iterator<Item = Vec<(String, String)>> + 'a {
    text.split(header).skip(1).map(|rest| {
        let lines = rest.lines().skip(1).take_while(|line| !line.starts_with('['));
        lines
            .filter_map(|line| line.split_once(" = "))
            .map(|(key, value)| (key.trim_matches('"').to_owned(), value.to_owned()))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provisioner::eks::user_data::{BootstrapInput, OsFamily, render};
    use crate::util::redact::Redacted;

    fn taint_list(taints: &[(&str, &str)]) -> Vec<Taint> {
        let taint =
            |(key, effect): &(&str, &str)| Taint { key: (*key).into(), value: "x".into(), effect: (*effect).into() };
        taints.iter().map(taint).collect()
    }

    fn version(family: OsFamily, labels: &[(&str, &str)], taints: &[(&str, &str)]) -> (TemplateData, Fingerprint) {
        let mut boot = BootstrapInput {
            cluster: "demo".into(),
            endpoint: "https://demo".into(),
            ca_base64: "Y2E=".into(),
            service_cidr: "10.100.0.0/16".into(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: taint_list(taints),
            ..BootstrapInput::default()
        };
        boot.labels.insert(label::IMAGE.into(), "ami-1".into());
        let rendered = render(family, &boot).expect("user data").base64();
        let data = TemplateData { user_data: Redacted::new(rendered), ..TemplateData::default() };
        let print = Fingerprint::compute(family.as_str(), &data, &boot);
        (data, print)
    }

    /// The differences of one part, as keys and values.
    fn differences(
        part: &str,
        (from, print): &(TemplateData, Fingerprint),
        to_labels: &[(&str, &str)],
        to_taints: &[(&str, &str)],
    ) -> Vec<Drift> {
        let to_labels = to_labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = NodeSettings::decode(from, print);
        drift(part, Some(&found), (&to_labels, &taint_list(to_taints))).expect("a part with keys and values")
    }

    const FAMILIES: [OsFamily; 4] =
        [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023, OsFamily::Bottlerocket, OsFamily::Windows];

    #[test]
    fn labels_and_taints_are_read_back_from_the_user_data_of_each_family() {
        for family in FAMILIES {
            let old_taints = [("gpu", "NoSchedule"), ("dedicated", "NoExecute"), ("dedicated", "NoSchedule")];
            let from = version(family, &[("team", "a"), ("tier", "1")], &old_taints);
            let to_labels = [("team", "b"), ("tier", "1"), ("zone", "z")];
            let drift = |part: &str| differences(part, &from, &to_labels, &old_taints[..1]);
            assert_eq!(drift("labels"), [Drift::new("labels[team]", "a", "b"), Drift::new("labels[zone]", "", "z")]);
            let shown = "gpu=x:NoSchedule, dedicated=x:NoExecute, dedicated=x:NoSchedule";
            assert_eq!(drift("taints"), [Drift::new("taints", shown, "gpu=x:NoSchedule")], "{family:?}");
        }
    }

    #[test]
    fn many_taints_are_shown_by_those_that_differ() {
        let keys = ["h", "g", "f", "e", "d", "c", "b", "a"];
        let old: Vec<_> = keys.iter().map(|key| (*key, "NoSchedule")).collect();
        let new: Vec<_> = old.iter().copied().filter(|(key, _)| *key != "a").chain([("z", "NoExecute")]).collect();
        for family in FAMILIES {
            let found = &differences("taints", &version(family, &[], &old), &[], &new)[0];
            assert!(found.from.starts_with("a=x:NoSchedule, "), "{family:?}: {found}");
            assert!(found.to.starts_with("z=x:NoExecute, "), "{family:?}: {found}");
            assert!(found.from.ends_with(" and 3 more") && found.to.ends_with(" and 3 more"), "{family:?}: {found}");
        }
        let mut swapped = old.clone();
        swapped.swap(6, 7);
        let found = &differences("taints", &version(OsFamily::AmazonLinux2023, &[], &old), &[], &swapped)[0];
        assert!(found.from.starts_with("b=x:NoSchedule, a=x:NoSchedule, h=x"), "{found}");
        assert!(found.to.starts_with("a=x:NoSchedule, b=x:NoSchedule, h=x"), "{found}");
    }

    /// The fingerprint has the spelling of the spec, and the user data that of the kubelet.
    #[test]
    fn taints_are_read_back_whatever_the_spelling_of_their_effects() {
        for family in FAMILIES {
            let from = version(family, &[], &[("gpu", "noschedule")]);
            let found = differences("taints", &from, &[], &[("gpu", "NOEXECUTE")]);
            assert_eq!(found, [Drift::new("taints", "gpu=x:NoSchedule", "gpu=x:NoExecute")], "{family:?}");
        }
    }

    /// A script of the user may contain anything, also what looks like the argument.
    #[test]
    fn what_may_be_of_a_script_is_not_shown() {
        let (mut from, print) = version(OsFamily::AmazonLinux2, &[("team", "a")], &[("gpu", "NoSchedule")]);
        let rendered = text(&from).expect("user data");
        let script = "echo --node-labels=password=secret --register-with-taints=password=secret:NoSchedule\n";
        let bytes = format!("{rendered}{script}");
        from.user_data = Redacted::new(base64::engine::general_purpose::STANDARD.encode(bytes));
        let other = Fingerprint {
            parts: [("labels".to_owned(), "000000".to_owned()), ("taints".to_owned(), "000000".to_owned())].into(),
            ..print.clone()
        };
        for part in ["labels", "taints"] {
            let found = differences(part, &(from.clone(), print.clone()), &[], &[]);
            assert!(found[0].from.ends_with(if part == "labels" { "a" } else { "gpu=x:NoSchedule" }), "{found:?}");
            let found = differences(part, &(from.clone(), other.clone()), &[("team", "b")], &[("gpu", "NoExecute")]);
            assert!(!found[0].from.contains("secret") && found[0].from.contains("cannot be read back"), "{found:?}");
            assert!(found[0].to.contains(if part == "labels" { "team=b" } else { "gpu=x:NoExecute" }), "{found:?}");
        }
        assert_eq!(drift("userData", None, (&Labels::new(), &[])), None);
    }
}
