//! Applies node steps: cordon, uncordon, evict, standby and terminate.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::error::StepError;
use super::in_place::patch_for;
use super::run::{Apply, ApplyRun, BlockedEviction, StepOutcome, StepResult, done, ignore_not_found};
use crate::index::drain_clocks::DrainClocks;
use crate::index::nodes::instance_id;
use crate::k8s::EvictOutcome;
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
                kube.set_surge_record(node, Some(resource_version), Some(&record)).await.map_err(StepError::Kube)?;
            }
            NodeStep::ClearSurge { node } => kube.set_surge_record(node, None, None).await.map_err(StepError::Kube)?,
            NodeStep::ChangeNodeInPlace { node, instance, change } => {
                return run.change_in_place(node, instance, change).await;
            }
            NodeStep::Evict { node, pod, .. } => return run.evict(node, pod).await,
            NodeStep::ForceDelete { pod, .. } => {
                kube.delete_pod(&pod.namespace, &pod.name, &pod.uid, None).await.map_err(StepError::Kube)?
            }
            NodeStep::EnterStandby { scaling_group, instance, .. } => {
                let result = inventory.aws().autoscaling.enter_standby(scaling_group, instance).await;
                inventory.invalidate_group(scaling_group);
                return done(result);
            }
            NodeStep::Terminate { scaling_group, instance, node, decrement_desired } => {
                if let Some(node) = node {
                    run.check_cordoned(node).await?;
                }
                let result = inventory.aws().autoscaling.terminate_instance(instance, *decrement_desired).await;
                inventory.invalidate_group(scaling_group);
                return ignore_not_found(result);
            }
        }
        Ok(StepOutcome::Applied)
    }
}

impl ApplyRun<'_> {
    /// Reads the Node itself, not from a cache, right before its instance is terminated: pods may have been scheduled to
    /// a node that someone uncordoned.
    async fn check_cordoned(&self, name: &str) -> Result<(), StepError> {
        let node = self.ctx.kube.node(name).await.map_err(StepError::Kube)?;
        let is_schedulable = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true);
        match node.as_ref().is_some_and(is_schedulable) {
            true => Err(StepError::NodeSchedulable(name.to_owned())),
            false if !(self.ctx.request_write)() => Err(StepError::MayNotWrite),
            false => Ok(()),
        }
    }

    /// Changes labels and taints of a Node, from what the API server has now. A Node that is gone, or that became another
    /// instance's, is left alone.
    async fn change_in_place(&self, name: &str, instance: &str, change: &InPlaceChange) -> StepResult {
        let node = self.ctx.kube.node(name).await.map_err(StepError::Kube)?;
        let node = node.filter(|node| instance_id(node).as_deref() == Some(instance));
        let Some(patch) = node.and_then(|node| patch_for(&node, change)) else {
            return Ok(StepOutcome::Unchanged);
        };
        if !(self.ctx.request_write)() {
            return Err(StepError::MayNotWrite);
        }
        self.ctx.kube.patch_node(name, patch).await.map_err(StepError::Kube)?;
        Ok(StepOutcome::Applied)
    }

    async fn evict(&self, node: &str, pod: &PodRef) -> StepResult {
        match self.ctx.kube.evict(&pod.namespace, &pod.name, &pod.uid).await.map_err(StepError::Kube)? {
            EvictOutcome::Evicted | EvictOutcome::Gone => {
                self.ctx.process_state.drain_clocks(node, DrainClocks::reset_blocked_evictions);
                Ok(StepOutcome::Applied)
            }
            EvictOutcome::Blocked { message, budgets } => {
                self.ctx.process_state.drain_clocks(node, |clocks| clocks.record_blocked_eviction(self.ctx.now));
                let unschedulable = self.unschedulable_siblings(node, pod).await;
                let terminated_at = self.evictions_end;
                let pod = pod.clone();
                Ok(StepOutcome::EvictionBlocked(BlockedEviction {
                    pod,
                    budgets,
                    message,
                    unschedulable,
                    terminated_at,
                }))
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
