//! Single cases, one by one.

use super::groups::is_soaking;
use super::simulated_cluster::{CANARY, Group, RecordedAction, SimulatedCluster, canary, group};
use crate::api::names::{annotation, condition};
use crate::api::{BoundariesRevisionStatus, RolloutPhase, WaveState};
use crate::rollout::{GroupSummary, Running, StoredRevision, SwitchReason, WaitReason, YieldingGroups};

fn two_waves() -> SimulatedCluster {
    SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")])
}

#[test]
fn change_reaches_the_canary_first_and_the_rest_after_the_soak() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Soaking);
    cluster.run(60);
    assert_eq!(cluster.images(), ["ami-2"; 3]);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// Tenants learn about drains that will block while they can still correct them, and only tenants of the next wave.
#[test]
fn groups_of_the_next_wave_come_next_while_the_wave_before_is_under_way() {
    let waves = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: more, namespaces: 'rollout/wave = more'}, {name: rest}]";
    let more = |name: &str| Group { namespace: [("rollout/wave".to_owned(), "more".to_owned())].into(), ..group(name) };
    let mut cluster =
        SimulatedCluster::new(waves, vec![canary("c"), more("m"), more("locked"), more("never"), group("a")]);
    cluster.group("locked").locked = true;
    cluster.group("never").unusable_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!((cluster.waves("r2")[0].1, cluster.next()), (WaveState::Soaking, vec!["team/m".to_owned()]));
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run(10);
    assert_eq!(cluster.next(), Vec::<String>::new(), "it was aborted");
}

/// A rollout that waits must cost nothing: no status is written while it soaks.
#[test]
fn soak_writes_nothing() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(15);
    let writes = cluster.writes;
    cluster.run(20);
    assert_eq!((cluster.writes, cluster.waves("r2")[0].1), (writes, WaveState::Soaking));
}

#[test]
fn bad_image_halts_in_the_canary_which_returns_by_itself() {
    let mut cluster = two_waves();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
    assert_eq!(cluster.images(), ["ami-1"; 3]);
    assert!(cluster.groups[1].log.is_empty() && cluster.groups[2].log.is_empty(), "no other tenant is touched");
    let status = cluster.revision("r2").status.clone().expect("a status");
    let halted = status.conditions.iter().find(|found| found.r#type == "Halted").expect("a condition");
    assert!(halted.message.as_deref().is_some_and(|text| text.contains("team/c")), "{halted:?}");
    assert_eq!(status.behind[0].group, "team/c");
    // The corrected change is another revision, which goes through the waves again.
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-3".to_owned(); 3], RolloutPhase::Complete));
    assert_eq!(cluster.phase("r2"), RolloutPhase::Superseded);
}

#[test]
fn failure_with_on_failure_return_returns_all_groups() {
    let policy =
        "{onFailure: return, waves: [{name: first, groups: 'tier = one', soak: 1m}, {name: rest, maxFailures: 0}]}";
    let early = Group { annotations: [("tier".to_owned(), "one".to_owned())].into(), ..group("early") };
    let mut cluster = SimulatedCluster::new(policy, vec![early, group("a"), group("b")]);
    cluster.group("b").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Aborted));
    // The ConfigMap still has it, and new groups must not begin with it.
    cluster.groups.push(group("new"));
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-1"; 4]);
    // The revert in Git is complete at once.
    cluster.image = "ami-1".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete);
}

#[test]
fn group_that_cannot_use_the_change_keeps_what_it_has() {
    let mut cluster = two_waves();
    cluster.group("c").unusable_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    assert!(cluster.groups[0].log.is_empty(), "it never took it");
}

#[test]
fn resume_tries_the_failed_group_again() {
    let mut cluster = two_waves();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.group("c").bad_images.clear();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Halted, "no admin ordered it to continue");
    cluster.revision("r2").spec.orders.retries = 1;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

#[test]
fn paused_rollout_replaces_no_node_until_it_is_resumed() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| {
        cluster.groups[0].log.iter().any(|action| matches!(action, RecordedAction::Replaced { .. }))
    });
    cluster.revision("r2").spec.orders.paused = true;
    let images = cluster.images();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), images);
    cluster.revision("r2").spec.orders.paused = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

#[test]
fn aborted_change_returns_and_stays_back() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Aborted));
}

/// `undo` after a complete rollout.
#[test]
fn complete_change_can_be_aborted() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Aborted));
}

/// In the first minute of a cluster, or of a takeover, some groups do not have the first revision yet. A change in that
/// minute must not reach all groups at once.
#[test]
fn change_before_the_first_revision_is_complete_rolls_out_in_waves() {
    let mut cluster = two_waves();
    cluster.revision("r1").status =
        Some(BoundariesRevisionStatus { phase: Some(RolloutPhase::Rolling), ..Default::default() });
    cluster.image = "ami-2".into();
    cluster.run_until(is_soaking);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A change that an admin aborted once must not reach every group in the same minute.
#[test]
fn change_that_is_resumed_after_an_abort_begins_at_the_first_wave() {
    for phase in ["complete", "soaking"] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        match phase {
            "complete" => cluster.run_until_stable(),
            _ => cluster.run_until(is_soaking),
        }
        cluster.revision("r2").spec.orders.aborted = true;
        cluster.run_until_stable();
        let orders = &mut cluster.revision("r2").spec.orders;
        (orders.aborted, orders.retries) = (false, 1);
        cluster.poll();
        cluster.run_until(is_soaking);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "after it was {phase}");
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
    }
}

#[test]
fn revert_in_git_waits_for_no_wave() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    cluster.image = "ami-1".into();
    cluster.run(6);
    assert_eq!(cluster.images(), ["ami-1"; 3]);
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete);
    // The same change again is another attempt, which begins at the first wave.
    cluster.image = "ami-2".into();
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
}

#[test]
fn newest_revision_wins_and_groups_step_back_from_what_they_had_not_begun() {
    let mut cluster = two_waves();
    cluster.group("c").blocked = true;
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| !cluster.groups[0].wave_images().is_empty());
    cluster.revision("r2").spec.orders.paused = true;
    cluster.group("c").blocked = false;
    cluster.run(2);
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    let replaced = |to: &str| {
        cluster.groups[0]
            .log
            .iter()
            .filter(|action| matches!(action, RecordedAction::Replaced { to: image, .. } if image == to))
            .count()
    };
    assert_eq!((replaced("ami-2"), replaced("ami-3"), cluster.images()), (0, 2, vec!["ami-3".to_owned(); 3]));
}

/// Otherwise a change of a tag would release an image that the canary has not proved.
#[test]
fn soak_continues_across_a_change_without_rotation() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    for number in 0..10 {
        cluster.tag = format!("tag-{number}");
        cluster.run(2);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    }
    // Ten minutes of soak are 40 polls, of which about 25 have passed.
    cluster.run(30);
    assert_eq!(cluster.images(), ["ami-2"; 3], "the soak was begun again");
}

/// A failure after the soak was carried over returns to what was complete, not to what was superseded.
#[test]
fn failed_group_returns_to_what_was_complete() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    cluster.image = "ami-3".into();
    cluster.group("c").bad_images.insert("ami-3".into());
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-1"; 3]);
}

#[test]
fn locked_group_is_not_waited_for_and_follows_when_the_lock_is_gone() {
    let mut cluster = two_waves();
    cluster.group("c").locked = true;
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(
        (cluster.images(), cluster.phase("r2")),
        (vec!["ami-1".into(), "ami-2".into(), "ami-2".into()], RolloutPhase::Complete)
    );
    assert_eq!(cluster.revision("r2").status.clone().expect("a status").behind[0].reason, "Locked");
    cluster.group("c").locked = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

#[test]
fn change_without_rotation_reaches_all_groups_at_once() {
    let mut cluster = two_waves();
    cluster.tag = "two".into();
    cluster.run(4);
    let is_in_place =
        |log: &[RecordedAction]| matches!(log, [RecordedAction::Switched { why: SwitchReason::InPlace, .. }]);
    assert!(cluster.groups.iter().all(|group| is_in_place(&group.log)), "{:?}", cluster.groups[0].log);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// A taint that EKS puts on running nodes replaces none of them, and empties all of them.
#[test]
fn change_that_evicts_pods_waits_for_its_wave() {
    let mut cluster = two_waves();
    cluster.groups.iter_mut().for_each(|group| group.evicts = true);
    cluster.tag = "two".into();
    cluster.run(10);
    let switched =
        |cluster: &SimulatedCluster| cluster.groups.iter().map(|group| group.wave_images().len()).collect::<Vec<_>>();
    assert_eq!((switched(&cluster), cluster.waves("r2")[0].1), (vec![1, 0, 0], WaveState::Soaking));
    assert_eq!(cluster.group("a").waits, Some(WaitReason::WaveNotOpen));
    cluster.run_until_stable();
    assert_eq!((switched(&cluster), cluster.phase("r2")), (vec![1, 1, 1], RolloutPhase::Complete));
    assert!(
        cluster
            .groups
            .iter()
            .all(|group| !group.log.iter().any(|action| matches!(action, RecordedAction::Replaced { .. })))
    );
}

#[test]
fn percentage_selects_the_same_groups_each_time_and_at_least_one() {
    let policy = "waves: [{name: some, percent: 10, soak: 1m}, {name: rest}]";
    for count in [1_usize, 3, 40] {
        let names: Vec<String> = (0..count).map(|index| format!("g{index}")).collect();
        let mut cluster = SimulatedCluster::new(policy, names.iter().map(|name| group(name)).collect());
        let early = |cluster: &SimulatedCluster, image: &str| {
            let switches = |group: &&Group| {
                group.log.iter().any(|action| matches!(action, RecordedAction::Switched { image: switched, why: SwitchReason::Wave(wave), .. } if switched == image && wave == "some"))
            };
            cluster.groups.iter().filter(switches).map(|group| group.key.clone()).collect::<Vec<_>>()
        };
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        let first = early(&cluster, "ami-2");
        assert_eq!(first.len(), count.div_ceil(10), "{count} groups");
        cluster.image = "ami-3".into();
        cluster.run_until_stable();
        assert_eq!(early(&cluster, "ami-3"), first, "the others are not disturbed early");
        assert_eq!(cluster.images(), vec!["ami-3"; count]);
    }
}

/// A percentage of the groups protects the other groups only if those wait for it.
#[test]
fn wave_with_a_percentage_is_waited_for() {
    let mut groups: Vec<Group> = (0..20).map(|index| group(&format!("g{index}"))).collect();
    groups.push(canary("c"));
    for policy in [
        "waves: [{name: some, percent: 10, soak: 10m}, {name: rest}]",
        "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: some, percent: 10, soak: 10m}, {name: rest}]",
        "waves: [{name: some, percent: 10, soak: 10m}, {name: half, percent: 50, soak: 10m}, {name: rest}]",
    ] {
        let mut cluster = SimulatedCluster::new(policy, groups.clone());
        cluster.image = "ami-2".into();
        let state = |cluster: &SimulatedCluster| {
            cluster.waves("r2").into_iter().find(|wave| wave.0 == "some").map(|wave| wave.1)
        };
        cluster.run_until(|cluster| state(cluster) == Some(WaveState::Soaking));
        cluster.run(20);
        let early = cluster.groups.iter().filter(|group| !group.log.is_empty()).count();
        assert_eq!((early, state(&cluster)), (3, Some(WaveState::Soaking)), "{policy}");
        cluster.run_until_stable();
        assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    }
}

/// How many groups have switched or replaced a node.
fn begun(cluster: &SimulatedCluster) -> usize {
    cluster.groups.iter().filter(|group| !group.log.is_empty()).count()
}

/// An admin who sees that a tenth went well raises the share, instead of waiting.
#[test]
fn percentage_may_be_raised_while_its_wave_is_open() {
    let policy = |percent: usize| format!("waves: [{{name: some, percent: {percent}, soak: 10m}}, {{name: rest}}]");
    let mut cluster = SimulatedCluster::new(&policy(10), (0..20).map(|index| group(&format!("g{index}"))).collect());
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| begun(cluster) == 2);
    cluster.policy = Some(policy(50));
    cluster.run(10);
    assert_eq!((begun(&cluster), cluster.waves("r2")[0].1), (10, WaveState::Soaking));
    cluster.policy = Some(policy(5));
    cluster.run(10);
    assert_eq!(
        (begun(&cluster), cluster.waves("r2")[0].1),
        (10, WaveState::Soaking),
        "what has begun is not taken out of the wave"
    );
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// An admin lowers the share while groups of the wave wait for their turn. They stay in it: the next wave waits for all
/// that were to try the change first.
#[test]
fn percentage_that_is_lowered_takes_no_group_out_of_its_wave() {
    let policy =
        |percent: usize| format!("waves: [{{name: some, percent: {percent}, atOnce: 1, soak: 10m}}, {{name: rest}}]");
    let mut cluster = SimulatedCluster::new(&policy(50), (0..20).map(|index| group(&format!("g{index}"))).collect());
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| begun(cluster) == 1);
    cluster.policy = Some(policy(5));
    cluster.run_until(|cluster| cluster.waves("r2")[0].1 == WaveState::Soaking);
    assert_eq!(begun(&cluster), 10);
}

/// An admin raises the share of a wave that has passed. Further groups would switch to the change at once, before the
/// next wave has soaked.
#[test]
fn percentage_that_is_raised_after_its_wave_gives_the_change_to_no_group() {
    let policy = |percent: usize| {
        format!("waves: [{{name: some, percent: {percent}}}, {{name: more, percent: 20, soak: 10m}}, {{name: rest}}]")
    };
    let mut cluster = SimulatedCluster::new(&policy(10), (0..20).map(|index| group(&format!("g{index}"))).collect());
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").get(1).is_some_and(|wave| wave.1 == WaveState::Soaking));
    assert_eq!(begun(&cluster), 6, "a tenth, and a fifth of the rest");
    cluster.policy = Some(policy(50));
    cluster.run(10);
    assert_eq!((begun(&cluster), cluster.waves("r2")[1].1), (6, WaveState::Soaking));
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

#[test]
fn new_group_begins_with_what_its_wave_has() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    let new = |name: &str, canary: bool| {
        let base = group(name);
        let namespace =
            if canary { [("rollout/wave".to_owned(), "canary".to_owned())].into() } else { base.namespace.clone() };
        Group { nodes: vec![], namespace, ..base }
    };
    cluster.groups.push(new("c2", true));
    cluster.groups.push(new("a2", false));
    cluster.run(3);
    let named = |cluster: &SimulatedCluster, index: usize| cluster.groups[index].status.boundaries_revision.clone();
    assert_eq!(named(&cluster, 3), Some(super::simulated_cluster::hash_of(&cluster)));
    assert_eq!(named(&cluster, 4), named(&cluster, 1), "it has what the others of its wave have");
}

#[test]
fn removed_policy_does_not_release_a_change_that_is_under_way() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(10);
    cluster.policy = None;
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    cluster.run(60);
    assert_eq!(cluster.images(), ["ami-2"; 3], "the policy that it began with ends it");
}

#[test]
fn wave_is_passed_when_all_its_groups_are_deleted() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| !cluster.groups[0].wave_images().is_empty());
    cluster.group("c").deleted = true;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// A tenant that breaks its own group does not halt the rollout.
#[test]
fn failure_after_a_tenant_edit_does_not_halt_the_rollout() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| !cluster.groups[0].wave_images().is_empty());
    let group = cluster.group("c");
    group.generation = 2;
    group.bad_images.insert("ami-2".into());
    cluster.run(60);
    assert_ne!(cluster.phase("r2"), RolloutPhase::Halted);
}

/// A clock that goes back would otherwise make a failure of the revision before look like one of the newest.
#[test]
fn failure_of_the_revision_before_is_not_blamed_on_the_newest() {
    for seconds in [0, 15, 30, 45, 600] {
        let mut cluster = two_waves();
        cluster.policy = Some(format!("{{onFailure: return, {CANARY}}}"));
        cluster.run(2);
        cluster.group("c").bad_images.insert("ami-2".into());
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| is_halted(&cluster.groups[0]));
        cluster.image = "ami-3".into();
        cluster.now -= jiff::SignedDuration::from_secs(seconds);
        cluster.run_until_stable();
        assert_eq!(cluster.phase("r3"), RolloutPhase::Complete, "after {seconds} s");
    }
}

fn is_halted(group: &Group) -> bool {
    group.status.conditions.iter().any(|found| found.r#type == condition::ROTATION_HALTED && found.is_true())
}

#[test]
fn skipped_wave_is_not_waited_for() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run(3);
    cluster.revision("r2").spec.orders.skipped = vec!["canary".into()];
    cluster.run(8);
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

#[test]
fn group_that_an_order_leaves_out_stays() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.poll();
    cluster.revision("r2").spec.orders.without = vec!["team/a".into()];
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-2"]);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// A stored revision that a user deletes stops the group that needs it, and no other.
#[test]
fn group_whose_revision_is_gone_changes_nothing_until_its_turn() {
    let mut cluster = two_waves();
    cluster.group("a").locked = true;
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.group("a").status.config_md5 = Some("of another generation".into());
    cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r1"));
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-3", "ami-1", "ami-3"]);
    cluster.group("a").locked = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-3"; 3]);
}

/// A lock of everything must not let the waves pass as if they were empty.
#[test]
fn locked_config_map_opens_no_wave() {
    let mut cluster = two_waves();
    cluster.config_problem = Some("the ConfigMap has the annotation lock-upgrades".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-1"; 3]);
    assert!(cluster.waves("r2").iter().all(|(_, state)| *state == WaveState::Waiting));
    cluster.config_problem = None;
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
}

/// An edit that follows another one within a poll must not make the first one something to return to.
#[test]
fn groups_do_not_return_to_a_revision_that_never_rolled_out() {
    let mut cluster = two_waves();
    for image in ["ami-2", "ami-3"] {
        cluster.image = image.into();
        cluster.store();
    }
    cluster.group("c").bad_images.insert("ami-2".into());
    // The content of the second edit comes back: it was never complete, so it goes through the waves.
    cluster.image = "ami-2".into();
    cluster.groups.push(Group { nodes: vec![], ..group("new") });
    cluster.run_until_stable();
    assert_eq!(
        (cluster.images()[..3].to_vec(), cluster.phase("r4")),
        (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted)
    );
    assert!(cluster.groups[1].log.is_empty() && cluster.groups[2].log.is_empty(), "no other tenant is touched");
    assert_eq!(cluster.groups[3].status.boundaries_revision, cluster.groups[1].status.boundaries_revision);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Superseded);
}

/// A platform team bounds how many groups of a wave replace nodes at once.
#[test]
fn at_once_bounds_the_groups_that_replace_nodes() {
    let groups = (0..5).map(|number| group(&format!("g{number}"))).collect();
    let mut cluster = SimulatedCluster::new("waves: [{name: all, atOnce: 2}]", groups);
    cluster.image = "ami-2".into();
    let mut most = 0;
    for _ in 0..200 {
        cluster.poll();
        let mixed =
            cluster.groups.iter().filter(|group| group.status.rollout.as_ref().is_some_and(|r| r.settled.is_none()));
        most = most.max(mixed.count());
    }
    assert_eq!((most, cluster.images(), cluster.phase("r2")), (2, vec!["ami-2".to_owned(); 5], RolloutPhase::Complete));
}

/// Each new leader would otherwise begin as many groups once more.
#[test]
fn at_once_bounds_the_groups_that_replace_nodes_when_leaders_change() {
    let groups = (0..5).map(|number| Group { nodes: vec!["ami-1".into(); 4], ..group(&format!("g{number}")) });
    let mut cluster = SimulatedCluster::new("waves: [{name: all, atOnce: 2}]", groups.collect());
    cluster.image = "ami-2".into();
    let mut most = 0;
    for number in 0..200 {
        if number % 3 == 0 {
            cluster.restart();
        }
        cluster.poll();
        let is_mixed = |group: &&Group| group.status.rollout.as_ref().is_some_and(|r| r.settled.is_none());
        most = most.max(cluster.groups.iter().filter(is_mixed).count());
    }
    assert_eq!((most, cluster.images(), cluster.phase("r2")), (2, vec!["ami-2".to_owned(); 5], RolloutPhase::Complete));
}

/// A poll may read a cache that is briefly behind, and before the first poll nothing is known.
#[test]
fn group_whose_switch_a_poll_missed_is_counted() {
    let mut cluster = SimulatedCluster::new("waves: [{name: all, atOnce: 1}]", vec![group("a"), group("b")]);
    let view = cluster.view().expect("a rollout");
    let mut running = Running::default();
    assert!(!running.has_room(&view, 0, "team/b"), "the groups were not counted");
    running.count(&view, std::iter::empty());
    assert!(running.has_room(&view, 0, "team/b"));
    running.count_switch(0, "team/a");
    let mut summary = GroupSummary::new(&view);
    summary.without_target.insert("team/a".into());
    running.update(&view, &summary);
    assert!(!running.has_room(&view, 0, "team/b"), "the poll was too early");
    running.update(&view, &summary);
    assert!(running.has_room(&view, 0, "team/b"), "it has gone back meanwhile");
}

/// A group took the content under the name that it was stored by before. A new leader must not begin another one beside it.
#[test]
fn group_that_knows_the_change_by_another_name_is_counted_before_the_first_poll() {
    let nodes = vec!["ami-1".to_owned(); 9];
    let mut cluster =
        SimulatedCluster::new("waves: [{name: all, atOnce: 1}]", vec![Group { nodes, ..group("a") }, group("b")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    let stored = cluster.view().expect("a rollout").target.clone();
    for (names, is_restored, has_room) in
        [(vec!["r2", "r4"], false, false), (vec!["r4"], true, false), (vec!["r4"], false, true)]
    {
        let mut view = (*cluster.view().expect("a rollout")).clone();
        let names = names.into_iter().map(str::to_owned).collect();
        view.target = StoredRevision { name: "r4".into(), names, is_restored, ..stored.clone() };
        let mut running = Running::default();
        running.count(&view, cluster.groups.iter().map(|group| &group.status));
        assert_eq!(running.has_room(&view, 0, "team/b"), has_room, "{:?}", view.target.names);
    }
}

/// Several workers decide about the groups of a wave at the same time, before any of them has written its decision.
#[test]
fn only_as_many_groups_as_may_run_at_once_get_a_place() {
    let mut cluster = SimulatedCluster::new("waves: [{name: all, atOnce: 1}]", vec![group("a"), group("b")]);
    let view = cluster.view().expect("a rollout");
    let mut running = Running::default();
    running.count(&view, std::iter::empty());
    let places = ["team/a", "team/b", "team/a"].map(|key| running.reserve_place(&view, 0, key));
    assert_eq!(places, [true, false, true], "a group whose write failed keeps its place");
}

/// A rollout must not add to an outage, and a group that waits for the budget is neither failed nor stuck.
#[test]
fn group_does_not_begin_while_the_budget_is_used_up() {
    let mut cluster =
        SimulatedCluster::new("{budget: {nodes: 5%}, waves: [{name: all}]}", vec![group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.budget_used_up = true;
    cluster.run(60);
    assert_eq!(cluster.images(), ["ami-1"; 2]);
    assert_eq!(cluster.group("a").waits, Some(WaitReason::BudgetUsedUp));
    assert_eq!((cluster.phase("r2"), cluster.waves("r2")[0].1), (RolloutPhase::Rolling, WaveState::Open));
    let writes = cluster.writes;
    cluster.run(60);
    assert_eq!(cluster.writes, writes, "nothing is written while groups wait");
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Aborted));
    cluster.revision("r2").spec.orders.aborted = false;
    cluster.revision("r2").spec.orders.retries = 1;
    cluster.budget_used_up = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 2]);
}

/// One tenant's budget that allows no eviction must not keep a security fix from all other tenants. That tenant's group
/// follows later.
#[test]
fn stuck_group_is_listed_and_not_waited_for() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), canary("d"), group("a")]);
    cluster.group("c").blocked = true;
    cluster.image = "ami-2".into();
    cluster.run(30);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Open, "it may still continue");
    cluster.group("c").stuck = true;
    cluster.run_until_stable();
    assert_eq!(
        (cluster.images(), cluster.phase("r2")),
        (["ami-1", "ami-2", "ami-2"].map(str::to_owned).to_vec(), RolloutPhase::Complete)
    );
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert_eq!((behind[0].group.as_str(), behind[0].reason.as_str()), ("team/c", "Stuck"));
    (cluster.group("c").blocked, cluster.group("c").stuck) = (false, false);
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

/// Otherwise one tenant's PodDisruptionBudget would use up the budget of the cluster, and keep a fix from all other
/// tenants.
#[test]
fn blocked_drain_yields_and_is_retried_last() {
    let groups = ["a", "b", "c"].map(group).to_vec();
    let mut cluster = SimulatedCluster::new("{budget: {nodes: 1}, patience: 5m, waves: [{name: all}]}", groups);
    cluster.group("a").blocked = true;
    cluster.image = "ami-2".into();
    cluster.run(15);
    assert!(cluster.group("a").draining && cluster.images() == ["ami-1"; 3], "it has 5 minutes");
    assert_eq!(cluster.group("b").waits, Some(WaitReason::BudgetUsedUp));
    cluster.run_until(|cluster| cluster.images() != ["ami-1"; 3]);
    assert!(!cluster.group("a").draining, "its node is uncordoned");
    cluster.run_until(|cluster| cluster.phase("r2") == RolloutPhase::Complete);
    assert_eq!(cluster.images(), ["ami-1", "ami-2", "ami-2"]);
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert_eq!((behind.len(), behind[0].group.as_str(), behind[0].reason.as_str()), (1, "team/a", "Stuck"));
    cluster.run(3);
    assert!(cluster.group("a").draining, "no other group waits, so it is tried again");
    cluster.group("a").blocked = false;
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

/// A way back is an emergency: one tenant's PodDisruptionBudget must not keep all others on nodes that are bad.
#[test]
fn blocked_drain_of_a_group_that_returns_yields() {
    for way_back in ["revert", "abort", "undo"] {
        let groups = ["a", "b", "c"].map(group).to_vec();
        let policy = "{budget: {nodes: 1}, patience: 5m, waves: [{name: all, soak: 1h}]}";
        let mut cluster = SimulatedCluster::new(policy, groups);
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.images() == ["ami-2"; 3]);
        if way_back == "undo" {
            cluster.run_until_stable();
            cluster.run_until(|cluster| cluster.phase("r2") == RolloutPhase::Complete);
        }
        cluster.group("a").blocked = true;
        match way_back {
            "revert" => cluster.image = "ami-1".into(),
            _ => cluster.revision("r2").spec.orders.aborted = true,
        }
        cluster.run(15);
        assert!(cluster.group("a").draining, "it has 5 minutes");
        cluster.run(40);
        assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"], "{way_back}");
        assert!(cluster.group("a").draining, "no other group waits, so it is tried again");
        cluster.group("a").blocked = false;
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-1"; 3], "{way_back}");
    }
}

/// Groups that were deferred or locked come when the revision is complete: they need the budget as well.
#[test]
fn blocked_drain_yields_after_the_end_of_the_rollout() {
    let groups = ["a", "b", "c"].map(group).to_vec();
    let mut cluster = SimulatedCluster::new("{budget: {nodes: 1}, patience: 5m, waves: [{name: all}]}", groups);
    cluster.group("a").blocked = true;
    cluster.groups.iter_mut().for_each(|group| group.locked = true);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
    cluster.groups.iter_mut().for_each(|group| group.locked = false);
    cluster.run(60);
    assert_eq!(cluster.images(), ["ami-1", "ami-2", "ami-2"]);
}

/// A group whose drain a user has unblocked would otherwise wait for all other groups.
#[test]
fn group_that_replaces_nodes_again_yields_no_longer() {
    let mut cluster = SimulatedCluster::new("{budget: {nodes: 1}, waves: [{name: all}]}", vec![group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.run(2);
    let view = cluster.view().expect("a rollout");
    let (mut summary, mut yielding) = (GroupSummary::new(&view), YieldingGroups::default());
    summary.waves[0].waiting = 1;
    let stuck = || [("team/a".to_owned(), Some("its PodDisruptionBudget".to_owned()))].into();
    yielding.update(&view, &summary, stuck());
    assert!(yielding.reason("team/a").is_some_and(|reason| reason.contains("its PodDisruptionBudget")));
    yielding.update(&view, &summary, [].into());
    assert_eq!(yielding.reason("team/a"), None);
}

/// Each group gets its turn, and no group delays the rollout forever.
#[test]
fn rollout_ends_when_the_drains_of_all_groups_are_blocked() {
    let groups = ["a", "b", "c"].map(group).to_vec();
    let mut cluster = SimulatedCluster::new("{budget: {nodes: 1}, patience: 5m, waves: [{name: all}]}", groups);
    cluster.groups.iter_mut().for_each(|group| group.blocked = true);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".to_owned(); 3]));
    assert!(cluster.groups.iter().all(|group| group.wave_images() == ["ami-2"]));
    assert_eq!(cluster.revision("r2").status.clone().expect("a status").behind.len(), 3);
    cluster.groups.iter_mut().for_each(|group| group.blocked = false);
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

/// The watch of the groups is frozen in a soak. A failure that the controller has written since would not be seen before the
/// next wave opens.
#[test]
fn wave_does_not_pass_while_the_cache_of_its_group_is_behind() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.group("c").doubtful = true;
    cluster.run(60);
    assert_eq!((cluster.images()[1].as_str(), cluster.waves("r2")[0].1), ("ami-1", WaveState::Soaking));
    assert!(cluster.why("r2", "canary").is_some_and(|why| why.contains("1 of its groups")));
    cluster.group("c").doubtful = false;
    // One that has no part in the wave yet does not hold it up.
    cluster.group("a").doubtful = true;
    cluster.run(3);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Passed);
}

/// A clock that is set forward must not shorten a soak, and one that is set back must not make it endless.
#[test]
fn soak_lasts_as_long_as_both_clocks_say() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.soaked = Some(jiff::SignedDuration::from_mins(1));
    cluster.now += jiff::SignedDuration::from_hours(1);
    cluster.run(5);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Soaking, "the process saw one minute of ten");
    cluster.now -= jiff::SignedDuration::from_hours(2);
    cluster.soaked = Some(jiff::SignedDuration::from_mins(20));
    cluster.run(5);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Soaking, "by the wall clock, the soak has not begun");
    cluster.now += jiff::SignedDuration::from_hours(2);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// The clock of the leader before was ahead when the canary was done: the soak must not last until that time has come.
#[test]
fn soak_of_a_group_that_was_done_in_the_future_has_begun() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    let view = cluster.view().expect("a rollout");
    cluster.now += jiff::SignedDuration::from_hours(1);
    (0..2).for_each(|_| cluster.reconcile(0, &view));
    cluster.now -= jiff::SignedDuration::from_hours(1);
    assert!(cluster.groups[0].status.rollout.as_ref().is_some_and(|record| record.settled.is_some()));
    cluster.run(60);
    assert_eq!(cluster.images(), ["ami-2"; 3], "{:?}", cluster.waves("r2"));
}

/// The same for the time that the revision records. Nor may tenants put the revision off for longer.
#[test]
fn soak_that_was_recorded_in_the_future_begins_now() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.now -= jiff::SignedDuration::from_hours(2);
    cluster.run(1);
    let (now, status) = (cluster.now, cluster.revision("r2").status.clone().expect("a status"));
    let times = [&status.waves[0].opened, &status.waves[0].settled].map(|at| at.as_deref().expect("a time"));
    assert!(times.iter().all(|at| at.parse::<jiff::Timestamp>().is_ok_and(|at| at <= now)), "{times:?}, {now}");
    cluster.run(100);
    assert_eq!(cluster.images(), ["ami-2"; 3], "{:?}", cluster.waves("r2"));
}

/// The status is read by users and stored by etcd: a cluster of thousands of groups must not fill it.
#[test]
fn status_lists_at_most_fifty_groups() {
    let policy = "waves: [{name: all, maxFailures: 100%}]";
    let mut groups: Vec<Group> = (0..80).map(|number| group(&format!("g{number}"))).collect();
    groups.iter_mut().for_each(|group| {
        group.unusable_images.insert("ami-2".into());
    });
    let mut cluster = SimulatedCluster::new(policy, groups);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    let status = cluster.revision("r2").status.clone().expect("a status");
    assert_eq!((status.behind.len(), status.groups.expect("counts").failed), (50, 80));
    assert!(serde_json::to_string(&status).expect("JSON").len() < 64 * 1024);
}

/// An admin edits the policy while a change is under way.
#[test]
fn waves_may_be_renamed_reordered_and_removed_in_the_middle() {
    for later in [
        "waves: [{name: early, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]",
        "waves: [{name: rest, soak: 10m}]",
        "waves: [{name: new, groups: 'no = one', soak: 1h}, {name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]",
        "waves: [{name: canary, namespaces: 'rollout/wave = canary', percent: 1, soak: 10m}, {name: rest}]",
    ] {
        let mut cluster = two_waves();
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Open));
        cluster.policy = Some(later.to_owned());
        cluster.run(10);
        let settled = cluster.waves("r2").iter().all(|wave| wave.1 == WaveState::Passed);
        assert!(!settled, "{later}: nothing has soaked");
        cluster.run_until_stable();
        assert_eq!(
            (cluster.images(), cluster.phase("r2")),
            (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete),
            "{later}"
        );
    }
}

/// An admin puts a wave before one that is open already: groups of the open one wait for it.
#[test]
fn open_wave_waits_for_one_that_is_put_before_it() {
    let mut cluster = SimulatedCluster::new(
        "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest, atOnce: 1}]",
        {
            vec![
                canary("c"),
                group("a"),
                group("b"),
                Group { annotations: [("early".into(), "yes".into())].into(), ..group("e") },
            ]
        },
    );
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups.iter().skip(1).any(|group| !group.wave_images().is_empty()));
    cluster.policy =
        Some(CANARY.replace("{name: rest}", "{name: early, groups: early, soak: 10m}, {name: rest, atOnce: 1}"));
    cluster.run(8);
    let switched = cluster.groups.iter().filter(|group| !group.wave_images().is_empty()).count();
    assert_eq!((switched, cluster.waves("r2")[1].1), (3, WaveState::Soaking), "{:?}", cluster.waves("r2"));
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 4], RolloutPhase::Complete));
}

/// A user who clears the status makes the rollout start again. No group may switch before its wave.
#[test]
fn cleared_status_begins_with_the_first_wave_again() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.revision("r2").status = None;
    cluster.run(4);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// A group that fails with the revision that it returns to as well must not go back and forth.
#[test]
fn group_that_fails_with_both_revisions_returns_once() {
    let mut cluster = two_waves();
    cluster.group("c").bad_images.extend(["ami-1".into(), "ami-2".into()]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
    let switched =
        cluster.groups[0].log.iter().filter(|action| matches!(action, RecordedAction::Switched { .. })).count();
    assert_eq!(switched, 2, "{:?}", cluster.groups[0].log);
    let status = cluster.revision("r2").status.clone().expect("a status");
    let behind: Vec<_> = status.behind.iter().map(|behind| (behind.group.as_str(), behind.reason.as_str())).collect();
    assert_eq!(behind, [("team/c", "Failed")], "the status lists it");
    let halted = status.conditions.iter().find(|found| found.r#type == "Halted" && found.is_true());
    assert!(halted.and_then(|found| found.message.as_ref()).is_some_and(|text| text.contains("team/c")), "{halted:?}");
}

/// Orders that name what does not exist are no order.
#[test]
fn orders_about_unknown_waves_and_groups_change_nothing() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.store();
    let orders = &mut cluster.revision("r2").spec.orders;
    (orders.skipped, orders.without) = (vec!["no-such-wave".into()], vec!["team/no-such-group".into()]);
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-1", "ami-1"]);
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 3]);
}

/// A namespace that becomes a canary after that wave passed, and one that stops being one while its wave is open.
#[test]
fn group_follows_the_wave_that_selects_it_until_it_switches() {
    let mut cluster = two_waves();
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.group("c").namespace.clear();
    cluster.group("a").namespace.insert("rollout/wave".into(), "canary".into());
    cluster.run(8);
    assert_eq!(
        cluster.images(),
        ["ami-2", "ami-2", "ami-1"],
        "the new canary goes at once, the old one stays in its wave"
    );
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 3], RolloutPhase::Complete));
}

/// An admin sees how many groups of a wave wait, and why, without reading the conditions of each.
#[test]
fn wave_says_how_many_of_its_groups_wait_and_why() {
    let names = ["a", "b", "c", "d", "e"];
    let mut cluster = SimulatedCluster::new(
        "{deferral: [{namespaces: '*', max: 100h}], waves: [{name: first, groups: 'early = yes'}, {name: rest}]}",
        names.map(group).to_vec(),
    );
    cluster.image = "ami-2".into();
    cluster.group("a").locked = true;
    cluster.group("b").annotations = [(annotation::DEFER_UNTIL.to_owned(), "2030-01-01T00:00:00Z".to_owned())].into();
    cluster.group("c").nodes = vec!["ami-1".into(); 50];
    cluster.run_until(|cluster| cluster.groups[2].nodes.contains(&"ami-2".to_owned()));
    cluster.run(2);
    let expected = [("Deferred", 1), ("Locked", 1)].map(|(reason, count)| (reason.to_owned(), count));
    assert_eq!(cluster.waiting("r2", "rest"), std::collections::BTreeMap::from(expected));
    cluster.group("c").locked = true;
    cluster.poll();
    assert_eq!(cluster.waiting("r2", "rest")["Locked"], 2, "it has begun, and continues after the lock");
    cluster.revision("r2").spec.orders.paused = true;
    cluster.group("c").locked = false;
    cluster.run(2);
    assert_eq!(cluster.waiting("r2", "rest")["Blocked"], 1);
}

/// The groups that the status of a revision names, with the reasons.
fn waits_for(cluster: &mut SimulatedCluster, name: &str) -> Vec<(String, String)> {
    let status = cluster.revision(name).status.clone().expect("a status");
    status.waits_for.into_iter().map(|group| (group.group, group.reason)).collect()
}

/// An admin sees which groups an open wave waits for: those that are blocked first, and a limited number of names.
#[test]
fn status_names_the_groups_that_an_open_wave_waits_for() {
    let mut groups: Vec<Group> = (0..12).map(|number| group(&format!("g{number}"))).collect();
    groups.iter_mut().for_each(|group| group.nodes = vec!["ami-1".into(); 50]);
    groups.push(canary("c"));
    let mut cluster = SimulatedCluster::new(CANARY, groups);
    cluster.image = "ami-2".into();
    cluster.group("g3").answers = false;
    cluster.run(2);
    let assessed = [("team/g3".to_owned(), "Assessing".to_owned())];
    assert_eq!((cluster.phase("r2"), waits_for(&mut cluster, "r2")), (RolloutPhase::Assessing, assessed.into()));
    cluster.group("g3").answers = true;
    cluster.run_until(|cluster| cluster.waves("r2")[0].1 == WaveState::Soaking);
    assert_eq!(waits_for(&mut cluster, "r2"), [], "a soak waits for no group");
    cluster.run_until(|cluster| cluster.groups[5].nodes.contains(&"ami-2".to_owned()));
    cluster.group("g7").locked = true;
    cluster.run(2);
    let found = waits_for(&mut cluster, "r2");
    let status = cluster.revision("r2").status.clone().expect("a status");
    assert_eq!(found[0], ("team/g7".to_owned(), "Locked".to_owned()));
    assert_eq!((found.len(), status.waits_for_more), (10, 2));
    assert!(status.waits_for[1].message.contains("of 50 nodes run r2"), "{:?}", status.waits_for[1]);
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.group("g7").locked = false;
    cluster.run_until_stable();
    assert_eq!(waits_for(&mut cluster, "r2"), []);
}

/// Nothing is planned for a group whose object does not match the schema: a complete rollout must not hide that.
#[test]
fn group_that_cannot_be_decoded_is_listed_as_behind() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c")]);
    let view = cluster.view().expect("a rollout");
    let mut summary = GroupSummary::new(&view);
    summary.list_undecodable(&view, "team/has-it", Some(&view.target.hash));
    summary.list_undecodable(&view, "team/web", None);
    let listed: Vec<_> = summary.behind.iter().map(|behind| (behind.group.as_str(), behind.reason.as_str())).collect();
    assert_eq!(listed, [("team/web", "InvalidSpec")]);
}
