//! Pods on the nodes that would be replaced whose PodDisruptionBudget can never allow an eviction, as long as the pods and
//! the budget stay as they are. Such a drain does not end by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, ResourceExt};

use super::report::{BlockedDrain, GroupPlan};
use super::snapshot::list_all;
use crate::k8s::{PodInfo, budgets};

/// Adds the drains that can never end to the plans of groups whose nodes are replaced. What cannot be read is noted there.
pub(crate) async fn forecast(client: &Client, plans: &mut [GroupPlan]) {
    if plans.iter().all(|plan| plan.nodes_to_rotate.is_empty()) {
        return;
    }
    let found = blocked_drains(client).await;
    for plan in plans.iter_mut().filter(|plan| !plan.nodes_to_rotate.is_empty()) {
        match &found {
            Ok(by_node) => {
                let nodes = plan.nodes_to_rotate.iter().filter_map(|replaced| replaced.node.as_ref());
                plan.blocked_drains = nodes.filter_map(|node| by_node.get(node)).flatten().cloned().collect();
            }
            Err(error) => plan.drains_unknown = Some(crate::cli::output::describe_error(error)),
        }
    }
}

/// All such pods of the cluster by node. Pods are read only where a budget allows nothing, and once in each namespace.
async fn blocked_drains(client: &Client) -> anyhow::Result<BTreeMap<String, Vec<BlockedDrain>>> {
    let budgets = budgets::list(client, None).await?;
    let mut by_namespace: BTreeMap<String, Vec<&PodDisruptionBudget>> = BTreeMap::new();
    for budget in budgets.iter().filter(|budget| budgets::never_allows(budget).is_some()) {
        by_namespace.entry(budget.namespace().unwrap_or_default()).or_default().push(budget);
    }
    let mut found: BTreeMap<String, Vec<BlockedDrain>> = BTreeMap::new();
    for (namespace, budgets) in by_namespace {
        let pods = list_all(Api::<Pod>::namespaced(client.clone(), &namespace), "pods").await?;
        for pod in pods.iter().filter(|pod| PodInfo::from(*pod).must_be_evicted()) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { continue };
            found.entry(node.clone()).or_default().extend(blocking(&budgets, pod, &node));
        }
    }
    Ok(found)
}

/// The drains of a node that the budgets of a pod can never allow.
fn blocking(budgets: &[&PodDisruptionBudget], pod: &Pod, node: &str) -> Vec<BlockedDrain> {
    let owner = pod.owner_references().first().map(|owner| format!("{} {}", owner.kind, owner.name));
    let drain = |budget: &PodDisruptionBudget| {
        Some(BlockedDrain {
            node: node.to_owned(),
            pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            owner: owner.clone(),
            budget: budget.name_any(),
            limit: budgets::never_allows(budget)?,
        })
    };
    budgets::selecting(budgets.iter().copied(), pod.labels()).into_iter().filter_map(drain).collect()
}
