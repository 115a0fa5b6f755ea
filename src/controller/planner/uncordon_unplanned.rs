//! Stops drains of groups that cannot be planned, because their nodes must not stay cordoned. Either the spec was
//! rejected during a rotation, or a lock was set while AWS does not answer.

use jiff::{SignedDuration, Timestamp};

use super::{GroupContext, Planner, Planning, kind_of};
use crate::api::names::fail_reason;
use crate::api::{GroupId, InstanceGroupStatus};
use crate::aws::AwsErrorKind;
use crate::plan::{NodeStep, Outcome, Phase, Plan, PlanBuilder, PlannedStep, StalledReason, UncordonReason, waiting};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, pods_on_node};
use crate::provisioner::{StopRequest, dispatch};
use crate::rotation::NodeView;
use crate::rotation::rolling_update::RollingUpdateDecision;

impl Planner {
    /// Adds to the plan of a rejected group what stops its rotation. If no drain can be its own, nothing is read. The next
    /// pass retries a failed read, so the rejection is always reported.
    pub(crate) async fn stop_rotation(
        &self,
        id: &GroupId,
        status: &InstanceGroupStatus,
        context: &GroupContext,
        observer: &Observer<'_>,
        mut plan: Plan,
    ) -> Plan {
        if id.is_deleting() || !self.node_index.may_have_drains_of(&id.uid, &id.key()) {
            return plan;
        }
        let request = StopRequest { id, status, lock: context.lock.as_deref(), settings: &self.settings };
        let provisioner = dispatch::for_kind(kind_of(status));
        let decision = match provisioner.recorded_cluster(id, status) {
            Some(_) => provisioner.stop_rotation(observer, request).await,
            // The status was lost: it does not say where the nodes are. Their records say who cordoned them.
            None => self.stop_drains(id, observer, UncordonReason::GroupRejected).await,
        };
        let recheck_at = Some(observer.now + self.settings.timing.poll_interval);
        let decision = match decision {
            // The drains that are in progress end without AWS.
            Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {
                self.stop_drains(id, observer, UncordonReason::RotationBlocked).await
            }
            other => other,
        };
        let decision = match decision {
            // The drains are of other groups.
            Ok(decision) if decision.steps.is_empty() && !self.node_index.has_records_of(&id.uid) => return plan,
            Ok(decision) => decision,
            Err(error) => {
                tracing::warn!(group = %id.key(), %error, "cannot stop the rotation of a rejected group yet");
                return Plan { recheck_at, ..plan };
            }
        };
        plan.recheck_at = recheck_at;
        let allowed = |step: &NodeStep| !is_boundaries_missing(&plan) || !step_needs_aws(step);
        let steps: Vec<_> = decision.steps.into_iter().filter(allowed).map(PlannedStep::from).collect();
        if let Outcome::Blocked { message, .. } = &mut plan.outcome {
            let waiting = match decision.waiting_for.is_empty() {
                true => String::new(),
                false => format!("; waiting for {}", decision.waiting_for.join("; ")),
            };
            *message += &format!("; the rotation stops, and nodes that it cordoned are uncordoned{waiting}");
        }
        plan.steps.extend(steps);
        plan
    }

    /// The plan of a group while AWS has not answered for `outage`: nodes whose drain is in progress are uncordoned, at
    /// once under a lock, and otherwise after a limit. `None` before that, or without such a node.
    pub(crate) async fn stop_unobserved_drains(
        &self,
        id: &GroupId,
        context: &GroupContext,
        error: &ObserveError,
        outage: SignedDuration,
        now: Timestamp,
    ) -> ObserveResult<Option<Planning>> {
        let (reason, outcome) = match &context.lock {
            _ if id.is_deleting() => return Ok(None),
            Some(lock) => {
                let message = format!("drains are reverted because of {lock}; AWS could not be read: {error}");
                (UncordonReason::Locked, Outcome::Locked { message })
            }
            None if outage >= self.settings.timing.pause_limit => {
                let message = format!(
                    "AWS could not be read for {}: {error}; nodes whose drain was in progress are uncordoned, and drained again when AWS answers",
                    crate::util::duration::format(outage)
                );
                (UncordonReason::RotationBlocked, waiting(Phase::Rotating, message))
            }
            None => return Ok(None),
        };
        let observer = self.observer(context, std::time::Duration::MAX, now);
        let steps = self.uncordon_drains(id, &observer, reason).await?;
        if steps.is_empty() {
            return Ok(None);
        }
        let mut builder = PlanBuilder::default();
        steps.into_iter().for_each(|step| builder.push(step));
        builder.set_outcome_once(outcome);
        let plan = builder.build(id, Some(now + self.settings.timing.poll_interval));
        Ok(Some(Planning::blocked(plan, fail_reason::HANDLE_RECONCILE)))
    }

    /// Ends the drains that are in progress, without AWS.
    async fn stop_drains(
        &self,
        id: &GroupId,
        observer: &Observer<'_>,
        reason: UncordonReason,
    ) -> ObserveResult<RollingUpdateDecision> {
        let steps = self.uncordon_drains(id, observer, reason).await?;
        Ok(RollingUpdateDecision { steps, ..RollingUpdateDecision::default() })
    }

    /// Uncordons the nodes whose drain is in progress. A node without pods stays cordoned, because its instance may be
    /// terminating.
    async fn uncordon_drains(
        &self,
        id: &GroupId,
        observer: &Observer<'_>,
        reason: UncordonReason,
    ) -> ObserveResult<Vec<NodeStep>> {
        let mut steps = Vec::new();
        for node in self.node_index.with_records_of(&id.uid) {
            if is_draining(observer, id, &node).await? {
                steps.push(NodeStep::UncordonNode { node: node.name, reason });
            }
        }
        Ok(steps)
    }
}

/// Whether the drain of a node is in progress, from the API server: Ready and cordoned by the group, with pods to evict.
async fn is_draining(o: &Observer<'_>, id: &GroupId, node: &NodeView) -> Result<bool, ObserveError> {
    let is_cordoned = node.disruption.as_ref().is_some_and(|record| record.group == id.uid) && node.ready;
    if !is_cordoned {
        return Ok(false);
    }
    let pods = pods_on_node(o, &node.name).await?;
    Ok(pods.iter().any(|pod| !pod.is_ignored && !pod.is_finished && !pod.is_terminating))
}

/// Whether nothing may be changed in AWS, because the boundaries are unknown.
fn is_boundaries_missing(plan: &Plan) -> bool {
    matches!(plan.outcome, Outcome::Blocked { reason: StalledReason::BoundariesUnavailable, .. })
}

fn step_needs_aws(step: &NodeStep) -> bool {
    matches!(step, NodeStep::EnterStandby { .. } | NodeStep::Terminate { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::label;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::{instance, scaling_group};
    use crate::aws::{AwsError, ScalingGroup, Tag};
    use crate::controller::fake;
    use crate::index::nodes::NodeIndex;
    use crate::index::process_state::ProcessState;
    use crate::k8s::FIELD_MANAGER;
    use crate::ownership::ownership_tags;
    use crate::plan::Step;

    const INSTANCES: [&str; 3] = ["i-busy", "i-empty", "i-other"];

    fn id() -> GroupId {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        group.metadata.uid = Some("own".into());
        group_id(&group)
    }

    /// A cluster in which the group drains `i-busy` and `i-empty`, and another group drains `i-other`. Only `i-empty`
    /// has no pods.
    fn planner(tags: Vec<Tag>) -> Planner {
        planner_with(tags, None)
    }

    /// The same cluster, with an AWS that answers every read with an error.
    fn planner_with(tags: Vec<Tag>, failure: Option<AwsError>) -> Planner {
        let node_index = NodeIndex::default();
        for instance in INSTANCES {
            let uid = if instance == "i-other" { "other" } else { "own" };
            let record = json!({"group": uid, "templateVersion": "2", "since": "2026-01-01T00:00:00Z"}).to_string();
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": instance, "annotations": {"instancemgr.keikoproj.io/disruption": record}},
                "spec": {"unschedulable": true, "providerID": format!("aws:///us-west-2a/{instance}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .expect("a Node");
            node_index.apply(&Event::Apply(node));
        }
        let client = crate::k8s::fake::client(|call| {
            let items = match call.query.contains("i-busy") {
                true => json!([{"metadata": {"name": "web", "namespace": "apps"}}]),
                false => json!([]),
            };
            match call.path.as_str() {
                "/api/v1/pods" => (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})),
                _ => (
                    200,
                    json!({"kind": "VolumeAttachmentList", "apiVersion": "storage.k8s.io/v1", "metadata": {}, "items": []}),
                ),
            }
        });
        let stub = Arc::new(FakeAws::default());
        let group = ScalingGroup {
            desired: 2,
            tags,
            instances: INSTANCES[..2].iter().map(|id| instance(id)).collect(),
            max: 4,
            ..scaling_group("demo-team-web")
        };
        stub.update(|state| {
            state.groups.insert(group.name.clone(), group);
            state.failure = failure;
        });
        fake::planner(&stub, client, node_index)
    }

    fn uncordoned(plan: &Plan) -> Vec<(&str, UncordonReason)> {
        let steps = plan.steps.iter().map(|planned| match &planned.step {
            Step::Node(NodeStep::UncordonNode { node, reason }) => (node.as_str(), *reason),
            other => panic!("{other:?}"),
        });
        steps.collect()
    }

    #[tokio::test]
    async fn locked_drains_in_progress_are_reverted_without_aws() {
        let (planner, now) = (planner(vec![]), Timestamp::UNIX_EPOCH);
        let error = ObserveError::Aws(AwsError::no_response("AutoScaling", "Describe", "Denied", "denied"));
        let mut context = GroupContext::default();
        let zero = SignedDuration::ZERO;
        assert!(planner.stop_unobserved_drains(&id(), &context, &error, zero, now).await.expect("an answer").is_none());
        context.lock = Some("a lock".into());
        let stopped = planner.stop_unobserved_drains(&id(), &context, &error, zero, now).await.expect("an answer");
        let plan = stopped.expect("a plan").plan;
        assert_eq!(uncordoned(&plan), [("i-busy", UncordonReason::Locked)], "the other instance may be terminating");
        assert!(matches!(&plan.outcome, Outcome::Locked { message } if message.contains("a lock")));
    }

    /// Nodes that were cordoned for a drain would be missing in the cluster for as long as the outage of AWS lasts.
    #[tokio::test]
    async fn drains_in_progress_are_reverted_when_an_outage_lasts() {
        let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", "InternalFailure", "no", 500);
        let (planner, context) = (planner(vec![]), GroupContext::default());
        let error = ObserveError::Aws(failure);
        for (outage, expected) in [(119, false), (120, true)] {
            let (id, outage) = (id(), SignedDuration::from_secs(outage));
            let stopped = planner.stop_unobserved_drains(&id, &context, &error, outage, Timestamp::UNIX_EPOCH);
            let plan = stopped.await.expect("an answer").map(|planning| planning.plan);
            assert_eq!(plan.is_some(), expected, "{outage}");
            let Some(plan) = plan else { continue };
            assert_eq!(uncordoned(&plan), [("i-busy", UncordonReason::RotationBlocked)]);
            let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
            assert!(message.contains("for 2m") && message.contains("InternalFailure"), "{message}");
        }
        let mut deleting = id();
        deleting.deletion_requested_at = Some(Timestamp::UNIX_EPOCH);
        let long = SignedDuration::from_hours(1);
        let stopped = planner.stop_unobserved_drains(&deleting, &context, &error, long, Timestamp::UNIX_EPOCH).await;
        assert!(stopped.expect("an answer").is_none(), "a deletion continues");
    }

    #[test]
    fn outage_lasts_from_the_first_failed_read_to_the_first_answer() {
        let state = ProcessState::default();
        let at = |second| Timestamp::from_second(second).expect("a time");
        let track = |is_unobserved, second| state.track_outage("team/web", is_unobserved, at(second)).as_secs();
        assert_eq!([track(true, 10), track(true, 70), track(false, 80), track(true, 90)], [0, 60, 0, 0]);
        assert_eq!(state.track_outage("team/api", true, at(100)).as_secs(), 0);
    }

    #[tokio::test]
    async fn rejected_group_uncordons_the_nodes_of_its_own_scaling_group() {
        let status = InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            ..InstanceGroupStatus::default()
        };
        let stop = async |tags: Vec<Tag>, reason: StalledReason| {
            let (planner, context) = (planner(tags), GroupContext::default());
            let observer =
                planner.observer(&context, std::time::Duration::ZERO, "2026-01-01T00:00:00Z".parse().expect("a time"));
            let rejected = crate::plan::blocked_plan(&id(), reason, "no".into());
            planner.stop_rotation(&id(), &status, &context, &observer, rejected).await
        };
        let tags = ownership_tags("demo", &id());
        let both = [("i-busy", UncordonReason::GroupRejected), ("i-empty", UncordonReason::GroupRejected)];
        for reason in [StalledReason::InvalidSpec, StalledReason::PolicyViolation, StalledReason::BoundariesUnavailable]
        {
            let plan = stop(tags.clone(), reason).await;
            assert_eq!(uncordoned(&plan), both);
            assert!(plan.recheck_at.is_some());
            assert!(matches!(&plan.outcome, Outcome::Blocked { message, .. } if message.contains("are uncordoned")));
        }
        let foreign = stop(vec![], StalledReason::InvalidSpec).await;
        assert_eq!(uncordoned(&foreign), [], "the tags do not prove that the scaling group is the group's");
    }

    /// The Node of `i-busy` with the labels of the group, these annotations, and a cordon of this client.
    fn node_cordoned_by(manager: &str, annotations: &Value) -> Node {
        let owner = json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
        });
        let labels = json!({label::NAMESPACE: "team", label::INSTANCE_GROUP: "web"});
        serde_json::from_value(json!({
            "metadata": {"name": "i-busy", "labels": labels, "annotations": annotations, "managedFields": [owner]},
            "spec": {"unschedulable": true, "providerID": "aws:///us-west-2a/i-busy"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a Node")
    }

    /// A client removed the record, or the group was restored with another UID. The node would stay cordoned for as long as
    /// the group is rejected.
    #[tokio::test]
    async fn rejected_group_uncordons_a_node_whose_record_was_removed() {
        let status = InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            ..InstanceGroupStatus::default()
        };
        let stop = async |tags: Vec<Tag>, node: Node| {
            let (planner, context) = (planner(tags), GroupContext::default());
            let empty = json!({"metadata": {"name": "i-empty"}, "spec": {"providerID": "aws:///us-west-2a/i-empty"}});
            planner.node_index.apply(&Event::Delete(serde_json::from_value(empty).expect("a Node")));
            planner.node_index.apply(&Event::Apply(node));
            let observer =
                planner.observer(&context, std::time::Duration::ZERO, "2026-01-01T00:00:00Z".parse().expect("a time"));
            let rejected = crate::plan::blocked_plan(&id(), StalledReason::InvalidSpec, "no".into());
            planner.stop_rotation(&id(), &status, &context, &observer, rejected).await
        };
        let (tags, removed) = (ownership_tags("demo", &id()), json!({}));
        let record = json!({"group": "old", "templateVersion": "2", "since": "2026-01-01T00:00:00Z"}).to_string();
        for annotations in [&removed, &json!({"instancemgr.keikoproj.io/disruption": record})] {
            let plan = stop(tags.clone(), node_cordoned_by(FIELD_MANAGER, annotations)).await;
            assert_eq!(uncordoned(&plan), [("i-busy", UncordonReason::ForeignRecord)], "{annotations}");
            assert!(plan.recheck_at.is_some());
            let foreign = stop(vec![], node_cordoned_by(FIELD_MANAGER, annotations)).await;
            assert_eq!(uncordoned(&foreign), [], "nothing proves whose the node is");
        }
        let user = stop(tags, node_cordoned_by("kubectl-cordon", &removed)).await;
        assert_eq!((uncordoned(&user), user.recheck_at), (vec![], None), "the cordon is a user's");
        assert!(matches!(&user.outcome, Outcome::Blocked { message, .. } if message == "no"));
    }

    /// A user removed the status in the middle of a rotation, and the spec became invalid: nothing says which scaling group
    /// or node group the nodes are in.
    #[tokio::test]
    async fn rejected_group_whose_status_was_lost_uncordons_the_nodes_that_it_drains() {
        let (planner, context) = (planner(vec![]), GroupContext::default());
        let observer = planner.observer(&context, std::time::Duration::ZERO, Timestamp::UNIX_EPOCH);
        for provisioner in [None, Some("eks-managed")] {
            let provisioner = provisioner.map(str::to_owned);
            let status = InstanceGroupStatus { provisioner, ..InstanceGroupStatus::default() };
            let rejected = crate::plan::blocked_plan(&id(), StalledReason::InvalidSpec, "no".into());
            let plan = planner.stop_rotation(&id(), &status, &context, &observer, rejected).await;
            assert_eq!(uncordoned(&plan), [("i-busy", UncordonReason::GroupRejected)], "{:?}", status.provisioner);
        }
    }

    /// The instance of a node without pods may be terminating, and AWS does not report it.
    #[tokio::test]
    async fn drains_in_progress_are_reverted_while_reads_are_denied() {
        let status = InstanceGroupStatus {
            active_scaling_group_name: Some("demo-team-web".into()),
            ..InstanceGroupStatus::default()
        };
        for (code, http, expected) in
            [("AccessDenied", 403, vec![("i-busy", UncordonReason::RotationBlocked)]), ("InternalFailure", 500, vec![])]
        {
            let failure = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", code, "no", http);
            let (planner, context) = (planner_with(vec![], Some(failure)), GroupContext::default());
            let observer = planner.observer(&context, std::time::Duration::ZERO, Timestamp::UNIX_EPOCH);
            let blocked = crate::plan::blocked_plan(&id(), StalledReason::MissingPermission, "no".into());
            let plan = planner.stop_rotation(&id(), &status, &context, &observer, blocked).await;
            assert_eq!(uncordoned(&plan), expected, "{code}");
        }
    }
}
