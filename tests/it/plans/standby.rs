//! The status records the instances that the controller puts into standby, because their Nodes may get lost.

use super::subnets::recorded;
use super::*;

/// Two outdated nodes, one of which may be in standby at a time.
fn surging() -> Scenario {
    converged()
        .with(second_version)
        .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
        .with_spec("{strategy: {rollingUpdate: {maxSurge: 50%}}, eks: {configuration: {image: ami-00000002}}}")
}

/// The instances that the status records once the plan is applied.
fn standby(scenario: Scenario) -> Vec<String> {
    recorded(scenario).status.managed.expect("a record").standby
}

#[test]
fn instance_is_recorded_before_it_enters_standby() {
    assert_eq!(step_names(&surging().plan()), ["UpdateStatus", "RecordSurge", "EnterStandby"]);
    assert_eq!(standby(surging()), ["i-1"]);
    let again = recorded(surging()).plan();
    assert_eq!(step_names(&again), ["RecordSurge", "EnterStandby"], "a call that does not take repeats no other write");
}

/// A kubelet may remove the surge record from its Node, or a user the Node, before AWS shows the standby. Without any record,
/// the instance would count as one that a person put into standby, and stay there forever.
#[test]
fn instance_that_enters_standby_stays_recorded_without_its_node() {
    let reverted = || recorded(surging()).with_spec("{}").with(|s| _ = s.state.nodes.remove("i-1"));
    assert_eq!(standby(reverted()), ["i-1"], "AWS may show the standby later");
    let shown = reverted().with_scaling_group(|g| g.instances[0].state = InstanceState::Standby);
    assert_eq!(standby(shown), ["i-1"]);
    let long_ago = |s: &mut Scenario| {
        s.status.managed.as_mut().expect("a record").standby_at = Some(LONG_AGO.into());
    };
    assert_eq!(standby(reverted().with(long_ago)), [""; 0], "if it enters standby now, a person put it there");
}
