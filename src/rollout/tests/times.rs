//! Who decides when: windows, freezes, deferrals, approvals, delays and urgency.

use jiff::{SignedDuration, Timestamp};

use super::simulated_cluster::{Group, SimulatedCluster, group};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState};
use crate::rollout::WaitReason;

const NIGHT: &str = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
const WAVES: &str = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]";

/// Two tenants on a Thursday afternoon, 2026-08-20.
fn afternoon(policy: &str) -> SimulatedCluster {
    let canary = Group { namespace: [("rollout/wave".to_owned(), "canary".to_owned())].into(), ..group("c") };
    let mut cluster = SimulatedCluster::new(policy, vec![canary, group("a")]);
    cluster.now = at("2026-08-20T15:00:00Z");
    cluster
}

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(super) fn until(cluster: &mut SimulatedCluster, time: &str) {
    let time = at(time);
    cluster.run_until_time(time);
}

pub(super) fn tenant(cluster: &mut SimulatedCluster, name: &str, key: &str, value: &str) {
    cluster.group(name).annotations.insert(key.to_owned(), value.to_owned());
}

#[test]
fn no_group_switches_or_replaces_nodes_in_a_closed_window() {
    let mut cluster = afternoon(&format!("{NIGHT}\n{WAVES}"));
    cluster.group("c").nodes = vec!["ami-1".into(); 5];
    cluster.image = "ami-2".into();
    until(&mut cluster, "2026-08-20T21:59:50Z");
    assert_eq!(
        (cluster.images(), cluster.groups[0].waits),
        (vec!["ami-1".to_owned(); 2], Some(WaitReason::WindowClosed))
    );
    let why = cluster.why("r2", "canary").expect("what the wave waits for");
    assert!(why.contains("until 2026-08-20T22:00:00Z"), "{why}");
    let writes = cluster.writes;
    cluster.now = at("2026-08-20T16:00:00Z");
    cluster.run(3);
    assert_eq!(cluster.writes, writes, "a rollout that waits writes nothing");
    until(&mut cluster, "2026-08-20T22:00:40Z");
    assert_eq!(cluster.groups[0].wave_images(), ["ami-2"]);
    let begun = cluster.groups[0].nodes.clone();
    assert!(begun.contains(&"ami-1".to_owned()), "it has just begun: {begun:?}");
    // It closes in mid-rotation.
    cluster.now = at("2026-08-21T04:00:00Z");
    cluster.run(4);
    assert_eq!((&cluster.groups[0].nodes, cluster.phase("r2")), (&begun, RolloutPhase::Rolling));
    cluster.now = at("2026-08-21T21:59:50Z");
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// An admin who gives the rollout a minute each night gets one node of each group a night, and the end of it.
#[test]
fn window_that_is_shorter_than_a_batch_ends_the_rollout_after_some_nights() {
    let mut cluster = afternoon("windows: [{from: '22:00', to: '22:01', zone: UTC}]\nwaves: [{name: all}]");
    cluster.groups.iter_mut().for_each(|group| group.nodes = vec!["ami-1".into(); 3]);
    cluster.image = "ami-2".into();
    for (day, replaced) in [(20, 1), (21, 2), (22, 3)] {
        // Only this poll finds the window open.
        until(&mut cluster, &format!("2026-08-{day}T22:00:00Z"));
        for group in &cluster.groups {
            let found = group.nodes.iter().filter(|image| *image == "ami-2").count();
            assert_eq!(found, replaced, "{} on August {day}", group.key);
        }
    }
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

#[test]
fn tenant_edit_and_way_back_wait_for_no_window() {
    let mut cluster = afternoon(&format!("{NIGHT}\n{WAVES}"));
    cluster.now = at("2026-08-20T22:00:00Z");
    cluster.group("c").nodes = vec!["ami-1".into(); 5];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    cluster.now = at("2026-08-21T12:00:00Z");
    cluster.image = "ami-1".into();
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-1", "ami-1"], "what was good before comes back at once");
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete);
}

/// A revert that comes when the change is complete: the docs promise that it waits for no window.
#[test]
fn revert_of_a_complete_change_waits_for_no_window() {
    let mut cluster = afternoon(&format!("{NIGHT}\n{WAVES}"));
    cluster.now = at("2026-08-20T22:00:00Z");
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    cluster.now = at("2026-08-21T12:00:00Z");
    cluster.image = "ami-1".into();
    cluster.run(10);
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Complete));
}

/// One tenant's budget that allows no eviction must not delay a wave forever because its windows are short.
#[test]
fn group_is_stuck_although_each_window_is_shorter_than_the_patience() {
    let window = "windows: [{from: '22:00', to: '23:00', zone: UTC}]";
    let mut cluster = afternoon(&format!("patience: 90m\n{window}\n{WAVES}"));
    cluster.group("c").blocked = true;
    cluster.image = "ami-2".into();
    cluster.run(4);
    let sleep_until = |cluster: &mut SimulatedCluster, time: Timestamp| {
        cluster.monotonic += time.duration_since(cluster.now).unsigned_abs();
        cluster.now = time;
    };
    sleep_until(&mut cluster, at("2026-08-20T22:00:00Z"));
    cluster.run(236);
    assert_eq!((cluster.groups[0].wave_images(), cluster.waves("r2")[0].1), (vec!["ami-2"], WaveState::Open));
    sleep_until(&mut cluster, at("2026-08-21T12:00:00Z"));
    cluster.run(4);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Open, "while its window is closed, it could not continue");
    sleep_until(&mut cluster, at("2026-08-21T22:00:00Z"));
    cluster.run(236);
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".into(), "ami-2".into()], RolloutPhase::Complete));
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert_eq!((behind[0].group.as_str(), behind[0].reason.as_str()), ("team/c", "Stuck"));
}

#[test]
fn freeze_blocks_approved_groups_too() {
    let freeze = "freezes: [{from: 2026-08-20, to: 2026-08-21, zone: UTC, why: sale}]";
    let mut cluster = afternoon(&format!("{freeze}\n{WAVES}"));
    tenant(&mut cluster, "a", annotation::APPROVE_REVISION, "2");
    cluster.image = "ami-2".into();
    until(&mut cluster, "2026-08-21T23:59:50Z");
    assert_eq!(cluster.images(), ["ami-1", "ami-1"]);
    assert_eq!(cluster.groups[1].waits, Some(WaitReason::Frozen));
    assert!(cluster.why("r2", "canary").is_some_and(|why| why.contains("(sale)")));
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
}

#[test]
fn deferral_ends_at_the_deadline_and_its_wave_does_not_wait() {
    let deferral = "deferral: [{namespaces: 'team', max: 24h}]";
    let mut cluster = afternoon(&format!("{deferral}\n{WAVES}"));
    tenant(&mut cluster, "c", annotation::DEFER_UNTIL, "2027-01-01T00:00:00Z");
    cluster.image = "ami-2".into();
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-1", "ami-2"], "the others continue");
    assert_eq!(cluster.groups[0].waits, Some(WaitReason::Deferred));
    let status = cluster.revision("r2").status.clone().expect("a status");
    assert!(status.behind.iter().any(|behind| behind.reason == "Deferred" && behind.message.contains("2026-08-21T15")));
    until(&mut cluster, "2026-08-21T15:30:00Z");
    assert_eq!(cluster.images(), ["ami-2", "ami-2"], "a tenant cannot put it off forever");
}

/// After the end, an admin names the waves for the next change. That must not rotate a group days before its tenant's
/// deadline, and in a window that is not its tenant's.
#[test]
fn edit_of_the_waves_after_the_end_ends_no_deferral() {
    let deferral = "deferral: [{namespaces: 'team', max: 72h}]";
    let mut cluster = afternoon(&format!("{deferral}\n{WAVES}"));
    tenant(&mut cluster, "c", annotation::DEFER_UNTIL, "2027-01-01T00:00:00Z");
    tenant(&mut cluster, "a", annotation::WINDOW, "sat 15:00-17:00 UTC");
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Rolling));
    cluster.revision("r2").spec.orders.skipped = vec!["*".into()];
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
    for names in ["waves: [{name: first, groups: 'no = one'}, {name: second}]", "waves: [{name: third}]"] {
        cluster.policy = Some(format!("{deferral}\n{names}"));
        cluster.run(10);
        assert_eq!(cluster.images(), ["ami-1", "ami-1"], "{names}");
        assert_eq!(cluster.groups[0].waits, Some(WaitReason::Deferred), "{names}");
        assert_eq!(cluster.groups[1].waits, Some(WaitReason::WindowClosed), "{names}");
    }
    until(&mut cluster, "2026-08-22T15:40:00Z");
    assert_eq!(cluster.images(), ["ami-1", "ami-2"], "the window of its tenant");
    until(&mut cluster, "2026-08-23T15:40:00Z");
    assert_eq!(cluster.images(), ["ami-2", "ami-2"], "the deadline");
}

/// A tenant who reads that its group waits for its wave must learn that it may ask for more time.
#[test]
fn group_that_waits_for_its_wave_names_the_longest_deferral() {
    for (deferral, is_named) in [("", false), ("deferral: [{namespaces: 'team', max: 24h}]", true)] {
        let mut cluster = afternoon(&format!("{deferral}\n{WAVES}"));
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.waves("r2").first() == Some(&("canary".to_owned(), WaveState::Soaking)));
        // The status lists the groups of a wave that is skipped, with what they wait for.
        cluster.revision("r2").spec.orders.skipped = vec!["rest".into()];
        cluster.run(2);
        let behind = cluster.revision("r2").status.clone().expect("a status").behind;
        let listed = behind.iter().find(|behind| behind.group == "team/a").expect("it is listed");
        assert!(listed.message.contains("wave rest (2 of 2), which is not open yet"), "{listed:?}");
        let text = "defer-until may defer it, at most 24h from the opening of the wave";
        assert_eq!(listed.message.contains(text), is_named, "{listed:?}");
    }
}

#[test]
fn deferral_needs_the_right_and_a_time() {
    for (deferral, value) in [("", "2027-01-01T00:00:00Z"), ("deferral: [{namespaces: 'team', max: 24h}]", "later")] {
        let mut cluster = afternoon(&format!("{deferral}\n{WAVES}"));
        tenant(&mut cluster, "c", annotation::DEFER_UNTIL, value);
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-2", "ami-2"], "{deferral} {value}");
    }
}

#[test]
fn tenant_may_approve_early_or_set_its_own_window() {
    let deferral = "deferral: [{namespaces: '*', max: 72h}]";
    let mut cluster = afternoon(&format!("{NIGHT}\n{deferral}\n{WAVES}"));
    tenant(&mut cluster, "a", annotation::APPROVE_REVISION, "r2");
    tenant(&mut cluster, "c", annotation::WINDOW, "sat 15:00-17:00 UTC");
    cluster.image = "ami-2".into();
    until(&mut cluster, "2026-08-20T15:40:00Z");
    assert_eq!(cluster.images(), ["ami-1", "ami-2"], "ahead of its wave and its window");
    until(&mut cluster, "2026-08-22T14:59:50Z");
    assert_eq!(cluster.images(), ["ami-1", "ami-2"], "the window of the tenant stands in for the admin's");
    until(&mut cluster, "2026-08-22T15:40:00Z");
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
}

#[test]
fn approval_opens_the_wave() {
    let mut cluster =
        afternoon("waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest, approval: admin}]");
    cluster.image = "ami-2".into();
    cluster.run(100);
    assert_eq!(
        (cluster.images(), cluster.waves("r2")[1].1),
        (vec!["ami-2".into(), "ami-1".into()], WaveState::Waiting)
    );
    let why = cluster.why("r2", "rest").expect("what it waits for");
    assert!(why.contains("instance-manager rollout approve r2 --wave rest"), "{why}");
    cluster.revision("r2").spec.orders.approved = vec!["no-such-wave".into()];
    cluster.run(20);
    assert_eq!(cluster.waves("r2")[1].1, WaveState::Waiting);
    cluster.revision("r2").spec.orders.approved.push("rest".into());
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
    // An approval is that of one revision.
    cluster.image = "ami-3".into();
    cluster.run(100);
    assert_eq!(cluster.images(), ["ami-3", "ami-2"]);
}

/// The revision would never be complete, and a later one that fails would return its groups past it.
#[test]
fn wave_without_groups_needs_no_approval() {
    let mut cluster = afternoon(
        "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: none, namespaces: 'no-such = label', approval: admin}, {name: rest}]",
    );
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// An approval is an admin's consent that nodes are replaced: a wave that opened without groups must be no way around it.
#[test]
fn group_that_joins_a_wave_without_groups_needs_its_approval() {
    for is_complete in [false, true] {
        let mut cluster = afternoon("waves: [{name: prod, namespaces: 'stage = prod', approval: admin}, {name: rest}]");
        cluster.group("a").locked = true;
        cluster.group("c").blocked = !is_complete;
        cluster.image = "ami-2".into();
        cluster.run(40);
        let phase = if is_complete { RolloutPhase::Complete } else { RolloutPhase::Rolling };
        assert_eq!((cluster.phase("r2"), cluster.waves("r2")[0].1), (phase, WaveState::Passed));
        let prod = ("stage".to_owned(), "prod".to_owned());
        cluster.group("a").locked = false;
        cluster.group("a").namespace.extend([prod.clone()]);
        cluster.groups.push(Group { nodes: vec![], namespace: [prod].into(), ..group("new") });
        cluster.run(30);
        assert_eq!((cluster.images()[1].as_str(), cluster.groups[1].waits), ("ami-1", Some(WaitReason::WaveNotOpen)));
        let behind = cluster.revision("r2").status.clone().expect("a status").behind;
        let listed = behind.iter().find(|behind| behind.group == "team/a").expect("it is listed");
        assert!(listed.message.contains("instance-manager rollout approve r2 --wave prod"), "{listed:?}");
        let hash = Some(cluster.revision("r2").spec.hash.clone());
        assert_eq!(cluster.group("new").status.boundaries_revision, hash, "it has no node to replace");
        cluster.group("c").blocked = false;
        cluster.revision("r2").spec.orders.approved = vec!["prod".into()];
        cluster.run_until_stable();
        assert_eq!(
            (&cluster.images()[..2], cluster.phase("r2")),
            (&["ami-2".to_owned(), "ami-2".to_owned()][..], RolloutPhase::Complete)
        );
    }
}

/// The same for a group of which the controller does not know what it has, as after a restore from a backup. It takes
/// the complete revision without its wave, but not without the approval.
#[test]
fn group_whose_revision_is_unknown_needs_the_approval_of_its_wave_after_the_end() {
    let mut cluster = afternoon("waves: [{name: prod, namespaces: 'stage = prod', approval: admin}, {name: rest}]");
    cluster.group("a").locked = true;
    cluster.image = "ami-2".into();
    cluster.run(40);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    let group = cluster.group("a");
    (group.locked, group.status) = (false, Default::default());
    group.namespace.insert("stage".to_owned(), "prod".to_owned());
    cluster.run(30);
    assert_eq!((cluster.images()[1].as_str(), cluster.groups[1].waits), ("ami-1", Some(WaitReason::RevisionUnknown)));
    cluster.revision("r2").spec.orders.approved = vec!["prod".into()];
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
}

#[test]
fn tenants_approve_group_by_group_until_the_deadline() {
    let mut cluster = afternoon("deferral: [{namespaces: '*', max: 24h}]\nwaves: [{name: all, approval: tenants}]");
    tenant(&mut cluster, "a", annotation::APPROVE_REVISION, "2");
    cluster.image = "ami-2".into();
    cluster.run(20);
    assert_eq!(
        (cluster.images(), cluster.groups[0].waits),
        (vec!["ami-1".into(), "ami-2".into()], Some(WaitReason::ApprovalNeeded))
    );
    until(&mut cluster, "2026-08-21T15:30:00Z");
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
}

#[test]
fn delay_orders_clusters_and_urgency_skips_everything_but_a_halt() {
    let delayed = format!("delay: [{{clusters: prod, by: 48h}}]\n{NIGHT}\n{WAVES}");
    let mut cluster = afternoon(&delayed);
    cluster.image = "ami-2".into();
    until(&mut cluster, "2026-08-22T14:59:00Z");
    let why = cluster.why("r2", "canary").expect("what it waits for");
    assert!(why.contains("the delay of this cluster until 2026-08-22T15"), "{why}");
    until(&mut cluster, "2026-08-22T21:59:00Z");
    assert_eq!(cluster.images(), ["ami-1", "ami-1"], "the window counts after the delay");
    cluster.policy = Some(format!("urgentUntil: 2026-08-22T22:30:00Z\n{delayed}"));
    cluster.run(3);
    assert_eq!(
        cluster.groups.iter().map(|group| group.wave_images().len()).collect::<Vec<_>>(),
        [1, 1],
        "no wave, no window"
    );
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    // A failure halts an urgent rollout as well.
    cluster.group("c").bad_images.insert("ami-3".into());
    cluster.image = "ami-3".into();
    cluster.policy = Some(format!("urgentUntil: 2027-08-22T22:30:00Z\n{WAVES}"));
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r3"), RolloutPhase::Halted);
}

#[test]
fn urgency_ends_by_itself() {
    let mut cluster = afternoon(&format!("urgentUntil: 2027-08-22T22:30:00Z\n{WAVES}"));
    cluster.group("a").locked = true;
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-1"], "a lock holds");
    cluster.now += SignedDuration::from_hours(8 * 24);
    cluster.image = "ami-3".into();
    cluster.run(6);
    assert_eq!(cluster.groups[0].wave_images(), ["ami-2", "ami-3"]);
    let begun = cluster.revision("r3").status.clone().and_then(|status| status.begun).expect("a time");
    assert!(at(&begun) > at("2026-08-28T00:00:00Z"), "each revision is urgent for seven days at most");
}

/// An admin who writes the wrong year must not switch the safeguards off for all that time: the urgency of a revision ends
/// after seven days.
#[test]
fn urgency_lasts_for_seven_days_at_most() {
    for (days, counts) in [(6, true), (7, false)] {
        let mut cluster = afternoon(&format!("urgentUntil: 2036-08-22T22:30:00Z\n{NIGHT}\n{WAVES}"));
        cluster.group("a").locked = true;
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
        cluster.now = at("2026-08-20T15:10:00Z") + SignedDuration::from_hours(days * 24);
        cluster.group("a").locked = false;
        cluster.run(6);
        let expected = if counts { ("ami-2", None) } else { ("ami-1", Some(WaitReason::WindowClosed)) };
        assert_eq!((cluster.images()[1].as_str(), cluster.groups[1].waits), expected, "after {days} days");
    }
}
