//! The key `rollout` is lost, as by a kustomize patch that does not apply any more: nothing is released by that.

use super::world::{CANARY, World, canary, group};
use crate::api::{RolloutPhase, WaveState};

fn two_waves() -> World {
    World::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

fn is_soaking(world: &World, revision: &str) -> bool {
    world.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// Leads ami-2 to a state in which the key is lost.
fn interrupted(state: &str) -> World {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.store();
    match state {
        "stored" => {}
        "soaks" => world.run_until(|world| is_soaking(world, "r2")),
        "halted" => {
            world.group("c").bad_images.insert("ami-2".into());
            world.settle();
            assert_eq!(world.phase("r2"), RolloutPhase::Halted);
        }
        _ => {
            world.run_until(|world| is_soaking(world, "r2"));
            world.revision("r2").spec.orders.aborted = true;
            world.settle();
            assert_eq!(world.phase("r2"), RolloutPhase::Aborted);
        }
    }
    world
}

/// What people took back, and what has not begun, must not reach the fleet because a key is missing.
#[test]
fn lost_key_releases_no_revision_that_has_not_reached_every_group() {
    for (state, phase, images) in [
        ("stored", RolloutPhase::Rolling, ["ami-2", "ami-1", "ami-1"]),
        ("soaks", RolloutPhase::Rolling, ["ami-2", "ami-1", "ami-1"]),
        ("halted", RolloutPhase::Halted, ["ami-1"; 3]),
        ("aborted", RolloutPhase::Aborted, ["ami-1"; 3]),
    ] {
        let mut world = interrupted(state);
        world.policy = None;
        world.run(15);
        assert_eq!((world.phase("r2"), world.images()), (phase, images.map(str::to_owned).to_vec()), "{state}");
        assert!(!world.released, "{state}");
    }
}

/// The commit after the one that lost the key goes through the waves as well, and the one after that.
#[test]
fn change_that_follows_without_the_key_goes_through_the_waves() {
    for state in ["stored", "soaks", "halted", "aborted"] {
        let mut world = interrupted(state);
        world.policy = None;
        for (image, revision) in [("ami-3", "r3"), ("ami-4", "r4")] {
            world.image = image.into();
            world.run_until(|world| is_soaking(world, revision));
            assert_eq!(world.images()[1..], ["ami-1", "ami-1"], "{state}: {image}");
        }
        world.run_until(|world| world.released);
        assert_eq!(
            (world.images(), world.phase("r4")),
            (vec!["ami-4".to_owned(); 3], RolloutPhase::Complete),
            "{state}"
        );
        // From here on every group takes a change at once, as without rollouts.
        world.image = "ami-5".into();
        world.run(3);
        assert_eq!(world.images(), ["ami-5"; 3], "{state}");
    }
}

/// Whoever means to do without rollouts must not have to wait for the waves of the last one.
#[test]
fn skipped_waves_end_the_kept_policy() {
    let mut world = interrupted("soaks");
    world.policy = None;
    world.run(2);
    world.revision("r2").spec.orders.skipped = vec!["*".into()];
    world.run_until(|world| world.released);
    world.run(4);
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// The remedy of a change that was aborted works without the key, too.
#[test]
fn revert_without_the_key_is_complete_at_once() {
    let mut world = interrupted("aborted");
    world.policy = None;
    world.image = "ami-1".into();
    world.run_until(|world| world.released);
    assert_eq!((world.images(), world.phase("r3")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Complete));
}
