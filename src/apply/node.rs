//! Nodes: the record of a disruption, and the pods on them.

use serde_json::json;

use super::{Done, Refusal, Run, Step_, Stopped};
use crate::cluster::EvictOutcome;
use crate::plan::{PodRef, Step};
use crate::upgrade::{Disruption, Surge};

impl Run<'_> {
    pub(super) async fn node(&self, step: &Step) -> Step_ {
        let (cluster, memory) = (self.a.cluster, self.a.memory);
        match step {
            Step::MarkNode { node, resource_version, template_version, cordoned, .. } => {
                let record = Disruption {
                    group: self.id.uid.clone(),
                    template_version: template_version.clone(),
                    since: self.a.now,
                    cordoned_before: *cordoned,
                };
                cluster.mark_node(node, resource_version, &json!(record)).await.map_err(Stopped::Cluster)?;
            }
            Step::UnmarkNode { node, why } => {
                cluster.unmark_node(node).await.map_err(Stopped::Cluster)?;
                memory.forget_node(node);
                if why.contains("drainTimeout") {
                    memory.rest(node, self.a.now + self.a.rest);
                }
            }
            Step::SurgeNode { node, resource_version, template_version, .. } => {
                let (group, template_version) = (self.id.uid.clone(), template_version.clone());
                let record = json!(Surge { group, template_version, since: self.a.now });
                cluster.record_surge(node, Some(resource_version), Some(&record)).await.map_err(Stopped::Cluster)?;
            }
            Step::UnsurgeNode { node } => cluster.record_surge(node, None, None).await.map_err(Stopped::Cluster)?,
            Step::Evict { node, pod, .. } => return self.evict(node, pod).await,
            Step::ForceDelete { pod, .. } => {
                cluster.delete_pod(&pod.namespace, &pod.name, &pod.uid, None).await.map_err(Stopped::Cluster)?
            }
            other => unreachable!("{} is no step of a node", other.name()),
        }
        Ok(Done::Yes)
    }

    async fn evict(&self, node: &str, pod: &PodRef) -> Step_ {
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
