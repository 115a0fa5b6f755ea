//! When a group is reconciled again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;

use super::context::{CACHE_LAG_DELAY, Context, Error};
use super::planner::Planner;
use crate::api::names::fail_reason;
use crate::api::{CurrentState, InstanceGroup};
use crate::apply::{Applied, StepError};
use crate::aws::AwsErrorKind;
use crate::index::cache_state::OwnWrites;
use crate::index::process_state::ProcessState;
use crate::plan::{Outcome, Plan, Recheck, StalledReason};
use crate::telemetry::metrics::{Metrics, ReconcileResult};

/// Exponential backoff after `failures` failures in a row: starts at one second, doubles, is capped at the resync period,
/// and has a jitter of 20 %.
pub(crate) fn backoff(failures: u32, resync: Duration) -> Duration {
    backoff_from(Duration::from_secs(1), failures, resync)
}

/// Like [`backoff`], but starts at `first`.
fn backoff_from(first: Duration, failures: u32, resync: Duration) -> Duration {
    jitter(first.saturating_mul(1 << failures.saturating_sub(1).min(12)).min(resync))
}

/// The longest wait for a permission. With the jitter, the controller notices a restored permission within a minute.
const PERMISSION_RECHECK: Duration = Duration::from_secs(50);

/// The longest time for which nothing but a change of its spec begins a pass of a group that AWS throttled.
const THROTTLED_WAIT: Duration = Duration::from_secs(10);

/// The shortest wait of a group whose turn has come: a pass may end before the step.
const MIN_RETRY: Duration = Duration::from_secs(1);

/// The time between two tries of a call that is denied. See [`crate::index::denied_calls`].
pub(crate) fn permission_period(resync: Duration) -> SignedDuration {
    SignedDuration::try_from(resync.min(PERMISSION_RECHECK)).unwrap_or(SignedDuration::MAX)
}

/// The delay after a failed step. Most conflicts and new instance profiles need one short wait; one that lasts needs
/// manual intervention.
fn delay_after_step(error: &StepError, failures: u32, iam_propagation: Duration, resync: Duration) -> Duration {
    match error {
        StepError::Aws(error) if error.kind == AwsErrorKind::InvalidProfile => {
            backoff_from(iam_propagation, failures, resync.max(iam_propagation))
        }
        StepError::Kube(error) if error.is_conflict() => backoff_from(CACHE_LAG_DELAY, failures, resync),
        error if error.stalled_reason() == Some(StalledReason::MissingPermission) => {
            backoff(failures, resync.min(PERMISSION_RECHECK))
        }
        _ => backoff(failures, resync),
    }
}

/// Adds a jitter of 20 %, so that groups do not reconcile in lockstep.
pub(crate) fn jitter(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.8..1.2))
}

/// Maximum age of cached reads for a plan that disrupts nodes.
pub(crate) fn max_cache_age(poll: SignedDuration) -> Duration {
    poll.unsigned_abs().mul_f64(0.8)
}

/// Whether the status shows a change in progress, or does not cover the current generation.
pub(crate) fn needs_fresh_reads(group: &InstanceGroup) -> bool {
    let status = group.status.as_ref();
    let is_ready = status.and_then(|s| s.current_state.as_deref()) == Some(CurrentState::Ready.as_str());
    !is_ready || status.and_then(|s| s.observed_generation) != group.metadata.generation
}

/// How long until a group that has not been read since then reports it; `None` when there is nothing to report, and when the
/// pass that just ended was to report it.
pub(crate) fn until_report(since: Option<Timestamp>, delay: SignedDuration, now: Timestamp) -> Option<Duration> {
    let left = since.map(|since| delay - now.duration_since(since)).filter(SignedDuration::is_positive)?;
    Some(left.unsigned_abs().max(MIN_RETRY))
}

/// Requeues a group whose reconcile failed: with the group's exponential backoff, at most `longest`, or after a short
/// delay when the object changed in the meantime. A group that was deleted is not requeued.
pub(crate) fn after_error(
    key: &str,
    error: &Error,
    metrics: &Metrics,
    process_state: &ProcessState,
    longest: Duration,
) -> Action {
    metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::HANDLE_RECONCILE));
    if matches!(error, Error::Status(error) if error.is_not_found()) {
        metrics.forget_group(key);
        return Action::await_change();
    }
    metrics.record_queue_retry();
    if matches!(error, Error::Status(error) if error.is_conflict()) {
        process_state.own_writes(key, OwnWrites::record_conflict);
        return Action::requeue(backoff_from(CACHE_LAG_DELAY, process_state.record_failure(key), longest));
    }
    tracing::warn!(group = %key, %error, "reconcile failed, retrying");
    Action::requeue(backoff(process_state.record_failure(key), longest))
}

/// When to reconcile a group again, depending on the result of this reconcile.
pub(crate) fn next_action(key: &str, applied: &Applied, outcome: Option<&Outcome>, ctx: &Context) -> Action {
    let process_state = &ctx.planner.process_state;
    let Some(error) = &applied.error else {
        let Some(outcome) = outcome.filter(|outcome| **outcome != Outcome::Deleted) else {
            return Action::await_change();
        };
        process_state.reset_failures(key);
        let (is_progressing, delay) = delay_after_outcome(key, &applied.plan, outcome, ctx);
        process_state.set_progressing(key, is_progressing);
        return Action::requeue(delay);
    };
    if matches!(error, StepError::MayNotWrite) {
        process_state.set_progressing(key, true);
        return Action::await_change();
    }
    ctx.metrics.record_queue_retry();
    let retry = retry_delay(key, error, ctx);
    let (is_progressing, delay) = match &applied.plan.outcome {
        _ if !applied.is_complete() => (true, retry),
        // Only the steps that were refused are left, and those that wait for them.
        Outcome::Progressing { recheck: Recheck::Immediately, .. } if applied.steps_done == 0 => (true, retry),
        planned => delay_after_outcome(key, &applied.plan, planned, ctx),
    };
    process_state.set_progressing(key, is_progressing);
    Action::requeue(delay.min(retry))
}

/// How long to wait until a failed step is tried again.
fn retry_delay(key: &str, error: &StepError, ctx: &Context) -> Duration {
    let Planner { process_state, settings, .. } = &ctx.planner;
    let failures = process_state.record_failure(key);
    if matches!(error, StepError::Kube(error) if error.is_conflict()) {
        process_state.own_writes(key, OwnWrites::record_conflict);
    }
    let delay = match time_to_retry(key, process_state, settings.resync_period) {
        Some(turn) if error.denied_call().is_some() => turn,
        _ => delay_after_step(error, failures, settings.timing.iam_propagation.unsigned_abs(), settings.resync_period),
    };
    if matches!(error, StepError::Aws(error) if error.kind == AwsErrorKind::Throttled) {
        process_state.record_throttling(key, Timestamp::now() + delay.min(THROTTLED_WAIT));
    }
    delay
}

/// The time until a group that AWS throttled may be reconciled, whatever happens to it but a change of its spec. A pass may
/// write to a Node before AWS rejects the next call, and the watch of Nodes would begin the next pass at once.
pub(super) fn throttled_for(
    group: &InstanceGroup,
    key: &str,
    process_state: &ProcessState,
    now: Timestamp,
) -> Option<Duration> {
    let observed = group.status.as_ref().and_then(|status| status.observed_generation);
    // A clock that is set back must not make it wait for longer.
    let left = process_state.throttled_for(key, now).filter(|left| *left <= THROTTLED_WAIT);
    left.filter(|_| observed == group.metadata.generation)
}

/// How long to wait after a pass with this outcome, and whether the group is changing.
fn delay_after_outcome(key: &str, plan: &Plan, outcome: &Outcome, ctx: &Context) -> (bool, Duration) {
    let (resync_period, poll) = (ctx.planner.settings.resync_period, || (true, poll_delay(ctx)));
    let resync = || match writes_record(plan) {
        true => (false, poll_delay(ctx)),
        false => (expects_change(plan, ctx), resync_delay(resync_period, plan.recheck_at, Timestamp::now())),
    };
    match outcome {
        Outcome::Converged | Outcome::Deleted => resync(),
        Outcome::Locked { .. } if may_clear(&plan.other_outcomes) => poll(),
        Outcome::Locked { .. } => resync(),
        Outcome::Progressing { recheck: Recheck::Immediately, .. } => (true, Duration::from_millis(20)),
        Outcome::Progressing { recheck: Recheck::Poll, .. } => poll(),
        Outcome::Progressing { recheck: Recheck::After(time), .. } => (true, time.unsigned_abs()),
        Outcome::Blocked { reason, is_deleting, .. } if is_transient(*reason, *is_deleting) => poll(),
        Outcome::Blocked { .. } if may_clear(&plan.other_outcomes) => poll(),
        Outcome::Blocked { reason: StalledReason::MissingPermission, .. } => {
            let turn = time_to_retry(key, &ctx.planner.process_state, resync_period);
            let period = resync_period.min(PERMISSION_RECHECK);
            (false, turn.unwrap_or_else(|| resync_delay(period, plan.recheck_at, Timestamp::now())))
        }
        Outcome::Blocked { .. } => resync(),
    }
}

/// The time until a group may try a denied call again, or until a pass must update its status. `None` when the group
/// does not wait for its turn.
fn time_to_retry(key: &str, process_state: &ProcessState, resync: Duration) -> Option<Duration> {
    let wait = process_state.denied_calls(|denied_calls| denied_calls.time_to_retry(key, Timestamp::now()))?;
    Some((wait.unsigned_abs() + Duration::from_millis(20)).max(MIN_RETRY).min(jitter(resync)))
}

/// Whether a plan needs another pass within a poll interval. That pass reads AWS without the cache, which may not show
/// the expected change yet.
fn expects_change(plan: &Plan, ctx: &Context) -> bool {
    let poll = ctx.planner.settings.timing.poll_interval;
    plan.recheck_at.is_some_and(|at| at.duration_since(Timestamp::now()) <= poll)
}

/// Whether a plan changed what the status records. It was made from the old record, so the next pass may find more to do.
fn writes_record(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.is_status_write())
}

/// The resync period with jitter, or less if the plan names an earlier time in `recheck_at`.
fn resync_delay(resync: Duration, recheck_at: Option<Timestamp>, now: Timestamp) -> Duration {
    let until = recheck_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
    jitter(resync).min(until.map_or(Duration::MAX, |u| u + Duration::from_millis(500)))
}

/// Time until the next common poll. All groups that change poll at the same time, so that one batched AWS call serves many.
fn poll_delay(ctx: &Context) -> Duration {
    let period = ctx.planner.settings.timing.poll_interval.unsigned_abs().max(Duration::from_millis(100));
    let elapsed = ctx.started_at.elapsed().as_nanos() % period.as_nanos();
    period - Duration::from_nanos(u64::try_from(elapsed).unwrap_or(0)) + Duration::from_millis(5)
}

/// Whether one of the other outcomes of a blocked or locked group may clear soon.
fn may_clear(others: &[Outcome]) -> bool {
    others.iter().any(|other| match other {
        Outcome::Progressing { .. } => true,
        Outcome::Blocked { reason, is_deleting, .. } => is_transient(*reason, *is_deleting),
        Outcome::Converged | Outcome::Locked { .. } | Outcome::Deleted => false,
    })
}

/// Whether the block may clear soon without a change in Kubernetes, so that the group is polled.
fn is_transient(reason: StalledReason, is_deleting: bool) -> bool {
    match reason {
        StalledReason::ReplacementsNotReady
        | StalledReason::ClusterUnhealthy
        | StalledReason::ProcessSuspended
        | StalledReason::DrainBlocked
        | StalledReason::UnschedulablePods
        | StalledReason::InsufficientCapacity
        | StalledReason::QuotaExceeded
        | StalledReason::LaunchFailed
        | StalledReason::NodesNotReady
        | StalledReason::StrategyFailed
        | StalledReason::Degraded
        | StalledReason::AwsFailed => true,
        // A foreign resource with the name of an active group usually stays, and its reads cannot be batched.
        StalledReason::OwnershipConflict => is_deleting,
        StalledReason::InvalidSpec
        | StalledReason::MissingPermission
        | StalledReason::RefusedByAws
        | StalledReason::BoundariesUnavailable
        | StalledReason::AuthModeUnsupported
        | StalledReason::AuthConflict
        | StalledReason::ImageNotFound
        | StalledReason::NotFound
        | StalledReason::StrategyKindNotFound
        | StalledReason::ProfileFailed
        | StalledReason::UpdateFailed
        | StalledReason::PolicyViolation
        | StalledReason::DeletionProtected => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;
    use crate::api::{InstanceGroupSpec, InstanceGroupStatus, group_id};
    use crate::aws::AwsError;
    use crate::k8s::KubeError;
    use crate::plan::PlanBuilder;

    #[test]
    fn resync_delay_is_shortened_by_recheck_time() {
        let now = Timestamp::UNIX_EPOCH;
        let resync = Duration::from_secs(300);
        assert!(resync_delay(resync, None, now) >= Duration::from_secs(240));
        assert!(resync_delay(resync, Some(now + SignedDuration::from_secs(9)), now) <= Duration::from_secs(10));
        assert!(resync_delay(resync, Some(now - SignedDuration::from_secs(9)), now) <= Duration::from_secs(1));
    }

    /// A pass writes to a Node before AWS throttles the termination. The watch of Nodes would begin the next pass at once,
    /// and the group would call a throttled API as fast as it can.
    #[tokio::test]
    async fn group_that_aws_throttled_waits_unless_its_spec_changes() {
        let test = fake::context(crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}")));
        let (key, state) = ("team/web", &test.ctx.planner.process_state);
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.generation = Some(1);
        group.status = Some(InstanceGroupStatus { observed_generation: Some(1), ..InstanceGroupStatus::default() });
        let fail = |code, status| {
            let error = AwsError::from_response("AutoScaling", "TerminateInstance", code, "no", status);
            retry_delay(key, &StepError::Aws(error), &test.ctx);
        };
        fail("InternalFailure", 500);
        assert_eq!(throttled_for(&group, key, state, Timestamp::now()), None);
        for _ in 0..9 {
            fail("Throttling", 400);
        }
        let wait = throttled_for(&group, key, state, Timestamp::now()).expect("it waits");
        assert!((THROTTLED_WAIT / 2..=THROTTLED_WAIT).contains(&wait), "{wait:?}");
        assert_eq!(throttled_for(&group, key, state, Timestamp::now() + SignedDuration::from_secs(10)), None);
        assert_eq!(throttled_for(&group, key, state, Timestamp::now() - SignedDuration::from_hours(1)), None);
        group.metadata.generation = Some(2);
        assert_eq!(throttled_for(&group, key, state, Timestamp::now()), None);
    }

    /// A Ready group would otherwise wait until the next resync for what its old record blocked.
    #[test]
    fn plan_that_changes_the_record_is_not_the_last_one_for_long() {
        let plan = |recorded| {
            let mut builder = PlanBuilder::with_outcome(Outcome::Converged);
            if recorded {
                builder.record(serde_json::json!({ "managed": { "authEntries": [] } }));
            }
            builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None)
        };
        assert!(writes_record(&plan(true)) && !writes_record(&plan(false)));
    }

    /// Each check of a foreign role and profile costs two IAM calls, so an active group does not poll for them.
    #[test]
    fn ownership_conflict_is_transient_only_while_deleting() {
        assert!(
            !is_transient(StalledReason::OwnershipConflict, false)
                && is_transient(StalledReason::OwnershipConflict, true)
        );
        assert!(
            is_transient(StalledReason::InsufficientCapacity, false)
                && !is_transient(StalledReason::PolicyViolation, true)
        );
    }

    /// An outage that lasts is visible after a minute, and not only when the growing intervals of the retries allow it.
    #[test]
    fn pass_that_reports_an_outage_is_not_delayed_by_the_backoff() {
        let (minute, state) = (SignedDuration::from_mins(1), ProcessState::default());
        let at = |second| Timestamp::from_second(second).expect("a time");
        let report_in = |state: &ProcessState, now| until_report(state.unreported_failure("team/web"), minute, at(now));
        assert_eq!(report_in(&state, 20), None, "it can be read");
        state.record_failed_observation("team/web", at(0));
        assert_eq!(report_in(&state, 40), Some(Duration::from_secs(20)));
        let longest = report_in(&state, 40).expect("a time");
        assert!(backoff(9, longest) <= Duration::from_secs(24), "the ninth retry would wait for four minutes");
        assert_eq!(report_in(&state, 61), None, "the pass has just reported it, or could not");
        state.set_failure_reported("team/web", "Throttling".into());
        assert_eq!(report_in(&state, 40), None);
    }

    #[test]
    fn retries_are_counted_unless_the_group_is_deleted() {
        let (metrics, process_state) = (Metrics::new().unwrap(), ProcessState::default());
        let after = |status: KubeError| {
            after_error("team/web", &Error::Status(status), &metrics, &process_state, Duration::from_secs(300));
            let text = metrics.encode().unwrap();
            let line = text.lines().find(|line| line.starts_with("workqueue_retries_total{")).expect("the counter");
            line.rsplit(' ').next().unwrap_or_default().to_owned()
        };
        let (verb, resource) = ("patch", "instancegroups/status");
        let not_found = KubeError::NotFound { verb, resource: resource.into(), source: "test".into() };
        let conflict = KubeError::Conflict { verb, resource: resource.into(), source: "test".into() };
        let unavailable = KubeError::Unavailable { verb, resource: resource.into(), source: "test".into() };
        assert_eq!([after(not_found), after(conflict), after(unavailable)], ["0", "1", "2"]);
    }

    /// A role that AWS does not accept, or an object that another client writes all the time, needs manual
    /// intervention.
    #[test]
    fn each_error_that_lasts_is_retried_at_growing_intervals() {
        let (propagation, resync) = (Duration::from_secs(8), Duration::from_secs(300));
        let profile = AwsError::no_response("AutoScaling", "CreateAutoScalingGroup", "ValidationError", "no profile");
        let profile = StepError::Aws(AwsError { kind: AwsErrorKind::InvalidProfile, ..profile });
        let (verb, resource) = ("patch", "instancegroups/status");
        let conflict = StepError::Kube(KubeError::Conflict { verb, resource: resource.into(), source: "test".into() });
        for (error, first) in [(profile, propagation), (conflict, CACHE_LAG_DELAY)] {
            let delay = |failures| delay_after_step(&error, failures, propagation, resync);
            assert!(delay(1) <= first.mul_f64(1.2) && delay(1) >= first.mul_f64(0.8));
            assert!(delay(4) >= first.mul_f64(6.4) && delay(30) >= resync.mul_f64(0.8), "{error}");
            assert!(delay(30) <= resync.mul_f64(1.2), "{error}");
        }
    }

    /// An admin who restores a permission waits for the group.
    #[test]
    fn restored_permission_is_noticed_within_a_minute() {
        let denied = AwsError::from_response("AutoScaling", "CreateOrUpdateTags", "AccessDenied", "no", 403);
        let throttled = AwsError::from_response("AutoScaling", "CreateOrUpdateTags", "Throttling", "slow", 400);
        let longest = |error: AwsError| {
            let resync = Duration::from_secs(300);
            delay_after_step(&StepError::Aws(error), 30, Duration::from_secs(8), resync)
        };
        assert!(longest(denied) <= Duration::from_secs(60));
        assert!(longest(throttled) >= Duration::from_secs(240));
    }

    #[test]
    fn backoff_is_capped_at_the_resync_period() {
        let resync = Duration::from_secs(300);
        assert!(backoff(1, resync) <= Duration::from_millis(1200));
        assert!(backoff(5, resync) >= Duration::from_millis(12_800));
        assert!(backoff(40, resync) <= Duration::from_secs(360));
    }
}
