//! The admin's policy: allowed and rejected values.

use super::*;
use crate::boundaries::glob::matches_glob;

#[test]
fn unrestricted_choices_are_warnings() {
    let warning_paths = |policy: &str, boundaries: &str| -> Vec<String> {
        let found = Boundaries::parse(&data(&[("policy", policy), ("boundaries", boundaries)])).unwrap().1;
        found.into_iter().map(|warning| warning.path).collect()
    };
    assert_eq!(
        warning_paths("", ""),
        ["roles", "managedPolicies", "fargateNamespaces", "excludableNamespaces", "strategyKinds"]
    );
    assert_eq!(
        warning_paths("roles: []", ""),
        ["managedPolicies", "fargateNamespaces", "excludableNamespaces", "strategyKinds"]
    );
    assert_eq!(
        warning_paths(
            "{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}",
            ""
        ),
        Vec::<String>::new()
    );
    assert_eq!(
        warning_paths("{roles: [], managedPolicies: []}", "restricted: [spec.strategy, spec.eks-fargate]"),
        ["excludableNamespaces"]
    );
}

/// The request of a new group for this many nodes, beside so many older groups without nodes.
fn request(older: usize, nodes: u64) -> QuotaRequest {
    let exists = QuotaClaim { exists: true, ..QuotaClaim::default() };
    let requested = QuotaAmounts { nodes, ..QuotaAmounts::default() };
    NamespaceUsage::sum(std::iter::repeat_n(exists, older)).request(QuotaClaim { requested, ..QuotaClaim::default() })
}

fn violations_for(policy: &str, configuration: Value) -> Vec<String> {
    let boundaries = parse(&[
        ("policy", policy),
        ("boundaries", "shared: {merge: [spec.eks.configuration.managedPolicies, spec.eks.configuration.roleName]}"),
        ("defaults", "spec: {eks: {configuration: {managedPolicies: [Platform], roleName: platform}}}"),
    ]);
    let effective = merge_spec(&boundaries, json!({"eks": {"configuration": configuration}}));
    let found = boundaries.policy.check(&effective, "team-a", &request(2, 30));
    found.iter().map(|violation| format!("{} {}", violation.path, violation.value)).collect()
}

#[test]
fn policy_checks_tenant_values_only() {
    let none: Vec<String> = vec![];
    assert_eq!(violations_for("", json!({"roleName": "any"})), none);
    assert_eq!(violations_for("{roles: [team-*], managedPolicies: []}", json!({})), none);
    assert_eq!(
        violations_for("roles: [team-*]", json!({"roleName": "team-a-nodes", "instanceProfileName": "team-b"})),
        none
    );
    assert_eq!(
        violations_for("roles: [team-*]", json!({"roleName": "admin"})),
        ["spec.eks.configuration.roleName \"admin\""]
    );
    let hooks = |role: &str| json!({"lifecycleHooks": [{"name": "a"}, {"name": "b", "roleArn": format!("arn:aws:iam::1:role/{role}")}]});
    assert_eq!(
        violations_for("roles: [team-*]", hooks("admin")),
        ["spec.eks.configuration.lifecycleHooks[1].roleArn \"arn:aws:iam::1:role/admin\""]
    );
    assert_eq!(violations_for("roles: [team-*]", hooks("team-a")), none);
    assert_eq!(violations_for("", hooks("admin")), none);
    let policies =
        json!({"managedPolicies": ["S3Read", "arn:aws:iam::aws:policy/S3Read", "arn:aws:iam::1:policy/S3Read"]});
    assert_eq!(
        violations_for("managedPolicies: [S3*]", policies),
        ["spec.eks.configuration.managedPolicies[3] \"arn:aws:iam::1:policy/S3Read\""]
    );
    let arn =
        |name: &str| json!({"eks-managed": {"configuration": {"nodeRole": format!("arn:aws:iam::1:role/p/{name}")}}});
    for (name, violations) in [("team-a", 0), ("admin", 1)] {
        let boundaries = parse(&[("policy", "roles: [team-*]")]);
        let found = boundaries.policy.check(&merge_spec(&boundaries, arn(name)), "team-a", &request(0, 1));
        let paths: Vec<_> = found.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, vec!["spec.eks-managed.configuration.nodeRole"; violations]);
        let fargate = json!({"eks-fargate": {"podExecutionRoleArn": format!("arn:aws:iam::1:role/{name}")}});
        let found = boundaries.policy.check(&merge_spec(&boundaries, fargate), "team-a", &request(0, 1));
        assert_eq!(found.len(), violations);
    }
    assert_eq!(
        violations_for("quotas: {team-*: {maxGroups: 2, maxNodes: 30}, '*': {maxNodes: 29}}", json!({})).len(),
        2
    );
    assert_eq!(violations_for("quotas: {other: {maxGroups: 0}}", json!({})), none);
}

#[test]
fn quota_names_the_field_of_the_provisioner() {
    let boundaries = parse(&[("policy", "quotas: {team-a: {maxNodes: 9}}")]);
    let merged = merge_spec(&boundaries, json!({"provisioner": "eks-managed", "eks-managed": {"maxSize": 1}}));
    let found = boundaries.policy.check(&merged, "team-a", &request(1, 10));
    assert_eq!(found.iter().map(|violation| violation.path.as_str()).collect::<Vec<_>>(), ["spec.eks-managed.maxSize"]);
}

#[test]
fn fargate_selectors_are_limited_to_own_and_listed_namespaces() {
    let violations = |policy: &str, namespace: &str, restricted: &str| -> Vec<String> {
        let boundaries = parse(&[
            ("policy", policy),
            ("boundaries", restricted),
            ("defaults", "spec: {eks-fargate: {selectors: [{namespace: kube-system}]}}"),
        ]);
        let effective = merge_spec(
            &boundaries,
            json!({"eks-fargate": {"selectors": [{"namespace": namespace, "labels": {"a": "b"}}]}}),
        );
        let found = boundaries.policy.check(&effective, "team-a", &request(0, 1));
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
        assert_eq!(violations(list, namespace, "").is_empty(), allowed, "{namespace}");
    }
    assert_eq!(violations("fargateNamespaces: []", "*", ""), path);
    assert_eq!(violations("fargateNamespaces: ['*']", "batch-?", ""), none);
    assert_eq!(violations("", "kube-system", ""), none, "as in the Keiko controller, with a warning");
    assert_eq!(violations(list, "kube-system", "restricted: [spec.eks-fargate.selectors]"), none, "the admin's own");
}

#[test]
fn policy_limits_exclusion_and_strategies() {
    let requested = data(&[("instancemgr.keikoproj.io/config-excluded", "TRUE")]);
    let open = Policy::default();
    assert!(open.is_excluded("any", &requested) && !open.is_excluded("any", &data(&[])));
    let strict =
        parse(&[("policy", "{excludableNamespaces: [kube-*], strategyKinds: [Job.batch], strategyNamespaces: [ops]}")])
            .policy;
    assert!(strict.is_excluded("kube-system", &requested) && !strict.is_excluded("team-a", &requested));
    assert!(open.is_strategy_kind_allowed("Workflow", "argoproj.io") && !open.is_strategy_kind_allowed("Pod", ""));
    assert!(
        strict.is_strategy_kind_allowed("Job", "batch") && !strict.is_strategy_kind_allowed("Workflow", "argoproj.io")
    );
    for (namespace, allowed) in [("team-a", true), ("instance-manager", false), ("ops", true), ("team-b", false)] {
        assert_eq!(strict.is_strategy_namespace_allowed(namespace, "team-a"), allowed, "{namespace}");
    }
    let listed = parse(&[("policy", "strategyScripts: [ops-*]")]).policy;
    assert!(listed.are_scripts_allowed("ops-1") && !listed.are_scripts_allowed("team-a"));
    assert!(!open.are_scripts_allowed("ops-1"));
}

#[test]
fn policy_limits_who_recommends_spot_prices() {
    assert!(Policy::default().is_spot_namespace_allowed("any"));
    let listed = parse(&[("policy", "spotRecommendationNamespaces: [ops-*]")]).policy;
    assert!(listed.is_spot_namespace_allowed("ops-1") && !listed.is_spot_namespace_allowed("team"));
}

#[test]
fn policy_limits_which_namespaces_lock_their_groups() {
    assert!(Policy::default().is_namespace_lockable("any"));
    let listed = parse(&[("policy", "lockableNamespaces: [prod-*]")]).policy;
    assert!(listed.is_namespace_lockable("prod-1") && !listed.is_namespace_lockable("team"));
    assert!(!parse(&[("policy", "lockableNamespaces: []")]).policy.is_namespace_lockable("team"));
}

#[test]
fn policy_protects_groups_from_deletion() {
    let policy = parse(&[("policy", "protectDeletion: [prod-*]")]).policy;
    assert!(policy.is_deletion_protected("prod-1") && !policy.is_deletion_protected("team"));
    assert!(!Policy::default().is_deletion_protected("prod-1"));
}

#[test]
fn globs_match_whole_texts() {
    for (glob, text, matches) in [
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*a*b*", "xxaxxbxx", true),
        ("", "a", false),
        ("team-*", "team-", true),
    ] {
        assert_eq!(matches_glob(glob, text), matches, "{glob} {text}");
    }
}
