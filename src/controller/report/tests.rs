//! Conditions and events keep their meaning across releases.

use super::*;
use crate::api::{InstanceGroup, InstanceGroupSpec, RolloutRecord, group_id};
use crate::apply::BlockedEviction;
use crate::aws::AwsError;
use crate::controller::report::transitions::transition_event;
use crate::k8s::EvictionBlocker;
use crate::plan::{ConditionUpdate, EventKind, FieldRejection, PlanBuilder, PodRef, Recheck, blocked_plan};

#[test]
fn renamed_reason_is_not_a_transition() {
    let renamed = [
        (condition::STALLED, "NotOurs", "OwnershipConflict", Some(StalledReason::OwnershipConflict)),
        (condition::DRAIN_BLOCKED, "BudgetRefused", "EvictionBlocked", None),
        (condition::DRAIN_BLOCKED, "ClaimedTwice", "DuplicateProviderID", None),
    ];
    for (kind, old, new, stalled) in renamed {
        let (previous, current) = (Condition::new(kind, true, old, ""), Condition::new(kind, true, new, ""));
        assert_eq!(transition_event(Some(&previous), &current, stalled), None, "{old}");
    }
    let (previous, current) = (
        Condition::new(condition::STALLED, true, "NotOurs", ""),
        Condition::new(condition::STALLED, true, "NotFound", ""),
    );
    assert!(transition_event(Some(&previous), &current, Some(StalledReason::NotFound)).is_some());
}

/// A tenant reads once of a revision that is to come: not before it is known that it means something for the group, and not
/// again when the group waits for something else.
#[test]
fn revision_that_is_to_come_is_announced_once() {
    let pending =
        |is_pending: bool, reason: &str| Condition::new(condition::ROLLOUT_PENDING, is_pending, reason, "r2 comes");
    let announced = |previous: Option<Condition>, reason: &str| {
        let event = transition_event(previous.as_ref(), &pending(true, reason), None);
        event.map(|event| (event.kind, event.reason, event.message))
    };
    let said = Some((EventKind::Normal, "RevisionAnnounced".to_owned(), "r2 comes".to_owned()));
    assert_eq!(announced(None, "WaveNotOpen"), said);
    assert_eq!(announced(Some(pending(false, "NotPending")), "WindowClosed"), said);
    assert_eq!(announced(Some(pending(true, "Assessing")), "CannotUse"), said);
    let waits = || Some(pending(true, "WaveNotOpen"));
    for (previous, reason) in [
        (None, "Assessing"),
        (waits(), "WaveNotOpen"),
        (waits(), "Paused"),
        (waits(), "Assessing"),
        (None, "FailedBefore"),
        (None, "ReasonOfAnotherRelease"),
    ] {
        assert_eq!(announced(previous, reason), None, "{reason}");
    }
}

/// A group fails with its revision in the soak, and the clock goes back after that. The failure must count before the time
/// of the condition comes. While it is not known whether the problem is older than the switch, it must not count.
#[test]
fn problem_of_a_settled_group_that_lies_ahead_begins_now() {
    let (ahead, now) = ("2026-01-02T02:00:00Z", "2026-01-02T00:00:00Z");
    let mut stalled = Condition::new(condition::STALLED, true, "LaunchFailed", "it does not launch");
    stalled.last_transition_time = Some(ahead.into());
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    for (settled, expected) in [(Some("2026-01-01T00:00:00Z"), now), (None, ahead)] {
        let record = RolloutRecord { settled: settled.map(str::to_owned), ..RolloutRecord::default() };
        let (conditions, rollout) = (vec![stalled.clone()], Some(record));
        let status = InstanceGroupStatus { conditions, rollout, ..InstanceGroupStatus::default() };
        let applied = Applied::new(blocked_plan(&id, StalledReason::LaunchFailed, "it does not launch".into()));
        let patch = report(&status, &applied, None, now).patch.expect("the status changes");
        let found: Vec<Condition> = serde_json::from_value(patch["conditions"].clone()).expect("conditions");
        let found = found.into_iter().find(|found| found.r#type == condition::STALLED).expect("a condition");
        assert_eq!((found.is_true(), found.last_transition_time.as_deref()), (true, Some(expected)));
    }
}

/// An upgrade of the controller must not repeat the event of a drain that an earlier release reported as blocked.
#[test]
fn drain_blocked_condition_of_an_earlier_release_is_continued() {
    const SINCE: &str = "2026-01-01T00:00:00Z";
    let mut previous = Condition::new(condition::DRAIN_BLOCKED, true, "BudgetRefused", "the budget refuses");
    previous.last_transition_time = Some(SINCE.into());
    let status = InstanceGroupStatus { conditions: vec![previous], ..InstanceGroupStatus::default() };
    let eviction = BlockedEviction {
        pod: PodRef { namespace: "apps".into(), name: "web".into(), uid: "u1".into() },
        blocker: EvictionBlocker {
            cause: "PodDisruptionBudget web".into(),
            remedy: "add replicas".into(),
            is_by_admission: false,
        },
        unschedulable: vec![],
        terminated_at: None,
    };
    let outcome =
        Outcome::Progressing { phase: Phase::Rotating, message: String::new(), recheck: Recheck::Immediately };
    let in_deletion = BlockedEviction {
        terminated_at: Some("2026-01-02T00:15:00.5Z".parse().expect("a time")),
        unschedulable: vec!["apps/web-2".into()],
        ..eviction.clone()
    };
    let report_for = |blocked_evictions: Vec<BlockedEviction>, carried_over: Option<ConditionUpdate>| {
        let mut builder = PlanBuilder::with_outcome(outcome.clone());
        builder.condition_updates.extend(carried_over);
        let plan = builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None);
        let applied = Applied { blocked_evictions, ..Applied::new(plan) };
        let report = report(&status, &applied, None, "2026-01-02T00:00:00Z");
        let patch = report.patch.expect("the status changes");
        let conditions: Vec<Condition> = serde_json::from_value(patch["conditions"].clone()).expect("conditions");
        let condition = conditions.into_iter().find(|c| c.r#type == condition::DRAIN_BLOCKED).expect("a condition");
        (condition, report.transition_events)
    };
    // A user who has relaxed the budget that the first event names must learn that something else blocks the pod now.
    let blocker =
        EvictionBlocker { cause: "the API server (webhook)".into(), is_by_admission: true, ..eviction.blocker.clone() };
    let (rejected, events) = report_for(vec![BlockedEviction { blocker, ..eviction.clone() }], None);
    assert_eq!(rejected.reason.as_deref(), Some("EvictionRejected"));
    assert_eq!(events, vec![Event::warning(EventReason::DrainBlocked, rejected.message.unwrap_or_default())]);
    let (blocked_again, events) = report_for(vec![eviction], None);
    assert_eq!(blocked_again.reason.as_deref(), Some("EvictionBlocked"));
    assert!(blocked_again.message.is_some_and(|message| message.contains("PodDisruptionBudget web")));
    assert_eq!((blocked_again.last_transition_time.as_deref(), events), (Some(SINCE), vec![]));
    // A deletion is reported although the drain was blocked before, with the time at which the budget ends.
    let (deleting, events) = report_for(vec![in_deletion], None);
    assert_eq!(deleting.reason.as_deref(), Some("EvictionBlockedDuringDeletion"));
    assert!(deleting.message.as_ref().is_some_and(|message| message.contains("at 2026-01-02T00:15:0")));
    assert!(deleting.message.as_ref().is_some_and(|message| !message.contains("capacity")), "nothing is added to it");
    assert_eq!(events, vec![Event::warning(EventReason::DrainBlocked, deleting.message.unwrap_or_default())]);
    // While another drain continues, a rotation repeats the condition under the current name of its reason.
    let carried_over = ConditionUpdate {
        condition_type: condition::DRAIN_BLOCKED,
        status: true,
        reason: condition::current_reason("BudgetRefused").into(),
        message: "the budget refuses".into(),
    };
    let (continued, events) = report_for(vec![], Some(carried_over));
    assert_eq!(continued.reason.as_deref(), Some("EvictionBlocked"));
    assert_eq!(continued.message.as_deref(), Some("the budget refuses"));
    assert_eq!((continued.last_transition_time.as_deref(), events), (Some(SINCE), vec![]));
}

#[test]
fn created_resource_of_the_strategy_is_recorded_at_once() {
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let plan = PlanBuilder::with_outcome(Outcome::Converged).build(&id, None);
    let applied = Applied { created_strategy_uid: Some("u1".into()), ..Applied::new(plan) };
    let patch = report(&InstanceGroupStatus::default(), &applied, None, "2026-01-02T00:00:00Z").patch.expect("a patch");
    assert_eq!(patch["strategyProgress"], json!({"state": "Submitted", "uid": "u1"}));
}

/// Without it, a group that AWS throttles looks like one that is being changed.
#[test]
fn write_that_aws_throttles_or_does_not_answer_is_reported() {
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    for (code, http, reason) in [
        ("Throttling", 400, "AWSThrottled"),
        ("InternalFailure", 500, "AWSUnavailable"),
        ("ResourceInUse", 400, "Modifying"),
    ] {
        let mut builder = PlanBuilder::with_outcome(Outcome::Converged);
        builder.push(ObjectStep::AddFinalizer);
        let error = AwsError::from_response("AutoScaling", "UpdateAutoScalingGroup", code, "slow down", http);
        let applied = Applied { error: Some(StepError::Aws(error)), ..Applied::new(builder.build(&id, None)) };
        let patch = report(&InstanceGroupStatus::default(), &applied, None, "2026-01-02T00:00:00Z").patch;
        let conditions = patch.expect("a patch")["conditions"].take();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).expect("conditions");
        let found = conditions.into_iter().find(|c| c.r#type == condition::RECONCILING).expect("a condition");
        assert!(found.is_true() && found.has_reason(reason), "{found:?}");
        assert!(found.message.is_some_and(|m| m.contains("UpdateAutoScalingGroup") && m.contains(code)));
    }
}

/// The last launch of a rotation fails for a while, or AWS throttles a write: a user waits for the event that ends it.
#[test]
fn interrupted_rotation_is_reported_as_completed() {
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let mut status = InstanceGroupStatus::default();
    let mut pass = |outcome: Outcome, template: Value| {
        let mut builder = PlanBuilder::with_outcome(outcome);
        builder.set_status("template", template);
        let plan = builder.build(&id, None);
        let found = report(&status, &Applied::new(plan), None, "2026-01-02T00:00:00Z");
        let mut written = serde_json::to_value(&status).expect("a status");
        found.patch.iter().for_each(|patch| apply_merge_patch(&mut written, patch));
        status = serde_json::from_value(written).expect("a status");
        let is_completed = found.transition_events.iter().any(|e| e.has_reason(EventReason::RotationCompleted));
        (status.is_rotating(), status.rotation_interrupted, is_completed)
    };
    let progressing = |phase| Outcome::Progressing { phase, message: String::new(), recheck: Recheck::Poll };
    let (rotating, changing) = (|| progressing(Phase::Rotating), || progressing(Phase::Modifying));
    let reason = StalledReason::LaunchFailed;
    let fails = || Outcome::Blocked { reason, message: "no capacity".into(), is_deleting: false };
    let ready = || json!({"version": "1", "lastReadyVersion": "1"});
    let unfinished = || json!({"version": "2", "lastReadyVersion": "1"});
    let finished = || json!({"version": "2", "lastReadyVersion": "2"});
    assert_eq!(pass(fails(), ready()), (false, false, false), "nothing rotates");
    assert_eq!(pass(rotating(), unfinished()), (true, false, false));
    assert_eq!(pass(fails(), unfinished()), (true, true, false));
    assert_eq!(pass(changing(), unfinished()), (true, true, false));
    assert_eq!(pass(Outcome::Converged, finished()), (false, false, true));
    assert_eq!(pass(Outcome::Converged, finished()), (false, false, false), "once");
    // Surplus nodes are removed in the same state, and then the sizes change.
    assert_eq!(pass(rotating(), finished()), (true, false, false));
    assert_eq!(pass(changing(), finished()), (false, false, false));
    assert_eq!(pass(Outcome::Converged, finished()), (false, false, false), "no node was replaced");
}

/// The rotation may have ended under an earlier release that does not know the record, and leaves it.
#[test]
fn record_of_an_interrupted_rotation_ends_with_the_rotation() {
    let status = |state: &str| InstanceGroupStatus {
        rotation_interrupted: true,
        current_state: Some(state.into()),
        ..InstanceGroupStatus::default()
    };
    assert_eq!(["Error", "Ready"].map(|state| status(state).is_rotating()), [true, false]);
}

/// A field that breaks in the middle of a rotation is reported at once, and not only when the rotation is over. Another
/// problem that has the same words is another problem.
#[test]
fn rejected_fields_have_one_event() {
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let rejection = FieldRejection { reason: StalledReason::InvalidSpec, message: "spec.x is wrong".into() };
    let rotating = Outcome::Progressing { phase: Phase::Rotating, message: "2 of 3".into(), recheck: Recheck::Poll };
    let refused = Outcome::Blocked {
        reason: StalledReason::RefusedByAws,
        message: rejection.message.clone(),
        is_deleting: false,
    };
    let stalled = InstanceGroupStatus {
        conditions: vec![Condition::new(condition::STALLED, true, "InvalidSpec", "spec.x is wrong")],
        ..InstanceGroupStatus::default()
    };
    let before = InstanceGroupStatus::default();
    for (old, outcome, reasons) in [
        (&before, rotating, vec![condition::FIELDS_REJECTED]),
        (&before, rejection.outcome(), vec!["InvalidSpec"]),
        (&stalled, rejection.outcome(), vec![condition::FIELDS_REJECTED]),
        (&before, refused, vec!["RefusedByAws", condition::FIELDS_REJECTED]),
    ] {
        let mut builder = PlanBuilder::with_outcome(outcome);
        builder.condition_updates = vec![rejection.condition()];
        builder.rejected_fields = Some(rejection.clone());
        let applied = Applied::new(builder.build(&id, None));
        let events = report(old, &applied, None, "2026-01-02T00:00:00Z").transition_events;
        let warning = |reason: &str| Event::for_condition(EventKind::Warning, reason, "spec.x is wrong");
        assert_eq!(events, reasons.into_iter().map(warning).collect::<Vec<_>>());
    }
}

/// A tenant who corrects one mistake and makes another sees the old event in `kubectl describe`, and looks for that one.
#[test]
fn next_problem_of_the_same_kind_has_an_event_after_an_edit() {
    let stalled = |generation: i64, message: &str| {
        let problem = Condition::new(condition::STALLED, true, "RefusedByAws", message.to_owned());
        Condition { observed_generation: Some(generation), ..problem }
    };
    let refused = Some(StalledReason::RefusedByAws);
    let event = |old: &Condition, new: &Condition| transition_event(Some(old), new, refused).map(|event| event.message);
    let first = stalled(1, "version 1.33 is too new");
    assert_eq!(event(&first, &stalled(2, "no such release")).as_deref(), Some("no such release"));
    assert_eq!(event(&first, &stalled(2, "version 1.33 is too new")), None);
    assert_eq!(event(&first, &stalled(1, "retried at 12:00")), None, "only a person's edit is news");
}

/// Another controller begins to write right after a step. The next pass would not tell of the step, as it finds it done.
#[test]
fn steps_before_a_pause_of_all_writes_are_reported() {
    let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
    let mut builder = PlanBuilder::with_outcome(Outcome::Converged);
    builder.push(IamStep::UpdateTrustPolicy { role: "pods".into(), policy: "{}".into() });
    builder.push(IamStep::UpdateTrustPolicy { role: "others".into(), policy: "{}".into() });
    let (plan, error) = (builder.build(&id, None), Some(StepError::MayNotWrite));
    let applied = Applied { steps_done: 1, error, ..Applied::new(plan) };
    let report = report(&InstanceGroupStatus::default(), &applied, None, "2026-01-02T00:00:00Z");
    let messages: Vec<_> = report.step_events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages, ["changed the trust policy of pods"]);
    assert_eq!((report.patch, report.outcome), (None, None), "the next pass reports on the group");
}
