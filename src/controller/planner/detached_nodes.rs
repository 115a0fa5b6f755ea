//! Undoes what the controller did to nodes whose instances left their scaling group in the middle of a drain. A user
//! detached them, and nothing else would ever uncordon them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Planner, Planning};
use crate::api::GroupId;
use crate::aws::AwsResult;
use crate::aws::error::none_if_not_found;
use crate::plan::{NodeStep, PlannedStep, UncordonReason};
use crate::provisioner::observe::Observer;
use crate::rotation::NodeView;

/// The most instances that one call describes.
pub(super) const MAX_INSTANCES: usize = 100;

impl Planner {
    /// Adds steps that uncordon the nodes of detached instances. AWS is read only while a Ready node with a record of
    /// the group is in no scaling group that was read. The next pass repeats what AWS does not answer.
    pub(super) async fn uncordon_detached_nodes(&self, id: &GroupId, observer: &Observer<'_>, planning: &mut Planning) {
        let mut left = self.node_index.instances_with_records_of(&id.uid);
        // A terminated instance has no Ready node for long.
        left.retain(|(instance, node)| node.ready && self.inventory.group_of_instance(instance).is_none());
        left.truncate(MAX_INSTANCES);
        if left.is_empty() {
            return;
        }
        let ids: Vec<_> = left.iter().map(|(instance, _)| instance.clone()).collect();
        match self.detached_instances(&ids, observer.max_cache_age).await {
            Ok(detached) => {
                let nodes = left.into_iter().filter(|(instance, _)| detached.contains(instance));
                let steps: Vec<_> = nodes.flat_map(|(_, node)| undo_steps(&node, &id.uid)).collect();
                planning.plan.steps.splice(0..0, steps.into_iter().map(PlannedStep::from));
            }
            Err(error) => tracing::warn!(group = %id.key(), %error, "cannot read whether instances were detached"),
        }
    }

    /// Those of the instances that run and belong to no scaling group.
    async fn detached_instances(&self, ids: &[String], max_age: Duration) -> AwsResult<BTreeSet<String>> {
        let ec2 = &self.inventory.aws().ec2;
        let mut detached: BTreeSet<_> = ec2.running_instances(ids).await?.into_iter().collect();
        if detached.is_empty() {
            return Ok(detached);
        }
        // The plan may have ended before their scaling group was read.
        for (instance, scaling_group) in ec2.scaling_groups_of(ids).await? {
            if self.is_in_scaling_group(&scaling_group, &instance, max_age).await? {
                detached.remove(&instance);
            }
        }
        Ok(detached)
    }

    /// Whether an instance is in a scaling group, or was returned to its warm pool.
    async fn is_in_scaling_group(&self, scaling_group: &str, instance: &str, max_age: Duration) -> AwsResult<bool> {
        let Some(found) = self.inventory.group(scaling_group, max_age).await? else { return Ok(false) };
        if found.instances.iter().any(|member| member.id == instance) {
            return Ok(true);
        }
        let pool = none_if_not_found(self.inventory.warm_pool(scaling_group, max_age).await)?;
        Ok(pool.iter().flat_map(|pool| pool.iter()).any(|warm| warm.instance.id == instance))
    }
}

fn undo_steps(node: &NodeView, uid: &str) -> Vec<NodeStep> {
    let is_own = node.disruption.as_ref().is_some_and(|record| record.group == uid);
    let uncordon = NodeStep::UncordonNode { node: node.name.clone(), reason: UncordonReason::InstanceDetached };
    let surge = node.surge.as_ref().filter(|record| record.group == uid);
    let clear = surge.map(|record| NodeStep::ClearSurge { node: node.name.clone(), since: record.since });
    is_own.then_some(uncordon).into_iter().chain(clear).collect()
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
        let observer = planner.observer(&context, Duration::ZERO, Timestamp::UNIX_EPOCH);
        let mut planning = blocked(&id, Reason::InvalidSpec, String::new());
        planner.uncordon_detached_nodes(&id, &observer, &mut planning).await;
        let steps = planning.plan.steps.iter().map(|planned| match &planned.step {
            Step::Node(NodeStep::UncordonNode { node, reason: UncordonReason::InstanceDetached }) => {
                format!("uncordon {node}")
            }
            Step::Node(NodeStep::ClearSurge { node, .. }) => format!("clear {node}"),
            other => panic!("{other:?}"),
        });
        steps.collect()
    }

    /// The node of an instance that a user detaches in the middle of its drain would stay cordoned forever.
    #[tokio::test]
    async fn node_of_a_detached_instance_is_uncordoned() {
        let both = ["i-1", "i-2"];
        assert_eq!(steps(&both, &both, None).await, [""; 0], "the rotation continues");
        assert_eq!(steps(&["i-2"], &both, None).await, ["uncordon i-1"]);
        assert_eq!(steps(&[], &both, None).await, ["uncordon i-1", "clear i-2"]);
        assert_eq!(steps(&[], &[], None).await, [""; 0], "they were terminated");
    }

    /// A missing answer proves nothing about the instance.
    #[tokio::test]
    async fn node_stays_cordoned_while_aws_does_not_answer() {
        let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", "InternalFailure", "no", 500);
        assert_eq!(steps(&[], &["i-1", "i-2"], Some(failure)).await, [""; 0]);
    }
}
