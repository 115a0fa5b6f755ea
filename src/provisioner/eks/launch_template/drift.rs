//! Differences between launch template contents, and between lifecycle hooks: field, old value, new value.

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
        let names: std::collections::BTreeSet<_> = print.parts.keys().chain(desired.keys()).collect();
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
    pairs
        .filter(|((_, a), (_, b))| a != b)
        .map(|((name, a), (_, b))| Drift::new(name, display_value(&a), display_value(&b)))
        .collect()
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
        other => other.to_string(),
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
