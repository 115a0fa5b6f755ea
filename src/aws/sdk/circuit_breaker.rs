//! A circuit breaker for each AWS operation. While every attempt of an operation is throttled or unanswered, its calls
//! fail immediately with AWS's last error; one attempt goes through every five seconds. Without this, each reconcile
//! would wait for all attempts of its own call before it could report the problem. All of them together would keep a
//! throttled API throttled.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::aws::{AwsError, AwsErrorKind};

/// How long every attempt of a call, or of all calls of an operation, must have failed before the call ends.
pub(super) const FAIL_FAST_AFTER: Duration = Duration::from_secs(20);
/// How often one attempt is made meanwhile.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// How long an operation that is not called any more counts as failing. Nothing is known of it then: the step that called it
/// may not be needed any more.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(30 * 60);

/// The name of all operations that have no metric of their own: nothing is known of each.
pub(super) const OTHER_OPERATION: &str = "Other";

/// Prefix of the service's IAM actions, and operation.
type Operation = (&'static str, &'static str);

/// The operations whose attempts all fail at the moment, each with its failures.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<HashMap<Operation, FailingOperation>>);

/// The failed attempts of one operation since its last success.
#[derive(Debug)]
struct FailingOperation {
    begun: Instant,
    last_failed: Instant,
    next_probe: Instant,
    last_error: AwsError,
}

impl CircuitBreaker {
    /// Records how an attempt ended. Rejected credentials count as unanswered: no call succeeds with them. Any other answer
    /// removes the operation: AWS answers, although it may reject the call.
    pub(super) fn record(&self, operation: Operation, error: Option<AwsError>, now: Instant) {
        if operation.1 == OTHER_OPERATION {
            return;
        }
        let counts = |error: &AwsError| {
            matches!(error.kind, AwsErrorKind::Throttled | AwsErrorKind::Unavailable) || error.is_about_credentials()
        };
        let mut operations = self.0.lock().expect("lock is not poisoned");
        let Some(error) = error.filter(counts) else {
            operations.remove(&operation);
            return;
        };
        let known = operations.get(&operation).filter(|known| now.duration_since(known.last_failed) < FORGET_AFTER);
        let begun = known.map_or(now, |failing| failing.begun);
        let since = known.and_then(|failing| failing.last_error.failing_since).unwrap_or_else(Timestamp::now);
        let last_error = AwsError { failing_since: Some(since), ..error };
        operations.insert(
            operation,
            FailingOperation { begun, last_failed: now, next_probe: now + PROBE_INTERVAL, last_error },
        );
    }

    /// The last error of each operation whose attempts have all failed for at least so long, with the time of the last
    /// attempt; the longest first. Operations without an attempt for half an hour are left out.
    pub(crate) fn lasting(&self, at_least: Duration, now: Instant) -> Vec<(AwsError, Instant)> {
        let operations = self.0.lock().expect("lock is not poisoned");
        let mut found: Vec<_> = operations
            .values()
            .filter(|failing| failing.last_failed.duration_since(failing.begun) >= at_least)
            .filter(|failing| now.duration_since(failing.last_failed) < FORGET_AFTER)
            .collect();
        found.sort_by_key(|failing| failing.begun);
        found.into_iter().map(|failing| (failing.last_error.clone(), failing.last_failed)).collect()
    }

    /// The error that ends a call before its next attempt; `None` if the attempt may be made.
    pub(super) fn refuse(&self, operation: Operation, now: Instant) -> Option<AwsError> {
        let mut operations = self.0.lock().expect("lock is not poisoned");
        let failing = operations.get_mut(&operation)?;
        if now.duration_since(failing.begun) < FAIL_FAST_AFTER {
            return None;
        }
        if now >= failing.next_probe {
            // The attempt may take long, and others wait for the next one.
            failing.next_probe = now + PROBE_INTERVAL;
            return None;
        }
        Some(failing.last_error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Operation = ("autoscaling", "DescribeAutoScalingGroups");

    fn error(code: &str) -> AwsError {
        AwsError::from_response("AutoScaling", CALL.1, code, "said AWS", 400)
    }

    /// A group reports its problem after a minute only if its calls end before.
    #[test]
    fn calls_of_a_failing_operation_end_at_once_with_the_last_error() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        breaker.record(CALL, Some(error("Throttling")), at(0));
        assert_eq!(breaker.refuse(CALL, at(19)), None, "a short burst is retried as ever");
        breaker.record(CALL, Some(error("Throttling")), at(19));
        let refused = breaker.refuse(CALL, at(21)).expect("an error");
        assert_eq!((refused.kind, refused.code.as_str()), (AwsErrorKind::Throttled, "Throttling"));
        assert!(refused.failing_since.is_some());
        assert_eq!(breaker.refuse(("autoscaling", "DescribeWarmPool"), at(21)), None, "another operation");
        // One attempt of all waiting calls is made, and not the next at the same time.
        assert_eq!(breaker.refuse(CALL, at(24)), None);
        assert!(breaker.refuse(CALL, at(25)).is_some());
    }

    /// One failed attempt is not an outage, however long ago it was.
    #[test]
    fn outage_lasts_as_long_as_attempts_fail() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        let (at, minute) = (|seconds| start + Duration::from_secs(seconds), Duration::from_secs(60));
        breaker.record(CALL, Some(error("Throttling")), at(0));
        assert_eq!(breaker.lasting(minute, at(0)), []);
        breaker.record(CALL, Some(error("Throttling")), at(59));
        assert_eq!(breaker.lasting(minute, at(59)), []);
        breaker.record(CALL, Some(error("Throttling")), at(60));
        let lasting = breaker.lasting(minute, at(60));
        assert_eq!(lasting.len(), 1);
        assert_eq!((lasting[0].0.operation, lasting[0].1), (CALL.1, at(60)));
        breaker.record(CALL, None, at(61));
        assert_eq!(breaker.lasting(minute, at(61)), []);
    }

    /// A user reverts a change whose call failed. The controller no longer makes this call, and would report an outage
    /// weeks later with its name and its time.
    #[test]
    fn call_that_is_no_longer_made_is_no_outage() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        let minute = Duration::from_secs(60);
        for seconds in [0, 60] {
            breaker.record(CALL, Some(error("Throttling")), start + Duration::from_secs(seconds));
        }
        assert_eq!(breaker.lasting(minute, start + FORGET_AFTER).len(), 1);
        let later = start + minute + FORGET_AFTER;
        assert_eq!(breaker.lasting(minute, later), []);
        breaker.record(CALL, Some(error("Throttling")), later);
        assert_eq!(breaker.lasting(minute, later), [], "the next outage begins with its own first failure");
    }

    /// The controller can do nothing at all, and only groups that change would report it.
    #[test]
    fn rejected_credentials_are_an_outage() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        for seconds in [0, 60] {
            breaker.record(CALL, Some(error("ExpiredToken")), start + Duration::from_secs(seconds));
        }
        assert_eq!(breaker.lasting(Duration::from_secs(60), start + Duration::from_secs(60)).len(), 1);
    }

    /// Whatever AWS answers, it answers again.
    #[test]
    fn any_other_answer_ends_the_outage() {
        for answer in [None, Some(error("ValidationError")), Some(error("AccessDenied"))] {
            let (breaker, start) = (CircuitBreaker::default(), Instant::now());
            let at = |seconds| start + Duration::from_secs(seconds);
            breaker.record(CALL, Some(error("Throttling")), at(0));
            breaker.record(CALL, Some(error("Throttling")), at(29));
            assert!(breaker.refuse(CALL, at(30)).is_some());
            breaker.record(CALL, answer, at(31));
            assert_eq!(breaker.refuse(CALL, at(32)), None);
        }
    }
}
