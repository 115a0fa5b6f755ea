//! Undoes what the controller did to nodes whose instances left their scaling group in the middle of a drain. A user
//! detached them, and nothing else would ever uncordon them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::{Planner, Planning, kind_of};
use crate::api::{GroupId, InstanceGroupStatus, ProvisionerKind};
use crate::aws::error::none_if_not_found;
use crate::aws::{AwsError, AwsErrorKind, AwsResult, ScalingGroup};
use crate::ownership::OWNERSHIP_TAG_KEYS;
use crate::plan::{NodeStep, Outcome, PlannedStep, UncordonReason};
use crate::provisioner::observe::{ObserveError, ObserveResult};
use crate::rotation::NodeView;

/// The most instances that one call describes.
pub(super) const MAX_INSTANCES: usize = 100;

impl Planner {
    /// Adds steps that uncordon the nodes of detached instances. AWS is read only while a Ready node with a record of
    /// the group is not in the group's scaling group as it was last read. The present tags of another scaling group say
    /// whose it is. The next reconcile repeats what AWS does not answer. The last one of a deletion reads all nodes with a
    /// record: after it, nobody looks at them.
    ///
    /// # Errors
    /// AWS did not answer, and the plan is the last one of a deletion.
    pub(super) async fn uncordon_detached_nodes(
        &self,
        id: &GroupId,
        status: Option<&InstanceGroupStatus>,
        planning: &mut Planning,
        now: Timestamp,
    ) -> ObserveResult<()> {
        let is_last = planning.plan.outcome == Outcome::Deleted;
        let own = if is_last { OwnScalingGroup::Deleted } else { OwnScalingGroup::find(status) };
        // Without the finalizer, nothing waits for an answer.
        let is_required = is_last && id.has_finalizer;
        let mut left = self.node_index.instances_with_records_of(&id.uid);
        // A terminated instance has no Ready node for long. What the controller has just terminated, no user detached.
        left.retain(|(instance, node)| is_last || node.ready && !self.has_just_terminated(instance, now));
        let (foreign, failure) = self.foreign_scaling_groups(&left, own).await;
        failure.map_or(Ok(()), |error| unread(id, error, is_required))?;
        let group_of = |instance: &str| self.inventory.group_of_instance(instance);
        left.retain(|(instance, _)| group_of(instance).is_none_or(|group| foreign.contains(&group)));
        let batches = if is_last { usize::MAX } else { 1 };
        for left in left.chunks(MAX_INSTANCES).take(batches) {
            let ids: Vec<_> = left.iter().map(|(instance, _)| instance.clone()).collect();
            match self.detached_instances(&ids, own).await {
                Ok(detached) => {
                    let nodes = left.iter().filter(|(instance, _)| detached.contains(instance));
                    let steps: Vec<_> = nodes.flat_map(|(_, node)| undo_steps(node, &id.uid)).collect();
                    planning.plan.steps.splice(0..0, steps.into_iter().map(PlannedStep::from));
                }
                Err(error) => unread(id, error, is_required)?,
            }
        }
        Ok(())
    }

    /// Whether this process sent a termination of the instance so short a time ago that its Node may still be there.
    fn has_just_terminated(&self, instance: &str, now: Timestamp) -> bool {
        let sent_at = self.process_state.termination_sent_at(instance);
        sent_at.is_some_and(|at| now.duration_since(at).abs() < self.settings.timing.decrement_interval)
    }

    /// Those of the instances' scaling groups that are of no InstanceGroup, and an error if AWS did not say it of one.
    async fn foreign_scaling_groups(
        &self,
        instances: &[(String, NodeView)],
        own: OwnScalingGroup<'_>,
    ) -> (BTreeSet<String>, Option<AwsError>) {
        let names: BTreeSet<_> = instances.iter().filter_map(|(id, _)| self.inventory.group_of_instance(id)).collect();
        let (mut foreign, mut failure) = (BTreeSet::new(), None);
        for name in names {
            if own.may_be(&name) {
                continue;
            }
            match self.inventory.group(&name, Duration::ZERO).await {
                Ok(Some(found)) if !may_be_of_instance_group(&found, own) => _ = foreign.insert(name),
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        (foreign, failure)
    }

    /// Those of the instances that run and belong to no scaling group of an InstanceGroup.
    async fn detached_instances(&self, ids: &[String], own: OwnScalingGroup<'_>) -> AwsResult<BTreeSet<String>> {
        let ec2 = &self.inventory.aws().ec2;
        let mut detached: BTreeSet<_> = ec2.running_instances(ids).await?.into_iter().collect();
        if detached.is_empty() {
            return Ok(detached);
        }
        // The plan may have ended before their scaling group was read.
        for (instance, scaling_group) in ec2.scaling_groups_of(ids).await? {
            if self.is_in_scaling_group(&scaling_group, own, &instance).await? {
                detached.remove(&instance);
            }
        }
        Ok(detached)
    }

    /// Whether an instance is in a scaling group of an InstanceGroup, or was returned to its warm pool.
    async fn is_in_scaling_group(
        &self,
        scaling_group: &str,
        own: OwnScalingGroup<'_>,
        instance: &str,
    ) -> AwsResult<bool> {
        let found = self.inventory.group(scaling_group, Duration::ZERO).await?;
        let Some(found) = found.filter(|found| may_be_of_instance_group(found, own)) else { return Ok(false) };
        if found.instances.iter().any(|member| member.id == instance) {
            return Ok(true);
        }
        let pool = none_if_not_found(self.inventory.warm_pool(scaling_group, Duration::ZERO).await)?;
        Ok(pool.iter().flat_map(|pool| pool.iter()).any(|warm| warm.instance.id == instance))
    }
}

/// What is known of the group's own scaling group.
#[derive(Clone, Copy)]
enum OwnScalingGroup<'a> {
    /// The status records its name.
    Recorded(&'a str),
    /// Nothing records it: EKS names those of a managed node group. Any may be it.
    Unknown,
    /// It is deleted. One that the deletion left is not the group's any more: its present tags say so.
    Deleted,
}

impl<'a> OwnScalingGroup<'a> {
    fn find(status: Option<&'a InstanceGroupStatus>) -> Self {
        let status = status.filter(|status| kind_of(status) == ProvisionerKind::Eks);
        let name = status.and_then(|status| status.active_scaling_group_name.as_deref());
        name.filter(|name| !name.is_empty()).map_or(Self::Unknown, Self::Recorded)
    }

    fn may_be(self, name: &str) -> bool {
        match self {
            Self::Recorded(own) => own == name,
            Self::Unknown => true,
            Self::Deleted => false,
        }
    }
}

/// Whether a scaling group may be the group's own, or its tags name an InstanceGroup or a managed node group.
fn may_be_of_instance_group(found: &ScalingGroup, own: OwnScalingGroup<'_>) -> bool {
    let is_of_other = |key: &str| OWNERSHIP_TAG_KEYS.contains(&key) || key.starts_with("eks:");
    own.may_be(&found.name) || found.tags.iter().any(|tag| is_of_other(tag.key.as_str()))
}

/// What follows from an error: a deletion does not end before AWS answers. It ends if the controller may not ask.
fn unread(id: &GroupId, error: AwsError, is_required: bool) -> ObserveResult<()> {
    if is_required && error.kind != AwsErrorKind::Denied {
        return Err(ObserveError::Aws(error));
    }
    tracing::warn!(group = %id.key(), %error, "cannot read whether instances were detached");
    Ok(())
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

    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::super::blocked;
    use super::*;
    use crate::api::names::FINALIZER;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::{instance, scaling_group};
    use crate::aws::{AwsError, Tag};
    use crate::controller::fake;
    use crate::index::nodes::NodeIndex;
    use crate::plan::{StalledReason, Step};

    fn with_members(name: &str, members: &[&str]) -> ScalingGroup {
        ScalingGroup { instances: members.iter().map(|id| instance(id)).collect(), ..scaling_group(name) }
    }

    /// The steps for a group that drains `i-1` and has put `i-2` into standby. Its scaling group has the instances `members`.
    async fn steps(members: &[&str], running: &[&str], failure: Option<AwsError>) -> Vec<String> {
        steps_among(vec![with_members("demo-team-web", members)], None, running, failure).await
    }

    /// The steps for the same group with this status, among these scaling groups. Two passes plan the same.
    async fn steps_among(
        groups: Vec<ScalingGroup>,
        status: Option<InstanceGroupStatus>,
        running: &[&str],
        failure: Option<AwsError>,
    ) -> Vec<String> {
        let (_, planner) = planner_among(groups, running, failure);
        steps_of(&planner, status).await
    }

    fn planner_among(
        groups: Vec<ScalingGroup>,
        running: &[&str],
        failure: Option<AwsError>,
    ) -> (Arc<FakeAws>, Planner) {
        planner_with_nodes(&NODES, groups, running, failure, "True")
    }

    /// The nodes with the records that the controller wrote on them.
    const NODES: [(&str, &str); 2] = [("i-1", "disruption"), ("i-2", "surge")];

    fn planner_with_nodes(
        nodes: &[(&str, &str)],
        groups: Vec<ScalingGroup>,
        running: &[&str],
        failure: Option<AwsError>,
        ready: &str,
    ) -> (Arc<FakeAws>, Planner) {
        let node_index = NodeIndex::default();
        for &(instance, annotation) in nodes {
            let record = json!({"group": "own", "templateVersion": "2", "since": "2026-01-01T00:00:00Z"}).to_string();
            let node = json!({
                "metadata": {"name": instance, "annotations": {format!("instancemgr.keikoproj.io/{annotation}"): record}},
                "spec": {"unschedulable": annotation == "disruption", "providerID": format!("aws:///us-west-2a/{instance}")},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            node_index.apply(&Event::Apply(serde_json::from_value::<Node>(node).expect("a Node")));
        }
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| {
            state.groups.extend(groups.into_iter().map(|group| (group.name.clone(), group)));
            state.instances = running.iter().map(|id| ((*id).to_owned(), String::new())).collect();
            state.failure = failure;
        });
        let planner = fake::planner(&aws, crate::k8s::fake::client(|_| panic!("no call")), node_index);
        (aws, planner)
    }

    fn own_group() -> GroupId {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        (group.metadata.namespace, group.metadata.uid) = (Some("team".into()), Some("own".into()));
        group.metadata.finalizers = Some(vec![FINALIZER.into()]);
        group_id(&group)
    }

    async fn steps_of(planner: &Planner, status: Option<InstanceGroupStatus>) -> Vec<String> {
        steps_before(Outcome::Converged, planner, status).await.expect("an answer is not waited for")
    }

    /// The steps that are added to a plan with this outcome.
    async fn steps_before(
        outcome: Outcome,
        planner: &Planner,
        status: Option<InstanceGroupStatus>,
    ) -> ObserveResult<Vec<String>> {
        let id = &own_group();
        let pass = async || {
            let mut planning = blocked(id, StalledReason::InvalidSpec, String::new());
            planning.plan.outcome = outcome.clone();
            planner.uncordon_detached_nodes(id, status.as_ref(), &mut planning, Timestamp::now()).await?;
            Ok(planning.plan.steps)
        };
        let planned = pass().await?;
        assert_eq!(pass().await?, planned, "the first pass may not have been applied");
        let steps = planned.iter().map(|planned| match &planned.step {
            Step::Node(NodeStep::UncordonNode { node, reason: UncordonReason::InstanceDetached }) => {
                format!("uncordon {node}")
            }
            Step::Node(NodeStep::ClearSurge { node, .. }) => format!("clear {node}"),
            other => panic!("{other:?}"),
        });
        Ok(steps.collect())
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

    /// A rotation of thousands of groups would otherwise ask EC2 about each instance that it has just terminated.
    #[tokio::test]
    async fn instance_that_the_controller_terminated_is_not_read() {
        let (_, planner) = planner_among(vec![with_members("demo-team-web", &["i-2"])], &["i-1", "i-2"], None);
        let interval = planner.settings.timing.decrement_interval;
        planner.process_state.record_termination("i-1", interval, Timestamp::now() - interval);
        assert_eq!(steps_of(&planner, None).await, ["uncordon i-1"], "it did not take");
        planner.process_state.record_termination("i-1", interval, Timestamp::now());
        assert_eq!(steps_of(&planner, None).await, [""; 0]);
    }

    /// The last pass of a deletion is the last one that could find out that AWS lost a termination. Nobody would uncordon
    /// the node afterwards.
    #[tokio::test]
    async fn end_of_a_deletion_reads_also_what_the_controller_has_just_terminated() {
        let (_, planner) = planner_among(vec![], &["i-1"], None);
        planner.process_state.record_termination("i-1", planner.settings.timing.decrement_interval, Timestamp::now());
        assert_eq!(steps_before(Outcome::Deleted, &planner, None).await.expect("an answer"), ["uncordon i-1"]);
    }

    /// A user detaches a node that is NotReady to look into it, and the group is deleted. Once its kubelet reports again, the
    /// node would stay cordoned.
    #[tokio::test]
    async fn end_of_a_deletion_uncordons_a_detached_node_that_is_not_ready() {
        let (_, planner) = planner_with_nodes(&NODES, vec![], &["i-1", "i-2"], None, "False");
        assert_eq!(steps_of(&planner, None).await, [""; 0], "it may be terminating");
        let steps = steps_before(Outcome::Deleted, &planner, None).await.expect("an answer");
        assert_eq!(steps, ["uncordon i-1", "clear i-2"]);
    }

    /// No later reconcile would ask again. An admin who does not grant the call must be able to delete groups.
    #[tokio::test]
    async fn deletion_does_not_end_before_aws_says_what_was_detached() {
        let status = || InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            provisioner: Some("eks".into()),
            ..InstanceGroupStatus::default()
        };
        for (code, http, ends) in
            [("Throttling", 400, false), ("InternalFailure", 500, false), ("AccessDenied", 403, true)]
        {
            let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", code, "no", http);
            let (aws, planner) = planner_among(vec![with_members("others", &["i-1"])], &["i-1", "i-2"], None);
            // The inventory knows whose it was when the group was observed.
            planner.inventory.group("others", Duration::ZERO).await.expect("an answer");
            aws.update(|state| state.failure = Some(failure.clone()));
            let result = steps_before(Outcome::Deleted, &planner, Some(status())).await;
            assert_eq!(result.is_ok(), ends, "{code}: {result:?}");
            let (_, planner) = planner_among(vec![], &["i-1", "i-2"], Some(failure));
            let result = steps_before(Outcome::Deleted, &planner, Some(status())).await;
            assert_eq!(result.is_ok(), ends, "{code}, in no scaling group: {result:?}");
        }
    }

    /// A user takes a scaling group over by removing all of its tags, and the deletion leaves it. Its nodes were cordoned for
    /// the deletion.
    #[tokio::test]
    async fn end_of_a_deletion_uncordons_the_nodes_of_a_scaling_group_that_it_leaves() {
        let status = || InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            provisioner: Some("eks".into()),
            ..InstanceGroupStatus::default()
        };
        let tagged = vec![Tag { key: OWNERSHIP_TAG_KEYS[0].into(), value: "x".into() }];
        for (tags, expected) in [(vec![], vec!["uncordon i-1", "clear i-2"]), (tagged, vec![])] {
            let group = ScalingGroup { tags: tags.clone(), ..with_members("demo-team-web", &["i-1", "i-2"]) };
            for is_known in [true, false] {
                let (_, planner) = planner_among(vec![group.clone()], &["i-1", "i-2"], None);
                if is_known {
                    planner.inventory.group("demo-team-web", Duration::ZERO).await.expect("an answer");
                }
                let steps = steps_before(Outcome::Deleted, &planner, Some(status())).await.expect("an answer");
                assert_eq!(steps, expected, "{tags:?} {is_known}");
            }
        }
    }

    /// EC2 is asked about a hundred instances at a time.
    #[tokio::test]
    async fn end_of_a_deletion_uncordons_however_many_nodes_were_detached() {
        let ids: Vec<_> = (0..=MAX_INSTANCES).map(|number| format!("i-{number}")).collect();
        let nodes: Vec<_> = ids.iter().map(|id| (id.as_str(), "disruption")).collect();
        let running: Vec<_> = ids.iter().map(String::as_str).collect();
        let (_, planner) = planner_with_nodes(&nodes, vec![], &running, None, "True");
        assert_eq!(steps_before(Outcome::Deleted, &planner, None).await.expect("an answer").len(), ids.len());
    }

    /// A user who keeps the instance attaches it elsewhere. No group would ever uncordon its node there.
    #[tokio::test]
    async fn node_in_a_scaling_group_of_no_instance_group_is_uncordoned() {
        let tagged = |key: &str| {
            let tags = vec![Tag { key: key.into(), value: "x".into() }];
            ScalingGroup { tags, ..with_members("others", &["i-1"]) }
        };
        let status = |provisioner: &str| InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            provisioner: Some(provisioner.into()),
            ..InstanceGroupStatus::default()
        };
        for (other, provisioner, expected) in [
            (tagged("owner"), "eks", vec!["uncordon i-1"]),
            (tagged("instancegroups.keikoproj.io/InstanceGroup"), "eks", vec![]),
            (tagged("eks:nodegroup-name"), "eks", vec![]),
            (tagged("owner"), "eks-managed", vec![]),
        ] {
            let tags = other.tags.clone();
            let groups = vec![with_members("demo-team-web", &["i-2"]), other];
            let found = steps_among(groups, Some(status(provisioner)), &["i-1", "i-2"], None).await;
            assert_eq!(found, expected, "{tags:?} {provisioner}");
        }
        let own = vec![with_members("demo-team-web", &["i-1", "i-2"])];
        let found = steps_among(own, Some(status("eks")), &["i-1", "i-2"], None).await;
        assert_eq!(found, [""; 0], "the rotation continues");
    }

    /// Nobody else reads the scaling group of an InstanceGroup that is gone, so an earlier answer would count forever.
    #[tokio::test]
    async fn scaling_group_that_left_its_instance_group_is_known_by_its_present_tags() {
        let tags = vec![Tag { key: "instancegroups.keikoproj.io/InstanceGroup".into(), value: "x".into() }];
        let others = ScalingGroup { tags, ..with_members("others", &["i-1"]) };
        let groups = vec![with_members("demo-team-web", &["i-2"]), others];
        let (aws, planner) = planner_among(groups, &["i-1", "i-2"], None);
        let status = InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            provisioner: Some("eks".into()),
            ..InstanceGroupStatus::default()
        };
        assert_eq!(steps_of(&planner, Some(status.clone())).await, [""; 0], "it is of another InstanceGroup");
        aws.update(|state| state.groups.get_mut("others").expect("a scaling group").tags.clear());
        assert_eq!(steps_of(&planner, Some(status)).await, ["uncordon i-1"]);
    }

    /// A missing answer proves nothing about the instance.
    #[tokio::test]
    async fn node_stays_cordoned_while_aws_does_not_answer() {
        let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", "InternalFailure", "no", 500);
        assert_eq!(steps(&[], &["i-1", "i-2"], Some(failure)).await, [""; 0]);
    }
}
