//! Pods of a Node: listing, eviction and deletion.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::response::StatusDetails;
use kube::core::{ObjectMeta, Status};
use kube::{Client, ResourceExt};

use super::access_review;
use super::budgets::{self, EvictionBlocker};
use super::error::call;
use super::groups::post_params;
use super::lists::list_pages;
use super::{EvictOutcome, KubeError, PodInfo, PodKind, UnschedulablePod};

/// The taint of a cordoned node.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Grace period that the API server uses when a pod sets none.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Pods whose containers have not ended.
pub(super) const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

pub(super) async fn list(pods: &Api<Pod>, fields: &str) -> Result<Vec<Pod>, KubeError> {
    list_pages("pods", pods, ListParams::default().fields(fields), Some).await
}

pub(super) async fn on_node(client: &Client, node: &str) -> Result<Vec<PodInfo>, KubeError> {
    let pods = Api::all(client.clone());
    let found = list(&pods, &format!("spec.nodeName={node}")).await?;
    Ok(found.iter().map(PodInfo::from).collect())
}

impl From<&Pod> for PodInfo {
    fn from(pod: &Pod) -> Self {
        let owner = pod.owner_references().iter().find(|o| o.controller == Some(true));
        let owner_kind = owner.map(|owner| owner.kind.clone());
        let kind = match owner_kind.as_deref() {
            _ if pod.annotations().contains_key(MIRROR_ANNOTATION) => PodKind::Mirror,
            Some("DaemonSet") => PodKind::DaemonSet,
            Some(_) => PodKind::Owned,
            None => PodKind::Unmanaged,
        };
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        PodInfo {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            kind,
            owner_kind,
            owner_uid: owner.map(|owner| owner.uid.clone()),
            grace_seconds: spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE_SECONDS),
            phase: phase.unwrap_or_else(|| "Unknown".to_owned()),
            deletion_timestamp: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            tolerates_cordon: spec
                .and_then(|spec| spec.tolerations.as_ref())
                .into_iter()
                .flatten()
                .any(tolerates_cordon),
        }
    }
}

/// Whether a pod with this toleration may be scheduled to a cordoned node.
fn tolerates_cordon(toleration: &Toleration) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_any_value = toleration.operator.as_deref() == Some("Exists");
    let is_of_cordon = match key {
        "" => is_any_value,
        key => {
            key == UNSCHEDULABLE_TAINT && (is_any_value || toleration.value.as_deref().unwrap_or_default().is_empty())
        }
    };
    is_of_cordon && matches!(toleration.effect.as_deref().unwrap_or_default(), "" | "NoSchedule")
}

impl PodInfo {
    /// Whether a drain leaves the pod on its node: a DaemonSet or the kubelet would put it there again.
    pub(crate) fn is_ignored(&self) -> bool {
        matches!(self.kind, PodKind::DaemonSet | PodKind::Mirror)
    }

    /// Whether its containers have ended, so that no drain waits for it.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether a drain has to evict it.
    pub(crate) fn must_be_evicted(&self) -> bool {
        !self.is_ignored() && !self.is_finished()
    }
}

/// Status, reason and message of a pod's condition.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default(), found.message.as_deref().unwrap_or_default()))
}

/// The body of an eviction with the pod's UID as a precondition. kube's own `evict` serializes the options under a name
/// that the API server ignores. The UID would not be checked, and a later pod with the same name could be evicted.
fn eviction(name: &str, uid: &str) -> Eviction {
    Eviction {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

pub(super) async fn evict(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<EvictOutcome, KubeError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let (params, body) = (post_params(), eviction(name, uid));
    let request = pods.create_subresource::<_, Status>("eviction", name, &params, &body);
    let error = match call("create", "pods/eviction", request).await {
        Ok(_) => return Ok(EvictOutcome::Evicted),
        Err(error) => error,
    };
    let broken_budget = broken_budget(&error);
    if broken_budget.is_none() && error.is_not_found() {
        return Ok(EvictOutcome::Gone);
    }
    if broken_budget.is_some() || error.has_cause("DisruptionBudget") {
        return Ok(explain_blocked_eviction(client, &pods, (namespace, name, uid), broken_budget).await);
    }
    if is_unexplained(&error)
        && let Some(outcome) = blocked_by_several_budgets(client, &pods, (namespace, name, uid)).await
    {
        return Ok(outcome);
    }
    if error.is_conflict() && is_gone(&pods, name, uid).await? {
        return Ok(EvictOutcome::Gone);
    }
    admission_blocker(client, namespace, &error).await.map(EvictOutcome::Blocked).ok_or(error)
}

/// Whether an error has only a message. The API server returns such an error for every pod that several budgets select,
/// and for some of its own failures (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes).
fn is_unexplained(error: &KubeError) -> bool {
    error.api_status().is_some_and(|status| status.code == 500 && status.reason.is_empty() && status.details.is_none())
}

/// The blocked eviction of a pod that several budgets select, or `Gone`; `None` while at most one is known to.
async fn blocked_by_several_budgets(
    client: &Client,
    pods: &Api<Pod>,
    (namespace, name, uid): (&str, &str, &str),
) -> Option<EvictOutcome> {
    let (pod, budgets) =
        futures::join!(call("get", "pods", pods.get_metadata_opt(name)), budgets::list(client, Some(namespace)));
    let Some(pod) = pod.ok()?.filter(|pod| pod.uid().as_deref() == Some(uid)) else { return Some(EvictOutcome::Gone) };
    let all = budgets.ok()?;
    let selecting = budgets::selecting(&all, pod.labels());
    (selecting.len() > 1).then(|| EvictOutcome::Blocked(EvictionBlocker::from_budgets(&selecting)))
}

/// Whether the API server gave up counting the eviction in a budget, because others change the budget's status. Of its
/// timeouts, only this one has a retry time and no cause (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes).
fn is_budget_timeout(status: &Status) -> bool {
    let is_retried = |details: &StatusDetails| details.retry_after_seconds > 0 && details.causes.is_empty();
    status.reason == "Timeout" && status.details.as_ref().is_some_and(is_retried)
}

/// The budget that the API server could not count the eviction in. Its answer is about the budget, and not about the pod:
/// `Forbidden` for a negative number of evictions, or too many that the disruption controller has not confirmed; `Conflict`,
/// or `Timeout` without a name, while others change the status; `NotFound` for a budget that was deleted meanwhile
/// (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes).
fn broken_budget(error: &KubeError) -> Option<EvictionBlocker> {
    let status = error.api_status()?;
    let details = status.details.as_ref();
    let of_budget = |kind: &str| kind.to_ascii_lowercase().starts_with("poddisruptionbudget");
    let named = details.filter(|details| details.group == "policy" && of_budget(&details.kind));
    let is_timeout = is_budget_timeout(status);
    let budget = match named {
        Some(details) => format!("PodDisruptionBudget {}", details.name),
        None if is_timeout => "a PodDisruptionBudget".to_owned(),
        None => return None,
    };
    let (problem, remedy) = match error {
        _ if is_timeout => ("whose status changes too often", FIND_EVICTIONS),
        KubeError::Conflict { .. } => ("whose status changes too often", FIND_EVICTIONS),
        KubeError::NotFound { .. } => ("which was deleted meanwhile", "wait for the next try"),
        _ => ("whose status cannot be used", budgets::CHECK_COUNTING),
    };
    let cause = format!("{budget}, {problem} ({})", status.message);
    Some(EvictionBlocker { cause, remedy: remedy.to_owned(), is_by_admission: false })
}

/// What to do about evictions that change the status of a budget at the same time.
const FIND_EVICTIONS: &str = "if that lasts, see what else evicts its pods";

/// Why admission denies the eviction of this pod; `None` for what would end every eviction. A webhook or policy denies it, the
/// API server cannot reach the webhook, or the Namespace of the pod is being deleted. A webhook chooses the code of its denial.
async fn admission_blocker(client: &Client, namespace: &str, error: &KubeError) -> Option<EvictionBlocker> {
    let status = error.api_status()?;
    let is_terminating = error.has_cause("NamespaceTerminating");
    let is_denied = match status.code {
        _ if is_terminating => true,
        401 | 404 | 429 => false,
        // RBAC answers with the same code and reason as a policy. The API server returns which of both it is.
        403 => access_review::is_allowed(client, "create", "pods/eviction", Some(namespace)).await.unwrap_or(false),
        400..=499 => true,
        // So it reports that a webhook does not answer.
        500 => status.reason == "InternalError",
        _ => false,
    };
    let remedy = match is_terminating {
        true => "wait until the Namespace of the pod is gone, or see what its deletion waits for",
        false => "see what the message names, such as a webhook or policy",
    };
    let cause = format!("the API server ({})", status.message.trim_end_matches('.'));
    is_denied.then(|| EvictionBlocker { cause, remedy: remedy.to_owned(), is_by_admission: true })
}

/// A blocked eviction with the budgets that select the pod; or `Gone`, because the API server checks the budget before
/// the UID. Budgets that cannot be read are left out. `broken_budget` is what the API server named itself.
async fn explain_blocked_eviction(
    client: &Client,
    pods: &Api<Pod>,
    (namespace, name, uid): (&str, &str, &str),
    broken_budget: Option<EvictionBlocker>,
) -> EvictOutcome {
    let (pod, budgets) =
        futures::join!(call("get", "pods", pods.get_metadata_opt(name)), budgets::list(client, Some(namespace)),);
    let labels = match &pod {
        Ok(Some(pod)) if pod.uid().as_deref() == Some(uid) => pod.labels(),
        Ok(_) => return EvictOutcome::Gone,
        Err(_) => return EvictOutcome::Blocked(broken_budget.unwrap_or_else(|| EvictionBlocker::from_budgets(&[]))),
    };
    if let Some(blocker) = broken_budget {
        return EvictOutcome::Blocked(blocker);
    }
    let all = budgets.unwrap_or_default();
    EvictOutcome::Blocked(EvictionBlocker::from_budgets(&budgets::selecting(&all, labels)))
}

async fn is_gone(pods: &Api<Pod>, name: &str, uid: &str) -> Result<bool, KubeError> {
    let pod = call("get", "pods", pods.get_metadata_opt(name)).await?;
    Ok(pod.is_none_or(|pod| pod.uid().as_deref() != Some(uid)))
}

pub(super) async fn delete(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    grace: Option<u32>,
) -> Result<(), KubeError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match call("delete", "pods", pods.delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) if error.is_conflict() && is_gone(&pods, name, uid).await? => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) async fn unschedulable(
    client: &Client,
    namespace: &str,
    owners: &BTreeSet<String>,
) -> Result<Vec<UnschedulablePod>, KubeError> {
    let pods = Api::namespaced(client.clone(), namespace);
    let pending = list(&pods, "status.phase=Pending").await?;
    Ok(pending.iter().filter_map(|pod| unschedulable_pod(pod, owners)).collect())
}

fn unschedulable_pod(pod: &Pod, owners: &BTreeSet<String>) -> Option<UnschedulablePod> {
    let info = PodInfo::from(pod);
    let owner_uid = info.owner_uid.filter(|uid| owners.contains(uid))?;
    match condition(pod, "PodScheduled")? {
        ("False", "Unschedulable", message) => Some(UnschedulablePod {
            namespace: info.namespace,
            name: info.name,
            owner_uid,
            message: message.to_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
