//! The reconcile loop of one group: plan, apply, report, requeue.

pub(crate) mod access_migration;
mod apply_plan;
pub(crate) mod aws_auth_size;
pub(crate) mod aws_outages;
pub(crate) mod context;
mod failed_observation;
mod failed_steps;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod forged_status;
mod invalid_object;
pub(crate) mod invalidated_groups;
mod node_labels;
pub(crate) mod permission_probes;
pub(crate) mod planner;
mod preconditions;
pub(crate) mod queued_groups;
pub(crate) mod quota_grants;
mod recorded_cluster;
pub mod report;
pub(crate) mod requeue;
mod revisions;
pub(crate) mod rollout;
mod status_update;
pub(crate) mod stores;
pub(crate) mod trigger;
pub(crate) mod watches;
pub(crate) mod workers;
pub(crate) mod write_gate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use serde_json::json;

pub(crate) use crate::api::GroupObject;
use crate::api::{InstanceGroup, InstanceGroupStatus, group_id, rfc3339};
use crate::controller::planner::{GroupContext, ObserveError, Planning};
use crate::controller::report::report;
use crate::plan::PlannedStep;
use apply_plan::{apply_plan, record_writes, suppress_repetitions};
pub(crate) use context::{Context, Error, group_key};
use failed_steps::record_failed_step;
use invalid_object::report_invalid_object;
use preconditions::{Precondition, check_preconditions, check_source};
use status_update::{publish_step_events, record_metrics, update_status};

/// Reconciles one group. Each reconcile is its own task, so that groups are reconciled on all cores.
pub(crate) async fn reconcile(stored: Arc<GroupObject>, ctx: Arc<Context>) -> Result<Action, Error> {
    let (task_object, task_ctx) = (stored.clone(), ctx.clone());
    let task = tokio::spawn(async move { reconcile_group(&task_object, &task_ctx).await });
    let result = match task.await {
        Ok(result) => result,
        Err(panic) => {
            tracing::error!(group = %group_key(&stored), %panic, "reconcile panicked");
            failed_observation::report_panic(&stored, &group_key(&stored), &ctx).await;
            Ok(Action::requeue(Duration::from_secs(60)))
        }
    };
    forget_if_gone(&stored, &ctx);
    result
}

/// Requeues a group after a failed reconcile, with exponential backoff per group.
pub(crate) fn error_policy(stored: Arc<GroupObject>, error: &Error, ctx: Arc<Context>) -> Action {
    let (planner, key) = (&ctx.planner, group_key(&stored));
    let process_state = &planner.process_state;
    // A failure that lasts is reported by the first pass after the delay.
    let since = process_state.unreported_failure(&key);
    let report_in = requeue::until_report(since, planner.settings.timing.failed_observation_delay, Timestamp::now());
    let longest = planner.settings.resync_period.min(report_in.unwrap_or(Duration::MAX));
    let action = requeue::after_error(&key, error, &ctx.metrics, process_state, longest);
    forget_if_gone(&stored, &ctx);
    action
}

/// Drops what a pass recorded that outlived its group: the watch has dropped the rest before, and nothing would drop this.
fn forget_if_gone(stored: &GroupObject, ctx: &Context) {
    let current = ctx.stores.groups.get(&ObjectRef::from_obj(stored));
    if current.is_none_or(|current| current.uid() != stored.uid()) {
        ctx.forget_group(&group_key(stored));
    }
}

async fn reconcile_group(stored: &GroupObject, ctx: &Arc<Context>) -> Result<Action, Error> {
    let key = group_key(stored);
    ctx.stores.queued_groups.start(&key, &ctx.metrics);
    let _timer = ctx.metrics.start_reconcile();
    let (now, instant) = (Timestamp::now(), Instant::now());
    ctx.planner.process_state.clock_jumps(|clocks| clocks.observe(now, instant));
    let group = match check_preconditions(stored, &key, ctx, now) {
        Precondition::Met(group) => group,
        Precondition::NotMet(action) => {
            write_gate::report_waiting_group(stored, &key, ctx).await;
            return Ok(action);
        }
        Precondition::CacheDoubtful => return check_source(stored, &key, ctx).await,
        Precondition::InvalidObject => return report_invalid_object(stored, &key, ctx).await,
    };
    if let Some(wait) = requeue::throttled_for(group, &key, &ctx.planner.process_state, now) {
        return Ok(Action::requeue(wait));
    }
    if let Some(action) = rollout::switch_revision(group, &key, ctx, now).await? {
        return Ok(action);
    }
    run_pass(group, &key, ctx, now).await
}

/// One pass of a group: plan, apply, report.
async fn run_pass(group: &InstanceGroup, key: &str, ctx: &Arc<Context>, now: Timestamp) -> Result<Action, Error> {
    let context = ctx.stores.group_context(group, &ctx.planner).await;
    let was_blocked = context.is_rollout_blocked;
    let old_status = group.status.clone().unwrap_or_default();
    let mut planned = plan_or_report_failure(group, key, context, &old_status, ctx, now).await?;
    let spec_fingerprint = adjust_plan(group, key, &old_status, &mut planned, ctx, now);
    let applied = apply_plan(group, planned.plan, &spec_fingerprint, was_blocked, ctx, now).await;
    record_writes(key, &applied, ctx, now);
    if !ctx.request_write() {
        // The next pass reports on the group, but not on these steps.
        let report = report(&old_status, &applied, planned.boundaries.as_ref(), &rfc3339(now));
        publish_step_events(group, &applied, &report, ctx).await;
        return Ok(Action::await_change());
    }
    let cluster = planned.snapshot.as_ref().map(|snapshot| snapshot.cluster());
    record_failed_step(key, spec_fingerprint, planned.denied_read, cluster, &applied, ctx, now).await;
    let report = report(&old_status, &applied, planned.boundaries.as_ref(), &rfc3339(now));
    update_status(group, key, &applied, &report, now, ctx).await?;
    node_labels::label_group_nodes(group, key, ctx).await;
    record_metrics(key, &old_status, &applied, &report, planned.failure_reason, ctx);
    Ok(requeue::next_action(key, &applied, report.outcome.as_ref(), ctx))
}

/// Plans a group, and records the request of a user that the plan answers. If the group cannot be read, the group itself
/// reports that.
async fn plan_or_report_failure(
    group: &InstanceGroup,
    key: &str,
    context: GroupContext,
    old_status: &InstanceGroupStatus,
    ctx: &Context,
    now: Timestamp,
) -> Result<Planning, Error> {
    let request = ctx.stores.pending_reconcile_request(group);
    let mut planned = match plan_with_fresh_reads(group, key, context, request.is_some(), ctx, now).await {
        Ok(planned) => planned,
        Err(error) => {
            ctx.stores.rollout.record_usage(key, None);
            failed_observation::report(group, key, &error, ctx, now).await;
            return Err(error);
        }
    };
    failed_observation::end(key, old_status, ctx);
    if let Some(value) = request {
        planned.plan.status_update.fields.insert("lastReconcileNow".to_owned(), json!(value));
    }
    Ok(planned)
}

/// Adjusts a plan to what the process knows beside the group: writes without effect, groups that a revision of the
/// boundaries makes invalid, and a rollout that is complete. Returns a fingerprint of the merged spec.
fn adjust_plan(
    group: &InstanceGroup,
    key: &str,
    old_status: &InstanceGroupStatus,
    planned: &mut Planning,
    ctx: &Arc<Context>,
    now: Timestamp,
) -> String {
    let spec_fingerprint = suppress_repetitions(planned, key, ctx, now);
    invalidated_groups::observe(key, old_status, planned, ctx);
    rollout::record_completion(group, planned, now);
    spec_fingerprint
}

/// Records what the groups of the namespace use of its quota.
fn record_quota(group: &InstanceGroup, context: &GroupContext, ctx: &Context) {
    let namespace = group.namespace().unwrap_or_default();
    ctx.metrics.set_quota(&namespace, &context.quota_levels(&namespace));
}

/// Plans a group. If the plan disrupts nodes, it is made once more, from fresh reads before it is used.
async fn plan_with_fresh_reads(
    group: &InstanceGroup,
    key: &str,
    mut context: GroupContext,
    is_requested: bool,
    ctx: &Context,
    now: Timestamp,
) -> Result<Planning, Error> {
    let planner = &ctx.planner;
    if is_requested {
        planner.process_state.end_waits(key, now);
        context.is_requested = true;
    }
    record_quota(group, &context, ctx);
    let fresh = requeue::max_cache_age(planner.settings.timing.poll_interval);
    let needs_fresh_reads = planner.process_state.is_progressing(key) || requeue::needs_fresh_reads(group);
    let max_age = if is_requested {
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
    let planned = failed_steps::block_denied_reads(group, planned).map_err(Error::Observe)?;
    if planned.denied_read.is_none() {
        return Ok(planned);
    }
    let (id, status) = (group_id(group), group.status.clone().unwrap_or_default());
    let observer = planner.observer(&context, fresh, now);
    let plan = planner.stop_rotation(&id, &status, &context, &observer, planned.plan).await;
    Ok(Planning { plan, ..planned })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::index::nodes::NodeIndex;

    /// A user who has repaired something need not wait for caches to expire.
    #[tokio::test]
    async fn requested_reconcile_bypasses_caches() {
        let client = crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}"));
        let planner = fake::planner(&Arc::new(FakeAws::default()), client, NodeIndex::default());
        let context = planner::GroupContext::default();
        let shared = |age| planner.observer(&context, age, Timestamp::UNIX_EPOCH).shared_max_cache_age;
        assert_eq!(shared(Duration::ZERO), Duration::ZERO);
        assert_eq!(shared(Duration::from_secs(12)), Duration::from_secs(150));
    }

    /// Without the limit, the ninth retry waits for four minutes. Until then, an outage of AWS looks like a group that
    /// has nothing to do.
    #[tokio::test]
    async fn failed_pass_is_repeated_when_the_failure_is_to_be_reported() {
        let conflict = || {
            Error::Status(crate::k8s::KubeError::Conflict {
                verb: "patch",
                resource: "instancegroups/status".into(),
                source: "test".into(),
            })
        };
        let delay = |is_failing| {
            let test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
            let state = &test.ctx.planner.process_state;
            (0..30).for_each(|_| _ = state.record_failure("team/web"));
            if is_failing {
                state.record_failed_observation("team/web", Timestamp::now() - SignedDuration::from_secs(30));
            }
            error_policy(Arc::new(fake::group_object("web", "1")), &conflict(), test.ctx.clone())
        };
        // An action shows its delay only as text.
        let seconds = |action: Action| {
            let text = format!("{action:?}");
            let delay = text.split_once("Some(").and_then(|(_, rest)| rest.split_once("s)")).expect("a delay").0;
            delay.parse::<f64>().expect("whole seconds or more")
        };
        let (reported, quiet) = (seconds(delay(true)), seconds(delay(false)));
        assert!(reported <= 36.0 && quiet > 200.0, "{reported} and {quiet}");
    }

    /// The group would look Ready in the metrics for as long as the defect lasts, and no alert would fire. The API server
    /// refuses the condition, too.
    #[tokio::test]
    async fn reconcile_that_panics_is_counted_and_alerted() {
        let client = crate::k8s::fake::client(|_| crate::k8s::fake::failure(403, "Forbidden", "it is not allowed"));
        let mut test = fake::context(client);
        let stored = fake::group_object("web", "1");
        let mut store = test.groups.take().expect("the writer of the store");
        store.apply_watcher_event(&Event::Apply(stored.clone()));
        // A lock that a panic has poisoned makes each reconcile panic.
        let state = test.ctx.planner.process_state.clone();
        let poison = || state.clock_jumps(|_| panic!("a defect"));
        let poisoned: std::thread::Result<()> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poison));
        assert!(poisoned.is_err(), "the lock is poisoned");
        reconcile(Arc::new(stored), test.ctx.clone()).await.expect("an action");
        let series = test.ctx.metrics.encode().expect("metrics");
        for expected in [
            "instance_manager_instance_group_read_failed{instancegroup=\"team/web\",reason=\"InternalError\"} 1",
            "instance_manager_reconcile_fail_total{instancegroup=\"team/web\",reason=\"HandleReconcile\"} 1",
        ] {
            assert!(series.contains(expected), "{expected} is missing in {series}");
        }
    }

    /// Its series would be exported until the process restarts, and an alert about it would never end.
    #[tokio::test]
    async fn pass_that_outlives_its_group_leaves_no_series() {
        let mut test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
        let mut store = test.groups.take().expect("the writer of the store");
        let stored = fake::group_object("web", "1");
        let fail = || {
            let conflict = crate::k8s::KubeError::Conflict {
                verb: "patch",
                resource: "instancegroups/status".into(),
                source: "test".into(),
            };
            error_policy(Arc::new(stored.clone()), &Error::Status(conflict), test.ctx.clone());
            let has_series = test.ctx.metrics.encode().unwrap().contains("team/web");
            (has_series, test.ctx.planner.process_state.record_failure("team/web"))
        };
        store.apply_watcher_event(&Event::Apply(stored.clone()));
        assert_eq!(fail(), (true, 2), "a group that is there");
        store.apply_watcher_event(&Event::Apply(fake::group_object("web", "2")));
        assert_eq!(fail(), (false, 1), "another group has its name");
        store.apply_watcher_event(&Event::Delete(fake::group_object("web", "2")));
        assert_eq!(fail(), (false, 1), "it is gone");
    }
}
