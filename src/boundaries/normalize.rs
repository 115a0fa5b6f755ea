//! Normalization of ConfigMap fragments. Existing ConfigMaps were written for a decoder that is less strict than JSON:
//! it accepts field names in any case, numbers and booleans for strings, and yes or on for true. Normalization keeps
//! their meaning.

use serde_json::{Map, Value};

/// Converts a fragment to the names and types of the schema where the meaning is clear; anything else stays unchanged.
pub(super) fn normalize(schema: &Value, value: &mut Value) {
    match (schema["type"].as_str().unwrap_or_default(), &mut *value) {
        ("string", Value::Bool(_) | Value::Number(_)) => *value = Value::String(value.to_string()),
        ("boolean", Value::String(text)) => {
            if let Some(meant) = parse_yaml_boolean(text) {
                *value = Value::Bool(meant);
            }
        }
        ("array", Value::Array(items)) => items.iter_mut().for_each(|item| normalize(&schema["items"], item)),
        ("object", Value::Object(map)) => {
            let mut renamed = Map::new();
            for (key, mut entry) in std::mem::take(map) {
                let known = schema["properties"].as_object().and_then(|known| {
                    known.get_key_value(&key).or_else(|| known.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)))
                });
                match known {
                    Some((name, property)) => {
                        normalize(property, &mut entry);
                        renamed.insert(name.clone(), entry);
                    }
                    None => {
                        normalize(&schema["additionalProperties"], &mut entry);
                        renamed.insert(key, entry);
                    }
                }
            }
            *map = renamed;
        }
        _ => {}
    }
}

fn parse_yaml_boolean(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["y", "yes", "on"]) {
        Some(true)
    } else if is(&["n", "no", "off"]) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::schema;
    use serde_json::json;

    #[test]
    fn values_are_coerced_to_schema_types() {
        let mut value = json!({"EKS": {"MinSize": 1, "configuration": {
            "spotPrice": 0.05, "labels": {"a": true, "B": 1}, "volumes": [{"Name": "x", "encrypted": "yes"}], "unknown": 1,
        }}});
        normalize(schema::spec(), &mut value);
        assert_eq!(
            value,
            json!({"eks": {"minSize": 1, "configuration": {
                "spotPrice": "0.05", "labels": {"a": "true", "B": "1"}, "volumes": [{"name": "x", "encrypted": true}], "unknown": 1,
            }}})
        );
    }
}
