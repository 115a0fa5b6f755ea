//! JSON merge patches (RFC 7386), the form in which the controller writes statuses.

use serde_json::{Map, Value};

/// Applies a merge patch to a value: null removes a field, an object is merged, anything else replaces.
pub fn apply_merge_patch(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => {
                        target.remove(key);
                    }
                    value => apply_merge_patch(target.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// The merge patch that turns the object `before` into `after`; `None` when they are equal. Lists are replaced as a
/// whole, removed fields become null, and a null field equals an absent one.
pub(crate) fn diff_merge_patch(before: &Value, after: &Value) -> Option<Value> {
    let empty = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let mut patch = Map::new();
    for (key, value) in after {
        let old = before.get(key).unwrap_or(&Value::Null);
        if old == value {
            continue;
        }
        let nested = value.is_object() && old.is_object();
        let change =
            if nested { diff_merge_patch(old, value).unwrap_or_else(|| Map::new().into()) } else { value.clone() };
        patch.insert(key.clone(), change);
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
