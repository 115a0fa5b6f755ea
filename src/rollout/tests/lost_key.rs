//! The key `rollout` is lost, as by a kustomize patch that does not apply any more: nothing is released by that. An
//! older release of the controller does not know the key, and a lock has to hold what it does.

use super::simulated_cluster::{CANARY, RecordedAction, SimulatedCluster, canary, group};
use crate::api::{RolloutPhase, WaveState};

fn two_waves() -> SimulatedCluster {
    SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

fn is_soaking(cluster: &SimulatedCluster, revision: &str) -> bool {
    cluster.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// Leads ami-2 to a state in which the key is lost.
fn interrupted(state: &str) -> SimulatedCluster {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.store();
    match state {
        "stored" => {}
        "soaks" => cluster.run_until(|cluster| is_soaking(cluster, "r2")),
        "halted" => {
            cluster.group("c").bad_images.insert("ami-2".into());
            cluster.run_until_stable();
            assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
        }
        _ => {
            cluster.run_until(|cluster| is_soaking(cluster, "r2"));
            cluster.revision("r2").spec.orders.aborted = true;
            cluster.run_until_stable();
            assert_eq!(cluster.phase("r2"), RolloutPhase::Aborted);
        }
    }
    cluster
}

/// A change that was aborted, or that has not begun, must not reach all groups because the key `rollout` is missing.
#[test]
fn lost_key_releases_no_revision_that_has_not_reached_every_group() {
    for (state, phase, images) in [
        ("stored", RolloutPhase::Rolling, ["ami-2", "ami-1", "ami-1"]),
        ("soaks", RolloutPhase::Rolling, ["ami-2", "ami-1", "ami-1"]),
        ("halted", RolloutPhase::Halted, ["ami-1"; 3]),
        ("aborted", RolloutPhase::Aborted, ["ami-1"; 3]),
    ] {
        let mut cluster = interrupted(state);
        cluster.policy = None;
        cluster.run(15);
        assert_eq!((cluster.phase("r2"), cluster.images()), (phase, images.map(str::to_owned).to_vec()), "{state}");
        assert!(!cluster.released, "{state}");
    }
}

/// The commit after the one that lost the key goes through the waves as well, and the one after that.
#[test]
fn change_after_the_key_rollout_was_removed_rolls_out_in_waves() {
    for state in ["stored", "soaks", "halted", "aborted"] {
        let mut cluster = interrupted(state);
        cluster.policy = None;
        for (image, revision) in [("ami-3", "r3"), ("ami-4", "r4")] {
            cluster.image = image.into();
            cluster.run_until(|cluster| is_soaking(cluster, revision));
            assert_eq!(cluster.images()[1..], ["ami-1", "ami-1"], "{state}: {image}");
        }
        cluster.run_until(|cluster| cluster.released);
        assert_eq!(
            (cluster.images(), cluster.phase("r4")),
            (vec!["ami-4".to_owned(); 3], RolloutPhase::Complete),
            "{state}"
        );
        // From here on every group takes a change at once, as without rollouts.
        cluster.image = "ami-5".into();
        cluster.run(3);
        assert_eq!(cluster.images(), ["ami-5"; 3], "{state}");
    }
}

/// An admin who removes the key `rollout` must not have to wait for the waves of the last one.
#[test]
fn skipped_waves_end_the_kept_policy() {
    let mut cluster = interrupted("soaks");
    cluster.policy = None;
    cluster.run(2);
    cluster.revision("r2").spec.orders.skipped = vec!["*".into()];
    cluster.run_until(|cluster| cluster.released);
    cluster.run(4);
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// The remedy of a change that was aborted works without the key, too.
#[test]
fn revert_without_the_key_is_complete_at_once() {
    let mut cluster = interrupted("aborted");
    cluster.policy = None;
    cluster.image = "ami-1".into();
    cluster.run_until(|cluster| cluster.released);
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Complete));
}

/// A locked ConfigMap, and an older release that gave the change in the first soak to every group. It keeps the records
/// of the rollout, or drops them.
fn after_a_locked_downgrade(drops_records: bool) -> SimulatedCluster {
    let mut cluster = interrupted("soaks");
    set_lock(&mut cluster, true);
    cluster.groups.iter_mut().for_each(|group| group.log.clear());
    cluster.take_live_content();
    let hash = cluster.revision("r2").spec.hash.clone();
    for group in &mut cluster.groups {
        assert_eq!(group.status.boundaries_revision.as_ref(), Some(&hash));
        group.status.rollout = group.status.rollout.take().filter(|_| !drops_records);
    }
    cluster.upgrade();
    cluster
}

fn set_lock(cluster: &mut SimulatedCluster, is_locked: bool) {
    cluster.config_problem = is_locked.then(|| "the ConfigMap has the annotation lock-upgrades".into());
    cluster.groups.iter_mut().for_each(|group| group.locked = is_locked);
}

/// After an upgrade, every status names the change, and most nodes do not run it. An admin must not read that it is
/// complete, and after the lock the rollout must end.
#[test]
fn change_that_an_older_release_gave_to_every_group_ends_when_the_lock_is_removed() {
    for drops_records in [false, true] {
        let mut cluster = after_a_locked_downgrade(drops_records);
        cluster.run(100);
        let found = (cluster.phase("r2"), cluster.images());
        assert_eq!(found, (RolloutPhase::Rolling, ["ami-2", "ami-1", "ami-1"].map(str::to_owned).to_vec()));
        set_lock(&mut cluster, false);
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 3]));
    }
}

/// An admin who aborts the change before removing the lock must lose no node of a group that never ran it.
#[test]
fn change_that_an_older_release_gave_to_every_group_can_be_aborted_behind_the_lock() {
    for drops_records in [false, true] {
        let mut cluster = after_a_locked_downgrade(drops_records);
        cluster.run(3);
        cluster.revision("r2").spec.orders.aborted = true;
        cluster.run(5);
        set_lock(&mut cluster, false);
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Aborted, vec!["ami-1".to_owned(); 3]));
        let is_replacement = |action: &RecordedAction| matches!(action, RecordedAction::Replaced { .. });
        assert!(!cluster.groups[1..].iter().any(|group| group.log.iter().any(is_replacement)));
    }
}

/// The key is lost in the first soak, and then a user deletes the revision. No stored object records the rollout, or
/// only an older complete revision has its content, and no group may take it ahead of its wave because of that.
#[test]
fn lost_key_releases_no_group_when_the_revision_is_deleted_as_well() {
    for (images, name) in [(["ami-2", "ami-1", "ami-1"], "r2"), (["ami-1", "ami-2", "ami-2"], "r3")] {
        let mut cluster = two_waves();
        cluster.image = images[1].into();
        cluster.run_until_stable();
        // Nothing says that the groups had the other content before.
        cluster.groups.iter_mut().for_each(|group| group.status.rollout = None);
        cluster.image = images[0].into();
        cluster.run_until(|cluster| is_soaking(cluster, name));
        cluster.policy = None;
        cluster.run(2);
        cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some(name));
        cluster.run(5);
        assert_eq!(cluster.images(), images, "{name}");
        assert!(!cluster.released && cluster.newest() == name, "{name}");
        cluster.run_until(|cluster| cluster.released);
        assert_eq!((cluster.images(), cluster.phase(name)), (vec![images[0].to_owned(); 3], RolloutPhase::Complete));
    }
}
