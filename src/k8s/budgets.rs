//! PodDisruptionBudgets: which of them select a pod, and what their numbers mean.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::core::{Selector, SelectorExt};
use kube::{Client, ResourceExt};

use super::error::{KubeError, call};

/// A budget with the numbers that decide about an eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodBudget {
    /// Name of the PodDisruptionBudget.
    pub name: String,
    /// The limit that its author chose, such as `minAvailable 2`.
    pub rule: String,
    /// What Kubernetes counts; `None` before it has counted for the first time.
    pub counts: Option<Counts>,
    /// Whether Kubernetes has counted since the budget was changed last.
    pub is_current: bool,
    /// Whether pods that are not Ready may be evicted at any time (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub releases_unready: bool,
    /// Whether it allows no eviction whatever the number of replicas.
    pub forbids_all: bool,
    /// Why Kubernetes could not count its pods the last time. It allows no eviction then, and keeps older numbers.
    pub sync_error: Option<String>,
}

/// What Kubernetes counts for a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many pods may be evicted now.
    pub allowed: i32,
    /// How many pods are healthy.
    pub healthy: i32,
    /// How many pods have to be healthy.
    pub needed: i32,
    /// How many pods are expected.
    pub expected: i32,
}

/// Why a budget allows no eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Even if all of its pods are healthy.
    Never,
    /// Because too few of its pods are healthy.
    Now,
    /// Because Kubernetes cannot count its pods.
    Uncounted,
}

impl From<&PodDisruptionBudget> for PodBudget {
    fn from(budget: &PodDisruptionBudget) -> Self {
        let (spec, status) = (budget.spec.as_ref(), budget.status.as_ref());
        let max_unavailable = spec.and_then(|spec| spec.max_unavailable.as_ref());
        let min_available = spec.and_then(|spec| spec.min_available.as_ref());
        let is_percent =
            |value: &IntOrString, percent: &str| matches!(value, IntOrString::String(text) if text == percent);
        Self {
            name: budget.name_any(),
            rule: rule(budget),
            counts: status.map(|status| Counts {
                allowed: status.disruptions_allowed,
                healthy: status.current_healthy,
                needed: status.desired_healthy,
                expected: status.expected_pods,
            }),
            is_current: status.is_some_and(|status| status.observed_generation == budget.metadata.generation),
            releases_unready: spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref())
                == Some("AlwaysAllow"),
            forbids_all: max_unavailable.is_some_and(|max| *max == IntOrString::Int(0) || is_percent(max, "0%"))
                || min_available.is_some_and(|min| is_percent(min, "100%")),
            sync_error: sync_error(budget),
        }
    }
}

impl PodBudget {
    /// That it allows no eviction; `None` while it allows one, and while Kubernetes has not counted its pods.
    pub(crate) fn denial(&self) -> Option<Denial> {
        if self.sync_error.is_some() {
            return Some(Denial::Uncounted);
        }
        let counts = self.counts.filter(|counts| self.is_current && counts.expected > 0)?;
        match counts {
            Counts { needed, expected, .. } if needed >= expected => Some(Denial::Never),
            Counts { allowed, .. } if allowed < 1 => Some(Denial::Now),
            _ => None,
        }
    }

    /// Whether the API server evicts pods that are not Ready, although the budget allows no eviction of others.
    pub(crate) fn evicts_unready(&self) -> bool {
        let is_met = |counts: Counts| counts.needed > 0 && counts.healthy >= counts.needed;
        self.releases_unready || self.counts.is_some_and(is_met)
    }

    /// Its limit and the number of its pods, such as `minAvailable 2 of 3 pods`; or why they could not be counted.
    pub(crate) fn limit(&self) -> String {
        if let Some(error) = &self.sync_error {
            return error.clone();
        }
        let expected = self.counts.unwrap_or_default().expected;
        format!("{} of {expected} {}", self.rule, if expected == 1 { "pod" } else { "pods" })
    }

    /// The budget with its numbers, and whether it can allow any eviction with the replicas that there are.
    pub(crate) fn describe(&self) -> String {
        if let Some(error) = &self.sync_error {
            return format!("{} ({}; kube-controller-manager cannot count its pods: {error})", self.name, self.rule);
        }
        let Some(Counts { healthy, needed, expected, .. }) = self.counts.filter(|_| self.is_current) else {
            let why = "kube-controller-manager has not counted its pods since the budget was created or changed";
            return format!("{} ({}; {why})", self.name, self.rule);
        };
        let never = if expected > 0 && needed >= expected { ": can never allow one" } else { "" };
        let (pods, rule) = (if expected == 1 { "pod is" } else { "pods are" }, &self.rule);
        let needs = if needed == 1 { "is" } else { "are" };
        format!("{} ({rule}; {healthy} of {expected} {pods} healthy, {needed} {needs} needed{never})", self.name)
    }
}

/// What keeps a pod on its node although its eviction was requested, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionBlocker {
    /// The budgets that select the pod with their numbers, as the end of a sentence.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether a webhook, a policy or the API server itself refuses the eviction, and not a PodDisruptionBudget.
    pub is_by_admission: bool,
}

impl EvictionBlocker {
    /// What keeps a pod that these budgets select. Without budgets, they could not be read.
    pub(crate) fn from_budgets(budgets: &[PodBudget]) -> Self {
        let (cause, remedy) = match budgets {
            [] => ("a PodDisruptionBudget".to_owned(), "relax the budget"),
            [budget] => (format!("PodDisruptionBudget {}", budget.describe()), remedy(budget)),
            several => {
                let names: Vec<_> = several.iter().map(|budget| budget.name.as_str()).collect();
                let cause = format!(
                    "PodDisruptionBudgets {}, because the API server evicts no pod that several budgets select",
                    names.join(", ")
                );
                (cause, SEVERAL_BUDGETS)
            }
        };
        Self { cause, remedy: remedy.to_owned(), is_by_admission: false }
    }
}

/// What to do about several budgets that select the same pod.
pub(super) const SEVERAL_BUDGETS: &str = "keep one of them for these pods";

/// What to do about a budget whose pods Kubernetes does not count.
pub(super) const CHECK_COUNTING: &str = "see whether kube-controller-manager runs, which counts the budget's pods";

/// What to do about a budget that allows no eviction.
pub(super) fn remedy(budget: &PodBudget) -> &'static str {
    match budget.denial() {
        Some(Denial::Now) => "make its pods healthy, or relax it",
        Some(Denial::Never) if !budget.forbids_all => "add replicas, or relax it, for example maxUnavailable: 1",
        Some(Denial::Never) => "relax it, for example maxUnavailable: 1",
        // Kubernetes counts pods without a scale by that alone (Kubernetes documentation, "Specifying a Disruption Budget").
        Some(Denial::Uncounted) => "fix what keeps it from counting them, or set minAvailable to a number",
        None if !budget.is_current => CHECK_COUNTING,
        None => "relax it",
    }
}

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
) -> Vec<PodBudget> {
    let selects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        selector.and_then(|selector| Selector::try_from(selector).ok()).is_some_and(|found| found.matches(labels))
    };
    budgets.into_iter().filter(selects).map(PodBudget::from).collect()
}

/// Whether two budgets of a namespace may select the same pod: no label has to have different values for them.
pub(crate) fn may_overlap(a: &PodDisruptionBudget, b: &PodDisruptionBudget) -> bool {
    let labels = |budget: &PodDisruptionBudget| {
        Some(budget.spec.as_ref()?.selector.as_ref()?.match_labels.clone().unwrap_or_default())
    };
    let (Some(a), Some(b)) = (labels(a), labels(b)) else { return false };
    a.iter().all(|(key, value)| b.get(key).is_none_or(|other| other == value))
}

/// Why the disruption controller could not count the pods. It sets the condition's reason `SyncFailed` then.
fn sync_error(budget: &PodDisruptionBudget) -> Option<String> {
    let conditions = budget.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|c| c.type_ == "DisruptionAllowed" && c.reason == "SyncFailed");
    failed.next().map(|condition| condition.message.clone())
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
    fn budget_denies_evictions_permanently_or_until_its_pods_are_healthy() {
        let denial = |spec: Value, desired: i32, expected: i32, observed: i64| {
            let status = json!({
                "desiredHealthy": desired, "expectedPods": expected, "currentHealthy": 0,
                "disruptionsAllowed": 0, "observedGeneration": observed,
            });
            let found = PodBudget::from(&budget(spec, status));
            found.denial().map(|denial| (denial, found.limit(), found.forbids_all))
        };
        let never = |limit: &str, forbids_all| Some((Denial::Never, limit.to_owned(), forbids_all));
        assert_eq!(denial(json!({"minAvailable": 2}), 2, 2, 2), never("minAvailable 2 of 2 pods", false));
        assert_eq!(denial(json!({"minAvailable": "100%"}), 2, 2, 2), never("minAvailable 100% of 2 pods", true));
        assert_eq!(denial(json!({"maxUnavailable": "0%"}), 1, 1, 2), never("maxUnavailable 0% of 1 pod", true));
        let now = Some((Denial::Now, "minAvailable 1 of 2 pods".to_owned(), false));
        assert_eq!(denial(json!({"minAvailable": 1}), 1, 2, 2), now, "it allows one when all are healthy");
        assert_eq!(denial(json!({"minAvailable": 1}), 1, 0, 2), None, "it has no pods");
        assert_eq!(denial(json!({"minAvailable": 2}), 2, 2, 1), None, "its pods are not counted yet");
    }

    /// "0 of 0 pods are healthy, 0 are needed; relax it" sends its author after the wrong cause.
    #[test]
    fn budget_that_kubernetes_cannot_count_says_so() {
        let status = |observed: i64, conditions: Value| {
            json!({
                "desiredHealthy": 0, "expectedPods": 0, "currentHealthy": 0, "disruptionsAllowed": 0,
                "observedGeneration": observed, "conditions": conditions,
            })
        };
        let why = "jobs.batch does not implement the scale subresource";
        let failed = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let found = |status| PodBudget::from(&budget(json!({"maxUnavailable": 1}), status));
        for observed in [0, 2] {
            let failed = found(status(observed, failed.clone()));
            let expected = format!("web (maxUnavailable 1; kube-controller-manager cannot count its pods: {why})");
            assert_eq!((failed.describe(), failed.denial()), (expected, Some(Denial::Uncounted)));
            assert!(remedy(&failed).contains("minAvailable to a number"));
        }
        for new in [found(status(0, Value::Null)), found(Value::Null)] {
            assert!(new.describe().contains("has not counted its pods"), "{}", new.describe());
            assert!(remedy(&new).contains("kube-controller-manager runs") && new.denial().is_none());
        }
    }

    #[test]
    fn empty_selector_selects_all_pods_and_no_selector_none() {
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let named = |name: &str, spec: Value| {
            let mut budget = budget(spec, Value::Null);
            budget.metadata.name = Some(name.to_owned());
            budget
        };
        let other = named("other", json!({"selector": {"matchLabels": {"app": "db"}}}));
        let all = [other, named("all", json!({"selector": {}})), named("none", json!({}))];
        let found: Vec<_> = selecting(&all, &labels).into_iter().map(|found| found.name).collect();
        assert_eq!(found, ["all"]);
    }

    /// Pods need not be read where no pod can have both labels.
    #[test]
    fn budgets_with_different_values_of_a_label_do_not_overlap() {
        let of = |labels: Value| budget(json!({"selector": {"matchLabels": labels}}), Value::Null);
        assert!(!may_overlap(&of(json!({"app": "a"})), &of(json!({"app": "b"}))));
        assert!(may_overlap(&of(json!({"app": "a"})), &of(json!({"app": "a", "tier": "db"}))));
        assert!(may_overlap(&of(json!({"app": "a"})), &budget(json!({"selector": {}}), Value::Null)));
        assert!(!may_overlap(&of(json!({"app": "a"})), &budget(json!({}), Value::Null)), "it selects nothing");
    }
}
