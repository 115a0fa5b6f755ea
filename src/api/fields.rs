//! Pieces that several fields share.

use std::time::Duration;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// A number or a percentage such as `"25%"`.
pub type IntOrString = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Pattern of a count or a percentage.
pub const INT_OR_PERCENT: &str = "^([0-9]+%?)?$";
/// Pattern of a duration as Go writes it: 90s, 15m, 1h30m.
pub const DURATION: &str = "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))*$";
/// Pattern of the value of a label or taint, which a kubelet would refuse otherwise.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Pattern of the key of a taint.
pub const LABEL_KEY: &str = "^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Schema of an optional [`IntOrString`] that holds a count or a percentage.
pub fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "nullable": true, "pattern": INT_OR_PERCENT })
}

/// Schema of the labels of a node.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "nullable": true, "maxProperties": 500,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

/// Decodes what it can and takes the default for anything else, so that a status written by another release never stops a watch.
pub fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Like [`lenient`], entry by entry: an entry that does not decode is left out.
pub fn lenient_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(match value {
        serde_json::Value::Array(items) => {
            items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()
        }
        _ => Vec::new(),
    })
}

/// Takes the defaults out of an object's schema: the API server must not invent numbers that nobody counted.
pub fn without_defaults(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    for property in properties.into_iter().flat_map(|map| map.values_mut()).filter_map(serde_json::Value::as_object_mut)
    {
        property.remove("default");
    }
}

/// Reads a duration such as 90s, 15m or 1h30m; an empty text is zero, and anything else is `None`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(unit_at);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (unit, after) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
            .iter()
            .find_map(|(word, unit)| tail.strip_prefix(word).map(|after| (*unit, after)))?;
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let seconds = |text| parse_duration(text).map(|time| time.as_secs_f64());
        for (text, wanted) in
            [("", 0.0), ("90s", 90.0), ("15m", 900.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("250ms", 0.25)]
        {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
        for text in ["15", "m", "-5m", "5d", "1..5s", "1.s", "5 m", "é"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
