//! PodDisruptionBudgets: which of them select a pod, and what their numbers mean.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::core::{Selector, SelectorExt};
use kube::{Client, ResourceExt};

use super::error::{KubeError, call};

/// The budgets of a namespace, or of the cluster.
///
/// # Errors
/// The API server did not answer, or the caller may not list them.
pub(crate) async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<PodDisruptionBudget>, KubeError> {
    let api: Api<PodDisruptionBudget> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = call("list", "poddisruptionbudgets", api.list(&ListParams::default())).await?;
    Ok(found.items)
}

/// The budgets of a pod's namespace that select the pod. A budget without a selector selects nothing.
pub(crate) fn selecting<'a>(
    budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>,
    labels: &BTreeMap<String, String>,
) -> Vec<&'a PodDisruptionBudget> {
    let selects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        selector.and_then(|selector| Selector::try_from(selector).ok()).is_some_and(|found| found.matches(labels))
    };
    budgets.into_iter().filter(selects).collect()
}

/// A budget with its numbers, and whether it can allow any eviction with the replicas that there are.
pub(crate) fn describe(budget: &PodDisruptionBudget) -> String {
    let name = budget.name_any();
    let Some(status) = &budget.status else { return name };
    let (healthy, expected, needed) = (status.current_healthy, status.expected_pods, status.desired_healthy);
    let never = if expected > 0 && needed >= expected { ": can never allow one" } else { "" };
    format!("{name} ({}; {healthy} of {expected} pods are healthy, {needed} are needed{never})", rule(budget))
}

/// The numbers of a budget that allows no eviction even if all of its pods are healthy; `None` for any other budget, and
/// while Kubernetes has not counted its pods.
pub(crate) fn never_allows(budget: &PodDisruptionBudget) -> Option<String> {
    let status = budget.status.as_ref()?;
    let is_current = status.observed_generation == budget.metadata.generation;
    if !is_current || status.expected_pods == 0 || status.desired_healthy < status.expected_pods {
        return None;
    }
    let pods = if status.expected_pods == 1 { "pod" } else { "pods" };
    Some(format!("{} of {} {pods}", rule(budget), status.expected_pods))
}

/// The limit that the budget's author chose.
fn rule(budget: &PodDisruptionBudget) -> String {
    let number = |field: &str, value: &Option<IntOrString>| match value {
        Some(IntOrString::Int(count)) => Some(format!("{field} {count}")),
        Some(IntOrString::String(percent)) => Some(format!("{field} {percent}")),
        None => None,
    };
    let spec = budget.spec.as_ref();
    spec.and_then(|s| number("minAvailable", &s.min_available).or(number("maxUnavailable", &s.max_unavailable)))
        .unwrap_or_else(|| "without numbers".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let metadata = json!({"name": "web", "namespace": "team", "generation": 2});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a budget")
    }

    #[test]
    fn only_budgets_that_allow_nothing_never_allow_an_eviction() {
        let limit = |spec: Value, desired: i32, expected: i32, observed: i64| {
            let status = json!({
                "desiredHealthy": desired, "expectedPods": expected, "currentHealthy": 0,
                "disruptionsAllowed": 0, "observedGeneration": observed,
            });
            never_allows(&budget(spec, status))
        };
        assert_eq!(limit(json!({"minAvailable": 2}), 2, 2, 2).as_deref(), Some("minAvailable 2 of 2 pods"));
        assert_eq!(limit(json!({"maxUnavailable": "0%"}), 1, 1, 2).as_deref(), Some("maxUnavailable 0% of 1 pod"));
        assert_eq!(limit(json!({"minAvailable": 1}), 1, 2, 2), None, "it allows one when all are healthy");
        assert_eq!(limit(json!({"minAvailable": 1}), 1, 0, 2), None, "it has no pods");
        assert_eq!(limit(json!({"minAvailable": 2}), 2, 2, 1), None, "its pods are not counted yet");
    }

    #[test]
    fn empty_selector_selects_all_pods_and_no_selector_none() {
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let all = [json!({"selector": {"matchLabels": {"app": "db"}}}), json!({"selector": {}}), json!({})];
        let all: Vec<_> = all.into_iter().map(|spec| budget(spec, Value::Null)).collect();
        let found: Vec<_> = selecting(&all, &labels).into_iter().map(|found| found.spec.clone()).collect();
        assert_eq!(found, [all[1].spec.clone()]);
    }
}
