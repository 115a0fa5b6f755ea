//! Properties of the merge for arbitrary boundaries, defaults and groups.

use proptest::prelude::*;

use super::*;
use crate::boundaries::parse::CONFIG_MAP_KEYS;
use crate::boundaries::provenance::Origin;

/// All boundaries with paths of every kind, some of them parents of others.
const PATHS: [&str; 9] = [
    "metadata.annotations",
    "spec.strategy",
    "spec.eks",
    "spec.eks.minSize",
    "spec.eks.configuration",
    "spec.eks.configuration.image",
    "spec.eks.configuration.labels",
    "spec.eks.configuration.tags",
    "spec.eks.configuration.subnets",
];

prop_compose! {
    /// A fragment of a group whose texts all begin with the given prefix.
    fn fragment(prefix: &'static str)(
        min in prop::option::of(0_u64..3), strategy in prop::option::of(prop::bool::ANY), image in prop::option::of("[ab]?"),
        labels in prop::option::of(prop::collection::btree_map("[abc]", "[xy]?", 0..3)),
        tags in prop::option::of(prop::collection::vec(("[abA]?", "[xy]"), 0..4)),
        subnets in prop::option::of(prop::collection::vec("[abc]", 0..4)),
    ) -> Value {
        let mut spec = json!({"eks": {"configuration": {}}});
        let text = |text: &str| if text.is_empty() { json!("") } else { json!(format!("{prefix}{text}")) };
        if let Some(min) = min { spec["eks"]["minSize"] = json!(min); }
        if let Some(typed) = strategy { spec["strategy"] = if typed { json!({"type": "crd"}) } else { json!({}) }; }
        let configuration = &mut spec["eks"]["configuration"];
        if let Some(image) = image { configuration["image"] = text(&image); }
        if let Some(labels) = labels { configuration["labels"] = labels.iter().map(|(k, v)| (k.clone(), text(v))).collect(); }
        if let Some(tags) = tags { configuration["tags"] = tags.iter().map(|(k, v)| json!({"key": k, "value": text(v)})).collect(); }
        if let Some(subnets) = subnets { configuration["subnets"] = subnets.iter().map(|s| text(s)).collect(); }
        spec
    }
}

fn boundaries() -> impl Strategy<Value = Value> {
    let list = || prop::collection::vec(prop::sample::select(&PATHS[..]), 0..4);
    (list(), list(), list(), list()).prop_map(|(restricted, merge, merge_override, replace)| {
        json!({"restricted": restricted, "shared": {"merge": merge, "mergeOverride": merge_override, "replace": replace}})
    })
}

fn config(boundaries: &Value, default: &Value, conditional: &Value) -> Boundaries {
    let conditionals = json!([{"annotationSelector": "os = windows", "defaults": {"spec": conditional}}]);
    parse(&[
        ("boundaries", &boundaries.to_string()),
        ("defaults", &json!({"spec": default}).to_string()),
        ("conditionals", &conditionals.to_string()),
    ])
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "annotations",
        "spec",
        "eks",
        "configuration",
        "tags",
        "labels",
        "minSize",
        "strategy",
        "key",
        "x",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Whether a boundary's path is a parent of another one. A second merge may then find a value unset that the first one removed.
fn has_nested_paths(rules: &Value) -> bool {
    let lists = [
        &rules["restricted"],
        &rules["shared"]["merge"],
        &rules["shared"]["mergeOverride"],
        &rules["shared"]["replace"],
    ];
    let all: Vec<&str> =
        lists.into_iter().flat_map(|list| list.as_array().unwrap()).map(|path| path.as_str().unwrap()).collect();
    all.iter().any(|above| all.iter().any(|path| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))))
}

proptest! {
    #[test]
    fn merging_is_idempotent(rules in boundaries().prop_filter("nested", |rules| !has_nested_paths(rules)), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T"), windows in any::<bool>()) {
        let config = config(&rules, &default, &conditional);
        let annotations = if windows { json!({"os": "windows"}) } else { json!({}) };
        let once = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": tenant}), false).unwrap();
        let twice = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": once.spec}), false).unwrap();
        prop_assert_eq!(&once.spec, &twice.spec);
        prop_assert_eq!(once.hash, twice.hash);
    }

    #[test]
    fn restricted_paths_never_keep_tenant_values(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T"), windows in any::<bool>()) {
        let config = config(&rules, &default, &conditional);
        let annotations = if windows { json!({"os": "windows"}) } else { json!({}) };
        let merged = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": tenant}), false).unwrap();
        for path in rules["restricted"].as_array().unwrap() {
            let path = path.as_str().unwrap();
            for (at, source) in &merged.provenance {
                let below = at.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
                prop_assert!(!below && at != path || source.origin != Origin::Tenant, "{at} is {source}");
            }
            let pointer = format!("/{}", path.replace('.', "/"));
            let whole = json!({"spec": merged.spec, "metadata": {"annotations": merged.annotations}});
            let text = whole.pointer(&pointer).unwrap_or(&Value::Null).to_string();
            prop_assert!(!text.contains("\"T"), "{path} holds {text}");
        }
    }

    #[test]
    fn every_overridden_value_is_reported(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T")) {
        let merged = merge(&config(&rules, &default, &conditional), &json!({"spec": tenant}), false).unwrap();
        let image = &tenant["eks"]["configuration"]["image"];
        let lost = image.as_str().is_some_and(|image| !image.is_empty()) && merged.spec["eks"]["configuration"]["image"] != *image;
        let reported = merged.overridden.iter().any(|overridden| "spec.eks.configuration.image".starts_with(&overridden.path));
        prop_assert!(reported || !lost, "{:?}", merged.overridden);
    }

    #[test]
    fn every_leaf_has_a_source(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T")) {
        fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
            match value {
                Value::Array(items) if !items.is_empty() => items.iter().enumerate().for_each(|(i, item)| leaves(item, format!("{path}[{i}]"), found)),
                Value::Object(map) if !map.is_empty() => map.iter().for_each(|(key, value)| leaves(value, format!("{path}.{key}"), found)),
                _ => found.push(path),
            }
        }
        let merged = merge(&config(&rules, &default, &conditional), &json!({"spec": tenant}), false).unwrap();
        let mut found = vec![];
        leaves(&merged.spec, "spec".to_owned(), &mut found);
        found.sort();
        prop_assert_eq!(found, merged.provenance.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn no_group_panics(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), group in any_json()) {
        let _ = merge(&config(&rules, &default, &conditional), &group, false);
        let _ = merge(&config(&rules, &default, &conditional), &json!({"spec": group}), false);
    }

    #[test]
    fn no_config_map_panics(parts in prop::collection::btree_map(prop::sample::select(CONFIG_MAP_KEYS.to_vec()), any_json(), 0..4)) {
        let data: BTreeMap<String, String> = parts.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect();
        if let Ok((boundaries, _)) = Boundaries::parse(&data) {
            let _ = merge(&boundaries, &json!({}), false);
        }
    }

    #[test]
    fn no_text_panics(text in "[-a-z:.*&\\[\\]{}' \n]{0,120}") {
        for key in CONFIG_MAP_KEYS {
            let _ = Boundaries::parse(&data(&[(key, &text)]));
        }
    }
}
