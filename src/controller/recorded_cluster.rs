//! The cluster, and the region, of the resources that a deletion deletes. Pure.
//!
//! The ownership tags contain the cluster, and after a change of the spec only the status shows which one it was. But a
//! group of the same namespace and name in another cluster carries the same other tags, so the status alone is not
//! proof.
//!
//! A controller that is configured for another region or account finds none of the resources. It must not take them for
//! deleted, and must create nothing there.

use crate::api::{GroupId, InstanceGroupStatus};
use crate::boundaries::MergedSpec;
use crate::index::nodes::NodeIndex;
use crate::plan::{Plan, StalledReason, blocked_plan};
use crate::provisioner::Provisioner;
use crate::settings::Settings;

/// The cluster that a merged spec names; `None` without one.
pub(crate) fn desired<'a>(merged: &'a MergedSpec, provisioner: &dyn Provisioner) -> Option<&'a str> {
    let keys = provisioner.cluster_field().split('.').skip(1);
    keys.fold(&merged.spec, |value, key| &value[key]).as_str().filter(|cluster| !cluster.is_empty())
}

/// The plan of a deletion that the recorded cluster blocks. The recorded cluster differs from that of `--cluster-name`,
/// or without that flag, from that of the spec.
pub(crate) fn blocked_deletion(
    id: &GroupId,
    status: &InstanceGroupStatus,
    merged: Option<&MergedSpec>,
    provisioner: &dyn Provisioner,
    settings: &Settings,
) -> Option<Plan> {
    let recorded = provisioner.recorded_cluster(id, status)?;
    let path = provisioner.cluster_field();
    let (expected, reason, remedy) = match (&settings.cluster_name, merged) {
        (Some(pinned), _) => {
            (pinned.as_str(), StalledReason::PolicyViolation, "use the controller of that cluster".to_owned())
        }
        (None, Some(merged)) => (
            desired(merged, provisioner)?,
            StalledReason::InvalidSpec,
            format!("set {path} to {recorded}, and the deletion continues"),
        ),
        (None, None) => return None,
    };
    let message = format!(
        "the status names resources in the cluster {recorded}, but this group is in {expected}; to delete them, {remedy}; to keep them, remove the finalizer"
    );
    (expected != recorded).then(|| blocked_plan(id, reason, message))
}

/// The plan of a deletion whose group has a Node in another region. Only AWS can say whether the Node is to be believed.
pub(crate) fn blocked_by_region(id: &GroupId, nodes: &NodeIndex, region: &str) -> Option<Plan> {
    let (node, zone) = nodes.node_outside_of(region, &id.key())?;
    let message = format!(
        "node {node} of this group is in the zone {zone}, but the controller works in the region {region} and finds none of the group's resources there; correct the controller's AWS_REGION, and the deletion continues; to keep the resources, remove the finalizer"
    );
    Some(blocked_plan(id, StalledReason::PolicyViolation, message))
}

/// The plan of a group in a cluster whose Ready nodes are all in other regions than the controller.
pub(crate) fn blocked_outside_cluster(id: &GroupId, nodes: &NodeIndex, region: &str) -> Option<Plan> {
    let zone = nodes.cluster_outside_of(region)?;
    let message = format!(
        "no Ready node of the cluster is in the region {region}, in which the controller works; some are in the zone {zone}; correct the controller's AWS_REGION; it changes nothing before that"
    );
    Some(blocked_plan(id, StalledReason::PolicyViolation, message))
}

/// The plan of a deletion whose recorded cluster is not in the region and account of the controller.
pub(crate) fn blocked_by_missing_cluster(id: &GroupId, cluster: &str, region: &str) -> Plan {
    let message = format!(
        "EKS has no cluster {cluster} in the controller's account and region {region}, so that none of the group's resources can be found; correct the controller's AWS_REGION or credentials, and the deletion continues; if the cluster was deleted, remove the finalizer"
    );
    blocked_plan(id, StalledReason::NotFound, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::InstanceGroup;
    use crate::api::names::{FINALIZER, label};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::cluster;
    use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
    use crate::controller::fake;
    use crate::controller::planner::GroupContext;
    use crate::plan::{ObjectStep, Outcome, Step};

    const OWN: Value = Value::Null;

    /// A Node of the cluster in this zone. It belongs to the group unless `labels` differs.
    fn node(zone: &str, ready: &str, labels: Value) -> Event<Node> {
        let own = json!({label::NAMESPACE: "team", label::INSTANCE_GROUP: "web"});
        let node = json!({
            "metadata": {"name": format!("in-{zone}"), "labels": if labels.is_null() { own } else { labels }},
            "spec": {"providerID": format!("aws:///{zone}/i-{zone}")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Event::Apply(serde_json::from_value(node).expect("a Node"))
    }

    /// The plan of a group whose scaling group is `demo-team-web` and whose resources AWS does not show, by a controller in
    /// us-west-2.
    async fn plan(patch: Value, nodes: Vec<Event<Node>>, clusters: &[&str]) -> Plan {
        plan_with_instances(patch, nodes, clusters, &[]).await
    }

    /// The same, while AWS runs these instances.
    async fn plan_with_instances(patch: Value, nodes: Vec<Event<Node>>, clusters: &[&str], instances: &[&str]) -> Plan {
        let mut object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team", "uid": "own", "finalizers": [FINALIZER]},
            "spec": {"provisioner": "eks", "eks": {"configuration": {"clusterName": "demo"}}},
            "status": {"provisioner": "eks", "activeScalingGroupName": "demo-team-web", "nodes": {"desired": 0}},
        });
        crate::api::apply_merge_patch(&mut object, &patch);
        let group: InstanceGroup = serde_json::from_value(object).expect("a group");
        let aws = Arc::new(FakeAws::default());
        aws.update(|d| {
            d.clusters.extend(clusters.iter().map(|name| ((*name).to_owned(), cluster(name))));
            d.instances = instances.iter().map(|id| ((*id).to_owned(), String::new())).collect();
        });
        let index = NodeIndex::default();
        nodes.iter().for_each(|event| _ = index.apply(event));
        let planner = fake::planner(&aws, crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")), index);
        let active_boundaries =
            ActiveBoundaries { source: BoundariesSource::NotConfigured, ..Default::default() }.into();
        let namespace_annotations = Some(Default::default());
        let context = GroupContext { active_boundaries, namespace_annotations, ..GroupContext::default() };
        planner.plan(&group, &context, Duration::ZERO, Timestamp::UNIX_EPOCH).await.expect("a plan").plan
    }

    /// A group with these changes, which was deleted a minute ago.
    fn deleted(mut changes: Value) -> Value {
        changes["metadata"]["deletionTimestamp"] = json!("1969-12-31T23:59:00Z");
        changes
    }

    fn removes_finalizer(plan: &Plan) -> bool {
        plan.steps.iter().any(|planned| planned.step == Step::Object(ObjectStep::RemoveFinalizer))
    }

    /// A name of which only a hash is left does not contain the cluster. The scaling group would stay with its nodes.
    #[tokio::test]
    async fn deletion_waits_for_the_cluster_of_a_recorded_scaling_group() {
        let hashed = "d41d8cd98f00b204e9800998ecf8427e-0a1b2c3d";
        let plan = |name: &str, cluster: Value| {
            let changes = json!({
                "spec": {"eks": {"configuration": {"clusterName": cluster}}},
                "status": {"activeScalingGroupName": name},
            });
            plan(deleted(changes), vec![], &["demo"])
        };
        assert_blocked(&plan(hashed, Value::Null).await, &[hashed, "clusterName", "finalizer"]);
        // In the last case nothing was created.
        for (name, cluster) in [(hashed, json!("demo")), ("demo-team-web", Value::Null), ("", Value::Null)] {
            let plan = plan(name, cluster).await;
            assert!(removes_finalizer(&plan), "{name}: {plan:?}");
        }
    }

    /// Keiko controller records the provisioner `eks` alone, and a default of the boundaries may be gone. What another
    /// provisioner created would stay with its nodes.
    #[tokio::test]
    async fn deletion_waits_while_nothing_names_the_provisioner_of_its_resources() {
        let plan = |mut status: Value| {
            status["provisioner"] = Value::Null;
            plan(deleted(json!({"spec": {"provisioner": Value::Null}, "status": status})), vec![], &["demo"])
        };
        let of_a_nodegroup = plan(json!({"activeScalingGroupName": "eks-web-1"})).await;
        assert_blocked(&of_a_nodegroup, &["eks-web-1", "spec.provisioner", "finalizer"]);
        let of_a_profile = plan(json!({"activeScalingGroupName": "", "currentState": "Ready"})).await;
        assert_blocked(&of_a_profile, &["resources were created", "spec.provisioner", "finalizer"]);
        for status in [json!({}), json!({"activeScalingGroupName": "", "currentState": "Error"})] {
            let plan = plan(status).await;
            assert!(removes_finalizer(&plan), "{plan:?}");
        }
    }

    fn assert_blocked(plan: &Plan, words: &[&str]) {
        let Outcome::Blocked { message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
        words.iter().for_each(|word| assert!(message.contains(word), "{word} is missing in {message}"));
        assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    }

    /// In a wrong region or account AWS has nothing of the group. Its finalizer and the join entries of its nodes would go,
    /// and its nodes would run forever.
    #[tokio::test]
    async fn deletion_waits_while_the_controller_works_in_another_region_or_account() {
        let plan = |nodes, clusters| plan(deleted(Value::Null), nodes, clusters);
        let of_others = || json!({});
        let (here, elsewhere) = ("us-west-2a", "eu-west-1a");
        let mixed = vec![node(here, "True", of_others()), node(elsewhere, "True", OWN)];
        assert_blocked(&plan(mixed, &["demo"]).await, &["in-eu-west-1a", elsewhere, "us-west-2", "AWS_REGION"]);
        let others = vec![node(elsewhere, "True", of_others())];
        assert_blocked(&plan(others, &["demo"]).await, &[elsewhere, "us-west-2", "AWS_REGION"]);
        assert_blocked(&plan(vec![], &["other"]).await, &["cluster demo", "us-west-2", "credentials", "finalizer"]);
        for nodes in [
            vec![],
            vec![node(elsewhere, "False", OWN)],
            vec![node(here, "True", OWN)],
            vec![node("us-west-2-lax-1a", "True", OWN)],
            vec![node(here, "True", of_others()), node(elsewhere, "True", of_others())],
        ] {
            let plan = plan(nodes, &["demo"]).await;
            assert!(removes_finalizer(&plan), "{plan:?}");
        }
    }

    /// A tenant that controls a kubelet registers a Node with the labels of another tenant's group and a made-up zone.
    #[tokio::test]
    async fn forged_node_does_not_hold_back_a_deletion_in_the_region_of_the_cluster() {
        let plan = async |instances: Vec<&'static str>| {
            let nodes = vec![node("us-west-2a", "True", json!({})), node("zz-fake-1a", "True", OWN)];
            plan_with_instances(deleted(Value::Null), nodes, &["demo"], &instances).await
        };
        let plan_of_cluster_here = plan(vec!["i-us-west-2a"]).await;
        assert!(removes_finalizer(&plan_of_cluster_here), "{plan_of_cluster_here:?}");
        for unproven in [vec![], vec!["i-other"]] {
            assert_blocked(&plan(unproven).await, &["in-zz-fake-1a", "AWS_REGION"]);
        }
    }

    /// Where the other region has a cluster of that name, the group would get a second scaling group there.
    #[tokio::test]
    async fn nothing_is_created_in_another_region_than_the_nodes() {
        let plan = plan(json!({}), vec![node("eu-west-1a", "True", json!({}))], &["demo"]).await;
        assert_blocked(&plan, &["eu-west-1a", "us-west-2", "AWS_REGION"]);
    }

    /// The last node of the other region is gone, or no longer Ready.
    #[test]
    fn cluster_is_where_its_ready_nodes_are() {
        let index = NodeIndex::default();
        let (here, elsewhere) = (node("us-west-2a", "True", OWN), node("eu-west-1a", "True", OWN));
        assert_eq!(index.cluster_outside_of("us-west-2"), None, "no node, no proof");
        index.apply(&elsewhere);
        assert_eq!(index.cluster_outside_of("us-west-2").as_deref(), Some("eu-west-1a"));
        index.apply(&here);
        assert_eq!(index.cluster_outside_of("us-west-2"), None);
        index.apply(&node("us-west-2a", "False", OWN));
        assert_eq!(index.cluster_outside_of("us-west-2").as_deref(), Some("eu-west-1a"));
        let Event::Apply(gone) = elsewhere else { unreachable!() };
        index.apply(&Event::Delete(gone));
        assert_eq!(index.cluster_outside_of("us-west-2"), None);
    }
}
