//! Differences, named: `field, from, to`.

use serde_json::Value;

use super::fingerprint::fields;
use crate::aws::{LifecycleHook, TemplateData};
use crate::plan::Drift;
use crate::provisioner::eks::observed::Version;
use crate::provisioner::eks::resolve::Resolved;

/// What differs between a version and what is wanted; never empty, because it
/// is asked only when the hashes differ.
pub fn versions(found: Option<&Version>, resolved: &Resolved) -> Vec<Drift> {
    let Some(found) = found else {
        return vec![Drift::new("template", "a version that is not known any more", "the wanted one")];
    };
    let mut drifts = found.data.as_ref().map(|data| data_fields(data, &resolved.data)).unwrap_or_default();
    if let Some(print) = &found.fingerprint {
        let wanted = &resolved.fingerprint.parts;
        let names: std::collections::BTreeSet<_> = print.parts.keys().chain(wanted.keys()).collect();
        let changed = names.into_iter().filter(|name| print.parts.get(*name) != wanted.get(*name));
        drifts.extend(changed.map(|name| Drift::new(name, digest(print.parts.get(name)), digest(wanted.get(name)))));
    } else if found.data.as_ref().is_some_and(|d| d.user_data != resolved.data.user_data) {
        drifts.push(Drift::new("userData", "as found", "as rendered now"));
    }
    if drifts.is_empty() {
        drifts.push(Drift::new("template", "other inputs", "the wanted ones"));
    }
    drifts
}

fn digest(part: Option<&String>) -> String {
    part.map_or(String::new(), |p| format!("#{p}"))
}

/// Field by field, everything but user data.
pub fn data_fields(from: &TemplateData, to: &TemplateData) -> Vec<Drift> {
    let pairs = fields(&by_device(from)).into_iter().zip(fields(&by_device(to)));
    pairs.filter(|((_, a), (_, b))| a != b).map(|((name, a), (_, b))| Drift::new(name, shown(&a), shown(&b))).collect()
}

/// AWS tells devices in an order of its own; a spec's may be another.
fn by_device(data: &TemplateData) -> TemplateData {
    let mut data = data.clone();
    data.devices.sort_by(|a, b| a.name.cmp(&b.name));
    data
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Whether a hook holds something that the wanted one does not have at all.
pub fn loses(from: &LifecycleHook, to: &LifecycleHook) -> bool {
    let gone = |from: &Option<String>, to: &Option<String>| from.is_some() && to.is_none();
    gone(&from.notification_arn, &to.notification_arn)
        || gone(&from.metadata, &to.metadata)
        || gone(&from.role_arn, &to.role_arn)
}

/// What differs between a hook that is there and the wanted one.
pub fn hook(from: &LifecycleHook, to: &LifecycleHook) -> Vec<Drift> {
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
