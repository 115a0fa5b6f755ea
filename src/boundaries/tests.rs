use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

fn parse(pairs: &[(&str, &str)]) -> Boundaries {
    Boundaries::parse(&data(pairs)).expect("the ConfigMap is good").0
}

/// One boundary around one path, with the defaults of the spec and one conditional for groups annotated `os: windows`.
fn around(boundary: &str, path: &str, default: Value, conditional: Value) -> Boundaries {
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

fn merged(boundaries: &Boundaries, spec: Value) -> Effective {
    merge(boundaries, &json!({"spec": spec}), false).expect("the two fit")
}

fn windows(boundaries: &Boundaries, spec: Value) -> Effective {
    let group = json!({"metadata": {"annotations": {"os": "windows"}}, "spec": spec});
    merge(boundaries, &group, false).expect("the two fit")
}

fn size(number: u64) -> Value {
    if number == 0 { json!({}) } else { json!({"eks": {"minSize": number}}) }
}

#[test]
fn scalars_follow_the_table() {
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
        let boundaries = around(boundary, "spec.eks.minSize", size(default), size(conditional));
        let got = windows(&boundaries, size(tenant));
        assert_eq!(
            got.spec["eks"]["minSize"].as_u64().unwrap_or(0),
            outcome,
            "{boundary}: tenant {tenant}, default {default}, conditional {conditional}"
        );
        assert_eq!(got.refused.is_empty(), tenant == 0 || tenant == outcome, "{boundary} {tenant}");
    }
}

#[test]
fn a_default_reaches_a_group_only_through_a_boundary() {
    let boundaries = around("replace", "spec.eks.maxSize", json!({"eks": {"minSize": 2, "maxSize": 4}}), json!({}));
    assert_eq!(merged(&boundaries, json!({})).spec, json!({"eks": {"maxSize": 4}}));
}

fn labels(text: &str) -> Value {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    json!({"eks": {"configuration": {"labels": pairs.map(|(k, v)| (k.to_owned(), json!(v))).collect::<serde_json::Map<_, _>>()}}})
}

#[test]
fn maps_follow_the_table() {
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
        let boundaries = around(boundary, "spec.eks.configuration.labels", labels(default), labels(conditional));
        let got = windows(&boundaries, labels(tenant)).spec;
        let outcome = labels(outcome);
        let read = |spec: &Value| spec["eks"]["configuration"]["labels"].as_object().cloned().unwrap_or_default();
        assert_eq!(
            read(&got),
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
fn lists_follow_the_table() {
    for (boundary, tenant, default, conditional, outcome) in [
        ("restricted", "t", "d", "", "d"),
        ("replace", "t", "d", "", "t"),
        ("replace", "", "d", "c", "c"),
        ("merge", "t d", "d e", "", "d e t"),
        ("merge", "t", "d", "c", "c d t"),
        ("merge", "t t", "d", "", "d t"),
        ("mergeOverride", "t d", "d e", "c", "c d e t"),
    ] {
        let boundaries = around(boundary, "spec.eks.configuration.subnets", subnets(default), subnets(conditional));
        assert_eq!(
            windows(&boundaries, subnets(tenant)).spec,
            subnets(outcome),
            "{boundary}: {tenant}, {default}, {conditional}"
        );
    }
    for (boundary, tenant, default, conditional, outcome) in [
        ("merge", "a=t b=t", "a=d c=d", "", "a=d c=d b=t"),
        ("merge", "A=t b=t", "a=d", "", "a=d b=t"),
        ("merge", "a=t", "a=d c=d", "C=c", "C=c a=d"),
        ("merge", "b=1 b=2", "a=d", "", "a=d b=1"),
        ("merge", "=t", "=d =d", "", "=d =t"),
        ("mergeOverride", "A=t b=t", "a=d c=d", "", "A=t c=d b=t"),
        ("mergeOverride", "a=t", "a=d c=d", "c=c", "c=c a=t"),
        ("mergeOverride", "b=1 b=2", "a=d", "", "a=d b=2"),
        ("mergeOverride", "=t =d", "=d", "", "=d =t"),
    ] {
        let boundaries = around(boundary, "spec.eks.configuration.tags", tags(default), tags(conditional));
        assert_eq!(
            windows(&boundaries, tags(tenant)).spec,
            tags(outcome),
            "{boundary}: {tenant}, {default}, {conditional}"
        );
    }
}

#[test]
fn maps_merge_one_level_deep() {
    let default = json!({"strategy": {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}});
    let tenant = json!({"strategy": {"rollingUpdate": {"joinTimeout": "1m"}}});
    let by_default = merged(&around("merge", "spec.strategy", default.clone(), json!({})), tenant.clone());
    assert_eq!(by_default.spec, default);
    let by_tenant = merged(&around("mergeOverride", "spec.strategy", default, json!({})), tenant);
    let wanted = json!({"strategy": {"type": "rollingUpdate", "rollingUpdate": {"joinTimeout": "1m"}}});
    assert_eq!(by_tenant.spec, wanted);
}

#[test]
fn an_unset_strategy_counts_as_set_under_replace_only() {
    let default = json!({"strategy": {"type": "rollingUpdate"}});
    assert_eq!(merged(&around("replace", "spec.strategy", default.clone(), json!({})), json!({})).spec, json!({}));
    assert_eq!(merged(&around("merge", "spec.strategy", default.clone(), json!({})), json!({})).spec, default);
}

#[test]
fn the_last_conditional_that_matches_wins() {
    let conditionals = r#"
- {annotationSelector: 'os', defaults: {spec: {eks: {minSize: 1, maxSize: 1}}}}
- {annotationSelector: 'os = linux', defaults: {spec: {eks: {minSize: 2}}}}
- {annotationSelector: 'os = windows', defaults: {spec: {eks: {minSize: 3}}}}
"#;
    let boundaries =
        parse(&[("boundaries", "restricted: [spec.eks.minSize, spec.eks.maxSize]"), ("conditionals", conditionals)]);
    let got = windows(&boundaries, json!({}));
    assert_eq!(got.spec, json!({"eks": {"minSize": 3, "maxSize": 1}}));
    assert_eq!(got.provenance["spec.eks.minSize"].to_string(), "conditional 2 (restricted)");
}

#[test]
fn conditionals_see_the_annotations_from_before_the_merge() {
    let boundaries = parse(&[
        ("boundaries", "{restricted: [spec.eks.minSize], shared: {merge: [metadata.annotations]}}"),
        ("defaults", "{metadata: {annotations: {os: windows}}, spec: {eks: {minSize: 1}}}"),
        ("conditionals", "[{annotationSelector: os, defaults: {spec: {eks: {minSize: 2}}}}]"),
    ]);
    let got = merged(&boundaries, json!({}));
    assert_eq!(got.annotations, data(&[("os", "windows")]));
    assert_eq!(got.spec, json!({"eks": {"minSize": 1}}));
}

#[test]
fn different_kinds_are_an_error_that_names_the_path() {
    let boundaries = around("merge", "spec.eks.configuration.tags", tags("a=d"), json!({}));
    let error =
        merge(&boundaries, &json!({"spec": {"eks": {"configuration": {"tags": {"a": "t"}}}}}), false).unwrap_err();
    assert_eq!(error.path, "spec.eks.configuration.tags");
    assert!(error.to_string().contains("a map cannot be merged with a list"), "{error}");
}

#[test]
fn an_excluded_group_stays_as_it_is() {
    let boundaries = around("restricted", "spec.eks.minSize", size(2), size(3));
    let got = merge(&boundaries, &json!({"spec": size(1)}), true).unwrap();
    assert_eq!((got.spec, got.hash.as_str(), got.refused.len()), (size(1), "", 0));
}

#[test]
fn refused_values_are_named_with_the_winner() {
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
    let got = merged(&boundaries, tenant);
    let told: Vec<String> = got.refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "spec.eks.configuration.image: \"ami-own\" was not used, default (restricted) is \"ami-good\"",
            "spec.eks.configuration.keyPairName: \"mine\" was not used, the field is restricted",
            "spec.eks.configuration.tags[owner]: {2 keys} was not used, default (shared.merge) is {2 keys}",
            "spec.eks.configuration.userData[a]: {2 keys} was not used, default (shared.merge) is {2 keys}",
        ]
    );
    let provenance: Vec<String> = got.provenance.iter().map(|(path, source)| format!("{path} {source}")).collect();
    assert!(provenance.contains(&"spec.eks.configuration.tags[1].key tenant".to_owned()), "{provenance:?}");
}

#[test]
fn the_hash_tells_specs_apart_and_ignores_what_others_annotate() {
    let none = Boundaries::default();
    let hash = |annotations: Value, spec: Value| {
        merge(&none, &json!({"metadata": {"annotations": annotations}, "spec": spec}), false).unwrap().hash
    };
    let plain = hash(json!({}), size(1));
    assert_eq!(plain, hash(json!({"kubectl.kubernetes.io/last-applied-configuration": "x"}), size(1)));
    assert_ne!(plain, hash(json!({"instancemgr.keikoproj.io/os-family": "windows"}), size(1)));
    assert_ne!(plain, hash(json!({}), size(2)));
}

#[test]
fn the_revision_follows_the_text() {
    let one = parse(&[("defaults", "spec: {}")]);
    assert_eq!(one.revision(), parse(&[("defaults", "spec: {}"), ("other", "x")]).revision());
    assert_ne!(one.revision(), parse(&[("defaults", "spec: {} ")]).revision());
    assert_eq!(Boundaries::default().revision(), "");
}

#[test]
fn broken_config_maps_name_key_line_path_and_remedy() {
    for (key, text, wanted, reason) in [
        (
            "defaults",
            "spec:\n  eks:\n    minSize: three\n",
            "defaults line 3: spec.eks.minSize: \"three\" is not a whole number; write a whole number",
            "UnmarshalDefaults",
        ),
        (
            "boundaries",
            "restricted:\n- spec.eks\nshared: [x]\n",
            "boundaries line 3: shared: is not a map; write a map",
            "UnmarshalDefaults",
        ),
        (
            "boundaries",
            "restricted:\n- spec.eks\n- 3\n",
            "boundaries line 3: restricted[1]: is not a string; write a string",
            "UnmarshalDefaults",
        ),
        (
            "conditionals",
            "- annotationSelector: a\n- annotationSelector: 'a b'\n",
            "conditionals line 2: [1].annotationSelector: is not a selector: found \"b\" after \"a\", expected one of = == != > < in notin; use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'",
            "ApplyDefaults",
        ),
        (
            "conditionals",
            "- defaults:\n    spec: 3\n",
            "conditionals line 2: [0].defaults.spec: is not a map; write a map",
            "UnmarshalDefaults",
        ),
        (
            "policy",
            "roles: [a]\nmanagedPolcies: []\n",
            "policy line 2: managedPolcies: is not a rule of the policy; did you mean \"managedPolicies\"?",
            "UnmarshalDefaults",
        ),
        (
            "policy",
            "quotas:\n  'team-*':\n    maxGroups: many\n",
            "policy line 3: quotas.team-*.maxGroups: is not a whole number; write a whole number",
            "UnmarshalDefaults",
        ),
    ] {
        let error = Boundaries::parse(&data(&[(key, text)])).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.reason()), (wanted, reason));
    }
    let error = Boundaries::parse(&data(&[("defaults", "spec: [\n")])).unwrap_err();
    assert_eq!((error.key, error.reason()), ("defaults", "UnmarshalDefaults"));
}

#[test]
fn what_is_harmless_is_a_warning() {
    let (_, warnings) = Boundaries::parse(&data(&[
        ("boundaries", "restricted:\n- spec.eks.strategy\n- spec.eks.configuration\n- spec.eks-managed\n- spec.eks-fargate\n- spec.strategy\nsharde: {}\n"),
        ("defaults", "spec: {eks: {configuration: {clustrName: x, labels: {a: 'b c'}}}}"),
        ("default", ""),
    ]))
    .unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "default: default: is not a key that has a meaning here; did you mean \"defaults\"?",
            "boundaries line 7: sharde: has no meaning here; did you mean \"shared\"?",
            "boundaries line 2: restricted[0]: \"spec.eks.strategy\" names no field, so it has no effect; did you mean \"spec.strategy\"?",
            "defaults line 1: spec.eks.configuration.clustrName: \"x\" is not a field of an InstanceGroup; did you mean \"clusterName\"?",
            "defaults line 1: spec.eks.configuration.labels.a: \"b c\" is not a label value (letters, digits, '-', '_' and '.', a letter or digit at both ends); write a label value (letters, digits, '-', '_' and '.', a letter or digit at both ends)",
        ]
    );
}

#[test]
fn defaults_that_reach_no_group_are_a_warning() {
    let (_, warnings) = Boundaries::parse(&data(&[
        ("boundaries", "{restricted: [spec.eks.minSize, spec.eks.configuration], shared: {merge: [spec.strategy.type]}}"),
        ("defaults", "metadata:\n  annotations: {a: b}\nspec:\n  strategy: {type: crd, crd: {crdName: x}}\n  eks: {minSize: 1, maxSize: 2, configuration: {image: x}}\n"),
        ("conditionals", "- defaults:\n    spec: {provisioner: eks}\n"),
        ("policy", "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: []}"),
    ]))
    .unwrap();
    let told: Vec<String> =
        warnings.iter().map(|warning| format!("{} {:?} {}", warning.key, warning.line, warning.path)).collect();
    assert_eq!(
        told,
        [
            "defaults Some(2) metadata.annotations",
            "defaults Some(5) spec.eks.maxSize",
            "defaults Some(4) spec.strategy.crd",
            "conditionals Some(2) [0].defaults.spec.provisioner",
        ]
    );
}

#[test]
fn a_config_map_of_nonsense_gives_few_warnings_and_short_ones() {
    let lines: String = (0..5000).map(|n| format!("- {}{n}\n", "x".repeat(100))).collect();
    let text = format!("restricted:\n{lines}- {}\n", "y".repeat(10_000));
    let (_, warnings) = Boundaries::parse(&data(&[("boundaries", &text)])).unwrap();
    assert!(warnings.len() < 60 && warnings.iter().all(|warning| warning.to_string().len() < 2000));
}

#[test]
fn open_choices_of_power_are_a_warning() {
    let told = |policy: &str, boundaries: &str| -> Vec<String> {
        let found = Boundaries::parse(&data(&[("policy", policy), ("boundaries", boundaries)])).unwrap().1;
        found.into_iter().map(|warning| warning.path).collect()
    };
    assert_eq!(told("", ""), ["roles", "managedPolicies", "fargateNamespaces", "strategyKinds"]);
    assert_eq!(told("roles: []", ""), ["managedPolicies", "fargateNamespaces", "strategyKinds"]);
    assert_eq!(
        told("{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: []}", ""),
        Vec::<String>::new()
    );
    assert_eq!(
        told("{roles: [], managedPolicies: []}", "restricted: [spec.strategy, spec.eks-fargate]"),
        Vec::<String>::new()
    );
}

fn choose(policy: &str, configuration: Value) -> Vec<String> {
    let boundaries = parse(&[
        ("policy", policy),
        ("boundaries", "shared: {merge: [spec.eks.configuration.managedPolicies, spec.eks.configuration.roleName]}"),
        ("defaults", "spec: {eks: {configuration: {managedPolicies: [Platform], roleName: platform}}}"),
    ]);
    let effective = merged(&boundaries, json!({"eks": {"configuration": configuration}}));
    let found = boundaries.policy.check(&effective, "team-a", Counts { groups: 3, nodes: 30 });
    found.iter().map(|violation| format!("{} {}", violation.path, violation.value)).collect()
}

#[test]
fn the_policy_judges_what_tenants_choose_and_not_what_the_admin_supplies() {
    let none: Vec<String> = vec![];
    assert_eq!(choose("", json!({"roleName": "any"})), none);
    assert_eq!(choose("{roles: [team-*], managedPolicies: []}", json!({})), none);
    assert_eq!(choose("roles: [team-*]", json!({"roleName": "team-a-nodes", "instanceProfileName": "team-b"})), none);
    assert_eq!(choose("roles: [team-*]", json!({"roleName": "admin"})), ["spec.eks.configuration.roleName \"admin\""]);
    let policies =
        json!({"managedPolicies": ["S3Read", "arn:aws:iam::aws:policy/S3Read", "arn:aws:iam::1:policy/S3Read"]});
    assert_eq!(
        choose("managedPolicies: [S3*]", policies),
        ["spec.eks.configuration.managedPolicies[3] \"arn:aws:iam::1:policy/S3Read\""]
    );
    let arn =
        |name: &str| json!({"eks-managed": {"configuration": {"nodeRole": format!("arn:aws:iam::1:role/p/{name}")}}});
    for (name, refused) in [("team-a", 0), ("admin", 1)] {
        let boundaries = parse(&[("policy", "roles: [team-*]")]);
        let found = boundaries.policy.check(&merged(&boundaries, arn(name)), "team-a", Counts { groups: 1, nodes: 1 });
        let paths: Vec<_> = found.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, vec!["spec.eks-managed.configuration.nodeRole"; refused]);
        let fargate = json!({"eks-fargate": {"podExecutionRoleArn": format!("arn:aws:iam::1:role/{name}")}});
        let found = boundaries.policy.check(&merged(&boundaries, fargate), "team-a", Counts { groups: 1, nodes: 1 });
        assert_eq!(found.len(), refused);
    }
    assert_eq!(choose("quotas: {team-*: {maxGroups: 2, maxNodes: 30}, '*': {maxNodes: 29}}", json!({})).len(), 2);
    assert_eq!(choose("quotas: {other: {maxGroups: 0}}", json!({})), none);
}

#[test]
fn a_tenants_fargate_profile_takes_its_own_pods_and_those_of_listed_namespaces() {
    let refused = |policy: &str, namespace: &str, restricted: &str| -> Vec<String> {
        let boundaries = parse(&[
            ("policy", policy),
            ("boundaries", restricted),
            ("defaults", "spec: {eks-fargate: {selectors: [{namespace: kube-system}]}}"),
        ]);
        let effective = merged(
            &boundaries,
            json!({"eks-fargate": {"selectors": [{"namespace": namespace, "labels": {"a": "b"}}]}}),
        );
        let found = boundaries.policy.check(&effective, "team-a", Counts { groups: 1, nodes: 1 });
        found.into_iter().map(|violation| violation.path).collect()
    };
    let (list, none) = ("fargateNamespaces: [batch-*]", Vec::<String>::new());
    let path = ["spec.eks-fargate.selectors[0].namespace"];
    for (namespace, allowed) in [
        ("team-a", true),
        ("batch-7", true),
        ("batch-*", true),
        ("kube-system", false),
        ("*", false),
        ("batch-?", false),
    ] {
        assert_eq!(refused(list, namespace, "").is_empty(), allowed, "{namespace}");
    }
    assert_eq!(refused("fargateNamespaces: []", "*", ""), path);
    assert_eq!(refused("fargateNamespaces: ['*']", "batch-?", ""), none);
    assert_eq!(refused("", "kube-system", ""), none, "as the original, with a warning");
    assert_eq!(refused(list, "kube-system", "restricted: [spec.eks-fargate.selectors]"), none, "the admin's own");
}

#[test]
fn the_policy_limits_exclusion_and_strategies() {
    let asks = data(&[("instancemgr.keikoproj.io/config-excluded", "TRUE")]);
    let open = Policy::default();
    assert!(open.excluded("any", &asks) && !open.excluded("any", &data(&[])));
    let strict =
        parse(&[("policy", "{excludableNamespaces: [kube-*], strategyKinds: [Job.batch], strategyNamespaces: [ops]}")])
            .policy;
    assert!(strict.excluded("kube-system", &asks) && !strict.excluded("team-a", &asks));
    assert!(open.strategy_kind_allowed("Workflow", "argoproj.io") && !open.strategy_kind_allowed("Pod", ""));
    assert!(strict.strategy_kind_allowed("Job", "batch") && !strict.strategy_kind_allowed("Workflow", "argoproj.io"));
    for (namespace, allowed) in [("team-a", true), ("instance-manager", true), ("ops", true), ("team-b", false)] {
        assert_eq!(strict.strategy_namespace_allowed(namespace, "team-a", "instance-manager"), allowed, "{namespace}");
    }
}

#[test]
fn globs_match_whole_texts() {
    for (glob, text, wanted) in [
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*a*b*", "xxaxxbxx", true),
        ("", "a", false),
        ("team-*", "team-", true),
    ] {
        assert_eq!(matches_glob(glob, text), wanted, "{glob} {text}");
    }
}

/// Every boundary around paths of every kind, some above others.
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
    /// A fragment of a group whose texts all begin with the given mark.
    fn fragment(mark: &'static str)(
        min in prop::option::of(0_u64..3), strategy in prop::option::of(prop::bool::ANY), image in prop::option::of("[ab]?"),
        labels in prop::option::of(prop::collection::btree_map("[abc]", "[xy]?", 0..3)),
        tags in prop::option::of(prop::collection::vec(("[abA]?", "[xy]"), 0..4)),
        subnets in prop::option::of(prop::collection::vec("[abc]", 0..4)),
    ) -> Value {
        let mut spec = json!({"eks": {"configuration": {}}});
        let text = |text: &str| if text.is_empty() { json!("") } else { json!(format!("{mark}{text}")) };
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
    (list(), list(), list(), list()).prop_map(|(restricted, merge, over, replace)| {
        json!({"restricted": restricted, "shared": {"merge": merge, "mergeOverride": over, "replace": replace}})
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

/// Whether some boundary lies above another one. Then a second merge may find unset what the first one took away below.
fn nested(rules: &Value) -> bool {
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
    fn merging_is_idempotent(rules in boundaries().prop_filter("nested", |rules| !nested(rules)), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T"), windows in any::<bool>()) {
        let config = config(&rules, &default, &conditional);
        let annotations = if windows { json!({"os": "windows"}) } else { json!({}) };
        let once = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": tenant}), false).unwrap();
        let twice = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": once.spec}), false).unwrap();
        prop_assert_eq!(&once.spec, &twice.spec);
        prop_assert_eq!(once.hash, twice.hash);
    }

    #[test]
    fn restricted_never_lets_a_tenants_value_through(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T"), windows in any::<bool>()) {
        let config = config(&rules, &default, &conditional);
        let annotations = if windows { json!({"os": "windows"}) } else { json!({}) };
        let got = merge(&config, &json!({"metadata": {"annotations": annotations}, "spec": tenant}), false).unwrap();
        for path in rules["restricted"].as_array().unwrap() {
            let path = path.as_str().unwrap();
            for (at, source) in &got.provenance {
                let below = at.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
                prop_assert!(!below && at != path || source.origin != Origin::Tenant, "{at} is {source}");
            }
            let pointer = format!("/{}", path.replace('.', "/"));
            let whole = json!({"spec": got.spec, "metadata": {"annotations": got.annotations}});
            let text = whole.pointer(&pointer).unwrap_or(&Value::Null).to_string();
            prop_assert!(!text.contains("\"T"), "{path} holds {text}");
        }
    }

    #[test]
    fn every_value_that_was_set_and_not_got_is_told(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), tenant in fragment("T")) {
        let got = merge(&config(&rules, &default, &conditional), &json!({"spec": tenant}), false).unwrap();
        let image = &tenant["eks"]["configuration"]["image"];
        let lost = image.as_str().is_some_and(|image| !image.is_empty()) && got.spec["eks"]["configuration"]["image"] != *image;
        let told = got.refused.iter().any(|refused| "spec.eks.configuration.image".starts_with(&refused.path));
        prop_assert!(told || !lost, "{:?}", got.refused);
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
        let got = merge(&config(&rules, &default, &conditional), &json!({"spec": tenant}), false).unwrap();
        let mut found = vec![];
        leaves(&got.spec, "spec".to_owned(), &mut found);
        found.sort();
        prop_assert_eq!(found, got.provenance.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn no_group_panics(rules in boundaries(), default in fragment("d"), conditional in fragment("c"), group in any_json()) {
        let _ = merge(&config(&rules, &default, &conditional), &group, false);
        let _ = merge(&config(&rules, &default, &conditional), &json!({"spec": group}), false);
    }

    #[test]
    fn no_config_map_panics(parts in prop::collection::btree_map(prop::sample::select(KEYS.to_vec()), any_json(), 0..4)) {
        let data: BTreeMap<String, String> = parts.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect();
        if let Ok((boundaries, _)) = Boundaries::parse(&data) {
            let _ = merge(&boundaries, &json!({}), false);
        }
    }

    #[test]
    fn no_text_panics(text in "[-a-z:.*&\\[\\]{}' \n]{0,120}") {
        for key in KEYS {
            let _ = Boundaries::parse(&data(&[(key, &text)]));
        }
    }
}
