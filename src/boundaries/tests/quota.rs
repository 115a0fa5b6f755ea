//! Quotas: which request of which group is refused.

use super::*;
use crate::api::NodeDemand;

fn policy(text: &str) -> Policy {
    parse(&[("policy", text)]).policy
}

fn nodes(nodes: u64) -> QuotaAmounts {
    QuotaAmounts { nodes, ..QuotaAmounts::default() }
}

/// Which of these groups a quota refuses, in the order of their creation: (exists, has, requests).
fn refused(policy: &Policy, groups: &[(bool, u64, u64)]) -> Vec<usize> {
    let claim = |(exists, used, requested): &(bool, u64, u64)| QuotaClaim {
        exists: *exists,
        used: nodes(*used),
        requested: nodes(*requested),
    };
    refused_claims(policy, &groups.iter().map(claim).collect::<Vec<_>>())
}

fn refused_claims(policy: &Policy, claims: &[QuotaClaim]) -> Vec<usize> {
    let mut usage = NamespaceUsage::sum(claims.iter().copied());
    let mut refused = vec![];
    for (index, claim) in claims.iter().enumerate() {
        let request = usage.request(*claim);
        match policy.allows("team", &request) {
            true => usage = request.usage,
            false => refused.push(index),
        }
    }
    refused
}

#[test]
fn only_the_request_that_newly_exceeds_is_refused() {
    let none: [usize; 0] = [];
    let ten = policy("quotas: {te*: {maxNodes: 10, maxGroups: 3}}");
    for (groups, expected, why) in [
        (vec![(true, 5, 5), (true, 5, 5)], vec![], "within the limit"),
        (vec![(true, 5, 10), (true, 5, 5)], vec![0], "the older group asks for more; the younger is a bystander"),
        (vec![(true, 5, 5), (true, 5, 6)], vec![1], "the younger group asks for more"),
        (vec![(false, 0, 10), (true, 10, 10)], vec![0], "an older group is created late"),
        (vec![(true, 20, 20), (true, 5, 5)], vec![], "over the limit: nodes may be replaced"),
        (vec![(true, 20, 15), (true, 5, 5)], vec![], "over the limit: a group may shrink"),
        (vec![(true, 20, 5), (true, 0, 5)], vec![1], "what a group still has counts while it shrinks"),
        (vec![(false, 0, 6), (false, 0, 6), (false, 0, 4)], vec![1], "what is refused does not count"),
        (vec![(false, 0, 1), (false, 0, 1), (false, 0, 1), (false, 0, 1)], vec![3], "a group too many"),
        (vec![(true, 1, 1), (true, 1, 1), (true, 1, 1), (true, 1, 2)], vec![], "more groups than the limit"),
        (vec![(false, 0, u64::MAX), (false, 0, 1), (true, 9, 9)], vec![0], "sums saturate"),
    ] {
        assert_eq!(refused(&ten, &groups), expected, "{why}");
        assert_eq!(refused(&policy("quotas: {other: {maxNodes: 0}}"), &groups), none);
    }
}

/// What one group has and requests: nodes, nodes of a surge, and vCPUs.
fn claim(exists: bool, used: (u64, u64, Option<u64>), requested: (u64, u64, Option<u64>)) -> QuotaClaim {
    let amounts = |(nodes, surge, vcpus)| QuotaAmounts { nodes, surge, vcpus };
    QuotaClaim { exists, used: amounts(used), requested: amounts(requested) }
}

/// AWS's own quotas count vCPUs, and a tenant who may have ten nodes could have ten of the largest.
#[test]
fn vcpus_and_surges_are_limited_by_the_same_rules() {
    let none: [usize; 0] = [];
    let limits = policy("quotas: {te*: {maxVcpus: 64, maxSurge: 3}}");
    for (groups, expected, why) in [
        (vec![claim(false, (0, 0, Some(0)), (8, 0, Some(64)))], vec![], "within the limit"),
        (vec![claim(false, (0, 0, Some(0)), (9, 0, Some(72)))], vec![0], "too many vCPUs"),
        (vec![claim(true, (4, 0, Some(8)), (4, 0, Some(384)))], vec![0], "a larger instance type, and no more nodes"),
        (vec![claim(true, (4, 0, Some(384)), (4, 0, Some(384)))], vec![], "over the limit: it keeps what it has"),
        (vec![claim(true, (4, 0, Some(384)), (4, 0, Some(192)))], vec![], "over the limit: it may shrink"),
        (vec![claim(false, (0, 0, Some(0)), (1, 0, None))], vec![0], "unknown is not zero"),
        (vec![claim(true, (4, 0, Some(8)), (4, 0, None))], vec![0], "another type, whose vCPUs are unknown"),
        (vec![claim(true, (4, 0, None), (4, 0, None))], vec![], "what is not known to grow is kept"),
        (vec![claim(true, (4, 0, None), (5, 0, None))], vec![0], "more nodes of an unknown size"),
        (
            vec![claim(true, (1, 0, None), (1, 0, None)), claim(true, (1, 0, Some(2)), (2, 0, Some(4)))],
            vec![1],
            "beside a group of unknown size, it is unknown whether more fits",
        ),
        (
            vec![claim(true, (1, 0, None), (1, 0, None)), claim(true, (2, 0, Some(4)), (1, 0, Some(2)))],
            vec![],
            "beside it, a group may shrink",
        ),
        (vec![claim(false, (0, 0, Some(0)), (9, 4, Some(18)))], vec![0], "too large a surge"),
        (
            vec![claim(true, (5, 2, Some(8)), (5, 2, Some(8))), claim(true, (3, 0, Some(6)), (5, 2, Some(10)))],
            vec![1],
            "the younger group asks for a surge",
        ),
        (vec![claim(true, (9, 5, Some(18)), (8, 4, Some(16)))], vec![], "over the limit: a smaller surge"),
        (vec![claim(true, (u64::MAX, 0, Some(u64::MAX)), (u64::MAX, 0, Some(u64::MAX)))], vec![], "sums saturate"),
    ] {
        assert_eq!(refused_claims(&limits, &groups), expected, "{why}");
        assert_eq!(refused_claims(&policy("quotas: {other: {maxVcpus: 0}}"), &groups), none);
    }
}

/// "1 nodes: reduce it by 7" would be no help to a tenant whose other groups use the whole quota.
#[test]
fn remedy_of_a_used_up_quota_is_possible() {
    let limits = policy("quotas: {team: {maxNodes: 12}}");
    let found = |asked: u64, others: u64| {
        let (new, other) =
            (claim(false, (0, 0, None), (asked, 0, None)), claim(true, (others, 0, None), (others, 0, None)));
        let request = NamespaceUsage::sum([new, other].into_iter()).request(new);
        limits.exceeded_quotas(&json!({}), "team", &request).iter().map(ToString::to_string).collect::<String>()
    };
    let full = found(1, 18);
    assert!(full.contains("1 node ") && full.contains("other groups have 18"), "{full}");
    assert!(full.contains("another group") && !full.contains("reduce it"), "{full}");
    assert!(found(6, 10).contains("reduce it by 4"), "{}", found(6, 10));
}

/// A tenant must see which of its fields is the cause.
#[test]
fn exceeded_limit_names_the_field_that_asks_for_more() {
    let limits = policy("quotas: {team: {maxVcpus: 64, maxSurge: 3}}");
    let found = |claim: QuotaClaim, spec: Value| {
        let request = NamespaceUsage::sum([claim].into_iter()).request(claim);
        limits.exceeded_quotas(&spec, "team", &request).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let larger = claim(true, (4, 0, Some(8)), (4, 0, Some(384)));
    assert_eq!(
        found(larger, json!({"provisioner": "eks-managed"})),
        [
            "spec.eks-managed.configuration.instanceType: 384 vCPUs is more than policy.quotas[team] leaves: team may have 64 vCPUs, and its other groups have 0; use 320 fewer, with smaller sizes or instance types (each node counts as the largest listed type), or ask your cluster admin for a higher quota"
        ]
    );
    let more = found(claim(true, (4, 0, Some(8)), (50, 0, Some(100))), json!({}));
    assert!(more.len() == 1 && more[0].starts_with("spec.eks.maxSize: 100 vCPUs"), "{more:?}");
    let unknown = found(claim(true, (4, 0, Some(8)), (4, 0, None)), json!({}));
    assert!(unknown[0].contains("instanceType: an unknown number of vCPUs cannot be compared"), "{unknown:?}");
    let surge = found(claim(true, (4, 0, Some(8)), (9, 5, Some(18))), json!({}));
    assert!(surge[0].starts_with("spec.strategy.rollingUpdate.maxSurge: 5 nodes of a surge"), "{surge:?}");
}

#[test]
fn quota_usage_of_a_group_is_what_was_last_allowed() {
    let of_type = |name: &str| (name == "m5.large").then_some(2);
    let demand = |nodes, surge| NodeDemand { nodes, surge, types: vec![("m5.large".into(), 1)] };
    let used = |status: Value, nodes: u64, demand: &NodeDemand| {
        let status = serde_json::from_value(status).expect("a status");
        let QuotaAmounts { surge, vcpus, .. } = QuotaAmounts::used(&status, nodes, demand, &of_type);
        (surge, vcpus)
    };
    assert_eq!(used(json!({}), 0, &demand(5, 2)), (0, Some(0)), "a new group");
    assert_eq!(used(json!({"currentMax": 4}), 4, &demand(5, 2)), (2, Some(8)), "a status older than the limits");
    let recorded = json!({"currentMax": 4, "quotaNodes": 4, "quotaSurge": 1, "quotaVcpus": 64});
    assert_eq!(used(recorded.clone(), 4, &demand(4, 2)), (1, Some(64)));
    assert_eq!(used(recorded, 6, &demand(4, 2)), (1, Some(96)), "nodes that leave count while they are there");
    let unknown = NodeDemand { types: vec![("x9.huge".into(), 1)], ..demand(4, 0) };
    assert_eq!(used(json!({"currentMax": 4}), 4, &unknown), (0, None));
}

#[test]
fn levels_show_the_smallest_limit_of_each_resource() {
    let limits = policy("quotas: {te*: {maxNodes: 10, maxVcpus: 64}, team: {maxNodes: 7}}");
    let usage = NamespaceUsage::sum([claim(true, (3, 0, None), (3, 0, None))].into_iter());
    let levels = limits.quota_levels("team", &usage);
    let found: Vec<_> = levels.iter().map(|level| (level.resource, level.used, level.limit)).collect();
    assert_eq!(found, [("nodes", Some(3), 7), ("vcpus", None, 64)]);
    assert_eq!(limits.quota_levels("other", &usage), []);
}

proptest::proptest! {
    /// However groups change, one after the other, no quota is exceeded that was not exceeded before.
    #[test]
    fn quota_is_never_exceeded_whatever_the_order_of_changes(changes in proptest::collection::vec((0usize..6, 0u64..15), 1..60)) {
        let quota = policy("quotas: {team: {maxNodes: 20, maxGroups: 4}}");
        let mut groups = vec![(false, 0, 0); 6];
        for (index, asked) in changes {
            groups[index].2 = asked;
            for allowed in 0..groups.len() {
                if groups[allowed].2 > 0 && !refused(&quota, &groups).contains(&allowed) {
                    groups[allowed] = (true, groups[allowed].2, groups[allowed].2);
                }
            }
            let used: u64 = groups.iter().map(|group| group.1).sum();
            proptest::prop_assert!(used <= 20 && groups.iter().filter(|group| group.0).count() <= 4, "{groups:?}");
        }
    }
}
