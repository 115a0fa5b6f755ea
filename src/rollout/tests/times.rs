//! Who decides when: windows, freezes, deferrals, approvals, delays and urgency.

use jiff::{SignedDuration, Timestamp};

use super::world::{Group, World, group};
use crate::api::names::annotation;
use crate::api::{CheckState, RolloutPhase, WaveState};
use crate::rollout::WaitReason;

const NIGHT: &str = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
const WAVES: &str = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]";

/// Two tenants on a Thursday afternoon, 2026-08-20.
fn afternoon(policy: &str) -> World {
    let canary = Group { namespace: [("rollout/wave".to_owned(), "canary".to_owned())].into(), ..group("c") };
    let mut world = World::new(policy, vec![canary, group("a")]);
    world.now = at("2026-08-20T15:00:00Z");
    world
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn until(world: &mut World, time: &str) {
    let time = at(time);
    world.run_until_time(time);
}

fn tenant(world: &mut World, name: &str, key: &str, value: &str) {
    world.group(name).annotations.insert(key.to_owned(), value.to_owned());
}

#[test]
fn closed_window_gives_nobody_the_change_and_begins_no_node() {
    let mut world = afternoon(&format!("{NIGHT}\n{WAVES}"));
    world.group("c").nodes = vec!["ami-1".into(); 5];
    world.image = "ami-2".into();
    until(&mut world, "2026-08-20T21:59:50Z");
    assert_eq!((world.images(), world.groups[0].waits), (vec!["ami-1".to_owned(); 2], Some(WaitReason::WindowClosed)));
    let why = world.why("r2", "canary").expect("what the wave waits for");
    assert!(why.contains("until 2026-08-20T22:00:00Z"), "{why}");
    let writes = world.writes;
    world.now = at("2026-08-20T16:00:00Z");
    world.run(3);
    assert_eq!(world.writes, writes, "a rollout that waits writes nothing");
    until(&mut world, "2026-08-20T22:00:40Z");
    assert_eq!(world.groups[0].taken(), ["ami-2"]);
    let begun = world.groups[0].nodes.clone();
    assert!(begun.contains(&"ami-1".to_owned()), "it has just begun: {begun:?}");
    // It closes in mid-rotation.
    world.now = at("2026-08-21T04:00:00Z");
    world.run(4);
    assert_eq!((&world.groups[0].nodes, world.phase("r2")), (&begun, RolloutPhase::Rolling));
    world.now = at("2026-08-21T21:59:50Z");
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

#[test]
fn tenant_edit_and_way_back_wait_for_no_window() {
    let mut world = afternoon(&format!("{NIGHT}\n{WAVES}"));
    world.now = at("2026-08-20T22:00:00Z");
    world.group("c").nodes = vec!["ami-1".into(); 5];
    world.image = "ami-2".into();
    world.run_until(|world| world.groups[0].nodes.contains(&"ami-2".to_owned()));
    world.now = at("2026-08-21T12:00:00Z");
    world.image = "ami-1".into();
    world.run(20);
    assert_eq!(world.images(), ["ami-1", "ami-1"], "what was good before comes back at once");
    assert_eq!(world.phase("r3"), RolloutPhase::Complete);
}

/// A revert that comes when the change is complete: the docs promise that it waits for no window.
#[test]
fn revert_of_a_complete_change_waits_for_no_window() {
    let mut world = afternoon(&format!("{NIGHT}\n{WAVES}"));
    world.now = at("2026-08-20T22:00:00Z");
    world.image = "ami-2".into();
    world.settle();
    assert_eq!(world.phase("r2"), RolloutPhase::Complete);
    world.now = at("2026-08-21T12:00:00Z");
    world.image = "ami-1".into();
    world.run(10);
    assert_eq!((world.images(), world.phase("r3")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Complete));
}

/// One tenant's budget that allows no eviction must not hold a wave forever, because its windows are short.
#[test]
fn group_is_stuck_although_each_window_is_shorter_than_the_patience() {
    let window = "windows: [{from: '22:00', to: '23:00', zone: UTC}]";
    let mut world = afternoon(&format!("patience: 90m\n{window}\n{WAVES}"));
    world.group("c").blocked = true;
    world.image = "ami-2".into();
    world.run(4);
    let sleep_until = |world: &mut World, time: Timestamp| {
        world.monotonic += time.duration_since(world.now).unsigned_abs();
        world.now = time;
    };
    sleep_until(&mut world, at("2026-08-20T22:00:00Z"));
    world.run(236);
    assert_eq!((world.groups[0].taken(), world.waves("r2")[0].1), (vec!["ami-2"], WaveState::Open));
    sleep_until(&mut world, at("2026-08-21T12:00:00Z"));
    world.run(4);
    assert_eq!(world.waves("r2")[0].1, WaveState::Open, "while its window is closed, it could not go on");
    sleep_until(&mut world, at("2026-08-21T22:00:00Z"));
    world.run(236);
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-1".into(), "ami-2".into()], RolloutPhase::Complete));
    let behind = world.revision("r2").status.clone().expect("a status").behind;
    assert_eq!((behind[0].group.as_str(), behind[0].reason.as_str()), ("team/c", "Stuck"));
}

#[test]
fn freeze_holds_also_those_who_approved() {
    let freeze = "freezes: [{from: 2026-08-20, to: 2026-08-21, zone: UTC, why: sale}]";
    let mut world = afternoon(&format!("{freeze}\n{WAVES}"));
    tenant(&mut world, "a", annotation::APPROVE_REVISION, "2");
    world.image = "ami-2".into();
    until(&mut world, "2026-08-21T23:59:50Z");
    assert_eq!(world.images(), ["ami-1", "ami-1"]);
    assert_eq!(world.groups[1].waits, Some(WaitReason::Frozen));
    assert!(world.why("r2", "canary").is_some_and(|why| why.contains("(sale)")));
    world.settle();
    assert_eq!(world.images(), ["ami-2", "ami-2"]);
}

#[test]
fn deferral_ends_at_the_deadline_and_its_wave_does_not_wait() {
    let deferral = "deferral: [{namespaces: 'team', max: 24h}]";
    let mut world = afternoon(&format!("{deferral}\n{WAVES}"));
    tenant(&mut world, "c", annotation::DEFER_UNTIL, "2027-01-01T00:00:00Z");
    world.image = "ami-2".into();
    world.run(20);
    assert_eq!(world.images(), ["ami-1", "ami-2"], "the others go on");
    assert_eq!(world.groups[0].waits, Some(WaitReason::Deferred));
    let status = world.revision("r2").status.clone().expect("a status");
    assert!(status.behind.iter().any(|behind| behind.reason == "Deferred" && behind.message.contains("2026-08-21T15")));
    until(&mut world, "2026-08-21T15:30:00Z");
    assert_eq!(world.images(), ["ami-2", "ami-2"], "a tenant cannot put it off forever");
}

#[test]
fn deferral_needs_the_right_and_a_time() {
    for (deferral, value) in [("", "2027-01-01T00:00:00Z"), ("deferral: [{namespaces: 'team', max: 24h}]", "later")] {
        let mut world = afternoon(&format!("{deferral}\n{WAVES}"));
        tenant(&mut world, "c", annotation::DEFER_UNTIL, value);
        world.image = "ami-2".into();
        world.settle();
        assert_eq!(world.images(), ["ami-2", "ami-2"], "{deferral} {value}");
    }
}

#[test]
fn tenant_may_have_it_now_or_in_a_window_of_its_own() {
    let deferral = "deferral: [{namespaces: '*', max: 72h}]";
    let mut world = afternoon(&format!("{NIGHT}\n{deferral}\n{WAVES}"));
    tenant(&mut world, "a", annotation::APPROVE_REVISION, "r2");
    tenant(&mut world, "c", annotation::WINDOW, "sat 15:00-17:00 UTC");
    world.image = "ami-2".into();
    until(&mut world, "2026-08-20T15:40:00Z");
    assert_eq!(world.images(), ["ami-1", "ami-2"], "ahead of its wave and its window");
    until(&mut world, "2026-08-22T14:59:50Z");
    assert_eq!(world.images(), ["ami-1", "ami-2"], "the window of the tenant stands in for the admin's");
    until(&mut world, "2026-08-22T15:40:00Z");
    assert_eq!(world.images(), ["ami-2", "ami-2"]);
}

#[test]
fn approval_opens_the_wave() {
    let mut world =
        afternoon("waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest, approval: admin}]");
    world.image = "ami-2".into();
    world.run(100);
    assert_eq!((world.images(), world.waves("r2")[1].1), (vec!["ami-2".into(), "ami-1".into()], WaveState::Waiting));
    let why = world.why("r2", "rest").expect("what it waits for");
    assert!(why.contains("instance-manager rollout approve r2 --wave rest"), "{why}");
    world.revision("r2").spec.orders.approved = vec!["no-such-wave".into()];
    world.run(20);
    assert_eq!(world.waves("r2")[1].1, WaveState::Waiting);
    world.revision("r2").spec.orders.approved.push("rest".into());
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
    // An approval is that of one revision.
    world.image = "ami-3".into();
    world.run(100);
    assert_eq!(world.images(), ["ami-3", "ami-2"]);
}

/// The revision would never be complete, and a later one that fails would return its groups past it.
#[test]
fn wave_without_groups_needs_no_approval() {
    let mut world = afternoon(
        "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: none, namespaces: 'no-such = label', approval: admin}, {name: rest}]",
    );
    world.image = "ami-2".into();
    world.settle();
    assert_eq!((world.images(), world.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

#[test]
fn tenants_approve_group_by_group_until_the_deadline() {
    let mut world = afternoon("deferral: [{namespaces: '*', max: 24h}]\nwaves: [{name: all, approval: tenants}]");
    tenant(&mut world, "a", annotation::APPROVE_REVISION, "2");
    world.image = "ami-2".into();
    world.run(20);
    assert_eq!(
        (world.images(), world.groups[0].waits),
        (vec!["ami-1".into(), "ami-2".into()], Some(WaitReason::ApprovalNeeded))
    );
    until(&mut world, "2026-08-21T15:30:00Z");
    assert_eq!(world.images(), ["ami-2", "ami-2"]);
}

#[test]
fn delay_orders_clusters_and_urgency_skips_everything_but_a_halt() {
    let delayed = format!("delay: [{{clusters: prod, by: 48h}}]\n{NIGHT}\n{WAVES}");
    let mut world = afternoon(&delayed);
    world.image = "ami-2".into();
    until(&mut world, "2026-08-22T14:59:00Z");
    let why = world.why("r2", "canary").expect("what it waits for");
    assert!(why.contains("the delay of this cluster until 2026-08-22T15"), "{why}");
    until(&mut world, "2026-08-22T21:59:00Z");
    assert_eq!(world.images(), ["ami-1", "ami-1"], "the window counts after the delay");
    world.policy = Some(format!("urgentUntil: 2026-08-22T22:30:00Z\n{delayed}"));
    world.run(3);
    assert_eq!(world.groups.iter().map(|group| group.taken().len()).collect::<Vec<_>>(), [1, 1], "no wave, no window");
    world.settle();
    assert_eq!(world.phase("r2"), RolloutPhase::Complete);
    // A failure halts an urgent rollout as well.
    world.group("c").bad_images.insert("ami-3".into());
    world.image = "ami-3".into();
    world.policy = Some(format!("urgentUntil: 2027-08-22T22:30:00Z\n{WAVES}"));
    world.settle();
    assert_eq!(world.phase("r3"), RolloutPhase::Halted);
}

#[test]
fn urgency_ends_by_itself() {
    let mut world = afternoon(&format!("urgentUntil: 2027-08-22T22:30:00Z\n{WAVES}"));
    world.group("a").locked = true;
    world.image = "ami-2".into();
    world.settle();
    assert_eq!(world.images(), ["ami-2", "ami-1"], "a lock holds");
    world.now += SignedDuration::from_hours(8 * 24);
    world.image = "ami-3".into();
    world.run(6);
    assert_eq!(world.groups[0].taken(), ["ami-2", "ami-3"]);
    let begun = world.revision("r3").status.clone().and_then(|status| status.begun).expect("a time");
    assert!(at(&begun) > at("2026-08-28T00:00:00Z"), "each revision is urgent for seven days at most");
}

/// A policy that people copy has to work.
#[test]
fn each_example_reaches_every_group() {
    for (name, text) in [
        ("canary", include_str!("../../../examples/rollouts/canary.yaml")),
        ("percentages", include_str!("../../../examples/rollouts/percentages.yaml")),
        ("windows", include_str!("../../../examples/rollouts/windows.yaml")),
        ("regulated", include_str!("../../../examples/rollouts/regulated.yaml")),
        ("emergency", include_str!("../../../examples/rollouts/emergency.yaml")),
        ("checks", include_str!("../../../examples/rollouts/checks.yaml")),
    ] {
        let map: serde_json::Value = serde_yaml::from_str(text).expect(name);
        let policy = map["data"]["rollout"].as_str().expect(name);
        let labelled = |name: &str, key: &str, value: &str| Group {
            namespace: [(key.to_owned(), value.to_owned())].into(),
            ..group(name)
        };
        let groups = vec![
            labelled("a", "rollout/wave", "canary"),
            labelled("b", "region", "eu"),
            labelled("c", "audience", "internal"),
            group("d"),
        ];
        let mut world = World::new("onFailure: halt", groups);
        world.policy = Some(policy.to_owned());
        let ok = |name: &str| (name.to_owned(), CheckState::Ok);
        world.answers = ["pods-pending", "critical-alerts"].map(ok).into();
        world.now = at("2026-11-23T12:00:00Z");
        world.image = "ami-2".into();
        world.run(4);
        let early = world.groups.iter().filter(|group| !group.taken().is_empty()).count();
        assert_eq!(early == 4, name == "emergency", "{name}: {early} groups took it at once");
        world.revision("r2").spec.orders.approved = vec!["*".into()];
        until(&mut world, "2026-12-07T12:00:00Z");
        assert_eq!(world.phase("r2"), RolloutPhase::Complete, "{name}: {:?}", world.waves("r2"));
        assert_eq!(world.images(), ["ami-2"; 4], "{name}");
    }
}
