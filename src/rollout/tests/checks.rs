//! Checks: what Prometheus answers, or does not answer, and what that does to a rollout.

use std::time::Duration;

use proptest::prelude::*;

use super::simulated_cluster::{Group, SimulatedCluster, group};
use crate::api::{CheckState, RolloutPhase, WaveState};
use crate::rollout::CheckResult;

const CHECKED: &str = "{release: '2026-08-20', waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}], checks: [{name: errors, query: 'x{r=\"$RELEASE\",v=\"$REVISION\",c=\"$CLUSTER\"} > 5', for: 5m}]}";

fn canary(name: &str) -> Group {
    Group { namespace: [("rollout/wave".to_owned(), "canary".to_owned())].into(), ..group(name) }
}

/// A canary and another group, before the first answer of Prometheus.
fn cluster(policy: &str) -> SimulatedCluster {
    SimulatedCluster::new(policy, vec![canary("c"), group("a")])
}

fn answer(cluster: &mut SimulatedCluster, state: CheckState) {
    cluster.answers.insert("errors".to_owned(), state);
}

fn soaking(cluster: &SimulatedCluster) -> bool {
    cluster.waves("r2").first().is_some_and(|(_, state)| *state == WaveState::Soaking)
}

/// Prometheus is down before the rollout, during the soak, and after a restart.
#[test]
fn unknown_check_neither_opens_passes_nor_halts_a_wave() {
    let mut cluster = cluster(CHECKED);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Rolling));
    assert_eq!(cluster.check("r2", "errors"), Some(CheckState::Unknown));
    answer(&mut cluster, CheckState::Ok);
    cluster.run_until(soaking);
    answer(&mut cluster, CheckState::Unknown);
    cluster.run_until_stable();
    assert_eq!(
        (cluster.images(), cluster.phase("r2")),
        (["ami-2", "ami-1"].map(str::to_owned).into(), RolloutPhase::Rolling)
    );
    answer(&mut cluster, CheckState::Ok);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
    assert_eq!(cluster.check("r2", "errors"), None, "a check that is not asked has no state");
}

#[test]
fn check_that_fails_for_its_time_halts_and_is_named() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    answer(&mut cluster, CheckState::Failing);
    cluster.run(19);
    assert_eq!(
        (cluster.phase("r2"), cluster.check("r2", "errors")),
        (RolloutPhase::Rolling, Some(CheckState::Failing))
    );
    cluster.run_until_stable();
    assert_eq!(
        (cluster.phase("r2"), cluster.images()),
        (RolloutPhase::Halted, ["ami-2", "ami-1"].map(str::to_owned).into())
    );
    let halted = |cluster: &mut SimulatedCluster| {
        let status = cluster.revision("r2").status.clone().expect("a status");
        let found = status.conditions.into_iter().find(|found| found.r#type == "Halted").expect("a condition");
        (found.reason.unwrap_or_default(), found.message.unwrap_or_default())
    };
    let (reason, message) = halted(&mut cluster);
    assert!(
        reason == "CheckFailed" && message.starts_with("the check errors fails: the query has a result; "),
        "{message}"
    );
    // The cause of the halt stays, although the check is ok again; a user decides.
    answer(&mut cluster, CheckState::Ok);
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), halted(&mut cluster)), (RolloutPhase::Halted, (reason, message)));
    cluster.revision("r2").spec.orders.retries = 1;
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Complete));
}

#[test]
fn check_that_fails_for_less_than_its_time_delays_the_next_wave_only() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    cluster.run(34);
    answer(&mut cluster, CheckState::Failing);
    cluster.run(4);
    answer(&mut cluster, CheckState::Ok);
    cluster.run(18);
    assert!(soaking(&cluster), "the soak is over, but the check has not been ok for 5 minutes");
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// A check that fails before the change does not return it. The change does not begin either.
#[test]
fn check_that_fails_before_the_first_wave_keeps_it_closed_and_halts_nothing() {
    let mut cluster = cluster(&CHECKED.replacen('{', "{onFailure: return, ", 1));
    answer(&mut cluster, CheckState::Failing);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r2"), cluster.waves("r2")[0].1), (RolloutPhase::Rolling, WaveState::Waiting));
    answer(&mut cluster, CheckState::Ok);
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

#[test]
fn failing_check_with_on_failure_return_returns_all_groups() {
    let mut cluster = cluster(&CHECKED.replacen('{', "{onFailure: return, ", 1));
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    answer(&mut cluster, CheckState::Failing);
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Aborted));
    let status = cluster.revision("r2").status.clone().expect("a status");
    let halted =
        status.conditions.iter().find(|found| found.r#type == "Halted").and_then(|found| found.message.clone());
    assert!(halted.is_some_and(|text| text.contains("the check errors fails")), "{status:?}");
}

/// The query is about the revision that rolls, and runs twice a minute while it rolls, and not after it.
#[test]
fn query_has_the_values_of_the_rollout_and_runs_only_during_it() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    assert_eq!(cluster.asked, [""; 0], "the first revision is not a rollout");
    cluster.image = "ami-2".into();
    cluster.run(40);
    assert_eq!(cluster.asked[0], r#"x{r="2026-08-20",v="r2",c="prod"} > 5"#);
    assert!(cluster.asked.len() <= 21, "{} queries in 10 minutes", cluster.asked.len());
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    let asked = cluster.asked.len();
    cluster.run(40);
    assert_eq!(cluster.asked.len(), asked);
}

/// An admin who finds the check wrong must not wait for it.
#[test]
fn edited_check_applies_at_once_and_restarts_its_clock() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    cluster.run(38);
    // Another query under the same name was not ok yet.
    cluster.policy = Some(CHECKED.replace("> 5", "> 6"));
    cluster.run(15);
    assert!(soaking(&cluster), "the new query has been ok for less than 5 minutes");
    answer(&mut cluster, CheckState::Unknown);
    cluster.run(40);
    assert!(soaking(&cluster));
    cluster.policy = Some(CHECKED.split(", checks").next().map(|text| format!("{text}}}")).expect("a policy"));
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    // Without the whole key, the policy that the rollout was stored with continues.
    cluster.policy = Some(CHECKED.to_owned());
    cluster.image = "ami-3".into();
    cluster.run(5);
    cluster.policy = None;
    cluster.run_until_stable();
    assert_eq!((cluster.phase("r3"), cluster.images()), (RolloutPhase::Rolling, vec!["ami-2".to_owned(); 2]));
}

#[test]
fn new_leader_repeats_the_checks_before_a_wave_passes_without_a_write() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    cluster.run(36);
    let writes = cluster.writes;
    cluster.restart();
    cluster.run(15);
    assert_eq!((soaking(&cluster), cluster.writes), (true, writes), "the new leader has seen it ok for 4 minutes");
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
}

/// A check that has been ok for hours proves nothing about nodes that have run the change for four minutes. Nor does an
/// answer to an earlier query.
#[test]
fn only_answers_about_the_nodes_of_a_wave_let_it_pass() {
    let mut cluster = cluster(&CHECKED.replace("soak: 10m", "soak: 0m"));
    answer(&mut cluster, CheckState::Ok);
    cluster.soaked = Some(jiff::SignedDuration::from_mins(4));
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    cluster.run(100);
    assert!(soaking(&cluster));
    cluster.soaked = Some(jiff::SignedDuration::from_mins(5));
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    let seconds = Duration::from_secs;
    let check = CheckResult {
        name: "errors".to_owned(),
        state: CheckState::Ok,
        message: None,
        is_known: true,
        lasted: seconds(3600),
        age: seconds(25),
        needed: Duration::ZERO,
    };
    let passes = [Some(20), Some(25), None].map(|soaked| check.lets_pass(soaked.map(seconds)));
    assert_eq!(passes, [false, true, true], "the soak may have begun before this process");
}

/// A security fix goes out although Prometheus is down; a check that fails stops it.
#[test]
fn urgent_change_waits_for_no_answer_but_halts() {
    let urgent = |cluster: &SimulatedCluster| {
        let until = cluster.now + jiff::SignedDuration::from_hours(2);
        CHECKED.replacen('{', &format!("{{urgentUntil: '{until}', "), 1)
    };
    let mut fix = cluster(CHECKED);
    fix.policy = Some(urgent(&fix));
    fix.image = "ami-2".into();
    fix.run(20);
    assert_eq!((fix.images(), fix.phase("r2")), (vec!["ami-2".to_owned(); 2], RolloutPhase::Rolling));
    answer(&mut fix, CheckState::Failing);
    fix.run(30);
    assert_eq!(fix.phase("r2"), RolloutPhase::Halted);
    let mut skipped = cluster(CHECKED);
    skipped.image = "ami-2".into();
    skipped.run(10);
    skipped.revision("r2").spec.orders.skipped = vec!["*".to_owned()];
    skipped.run_until_stable();
    assert_eq!(skipped.phase("r2"), RolloutPhase::Complete, "a person ordered not to wait");
}

#[test]
fn way_back_waits_for_no_check() {
    let mut cluster = cluster(CHECKED);
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until(soaking);
    answer(&mut cluster, CheckState::Failing);
    cluster.image = "ami-1".into();
    cluster.run_until_stable();
    assert_eq!((cluster.images(), cluster.phase("r3")), (vec!["ami-1".to_owned(); 2], RolloutPhase::Complete));
}

/// A check without a value for one of its variables is never sent, and never ok.
#[test]
fn check_without_a_value_is_unknown() {
    let mut cluster = cluster(&CHECKED.replace("release: '2026-08-20', ", "").replace("r=\"$RELEASE\",", ""));
    answer(&mut cluster, CheckState::Ok);
    cluster.image = "ami-2".into();
    cluster.run_until_stable();
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    let view = cluster.view().expect("a rollout");
    let (policy, query) = (view.policy.clone(), crate::rollout::query(&view, &view.policy.checks[0], None));
    assert!(query.is_err_and(|why| why.contains("--cluster-name")), "{policy:?}");
}

/// How long each check of the property test must last, in seconds.
const NEEDED: [(&str, u64); 2] = [("errors", 180), ("slow", 0)];

/// Whether the latest answers to a check, over at least so many seconds, were all the same.
fn lasts(cluster: &SimulatedCluster, name: &str, state: CheckState, seconds: u64) -> bool {
    let answers = cluster.answered.iter().rev().filter(|(_, known, _)| known == name);
    let same = answers.take_while(|(_, _, known)| *known == state).map(|(at, ..)| *at).collect::<Vec<_>>();
    let latest = same.first().filter(|at| cluster.monotonic.duration_since(**at).as_secs() <= 30);
    latest.zip(same.last()).is_some_and(|(latest, first)| latest.duration_since(*first).as_secs() >= seconds)
}

fn some_state() -> impl Strategy<Value = CheckState> {
    prop_oneof![4 => Just(CheckState::Ok), 2 => Just(CheckState::Unknown), 1 => Just(CheckState::Failing)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever Prometheus answers and whenever, no wave opens or passes while the latest answer to a check is unknown
    /// or fails, or while it has been ok for less than its time; and the rollout halts only after it failed for that time.
    #[test]
    fn unknown_answer_never_opens_passes_or_halts_a_wave(
        answers in prop::collection::vec((some_state(), some_state(), 1..60usize, 0..8usize), 1..14),
        soak in 0..10usize,
    ) {
        let policy = format!(
            "{{waves: [{{name: canary, namespaces: 'rollout/wave = canary', soak: {soak}m}}, {{name: w1, percent: 50}}, {{name: rest}}], checks: [{{name: errors, query: 'x > 1', for: 3m}}, {{name: slow, query: 'y > 1'}}]}}"
        );
        let mut cluster = SimulatedCluster::new(&policy, vec![canary("c"), group("a"), group("b")]);
        cluster.image = "ami-2".into();
        for (errors, slow, polls, restarts) in answers {
            cluster.answers = [("errors".to_owned(), errors), ("slow".to_owned(), slow)].into();
            if restarts == 0 {
                cluster.restart();
            }
            for _ in 0..polls {
                let before = (cluster.waves("r2"), cluster.phase_of("r2"));
                cluster.poll();
                let all = |state, for_time: bool| NEEDED.iter().all(|(name, needed)| lasts(&cluster, name, state, if for_time { *needed } else { 0 }));
                for (name, state) in cluster.waves("r2") {
                    let old = before.0.iter().find(|(known, _)| *known == name).map(|(_, state)| *state);
                    let old = old.unwrap_or_default();
                    if old == WaveState::Waiting && state != old {
                        prop_assert!(all(CheckState::Ok, false), "{name} opened after {:?}", cluster.answered);
                    }
                    if state == WaveState::Passed && state != old {
                        prop_assert!(all(CheckState::Ok, true), "{name} passed after {:?}", cluster.answered);
                    }
                }
                if cluster.phase("r2") == RolloutPhase::Halted && before.1 != Some(RolloutPhase::Halted) {
                    let fails = NEEDED.iter().any(|(name, needed)| lasts(&cluster, name, CheckState::Failing, *needed));
                    prop_assert!(fails, "halted after {:?}", cluster.answered);
                }
            }
        }
        // Once Prometheus answers again, and a user resumes, the rollout ends.
        cluster.answers = [("errors".to_owned(), CheckState::Ok), ("slow".to_owned(), CheckState::Ok)].into();
        cluster.run(4);
        cluster.revision("r2").spec.orders.retries = 9;
        cluster.run_until_stable();
        prop_assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
        prop_assert_eq!(cluster.images(), vec!["ami-2".to_owned(); 3]);
    }
}
