//! Tests of observing a group.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::desired::DesiredSpec;
use super::issues::SCALING_GROUP_NOT_FOUND;
use super::observe::{observed_state, with_derived};
use super::observed::ObservedState;
use super::ownership::{Doubt, UnprovenNodegroup};
use super::{EksManaged, delete, desired, input, names, plan, resolve, unchanged_parts};
use crate::api::names::{FINALIZER, condition};
use crate::api::spec_error::SpecError;
use crate::api::{Condition, GroupObject, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, group_id};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::nodegroup::{MaxUnavailable, Nodegroup, NodegroupIssue, NodegroupName, NodegroupStatus};
use crate::aws::{ScalingGroup, samples};
use crate::boundaries::MergedAnnotations;
use crate::ownership::ownership_tags;
use crate::plan::{NodeStep, NodegroupStep, Outcome, Plan, Step, UncordonReason};
use crate::provisioner::observe::Observer;
use crate::provisioner::observe::fake::FakeCluster;
use crate::provisioner::rejected_fields::{Part, RejectedFields};
use crate::provisioner::retained::RetentionReason;
use crate::provisioner::{DeleteRequest, PlanContext, Provisioner as _, StopRequest};
use crate::settings::Settings;

fn nodegroup(name: &NodegroupName, tags: &[(&str, &str)]) -> Nodegroup {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Nodegroup { tags, ..samples::nodegroup(name.clone()) }
}

/// A valid spec of the group.
fn spec() -> InstanceGroupSpec {
    let spec = json!({
        "provisioner": "eks-managed",
        "eks-managed": {"minSize": 1, "maxSize": 3, "configuration": {
            "clusterName": "demo", "nodeRole": "arn:aws:iam::1:role/nodes", "instanceType": "m5.large",
            "subnets": ["subnet-1"],
        }},
    });
    serde_json::from_value(spec).expect("a spec")
}

fn resolved() -> resolve::ResolvedGroup {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let desired = desired::parse(&group_id(&group), &MergedAnnotations::default(), &spec()).expect("a valid spec");
    resolve::resolve(desired, &Default::default()).expect("a resolved group")
}

/// Two node groups of the group: one that a restored status names and that was deleted since, and the one that serves.
fn after_a_restore(resolved: &resolve::ResolvedGroup) -> (Arc<FakeAws>, InstanceGroupStatus, NodegroupName) {
    let prefix = names::name_prefix("demo", &resolved.desired.id);
    let [deleted, serving] =
        ["00000001", "00000002"].map(|suffix| NodegroupName::new("demo", format!("{prefix}-{suffix}")));
    let stub = Arc::new(FakeAws::default());
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let plain = NodegroupName::new("demo", "web");
    stub.update(|d| {
        d.nodegroups.insert(serving.to_string(), nodegroup(&serving, &tags));
        d.nodegroups.insert(plain.to_string(), nodegroup(&plain, &[]));
    });
    let status = json!({"managed": {"nodegroups": [deleted.to_string()]}});
    (stub, serde_json::from_value(status).expect("a status"), serving)
}

/// After etcd was restored, a status names what does not exist any more. What serves would run on unmanaged, beside a second
/// node group.
#[tokio::test]
async fn nodegroup_that_a_restored_status_does_not_know_is_found_by_its_tags() {
    let resolved = resolved();
    let (stub, status, serving) = after_a_restore(&resolved);
    let cluster = FakeCluster::new(&stub);
    let found = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
    let names: Vec<_> = found.nodegroups.iter().map(|group| group.name().clone()).collect();
    assert_eq!(names, [serving], "and the one of a plain name is another group's");
}

/// A tenant takes a change back, and the old node group serves again. When a field of the spec cannot be used meanwhile, the
/// nodes must not be drained into the node group that the tenant gave up.
#[tokio::test]
async fn serving_nodegroup_is_the_one_that_the_status_names() {
    let resolved = resolved();
    let prefix = names::name_prefix("demo", &resolved.desired.id);
    let [old, new] = ["00000001", "00000002"].map(|suffix| NodegroupName::new("demo", format!("{prefix}-{suffix}")));
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| {
        for (name, scaling_group, second) in [(&old, "eks-old", 1), (&new, "eks-new", 2)] {
            let created = Some(jiff::Timestamp::from_second(second).expect("a time"));
            let found = Nodegroup { scaling_groups: vec![scaling_group.into()], created, ..nodegroup(name, &tags) };
            d.nodegroups.insert(name.to_string(), found);
        }
    });
    let (created, failed) = (NodegroupStatus::Active, NodegroupStatus::CreateFailed);
    let cases = [
        ("eks-old", created, &old),
        ("eks-new", created, &new),
        ("", created, &new),
        // The sizes of the old one would become those of a node group that never had a node.
        ("eks-new", failed, &old),
    ];
    for (active, status_of_new, serving) in cases {
        stub.update(|d| d.nodegroups.get_mut(&new.to_string()).expect("a node group").status = status_of_new);
        let status =
            json!({"activeScalingGroupName": active, "managed": {"nodegroups": [old.to_string(), new.to_string()]}});
        let status = serde_json::from_value(status).expect("a status");
        let cluster = FakeCluster::new(&stub);
        let found = unchanged_parts::serving_nodegroup(&cluster.observer(), &resolved.desired, &status).await;
        assert_eq!(found.expect("an answer").map(|found| found.name).as_ref(), Some(serving), "{active}");
    }
}

/// EKS refuses the whole update, with labels and versions, when maxUnavailable exceeds the maximum size that a quota keeps.
#[test]
fn kept_size_is_no_smaller_than_what_may_be_unavailable() {
    let found = nodegroup(&NodegroupName::new("demo", "web"), &[]);
    let mut broken = RejectedFields::default();
    broken.push(&[Part::Growth], SpecError::invalid("spec.eks-managed.maxSize", 40, "exceeds the quota", "lower it"));
    let kept = |count: i32| {
        let mut desired =
            DesiredSpec { max_size: 40, max_unavailable: Some(MaxUnavailable::Count(count)), ..resolved().desired };
        unchanged_parts::keep(&mut desired, &found, &broken, &InstanceGroupStatus::default());
        assert_eq!(desired.max_size, found.sizes.max);
        desired.max_unavailable
    };
    assert_eq!(kept(found.sizes.max), Some(MaxUnavailable::Count(found.sizes.max)));
    assert_eq!(kept(found.sizes.max + 1), None, "it stays as it is");
}

/// A deletion without a spec that can be used takes it along, and not the one of a plain name.
#[tokio::test]
async fn deletion_removes_a_nodegroup_that_the_status_does_not_name() {
    let resolved = resolved();
    let id = &resolved.desired.id;
    let (stub, restored, serving) = after_a_restore(&resolved);
    for status in [restored, InstanceGroupStatus::default()] {
        let cluster = FakeCluster::new(&stub);
        let recorded = names::recorded_nodegroups(&status).collect();
        let names = with_derived(&cluster.observer(), recorded, "demo", id).await.expect("the names");
        let data = stub.data.lock().expect("not poisoned").nodegroups.clone();
        let nodegroups: Vec<_> = names.iter().filter_map(|name| data.get(&name.to_string()).cloned()).collect();
        let plan = delete::plan(&delete::DeleteInput {
            id,
            ownership_tags: &|cluster: &str| ownership_tags(cluster, id),
            status: &status,
            resolved: None,
            nodegroups: &nodegroups,
            unseen: None,
            unproven: &[],
            wait_for: None,
            tag_retry_pending: false,
        });
        let deleted = NodegroupStep::DeleteNodegroup { nodegroup: serving.clone() };
        assert_eq!(plan.steps.iter().map(|planned| &planned.step).collect::<Vec<_>>(), [&Step::Nodegroup(deleted)]);
    }
}

/// An object that was copied from another cluster carries the finalizer and that cluster's name: its deletion must not reach
/// over.
#[tokio::test]
async fn deletion_does_not_look_into_another_cluster_than_the_controllers() {
    let resolved = resolved();
    let (stub, _, serving) = after_a_restore(&resolved);
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    group.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let id = group_id(&group);
    // Its subnets do not exist here, so that the spec cannot be parsed.
    let spec: InstanceGroupSpec =
        serde_json::from_value(json!({"eks-managed": {"configuration": {"clusterName": "demo"}}})).expect("a spec");
    for (pinned, deletes) in [("demo", true), ("other", false)] {
        let settings = Settings { cluster_name: Some(pinned.into()), ..Default::default() };
        let request = DeleteRequest {
            id: &id,
            annotations: None,
            spec: Some(spec.clone()),
            forbidden: vec![],
            protected_by: None,
            wrong_confirmation: None,
            status: &InstanceGroupStatus::default(),
            settings: &settings,
        };
        let cluster = FakeCluster::new(&stub);
        let plan = EksManaged.plan_deletion(&cluster.observer(), request).await.expect("a plan");
        let deleted = Step::Nodegroup(NodegroupStep::DeleteNodegroup { nodegroup: serving.clone() });
        assert_eq!(plan.steps.iter().any(|planned| planned.step == deleted), deletes, "{pinned}: {:?}", plan.steps);
    }
}

/// A status may name any node group. Only those that the group itself could have created make it wait.
#[tokio::test]
async fn recorded_nodegroup_with_edited_tags_is_disowned_and_not_forgotten() {
    let resolved = resolved();
    let prefix = names::name_prefix("demo", &resolved.desired.id);
    let [edited, foreign, unrecorded] = ["00000001", "victim", "00000002"].map(|suffix| match suffix {
        "victim" => NodegroupName::new("demo", suffix),
        suffix => NodegroupName::new("demo", format!("{prefix}-{suffix}")),
    });
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| {
        for name in [&edited, &foreign, &unrecorded] {
            let tags = [("instancegroups.keikoproj.io/Namespace", "edited")];
            d.nodegroups.insert(name.to_string(), nodegroup(name, &tags));
        }
    });
    let recorded = json!({"managed": {"nodegroups": [edited.to_string(), foreign.to_string()]}});
    let status = serde_json::from_value(recorded).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let ObservedState { nodegroups, disowned, .. } =
        observed_state(&cluster.observer(), &resolved, &status, Some("a lock")).await.expect("the observed state");
    let names: Vec<_> = disowned.into_iter().map(|found| found.name).collect();
    assert_eq!((nodegroups.len(), names), (0, vec![edited]));
}

/// Pods may run on a node that was detached, and an old answer of AWS may lack a scaling group that exists. In neither
/// case may the controller delete the node group.
#[tokio::test]
async fn scaling_group_is_lost_only_without_nodes_and_by_a_fresh_answer() {
    let resolved = resolved();
    let name = &resolved.name;
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let issue = NodegroupIssue { code: "AutoScalingGroupNotFound".into(), message: String::new(), resources: vec![] };
    let degraded = Nodegroup {
        status: NodegroupStatus::Degraded,
        issues: vec![issue],
        scaling_groups: vec!["eks-web".into()],
        ..nodegroup(name, &tags)
    };
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| _ = d.nodegroups.insert(name.to_string(), degraded));
    let status = json!({"managed": {"nodegroups": [name.to_string()]}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let observer = Observer { max_cache_age: Duration::from_secs(3600), ..cluster.observer() };
    let is_lost = async || observed_state(&observer, &resolved, &status, None).await.map(|s| s.has_lost_scaling_group);
    assert!(!is_lost().await.expect("an answer"), "the nodes are not known yet");
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": {"eks.amazonaws.com/nodegroup": name.nodegroup}},
        "spec": {"providerID": "aws:///us-west-2a/i-1"},
    }))
    .expect("a node");
    for event in [Event::Init, Event::InitApply(node.clone()), Event::InitDone] {
        observer.node_index.apply(&event);
    }
    assert!(!is_lost().await.expect("an answer"), "a detached instance is a node still");
    observer.node_index.apply(&Event::Delete(node));
    assert!(is_lost().await.expect("an answer"));
    stub.update(|d| d.denied = Some("groups"));
    assert!(is_lost().await.is_err(), "nothing is known of the scaling group");
    stub.update(|d| {
        d.denied = None;
        d.groups.insert("eks-web".into(), samples::scaling_group("eks-web"));
    });
    assert!(!is_lost().await.expect("an answer"), "the cache has an older answer");
}

/// Another group of the name `web`, in this namespace.
fn namesake(namespace: &str, status: &Value, is_deleting: bool) -> GroupObject {
    let mut object = json!({
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "status": status,
        "metadata": {"name": "web", "namespace": namespace, "finalizers": [FINALIZER]},
        "spec": {"provisioner": "eks-managed"},
    });
    if is_deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    }
    serde_json::from_value(object).expect("a group")
}

/// What the deletion of the group `team/web` plans beside these other groups.
async fn deletion(stub: &Arc<FakeAws>, others: &[GroupObject], status: &InstanceGroupStatus) -> Plan {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    group.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let (id, annotations, settings) = (group_id(&group), MergedAnnotations::default(), Settings::default());
    let request = DeleteRequest {
        id: &id,
        annotations: Some(&annotations),
        spec: Some(spec()),
        forbidden: vec![],
        protected_by: None,
        wrong_confirmation: None,
        status,
        settings: &settings,
    };
    let cluster = FakeCluster::new(stub).with_groups(others);
    EksManaged.plan_deletion(&cluster.observer(), request).await.expect("a plan")
}

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|planned| planned.step.name()).collect()
}

/// The node group that Keiko controller names after the group, with this scaling group and these tags.
fn keiko_nodegroup(scaling_group: &str, tags: &[(&str, &str)]) -> Nodegroup {
    let name = NodegroupName::new("demo", "web");
    Nodegroup { scaling_groups: vec![scaling_group.into()], ..nodegroup(&name, tags) }
}

/// A user removed the status of a group that was taken over, and its spec cannot be used. The node group that was adopted
/// would run on, with nodes that nothing manages.
#[tokio::test]
async fn deletion_without_status_and_spec_removes_the_adopted_nodegroup() {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    group.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let (id, settings) = (group_id(&group), Settings::default());
    let spec: InstanceGroupSpec =
        serde_json::from_value(json!({"eks-managed": {"configuration": {"clusterName": "demo"}}})).expect("a spec");
    let own = ownership_tags("demo", &id);
    let own: Vec<_> = own.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    for (tags, step) in [(&own[..], "DeleteNodegroup"), (&own[..2], "RemoveFinalizer"), (&[], "RemoveFinalizer")] {
        let (stub, found) = (Arc::new(FakeAws::default()), keiko_nodegroup("eks-web-1", tags));
        stub.update(|d| _ = d.nodegroups.insert(found.name.to_string(), found));
        let request = DeleteRequest {
            id: &id,
            annotations: None,
            spec: Some(spec.clone()),
            forbidden: vec![],
            protected_by: None,
            wrong_confirmation: None,
            status: &InstanceGroupStatus::default(),
            settings: &settings,
        };
        let cluster = FakeCluster::new(&stub);
        let plan = EksManaged.plan_deletion(&cluster.observer(), request).await.expect("a plan");
        assert_eq!(step_names(&plan), [step], "{tags:?}");
    }
}

/// Keiko controller names a node group without the namespace. The deletion of one group must not terminate the nodes of
/// another.
#[tokio::test]
async fn nodegroup_that_the_status_of_another_group_names_too_is_kept() {
    let (resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let put = |found: Nodegroup| stub.update(|d| _ = d.nodegroups.insert(found.name.to_string(), found));
    put(keiko_nodegroup("eks-web-1", &[]));
    let recorded = json!({"activeScalingGroupName": "eks-web-1"});
    let mut status: InstanceGroupStatus = serde_json::from_value(recorded.clone()).expect("a status");
    let living = [namesake("other", &recorded, false)];
    let cluster = FakeCluster::new(&stub).with_groups(&living);
    let found = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
    let (name, doubt) = (NodegroupName::new("demo", "web"), Doubt::SharedWith(["other/web".to_owned()].into()));
    assert_eq!(found.unproven_nodegroup, Some(UnprovenNodegroup { name, doubt }));
    assert!(found.nodegroups.is_empty(), "neither group adopts it");
    let managed =
        json!({"nodegroups": ["demo/web"], "nodegroupArns": ["arn:aws:eks:us-west-2:1:nodegroup/demo/web/id"]});
    let adopted = json!({"activeScalingGroupName": "eks-web-1", "managed": managed});
    let adopted: InstanceGroupStatus = serde_json::from_value(adopted).expect("a status");
    let in_use = RetentionReason::NodegroupInUse.as_str();
    for status in [&status, &adopted] {
        let kept = deletion(&stub, &living, status).await;
        assert_eq!(step_names(&kept), [""; 0], "its tags were denied: {}", status.managed.is_some());
        let is_retained =
            |update: &&crate::plan::ConditionUpdate| update.condition_type == condition::RESOURCES_RETAINED;
        let update = kept.condition_updates.iter().find(is_retained).expect("a condition");
        assert_eq!(update.reason, in_use);
        assert!(update.message.contains("other/web"), "{}", update.message);
    }
    status.conditions.push(Condition::new(condition::RESOURCES_RETAINED, true, in_use, ""));
    assert_eq!(step_names(&deletion(&stub, &living, &status).await), ["RemoveFinalizer"]);
    // All groups of the name are deleted: the last one by name deletes it.
    let waiting = deletion(&stub, &[namesake("other", &recorded, true)], &status).await;
    assert_eq!(step_names(&waiting), [""; 0]);
    let Outcome::Progressing { message, .. } = &waiting.outcome else { panic!("{:?}", waiting.outcome) };
    assert!(message.contains("other/web"), "{message}");
    let first = deletion(&stub, &[namesake("zeta", &recorded, true)], &status).await;
    assert_eq!(step_names(&first), ["RemoveFinalizer"]);
    assert_eq!(step_names(&deletion(&stub, &[], &status).await), ["TagNodegroup"], "no other group names it");
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    put(keiko_nodegroup("eks-web-1", &tags));
    assert_eq!(step_names(&deletion(&stub, &living, &status).await), ["DeleteNodegroup"], "its tags decide");
}

/// While EKS creates a node group, Keiko controller records nothing. Any group of its name may be the one that asked for
/// it.
#[tokio::test]
async fn nodegroup_that_no_status_names_may_be_of_any_group_of_its_name() {
    let (resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let creating = NodegroupName::new("demo", "web");
    let found = Nodegroup { status: NodegroupStatus::Creating, ..nodegroup(&creating, &[]) };
    stub.update(|d| _ = d.nodegroups.insert(creating.to_string(), found));
    let status = InstanceGroupStatus::default();
    for (other, is_shared) in [
        (Value::Null, true),
        (json!({"conditions": []}), true),
        (json!({"activeScalingGroupName": "eks-web-9"}), false),
        (json!({"provisioner": "eks-managed", "managed": {"nodegroups": ["demo/other-web-1"]}}), false),
        (json!({"provisioner": "eks"}), false),
    ] {
        let others = [namesake("other", &other, false)];
        let cluster = FakeCluster::new(&stub).with_groups(&others);
        let found = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
        assert_eq!(
            (found.unproven_nodegroup.is_some(), found.nodegroups.is_empty()),
            (is_shared, is_shared),
            "{other}"
        );
        let steps = step_names(&deletion(&stub, &others, &status).await);
        assert_eq!(steps.contains(&"TagNodegroup"), !is_shared, "{other}: {steps:?}");
    }
}

/// The status of Keiko controller may name the scaling group of a node group that was deleted.
#[tokio::test]
async fn nodegroup_with_another_scaling_group_than_the_status_names_is_in_doubt() {
    let (resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let found = keiko_nodegroup("eks-web-2", &[]);
    stub.update(|d| _ = d.nodegroups.insert(found.name.to_string(), found));
    let status = json!({"activeScalingGroupName": "eks-web-1", "observedGeneration": 1});
    let status = serde_json::from_value(status).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let found = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
    let doubt = Doubt::OtherScalingGroup { recorded: "eks-web-1".into(), found: "eks-web-2".into() };
    assert_eq!(found.unproven_nodegroup.map(|unproven| unproven.doubt), Some(doubt));
    let plan = deletion(&stub, &[], &status).await;
    assert!(step_names(&plan).is_empty() && matches!(plan.outcome, Outcome::Blocked { .. }), "{plan:?}");
    let others = [namesake("other", &json!({"activeScalingGroupName": "eks-web-2"}), false)];
    assert_eq!(step_names(&deletion(&stub, &others, &status).await), ["RemoveFinalizer"], "it is the other group's");
}

/// Keiko controller creates a node group of the group's name beside that of this controller. After the next takeover, it
/// would run on unmanaged, also without the group.
#[tokio::test]
async fn nodegroup_that_keiko_controller_created_after_a_return_to_it_is_found() {
    let (resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let (own, keiko) = (resolved.name.clone(), NodegroupName::new("demo", "web"));
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let put = |found: Nodegroup| stub.update(|d| _ = d.nodegroups.insert(found.name.to_string(), found));
    put(Nodegroup { scaling_groups: vec!["eks-own".into()], ..nodegroup(&own, &tags) });
    put(keiko_nodegroup("eks-web-2", &[]));
    let status = |active: &str| {
        let status = json!({"activeScalingGroupName": active, "managed": {"nodegroups": [own.to_string()]}});
        serde_json::from_value::<InstanceGroupStatus>(status).expect("a status")
    };
    let both = vec![own.clone(), keiko];
    for (active, observed, steps) in [
        ("eks-web-2", both, vec!["DeleteNodegroup", "TagNodegroup"]),
        ("eks-own", vec![own.clone()], vec!["DeleteNodegroup"]),
        ("eks-gone", vec![own.clone()], vec!["DeleteNodegroup"]),
    ] {
        let cluster = FakeCluster::new(&stub);
        let found = observed_state(&cluster.observer(), &resolved, &status(active), None).await.expect("a state");
        let names: Vec<_> = found.nodegroups.iter().map(|group| group.name().clone()).collect();
        assert_eq!(names, observed, "{active}");
        assert_eq!(step_names(&deletion(&stub, &[], &status(active)).await), steps, "{active}");
    }
    let others = [namesake("other", &json!({"activeScalingGroupName": "eks-web-2"}), false)];
    let shared = deletion(&stub, &others, &status("eks-web-2")).await;
    assert_eq!(step_names(&shared), ["DeleteNodegroup"], "the other group may use it");
    stub.update(|d| _ = d.nodegroups.remove(&own.to_string()));
    put(keiko_nodegroup("eks-web-2", &tags));
    let tagged = deletion(&stub, &others, &status("eks-web-2")).await;
    assert_eq!(step_names(&tagged), ["DeleteNodegroup"], "the tags of the step before");
}

/// The group that adopted it may not tag it, and drains it into the next one. Two owners would undo each other's drains.
#[tokio::test]
async fn nodegroup_that_another_group_adopted_and_replaces_is_not_adopted() {
    let (resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let found = keiko_nodegroup("eks-web-1", &[]);
    stub.update(|d| _ = d.nodegroups.insert(found.name.to_string(), found));
    let status = serde_json::from_value(json!({"activeScalingGroupName": "eks-web-1"})).expect("a status");
    for (recorded, is_shared) in [("demo/web", true), ("another-cluster/web", false)] {
        let replaces = json!({"activeScalingGroupName": "eks-next", "managed": {"nodegroups": [recorded]}});
        let cluster = FakeCluster::new(&stub).with_groups(&[namesake("other", &replaces, false)]);
        let found = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
        assert_eq!(
            (found.unproven_nodegroup.is_some(), found.nodegroups.is_empty()),
            (is_shared, is_shared),
            "{recorded}"
        );
    }
}

/// Keiko controller shares only the node group of the exact name. The nodes of any other would run on without an owner.
#[tokio::test]
async fn nodegroup_with_a_hash_in_its_name_is_deleted_beside_a_namesake_of_unknown_status() {
    let resolved = resolved();
    let others = [namesake("other", &json!("no object"), false)];
    for (name, steps) in [(resolved.name.clone(), vec!["TagNodegroup"]), (NodegroupName::new("demo", "web"), vec![])] {
        let (stub, found) = (Arc::new(FakeAws::default()), nodegroup(&name, &[]));
        let status = json!({"managed": {"nodegroups": [name.to_string()], "nodegroupArns": [found.arn]}});
        let status = serde_json::from_value(status).expect("a status");
        stub.update(|d| _ = d.nodegroups.insert(name.to_string(), found));
        assert_eq!(step_names(&deletion(&stub, &others, &status).await), steps, "{name}");
    }
}

/// The Ready Node of an instance in a node group, cordoned for the InstanceGroup with the UID `drained_by`.
fn ready_node(instance: &str, nodegroup: &NodegroupName, drained_by: Option<&str>) -> Node {
    let mut node = json!({
        "metadata": {"name": instance, "labels": {"eks.amazonaws.com/nodegroup": nodegroup.nodegroup}},
        "spec": {"providerID": format!("aws:///us-west-2a/{instance}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    if let Some(uid) = drained_by {
        let record = json!({"group": uid, "templateVersion": "2", "since": "1970-01-01T00:00:00Z"}).to_string();
        let drained = json!({"metadata": {"annotations": {"instancemgr.keikoproj.io/disruption": record}}, "spec": {"unschedulable": true}});
        crate::api::apply_merge_patch(&mut node, &drained);
    }
    serde_json::from_value(node).expect("a Node")
}

/// A current node group with the instance `i-new`, and an outgoing one with these tags and the instance `i-old`.
fn during_replacement(
    resolved: &resolve::ResolvedGroup,
    outgoing_tags: &[(&str, &str)],
) -> (Arc<FakeAws>, InstanceGroupStatus, NodegroupName) {
    let old = NodegroupName::new("demo", format!("{}-00000001", names::name_prefix("demo", &resolved.desired.id)));
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let outgoing = Nodegroup {
        instance_types: vec!["c5.large".into()],
        scaling_groups: vec!["eks-old".into()],
        ..nodegroup(&old, outgoing_tags)
    };
    let current = Nodegroup { scaling_groups: vec!["eks-new".into()], ..nodegroup(&resolved.name, &tags) };
    let stub = Arc::new(FakeAws::default());
    let recorded = [outgoing.name.to_string(), current.name.to_string()];
    stub.update(|d| {
        for (name, instance) in [("eks-old", "i-old"), ("eks-new", "i-new")] {
            let instances = vec![samples::instance(instance)];
            let group = ScalingGroup { desired: 1, instances, ..samples::scaling_group(name) };
            d.groups.insert(name.to_owned(), group);
        }
        d.nodegroups.extend([outgoing, current].map(|found| (found.name.to_string(), found)));
    });
    let status = json!({"managed": {"nodegroups": recorded}});
    (stub, serde_json::from_value(status).expect("a status"), old)
}

/// What the group plans from this state.
fn planned(resolved: &resolve::ResolvedGroup, observed: ObservedState, status: &InstanceGroupStatus) -> Plan {
    let (snapshot, settings) = (input::Snapshot { resolved: resolved.clone(), observed }, Settings::default());
    plan::plan(&snapshot.plan_input(&PlanContext {
        status,
        lock: None,
        rollout_block: None,
        allowance: None,
        settings: &settings,
        ineffective_writes: &Default::default(),
        persistent_failure: &Default::default(),
        is_requested: false,
        now: jiff::Timestamp::UNIX_EPOCH,
    }))
}

/// A user edits a tag of the outgoing node group while its nodes are drained. The group leaves it as it is from then on, and
/// its nodes would stay cordoned.
#[tokio::test]
async fn nodes_of_an_outgoing_nodegroup_with_edited_tags_are_uncordoned() {
    let mut resolved = resolved();
    resolved.desired.id.uid = "own".into();
    let edited = [("instancegroups.keikoproj.io/Namespace", "edited")];
    let (stub, status, old) = during_replacement(&resolved, &edited);
    for (drained_by, expected) in [(Some("own"), vec!["i-old"]), (Some("other"), vec![]), (None, vec![])] {
        let cluster = FakeCluster::new(&stub);
        let observer = cluster.observer();
        observer.node_index.apply(&Event::Apply(ready_node("i-old", &old, drained_by)));
        let state = observed_state(&observer, &resolved, &status, None).await.expect("the observed state");
        assert_eq!(state.disowned.iter().map(|found| &found.name).collect::<Vec<_>>(), [&old]);
        let plan = planned(&resolved, state, &status);
        let uncordoned = plan.steps.iter().filter_map(|planned| match &planned.step {
            Step::Node(NodeStep::UncordonNode { node, .. }) => Some(node.as_str()),
            _ => None,
        });
        assert_eq!(uncordoned.collect::<Vec<_>>(), expected, "{drained_by:?}: {:?}", plan.steps);
        let (id, settings) = (&resolved.desired.id, Settings::default());
        let request = StopRequest { id, status: &status, lock: None, settings: &settings };
        let rejected = EksManaged.stop_rotation(&observer, request).await.expect("a decision");
        let uncordon = |node: &str| NodeStep::UncordonNode { node: node.into(), reason: UncordonReason::GroupRejected };
        assert_eq!(rejected.steps, expected.into_iter().map(uncordon).collect::<Vec<_>>(), "{drained_by:?}");
    }
}

/// A user scales the outgoing node group up, and an answer of AWS is older than the new node. EKS would delete the node with
/// its pods a few minutes after it begins to drain it.
#[tokio::test]
async fn node_that_an_old_answer_of_aws_lacks_is_observed() {
    let resolved = resolved();
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let (stub, status, old) = during_replacement(&resolved, &tags);
    let cluster = FakeCluster::new(&stub);
    let observer = Observer { max_cache_age: Duration::from_secs(3600), ..cluster.observer() };
    let observed = async || {
        let state = observed_state(&observer, &resolved, &status, None).await.expect("the observed state");
        let outgoing = state.nodegroups.into_iter().find(|group| *group.name() == old).expect("the outgoing one");
        outgoing.members.into_iter().map(|member| member.instance.id).collect::<Vec<_>>()
    };
    observer.node_index.apply(&Event::Apply(ready_node("i-old", &old, None)));
    assert_eq!(observed().await, ["i-old"]);
    let instances = ["i-old", "i-added"].map(samples::instance).to_vec();
    stub.update(|d| d.groups.get_mut("eks-old").expect("a scaling group").instances = instances);
    assert_eq!(observed().await, ["i-old"], "the answer is cached, and the instance has not joined");
    observer.node_index.apply(&Event::Apply(ready_node("i-added", &old, None)));
    assert_eq!(observed().await, ["i-old", "i-added"]);
}

/// AWS may not show a scaling group that exists. Its nodes are not drained then. EKS reports one that is gone.
#[tokio::test]
async fn outgoing_nodegroup_stays_while_it_has_ready_nodes_that_aws_does_not_show() {
    let resolved = resolved();
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let (stub, status, old) = during_replacement(&resolved, &tags);
    stub.update(|d| _ = d.groups.remove("eks-old"));
    let deleted = Step::Nodegroup(NodegroupStep::DeleteNodegroup { nodegroup: old.clone() });
    for (has_node, is_reported, deletes) in
        [(true, false, false), (false, false, false), (true, true, false), (false, true, true)]
    {
        let issue = NodegroupIssue { code: SCALING_GROUP_NOT_FOUND.into(), message: String::new(), resources: vec![] };
        let issues = if is_reported { vec![issue] } else { vec![] };
        stub.update(|d| d.nodegroups.get_mut(&old.to_string()).expect("a node group").issues = issues);
        let cluster = FakeCluster::new(&stub);
        let observer = cluster.observer();
        observer.node_index.apply(&Event::Apply(ready_node("i-new", &resolved.name, None)));
        if has_node {
            observer.node_index.apply(&Event::Apply(ready_node("i-old", &old, None)));
        }
        let state = observed_state(&observer, &resolved, &status, None).await.expect("the observed state");
        let plan = planned(&resolved, state, &status);
        assert_eq!(
            plan.steps.iter().any(|planned| planned.step == deleted),
            deletes,
            "{has_node} {is_reported}: {plan:?}"
        );
        let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
        assert_eq!(message.contains("still has the node i-old"), has_node, "{message}");
    }
}

/// Another attempt would delete what EKS could not create completely, with the pods on the nodes that did join. An answer of
/// AWS may be older than these nodes.
#[tokio::test]
async fn failed_nodegroup_with_a_ready_node_that_aws_does_not_show_is_kept() {
    let resolved = resolved();
    let name = &resolved.name;
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let stub = Arc::new(FakeAws::default());
    let failed = Nodegroup {
        status: NodegroupStatus::CreateFailed,
        scaling_groups: vec!["eks-web".into()],
        ..nodegroup(name, &tags)
    };
    stub.update(|d| _ = d.nodegroups.insert(name.to_string(), failed));
    let status = json!({"managed": {"nodegroups": [name.to_string()]}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    let deleted = Step::Nodegroup(NodegroupStep::DeleteNodegroup { nodegroup: name.clone() });
    for (has_node, shows_group) in [(true, false), (true, true), (false, false)] {
        let shown = shows_group.then(|| ("eks-web".to_owned(), samples::scaling_group("eks-web")));
        stub.update(|d| d.groups = shown.into_iter().collect());
        let cluster = FakeCluster::new(&stub);
        let observer = cluster.observer();
        if has_node {
            observer.node_index.apply(&Event::Apply(ready_node("i-1", name, None)));
        }
        let mut state = observed_state(&observer, &resolved, &status, None).await.expect("the observed state");
        state.creation_failed_for = jiff::SignedDuration::from_hours(1);
        let plan = planned(&resolved, state, &status);
        let is_deleted = plan.steps.iter().any(|planned| planned.step == deleted);
        assert_eq!(is_deleted, !has_node, "{has_node} {shows_group}: {plan:?}");
    }
}

/// Otherwise each pass of each group would ask for the cluster.
#[tokio::test]
async fn cluster_is_read_only_for_another_version_than_that_of_the_nodes() {
    let (mut resolved, stub) = (resolved(), Arc::new(FakeAws::default()));
    let name = resolved.name.clone();
    let tags: Vec<_> = resolved.ownership_tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())).collect();
    let found = nodegroup(&name, &tags);
    let own = found.version.clone();
    stub.update(|d| {
        d.nodegroups.insert(name.to_string(), found);
        d.clusters.insert("demo".into(), samples::cluster("demo"));
    });
    let status = json!({"managed": {"nodegroups": [name.to_string()]}});
    let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
    for (wanted, known, calls) in [(None, None, 0), (Some(own), None, 0), (Some("1.40".into()), Some("1.33"), 1)] {
        resolved.desired.version = wanted;
        let cluster = FakeCluster::new(&stub);
        let state = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the observed state");
        assert_eq!((state.cluster_version.as_deref(), stub.calls("clusters")), (known, calls));
    }
    stub.update(|d| d.denied = Some("clusters"));
    let cluster = FakeCluster::new(&stub);
    let state = observed_state(&cluster.observer(), &resolved, &status, None).await.expect("the group is still served");
    assert_eq!(state.cluster_version, None);
}
