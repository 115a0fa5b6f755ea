//! Nodes: the record of a disruption, the pods on them, and their instances.

use serde_json::json;

use super::{Apply, Done, Refusal, Run, Stepped, Stopped, gone, ok};
use crate::k8s::EvictOutcome;
use crate::plan::{NodeStep, PodRef};
use crate::rotation::{Disruption, Surge};

impl Apply for NodeStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let (cluster, memory, inventory) = (run.a.cluster, run.a.memory, run.a.inventory);
        match self {
            NodeStep::MarkNode { node, resource_version, template_version, cordoned, .. } => {
                let record = Disruption {
                    group: run.id.uid.clone(),
                    template_version: template_version.clone(),
                    since: run.a.now,
                    cordoned_before: *cordoned,
                };
                cluster.mark_node(node, resource_version, &json!(record)).await.map_err(Stopped::Cluster)?;
            }
            NodeStep::UnmarkNode { node, why } => {
                cluster.unmark_node(node).await.map_err(Stopped::Cluster)?;
                memory.forget_node(node);
                if why.contains("drainTimeout") {
                    memory.rest(node, run.a.now + run.a.rest);
                }
            }
            NodeStep::SurgeNode { node, resource_version, template_version, .. } => {
                let (group, template_version) = (run.id.uid.clone(), template_version.clone());
                let record = json!(Surge { group, template_version, since: run.a.now });
                cluster.record_surge(node, Some(resource_version), Some(&record)).await.map_err(Stopped::Cluster)?;
            }
            NodeStep::UnsurgeNode { node } => cluster.record_surge(node, None, None).await.map_err(Stopped::Cluster)?,
            NodeStep::Evict { node, pod, .. } => return run.evict(node, pod).await,
            NodeStep::ForceDelete { pod, .. } => {
                cluster.delete_pod(&pod.namespace, &pod.name, &pod.uid, None).await.map_err(Stopped::Cluster)?
            }
            NodeStep::EnterStandby { group, instance, .. } => {
                let answer = inventory.aws().autoscaling.enter_standby(group, instance).await;
                inventory.wrote_group(group);
                return ok(answer);
            }
            NodeStep::Terminate { group, instance, decrement, .. } => {
                let answer = inventory.aws().autoscaling.terminate_instance(instance, *decrement).await;
                inventory.wrote_group(group);
                return gone(answer);
            }
        }
        Ok(Done::Yes)
    }
}

impl Run<'_> {
    async fn evict(&self, node: &str, pod: &PodRef) -> Stepped {
        match self.a.cluster.evict(&pod.namespace, &pod.name, &pod.uid).await.map_err(Stopped::Cluster)? {
            EvictOutcome::Evicted | EvictOutcome::Gone => {
                self.a.memory.evicted(node);
                Ok(Done::Yes)
            }
            EvictOutcome::Refused { message, budgets } => {
                self.a.memory.refused(node, self.a.now);
                let homeless = self.homeless(node, pod).await;
                Ok(Done::Refused(Refusal { pod: pod.clone(), budgets, message, homeless }))
            }
        }
    }

    /// Pods of the same owner that the scheduler cannot place; an answer that fails tells nothing and stops nothing.
    async fn homeless(&self, node: &str, pod: &PodRef) -> Vec<String> {
        let Ok(pods) = self.a.cluster.pods_on_node(node).await else { return Vec::new() };
        let owners = pods.into_iter().filter(|p| p.uid == pod.uid).filter_map(|p| p.owner_uid).collect();
        let waiting = self.a.cluster.unschedulable_pods(&pod.namespace, &owners).await.unwrap_or_default();
        waiting.into_iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect()
    }
}
