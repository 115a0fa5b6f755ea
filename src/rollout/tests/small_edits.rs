//! Edits that replace no node, in the middle of a rollout whose image is not proved yet.

use super::simulated_cluster::{CANARY, Group, RecordedAction, SimulatedCluster, canary, group};
use crate::api::{RolloutPhase, WaveState};
use crate::rollout::WaitReason;

const ONE_OF_THREE: [&str; 3] = ["ami-2", "ami-1", "ami-1"];

/// Edits that change nothing of the canary, and edits that replace no node of it.
const EDITS: [fn(&mut SimulatedCluster, usize); 2] = [
    |cluster, number| cluster.comment = format!("note {number}"),
    |cluster, number| cluster.tag = format!("tag-{number}"),
];

fn is_soaking(cluster: &SimulatedCluster, revision: &str) -> bool {
    cluster.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

fn soaking(policy: &str) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| is_soaking(cluster, "r2"));
    cluster
}

/// Otherwise a comment in the ConfigMap would give all groups an image that the canary has run for a minute.
#[test]
fn comment_during_a_soak_releases_no_group_and_the_soak_continues() {
    for policy in [CANARY.to_owned(), format!("{{withoutRotation: waves, {CANARY}}}")] {
        let mut cluster = soaking(&policy);
        for number in 0..10 {
            cluster.comment = format!("note {number}");
            cluster.run(2);
            assert_eq!(cluster.images(), ONE_OF_THREE, "{policy}");
        }
        assert!(is_soaking(&cluster, "r12"), "{:?}", cluster.waves("r12"));
        // Ten minutes of soak are 40 polls, of which about 20 have passed.
        cluster.run(35);
        assert_eq!(cluster.images(), ["ami-2"; 3], "{policy}: the soak was begun again");
    }
}

/// The image fails in the canary after an admin edited a comment. The failure still counts for the image.
#[test]
fn failure_after_a_small_edit_halts_and_returns_the_canary() {
    for edit in EDITS {
        let mut cluster = soaking(CANARY);
        edit(&mut cluster, 1);
        cluster.run(4);
        cluster.group("c").bad_images.insert("ami-2".into());
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    }
}

/// A failure that exists before an admin's small edit must still halt the rollout after the edit.
#[test]
fn failure_before_a_small_edit_is_not_forgotten_with_it() {
    for edit in EDITS {
        let mut cluster = soaking(CANARY);
        cluster.group("c").bad_images.insert("ami-2".into());
        let view = cluster.view().expect("a rollout");
        cluster.now += jiff::SignedDuration::from_secs(15);
        // The group has reported it, and the controller has not polled again.
        cluster.reconcile(0, &view);
        edit(&mut cluster, 1);
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    }
}

/// An admin who pauses a rollout expects that no node is replaced, whatever was edited in the meantime.
#[test]
fn pause_after_a_small_edit_stops_the_rotation_of_the_canary() {
    for edit in EDITS {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
        cluster.group("c").nodes = vec!["ami-1".into(); 20];
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
        edit(&mut cluster, 1);
        cluster.store();
        cluster.revision("r3").spec.orders.paused = true;
        cluster.run(2);
        let nodes = cluster.groups[0].nodes.clone();
        cluster.run(10);
        assert_eq!(cluster.groups[0].nodes, nodes);
        cluster.revision("r3").spec.orders.paused = false;
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
    }
}

/// The controller polls the rollout before the canary is reconciled: its wave is not an empty one.
#[test]
fn wave_of_a_canary_that_has_yet_to_switch_is_not_empty() {
    for edit in EDITS {
        let mut cluster = soaking(CANARY);
        edit(&mut cluster, 1);
        cluster.store();
        cluster.revision("r3").spec.orders.paused = true;
        cluster.run(3);
        cluster.revision("r3").spec.orders.paused = false;
        (0..3).for_each(|_| cluster.advance_rollout());
        assert_eq!(cluster.waves("r3")[1].1, WaveState::Waiting);
    }
}

/// An edit of a comment must not write to every group of a cluster that is at rest.
#[test]
fn comment_on_a_complete_revision_writes_to_no_group() {
    let mut cluster = soaking(CANARY);
    cluster.run_until_stable();
    cluster.groups.iter_mut().for_each(|group| group.log.clear());
    cluster.comment = "note".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete);
    assert!(cluster.groups.iter().all(|group| group.log.is_empty()));
}

/// A tenant whose drain hangs when the rollout ends still waits for the next window.
#[test]
fn comment_does_not_free_a_group_that_was_not_waited_for() {
    let mut cluster =
        SimulatedCluster::new(CANARY, vec![Group { nodes: vec!["ami-1".into(); 9], ..canary("c") }, group("a")]);
    (cluster.group("c").blocked, cluster.group("c").stuck) = (true, true);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    cluster.comment = "note".into();
    cluster.run_until_stable();
    cluster.revision("r3").spec.orders.paused = true;
    (cluster.group("c").blocked, cluster.group("c").stuck) = (false, false);
    cluster.run_until_stable();
    assert_eq!(cluster.images()[0], "ami-1");
    cluster.revision("r3").spec.orders.paused = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images()[0], "ami-2");
}

/// A group that a lock kept on a revision which was complete returns to that one, and not past it.
#[test]
fn failed_group_returns_to_the_complete_revision_that_it_had() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.group("a").locked = true;
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    cluster.group("a").locked = false;
    cluster.image = "ami-4".into();
    cluster.group("a").bad_images.insert("ami-4".into());
    cluster.group("a").locked = true;
    cluster.run_until(|cluster| is_soaking(cluster, "r4"));
    cluster.group("a").locked = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images()[1], "ami-2", "{:?}", cluster.groups[1].log);
    let switches = |action: &&RecordedAction| matches!(action, RecordedAction::Switched { .. });
    assert_eq!(cluster.groups[1].log.iter().filter(switches).count(), 3, "r2, r4, and back");
}

/// An admin who paused a rollout does not resume it with an edit of a comment, which a colleague may make. That holds
/// for a complete rollout as well, which a group follows late. Once its wave of the edit is open, the group continues.
#[test]
fn small_edit_does_not_resume_a_paused_rotation_before_its_wave() {
    let policy = "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest, approval: admin}]";
    for is_complete in [false, true] {
        let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
        cluster.group("a").nodes = vec!["ami-1".into(); 6];
        cluster.group("a").locked = is_complete;
        cluster.image = "ami-2".into();
        cluster.store();
        cluster.revision("r2").spec.orders.approved = vec!["rest".into()];
        if is_complete {
            cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
            cluster.group("a").locked = false;
        }
        cluster.run_until(|cluster| cluster.groups[1].nodes.contains(&"ami-2".to_owned()));
        cluster.revision("r2").spec.orders.paused = true;
        let before = cluster.groups[1].nodes.clone();
        cluster.comment = "a comment".into();
        cluster.run_until_stable();
        assert_eq!(cluster.groups[1].nodes, before, "complete: {is_complete}");
        assert_eq!(cluster.groups[1].waits, Some(WaitReason::WaveNotOpen));
        cluster.revision("r3").spec.orders.approved = vec!["rest".into()];
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r3"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
    }
}

/// A group that followed a complete revision late was paused by a user, and the next revision replaces its nodes. While
/// it waits in the open wave, for other groups or for the budget, the controller must not resume what was paused.
#[test]
fn pause_of_a_late_group_holds_while_it_waits_in_an_open_wave() {
    for (limit, reason) in [("atOnce: 1", WaitReason::WaveBusy), ("", WaitReason::BudgetUsedUp)] {
        let canary = "{name: canary, namespaces: 'rollout/wave = canary'}";
        let budget = if limit.is_empty() { ", budget: {nodes: 1}" } else { "" };
        let policy = format!("{{waves: [{canary}, {{name: rest, {limit}}}]{budget}}}");
        let mut cluster = SimulatedCluster::new(&policy, vec![group("b"), group("a")]);
        cluster.group("a").nodes = vec!["ami-1".into(); 6];
        cluster.group("b").nodes = vec!["ami-1".into(); 20];
        cluster.group("a").locked = true;
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
        cluster.group("a").locked = false;
        cluster.run_until(|cluster| cluster.groups[1].nodes.contains(&"ami-2".to_owned()));
        cluster.revision("r2").spec.orders.paused = true;
        let before = cluster.groups[1].nodes.clone();
        cluster.image = "ami-3".into();
        cluster.budget_used_up = true;
        cluster.run_until(|cluster| cluster.groups[1].waits == Some(reason));
        cluster.run(5);
        assert_eq!((&cluster.groups[1].nodes, cluster.groups[1].waits), (&before, Some(reason)));
        cluster.budget_used_up = false;
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-3"; 2], "{reason}");
    }
}
