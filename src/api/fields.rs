//! Types, patterns and schemas that several fields share, and lenient decoding of the status.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// A number or a percentage such as `"25%"`.
pub(crate) type IntOrString = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Pattern of a number or a percentage.
pub(crate) const INT_OR_PERCENT: &str = "^([0-9]+%?)?$";
/// Pattern of a duration in Go's notation: 90s, 15m, 1h30m.
pub(crate) const DURATION: &str = "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))*$";
/// Pattern of the value of a label or taint. The kubelet rejects any other value.
pub(crate) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Pattern of the key of a taint.
pub(crate) const LABEL_KEY: &str = "^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Schema of an optional [`IntOrString`] that holds a number or a percentage.
pub(crate) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "nullable": true, "pattern": INT_OR_PERCENT })
}

/// Schema of node labels.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "nullable": true, "maxProperties": 500,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

/// Decodes a value, or returns the default if it does not fit. A status that another release wrote must never stop the
/// watch.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Like [`lenient`] for each entry of a list: an entry that cannot be decoded is dropped.
pub(crate) fn lenient_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(match value {
        serde_json::Value::Array(items) => {
            items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()
        }
        _ => Vec::new(),
    })
}

/// Removes the defaults from an object's schema, so that the API server does not fill in numbers the controller never
/// observed.
pub(crate) fn without_defaults(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    for property in properties.into_iter().flat_map(|map| map.values_mut()).filter_map(serde_json::Value::as_object_mut)
    {
        property.remove("default");
    }
}
