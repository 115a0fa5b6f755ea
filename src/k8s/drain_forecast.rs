//! Which drains PodDisruptionBudgets will block, as pods and budgets are now.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use super::budgets::{self, Denial, PodBudget};
use super::{KubeError, PodInfo, PodKind, pods};

/// What is known of the drains of some nodes before they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainForecast {
    /// Pods that will block a drain, by node and pod.
    pub obstacles: Vec<DrainBlocker>,
    /// Pods that no controller creates again once they are evicted: node and `namespace/name`. Only those of namespaces
    /// whose pods were read.
    pub unmanaged: Vec<(String, String)>,
}

/// A pod that will block the drain of its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrainBlocker {
    /// The node that would be drained.
    pub node: String,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Kind and name of what owns the pod; absent for a pod without an owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why the pod cannot be evicted.
    pub kind: DrainBlockerKind,
    /// Name of the budget; with a comma between several.
    pub budget: String,
    /// The numbers of the budget, for display; or why there are none.
    pub limit: String,
    /// What to do about it.
    pub remedy: String,
}

/// Why a pod cannot be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DrainBlockerKind {
    /// Its budget allows no eviction even if all pods are healthy.
    Never,
    /// Its budget allows none now, because too few of its pods are healthy.
    Now,
    /// Its budget allows none, because Kubernetes cannot count its pods.
    Uncounted,
    /// Several budgets select it: the API server evicts no such pod, whatever their numbers.
    SeveralBudgets,
}

impl DrainBlocker {
    /// What blocks the pod, and what to do about it, as the end of a sentence that begins with the pod.
    pub(crate) fn describe(&self) -> String {
        let Self { budget, limit, remedy, .. } = self;
        match self.kind {
            DrainBlockerKind::Never => {
                format!("PodDisruptionBudget {budget}, {limit}, can never allow an eviction; {remedy}")
            }
            DrainBlockerKind::Now => format!(
                "PodDisruptionBudget {budget}, {limit}, allows no eviction now, because too few of its pods are healthy; {remedy}"
            ),
            DrainBlockerKind::Uncounted => format!(
                "PodDisruptionBudget {budget} allows no eviction, because kube-controller-manager cannot count its pods: {limit}; {remedy}"
            ),
            DrainBlockerKind::SeveralBudgets => format!(
                "PodDisruptionBudgets {budget} all select it, and the API server evicts no pod with several budgets; {remedy}"
            ),
        }
    }

    /// The owner of the pod with its namespace, or else the pod: a name that stays when the pod is replaced.
    pub(crate) fn subject(&self) -> String {
        let namespace = self.pod.split('/').next().unwrap_or_default();
        match self.owner.as_ref().and_then(|owner| owner.split_once(' ')) {
            Some((kind, name)) => format!("{kind} {namespace}/{name}"),
            None => format!("pod {}, which has no owner", self.pod),
        }
    }

    /// What will block a pod that these budgets select; `None` when the API server evicts it.
    pub(crate) fn new(node: &str, pod: &Pod, selecting: &[PodBudget]) -> Option<Self> {
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        let (kind, limit, remedy) = match selecting {
            [] => return None,
            [budget] => {
                // The API server then evicts the pod without a check of the number of allowed evictions.
                let denial = budget.denial().filter(|_| is_ready(pod) || !budget.evicts_unready())?;
                let kind = match denial {
                    Denial::Never => DrainBlockerKind::Never,
                    Denial::Now => DrainBlockerKind::Now,
                    Denial::Uncounted => DrainBlockerKind::Uncounted,
                };
                (kind, budget.limit(), budgets::remedy(budget))
            }
            _ => (DrainBlockerKind::SeveralBudgets, String::new(), budgets::SEVERAL_BUDGETS),
        };
        let names: Vec<_> = selecting.iter().map(|budget| budget.name.as_str()).collect();
        Some(Self {
            node: node.to_owned(),
            pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            owner: owner.map(|owner| format!("{} {}", owner.kind, owner.name)),
            kind,
            budget: names.join(", "),
            limit,
            remedy: remedy.to_owned(),
        })
    }
}

/// Whether the API server checks budgets before it evicts a pod. It does not for a pod that is pending or terminating.
fn counts_for_budgets(pod: &Pod) -> bool {
    let info = PodInfo::from(pod);
    info.must_be_evicted() && info.phase != "Pending" && info.deletion_timestamp.is_none()
}

fn is_ready(pod: &Pod) -> bool {
    pods::condition(pod, "Ready").is_some_and(|(status, ..)| status == "True")
}

impl DrainForecast {
    /// Adds the pods of a namespace that are on one of the nodes.
    fn add(&mut self, budgets: &[&PodDisruptionBudget], pods: &[Pod], nodes: &BTreeSet<String>) {
        for pod in pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let Some(node) = node.filter(|node| nodes.contains(*node)) else { continue };
            if counts_for_budgets(pod) {
                let selecting = budgets::selecting(budgets.iter().copied(), pod.labels());
                self.obstacles.extend(DrainBlocker::new(node, pod, &selecting));
            }
            let info = PodInfo::from(pod);
            if info.must_be_evicted() && info.kind == PodKind::Unmanaged {
                self.unmanaged.push((node.clone(), format!("{}/{}", info.namespace, info.name)));
            }
        }
    }
}

/// The budgets of each namespace whose pods have to be read: one of them allows nothing, or two may select the same pod.
fn budgets_to_check(budgets: &[PodDisruptionBudget]) -> BTreeMap<String, Vec<&PodDisruptionBudget>> {
    let mut by_namespace: BTreeMap<String, Vec<&PodDisruptionBudget>> = BTreeMap::new();
    for budget in budgets {
        by_namespace.entry(budget.namespace().unwrap_or_default()).or_default().push(budget);
    }
    by_namespace.retain(|_, found| {
        let overlaps =
            |(at, a): (usize, &&PodDisruptionBudget)| found[at + 1..].iter().any(|b| budgets::may_overlap(a, b));
        found.iter().any(|budget| PodBudget::from(*budget).denial().is_some()) || found.iter().enumerate().any(overlaps)
    });
    by_namespace
}

/// Reads what will block the drains of these nodes.
pub(super) async fn read(client: &Client, nodes: &BTreeSet<String>) -> Result<DrainForecast, KubeError> {
    let mut forecast = DrainForecast::default();
    let budgets = if nodes.is_empty() { Vec::new() } else { budgets::list(client, None).await? };
    for (namespace, budgets) in budgets_to_check(&budgets) {
        let pods = pods::list(&Api::namespaced(client.clone(), &namespace), pods::RUNNING).await?;
        forecast.add(&budgets, &pods, nodes);
    }
    forecast.obstacles.sort();
    forecast.unmanaged.sort();
    Ok(forecast)
}

/// Reads which pods of one node are blocked now: its pods, and the budgets of their namespaces.
pub(super) async fn read_node(client: &Client, node: &str) -> Result<Vec<DrainBlocker>, KubeError> {
    let fields = format!("spec.nodeName={node},{}", pods::RUNNING);
    let mut by_namespace: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in pods::list(&Api::all(client.clone()), &fields).await? {
        by_namespace.entry(pod.namespace().unwrap_or_default()).or_default().push(pod);
    }
    let (mut forecast, nodes) = (DrainForecast::default(), BTreeSet::from([node.to_owned()]));
    for (namespace, pods) in by_namespace {
        let budgets = budgets::list(client, Some(&namespace)).await?;
        forecast.add(&budgets.iter().collect::<Vec<_>>(), &pods, &nodes);
    }
    forecast.obstacles.sort();
    Ok(forecast.obstacles)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::k8s::fake;

    fn budget(namespace: &str, name: &str, app: &str, spec: Value, allowed: i32, needed: i32) -> Value {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": app}});
        json!({
            "metadata": {"name": name, "namespace": namespace, "generation": 1}, "spec": spec,
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": needed, "expectedPods": 2, "observedGeneration": 1},
        })
    }

    fn pod(name: &str, app: &str, node: &str, more: Value) -> Value {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": app, "uid": "u", "controller": true}]);
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "team", "labels": {"app": app}, "ownerReferences": owner},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        crate::api::apply_merge_patch(&mut pod, &more);
        pod
    }

    /// The forecast of a cluster with these budgets and pods in the namespace `team`, and the namespaces that were read.
    async fn forecast(budgets: Vec<Value>, pods: Vec<Value>) -> (DrainForecast, Vec<String>) {
        let read_namespaces = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = read_namespaces.clone();
        let client = fake::client(move |call| {
            let items = match call.path.as_str() {
                "/apis/policy/v1/poddisruptionbudgets" => budgets.clone(),
                path => {
                    log.lock().expect("no panic").push(path.split('/').nth(4).unwrap_or_default().to_owned());
                    pods.clone()
                }
            };
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
        });
        let found = read(&client, &["n1".to_owned()].into()).await.expect("a forecast");
        let namespaces = read_namespaces.lock().expect("no panic").clone();
        (found, namespaces)
    }

    /// A tenant who learns of it during the soak corrects it before the drain hangs.
    #[tokio::test]
    async fn forecast_names_owner_budget_numbers_and_remedy() {
        let budgets = vec![
            budget("team", "redis", "redis", json!({"minAvailable": 2}), 0, 2),
            budget("team", "web", "web", json!({"minAvailable": 1}), 0, 1),
            budget("team", "free", "free", json!({"minAvailable": 1}), 1, 1),
        ];
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let pods = vec![
            pod("redis-0", "redis", "n1", json!({})),
            pod("redis-1", "redis", "other", json!({})),
            pod("redis-2", "redis", "n1", json!({"status": {"phase": "Pending"}})),
            pod("web-0", "web", "n1", json!({})),
            // Enough of the others are healthy: the API server evicts it.
            pod("web-1", "web", "n1", not_ready),
            pod("free-0", "free", "n1", json!({"metadata": {"ownerReferences": null}})),
        ];
        let (found, _) = forecast(budgets, pods).await;
        let shown: Vec<_> = found.obstacles.iter().map(|o| format!("{}: {}", o.subject(), o.describe())).collect();
        assert_eq!(
            shown,
            [
                "StatefulSet team/redis: PodDisruptionBudget redis, minAvailable 2 of 2 pods, can never allow an eviction; add replicas, or relax it, for example maxUnavailable: 1",
                "StatefulSet team/web: PodDisruptionBudget web, minAvailable 1 of 2 pods, allows no eviction now, because too few of its pods are healthy; make its pods healthy, or relax it",
            ]
        );
        assert_eq!(found.unmanaged, [("n1".to_owned(), "team/free-0".to_owned())]);
    }

    /// EKS returns which node it could not drain, and neither the pod nor the budget.
    #[tokio::test]
    async fn blocked_pods_of_one_node_are_found_without_those_of_others() {
        let client = fake::client(move |call| {
            let items = match call.path.as_str() {
                "/api/v1/pods" => vec![pod("web-0", "web", "n1", json!({})), pod("free-0", "free", "n1", json!({}))],
                "/apis/policy/v1/namespaces/team/poddisruptionbudgets" => vec![
                    budget("team", "web", "web", json!({"minAvailable": 2}), 0, 2),
                    budget("team", "free", "free", json!({"minAvailable": 1}), 1, 1),
                ],
                other => panic!("{other} need not be read"),
            };
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
        });
        let found = read_node(&client, "n1").await.expect("an answer");
        let shown: Vec<_> = found.iter().map(|o| (o.pod.as_str(), o.budget.as_str(), o.limit.as_str())).collect();
        assert_eq!(shown, [("team/web-0", "web", "minAvailable 2 of 2 pods")]);
    }

    /// The eviction API answers such a pod with an internal error forever, although both budgets allow an eviction.
    #[tokio::test]
    async fn pod_with_two_budgets_cannot_be_evicted() {
        let all = json!({"minAvailable": 1});
        let budgets = vec![
            budget("team", "a", "web", all.clone(), 1, 1),
            budget("team", "b", "web", all.clone(), 1, 1),
            budget("calm", "c", "web", all.clone(), 1, 1),
            budget("calm", "d", "db", all, 1, 1),
        ];
        let (found, namespaces) = forecast(budgets, vec![pod("web-0", "web", "n1", json!({}))]).await;
        let kinds: Vec<_> = found.obstacles.iter().map(|o| (o.kind, o.budget.as_str())).collect();
        assert_eq!(kinds, [(DrainBlockerKind::SeveralBudgets, "a, b")]);
        assert_eq!(namespaces, ["team"], "pods are read only where a budget may hold one");
    }
}
