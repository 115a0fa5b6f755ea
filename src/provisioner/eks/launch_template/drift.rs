//! Differences between launch template contents, and between lifecycle hooks: field, old value, new value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fingerprint::template_fields;
use super::node_labels;
use crate::aws::{LifecycleHook, TemplateData};
use crate::plan::Drift;
use crate::provisioner::eks::observed::ObservedVersion;
use crate::provisioner::eks::resolve::ResolvedGroup;

/// The differences between a version and the desired content. Never empty, because it is called only when the hashes
/// differ.
pub(crate) fn version_drift(found: Option<&ObservedVersion>, resolved: &ResolvedGroup) -> Vec<Drift> {
    let Some(found) = found else {
        return vec![Drift::new("template", "an unknown version", "the desired version")];
    };
    let mut drifts =
        found.data.as_ref().map(|data| template_data_drift(data, &resolved.template_data)).unwrap_or_default();
    if let Some(print) = &found.fingerprint {
        let desired = &resolved.fingerprint.parts;
        let names: BTreeSet<_> = print.parts.keys().chain(desired.keys()).collect();
        for name in names.into_iter().filter(|name| print.parts.get(*name) != desired.get(*name)) {
            let to = (&resolved.desired.labels, resolved.desired.taints.as_slice());
            let named = node_labels::drift(name, found.node_settings(), to);
            let digests = || Drift::new(name, display_digest(print.parts.get(name)), display_digest(desired.get(name)));
            drifts.extend(named.unwrap_or_else(|| vec![digests()]));
        }
    } else if found.data.as_ref().is_some_and(|d| d.user_data != resolved.template_data.user_data) {
        drifts.push(Drift::new("userData", "as found", "as rendered now"));
    }
    if drifts.is_empty() {
        drifts.push(Drift::new("template", "other inputs", "the desired inputs"));
    }
    drifts
}

fn display_digest(part: Option<&String>) -> String {
    part.map_or(String::new(), |p| format!("#{p}"))
}

/// The differences by field, without user data.
pub(crate) fn template_data_drift(from: &TemplateData, to: &TemplateData) -> Vec<Drift> {
    let pairs = template_fields(&with_sorted_devices(from)).into_iter().zip(template_fields(&with_sorted_devices(to)));
    pairs.flat_map(|((name, a), (_, b))| value_drift(name, &a, &b)).collect()
}

/// The differences within a field, each with its path in the spec. Volumes are compared by their device.
fn value_drift(path: &str, from: &Value, to: &Value) -> Vec<Drift> {
    if from == to {
        return Vec::new();
    }
    let whole = || vec![Drift::new(path, display_value(from), display_value(to))];
    match (from, to) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            let of_key =
                |key: &String| value_drift(&format!("{path}.{}", spec_name(key)), part(a.get(key)), part(b.get(key)));
            keys.into_iter().flat_map(of_key).collect()
        }
        (Value::Array(a), Value::Array(b)) => {
            let (Some(a), Some(b)) = (by_name(a), by_name(b)) else { return whole() };
            let names: BTreeSet<_> = a.keys().chain(b.keys()).copied().collect();
            let of_name = |name: &str| {
                value_drift(&format!("{path}[{name}]"), part(a.get(name).copied()), part(b.get(name).copied()))
            };
            names.into_iter().flat_map(of_name).collect()
        }
        _ => whole(),
    }
}

fn part(value: Option<&Value>) -> &Value {
    value.unwrap_or(&Value::Null)
}

/// Objects by their name; `None` if one has none, or two have the same.
fn by_name(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let named: Option<BTreeMap<_, _>> = items.iter().map(|item| Some((item.get("name")?.as_str()?, item))).collect();
    named.filter(|named| named.len() == items.len())
}

/// A field of the template by the spec's name: `httpTokens` for `http_tokens`.
fn spec_name(field: &str) -> String {
    match field {
        "hop_limit" => "httpPutHopLimit".to_owned(),
        "volume_type" => "type".to_owned(),
        "host_resource_group" => "hostResourceGroupArn".to_owned(),
        _ => {
            let mut parts = field.split('_');
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
        }
    }
}

/// Whether two contents launch the same nodes.
pub(crate) fn is_same_content(a: &TemplateData, b: &TemplateData) -> bool {
    with_sorted_devices(a) == with_sorted_devices(b)
}

/// AWS returns devices in its own order, so both sides are sorted before they are compared.
fn with_sorted_devices(data: &TemplateData) -> TemplateData {
    let mut data = data.clone();
    data.devices.sort_by(|a, b| a.name.cmp(&b.name));
    data
}

fn display_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(display_value).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let known = fields.iter().filter(|(name, value)| !value.is_null() && *name != "name");
            known
                .map(|(name, value)| format!("{} {}", spec_name(name), display_value(value)))
                .collect::<Vec<_>>()
                .join(", ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Whether the desired hook lacks an optional field that the observed hook has.
pub(crate) fn drops_fields(from: &LifecycleHook, to: &LifecycleHook) -> bool {
    let gone = |from: &Option<String>, to: &Option<String>| from.is_some() && to.is_none();
    gone(&from.notification_arn, &to.notification_arn)
        || gone(&from.metadata, &to.metadata)
        || gone(&from.role_arn, &to.role_arn)
}

/// The differences between an observed hook and the desired one.
pub(crate) fn hook_drift(from: &LifecycleHook, to: &LifecycleHook) -> Vec<Drift> {
    let field = |name: &str, a: String, b: String| {
        (a != b).then(|| Drift::new(format!("lifecycleHooks[{}].{name}", to.name), a, b))
    };
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    [
        field("lifecycle", from.transition.clone(), to.transition.clone()),
        field("defaultResult", from.default_result.clone(), to.default_result.clone()),
        field("heartbeatTimeout", from.heartbeat_timeout.to_string(), to.heartbeat_timeout.to_string()),
        field("notificationArn", text(&from.notification_arn), text(&to.notification_arn)),
        field("metadata", text(&from.metadata), text(&to.metadata)),
        field("roleArn", text(&from.role_arn), text(&to.role_arn)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::{BlockDevice, MetadataOptions};

    /// Users read the reasons in events, and look for the field in the spec.
    #[test]
    fn reasons_name_the_fields_of_the_spec_and_only_what_differs() {
        let volume = |name: &str, size| BlockDevice {
            name: name.into(),
            volume_type: Some("gp3".into()),
            size: Some(size),
            iops: None,
            throughput: None,
            delete_on_termination: true,
            encrypted: None,
            snapshot_id: None,
        };
        let data = |hop_limit, devices| TemplateData {
            metadata: Some(MetadataOptions {
                http_endpoint: Some("enabled".into()),
                http_tokens: Some("required".into()),
                hop_limit: Some(hop_limit),
            }),
            devices,
            ..TemplateData::default()
        };
        let from = data(3, vec![volume("/dev/xvda", 32)]);
        let to = data(2, vec![volume("/dev/xvda", 50), volume("/dev/xvdb", 10)]);
        let reasons: Vec<_> = template_data_drift(&from, &to).iter().map(ToString::to_string).collect();
        assert_eq!(
            reasons,
            [
                "volumes[/dev/xvda].size: 32 -> 50",
                "volumes[/dev/xvdb]: (none) -> deleteOnTermination true, size 10, type gp3",
                "metadataOptions.httpPutHopLimit: 3 -> 2",
            ]
        );
        let none = TemplateData { metadata: None, ..to.clone() };
        let reasons: Vec<_> = template_data_drift(&to, &none).iter().map(ToString::to_string).collect();
        assert_eq!(
            reasons,
            ["metadataOptions: httpPutHopLimit 2, httpEndpoint enabled, httpTokens required -> (none)"]
        );
        // AWS may show what a user wrote. A difference without a reason would be no difference.
        let twice = data(2, vec![volume("/dev/xvda", 40), volume("/dev/xvda", 50), volume("/dev/xvdb", 10)]);
        assert!(!template_data_drift(&twice, &to).is_empty());
    }
}
