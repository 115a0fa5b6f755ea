//! Orders of people, and edits of the policy and of tenants, at times at which they mean something else.

use super::world::{CANARY, Group, World, canary, group};
use crate::api::{CheckState, RolloutPhase, WaveState};

fn is_soaking(world: &World, revision: &str) -> bool {
    world.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// Who ends a pause has not looked at the failure that comes an hour later: no group may take the change once more for it.
#[test]
fn resume_of_a_pause_does_not_cancel_a_later_stop() {
    use RolloutPhase::{Aborted, Halted, Returning};

    let checked = format!("{{checks: [{{name: errors, query: 'up == 0'}}], {CANARY}}}");
    for (policy, stopped) in [
        (checked, &[Halted][..]),
        (CANARY.to_owned(), &[Halted][..]),
        (format!("{{onFailure: return, {CANARY}}}"), &[Returning, Aborted][..]),
    ] {
        let mut world = World::new(&policy, vec![canary("c"), canary("d"), group("a")]);
        world.answers.insert("errors".into(), CheckState::Ok);
        world.image = "ami-2".into();
        world.store();
        world.revision("r2").spec.orders.paused = true;
        world.run(3);
        let orders = &mut world.revision("r2").spec.orders;
        (orders.paused, orders.retries) = (false, 1);
        world.run_until(|world| is_soaking(world, "r2"));
        match policy.contains("checks") {
            true => _ = world.answers.insert("errors".into(), CheckState::Failing),
            false => _ = world.group("c").bad_images.insert("ami-2".into()),
        }
        world.run_until(|world| world.phase_of("r2").is_some_and(|phase| stopped.contains(&phase)));
        for _ in 0..20 {
            world.poll();
            assert!(stopped.contains(&world.phase("r2")), "{policy}: {}", world.phase("r2"));
        }
        world.group("c").bad_images.clear();
        world.answers.insert("errors".into(), CheckState::Ok);
        world.revision("r2").spec.orders.retries = 2;
        world.settle();
        assert_eq!((world.phase("r2"), world.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 3]));
    }
}

/// Whoever skips a wave wants to wait for nothing: not for the approval of the regulated environment either.
#[test]
fn skipped_wave_waits_for_no_approval() {
    let policy = "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: general, approval: admin}]";
    let mut world = World::new(policy, vec![canary("c"), group("a")]);
    world.image = "ami-2".into();
    world.settle();
    assert_eq!(world.images(), ["ami-2", "ami-1"]);
    world.revision("r2").spec.orders.skipped = vec!["general".into()];
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// An admin rearranges the waves for the next change: what is complete stays what new groups begin with.
#[test]
fn waves_that_are_edited_after_the_end_keep_nobody_from_a_complete_revision() {
    let mut world = World::new(CANARY, vec![canary("c"), group("a")]);
    world.group("a").locked = true;
    world.image = "ami-2".into();
    world.settle();
    world.policy = Some("waves: [{name: first, groups: 'no = one'}, {name: second, percent: 10}, {name: last}]".into());
    world.groups.push(Group { nodes: vec![], ..group("new") });
    world.group("a").locked = false;
    world.poll();
    assert_eq!(world.groups[2].status.boundaries_revision, world.groups[0].status.boundaries_revision);
    world.settle();
    assert_eq!(world.images()[..2], ["ami-2", "ami-2"], "the lock is gone");
    assert!(world.waves("r2").iter().all(|(_, state)| *state == WaveState::Passed), "{:?}", world.waves("r2"));
}

/// A tenant that scales its group in mid-rotation does not overrule people who stopped the change.
#[test]
fn edit_of_a_tenant_does_not_free_its_group_from_a_pause_or_a_halt() {
    for stop in ["pause", "halt"] {
        let mut world = World::new(CANARY, vec![canary("c"), canary("d"), group("a")]);
        world.group("c").nodes = vec!["ami-1".into(); 20];
        world.image = "ami-2".into();
        world.run_until(|world| world.groups[0].nodes.contains(&"ami-2".to_owned()));
        world.group("c").generation += 1;
        match stop {
            "pause" => world.revision("r2").spec.orders.paused = true,
            _ => {
                world.group("d").bad_images.insert("ami-2".into());
                world.run_until(|world| world.phase_of("r2") == Some(RolloutPhase::Halted));
            }
        }
        world.run(2);
        let nodes = world.groups[0].nodes.clone();
        assert!(nodes.contains(&"ami-1".to_owned()), "the test is too slow");
        world.run(10);
        assert_eq!(world.groups[0].nodes, nodes, "{stop}");
    }
}

/// Once a group has the change, what its tenant asks for is nobody else's business.
#[test]
fn edit_of_a_tenant_whose_group_is_done_waits_for_nobody() {
    let mut world = World::new(CANARY, vec![canary("c"), group("a")]);
    world.image = "ami-2".into();
    world.run_until(|world| is_soaking(world, "r2"));
    world.revision("r2").spec.orders.paused = true;
    world.run(2);
    world.group("c").generation += 1;
    world.group("c").nodes[0] = "its own old user data".into();
    world.run(2);
    assert_eq!(world.images(), ["ami-2", "ami-1"]);
}
