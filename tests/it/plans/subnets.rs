//! Subnets that are added to the spec and removed from it.

use instance_manager::plan::EksStep;
use instance_manager::plan::{NodeStep, ObjectStep, Step};

use super::*;

/// A group with these subnets. The spec lists only `subnet-1`, and the instance i-2 is in `subnet-9`.
pub(super) fn with_subnets(subnets: &[&str]) -> Scenario {
    converged().with(|s| {
        s.state.scaling_group.as_mut().expect("a group").subnets = subnets.iter().map(|s| (*s).to_owned()).collect();
        s.state.instance_subnets =
            [("i-1", "subnet-1"), ("i-2", "subnet-9")].map(|(id, subnet)| (id.to_owned(), subnet.to_owned())).into();
    })
}

/// The controller has suspended AZRebalance because `subnet-9` leaves.
pub(super) fn suspend(s: &mut Scenario) {
    let group = s.state.scaling_group.as_mut().expect("a group");
    group.suspended_processes = vec!["AZRebalance".into()];
    group.tags.push(marker());
    let managed = s.status.managed.as_mut().expect("a record");
    managed.processes = vec!["AZRebalance".into()];
    managed.leaving_subnets = vec!["subnet-9".into()];
}

/// The tag that says who suspended AZRebalance.
fn marker() -> Tag {
    Tag { key: "instancegroups.keikoproj.io/SuspendedForSubnets".into(), value: "AZRebalance".into() }
}

/// The removal of the subnets is over.
fn resumed(group: &mut ScalingGroup) {
    group.suspended_processes.clear();
    group.tags.retain(|tag| *tag != marker());
}

/// The status was lost after `suspend`, and the scaling group has the tag.
fn lose_status(s: &mut Scenario) {
    suspend(s);
    s.status.managed.clone_from(&converged().status.managed);
}

/// The steps as short texts.
fn steps(scenario: &Scenario) -> Vec<String> {
    let text = |step: &Step| match step {
        Step::Object(ObjectStep::UpdateStatus { .. }) => "record".into(),
        Step::Eks(EksStep::UpdateGroup { change, .. }) => {
            format!("set {}", change.subnets.clone().unwrap_or_default().join(" "))
        }
        Step::Eks(EksStep::SuspendProcesses { processes, .. }) => format!("suspend {}", processes.join(" ")),
        Step::Eks(EksStep::ResumeProcesses { processes, .. }) => format!("resume {}", processes.join(" ")),
        Step::Eks(EksStep::PutTags { tags, .. }) if tags[..] == [marker()] => "mark".into(),
        Step::Eks(EksStep::DeleteTags { keys, .. }) if keys[..] == [marker().key] => "unmark".into(),
        Step::Node(NodeStep::CordonNode { instance, .. }) => format!("cordon {instance}"),
        Step::Node(NodeStep::UncordonNode { node, .. }) => format!("uncordon {node}"),
        other => format!("{other:?}"),
    };
    scenario.plan().steps.iter().map(|planned| text(&planned.step)).collect()
}

/// Records that the plan's status writes would leave.
pub(super) fn recorded(mut scenario: Scenario) -> Scenario {
    for planned in scenario.plan().steps {
        if let Step::Object(ObjectStep::UpdateStatus { status }) = planned.step {
            let mut stored = json!(scenario.status);
            instance_manager::api::apply_merge_patch(&mut stored, &status);
            scenario.status = serde_json::from_value(stored).expect("a status");
        }
    }
    scenario
}

fn without_steps(scenario: &Scenario) -> bool {
    steps(scenario).iter().all(|step| step == "record")
}

#[test]
fn removed_subnet_is_emptied_before_rebalancing_resumes() {
    let all = ["subnet-1", "subnet-9"];
    assert_eq!(steps(&with_subnets(&all)), ["record", "mark", "suspend AZRebalance"]);
    assert_eq!(steps(&with_subnets(&all).with(suspend)), ["set subnet-1"]);
    // A restart of the controller finds the record.
    assert_eq!(steps(&with_subnets(&["subnet-1"]).with(suspend)), ["cordon i-2"]);
    let empty = |s: &mut Scenario| _ = s.state.instance_subnets.insert("i-2".into(), "subnet-1".into());
    let emptied = with_subnets(&["subnet-1"]).with(suspend).with(empty);
    assert_eq!(steps(&emptied), ["record", "resume AZRebalance", "unmark"]);
    let ended = recorded(emptied).with_scaling_group(resumed);
    assert_eq!(steps(&recorded(ended.clone())), Vec::<String>::new());
    assert_eq!(recorded(ended).status.managed, converged().status.managed);
}

#[test]
fn exchanged_subnets_are_set_only_after_suspension() {
    assert_eq!(steps(&with_subnets(&["subnet-9"])), ["record", "mark", "suspend AZRebalance"]);
    assert_eq!(steps(&with_subnets(&["subnet-9"]).with(suspend)), ["set subnet-1"]);
}

#[test]
fn added_subnet_is_set_at_once() {
    let mut scenario = converged().with(|s| s.lock = Some("a test"));
    scenario.resolved.subnets.push("subnet-2".into());
    assert_eq!(steps(&scenario), ["set subnet-1 subnet-2"]);
}

#[test]
fn lock_blocks_removal_and_replacement() {
    let locked = |s: &mut Scenario| s.lock = Some("a test");
    for subnets in [&["subnet-1", "subnet-9"] as &[_], &["subnet-9"]] {
        let plan = with_subnets(subnets).with(locked).plan();
        assert!(without_steps(&with_subnets(subnets).with(locked)), "{:?}", plan.steps);
    }
    let scenario = recorded(with_subnets(&["subnet-9"]).with(locked));
    let Outcome::Locked { message } = scenario.plan().outcome else { panic!("{:?}", scenario.plan().outcome) };
    assert!(message.starts_with("1 of 2 nodes are outdated (") && message.contains("subnet-1"), "{message}");
    assert!(message.ends_with("replacement is blocked by a test"), "{message}");
    // A lock in the middle keeps the nodes, and keeps AZRebalance suspended.
    let middle = with_subnets(&["subnet-1"]).with(suspend).with(locked);
    assert!(without_steps(&middle) && matches!(middle.plan().outcome, Outcome::Locked { .. }));
    // Without a node in the subnet, there is nothing to hold.
    let empty = |s: &mut Scenario| s.state.instance_subnets.values_mut().for_each(|subnet| *subnet = "subnet-1".into());
    let unused = with_subnets(&["subnet-1", "subnet-9"]).with(empty).with(locked);
    assert_eq!(steps(&unused), ["record", "mark", "suspend AZRebalance"]);
}

#[test]
fn restored_subnet_ends_the_removal() {
    let mut restored = with_subnets(&["subnet-1"]).with(suspend).with(|s| {
        s.state.nodes.get_mut("i-2").expect("a node").disruption = Some(disruption_record("1"));
    });
    restored.resolved.subnets.push("subnet-9".into());
    assert_eq!(steps(&restored), ["record", "set subnet-1 subnet-9", "resume AZRebalance", "unmark"]);
    let set = recorded(restored).with_scaling_group(|g| {
        g.subnets.push("subnet-9".into());
        resumed(g);
    });
    assert!(steps(&recorded(set)).contains(&"uncordon node-i-2".to_owned()));
}

#[test]
fn foreign_suspension_of_processes_stays() {
    let by_others = |g: &mut ScalingGroup| g.suspended_processes = vec!["AZRebalance".into()];
    let started = with_subnets(&["subnet-1", "subnet-9"]).with_scaling_group(by_others);
    assert_eq!(steps(&started), ["record", "set subnet-1"]);
    let managed = recorded(started).status.managed.expect("a record");
    assert_eq!((managed.processes, managed.leaving_subnets), (vec![], vec!["subnet-9".to_owned()]));
    // A tenant that takes AZRebalance from the spec meanwhile gets it back when the subnet is empty.
    let from_spec = with_subnets(&["subnet-1"]).with(suspend);
    assert_eq!(steps(&from_spec), ["cordon i-2"]);
    // The status may be lost after that, so that the tag says who suspended it.
    let unmarked = from_spec.with_scaling_group(|g| g.tags.retain(|tag| *tag != marker()));
    assert_eq!(steps(&unmarked), ["mark"]);
    let of_spec = with_subnets(&["subnet-1"]).with(suspend).with(|s| {
        s.resolved.desired.suspended_processes = ["AZRebalance".to_owned()].into();
        s.state.instance_subnets.insert("i-2".into(), "subnet-1".into());
    });
    assert_eq!(steps(&of_spec), ["record", "unmark"], "the spec's own suspension stays");
}

#[test]
fn unknown_subnet_of_an_instance_keeps_rebalancing_suspended() {
    let unknown = with_subnets(&["subnet-1"]).with(suspend).with(|s| _ = s.state.instance_subnets.remove("i-2"));
    assert_eq!(steps(&unknown), Vec::<String>::new());
}

#[test]
fn instances_in_other_subnets_are_not_outdated_without_a_record() {
    // A release of the controller replaces no node that an earlier change of the subnets left behind.
    assert_eq!(with_subnets(&["subnet-1"]).plan().steps, vec![]);
}

#[test]
fn empty_group_gets_its_subnets_at_once() {
    let empty = with_subnets(&["subnet-1", "subnet-9"]).with_spec("eks: {minSize: 0}").with_scaling_group(|g| {
        (g.min, g.desired) = (0, 0);
        g.instances.clear();
    });
    assert_eq!(steps(&empty), ["record", "set subnet-1"]);
}

#[test]
fn strategy_crd_gets_a_separate_resource_for_removed_subnets() {
    use instance_manager::provisioner::eks::rotation::crd_strategy::build_request;
    let name_of = |s: &Scenario| {
        let crd = s.resolved.desired.crd_strategy.as_ref().expect("the strategy crd");
        let group = s.state.scaling_group.as_ref().expect("a group");
        build_request(crd, &s.resolved, &s.state, &s.status, group).expect("a resource").name
    };
    let of_version = name_of(&converged().with_spec(crd_strategy::CRD));
    let removal = with_subnets(&["subnet-1"]).with(suspend).with_spec(crd_strategy::CRD);
    assert_eq!(name_of(&removal), format!("{of_version}-64870535"));
}

/// Without the tag, nothing would say that the controller suspended AZRebalance, and it would stay suspended.
#[test]
fn removal_continues_without_a_status() {
    let lost = with_subnets(&["subnet-1"]).with(lose_status);
    assert_eq!(steps(&lost), ["record", "cordon i-2"]);
    let lost = recorded(lost);
    assert_eq!(lost.status.managed.as_ref().expect("a record").leaving_subnets, ["subnet-9"]);
    assert_eq!(steps(&lost), ["cordon i-2"]);
    let empty = |s: &mut Scenario| _ = s.state.instance_subnets.insert("i-2".into(), "subnet-1".into());
    for emptied in [lost.with(empty), with_subnets(&["subnet-1"]).with(lose_status).with(empty)] {
        assert_eq!(steps(&emptied).last_chunk(), Some(&["resume AZRebalance".to_owned(), "unmark".to_owned()]));
    }
    let unknown = with_subnets(&["subnet-1"]).with(lose_status).with(|s| _ = s.state.instance_subnets.remove("i-2"));
    assert_eq!(steps(&unknown), Vec::<String>::new(), "its subnet is not known");
    // The spec suspends AZRebalance itself now.
    let of_spec = with_subnets(&["subnet-1"]).with(lose_status).with(empty).with(|s| {
        s.resolved.desired.suspended_processes = ["AZRebalance".to_owned()].into();
    });
    assert_eq!(steps(&of_spec).last().map(String::as_str), Some("unmark"));
    assert!(!steps(&of_spec).iter().any(|step| step.starts_with("resume")));
}
