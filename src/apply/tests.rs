use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::api::names::annotation;
use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::AwsError;
use crate::aws::ScalingGroupChange;
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::inventory::{CacheConfig, Inventory};
use crate::aws::nodegroup::NodegroupName;
use crate::k8s::{KubeClient, fake};
use crate::plan::{
    EksStep, InPlaceChange, InPlaceRecord, JoinStep, NodeStep, NodegroupStep, ObjectStep, Pin, PodRef, StalledReason,
    StrategyStep, UncordonReason, blocked_plan,
};
use crate::rotation::crd::ResourceKind;
use crate::util::redact::Redacted;

/// Applies steps while the rollout blocks the group for this reason. Returns the error and the writes.
async fn apply_blocked(steps: Vec<NodeStep>, rollout_block: Option<&str>) -> (Option<String>, Vec<String>) {
    let (applied, writes) = apply_steps(steps, rollout_block, |call| {
        let (kind, spec) = match call.path.contains("/pods/") {
            true => ("Pod", json!({"containers": []})),
            false => ("Node", json!({"unschedulable": true})),
        };
        (200, json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "any"}, "spec": spec}))
    })
    .await;
    (applied.error.map(|error| error.to_string()), writes)
}

/// Applies steps to an API server that answers like this. Returns the writes that it got.
async fn apply_steps(
    steps: Vec<impl Into<Step>>,
    rollout_block: Option<&str>,
    answer: impl Fn(&fake::Call) -> (u16, serde_json::Value) + Clone + Send + Sync + 'static,
) -> (Applied, Vec<String>) {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    apply_steps_to(&group, steps, rollout_block, answer).await
}

/// Applies steps to this group, as [`apply_steps`] does.
async fn apply_steps_to(
    group: &InstanceGroup,
    steps: Vec<impl Into<Step>>,
    rollout_block: Option<&str>,
    answer: impl Fn(&fake::Call) -> (u16, serde_json::Value) + Clone + Send + Sync + 'static,
) -> (Applied, Vec<String>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let seen = writes.clone();
    let client = fake::client(move |call| {
        if call.method != "GET" {
            seen.lock().expect("lock is not poisoned").push(format!("{} {}", call.method, call.path));
        }
        answer(&call)
    });
    let id = group_id(group);
    let steps = steps.into_iter().map(|step| PlannedStep::new(step, Vec::new())).collect();
    let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
    let inventory = Inventory::with_config(Arc::new(FakeAws::default()).aws(), CacheConfig::default());
    let (kube, process_state) = (KubeClient::new(client, "test"), ProcessState::default());
    let aws_auth = AwsAuthWriter::default();
    let applier = Applier {
        rollout_block: &|_| rollout_block.map(str::to_owned),
        ..Applier::for_tests(&inventory, &kube, &process_state, &aws_auth)
    };
    let applied = apply(&applier, &id, "1", &[], plan).await;
    let writes = writes.lock().expect("lock is not poisoned").clone();
    (applied, writes)
}

/// The plan read the Node from a cache. Another instance may have its name now, and another client may write to it
/// between the read and the patch.
#[tokio::test]
async fn only_the_node_of_the_instance_changes_in_place_and_only_as_it_was_read() {
    let change = InPlaceChange {
        set_labels: [("team".to_owned(), "b".to_owned())].into(),
        record: InPlaceRecord { instance: "i-1".into(), ..InPlaceRecord::default() },
        ..InPlaceChange::default()
    };
    let step = || NodeStep::ChangeNodeInPlace { node: "n".into(), instance: "i-1".into(), change: change.clone() };
    let node = |instance: &str| {
        let spec = json!({"providerID": format!("aws:///us-west-2a/{instance}")});
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "7"}, "spec": spec})
    };
    let (own, other) = (node("i-1"), node("i-2"));
    let (applied, writes) = apply_steps(vec![step()], None, move |_| (200, other.clone())).await;
    assert_eq!((applied.unchanged_steps, writes), (vec![0], vec![]), "the Node of another instance");
    let gone = |_: &fake::Call| fake::failure(404, "NotFound", "gone");
    let (applied, writes) = apply_steps(vec![step()], None, gone).await;
    assert_eq!((applied.error.is_none(), applied.unchanged_steps, writes), (true, vec![0], vec![]));
    let (node, patch) = (own.clone(), "PATCH /api/v1/nodes/n");
    let (applied, writes) = apply_steps(vec![step()], None, move |_| (200, node.clone())).await;
    assert_eq!((applied.error.is_none(), applied.unchanged_steps.len(), writes), (true, 0, vec![patch.to_owned()]));
    let conflict = move |call: &fake::Call| match call.method.as_str() {
        "GET" => (200, own.clone()),
        _ => fake::failure(409, "Conflict", "changed"),
    };
    let (applied, writes) = apply_steps(vec![step()], None, conflict).await;
    assert!(matches!(&applied.error, Some(StepError::Kube(error)) if error.is_conflict()), "{applied:?}");
    assert_eq!(writes.len(), 1, "the next pass reads it again");
}

/// One missing permission would keep the group from everything: a change of its sizes, a rotation, a repair.
#[tokio::test]
async fn refused_step_blocks_only_steps_that_depend_on_it() {
    let entry = AuthEntry::for_nodes("arn:aws:iam::1:role/nodes", false);
    let pin = Some(Pin::Version { template: "lt-1".into(), number: 2 });
    let steps = || -> Vec<Step> {
        vec![
            JoinStep::PutAwsAuthEntry(entry.clone()).into(),
            EksStep::UpdateGroup { group: "g".into(), change: ScalingGroupChange::default(), pin: pin.clone() }.into(),
            NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked }.into(),
            NodeStep::Terminate {
                scaling_group: "g".into(),
                instance: "i-1".into(),
                node: None,
                decrement_desired: false,
            }
            .into(),
        ]
    };
    let record = json!({annotation::DISRUPTION: "{}"});
    let answer = move |call: &fake::Call| match call.path.contains("configmaps") {
        true => fake::failure(403, "Forbidden", "configmaps is forbidden"),
        false => (
            200,
            json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "7", "annotations": record}}),
        ),
    };
    let (applied, writes) = apply_steps(steps(), None, answer).await;
    assert_eq!(writes.last().map(String::as_str), Some("PATCH /api/v1/nodes/n"), "{writes:?}");
    assert!(applied.is_complete() && applied.steps_done == 1, "{applied:?}");
    let names: Vec<_> = applied.plan.steps.iter().map(|planned| planned.step.name()).collect();
    assert_eq!(names, ["UncordonNode", "PutAwsAuthEntry", "UpdateGroup", "Terminate"], "new nodes could not join");
    assert_eq!(applied.waiting_steps, ["UpdateGroup", "Terminate"]);
    assert!(applied.error.is_some_and(|error| error.stalled_reason() == Some(StalledReason::MissingPermission)));
    let lost = |call: &fake::Call| match call.path.contains("configmaps") {
        true => fake::failure(503, "ServiceUnavailable", "away"),
        false => panic!("{call:?}"),
    };
    let (applied, _) = apply_steps(steps(), None, lost).await;
    assert!(!applied.is_complete() && applied.steps_done == 0, "it is unknown whether it was done: {applied:?}");
}

/// Two groups submit a resource of one name at the same moment. An event of the second would name the other's resource.
#[tokio::test]
async fn resource_that_another_group_has_created_is_not_reported_as_submitted() {
    let object = json!({"kind": "Workflow", "apiVersion": "argoproj.io/v1", "metadata": {"name": "a-3", "uid": "u-1"}});
    let metadata = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}});
    let text = |text: &str| text.to_owned();
    let kind = || ResourceKind {
        group: text("argoproj.io"),
        version: text("v1"),
        kind: text("Workflow"),
        plural: text("workflows"),
    };
    let step = || StrategyStep::CreateStrategyResource {
        kind: kind(),
        namespace: text("team"),
        name: text("a-3"),
        object: Redacted::new(object.clone()),
    };
    let answer = |code: u16| {
        let (created, read) = (object.clone(), metadata.clone());
        move |call: &fake::Call| match call.method.as_str() {
            "POST" if code == 201 => (201, created.clone()),
            "POST" => fake::failure(code, "AlreadyExists", "it exists"),
            _ => (200, read.clone()),
        }
    };
    let (applied, writes) = apply_steps(vec![step()], None, answer(201)).await;
    assert_eq!((applied.created_strategy_uid.as_deref(), applied.unchanged_steps), (Some("u-1"), vec![]), "{writes:?}");
    let (applied, writes) = apply_steps(vec![step()], None, answer(409)).await;
    assert_eq!((applied.error.is_none(), applied.steps_done, writes.len()), (true, 1, 1), "{:?}", applied.error);
    assert_eq!((applied.created_strategy_uid, applied.unchanged_steps), (None, vec![0]));
}

fn team_change(instance: &str, team: &str) -> InPlaceChange {
    InPlaceChange {
        set_labels: [("team".to_owned(), team.to_owned())].into(),
        record: InPlaceRecord { instance: instance.into(), ..InPlaceRecord::default() },
        ..InPlaceChange::default()
    }
}

/// An admission policy on Nodes says nothing about the rotation, nor about other nodes.
#[tokio::test]
async fn refused_change_in_place_stops_neither_other_nodes_nor_the_rotation() {
    let steps = || -> Vec<Step> {
        let change = |node: &str, instance: &str| NodeStep::ChangeNodeInPlace {
            node: node.into(),
            instance: instance.into(),
            change: team_change(instance, "b"),
        };
        let uncordon = NodeStep::UncordonNode { node: "n-2".into(), reason: UncordonReason::RotationBlocked };
        vec![change("n-1", "i-1").into(), change("n-2", "i-2").into(), uncordon.into()]
    };
    for (code, reason, stalled) in
        [(403, "Forbidden", Some(StalledReason::MissingPermission)), (422, "Invalid", None), (400, "BadRequest", None)]
    {
        let answer = move |call: &fake::Call| {
            let name = call.path.rsplit('/').next().unwrap_or_default().to_owned();
            let metadata = json!({"name": name, "resourceVersion": "7", "annotations": {annotation::DISRUPTION: "{}"}});
            let spec = json!({"providerID": format!("aws:///us-west-2a/{}", name.replace("n-", "i-"))});
            match call.method == "PATCH" && name == "n-1" {
                true => fake::failure(code, reason, "denied by the policy labels"),
                false => (200, json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec})),
            }
        };
        let (applied, writes) = apply_steps(steps(), None, answer).await;
        let patched: Vec<_> = writes.iter().map(String::as_str).collect();
        let (first, second) = ("PATCH /api/v1/nodes/n-1", "PATCH /api/v1/nodes/n-2");
        assert_eq!(patched, [first, second, second], "{code}");
        assert!(applied.is_complete() && applied.steps_done == 2, "{code}: {applied:?}");
        let error = applied.error.as_ref().expect("it is reported");
        assert!(error.to_string().contains("denied by the policy labels"), "{error}");
        assert_eq!(error.stalled_reason(), stalled, "{code}");
    }
}

/// A tag that EKS does not take would keep sizes, versions and drains from the group forever.
#[tokio::test]
async fn refused_tags_stop_nothing_else_and_are_not_sent_in_each_pass() {
    let aws = Arc::new(FakeAws::default());
    let refusal = AwsError::from_response("EKS", "TagResource", "BadRequestException", "invalid character", 400);
    aws.update(|data| data.failure = Some(refusal));
    let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
    let client = fake::client(|_| (200, json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}})));
    let (process_state, kube, aws_auth) =
        (ProcessState::default(), KubeClient::new(client, "test"), AwsAuthWriter::default());
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let mut calls = Vec::new();
    for (second, value) in [(0, "a;b"), (5, "a;b"), (299, "a;b"), (300, "a;b"), (301, "c;d"), (302, "a;b")] {
        let tag = NodegroupStep::TagNodegroup {
            nodegroup: NodegroupName::new("demo", "web"),
            arn: "arn".into(),
            tags: [("team".to_owned(), value.to_owned())].into(),
        };
        let uncordon = NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked };
        let steps = vec![PlannedStep::new(tag, Vec::new()), PlannedStep::new(uncordon, Vec::new())];
        let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
        let now = Timestamp::from_second(second).expect("a time");
        let applier = Applier { now, ..Applier::for_tests(&inventory, &kube, &process_state, &aws_auth) };
        let applied = apply(&applier, &id, "1", &[], plan).await;
        assert!(applied.is_complete() && applied.steps_done == 1, "{second}: {applied:?}");
        let error = applied.error.as_ref().expect("it is reported");
        assert_eq!(error.stalled_reason(), Some(StalledReason::RefusedByAws), "{second}");
        assert!(error.to_string().contains("invalid character"), "{error}");
        calls.push(aws.calls("tags of a node group"));
    }
    assert_eq!(calls, [1, 1, 1, 2, 3, 3], "after five minutes, and at once when the spec has another value");
}

#[tokio::test]
async fn rejected_change_in_place_is_not_repeated_in_each_pass() {
    let writes = Arc::new(Mutex::new(0));
    let counted = writes.clone();
    let client = fake::client(move |call| match call.method.as_str() {
        "PATCH" => {
            *counted.lock().expect("lock is not poisoned") += 1;
            fake::failure(422, "Invalid", "denied by the policy labels")
        }
        _ => {
            let (metadata, spec) =
                (json!({"name": "n", "resourceVersion": "7"}), json!({"providerID": "aws:///us-west-2a/i-1"}));
            (200, json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec}))
        }
    });
    let inventory = Inventory::with_config(Arc::new(FakeAws::default()).aws(), CacheConfig::default());
    let (process_state, kube, aws_auth) =
        (ProcessState::default(), KubeClient::new(client, "test"), AwsAuthWriter::default());
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let mut tried = Vec::new();
    for (second, team) in [(0, "b"), (5, "b"), (29, "b"), (30, "b"), (40, "b"), (40, "c")] {
        let step =
            NodeStep::ChangeNodeInPlace { node: "n".into(), instance: "i-1".into(), change: team_change("i-1", team) };
        let steps = vec![PlannedStep::new(step, Vec::new())];
        let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
        let now = Timestamp::from_second(second).expect("a time");
        let applier = Applier { now, ..Applier::for_tests(&inventory, &kube, &process_state, &aws_auth) };
        let applied = apply(&applier, &id, "1", &[], plan).await;
        assert!(applied.error.is_some_and(|error| error.to_string().contains("denied by the policy")), "{second}");
        tried.push(*writes.lock().expect("lock is not poisoned"));
    }
    assert_eq!(tried, [1, 1, 1, 2, 2, 3], "after half a minute, and at once when the spec has another value");
}

/// What the record says would not be so, and nothing would set the tags any more.
#[tokio::test]
async fn record_of_a_refused_step_is_not_written() {
    let steps = |first: Step| vec![first, ObjectStep::UpdateStatus { status: json!({}) }.into()];
    let denied = |_: &fake::Call| fake::failure(403, "Forbidden", "no");
    let first = NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked };
    let (applied, writes) = apply_steps(steps(first.into()), None, denied).await;
    assert!(applied.steps_done == 0 && writes.is_empty() && !applied.is_complete(), "{applied:?}");
}

/// The reported next step must be the one that ended the pass, so that the user sees what the group waits for.
#[tokio::test]
async fn step_that_ends_the_pass_stays_the_next_one() {
    let entry = AuthEntry::for_nodes("arn:aws:iam::1:role/nodes", false);
    let steps: Vec<Step> = vec![
        JoinStep::PutAwsAuthEntry(entry).into(),
        NodeStep::UncordonNode { node: "n".into(), reason: UncordonReason::RotationBlocked }.into(),
    ];
    let answer = |call: &fake::Call| match call.path.contains("configmaps") {
        true => fake::failure(403, "Forbidden", "configmaps is forbidden"),
        false => fake::failure(503, "ServiceUnavailable", "away"),
    };
    let (applied, _) = apply_steps(steps, None, answer).await;
    let names: Vec<_> = applied.plan.steps.iter().map(|planned| planned.step.name()).collect();
    assert_eq!((names, applied.steps_done), (vec!["UncordonNode", "PutAwsAuthEntry"], 0));
    assert!(!applied.is_complete() && applied.error.is_some_and(|error| error.stalled_reason().is_none()));
}

/// A user removes the finalizer, and Argo CD creates the group again: the nodes belong to the new group.
#[tokio::test]
async fn deletion_does_not_terminate_nodes_of_a_recreated_group() {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    group.metadata.uid = Some("uid-1".into());
    group.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    let pod = PodRef { namespace: "apps".into(), name: "p".into(), uid: "uid-p".into() };
    let steps = || vec![NodeStep::ForceDelete { node: "n".into(), pod: pod.clone() }];
    let answer = |uid: &'static str, deleted: Option<&'static str>| {
        move |call: &fake::Call| match call.path.contains("instancegroups") {
            true => (
                200,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web", "uid": uid, "deletionTimestamp": deleted}}),
            ),
            false if call.path.contains("/nodes/") => cordoned_node(true),
            false => (200, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}})),
        }
    };
    let at = Some("1970-01-01T00:00:00Z");
    let (applied, writes) = apply_steps_to(&group, steps(), None, answer("uid-1", at)).await;
    assert_eq!((applied.error.is_none(), writes.len()), (true, 1), "{:?}", applied.error);
    for other in [answer("uid-2", None), answer("uid-2", at)] {
        let (applied, writes) = apply_steps_to(&group, steps(), None, other).await;
        assert!(matches!(applied.error, Some(StepError::GroupGone)), "{:?}", applied.error);
        assert_eq!(writes, Vec::<String>::new());
    }
    let gone = |_: &fake::Call| fake::failure(404, "NotFound", "gone");
    let (applied, writes) = apply_steps_to(&group, steps(), None, gone).await;
    assert!(matches!(applied.error, Some(StepError::GroupGone)) && writes.is_empty(), "{applied:?}");
}

fn cordoned_node(unschedulable: bool) -> (u16, serde_json::Value) {
    let spec = json!({"unschedulable": unschedulable});
    (200, json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, "spec": spec}))
}

/// A pass evicts many pods, one after the other. A user who uncordons the node meanwhile wants the rest to stay.
#[tokio::test]
async fn pods_stay_on_a_node_that_was_uncordoned_after_the_plan_was_made() {
    let pod = PodRef { namespace: "apps".into(), name: "p".into(), uid: "uid-p".into() };
    for step in [
        NodeStep::Evict { node: "n".into(), pod: pod.clone(), is_unmanaged: false },
        NodeStep::ForceDelete { node: "n".into(), pod },
    ] {
        let answer = |is_cordoned: bool| {
            move |call: &fake::Call| match call.path.contains("/nodes/") {
                true => cordoned_node(is_cordoned),
                false if call.method == "POST" => {
                    (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
                }
                false => (200, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "any"}})),
            }
        };
        let (applied, writes) = apply_steps(vec![step.clone()], None, answer(false)).await;
        assert!(matches!(&applied.error, Some(StepError::NodeUncordoned(node)) if node == "n"), "{applied:?}");
        assert_eq!(writes, Vec::<String>::new());
        let (applied, writes) = apply_steps(vec![step], None, answer(true)).await;
        assert_eq!((applied.error.is_none(), writes.len()), (true, 1), "{:?}", applied.error);
    }
}

/// A window may close while the plan is made; a drain that has begun goes to its end.
#[tokio::test]
async fn rollout_block_stops_new_replacements() {
    let text = |text: &str| text.to_owned();
    let cordon = NodeStep::CordonNode {
        node: text("n"),
        resource_version: text("1"),
        instance: text("i-1"),
        template_version: text("2"),
        was_cordoned: false,
    };
    let pod = PodRef { namespace: text("apps"), name: text("p"), uid: text("uid-p") };
    let drain = NodeStep::ForceDelete { node: text("n"), pod };
    let closed = Some("the window closed");
    assert_eq!(apply_blocked(vec![cordon.clone()], closed).await, (closed.map(text), vec![]));
    assert_eq!(apply_blocked(vec![drain], closed).await, (None, vec![text("DELETE /api/v1/namespaces/apps/pods/p")]));
    let (error, writes) = apply_blocked(vec![cordon], None).await;
    assert_eq!((error, writes.len()), (None, 1));
}

/// A warning at each creation would teach users to ignore warnings. Without any warning, a deleted profile would go
/// unnoticed.
#[test]
fn unknown_profile_is_expected_for_half_a_minute() {
    let state = ProcessState::default();
    let at = |second| Timestamp::from_second(second).expect("a time");
    let unknown = "Invalid IAM Instance Profile name";
    let expected = |message: &str, second| {
        let error = AwsError::from_response("AutoScaling", "CreateAutoScalingGroup", "ValidationError", message, 400);
        is_propagating(&state, "team/web", &StepError::Aws(error), at(second))
    };
    assert_eq!([0, 8, 24, 56].map(|second| expected(unknown, second)), [true, true, true, false]);
    assert!(!expected("the subnet does not exist", 1), "another error is none that passes by itself");
    state.track_unknown_profile("team/web", false, at(60));
    assert!(expected(unknown, 4000), "another profile, hours later");
}
