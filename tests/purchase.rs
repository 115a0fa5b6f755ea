//! How instances are bought: what a spec may say, and what is told of what it may not.

use std::collections::BTreeMap;

use instance_manager::api::decode_spec;
use instance_manager::provisioner::eks::wanted::{self, Wanted};
use instance_manager::provisioner::{GroupId, Problem};
use jiff::Timestamp;
use serde_json::Value;

fn parse(configuration: &str) -> Result<Wanted, Vec<Problem>> {
    let id = GroupId {
        namespace: "team".into(),
        name: "web".into(),
        uid: "uid-1".into(),
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        finalizer: true,
        annotations: BTreeMap::new(),
    };
    let text = format!(
        "provisioner: eks\neks: {{minSize: 2, maxSize: 4, configuration: {{clusterName: demo, image: ami-00000001, instanceType: m5.large, subnets: [subnet-1], securityGroups: [sg-1], {configuration}}}}}"
    );
    let spec: Value = serde_yaml::from_str(&text).expect("YAML");
    wanted::parse(&id, &BTreeMap::new(), &decode_spec(&spec).expect("a spec"))
}

fn mixed(policy: &str) -> Result<wanted::Mixed, Vec<Problem>> {
    Ok(parse(&format!("mixedInstancesPolicy: {{{policy}}}"))?.mixed.expect("a policy"))
}

const TYPES: &str = "instanceTypes: [{type: m5a.large}]";

#[test]
fn a_policy_says_in_awss_words_what_the_spec_says() {
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
        let told = format!(
            "{} {} {}% {}{pools}",
            d.on_demand_strategy, d.on_demand_base, d.on_demand_percent, d.spot_strategy
        );
        assert_eq!(told, expected, "{policy}");
    }
}

#[test]
fn the_primary_type_comes_first_and_no_type_twice() {
    let types = |policy: &str| {
        let types = mixed(policy).expect("a policy").types;
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
fn a_group_is_mixed_only_when_it_may_buy_spot() {
    let lifecycle = |policy: &str| {
        let wanted = parse(&format!("mixedInstancesPolicy: {{{policy}}}")).expect("a group");
        (wanted.lifecycle.as_str(), wanted.labels["instancemgr.keikoproj.io/lifecycle"].clone())
    };
    assert_eq!(lifecycle(TYPES), ("normal", "normal".into()));
    assert_eq!(lifecycle(&format!("spotRatio: 1, {TYPES}")), ("mixed", "mixed".into()));
}

#[test]
fn what_a_policy_may_not_say_is_told_with_its_field() {
    let many = (0..40).map(|n| format!("{{type: m5.{n}xlarge}}")).collect::<Vec<_>>().join(", ");
    let cases = [
        ("spotRatio: 50".to_owned(), "instanceTypes", "instancePool"),
        ("instancePool: Everything".into(), "instancePool", "SubFamilyFlexible"),
        (
            "instanceTypes: [{type: m5.xlarge, weight: 2}, {type: m5a.large}]".into(),
            "instanceTypes[1].weight",
            "m5a.large",
        ),
        ("instanceTypes: [{type: m5.xlarge, weight: 1000}]".into(), "instanceTypes[0].weight", "999"),
        ("instanceTypes: [{type: large}]".into(), "instanceTypes[0].type", "no instance type"),
        ("instanceTypes: [{type: m5a.large}, {type: m5a.large}]".into(), "instanceTypes[1].type", "twice"),
        (format!("instanceTypes: [{many}]"), "instanceTypes", "fewer than 40"),
        (format!("spotPools: 2, strategy: CapacityOptimized, {TYPES}"), "spotPools", "LowestPrice"),
        (format!("spotRatio: 101, {TYPES}"), "spotRatio", "0 to 100"),
        (format!("baseCapacity: -1, {TYPES}"), "baseCapacity", "0 to 10000"),
    ];
    for (policy, field, word) in cases {
        let problems = mixed(&policy).expect_err(&policy);
        assert_eq!(problems.len(), 1, "{policy}: {problems:?}");
        assert_eq!(problems[0].path, format!("spec.eks.configuration.mixedInstancesPolicy.{field}"), "{policy}");
        assert!(problems[0].to_string().contains(word), "{policy}: {}", problems[0]);
    }
}
