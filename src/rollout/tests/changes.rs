//! Changes that follow one another, and edits of the policy in the middle.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::simulated_cluster::{CANARY, Group, RecordedAction, SimulatedCluster, canary, group};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState};
use crate::boundaries::active::select_active;
use crate::rollout::{RevisionImpact, RolloutView, SwitchReason, WaitReason};

fn two_waves() -> SimulatedCluster {
    SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

/// How often a group replaced a node by one with an image.
fn replaced(group: &Group, image: &str) -> usize {
    group.log.iter().filter(|action| matches!(action, RecordedAction::Replaced { to, .. } if to == image)).count()
}

fn is_soaking(cluster: &SimulatedCluster, revision: &str) -> bool {
    cluster.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// Leads the change to ami-2 to a state in which the next change finds it.
fn interrupted(state: &str) -> SimulatedCluster {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    match state {
        "assessing" => cluster.store(),
        "rotates" => cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned())),
        "soaks" => cluster.run_until(|cluster| is_soaking(cluster, "r2")),
        "second wave" => cluster.run_until(|cluster| cluster.groups[1].nodes.contains(&"ami-2".to_owned())),
        "is halted" => {
            cluster.group("c").bad_images.insert("ami-2".into());
            cluster.run_until_stable();
            assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
        }
        "is paused" => {
            cluster.run_until(|cluster| is_soaking(cluster, "r2"));
            cluster.revision("r2").spec.orders.paused = true;
            cluster.run(2);
        }
        "returns" => {
            cluster.group("c").nodes = vec!["ami-1".into(); 6];
            cluster.run_until(|cluster| is_soaking(cluster, "r2"));
            cluster.revision("r2").spec.orders.aborted = true;
            cluster.poll();
            assert_eq!(cluster.phase("r2"), RolloutPhase::Returning);
        }
        "is aborted" => {
            cluster.run_until(|cluster| is_soaking(cluster, "r2"));
            cluster.revision("r2").spec.orders.aborted = true;
            cluster.run_until_stable();
            assert_eq!(cluster.phase("r2"), RolloutPhase::Aborted);
        }
        other => panic!("{other} is not a state"),
    }
    cluster
}

const STATES: [&str; 8] =
    ["assessing", "rotates", "soaks", "second wave", "is halted", "is paused", "returns", "is aborted"];

/// An admin who corrects a change must not have to wait for the one before, and the corrected one is proved by the canary again.
#[test]
fn next_change_rolls_out_in_waves_whatever_it_interrupts() {
    for state in STATES {
        let mut cluster = interrupted(state);
        let before = cluster.groups.iter().map(|group| group.log.len()).collect::<Vec<_>>();
        cluster.image = "ami-3".into();
        cluster.run_until(|cluster| is_soaking(cluster, "r3"));
        let others = &cluster.groups[1..];
        assert!(others.iter().all(|group| !group.nodes.contains(&"ami-3".to_owned())), "{state}: the others wait");
        let superseded = cluster.phase("r2");
        assert!(matches!(superseded, RolloutPhase::Superseded | RolloutPhase::Aborted), "{state}: {superseded}");
        cluster.run_until_stable();
        assert_eq!(
            (cluster.images(), cluster.phase("r3")),
            (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete),
            "{state}"
        );
        for (group, known) in cluster.groups.iter().zip(before) {
            let later = group.log[known..]
                .iter()
                .filter(|action| matches!(action, RecordedAction::Replaced { to, .. } if to == "ami-3"));
            assert_eq!(later.count(), group.nodes.len(), "{state}: each node of {} is replaced once", group.key);
        }
    }
}

/// Three edits in a row, one of them back to where it began: what counts is the newest.
#[test]
fn newest_of_several_changes_wins_and_a_way_back_needs_no_wave() {
    for state in STATES {
        let mut cluster = interrupted(state);
        cluster.image = "ami-3".into();
        cluster.run(3);
        cluster.image = "ami-1".into();
        cluster.run(12);
        assert_eq!(
            (cluster.images(), cluster.phase("r4")),
            (vec!["ami-1".to_owned(); 3], RolloutPhase::Complete),
            "{state}"
        );
    }
    for state in STATES {
        let mut cluster = interrupted(state);
        cluster.image = "ami-3".into();
        cluster.run(3);
        cluster.image = "ami-4".into();
        cluster.run_until_stable();
        assert_eq!(
            (cluster.images(), cluster.phase("r4")),
            (vec!["ami-4".to_owned(); 3], RolloutPhase::Complete),
            "{state}"
        );
    }
}

/// Only an order, a lock or a window leaves a group with two versions. A rotation for an older change ends before its turn.
#[test]
fn superseded_rotation_that_has_begun_is_finished() {
    let mut cluster = two_waves();
    cluster.group("a").nodes = vec!["ami-1".into(); 6];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[1].nodes.contains(&"ami-2".to_owned()));
    cluster.image = "ami-3".into();
    cluster.run_until(|cluster| is_soaking(cluster, "r3"));
    cluster.run(6);
    assert_eq!(cluster.images()[1], "ami-2", "it ended what it had begun, and waits for the canary");
    cluster.run_until_stable();
    assert_eq!((replaced(&cluster.groups[1], "ami-2"), replaced(&cluster.groups[1], "ami-3")), (6, 6));
}

/// An admin who pauses the newest revision, or sees it halt, expects that no node is replaced. A rotation for the
/// revision before must stop too.
#[test]
fn superseded_rotation_stops_for_a_pause_and_a_halt_of_the_newest() {
    for is_paused in [true, false] {
        let mut cluster = two_waves();
        cluster.group("a").nodes = vec!["ami-1".into(); 60];
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.groups[1].nodes.contains(&"ami-2".to_owned()));
        cluster.image = "ami-3".into();
        match is_paused {
            true => {
                cluster.run(1);
                cluster.revision("r3").spec.orders.paused = true;
            }
            false => {
                cluster.group("c").bad_images.insert("ami-3".into());
                cluster.run_until(|cluster| cluster.phase_of("r3") == Some(RolloutPhase::Halted));
            }
        }
        cluster.run(2);
        let before = replaced(&cluster.groups[1], "ami-2");
        assert!(before < 60, "the test is too slow");
        cluster.run(20);
        assert_eq!(replaced(&cluster.groups[1], "ami-2"), before, "paused: {is_paused}");
        cluster.group("c").bad_images.clear();
        let orders = &mut cluster.revision("r3").spec.orders;
        (orders.paused, orders.retries) = (false, 1);
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-3"; 3]);
    }
}

/// A node that enters standby has a replacement already, and EKS takes no update of a node group back: a group that stepped
/// back would replace nodes a second time.
#[test]
fn group_whose_first_replacement_has_begun_does_not_step_back() {
    for begun in ["nothing", "standby", "update"] {
        let mut cluster = two_waves();
        cluster.group("a").blocked = true;
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| !cluster.groups[1].wave_images().is_empty());
        cluster.group("a").marked = begun == "standby";
        cluster.group("a").status.update_of = (begun == "update").then(|| "demo-team-a".to_owned());
        cluster.image = "ami-3".into();
        cluster.run(3);
        let steps_back = cluster.groups[1]
            .log
            .iter()
            .any(|action| matches!(action, RecordedAction::Switched { why: SwitchReason::Superseded, .. }));
        assert_eq!(steps_back, begun == "nothing", "{begun}");
        (cluster.group("a").blocked, cluster.group("a").marked) = (false, false);
        cluster.group("a").status.update_of = None;
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
    }
}

/// Nodes that still run the restored content stay. The other nodes are replaced within the budget, which counts for a
/// return.
#[test]
fn revert_in_mid_rotation_replaces_only_what_was_replaced() {
    let mut cluster = two_waves();
    cluster.group("c").nodes = vec!["ami-1".into(); 6];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| replaced(&cluster.groups[0], "ami-2") == 2);
    cluster.image = "ami-1".into();
    cluster.poll();
    let made = replaced(&cluster.groups[0], "ami-2");
    let group = &cluster.groups[0];
    let record = group.status.rollout.as_ref().expect("a record");
    assert_eq!(
        (record.revision.as_deref(), record.generation),
        (Some("r3"), Some(1)),
        "its nodes go within the budget"
    );
    cluster.run_until_stable();
    assert_eq!((made, replaced(&cluster.groups[0], "ami-1")), (2, 2), "{:?}", cluster.groups[0].log);
    assert!(cluster.groups[1].log.is_empty() && cluster.groups[2].log.is_empty());
}

/// An edit of the ConfigMap that cannot be used must release nothing, and end nothing.
#[test]
fn broken_config_map_gives_the_change_to_no_further_group() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| is_soaking(cluster, "r2"));
    let (good, revisions) = (cluster.data(), cluster.revisions.clone());
    let broken = [("rollout".to_owned(), "waves: 3".to_owned())].into_iter();
    let broken = good.clone().into_iter().chain(broken).collect();
    for live in [Some(&broken), None] {
        let active = Arc::new(select_active(live, Some(&good), true).0);
        let view = RolloutView::new(&revisions, &active, None, None).expect("the rollout continues");
        assert_eq!((view.target.name.as_str(), view.policy.waves.len()), ("r2", 2));
        let why = view.config_problem.expect("no further group takes it");
        assert!(why.contains("ConfigMap"), "{why}");
    }
    let active = Arc::new(select_active(Some(&good), Some(&good), true).0);
    let view = RolloutView::new(&revisions, &active, None, None).expect("a rollout");
    assert_eq!((view.target.name.as_str(), view.config_problem), ("r2", None), "the same text is the same revision");
    cluster.config_problem = Some("it is broken".into());
    cluster.run(100);
    assert_eq!((cluster.images()[1].as_str(), cluster.groups[1].waits), ("ami-1", Some(WaitReason::ConfigMapUnusable)));
    assert_eq!(cluster.waves("r2")[1].1, WaveState::Waiting);
    cluster.config_problem = None;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// Waves without groups have nothing to prove, and one group belongs to one wave, whatever else selects it.
#[test]
fn waves_without_groups_pass_and_overlapping_selectors_mean_the_first() {
    let canaries = "namespaces: 'rollout/wave = canary'";
    for (policy, canaries_first) in [
        (
            format!(
                "waves: [{{name: none, groups: 'no = one', soak: 1h}}, {{name: canary, {canaries}, soak: 1m}}, {{name: rest}}]"
            ),
            true,
        ),
        (
            format!("waves: [{{name: a, {canaries}, soak: 1m}}, {{name: b, {canaries}, soak: 48h}}, {{name: rest}}]"),
            true,
        ),
        ("waves: [{name: none, groups: 'no = one', soak: 1h}, {name: rest}]".to_owned(), false),
        ("waves: [{name: only, groups: 'no = one', soak: 1m}]".to_owned(), false),
        ("waves: [{name: none, groups: 'no = one', percent: 50, soak: 1h}, {name: rest}]".to_owned(), false),
    ] {
        let mut cluster = SimulatedCluster::new(&policy, vec![canary("c"), group("a"), group("b")]);
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.groups.iter().any(|group| !group.log.is_empty()));
        let early = cluster.groups[1..].iter().all(|group| group.log.is_empty());
        assert_eq!(early, canaries_first, "{policy}");
        cluster.run(25);
        assert_eq!(
            (cluster.images(), cluster.phase("r2")),
            (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete),
            "{policy}"
        );
    }
}

/// A wave in which no group can continue must not block the other waves forever.
#[test]
fn wave_is_passed_when_all_its_groups_are_excluded() {
    for out in ["locked", "deferred", "excluded", "left out", "stuck"] {
        let mut cluster = SimulatedCluster::new(&format!("deferral: [{{namespaces: '*', max: 24h}}]\n{CANARY}"), {
            vec![canary("c"), canary("d"), group("a")]
        });
        cluster.image = "ami-2".into();
        cluster.store();
        for name in ["c", "d"] {
            let key = format!("team/{name}");
            match out {
                "locked" => cluster.group(name).locked = true,
                "deferred" => {
                    let until = "2099-01-01T00:00:00Z".to_owned();
                    cluster.group(name).annotations.insert(annotation::DEFER_UNTIL.to_owned(), until);
                }
                "excluded" => {
                    cluster.group(name).namespace.insert(annotation::CONFIG_EXCLUDED.to_owned(), "true".to_owned());
                }
                "stuck" => (cluster.group(name).blocked, cluster.group(name).stuck) = (true, true),
                _ => cluster.revision("r2").spec.orders.without.push(key),
            }
        }
        cluster.run(30);
        assert_eq!(cluster.images(), ["ami-1", "ami-1", "ami-2"], "{out}");
        assert_eq!(cluster.phase("r2"), RolloutPhase::Complete, "{out}");
        let behind = cluster.revision("r2").status.clone().expect("a status").behind;
        assert_eq!(behind.len(), if out == "excluded" { 0 } else { 2 }, "{out}: {behind:?}");
    }
}

/// An admin who removes an open wave from the policy must not open the next wave before anything has soaked.
#[test]
fn deleted_waves_leave_the_order_of_the_others() {
    let three = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: half, percent: 50, soak: 10m}, {name: rest}]";
    let groups = || vec![canary("c"), group("a"), group("b"), group("d"), group("e")];
    for (later, state) in [
        (CANARY, "half"),
        ("waves: [{name: half, percent: 50, soak: 10m}, {name: rest}]", "canary"),
        ("waves: [{name: rest}, {name: canary, namespaces: 'rollout/wave = canary', soak: 10m}]", "canary"),
    ] {
        let mut cluster = SimulatedCluster::new(three, groups());
        cluster.image = "ami-2".into();
        let is_open = |cluster: &SimulatedCluster| {
            cluster.waves("r2").iter().any(|(name, found)| name == state && *found == WaveState::Open)
        };
        cluster.run_until(is_open);
        cluster.policy = Some(later.to_owned());
        cluster.run_until_stable();
        assert_eq!(
            (cluster.images(), cluster.phase("r2")),
            (vec!["ami-2".to_owned(); 5], RolloutPhase::Complete),
            "{later}"
        );
    }
}

/// A change that every group adopts without a rotation is complete at once. A change whose rollout waits keeps its
/// place.
#[test]
fn changes_in_place_can_follow_the_waves() {
    let mut cluster =
        SimulatedCluster::new(&format!("{{withoutRotation: waves, {CANARY}}}"), vec![canary("c"), group("a")]);
    cluster.tag = "two".into();
    cluster.run_until(|cluster| !cluster.groups[0].log.is_empty());
    cluster.run(5);
    let switches =
        |group: &Group| group.log.iter().filter(|action| matches!(action, RecordedAction::Switched { .. })).count();
    assert_eq!((switches(&cluster.groups[0]), switches(&cluster.groups[1])), (1, 0));
    cluster.run_until_stable();
    assert_eq!((switches(&cluster.groups[1]), cluster.phase("r2")), (1, RolloutPhase::Complete));
}

/// A pause stops a return as well. The return is not complete before each group has returned.
#[test]
fn way_back_is_complete_when_every_group_is_back() {
    for block in ["paused", "config"] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        cluster.image = "ami-1".into();
        cluster.store();
        assert_eq!(cluster.phase_of("r3"), None);
        match block {
            "paused" => cluster.revision("r3").spec.orders.paused = true,
            _ => cluster.config_problem = Some("it is broken".into()),
        }
        cluster.run(20);
        let is_over = cluster.phase("r3") == RolloutPhase::Complete;
        assert_eq!(is_over, cluster.images() == ["ami-1"; 3], "{block}: {:?}", cluster.images());
        cluster.revision("r3").spec.orders.paused = false;
        cluster.config_problem = None;
        cluster.run_until_stable();
        assert_eq!(
            (cluster.images(), cluster.phase("r3")),
            (vec!["ami-1".to_owned(); 3], RolloutPhase::Complete),
            "{block}"
        );
    }
}

/// An admin who skips a wave must still see which groups do not have the change, and why.
#[test]
fn groups_of_a_skipped_wave_that_wait_are_listed() {
    let mut cluster =
        SimulatedCluster::new(&format!("{{budget: {{nodes: 1}}, {CANARY}}}"), vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.budget_used_up = true;
    cluster.revision("r2").spec.orders.skipped = vec!["*".into()];
    cluster.run(10);
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".to_owned(); 2]));
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert!(behind.len() == 2 && behind.iter().all(|behind| behind.reason == "BudgetUsedUp"), "{behind:?}");
    cluster.budget_used_up = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 2]);
}

/// After a change of the leader, the watch of Namespaces may be late. No wave may pass while it is unknown which groups
/// belong to it.
#[test]
fn no_wave_passes_while_the_namespace_of_a_group_is_unknown() {
    for state in ["assessing", "rotates", "soaks", "second wave", "returns"] {
        let mut cluster = interrupted(state);
        cluster.restart();
        let before = (cluster.phase_of("r2"), cluster.waves("r2"));
        cluster.groups.iter_mut().for_each(|group| group.unseen = true);
        cluster.run(60);
        let is_begun = |found: &(Option<RolloutPhase>, _)| found.0.is_some();
        assert!(!is_begun(&before) || (cluster.phase_of("r2"), cluster.waves("r2")) == before, "{state}: {before:?}");
        assert_ne!(cluster.phase_of("r2"), Some(RolloutPhase::Complete), "{state}");
        let has_begun = cluster.phase_of("r2") == Some(RolloutPhase::Rolling);
        assert!(state != "assessing" || !has_begun, "it is not known what the change means");
        cluster.groups.iter_mut().for_each(|group| group.unseen = false);
        cluster.run_until_stable();
        assert!(matches!(cluster.phase("r2"), RolloutPhase::Complete | RolloutPhase::Aborted), "{state}");
    }
}

/// A change that an admin withdraws before any group has switched must not reset the soak of the previous change.
#[test]
fn restored_content_continues_its_soak_and_may_fail() {
    for is_bad in [false, true] {
        let mut cluster = interrupted("soaks");
        cluster.image = "ami-3".into();
        cluster.store();
        cluster.revision("r3").spec.orders.paused = true;
        cluster.run(2);
        cluster.image = "ami-2".into();
        cluster.run(4);
        assert_eq!(cluster.newest(), "r4");
        assert_eq!(cluster.waves("r4")[0].1, WaveState::Soaking);
        assert!(cluster.groups[1].log.is_empty(), "the soak is not over: {:?}", cluster.groups[1].log);
        if is_bad {
            cluster.group("c").bad_images.insert("ami-2".into());
            cluster.run_until(|cluster| cluster.phase_of("r4") == Some(RolloutPhase::Halted));
            cluster.run(20);
            assert_eq!(cluster.images()[1..], ["ami-1", "ami-1"]);
            continue;
        }
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r4")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
        let settled: Timestamp = cluster.groups[0]
            .status
            .rollout
            .as_ref()
            .and_then(|r| r.settled.clone())
            .expect("a time")
            .parse()
            .expect("a time");
        let first = cluster.groups[1].log.iter().find_map(|action| match action {
            RecordedAction::Replaced { at, .. } => Some(*at),
            RecordedAction::Switched { .. } => None,
        });
        assert!(first.expect("a node was replaced").duration_since(settled) >= SignedDuration::from_mins(10));
    }
}

/// The way that the controller itself names: abort, then revert in Git. The return is bound to the budget until it is over.
#[test]
fn revert_after_an_abort_continues_the_return() {
    let mut cluster = interrupted("returns");
    cluster.image = "ami-1".into();
    cluster.run(2);
    assert_eq!(cluster.newest(), "r3");
    let old = |cluster: &SimulatedCluster| cluster.groups[0].nodes.iter().filter(|image| *image == "ami-2").count();
    assert!(old(&cluster) > 0, "the test is too slow");
    let rotates_for_revision = |cluster: &mut SimulatedCluster| {
        let view = cluster.view().expect("a rollout");
        let group = cluster.groups[0].clone();
        let own = view.stored[group.status.boundaries_revision.as_ref().expect("a revision")].clone();
        group.group_view(&RevisionImpact::Unknown, None).rotates_for_revision(&own)
    };
    while old(&cluster) > 0 {
        assert!(rotates_for_revision(&mut cluster), "its nodes go within the budget");
        assert_ne!(cluster.phase_of("r3"), Some(RolloutPhase::Complete));
        cluster.poll();
    }
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Complete));
}

/// The correction may wait for an approval for days. The failed change must not reach more nodes in that time.
#[test]
fn correction_does_not_resume_the_failed_change() {
    let policy =
        "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m, approval: admin}, {name: rest}]";
    for is_aborted in [false, true] {
        let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), canary("d"), group("a")]);
        cluster.group("d").nodes = vec!["ami-1".into(); 20];
        cluster.group("c").bad_images.insert("ami-2".into());
        cluster.image = "ami-2".into();
        cluster.store();
        cluster.revision("r2").spec.orders.approved = vec!["canary".into()];
        cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Halted));
        if is_aborted {
            cluster.revision("r2").spec.orders.aborted = true;
            cluster.poll();
        }
        let before = replaced(&cluster.groups[1], "ami-2");
        assert!(before < 20, "the test is too slow");
        cluster.image = "ami-3".into();
        cluster.run(60);
        assert_eq!(replaced(&cluster.groups[1], "ami-2"), before, "aborted: {is_aborted}");
        assert_eq!(cluster.images(), ["ami-1"; 3]);
        cluster.revision("r3").spec.orders.approved = vec!["canary".into()];
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
    }
}

/// The same for a content that was complete long ago. That it was good then does not prove it for the groups that failed with
/// it now.
#[test]
fn correction_does_not_resume_a_failed_change_that_was_complete_before() {
    let policy =
        "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m, approval: admin}, {name: rest}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), canary("d"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.approved = vec!["canary".into()];
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    // Nothing says that the groups had the other content before.
    cluster.groups.iter_mut().for_each(|group| group.status.rollout = None);
    cluster.group("d").nodes = vec!["ami-2".into(); 20];
    cluster.group("c").bad_images.insert("ami-1".into());
    cluster.image = "ami-1".into();
    cluster.store();
    cluster.revision("r3").spec.orders.approved = vec!["canary".into()];
    cluster.run_until(|cluster| cluster.phase_of("r3") == Some(RolloutPhase::Halted));
    let before = replaced(&cluster.groups[1], "ami-1");
    assert!((1..20).contains(&before), "the test is too slow");
    cluster.image = "ami-3".into();
    cluster.run(60);
    assert_eq!(replaced(&cluster.groups[1], "ami-1"), before);
    assert_eq!(cluster.images(), ["ami-2"; 3]);
    cluster.revision("r4").spec.orders.approved = vec!["canary".into()];
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r4")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
}
