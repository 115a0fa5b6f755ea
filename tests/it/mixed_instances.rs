//! Purchase options in the spec: which values are valid, and which errors the others cause.

use crate::aws::samples;
use crate::common;

use instance_manager::api::decode_spec;
use instance_manager::api::spec_error::SpecError;
use instance_manager::aws::InstanceType;
use instance_manager::provisioner::eks::desired;
use instance_manager::provisioner::eks::desired::DesiredSpec;
use instance_manager::provisioner::eks::references::References;
use instance_manager::provisioner::eks::resolve::resolve;
use instance_manager::provisioner::name_form::NameForm;
use jiff::Timestamp;
use serde_json::Value;

fn parse(configuration: &str) -> Result<DesiredSpec, Vec<SpecError>> {
    let id = common::group_id(1, Timestamp::UNIX_EPOCH);
    let text = format!(
        "provisioner: eks\neks: {{minSize: 2, maxSize: 4, configuration: {{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1], {configuration}}}}}"
    );
    let spec: Value = serde_yaml::from_str(&text).expect("YAML");
    desired::parse(&id, &common::annotations(&[]), &decode_spec(&spec).expect("a spec"))
}

fn mixed(policy: &str) -> Result<desired::MixedInstances, Vec<SpecError>> {
    Ok(parse(&format!("mixedInstancesPolicy: {{{policy}}}"))?.mixed_instances.expect("a policy"))
}

const TYPES: &str = "instanceTypes: [{type: m5a.large}]";

#[test]
fn policy_uses_aws_terms() {
    let cases = [
        ("", "prioritized 0 100% capacity-optimized"),
        ("spotRatio: 60", "prioritized 0 40% capacity-optimized"),
        ("spotRatio: '60%', baseCapacity: 2", "prioritized 2 40% capacity-optimized"),
        ("strategy: lowestprice", "prioritized 0 100% lowest-price 2"),
        ("strategy: LowestPrice, spotPools: 20", "prioritized 0 100% lowest-price 20"),
        ("spotPools: 3", "prioritized 0 100% lowest-price 3"),
        ("strategy: LowestPrice, spotPools: 21", "prioritized 0 100% lowest-price 2"),
        ("strategy: PriceCapacityOptimized", "prioritized 0 100% price-capacity-optimized"),
        ("strategy: CapacityOptimizedPrioritized", "prioritized 0 100% capacity-optimized-prioritized"),
        ("onDemandAllocationStrategy: LowestPrice", "lowest-price 0 100% capacity-optimized"),
    ];
    for (policy, expected) in cases {
        let separator = if policy.is_empty() { "" } else { ", " };
        let d = mixed(&format!("{policy}{separator}{TYPES}")).expect("a policy").distribution;
        let pools = d.spot_pools.map(|n| format!(" {n}")).unwrap_or_default();
        let terms = format!(
            "{} {} {}% {}{pools}",
            d.on_demand_strategy, d.on_demand_base, d.on_demand_percent, d.spot_strategy
        );
        assert_eq!(terms, expected, "{policy}");
    }
}

#[test]
fn primary_type_is_first_and_types_are_unique() {
    let types = |policy: &str| {
        let types = mixed(policy).expect("a policy").overrides;
        types.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(types(TYPES), ["m5.large", "m5a.large"]);
    assert_eq!(
        types("instanceTypes: [{type: m5a.large, weight: 1}, {type: m5.large, weight: 1}]"),
        ["m5.large", "m5a.large"]
    );
    assert_eq!(
        types("instanceTypes: [{type: m5.xlarge, weight: 4}, {type: m5.large, weight: 2}]"),
        ["m5.large x2", "m5.xlarge x4"]
    );
    assert_eq!(types("instancePool: subfamilyflexible"), ["m5.large"]);
}

#[test]
fn lifecycle_is_mixed_only_with_spot_capacity() {
    let lifecycle = |policy: &str| {
        let desired = parse(&format!("mixedInstancesPolicy: {{{policy}}}")).expect("a group");
        (desired.lifecycle.as_str(), desired.labels["instancemgr.keikoproj.io/lifecycle"].clone())
    };
    assert_eq!(lifecycle(TYPES), ("normal", "normal".into()));
    assert_eq!(lifecycle(&format!("spotRatio: 1, {TYPES}")), ("mixed", "mixed".into()));
}

/// The Keiko controller treats it so, and nodes of such a group run today.
#[test]
fn type_without_a_weight_among_others_weighs_one() {
    let found = mixed("instanceTypes: [{type: m5.xlarge, weight: 2}, {type: m5a.large}]").expect("a policy");
    let weights: Vec<_> = found.overrides.iter().map(|o| (o.instance_type.as_str(), o.weight)).collect();
    assert_eq!(weights, [("m5.large", 1), ("m5.xlarge", 2), ("m5a.large", 1)]);
}

#[test]
fn invalid_policies_are_reported_by_field() {
    let many = (0..40).map(|n| format!("{{type: m5.{n}xlarge}}")).collect::<Vec<_>>().join(", ");
    let cases = [
        ("spotRatio: 50".to_owned(), "instanceTypes", "instancePool"),
        ("instancePool: Everything".into(), "instancePool", "SubFamilyFlexible"),
        ("instanceTypes: [{type: m5.xlarge, weight: 1000}]".into(), "instanceTypes[0].weight", "999"),
        ("instanceTypes: [{type: large}]".into(), "instanceTypes[0].type", "not a valid instance type"),
        ("instanceTypes: [{type: m5a.large}, {type: m5a.large}]".into(), "instanceTypes[1].type", "twice"),
        (format!("instanceTypes: [{many}]"), "instanceTypes", "at most 40"),
        (format!("spotPools: 2, strategy: CapacityOptimized, {TYPES}"), "spotPools", "LowestPrice"),
        (format!("spotRatio: 101, {TYPES}"), "spotRatio", "0 to 100"),
        (format!("baseCapacity: -1, {TYPES}"), "baseCapacity", "0 to 10000"),
    ];
    for (policy, field, word) in cases {
        let errors = mixed(&policy).expect_err(&policy);
        assert_eq!(errors.len(), 1, "{policy}: {errors:?}");
        assert_eq!(errors[0].path, format!("spec.eks.configuration.mixedInstancesPolicy.{field}"), "{policy}");
        assert!(errors[0].to_string().contains(word), "{policy}: {}", errors[0]);
    }
}

#[test]
fn spot_price_is_validated_and_exclusive() {
    let spot = parse("spotPrice: '0.08'").expect("a group");
    assert_eq!((spot.lifecycle.as_str(), spot.spot_price.as_deref()), ("spot", Some("0.08")));
    let both = parse(&format!("spotPrice: nonsense, mixedInstancesPolicy: {{{TYPES}}}")).expect("a group");
    assert_eq!((both.lifecycle.as_str(), both.spot_price, both.spot_price_ignored), ("normal", None, true));
    for (configuration, word) in [
        ("spotPrice: '$1'", "not a valid price"),
        ("spotPrice: '0'", "not a valid price"),
        ("spotPrice: '0.1', placement: {tenancy: host}", "tenancy"),
    ] {
        let errors = parse(configuration).expect_err(configuration);
        assert_eq!(errors[0].path, "spec.eks.configuration.spotPrice");
        assert!(errors[0].to_string().contains(word), "{configuration}: {}", errors[0]);
    }
}

#[test]
fn unknown_and_incompatible_types_are_reported() {
    let of = |name: &str, architecture: &str| {
        let architectures = vec![architecture.to_owned()];
        (name.to_owned(), Some(InstanceType { name: name.into(), architectures, ..InstanceType::default() }))
    };
    let desired =
        parse("mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}, {type: m6g.large}, {type: m5.huge}]}");
    let cluster = samples::cluster("demo");
    let object = |id: &str| vec![samples::network_object(id)];
    let references = References {
        cluster: Some(cluster),
        subnets: object("subnet-1"),
        security_groups: object("sg-1"),
        mixed_types: [
            of("m5.large", "x86_64"),
            of("m5a.large", "x86_64"),
            of("m6g.large", "arm64"),
            ("m5.huge".into(), None),
        ]
        .into(),
        ..References::default()
    };
    let errors = resolve(desired.expect("a group"), &references, NameForm::Plain).expect_err("two invalid types");
    let errors: Vec<_> =
        errors.iter().map(|p| (p.path.rsplit("Policy.").next().unwrap_or_default(), p.rule.as_str())).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(errors[0], ("instanceTypes[1].type", "is arm64, but m5.large is x86_64: one image cannot boot both"));
    assert_eq!(errors[1], ("instanceTypes[2].type", "is not an instance type of this region"));
}
