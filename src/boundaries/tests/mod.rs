//! The result of each boundary for each kind of value.

mod annotations;
mod config;
mod policy;
mod properties;
mod quota;
mod rollout;
mod unused;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

fn parse(pairs: &[(&str, &str)]) -> Boundaries {
    Boundaries::parse(&data(pairs)).expect("the ConfigMap is valid").0
}

/// One boundary around one path, with the defaults of the spec and one conditional for groups annotated `os: windows`.
fn boundaries_for_path(boundary: &str, path: &str, default: Value, conditional: Value) -> Boundaries {
    let boundaries = match boundary {
        "restricted" => json!({"restricted": [path]}),
        shared => json!({"shared": {shared: [path]}}),
    };
    let conditionals = json!([{"annotationSelector": "os = windows", "defaults": {"spec": conditional}}]);
    parse(&[
        ("boundaries", &boundaries.to_string()),
        ("defaults", &json!({"spec": default}).to_string()),
        ("conditionals", &conditionals.to_string()),
    ])
}

fn merge_spec(boundaries: &Boundaries, spec: Value) -> MergedSpec {
    merge(boundaries, &json!({"spec": spec}), false).expect("the kinds match")
}

fn merge_windows_group(boundaries: &Boundaries, spec: Value) -> MergedSpec {
    let group = json!({"metadata": {"annotations": {"os": "windows"}}, "spec": spec});
    merge(boundaries, &group, false).expect("the kinds match")
}

fn size(number: u64) -> Value {
    if number == 0 { json!({}) } else { json!({"eks": {"minSize": number}}) }
}

#[test]
fn scalar_merge_table() {
    // boundary, tenant, default, conditional that matches, outcome; 0 is unset.
    for (boundary, tenant, default, conditional, outcome) in [
        ("restricted", 1, 2, 0, 2),
        ("restricted", 0, 2, 0, 2),
        ("restricted", 1, 0, 0, 0),
        ("restricted", 1, 2, 3, 3),
        ("restricted", 1, 0, 3, 3),
        ("replace", 1, 2, 0, 1),
        ("replace", 0, 2, 0, 2),
        ("replace", 1, 0, 0, 1),
        ("replace", 0, 2, 3, 3),
        ("replace", 1, 2, 3, 1),
        ("merge", 1, 2, 0, 1),
        ("merge", 0, 2, 0, 2),
        ("merge", 1, 0, 0, 1),
        ("merge", 0, 2, 3, 2),
        ("merge", 0, 0, 3, 3),
        ("merge", 1, 2, 3, 1),
        ("mergeOverride", 1, 2, 0, 1),
        ("mergeOverride", 0, 2, 3, 2),
        ("mergeOverride", 0, 0, 3, 3),
        ("mergeOverride", 1, 0, 3, 1),
    ] {
        let boundaries = boundaries_for_path(boundary, "spec.eks.minSize", size(default), size(conditional));
        let merged = merge_windows_group(&boundaries, size(tenant));
        assert_eq!(
            merged.spec["eks"]["minSize"].as_u64().unwrap_or(0),
            outcome,
            "{boundary}: tenant {tenant}, default {default}, conditional {conditional}"
        );
        assert_eq!(merged.overridden.is_empty(), tenant == 0 || tenant == outcome, "{boundary} {tenant}");
    }
}

/// What keikoproj/instance-manager returns for these ConfigMaps: of scalars, the default stays under a conditional, and
/// without a default the first conditional that matches.
#[test]
fn scalars_under_several_conditionals() {
    for (boundary, default, conditionals, outcome) in [
        ("restricted", 2, vec![3, 4, 5], 5),
        ("restricted", 0, vec![3, 4], 4),
        ("replace", 2, vec![3, 4], 4),
        ("replace", 0, vec![3, 4, 5], 5),
        ("merge", 2, vec![3, 4, 5], 2),
        ("merge", 0, vec![3], 3),
        ("merge", 0, vec![3, 4, 5], 3),
        ("mergeOverride", 2, vec![3, 4], 2),
        ("mergeOverride", 0, vec![3, 4], 3),
    ] {
        let entry = |number: &u64| json!({"annotationSelector": "os = windows", "defaults": {"spec": size(*number)}});
        let entries: Vec<Value> = conditionals.iter().map(entry).collect();
        let mut boundaries = boundaries_for_path(boundary, "spec.eks.minSize", size(default), json!({}));
        boundaries.conditionals = parse(&[("conditionals", &json!(entries).to_string())]).conditionals;
        let read = |merged: MergedSpec| merged.spec["eks"]["minSize"].as_u64();
        let context = format!("{boundary}: default {default}, conditionals {conditionals:?}");
        assert_eq!(read(merge_windows_group(&boundaries, size(0))), Some(outcome), "{context}");
        let own = if boundary == "restricted" { outcome } else { 1 };
        assert_eq!(read(merge_windows_group(&boundaries, size(1))), Some(own), "{context}");
    }
}

#[test]
fn default_applies_only_through_a_boundary() {
    let boundaries =
        boundaries_for_path("replace", "spec.eks.maxSize", json!({"eks": {"minSize": 2, "maxSize": 4}}), json!({}));
    assert_eq!(merge_spec(&boundaries, json!({})).spec, json!({"eks": {"maxSize": 4}}));
}

#[test]
fn zero_and_empty_values_of_the_admin_count() {
    let field = |name: &str, value: Value| json!({"eks": {"configuration": {name: value}}});
    for (name, tenant, default, zero) in [
        ("keyPairName", json!("mine"), json!("shared"), json!("")),
        ("subnets", json!(["t"]), json!(["d"]), json!([])),
        ("labels", json!({"a": "t"}), json!({"a": "d"}), json!({})),
        ("bootstrapOptions", json!({"maxPods": 9}), json!({"maxPods": 5}), json!({"maxPods": 0})),
    ] {
        let path = format!("spec.eks.configuration.{name}");
        for boundary in ["restricted", "replace"] {
            let boundaries =
                boundaries_for_path(boundary, &path, field(name, default.clone()), field(name, zero.clone()));
            assert_eq!(
                merge_windows_group(&boundaries, json!({})).spec,
                field(name, zero.clone()),
                "{boundary} {name}"
            );
            let own = merge_windows_group(&boundaries, field(name, tenant.clone())).spec;
            let expected = if boundary == "replace" { &tenant } else { &zero };
            assert_eq!(own, field(name, expected.clone()), "{boundary} {name}");
        }
        let boundaries = boundaries_for_path("restricted", &path, field(name, json!(null)), json!({}));
        let own = merge_spec(&boundaries, field(name, tenant)).spec;
        assert_eq!(own, json!({"eks": {"configuration": {}}}), "null is unset");
    }
    let mixed = |ratio: u64| field("mixedInstancesPolicy", json!({"spotRatio": ratio, "strategy": "LowestPrice"}));
    let boundaries = boundaries_for_path("merge", "spec.eks.configuration.mixedInstancesPolicy", mixed(0), json!({}));
    assert_eq!(merge_spec(&boundaries, mixed(100)).spec, mixed(0));
    let boundaries = boundaries_for_path("merge", "spec.eks.configuration.mixedInstancesPolicy", mixed(50), mixed(0));
    assert_eq!(merge_windows_group(&boundaries, mixed(100)).spec, mixed(0));
}

#[test]
fn zero_of_a_tenant_is_kept_or_reported() {
    let mixed = |policy: Value| json!({"eks": {"configuration": {"mixedInstancesPolicy": policy}}});
    let path = "spec.eks.configuration.mixedInstancesPolicy";
    let default = mixed(json!({"spotRatio": 50, "baseCapacity": 2, "strategy": "LowestPrice"}));
    let own = mixed(json!({"spotRatio": 0, "baseCapacity": 0}));
    let boundaries = boundaries_for_path("mergeOverride", path, default.clone(), json!({}));
    let kept = merge_spec(&boundaries, own.clone());
    assert_eq!(kept.spec, mixed(json!({"spotRatio": 0, "baseCapacity": 0, "strategy": "LowestPrice"})));
    assert_eq!(kept.overridden, []);
    for (boundary, path) in [("replace", format!("{path}.spotRatio")), ("merge", format!("{path}.spotRatio"))] {
        let boundaries = boundaries_for_path(boundary, &path, default.clone(), json!({}));
        assert_eq!(merge_spec(&boundaries, own.clone()).spec, own, "{boundary}");
    }
    let retries = |number: u64| json!({"strategy": {"crd": {"maxRetries": number}}});
    let boundaries = boundaries_for_path("replace", "spec.strategy.crd.maxRetries", retries(3), json!({}));
    assert_eq!(merge_spec(&boundaries, retries(0)).spec, retries(0));

    let paths = |boundary: &str, path: &str, default: Value, own: Value| -> Vec<String> {
        let merged = merge_spec(&boundaries_for_path(boundary, path, default, json!({})), own);
        merged.overridden.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        paths("merge", path, default.clone(), own.clone()),
        [
            "spec.eks.configuration.mixedInstancesPolicy.baseCapacity: 0 was not used, default (shared.merge) is 2",
            "spec.eks.configuration.mixedInstancesPolicy.spotRatio: 0 was not used, default (shared.merge) is 50",
        ]
    );
    assert_eq!(
        paths("restricted", path, json!({}), own),
        [
            r#"spec.eks.configuration.mixedInstancesPolicy: {"baseCapacity":0,"spotRatio":0} was not used, the field is restricted"#
        ]
    );
    let zero = json!({"eks": {"minSize": 0, "configuration": {"subnets": []}}});
    assert_eq!(
        paths("replace", "spec.eks.minSize", size(3), zero.clone()),
        ["spec.eks.minSize: 0 was not used, default (shared.replace) is 3"]
    );
    let none: [&str; 0] = [];
    assert_eq!(paths("restricted", "spec.eks.minSize", json!({}), zero.clone()), none, "unset either way");
    assert_eq!(paths("merge", "spec.eks.configuration.subnets", subnets("d"), zero.clone()), none, "merged");
    assert_eq!(paths("replace", "spec.eks.configuration.subnets", subnets("d"), zero).len(), 1);
}

/// An admin's fragment; an empty text leaves the field out.
fn admins(fragment: fn(&str) -> Value, text: &str) -> Value {
    if text.is_empty() { json!({}) } else { fragment(text) }
}

fn labels(text: &str) -> Value {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    json!({"eks": {"configuration": {"labels": pairs.map(|(k, v)| (k.to_owned(), json!(v))).collect::<serde_json::Map<_, _>>()}}})
}

#[test]
fn map_merge_table() {
    for (boundary, tenant, default, conditional, outcome) in [
        ("restricted", "a=t b=t", "a=d", "", "a=d"),
        ("restricted", "a=t", "", "", ""),
        ("restricted", "a=t", "a=d b=d", "a=c", "a=c"),
        ("replace", "a=t", "a=d b=d", "", "a=t"),
        ("replace", "", "a=d b=d", "", "a=d b=d"),
        ("replace", "", "a=d b=d", "a=c", "a=c"),
        ("merge", "a=t b=t", "a=d c=d", "", "a=d b=t c=d"),
        ("merge", "a=t b=t", "a=d c=d", "c=c d=c", "a=d b=t c=c d=c"),
        ("merge", "a=t", "", "", "a=t"),
        ("merge", "", "a=d", "", "a=d"),
        ("merge", "b=t", "a=d b=", "", "a=d b="),
        ("mergeOverride", "a=t b=t", "a=d c=d", "", "a=t b=t c=d"),
        ("mergeOverride", "a=t b=t", "a=d c=d", "b=c c=c d=c", "a=t b=t c=c d=c"),
        ("mergeOverride", "a=", "a=d", "", "a="),
        ("mergeOverride", "", "a=d", "", "a=d"),
    ] {
        let boundaries = boundaries_for_path(
            boundary,
            "spec.eks.configuration.labels",
            admins(labels, default),
            admins(labels, conditional),
        );
        let merged = merge_windows_group(&boundaries, labels(tenant)).spec;
        let outcome = labels(outcome);
        let read = |spec: &Value| spec["eks"]["configuration"]["labels"].as_object().cloned().unwrap_or_default();
        assert_eq!(
            read(&merged),
            read(&outcome),
            "{boundary}: tenant {tenant}, default {default}, conditional {conditional}"
        );
    }
}

fn subnets(text: &str) -> Value {
    json!({"eks": {"configuration": {"subnets": text.split_whitespace().collect::<Vec<_>>()}}})
}

fn tags(text: &str) -> Value {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    let tags = pairs.map(|(k, v)| if k.is_empty() { json!({"value": v}) } else { json!({"key": k, "value": v}) });
    json!({"eks": {"configuration": {"tags": tags.collect::<Vec<_>>()}}})
}

#[test]
fn list_merge_table() {
    for (boundary, tenant, default, conditional, outcome) in [
        ("restricted", "t", "d", "", "d"),
        ("replace", "t", "d", "", "t"),
        ("replace", "", "d", "c", "c"),
        ("merge", "t d", "d e", "", "d e t"),
        ("merge", "t", "d", "c", "c d t"),
        ("merge", "t t", "d", "", "d t"),
        ("merge", "t d", "d d", "", "d d t"),
        ("merge", "", "d d", "c", "c d"),
        ("mergeOverride", "t d", "d e", "c", "c d e t"),
    ] {
        let boundaries = boundaries_for_path(
            boundary,
            "spec.eks.configuration.subnets",
            admins(subnets, default),
            admins(subnets, conditional),
        );
        assert_eq!(
            merge_windows_group(&boundaries, subnets(tenant)).spec,
            subnets(outcome),
            "{boundary}: {tenant}, {default}, {conditional}"
        );
    }
    for (boundary, tenant, default, conditional, outcome) in [
        ("merge", "a=t b=t", "a=d c=d", "", "a=d c=d b=t"),
        ("merge", "A=t b=t", "a=d", "", "a=d b=t"),
        ("merge", "a=t", "a=d c=d", "C=c", "C=c a=d"),
        ("merge", "b=1 b=2", "a=d", "", "a=d b=1"),
        ("merge", "=t", "=d =d", "", "=d =d =t"),
        ("merge", "", "a=1 A=2 a=1", "", "a=1 A=2 a=1"),
        ("merge", "a=t", "a=1 A=2", "", "a=1 A=2"),
        ("merge", "b=t", "a=1 A=2 c=d", "b=1 b=2 c=c", "b=1 b=2 c=c a=1 A=2"),
        ("mergeOverride", "a=t b=t", "a=1 a=2", "", "a=t a=2 b=t"),
        ("mergeOverride", "A=t b=t", "a=d c=d", "", "A=t c=d b=t"),
        ("mergeOverride", "a=t", "a=d c=d", "c=c", "c=c a=t"),
        ("mergeOverride", "b=1 b=2", "a=d", "", "a=d b=2"),
        ("mergeOverride", "=t =d", "=d", "", "=d =t"),
    ] {
        let boundaries = boundaries_for_path(
            boundary,
            "spec.eks.configuration.tags",
            admins(tags, default),
            admins(tags, conditional),
        );
        assert_eq!(
            merge_windows_group(&boundaries, tags(tenant)).spec,
            tags(outcome),
            "{boundary}: {tenant}, {default}, {conditional}"
        );
    }
}

#[test]
fn maps_merge_one_level_deep() {
    let default = json!({"strategy": {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}});
    let tenant = json!({"strategy": {"rollingUpdate": {"joinTimeout": "1m"}}});
    let by_default =
        merge_spec(&boundaries_for_path("merge", "spec.strategy", default.clone(), json!({})), tenant.clone());
    assert_eq!(by_default.spec, default);
    let by_tenant = merge_spec(&boundaries_for_path("mergeOverride", "spec.strategy", default, json!({})), tenant);
    let expected = json!({"strategy": {"type": "rollingUpdate", "rollingUpdate": {"joinTimeout": "1m"}}});
    assert_eq!(by_tenant.spec, expected);
}

#[test]
fn replace_never_sets_the_strategy() {
    let default = json!({"strategy": {"type": "rollingUpdate"}});
    assert_eq!(
        merge_spec(&boundaries_for_path("replace", "spec.strategy", default.clone(), json!({})), json!({})).spec,
        json!({})
    );
    assert_eq!(
        merge_spec(&boundaries_for_path("merge", "spec.strategy", default.clone(), json!({})), json!({})).spec,
        default
    );
}

#[test]
fn last_matching_conditional_wins() {
    let conditionals = r#"
- {annotationSelector: 'os', defaults: {spec: {eks: {minSize: 1, maxSize: 1}}}}
- {annotationSelector: 'os = linux', defaults: {spec: {eks: {minSize: 2}}}}
- {annotationSelector: 'os = windows', defaults: {spec: {eks: {minSize: 3}}}}
"#;
    let boundaries =
        parse(&[("boundaries", "restricted: [spec.eks.minSize, spec.eks.maxSize]"), ("conditionals", conditionals)]);
    let merged = merge_windows_group(&boundaries, json!({}));
    assert_eq!(merged.spec, json!({"eks": {"minSize": 3, "maxSize": 1}}));
    assert_eq!(merged.provenance["spec.eks.minSize"].to_string(), "conditional 2 (restricted)");
}

#[test]
fn every_matching_conditional_is_merged() {
    let conditionals = r#"
- {annotationSelector: 'os', defaults: {spec: {eks: {minSize: 1, configuration: {labels: {a: c0, b: c0}, tags: [{key: x, value: c0}, {key: y, value: c0}], securityGroups: [c0], userData: [{name: audit, data: c0}], managedPolicies: [C0]}}}}}
- {annotationSelector: 'os = linux', defaults: {spec: {eks: {minSize: 2, configuration: {labels: {a: c1}}}}}}
- {annotationSelector: 'os = windows', defaults: {spec: {eks: {minSize: 3, configuration: {labels: {b: c2, c: c2}, tags: [{key: Y, value: c2}], securityGroups: [c2], userData: [{name: proxy, data: c2}], managedPolicies: [C2]}}}}}
"#;
    let fields = ["labels", "tags", "securityGroups", "userData", "managedPolicies"];
    for boundary in ["merge", "mergeOverride"] {
        let mut paths: Vec<String> = fields.iter().map(|field| format!("spec.eks.configuration.{field}")).collect();
        paths.push("spec.eks.minSize".to_owned());
        let boundaries = parse(&[
            ("boundaries", &json!({"shared": {boundary: paths}}).to_string()),
            ("defaults", "spec: {eks: {configuration: {labels: {a: d, d: d}, securityGroups: [d]}}}"),
            ("conditionals", conditionals),
        ]);
        let merged = merge_windows_group(&boundaries, json!({}));
        let expected = json!({"eks": {"minSize": 1, "configuration": {
            "labels": {"a": "c0", "b": "c2", "c": "c2", "d": "d"},
            "tags": [{"key": "Y", "value": "c2"}, {"key": "x", "value": "c0"}],
            "securityGroups": ["c2", "c0", "d"],
            "userData": [{"name": "proxy", "data": "c2"}, {"name": "audit", "data": "c0"}],
            "managedPolicies": ["C2", "C0"],
        }}});
        assert_eq!(merged.spec, expected, "{boundary}");
        let source = |path: &str| merged.provenance[path].to_string();
        assert_eq!(source("spec.eks.configuration.labels.a"), format!("conditional 0 (shared.{boundary})"));
        assert_eq!(source("spec.eks.configuration.labels.b"), format!("conditional 2 (shared.{boundary})"));
    }
}

#[test]
fn conditionals_match_annotations_before_the_merge() {
    let boundaries = parse(&[
        ("boundaries", "{restricted: [spec.eks.minSize], shared: {merge: [metadata.annotations]}}"),
        ("defaults", "{metadata: {annotations: {os: windows}}, spec: {eks: {minSize: 1}}}"),
        ("conditionals", "[{annotationSelector: os, defaults: {spec: {eks: {minSize: 2}}}}]"),
    ]);
    let merged = merge_spec(&boundaries, json!({}));
    assert_eq!(*merged.annotations.as_map(), data(&[("os", "windows")]));
    assert_eq!(merged.spec, json!({"eks": {"minSize": 1}}));
}

#[test]
fn mismatched_kinds_are_an_error_with_path() {
    let boundaries = boundaries_for_path("merge", "spec.eks.configuration.tags", tags("a=d"), json!({}));
    let error =
        merge(&boundaries, &json!({"spec": {"eks": {"configuration": {"tags": {"a": "t"}}}}}), false).unwrap_err();
    assert_eq!(error.path, "spec.eks.configuration.tags");
    assert!(error.to_string().contains("a map cannot be merged with a list"), "{error}");
}

#[test]
fn excluded_group_is_not_merged() {
    let boundaries = boundaries_for_path("restricted", "spec.eks.minSize", size(2), size(3));
    let merged = merge(&boundaries, &json!({"spec": size(1)}), true).unwrap();
    assert_eq!((merged.spec, merged.hash.as_str(), merged.overridden.len()), (size(1), "", 0));
}

/// "Restricted" would send the tenant to the wrong list of the ConfigMap.
#[test]
fn value_below_a_merged_map_is_not_called_restricted() {
    let boundaries = parse(&[
        ("boundaries", "shared: {merge: [spec.eks]}"),
        ("defaults", "{spec: {eks: {configuration: {image: ami-good}}}}"),
    ]);
    let merged = merge_spec(&boundaries, json!({"eks": {"maxSize": 3, "configuration": {"keyPairName": "mine"}}}));
    assert_eq!(merged.spec, json!({"eks": {"maxSize": 3, "configuration": {"image": "ami-good"}}}));
    let messages: Vec<String> = merged.overridden.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "spec.eks.configuration.keyPairName: \"mine\" was not used: shared.merge of spec.eks takes the admin's spec.eks.configuration as a whole; ask your cluster admin to list spec.eks.configuration there instead"
        ]
    );
}

#[test]
fn overridden_values_name_their_replacement() {
    let boundaries = parse(&[
        (
            "boundaries",
            "{restricted: [spec.eks.configuration.image, spec.eks.configuration.keyPairName], shared: {merge: [spec.eks.configuration.tags, spec.eks.configuration.userData]}}",
        ),
        (
            "defaults",
            "{spec: {eks: {configuration: {image: ami-good, tags: [{key: owner, value: platform}], userData: [{name: a, data: canary-admin}]}}}}",
        ),
    ]);
    let tenant = json!({"eks": {"configuration": {
        "image": "ami-own", "keyPairName": "mine", "instanceType": "m5.large",
        "tags": [{"key": "Owner", "value": "me"}, {"key": "cost", "value": "1"}],
        "userData": [{"name": "A", "data": "canary-tenant"}],
    }}});
    let merged = merge_spec(&boundaries, tenant);
    let messages: Vec<String> = merged.overridden.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "spec.eks.configuration.image: \"ami-own\" was not used, default (restricted) is \"ami-good\"",
            "spec.eks.configuration.keyPairName: \"mine\" was not used, the field is restricted",
            r#"spec.eks.configuration.tags[owner]: {"key":"Owner","value":"me"} was not used, default (shared.merge) is {"key":"owner","value":"platform"}"#,
            "spec.eks.configuration.userData[a]: {2 keys} was not used, default (shared.merge) is {2 keys}",
        ]
    );
    let provenance: Vec<String> = merged.provenance.iter().map(|(path, source)| format!("{path} {source}")).collect();
    assert!(provenance.contains(&"spec.eks.configuration.tags[1].key tenant".to_owned()), "{provenance:?}");
}

#[test]
fn hash_covers_spec_and_ignores_foreign_annotations() {
    let none = Boundaries::default();
    let hash = |annotations: Value, spec: Value| {
        merge(&none, &json!({"metadata": {"annotations": annotations}, "spec": spec}), false).unwrap().hash
    };
    let plain = hash(json!({}), size(1));
    assert_eq!(plain, hash(json!({"kubectl.kubernetes.io/last-applied-configuration": "x"}), size(1)));
    assert_ne!(plain, hash(json!({"instancemgr.keikoproj.io/os-family": "windows"}), size(1)));
    assert_ne!(plain, hash(json!({}), size(2)));
    // A request for a reconcile must not count as a change of the spec, which hides that a resource was deleted.
    assert_eq!(plain, hash(json!({"instancemgr.keikoproj.io/reconcile-now": "2026-01-01T00:00:00Z"}), size(1)));
}
