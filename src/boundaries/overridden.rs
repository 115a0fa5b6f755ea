//! Values of the tenant that the boundaries override, or that have no effect.

use serde::Serialize;
use serde_json::Value;

use super::{
    path::{merge_key, merge_key_value},
    provenance::{Boundary, Origin, Source, SourcedContent, SourcedValue, is_unset},
};
use crate::api::display_value;
use crate::util::escape::escape_control;

/// A value that the tenant set and that is not in the merged spec, or has no effect there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverriddenValue {
    /// Dotted path of the tenant's value.
    pub path: String,
    /// The tenant's value, shortened, and redacted where it may be secret.
    pub tenant_value: String,
    /// The value in the merged spec, formatted in the same way; `None` when there is none.
    pub effective_value: Option<String>,
    /// Source of the effective value; `None` when the tenant's value was removed without a replacement.
    pub winner: Option<Source>,
    /// Which merge removed it with the map that contained it, and what to do; `None` where that is not the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_in_merge: Option<String>,
    /// Why the value has no effect, and what to do; `None` when the boundaries override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_because: Option<String>,
}

impl std::fmt::Display for OverriddenValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} was not used", escape_control(&self.path), self.tenant_value)?;
        match (self.unused_because.as_ref().or(self.lost_in_merge.as_ref()), &self.winner, &self.effective_value) {
            (Some(why), ..) => write!(f, ": {why}"),
            (None, Some(winner), Some(value)) => write!(f, ", {winner} is {value}"),
            _ => write!(f, ", the field is {}", Boundary::Restricted.as_str()),
        }
    }
}

/// Compares the tenant's values with the merged spec.
pub(super) fn find_overridden(tenant: &Value, effective: &SourcedValue) -> Vec<OverriddenValue> {
    let mut found = vec![];
    if let SourcedContent::Map(roots) = &effective.content {
        for root in ["metadata", "spec"] {
            compare(root, &tenant[root], roots.get(root), &mut found);
        }
    }
    found
}

fn compare(path: &str, tenant: &Value, effective: Option<&SourcedValue>, found: &mut Vec<OverriddenValue>) {
    match (tenant, effective.map(|tree| &tree.content)) {
        (Value::Null, _) => {}
        (Value::Object(own), Some(SourcedContent::Map(map))) if !own.is_empty() => {
            for (key, value) in own {
                compare(&format!("{path}.{key}"), value, map.get(key), found);
            }
        }
        (own, _) if is_all_unset(path, own) && !effective.is_some_and(|tree| replaces_unset(own, tree)) => {}
        (Value::Array(own), Some(SourcedContent::List(items))) if !own.is_empty() => {
            compare_lists(path, own, items, effective, found);
        }
        (own, _) if effective.is_some_and(|tree| tree.value() == *own) => {}
        (own, _) => found.push(overridden_value(path.to_owned(), path, own, effective)),
    }
}

/// Whether everything in a value is unset.
fn is_all_unset(path: &str, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().all(|(key, value)| is_all_unset(&format!("{path}.{key}"), value)),
        other => is_unset(path, other),
    }
}

/// Whether a value of the admin stands in for a tenant's zero or empty value. A merge adds to an empty map or list.
fn replaces_unset(own: &Value, effective: &SourcedValue) -> bool {
    let Source { origin, boundary } = effective.source;
    let is_merged = matches!(boundary, Some(Boundary::Merge | Boundary::MergeOverride));
    origin != Origin::Tenant && !(is_merged && matches!(own, Value::Array(_) | Value::Object(_)))
}

fn compare_lists(
    path: &str,
    own: &[Value],
    items: &[SourcedValue],
    list: Option<&SourcedValue>,
    found: &mut Vec<OverriddenValue>,
) {
    let name_of = |item: &Value| merge_key_value(item, merge_key(path)?);
    for (index, value) in own.iter().enumerate().filter(|(_, value)| !items.iter().any(|item| item.value() == **value))
    {
        let name = name_of(value);
        let namesake = items.iter().find(|item| name.is_some() && name_of(&item.value()) == name);
        let label = name.unwrap_or_else(|| index.to_string());
        found.push(overridden_value(format!("{path}[{label}]"), path, value, namesake.or(list)));
    }
}

/// The report of one value; `show_as` is the path that decides whether it may be shown.
pub(super) fn overridden_value(
    path: String,
    show_as: &str,
    own: &Value,
    winner: Option<&SourcedValue>,
) -> OverriddenValue {
    OverriddenValue {
        path,
        tenant_value: display_value(show_as, own),
        effective_value: winner.map(|tree| display_value(show_as, &tree.value())),
        winner: winner.map(|tree| tree.source),
        lost_in_merge: None,
        unused_because: None,
    }
}
