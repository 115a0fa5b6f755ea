//! What holds whatever happens: random policies, groups, changes, orders and restarts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::judges::{check_at_once, check_gates, check_invariants};
use super::simulated_cluster::{Group, RecordedAction, SimulatedCluster, group};
use crate::api::RolloutPhase;
use crate::api::names::annotation;
use crate::rollout::SwitchReason;

/// What happens between two polls.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Poll(usize),
    Image(usize),
    Tag(usize),
    Comment(usize),
    Pause(bool),
    Abort,
    Retry,
    Skip(usize),
    Lock(usize, bool),
    Delete(usize),
    Create(usize),
    TenantEdit(usize),
    Policy(usize),
    LoseKey,
    ConfigProblem(bool),
    Clock(i64),
    ClearStatus,
    Block(usize, bool),
    Tenant(usize, bool),
    Answers(usize, bool),
    Seen(usize, bool),
    Approve,
    Urgent,
    Restart,
    /// Its tenant's edit makes a node outdated.
    Outdate(usize),
}

pub(super) fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (1..40usize).prop_map(Action::Poll),
        3 => (1..5usize).prop_map(Action::Image),
        1 => (0..3usize).prop_map(Action::Tag),
        1 => (0..3usize).prop_map(Action::Comment),
        1 => any::<bool>().prop_map(Action::Pause),
        1 => Just(Action::Abort),
        1 => Just(Action::Retry),
        1 => (0..3usize).prop_map(Action::Skip),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, locks)| Action::Lock(index, locks)),
        1 => (0..6usize).prop_map(Action::Delete),
        1 => (0..100usize).prop_map(Action::Create),
        1 => (0..6usize).prop_map(Action::TenantEdit),
        1 => (0..POLICIES.len()).prop_map(Action::Policy),
        1 => Just(Action::LoseKey),
        1 => any::<bool>().prop_map(Action::ConfigProblem),
        1 => (-7200..7200i64).prop_map(Action::Clock),
        1 => Just(Action::ClearStatus),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, blocks)| Action::Block(index, blocks)),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, defers)| Action::Tenant(index, defers)),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, answers)| Action::Answers(index, answers)),
        1 => (0..6usize, any::<bool>()).prop_map(|(index, seen)| Action::Seen(index, seen)),
        1 => Just(Action::Approve),
        1 => Just(Action::Urgent),
        2 => Just(Action::Restart),
    ]
}

pub(super) const POLICIES: [&str; 8] = [
    "waves: [{name: w0, percent: 50, atOnce: 1}, {name: w2, atOnce: 1}]",
    "waves: [{name: w0, namespaces: 'wave = 0', soak: 5m}, {name: w1, namespaces: 'wave = 1', soak: 2m}, {name: w2}]",
    "{onFailure: return, waves: [{name: w0, percent: 20, soak: 3m}, {name: w1, percent: 50}, {name: w2}]}",
    "waves: [{name: w0, namespaces: 'wave = 0', maxFailures: 1}, {name: w1, percent: 50, maxFailures: 50%}, {name: w2, maxFailures: 100%}]",
    "withoutRotation: waves",
    "{windows: [{from: '08:00', to: '08:30', zone: UTC}, {days: [sat], from: '22:00', to: '04:00', zone: Europe/Berlin}], deferral: [{namespaces: '*', max: 3h}], waves: [{name: w0, percent: 20, soak: 3m}, {name: w1, approval: tenants}, {name: w2}]}",
    "{delay: [{clusters: '*', by: 20m}], waves: [{name: w0, percent: 50, windows: [{from: '00:00', to: '12:00', zone: UTC}]}, {name: w2, approval: admin}]}",
    "{budget: {nodes: 1}, patience: 10m, waves: [{name: w0, percent: 50, approval: admin}, {name: w1, namespaces: 'wave = 1', atOnce: 1}, {name: w2}]}",
];

pub(super) fn some_group(number: usize) -> Group {
    let mut found = group(&format!("g{number}"));
    found.namespace = [("wave".to_owned(), (number % 3).to_string())].into();
    found
}

pub(super) fn apply(cluster: &mut SimulatedCluster, action: &Action, made: &mut usize) {
    let target = cluster.revisions.last().and_then(|revision| revision.metadata.name.clone()).expect("a revision");
    let count = cluster.groups.len();
    match action {
        Action::Poll(count) => cluster.run(*count),
        Action::Image(number) => cluster.image = format!("ami-{number}"),
        Action::Tag(number) => cluster.tag = format!("tag-{number}"),
        Action::Comment(number) => cluster.comment = format!("note {number}"),
        Action::Pause(paused) => cluster.revision(&target).spec.orders.paused = *paused,
        Action::Abort => cluster.revision(&target).spec.orders.aborted = true,
        Action::Retry => {
            let orders = &mut cluster.revision(&target).spec.orders;
            orders.aborted = false;
            orders.retries += 1;
        }
        Action::Skip(wave) => cluster.revision(&target).spec.orders.skipped = vec![format!("w{wave}")],
        Action::Lock(index, locks) => cluster.groups[index % count].locked = *locks,
        Action::Delete(index) if cluster.groups.iter().filter(|group| !group.deleted).count() > 1 => {
            cluster.groups[index % count].deleted = true;
        }
        Action::Delete(_) => {}
        Action::Create(number) => {
            *made += 1;
            let mut new = some_group(100 + *number + *made * 1000);
            new.nodes.clear();
            cluster.groups.push(new);
        }
        Action::TenantEdit(index) => cluster.groups[index % count].generation += 1,
        Action::Policy(number) => cluster.policy = Some(POLICIES[*number].to_owned()),
        Action::LoseKey => cluster.policy = None,
        Action::ConfigProblem(is_broken) => cluster.config_problem = is_broken.then(|| "it is broken".to_owned()),
        Action::Clock(seconds) => cluster.now += jiff::SignedDuration::from_secs(*seconds),
        Action::ClearStatus => cluster.revision(&target).status = None,
        Action::Block(index, blocks) => cluster.groups[index % count].blocked = *blocks,
        Action::Tenant(index, defers) => {
            let (key, value) = match defers {
                true => (annotation::DEFER_UNTIL, "2099-01-01T00:00:00Z".to_owned()),
                false => (annotation::APPROVE_REVISION, target),
            };
            cluster.groups[index % count].annotations.insert(key.to_owned(), value);
        }
        Action::Answers(index, answers) => cluster.groups[index % count].answers = *answers,
        Action::Seen(index, seen) => cluster.groups[index % count].unseen = !seen,
        Action::Approve => cluster.revision(&target).spec.orders.approved = vec!["*".to_owned()],
        Action::Urgent => {
            let until = format!("{{urgentUntil: {}, ", cluster.now + jiff::SignedDuration::from_mins(10));
            let policy = cluster.policy.as_deref().unwrap_or_default();
            let policy = if policy.starts_with('{') { policy.to_owned() } else { format!("{{{policy}}}") };
            if !policy.contains("urgentUntil") {
                cluster.policy = Some(policy.replacen('{', &until, 1));
            }
        }
        Action::Restart => cluster.restart(),
        Action::Outdate(index) => {
            if let Some(node) = cluster.groups[index % count].nodes.first_mut() {
                *node = "ami-0".into();
            }
        }
    }
}

/// Whether nodes may be replaced at a time, computed independently of the code: 22:00 to 04:00 in Berlin, beginning on working
/// days, which is UTC+2 until 2026-10-25T01:00Z and UTC+1 after it; and not on 2026-10-27.
fn may_replace(at: jiff::Timestamp) -> bool {
    let autumn: jiff::Timestamp = "2026-10-25T01:00:00Z".parse().expect("a time");
    let local = at.as_second() + if at < autumn { 7200 } else { 3600 };
    let (day, hour) = (local.div_euclid(86400), local.rem_euclid(86400) / 3600);
    // 1970-01-01 was a Thursday.
    let is_working = |day: i64| (day + 3).rem_euclid(7) < 5;
    let frozen = 20_753;
    day != frozen && ((hour >= 22 && is_working(day)) || (hour < 4 && is_working(day - 1)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Across the end of summer time and any edits of the admin, no group switches and no node is replaced outside of
    /// the windows. Each change is complete in the end.
    #[test]
    fn nothing_begins_outside_of_the_windows(
        start in 0..(5 * 86400i64),
        actions in prop::collection::vec((2..6usize, 60..40_000i64, 1..80usize), 1..4),
    ) {
        let berlin = "zone: Europe/Berlin";
        let policy = format!(
            "{{windows: [{{days: [mon, tue, wed, thu, fri], from: '22:00', to: '04:00', {berlin}}}], freezes: [{{from: 2026-10-27, to: 2026-10-27, {berlin}}}], waves: [{{name: w0, percent: 40, soak: 10m}}, {{name: w2, atOnce: 2}}]}}"
        );
        let mut cluster = SimulatedCluster::new(&policy, (0..4).map(some_group).collect());
        let begin: jiff::Timestamp = "2026-10-22T00:00:00Z".parse().expect("a time");
        cluster.now = begin + jiff::SignedDuration::from_secs(start);
        for (image, later, polls) in actions {
            cluster.image = format!("ami-{image}");
            cluster.now += jiff::SignedDuration::from_secs(later);
            cluster.run(polls);
        }
        cluster.run_until_time("2026-10-31T12:00:00Z".parse().expect("a time"));
        for group in &cluster.groups {
            // The return waits for no window.
            let mut switched_forward = false;
            for action in &group.log {
                let at = match action {
                    RecordedAction::Switched { why, at, .. } => {
                        switched_forward = matches!(why, SwitchReason::Wave(_));
                        at
                    }
                    RecordedAction::Replaced { at, .. } => at,
                };
                prop_assert!(!switched_forward || may_replace(*at), "{} did {action:?}", group.key);
            }
        }
        let images = cluster.images();
        prop_assert!(images.iter().all(|image| *image == cluster.image), "{images:?} instead of {}", cluster.image);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With orders, failures and restarts in any order, waves open one after another. Once admins have resumed the
    /// rollout, every group has the newest revision or is listed with a reason.
    #[test]
    fn rollouts_keep_the_wave_order_and_end(
        policy in prop::sample::select(POLICIES.to_vec()),
        bad in prop::collection::btree_set((0..6usize, 2..5usize), 0..3),
        actions in prop::collection::vec(any_action(), 1..25),
        kept in 1..4usize,
    ) {
        let mut cluster = SimulatedCluster::new(policy, (0..6).map(some_group).collect());
        cluster.kept = kept;
        for (index, image) in &bad {
            cluster.groups[*index].bad_images.insert(format!("ami-{image}"));
        }
        let mut made = 0;
        for action in &actions {
            let polls = if let Action::Poll(count) = action { *count } else { 1 };
            apply(&mut cluster, &match action { Action::Poll(_) => Action::Restart, other => other.clone() }, &mut made);
            for _ in 0..polls {
                let before = cluster.clone();
                cluster.poll();
                check_invariants(&before, &cluster)?;
                check_gates(&before, &cluster)?;
            }
        }
        // People end their orders and locks, and a good change follows.
        cluster.policy = Some(POLICIES[0].to_owned());
        cluster.groups.iter_mut().for_each(|group| {
            (group.locked, group.blocked, group.answers, group.unseen) = (false, false, true, false);
        });
        cluster.config_problem = None;
        cluster.image = "ami-9".into();
        cluster.poll();
        cluster.run_until_stable();
        let target = cluster.revisions.last().and_then(|found| found.metadata.name.clone()).expect("a revision");
        prop_assert_eq!(cluster.phase(&target), RolloutPhase::Complete);
        let images = cluster.images();
        prop_assert!(images.iter().all(|image| image.is_empty() || image == "ami-9"), "{:?}", images);
    }
}

/// What leaves it to the waves alone how many groups replace nodes.
fn any_undirected_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (1..20usize).prop_map(Action::Poll),
        2 => (1..5usize).prop_map(Action::Image),
        1 => (0..8usize).prop_map(Action::TenantEdit),
        2 => (0..8usize, any::<bool>()).prop_map(|(index, blocks)| Action::Block(index, blocks)),
        1 => (0..8usize).prop_map(Action::Delete),
        1 => (0..100usize).prop_map(Action::Create),
        1 => (0..8usize).prop_map(|index| Action::Tenant(index, false)),
        2 => Just(Action::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// An admin limits how many tenants have nodes replaced at once. New leaders and blocked drains must not raise that.
    #[test]
    fn no_more_groups_than_at_once_replace_nodes(
        limit in 1..3usize,
        actions in prop::collection::vec(any_undirected_action(), 1..20),
    ) {
        let waves = format!("{{name: w0, percent: 50, atOnce: {limit}}}, {{name: w2, atOnce: {limit}}}");
        // No group is given up in this time.
        let policy = format!("{{patience: 240h, waves: [{waves}]}}");
        let mut cluster = SimulatedCluster::new(&policy, (0..8).map(some_group).collect());
        let mut made = 0;
        for action in &actions {
            let polls = if let Action::Poll(count) = action { *count } else { 1 };
            if !matches!(action, Action::Poll(_)) {
                apply(&mut cluster, action, &mut made);
            }
            for _ in 0..polls {
                let before = cluster.clone();
                cluster.poll();
                check_at_once(&before, &cluster, limit)?;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whenever leaders change: the rollout ends where an undisturbed one ends, and no node is replaced once more for it.
    #[test]
    fn new_leaders_lose_no_node_and_begin_nothing_again(
        policy in prop::sample::select(POLICIES[..5].to_vec()),
        images in prop::collection::vec((2..5usize, 0..60usize), 1..4),
        restarts in prop::collection::btree_set(0..300usize, 0..40),
        bad in prop::option::of(2..5usize),
    ) {
        let play = |restarts: &BTreeSet<usize>| {
            let mut cluster = SimulatedCluster::new(policy, (0..5).map(some_group).collect());
            cluster.groups[0].bad_images.extend(bad.map(|image| format!("ami-{image}")));
            let mut polls = 0..;
            for (image, count) in &images {
                cluster.image = format!("ami-{image}");
                for poll in polls.by_ref().take(count + 100) {
                    if restarts.contains(&poll) {
                        cluster.restart();
                    }
                    cluster.poll();
                }
            }
            cluster.run(100);
            cluster
        };
        let (calm, disturbed) = (play(&BTreeSet::new()), play(&restarts));
        prop_assert_eq!(calm.images(), disturbed.images());
        prop_assert_eq!(calm.phase(&calm.newest()), disturbed.phase(&disturbed.newest()));
        for group in disturbed.groups.iter().filter(|_| bad.is_none()) {
            for (name, _) in &images {
                let name = format!("ami-{name}");
                let made = group.log.iter().filter(|action| matches!(action, RecordedAction::Replaced { to, .. } if *to == name)).count();
                // Once for each time that the ConfigMap has it.
                let times = images.iter().filter(|(image, _)| format!("ami-{image}") == name).count();
                prop_assert!(made <= times * group.nodes.len(), "{:?}", group.log);
            }
        }
    }
}
