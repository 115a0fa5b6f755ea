//! The policies of examples/rollouts, which users copy: each changes every group in the end, and none too early.

use std::collections::BTreeMap;

use super::simulated_cluster::{Group, SimulatedCluster, group};
use super::times::{at, tenant, until};
use crate::api::names::annotation;
use crate::api::{CheckState, RolloutPhase};
use crate::boundaries::{Boundaries, ROLLOUT_KEY};

const CANARY: &str = include_str!("../../../examples/rollouts/canary.yaml");
const PERCENTAGES: &str = include_str!("../../../examples/rollouts/percentages.yaml");
const WINDOWS: &str = include_str!("../../../examples/rollouts/windows.yaml");
const REGULATED: &str = include_str!("../../../examples/rollouts/regulated.yaml");
const EMERGENCY: &str = include_str!("../../../examples/rollouts/emergency.yaml");
const CHECKS: &str = include_str!("../../../examples/rollouts/checks.yaml");

const EXAMPLES: [(&str, &str); 6] = [
    ("canary", CANARY),
    ("percentages", PERCENTAGES),
    ("windows", WINDOWS),
    ("regulated", REGULATED),
    ("emergency", EMERGENCY),
    ("checks", CHECKS),
];

/// A group of a Namespace with this label.
fn labeled(name: &str, key: &str, value: &str) -> Group {
    Group { namespace: [(key.to_owned(), value.to_owned())].into(), ..group(name) }
}

fn canary_and_other() -> Vec<Group> {
    vec![labeled("a", "rollout/wave", "canary"), group("d")]
}

/// Groups with the policy of an example, whose image the admin changes on Monday, 2026-11-23, at noon.
fn change_by(example: &str, groups: Vec<Group>) -> SimulatedCluster {
    let map: serde_json::Value = serde_yaml::from_str(example).expect("YAML");
    let mut cluster = SimulatedCluster::new("onFailure: halt", groups);
    cluster.policy = Some(map["data"]["rollout"].as_str().expect("the key rollout").to_owned());
    let ok = |name: &str| (name.to_owned(), CheckState::Ok);
    cluster.answers = ["pods-pending", "critical-alerts"].map(ok).into();
    cluster.now = at("2026-11-23T12:00:00Z");
    cluster.image = "ami-2".into();
    cluster
}

/// Which groups run the second image alone at a time.
fn changed(cluster: &mut SimulatedCluster, time: &str) -> Vec<bool> {
    until(cluster, time);
    cluster.images().iter().map(|image| image == "ami-2").collect()
}

/// A policy that users copy has to work.
#[test]
fn each_example_reaches_every_group() {
    for (name, text) in EXAMPLES {
        let groups = vec![
            labeled("a", "rollout/wave", "canary"),
            labeled("b", "region", "eu"),
            labeled("c", "audience", "internal"),
            group("d"),
        ];
        let mut cluster = change_by(text, groups);
        cluster.run(4);
        let early = cluster.groups.iter().filter(|group| !group.wave_images().is_empty()).count();
        assert_eq!(early == 4, name == "emergency", "{name}: {early} groups took it at once");
        cluster.revision("r2").spec.orders.approved = vec!["*".into()];
        until(&mut cluster, "2026-12-07T12:00:00Z");
        assert_eq!(cluster.phase("r2"), RolloutPhase::Complete, "{name}: {:?}", cluster.waves("r2"));
        assert_eq!(cluster.images(), ["ami-2"; 4], "{name}");
    }
}

/// An admin who copies a policy and checks it with `lint` must not begin with warnings. The other keys of the ConfigMap are
/// the admin's own. The time is one at which the times of the examples lie ahead.
#[test]
fn examples_cause_no_warning_about_the_rollout() {
    for (name, text) in EXAMPLES {
        let map: serde_json::Value = serde_yaml::from_str(text).expect("YAML");
        let policy = map["data"][ROLLOUT_KEY].as_str().expect("the key rollout").to_owned();
        let data = BTreeMap::from([(ROLLOUT_KEY.to_owned(), policy)]);
        let (boundaries, mut warnings) = Boundaries::parse(&data).expect("a policy");
        warnings.extend(boundaries.time_warnings(&data, at("2026-11-25T12:00:00Z")));
        let found: Vec<_> = warnings.iter().filter(|warning| warning.key == ROLLOUT_KEY).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn canary_example_waits_for_two_hours_of_soak() {
    let mut cluster = change_by(CANARY, canary_and_other());
    assert_eq!(changed(&mut cluster, "2026-11-23T12:30:00Z"), [true, false]);
    assert_eq!(changed(&mut cluster, "2026-11-23T14:00:00Z"), [true, false]);
    assert_eq!(changed(&mut cluster, "2026-11-23T15:00:00Z"), [true, true]);
}

#[test]
fn checks_example_halts_while_pods_are_pending() {
    let mut cluster = change_by(CHECKS, canary_and_other());
    cluster.run(20);
    assert_eq!(cluster.images(), ["ami-2", "ami-1"]);
    cluster.answers.insert("pods-pending".to_owned(), CheckState::Failing);
    // Twenty minutes.
    cluster.run(80);
    assert_eq!((cluster.images(), cluster.phase("r2")), (vec!["ami-2".into(), "ami-1".into()], RolloutPhase::Halted));
    assert_eq!(changed(&mut cluster, "2026-11-24T12:00:00Z"), [true, false]);
}

#[test]
fn percentages_example_changes_few_groups_a_day() {
    let groups = (0..200).map(|number| group(&format!("g{number}"))).collect();
    let mut cluster = change_by(PERCENTAGES, groups);
    for (time, expected) in [
        ("2026-11-23T15:30:00Z", 2),
        ("2026-11-23T20:00:00Z", 2 + 20),
        ("2026-11-24T15:30:00Z", 2 + 20),
        ("2026-11-24T20:00:00Z", 2 + 20 + 89),
        ("2026-11-25T15:30:00Z", 2 + 20 + 89),
        ("2026-11-26T00:00:00Z", 200),
    ] {
        let found = changed(&mut cluster, time).into_iter().filter(|has_it| *has_it).count();
        assert_eq!(found, expected, "{time}");
    }
}

/// Europe's night, then America's, then a working day; and two days after the development clusters.
#[test]
fn windows_example_keeps_nights_order_and_freeze() {
    let groups = vec![labeled("b", "region", "eu"), labeled("u", "region", "us"), group("d")];
    let mut cluster = change_by(WINDOWS, groups);
    for (time, expected) in [
        ("2026-11-25T11:59:00Z", [false, false, false]),
        ("2026-11-25T20:59:00Z", [false, false, false]),
        ("2026-11-25T22:00:00Z", [true, false, false]),
        ("2026-11-27T02:59:00Z", [true, false, false]),
        ("2026-11-27T04:00:00Z", [true, true, false]),
        ("2026-12-01T08:59:00Z", [true, true, false]),
        ("2026-12-01T10:00:00Z", [true, true, true]),
    ] {
        assert_eq!(changed(&mut cluster, time), expected, "{time}");
    }
    until(&mut cluster, "2026-12-16T12:00:00Z");
    assert_eq!(cluster.phase("r2"), RolloutPhase::Complete);
    cluster.image = "ami-3".into();
    assert_eq!(changed(&mut cluster, "2027-01-04T22:30:00Z"), [true, true, true], "the end of the year");
}

/// The change board approves on a Sunday, after the window of that day.
#[test]
fn regulated_example_waits_for_weekends_the_board_and_tenants() {
    let groups = vec![labeled("c", "audience", "internal"), group("d"), group("e")];
    let mut cluster = change_by(REGULATED, groups);
    tenant(&mut cluster, "e", annotation::DEFER_UNTIL, "2099-01-01T00:00:00Z");
    assert_eq!(changed(&mut cluster, "2026-11-28T00:59:00Z"), [false, false, false]);
    assert_eq!(changed(&mut cluster, "2026-11-28T02:00:00Z"), [true, false, false]);
    assert_eq!(changed(&mut cluster, "2026-12-06T06:00:00Z"), [true, false, false], "no admin has approved it");
    cluster.revision("r2").spec.orders.approved = vec!["general".into()];
    assert_eq!(changed(&mut cluster, "2026-12-12T00:59:00Z"), [true, false, false]);
    assert_eq!(changed(&mut cluster, "2026-12-12T02:00:00Z"), [true, true, false]);
    assert_eq!(changed(&mut cluster, "2026-12-19T00:59:00Z"), [true, true, false]);
    assert_eq!(changed(&mut cluster, "2026-12-19T02:00:00Z"), [true, true, true], "the deferral is over");
}

#[test]
fn emergency_example_is_urgent_until_its_time_and_no_longer() {
    let mut cluster = change_by(EMERGENCY, canary_and_other());
    cluster.run(10);
    assert_eq!(cluster.images(), ["ami-2", "ami-2"]);
    until(&mut cluster, "2026-12-02T12:00:00Z");
    cluster.image = "ami-3".into();
    until(&mut cluster, "2026-12-02T21:59:00Z");
    assert_eq!(cluster.images(), ["ami-2", "ami-2"], "its window is closed");
    until(&mut cluster, "2026-12-03T03:00:00Z");
    assert_eq!(cluster.images(), ["ami-3", "ami-2"], "the canary soaks");
}
