//! When to look again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;

use super::Shared;
use crate::api::{CurrentState, InstanceGroup};
use crate::apply::{Applied, Stopped};
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
pub fn young(poll: SignedDuration) -> Duration {
    poll.unsigned_abs().mul_f64(0.8)
}

/// Whether the status says that something is under way or unseen.
pub fn unsettled(group: &InstanceGroup) -> bool {
    let status = group.status.as_ref();
    let settled = status.and_then(|s| s.current_state.as_deref()) == Some(CurrentState::Ready.as_str());
    !settled || status.and_then(|s| s.observed_generation) != group.metadata.generation
}

/// When to look at a group again after what happened to it.
pub fn next(key: &str, applied: &Applied, outcome: Option<&Outcome>, shared: &Shared) -> Action {
    let corridor = &shared.corridor;
    let memory = &corridor.memory;
    let resync = || Action::requeue(quiet(corridor.settings.resync, applied.plan.wake, Timestamp::now()));
    if let Some(stopped) = &applied.stopped {
        memory.set_in_flux(key, true);
        return match stopped {
            Stopped::NotLeading => Action::await_change(),
            Stopped::Aws(error) if error.kind == AwsErrorKind::InvalidProfile => {
                Action::requeue(jitter(corridor.settings.timing.propagation.unsigned_abs()))
            }
            Stopped::Cluster(error) if error.is_conflict() => Action::requeue(Duration::from_millis(200)),
            _ => Action::requeue(backoff(memory.failed(key), corridor.settings.resync)),
        };
    }
    if matches!(outcome, Some(Outcome::Deleted)) {
        return Action::await_change();
    }
    memory.succeeded(key);
    let (flux, action) = match outcome {
        None | Some(Outcome::Deleted) => (false, Action::await_change()),
        Some(Outcome::Converged) => (false, resync()),
        Some(Outcome::Locked { .. }) => (false, resync()),
        Some(Outcome::Progressing { recheck: Recheck::Soon, .. }) => (true, Action::requeue(Duration::from_millis(20))),
        Some(Outcome::Progressing { recheck: Recheck::Poll, .. }) => (true, Action::requeue(poll(shared))),
        Some(Outcome::Progressing { recheck: Recheck::After(time), .. }) => {
            (true, Action::requeue(time.unsigned_abs()))
        }
        Some(Outcome::Blocked { reason, deleting, .. }) if recovers(*reason, *deleting) => {
            (true, Action::requeue(poll(shared)))
        }
        Some(Outcome::Blocked { .. }) => (false, resync()),
    };
    memory.set_in_flux(key, flux);
    action
}

/// A resync period, or less when there is more to do before.
fn quiet(resync: Duration, wake: Option<Timestamp>, now: Timestamp) -> Duration {
    let until = wake.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
    jitter(resync).min(until.map_or(Duration::MAX, |u| u + Duration::from_millis(500)))
}

/// Groups in flux look together, so that one call answers for many.
fn poll(shared: &Shared) -> Duration {
    let period = shared.corridor.settings.timing.poll.unsigned_abs().max(Duration::from_millis(100));
    let passed = shared.began.elapsed().as_nanos() % period.as_nanos();
    period - Duration::from_nanos(u64::try_from(passed).unwrap_or(0)) + Duration::from_millis(5)
}

/// Whether the group may get out of it soon without anyone touching Kubernetes.
fn recovers(reason: Reason, deleting: bool) -> bool {
    match reason {
        Reason::ReplacementsNotReady
        | Reason::ClusterUnhealthy
        | Reason::ProcessSuspended
        | Reason::DrainBlocked
        | Reason::NeedsCapacity
        | Reason::InsufficientCapacity
        | Reason::QuotaExceeded
        | Reason::LaunchFailed
        | Reason::NodesNotReady
        | Reason::StrategyFailed
        | Reason::Degraded => true,
        // What bears a living group's name is likely to stay, and is not read from what many groups share.
        Reason::NotOurs => deleting,
        Reason::InvalidSpec
        | Reason::MissingPermission
        | Reason::RefusedByAws
        | Reason::BoundariesUnavailable
        | Reason::AuthModeUnsupported
        | Reason::AuthConflict
        | Reason::ImageNotFound
        | Reason::NotFound
        | Reason::StrategyMissing
        | Reason::ProfileFailed
        | Reason::UpdateFailed
        | Reason::PolicyViolation => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_group_wakes_for_what_is_due() {
        let now = Timestamp::UNIX_EPOCH;
        let resync = Duration::from_secs(300);
        assert!(quiet(resync, None, now) >= Duration::from_secs(240));
        assert!(quiet(resync, Some(now + SignedDuration::from_secs(9)), now) <= Duration::from_secs(10));
        assert!(quiet(resync, Some(now - SignedDuration::from_secs(9)), now) <= Duration::from_secs(1));
    }

    /// Each look at a stranger's role and profile is two calls to IAM: for ever, at the pace of nodes that are on their way.
    #[test]
    fn a_stranger_of_the_groups_name_is_looked_at_with_the_resync_and_a_deletion_goes_on_soon() {
        assert!(!recovers(Reason::NotOurs, false) && recovers(Reason::NotOurs, true));
        assert!(recovers(Reason::InsufficientCapacity, false) && !recovers(Reason::PolicyViolation, true));
    }

    #[test]
    fn backoff_grows_to_the_resync_period_and_not_beyond() {
        let resync = Duration::from_secs(300);
        assert!(backoff(1, resync) <= Duration::from_millis(1200));
        assert!(backoff(5, resync) >= Duration::from_millis(12_800));
        assert!(backoff(40, resync) <= Duration::from_secs(360));
    }
}
