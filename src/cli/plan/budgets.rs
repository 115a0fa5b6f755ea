//! Pods on the nodes that would be replaced whose PodDisruptionBudget can never allow an eviction, as long as the pods and
//! the budget stay as they are. Such a drain does not end by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::core::{Selector, SelectorExt};
use kube::{Client, ResourceExt};

use super::report::{BlockedDrain, GroupPlan};

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

/// All such pods of the cluster by node. Pods are read only where a budget allows nothing.
async fn blocked_drains(client: &Client) -> anyhow::Result<BTreeMap<String, Vec<BlockedDrain>>> {
    use anyhow::Context;
    let budgets = Api::<PodDisruptionBudget>::all(client.clone()).list(&ListParams::default()).await;
    let mut found: BTreeMap<String, Vec<BlockedDrain>> = BTreeMap::new();
    for budget in budgets.context("reading PodDisruptionBudgets")?.items {
        let (Some(limit), Some(selector)) = (never_allows(&budget), selector(&budget)) else { continue };
        let namespace = budget.namespace().unwrap_or_default();
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await;
        for pod in pods.with_context(|| format!("reading the pods of {namespace}"))?.items {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let is_running = !["Succeeded", "Failed"].contains(&phase.as_str());
            if let Some(node) = node.filter(|_| is_running && selector.matches(pod.labels())) {
                let owner = pod.owner_references().first().map(|owner| format!("{} {}", owner.kind, owner.name));
                let pod = format!("{namespace}/{}", pod.name_any());
                let drain =
                    BlockedDrain { node: node.clone(), pod, owner, budget: budget.name_any(), limit: limit.clone() };
                found.entry(node).or_default().push(drain);
            }
        }
    }
    Ok(found)
}

fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    Selector::try_from(budget.spec.as_ref()?.selector.clone()?).ok()
}

/// The numbers of a budget that allows no eviction even if all of its pods are healthy; `None` for any other budget, and
/// while Kubernetes has not counted its pods.
fn never_allows(budget: &PodDisruptionBudget) -> Option<String> {
    let (spec, status) = (budget.spec.as_ref()?, budget.status.as_ref()?);
    let is_current = status.observed_generation == budget.metadata.generation;
    if !is_current || status.expected_pods == 0 || status.desired_healthy < status.expected_pods {
        return None;
    }
    let show = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let rule = match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => format!("minAvailable {}", show(least)),
        (None, Some(most)) => format!("maxUnavailable {}", show(most)),
        (None, None) => "no limit".to_owned(),
    };
    let pods = if status.expected_pods == 1 { "pod" } else { "pods" };
    Some(format!("{rule} of {} {pods}", status.expected_pods))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_budgets_that_allow_nothing_are_forecast() {
        let budget = |spec: serde_json::Value, desired: i32, expected: i32, observed: i64| {
            let budget: PodDisruptionBudget = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "team", "generation": 2},
                "spec": spec,
                "status": {
                    "desiredHealthy": desired, "expectedPods": expected, "currentHealthy": 0,
                    "disruptionsAllowed": 0, "observedGeneration": observed,
                },
            }))
            .expect("a budget");
            never_allows(&budget)
        };
        assert_eq!(budget(json!({"minAvailable": 2}), 2, 2, 2).as_deref(), Some("minAvailable 2 of 2 pods"));
        assert_eq!(budget(json!({"maxUnavailable": "0%"}), 1, 1, 2).as_deref(), Some("maxUnavailable 0% of 1 pod"));
        assert_eq!(budget(json!({"minAvailable": 1}), 1, 2, 2), None, "it allows one when all are healthy");
        assert_eq!(budget(json!({"minAvailable": 1}), 1, 0, 2), None, "it has no pods");
        assert_eq!(budget(json!({"minAvailable": 2}), 2, 2, 1), None, "its pods are not counted yet");
    }
}
