//! Errors and warnings about a ConfigMap.

use super::*;

#[test]
fn revision_changes_with_the_text() {
    let one = parse(&[("defaults", "spec: {}")]);
    assert_eq!(one.revision(), parse(&[("defaults", "spec: {}"), ("other", "x")]).revision());
    assert_ne!(one.revision(), parse(&[("defaults", "spec: {} ")]).revision());
    assert_eq!(Boundaries::default().revision(), "");
}

#[test]
fn config_errors_name_key_line_path_and_remedy() {
    for (key, text, message, reason) in [
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
            "restricted:\n- spec.eks\n- [3]\n",
            "boundaries line 3: restricted[1]: is not a string; write a string",
            "UnmarshalDefaults",
        ),
        (
            "boundaries",
            "restricted: []\nsharde: {}\n",
            "boundaries line 2: sharde: is not a known key; did you mean \"shared\"?",
            "UnmarshalDefaults",
        ),
        (
            "boundaries",
            "shared:\n  merge-overide: []\n",
            "boundaries line 2: shared.merge-overide: is not a known key; did you mean \"mergeOverride\"?",
            "UnmarshalDefaults",
        ),
        (
            "conditionals",
            "- annotationSelector: a\n  default: {}\n",
            "conditionals line 2: [0].default: is not a known key; did you mean \"defaults\"?",
            "UnmarshalDefaults",
        ),
        (
            "conditionals",
            "- annotationSelector: a\n- annotationSelector: 'a b'\n",
            "conditionals line 2: [1].annotationSelector: is not a valid selector: found \"b\" after \"a\", expected one of = == != > < in notin; use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'",
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
            "policy line 2: managedPolcies: is not a known policy key; did you mean \"managedPolicies\"?",
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
        assert_eq!((error.to_string().as_str(), error.reason()), (message, reason));
    }
    let error = Boundaries::parse(&data(&[("defaults", "spec: [\n")])).unwrap_err();
    assert_eq!((error.errors[0].key, error.reason()), ("defaults", "UnmarshalDefaults"));
}

/// All mistakes are reported at the same time, so that one apply corrects them.
#[test]
fn errors_of_all_keys_are_listed_together_by_key_and_line() {
    let found = Boundaries::parse(&data(&[
        (
            "rollout",
            "patience: 0s\nwaves:\n- {name: a, soak: 90, percent: 0}\n- {nmae: a}\nwindows:\n- {from: '2200', to: x, zone: UTC}\nchecks:\n- {name: A B, qery: up}\nbudget: {nodes: 0, surge: 0}\n",
        ),
        ("policy", "roles: [[a], {}]\nmanagedPolcies: []\nquotas:\n  t: {maxGroups: many, maxNoddes: 3}\n"),
        (
            "conditionals",
            "- annotationSelector: 'a b'\n  defaults:\n    spec: {eks: {maxSize: many}}\n- 3\n- defaults: {metadata: [x], spec: []}\n",
        ),
        (
            "defaults",
            "metadata: {annotations: {a: [b]}}\nspec:\n  eks:\n    minSize: three\n    configuration:\n      subnets: [[a]]\n      clustrName: x\n      securityGroups: {a: b}\n",
        ),
        ("boundaries", "restricted:\n- [3]\n- {}\nsharde: {}\nshared: [x]\n"),
        ("boundries", ""),
    ]))
    .unwrap_err();
    let places: Vec<_> =
        found.errors.iter().map(|e| format!("{} {} {}", e.key, e.line.unwrap_or_default(), e.path)).collect();
    assert_eq!(
        places,
        [
            "boundaries 2 restricted[0]",
            "boundaries 3 restricted[1]",
            "boundaries 4 sharde",
            "boundaries 5 shared",
            "defaults 1 metadata.annotations.a",
            "defaults 4 spec.eks.minSize",
            "defaults 6 spec.eks.configuration.subnets[0]",
            "defaults 8 spec.eks.configuration.securityGroups",
            "conditionals 1 [0].annotationSelector",
            "conditionals 3 [0].defaults.spec.eks.maxSize",
            "conditionals 4 [1]",
            "conditionals 5 [2].defaults.metadata",
            "conditionals 5 [2].defaults.spec",
            "policy 1 roles[0]",
            "policy 1 roles[1]",
            "policy 2 managedPolcies",
            "policy 4 quotas.t.maxGroups",
            "policy 4 quotas.t.maxNoddes",
            "rollout 1 patience",
            "rollout 3 waves[0].percent",
            "rollout 3 waves[0].soak",
            "rollout 4 waves[1].nmae",
            "rollout 6 windows[0].from",
            "rollout 6 windows[0].to",
            "rollout 8 checks[0].qery",
            "rollout 8 checks[0].name",
            "rollout 9 budget.nodes",
            "rollout 9 budget.surge",
        ]
    );
    assert!(found.errors.iter().all(|error| !error.remedy.is_empty()));
    let unknown: Vec<_> = found.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(unknown, ["", "spec.eks.configuration.clustrName"], "unknown fields are reported in the same round");
    let message = found.to_string();
    assert!(message.contains("defaults line 4: spec.eks.minSize: \"three\" is not a whole number"), "{message}");
    assert!(message.ends_with("There are 8 more errors; instance-manager lint shows them as these are corrected"));
    let unreadable = Boundaries::parse(&data(&[("defaults", "spec: [\n"), ("policy", "role: []\n")])).unwrap_err();
    assert_eq!(unreadable.errors.iter().map(|error| error.key).collect::<Vec<_>>(), ["defaults", "policy"]);
}

#[test]
fn many_errors_are_counted_rather_than_listed() {
    let text: String = (0..200).map(|number| format!("- [{number}]\n")).collect();
    let found = Boundaries::parse(&data(&[("boundaries", &format!("restricted:\n{text}"))])).unwrap_err();
    assert_eq!((found.errors.len(), found.omitted), (50, 150));
    assert!(found.to_string().contains("There are 180 more errors"));
}

#[test]
fn keys_are_read_in_any_case() {
    let exact = parse(&[
        (
            "boundaries",
            "{restricted: [spec.eks.minSize], shared: {merge: [spec.eks], mergeOverride: [spec.strategy], replace: [spec.eks.maxSize]}}",
        ),
        ("conditionals", "[{annotationSelector: os, defaults: {spec: {eks: {minSize: 2}}}}]"),
        ("policy", "{managedPolicies: [a], quotas: {t: {maxGroups: 1, maxNodes: 2}}}"),
    ]);
    let other = parse(&[
        (
            "boundaries",
            "{Restricted: [spec.eks.minSize], SHARED: {Merge: [spec.eks], mergeoverride: [spec.strategy], REPLACE: [spec.eks.maxSize]}}",
        ),
        ("conditionals", "[{annotationselector: os, Defaults: {spec: {eks: {minSize: 2}}}}]"),
        ("policy", "{ManagedPolicies: [a], QUOTAS: {t: {maxgroups: 1, MaxNodes: 2}}}"),
    ]);
    assert_eq!((&exact.restricted, &exact.replace), (&other.restricted, &other.replace));
    assert_eq!((&exact.merge, &exact.merge_override), (&other.merge, &other.merge_override));
    assert!(exact.conditionals == other.conditionals && exact.policy == other.policy);
    let twice = data(&[("boundaries", "{Restricted: [spec.eks.minSize], restricted: [spec.eks]}")]);
    let (boundaries, warnings) = Boundaries::parse(&twice).unwrap();
    assert_eq!(boundaries.restricted.iter().map(ToString::to_string).collect::<Vec<_>>(), ["spec.eks"]);
    assert!(warnings[0].message.contains("duplicate"), "{warnings:?}");
}

#[test]
fn texts_that_the_keiko_controller_reads_are_valid() {
    let (boundaries, warnings) = Boundaries::parse(&data(&[
        ("boundaries", "---\nrestricted:\n- spec.eks.minSize\n- spec.eks.maxSize\n- spec.eks-managed\n- spec.eks.configuration\n- 3\n-\n---\n"),
        ("defaults", "metadata: {annotations: {a: }}\nspec:\n  eks:\n    minSize: 3.0\n    maxSize: 010\n    configuration:\n      labels: {gpu: }\n      tags: [{key: x, value: }]\n---\nspec: {}\n"),
        ("conditionals", "- annotationSelector: a in ()\n- annotationSelector: 3\n-\n"),
        ("policy", "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}"),
    ]))
    .unwrap();
    let expected = json!({"eks": {"minSize": 3, "maxSize": 8, "configuration": {"labels": {"gpu": ""}}}});
    let mut merged = merge_spec(&boundaries, json!({"eks": {"minSize": 9}})).spec;
    let tags = merged["eks"]["configuration"].as_object_mut().unwrap().remove("tags").unwrap();
    assert_eq!(merged, expected);
    assert_eq!(tags[0]["key"], "x");
    let warned: Vec<String> = warnings.iter().map(|warning| format!("{} {}", warning.key, warning.path)).collect();
    assert_eq!(
        warned,
        [
            "defaults ---",
            "boundaries restricted[4]",
            "boundaries restricted[5]",
            "defaults spec.eks.maxSize",
            "defaults metadata.annotations",
        ]
    );
}

#[test]
fn harmless_mistakes_are_warnings() {
    let (_, warnings) = Boundaries::parse(&data(&[
        ("boundaries", "restricted:\n- spec.eks.strategy\n- spec.eks.configuration\n- spec.eks-managed\n- spec.eks-fargate\n- spec.strategy\nowner: platform\n"),
        ("defaults", "spec: {eks: {configuration: {clustrName: x, labels: {a: 'b c'}}}}"),
        ("default", ""),
    ]))
    .unwrap();
    let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "default: is not a known key and has no effect; did you mean \"defaults\"?",
            "boundaries line 7: owner: is not a known key and has no effect; remove it",
            "boundaries line 2: restricted[0]: \"spec.eks.strategy\" matches no field and has no effect; did you mean \"spec.strategy\"?",
            "defaults line 1: spec.eks.configuration.clustrName: \"x\" is not a field of an InstanceGroup; did you mean \"clusterName\"?",
            "defaults line 1: spec.eks.configuration.labels.a: \"b c\" is not a label value (letters, digits, '-', '_' and '.', a letter or digit at both ends); write a label value (letters, digits, '-', '_' and '.', a letter or digit at both ends)",
            "policy: excludableNamespaces: without this list, who may annotate a Namespace can exclude its groups from boundaries and defaults; list the namespaces ([] for none, [\"*\"] for all)",
        ]
    );
}

/// "List spec.eks.configuration.subnetz under restricted" would be followed by "matches no field".
#[test]
fn default_that_is_not_a_field_is_not_to_be_listed_in_the_boundaries() {
    let (boundaries, policy) = ("restricted:\n- spec.eks.configuration.subnets\n", CLOSED);
    let warnings = |configuration: &str| {
        let defaults = format!("spec: {{eks: {{configuration: {{{configuration}}}}}}}");
        let found = data(&[("boundaries", boundaries), ("defaults", &defaults), ("policy", policy)]);
        Boundaries::parse(&found).unwrap().1.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let typo = warnings("subnetz: [a]");
    assert!(typo.len() == 1 && typo[0].contains("did you mean \"subnets\"?"), "{typo:?}");
    let unlisted = warnings("image: ami-1");
    assert!(unlisted.len() == 1 && unlisted[0].contains("no boundary lists it"), "{unlisted:?}");
}

#[test]
fn error_of_the_yaml_syntax_says_where_to_look() {
    let found = Boundaries::parse(&data(&[("boundaries", "restricted: [\nshared:\n  merge: []\n")])).unwrap_err();
    let message = found.errors[0].to_string();
    assert!(message.contains("brackets") && message.contains("before it"), "{message}");
}

const CLOSED: &str =
    "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}";

#[test]
fn paths_in_two_lists_are_warnings_with_their_lines() {
    let warnings = |text: &str| {
        let found = Boundaries::parse(&data(&[("boundaries", text), ("policy", CLOSED)])).unwrap().1;
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warnings(
            "restricted:\n- ''\n- spec.eks.minSize\nshared:\n  merge:\n  - spec.eks.minSize\n  - spec.eks.maxSize\n  replace:\n  - spec.eks.maxSize\n  - spec.eks.type\n  - spec.eks.type\n",
        ),
        [
            "boundaries line 2: restricted[0]: \"\" is not a dotted path; write a path such as spec.eks.minSize",
            "boundaries line 11: shared.replace[2]: spec.eks.type is listed twice; keep one of the two",
            "boundaries line 7: shared.merge[1]: spec.eks.maxSize is also listed under shared.replace, and both apply; keep one of the two",
            "boundaries line 3: restricted[1]: spec.eks.minSize is also listed under shared.merge, and restricted wins; keep one of the two",
        ]
    );
    let covered = "restricted: [spec.eks]\nshared:\n  merge:\n  - spec.eks.configuration.tags\n";
    assert_eq!(
        warnings(covered),
        [
            "boundaries line 4: shared.merge[0]: spec.eks.configuration.tags has no effect, because restricted lists spec.eks; remove it, or restrict less than spec.eks"
        ]
    );
    let none: [&str; 0] = [];
    assert_eq!(warnings("restricted: [spec.eks.configuration.image]\nshared: {merge: [spec.eks]}"), none);
}

#[test]
fn globs_that_match_nothing_are_warnings_with_their_lines() {
    let warnings = |text: &str| {
        let found = Boundaries::parse(&data(&[("policy", text)])).unwrap().1;
        let about_globs = found.iter().filter(|warning| warning.message.contains("matches no"));
        about_globs.map(ToString::to_string).collect::<Vec<_>>()
    };
    let good = "{roles: ['*', 'team-?', 'arn:aws:iam::1:role/a/b'], managedPolicies: [Amazon*], strategyKinds: [Job.batch], strategyNamespaces: [ops], protectDeletion: ['prod-*'], quotas: {'team-??': {maxNodes: 1}}}";
    assert_eq!(warnings(good), [""; 0]);
    assert_eq!(
        warnings("excludableNamespaces:\n- kube-*\n- team-[ab]\nroles: ['te am']\nquotas: {Team-*: {maxNodes: 1}}"),
        [
            "policy line 4: roles[0]: \"te am\" matches no role or policy; use a name or an ARN, with * for any characters and ? for one",
            "policy line 3: excludableNamespaces[1]: \"team-[ab]\" matches no namespace; use lower-case letters, digits and dashes, with * for any characters and ? for one",
            "policy line 5: quotas.Team-*: \"Team-*\" matches no namespace; use lower-case letters, digits and dashes, with * for any characters and ? for one",
        ]
    );
    for text in [
        "protectDeletion: ['']",
        "strategyKinds: [Workflow]",
        "strategyKinds: ['*.argoproj.io']",
        "strategyNamespaces: ['ops-*']",
    ] {
        assert_eq!(warnings(text).len(), 1, "{text}");
    }
}

#[test]
fn unreachable_defaults_are_warnings() {
    let (_, warnings) = Boundaries::parse(&data(&[
        ("boundaries", "{restricted: [spec.eks.minSize, spec.eks.configuration], shared: {merge: [spec.strategy.type]}}"),
        ("defaults", "metadata:\n  annotations: {a: b}\nspec:\n  strategy: {type: crd, crd: {crdName: x}}\n  eks: {minSize: 1, maxSize: 2, configuration: {image: x}}\n"),
        ("conditionals", "- defaults:\n    spec: {provisioner: eks}\n"),
        ("policy", "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}"),
    ]))
    .unwrap();
    let messages: Vec<String> =
        warnings.iter().map(|warning| format!("{} {:?} {}", warning.key, warning.line, warning.path)).collect();
    assert_eq!(
        messages,
        [
            "defaults Some(2) metadata.annotations",
            "defaults Some(5) spec.eks.maxSize",
            "defaults Some(4) spec.strategy.crd",
            "conditionals Some(2) [0].defaults.spec.provisioner",
        ]
    );
}

#[test]
fn warnings_are_few_and_short() {
    let lines: String = (0..5000).map(|n| format!("- {}{n}\n", "x".repeat(100))).collect();
    let text = format!("restricted:\n{lines}- {}\n", "y".repeat(10_000));
    let (_, warnings) = Boundaries::parse(&data(&[("boundaries", &text)])).unwrap();
    assert!(warnings.len() < 60 && warnings.iter().all(|warning| warning.to_string().len() < 2000));
}

#[test]
fn open_extension_of_a_restricted_field_is_a_warning() {
    let policy = "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}";
    let warnings = |boundaries: &str| {
        let found = Boundaries::parse(&data(&[("boundaries", boundaries), ("policy", policy)])).unwrap().1;
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let managed = "spec.eks-managed.configuration";
    let found = warnings(&format!("restricted: [{managed}.instanceType]"));
    assert_eq!(
        found,
        ["instanceTypes", "capacityType"].map(|field| format!(
            "boundaries line 1: {managed}.instanceType: is restricted, and {managed}.{field}, which extends it, is open to tenants; restrict {managed}.{field} too, or list it under shared"
        ))
    );
    let none: [&str; 0] = [];
    for closed in [
        format!("restricted: [{managed}]"),
        format!(
            "{{restricted: [{managed}.instanceType, {managed}.capacityType], shared: {{replace: [{managed}.instanceTypes]}}}}"
        ),
        "restricted: [spec.strategy]".to_owned(),
        "shared: {replace: [spec.strategy.rollingUpdate.maxUnavailable]}".to_owned(),
    ] {
        assert_eq!(warnings(&closed), none, "{closed}");
    }
    assert_eq!(warnings("restricted: [spec.strategy.rollingUpdate.maxUnavailable]").len(), 5);
}

#[test]
fn extensions_name_known_fields() {
    for (field, extensions) in crate::boundaries::parse::EXTENSIONS {
        for path in extensions.iter().chain([&field]) {
            assert!(
                crate::api::schema::is_known_path(crate::boundaries::path::Path::parse(path).unwrap().segments()),
                "{path}"
            );
        }
    }
}
