//! Identifies a launch template version by a hash of its inputs.
//!
//! An absent input is hashed as if its field did not exist, so a new release with more fields changes no hash. The
//! fingerprint is stored in the version's description: the whole hash, then a short digest of each user data input.
//! The digests allow later differences to be named, although user data itself is never shown.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::aws::TemplateData;
use crate::provisioner::eks::user_data::{BootstrapInput, OsFamily, custom_dns_address};
use crate::util::digest::sha256_hex;

const PREFIX: &str = "instance-manager sha256:";

/// The fingerprint in a version's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// 64 hexadecimal digits over all inputs.
    pub hash: String,
    /// Six hexadecimal digits for each user data input that is set.
    pub parts: BTreeMap<String, String>,
}

impl Fingerprint {
    /// Computes the fingerprint of a version's content. User data is represented by its inputs instead of its rendered
    /// text. The image label follows the image and is left out.
    pub(crate) fn compute(family: &str, data: &TemplateData, boot: &BootstrapInput) -> Self {
        let boot = bootstrap_fields(family, boot);
        let mut all = non_empty(template_fields(data));
        all.extend(boot.iter().map(|(k, v)| (*k, v.clone())));
        let hash = sha256_hex(&canonical_json(&all));
        let parts = boot.iter().map(|(k, v)| ((*k).to_owned(), part_digest(v))).collect();
        Fingerprint { hash, parts }
    }

    /// Parses a description; `None` for a version that the controller did not create.
    pub(crate) fn parse(description: Option<&str>) -> Option<Self> {
        let mut words = description?.strip_prefix(PREFIX)?.split(' ');
        let hash = words.next()?.to_owned();
        let parts = words.filter_map(|w| w.split_once(':')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Some(Fingerprint { hash, parts })
    }

    /// The text of the description; AWS allows 255 characters.
    pub(crate) fn to_description(&self) -> String {
        let parts: String = self.parts.iter().map(|(k, v)| format!(" {k}:{v}")).collect();
        format!("{PREFIX}{}{parts}", self.hash)
    }
}

/// The digest of one user data input in the description.
pub(super) fn part_digest(value: &Value) -> String {
    sha256_hex(&canonical_json(value))[..6].to_owned()
}

fn canonical_json(value: &impl serde::Serialize) -> String {
    // Keys are sorted, so that equal values give equal text.
    serde_json::to_value(value).map(|v| sort_keys(&v).to_string()).unwrap_or_default()
}

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(k, v)| (k.clone(), sort_keys(v))).collect::<BTreeMap<_, _>>().into_iter().collect()
        }
        Value::Array(items) => items.iter().map(sort_keys).collect(),
        other => other.clone(),
    }
}

/// The content of a version by the spec's field names, without user data.
pub(crate) fn template_fields(data: &TemplateData) -> [(&'static str, Value); 11] {
    let TemplateData {
        image_id,
        instance_type,
        key_name,
        profile_arn,
        security_groups,
        user_data: _,
        devices,
        metadata,
        placement,
        licenses,
        spot_price,
        tag_specifications,
    } = data;
    [
        ("image", json!(image_id)),
        ("instanceType", json!(instance_type)),
        ("keyPairName", json!(key_name)),
        ("instanceProfile", json!(profile_arn)),
        ("securityGroups", json!(security_groups)),
        ("volumes", json!(devices)),
        ("metadataOptions", json!(metadata)),
        ("placement", json!(placement)),
        ("licenseSpecifications", json!(licenses)),
        ("tagSpecifications", json!(tag_specifications)),
        ("spotPrice", json!(spot_price)),
    ]
}

fn bootstrap_fields(family: &str, boot: &BootstrapInput) -> BTreeMap<&'static str, Value> {
    let BootstrapInput {
        cluster,
        endpoint,
        ca_base64,
        service_cidr,
        assumed_service_cidr,
        labels,
        taints,
        max_pods,
        container_runtime,
        bootstrap_arguments,
        mounts,
        stages,
        waits_for_service,
    } = boot;
    let labels: BTreeMap<_, _> = labels.iter().filter(|(k, _)| *k != crate::api::names::label::IMAGE).collect();
    // Only Windows nodes of such a cluster have it in their user data.
    let windows_dns =
        (family == OsFamily::Windows.as_str()).then(|| custom_dns_address(service_cidr, *assumed_service_cidr));
    let stages: Vec<_> = stages
        .iter()
        .map(|s| json!({"name": s.name, "stage": format!("{:?}", s.kind), "data": s.data.expose()}))
        .collect();
    non_empty([
        ("osFamily", json!(family)),
        ("cluster", json!([cluster, endpoint, ca_base64, service_cidr])),
        ("dns", json!(windows_dns)),
        ("labels", json!(labels)),
        ("taints", json!(taints)),
        ("maxPods", json!(max_pods)),
        ("containerRuntime", json!(container_runtime)),
        ("bootstrapArguments", json!(bootstrap_arguments.expose())),
        ("mounts", json!(mounts)),
        ("warm", json!(waits_for_service.then_some(true))),
        ("userData", json!(stages)),
    ])
}

fn non_empty<const N: usize>(fields: [(&'static str, Value); N]) -> BTreeMap<&'static str, Value> {
    fields
        .into_iter()
        .filter(|(_, v)| !matches!(v, Value::Null) && v != "" && *v != json!([]) && *v != json!({}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(image: &str) -> TemplateData {
        TemplateData { image_id: image.into(), instance_type: "m5.large".into(), ..TemplateData::default() }
    }

    #[test]
    fn description_round_trips_and_fits_255_characters() {
        let boot = BootstrapInput {
            cluster: "c".into(),
            bootstrap_arguments: "--v=2".to_owned().into(),
            max_pods: Some(5),
            container_runtime: Some("x".into()),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            ..BootstrapInput::default()
        };
        let print = Fingerprint::compute("amazonlinux2", &data("ami-1"), &boot);
        assert_eq!(Fingerprint::parse(Some(&print.to_description())), Some(print.clone()));
        // "dns" is only on Windows, and "warm" only on Bottlerocket.
        let others = " taints:000000 mounts:000000 userData:000000 warm:000000";
        assert!(print.to_description().len() + others.len() <= 255, "{}", print.to_description());
        assert_eq!(Fingerprint::parse(Some("made by hand")), None);
    }

    #[test]
    fn hash_depends_on_inputs_and_not_on_rendered_text() {
        let boot = BootstrapInput::default();
        let one = Fingerprint::compute("amazonlinux2", &data("ami-1"), &boot);
        assert_ne!(one.hash, Fingerprint::compute("amazonlinux2", &data("ami-2"), &boot).hash);
        let mut other_user_data = data("ami-1");
        other_user_data.user_data = crate::util::redact::Redacted::new("other".into());
        assert_eq!(one, Fingerprint::compute("amazonlinux2", &other_user_data, &boot));
    }

    #[test]
    fn released_hash_is_stable() {
        let boot = BootstrapInput {
            cluster: "demo".into(),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            ..BootstrapInput::default()
        };
        insta::assert_snapshot!(
            Fingerprint::compute("amazonlinux2023", &data("ami-1"), &boot).to_description(),
            @"instance-manager sha256:34be3357a77d931719eedbb23173d9544f7a19a1b24ec6d3644f717e6db2967c cluster:715483 labels:a13b8d osFamily:a4ecbb"
        );
    }
}
