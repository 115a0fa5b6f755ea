//! Stored revisions that the controller did not store, or cannot read.

use super::simulated_cluster::{CANARY, RecordedAction, SimulatedCluster, canary, group};
use crate::api::{
    BoundariesRevision, BoundariesRevisionSpec, BoundariesRevisionStatus, RolloutPhase, WaveState, WaveStatus,
};
use crate::boundaries::{ROLLOUT_KEY, content_hash};
use crate::rollout::{WaitReason, foreign_names};

fn two_waves() -> SimulatedCluster {
    SimulatedCluster::new(CANARY, vec![canary("c"), group("a")])
}

fn break_text(cluster: &mut SimulatedCluster, revision: &str, key: &str, text: &str) {
    cluster.revision(revision).spec.data.insert(key.to_owned(), text.to_owned());
    cluster.upgrade();
}

/// A user creates an object whose name looks like that of a revision, and whose content no admin approved.
#[test]
fn foreign_revision_begins_and_ends_nothing_and_no_group_gets_its_content() {
    let mut cluster = two_waves();
    let text = "spec: {eks: {configuration: {image: ami-evil}}}".to_owned();
    let data = [("defaults".to_owned(), text)].into();
    let spec = BoundariesRevisionSpec { number: 99, hash: "x".into(), data, ..Default::default() };
    cluster.revisions.push(BoundariesRevision::new("r99", spec));
    cluster.image = "ami-2".into();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Halted, vec!["ami-1".to_owned(); 2]));
    let status = cluster.revision("r2").status.clone().expect("a status");
    assert_eq!(status.stable.as_deref(), Some("r1"));
    assert_eq!(foreign_names(&cluster.revisions).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["r99"]);
    assert_eq!(cluster.phase_of("r99"), None, "it is left alone");
    // In the middle of a rollout it does not begin the waves again.
    let mut cluster = in_the_first_soak();
    let spec = BoundariesRevisionSpec { number: 99, ..Default::default() };
    cluster.revisions.push(BoundariesRevision::new("r99", spec));
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
    assert_eq!(cluster.revisions.len(), 3);
}

/// After an upgrade of the controller, what was complete may not parse any more. A still older one is not the revision
/// of any group. A failed group must not return to it, nor a new one begin with it.
#[test]
fn rollout_waits_while_the_revision_to_return_to_cannot_be_read() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    cluster.image = "ami-3".into();
    cluster.store();
    break_text(&mut cluster, "r2", "defaults", "spec: [");
    cluster.groups.push(group("new"));
    cluster.group("new").nodes.clear();
    cluster.run(100);
    assert_eq!(cluster.images(), ["ami-2", "ami-2", ""]);
    assert_eq!(cluster.group("new").waits, Some(WaitReason::RevisionUnknown));
    assert_eq!(cluster.group("new").status.boundaries_revision, None, "nothing is made from a guess");
    let why = cluster.why("r3", "canary").unwrap_or_default();
    assert!(why.contains("BoundariesRevision r2, which this release cannot read (defaults"), "{why}");
    assert!(why.contains("or delete it"), "{why}");
    // The admin decides to do without it.
    cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2"));
    cluster.run_until_stable();
    assert_eq!(
        (cluster.phase("r3"), cluster.images()[..2].to_vec()),
        (RolloutPhase::Complete, ["ami-3"; 2].iter().map(ToString::to_string).collect())
    );
}

/// The first wave has r2, and its soak has begun.
fn in_the_first_soak() -> SimulatedCluster {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|(_, state)| *state == WaveState::Soaking));
    cluster
}

/// Only the policy of the rollout under way counts, so that an old one that does not parse any more hides no content.
#[test]
fn unreadable_policy_of_an_older_revision_changes_nothing() {
    let mut cluster = in_the_first_soak();
    break_text(&mut cluster, "r1", ROLLOUT_KEY, "waves: 3");
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Aborted, vec!["ami-1".to_owned(); 2]));
}

/// The key was lost in the middle of a rollout, and the release of the controller that follows cannot read what it was.
#[test]
fn lost_policy_that_cannot_be_read_releases_nothing() {
    let mut cluster = in_the_first_soak();
    cluster.policy = None;
    break_text(&mut cluster, "r2", ROLLOUT_KEY, "waves: 3");
    assert_eq!(content_hash(&cluster.data()), cluster.revision("r2").spec.hash);
    cluster.run(100);
    assert!(!cluster.released);
    assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
    let problem = cluster.view().and_then(|view| view.config_problem.clone()).unwrap_or_default();
    assert!(problem.contains("put the key back"), "{problem}");
    cluster.policy = Some(CANARY.to_owned());
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// A backup restores BoundariesRevisions without their statuses. What the rollout under way recorded of its predecessor
/// counts: a new group must not begin with a still older content.
#[test]
fn predecessor_without_a_status_stays_the_one_that_the_rollout_recorded() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.image = "ami-3".into();
    cluster.run_until(|cluster| cluster.waves("r3").first().is_some_and(|(_, state)| *state == WaveState::Soaking));
    cluster.revision("r2").status = None;
    cluster.groups.push(group("new"));
    cluster.group("new").nodes.clear();
    cluster.run(3);
    let hash = cluster.revision("r2").spec.hash.clone();
    assert_eq!(cluster.group("new").status.boundaries_revision.as_deref(), Some(hash.as_str()));
    assert_eq!(cluster.revision("r3").status.clone().and_then(|status| status.stable).as_deref(), Some("r2"));
}

/// The next release of the controller hashes the texts of the ConfigMap in another way. What users and failures stopped
/// must not begin again because of that, nor a wave open, nor a soak start over.
#[test]
fn another_hash_of_the_same_texts_is_no_change() {
    use RolloutPhase::{Aborted, Complete, Halted, Rolling};
    for (state, end) in [(Aborted, Aborted), (Halted, Halted), (Rolling, Complete), (Complete, Complete)] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        if state == Halted {
            cluster.group("c").bad_images.insert("ami-2".into());
        }
        match state {
            Rolling => {
                cluster
                    .run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
            }
            _ => cluster.run_until_stable(),
        }
        if state == Aborted {
            cluster.revision("r2").spec.orders.aborted = true;
            cluster.run_until_stable();
        }
        assert_eq!(cluster.phase("r2"), state);
        let (images, status) = (cluster.images(), cluster.revision("r2").status.clone());
        let older = |hash: &str| format!("older-{hash}");
        cluster.revisions.iter_mut().for_each(|revision| revision.spec.hash = older(&revision.spec.hash));
        for group in &mut cluster.groups {
            group.status.boundaries_revision = group.status.boundaries_revision.as_deref().map(older);
            let record = group.status.rollout.as_mut();
            if let Some(record) = record {
                record.previous = record.previous.as_deref().map(older);
                record.refused_hash = record.refused_hash.as_deref().map(older);
            }
        }
        cluster.upgrade();
        cluster.run(2);
        assert_eq!((cluster.images(), cluster.revisions.len()), (images, 2), "{state}");
        let waves = |status: Option<BoundariesRevisionStatus>| status.map(|status| status.waves);
        assert_eq!(waves(cluster.revision("r2").status.clone()), waves(status), "{state}");
        cluster.run_until_stable();
        assert_eq!((cluster.newest().as_str(), cluster.phase("r2")), ("r2", end), "{state}");
    }
}

/// The key was lost, and no release can read what it was until an admin puts it back. What was recorded of the waves must
/// still be there then: passed waves, soaks, and which groups a percentage has.
#[test]
fn waves_of_a_policy_that_cannot_be_read_stay_recorded() {
    let policy = "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: early, percent: 50, soak: 10m}, {name: rest}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").get(1).is_some_and(|wave| wave.1 == WaveState::Soaking));
    let (images, before) = (cluster.images(), cluster.revision("r2").status.clone().expect("a status").waves);
    assert!(before[1].cut.is_some() && before[0].passed.is_some());
    cluster.policy = None;
    break_text(&mut cluster, "r2", ROLLOUT_KEY, "waves: 3");
    cluster.run(100);
    assert_eq!(cluster.images(), images);
    assert_eq!(cluster.revision("r2").status.clone().expect("a status").waves, before);
    cluster.policy = Some(policy.to_owned());
    cluster.run(2);
    let after = cluster.revision("r2").status.clone().expect("a status").waves;
    let essence = |wave: &WaveStatus| (wave.name.clone(), wave.opened.clone(), wave.settled.clone(), wave.cut);
    assert_eq!(after[..2].iter().map(essence).collect::<Vec<_>>(), before[..2].iter().map(essence).collect::<Vec<_>>());
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 3]));
}

/// A backup restores the BoundariesRevisions of another release of the controller: they have no status, and this release
/// computes another hash of their data.
fn restore_of_another_release(cluster: &mut SimulatedCluster) {
    let other = |hash: &str| format!("other-{hash}");
    for revision in &mut cluster.revisions {
        (revision.spec.hash, revision.status) = (other(&revision.spec.hash), None);
    }
    for group in &mut cluster.groups {
        group.status.boundaries_revision = group.status.boundaries_revision.as_deref().map(other);
        group.log.clear();
    }
    cluster.upgrade();
}

/// The revisions of a backup cannot be distinguished from objects that a user wrote. No node may be replaced because of
/// them, and the admin must learn which ones they are, and which groups were made from them.
#[test]
fn restored_revisions_of_another_release_replace_no_node_and_are_named() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    restore_of_another_release(&mut cluster);
    cluster.store();
    let view = cluster.view().expect("a rollout");
    assert_eq!((view.target.name.as_str(), view.is_history_lost()), ("r3", true));
    let of_r2 = view.unverified.iter().find(|(_, name)| *name == "r2").map(|(hash, _)| hash.clone());
    assert_eq!(of_r2, cluster.groups[1].status.boundaries_revision, "what the group's condition names");
    for (name, why) in foreign_names(&cluster.revisions) {
        assert!(["r1", "r2"].contains(&name.as_str()) && why.contains("backup"), "{name} {why}");
    }
    cluster.run_until_stable();
    assert!(
        cluster
            .groups
            .iter()
            .all(|group| !group.log.iter().any(|action| matches!(action, RecordedAction::Replaced { .. })))
    );
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete);
    // One that comes back later begins and ends nothing.
    let first = cluster.revisions[0].clone();
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    let spec = BoundariesRevisionSpec { number: 2, ..first.spec };
    cluster.revisions.retain(|revision| revision.spec.number > 2);
    cluster.revisions.push(BoundariesRevision::new("r2", spec));
    let writes = cluster.writes;
    cluster.run_until_stable();
    assert_eq!(
        (cluster.phase("r4"), cluster.writes, cluster.images()),
        (RolloutPhase::Complete, writes, vec!["ami-3".to_owned(); 2])
    );
}

/// People stopped a change. A backup brings the order back, and not what it was about, as far as the controller can
/// detect. The change must not begin again before a user orders it.
#[test]
fn restored_change_that_people_stopped_does_not_begin_again() {
    for aborts in [false, true] {
        let mut cluster = in_the_first_soak();
        let orders = &mut cluster.revision("r2").spec.orders;
        (orders.aborted, orders.paused) = (aborts, !aborts);
        cluster.run_until_stable();
        let images = cluster.images();
        restore_of_another_release(&mut cluster);
        cluster.run_until_stable();
        assert_eq!((cluster.newest().as_str(), cluster.images()), ("r3", images), "abort: {aborts}");
        let why = cluster.why("r3", "canary").unwrap_or_default();
        assert!(why.contains("delete r2"), "{why}");
        cluster.revisions.retain(|revision| revision.spec.number > 2);
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r3"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
    }
}

/// All revisions before a change are deleted while groups replace nodes for it, and then a user aborts it. Nothing is
/// left to which groups could return, but no further node may be replaced.
#[test]
fn abort_without_a_history_stops_the_rotation() {
    let mut cluster = two_waves();
    cluster.group("c").nodes = vec!["ami-1".into(); 20];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    cluster.revisions.retain(|revision| revision.spec.number == 2);
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.poll();
    let nodes = cluster.groups[0].nodes.clone();
    cluster.run_until_stable();
    assert_eq!((&cluster.groups[0].nodes, cluster.images()[1].as_str()), (&nodes, "ami-1"));
    cluster.revision("r2").spec.orders.aborted = false;
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// The history is lost only after the controller has recorded that groups return, and before they have. The target stays
/// aborted for a group that is left with it.
#[test]
fn return_whose_history_is_lost_replaces_no_node_for_the_aborted_change() {
    let mut cluster = two_waves();
    cluster.group("c").nodes = vec!["ami-1".into(); 20];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.advance_rollout();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Returning);
    cluster.restart();
    cluster.revisions.retain(|revision| revision.spec.number == 2);
    let nodes = cluster.groups[0].nodes.clone();
    cluster.run_until_stable();
    assert_eq!((&cluster.groups[0].nodes, cluster.images()[1].as_str()), (&nodes, "ami-1"));
    let orders = &mut cluster.revision("r2").spec.orders;
    (orders.aborted, orders.retries) = (false, 1);
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// The same for a change that was aborted, when all revisions before it are lost.
#[test]
fn aborted_change_without_a_history_does_not_begin_again() {
    let mut cluster = in_the_first_soak();
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    cluster.revision("r2").status = None;
    cluster.revisions.retain(|revision| revision.spec.number == 2);
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-1"; 2]);
    let why = cluster.why("r2", "canary").unwrap_or_default();
    assert!(why.contains("rollout resume r2"), "{why}");
    cluster.revision("r2").spec.orders.aborted = false;
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// r3 brings the content of r1 back in waves, and its first wave soaks. The other groups were created with r2, so that
/// nothing says that they had that content before.
fn way_back_in_waves() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.groups.iter_mut().for_each(|group| group.status.rollout = None);
    cluster.image = "ami-1".into();
    cluster.run_until(|cluster| cluster.waves("r3").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    assert_eq!(cluster.images(), ["ami-1", "ami-2", "ami-2"]);
    cluster
}

/// A user deletes the revision that the groups come from, or a backup restores it without its status. An older one has the
/// content of the rollout under way, which must not become a return for every group at once because of that.
#[test]
fn waves_continue_although_only_an_older_revision_with_the_same_content_is_known_to_be_good() {
    for is_deleted in [true, false] {
        let mut cluster = way_back_in_waves();
        match is_deleted {
            true => cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2")),
            false => (cluster.revision("r2").status, cluster.revision("r3").status) = (None, None),
        }
        cluster.run(5);
        assert_eq!(cluster.images(), ["ami-1", "ami-2", "ami-2"], "deleted: {is_deleted}");
        let reason = if is_deleted { WaitReason::RevisionUnknown } else { WaitReason::WaveNotOpen };
        assert_eq!(cluster.group("a").waits, Some(reason));
        let status = cluster.revision("r3").status.clone().expect("a status");
        let recorded = is_deleted.then_some("r2");
        assert_eq!((status.stable.as_deref(), status.without_waves), (recorded, Some(false)));
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r3"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".to_owned(); 3]));
    }
}

/// An admin reverts an edit within seconds, before the controller has begun to roll it out. No group has it, so that no
/// group must wait for the revert.
#[test]
fn revert_of_a_change_that_never_began_waits_for_no_delay() {
    let policy = "{delay: [{clusters: '*', by: 48h}], waves: [{name: all}]}";
    let mut cluster = SimulatedCluster::new(policy, vec![group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.image = "ami-1".into();
    cluster.run(10);
    assert_eq!((cluster.newest().as_str(), cluster.phase("r3")), ("r3", RolloutPhase::Complete));
}

/// Nothing is stored while the ConfigMap is broken. A user who deletes the revision under way must not bring back what
/// became of an older one with the same texts: its return, or its open waves.
#[test]
fn deleted_revision_is_not_continued_as_an_older_one_with_the_same_texts() {
    for aborts in [true, false] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| soaks_first_wave(cluster, "r2"));
        cluster.revision("r2").spec.orders.aborted = aborts;
        cluster.run_until_stable();
        for image in ["ami-3", "ami-4"] {
            cluster.image = image.into();
            cluster.run_until_stable();
        }
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| soaks_first_wave(cluster, "r5"));
        assert_eq!(cluster.images(), ["ami-2", "ami-4"]);
        cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r5"));
        for problem in [None, Some("it is broken".to_owned())] {
            let mut cluster = cluster.clone();
            cluster.config_problem = problem;
            let view = cluster.view().expect("a rollout");
            assert_eq!(view.target.name, "r2");
            (0..2).for_each(|index| cluster.reconcile(index, &view));
            assert_eq!(cluster.images(), ["ami-2", "ami-4"], "aborted before: {aborts}");
            assert_eq!(cluster.groups[1].waits, Some(WaitReason::ConfigMapUnusable));
        }
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r5"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
    }
}

fn soaks_first_wave(cluster: &SimulatedCluster, revision: &str) -> bool {
    cluster.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}
