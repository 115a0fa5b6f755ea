use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::boundaries::CountOrPercent;

fn budget(nodes: Option<CountOrPercent>, zone: Option<CountOrPercent>, surge: Option<usize>) -> BudgetPolicy {
    BudgetPolicy { nodes, zone, surge }
}

const ONE: BudgetPolicy = BudgetPolicy { nodes: Some(CountOrPercent::Number(1)), zone: None, surge: None };

/// A group of so many available nodes in one zone, whose plan takes one of them.
fn usage(nodes: usize, zone: &str, begins: &str) -> NodeUsage {
    NodeUsage {
        desired: nodes,
        zones: [(zone.to_owned(), ZoneUsage { nodes, unavailable: 0 })].into(),
        begins: [(begins.to_owned(), NodeStart::Drain(zone.to_owned()))].into(),
        ..NodeUsage::default()
    }
}

/// The same once a plan sees the node being drained.
fn draining(nodes: usize, zone: &str, instance: &str) -> NodeUsage {
    NodeUsage {
        desired: nodes,
        unavailable: 1,
        zones: [(zone.to_owned(), ZoneUsage { nodes, unavailable: 1 })].into(),
        in_progress: [instance.to_owned()].into(),
        ..NodeUsage::default()
    }
}

/// Two groups whose plans were made at the same time must not both use the last node of the budget.
#[test]
fn groups_that_are_reconciled_at_once_share_one_budget() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    budget_usage.record("team/a", Some(usage(3, "a", "i-a")), now);
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert_eq!(budget_usage.allowance(&ONE).expect("a budget").nodes, Some(1), "each plan takes one");
    assert!(budget_usage.reserve(&ONE, "team/a", Some("i-a"), now));
    assert!(budget_usage.reserve(&ONE, "team/a", Some("i-a"), now), "the same node again");
    assert!(!budget_usage.reserve(&ONE, "team/b", Some("i-b"), now), "the budget is used up");
    // A stale cache still shows the node as available.
    budget_usage.record("team/a", Some(usage(3, "a", "i-other")), now);
    assert!(!budget_usage.reserve(&ONE, "team/b", Some("i-b"), now));
    budget_usage.record("team/a", Some(draining(3, "a", "i-a")), now);
    assert!(!budget_usage.reserve(&ONE, "team/b", Some("i-b"), now));
    budget_usage.record("team/a", Some(usage(3, "a", "i-a2")), now);
    assert!(budget_usage.reserve(&ONE, "team/b", Some("i-b"), now), "its replacement is available");
}

#[test]
fn node_whose_cordon_failed_is_given_back() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    budget_usage.record("team/a", Some(usage(3, "a", "i-a")), now);
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert!(budget_usage.reserve(&ONE, "team/a", Some("i-a"), now));
    let later = now + UNSEEN_LIMIT;
    budget_usage.record("team/a", Some(usage(3, "a", "i-a")), later);
    assert!(budget_usage.reserve(&ONE, "team/b", Some("i-b"), later));
}

/// A group whose plan never reaches its nodes would use the budget forever, and block all other groups.
#[test]
fn unused_reservation_of_a_group_is_released() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    budget_usage.announce("team/fargate", now);
    assert!(budget_usage.is_used_up(&ONE, "team/b"), "the first node of a group that takes the revision");
    budget_usage.record("team/fargate", None, now);
    assert!(!budget_usage.is_used_up(&ONE, "team/b") && budget_usage.reserve(&ONE, "team/b", Some("i-b"), now));
    // A node that was taken counts on, although its group's reads are denied since.
    budget_usage.record("team/b", None, now + UNSEEN_LIMIT);
    assert!(budget_usage.is_used_up(&ONE, "team/c"));
}

/// The object of a group cannot be decoded any more, so that nothing is planned for it. It would go before every group that
/// has not begun, until a user corrects it.
#[test]
fn group_that_cannot_be_decoded_keeps_no_other_from_beginning() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let waits_for: BTreeSet<_> = [NodeStart::Drain("a".into())].into();
    budget_usage.record("team/a", Some(NodeUsage { waits_for, ..usage(3, "a", "i-a") }), now);
    budget_usage.announce("team/new", now);
    assert!(budget_usage.is_used_up(&ONE, "team/b"));
    budget_usage.suspend("team/a");
    assert!(budget_usage.is_used_up(&ONE, "team/b"), "the other one replaces its first node");
    budget_usage.suspend("team/new");
    assert!(!budget_usage.is_used_up(&ONE, "team/b") && !budget_usage.knows("team/unknown"));
    budget_usage.record("team/a", Some(draining(3, "a", "i-a")), now);
    budget_usage.suspend("team/a");
    assert!(budget_usage.is_used_up(&ONE, "team/b"), "the node that it drains is unavailable");
}

/// Nodes that broke for other reasons count against the budget. The rotation still replaces an unavailable node at any
/// time, because it would stay broken otherwise.
#[test]
fn broken_nodes_count_against_the_budget_and_are_still_replaced() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    budget_usage.record("team/broken", Some(NodeUsage { desired: 3, unavailable: 2, ..NodeUsage::default() }), now);
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    let two = budget(Some(CountOrPercent::Number(2)), None, None);
    assert!(!budget_usage.reserve(&two, "team/b", Some("i-b"), now));
    assert!(budget_usage.reserve(&two, "team/broken", Some("i-not-ready"), now), "it is not among those that begin");
    assert_eq!(budget_usage.largest(3), [("team/broken", 2)]);
    budget_usage.forget("team/broken");
    assert!(budget_usage.reserve(&two, "team/b", Some("i-b"), now));
}

#[test]
fn small_cluster_progresses_and_a_large_batch_runs_alone() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let percent = budget(Some(CountOrPercent::Percent(5)), Some(CountOrPercent::Percent(5)), None);
    budget_usage.record("team/a", Some(usage(3, "a", "i-a")), now);
    assert!(budget_usage.reserve(&percent, "team/a", Some("i-a"), now), "5 % of 3 nodes is one");
    let batch = |is_replacing: bool| NodeUsage {
        desired: 9,
        unavailable: if is_replacing { 4 } else { 0 },
        batch: Some(4),
        in_progress: if is_replacing { [BATCH.to_owned()].into() } else { BTreeSet::new() },
        ..NodeUsage::default()
    };
    budget_usage.record("team/managed", Some(batch(false)), now);
    assert!(
        budget_usage.batch_must_wait(&percent, "team/managed")
            && !budget_usage.reserve(&percent, "team/managed", None, now)
    );
    budget_usage.record("team/a", Some(usage(3, "a", "i-a2")), now + UNSEEN_LIMIT);
    assert!(
        !budget_usage.batch_must_wait(&percent, "team/managed")
            && budget_usage.reserve(&percent, "team/managed", None, now)
    );
    assert!(!budget_usage.reserve(&percent, "team/a", Some("i-a2"), now));
    budget_usage.record("team/managed", Some(batch(true)), now);
    assert!(!budget_usage.batch_must_wait(&percent, "team/managed"), "it is at work");
    assert!(!budget_usage.reserve(&percent, "team/a", Some("i-a2"), now));
}

/// After a restart of the controller, a draining node may be in any zone until its group is planned.
#[test]
fn zones_of_groups_that_were_not_planned_yet_are_unknown() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let one = budget(None, Some(CountOrPercent::Number(1)), None);
    let of_status = |unavailable| NodeUsage { desired: 3, unavailable, ..NodeUsage::default() };
    budget_usage.expect("team/a", of_status(1));
    budget_usage.record("team/b", Some(usage(3, "b", "i-b")), now);
    assert!(!budget_usage.reserve(&one, "team/b", Some("i-b"), now));
    budget_usage.record("team/a", Some(draining(3, "a", "i-a")), now);
    budget_usage.expect("team/a", of_status(3));
    assert!(budget_usage.reserve(&one, "team/b", Some("i-b"), now), "it is in another zone");
    budget_usage.record("team/c", Some(usage(3, "a", "i-c")), now);
    assert!(!budget_usage.reserve(&one, "team/c", Some("i-c"), now));
}

/// Between the termination of a node and the launch of its replacement nothing of it is in the zone.
#[test]
fn missing_replacement_counts_in_the_zone_of_its_node() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let one = budget(None, Some(CountOrPercent::Number(1)), None);
    budget_usage.record("team/a", Some(usage(3, "a", "i-a")), now);
    budget_usage.record("team/c", Some(usage(3, "a", "i-c")), now);
    assert!(budget_usage.reserve(&one, "team/a", Some("i-a"), now));
    budget_usage.record("team/a", Some(draining(3, "a", "i-a")), now);
    let mut gone = usage(2, "a", "i-a2");
    (gone.desired, gone.unavailable) = (3, 1);
    budget_usage.record("team/a", Some(gone), now);
    assert!(!budget_usage.reserve(&one, "team/c", Some("i-c"), now));
    budget_usage.record("team/a", Some(usage(3, "a", "i-a2")), now);
    assert!(budget_usage.reserve(&one, "team/c", Some("i-c"), now));
}

#[test]
fn nodes_that_stand_by_have_a_limit_of_their_own() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let one = budget(None, None, Some(1));
    let surges = |instance: &str| {
        let begins = [(instance.to_owned(), NodeStart::Surge)].into();
        NodeUsage { desired: 3, begins, ..NodeUsage::default() }
    };
    budget_usage.record("team/a", Some(surges("i-a")), now);
    budget_usage.record("team/b", Some(surges("i-b")), now);
    assert!(
        budget_usage.reserve(&one, "team/a", Some("i-a"), now)
            && !budget_usage.reserve(&one, "team/b", Some("i-b"), now)
    );
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert!(budget_usage.reserve(&one, "team/b", Some("i-b"), now), "a drain has another limit");
}

/// Groups that have begun go first, because half-rotated groups help no one. A group that cannot continue blocks no
/// other group.
#[test]
fn groups_begin_after_those_that_wait() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let two = budget(Some(CountOrPercent::Number(2)), None, None);
    assert!(!budget_usage.is_used_up(&two, "team/b"));
    budget_usage.record(
        "team/a",
        Some(NodeUsage { waits_for: [NodeStart::Drain("a".into())].into(), ..usage(9, "a", "i-a") }),
        now,
    );
    assert!(budget_usage.is_used_up(&two, "team/b") && !budget_usage.is_used_up(&two, "team/a"));
    assert!(!budget_usage.is_used_up(&BudgetPolicy::default(), "team/b"), "there is no budget");
    budget_usage.record("team/a", None, now);
    assert!(!budget_usage.is_used_up(&two, "team/b"), "its plan did not get to its nodes");
    budget_usage.record("team/managed", Some(NodeUsage { batch: Some(2), ..usage(9, "b", "") }), now);
    budget_usage.record("team/other", Some(usage(3, "a", "i-o")), now);
    assert!(budget_usage.reserve(&two, "team/other", Some("i-o"), now));
    assert!(
        budget_usage.batch_must_wait(&two, "team/managed") && budget_usage.is_used_up(&two, "team/b"),
        "a batch waits as well"
    );
    assert!(budget_usage.is_waiting("team/managed"), "it is not stuck");
    budget_usage.record_idle("team/managed");
    assert!(!budget_usage.is_used_up(&two, "team/b"), "it takes no part any more");
    budget_usage.forget("team/other");
    budget_usage.announce("team/b", now);
    budget_usage.announce("team/c", now);
    assert!(budget_usage.is_used_up(&two, "team/d"), "two groups are about to begin");
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert!(!budget_usage.is_used_up(&two, "team/d"), "the node that it begins counts when it takes it");
}

/// A zone without capacity may stay so for days: a fix must reach the groups of the other zones meanwhile.
#[test]
fn group_that_waits_for_a_zone_keeps_no_group_of_other_zones_waiting() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let limits = budget(Some(CountOrPercent::Number(9)), Some(CountOrPercent::Number(1)), None);
    let short = |waits_for: &[&str]| NodeUsage {
        waits_for: waits_for.iter().map(|zone| NodeStart::Drain((*zone).into())).collect(),
        ..draining(3, "a", "i-a")
    };
    budget_usage.record("team/a", Some(short(&["a"])), now);
    budget_usage.record("team/b", Some(usage(3, "b", "i-b")), now);
    assert!(budget_usage.is_waiting("team/a") && budget_usage.unblocked_groups(&limits).is_empty());
    assert!(!budget_usage.is_used_up(&limits, "team/b"), "its zone is free");
    budget_usage.record("team/a", Some(short(&["a", "c"])), now);
    assert!(budget_usage.is_used_up(&limits, "team/b"), "the other one continues in zone c, and first");
}

/// Some node of a large cluster is always broken, and a batch that is as large as the budget waits for it, maybe forever.
/// It must not keep the change from all other groups meanwhile.
#[test]
fn batch_that_broken_nodes_keep_waiting_keeps_no_other_group_waiting() {
    for limit in [2, 3] {
        let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
        let limits = budget(Some(CountOrPercent::Number(limit)), None, None);
        budget_usage.record("team/managed", Some(NodeUsage { batch: Some(3), ..usage(9, "b", "") }), now);
        budget_usage.record("team/broken", Some(NodeUsage { desired: 3, unavailable: 1, ..NodeUsage::default() }), now);
        budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
        assert!(budget_usage.batch_must_wait(&limits, "team/managed"));
        assert!(
            !budget_usage.is_used_up(&limits, "team/b") && budget_usage.reserve(&limits, "team/b", Some("i-b"), now)
        );
        budget_usage.forget("team/broken");
        assert!(budget_usage.is_used_up(&limits, "team/c"), "its turn comes when team/b is done");
    }
}

/// It may wait for weeks. The admin must read that, and what to do, on the group and on the revision.
#[test]
fn batch_larger_than_the_budget_is_named_with_a_remedy() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    for key in ["team/large", "team/small"] {
        let batch = Some(if key == "team/large" { 3 } else { 2 });
        budget_usage.record(key, Some(NodeUsage { batch, ..usage(9, "b", "") }), now);
    }
    budget_usage.record("team/broken", Some(NodeUsage { desired: 3, unavailable: 1, ..NodeUsage::default() }), now);
    let limits = budget(Some(CountOrPercent::Number(2)), None, None);
    assert!(budget_usage.oversized(&limits).is_empty());
    assert!(budget_usage.batch_must_wait(&limits, "team/large") && budget_usage.batch_must_wait(&limits, "team/small"));
    assert_eq!(budget_usage.oversized(&limits), [("team/large", 3)]);
    let why = budget_usage.wait_reason(&limits, "team/large");
    assert!(why.contains("less than the 3 nodes") && why.contains("raise budget.nodes"), "{why}");
    assert!(budget_usage.wait_reason(&limits, "team/small").ends_with("which is used up"));
}

/// A waiting group is not reconciled until the budget has what it waits for.
#[test]
fn waiting_groups_are_enqueued_when_the_budget_has_room() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let limits = budget(Some(CountOrPercent::Number(2)), Some(CountOrPercent::Number(1)), Some(1));
    let waits = |begin: NodeStart| NodeUsage { waits_for: [begin].into(), ..usage(3, "b", "") };
    budget_usage.record("team/a", Some(draining(3, "a", "i-a")), now);
    budget_usage.record("team/in-a", Some(waits(NodeStart::Drain("a".into()))), now);
    budget_usage.record("team/in-b", Some(waits(NodeStart::Drain("b".into()))), now);
    budget_usage.record("team/surging", Some(NodeUsage { surging: 1, ..waits(NodeStart::Surge) }), now);
    budget_usage.record("team/managed", Some(NodeUsage { batch: Some(2), ..usage(3, "c", "") }), now);
    assert!(budget_usage.batch_must_wait(&limits, "team/managed"));
    assert_eq!(budget_usage.unblocked_groups(&limits), ["team/in-b"]);
    budget_usage.record("team/a", Some(usage(3, "a", "i-a2")), now);
    assert_eq!(budget_usage.unblocked_groups(&limits), ["team/in-a", "team/in-b", "team/managed"]);
}

/// Workers that reconcile at the same moment share what is left, however many they are.
#[test]
fn concurrent_groups_never_exceed_the_budget() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let two = budget(Some(CountOrPercent::Number(2)), None, None);
    let keys: Vec<String> = (0..5).map(|number| format!("team/g{number}")).collect();
    for key in &keys {
        budget_usage.record(key, Some(usage(3, "a", key)), now);
    }
    let reserved = keys.iter().filter(|key| budget_usage.reserve(&two, key, Some(key), now)).count();
    assert_eq!((reserved, budget_usage.nodes(&two)), (2, Some(LimitUsage { nodes: 2, limit: 2 })));
}

/// A percentage is one of the nodes that there are now: a cluster that shrinks at night has a smaller budget.
#[test]
fn percentage_follows_the_size_of_the_cluster() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let tenth = budget(Some(CountOrPercent::Percent(10)), None, None);
    let limit = |budget_usage: &BudgetUsage| budget_usage.nodes(&tenth).expect("a limit").limit;
    budget_usage.record("team/a", Some(usage(40, "a", "i-a")), now);
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert_eq!(limit(&budget_usage), 4);
    budget_usage.record("team/a", Some(usage(7, "a", "i-a")), now);
    assert_eq!(limit(&budget_usage), 1);
    budget_usage.record("team/a", Some(usage(2, "a", "i-a")), now);
    assert_eq!(limit(&budget_usage), 1, "one node goes in the smallest cluster");
    budget_usage.forget("team/a");
    budget_usage.forget("team/b");
    assert!(budget_usage.reserve(&tenth, "team/new", Some("i"), now), "nothing is known of it");
}

/// A zone that is down uses up its own budget. The replacements that its groups need are not blocked.
#[test]
fn failed_zone_blocks_other_zones_only_by_the_budget() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    let down = NodeUsage {
        desired: 6,
        unavailable: 3,
        zones: [
            ("a".to_owned(), ZoneUsage { nodes: 3, unavailable: 3 }),
            ("b".to_owned(), ZoneUsage { nodes: 3, unavailable: 0 }),
        ]
        .into(),
        begins: [("i-b".to_owned(), NodeStart::Drain("b".to_owned()))].into(),
        ..NodeUsage::default()
    };
    for (nodes, zone, is_allowed) in [(None, Some(1), true), (Some(3), Some(1), false), (Some(4), None, true)] {
        let limits = budget(nodes.map(CountOrPercent::Number), zone.map(CountOrPercent::Number), None);
        budget_usage.forget("team/a");
        budget_usage.record("team/a", Some(down.clone()), now);
        assert_eq!(budget_usage.reserve(&limits, "team/a", Some("i-b"), now), is_allowed, "{limits:?}");
        assert!(
            budget_usage.reserve(&limits, "team/a", Some("i-down"), now),
            "a node that is down is replaced at any time"
        );
    }
}

/// The rotation that a tenant caused uses the budget up, and waits for nothing itself.
#[test]
fn rotation_of_a_tenant_counts_and_does_not_wait() {
    let (mut budget_usage, now) = (BudgetUsage::default(), Instant::now());
    // Its plan was made without what the budget leaves, so that it begins nothing for the rollout.
    budget_usage.record("team/own", Some(NodeUsage { begins: [].into(), ..usage(3, "a", "") }), now);
    assert!(budget_usage.reserve(&ONE, "team/own", Some("i-1"), now));
    budget_usage.record("team/own", Some(draining(3, "a", "i-1")), now);
    budget_usage.record("team/b", Some(usage(3, "a", "i-b")), now);
    assert!(!budget_usage.reserve(&ONE, "team/b", Some("i-b"), now), "the rollout waits");
    assert!(budget_usage.reserve(&ONE, "team/own", Some("i-2"), now), "the tenant's rotation continues");
}

/// What happens to one of the groups.
#[derive(Clone, Debug)]
enum Action {
    /// Its plan sees its nodes.
    Plan(usize),
    /// It takes the node that its latest plan begins.
    Begin(usize),
    /// The first of its nodes in progress is replaced.
    Replace(usize),
    Wait(u64),
    /// Another process leads, which knows the groups by their statuses alone.
    NewLeader,
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..4usize).prop_map(Action::Plan),
        3 => (0..4usize).prop_map(Action::Begin),
        1 => (0..4usize).prop_map(Action::Replace),
        1 => (0..90u64).prop_map(Action::Wait),
        1 => Just(Action::NewLeader),
    ]
}

fn any_limit(numbers: std::ops::Range<usize>) -> impl Strategy<Value = Option<CountOrPercent>> {
    proptest::option::of(prop_oneof![
        numbers.prop_map(CountOrPercent::Number),
        (1..40u32).prop_map(CountOrPercent::Percent),
    ])
}

/// A group of four nodes in two zones. One that surges leaves its old nodes in standby until they are replaced.
struct Group {
    surges: bool,
    /// The instance, its zone, and whether it is in progress.
    nodes: Vec<(String, String, bool)>,
    made: usize,
}

const ZONES: [&str; 2] = ["a", "b"];

impl Group {
    fn new(index: usize) -> Self {
        let node = |number: usize| (format!("i-{index}-{number}"), ZONES[number % 2].to_owned(), false);
        Self { surges: index % 2 == 1, nodes: (0..4).map(node).collect(), made: 4 }
    }

    /// How many of its nodes are in progress: drained ones in a zone, or those in standby.
    fn in_progress(&self, zone: Option<&str>) -> usize {
        let is_meant = |found: &str| zone.is_none_or(|zone| zone == found);
        self.nodes.iter().filter(|(_, found, begun)| *begun && is_meant(found)).count()
    }

    /// What its status says of it.
    fn counts(&self) -> NodeUsage {
        let (drained, surging) = if self.surges { (0, self.in_progress(None)) } else { (self.in_progress(None), 0) };
        NodeUsage { desired: 4, unavailable: drained, surging, ..NodeUsage::default() }
    }

    /// What a plan sees of it.
    fn usage(&self) -> NodeUsage {
        let mut usage = self.counts();
        for (instance, zone, begun) in &self.nodes {
            let found = usage.zones.entry(zone.clone()).or_default();
            found.nodes += 1;
            found.unavailable += usize::from(*begun && !self.surges);
            let begin = if self.surges { NodeStart::Surge } else { NodeStart::Drain(zone.clone()) };
            match begun {
                true => _ = usage.in_progress.insert(instance.clone()),
                false => _ = usage.begins.insert(instance.clone(), begin),
            }
        }
        usage
    }

    fn replace_first(&mut self, index: usize) {
        if let Some(begun) = self.nodes.iter().position(|(.., begun)| *begun) {
            self.made += 1;
            self.nodes[begun] = (format!("i-{index}-{}", self.made), self.nodes[begun].1.clone(), false);
        }
    }
}

proptest! {
    /// Neither the cluster nor a zone has more nodes in drain than the budget allows, and no more nodes are in standby, in
    /// whatever order the groups are planned, and after each change of the leader. Once all nodes are replaced, each group can
    /// continue.
    #[test]
    fn budget_is_never_exceeded_and_leaves_a_node_to_an_idle_fleet(
        actions in proptest::collection::vec(any_action(), 1..120),
        nodes in any_limit(1..4),
        zone in any_limit(1..3),
        surge in proptest::option::of(1..3usize),
    ) {
        let budget = budget(nodes, zone, surge);
        let (mut budget_usage, mut now) = (BudgetUsage::default(), Instant::now());
        let mut groups: Vec<Group> = (0..4).map(Group::new).collect();
        for action in actions {
            match action {
                Action::Wait(seconds) => now += Duration::from_secs(seconds),
                Action::NewLeader => {
                    budget_usage = BudgetUsage::default();
                    for (index, group) in groups.iter().enumerate() {
                        budget_usage.expect(&format!("g{index}"), group.counts());
                    }
                    budget_usage.set_counted();
                }
                Action::Plan(index) => budget_usage.record(&format!("g{index}"), Some(groups[index].usage()), now),
                Action::Begin(index) => {
                    let free = groups[index].nodes.iter().position(|(.., begun)| !begun);
                    let Some(free) = free else { continue };
                    let key = format!("g{index}");
                    // A node that no plan began yet is not taken.
                    let instance = groups[index].nodes[free].0.clone();
                    let begins = budget_usage.groups.get(&key).is_some_and(|entry| entry.usage.begins.contains_key(&instance));
                    if begins && budget_usage.reserve(&budget, &key, Some(&instance), now) {
                        groups[index].nodes[free].2 = true;
                    }
                }
                Action::Replace(index) => groups[index].replace_first(index),
            }
            let begun = |surges: bool, zone: Option<&str>| -> usize {
                groups.iter().filter(|group| group.surges == surges).map(|group| group.in_progress(zone)).sum()
            };
            prop_assert!(nodes.is_none_or(|limit| begun(false, None) <= limit.at_least_one(16)));
            for name in ZONES {
                prop_assert!(zone.is_none_or(|limit| begun(false, Some(name)) <= limit.at_least_one(8)));
            }
            prop_assert!(surge.is_none_or(|limit| begun(true, None) <= limit));
        }
        for (index, group) in groups.iter_mut().enumerate() {
            (0..4).for_each(|_| group.replace_first(index));
            now += UNSEEN_LIMIT;
            budget_usage.record(&format!("g{index}"), Some(group.usage()), now);
        }
        for (index, group) in groups.iter().enumerate() {
            let mut idle = budget_usage.clone();
            let first = Some(group.nodes[0].0.as_str());
            prop_assert!(idle.reserve(&budget, &format!("g{index}"), first, now), "{budget:?}: {idle:?}");
        }
    }
}
