//! What the admin's policy lets tenants choose.

use super::*;

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
