//! Annotations of a group: each goes through the boundaries, and the labels in `default-labels` through those of `labels`.

use super::*;
use crate::api::names::annotation;

const LABELS: &str = "spec.eks.configuration.labels";

fn merge_annotated(boundaries: &Boundaries, annotations: Value, spec: Value) -> MergedSpec {
    merge(boundaries, &json!({"metadata": {"annotations": annotations}, "spec": spec}), false).expect("the kinds match")
}

fn messages(merged: &MergedSpec) -> Vec<String> {
    merged.overridden.iter().map(ToString::to_string).collect()
}

#[test]
fn default_labels_obey_the_boundaries_of_labels() {
    // boundary, path, the tenant's annotation, what remains of it, the labels that were dropped.
    for (boundary, path, own, remaining, dropped) in [
        ("restricted", LABELS, "team=mine,new=1", None, vec!["team", "new"]),
        ("restricted", "spec.eks.configuration", "new=1", None, vec!["new"]),
        ("restricted", "spec.eks.configuration.labels.a.b/team", "a.b/team=x,new=1", Some("new=1"), vec!["a.b/team"]),
        ("restricted", LABELS, "team=platform", Some("team=platform"), vec![]),
        ("restricted", "spec.eks.minSize", "team=mine", Some("team=mine"), vec![]),
        ("merge", LABELS, "team=mine, new=1 ,odd", Some("new=1,odd"), vec!["team"]),
        ("merge", LABELS, "new=1 , odd", Some("new=1 , odd"), vec![]),
        ("merge", LABELS, "team=platform,team=mine", None, vec!["team"]),
        ("merge", "spec.eks.configuration", "new=1", None, vec!["new"]),
        ("mergeOverride", LABELS, "team=mine", Some("team=mine"), vec![]),
        ("replace", LABELS, "team=mine", Some("team=mine"), vec![]),
    ] {
        let default = json!({"eks": {"configuration": {"labels": {"team": "platform", "a.b/team": "platform"}}}});
        let boundaries = boundaries_for_path(boundary, path, default, json!({}));
        let merged = merge_annotated(&boundaries, json!({annotation::DEFAULT_LABELS: own}), json!({}));
        assert_eq!(merged.annotations.get(annotation::DEFAULT_LABELS), remaining, "{boundary} {path} {own}");
        let paths: Vec<_> = merged.overridden.iter().map(|value| value.path.clone()).collect();
        let expected: Vec<_> =
            dropped.iter().map(|key| format!("metadata.annotations.{}[{key}]", annotation::DEFAULT_LABELS)).collect();
        assert_eq!(paths, expected, "{boundary} {path} {own}");
    }
}

#[test]
fn dropped_default_label_names_the_value_that_applies() {
    let labels = json!({"eks": {"configuration": {"labels": {"team": "platform"}}}});
    let boundaries = boundaries_for_path("restricted", LABELS, labels, json!({}));
    let merged = merge_annotated(&boundaries, json!({annotation::DEFAULT_LABELS: "team=mine,new=1"}), json!({}));
    assert_eq!(
        messages(&merged),
        [
            "metadata.annotations.instancemgr.keikoproj.io/default-labels[team]: \"mine\" was not used, default (restricted) is \"platform\"",
            "metadata.annotations.instancemgr.keikoproj.io/default-labels[new]: \"1\" was not used, the field is restricted",
        ]
    );
}

#[test]
fn default_labels_of_the_admin_and_of_excluded_groups_are_not_limited() {
    let boundaries = parse(&[
        ("boundaries", "{restricted: [spec.eks.configuration.labels, metadata.annotations]}"),
        ("defaults", "{metadata: {annotations: {instancemgr.keikoproj.io/default-labels: a=admin}}}"),
    ]);
    let own = json!({annotation::DEFAULT_LABELS: "a=tenant"});
    let merged = merge_annotated(&boundaries, own.clone(), json!({}));
    assert_eq!(merged.annotations.get(annotation::DEFAULT_LABELS), Some("a=admin"));
    let excluded = merge(&boundaries, &json!({"metadata": {"annotations": own}}), true).unwrap();
    assert_eq!(excluded.annotations.get(annotation::DEFAULT_LABELS), Some("a=tenant"));
}

#[test]
fn boundary_can_name_one_annotation() {
    let annotations = json!({annotation::OS_FAMILY: "windows", annotation::ROTATE_AT: "x", "other": "y"});
    for (list, outcome) in
        [("restricted", "bottlerocket"), ("shared: {merge", "windows"), ("shared: {replace", "windows")]
    {
        let end = if list.starts_with("shared") { "}" } else { "" };
        let boundaries = parse(&[
            ("boundaries", &format!("{{{list}: [metadata.annotations.instancemgr.keikoproj.io/os-family]{end}}}")),
            ("defaults", "{metadata: {annotations: {instancemgr.keikoproj.io/os-family: bottlerocket}}}"),
        ]);
        let merged = merge_annotated(&boundaries, annotations.clone(), json!({}));
        assert_eq!(merged.annotations.get(annotation::OS_FAMILY), Some(outcome), "{list}");
        assert_eq!(
            (merged.annotations.get("other"), merged.annotations.get(annotation::ROTATE_AT)),
            (Some("y"), Some("x"))
        );
        let unset = merge_annotated(&boundaries, json!({}), json!({}));
        assert_eq!(unset.annotations.get(annotation::OS_FAMILY), Some("bottlerocket"), "{list}");
    }
    let warnings = |path: &str| {
        let text = format!("restricted: ['{path}']");
        let (_, found) = Boundaries::parse(&data(&[
            ("boundaries", &text),
            (
                "policy",
                "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}",
            ),
        ]))
        .unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("metadata.annotations.instancemgr.keikoproj.io/os-family"), [""; 0]);
    assert_eq!(warnings("metadata.annotations.example.com/mine"), [""; 0]);
    let misspelled = warnings("metadata.annotations.instancemgr.keikoproj.io/os-famly");
    assert!(
        misspelled[0].contains("is not a known annotation") && misspelled[0].contains("os-family"),
        "{misspelled:?}"
    );
}

/// The admin can restrict each annotation of a group that the controller reads.
#[test]
fn every_annotation_can_be_restricted_alone() {
    for key in crate::api::annotations::group_annotations() {
        let boundaries = parse(&[("boundaries", &format!("restricted: [metadata.annotations.{key}]"))]);
        let merged = merge_annotated(&boundaries, json!({key: "true", "other": "y"}), json!({}));
        assert_eq!(*merged.annotations.as_map(), data(&[("other", "y")]), "{key}");
        assert_eq!(
            messages(&merged),
            [format!("metadata.annotations.{key}: \"true\" was not used, the field is restricted")]
        );
    }
}

#[test]
fn lock_annotation_of_a_group_is_merged_by_the_boundaries() {
    let lock = data(&[(annotation::LOCK_UPGRADES, "true")]);
    let path = format!("metadata.annotations.{}", annotation::LOCK_UPGRADES);
    let admins = json!({"metadata": {"annotations": {annotation::LOCK_UPGRADES: "true"}}}).to_string();
    for (restricted, defaults, tenants_lock, without) in [
        ("spec.eks.minSize", "", true, false),
        ("metadata.annotations", "", false, false),
        (path.as_str(), "", false, false),
        (path.as_str(), admins.as_str(), true, true),
    ] {
        let boundaries = parse(&[("boundaries", &format!("restricted: [{restricted}]")), ("defaults", defaults)]);
        assert_eq!(is_group_locked(&boundaries, &lock, false), tenants_lock, "{restricted} {defaults}");
        assert_eq!(is_group_locked(&boundaries, &data(&[]), false), without, "{restricted} {defaults}");
        assert!(is_group_locked(&boundaries, &lock, true), "an excluded group");
    }
    let conditional = format!("- annotationSelector: 'team = a'\n  defaults: {admins}\n");
    let shared = "shared: {merge: [metadata.annotations]}";
    let boundaries = parse(&[("boundaries", shared), ("conditionals", conditional.as_str())]);
    for (team, expected) in [("a", true), ("b", false)] {
        assert_eq!(is_group_locked(&boundaries, &data(&[("team", team)]), false), expected, "{team}");
    }
}

/// The lock of a group is read from its annotations alone; it must be the lock that the whole merge shows.
#[test]
fn annotations_merged_alone_equal_those_of_the_whole_merge() {
    let defaults = json!({
        "metadata": {"annotations": {annotation::LOCK_UPGRADES: "true", annotation::DEFAULT_LABELS: "a=admin", "x": "admin"}},
        "spec": {"eks": {"configuration": {"labels": {"team": "platform"}}}},
    });
    let conditionals = json!([{
        "annotationSelector": "x = conditional",
        "defaults": {"metadata": {"annotations": {"y": "conditional", annotation::OS_FAMILY: "windows"}}},
    }]);
    let paths =
        ["metadata", "metadata.annotations", "metadata.annotations.x", "metadata.annotations.y", LABELS, "spec.eks"];
    for list in ["restricted", "merge", "mergeOverride", "replace"] {
        for path in paths {
            let rules = match list {
                "restricted" => json!({"restricted": [path]}),
                shared => json!({"shared": {shared: [path]}}),
            };
            let boundaries = parse(&[
                ("boundaries", &rules.to_string()),
                ("defaults", &defaults.to_string()),
                ("conditionals", &conditionals.to_string()),
            ]);
            for own in [
                data(&[]),
                data(&[("x", "mine"), (annotation::DEFAULT_LABELS, "team=mine,new=1")]),
                data(&[("x", "conditional"), (annotation::LOCK_UPGRADES, "false")]),
            ] {
                let alone = merge_annotations(&boundaries, &own).expect("the kinds match");
                let whole = merge_annotated(&boundaries, json!(own), json!({}));
                assert_eq!(alone, *whole.annotations.as_map(), "{list} {path} {own:?}");
            }
        }
    }
}
