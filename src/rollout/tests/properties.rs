//! What holds whatever happens: random policies, groups, changes, orders and restarts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::simulated_cluster::{Group, RecordedAction, SimulatedCluster, group, image_of};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState};
use crate::boundaries::ROLLOUT_KEY;
use crate::rollout::SwitchReason;

/// What happens between two polls.
#[derive(Clone, Debug)]
enum Action {
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
}

fn any_action() -> impl Strategy<Value = Action> {
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

const POLICIES: [&str; 8] = [
    "waves: [{name: w0, percent: 50, atOnce: 1}, {name: w2, atOnce: 1}]",
    "waves: [{name: w0, namespaces: 'wave = 0', soak: 5m}, {name: w1, namespaces: 'wave = 1', soak: 2m}, {name: w2}]",
    "{onFailure: return, waves: [{name: w0, percent: 20, soak: 3m}, {name: w1, percent: 50}, {name: w2}]}",
    "waves: [{name: w0, namespaces: 'wave = 0', maxFailures: 1}, {name: w1, percent: 50, maxFailures: 50%}, {name: w2, maxFailures: 100%}]",
    "withoutRotation: waves",
    "{windows: [{from: '08:00', to: '08:30', zone: UTC}, {days: [sat], from: '22:00', to: '04:00', zone: Europe/Berlin}], deferral: [{namespaces: '*', max: 3h}], waves: [{name: w0, percent: 20, soak: 3m}, {name: w1, approval: tenants}, {name: w2}]}",
    "{delay: [{clusters: '*', by: 20m}], waves: [{name: w0, percent: 50, windows: [{from: '00:00', to: '12:00', zone: UTC}]}, {name: w2, approval: admin}]}",
    "{budget: {nodes: 1}, patience: 10m, waves: [{name: w0, percent: 50, approval: admin}, {name: w1, namespaces: 'wave = 1', atOnce: 1}, {name: w2}]}",
];

fn some_group(number: usize) -> Group {
    let mut found = group(&format!("g{number}"));
    found.namespace = [("wave".to_owned(), (number % 3).to_string())].into();
    found
}

fn apply(cluster: &mut SimulatedCluster, action: &Action, made: &mut usize) {
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
    }
}

/// No revision is deleted that a group has or would return to, or to which all groups would return.
fn check_history(before: &SimulatedCluster, after: &SimulatedCluster) -> Result<(), TestCaseError> {
    let hashes = after.groups.iter().filter(|group| !group.deleted).flat_map(Group::needs);
    let stable = after.revisions.last().and_then(|found| found.status.as_ref()?.stable.clone());
    let stable = before.revisions.iter().find(|found| stable.is_some() && found.metadata.name == stable);
    for hash in hashes.chain(stable.map(|found| &found.spec.hash)) {
        let is_deleted = before.number_of(hash).is_some() && after.number_of(hash).is_none();
        prop_assert!(!is_deleted, "r{:?} is deleted", before.number_of(hash));
    }
    Ok(())
}

/// While a group is not seen, which may be in any wave, none opens or passes.
fn check_waves(before: &SimulatedCluster, after: &SimulatedCluster, target: &str) -> Result<(), TestCaseError> {
    let is_unseen = after.groups.iter().any(|group| group.unseen);
    if !is_unseen || before.phase_of(target) == Some(RolloutPhase::Complete) {
        return Ok(());
    }
    let known = before.waves(target);
    for (name, state) in after.waves(target) {
        let old = known.iter().find(|(known, _)| *known == name).map_or(WaveState::Waiting, |(_, state)| *state);
        prop_assert!(state == WaveState::Waiting || state == old, "{name} of {target} is {state}, and was {old}");
    }
    Ok(())
}

/// Every group that switches to a revision in its wave does so after all waves before it have passed. It never switches
/// to an older one by a wave. It makes nodes only from what it recorded. A complete rollout has each group, or lists
/// it.
fn check_invariants(before: &SimulatedCluster, after: &SimulatedCluster) -> Result<(), TestCaseError> {
    check_history(before, after)?;
    let target = after.revisions.last().and_then(|found| found.metadata.name.clone()).unwrap_or_default();
    check_waves(before, after, &target)?;
    let is_urgent = after.is_urgent();
    let view = after.clone().view();
    let Some(view) = view else {
        // Nothing waits for a wave any more.
        let phase = after.phase_of(&target);
        let has_key = after.revisions.last().is_some_and(|found| found.spec.data.contains_key(ROLLOUT_KEY));
        // A user may have cleared the status of one that was released before.
        let was_released = before.clone().view().is_none();
        let is_complete = phase == Some(RolloutPhase::Complete);
        prop_assert!(!has_key || is_complete || was_released, "{target} is released, and was {phase:?}");
        return Ok(());
    };
    for (index, group) in after.groups.iter().enumerate() {
        let old = before.groups.get(index);
        let known = old.map_or(0, |old| old.log.len());
        let had = old.and_then(|old| before.number_of(old.status.boundaries_revision.as_deref()?)).unwrap_or_default();
        for action in &group.log[known..] {
            let recorded = group.status.boundaries_revision.as_deref().unwrap_or_default();
            let (number, name) = match action {
                RecordedAction::Replaced { to, .. } => {
                    let of_record = view.stored.get(recorded).map(image_of);
                    prop_assert_eq!(
                        of_record.as_ref(),
                        Some(to),
                        "{} made a node from what it did not record",
                        group.key
                    );
                    continue;
                }
                RecordedAction::Switched { number, why: SwitchReason::Wave(name), .. } => (number, name),
                RecordedAction::Switched { number, why: SwitchReason::Approved(_) | SwitchReason::InPlace, .. } => {
                    prop_assert!(*number >= had, "{} went from r{had} to r{number}", group.key);
                    continue;
                }
                RecordedAction::Switched { .. } => continue,
            };
            prop_assert!(*number >= had, "{} went from r{had} to r{number}", group.key);
            let waves = after.waves(&target);
            let position = waves.iter().position(|(wave, _)| wave == name).unwrap_or_default();
            let open = waves[..position].iter().all(|(_, state)| *state == WaveState::Passed);
            prop_assert!(open || is_urgent, "{} took {target} in {name} while {waves:?}", group.key);
        }
    }
    let is_complete = |cluster: &SimulatedCluster| cluster.phase_of(&target) == Some(RolloutPhase::Complete);
    if is_complete(after) && !is_complete(before) {
        let status = after.clone().revision(&target).status.clone().unwrap_or_default();
        let is_listed = |group: &Group| status.behind.iter().any(|behind| behind.group == group.key);
        let hash = Some(view.target.hash.clone());
        for group in after.groups.iter().filter(|group| !group.deleted) {
            let has_it = group.status.boundaries_revision == hash || group.waits.is_none();
            prop_assert!(has_it || is_listed(group), "{} is neither on {target} nor listed: {status:?}", group.key);
        }
    }
    Ok(())
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
