//! What a tenant reads whose group waits for its wave: which change, what opens the wave, and how early.

use jiff::SignedDuration;

use super::simulated_cluster::{FAILURE_DELAY, SimulatedCluster, canary, group};
use super::times::{at, tenant};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState, rfc3339};
use crate::rollout::{DecisionInput, RevisionDecision, RevisionImpact, WaitReason, choose};

/// The message of the group at an index, whose wave is not open.
fn message(cluster: &mut SimulatedCluster, index: usize) -> String {
    let view = cluster.view().expect("a rollout");
    let forecast = RevisionImpact::Rotate { nodes: 2 };
    let choice = choose(&DecisionInput {
        view: &view,
        group: cluster.groups[index].group_view(&forecast, None),
        merged_hash: &|_| None,
        uses_alias: &|_| false,
        has_room: &|_| true,
        budget_used_up: &|| None,
        failure_delay: FAILURE_DELAY,
        now: cluster.now,
    });
    let RevisionDecision::Use { waits: Some(wait), .. } = choice else { panic!("{choice:?}") };
    assert_eq!(wait.reason, WaitReason::WaveNotOpen, "{}", wait.message);
    wait.message
}

/// A canary and a group `a` on a Thursday afternoon; the change arrives.
fn changed(policy: &str) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(policy, vec![canary("c"), group("a")]);
    cluster.now = at("2026-08-20T15:00:00Z");
    cluster.image = "ami-2".into();
    cluster.run_until(|cluster| cluster.phase_of("r2") == Some(RolloutPhase::Rolling));
    cluster
}

fn soak(cluster: &mut SimulatedCluster) {
    cluster.run_until(|cluster| cluster.waves("r2").first().is_some_and(|(_, state)| *state == WaveState::Soaking));
}

/// A tenant reads in the condition RolloutPending which change comes, what it waits for, and which day to expect it.
#[test]
fn group_that_waits_for_its_wave_names_the_change_and_the_earliest_time() {
    let canary = "{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}";
    let night = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
    let mut cluster =
        changed(&format!("release: '2026-08-20'\nwaves: [{canary}, {{name: rest, approval: admin, {night}}}]"));
    assert_eq!(
        message(&mut cluster, 1),
        "r2 (release 2026-08-20) reaches the group in wave rest (2 of 2), which is not open yet: wave canary has not passed, and it needs an approval: instance-manager rollout approve r2 --wave rest; until then the group keeps r1"
    );
    soak(&mut cluster);
    let soaking = message(&mut cluster, 1);
    let words = "wave canary soaks, and it needs an approval: instance-manager rollout approve r2 --wave rest; the group switches at 2026-08-20T22:00:00Z at the earliest, and keeps r1 until then";
    assert!(soaking.contains(words), "{soaking}");
    cluster.run(2);
    assert_eq!(message(&mut cluster, 1), soaking, "a group that waits would write its status");
    cluster.revision("r2").spec.orders.approved = vec!["rest".into()];
    let approved = message(&mut cluster, 1);
    assert!(approved.contains("not open yet: wave canary soaks; the group switches at 2026-08-20T22:00"), "{approved}");
}

/// Without windows, the end of the soak counts, and with a delay of this cluster, that.
#[test]
fn earliest_time_is_the_end_of_the_soak_or_of_the_delay() {
    let waves = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]";
    let mut cluster = changed(waves);
    soak(&mut cluster);
    let settled = cluster.revision("r2").status.as_ref().and_then(|status| status.waves[0].settled.clone());
    let end = at(&settled.expect("a time")) + SignedDuration::from_mins(10);
    let found = message(&mut cluster, 1);
    let words = format!(
        "r2 reaches the group in wave rest (2 of 2), which is not open yet: wave canary soaks; the group switches at {} at the earliest",
        rfc3339(end)
    );
    assert!(found.starts_with(&words), "{found}");
    cluster.now = end;
    let late = message(&mut cluster, 1);
    assert!(!late.contains("at the earliest"), "the time is over: {late}");

    let mut cluster = changed(&format!("delay: [{{clusters: '*', by: 48h}}]\n{waves}"));
    let arrived = cluster.revision("r2").metadata.creation_timestamp.clone().expect("a time").0;
    let found = message(&mut cluster, 0);
    let time = rfc3339(arrived + SignedDuration::from_hours(48));
    let words = format!(
        "not open yet: the delay of this cluster is not over; the group switches at {time} at the earliest, and keeps r1 until then"
    );
    assert!(found.contains(&words), "{found}");
}

/// The window that a tenant names counts in place of the admin's where the tenant may defer the change, and only there.
#[test]
fn earliest_time_follows_the_window_of_a_tenant_who_may_defer() {
    let night = "windows: [{from: '22:00', to: '04:00', zone: UTC}]";
    let waves = "waves: [{name: canary, soak: 10m, namespaces: 'rollout/wave = canary'}, {name: rest, windows: [{from: '23:00', to: '04:00', zone: UTC}]}]";
    for (deferral, own, time) in [
        ("", "thu 18:00-19:00 UTC", "2026-08-20T23:00:00Z"),
        ("deferral: [{namespaces: '*', max: 24h}]", "thu 18:00-19:00 UTC", "2026-08-20T18:00:00Z"),
        ("deferral: [{namespaces: '*', max: 24h}]", "not a window", "2026-08-20T23:00:00Z"),
    ] {
        let mut cluster = changed(&format!("{deferral}\n{waves}"));
        tenant(&mut cluster, "a", annotation::WINDOW, own);
        soak(&mut cluster);
        let found = message(&mut cluster, 1);
        assert!(found.contains(&format!("switches at {time} at the earliest")), "{deferral} {own}: {found}");
    }
    // Beyond the deadline, the windows of the admin count again.
    let policy = format!("deferral: [{{namespaces: '*', max: 1h}}]\n{night}\n{waves}");
    let mut cluster = SimulatedCluster::new(&policy, vec![canary("c"), group("a")]);
    cluster.now = at("2026-08-20T22:30:00Z");
    cluster.image = "ami-2".into();
    tenant(&mut cluster, "a", annotation::WINDOW, "sat 12:00-13:00 UTC");
    soak(&mut cluster);
    let found = message(&mut cluster, 1);
    let settled = cluster.revision("r2").status.as_ref().and_then(|status| status.waves[0].settled.clone());
    let deadline = at(&settled.expect("a time")) + SignedDuration::from_mins(70);
    assert!(found.contains(&format!("switches at {} at the earliest", rfc3339(deadline))), "{found}");
}
