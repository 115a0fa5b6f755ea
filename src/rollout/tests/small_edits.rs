//! Edits that replace no node, in the middle of a rollout whose image is not proved yet.

use super::world::{CANARY, Did, Group, World, canary, group};
use crate::api::{RolloutPhase, WaveState};

const ONE_OF_THREE: [&str; 3] = ["ami-2", "ami-1", "ami-1"];

/// Edits that change nothing of the canary, and edits that replace no node of it.
const EDITS: [fn(&mut World, usize); 2] =
    [|world, number| world.comment = format!("note {number}"), |world, number| world.tag = format!("tag-{number}")];

fn is_soaking(world: &World, revision: &str) -> bool {
    world.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

fn soaking(policy: &str) -> World {
    let mut world = World::new(policy, vec![canary("c"), group("a"), group("b")]);
    world.image = "ami-2".into();
    world.run_until(|world| is_soaking(world, "r2"));
    world
}

/// Otherwise a comment in the ConfigMap would give an image to the whole fleet that the canary has run for a minute.
#[test]
fn comment_in_mid_soak_releases_nothing_and_the_soak_goes_on() {
    for policy in [CANARY.to_owned(), format!("{{withoutRotation: waves, {CANARY}}}")] {
        let mut world = soaking(&policy);
        for number in 0..10 {
            world.comment = format!("note {number}");
            world.run(2);
            assert_eq!(world.images(), ONE_OF_THREE, "{policy}");
        }
        assert!(is_soaking(&world, "r12"), "{:?}", world.waves("r12"));
        // Ten minutes of soak are 40 polls, of which about 20 have passed.
        world.run(35);
        assert_eq!(world.images(), ["ami-2"; 3], "{policy}: the soak was begun again");
    }
}

/// The image breaks in the canary after somebody edited a comment: it is still the image that failed.
#[test]
fn failure_after_a_small_edit_halts_and_takes_the_canary_back() {
    for edit in EDITS {
        let mut world = soaking(CANARY);
        edit(&mut world, 1);
        world.run(4);
        world.group("c").bad_images.insert("ami-2".into());
        world.settle();
        assert_eq!((world.images(), world.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    }
}

/// A failure that is there when the edit comes does not become one that nobody asks for.
#[test]
fn failure_before_a_small_edit_is_not_forgotten_with_it() {
    for edit in EDITS {
        let mut world = soaking(CANARY);
        world.group("c").bad_images.insert("ami-2".into());
        let view = world.view().expect("a rollout");
        world.now += jiff::SignedDuration::from_secs(15);
        // The group has reported it, and the controller has not looked again.
        world.reconcile(0, &view);
        edit(&mut world, 1);
        world.settle();
        assert_eq!((world.images(), world.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    }
}

/// Whoever pauses believes that no node goes, whatever was edited meanwhile.
#[test]
fn pause_after_a_small_edit_holds_the_canary_in_mid_rotation() {
    for edit in EDITS {
        let mut world = World::new(CANARY, vec![canary("c"), group("a")]);
        world.group("c").nodes = vec!["ami-1".into(); 20];
        world.image = "ami-2".into();
        world.run_until(|world| world.groups[0].nodes.contains(&"ami-2".to_owned()));
        edit(&mut world, 1);
        world.store();
        world.revision("r3").spec.orders.paused = true;
        world.run(2);
        let nodes = world.groups[0].nodes.clone();
        world.run(10);
        assert_eq!(world.groups[0].nodes, nodes);
        world.revision("r3").spec.orders.paused = false;
        world.settle();
        assert_eq!((world.images(), world.phase("r3")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
    }
}

/// The controller looks at the rollout before the canary is reconciled: its wave is not an empty one.
#[test]
fn wave_of_a_canary_that_takes_a_small_edit_is_not_empty() {
    for edit in EDITS {
        let mut world = soaking(CANARY);
        edit(&mut world, 1);
        world.store();
        world.revision("r3").spec.orders.paused = true;
        world.run(3);
        world.revision("r3").spec.orders.paused = false;
        (0..3).for_each(|_| world.follow());
        assert_eq!(world.waves("r3")[1].1, WaveState::Waiting);
    }
}

/// An edit of a comment must not write to every group of a cluster that is at rest.
#[test]
fn comment_on_a_complete_revision_writes_to_no_group() {
    let mut world = soaking(CANARY);
    world.settle();
    world.groups.iter_mut().for_each(|group| group.log.clear());
    world.comment = "note".into();
    world.settle();
    assert_eq!(world.phase("r3"), RolloutPhase::Complete);
    assert!(world.groups.iter().all(|group| group.log.is_empty()));
}

/// A tenant whose drain hangs when the rollout ends is held by a later window all the same.
#[test]
fn comment_does_not_free_a_group_that_was_not_waited_for() {
    let mut world = World::new(CANARY, vec![Group { nodes: vec!["ami-1".into(); 9], ..canary("c") }, group("a")]);
    (world.group("c").blocked, world.group("c").stuck) = (true, true);
    world.image = "ami-2".into();
    world.settle();
    assert_eq!(world.phase("r2"), RolloutPhase::Complete);
    world.comment = "note".into();
    world.settle();
    world.revision("r3").spec.orders.paused = true;
    (world.group("c").blocked, world.group("c").stuck) = (false, false);
    world.settle();
    assert_eq!(world.images()[0], "ami-1");
    world.revision("r3").spec.orders.paused = false;
    world.settle();
    assert_eq!(world.images()[0], "ami-2");
}

/// A group that a lock kept on a revision which was complete returns to that one, and not past it.
#[test]
fn failed_group_returns_to_the_complete_revision_that_it_had() {
    let mut world = World::new(CANARY, vec![canary("c"), group("a")]);
    world.image = "ami-2".into();
    world.settle();
    world.group("a").locked = true;
    world.image = "ami-3".into();
    world.settle();
    world.group("a").locked = false;
    world.image = "ami-4".into();
    world.group("a").bad_images.insert("ami-4".into());
    world.group("a").locked = true;
    world.run_until(|world| is_soaking(world, "r4"));
    world.group("a").locked = false;
    world.settle();
    assert_eq!(world.images()[1], "ami-2", "{:?}", world.groups[1].log);
    let took = |did: &&Did| matches!(did, Did::Took { .. });
    assert_eq!(world.groups[1].log.iter().filter(took).count(), 3, "r2, r4, and back");
}
