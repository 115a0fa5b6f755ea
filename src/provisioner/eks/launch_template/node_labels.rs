//! Reads labels and taints back from user data that the controller rendered, so that a difference is named by keys and
//! values. A version's description has only digests of them; what is read counts only if it has the digest, so no other
//! part of the user data is ever taken for a label.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use flate2::read::GzDecoder;
use serde_json::json;

use super::fingerprint::part_digest;
use crate::api::names::label;
use crate::aws::TemplateData;
use crate::plan::Drift;
use crate::provisioner::eks::user_data::Taint;

/// The largest user data that is unpacked.
const MAX_UNPACKED: u64 = 1 << 20;
/// With more taints than this, their order is not searched for.
const MAX_TAINTS: usize = 5;

/// The differences in labels or taints between two versions' user data; `None` when either cannot be read back.
/// `part` is `labels` or `taints`, and each side has the digest of the part in its fingerprint.
pub(super) fn drift(
    part: &str,
    (from, from_digest): (&TemplateData, Option<&String>),
    (to, to_digest): (&TemplateData, Option<&String>),
) -> Option<Vec<Drift>> {
    let (from, to) = (text(from)?, text(to)?);
    match part {
        "labels" => Some(label_drift(&labels(&from, from_digest)?, &labels(&to, to_digest)?)),
        "taints" => {
            let shown = |taints: Vec<Taint>| taints.iter().map(display_taint).collect::<Vec<_>>().join(", ");
            Some(vec![Drift::new(part, shown(taints(&from, from_digest)?), shown(taints(&to, to_digest)?))])
        }
        _ => None,
    }
}

fn label_drift(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Vec<Drift> {
    let keys: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let value = |of: &BTreeMap<String, String>, key: &String| of.get(key).cloned().unwrap_or_default();
    let differs = |key: &&String| from.get(*key) != to.get(*key);
    keys.into_iter().filter(differs).map(|k| Drift::new(format!("labels[{k}]"), value(from, k), value(to, k))).collect()
}

fn display_taint(taint: &Taint) -> String {
    format!("{}={}:{}", taint.key, taint.value, taint.effect)
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
fn labels(text: &str, digest: Option<&String>) -> Option<BTreeMap<String, String>> {
    let Some(digest) = digest else { return Some(BTreeMap::new()) };
    let from_arguments = values_of(text, "--node-labels=").map(|list| {
        list.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    });
    let from_settings = section(text, "[settings.kubernetes.node-labels]")
        .map(|pairs| pairs.into_iter().map(|(key, value)| (key, value.trim_matches('"').to_owned())).collect());
    let mut found = from_arguments.chain(from_settings).map(|mut labels: BTreeMap<String, String>| {
        labels.remove(label::IMAGE);
        labels
    });
    found.find(|labels| part_digest(&json!(labels)) == *digest)
}

/// The taints with this digest, which depends on their order in the spec.
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
    from_arguments.chain(from_settings).find_map(|taints: Vec<Taint>| in_order(taints, digest))
}

fn taint(key: &str, rest: &str) -> Option<Taint> {
    let (value, effect) = rest.rsplit_once(':')?;
    Some(Taint { key: key.into(), value: value.into(), effect: effect.into() })
}

/// The order of the taints that has this digest.
fn in_order(taints: Vec<Taint>, digest: &str) -> Option<Vec<Taint>> {
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
    let mut ordered = Vec::new();
    (taints.len() <= MAX_TAINTS && search(&mut ordered, &taints, digest)).then_some(ordered)
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
    use super::super::fingerprint::Fingerprint;
    use super::*;
    use crate::provisioner::eks::user_data::{BootstrapInput, OsFamily, render};
    use crate::util::redact::Redacted;

    fn version(family: OsFamily, labels: &[(&str, &str)], taints: &[(&str, &str)]) -> (TemplateData, Fingerprint) {
        let mut boot = BootstrapInput {
            cluster: "demo".into(),
            endpoint: "https://demo".into(),
            ca_base64: "Y2E=".into(),
            service_cidr: "10.100.0.0/16".into(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: (taints.iter())
                .map(|(key, effect)| Taint { key: (*key).into(), value: "x".into(), effect: (*effect).into() })
                .collect(),
            ..BootstrapInput::default()
        };
        boot.labels.insert(label::IMAGE.into(), "ami-1".into());
        let rendered = render(family, &boot).expect("user data").base64();
        let data = TemplateData { user_data: Redacted::new(rendered), ..TemplateData::default() };
        let print = Fingerprint::compute(family.as_str(), &data, &boot);
        (data, print)
    }

    #[test]
    fn labels_and_taints_are_read_back_from_the_user_data_of_each_family() {
        for family in [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023, OsFamily::Bottlerocket, OsFamily::Windows] {
            let old_taints = [("gpu", "NoSchedule"), ("dedicated", "NoExecute"), ("dedicated", "NoSchedule")];
            let (from, from_print) = version(family, &[("team", "a"), ("tier", "1")], &old_taints);
            let (to, to_print) = version(family, &[("team", "b"), ("tier", "1"), ("zone", "z")], &old_taints[..1]);
            let drift = |part: &str| {
                drift(part, (&from, from_print.parts.get(part)), (&to, to_print.parts.get(part)))
                    .unwrap_or_else(|| panic!("{part} of {family:?}"))
            };
            assert_eq!(drift("labels"), [Drift::new("labels[team]", "a", "b"), Drift::new("labels[zone]", "", "z")]);
            let shown = "gpu=x:NoSchedule, dedicated=x:NoExecute, dedicated=x:NoSchedule";
            assert_eq!(drift("taints"), [Drift::new("taints", shown, "gpu=x:NoSchedule")]);
        }
    }

    /// A script of the user may contain anything, also what looks like the argument.
    #[test]
    fn what_has_another_digest_is_not_shown() {
        let (from, _) = version(OsFamily::AmazonLinux2, &[("team", "a")], &[]);
        let (to, print) = version(OsFamily::AmazonLinux2, &[("team", "b")], &[]);
        let other = "000000".to_owned();
        assert_eq!(drift("labels", (&from, Some(&other)), (&to, print.parts.get("labels"))), None);
        assert_eq!(drift("userData", (&from, None), (&to, None)), None);
    }
}
