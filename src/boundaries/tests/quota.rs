//! Quotas: which request of which group is refused.

use super::*;

fn policy(text: &str) -> Policy {
    parse(&[("policy", text)]).policy
}

/// Which of these groups a quota refuses, in the order of their creation: (exists, has, asks).
fn refused(policy: &Policy, groups: &[(bool, u64, u64)]) -> Vec<usize> {
    let claim = |(exists, held, requested): &(bool, u64, u64)| QuotaClaim {
        exists: *exists,
        held_nodes: *held,
        requested_nodes: *requested,
    };
    let mut usage = NamespaceUsage::held(groups.iter().map(claim));
    let mut refused = vec![];
    for (index, group) in groups.iter().enumerate() {
        let request = usage.request(claim(group));
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

proptest::proptest! {
    /// However groups change, one after the other, no quota is exceeded that was not exceeded before.
    #[test]
    fn quota_holds_for_every_history(changes in proptest::collection::vec((0usize..6, 0u64..15), 1..60)) {
        let quota = policy("quotas: {team: {maxNodes: 20, maxGroups: 4}}");
        let mut groups = vec![(false, 0, 0); 6];
        for (index, asked) in changes {
            groups[index].2 = asked;
            for allowed in 0..groups.len() {
                if groups[allowed].2 > 0 && !refused(&quota, &groups).contains(&allowed) {
                    groups[allowed] = (true, groups[allowed].2, groups[allowed].2);
                }
            }
            let held: u64 = groups.iter().map(|group| group.1).sum();
            proptest::prop_assert!(held <= 20 && groups.iter().filter(|group| group.0).count() <= 4, "{groups:?}");
        }
    }
}
