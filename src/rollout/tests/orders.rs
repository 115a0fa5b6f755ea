//! Orders of users, and edits of the policy and of tenants, at times at which they mean something else.

use super::simulated_cluster::{CANARY, Group, SimulatedCluster, canary, group};
use crate::api::{CheckState, RolloutPhase, WaveState};

fn is_soaking(cluster: &SimulatedCluster, revision: &str) -> bool {
    cluster.waves(revision).first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// An admin who ends a pause has not seen the failure that follows an hour later. No group may switch because of the
/// earlier resume.
#[test]
fn resume_of_a_pause_does_not_cancel_a_later_stop() {
    use RolloutPhase::{Aborted, Halted, Returning};

    let checked = format!("{{checks: [{{name: errors, query: 'up == 0'}}], {CANARY}}}");
    for (policy, stopped) in [
        (checked, &[Halted][..]),
        (CANARY.to_owned(), &[Halted][..]),
        (format!("{{onFailure: return, {CANARY}}}"), &[Returning, Aborted][..]),
    ] {
        let mut cluster = SimulatedCluster::new(&policy, vec![canary("c"), canary("d"), group("a")]);
        cluster.answers.insert("errors".into(), CheckState::Ok);
        cluster.image = "ami-2".into();
        cluster.store();
        cluster.revision("r2").spec.orders.paused = true;
        cluster.run(3);
        let orders = &mut cluster.revision("r2").spec.orders;
        (orders.paused, orders.retries) = (false, 1);
        cluster.run_until(|cluster| is_soaking(cluster, "r2"));
        match policy.contains("checks") {
            true => _ = cluster.answers.insert("errors".into(), CheckState::Failing),
            false => _ = cluster.group("c").bad_images.insert("ami-2".into()),
        }
        cluster.run_until(|cluster| cluster.phase_of("r2").is_some_and(|phase| stopped.contains(&phase)));
        for _ in 0..20 {
            cluster.poll();
            assert!(stopped.contains(&cluster.phase("r2")), "{policy}: {}", cluster.phase("r2"));
        }
        cluster.group("c").bad_images.clear();
        cluster.answers.insert("errors".into(), CheckState::Ok);
        cluster.revision("r2").spec.orders.retries = 2;
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 3]));
    }
}

/// An admin who looks at an aborted revision must read that no group switches to it, and why it was aborted.
#[test]
fn aborted_revision_has_no_open_wave() {
    let checked = format!("{{onFailure: return, checks: [{{name: errors, query: 'up == 0'}}], {CANARY}}}");
    for (policy, why) in [(CANARY.to_owned(), "by an order"), (checked, "the check errors fails")] {
        let mut cluster = SimulatedCluster::new(&policy, vec![canary("c"), group("a")]);
        cluster.answers.insert("errors".into(), CheckState::Ok);
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| is_soaking(cluster, "r2"));
        match policy.contains("checks") {
            true => _ = cluster.answers.insert("errors".into(), CheckState::Failing),
            false => cluster.revision("r2").spec.orders.aborted = true,
        }
        cluster.run_until_stable();
        let states: Vec<_> = cluster.waves("r2").into_iter().map(|(_, state)| state).collect();
        assert_eq!((cluster.phase("r2"), states), (RolloutPhase::Aborted, vec![WaveState::Waiting; 2]));
        let conditions = &cluster.revision("r2").status.as_ref().expect("a status").conditions;
        let halted = conditions.iter().find(|found| found.r#type == "Halted").expect("a condition");
        assert!(halted.message.as_deref().is_some_and(|message| message.contains(why)), "{halted:?}");
    }
}

/// An admin who skips a wave wants to wait for nothing: not for the approval of the regulated environment either.
#[test]
fn skipped_wave_waits_for_no_approval() {
    let policy = "waves: [{name: canary, namespaces: 'rollout/wave = canary'}, {name: general, approval: admin}]";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
    cluster.revision("r2").spec.orders.skipped = vec!["general".into()];
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

/// An admin rearranges the waves for the next change: what is complete stays what new groups begin with.
#[test]
fn edit_of_the_waves_after_the_end_keeps_no_group_from_the_complete_revision() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("a").locked = true;
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    cluster.policy =
        Some("waves: [{name: first, groups: 'no = one'}, {name: second, percent: 10}, {name: last}]".into());
    cluster.groups.push(Group { nodes: vec![], ..group("new") });
    cluster.group("a").locked = false;
    cluster.poll();
    assert_eq!(cluster.groups[2].status.boundaries_revision, cluster.groups[0].status.boundaries_revision);
    cluster.run_until_stable();
    assert_eq!(cluster.images()[..2], ["ami-2", "ami-2"], "the lock is gone");
    assert!(cluster.waves("r2").iter().all(|(_, state)| *state == WaveState::Passed), "{:?}", cluster.waves("r2"));
}

/// A tenant who scales its group during a rotation does not overrule the admin who stopped the change.
#[test]
fn edit_of_a_tenant_does_not_free_its_group_from_a_pause_or_a_halt() {
    for stop in ["pause", "halt"] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), canary("d"), group("a")]);
        cluster.group("c").nodes = vec!["ami-1".into(); 20];
        cluster.image = "ami-2".into();
        cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned()));
        cluster.group("c").generation += 1;
        match stop {
            "pause" => cluster.revision("r2").spec.orders.paused = true,
            _ => {
                cluster.group("d").bad_images.insert("ami-2".into());
                cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Halted));
            }
        }
        cluster.run(2);
        let nodes = cluster.groups[0].nodes.clone();
        assert!(nodes.contains(&"ami-1".to_owned()), "the test is too slow");
        cluster.run(10);
        assert_eq!(cluster.groups[0].nodes, nodes, "{stop}");
    }
}

/// Once a group has the change, the edits of its tenant do not depend on the rollout.
#[test]
fn tenant_edit_of_an_updated_group_does_not_wait_for_the_rollout() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| is_soaking(cluster, "r2"));
    cluster.revision("r2").spec.orders.paused = true;
    cluster.run(2);
    cluster.group("c").generation += 1;
    cluster.group("c").nodes[0] = "its own old user data".into();
    cluster.run(2);
    assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
}

/// An admin aborts a revision, and the correction reaches the ConfigMap before the next poll. The groups must leave the
/// bad revision as if the order had come a minute before.
#[test]
fn order_to_abort_counts_although_the_next_change_comes_in_the_same_second() {
    for ends in [false, true] {
        let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
        cluster.group("c").nodes = vec!["ami-1".into(); 4];
        cluster.image = "ami-2".into();
        match ends {
            false => cluster.run_until(|cluster| cluster.groups[0].nodes.contains(&"ami-2".to_owned())),
            true => cluster.run_until_stable(),
        }
        cluster.revision("r2").spec.orders.aborted = true;
        // The correction waits, so that what the groups have meanwhile can be seen.
        cluster.image = "ami-3".into();
        cluster.store();
        cluster.revision("r3").spec.orders.paused = true;
        cluster.run_until_stable();
        assert_eq!(cluster.images(), ["ami-1", "ami-1"], "{ends}");
        assert_eq!(cluster.phase("r2"), RolloutPhase::Aborted, "{ends}");
        assert_eq!(cluster.revision("r3").status.clone().and_then(|status| status.stable).as_deref(), Some("r1"));
        cluster.revision("r3").spec.orders.paused = false;
        cluster.run_until_stable();
        assert_eq!((cluster.phase("r3"), cluster.images()), (RolloutPhase::Complete, vec!["ami-3".to_owned(); 2]));
    }
}

/// A deferral is counted from the opening of its wave: while users have paused a change, the time of tenants must not
/// run.
#[test]
fn paused_rollout_opens_no_wave() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.paused = true;
    cluster.run(60);
    assert!(cluster.waves("r2").iter().all(|(_, state)| *state == WaveState::Waiting), "{:?}", cluster.waves("r2"));
    cluster.revision("r2").spec.orders.paused = false;
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-2".to_owned(); 2]));
}

/// A user who raises `retries` by hand does not take the order to abort back.
#[test]
fn retries_do_not_resume_a_revision_while_it_is_ordered_back() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| is_soaking(cluster, "r2"));
    cluster.revision("r2").spec.orders.aborted = true;
    cluster.run_until_stable();
    cluster.revision("r2").spec.orders.retries = 1;
    for _ in 0..20 {
        cluster.poll();
        assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Aborted, vec!["ami-1".to_owned(); 2]));
    }
}

/// There is nothing to return to from the first revision.
#[test]
fn order_to_abort_the_first_revision_changes_nothing() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.revision("r1").spec.orders.aborted = true;
    cluster.run(5);
    assert_eq!((cluster.phase("r1"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".to_owned(); 2]));
}

/// In an emergency in one cluster, an admin gives an order and does not wait for Git. The next change waits as before.
#[test]
fn urgent_order_passes_every_gate_for_one_revision() {
    let policy = "{freezes: [{from: 2020-01-01, to: 9999-12-31, zone: UTC}], deferral: [{namespaces: '*', max: 720h}], waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 24h}, {name: rest, approval: admin}]}";
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    let until = ("instancemgr.keikoproj.io/defer-until".to_owned(), "2099-01-01T00:00:00Z".to_owned());
    cluster.group("a").annotations.extend([until]);
    cluster.image = "ami-2".into();
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-1", "ami-1"], "it is frozen");
    let orders = &mut cluster.revision("r2").spec.orders;
    (orders.urgent, orders.paused) = (true, true);
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-1", "ami-1"], "a pause counts");
    cluster.revision("r2").spec.orders.paused = false;
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    cluster.poll();
    assert!(!cluster.is_urgent(), "a group that comes to it months later waits for windows again");
    cluster.image = "ami-3".into();
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-2", "ami-2"], "the order was about r2");
}

/// The emergency is worse when every group takes a bad image.
#[test]
fn urgent_revision_halts_when_a_group_fails_on_it() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.urgent = true;
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Halted);
}

/// Users who skip a wave have decided about its failures: a failed group returns, and the other waves continue.
#[test]
fn failure_in_a_skipped_wave_halts_nothing() {
    let mut cluster = SimulatedCluster::new(CANARY, vec![canary("c"), group("a")]);
    cluster.group("c").bad_images.insert("ami-2".into());
    cluster.image = "ami-2".into();
    cluster.store();
    cluster.revision("r2").spec.orders.skipped = vec!["canary".into()];
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.images()), (RolloutPhase::Complete, vec!["ami-1".into(), "ami-2".into()]));
}
