//! When to look again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;

use super::Context;
use crate::api::{CurrentState, InstanceGroup};
use crate::apply::{Applied, StepError};
use crate::aws::AwsErrorKind;
use crate::plan::{Outcome, Reason, Recheck};

/// One second, doubling, at most the resync period, a fifth more or less.
pub fn backoff(failures: u32, resync: Duration) -> Duration {
    let base = Duration::from_secs(1u64 << failures.saturating_sub(1).min(10));
    jitter(base.min(resync))
}

/// A fifth more or less, so that groups do not march in step.
pub fn jitter(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.8..1.2))
}

/// How old a look may be that nodes are taken away on.
pub fn max_cache_age(poll: SignedDuration) -> Duration {
    poll.unsigned_abs().mul_f64(0.8)
}

/// Whether the status says that something is under way or unseen.
pub fn needs_fresh_reads(group: &InstanceGroup) -> bool {
    let status = group.status.as_ref();
    let settled = status.and_then(|s| s.current_state.as_deref()) == Some(CurrentState::Ready.as_str());
    !settled || status.and_then(|s| s.observed_generation) != group.metadata.generation
}

/// When to look at a group again after what happened to it.
pub fn next_action(key: &str, applied: &Applied, outcome: Option<&Outcome>, shared: &Context) -> Action {
    let corridor = &shared.planner;
    let memory = &corridor.process_state;
    let resync =
        || Action::requeue(resync_delay(corridor.settings.resync_period, applied.plan.recheck_at, Timestamp::now()));
    if let Some(stopped) = &applied.error {
        memory.set_progressing(key, true);
        return match stopped {
            StepError::NotLeading => Action::await_change(),
            StepError::Aws(error) if error.kind == AwsErrorKind::InvalidProfile => {
                Action::requeue(jitter(corridor.settings.timing.iam_propagation.unsigned_abs()))
            }
            StepError::Cluster(error) if error.is_conflict() => Action::requeue(Duration::from_millis(200)),
            _ => Action::requeue(backoff(memory.record_failure(key), corridor.settings.resync_period)),
        };
    }
    if matches!(outcome, Some(Outcome::Deleted)) {
        return Action::await_change();
    }
    memory.reset_failures(key);
    let (flux, action) = match outcome {
        None | Some(Outcome::Deleted) => (false, Action::await_change()),
        Some(Outcome::Converged) => (false, resync()),
        Some(Outcome::Locked { .. }) => (false, resync()),
        Some(Outcome::Progressing { recheck: Recheck::Soon, .. }) => (true, Action::requeue(Duration::from_millis(20))),
        Some(Outcome::Progressing { recheck: Recheck::Poll, .. }) => (true, Action::requeue(poll_delay(shared))),
        Some(Outcome::Progressing { recheck: Recheck::After(time), .. }) => {
            (true, Action::requeue(time.unsigned_abs()))
        }
        Some(Outcome::Blocked { reason, is_deleting, .. }) if is_transient(*reason, *is_deleting) => {
            (true, Action::requeue(poll_delay(shared)))
        }
        Some(Outcome::Blocked { .. }) => (false, resync()),
    };
    memory.set_progressing(key, flux);
    action
}

/// A resync period, or less when there is more to do before.
fn resync_delay(resync: Duration, wake: Option<Timestamp>, now: Timestamp) -> Duration {
    let until = wake.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
    jitter(resync).min(until.map_or(Duration::MAX, |u| u + Duration::from_millis(500)))
}

/// Groups in flux look together, so that one call answers for many.
fn poll_delay(shared: &Context) -> Duration {
    let period = shared.planner.settings.timing.poll_interval.unsigned_abs().max(Duration::from_millis(100));
    let passed = shared.started_at.elapsed().as_nanos() % period.as_nanos();
    period - Duration::from_nanos(u64::try_from(passed).unwrap_or(0)) + Duration::from_millis(5)
}

/// Whether the group may get out of it soon without anyone touching Kubernetes.
fn is_transient(reason: Reason, deleting: bool) -> bool {
    match reason {
        Reason::ReplacementsNotReady
        | Reason::ClusterUnhealthy
        | Reason::ProcessSuspended
        | Reason::DrainBlocked
        | Reason::UnschedulablePods
        | Reason::InsufficientCapacity
        | Reason::QuotaExceeded
        | Reason::LaunchFailed
        | Reason::NodesNotReady
        | Reason::StrategyFailed
        | Reason::Degraded => true,
        // What bears a living group's name is likely to stay, and is not read from what many groups share.
        Reason::OwnershipConflict => deleting,
        Reason::InvalidSpec
        | Reason::MissingPermission
        | Reason::RefusedByAws
        | Reason::BoundariesUnavailable
        | Reason::AuthModeUnsupported
        | Reason::AuthConflict
        | Reason::ImageNotFound
        | Reason::NotFound
        | Reason::StrategyKindNotFound
        | Reason::ProfileFailed
        | Reason::UpdateFailed
        | Reason::PolicyViolation => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_delay_is_shortened_by_recheck_time() {
        let now = Timestamp::UNIX_EPOCH;
        let resync = Duration::from_secs(300);
        assert!(resync_delay(resync, None, now) >= Duration::from_secs(240));
        assert!(resync_delay(resync, Some(now + SignedDuration::from_secs(9)), now) <= Duration::from_secs(10));
        assert!(resync_delay(resync, Some(now - SignedDuration::from_secs(9)), now) <= Duration::from_secs(1));
    }

    /// Each look at a stranger's role and profile is two calls to IAM: for ever, at the pace of nodes that are on their way.
    #[test]
    fn ownership_conflict_is_transient_only_while_deleting() {
        assert!(!is_transient(Reason::OwnershipConflict, false) && is_transient(Reason::OwnershipConflict, true));
        assert!(is_transient(Reason::InsufficientCapacity, false) && !is_transient(Reason::PolicyViolation, true));
    }

    #[test]
    fn backoff_is_capped_at_the_resync_period() {
        let resync = Duration::from_secs(300);
        assert!(backoff(1, resync) <= Duration::from_millis(1200));
        assert!(backoff(5, resync) >= Duration::from_millis(12_800));
        assert!(backoff(40, resync) <= Duration::from_secs(360));
    }
}
