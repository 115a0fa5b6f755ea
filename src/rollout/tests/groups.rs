//! Groups that come, go and move while a change is under way, and tenants that decide for themselves.

use jiff::{SignedDuration, Timestamp};

use super::world::{CANARY, Did, Group, World, canary, group};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState};
use crate::rollout::{SwitchReason, WaitReason};

const WAVE: &str = "rollout/wave";

fn two_waves() -> World {
    World::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(super) fn is_soaking(world: &World) -> bool {
    world.waves("r2").first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

fn took(group: &Group) -> Vec<&SwitchReason> {
    let reasons = group.log.iter().filter_map(|did| match did {
        Did::Took { why, .. } => Some(why),
        Did::Replaced { .. } => None,
    });
    reasons.collect()
}

/// A group that goes away is not waited for, whatever it was doing.
#[test]
fn rollout_ends_without_groups_that_are_deleted() {
    for state in ["waits", "rotates", "failed", "all of a namespace"] {
        let mut world = two_waves();
        world.image = "ami-2".into();
        match state {
            "waits" => {
                world.run_until(is_soaking);
                world.group("a").deleted = true;
            }
            "rotates" => {
                world.run_until(|world| world.groups[0].nodes.contains(&"ami-2".to_owned()));
                world.group("c").deleted = true;
            }
            "failed" => {
                world.group("c").bad_images.insert("ami-2".into());
                world.settle();
                assert_eq!(world.phase("r2"), RolloutPhase::Halted);
                world.group("c").deleted = true;
                world.settle();
                assert_eq!(world.phase("r2"), RolloutPhase::Halted, "a person decides whether it goes on");
                world.revision("r2").spec.orders.retries = 1;
            }
            _ => {
                world.run_until(is_soaking);
                (world.group("a").deleted, world.group("b").deleted) = (true, true);
            }
        }
        world.settle();
        assert!(world.images().iter().all(|image| image == "ami-2"), "{state}: {:?}", world.images());
        assert_eq!(world.phase("r2"), RolloutPhase::Complete, "{state}");
    }
}

/// A tenant that makes its group again gets a new one: nothing of the old group's record counts for it.
#[test]
fn group_that_is_made_again_begins_anew() {
    let mut world = two_waves();
    world.group("c").bad_images.insert("ami-2".into());
    world.image = "ami-2".into();
    world.settle();
    let recreated = Group { uid: "uid-other".into(), nodes: vec![], ..canary("c") };
    *world.group("c") = recreated;
    world.settle();
    assert_eq!(world.groups[0].status.boundaries_revision, world.groups[1].status.boundaries_revision);
    world.revision("r2").spec.orders.retries = 1;
    world.settle();
    assert_eq!(world.phase("r2"), RolloutPhase::Complete);
}

/// What a new group begins with in each phase: never with a change that is not proved yet, or aborted.
#[test]
fn new_group_begins_with_what_the_phase_allows() {
    for (phase, approved, begins_with) in [
        ("Assessing", false, "ami-1"),
        ("Rolling", false, "ami-1"),
        ("Rolling", true, "ami-2"),
        ("Halted", false, "ami-1"),
        ("Halted", true, "ami-1"),
        ("Paused", false, "ami-1"),
        ("Returning", true, "ami-1"),
        ("Aborted", true, "ami-1"),
        ("Complete", false, "ami-2"),
    ] {
        let mut world = two_waves();
        world.group("c").nodes = vec!["ami-1".into(); 6];
        world.image = "ami-2".into();
        world.store();
        match phase {
            "Assessing" => {}
            "Rolling" => world.run_until(is_soaking),
            "Paused" => {
                world.run_until(is_soaking);
                world.revision("r2").spec.orders.paused = true;
            }
            "Halted" => {
                world.group("c").bad_images.insert("ami-2".into());
                world.settle();
            }
            "Returning" => {
                world.run_until(is_soaking);
                world.revision("r2").spec.orders.aborted = true;
                world.poll();
            }
            "Aborted" => {
                world.run_until(is_soaking);
                world.revision("r2").spec.orders.aborted = true;
                world.settle();
            }
            _ => world.settle(),
        }
        if phase != "Paused" && phase != "Assessing" {
            assert_eq!(world.phase("r2").to_string(), phase);
        }
        let mut new = Group { nodes: vec![], ..group("new") };
        if approved {
            new.annotations.insert(annotation::APPROVE_REVISION.to_owned(), "2".to_owned());
        }
        world.groups.push(new);
        world.poll();
        let view = world.view().expect("a rollout");
        let named = world.groups[3].status.boundaries_revision.as_deref().expect("a revision");
        let image = super::world::image_of(&view.stored[named]);
        assert_eq!(image, begins_with, "{phase}, approved: {approved}");
    }
}

/// A lost status must not make a group replace its nodes ahead of its wave.
#[test]
fn group_without_the_name_of_its_revision_keeps_what_makes_the_same_of_it() {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    world.group("a").status.boundaries_revision = None;
    world.group("a").status.rollout = None;
    world.run(5);
    assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"]);
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A backup brings resources back without their statuses: no node must be replaced by a guess of what it was made from.
#[test]
fn groups_that_a_backup_brings_back_without_a_status_replace_nothing() {
    let mut world = two_waves();
    for image in ["ami-2", "ami-3"] {
        world.image = image.into();
        world.settle();
    }
    world.groups.iter_mut().for_each(|group| (group.status, group.log) = Default::default());
    world.revisions.iter_mut().for_each(|revision| revision.status = None);
    world.settle();
    let replaced = |group: &Group| group.log.iter().any(|did| matches!(did, Did::Replaced { .. }));
    assert!(!world.groups.iter().any(replaced), "{:?}", world.groups[1].log);
    assert_eq!((world.images(), world.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
}

/// One group without its status takes the change in its turn, and not because it looks like a new one.
#[test]
fn group_that_lost_its_status_waits_for_its_turn() {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    world.group("a").status = Default::default();
    world.run(5);
    assert_eq!(
        (world.images(), world.groups[1].waits),
        (["ami-2", "ami-1", "ami-1"].map(str::to_owned).into(), Some(WaitReason::RevisionUnknown))
    );
    world.policy = Some(format!("freezes: [{{from: 2020-01-01, to: 2030-01-01, zone: UTC}}]\n{CANARY}"));
    world.run(60);
    assert_eq!(world.images()[1], "ami-1", "its wave is open, and it is frozen");
    world.policy = Some(CANARY.to_owned());
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A Namespace moves to another wave while that waits, is open, or has passed.
#[test]
fn group_moves_with_the_labels_of_its_namespace() {
    let policy = "waves: [{name: one, namespaces: 'rollout/wave = one'}, {name: two, namespaces: 'rollout/wave = two', soak: 10m}, {name: three}]";
    let of = |name: &str, wave: &str| Group { namespace: [(WAVE.to_owned(), wave.to_owned())].into(), ..group(name) };
    for (from, to, is_immediate) in
        [("three", "one", true), ("three", "two", true), ("two", "three", false), ("one", "three", false)]
    {
        let mut world = World::new(policy, vec![of("x", "one"), of("y", "two"), of("z", "three"), of("m", from)]);
        world.group("m").locked = true;
        world.image = "ami-2".into();
        world.run_until(|world| world.waves("r2").get(1).is_some_and(|wave| wave.1 == WaveState::Soaking));
        world.group("m").namespace = [(WAVE.to_owned(), to.to_owned())].into();
        world.group("m").locked = false;
        world.run(6);
        assert_eq!(!world.groups[3].taken().is_empty(), is_immediate, "from {from} to {to}");
        world.settle();
        assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 4], RolloutPhase::Complete));
    }
}

/// A Namespace that is excluded keeps what its tenant says. Once it is included, it has what the others have, and waits
/// with them.
#[test]
fn excluded_namespace_has_no_part_until_it_is_included() {
    let mut world = two_waves();
    let excluded = |group: &mut Group, is_excluded: bool| match is_excluded {
        true => _ = group.namespace.insert(annotation::CONFIG_EXCLUDED.to_owned(), "true".to_owned()),
        false => _ = group.namespace.remove(annotation::CONFIG_EXCLUDED),
    };
    excluded(world.group("a"), true);
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    let groups = world.revision("r2").status.clone().and_then(|status| status.groups).expect("counts");
    assert_eq!(groups.affected, 2);
    excluded(world.group("a"), false);
    excluded(world.group("b"), true);
    world.run(3);
    assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"], "it waits for its wave");
    world.settle();
    assert_eq!(world.images(), ["ami-2", "ami-2", "ami-1"]);
    excluded(world.group("b"), false);
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// `lock-upgrades` in mid-rotation stops it, and its end lets it go on, also after its wave has passed.
#[test]
fn lock_in_mid_rotation_holds_the_group_and_its_wave_goes_on_later() {
    let mut world = two_waves();
    world.group("c").nodes = vec!["ami-1".into(); 6];
    world.image = "ami-2".into();
    world.run_until(|world| world.groups[0].nodes.contains(&"ami-2".to_owned()));
    world.group("c").locked = true;
    let nodes = world.groups[0].nodes.clone();
    world.run(30);
    assert_eq!(world.groups[0].nodes, nodes, "no further node");
    world.group("c").stuck = true;
    world.settle();
    assert_eq!((&world.groups[0].nodes, &world.images()[1..]), (&nodes, &["ami-2".to_owned(), "ami-2".to_owned()][..]));
    (world.group("c").locked, world.group("c").stuck) = (false, false);
    world.run(10);
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// An approval names one change. One of an older or a future change, or of one that is stopped, gives nothing.
#[test]
fn approval_counts_for_the_change_that_it_names() {
    for (text, counts) in [
        ("2", true),
        ("r2", true),
        (" 2 ", true),
        ("1", false),
        ("3", false),
        ("r", false),
        ("", false),
        ("rel", true),
        ("old", false),
    ] {
        let mut world = World::new(&format!("release: rel\n{CANARY}"), vec![canary("c"), group("a")]);
        world.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), text.to_owned());
        world.image = "ami-2".into();
        world.run(6);
        assert_eq!(!world.groups[1].taken().is_empty(), counts, "{text:?}");
    }
    // The release is that of the policy: the corrected change of the same release is approved as well.
    let mut world = World::new(&format!("release: rel\n{CANARY}"), vec![canary("c"), group("a")]);
    world.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), "rel".to_owned());
    for image in ["ami-2", "ami-3"] {
        world.image = image.into();
        world.run(8);
    }
    assert_eq!(world.groups[1].taken(), ["ami-2", "ami-3"]);
    assert!(
        took(&world.groups[1]).iter().all(|why| matches!(why, SwitchReason::Approved(_) | SwitchReason::Superseded))
    );
}

/// An approval is no way around people who stopped the change.
#[test]
fn approval_does_not_pass_a_halt_an_abort_a_pause_or_a_lock() {
    for stop in ["halt", "abort", "pause", "lock"] {
        let mut world = two_waves();
        world.group("c").bad_images.extend((stop == "halt").then(|| "ami-2".to_owned()));
        world.image = "ami-2".into();
        world.store();
        match stop {
            "halt" => world.settle(),
            "pause" => world.revision("r2").spec.orders.paused = true,
            "abort" => {
                world.run(4);
                world.revision("r2").spec.orders.aborted = true;
                world.run(4);
            }
            _ => world.group("a").locked = true,
        }
        world.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), "2".to_owned());
        world.run(30);
        assert!(world.groups[1].log.is_empty(), "{stop}: {:?}", world.groups[1].log);
    }
}

/// Two tenants on a Thursday afternoon.
fn afternoon(policy: &str) -> World {
    let mut world = World::new(policy, vec![canary("c"), group("a")]);
    world.now = at("2026-08-20T15:00:00Z");
    world
}

const DEFERRAL: &str = "deferral: [{namespaces: '*', max: 24h}]";

/// The group's own word counts before that of its Namespace, in both directions.
#[test]
fn group_decides_before_its_namespace_when_it_is_put_off() {
    let (later, past) = ("2099-01-01T00:00:00Z", "2020-01-01T00:00:00Z");
    for (of_namespace, of_group, waits) in [
        (Some(later), None, true),
        (Some(later), Some(past), false),
        (Some(past), Some(later), true),
        (None, None, false),
    ] {
        let mut world = afternoon(&format!("{DEFERRAL}\n{CANARY}"));
        let canary = world.group("c");
        canary.namespace.extend(of_namespace.map(|text| (annotation::DEFER_UNTIL.to_owned(), text.to_owned())));
        canary.annotations.extend(of_group.map(|text| (annotation::DEFER_UNTIL.to_owned(), text.to_owned())));
        world.image = "ami-2".into();
        world.run(10);
        let found = world.groups[0].waits == Some(WaitReason::Deferred);
        assert_eq!(found, waits, "{of_namespace:?} {of_group:?}");
    }
}

/// A deferral that ends by day waits for the night, and one that is written after the deadline comes too late.
#[test]
fn deferral_that_ends_in_a_closed_window_waits_for_the_window() {
    let night = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
    let mut world = afternoon(&format!("{night}\n{DEFERRAL}\n{CANARY}"));
    let put_off = |world: &mut World, until: &str| {
        world.group("c").annotations.insert(annotation::DEFER_UNTIL.to_owned(), until.to_owned());
    };
    put_off(&mut world, "2026-08-21T09:00:00Z");
    world.image = "ami-2".into();
    world.run_until_time(at("2026-08-20T23:00:00Z"));
    assert_eq!(world.groups[0].waits, Some(WaitReason::Deferred));
    world.run_until_time(at("2026-08-21T12:00:00Z"));
    assert_eq!(world.groups[0].waits, Some(WaitReason::WindowClosed));
    world.run_until_time(at("2026-08-21T18:00:00Z"));
    put_off(&mut world, "2099-01-01T00:00:00Z");
    world.run_until_time(at("2026-08-21T21:00:00Z"));
    assert_eq!(world.groups[0].waits, Some(WaitReason::WindowClosed), "the deadline is over");
    world.run_until_time(at("2026-08-21T22:10:00Z"));
    assert_eq!(world.groups[0].taken(), ["ami-2"]);
}

/// A tenant's window that no calendar meets holds the change until its deadline, and not forever.
#[test]
fn window_of_a_tenant_counts_until_the_deadline() {
    let mut world =
        afternoon(&format!("{DEFERRAL}\nfreezes: [{{from: 2026-08-22, to: 2026-08-23, zone: UTC}}]\n{CANARY}"));
    // A Saturday on which nothing may go.
    world.group("c").annotations.insert(annotation::WINDOW.to_owned(), "sat 02:00-03:00 UTC".to_owned());
    world.image = "ami-2".into();
    world.run_until_time(at("2026-08-21T14:30:00Z"));
    assert_eq!((world.groups[0].waits, world.images()[0].as_str()), (Some(WaitReason::WindowClosed), "ami-1"));
    world.run_until_time(at("2026-08-21T15:30:00Z"));
    assert_eq!(world.images()[0], "ami-2");
    // Without permission to put it off, a tenant's window has no effect.
    let mut world = afternoon(CANARY);
    world.group("c").annotations.insert(annotation::WINDOW.to_owned(), "sat 02:00-03:00 UTC".to_owned());
    world.image = "ami-2".into();
    world.run(10);
    assert_eq!(world.images()[0], "ami-2");
}

/// An emergency ends at its time, and what has not begun until then goes through the waves.
#[test]
fn urgency_that_ends_in_the_middle_leaves_the_rest_to_the_waves() {
    let mut world = afternoon(&format!("urgentUntil: 2026-08-20T15:03:00Z\n{CANARY}"));
    world.group("a").locked = true;
    world.image = "ami-2".into();
    world.run_until_time(at("2026-08-20T15:03:30Z"));
    world.group("a").locked = false;
    world.groups[1].log.clear();
    world.run(4);
    assert_eq!((world.images()[0].as_str(), world.groups[1].taken().len()), ("ami-2", 0), "{:?}", world.waves("r2"));
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// A time that has passed, or a halt, is no emergency.
#[test]
fn urgency_of_the_past_or_of_a_halt_changes_nothing() {
    let mut world = afternoon(&format!("urgentUntil: 2026-08-20T14:00:00Z\n{CANARY}"));
    world.image = "ami-2".into();
    world.run(10);
    assert_eq!(world.images(), ["ami-2", "ami-1"]);
    let mut world = afternoon(CANARY);
    world.group("c").bad_images.insert("ami-2".into());
    world.image = "ami-2".into();
    world.settle();
    world.policy = Some(format!("urgentUntil: {}\n{CANARY}", world.now + SignedDuration::from_hours(1)));
    world.run(20);
    assert_eq!((world.phase("r2"), world.images()), (RolloutPhase::Halted, vec!["ami-1".to_owned(); 2]));
}

/// A leader whose clock is behind neither shortens nor skips a soak.
#[test]
fn new_leader_with_another_clock_soaks_as_long() {
    for behind in [-3600_i64, 300, 3600] {
        let mut world = two_waves();
        world.image = "ami-2".into();
        world.run_until(is_soaking);
        let begun = world.monotonic;
        world.restart();
        world.now -= SignedDuration::from_secs(behind);
        world.soaked = Some(SignedDuration::ZERO);
        world.run(30);
        assert_eq!(world.waves("r2")[0].1, WaveState::Soaking, "by {behind} s: 7.5 minutes of ten");
        world.soaked = Some(SignedDuration::from_mins(10));
        let later = world.now + SignedDuration::from_hours(3);
        world.run_until_time(later);
        assert!(world.monotonic.duration_since(begun).as_secs() >= 450);
        assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
    }
}

/// Whoever deletes the revision to which groups would return makes no group go further back by itself.
#[test]
fn deleted_predecessor_takes_no_group_back() {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.settle();
    world.image = "ami-3".into();
    world.run_until(|world| world.waves("r3").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    world.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2"));
    world.run(5);
    assert_eq!(world.images(), ["ami-3", "ami-2", "ami-2"], "nothing is made from a guess");
    world.settle();
    assert_eq!((world.images(), world.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
}

/// Whoever deletes all that came before, or restores a backup without it, does not release the change to every group.
#[test]
fn deleted_history_opens_no_wave() {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    world.revisions.retain(|revision| revision.metadata.name.as_deref() == Some("r2"));
    world.run(5);
    assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"]);
    assert_eq!(world.group("a").waits, Some(WaitReason::RevisionUnknown));
    let status = world.revision("r2").status.clone().expect("a status");
    assert_eq!((status.stable.as_deref(), status.without_waves), (Some("r1"), None));
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// Whoever deletes every revision, or the CustomResourceDefinition, does not release the change to every group either: it is
/// stored again, and nothing says that it is good. The canary still stops it when it fails there.
#[test]
fn history_that_was_deleted_with_the_change_opens_no_wave() {
    for fails in [false, true] {
        let mut world = two_waves();
        world.image = "ami-2".into();
        world.run_until(is_soaking);
        world.revisions.clear();
        world.store();
        assert_eq!(world.revisions[0].metadata.name.as_deref(), Some("r2"));
        world.run(3);
        assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"]);
        if fails {
            world.group("c").bad_images.insert("ami-2".into());
            world.run(60);
            assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"], "nothing is known to be good, so it stays");
            assert_eq!(world.phase("r2"), RolloutPhase::Halted);
        } else {
            world.settle();
            assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
        }
    }
}

/// The same for a change that people or failures had stopped: the verdict was deleted with it.
#[test]
fn aborted_change_that_was_deleted_with_its_history_begins_with_the_first_wave() {
    let mut world = two_waves();
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    world.revision("r2").spec.orders.aborted = true;
    world.settle();
    assert_eq!(world.images(), vec!["ami-1".to_owned(); 3]);
    world.revisions.clear();
    world.store();
    world.run_until(is_soaking);
    world.run(5);
    assert_eq!(world.images(), ["ami-2", "ami-1", "ami-1"]);
}

/// A tenant's new group is no way around a pause: nobody watches whether it fails.
#[test]
fn new_group_in_an_open_wave_begins_with_the_old_revision_while_the_change_is_stopped() {
    for stop in ["pause", "lock", "order"] {
        let mut world = two_waves();
        world.image = "ami-2".into();
        world.run_until(is_soaking);
        let orders = &mut world.revision("r2").spec.orders;
        match stop {
            "pause" => orders.paused = true,
            "order" => orders.without.push("team/new".into()),
            _ => world.config_problem = Some("it is locked".into()),
        }
        world.groups.push(Group { nodes: vec![], ..canary("new") });
        world.poll();
        let (new, old) = (&world.groups[3].status, &world.groups[1].status);
        assert_eq!(new.boundaries_revision, old.boundaries_revision, "{stop}");
    }
}

/// One group that does not come to rest, after a change that replaces no node, holds nobody up and is named.
#[test]
fn group_that_never_settles_outside_of_the_waves_is_listed_and_not_waited_for() {
    let mut world = two_waves();
    world.group("a").stuck = true;
    world.tag = "two".into();
    world.run(20);
    let status = world.revision("r2").status.clone().expect("a status");
    assert_eq!(status.phase, Some(RolloutPhase::Complete));
    let behind: Vec<_> = status.behind.iter().map(|group| (group.group.as_str(), group.reason.as_str())).collect();
    assert_eq!(behind, [("team/a", "Stuck")]);
}

/// The status of a large cluster stays small, and a poll that finds the same writes nothing.
#[test]
fn two_thousand_groups_fill_no_status_and_write_nothing_while_they_wait() {
    let waves: Vec<String> =
        (0..20).map(|number| format!("{{name: wave-{number}, percent: 5, soak: 1h, maxFailures: 100%}}")).collect();
    let groups: Vec<Group> =
        (0..2000).map(|number| group(&format!("a-name-as-long-as-tenants-have-them-{number}"))).collect();
    let mut world = World::new(&format!("waves: [{}, {{name: rest}}]", waves.join(", ")), groups);
    for (number, group) in world.groups.iter_mut().enumerate() {
        group.locked = number % 2 == 0;
        group.unusable_images.extend((number % 3 == 0).then(|| "ami-2".to_owned()));
    }
    world.image = "ami-2".into();
    world.run_until(is_soaking);
    let writes = world.writes;
    world.run(3);
    assert_eq!(world.writes, writes);
    let status = world.revision("r2").status.clone().expect("a status");
    assert!(serde_json::to_string(&status).expect("JSON").len() < 256 * 1024);
}

/// An admin who edits often fills neither the history nor a status, and nothing of it outlives the last change.
#[test]
fn fifty_changes_one_after_the_other_leave_a_short_history() {
    let groups: Vec<Group> = (0..200).map(|number| group(&format!("a-name-of-a-tenant-{number}"))).collect();
    let mut world = World::new("waves: [{name: few, percent: 5, soak: 5m}, {name: rest}]", groups);
    for number in 2..52 {
        world.image = format!("ami-{number}");
        world.run(2 + number % 3);
        assert!(world.revisions.len() <= 16, "{} revisions are stored", world.revisions.len());
        for revision in &world.revisions {
            assert!(serde_json::to_string(&revision.status).expect("JSON").len() < 64 * 1024);
        }
    }
    world.settle();
    assert_eq!((world.phase("r51"), world.images()), (RolloutPhase::Complete, vec!["ami-51".to_owned(); 200]));
}

/// Its first pass recorded what it makes, and the process ended, or AWS did not answer: it is as new as before.
#[test]
fn new_group_whose_first_pass_was_interrupted_begins_with_the_newest_revision() {
    let mut world = World::new(CANARY, vec![canary("c"), group("a")]);
    world.image = "ami-2".into();
    world.settle();
    assert_eq!(world.phase("r2"), RolloutPhase::Complete);
    let mut new = group("new");
    new.nodes.clear();
    new.status.active_scaling_group_name = Some("demo-team-new".into());
    new.status.provisioner = Some("eks".into());
    world.groups.push(new);
    world.run(3);
    let hash = world.revision("r2").spec.hash.clone();
    let group = world.group("new");
    assert_eq!(group.status.boundaries_revision.as_ref(), Some(&hash), "{:?}", group.log);
    assert!(group.log.is_empty(), "it came from no other revision: {:?}", group.log);
}
