//! Undoes what the controller did to nodes whose instances left their scaling group in the middle of a drain. A person
//! detached them, and nothing else would ever uncordon them.

use std::collections::BTreeSet;

use super::{Planner, Planning, kind_of};
use crate::api::{GroupId, InstanceGroupStatus, ProvisionerKind};
use crate::aws::AwsResult;
use crate::aws::error::none_if_not_found;
use crate::plan::{NodeStep, PlannedStep, UncordonReason};
use crate::provisioner::observe::Observer;
use crate::rotation::NodeView;

/// The most instances that one call describes.
const MAX_INSTANCES: usize = 100;

impl Planner {
    /// Adds steps that uncordon the nodes of detached instances. AWS is asked only while a Ready node with a record of the
    /// group is in no scaling group. The next pass repeats what AWS does not answer.
    pub(super) async fn uncordon_detached_nodes(
        &self,
        id: &GroupId,
        status: &InstanceGroupStatus,
        observer: &Observer<'_>,
        planning: &mut Planning,
    ) {
        let is_observed = match kind_of(status) {
            ProvisionerKind::Eks => true,
            // Its scaling groups were read for the plan. While EKS deletes a node group, they are not, and EKS drains.
            ProvisionerKind::EksManaged => planning.snapshot.is_some() && !id.is_deleting(),
            ProvisionerKind::EksFargate => false,
        };
        let mut recorded = self.node_index.instances_with_records_of(&id.uid);
        // A terminated instance has no Ready node for long.
        recorded.retain(|(_, node)| node.ready);
        if !is_observed || recorded.is_empty() {
            return;
        }
        match self.detached_instances(status, observer, &recorded).await {
            Ok(detached) => {
                let nodes = recorded.into_iter().filter(|(instance, _)| detached.contains(instance));
                let steps: Vec<_> = nodes.flat_map(|(_, node)| undo_steps(&node, &id.uid)).collect();
                planning.plan.steps.splice(0..0, steps.into_iter().map(PlannedStep::from));
            }
            Err(error) => tracing::warn!(group = %id.key(), %error, "cannot read whether instances were detached"),
        }
    }

    /// The instances that run, belong to no scaling group, and were not returned to the warm pool.
    async fn detached_instances(
        &self,
        status: &InstanceGroupStatus,
        observer: &Observer<'_>,
        recorded: &[(String, NodeView)],
    ) -> AwsResult<BTreeSet<String>> {
        let (inventory, max_age) = (&self.inventory, observer.max_cache_age);
        let scaling_group = match kind_of(status) {
            ProvisionerKind::Eks => status.active_scaling_group_name.as_deref().filter(|name| !name.is_empty()),
            ProvisionerKind::EksManaged | ProvisionerKind::EksFargate => None,
        };
        if let Some(name) = scaling_group {
            // The plan may have ended before it was read.
            inventory.group(name, max_age).await?;
        }
        let ids = recorded.iter().map(|(instance, _)| instance.clone());
        let left: Vec<_> = ids.filter(|id| inventory.group_of_instance(id).is_none()).take(MAX_INSTANCES).collect();
        if left.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut detached: BTreeSet<_> = inventory.aws().ec2.running_instances(&left).await?.into_iter().collect();
        if let Some(name) = scaling_group.filter(|_| !detached.is_empty()) {
            let pool = none_if_not_found(inventory.warm_pool(name, max_age).await)?;
            for warm in pool.iter().flat_map(|pool| pool.iter()) {
                detached.remove(&warm.instance.id);
            }
        }
        Ok(detached)
    }
}

fn undo_steps(node: &NodeView, uid: &str) -> Vec<NodeStep> {
    let is_own = node.disruption.as_ref().is_some_and(|record| record.group == uid);
    let uncordon = NodeStep::UncordonNode { node: node.name.clone(), reason: UncordonReason::InstanceDetached };
    let is_surged = node.surge.as_ref().is_some_and(|record| record.group == uid);
    let clear = NodeStep::ClearSurge { node: node.name.clone() };
    is_own.then_some(uncordon).into_iter().chain(is_surged.then_some(clear)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::super::{GroupContext, blocked};
    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::{instance, scaling_group};
    use crate::aws::{AwsError, ScalingGroup};
    use crate::controller::fake;
    use crate::index::nodes::NodeIndex;
    use crate::plan::{Reason, Step};

    /// The steps for a group that drains `i-1` and has put `i-2` into standby. Its scaling group has the instances `members`.
    async fn steps(members: &[&str], running: &[&str], failure: Option<AwsError>) -> Vec<String> {
        let node_index = NodeIndex::default();
        for (instance, annotation) in [("i-1", "disruption"), ("i-2", "surge")] {
            let record = json!({"group": "own", "templateVersion": "2", "since": "2026-01-01T00:00:00Z"}).to_string();
            let node = json!({
                "metadata": {"name": instance, "annotations": {format!("instancemgr.keikoproj.io/{annotation}"): record}},
                "spec": {"unschedulable": annotation == "disruption", "providerID": format!("aws:///us-west-2a/{instance}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            node_index.apply(&Event::Apply(serde_json::from_value::<Node>(node).expect("a Node")));
        }
        let aws = Arc::new(FakeAws::default());
        let group = ScalingGroup {
            instances: members.iter().map(|id| instance(id)).collect(),
            ..scaling_group("demo-team-web")
        };
        aws.update(|state| {
            state.groups.insert(group.name.clone(), group);
            state.instances = running.iter().map(|id| ((*id).to_owned(), String::new())).collect();
            state.failure = failure;
        });
        let planner = fake::planner(&aws, crate::k8s::fake::client(|_| panic!("no call")), node_index);
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        (group.metadata.namespace, group.metadata.uid) = (Some("team".into()), Some("own".into()));
        let (id, context) = (group_id(&group), GroupContext::default());
        let status = json!({"activeScalingGroupName": "demo-team-web"});
        let status = serde_json::from_value(status).expect("a status");
        let observer = planner.observer(&context, Duration::ZERO, Timestamp::UNIX_EPOCH);
        let mut planning = blocked(&id, Reason::InvalidSpec, String::new());
        planner.uncordon_detached_nodes(&id, &status, &observer, &mut planning).await;
        let steps = planning.plan.steps.iter().map(|planned| match &planned.step {
            Step::Node(NodeStep::UncordonNode { node, reason: UncordonReason::InstanceDetached }) => {
                format!("uncordon {node}")
            }
            Step::Node(NodeStep::ClearSurge { node }) => format!("clear {node}"),
            other => panic!("{other:?}"),
        });
        steps.collect()
    }

    /// The node of an instance that a person detaches in the middle of its drain would stay cordoned forever.
    #[tokio::test]
    async fn node_of_a_detached_instance_is_uncordoned() {
        let both = ["i-1", "i-2"];
        assert_eq!(steps(&both, &both, None).await, [""; 0], "the rotation continues");
        assert_eq!(steps(&["i-2"], &both, None).await, ["uncordon i-1"]);
        assert_eq!(steps(&[], &both, None).await, ["uncordon i-1", "clear i-2"]);
        assert_eq!(steps(&[], &[], None).await, [""; 0], "they were terminated");
    }

    /// An answer that is missing says nothing about the instance.
    #[tokio::test]
    async fn node_stays_cordoned_while_aws_does_not_answer() {
        let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", "InternalFailure", "no", 500);
        assert_eq!(steps(&[], &["i-1", "i-2"], Some(failure)).await, [""; 0]);
    }
}
