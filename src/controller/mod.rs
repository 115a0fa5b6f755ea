//! One reconcile: merge, look up, resolve, observe, plan, apply, report.

pub mod access_migration;
pub mod planner;
pub mod report;
pub mod requeue;
pub mod stores;
pub mod trigger;
pub mod watches;
pub mod write_gate;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

pub use crate::api::Stored;
use crate::api::names::fail_reason;
use crate::api::{InstanceGroup, InstanceGroupStatus, identity, stamp};
use crate::apply::{Applied, Applier, Joining, Stopped, apply};
use crate::aws::AwsErrorKind;
use crate::controller::planner::{Corridor, ObserveError, Walked};
use crate::controller::report::{Report, report};
use crate::k8s::{ClusterError, EventKind, EventRecord, Regarding};
use crate::leader::election::Leadership;
use crate::leader::other_controller::Others;
use crate::plan::{Outcome, Planned, Reason, Told};
use crate::telemetry::metrics::{Metrics, Reconciled};
use stores::Stores;

/// What all reconciles share.
pub struct Shared {
    /// The way from a group to its plan.
    pub corridor: Corridor,
    /// What the watches show.
    pub stores: Stores,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Whether this process leads.
    pub leadership: tokio::sync::watch::Receiver<Leadership>,
    /// Other controllers that work on the same groups.
    pub others: Others,
    /// The only writer of aws-auth.
    pub joining: Joining,
    /// Where the ConfigMap is.
    pub config_namespace: String,
    /// When this process began; polls keep step with it.
    pub began: tokio::time::Instant,
}

impl Shared {
    /// Whether this process leads now.
    pub fn leads(&self) -> bool {
        self.leadership.borrow().is_leader()
    }

    /// Whether this process may write now: it leads, and no other controller is at work.
    pub fn writes(&self) -> bool {
        self.leads() && self.others.hold().is_none()
    }
}

/// Why a reconcile could not be finished. Everything that a person should see is in the status by then.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Somebody did not answer.
    #[error(transparent)]
    Observe(ObserveError),
    /// The status could not be written.
    #[error("writing the status: {0}")]
    Status(#[source] ClusterError),
}

/// Reconciles one group, on a task of its own so that groups share the cores.
pub async fn reconcile(stored: Arc<Stored>, shared: Arc<Shared>) -> Result<Action, Failure> {
    let task = shared.clone();
    tokio::spawn(async move { one(&stored, &task).await }).await.unwrap_or_else(|panic| {
        tracing::error!(%panic, "a reconcile panicked");
        Ok(Action::requeue(Duration::from_secs(60)))
    })
}

/// What follows a failure: the group's own exponential backoff.
pub fn failed(stored: Arc<Stored>, failure: &Failure, shared: Arc<Shared>) -> Action {
    let key = key(&stored);
    shared.metrics.reconciled(&key, Reconciled::Failed(fail_reason::HANDLE_RECONCILE));
    if matches!(failure, Failure::Status(error) if error.is_not_found()) {
        shared.metrics.forget_group(&key);
        return Action::await_change();
    }
    if matches!(failure, Failure::Status(error) if error.is_conflict()) {
        return Action::requeue(Duration::from_millis(200));
    }
    tracing::warn!(group = %key, %failure, "will try again");
    Action::requeue(requeue::backoff(shared.corridor.memory.failed(&key), shared.corridor.settings.resync))
}

/// `namespace/name`.
pub fn key(stored: &Stored) -> String {
    format!("{}/{}", stored.namespace().unwrap_or_default(), stored.name_any())
}

async fn one(stored: &Stored, shared: &Shared) -> Result<Action, Failure> {
    let key = key(stored);
    shared.stores.started(&key, &shared.metrics);
    let _working = shared.metrics.working();
    if !shared.writes() {
        return Ok(Action::await_change());
    }
    let version = stored.resource_version();
    if shared.corridor.memory.stale(&key, version.as_deref()) {
        return Ok(Action::requeue(Duration::from_millis(50)));
    }
    if shared.corridor.memory.is_gone(&key, stored.uid().as_deref()) {
        return Ok(Action::await_change());
    }
    let group = match &stored.0 {
        Ok(group) => group,
        // The decoder's own words may quote values.
        Err(_) => return undecodable(stored, shared).await,
    };
    if !shared.stores.knows_namespace(group) {
        return Ok(Action::requeue(Duration::from_millis(200)));
    }
    let now = Timestamp::now();
    let walked = walk(group, &key, shared, now).await?;
    let (plan, bounds) = (walked.plan, walked.bounds);
    let leading = || shared.writes();
    let applier = Applier {
        inventory: &shared.corridor.inventory,
        cluster: shared.corridor.cluster.as_ref(),
        memory: &shared.corridor.memory,
        joining: &shared.joining,
        leading: &leading,
        config_namespace: &shared.config_namespace,
        rest: shared.corridor.settings.timing.rest,
        now,
    };
    let finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    let applied = apply(&applier, &identity(group), version.as_deref().unwrap_or_default(), &finalizers, plan).await;
    // Whoever leads now tells how the group stands; a process that was paused on the way writes nothing.
    if !shared.writes() {
        return Ok(Action::await_change());
    }
    let old = group.status.clone().unwrap_or_default();
    let report = report(&old, &applied, bounds.as_ref(), &stamp(now));
    write(group, &key, version, &applied, &report, shared).await?;
    measure(&key, &old, &applied, &report, walked.failed, shared);
    Ok(requeue::next(&key, &applied, report.outcome.as_ref(), shared))
}

/// Walks; nodes are only taken away on the ground of a young look.
async fn walk(group: &InstanceGroup, key: &str, shared: &Shared, now: Timestamp) -> Result<Walked, Failure> {
    let corridor = &shared.corridor;
    let around = shared.stores.around(group, corridor);
    let young = requeue::young(corridor.settings.timing.poll);
    let flux = corridor.memory.in_flux(key) || requeue::unsettled(group);
    let age = if flux { young } else { corridor.settings.resync.mul_f64(0.5) };
    let mut walked = corridor.walk(group, &around, age, now).await;
    let disrupts = |w: &Walked| w.plan.steps.iter().any(|Planned { step, .. }| step.disrupts());
    if !flux && walked.as_ref().is_ok_and(disrupts) {
        walked = corridor.walk(group, &around, young, now).await;
    }
    match walked {
        Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {
            Ok(may_not(group, error.missing_permission(), &error.to_string()))
        }
        Err(ObserveError::Cluster(error @ ClusterError::Forbidden { .. })) => {
            Ok(may_not(group, None, &error.to_string()))
        }
        other => other.map_err(Failure::Observe),
    }
}

fn may_not(group: &InstanceGroup, action: Option<String>, error: &str) -> Walked {
    let message = match action {
        Some(action) => format!("the controller may not {action}; add the action to its IAM role ({error})"),
        None => format!("{error}; add the right to the controller's Role"),
    };
    crate::controller::planner::stalled(&identity(group), Reason::MissingPermission, message)
}

async fn write(
    group: &InstanceGroup,
    key: &str,
    version: Option<String>,
    applied: &Applied,
    report: &Report,
    shared: &Shared,
) -> Result<(), Failure> {
    let corridor = &shared.corridor;
    let mut version = applied.resource_version.clone().or(version).unwrap_or_default();
    if applied.resource_version.is_some() {
        corridor.memory.wrote(key, &version);
    }
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let regarding = regarding(&group.metadata);
    for event in &report.acts {
        tell(&regarding, event, shared).await;
    }
    // Telling takes its time too.
    if !shared.writes() {
        return Ok(());
    }
    if let Some(patch) = &report.patch {
        version =
            corridor.cluster.patch_status(&namespace, &name, &version, patch.clone()).await.map_err(Failure::Status)?;
        corridor.memory.wrote(key, &version);
    }
    for event in &report.events {
        tell(&regarding, event, shared).await;
    }
    if report.outcome == Some(Outcome::Deleted) && applied.stopped.is_none() {
        corridor.memory.set_gone(key, &regarding.uid);
    }
    Ok(())
}

/// The group, for an event about it.
pub fn regarding(meta: &ObjectMeta) -> Regarding {
    Regarding {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "InstanceGroup".into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

/// An event that cannot be written is worth a log line and no more.
pub async fn tell(about: &Regarding, told: &Told, shared: &Shared) {
    let kind = if told.warning { EventKind::Warning } else { EventKind::Normal };
    let record =
        EventRecord { kind, reason: told.reason.clone(), action: "Reconcile".into(), note: told.message.clone() };
    if let Err(error) = shared.corridor.cluster.publish(about, &record).await {
        tracing::warn!(object = %about.name, reason = %told.reason, %error, "an event was not written");
    }
}

fn measure(
    key: &str,
    old: &InstanceGroupStatus,
    applied: &Applied,
    report: &Report,
    failed: Option<&'static str>,
    shared: &Shared,
) {
    let metrics = &shared.metrics;
    match (failed, &applied.stopped) {
        (Some(reason), _) => metrics.reconciled(key, Reconciled::Failed(reason)),
        (None, Some(Stopped::NotLeading)) => {}
        (None, Some(_)) => metrics.reconciled(key, Reconciled::Failed(fail_reason::HANDLE_RECONCILE)),
        (None, None) if matches!(report.outcome, Some(Outcome::Progressing { .. })) => {
            metrics.reconciled(key, Reconciled::RequeueAfter)
        }
        (None, None) => metrics.reconciled(key, Reconciled::Success),
    }
    if matches!(report.outcome, Some(Outcome::Deleted)) {
        // Last, so that nothing makes its series anew.
        return metrics.forget_group(key);
    }
    let patched = |field: &str| report.patch.as_ref().and_then(|p| p.get(field).cloned());
    let state =
        patched("currentState").and_then(|s| s.as_str().map(str::to_owned)).or_else(|| old.current_state.clone());
    metrics.group_status(key, state.as_deref().unwrap_or("Init"));
    let counts = applied.plan.facts.status.get("nodes").and_then(|n| serde_json::from_value(n.clone()).ok());
    if let Some(counts) = counts.or_else(|| old.nodes.clone()) {
        metrics.nodes(key, &counts);
    }
}

/// What cannot be decoded is answered, and other groups go on.
async fn undecodable(stored: &Stored, shared: &Shared) -> Result<Action, Failure> {
    let key = key(stored);
    shared.metrics.reconciled(&key, Reconciled::Failed(fail_reason::GET_REQUEST));
    let message = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`, correct it in Git and apply it again";
    let conditions = serde_json::json!([
        { "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": message, "lastTransitionTime": stamp(Timestamp::now()) },
        { "type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": message, "lastTransitionTime": stamp(Timestamp::now()) },
    ]);
    let patch = serde_json::json!({ "currentState": "Error", "conditions": conditions, "observedGeneration": stored.meta().generation });
    let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
    let version = stored.resource_version().unwrap_or_default();
    if !shared.stores.answered(&key, stored.meta().generation) {
        shared.corridor.cluster.patch_status(&namespace, &name, &version, patch).await.map_err(Failure::Status)?;
        shared.stores.set_answered(&key, stored.meta().generation);
    }
    Ok(Action::await_change())
}
