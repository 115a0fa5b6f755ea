//! Groups that come, go and move while a change is under way, and tenants that decide for themselves.

use jiff::{SignedDuration, Timestamp};

use super::simulated_cluster::{
    CANARY, FAILURE_DELAY, Group, RecordedAction, SimulatedCluster, canary, group, hash_of,
};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState};
use crate::rollout::gates::with_stale_approval;
use crate::rollout::view::RolloutEnd;
use crate::rollout::wait::Wait;
use crate::rollout::{
    DecisionInput, GroupSummary, RevisionDecision, RevisionImpact, SwitchReason, WaitReason, choose, empty_waves,
};

const WAVE: &str = "rollout/wave";

fn two_waves() -> SimulatedCluster {
    SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(super) fn is_soaking(cluster: &SimulatedCluster) -> bool {
    cluster.waves("r2").first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

fn switches(group: &Group) -> Vec<&SwitchReason> {
    let reasons = group.log.iter().filter_map(|action| match action {
        RecordedAction::Switched { why, .. } => Some(why),
        RecordedAction::Replaced { .. } => None,
    });
    reasons.collect()
}

/// A group that goes away is not waited for, whatever it was doing.
#[test]
fn rollout_ends_without_groups_that_are_deleted() {
    for state in ["waits", "rotates", "failed", "all of a namespace"] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        match state {
            "waits" => {
                cluster.run_until(is_soaking);
                cluster.group("a").deleted = true;
            }
            "rotates" => {
                cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
                cluster.group("c").deleted = true;
            }
            "failed" => {
                cluster.group("c").bad_images.insert("ami-2".into());
                cluster.run_until_stable();
                assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
                cluster.group("c").deleted = true;
                cluster.run_until_stable();
                assert_eq!(cluster.phase("r2"), RolloutPhase::Halted, "an admin decides whether it continues");
                cluster.revision("r2").spec.orders.retries = 1;
            }
            _ => {
                cluster.run_until(is_soaking);
                (cluster.group("a").deleted, cluster.group("b").deleted) = (true, true);
            }
        }
        cluster.run_until_stable();
        assert!(cluster.images().iter().all(|image| image == "ami-2"), "{state}: {:?}", cluster.images());
        assert_eq!(cluster.phase("r2"), RolloutPhase::Complete, "{state}");
    }
}

/// A tenant that makes its group again gets a new one: nothing of the old group's record counts for it.
#[test]
fn recreated_group_has_no_rollout_record() {
    let mut cluster = two_waves();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    let recreated = Group { uid: "uid-other".into(), nodes: vec![], ..canary("c") };
    *cluster.group("c") = recreated;
    cluster.run_until_stable();
    assert_eq!(cluster.groups[0].status.boundaries_revision, cluster.groups[1].status.boundaries_revision);
    cluster.revision("r2").spec.orders.retries = 1;
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
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
        let mut cluster = two_waves();
        cluster.group("c").nodes = vec!["ami-1".into(); 6];
        cluster.image = "ami-2".into();
        cluster.store();
        match phase {
            "Assessing" => {}
            "Rolling" => cluster.run_until(is_soaking),
            "Paused" => {
                cluster.run_until(is_soaking);
                cluster.revision("r2").spec.orders.paused = true;
            }
            "Halted" => {
                cluster.group("c").bad_images.insert("ami-2".into());
                cluster.run_until_stable();
            }
            "Returning" => {
                cluster.run_until(is_soaking);
                cluster.revision("r2").spec.orders.aborted = true;
                cluster.poll();
            }
            "Aborted" => {
                cluster.run_until(is_soaking);
                cluster.revision("r2").spec.orders.aborted = true;
                cluster.run_until_stable();
            }
            _ => cluster.run_until_stable(),
        }
        if phase != "Paused" && phase != "Assessing" {
            assert_eq!(cluster.phase("r2").to_string(), phase);
        }
        let mut new = Group { nodes: vec![], ..group("new") };
        if approved {
            new.annotations.insert(annotation::APPROVE_REVISION.to_owned(), "2".to_owned());
        }
        cluster.groups.push(new);
        cluster.poll();
        let view = cluster.view().expect("a rollout");
        let named = cluster.groups[3].status.boundaries_revision.as_deref().expect("a revision");
        let image = super::simulated_cluster::image_of(&view.stored[named]);
        assert_eq!(image, begins_with, "{phase}, approved: {approved}");
    }
}

/// A lost status must not make a group replace its nodes ahead of its wave.
#[test]
fn group_without_the_name_of_its_revision_keeps_what_makes_the_same_of_it() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    cluster.group("a").status.boundaries_revision = None;
    cluster.group("a").status.rollout = None;
    cluster.run(5);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A backup brings resources back without their statuses: no node must be replaced by a guess of what it was made from.
#[test]
fn groups_that_a_backup_brings_back_without_a_status_replace_nothing() {
    let mut cluster = two_waves();
    for image in ["ami-2", "ami-3"] {
        cluster.image = image.into();
        cluster.run_until_stable();
    }
    cluster.groups.iter_mut().for_each(|group| (group.status, group.log) = Default::default());
    cluster.revisions.iter_mut().for_each(|revision| revision.status = None);
    cluster.run_until_stable();
    let replaced = |group: &Group| group.log.iter().any(|action| matches!(action, RecordedAction::Replaced { .. }));
    assert!(!cluster.groups.iter().any(replaced), "{:?}", cluster.groups[1].log);
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
}

/// A group without its status switches in its wave, and not at once because it looks like a new group.
#[test]
fn group_that_lost_its_status_waits_for_its_turn() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    cluster.group("a").status = Default::default();
    cluster.run(5);
    assert_eq!(
        (cluster.images(), cluster.groups[1].waits),
        (["ami-2", "ami-1", "ami-1"].map(str::to_owned).into(), Some(WaitReason::RevisionUnknown))
    );
    cluster.policy = Some(format!("freezes: [{{from: 2020-01-01, to: 2030-01-01, zone: UTC}}]\n{CANARY}"));
    cluster.run(60);
    assert_eq!(cluster.images()[1], "ami-1", "its wave is open, and it is frozen");
    cluster.policy = Some(CANARY.to_owned());
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A Namespace moves to another wave while that waits, is open, or has passed.
#[test]
fn group_moves_with_the_labels_of_its_namespace() {
    let policy = "waves: [{name: one, namespaces: 'rollout/wave = one'}, {name: two, namespaces: 'rollout/wave = two', soak: 10m}, {name: three}]";
    let of = |name: &str, wave: &str| Group { namespace: [(WAVE.to_owned(), wave.to_owned())].into(), ..group(name) };
    for (from, to, is_immediate) in
        [("three", "one", true), ("three", "two", true), ("two", "three", false), ("one", "three", false)]
    {
        let mut cluster =
            SimulatedCluster::new(policy, vec![of("x", "one"), of("y", "two"), of("z", "three"), of("m", from)]);
        cluster.group("m").locked = true;
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.waves("r2").get(1).is_some_and(|wave| wave.1 == WaveState::Soaking));
        cluster.group("m").namespace = [(WAVE.to_owned(), to.to_owned())].into();
        cluster.group("m").locked = false;
        cluster.run(6);
        assert_eq!(!cluster.groups[3].wave_images().is_empty(), is_immediate, "from {from} to {to}");
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 4], RolloutPhase::Complete));
    }
}

/// A group in an excluded Namespace keeps the tenant's values. Once the Namespace is included, the group has the same
/// revision as the others, and waits with them.
#[test]
fn excluded_namespace_has_no_part_until_it_is_included() {
    let mut cluster = two_waves();
    let excluded = |group: &mut Group, is_excluded: bool| match is_excluded {
        true => _ = group.namespace.insert(annotation::CONFIG_EXCLUDED.to_owned(), "true".to_owned()),
        false => _ = group.namespace.remove(annotation::CONFIG_EXCLUDED),
    };
    excluded(cluster.group("a"), true);
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    let groups = cluster.revision("r2").status.clone().and_then(|status| status.groups).expect("counts");
    assert_eq!(groups.affected, 2);
    excluded(cluster.group("a"), false);
    excluded(cluster.group("b"), true);
    cluster.run(3);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "it waits for its wave");
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-2", "ami-1"]);
    excluded(cluster.group("b"), false);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// An admin changes which Namespaces may be excluded, together with the image. A group of a Namespace that is excluded
/// before or after the change, and not both times, waits for its wave like all others.
#[test]
fn namespace_that_only_one_of_two_contents_excludes_waits_for_its_wave() {
    let none = "excludableNamespaces: []";
    for (before, after, image) in [("", none, "ami-2"), (none, "", "ami-1")] {
        let mut cluster = SimulatedCluster::with_rules(CANARY, before, vec![canary("c"), group("a"), group("b")]);
        cluster.group("a").namespace.insert(annotation::CONFIG_EXCLUDED.to_owned(), "true".to_owned());
        (cluster.image, cluster.rules) = ("ami-2".into(), after.into());
        cluster.run_until(is_soaking);
        cluster.run(5);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "{before:?}");
        let affected = cluster.revision("r2").status.clone().and_then(|status| status.groups).expect("counts").affected;
        assert_eq!((affected, cluster.groups[1].waits), (3, Some(WaitReason::WaveNotOpen)), "{before:?}");
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r2"), cluster.images()[1].as_str()), (RolloutPhase::Complete, image), "{before:?}");
    }
}

/// `lock-upgrades` stops a rotation in progress. The rotation continues when the lock is removed, even after its wave
/// has passed.
#[test]
fn lock_during_a_rotation_blocks_the_group_until_it_is_removed() {
    let mut cluster = two_waves();
    cluster.group("c").nodes = vec!["ami-1".into(); 6];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    cluster.group("c").locked = true;
    let nodes = cluster.groups[0].nodes.clone();
    cluster.run(30);
    assert_eq!(cluster.groups[0].nodes, nodes, "no further node");
    cluster.group("c").stuck = true;
    cluster.run_until_stable();
    assert_eq!(
        (&cluster.groups[0].nodes, &cluster.images()[1..]),
        (&nodes, &["ami-2".to_owned(), "ami-2".to_owned()][..])
    );
    (cluster.group("c").locked, cluster.group("c").stuck) = (false, false);
    cluster.run(10);
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
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
        let mut cluster = SimulatedCluster::new(&format!("release: rel\n{CANARY}"), vec![canary("c"), group("a")]);
        cluster.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), text.to_owned());
        cluster.image = "ami-2".into();
        cluster.run(6);
        assert_eq!(!cluster.groups[1].wave_images().is_empty(), counts, "{text:?}");
    }
    // The release is that of the policy: the corrected change of the same release is approved as well.
    let mut cluster = SimulatedCluster::new(&format!("release: rel\n{CANARY}"), vec![canary("c"), group("a")]);
    cluster.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), "rel".to_owned());
    for image in ["ami-2", "ami-3"] {
        cluster.image = image.into();
        cluster.run(8);
    }
    assert_eq!(cluster.groups[1].wave_images(), ["ami-2", "ami-3"]);
    assert!(
        switches(&cluster.groups[1])
            .iter()
            .all(|why| matches!(why, SwitchReason::Approved(_) | SwitchReason::Superseded))
    );
}

/// A tenant who approved the change before this one, and waits nevertheless, reads why in the condition RolloutPending.
#[test]
fn approval_of_another_change_is_named_while_the_group_waits() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Rolling));
    let view = cluster.view().expect("a rollout");
    let forecast = RevisionImpact::Rotate { nodes: 2 };
    for (text, is_named) in [("1", true), ("old", true), (" ", false)] {
        cluster.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), text.to_owned());
        let choice = choose(&DecisionInput {
            view: &view,
            group: cluster.groups[1].group_view(&forecast, None),
            merged_hash: &|_| None,
            uses_alias: &|_| false,
            has_room: &|_| true,
            budget_used_up: &|| None,
            failure_delay: FAILURE_DELAY,
            now: cluster.now,
        });
        let RevisionDecision::Use { waits: Some(wait), .. } = choice else { panic!("{choice:?}") };
        let words = format!("approve-revision: {text} does not approve r2, whose number is 2");
        assert_eq!(
            (wait.reason, wait.message.contains(&words)),
            (WaitReason::WaveNotOpen, is_named),
            "{}",
            wait.message
        );
        let none = RevisionImpact::Untouched;
        let untouched = cluster.groups[1].group_view(&none, None);
        let plain = Wait { message: String::new(), ..wait };
        assert_eq!(with_stale_approval(&view, &untouched, plain).message, "", "an approval would not end it");
    }
}

/// The change leaves the group as it is. If it were planned with the change, its status would name that, and the next edit of
/// its tenant would take the change before its wave, or although users or failures stopped it.
#[test]
fn untouched_group_is_planned_with_its_own_revision_until_its_wave_opens() {
    use RolloutPhase::{Complete, Halted, Rolling};
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    let found = cluster.view().expect("a rollout");
    for (phase, is_open, is_paused, name) in [
        (Rolling, false, false, "r1"),
        (Halted, false, false, "r1"),
        (Rolling, true, false, "r2"),
        (Rolling, true, true, "r1"),
        (Halted, true, false, "r1"),
        (Complete, false, false, "r2"),
    ] {
        let mut view = (*found).clone();
        (view.status.phase, view.orders.paused) = (Some(phase), is_paused);
        if is_open {
            view.status.waves[0].state = Some(WaveState::Passed);
            view.status.waves[1].state = Some(WaveState::Open);
        }
        let choice = choose(&DecisionInput {
            view: &view,
            group: cluster.groups[1].group_view(&RevisionImpact::Untouched, None),
            merged_hash: &|_| None,
            uses_alias: &|_| false,
            has_room: &|_| true,
            budget_used_up: &|| None,
            failure_delay: FAILURE_DELAY,
            now: cluster.now,
        });
        let RevisionDecision::Use { content: Some(content), waits: None, .. } = choice else { panic!("{choice:?}") };
        assert_eq!(content.name, name, "{phase}, its wave is open: {is_open}, paused: {is_paused}");
    }
}

/// An alert about a group that is far behind needs the time since when something newer exists. What an admin aborted is
/// nothing that the group misses.
#[test]
fn summary_counts_nodes_and_since_when_a_group_is_behind() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    let arrived = cluster.revision("r2").metadata.creation_timestamp.as_ref().map(|at| at.0).expect("a time");
    cluster.group("c").status.nodes.as_mut().expect("counts").outdated = 3;
    let view = cluster.view().expect("a rollout");
    let mut summary = GroupSummary::new(&view);
    let forecasts = [RevisionImpact::Untouched, RevisionImpact::Rotate { nodes: 2 }];
    for (found, forecast) in cluster.groups.iter().zip(&forecasts) {
        let group = found.group_view(forecast, None);
        let choice = choose(&DecisionInput {
            view: &view,
            group,
            merged_hash: &|_| None,
            uses_alias: &|_| false,
            has_room: &|_| true,
            budget_used_up: &|| None,
            failure_delay: FAILURE_DELAY,
            now: cluster.now,
        });
        summary.add(&view, &group, &choice, false);
    }
    assert_eq!((summary.nodes_updated, summary.nodes_outdated, summary.counts.nodes), (2, 5, 5));
    assert_eq!(summary.behind_since, [("team/a".to_owned(), arrived)]);
    assert_eq!(summary.matched, [true, true]);
    let mut aborted = (*view).clone();
    let newest = aborted.stored.values_mut().find(|stored| stored.number == 2).expect("r2");
    newest.stop = Some(RolloutEnd::Aborted);
    assert_eq!(cluster.groups[1].group_view(&forecasts[1], None).behind_since(&aborted), None);
}

/// `kubectl get brev` would name the canary as the wave that the first revision is in, for good.
#[test]
fn waves_of_a_complete_first_revision_have_passed() {
    let cluster = two_waves();
    assert_eq!(cluster.phase("r1"), RolloutPhase::Complete);
    assert!(cluster.waves("r1").iter().all(|(_, state)| *state == WaveState::Passed), "{:?}", cluster.waves("r1"));
}

/// A cluster without a canary would let the change reach everything at once after an empty wave.
#[test]
fn wave_that_selects_no_group_is_named() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![group("a")]);
    let view = cluster.view().expect("a rollout");
    let mut summary = GroupSummary { matched: vec![false, true], ..GroupSummary::new(&view) };
    let found = empty_waves(&view, &summary);
    assert!(found.len() == 1 && found[0].contains("the selectors of wave canary match no group"), "{found:?}");
    summary.unseen = 1;
    assert_eq!(empty_waves(&view, &summary), [""; 0], "a Namespace that is not known may be a canary");
    summary.unseen = 0;
    summary.list_undecodable(&view, "team/broken", None);
    assert_eq!(empty_waves(&view, &summary), [""; 0], "a group that cannot be decoded may be a canary");
    let none = GroupSummary::new(&view);
    assert_eq!(empty_waves(&view, &none), [""; 0], "there are no groups at all");
}

/// An approval does not override users who stopped the change.
#[test]
fn approval_does_not_pass_a_halt_an_abort_a_pause_or_a_lock() {
    for stop in ["halt", "abort", "pause", "lock"] {
        let mut cluster = two_waves();
        cluster.group("c").bad_images.extend((stop == "halt").then(|| "ami-2".to_owned()));
        cluster.image = "ami-2".into();
        cluster.store();
        match stop {
            "halt" => cluster.run_until_stable(),
            "pause" => cluster.revision("r2").spec.orders.paused = true,
            "abort" => {
                cluster.run(4);
                cluster.revision("r2").spec.orders.aborted = true;
                cluster.run(4);
            }
            _ => cluster.group("a").locked = true,
        }
        cluster.group("a").annotations.insert(annotation::APPROVE_REVISION.to_owned(), "2".to_owned());
        cluster.run(30);
        assert!(cluster.groups[1].log.is_empty(), "{stop}: {:?}", cluster.groups[1].log);
    }
}

/// Two tenants on a Thursday afternoon.
fn afternoon(policy: &str) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    cluster.now = at("2026-08-20T15:00:00Z");
    cluster
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
        let mut cluster = afternoon(&format!("{DEFERRAL}\n{CANARY}"));
        let canary = cluster.group("c");
        canary.namespace.extend(of_namespace.map(|text| (annotation::DEFER_UNTIL.to_owned(), text.to_owned())));
        canary.annotations.extend(of_group.map(|text| (annotation::DEFER_UNTIL.to_owned(), text.to_owned())));
        cluster.image = "ami-2".into();
        cluster.run(10);
        let found = cluster.groups[0].waits == Some(WaitReason::Deferred);
        assert_eq!(found, waits, "{of_namespace:?} {of_group:?}");
    }
}

/// A deferral that ends outside of the windows waits for the next window. A deferral that a tenant sets after the
/// deadline has no effect.
#[test]
fn deferral_that_ends_in_a_closed_window_waits_for_the_window() {
    let night = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
    let mut cluster = afternoon(&format!("{night}\n{DEFERRAL}\n{CANARY}"));
    let put_off = |cluster: &mut SimulatedCluster, until: &str| {
        cluster.group("c").annotations.insert(annotation::DEFER_UNTIL.to_owned(), until.to_owned());
    };
    put_off(&mut cluster, "2026-08-21T09:00:00Z");
    cluster.image = "ami-2".into();
    cluster.run_until_time(at("2026-08-20T23:00:00Z"));
    assert_eq!(cluster.groups[0].waits, Some(WaitReason::Deferred));
    cluster.run_until_time(at("2026-08-21T12:00:00Z"));
    assert_eq!(cluster.groups[0].waits, Some(WaitReason::WindowClosed));
    cluster.run_until_time(at("2026-08-21T18:00:00Z"));
    put_off(&mut cluster, "2099-01-01T00:00:00Z");
    cluster.run_until_time(at("2026-08-21T21:00:00Z"));
    assert_eq!(cluster.groups[0].waits, Some(WaitReason::WindowClosed), "the deadline is over");
    cluster.run_until_time(at("2026-08-21T22:10:00Z"));
    assert_eq!(cluster.groups[0].wave_images(), ["ami-2"]);
}

/// A tenant's window that never opens delays the change until its deadline, and not forever.
#[test]
fn window_of_a_tenant_counts_until_the_deadline() {
    let mut cluster =
        afternoon(&format!("{DEFERRAL}\nfreezes: [{{from: 2026-08-22, to: 2026-08-23, zone: UTC}}]\n{CANARY}"));
    // A Saturday on which nothing may go.
    cluster.group("c").annotations.insert(annotation::WINDOW.to_owned(), "sat 02:00-03:00 UTC".to_owned());
    cluster.image = "ami-2".into();
    cluster.run_until_time(at("2026-08-21T14:30:00Z"));
    assert_eq!((cluster.groups[0].waits, cluster.images()[0].as_str()), (Some(WaitReason::WindowClosed), "ami-1"));
    cluster.run_until_time(at("2026-08-21T15:30:00Z"));
    assert_eq!(cluster.images()[0], "ami-2");
    // Without permission to put it off, a tenant's window has no effect.
    let mut cluster = afternoon(CANARY);
    cluster.group("c").annotations.insert(annotation::WINDOW.to_owned(), "sat 02:00-03:00 UTC".to_owned());
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!(cluster.images()[0], "ami-2");
}

/// An emergency ends at its time, and what has not begun until then goes through the waves. Its tenant may defer it from the
/// time at which its wave opens in its turn.
#[test]
fn urgency_that_ends_in_the_middle_leaves_the_rest_to_the_waves() {
    let groups = vec![canary("c"), group("a"), group("b")];
    let mut cluster = SimulatedCluster::new(CANARY, groups);
    let waves = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest, atOnce: 1}]";
    let urgent_until = cluster.now + SignedDuration::from_secs(50);
    cluster.policy = Some(format!("urgentUntil: {urgent_until}\ndeferral: [{{namespaces: '*', max: 5m}}]\n{waves}"));
    cluster.group("b").annotations.insert(annotation::DEFER_UNTIL.to_owned(), "2099-01-01T00:00:00Z".to_owned());
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-2", "ami-1"], "{:?}", cluster.waves("r2"));
    assert_eq!(cluster.groups[2].waits, Some(WaitReason::WaveNotOpen), "the canary soaks");
    cluster.run_until(|cluster| cluster.waves("r2")[0].1 == WaveState::Passed);
    cluster.run(4);
    assert_eq!((cluster.images()[2].as_str(), cluster.groups[2].waits), ("ami-1", Some(WaitReason::Deferred)));
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A time that has passed, or a halt, is not an emergency.
#[test]
fn urgency_of_the_past_or_of_a_halt_changes_nothing() {
    let mut cluster = afternoon(&format!("urgentUntil: 2026-08-20T14:00:00Z\n{CANARY}"));
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
    let mut cluster = afternoon(CANARY);
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.policy = Some(format!("urgentUntil: {}\n{CANARY}", cluster.now + SignedDuration::from_hours(1)));
    cluster.run(20);
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Halted, vec!["ami-1".to_owned(); 2]));
}

/// A leader whose clock is behind neither shortens nor skips a soak.
#[test]
fn new_leader_with_another_clock_soaks_as_long() {
    for behind in [-3600_i64, 300, 3600] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        let begun = cluster.monotonic;
        cluster.restart();
        cluster.now -= SignedDuration::from_secs(behind);
        cluster.soaked = Some(SignedDuration::ZERO);
        cluster.run(30);
        assert_eq!(cluster.waves("r2")[0].1, WaveState::Soaking, "by {behind} s: 7.5 minutes of ten");
        cluster.soaked = Some(SignedDuration::from_mins(10));
        let later = cluster.now + SignedDuration::from_hours(3);
        cluster.run_until_time(later);
        assert!(cluster.monotonic.duration_since(begun).as_secs() >= 450);
        assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
    }
}

/// A user who deletes the revision to which groups would return must not make any group return to an older one.
#[test]
fn deleted_predecessor_causes_no_return() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.image = "ami-3".into();
    cluster.run_until(|cluster| cluster.waves("r3").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2"));
    cluster.run(5);
    assert_eq!(cluster.images(), ["ami-3", "ami-2", "ami-2"], "nothing is made from a guess");
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
}

/// A user who deletes all earlier revisions, or restores a backup without them, must not release the change to every
/// group. Nor to one of which the change makes the same texts: an alias in them resolved to another image before.
#[test]
fn deleted_history_opens_no_wave() {
    for has_same_texts in [false, true] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        cluster.revisions.retain(|revision| revision.metadata.name.as_deref() == Some("r2"));
        if has_same_texts {
            cluster.group("a").status.config_md5 = Some(format!("{}/1", hash_of(&cluster)));
            cluster.group("a").uses_alias = true;
        }
        cluster.run(5);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "the same texts: {has_same_texts}");
        assert_eq!(cluster.group("a").waits, Some(WaitReason::RevisionUnknown));
        let status = cluster.revision("r2").status.clone().expect("a status");
        assert_eq!((status.stable.as_deref(), status.without_waves), (Some("r1"), None));
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
    }
}

/// The definition was installed after edits that changed nothing of a group, so that its status names a content that was never
/// stored. Its spec says all of it, unless an alias is in it: it must not stop until its wave opens.
#[test]
fn group_whose_spec_is_the_same_continues_with_a_history_that_began_late() {
    for uses_alias in [false, true] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        cluster.revisions.retain(|revision| revision.metadata.name.as_deref() == Some("r2"));
        cluster.group("a").nodes = vec!["ami-2".into(); 2];
        cluster.group("a").status.config_md5 = Some(format!("{}/1", hash_of(&cluster)));
        cluster.group("a").uses_alias = uses_alias;
        cluster.group("a").log.clear();
        cluster.run(5);
        let waits = cluster.group("a").waits;
        assert_eq!(waits, uses_alias.then_some(WaitReason::RevisionUnknown), "an alias: {uses_alias}");
        assert!(
            !cluster.groups[1].log.iter().any(|did| matches!(did, RecordedAction::Replaced { .. })),
            "no node is replaced"
        );
        assert_eq!(cluster.images()[2], "ami-1", "the wave of the others is not open");
    }
}

/// What the alias of a group stood for is lost, and only an image that an admin has aborted is stored. The group must not
/// launch it, nor what AWS says now. One that names an AMI continues.
#[test]
fn group_whose_image_is_lost_is_held_until_a_person_names_one() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![group("a"), group("b")]);
    let view = cluster.view().expect("a rollout");
    for (uses_alias, is_held) in [(true, true), (false, false)] {
        let (forecast, a) = (RevisionImpact::Untouched, &cluster.groups[0]);
        let mut view = (*view).clone();
        view.status.phase = Some(RolloutPhase::Aborted);
        view.stored.values_mut().for_each(|stored| stored.has_lost_images = true);
        let choice = choose(&DecisionInput {
            view: &view,
            group: a.group_view(&forecast, None),
            merged_hash: &|_| None,
            uses_alias: &|_| uses_alias,
            has_room: &|_| true,
            budget_used_up: &|| None,
            failure_delay: FAILURE_DELAY,
            now: cluster.now,
        });
        let RevisionDecision::Use { content, waits, .. } = choice else { panic!("{choice:?}") };
        assert_eq!(content.is_none(), is_held);
        let message = waits.map(|wait| wait.message).unwrap_or_default();
        assert_eq!(message.contains("name an AMI in the ConfigMap"), is_held, "{message}");
    }
}

/// A user who deletes every revision, or the CustomResourceDefinition, does not release the change to every group
/// either: it is stored again, and nothing shows that it is good. The canary still stops it when it fails there.
#[test]
fn history_that_was_deleted_with_the_change_opens_no_wave() {
    let returns = format!("{{onFailure: return, {CANARY}}}");
    for (policy, fails) in [(CANARY, false), (CANARY, true), (&returns, true)] {
        let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a"), group("b")]);
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        cluster.revisions.clear();
        cluster.store();
        assert_eq!(cluster.revisions[0].metadata.name.as_deref(), Some("r2"));
        cluster.run(3);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
        if fails {
            cluster.group("c").bad_images.insert("ami-2".into());
            cluster.run(60);
            assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "nothing is known to be good, so it stays");
            assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
        } else {
            cluster.run_until_stable();
            assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
        }
    }
}

/// The same for a change that users or failures had stopped: the result was deleted with it.
#[test]
fn aborted_change_that_was_deleted_with_its_history_begins_with_the_first_wave() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), vec!["ami-1".to_owned(); 3]);
    cluster.revisions.clear();
    cluster.store();
    cluster.run_until(is_soaking);
    cluster.run(5);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
}

/// Thousands of groups take longer to switch than the leader needs for two polls. A wave must not pass before its
/// groups have switched, although it is not known what they have. A group that users deferred is not waited for.
#[test]
fn wave_waits_for_its_groups_whose_revision_is_unknown() {
    for is_locked in [false, true] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        cluster.revision("r2").spec.orders.aborted = true;
        cluster.run_until_stable();
        cluster.group("c").locked = is_locked;
        cluster.revisions.clear();
        cluster.store();
        let is_open = |cluster: &SimulatedCluster| cluster.waves("r2")[0].1 != WaveState::Waiting;
        cluster.poll();
        cluster.run_until(is_open);
        (0..10).for_each(|_| cluster.advance_rollout());
        assert_eq!(cluster.group("c").waits, Some(WaitReason::RevisionUnknown));
        let state = cluster.waves("r2")[1].1;
        assert_eq!(state == WaveState::Waiting, !is_locked, "{:?}", cluster.waves("r2"));
        cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
        let first = if is_locked { "ami-1" } else { "ami-2" };
        assert_eq!(cluster.images(), [first, "ami-2", "ami-2"]);
    }
}

/// A tenant's new group must not get around a pause, because no admin watches whether it fails.
#[test]
fn new_group_in_an_open_wave_begins_with_the_old_revision_while_the_change_is_stopped() {
    for stop in ["pause", "lock", "order"] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(is_soaking);
        let orders = &mut cluster.revision("r2").spec.orders;
        match stop {
            "pause" => orders.paused = true,
            "order" => orders.without.push("team/new".into()),
            _ => cluster.config_problem = Some("it is locked".into()),
        }
        cluster.groups.push(Group { nodes: vec![], ..canary("new") });
        cluster.poll();
        let (new, old) = (&cluster.groups[3].status, &cluster.groups[1].status);
        assert_eq!(new.boundaries_revision, old.boundaries_revision, "{stop}");
    }
}

/// A group that never converges after a change without replacements delays no other group, and the status lists it.
#[test]
fn group_that_never_settles_outside_of_the_waves_is_listed_and_not_waited_for() {
    let mut cluster = two_waves();
    cluster.group("a").stuck = true;
    cluster.tag = "two".into();
    cluster.run(20);
    let status = cluster.revision("r2").status.clone().expect("a status");
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
    let mut cluster = SimulatedCluster::new(&format!("waves: [{}, {{name: rest}}]", waves.join(", ")), groups);
    for (number, group) in cluster.groups.iter_mut().enumerate() {
        group.locked = number % 2 == 0;
        group.unusable_images.extend((number % 3 == 0).then(|| "ami-2".to_owned()));
    }
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    let writes = cluster.writes;
    cluster.run(3);
    assert_eq!(cluster.writes, writes);
    let status = cluster.revision("r2").status.clone().expect("a status");
    assert!(serde_json::to_string(&status).expect("JSON").len() < 256 * 1024);
}

/// A cluster in which so many groups have the first revision.
fn large_cluster(policy: &str, count: usize) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(policy, vec![group("first")]);
    let known = cluster.groups[0].clone();
    for number in 1..count {
        let new = group(&format!("{}-{number}", "a-name-as-long-as-tenants-have-them".repeat(2)));
        cluster.groups.push(Group { status: known.status.clone(), ..new });
    }
    cluster
}

fn status_size(cluster: &SimulatedCluster) -> usize {
    let statuses = cluster.revisions.iter().map(|found| serde_json::to_string(&found.status).expect("JSON").len());
    statuses.max().unwrap_or_default()
}

/// etcd refuses objects of more than 1.5 MB, and each poll of a rollout would write the whole status.
#[test]
fn status_of_ten_thousand_groups_stays_small() {
    let name = "wave".repeat(12);
    let waves: Vec<String> =
        (0..30).map(|number| format!("{{name: {name}-{number}, groups: 'w = {number}', maxFailures: 100%}}")).collect();
    let mut cluster = large_cluster(&format!("waves: [{}, {{name: rest}}]", waves.join(", ")), 10_000);
    for (number, group) in cluster.groups.iter_mut().enumerate() {
        group.locked = number % 2 == 0;
        group.blocked = number % 5 == 0;
        group.annotations.insert("w".to_owned(), (number % 31).to_string());
        group.unusable_images.extend((number % 3 == 0).then(|| "ami-2".to_owned()));
    }
    cluster.image = "ami-2".into();
    for _ in 0..6 {
        cluster.poll();
        assert!(status_size(&cluster) < 256 * 1024, "{} bytes", status_size(&cluster));
    }
    let status = cluster.revision("r2").status.clone().expect("a status");
    let counts = status.groups.expect("counts");
    assert_eq!((counts.affected, status.behind.len(), status.phase), (10_000, 50, Some(RolloutPhase::Rolling)));
}

/// A few of the edits of a busy day in a large cluster: they disturb the same few tenants, and then cost nothing.
#[test]
fn changes_one_after_the_other_reach_the_same_few_of_two_thousand_groups() {
    let mut cluster = large_cluster("waves: [{name: few, percent: 5, soak: 1h}, {name: rest}]", 2000);
    for number in 2..7 {
        cluster.image = format!("ami-{number}");
        cluster.run(3);
    }
    cluster.run_until(|cluster| cluster.waves("r6")[0].1 == WaveState::Soaking);
    let writes = cluster.writes;
    cluster.run(3);
    assert_eq!(cluster.writes, writes, "a soak writes nothing");
    let newest = cluster.images().iter().filter(|image| *image == "ami-6").count();
    let touched = cluster.groups.iter().filter(|group| !group.log.is_empty()).count();
    assert_eq!((newest, touched), (100, 100), "the others are not disturbed");
    assert!(status_size(&cluster) < 64 * 1024, "{} bytes", status_size(&cluster));
}

/// An admin who edits often fills neither the history nor a status, and nothing of it outlives the last change.
#[test]
fn fifty_changes_one_after_the_other_leave_a_short_history() {
    let groups: Vec<Group> = (0..200).map(|number| group(&format!("a-name-of-a-tenant-{number}"))).collect();
    let mut cluster = SimulatedCluster::new("waves: [{name: few, percent: 5, soak: 5m}, {name: rest}]", groups);
    for number in 2..52 {
        cluster.image = format!("ami-{number}");
        cluster.run(2 + number % 3);
        assert!(cluster.revisions.len() <= 16, "{} revisions are stored", cluster.revisions.len());
        for revision in &cluster.revisions {
            assert!(serde_json::to_string(&revision.status).expect("JSON").len() < 64 * 1024);
        }
    }
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r51"), cluster.images()), (RolloutPhase::Complete, vec!["ami-51".to_owned(); 200]));
}

/// Its first pass recorded what it makes, and the process ended, or AWS did not answer: it is as new as before.
#[test]
fn new_group_whose_first_pass_was_interrupted_begins_with_the_newest_revision() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    let mut new = group("new");
    new.nodes.clear();
    new.status.active_scaling_group_name = Some("demo-team-new".into());
    new.status.provisioner = Some("eks".into());
    cluster.groups.push(new);
    cluster.run(3);
    let hash = cluster.revision("r2").spec.hash.clone();
    let group = cluster.group("new");
    assert_eq!(group.status.boundaries_revision.as_ref(), Some(&hash), "{:?}", group.log);
    assert!(group.log.is_empty(), "it came from no other revision: {:?}", group.log);
}
