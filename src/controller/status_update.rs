//! What a pass leaves behind: the status patch, events, and metrics of the group.

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::{Context, Error, EventLog, event_target, object_target, publish, publish_event};
use super::report::{EndedCondition, Report};
use crate::api::names::fail_reason;
use crate::api::{InstanceGroup, InstanceGroupStatus, rfc3339};
use crate::apply::{Applied, StepError};
use crate::k8s::KubeError;
use crate::plan::write::status_write;
use crate::plan::{Event, EventReason, ObjectEvent, Outcome};
use crate::telemetry::metrics::ReconcileResult;

/// Why the same status patch is written again and again.
const STATUS_NOT_STORED: &str = "the status is not stored as written; apply the CRD of this release, or find another writer in metadata.managedFields";

/// Publishes the events of the applied steps, writes the status patch, and then publishes the events of transitions. An
/// event reports if the status cannot be written for a while: nothing else on the group would. The gauges of the group
/// follow what the pass came to, also then.
pub(super) async fn update_status(
    group: &InstanceGroup,
    key: &str,
    applied: &Applied,
    report: &Report,
    now: Timestamp,
    ctx: &Context,
) -> Result<(), Error> {
    // A pass that has come so far has not panicked.
    ctx.metrics.set_group_read_failed(key, None);
    let result = write_report(group, key, applied, report, now, ctx).await;
    set_gauges(group, key, applied, report, ctx);
    let error = match &result {
        Err(Error::Status(error)) => Some(error),
        Ok(()) | Err(_) => None,
    };
    report_refusal(group, key, error, ctx).await;
    result
}

/// Publishes an event if the API server has refused the status of the group for a while. `error` is what it answered to the
/// last patch.
pub(super) async fn report_refusal(group: &InstanceGroup, key: &str, error: Option<&KubeError>, ctx: &Context) {
    let refusal = error.filter(|error| !error.is_conflict() && !error.is_not_found());
    let (state, delay) = (&ctx.planner.process_state, ctx.planner.settings.timing.failed_observation_delay);
    let since = state.track_unwritten_status(key, refusal.is_some(), delay, Timestamp::now());
    if let (Some(error), Some(since)) = (refusal, since) {
        publish_event(&event_target(&group.metadata), &not_written(error, since), ctx).await;
    }
}

fn not_written(error: &KubeError, since: Timestamp) -> Event {
    let message = format!(
        "the status of this group is old: since {}, the API server has not taken another one ({error}); correct the webhook, policy or permission that the error names",
        rfc3339(since)
    );
    Event::warning(EventReason::StatusNotWritten, message)
}

async fn write_report(
    group: &InstanceGroup,
    key: &str,
    applied: &Applied,
    report: &Report,
    now: Timestamp,
    ctx: &Context,
) -> Result<(), Error> {
    let planner = &ctx.planner;
    let mut version = applied.resource_version.clone().or(group.resource_version()).unwrap_or_default();
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let target = event_target(&group.metadata);
    publish_step_events(group, applied, report, ctx).await;
    // Publishing takes time, in which the Lease may expire.
    if !ctx.request_write() {
        return Ok(());
    }
    if let Some(patch) = &report.patch {
        // The API server may drop a field that its CRD does not have, and the same patch would follow each time.
        let (write, resync) = (status_write(patch), planner.settings.resync_period);
        if !planner.process_state.group_writes(key, |writes| writes.is_due(&write, resync, now)) {
            return Ok(());
        }
        version = planner.kube.patch_status(&namespace, &name, &version, patch.clone()).await.map_err(Error::Status)?;
        planner.process_state.own_writes(key, |own| own.record(&version, Timestamp::now()));
        let description = || STATUS_NOT_STORED.to_owned();
        planner.process_state.group_writes(key, |writes| writes.record_write(write, description, now));
    }
    publish_transitions(group, key, report, ctx).await;
    if report.outcome == Some(Outcome::Deleted) && applied.error.is_none() {
        planner.process_state.set_finalized(key, &target.uid);
    }
    Ok(())
}

/// Publishes the events of the applied steps. They hold whatever becomes of the status.
pub(super) async fn publish_step_events(group: &InstanceGroup, applied: &Applied, report: &Report, ctx: &Context) {
    let target = event_target(&group.metadata);
    // The log has a line for each step already.
    for event in &report.step_events {
        let is_of_plan = applied.plan.events.contains(event);
        publish(&target, event, ctx, if is_of_plan { EventLog::Log } else { EventLog::LoggedBefore }).await;
    }
    for ObjectEvent { object, event } in &report.object_events {
        publish(&object_target(object), event, ctx, EventLog::LoggedBefore).await;
    }
}

/// Publishes the events of transitions, and logs the problems that ended.
pub(super) async fn publish_transitions(group: &InstanceGroup, key: &str, report: &Report, ctx: &Context) {
    let target = event_target(&group.metadata);
    for event in &report.transition_events {
        publish_event(&target, event, ctx).await;
    }
    for EndedCondition { condition, reason } in &report.ended_conditions {
        tracing::info!(group = key, condition, reason, "problem ended");
    }
}

/// Sets the gauges of the group. Those of a deleted group are about to be removed.
pub(super) fn set_gauges(group: &InstanceGroup, key: &str, applied: &Applied, report: &Report, ctx: &Context) {
    if matches!(report.outcome, Some(Outcome::Deleted)) {
        return;
    }
    let (metrics, old) = (&ctx.metrics, group.status.as_ref());
    let patched = |field: &str| report.patch.as_ref().and_then(|p| p.get(field).cloned());
    let state = patched("currentState")
        .and_then(|s| s.as_str().map(str::to_owned))
        .or_else(|| old.and_then(|old| old.current_state.clone()));
    metrics.set_group_status(key, state.as_deref().unwrap_or("Init"));
    metrics.set_group_stalled(key, report.stalled.map(|reason| reason.to_string()));
    let counts = applied.plan.status_update.fields.get("nodes").and_then(|n| serde_json::from_value(n.clone()).ok());
    if let Some(counts) = counts.or_else(|| old.and_then(|old| old.nodes.clone())) {
        metrics.set_node_counts(key, &counts);
    }
}

/// Counts the pass, or removes the metrics of the group with the group.
pub(super) fn record_metrics(
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
        metrics.forget_group(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroupSpec, group_id};
    use crate::controller::{fake, report};
    use crate::plan::{StalledReason, blocked_plan};

    /// The status of last week says that the group is Ready. The alerts must not: the person on call has nothing else.
    #[tokio::test]
    async fn metrics_follow_the_group_while_its_status_is_refused() {
        let client = crate::k8s::fake::client(|_| crate::k8s::fake::failure(403, "Forbidden", "a webhook refuses it"));
        let test = fake::context(client);
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        let ready = InstanceGroupStatus { current_state: Some("Ready".into()), ..InstanceGroupStatus::default() };
        group.status = Some(ready.clone());
        let plan = blocked_plan(&group_id(&group), StalledReason::NodesNotReady, "a node is dead".to_owned());
        let (applied, now) = (Applied::new(plan), Timestamp::UNIX_EPOCH);
        let report = report::report(&ready, &applied, None, &rfc3339(now));
        let error = update_status(&group, "team/web", &applied, &report, now, &test.ctx).await;
        error.expect_err("the status is refused");
        let series = test.ctx.metrics.encode().expect("metrics");
        for expected in [
            "instance_manager_instance_group_status{instancegroup=\"team/web\",status=\"Error\"} 1",
            "instance_manager_instance_group_stalled{instancegroup=\"team/web\",reason=\"NodesNotReady\"} 1",
        ] {
            assert!(series.contains(expected), "{expected} is missing in {series}");
        }
    }

    #[test]
    fn event_of_a_refused_status_names_time_and_webhook() {
        let status =
            kube::core::Status::failure("failed calling webhook \"dead\"", "InternalError").with_code(500).boxed();
        let error = KubeError::classify("patch", "instancegroups/status", kube::Error::Api(status));
        let event = not_written(&error, Timestamp::UNIX_EPOCH);
        for part in ["1970-01-01T00:00:00Z", "instancegroups/status", "dead"] {
            assert!(event.message.contains(part), "{part} is missing in {}", event.message);
        }
    }
}
