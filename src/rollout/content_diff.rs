//! The difference between two contents of the ConfigMap as text, for lists of revisions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::display_value;
use crate::boundaries::{CONFIG_MAP_KEYS, yaml};
use crate::rotation::crd::TEMPLATE_PATH;

/// How many changed fields a short description names.
const NAMED_FIELDS: usize = 3;

/// What changed from one content of the ConfigMap to another, in one line. Empty when both mean the same.
pub(super) fn describe_change(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> String {
    let mut parts = changes(old, new);
    let more = parts.len().saturating_sub(NAMED_FIELDS);
    parts.truncate(NAMED_FIELDS);
    parts.extend((more > 0).then(|| format!("{more} more")));
    parts.join(", ")
}

/// Each field that changed from one content of the ConfigMap to another, such as `image: "ami-1" -> "ami-2"`. User data
/// and other secret values are not shown.
pub(crate) fn changes(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    let (old, new) = (flatten_values(old), flatten_values(new));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = paths.into_iter().filter(|path| old.get(*path) != new.get(*path));
    changed.map(|path| describe(path, old.get(path), new.get(path))).collect()
}

fn describe(path: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    let name = short_name(path);
    if CONFIG_MAP_KEYS.contains(&path) {
        return format!("{name} changed");
    }
    let shown = |value: &Value| display_value(field_path(path), value);
    // An item of a list of texts is its own name.
    let is_named = |value: &Value| value.as_str().is_some_and(|text| path.ends_with(&format!("[{text}]")));
    match (old, new) {
        (None, Some(new)) if is_named(new) => format!("+{name}"),
        (Some(old), None) if is_named(old) => format!("-{name}"),
        (None, Some(new)) => format!("+{name}: {}", shown(new)),
        (Some(old), None) => format!("-{name}: {}", shown(old)),
        (Some(old), Some(new)) if shown(old) != shown(new) => format!("{name}: {} -> {}", shown(old), shown(new)),
        (Some(_), Some(_)) | (None, None) => format!("{name} changed"),
    }
}

/// The path as users write it: a default by its field alone, everything else with its place in the ConfigMap.
fn short_name(path: &str) -> &str {
    let prefixes = ["defaults.spec.eks.configuration.", "defaults.spec.", "defaults."];
    prefixes.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

/// The path within an InstanceGroup, by which secret values are known.
fn field_path(path: &str) -> &str {
    path.find("spec.").map_or(path, |at| &path[at..])
}

/// Every single value of a content by its path. A text that is not YAML, or has no fields, counts as one value.
fn flatten_values(data: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for key in CONFIG_MAP_KEYS {
        let Some(text) = data.get(key) else { continue };
        match yaml::read(text) {
            Ok((document, _)) => collect(&document.value, key, &mut found),
            Err(_) => _ = found.insert(key.to_owned(), Value::String(text.clone())),
        }
    }
    found
}

fn collect(value: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    match value {
        // Of a template, not even the names of its fields are shown.
        _ if field_path(path) == TEMPLATE_PATH => _ = found.insert(path.to_owned(), Value::String(value.to_string())),
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| collect(value, &format!("{path}.{key}"), found));
        }
        // Items are distinguished by what identifies them: an item that is put first changes none of the others.
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{}]", item_name(item, index));
                collect(item, &path, found);
                // The field that names the item is redundant beside others.
                if let (Value::Object(map), Some(key)) = (item, name_field(item))
                    && map.len() > 1
                {
                    found.remove(&format!("{path}.{key}"));
                }
            }
        }
        Value::Null => {}
        leaf => _ = found.insert(path.to_owned(), leaf.clone()),
    }
}

fn item_name(item: &Value, index: usize) -> String {
    let name = name_field(item).map_or(item, |key| &item[key]);
    name.as_str().map_or_else(|| index.to_string(), str::to_owned)
}

/// The field by which an item of a list is known.
fn name_field(item: &Value) -> Option<&'static str> {
    ["name", "key", "annotationSelector"].into_iter().find(|key| item[*key].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: &[(&str, &str)], new: &[(&str, &str)]) -> String {
        let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        describe_change(&data(old), &data(new))
    }

    #[test]
    fn changed_fields_are_named_with_both_values() {
        let eks = |text: &str| format!("spec: {{eks: {{configuration: {{{text}}}}}}}");
        let defaults = |old: &str, new: &str| change(&[("defaults", &eks(old))], &[("defaults", &eks(new))]);
        assert_eq!(defaults("image: ami-1", "image: ami-2"), "image: \"ami-1\" -> \"ami-2\"");
        assert_eq!(defaults("image: ami-1", "image: ami-1, instanceType: m5.large"), "+instanceType: \"m5.large\"");
        assert_eq!(defaults("image: a, tags: [{key: a, value: x}]", "image: a"), "-tags[a].value: \"x\"");
        let reordered = "tags: [{key: b, value: y}, {key: a, value: x}]";
        assert_eq!(defaults("tags: [{key: a, value: x}, {key: b, value: y}]", reordered), "");
        assert_eq!(
            defaults("image: a", "image: a, labels: {a: '1', b: '2', c: '3', d: '4', e: '5'}")
                .matches("+labels.")
                .count(),
            3
        );
        assert!(
            defaults("image: a", "image: a, labels: {a: '1', b: '2', c: '3', d: '4', e: '5'}").ends_with(", 2 more")
        );
    }

    #[test]
    fn other_keys_are_named_by_their_place() {
        let path = "spec.eks.configuration.image";
        assert_eq!(
            change(&[], &[("boundaries", &format!("restricted: [{path}]"))]),
            format!("+boundaries.restricted[{path}]")
        );
        assert_eq!(change(&[("policy", "roles: ")], &[("policy", "# a comment")]), "");
        assert!(change(&[("policy", "{")], &[("policy", "roles: [a]")]).contains("+policy.roles[a]"));
    }

    #[test]
    fn user_data_is_not_shown() {
        let text = |secret: &str| {
            format!(
                "spec: {{eks: {{configuration: {{bootstrapArguments: {secret}, userData: [{{name: a, data: {secret}}}]}}}}}}"
            )
        };
        let shown = change(&[("defaults", &text("canary-1"))], &[("defaults", &text("canary-2"))]);
        assert_eq!(shown, "bootstrapArguments changed, userData[a].data changed");
        for template in ["crdName: x, spec: SECRET", "crdName: x, spec: {a: [SECRET]}"] {
            let text =
                |secret: &str| format!("spec: {{strategy: {{crd: {{{}}}}}}}", template.replace("SECRET", secret));
            let shown = change(&[("defaults", &text("canary-1"))], &[("defaults", &text("canary-2"))]);
            assert!(shown.contains("strategy.crd.spec") && !shown.contains("canary"), "{shown}");
        }
        for text in ["canary", "{canary"] {
            assert_eq!(change(&[], &[("defaults", text)]), "defaults changed");
        }
    }
}
