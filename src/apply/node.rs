//! Applies node steps: cordon, uncordon, evict, standby and terminate.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::error::StepError;
use super::in_place::patch_for;
use super::run::{Applier, Apply, ApplyRun, BlockedEviction, StepOutcome, StepResult, done, ignore_not_found};
use crate::api::names::annotation;
use crate::aws::{AwsError, AwsErrorKind};
use crate::index::drain_clocks::DrainClocks;
use crate::index::nodes::{instance_id, node_view, parse_annotation};
use crate::k8s::{EvictOutcome, KubeError};
use crate::plan::{InPlaceChange, NodeStep, PodRef, UncordonReason};
use crate::rotation::{DisruptionRecord, SurgeRecord};

impl Apply for NodeStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let (kube, process_state, inventory) = (run.ctx.kube, run.ctx.process_state, run.ctx.inventory);
        match self {
            NodeStep::CordonNode { node, resource_version, template_version, was_cordoned, .. } => {
                let record = DisruptionRecord {
                    group: run.id.uid.clone(),
                    template_version: template_version.clone(),
                    since: run.ctx.now,
                    cordoned_before: *was_cordoned,
                    scale_down_disabled: false,
                    terminated_at: None,
                };
                kube.cordon_node(node, resource_version, &json!(record)).await.map_err(StepError::Kube)?;
            }
            NodeStep::UncordonNode { node, reason } => {
                let is_repeated = matches!(reason, UncordonReason::DrainTimeout | UncordonReason::UncordonedByOthers);
                let drain_after = is_repeated.then(|| run.ctx.now + run.ctx.retry_delay);
                kube.uncordon_node(node, drain_after).await.map_err(StepError::Kube)?;
                process_state.forget_node(node);
            }
            NodeStep::RecordSurge { node, resource_version, template_version, .. } => {
                let (group, template_version) = (run.id.uid.clone(), template_version.clone());
                let record = json!(SurgeRecord { group, template_version, since: run.ctx.now });
                kube.set_surge_record(node, resource_version, &record).await.map_err(StepError::Kube)?;
            }
            NodeStep::ClearSurge { node, since } => {
                if !kube.clear_surge_record(node, *since).await.map_err(StepError::Kube)? {
                    return Ok(StepOutcome::Unchanged);
                }
            }
            NodeStep::ChangeNodeInPlace { node, instance, change } => {
                return run.change_in_place(node, instance, change).await;
            }
            NodeStep::Evict { node, pod, .. } => return run.evict(node, pod).await,
            NodeStep::ForceDelete { node, pod } => {
                run.check_cordoned(node).await?;
                kube.delete_pod(&pod.namespace, &pod.name, &pod.uid, None).await.map_err(StepError::Kube)?
            }
            NodeStep::EnterStandby { scaling_group, instance, .. } => {
                let result = inventory.aws().autoscaling.enter_standby(scaling_group, instance).await;
                inventory.invalidate_group(scaling_group);
                if let Err(error) = &result
                    && is_busy(error)
                {
                    return Ok(run.wait_for_activity(scaling_group, instance, error));
                }
                return done(result);
            }
            NodeStep::Terminate { scaling_group, instance, node, decrement_desired } => {
                let name = node;
                let node = match name {
                    Some(name) => run.check_cordoned(name).await?,
                    None => {
                        run.check_not_joined(instance).await?;
                        None
                    }
                };
                if *decrement_desired && !run.record_decrement(instance, node.as_ref()).await? {
                    // AWS may not show the first one for minutes, and the next pass would ask for another one at once.
                    inventory.record_activity(scaling_group, instance, run.ctx.now);
                    return Ok(StepOutcome::Unchanged);
                }
                let result = inventory.aws().autoscaling.terminate_instance(instance, *decrement_desired).await;
                inventory.invalidate_group(scaling_group);
                // AWS may still show the instance when `maxSize` is lowered. A second call would then lower the desired
                // capacity for an instance that is being replaced.
                if !*decrement_desired && !result.as_ref().is_err_and(is_rejected) {
                    process_state.record_termination(instance, run.ctx.decrement_interval, run.ctx.now);
                }
                if let (true, Err(error)) = (*decrement_desired, &result)
                    && is_rejected(error)
                {
                    run.forget_decrement(instance, node.as_ref()).await;
                }
                if let Err(error) = &result
                    && is_busy(error)
                {
                    return Ok(run.wait_for_activity(scaling_group, instance, error));
                }
                let outcome = ignore_not_found(result)?;
                if let Some(name) = name {
                    process_state.forget_node(name);
                }
                return Ok(outcome);
            }
        }
        Ok(StepOutcome::Applied)
    }
}

impl ApplyRun<'_> {
    /// Reads the Node itself, not from a cache, right before a pod is evicted from it or its instance is terminated: pods may
    /// have been scheduled to a node that a client uncordoned. Returns the Node, if there still is one.
    async fn check_cordoned(&self, name: &str) -> Result<Option<Node>, StepError> {
        let node = self.ctx.kube.node(name).await.map_err(StepError::Kube)?;
        let is_schedulable = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true);
        let is_autoscalers = |node: &Node| !self.id.is_deleting() && node_view(node).is_removed_by_autoscaler;
        match node.as_ref().is_some_and(is_schedulable) {
            true => Err(StepError::NodeUncordoned(name.to_owned())),
            false if node.as_ref().is_some_and(is_autoscalers) => Err(StepError::RemovedByAutoscaler(name.to_owned())),
            false if !(self.ctx.request_write)() => Err(StepError::MayNotWrite),
            false => Ok(node),
        }
    }

    /// Looks once more for the Node of an instance that had none when the plan was made: it may have joined since, and run
    /// pods already. What the watch has seen is confirmed by the API server.
    async fn check_not_joined(&self, instance: &str) -> Result<(), StepError> {
        let Some(name) = (self.ctx.node_of)(instance) else { return Ok(()) };
        match self.ctx.kube.node(&name).await.map_err(StepError::Kube)? {
            Some(_) => Err(StepError::NodeJoined(name)),
            None if !(self.ctx.request_write)() => Err(StepError::MayNotWrite),
            None => Ok(()),
        }
    }

    /// Records that a termination which lowers the desired capacity is about to be sent: in this process, and on the Node
    /// for the next one. Returns false when one was sent less than `decrement_interval` ago. An instance without a Node is
    /// known to this process only.
    async fn record_decrement(&self, instance: &str, node: Option<&Node>) -> Result<bool, StepError> {
        let Applier { kube, process_state, decrement_interval, now, .. } = self.ctx;
        let record = node.and_then(disruption_record);
        let on_node = record.as_ref().and_then(|record| record.terminated_at);
        let sent_at = on_node.max(process_state.termination_sent_at(instance));
        // AWS would lower the capacity twice. After a jump of the clock, a call of a moment ago looks like an old one.
        let has_jumped = process_state.has_clock_jumped_within(*decrement_interval);
        if sent_at.is_some_and(|at| has_jumped || now.duration_since(at) < *decrement_interval) {
            return Ok(false);
        }
        if let (Some(node), Some(record)) = (node, record) {
            let record = DisruptionRecord { terminated_at: Some(*now), ..record };
            kube.patch_node(&node.name_any(), record_patch(node, &record)).await.map_err(StepError::Kube)?;
            if !(self.ctx.request_write)() {
                return Err(StepError::MayNotWrite);
            }
        }
        process_state.record_termination(instance, *decrement_interval, *now);
        Ok(true)
    }

    /// Forgets a termination that AWS rejected, so that it is sent again once its cause is gone. If the Node cannot be
    /// written, that takes `decrement_interval`.
    async fn forget_decrement(&self, instance: &str, node: Option<&Node>) {
        self.ctx.process_state.forget_termination(instance);
        let Some((node, record)) = node.and_then(|node| Some((node, disruption_record(node)?))) else { return };
        let mut patch = record_patch(node, &record);
        // The record itself has changed it.
        patch["metadata"].as_object_mut().into_iter().for_each(|metadata| _ = metadata.remove("resourceVersion"));
        if (self.ctx.request_write)() {
            _ = self.ctx.kube.patch_node(&node.name_any(), patch).await;
        }
    }

    /// Lets an instance wait until its scaling activity has ended, or for a while: the next pass makes no such call. Other
    /// instances do not wait for it.
    fn wait_for_activity(&self, scaling_group: &str, instance: &str, error: &AwsError) -> StepOutcome {
        let Applier { inventory, now, .. } = self.ctx;
        inventory.record_activity(scaling_group, instance, *now);
        tracing::info!(group = %self.id.key(), instance, %error, "the instance is changed once its scaling activity has ended");
        StepOutcome::Unchanged
    }

    /// Changes labels and taints of a Node, from what the API server has now. A Node that was deleted, or that now
    /// belongs to another instance, is not changed.
    async fn change_in_place(&self, name: &str, instance: &str, change: &InPlaceChange) -> StepResult {
        let node = self.ctx.kube.node(name).await.map_err(StepError::Kube)?;
        let node = node.filter(|node| instance_id(node).as_deref() == Some(instance));
        let Some(patch) = node.and_then(|node| patch_for(&node, change)) else {
            return Ok(StepOutcome::Unchanged);
        };
        if !(self.ctx.request_write)() {
            return Err(StepError::MayNotWrite);
        }
        let result = self.ctx.kube.patch_node(name, patch).await;
        let Applier { process_state, now, .. } = self.ctx;
        process_state.rejected_changes(|known| match &result {
            Err(error @ KubeError::Invalid { .. }) => known.record(name, change, error.to_string(), *now),
            _ => known.remove(name),
        });
        result.map(|_| StepOutcome::Applied).map_err(StepError::Kube)
    }

    async fn evict(&self, node: &str, pod: &PodRef) -> StepResult {
        self.check_cordoned(node).await?;
        match self.ctx.kube.evict(&pod.namespace, &pod.name, &pod.uid).await.map_err(StepError::Kube)? {
            EvictOutcome::Evicted | EvictOutcome::Gone => {
                self.ctx.process_state.drain_clocks(node, DrainClocks::reset_blocked_evictions);
                Ok(StepOutcome::Applied)
            }
            EvictOutcome::Blocked(blocker) => {
                self.ctx.process_state.drain_clocks(node, |clocks| clocks.record_blocked_eviction(self.ctx.now));
                let unschedulable = self.unschedulable_siblings(node, pod).await;
                let terminated_at = self.evictions_end;
                let pod = pod.clone();
                Ok(StepOutcome::EvictionBlocked(BlockedEviction { pod, blocker, unschedulable, terminated_at }))
            }
        }
    }

    /// Pods of the same owner that the scheduler cannot place. A failing read counts as none, because it only adds detail
    /// to a message.
    async fn unschedulable_siblings(&self, node: &str, pod: &PodRef) -> Vec<String> {
        let Ok(pods) = self.ctx.kube.pods_on_node(node).await else { return Vec::new() };
        let owners = pods.into_iter().filter(|p| p.uid == pod.uid).filter_map(|p| p.owner_uid).collect();
        let unschedulable = self.ctx.kube.unschedulable_pods(&pod.namespace, &owners).await.unwrap_or_default();
        unschedulable.into_iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect()
    }
}

fn disruption_record(node: &Node) -> Option<DisruptionRecord> {
    parse_annotation(node, annotation::DISRUPTION)
}

/// Writes the disruption record, only while the Node is as it was read.
fn record_patch(node: &Node, record: &DisruptionRecord) -> Value {
    json!({"metadata": {
        "resourceVersion": node.resource_version(),
        "annotations": {annotation::DISRUPTION: json!(record).to_string()},
    }})
}

/// Whether AWS did not perform a call. After a lost answer, it may have.
fn is_rejected(error: &AwsError) -> bool {
    !matches!(error.kind, AwsErrorKind::Unavailable | AwsErrorKind::Other)
}

/// Whether AWS refused a call because of a scaling activity in progress: ScalingActivityInProgress or ResourceContention (Amazon
/// EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup and EnterStandby, Errors).
fn is_busy(error: &AwsError) -> bool {
    error.kind == AwsErrorKind::InUse
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::apply::{Applied, AwsAuthWriter, apply};
    use crate::aws::ScalingGroup;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::inventory::{CacheConfig, Inventory};
    use crate::aws::samples::{instance, scaling_group};
    use crate::index::process_state::ProcessState;
    use crate::k8s::{KubeClient, fake};
    use crate::plan::{Plan, PlannedStep, StalledReason, blocked_plan};

    /// The fake AWS, and one drained node of the group in a fake API server.
    struct Fakes {
        aws: Arc<FakeAws>,
        inventory: Arc<Inventory>,
        node: Arc<Mutex<Value>>,
        /// The Node that the watch has seen of the instance.
        seen: Option<&'static str>,
    }

    impl Fakes {
        fn new() -> Self {
            let record = json!({"group": "uid-1", "templateVersion": "2", "since": "1970-01-01T00:00:00Z"}).to_string();
            let node = json!({"kind": "Node", "apiVersion": "v1", "spec": {"unschedulable": true},
                "metadata": {"name": "n", "resourceVersion": "7", "annotations": {annotation::DISRUPTION: record}}});
            let aws = Arc::new(FakeAws::default());
            let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
            Fakes { aws, inventory, node: Arc::new(Mutex::new(node)), seen: None }
        }

        /// Terminates the instance `i-1` at this second, and lowers the desired capacity.
        async fn terminate(&self, process_state: &ProcessState, node: Option<&str>, second: i64) -> Applied {
            self.send(process_state, node, true, second).await
        }

        async fn send(
            &self,
            process_state: &ProcessState,
            node: Option<&str>,
            decrement_desired: bool,
            second: i64,
        ) -> Applied {
            let stored = self.node.clone();
            let client = fake::client(move |call| {
                if !call.path.contains("/nodes/") {
                    let meta = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web"}});
                    return (200, meta);
                }
                let mut node = stored.lock().expect("lock is not poisoned");
                let record = &call.body["metadata"]["annotations"][annotation::DISRUPTION];
                if record.is_string() {
                    node["metadata"]["annotations"][annotation::DISRUPTION] = record.clone();
                }
                (200, node.clone())
            });
            let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
            group.metadata.namespace = Some("team".into());
            let id = group_id(&group);
            let step = NodeStep::Terminate {
                scaling_group: "asg".into(),
                instance: "i-1".into(),
                node: node.map(str::to_owned),
                decrement_desired,
            };
            let steps = vec![PlannedStep::new(step, Vec::new())];
            let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
            let (kube, aws_auth) = (KubeClient::new(client, "test"), AwsAuthWriter::default());
            let applier = Applier {
                now: Timestamp::from_second(second).expect("a time"),
                node_of: &|_| self.seen.map(str::to_owned),
                ..Applier::for_tests(&self.inventory, &kube, process_state, &aws_auth)
            };
            apply(&applier, &id, "1", &[], plan).await
        }

        fn calls(&self) -> usize {
            self.aws.data.lock().expect("lock is not poisoned").terminated.len()
        }
    }

    /// AWS lowers the desired capacity with each call, and then removes a node that still has pods.
    #[tokio::test]
    async fn decrement_is_not_repeated_by_this_process_or_the_next_one() {
        let (fakes, first, next) = (Fakes::new(), ProcessState::default(), ProcessState::default());
        assert_eq!(fakes.terminate(&first, Some("n"), 1000).await.unchanged_steps, [0usize; 0]);
        for (process_state, node) in [(&first, Some("n")), (&first, None), (&next, Some("n"))] {
            assert_eq!(fakes.terminate(process_state, node, 1004).await.unchanged_steps, [0], "no event claims it");
        }
        assert_eq!(fakes.calls(), 1);
        fakes.terminate(&next, Some("n"), 1120).await;
        assert_eq!(fakes.calls(), 2, "the first call had no effect");
    }

    #[tokio::test]
    async fn decrement_of_an_instance_without_a_node_is_not_repeated() {
        let (fakes, process_state) = (Fakes::new(), ProcessState::default());
        for second in [1000, 1002, 1119] {
            fakes.terminate(&process_state, None, second).await;
        }
        assert_eq!(fakes.calls(), 1);
    }

    /// A tenant lowers `maxSize` right after the rotation has terminated an instance, which AWS may still show. Lowered,
    /// the desired capacity would have no room for the replacement, and AWS would terminate a node that has pods.
    #[tokio::test]
    async fn termination_of_a_replaced_instance_is_not_repeated_with_a_decrement() {
        let (fakes, process_state) = (Fakes::new(), ProcessState::default());
        fakes.send(&process_state, Some("n"), false, 1000).await;
        assert_eq!(fakes.terminate(&process_state, Some("n"), 1004).await.unchanged_steps, [0]);
        assert_eq!(fakes.calls(), 1);
        fakes.send(&process_state, Some("n"), false, 1005).await;
        assert_eq!(fakes.calls(), 2, "it lowers nothing");
        fakes.terminate(&process_state, Some("n"), 1125).await;
        assert_eq!(fakes.calls(), 3, "the first calls had no effect");
    }

    /// AWS may show the instance in service for minutes after that. The plan would ask for the termination again at once, and
    /// read the group, the Node and the locks each time.
    #[tokio::test]
    async fn next_pass_waits_for_a_termination_that_is_not_repeated() {
        let (fakes, process_state) = (Fakes::new(), ProcessState::default());
        let group = ScalingGroup { instances: vec![instance("i-1")], ..scaling_group("asg") };
        fakes.aws.update(|state| _ = state.groups.insert("asg".into(), group));
        let waits = async || {
            let shown = fakes.inventory.group("asg", Duration::ZERO).await.expect("an answer").expect("a group");
            shown.instances[0].activity_refused_at.is_some()
        };
        fakes.send(&process_state, Some("n"), false, 1000).await;
        assert!(!waits().await, "AWS answered it");
        fakes.terminate(&process_state, Some("n"), 1004).await;
        assert!(waits().await);
        assert_eq!(fakes.calls(), 1);
    }

    /// Otherwise a throttled call would delay each removal by minutes.
    #[tokio::test]
    async fn decrement_is_repeated_after_a_rejection_but_not_after_a_lost_answer() {
        for (code, status, calls) in [("Throttling", 400, 2), ("InternalFailure", 500, 1)] {
            let (fakes, process_state) = (Fakes::new(), ProcessState::default());
            let error = AwsError::from_response("AutoScaling", "TerminateInstance", code, "a message", status);
            fakes.aws.update(|state| state.failure = Some(error));
            assert!(fakes.terminate(&process_state, Some("n"), 1000).await.error.is_some());
            fakes.aws.update(|state| state.failure = None);
            fakes.terminate(&process_state, Some("n"), 1004).await;
            assert_eq!(fakes.calls(), calls, "{code}");
        }
    }

    /// Nothing has happened to the instance or to the desired capacity. The record of a termination would hold back the next one
    /// for minutes, and the end of the pass would hold back the drains of all other nodes.
    #[tokio::test]
    async fn termination_refused_for_a_scaling_activity_leaves_no_trace_and_ends_no_pass() {
        for (code, status) in [("ScalingActivityInProgress", 400), ("ResourceContention", 500)] {
            for node in [Some("n"), None] {
                let (fakes, process_state) = (Fakes::new(), ProcessState::default());
                let error = AwsError::from_response(
                    "AutoScaling",
                    "TerminateInstance",
                    code,
                    "Activity 1 is in progress.",
                    status,
                );
                fakes.aws.update(|state| state.failure = Some(error));
                let applied = fakes.terminate(&process_state, node, 1000).await;
                assert!(applied.error.is_none(), "{code}: {:?}", applied.error);
                assert_eq!((applied.steps_done, applied.unchanged_steps), (1, vec![0]), "no event claims it");
                let stored = fakes.node.lock().expect("lock is not poisoned").clone();
                let record = stored["metadata"]["annotations"][annotation::DISRUPTION].as_str().unwrap_or_default();
                assert!(!record.contains("1970-01-01T00:16:40Z"), "{code}: {record}");
                assert_eq!(process_state.termination_sent_at("i-1"), None);
                fakes.aws.update(|state| state.failure = None);
                fakes.terminate(&process_state, node, 1004).await;
                assert_eq!(fakes.calls(), 2, "{code}: it is sent as soon as the plan asks for it again");
            }
        }
    }

    /// A pass takes a second or more. In that time the instance may have joined and started pods, which the controller
    /// has not drained.
    #[tokio::test]
    async fn instance_whose_node_joined_after_the_plan_was_made_is_not_terminated() {
        let joined = Fakes { seen: Some("n"), ..Fakes::new() };
        let applied = joined.terminate(&ProcessState::default(), None, 1000).await;
        let message = applied.error.map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("the node n joined after the plan was made") && joined.calls() == 0, "{message}");
        let unseen = Fakes::new();
        unseen.terminate(&ProcessState::default(), None, 1000).await;
        assert_eq!(unseen.calls(), 1);
    }
}
