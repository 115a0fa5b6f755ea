//! Normalization of ConfigMap fragments. Existing ConfigMaps were written for a decoder that is less strict than JSON.
//! It accepts field names in any case, numbers and booleans for strings, and yes or on for true. Normalization keeps
//! their meaning.

use serde_json::{Map, Number, Value};

/// A value that was converted, whose meaning may not be what the admin intended.
#[derive(Debug, PartialEq)]
pub(super) struct ConversionWarning {
    pub path: String,
    pub message: String,
    pub remedy: &'static str,
}

/// Converts a fragment to the names and types of the schema where the meaning is clear; anything else stays unchanged.
pub(super) fn normalize(schema: &Value, value: &mut Value, path: &str, warnings: &mut Vec<ConversionWarning>) {
    let wants_number = schema["type"] == "integer" || schema["x-kubernetes-int-or-string"] == true;
    match (schema["type"].as_str().unwrap_or_default(), &mut *value) {
        ("string", Value::Null) if schema["nullable"] != true => *value = Value::String(String::new()),
        ("string", Value::Bool(_) | Value::Number(_)) => {
            let text = value.to_string();
            // A price is a number for everybody.
            if value.is_f64() && !path.ends_with(".spotPrice") {
                warnings.push(ConversionWarning {
                    path: path.to_owned(),
                    message: format!("is a number, which is read as {text}: a zero at its end is lost"),
                    remedy: "write it in quotes",
                });
            }
            *value = Value::String(text);
        }
        (_, Value::Number(number)) if wants_number && number.is_f64() => {
            if let Some(whole) = whole_number(number) {
                *value = whole.into();
            }
        }
        (_, Value::String(text)) if wants_number => {
            if let Some(number) = parse_yaml_number(text) {
                warnings.push(ConversionWarning {
                    path: path.to_owned(),
                    message: format!("{text} is read as {number}, as in YAML 1.1"),
                    remedy: "write a decimal number without a leading zero",
                });
                *value = number.into();
            }
        }
        ("boolean", Value::String(text)) => {
            if let Some(meant) = parse_yaml_boolean(text) {
                *value = Value::Bool(meant);
            }
        }
        ("array", Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                normalize(&schema["items"], item, &format!("{path}[{index}]"), warnings);
            }
        }
        ("object", Value::Object(map)) => {
            let mut renamed = Map::new();
            for (key, mut entry) in std::mem::take(map) {
                let known = schema["properties"].as_object().and_then(|known| {
                    known.get_key_value(&key).or_else(|| known.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)))
                });
                let (name, property) =
                    known.map_or((&key, &schema["additionalProperties"]), |(name, property)| (name, property));
                normalize(property, &mut entry, &format!("{path}.{name}"), warnings);
                renamed.insert(name.clone(), entry);
            }
            *map = renamed;
        }
        _ => {}
    }
}

/// A number without a fraction, such as 3.0, within the range that a float represents exactly.
fn whole_number(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0)?;
    #[allow(clippy::cast_possible_truncation, reason = "the float is whole and in range")]
    Some(float as i64)
}

/// A number in a notation of YAML 1.1 that YAML 1.2 reads as text: 010 is octal, 09 is decimal, and 1_000 is 1000.
fn parse_yaml_number(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !(text.contains('_') || text.starts_with('0')) || text.starts_with('_') {
        return None;
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => i64::from_str_radix(octal, 8).or_else(|_| digits.parse()).ok(),
        _ => digits.parse().ok(),
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
        let mut warnings = vec![];
        normalize(schema::spec(), &mut value, "spec", &mut warnings);
        assert_eq!(warnings, []);
        assert_eq!(
            value,
            json!({"eks": {"minSize": 1, "configuration": {
                "spotPrice": "0.05", "labels": {"a": "true", "B": "1"}, "volumes": [{"name": "x", "encrypted": true}], "unknown": 1,
            }}})
        );
    }

    /// Kubernetes 1.30 would become 1.3 without a warning.
    #[test]
    fn number_with_a_fraction_in_a_text_is_noted() {
        let mut value = json!({"eks-managed": {"configuration": {"version": 1.3, "clusterName": 7}}});
        let mut warnings = vec![];
        normalize(schema::spec(), &mut value, "spec", &mut warnings);
        assert_eq!(value["eks-managed"]["configuration"], json!({"version": "1.3", "clusterName": "7"}));
        let paths: Vec<_> = warnings.iter().map(|warning| (warning.path.as_str(), warning.remedy)).collect();
        assert_eq!(paths, [("spec.eks-managed.configuration.version", "write it in quotes")]);
    }

    #[test]
    fn numbers_in_other_notations_are_read() {
        for (written, read, noted) in [
            (json!(3.0), json!(3), false),
            (json!(1e3), json!(1000), false),
            (json!("010"), json!(8), true),
            (json!("09"), json!(9), true),
            (json!("1_000"), json!(1000), true),
            (json!(3.5), json!(3.5), false),
            (json!("3"), json!("3"), false),
            (json!("_1"), json!("_1"), false),
            (json!("three"), json!("three"), false),
        ] {
            let mut value = json!({"eks": {"minSize": written}});
            let mut warnings = vec![];
            normalize(schema::spec(), &mut value, "spec", &mut warnings);
            assert_eq!(value["eks"]["minSize"], read);
            assert_eq!(
                warnings.iter().map(|warning| warning.path.as_str()).collect::<Vec<_>>(),
                vec!["spec.eks.minSize"; usize::from(noted)]
            );
        }
    }
}
