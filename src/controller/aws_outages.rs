//! Publishes on the ConfigMap `instance-manager` that AWS throttles or does not answer the controller, and that it answers
//! again.
//!
//! A group with nothing to do makes no call, so its status does not show an outage. It need not: the status is as it
//! was, and nothing of the group waits. Writing a condition to each group would load the API server when AWS hiccups,
//! and again when it recovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::context::{Context, publish_event};
use super::report::{aws_failure, aws_remedy};
use crate::api::names::condition;
use crate::api::rfc3339;
use crate::aws::AwsError;
use crate::aws::sdk::{CircuitBreaker, FORGET_AFTER};
use crate::plan::{Event, EventKind, EventReason};
use crate::util::counted::counted;

/// How often the event is repeated while attempts fail: the API server forgets an event after an hour.
const REPEAT_AFTER: Duration = Duration::from_secs(30 * 60);

/// Checks at every poll interval, and never returns. An outage is published once it has lasted as long as that of a group.
pub(crate) async fn run(ctx: Arc<Context>, circuit_breaker: Arc<CircuitBreaker>) {
    let timing = &ctx.planner.settings.timing;
    let (poll, delay) = (timing.poll_interval.unsigned_abs(), timing.failed_observation_delay.unsigned_abs());
    let mut reported = None;
    loop {
        tokio::time::sleep(poll).await;
        if !ctx.can_write() {
            reported = None;
            continue;
        }
        let now = Instant::now();
        if let Some(event) = next_event(&mut reported, &circuit_breaker.lasting(delay, now), now) {
            publish_event(&ctx.boundaries_target().await, &event, &ctx).await;
        }
    }
}

/// An outage that was published.
#[derive(Clone, Copy, Debug)]
struct Reported {
    at: Instant,
    since: Option<Timestamp>,
    last_failed: Instant,
}

/// The event that is due. `lasting` has the operations that fail, the longest outage first, with the time of the last
/// attempt.
fn next_event(reported: &mut Option<Reported>, lasting: &[(AwsError, Instant)], now: Instant) -> Option<Event> {
    let Some((longest, _)) = lasting.first() else {
        let ended = reported.take()?;
        let since = ended.since.map(|since| format!("; the outage began at {}", rfc3339(since))).unwrap_or_default();
        let what = match now.duration_since(ended.last_failed) < FORGET_AFTER {
            true => "AWS answers the controller again",
            false => "the controller does not need the calls any more that AWS failed",
        };
        return Some(Event::normal(EventReason::AWSAvailable, format!("{what}{since}")));
    };
    let last_failed = lasting.iter().map(|(_, last_failed)| *last_failed).max().unwrap_or(now);
    if let Some(reported) = reported {
        reported.last_failed = last_failed;
    }
    // Nothing is known of an operation that is not called any more.
    if reported.is_some_and(|r| now.duration_since(r.at) < REPEAT_AFTER || last_failed <= r.at) {
        return None;
    }
    *reported = Some(Reported { at: now, since: longest.failing_since, last_failed });
    let reason = aws_failure(longest).unwrap_or(condition::READ_FAILED);
    Some(Event::for_condition(EventKind::Warning, reason, message(reason, longest, lasting.len() - 1)))
}

fn message(reason: &str, longest: &AwsError, others: usize) -> String {
    let what = match reason {
        condition::AWS_THROTTLED => "AWS has throttled every call of an operation",
        condition::AWS_CREDENTIALS_REJECTED => "AWS has accepted no credentials of the controller",
        _ => "AWS has failed every call of an operation",
    };
    let since = longest.failing_since.map(|since| format!(" since {}", rfc3339(since))).unwrap_or_default();
    let others = match others {
        0 => String::new(),
        others => format!(", and {} more", counted(others, "operation")),
    };
    format!(
        "{what}{since}: {longest}{others}; running nodes are not affected; groups that need AWS say so in the condition Reconciling; the other groups keep the status of their last reconcile; {}",
        aws_remedy(longest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::EventKind;

    fn outage(code: &str, last_failed: Instant) -> (AwsError, Instant) {
        let error = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", code, "slow down", 400);
        (AwsError { failing_since: Some(Timestamp::UNIX_EPOCH), ..error }, last_failed)
    }

    /// The status of idle groups does not show an outage. The events on the ConfigMap must report its start and its
    /// end.
    #[test]
    fn outage_is_published_once_with_call_time_and_remedy_and_so_is_its_end() {
        let (start, mut reported) = (Instant::now(), None);
        assert_eq!(next_event(&mut reported, &[], start), None);
        let event = next_event(&mut reported, &[outage("Throttling", start)], start).expect("an event");
        assert_eq!((event.kind, event.reason.as_str()), (EventKind::Warning, "AWSThrottled"));
        for word in ["1970-01-01T00:00:00Z", "DescribeAutoScalingGroups", "slow down", "--max-workers"] {
            assert!(event.message.contains(word), "{word} is missing in {}", event.message);
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(next_event(&mut reported, &[outage("Throttling", later)], later), None);
        let end = next_event(&mut reported, &[], later).expect("an event");
        assert_eq!((end.kind, end.reason.as_str()), (EventKind::Normal, "AWSAvailable"));
        assert_eq!(next_event(&mut reported, &[], later), None);
    }

    /// Without it, only groups that change would report that the controller can do nothing at all.
    #[test]
    fn rejected_credentials_are_published_with_every_place_to_look() {
        let mut reported = None;
        let event = next_event(&mut reported, &[outage("ExpiredToken", Instant::now())], Instant::now());
        let event = event.expect("an event");
        assert_eq!(event.reason, "AWSCredentialsRejected");
        for word in ["1970-01-01T00:00:00Z", "ExpiredToken", "Pod Identity", "IRSA", "ServiceAccount", "clock"] {
            assert!(event.message.contains(word), "{word} is missing in {}", event.message);
        }
    }

    /// An event disappears after an hour, and an outage may last longer. A call that the controller no longer makes is
    /// no outage.
    #[test]
    fn event_is_repeated_while_attempts_fail() {
        let (start, mut reported) = (Instant::now(), None);
        next_event(&mut reported, &[outage("Throttling", start)], start).expect("an event");
        let later = start + REPEAT_AFTER;
        assert_eq!(next_event(&mut reported, &[outage("Throttling", start)], later), None);
        assert!(next_event(&mut reported, &[outage("Throttling", later)], later).is_some());
    }

    /// AWS may answer a call that is no longer made, but the controller does not see it: the outage would have no end.
    #[test]
    fn outage_of_a_call_that_is_no_longer_made_ends() {
        let (start, mut reported) = (Instant::now(), None);
        next_event(&mut reported, &[outage("Throttling", start)], start).expect("an event");
        let end = next_event(&mut reported, &[], start + FORGET_AFTER).expect("an event");
        assert_eq!(end.reason.as_str(), "AWSAvailable");
        assert!(end.message.starts_with("the controller does not need the calls any more"), "{}", end.message);
    }
}
