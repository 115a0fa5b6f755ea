//! Groups on which a change fails, and what it means for the others.

use proptest::prelude::*;

use super::simulated_cluster::{CANARY, FAILURE_DELAY, Group, POLL, RecordedAction, SimulatedCluster, canary, group};
use crate::api::names::{annotation, condition};
use crate::api::{Condition, RolloutPhase, RolloutRecord, WaveState, rfc3339, set_condition};
use crate::plan::StalledReason;
use crate::rollout::{RevisionImpact, WaitReason, corrected_record};

fn soaking() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster
}

/// The soak is there to find what the rotation did not.
#[test]
fn failure_during_the_soak_halts_and_the_group_returns() {
    let mut cluster = soaking();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 3], RolloutPhase::Halted));
    assert!(cluster.groups[1].log.is_empty() && cluster.groups[2].log.is_empty(), "no other tenant is touched");
}

/// A webhook refuses the statuses of one tenant's groups, in which a switch is recorded before it happens. The other tenants
/// would wait for it without end, and so would a return.
#[test]
fn group_whose_status_cannot_be_written_is_not_waited_for_without_end() {
    let policy = "patience: 10m\nwaves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: rest}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), canary("d"), group("a")]);
    cluster.group("c").unwritable = true;
    cluster.image = "ami-2".into();
    cluster.run(30);
    assert_eq!(cluster.waves("r2")[1].1, WaveState::Waiting, "the webhook may be corrected");
    cluster.run(30);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1", "ami-2", "ami-2"]), RolloutPhase::Complete));
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert_eq!((behind.len(), behind[0].group.as_str(), behind[0].reason.as_str()), (1, "team/c", "Stuck"));
    assert_eq!(behind[0].revision.as_deref(), Some("r1"), "it keeps what it has");
    assert!(behind[0].message.contains("StatusNotWritten"), "{}", behind[0].message);

    cluster.group("c").unwritable = false;
    cluster.run(10);
    assert_eq!(cluster.images(), images(["ami-2", "ami-2", "ami-2"]), "it takes the revision once that is possible");

    cluster.group("d").unwritable = true;
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run(30);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Returning);
    cluster.run(30);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1", "ami-2", "ami-1"]), RolloutPhase::Aborted));
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    let found = behind.iter().find(|found| found.group == "team/d").expect("it is listed");
    assert_eq!((found.revision.as_deref(), found.reason.as_str()), (Some("r2"), "Stuck"), "{found:?}");
}

fn images<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

/// A group took the same content before, so that what it would return to is what fails. It returns to the complete one.
#[test]
fn group_that_came_from_the_same_content_returns_to_the_complete_one() {
    let mut cluster = soaking();
    let own = cluster.group("c").status.boundaries_revision.clone();
    cluster.group("c").status.rollout.as_mut().expect("a record").previous = own;
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run(10);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1"; 3]), RolloutPhase::Aborted));
}

/// An admin of many tenants accepts that a few groups fail. Each of these groups still returns.
#[test]
fn wave_passes_with_at_most_max_failures() {
    for (allowed, groups, bad, halts) in [
        ("1", 3, 1, false),
        ("1", 3, 2, true),
        ("50%", 2, 1, false),
        ("49%", 2, 1, true),
        ("100%", 2, 2, false),
        ("0", 1, 1, true),
    ] {
        let policy = format!("waves: [{{name: first, groups: '!late', maxFailures: {allowed}}}, {{name: rest}}]");
        let late = Group { annotations: [("late".to_owned(), "yes".to_owned())].into(), ..group("late") };
        let mut all: Vec<Group> = (0..groups).map(|number| group(&format!("g{number}"))).collect();
        all.push(late);
        let mut cluster = SimulatedCluster::new(&policy, all);
        for number in 0..bad {
            cluster.group(&format!("g{number}")).bad_images.insert("ami-2".into());
        }
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        let (phase, rest) = if halts { (RolloutPhase::Halted, "ami-1") } else { (RolloutPhase::Complete, "ami-2") };
        assert_eq!(
            (cluster.phase("r2"), cluster.images()[groups].as_str()),
            (phase, rest),
            "{allowed} of {groups}, {bad} fail"
        );
        let images = cluster.images();
        assert!(images[..bad].iter().all(|image| image == "ami-1"), "{allowed}: failed groups return: {images:?}");
        let behind = cluster.revision("r2").status.clone().expect("a status").behind;
        assert_eq!(behind.iter().filter(|behind| behind.reason == "Failed").count(), bad);
    }
}

/// Two failures that are found in the same poll are both named, and both groups return.
#[test]
fn groups_that_fail_at_once_are_all_named() {
    let mut cluster =
        SimulatedCluster::new("waves: [{name: all, maxFailures: 1}]", vec![group("a"), group("b"), group("c")]);
    for name in ["a", "b"] {
        cluster.group(name).bad_images.insert("ami-2".into());
    }
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(
        (cluster.phase("r2"), &cluster.images()[..2]),
        (RolloutPhase::Halted, &["ami-1".to_owned(), "ami-1".to_owned()][..])
    );
    let status = cluster.revision("r2").status.clone().expect("a status");
    let halted =
        status.conditions.iter().find(|found| found.r#type == "Halted").and_then(|found| found.message.clone());
    let halted = halted.expect("a message");
    assert!(halted.contains("team/a") && halted.contains("team/b"), "{halted}");
}

/// A change that no group can use must not replace a node anywhere.
#[test]
fn change_that_no_group_can_use_touches_nothing() {
    let mut groups = vec![canary("c"), group("a"), group("b")];
    groups.iter_mut().for_each(|group| _ = group.unusable_images.insert("ami-2".into()));
    let mut cluster = SimulatedCluster::new(CANARY, groups);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
    assert!(cluster.groups.iter().all(|group| group.log.is_empty() && group.waits.is_some()));
    cluster.image = "ami-1".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r3"), RolloutPhase::Complete, "the revert has nothing to do");
}

/// An image that is shared, or a quota that is raised, after the halt: the order to resume must be enough.
#[test]
fn resume_asks_again_what_the_change_means_for_a_group_that_could_not_use_it() {
    for is_polled_before in [true, false] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
        cluster.group("c").unusable_images.insert("ami-2".into());
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
        cluster.group("c").unusable_images.clear();
        cluster.run(if is_polled_before { 4 } else { 0 });
        cluster.revision("r2").spec.orders.retries = 1;
        // The order is read before the group is reconciled again.
        cluster.advance_rollout();
        assert_eq!(cluster.phase("r2"), RolloutPhase::Rolling);
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
    }
}

/// Where the wave allows the failure, the group switches without a user's help once the image is shared with its
/// account.
#[test]
fn group_that_could_not_use_the_change_follows_when_it_can() {
    let mut cluster = SimulatedCluster::new("waves: [{name: all, maxFailures: 1}]", vec![group("a"), group("b")]);
    cluster.group("a").unusable_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.groups[0].waits), (RolloutPhase::Complete, Some(WaitReason::CannotUse)));
    cluster.group("a").unusable_images.clear();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2"; 2]);
}

/// While AWS does not answer, the controller keeps the last known forecast and writes nothing.
#[test]
fn group_that_cannot_use_the_change_still_counts_while_aws_is_unavailable() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("c").unusable_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.group("c").answers = false;
    let writes = cluster.writes;
    cluster.run(20);
    assert_eq!((cluster.writes, cluster.groups[0].waits), (writes, Some(WaitReason::Halted)));
    let known = cluster.groups[0].known.as_ref().map(|known| &known.forecast);
    assert!(matches!(known, Some(RevisionImpact::CannotUse { .. })), "{known:?}");
}

/// A halted rollout stays halted over a weekend, whatever a group does meanwhile, and no node is replaced for it.
#[test]
fn halted_rollout_waits_for_people() {
    let mut cluster = soaking();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run_until_stable();
    cluster.group("c").bad_images.clear();
    cluster.group("a").generation += 1;
    cluster.restart();
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Halted, vec!["ami-1".to_owned(); 3]));
    assert_eq!(
        (cluster.groups[0].waits, cluster.groups[1].waits),
        (Some(WaitReason::FailedBefore), Some(WaitReason::Halted))
    );
}

/// A user deletes a revision that failed on a group. The next one has another content and another name, and has not failed.
#[test]
fn revision_after_one_that_failed_and_was_deleted_is_not_refused() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.groups[0].status.rollout.as_ref().and_then(|record| record.refused.as_deref()), Some("r2"));
    // The same content failed on the group, whichever object holds it.
    cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2"));
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Halted, vec!["ami-1".to_owned(); 2]));
    cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2"));
    cluster.image = "ami-3".into();
    cluster.run_until_stable();
    assert_eq!((cluster.newest().as_str(), cluster.phase("r3")), ("r3", RolloutPhase::Complete));
    assert_eq!(cluster.images(), ["ami-3"; 2]);
    assert_eq!(cluster.groups[0].status.rollout.as_ref().and_then(|record| record.refused_hash.clone()), None);
}

/// One tenant's PodDisruptionBudget delays only that tenant's group, even if every group of a wave has such a budget.
#[test]
fn stuck_groups_resume_when_their_blocker_ends() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), canary("d"), group("a")]);
    cluster.image = "ami-2".into();
    for name in ["c", "d", "a"] {
        (cluster.group(name).blocked, cluster.group(name).stuck) = (true, true);
    }
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".to_owned(); 3]));
    let behind = cluster.revision("r2").status.clone().expect("a status").behind;
    assert!(behind.len() == 3 && behind.iter().all(|behind| behind.reason == "Stuck"), "{behind:?}");
    for name in ["c", "d", "a"] {
        (cluster.group(name).blocked, cluster.group(name).stuck) = (false, false);
    }
    cluster.run_until_stable();
    assert_eq!(cluster.images(), vec!["ami-2".to_owned(); 3]);
}

/// Only a problem that the change can have caused makes a group return: not an unhealthy cluster, a budget or missing
/// capacity.
#[test]
fn only_problems_that_speak_against_the_change_are_failures() {
    use strum::IntoEnumIterator;

    for reason in StalledReason::iter() {
        let mut cluster = soaking();
        let now = cluster.now;
        let stalled = Condition::new(condition::STALLED, true, &reason.to_string(), "it does not continue");
        set_condition(&mut cluster.group("c").status.conditions, stalled, &rfc3339(now));
        cluster.group("c").lost = 2;
        cluster.run(20);
        let failed = reason.is_failure_of_revision();
        assert_eq!(cluster.phase("r2") == RolloutPhase::Halted, failed, "{reason}");
        assert_eq!(cluster.images()[0] == "ami-1", failed, "{reason}");
    }
}

proptest! {
    /// A group fails only by a problem that began after it switched, without an edit of its tenant, and that has
    /// lasted.
    #[test]
    fn group_fails_only_by_what_the_change_did(
        began in -600..600i64,
        age in 0..600i64,
        is_true in any::<bool>(),
        edited in any::<bool>(),
        is_halt in any::<bool>(),
    ) {
        let mut cluster = soaking();
        let group = cluster.group("c");
        let record = group.status.rollout.clone().expect("a record");
        let since: jiff::Timestamp = record.since.expect("a time").parse().expect("a time");
        let at = since + jiff::SignedDuration::from_secs(began);
        let (kind, reason) = match is_halt {
            true => (condition::ROTATION_HALTED, "ReplacementsNotReady"),
            false => (condition::STALLED, "LaunchFailed"),
        };
        set_condition(&mut group.status.conditions, Condition::new(kind, is_true, reason, ""), &rfc3339(at));
        group.generation += i64::from(edited);
        let now = at + jiff::SignedDuration::from_secs(age);
        let forecast = Default::default();
        let failure = group.group_view(&forecast, None).failure(now, FAILURE_DELAY);
        let lasts = is_halt || age >= FAILURE_DELAY.as_secs();
        prop_assert_eq!(failure.is_some(), is_true && !edited && began >= 0 && lasts);
    }
}

/// A group that went back keeps what it has for as long as the change is the newest, through restarts and polls.
#[test]
fn returned_group_does_not_switch_again() {
    let mut cluster = soaking();
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run_until_stable();
    let switched = |cluster: &SimulatedCluster| {
        cluster.groups[0].log.iter().filter(|action| matches!(action, RecordedAction::Switched { .. })).count()
    };
    assert_eq!(switched(&cluster), 2, "there and back");
    for _ in 0..5 {
        cluster.restart();
        cluster.run(30);
    }
    assert_eq!(switched(&cluster), 2);
}

/// A Spot Instance that AWS reclaims, or a machine that breaks, must not stop the rollout of all groups.
#[test]
fn few_lost_nodes_during_the_soak_are_chance_and_many_are_the_change() {
    for (nodes, lost, halts) in
        [(1, 1, true), (2, 1, false), (2, 2, true), (20, 1, false), (20, 2, true), (100, 5, false), (100, 6, true)]
    {
        let mut cluster = SimulatedCluster::new(
            CANARY,
            vec![Group { nodes: vec!["ami-1".into(); nodes], ..canary("c") }, group("a")],
        );
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
        let now = cluster.now;
        let group = cluster.group("c");
        group.lost = lost;
        let stalled = Condition::new(condition::STALLED, true, "NodesNotReady", "the kubelet is silent");
        set_condition(&mut group.status.conditions, stalled, &rfc3339(now));
        cluster.run(20);
        assert_eq!(cluster.phase("r2") == RolloutPhase::Halted, halts, "{lost} of {nodes}");
    }
}

/// While the API server calls many nodes unhealthy, none of them is evidence about the change.
#[test]
fn unhealthy_cluster_during_the_soak_is_not_a_failure() {
    let mut cluster = soaking();
    let now = cluster.now;
    let group = cluster.group("c");
    group.lost = 2;
    let stalled = Condition::new(condition::STALLED, true, "ClusterUnhealthy", "9 of 10 nodes are not Ready");
    set_condition(&mut group.status.conditions, stalled, &rfc3339(now));
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 3]));
}

/// A user deletes a complete revision, or its status, so that its rollout begins again. What broke in the weeks since then is
/// not its failure: no node may be replaced for it, whatever the policy says about failures, until a user decides.
#[test]
fn problem_from_before_a_lost_completion_halts_and_no_group_returns() {
    let returns = format!("{{onFailure: return, {CANARY}}}");
    for (policy, is_deleted, edits) in [
        (CANARY, true, false),
        (CANARY, false, false),
        (CANARY, false, true),
        (&returns, true, false),
        (&returns, false, false),
    ] {
        let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a"), group("b")]);
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
        let now = rfc3339(cluster.now);
        let stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not continue");
        set_condition(&mut cluster.group("c").status.conditions, stalled, &now);
        cluster.run(50);
        assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-2"; 3]), RolloutPhase::Complete));
        match is_deleted {
            true => cluster.revisions.retain(|revision| revision.metadata.name.as_deref() != Some("r2")),
            false => cluster.revision("r2").status = None,
        }
        if edits {
            // Before the controller has recorded anything of the revision again.
            cluster.comment = "a comment".into();
        }
        cluster.run_until_stable();
        let newest = cluster.newest();
        assert_eq!(
            (cluster.images(), cluster.phase(&newest)),
            (images(["ami-2"; 3]), RolloutPhase::Halted),
            "{policy}"
        );
        assert_eq!(cluster.group("c").waits, Some(WaitReason::FailedBefore));
        let status = cluster.revision(&newest).status.clone().expect("a status");
        let halted = status.conditions.iter().find(|found| found.r#type == "Halted" && found.is_true());
        let why = halted.and_then(|found| found.message.clone()).unwrap_or_default();
        assert!(why.contains("team/c") && why.contains("LaunchFailed"), "{why}");
        cluster.revision(&newest).spec.orders.retries = 1;
        cluster.run_until_stable();
        assert_eq!((cluster.images(), cluster.phase(&newest)), (images(["ami-2"; 3]), RolloutPhase::Complete));
    }
}

/// A deferral may outlast the rollout by weeks. A group that switches then must return on failure as the other groups
/// did.
#[test]
fn late_group_returns_if_a_complete_revision_fails_on_it() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("late")]);
    cluster.group("late").locked = true;
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Complete));
    assert_eq!(cluster.images(), ["ami-2", "ami-2", "ami-1"]);
    cluster.group("late").bad_images.insert("ami-2".into());
    cluster.group("late").locked = false;
    cluster.run(60);
    assert_eq!(
        (cluster.images(), cluster.phase("r2")),
        (vec!["ami-2".into(), "ami-2".into(), "ami-1".to_owned()], RolloutPhase::Complete)
    );
    assert_eq!(cluster.groups[2].waits, Some(WaitReason::FailedBefore));
    // What breaks weeks later is not the revision's.
    cluster.group("a").bad_images.insert("ami-2".into());
    cluster.run(60);
    assert_eq!(cluster.images()[1], "ami-2");
}

/// A canary whose last drain is blocked runs the revision on its other nodes: the next wave must not open before those have
/// soaked.
#[test]
fn wave_soaks_although_its_only_group_is_stuck() {
    let policy =
        "{patience: 2m, waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10h}, {name: rest}]}";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    cluster.group("c").nodes = vec!["ami-1".into(); 3];
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
    cluster.group("c").blocked = true;
    cluster.run(100);
    assert_eq!(cluster.waves("r2")[0].1, WaveState::Soaking);
    assert_eq!(cluster.images()[1], "ami-1");
}

/// A change leaves a group as it is, and the group's status names it all the same. What breaks there is not the change's.
#[test]
fn failure_of_a_group_that_did_not_switch_is_not_the_revisions() {
    let mut cluster = soaking();
    let (hash, now) = (cluster.revision("r2").spec.hash.clone(), cluster.now);
    let group = cluster.group("a");
    let record = RolloutRecord {
        revision: Some("r0".into()),
        since: Some(rfc3339(now - jiff::SignedDuration::from_hours(1))),
        generation: Some(group.generation),
        settled: Some(rfc3339(now)),
        ..RolloutRecord::default()
    };
    (group.nodes, group.status.rollout) = (vec!["ami-2".into(); 2], Some(record));
    group.status.boundaries_revision = Some(hash.clone());
    let stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not continue");
    set_condition(&mut group.status.conditions, stalled, &rfc3339(now));
    cluster.run(20);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Rolling);
    assert_eq!(cluster.group("a").status.boundaries_revision, Some(hash));
}

/// Percentages and failures before the first node need to know what the change means for each group. One for which AWS
/// does not answer delays the change for ten minutes only. No tenant gets it earlier by its approval.
#[test]
fn waves_open_when_the_change_is_assessed_or_after_ten_minutes() {
    for is_approved in [false, true] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
        let approval = is_approved.then(|| (annotation::APPROVE_REVISION.to_owned(), "2".to_owned()));
        cluster.group("c").annotations.extend(approval);
        cluster.group("a").answers = false;
        cluster.image = "ami-2".into();
        cluster.run(38);
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Assessing, vec!["ami-1".to_owned(); 2]));
        assert_eq!(cluster.groups[0].waits, Some(WaitReason::Assessing), "approved: {is_approved}");
        cluster.run(8);
        assert_eq!((cluster.phase("r2"), cluster.images()[0].as_str()), (RolloutPhase::Rolling, "ami-2"));
    }
}

/// A security fix does not wait for ten minutes, because AWS does not answer for one group. A clock that was wrong when
/// the change came does not delay it, either.
#[test]
fn urgent_change_is_assessed_within_a_minute() {
    let urgent = format!("urgentUntil: '2030-01-01T00:00:00Z'\n{}", CANARY);
    for (policy, is_wrong, polls) in [(urgent.as_str(), false, 6), (CANARY, true, 46)] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a"), group("b")]);
        cluster.policy = Some(policy.to_owned());
        cluster.group("a").answers = false;
        cluster.image = "ami-2".into();
        let hours = jiff::SignedDuration::from_hours(if is_wrong { 1 } else { 0 });
        cluster.now += hours;
        cluster.run(1);
        cluster.now -= hours;
        cluster.run(2);
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Assessing, vec!["ami-1".to_owned(); 3]));
        cluster.run(polls);
        assert_ne!(cluster.phase("r2"), RolloutPhase::Assessing);
        assert_eq!(cluster.images()[0], "ami-2", "{policy}");
    }
}

/// The ConfigMap goes back to a change that was superseded, whose object is the newest again because a user deleted the
/// one after it. Its impact on the groups is computed again before a wave opens.
#[test]
fn change_that_is_the_newest_again_is_assessed_again() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.paused = true;
    cluster.run(60);
    cluster.image = "ami-3".into();
    cluster.run(1);
    assert_eq!(cluster.phase("r2"), RolloutPhase::Superseded);
    cluster.image = "ami-2".into();
    cluster.revisions.retain(|revision| revision.spec.number < 3);
    cluster.revision("r2").spec.orders.paused = false;
    cluster.group("a").answers = false;
    cluster.groups.iter_mut().for_each(|group| group.known = None);
    cluster.run(3);
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Assessing, vec!["ami-1".to_owned(); 2]));
}

/// The controller cannot find out what the change means for a group whose revision is lost. The others do not wait for that.
#[test]
fn group_whose_revision_is_lost_delays_no_assessment() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("a").status.boundaries_revision = Some("lost".into());
    cluster.group("a").status.config_md5 = Some("lost".into());
    cluster.group("a").answers = false;
    cluster.image = "ami-2".into();
    cluster.run(5);
    assert_eq!(cluster.groups[1].waits, Some(WaitReason::RevisionUnknown));
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Rolling, vec!["ami-2".into(), "ami-1".into()]));
}

/// A group on which the halted change works keeps it until the correction: to return would replace its nodes twice.
#[test]
fn group_that_is_done_with_a_halted_change_waits_for_the_correction_with_it() {
    let policy =
        "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m, approval: admin}, {name: rest}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), canary("d"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.approved = vec!["canary".into()];
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Halted));
    cluster.image = "ami-3".into();
    cluster.run(40);
    assert_eq!(cluster.images(), ["ami-1", "ami-2", "ami-1"]);
}

/// The image of a tenant was deleted long before the change came, or a field of its spec was never accepted. The change
/// has broken nothing there. One tenant's mistake must not keep it from all others.
#[test]
fn earlier_mistake_of_a_tenant_does_not_halt_the_change() {
    for (kind, is_true, reason, is_earlier) in [
        (condition::STALLED, true, "ImageNotFound", true),
        (condition::FIELDS_REJECTED, true, "ImageNotFound", true),
        (condition::STALLED, true, "InvalidSpec", false),
        (condition::STALLED, false, "ImageNotFound", false),
    ] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
        let now = rfc3339(cluster.now);
        let group = cluster.group("c");
        set_condition(&mut group.status.conditions, Condition::new(kind, is_true, reason, "its own"), &now);
        group.unusable_images.insert("ami-2".into());
        cluster.image = "ami-2".into();
        cluster.run_until_stable();
        let (phase, image) = match is_earlier {
            true => (RolloutPhase::Complete, "ami-2"),
            false => (RolloutPhase::Halted, "ami-1"),
        };
        assert_eq!((cluster.phase("r2"), cluster.images()[1].as_str()), (phase, image), "{kind} {is_true} {reason}");
        let behind = cluster.revision("r2").status.clone().expect("a status").behind;
        let listed: Vec<_> = behind.iter().map(|behind| (behind.group.as_str(), behind.reason.as_str())).collect();
        assert!(!is_earlier || listed == [("team/c", "CannotUse")], "{listed:?}");
    }
}

/// The API server's times have whole seconds. A group that broke in the second in which it took the change may have
/// been broken before, and must not halt it.
#[test]
fn problem_of_the_second_in_which_a_group_switches_is_not_the_changes() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|wave| wave.1 == WaveState::Open));
    assert!(cluster.groups[0].log.is_empty(), "it switches with the next poll");
    let next = rfc3339(cluster.now + POLL);
    let stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not continue");
    set_condition(&mut cluster.group("c").status.conditions, stalled, &next);
    cluster.poll();
    assert!(matches!(cluster.groups[0].log[0], RecordedAction::Switched { at, .. } if rfc3339(at) == next));
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// The clock of the controller's node goes back in the soak, so that the groups seem to switch in two hours. What fails from
/// now on is still the change's.
#[test]
fn failure_counts_although_the_clock_went_back_after_the_switch() {
    let mut cluster = soaking();
    cluster.now -= jiff::SignedDuration::from_hours(2);
    cluster.run(1);
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.run(20);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1"; 3]), RolloutPhase::Halted));
}

/// The canary fails in the soak while the clock is ahead, and the clock is corrected before the next poll. The wave must not pass
/// in the hours before the time of the failure comes.
#[test]
fn failure_counts_although_the_clock_went_back_after_it() {
    let mut cluster = soaking();
    let view = cluster.view().expect("a rollout");
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.now += jiff::SignedDuration::from_hours(2);
    cluster.reconcile(0, &view);
    cluster.now -= jiff::SignedDuration::from_hours(2);
    cluster.run(60);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1"; 3]), RolloutPhase::Halted));
}

/// The record of each group is written once for such a clock. A problem that a group had before it switched is not the
/// change's, although its time lies ahead, too.
#[test]
fn time_of_a_switch_is_corrected_once_and_blames_no_earlier_problem() {
    let cluster = soaking();
    let mut status = cluster.groups[0].status.clone();
    let record = status.rollout.clone().expect("a record");
    let since: jiff::Timestamp = record.since.clone().expect("a time").parse().expect("a time");
    let minutes = jiff::SignedDuration::from_mins;
    assert_eq!(corrected_record(&status, since), None);
    let now = since - minutes(60);
    let mut stalled = status.clone();
    let problem = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not continue");
    set_condition(&mut stalled.conditions, problem, &rfc3339(since - minutes(30)));
    assert_eq!(corrected_record(&stalled, now), None, "the problem is older than the switch");
    let corrected = corrected_record(&status, now).expect("it lies ahead");
    assert_eq!(corrected, RolloutRecord { since: Some(rfc3339(now)), ..record });
    status.rollout = Some(corrected);
    assert_eq!(corrected_record(&status, now), None, "it is written once");
}

/// A problem from before a lost status is tolerated in its wave. When the change then fails on another group, the policy
/// says that all return.
#[test]
fn proven_failure_returns_all_groups_although_another_one_had_a_problem_before() {
    let policy =
        "onFailure: return\nwaves: [{name: canary, namespaces: 'rollout/wave = canary', maxFailures: 1}, {name: rest}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    let stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not continue");
    let now = rfc3339(cluster.now);
    set_condition(&mut cluster.group("c").status.conditions, stalled, &now);
    cluster.run(50);
    cluster.revision("r2").status = None;
    cluster.run_until(|cluster| cluster.waves("r2").get(1).is_some_and(|wave| wave.1 == WaveState::Soaking));
    cluster.group("a").bad_images.insert("ami-2".into());
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1"; 2]), RolloutPhase::Aborted));
}

/// The problem is older than the beginning that a clock which was ahead recorded.
#[test]
fn group_returns_although_the_clock_went_back_after_the_rollout_had_begun() {
    let mut cluster = soaking();
    // The API server's clock was right.
    let created = cluster.now - jiff::SignedDuration::from_hours(3);
    cluster.revision("r2").metadata.creation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
    cluster.group("c").bad_images.insert("ami-2".into());
    let view = cluster.view().expect("a rollout");
    cluster.reconcile(0, &view);
    cluster.now -= jiff::SignedDuration::from_hours(2);
    let view = cluster.view().expect("a rollout");
    cluster.reconcile(0, &view);
    cluster.now += jiff::SignedDuration::from_secs(1);
    cluster.advance_rollout();
    cluster.run(60);
    assert_eq!((cluster.images(), cluster.phase("r2")), (images(["ami-1"; 3]), RolloutPhase::Halted));
}
