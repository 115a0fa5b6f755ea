//! The reconcile loop of one group: plan, apply, report, requeue.

pub(crate) mod access_migration;
pub(crate) mod context;
mod failed_look;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod hostile_status;
mod node_labels;
pub(crate) mod planner;
pub(crate) mod queue;
pub(crate) mod quota_grants;
mod recorded_cluster;
pub mod report;
pub(crate) mod requeue;
pub(crate) mod revision_effects;
mod revisions;
pub(crate) mod stores;
pub(crate) mod trigger;
pub(crate) mod watches;
pub(crate) mod write_gate;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

pub(crate) use crate::api::GroupObject;
use crate::api::names::fail_reason;
use crate::api::{InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, group_id, rfc3339};
use crate::apply::{Applied, Applier, StepError, apply};
use crate::aws::AwsErrorKind;
use crate::controller::planner::{ObserveError, Planner, Planning};
use crate::controller::report::{Report, report};
use crate::index::denials::{Attempt, DeniedCall};
use crate::index::process_state::{CacheState, CacheVerdict, compare_versions};
use crate::index::refusals::{PassResult, RefusedStep};
use crate::k8s::KubeError;
use crate::plan::write::status_write;
use crate::plan::{ObjectEvent, Outcome, Plan, PlannedStep, Reason, Step, blocked_plan};
use crate::telemetry::metrics::ReconcileResult;
use context::{CACHE_BEHIND_DELAY, CACHE_LAG_DELAY};
pub(crate) use context::{Context, Error, event_target, group_key, publish_event};
use context::{EventLog, object_target, publish};

/// Reconciles one group. Each reconcile is its own task, so that groups are reconciled on all cores.
pub(crate) async fn reconcile(stored: Arc<GroupObject>, ctx: Arc<Context>) -> Result<Action, Error> {
    let task_ctx = ctx.clone();
    tokio::spawn(async move { reconcile_group(&stored, &task_ctx).await }).await.unwrap_or_else(|panic| {
        tracing::error!(%panic, "reconcile panicked");
        Ok(Action::requeue(Duration::from_secs(60)))
    })
}

/// Requeues a group after a failed reconcile, with exponential backoff per group.
pub(crate) fn error_policy(stored: Arc<GroupObject>, error: &Error, ctx: Arc<Context>) -> Action {
    let (planner, key) = (&ctx.planner, group_key(&stored));
    requeue::after_error(&key, error, &ctx.metrics, &planner.process_state, planner.settings.resync_period)
}

async fn reconcile_group(stored: &GroupObject, ctx: &Arc<Context>) -> Result<Action, Error> {
    let key = group_key(stored);
    ctx.stores.queued.start(&key, &ctx.metrics);
    let _timer = ctx.metrics.start_reconcile();
    let now = Timestamp::now();
    let group = match check_preconditions(stored, &key, ctx, now) {
        Precondition::Met(group) => group,
        Precondition::NotMet(action) => return Ok(action),
        Precondition::CacheDoubtful => return check_source(stored, &key, ctx).await,
        Precondition::InvalidObject => return report_invalid_object(stored, &key, ctx).await,
    };
    let old_status = group.status.clone().unwrap_or_default();
    let asked = ctx.stores.reconcile_asked(group);
    let mut planned = match plan_with_fresh_reads(group, &key, asked.is_some(), ctx, now).await {
        Ok(planned) => planned,
        Err(error) => {
            failed_look::report(group, &key, &error, ctx, now).await;
            return Err(error);
        }
    };
    failed_look::end(&key, ctx);
    if let Some(value) = asked {
        ctx.planner.process_state.denials(|denials| denials.remove(&key));
        planned.plan.status_update.fields.insert("lastReconcileNow".to_owned(), json!(value));
    }
    let spec = hold_back_repetitions(&mut planned, &key, ctx, now);
    revision_effects::observe(&key, &old_status, &mut planned, ctx);
    let Some(applied) = apply_plan(group, planned.plan, &spec, ctx, now).await else {
        return Ok(Action::await_change());
    };
    record_writes(&key, &applied, ctx, now);
    record_refusal(&key, spec, planned.denied_read, &applied, ctx, now);
    let report = report(&old_status, &applied, planned.boundaries.as_ref(), &rfc3339(now));
    update_status(group, &key, &applied, &report, now, ctx).await?;
    node_labels::label_group_nodes(group, &key, ctx).await;
    record_metrics(&key, &old_status, &applied, &report, planned.failure_reason, ctx);
    Ok(requeue::next_action(&key, &applied, report.outcome.as_ref(), ctx))
}

/// Whether a reconcile may start.
enum Precondition<'a> {
    /// The reconcile may start with this group.
    Met(&'a InstanceGroup),
    /// The reconcile ends here; the action says when to try again.
    NotMet(Action),
    /// The cached object does not catch up with this controller's writes.
    CacheDoubtful,
    /// The stored object does not match its schema.
    InvalidObject,
}

/// The early exits of a reconcile. None of them reads from AWS or writes anything.
fn check_preconditions<'a>(stored: &'a GroupObject, key: &str, ctx: &Context, now: Timestamp) -> Precondition<'a> {
    let process_state = &ctx.planner.process_state;
    if !ctx.can_write() {
        return Precondition::NotMet(Action::await_change());
    }
    match process_state.cache_state(key, stored.resource_version().as_deref(), now) {
        CacheState::Current => {}
        CacheState::Behind(elapsed) => {
            let delay = elapsed.clamp(Duration::from_millis(50), Duration::from_secs(1));
            return Precondition::NotMet(Action::requeue(delay));
        }
        CacheState::Doubtful => return Precondition::CacheDoubtful,
    }
    if process_state.is_finalized(key, stored.uid().as_deref()) {
        return Precondition::NotMet(Action::await_change());
    }
    match &stored.0 {
        // The decoding error is not used, because it may quote values.
        Err(_) => Precondition::InvalidObject,
        Ok(group) if ctx.stores.has_namespace(group) => Precondition::Met(group),
        Ok(_) => Precondition::NotMet(Action::requeue(CACHE_LAG_DELAY)),
    }
}

/// Asks the API server about a cached object that does not catch up. If its resourceVersions went back, the process
/// restarts and reads everything again, as Kubernetes recommends after a restore of etcd.
async fn check_source(stored: &GroupObject, key: &str, ctx: &Context) -> Result<Action, Error> {
    Ok(match ask_source(stored, key, &ctx.planner).await.map_err(Error::Status)? {
        CacheVerdict::Current => Action::requeue(Duration::ZERO),
        CacheVerdict::Behind => Action::requeue(CACHE_BEHIND_DELAY),
        CacheVerdict::WentBack => {
            ctx.restart.notify_one();
            Action::requeue(CACHE_BEHIND_DELAY)
        }
    })
}

/// Compares a cached object with the object itself. If they are equal, the cache counts as current from now on.
async fn ask_source(stored: &GroupObject, key: &str, planner: &Planner) -> Result<CacheVerdict, KubeError> {
    let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
    let actual = planner.kube.group_version(&namespace, &name).await?;
    let cached = stored.resource_version();
    let written = planner.process_state.last_written_version(key);
    let verdict = compare_versions(cached.as_deref(), written, actual.as_deref());
    match verdict {
        CacheVerdict::Current => planner.process_state.confirm_cache(key),
        CacheVerdict::Behind => {}
        CacheVerdict::WentBack => {
            tracing::error!(group = %key, ?cached, ?written, ?actual, "resourceVersions of the API server went back");
        }
    }
    Ok(verdict)
}

/// Plans a group. If the plan disrupts nodes, it is made again from fresh reads before it is used.
async fn plan_with_fresh_reads(
    group: &InstanceGroup,
    key: &str,
    is_asked: bool,
    ctx: &Context,
    now: Timestamp,
) -> Result<Planning, Error> {
    let planner = &ctx.planner;
    let context = ctx.stores.group_context(group, planner);
    let fresh = requeue::max_cache_age(planner.settings.timing.poll_interval);
    let needs_fresh_reads = planner.process_state.is_progressing(key) || requeue::needs_fresh_reads(group);
    let max_age = if is_asked {
        Duration::ZERO
    } else if needs_fresh_reads {
        fresh
    } else {
        planner.settings.resync_period.mul_f64(0.5)
    };
    let mut planned = planner.plan(group, &context, max_age, now).await;
    let is_disruptive = |p: &Planning| p.plan.steps.iter().any(|PlannedStep { step, .. }| step.is_disruptive());
    if !needs_fresh_reads && planned.as_ref().is_ok_and(is_disruptive) {
        planned = planner.plan(group, &context, fresh, now).await;
    }
    let is_unobserved = matches!(&planned, Err(ObserveError::Aws(_)));
    let outage = planner.process_state.track_outage(key, is_unobserved, now);
    if let Err(error @ ObserveError::Aws(_)) = &planned {
        let stopped = planner.stop_unobserved_drains(&group_id(group), &context, error, outage, now).await;
        if let Some(stopped) = stopped.map_err(Error::Observe)? {
            return Ok(stopped);
        }
    }
    let (blocked, denied_read) = match planned {
        Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {
            let blocked = missing_permission(group, error.missing_permission(), &error.to_string());
            (blocked, Some(DeniedCall::Aws(error)))
        }
        Err(ObserveError::Kube(error @ KubeError::Forbidden { .. })) => {
            (missing_permission(group, None, &error.to_string()), DeniedCall::of_kube(&error))
        }
        other => return other.map_err(Error::Observe),
    };
    let (id, status) = (group_id(group), group.status.clone().unwrap_or_default());
    let observer = planner.observer(&context, fresh, now);
    let plan = planner.stop_rotation(&id, &status, &context, &observer, blocked.plan).await;
    Ok(Planning { plan, denied_read, ..blocked })
}

/// Holds back steps that repeat a write without effect too early, and adds the condition about such writes. Returns what
/// stands for the merged spec: when it changes, a write is tried again at once.
fn hold_back_repetitions(planned: &mut Planning, key: &str, ctx: &Context, now: Timestamp) -> String {
    let Planning { plan, boundaries, .. } = planned;
    let resync = ctx.planner.settings.resync_period;
    // Neither the revision of the boundaries nor the annotations: an edit for another tenant, or a tool that changes an
    // annotation all the time, must not let repeated writes start again.
    let merged_spec = boundaries.as_ref().map(|summary| summary.spec_fingerprint).unwrap_or_default();
    let spec = format!("{} {merged_spec}", plan.generation);
    let condition = ctx.planner.process_state.group_writes(key, |writes| {
        let has_changes = writes.hold_back(plan, &spec, resync, now);
        ctx.metrics.set_ineffective_writes(key, writes.ineffective().len());
        writes.condition(has_changes)
    });
    plan.condition_updates.extend(condition);
    spec
}

/// Remembers the steps that were applied.
fn record_writes(key: &str, applied: &Applied, ctx: &Context, now: Timestamp) {
    let steps = applied.plan.steps[..applied.steps_done].iter().enumerate();
    // A failed call may have been performed although its response was lost.
    let tried =
        applied.plan.steps.iter().take(applied.steps_done + 1).filter(|planned| planned.step.removes_instance());
    for instance in tried.filter_map(|planned| planned.step.info().fields().instance).collect::<Vec<_>>() {
        ctx.planner.process_state.departures(key, |known| known.record_own(&instance));
    }
    let effective = steps.filter(|(index, planned)| !report::had_no_effect(*index, &planned.step, applied));
    ctx.planner.process_state.group_writes(key, |writes| {
        writes.record(effective.map(|(_, planned)| planned), now);
        if applied.error.is_none() {
            writes.record_events(&applied.plan.events, now);
        }
    });
}

/// Counts passes that AWS or Kubernetes refused. A group that lacks a permission waits for its turn to try again, and a
/// group that got through wakes those that wait for the same permission.
fn record_refusal(
    key: &str,
    spec: String,
    denied_read: Option<DeniedCall>,
    applied: &Applied,
    ctx: &Context,
    now: Timestamp,
) {
    let Applied { plan, steps_done, error, .. } = applied;
    let (state, step) = (&ctx.planner.process_state, plan.steps.get(*steps_done).map(|planned| &planned.step));
    // A rotation has waits of its own, because each try drains nodes.
    let is_of_rotation = matches!(step, Some(Step::Node(_)));
    let denied_step = error.as_ref().and_then(StepError::denied_call).filter(|_| !is_of_rotation);
    let is_known = denied_step.as_ref().is_some_and(|call| state.denials(|denials| denials.is_known(call)));
    let result = match (error, step) {
        (None, _) => PassResult::Applied { removed_node: plan.steps.iter().any(|p| p.step.removes_instance()) },
        (Some(error), Some(step)) if let Some(reason) = error.stalled_reason() => {
            let message = report::step_failure(step, error);
            PassResult::Refused(RefusedStep { is_of_rotation, reason, message, is_known })
        }
        (Some(_), _) => PassResult::Failed,
    };
    let is_lasting = state.record_pass(key, plan.generation, result, ctx.planner.settings.timing.retry_delay, now);
    let period = requeue::permission_period(ctx.planner.settings.resync_period);
    let wait = |call: DeniedCall, step: Option<&'static str>| {
        state.denials(|denials| denials.record(key, call, Attempt { spec, step }, period, now));
    };
    match (denied_read, denied_step) {
        (Some(call), _) => wait(call, None),
        (None, Some(call)) if is_lasting => wait(call, step.map(Step::name)),
        (None, None) if error.is_none() => ctx.enqueue_keys(state.denials(|denials| denials.end(key))),
        // The first tries follow each other soon: a new role may not be known everywhere yet. Another error says nothing
        // about the permission.
        (None, Some(_) | None) => {}
    }
}

/// A blocked plan for a group that cannot be read because a permission is missing.
fn missing_permission(group: &InstanceGroup, action: Option<String>, error: &str) -> Planning {
    let message = match action {
        Some(action) => report::missing_iam_action(&action, error),
        None => report::missing_kubernetes_permission(error),
    };
    planner::blocked(&group_id(group), Reason::MissingPermission, message)
}

/// Applies a plan. Returns `None` when this process may no longer write: the new leader then reports on the group.
async fn apply_plan(group: &InstanceGroup, plan: Plan, spec: &str, ctx: &Context, now: Timestamp) -> Option<Applied> {
    let can_write = || ctx.can_write();
    let applier = Applier {
        inventory: &ctx.planner.inventory,
        kube: ctx.planner.kube.as_ref(),
        process_state: &ctx.planner.process_state,
        aws_auth: &ctx.aws_auth_writer,
        can_write: &can_write,
        counted_locks: ctx.stores.counted_locks(group),
        config_namespace: &ctx.config_namespace,
        retry_delay: ctx.planner.settings.timing.retry_delay,
        spec,
        now,
    };
    let resource_version = group.resource_version().unwrap_or_default();
    let finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    let applied = apply(&applier, &group_id(group), &resource_version, &finalizers, plan).await;
    ctx.can_write().then_some(applied)
}

/// Why the same status patch is written again and again.
const STATUS_NOT_STORED: &str = "the status is not stored as written; apply the CRD of this release, or find another writer in metadata.managedFields";

/// Publishes the events of the applied steps, writes the status patch, and then publishes the events of transitions.
async fn update_status(
    group: &InstanceGroup,
    key: &str,
    applied: &Applied,
    report: &Report,
    now: Timestamp,
    ctx: &Context,
) -> Result<(), Error> {
    let planner = &ctx.planner;
    let mut version = applied.resource_version.clone().or(group.resource_version()).unwrap_or_default();
    if applied.resource_version.is_some() {
        planner.process_state.record_write(key, &version, Timestamp::now());
    }
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let target = event_target(&group.metadata);
    // The log has a line for each step already.
    for event in &report.step_events {
        let is_of_plan = applied.plan.events.contains(event);
        publish(&target, event, ctx, if is_of_plan { EventLog::Log } else { EventLog::LoggedBefore }).await;
    }
    for ObjectEvent { object, event } in &report.object_events {
        publish(&object_target(object), event, ctx, EventLog::LoggedBefore).await;
    }
    // Publishing takes time, in which the Lease may expire.
    if !ctx.can_write() {
        return Ok(());
    }
    if let Some(patch) = &report.patch {
        // The API server may drop a field that its CRD does not know, and the same patch would follow each time.
        let (write, resync) = (status_write(patch), planner.settings.resync_period);
        if !planner.process_state.group_writes(key, |writes| writes.is_due(&write, resync, now)) {
            return Ok(());
        }
        version = planner.kube.patch_status(&namespace, &name, &version, patch.clone()).await.map_err(Error::Status)?;
        planner.process_state.record_write(key, &version, Timestamp::now());
        let description = || STATUS_NOT_STORED.to_owned();
        planner.process_state.group_writes(key, |writes| writes.record_write(write, description, now));
    }
    for event in &report.transition_events {
        publish_event(&target, event, ctx).await;
    }
    for problem in &report.ended_problems {
        tracing::info!(group = key, condition = problem, "the problem ended: condition {problem} is False");
    }
    if report.outcome == Some(Outcome::Deleted) && applied.error.is_none() {
        planner.process_state.set_finalized(key, &target.uid);
    }
    Ok(())
}

fn record_metrics(
    key: &str,
    old: &InstanceGroupStatus,
    applied: &Applied,
    report: &Report,
    failure_reason: Option<&'static str>,
    ctx: &Context,
) {
    let metrics = &ctx.metrics;
    match (failure_reason, &applied.error) {
        (Some(reason), _) => metrics.record_reconcile(key, ReconcileResult::Failed(reason)),
        (None, Some(StepError::MayNotWrite)) => {}
        (None, Some(_)) => metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::HANDLE_RECONCILE)),
        (None, None) if matches!(report.outcome, Some(Outcome::Progressing { .. })) => {
            metrics.record_reconcile(key, ReconcileResult::RequeueAfter)
        }
        (None, None) => metrics.record_reconcile(key, ReconcileResult::Success),
    }
    if matches!(report.outcome, Some(Outcome::Deleted)) {
        // Otherwise the reads of other groups would keep prefetching the scaling group that is gone.
        if let Some(name) = &old.active_scaling_group_name {
            ctx.planner.inventory.forget_group(name);
        }
        // Must be last: any later record would create the series of the group again.
        return metrics.forget_group(key);
    }
    let patched = |field: &str| report.patch.as_ref().and_then(|p| p.get(field).cloned());
    let state =
        patched("currentState").and_then(|s| s.as_str().map(str::to_owned)).or_else(|| old.current_state.clone());
    metrics.set_group_status(key, state.as_deref().unwrap_or("Init"));
    metrics.set_group_stalled(key, report.stalled.map(|reason| reason.to_string()));
    let counts = applied.plan.status_update.fields.get("nodes").and_then(|n| serde_json::from_value(n.clone()).ok());
    if let Some(counts) = counts.or_else(|| old.nodes.clone()) {
        metrics.set_node_counts(key, &counts);
    }
}

/// Reports a stored object that cannot be decoded, once per generation. Other groups are not affected.
async fn report_invalid_object(stored: &GroupObject, key: &str, ctx: &Context) -> Result<Action, Error> {
    ctx.metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::GET_REQUEST));
    ctx.metrics.set_group_stalled(key, Some(Reason::InvalidSpec.to_string()));
    let generation = stored.meta().generation;
    if !ctx.stores.is_reported(key, generation) {
        let patch = report::invalid_object_patch(generation, &rfc3339(Timestamp::now()));
        let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
        let version = stored.resource_version().unwrap_or_default();
        ctx.planner.kube.patch_status(&namespace, &name, &version, patch).await.map_err(Error::Status)?;
        ctx.stores.set_reported(key, generation);
    }
    stop_invalid_rotation(stored, ctx).await
}

/// Stops the rotation of an object that cannot be decoded. It is repeated until no node has a record of the group.
async fn stop_invalid_rotation(stored: &GroupObject, ctx: &Context) -> Result<Action, Error> {
    let (planner, now) = (&ctx.planner, Timestamp::now());
    let Err(invalid) = &stored.0 else { return Ok(Action::await_change()) };
    let uid = stored.uid().unwrap_or_default();
    let Some(status) = invalid.status.clone().filter(|_| !planner.node_index.with_records_of(&uid).is_empty()) else {
        return Ok(Action::await_change());
    };
    let metadata = invalid.metadata.clone();
    let group = InstanceGroup { metadata, spec: InstanceGroupSpec::default(), status: Some(status.clone()) };
    let (id, context) = (group_id(&group), ctx.stores.group_context(&group, planner));
    let observer = planner.observer(&context, requeue::max_cache_age(planner.settings.timing.poll_interval), now);
    let rejected = blocked_plan(&id, Reason::InvalidSpec, report::INVALID_OBJECT.to_owned());
    let plan = planner.stop_rotation(&id, &status, &context, &observer, rejected).await;
    if let Some(applied) = apply_plan(&group, plan, "", ctx, now).await {
        for event in &report(&status, &applied, None, &rfc3339(now)).step_events {
            publish_event(&event_target(&group.metadata), event, ctx).await;
        }
    }
    Ok(Action::requeue(planner.settings.timing.poll_interval.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::index::nodes::NodeIndex;

    fn stored(resource_version: &str) -> GroupObject {
        let metadata = json!({"name": "web", "namespace": "team", "resourceVersion": resource_version});
        let kind = json!({"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup"});
        let mut object = json!({"spec": {}, "metadata": metadata});
        object.as_object_mut().expect("an object").extend(kind.as_object().expect("an object").clone());
        serde_json::from_value(object).expect("a group")
    }

    /// A restore of etcd sets resourceVersions back, and the watch may be silent. The group must neither wait forever
    /// for its own write nor reconcile in a loop without reading anything.
    #[tokio::test]
    async fn group_reconciles_again_after_etcd_was_restored() {
        let client = crate::k8s::fake::client(|_| {
            let metadata = json!({"name": "web", "namespace": "team", "resourceVersion": "500"});
            (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
        });
        let planner = || fake::planner(&Arc::new(FakeAws::default()), client.clone(), NodeIndex::default());
        let (written_at, key) = (Timestamp::UNIX_EPOCH, "team/web");
        let state = |planner: &Planner, version: &str, seconds: i64| {
            let now = Timestamp::from_second(seconds).expect("a time");
            planner.process_state.cache_state(key, Some(version), now)
        };
        // The watch still shows what was there before the last write.
        let before = planner();
        before.process_state.record_write(key, "1000", written_at);
        assert_eq!(state(&before, "990", 9), CacheState::Behind(Duration::from_secs(9)));
        assert_eq!(state(&before, "990", 10), CacheState::Doubtful);
        let verdict = ask_source(&stored("990"), key, &before).await.expect("an answer");
        assert_eq!(verdict, CacheVerdict::WentBack, "the process restarts");
        // The new process reads everything again, and reconciles at once, also after its next write.
        let restarted = planner();
        assert_eq!(state(&restarted, "500", 11), CacheState::Current);
        restarted.process_state.record_write(key, "501", written_at);
        assert_eq!(state(&restarted, "501", 12), CacheState::Current);
        // The watch was opened again by itself: the process that wrote 1000 goes on without a restart.
        assert_eq!(state(&before, "500", 10), CacheState::Doubtful);
        let verdict = ask_source(&stored("500"), key, &before).await.expect("an answer");
        assert_eq!(verdict, CacheVerdict::Current);
        assert_eq!(state(&before, "500", 10), CacheState::Current);
    }

    /// A person who has repaired something need not wait for caches to expire.
    #[tokio::test]
    async fn reconcile_that_is_asked_for_passes_over_caches() {
        let client = crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}"));
        let planner = fake::planner(&Arc::new(FakeAws::default()), client, NodeIndex::default());
        let context = planner::GroupContext::default();
        let shared = |age| planner.observer(&context, age, Timestamp::UNIX_EPOCH).shared_max_cache_age;
        assert_eq!(shared(Duration::ZERO), Duration::ZERO);
        assert_eq!(shared(Duration::from_secs(12)), Duration::from_secs(150));
    }
}
