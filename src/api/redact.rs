//! Redaction of spec values in logs, events, conditions and explanations.

use serde_json::Value;

use crate::util::counted::counted;
use crate::util::redact::REDACTED;

/// The longest text or container that is shown whole, in characters.
const MAX_SHOWN: usize = 80;

/// Formats a value for display: long texts are shortened, long containers are shown by size, and user data, bootstrap
/// arguments and a strategy's template are redacted.
pub(crate) fn display_value(path: &str, value: &Value) -> String {
    let secret = ["userData", "bootstrapArguments"].iter().any(|name| path.split(['.', '[']).any(|part| part == *name))
        || matches!(path, "spec.strategy.crd" | "spec.strategy.crd.spec");
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) | Value::Object(_) if !secret && fits(value) => redacted(value).to_string(),
        Value::Array(items) => format!("[{}]", counted(items.len(), "item")),
        Value::Object(map) => format!("{{{}}}", counted(map.len(), "key")),
        _ if secret => REDACTED.to_owned(),
        Value::String(text) if text.chars().count() > MAX_SHOWN => {
            format!("{:?}…", text.chars().take(MAX_SHOWN).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Whether the text of a container is short enough to be shown whole.
fn fits(container: &Value) -> bool {
    container.to_string().chars().count() <= MAX_SHOWN
}

/// A copy of a value in which user data, bootstrap arguments and a strategy's template are redacted.
pub(crate) fn redacted(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(redacted).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), redact_field(key, value))).collect())
        }
        scalar => scalar.clone(),
    }
}

fn redact_field(key: &str, value: &Value) -> Value {
    let secret_field = match key {
        "bootstrapArguments" => return Value::String(REDACTED.to_owned()),
        "userData" => "data",
        "crd" => "spec",
        _ => return redacted(value),
    };
    let mut copy = redacted(value);
    let objects: Vec<&mut Value> =
        if let Value::Array(items) = &mut copy { items.iter_mut().collect() } else { vec![&mut copy] };
    for secret in objects.into_iter().filter_map(|object| object.get_mut(secret_field)) {
        *secret = Value::String(REDACTED.to_owned());
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::decode_spec;
    use serde_json::json;

    /// An overridden tag or a changed list of subnets must be readable, and no secret may be shown with its map.
    #[test]
    fn short_containers_are_shown_without_their_secrets() {
        let shown = display_value("spec.eks.configuration.tags", &json!([{"key": "team", "value": "a"}]));
        assert_eq!(shown, r#"[{"key":"team","value":"a"}]"#);
        assert_eq!(display_value("spec.eks.configuration.subnets", &json!(vec!["subnet"; 20])), "[20 items]");
        for (path, value) in [
            ("spec.eks.configuration.userData", json!([{"data": "canary"}])),
            ("spec.eks.configuration", json!({"userData": [{"data": "canary"}], "bootstrapArguments": "canary"})),
            ("spec.strategy.crd", json!({"spec": "canary"})),
            ("spec.strategy", json!({"crd": {"spec": "canary"}})),
        ] {
            assert!(!display_value(path, &value).contains("canary"), "{path}");
        }
    }

    #[test]
    fn debug_output_is_redacted() {
        let value = json!({"strategy": {"crd": {"spec": "canary", "crdName": "x"}}, "eks": {"configuration": {
            "bootstrapArguments": "canary", "userData": [{"name": "a", "data": "canary"}], "image": "ami-1",
        }}});
        let text = redacted(&value).to_string();
        assert!(!text.contains("canary") && text.contains("ami-1") && text.contains("crdName"), "{text}");
        let spec = decode_spec(&value).unwrap();
        assert!(!format!("{spec:?}").contains("canary"), "{spec:?}");
    }
}
