//! Merge patches, as statuses are written.

use serde_json::Value;

/// Applies a JSON merge patch, RFC 7386.
pub fn merge_patch(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => {
                        into.remove(key);
                    }
                    value => merge_patch(into.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}
