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

pub use crate::api::GroupObject;
use crate::api::names::fail_reason;
use crate::api::{InstanceGroup, InstanceGroupStatus, group_id, rfc3339};
use crate::apply::{Applied, Applier, AwsAuthWriter, StepError, apply};
use crate::aws::AwsErrorKind;
use crate::controller::planner::{ObserveError, Planner, Planning};
use crate::controller::report::{Report, report};
use crate::k8s::{EventTarget, KubeError, KubeEvent};
use crate::leader::election::Leadership;
use crate::leader::other_controller::ConflictDetector;
use crate::plan::{Event, Outcome, PlannedStep, Reason};
use crate::telemetry::metrics::{Metrics, ReconcileResult};
use stores::Stores;

/// What all reconciles share.
pub struct Context {
    /// The way from a group to its plan.
    pub planner: Planner,
    /// What the watches show.
    pub stores: Stores,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Whether this process leads.
    pub leadership: tokio::sync::watch::Receiver<Leadership>,
    /// Other controllers that work on the same groups.
    pub conflict_detector: ConflictDetector,
    /// The only writer of aws-auth.
    pub aws_auth_writer: AwsAuthWriter,
    /// Where the ConfigMap is.
    pub config_namespace: String,
    /// When this process began; polls keep step with it.
    pub started_at: tokio::time::Instant,
}

impl Context {
    /// Whether this process leads now.
    pub fn is_leader(&self) -> bool {
        self.leadership.borrow().is_leader()
    }

    /// Whether this process may write now: it leads, and no other controller is at work.
    pub fn can_write(&self) -> bool {
        self.is_leader() && self.conflict_detector.hold().is_none()
    }
}

/// Why a reconcile could not be finished. Everything that a person should see is in the status by then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody did not answer.
    #[error(transparent)]
    Observe(ObserveError),
    /// The status could not be written.
    #[error("writing the status: {0}")]
    Status(#[source] KubeError),
}

/// Reconciles one group, on a task of its own so that groups share the cores.
pub async fn reconcile(stored: Arc<GroupObject>, shared: Arc<Context>) -> Result<Action, Error> {
    let task = shared.clone();
    tokio::spawn(async move { reconcile_group(&stored, &task).await }).await.unwrap_or_else(|panic| {
        tracing::error!(%panic, "a reconcile panicked");
        Ok(Action::requeue(Duration::from_secs(60)))
    })
}

/// What follows a failure: the group's own exponential backoff.
pub fn error_policy(stored: Arc<GroupObject>, failure: &Error, shared: Arc<Context>) -> Action {
    let key = group_key(&stored);
    shared.metrics.record_reconcile(&key, ReconcileResult::Failed(fail_reason::HANDLE_RECONCILE));
    if matches!(failure, Error::Status(error) if error.is_not_found()) {
        shared.metrics.forget_group(&key);
        return Action::await_change();
    }
    if matches!(failure, Error::Status(error) if error.is_conflict()) {
        return Action::requeue(Duration::from_millis(200));
    }
    tracing::warn!(group = %key, %failure, "will try again");
    Action::requeue(requeue::backoff(
        shared.planner.process_state.record_failure(&key),
        shared.planner.settings.resync_period,
    ))
}

/// `namespace/name`.
pub fn group_key(stored: &GroupObject) -> String {
    format!("{}/{}", stored.namespace().unwrap_or_default(), stored.name_any())
}

async fn reconcile_group(stored: &GroupObject, shared: &Context) -> Result<Action, Error> {
    let key = group_key(stored);
    shared.stores.dequeue(&key, &shared.metrics);
    let _working = shared.metrics.start_reconcile();
    if !shared.can_write() {
        return Ok(Action::await_change());
    }
    let version = stored.resource_version();
    if shared.planner.process_state.is_stale(&key, version.as_deref()) {
        return Ok(Action::requeue(Duration::from_millis(50)));
    }
    if shared.planner.process_state.is_finalized(&key, stored.uid().as_deref()) {
        return Ok(Action::await_change());
    }
    let group = match &stored.0 {
        Ok(group) => group,
        // The decoder's own words may quote values.
        Err(_) => return report_invalid_object(stored, shared).await,
    };
    if !shared.stores.has_namespace(group) {
        return Ok(Action::requeue(Duration::from_millis(200)));
    }
    let now = Timestamp::now();
    let walked = plan_with_fresh_reads(group, &key, shared, now).await?;
    let (plan, bounds) = (walked.plan, walked.boundaries);
    let leading = || shared.can_write();
    let applier = Applier {
        inventory: &shared.planner.inventory,
        kube: shared.planner.kube.as_ref(),
        process_state: &shared.planner.process_state,
        aws_auth: &shared.aws_auth_writer,
        is_leader: &leading,
        config_namespace: &shared.config_namespace,
        drain_retry_delay: shared.planner.settings.timing.drain_retry_delay,
        now,
    };
    let finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    let applied = apply(&applier, &group_id(group), version.as_deref().unwrap_or_default(), &finalizers, plan).await;
    // Whoever leads now tells how the group stands; a process that was paused on the way writes nothing.
    if !shared.can_write() {
        return Ok(Action::await_change());
    }
    let old = group.status.clone().unwrap_or_default();
    let report = report(&old, &applied, bounds.as_ref(), &rfc3339(now));
    update_status(group, &key, version, &applied, &report, shared).await?;
    record_metrics(&key, &old, &applied, &report, walked.failure_reason, shared);
    Ok(requeue::next_action(&key, &applied, report.outcome.as_ref(), shared))
}

/// Walks; nodes are only taken away on the ground of a young look.
async fn plan_with_fresh_reads(
    group: &InstanceGroup,
    key: &str,
    shared: &Context,
    now: Timestamp,
) -> Result<Planning, Error> {
    let corridor = &shared.planner;
    let around = shared.stores.group_context(group, corridor);
    let young = requeue::max_cache_age(corridor.settings.timing.poll_interval);
    let flux = corridor.process_state.is_progressing(key) || requeue::needs_fresh_reads(group);
    let age = if flux { young } else { corridor.settings.resync_period.mul_f64(0.5) };
    let mut walked = corridor.plan(group, &around, age, now).await;
    let disrupts = |w: &Planning| w.plan.steps.iter().any(|PlannedStep { step, .. }| step.is_disruptive());
    if !flux && walked.as_ref().is_ok_and(disrupts) {
        walked = corridor.plan(group, &around, young, now).await;
    }
    match walked {
        Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {
            Ok(missing_permission(group, error.missing_permission(), &error.to_string()))
        }
        Err(ObserveError::Cluster(error @ KubeError::Forbidden { .. })) => {
            Ok(missing_permission(group, None, &error.to_string()))
        }
        other => other.map_err(Error::Observe),
    }
}

fn missing_permission(group: &InstanceGroup, action: Option<String>, error: &str) -> Planning {
    let message = match action {
        Some(action) => format!("the controller may not {action}; add the action to its IAM role ({error})"),
        None => format!("{error}; add the right to the controller's Role"),
    };
    crate::controller::planner::blocked(&group_id(group), Reason::MissingPermission, message)
}

async fn update_status(
    group: &InstanceGroup,
    key: &str,
    version: Option<String>,
    applied: &Applied,
    report: &Report,
    shared: &Context,
) -> Result<(), Error> {
    let corridor = &shared.planner;
    let mut version = applied.resource_version.clone().or(version).unwrap_or_default();
    if applied.resource_version.is_some() {
        corridor.process_state.record_write(key, &version);
    }
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let regarding = event_target(&group.metadata);
    for event in &report.step_events {
        publish_event(&regarding, event, shared).await;
    }
    // Telling takes its time too.
    if !shared.can_write() {
        return Ok(());
    }
    if let Some(patch) = &report.patch {
        version =
            corridor.kube.patch_status(&namespace, &name, &version, patch.clone()).await.map_err(Error::Status)?;
        corridor.process_state.record_write(key, &version);
    }
    for event in &report.transition_events {
        publish_event(&regarding, event, shared).await;
    }
    if report.outcome == Some(Outcome::Deleted) && applied.error.is_none() {
        corridor.process_state.set_finalized(key, &regarding.uid);
    }
    Ok(())
}

/// The group, for an event about it.
pub fn event_target(meta: &ObjectMeta) -> EventTarget {
    EventTarget {
        api_version: "instancemgr.keikoproj.io/v1alpha1".into(),
        kind: "InstanceGroup".into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

/// An event that cannot be written is worth a log line and no more.
pub async fn publish_event(about: &EventTarget, told: &Event, shared: &Context) {
    let record = KubeEvent {
        kind: told.kind,
        reason: told.reason.clone(),
        action: "Reconcile".into(),
        note: told.message.clone(),
    };
    if let Err(error) = shared.planner.kube.publish(about, &record).await {
        tracing::warn!(object = %about.name, reason = %told.reason, %error, "an event was not written");
    }
}

fn record_metrics(
    key: &str,
    old: &InstanceGroupStatus,
    applied: &Applied,
    report: &Report,
    failed: Option<&'static str>,
    shared: &Context,
) {
    let metrics = &shared.metrics;
    match (failed, &applied.error) {
        (Some(reason), _) => metrics.record_reconcile(key, ReconcileResult::Failed(reason)),
        (None, Some(StepError::NotLeading)) => {}
        (None, Some(_)) => metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::HANDLE_RECONCILE)),
        (None, None) if matches!(report.outcome, Some(Outcome::Progressing { .. })) => {
            metrics.record_reconcile(key, ReconcileResult::RequeueAfter)
        }
        (None, None) => metrics.record_reconcile(key, ReconcileResult::Success),
    }
    if matches!(report.outcome, Some(Outcome::Deleted)) {
        // Last, so that nothing makes its series anew.
        return metrics.forget_group(key);
    }
    let patched = |field: &str| report.patch.as_ref().and_then(|p| p.get(field).cloned());
    let state =
        patched("currentState").and_then(|s| s.as_str().map(str::to_owned)).or_else(|| old.current_state.clone());
    metrics.set_group_status(key, state.as_deref().unwrap_or("Init"));
    let counts = applied.plan.status_update.fields.get("nodes").and_then(|n| serde_json::from_value(n.clone()).ok());
    if let Some(counts) = counts.or_else(|| old.nodes.clone()) {
        metrics.set_node_counts(key, &counts);
    }
}

/// What cannot be decoded is answered, and other groups go on.
async fn report_invalid_object(stored: &GroupObject, shared: &Context) -> Result<Action, Error> {
    let key = group_key(stored);
    shared.metrics.record_reconcile(&key, ReconcileResult::Failed(fail_reason::GET_REQUEST));
    let message = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`, correct it in Git and apply it again";
    let conditions = serde_json::json!([
        { "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": message, "lastTransitionTime": rfc3339(Timestamp::now()) },
        { "type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": message, "lastTransitionTime": rfc3339(Timestamp::now()) },
    ]);
    let patch = serde_json::json!({ "currentState": "Error", "conditions": conditions, "observedGeneration": stored.meta().generation });
    let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
    let version = stored.resource_version().unwrap_or_default();
    if !shared.stores.is_reported(&key, stored.meta().generation) {
        shared.planner.kube.patch_status(&namespace, &name, &version, patch).await.map_err(Error::Status)?;
        shared.stores.set_reported(&key, stored.meta().generation);
    }
    Ok(Action::await_change())
}
