use serde_json::json;

use super::*;
use crate::k8s::{DrainBlocker, DrainBlockerKind};

fn now() -> Timestamp {
    "2026-01-02T12:00:00Z".parse().expect("a time")
}

fn rotating_group() -> InstanceGroup {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-02T11:58:00Z" });
    serde_json::from_value(json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1",
        "kind": "InstanceGroup",
        "metadata": { "namespace": "team-a", "name": "web", "generation": 8, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {},
        "status": {
            "currentState": "InitUpgrade",
            "observedGeneration": 7,
            "provisioner": "eks",
            "activeScalingGroupName": "demo-team-a-web",
            "currentMin": 1,
            "currentMax": 3,
            "nodes": { "desired": 3, "ready": 2, "updated": 1, "outdated": 2, "draining": 1, "outdatedInstances": ["i-0a", "i-0c"] },
            "joining": { "i-0a": "2026-01-02T11:59:00Z", "i-0b": "2026-01-02T11:58:00Z" },
            "effective": {
                "image": "ami-2", "instanceTypes": ["m5.large", "m5a.large"], "zones": ["us-west-2a"],
                "versions": { "4": 2, "5": 1 }, "instanceVersions": { "i-0a": "4", "i-0b": "5", "i-0c": "4" },
            },
            "conditions": [
                condition("Ready", "False", "Rotating", "rotating: 1 of 3 done"),
                condition("DrainBlocked", "True", "EvictionBlocked", "eviction of pod team-a/db-0 is blocked"),
                condition("RotationHalted", "False", "NotHalted", "not shown"),
            ],
        },
    }))
    .expect("an InstanceGroup")
}

fn draining_node() -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": "ip-10-0-0-1", "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": { annotation::DISRUPTION: "{\"since\":\"2026-01-02T11:55:00Z\"}" },
            "labels": { label::IMAGE: "ami-1" },
        },
        "spec": { "providerID": "aws:///us-west-2a/i-0a", "unschedulable": true },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T11:59:20Z" }] },
    }))
    .expect("a Node")
}

fn details() -> GroupDetails {
    let obstacle = DrainBlocker {
        node: "ip-10-0-0-1".into(),
        pod: "team-a/db-0".into(),
        owner: None,
        kind: DrainBlockerKind::Now,
        budget: "db".into(),
        limit: "minAvailable 2 of 3 pods".into(),
        remedy: "make its pods healthy, or relax it".into(),
    };
    let pod = |name: &str, obstacle| DrainedPod {
        node: "ip-10-0-0-1".into(),
        pod: format!("team-a/{name}"),
        terminating: None,
        obstacle,
    };
    let stuck = DrainedPod {
        terminating: Some(("2026-01-02T11:50:00Z".parse().expect("a time"), vec!["example.com/hold".into()])),
        ..pod("job-7", Ok(None))
    };
    GroupDetails {
        group: rotating_group(),
        nodes: Ok(vec![draining_node()]),
        pods_to_evict: Ok(vec![pod("db-0", Ok(Some(obstacle))), pod("web-1", Ok(None)), stuck]),
        events: Ok(Vec::new()),
    }
}

/// The operator on call sees what the rotation waits for without another command.
#[test]
fn rotating_group_shows_its_versions_its_draining_node_and_the_budget_that_blocks() {
    let text = group(&details(), now());
    for expected in [
        "team-a/web: InitUpgrade",
        "generation 7 of the spec; generation 8 waits",
        "2 of 3 nodes are ready (updated: 1, outdated: 2, draining: 1)",
        "DrainBlocked True (EvictionBlocked, for 2m)",
        "4: 2, 5: 1",
        "m5.large, m5a.large",
        "team-a/db-0 on ip-10-0-0-1: PodDisruptionBudget db, minAvailable 2 of 3 pods, allows no eviction now, because too few of its pods are healthy; make its pods healthy, or relax it",
        "team-a/web-1 on ip-10-0-0-1: may be evicted",
        "team-a/job-7 on ip-10-0-0-1: terminating; its grace period ended 10m ago, and its finalizers are example.com/hold",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in:\n{text}");
    }
    let node = text.lines().find(|line| line.contains("i-0a")).expect("a line of the node");
    assert!(node.contains("Unknown for 40s") && node.contains("outdated, draining for 5m"), "{node}");
    assert!(node.contains(" 4 ") && node.contains("ami-1"), "version and image of the node: {node}");
    let starting = text.lines().find(|line| line.contains("i-0b")).expect("a line of the instance without a Node");
    assert!(starting.contains("(no Node)") && starting.contains("without a Node for 2m"), "{starting}");
    assert!(starting.contains(" 5 "), "the version of an instance without a Node: {starting}");
    assert_eq!(text.matches("i-0a").count(), 1, "{text}");
    assert!(!text.contains("not shown"), "conditions without a problem are left out:\n{text}");
}

#[test]
fn sizes_of_a_weighted_group_are_units_of_capacity() {
    let mut details = details();
    assert!(group(&details, now()).contains("1 to 3 nodes"));
    details.group.status.as_mut().and_then(|status| status.nodes.as_mut()).expect("counts").weighted = true;
    let text = group(&details, now());
    assert!(text.contains("1 to 3 units of capacity"), "{text}");
}

/// A tenant may read groups, but not nodes and pods.
#[test]
fn output_names_what_the_caller_may_not_read() {
    let denied = || Err("cannot list nodes: forbidden".to_owned());
    let text = group(&GroupDetails { nodes: denied(), pods_to_evict: Ok(vec![]), ..details() }, now());
    assert!(text.contains("Nodes\n  not shown: cannot list nodes: forbidden"), "{text}");
    assert!(text.contains("demo-team-a-web"), "the rest is shown:\n{text}");
}

#[test]
fn list_begins_with_the_groups_that_have_a_problem() {
    let healthy = |name: &str| {
        let mut group = rotating_group();
        group.metadata.name = Some(name.to_owned());
        let status = group.status.as_mut().expect("a status");
        status.conditions = vec![Condition::new(condition::READY, true, "Ready", "3 of 3 nodes are ready")];
        group
    };
    let text = list(&[healthy("a"), rotating_group(), healthy("b")], None, now());
    let groups: Vec<_> = text.lines().skip(1).take(3).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(groups, ["team-a/web", "team-a/a", "team-a/b"], "{text}");
    assert!(text.ends_with("\nteam-a/web: rotating: 1 of 3 done\n"), "{text}");
}

#[test]
fn empty_list_names_the_other_scopes() {
    let text = list(&[], Some("team-a"), now());
    assert!(text.contains("no InstanceGroups in the namespace team-a") && text.contains("-A"), "{text}");
}

/// Status and event texts may quote what a tenant wrote; a line break must not forge a line of the output.
#[test]
fn control_characters_of_messages_are_escaped() {
    let mut hostile = details();
    let status = hostile.group.status.as_mut().expect("a status");
    status.conditions = vec![Condition::new(condition::READY, false, "InvalidSpec", "bad\n  Ready True\u{1b}[2J")];
    let text = group(&hostile, now());
    assert!(!text.contains("\n  Ready True") && !text.contains('\u{1b}'), "{text}");
}

/// A tenant who reads of a scaling group and of missing nodes would assume that the group is broken.
#[test]
fn fargate_group_speaks_of_profile_role_and_pods() {
    let mut details = details();
    details.nodes = Ok(Vec::new());
    let status = details.group.status.as_mut().expect("a status");
    *status = serde_json::from_value(json!({
        "currentState": "Ready", "provisioner": "eks-fargate", "activeScalingGroupName": "fargate-demo-1",
        "nodesInstanceRoleArn": "arn:aws:iam::1:role/fargate", "effective": { "subnets": ["subnet-1"] },
    }))
    .expect("a status");
    let text = group(&details, now());
    for part in ["Fargate profile     fargate-demo-1", "pod execution role", "fargate-profile=fargate-demo-1"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    for part in ["scaling group", "node role", "none with the labels"] {
        assert!(!text.contains(part), "{part} is wrong in {text}");
    }
    let listed = list(&[details.group], None, now());
    assert!(listed.contains("Ready  -      -"), "there is nothing to count: {listed}");
}
