//! Values that AWS always refuses are rejected before anything is read.

use super::*;

/// The paths of the errors in a spec, relative to `spec.eks.configuration`.
fn errors(name: &str, extra: &str) -> Vec<String> {
    let base = "provisioner: eks\neks: {minSize: 2, maxSize: 4, configuration: {clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let mut id = common::group_id(3, timestamp(LONG_AGO));
    name.clone_into(&mut id.name);
    let spec = decode_spec(&spec).expect("a spec");
    let errors = desired::parse(&id, &common::annotations(&[]), &spec).err().unwrap_or_default();
    let path = |error: SpecError| error.path.trim_start_matches("spec.eks.configuration.").to_owned();
    errors.into_iter().map(path).collect()
}

fn errors_in(configuration: &str) -> Vec<String> {
    errors("web", &format!("eks: {{configuration: {{{configuration}}}}}"))
}

/// The read of such a name fails each time, and with it the read of the groups that share the call.
#[test]
fn names_above_the_limits_of_aws_are_rejected() {
    // demo-team-: 10 characters.
    assert_eq!(errors(&"n".repeat(245), "{}"), Vec::<String>::new());
    assert_eq!(errors(&"n".repeat(246), "{}"), ["metadata.name"]);
    for (configuration, path) in [
        (format!("clusterName: {}", "c".repeat(101)), "clusterName"),
        ("clusterName: demo.1".to_owned(), "clusterName"),
        (format!("roleName: {}", "r".repeat(65)), "roleName"),
        ("roleName: team/nodes".to_owned(), "roleName"),
        (format!("roleName: r, instanceProfileName: {}", "p".repeat(129)), "instanceProfileName"),
    ] {
        assert_eq!(errors_in(&configuration), [path], "{configuration}");
    }
    assert_eq!(errors_in("roleName: a+b=c, instanceProfileName: d_e@f.g"), Vec::<String>::new());
}

#[test]
fn values_that_aws_always_refuses_are_rejected() {
    for (configuration, path) in [
        (
            "tagSpecifications: [{resourceType: snapshot, tags: [{key: a, value: b}]}]",
            "tagSpecifications[0].resourceType",
        ),
        ("tagSpecifications: [{tags: [{key: a, value: b}]}]", "tagSpecifications[0].resourceType"),
        ("metadataOptions: {httpEndpoint: disabled}", "metadataOptions.httpEndpoint"),
        ("volumes: [{name: /dev/xvda, size: 32}, {name: /dev/xvda, size: 9}]", "volumes[1].name"),
        ("lifecycleHooks: [{name: drain nodes, lifecycle: launch}]", "lifecycleHooks[0].name"),
        ("lifecycleHooks: [{name: a, lifecycle: launch, metadata: ü}]", "lifecycleHooks[0].metadata"),
    ] {
        assert_eq!(errors_in(configuration), [path], "{configuration}");
    }
    for accepted in [
        "tagSpecifications: [{resourceType: spot-instances-request, tags: [{key: a, value: b}]}]",
        "tagSpecifications: [{resourceType: snapshot}]",
        "metadataOptions: {httpEndpoint: enabled, httpTokens: required, httpPutHopLimit: 1}",
        "volumes: [{name: /dev/xvda, type: io2, size: 32, iops: 3000}, {name: /dev/xvdb, type: gp3, size: 9, throughput: 125}]",
        "lifecycleHooks: [{name: team/drain, lifecycle: launch, metadata: '{\"a\": 1}'}]",
    ] {
        assert_eq!(errors_in(accepted), Vec::<String>::new(), "{accepted}");
    }
}

/// `--register-with-taints` takes the place of the taints that the controller writes.
#[test]
fn argument_that_replaces_the_taints_is_reported() {
    let events = |configuration: &str| {
        let group = new_group(resolved(&format!("eks: {{configuration: {{{configuration}}}}}"), &[]));
        let events = group.plan().events.into_iter().filter(|event| event.reason == "FieldIgnored");
        events.map(|event| event.message).collect::<Vec<_>>()
    };
    let taints = "taints: [{key: a, value: b, effect: NoSchedule}]";
    let found = events(&format!("{taints}, bootstrapArguments: '--register-with-taints=c=d:NoSchedule'"));
    assert!(found.len() == 1 && found[0].contains("--register-with-taints"), "{found:?}");
    assert!(events(taints).is_empty());
    assert!(events("bootstrapArguments: '--register-with-taints=c=d:NoSchedule'").is_empty());
}

#[test]
fn end_of_amazon_linux_2_is_reported_with_each_version() {
    let warns = |family: &str| {
        let group = new_group(resolved("{}", &[("os-family", family)]));
        group.plan().events.iter().any(|event| event.reason == "OsFamilyOutOfSupport")
    };
    assert!(warns("amazonlinux2") && !warns("amazonlinux2023") && !warns("bottlerocket"));
    assert!(converged().plan().events.is_empty(), "a group that creates no version is left alone");
}
