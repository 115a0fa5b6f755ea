//! What is reported for a group whose reads fail: a condition, an event and a metric, once AWS or the API server has
//! not answered for a while. The conditions of the last observation stay, because the nodes run on. A reconcile that
//! panics is reported in the same way.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, Error, event_target, publish_event};
use super::planner::ObserveError;
use super::report::{aws_failure, aws_remedy};
use crate::api::names::{condition, fail_reason};
use crate::api::{
    Condition, GroupObject, InstanceGroup, InstanceGroupStatus, diff_merge_patch, group_id, rfc3339, set_condition,
};
use crate::index::process_state::ProcessState;
use crate::plan::{Event, EventKind};
use crate::provisioner::GroupId;
use crate::telemetry::metrics::ReconcileResult;

/// The class of a failed observation, which is the reason of the condition `Reconciling`.
fn reason(error: &ObserveError) -> &'static str {
    match error {
        ObserveError::Aws(error) => aws_failure(error).unwrap_or(condition::READ_FAILED),
        ObserveError::Kube(_) => condition::READ_FAILED,
    }
}

/// What identifies the failure: the same one is written once, although AWS may word it differently each time.
fn identity(error: &ObserveError) -> String {
    match error {
        ObserveError::Aws(error) => format!("{} {} {}", error.service, error.operation, error.code),
        ObserveError::Kube(_) => reason(error).to_owned(),
    }
}

/// The message of the condition: since when, which call with AWS's last error, what the status is worth, what to do.
fn message(error: &ObserveError, id: &GroupId, status: &InstanceGroupStatus, since: Timestamp) -> String {
    let reason = reason(error);
    let problem = match reason {
        condition::AWS_THROTTLED => "AWS has throttled the controller",
        condition::AWS_UNAVAILABLE => "AWS has failed to answer the controller",
        condition::AWS_CREDENTIALS_REJECTED => "AWS has accepted no credentials of the controller",
        _ => "the group cannot be read",
    };
    let observed = status.observed_generation.unwrap_or_default();
    let staleness = match observed == id.generation {
        true => "the status is that of the last successful read".to_owned(),
        false => format!("the spec of generation {} has not been observed yet", id.generation),
    };
    format!(
        "{problem} since {}: {error}; {staleness}, and the controller changes nothing until a read succeeds; {}",
        rfc3339(since),
        match error {
            ObserveError::Aws(error) => aws_remedy(error),
            ObserveError::Kube(_) => "check the API server, and the controller's network and token",
        }
    )
}

/// The condition `Ready` with the reason of the new condition, because `kubectl get` shows its reason. What stalls the
/// group stays. A group that was never read is not ready.
fn ready_with_reason(conditions: &[Condition], new: &Condition) -> Option<Condition> {
    if conditions.iter().any(|c| c.r#type == condition::STALLED && c.is_true()) {
        return None;
    }
    let (reason, message) = (new.reason.as_deref().unwrap_or_default(), new.message.clone().unwrap_or_default());
    Some(match conditions.iter().find(|c| c.r#type == condition::READY) {
        Some(ready) => Condition { reason: Some(reason.to_owned()), ..ready.clone() },
        None => Condition::new(condition::READY, false, reason, message),
    })
}

/// The new condition, and the patch that writes it; no patch when the condition stands already.
fn report_patch(
    error: &ObserveError,
    id: &GroupId,
    status: &InstanceGroupStatus,
    since: Timestamp,
    now: Timestamp,
) -> (Condition, Option<serde_json::Value>) {
    let new = Condition {
        observed_generation: status.observed_generation,
        ..Condition::new(condition::RECONCILING, true, reason(error), message(error, id, status, since))
    };
    (new.clone(), patch_with(status, new, now))
}

/// The patch that sets a condition, and gives `Ready` its reason.
fn patch_with(status: &InstanceGroupStatus, new: Condition, now: Timestamp) -> Option<serde_json::Value> {
    let mut after = status.clone();
    let ready = ready_with_reason(&status.conditions, &new);
    for condition in ready.into_iter().chain([new]) {
        set_condition(&mut after.conditions, condition, &rfc3339(now));
    }
    diff_merge_patch(&json!(status), &json!(after))
}

/// Notes that the group could not be read, and reports it once that lasts.
pub(super) async fn report(group: &InstanceGroup, key: &str, error: &Error, ctx: &Context, now: Timestamp) {
    let (Error::Observe(error), planner) = (error, &ctx.planner) else { return };
    // Other groups' calls may have failed for longer.
    let failing_since = match error {
        ObserveError::Aws(error) => error.failing_since,
        ObserveError::Kube(_) => None,
    };
    let since = planner.process_state.record_failed_observation(key, failing_since.unwrap_or(now).min(now));
    // An observation may take long to fail.
    if Timestamp::now().duration_since(since) < planner.settings.timing.failed_observation_delay {
        return;
    }
    ctx.metrics.set_group_read_failed(key, Some(reason(error).to_owned()));
    let what = identity(error);
    if planner.process_state.is_failure_reported(key, &what) || !ctx.request_write() {
        return;
    }
    let status = group.status.clone().unwrap_or_default();
    if is_continued(error, &status, key, &planner.process_state) {
        planner.process_state.set_failure_reported(key, what);
        return;
    }
    let (new, patch) = report_patch(error, &group_id(group), &status, since, now);
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    if let Some(patch) = patch {
        let version = group.resource_version().unwrap_or_default();
        match planner.kube.patch_status(&namespace, &name, &version, patch).await {
            Ok(version) => planner.process_state.own_writes(key, |own| own.record(&version, Timestamp::now())),
            Err(error) => return tracing::warn!(group = %key, %error, "cannot report that the group is not read"),
        }
    }
    planner.process_state.set_failure_reported(key, what);
    if !is_reported(error, &status) {
        let event = Event::for_condition(EventKind::Warning, reason(error), new.message.unwrap_or_default());
        publish_event(&event_target(&group.metadata), &event, ctx).await;
    }
}

/// Reports a reconcile that panicked. Nothing of the group is known to be wrong, and nothing changes until the cause is
/// gone, so the status must not look as if the group were up to date.
pub(super) async fn report_panic(stored: &GroupObject, key: &str, ctx: &Context) {
    // The metrics also say it if the API server refuses the condition. A pass without a panic ends the series.
    ctx.metrics.record_reconcile(key, ReconcileResult::Failed(fail_reason::HANDLE_RECONCILE));
    ctx.metrics.set_group_read_failed(key, Some(condition::INTERNAL_ERROR.to_owned()));
    let Ok(group) = &stored.0 else { return };
    if !ctx.request_write() {
        return;
    }
    let status = group.status.clone().unwrap_or_default();
    let is_reported = status.conditions.iter().any(is_panic);
    let patch = panic_patch(&status, Timestamp::now());
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    if let Some(patch) = patch {
        let version = group.resource_version().unwrap_or_default();
        match ctx.planner.kube.patch_status(&namespace, &name, &version, patch).await {
            Ok(version) => ctx.planner.process_state.own_writes(key, |own| own.record(&version, Timestamp::now())),
            Err(error) => return tracing::warn!(group = %key, %error, "cannot report that the reconcile panicked"),
        }
    }
    if !is_reported {
        let event = Event::for_condition(EventKind::Warning, condition::INTERNAL_ERROR, PANIC.to_owned());
        publish_event(&event_target(&group.metadata), &event, ctx).await;
    }
}

/// The message about a reconcile that panicked. It names no time, so that each try writes the same.
const PANIC: &str = "the controller failed with an internal error while it reconciled this group, and changes nothing of it; it tries again every minute; report the line \"reconcile panicked\" of its log to its maintainers";

fn is_panic(condition: &Condition) -> bool {
    condition.r#type == condition::RECONCILING && condition.is_true() && condition.has_reason(condition::INTERNAL_ERROR)
}

/// The patch that reports a panic; no patch when the condition stands already.
fn panic_patch(status: &InstanceGroupStatus, now: Timestamp) -> Option<serde_json::Value> {
    let new = Condition {
        observed_generation: status.observed_generation,
        ..Condition::new(condition::RECONCILING, true, condition::INTERNAL_ERROR, PANIC)
    };
    patch_with(status, new, now)
}

/// Whether a process before this one reported the failure. Its message says since when; this process knows only its own
/// start.
fn is_continued(error: &ObserveError, status: &InstanceGroupStatus, key: &str, process_state: &ProcessState) -> bool {
    !process_state.has_reported_failure(key) && is_reported(error, status)
}

/// Whether the condition reports this class of failure.
fn is_reported(error: &ObserveError, status: &InstanceGroupStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|c| c.r#type == condition::RECONCILING && c.is_true() && c.has_reason(reason(error)))
}

/// Notes that the group was read. The report of the pass replaces the condition. A pass may panic after its read: a series
/// that ended here each time would keep the alert from firing.
pub(super) fn end(key: &str, status: &InstanceGroupStatus, ctx: &Context) {
    ctx.planner.process_state.end_failed_observations(key);
    if !status.conditions.iter().any(is_panic) {
        ctx.metrics.set_group_read_failed(key, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::InstanceGroupSpec;
    use crate::aws::AwsError;

    fn aws_error(code: &str, status: u16) -> ObserveError {
        ObserveError::Aws(AwsError::from_response(
            "AutoScaling",
            "DescribeAutoScalingGroups",
            code,
            "slow down",
            status,
        ))
    }

    /// Without it, the last status stays as if the group were up to date, and only the controller's log says otherwise.
    #[test]
    fn panicked_reconcile_is_shown_once_and_not_as_ready() {
        let mut status = status();
        let patch = panic_patch(&status, Timestamp::UNIX_EPOCH).expect("a patch");
        let conditions: Vec<Condition> = serde_json::from_value(patch["conditions"].clone()).expect("conditions");
        let reasons: Vec<_> = conditions.iter().map(|c| (c.r#type.as_str(), c.reason.as_deref())).collect();
        assert_eq!(reasons, [("Ready", Some("InternalError")), ("Reconciling", Some("InternalError"))]);
        status.conditions = conditions;
        assert_eq!(panic_patch(&status, Timestamp::MAX), None);
    }

    /// An alert fires after a quarter of an hour without a gap. A pass may read AWS and then panic, each minute.
    #[tokio::test]
    async fn series_of_a_panic_outlives_the_read_of_the_next_pass() {
        let test = crate::controller::fake::context(crate::k8s::fake::client(|call| panic!("unexpected: {call:?}")));
        let patch = panic_patch(&status(), Timestamp::UNIX_EPOCH).expect("a patch");
        let panicked: InstanceGroupStatus = serde_json::from_value(patch).expect("a status");
        let has_series = |status: &InstanceGroupStatus| {
            test.ctx.metrics.set_group_read_failed("team/web", Some(condition::INTERNAL_ERROR.to_owned()));
            end("team/web", status, &test.ctx);
            test.ctx.metrics.encode().expect("metrics").contains("read_failed{instancegroup=\"team/web\"")
        };
        assert_eq!((has_series(&panicked), has_series(&status())), (true, false));
    }

    fn status() -> InstanceGroupStatus {
        serde_json::from_value(json!({
            "observedGeneration": 3,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}, {"type": "Reconciling", "status": "False"}],
        }))
        .expect("a status")
    }

    fn id(generation: i64) -> GroupId {
        GroupId { generation, ..group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())) }
    }

    /// Without it, an outage of AWS looks like a group that has nothing to do.
    #[test]
    fn failed_observation_names_call_error_time_and_generation() {
        let (since, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(70).expect("a time"));
        for (error, expected) in [
            (aws_error("Throttling", 400), "AWSThrottled"),
            (aws_error("InternalFailure", 500), "AWSUnavailable"),
            (aws_error("ExpiredToken", 400), "AWSCredentialsRejected"),
            (aws_error("ResourceContention", 400), "ReadFailed"),
        ] {
            let (condition, patch) = report_patch(&error, &id(4), &status(), since, now);
            assert!(condition.is_true() && condition.has_reason(expected), "{condition:?}");
            let message = condition.message.expect("a message");
            for word in
                ["AutoScaling DescribeAutoScalingGroups", "slow down", "since 1970-01-01T00:00:00Z", "generation 4"]
            {
                assert!(message.contains(word), "{word} is missing in {message}");
            }
            let patch = patch.expect("a patch");
            assert_eq!(patch.as_object().map(|fields| fields.len()), Some(1), "the rest of the status stays: {patch}");
            let after: InstanceGroupStatus = serde_json::from_value(patch).expect("a status");
            assert!(after.conditions[0].is_true(), "the nodes run on");
            assert!(after.conditions[0].has_reason(expected), "kubectl get shows the reason of Ready");
            assert_eq!(report_patch(&error, &id(4), &after_report(&after), since, now).1, None, "it is written once");
        }
        let credentials =
            ObserveError::Aws(AwsError::no_credentials("EC2", "DescribeSubnets", "the token has expired"));
        let (condition, _) = report_patch(&credentials, &id(3), &status(), since, now);
        let message = condition.message.clone().expect("a message");
        assert!(condition.has_reason("AWSCredentialsRejected"), "it is not an outage of AWS: {condition:?}");
        assert!(message.contains("the token has expired") && message.contains("Pod Identity"), "{message}");
        let (condition, _) = report_patch(&aws_error("Throttling", 400), &id(3), &status(), since, now);
        assert!(condition.message.is_some_and(|message| !message.contains("generation")));
    }

    fn after_report(patched: &InstanceGroupStatus) -> InstanceGroupStatus {
        InstanceGroupStatus { observed_generation: Some(3), ..patched.clone() }
    }

    /// `kubectl get` would show a group that was created in an outage without a word.
    #[test]
    fn group_that_was_never_read_is_not_ready_with_the_reason() {
        let error = aws_error("Throttling", 400);
        let (_, patch) =
            report_patch(&error, &id(1), &InstanceGroupStatus::default(), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let after: InstanceGroupStatus = serde_json::from_value(patch.expect("a patch")).expect("a status");
        let ready = after.conditions.iter().find(|c| c.r#type == condition::READY).expect("a condition");
        assert!(!ready.is_true() && ready.has_reason("AWSThrottled"), "{ready:?}");
    }

    /// "Since" must not move to the restart of the controller: users look for what changed at that time.
    #[test]
    fn restart_does_not_change_since_when_a_group_cannot_be_read() {
        let (error, state) = (aws_error("Throttling", 400), ProcessState::default());
        let (_, patch) = report_patch(&error, &id(3), &status(), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let reported = serde_json::from_value(patch.expect("a patch")).expect("a status");
        assert!(is_continued(&error, &reported, "team/web", &state), "the message of the process before stays");
        assert!(!is_continued(&aws_error("InternalFailure", 500), &reported, "team/web", &state), "another failure");
        assert!(!is_continued(&error, &status(), "team/web", &state), "it was read in between");
        state.record_failed_observation("team/web", Timestamp::UNIX_EPOCH);
        state.set_failure_reported("team/web", identity(&error));
        assert!(!is_continued(&error, &reported, "team/web", &state), "this process knows since when");
    }

    /// AWS puts the ID of the request into some messages.
    #[test]
    fn reworded_failure_is_not_reported_again() {
        let worded = |message| {
            ObserveError::Aws(AwsError::from_response("EC2", "DescribeInstances", "Throttling", message, 400))
        };
        assert_eq!(identity(&worded("request a")), identity(&worded("request b")));
        assert_ne!(identity(&worded("a")), identity(&aws_error("Throttling", 400)));
    }
}
