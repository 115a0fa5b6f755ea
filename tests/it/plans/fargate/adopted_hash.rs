//! The hash of the spec that a profile was adopted with is in its tags too. A status that is lost must not end an adoption,
//! which deletes pods without regard to their budgets.

use super::*;

const ADOPTED_HASH: &str = "instancegroups.keikoproj.io/AdoptedHash";
const ELSEWHERE: &str = "eks-fargate: {selectors: [{namespace: elsewhere}]}";

/// A group that has adopted a profile with other selectors than those of its spec.
fn adopted() -> Scenario {
    let adopted = pass(created_by_keiko().with_spec(OTHER), 3);
    assert_eq!((adopted.step_names(), adopted.plan().outcome), (vec![], Outcome::Converged));
    adopted
}

fn has_hash(scenario: &Scenario) -> bool {
    scenario.observed.profiles[0].tags.iter().any(|tag| tag.key == ADOPTED_HASH)
}

fn replaces(scenario: &Scenario) -> bool {
    scenario.step_names().contains(&"CreateFargateProfile")
}

#[test]
fn adopted_profile_stays_when_the_status_is_lost() {
    let adopted = adopted();
    let hash = adopted.resolved.hash.clone();
    let fargate = |s: &mut Scenario| s.status.fargate = None;
    let all = |s: &mut Scenario| s.status = InstanceGroupStatus::default();
    for lose in [fargate as fn(&mut Scenario), all] {
        let mut lost = adopted.clone().with(lose);
        assert!(!replaces(&lost), "{:?}", lost.step_names());
        let plan = lost.plan();
        lost.apply_records(&plan);
        assert_eq!(lost.status.fargate.as_ref().and_then(|f| f.adopted_hash.as_ref()), Some(&hash));
        let changed = adopted.clone().with(lose).with_spec(ELSEWHERE);
        assert!(replaces(&changed), "a change of the spec before the next reconcile is applied");
    }
}

/// A release that did not set the tag adopted the profile.
#[test]
fn profile_that_was_adopted_without_the_tag_gets_it_once() {
    let mut earlier = adopted().with(|s| s.observed.profiles[0].tags.retain(|tag| tag.key != ADOPTED_HASH));
    let plan = earlier.plan();
    assert_eq!(step_names(&plan), ["TagFargateProfile"]);
    assert_eq!(plan.outcome, Outcome::Converged);
    let denied = earlier.clone().with(|s| s.observed.tag_retry_pending = true);
    assert_eq!((denied.step_names(), denied.plan().outcome), (vec![], Outcome::Converged));
    earlier.apply(&plan);
    assert!(has_hash(&earlier));
    assert_eq!((earlier.step_names(), earlier.plan().outcome), (vec![], Outcome::Converged));
    let full = |count: usize| {
        adopted().with(|s| {
            let tag = |n: usize| Tag { key: format!("of-others-{n}"), value: String::new() };
            let tags = &mut s.observed.profiles[0].tags;
            tags.retain(|tag| tag.key != ADOPTED_HASH);
            let missing = count - tags.len();
            tags.extend((0..missing).map(tag));
        })
    };
    assert_eq!(full(49).step_names(), ["TagFargateProfile"]);
    assert_eq!(full(50).step_names(), [""; 0], "EKS allows no more tags, and would refuse the call again and again");
}

/// The spec becomes what the profile is, and then asks for other selectors: they must not count as those of the adoption.
#[test]
fn hash_leaves_the_tags_when_the_adoption_ends() {
    let mut ended = adopted().with_spec("{}");
    assert!(has_hash(&ended));
    let plan = ended.plan();
    assert!(step_names(&plan).contains(&"UntagFargateProfile") && !replaces(&ended), "{plan:?}");
    ended.apply(&plan);
    assert!(!has_hash(&ended));
    assert_eq!((ended.step_names(), ended.plan().outcome), (vec![], Outcome::Converged));
    assert!(replaces(&ended.with_spec(OTHER)));
}
