//! Turns an applied plan into one status patch and the events to publish. A pure function of what was applied, so the
//! status never reports a step that did not happen.

use std::collections::BTreeSet;

use jiff::Unit;
use serde_json::{Value, json};

use crate::api::names::{condition, event};
use crate::api::{Condition, CurrentState, InstanceGroupStatus, apply_merge_patch, diff_merge_patch, set_condition};
use crate::apply::{Applied, BlockedEviction, StepError};
use crate::boundaries::OverriddenValue;
use crate::ownership;
use crate::plan::{
    ConditionUpdate, Event, IamStep, NodeStep, ObjectStep, Outcome, Phase, PlannedStep, Reason, Recheck, Step,
};
use crate::provisioner::retained::USED_IN_OTHER_REGION;

/// What is wrong with a stored object that cannot be decoded, and how to find it.
pub(crate) const INVALID_OBJECT: &str = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`";

/// The result of merging the boundaries into one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundariesSummary {
    /// Hash of the merged spec; empty without boundaries.
    pub hash: String,
    /// Differs when the merged spec does, annotations aside. Only comparable within one process.
    pub spec_fingerprint: u64,
    /// Revision of the active boundaries; empty without boundaries.
    pub revision: String,
    /// Values that the tenant set and that the boundaries replaced.
    pub overridden: Vec<OverriddenValue>,
    /// Why the last known good revision is active; `None` when the live ConfigMap is.
    pub last_known_good: Option<String>,
}

/// The status patch and the events of one reconcile.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    /// A merge patch of `status`; `None` when nothing changed.
    pub patch: Option<Value>,
    /// Events of applied steps. They are published before the status is written, because they hold even if that fails.
    pub step_events: Vec<Event>,
    /// Events of condition transitions. They are published after the status is written.
    pub transition_events: Vec<Event>,
    /// The outcome of the reconcile: that of the plan, or of the step that failed. `None` without leadership.
    pub outcome: Option<Outcome>,
}

/// Builds the report of an applied plan. `now` is in RFC 3339.
pub fn report(
    old: &InstanceGroupStatus,
    applied: &Applied,
    boundaries: Option<&BoundariesSummary>,
    now: &str,
) -> Report {
    let plan = &applied.plan;
    if matches!(applied.error, Some(StepError::MayNotWrite)) {
        return Report::default();
    }
    let outcome = reported_outcome(applied);
    // Creating a role and attaching its policies is one event.
    let new_role = plan.steps.iter().any(|p| matches!(p.step, Step::Iam(IamStep::CreateRole(_))));
    let belongs_to_new_role = |p: &PlannedStep| new_role && matches!(p.step, Step::Iam(IamStep::AttachPolicy { .. }));
    let applied_steps = plan.steps[..applied.steps_done].iter().enumerate();
    let is_reported = |i: usize, p: &PlannedStep| !had_no_effect(i, &p.step, applied) && !p.is_retry;
    let reported = applied_steps.filter(|(i, p)| is_reported(*i, p) && !belongs_to_new_role(p));
    let mut step_events = reported.flat_map(|(_, planned)| step_event(planned)).collect::<Vec<_>>();
    if applied.error.is_none() {
        step_events.extend(plan.events.iter().cloned());
    }
    if outcome == Outcome::Deleted {
        step_events.push(Event::normal(event::DELETED, "all resources of the group were deleted"));
        return Report { step_events, outcome: Some(outcome), ..Report::default() };
    }
    let mut transition_events = Vec::new();
    let mut status = serde_json::to_value(old).unwrap_or_default();
    // Status writes among the steps are in the stored object already.
    for planned in &plan.steps[..applied.steps_done] {
        if let Step::Object(ObjectStep::UpdateStatus { status: written }) = &planned.step {
            apply_merge_patch(&mut status, written);
        }
    }
    let before = status.clone();
    for (key, value) in &plan.status_update.fields {
        status[key] = value.clone();
    }
    let state = current_state(&outcome);
    status["currentState"] = json!(state.as_str());
    status["observedGeneration"] = json!(plan.generation);
    if let Some(boundaries) = boundaries {
        status["configMD5"] = if boundaries.hash.is_empty() { Value::Null } else { json!(boundaries.hash) };
        status["boundariesRevision"] =
            if boundaries.revision.is_empty() { Value::Null } else { json!(boundaries.revision) };
    }
    let mut conditions = old.conditions.clone();
    let mut update_condition = |new: Condition| {
        let new = Condition { observed_generation: Some(plan.generation), ..new };
        let previous = conditions.iter().find(|c| c.r#type == new.r#type).cloned();
        set_condition(&mut conditions, new.clone(), now);
        transition_events.extend(transition_event(previous.as_ref(), &new));
    };
    standard_conditions(&outcome, &ready_message(&status)).into_iter().for_each(&mut update_condition);
    if let Some(ready) = plan.status_update.nodes_ready.filter(|_| applied.error.is_none()) {
        update_condition(Condition::new(
            condition::NODES_READY,
            ready,
            if ready { "NodesReady" } else { "NodesNotReady" },
            "",
        ));
    }
    if let Some(boundaries) = boundaries {
        update_condition(boundaries_condition(boundaries));
    }
    let exists = |kind: &str| old.conditions.iter().any(|c| c.r#type == kind);
    // A reconcile that failed before it tried the tags has nothing new to report about them.
    let tags_not_attempted = applied.error.is_some() && ownership::tagging_denied_condition(old).is_some();
    let updates = plan
        .condition_updates
        .iter()
        .filter(|update| !(tags_not_attempted && update.condition_type == condition::ADOPTED))
        .map(|update| with_tag_denied(update.clone(), applied))
        .chain(drain_blocked_update(applied, &outcome));
    for update in updates.filter(|update| update.status || exists(update.condition_type)) {
        update_condition(Condition::new(update.condition_type, update.status, &update.reason, update.message));
    }
    if old.current_state.as_deref() == Some(CurrentState::InitUpgrade.as_str()) && outcome == Outcome::Converged {
        transition_events.push(Event::normal("RotationCompleted", "all nodes run the desired version"));
    }
    // During a rotation, the events of its steps report how nodes come and go.
    if matches!(outcome, Outcome::Progressing { phase: Phase::Rotating, .. }) {
        transition_events.retain(|e| e.reason != event::NODES_READY && e.reason != event::NODES_NOT_READY);
    }
    status["conditions"] = json!(conditions);
    Report { patch: status_patch(&before, status, old), step_events, transition_events, outcome: Some(outcome) }
}

/// Adds the missing tag permissions to the condition `Adopted`.
fn with_tag_denied(mut update: ConditionUpdate, applied: &Applied) -> ConditionUpdate {
    if update.condition_type == condition::ADOPTED && !applied.tag_denials.is_empty() {
        update.message += &format!(
            "{}, which blocks deletion: the controller's IAM role lacks {}",
            ownership::UNTAGGED_SUFFIX,
            missing_permissions(applied)
        );
        update.reason = condition::TAGGING_DENIED.into();
    }
    update
}

/// The IAM actions that are missing to change tags, sorted, so that the order of the steps does not change the message.
fn missing_permissions(applied: &Applied) -> String {
    let actions: BTreeSet<_> = applied.tag_denials.iter().map(|denied| denied.permission.as_str()).collect();
    actions.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Whether an applied step had no effect: nothing was to be changed, AWS denied the tags, or a PodDisruptionBudget
/// blocked the eviction.
pub(crate) fn had_no_effect(index: usize, step: &Step, applied: &Applied) -> bool {
    applied.tag_denials.iter().any(|denied| denied.step_index == index)
        || applied.unchanged_steps.contains(&index)
        || matches!(step, Step::Node(NodeStep::Evict { pod, .. }) if applied.blocked_evictions.iter().any(|r| r.pod == *pod))
}

/// The outcome of the plan, or of the step that failed.
fn reported_outcome(applied: &Applied) -> Outcome {
    let plan = &applied.plan;
    let is_deleting = matches!(
        plan.outcome,
        Outcome::Deleted
            | Outcome::Progressing { phase: Phase::Deleting, .. }
            | Outcome::Blocked { is_deleting: true, .. }
    );
    let Some(error) = &applied.error else {
        return if only_tag_failures(applied) {
            let message = ownership::missing_tag_permission(&missing_permissions(applied));
            Outcome::Blocked { reason: Reason::MissingPermission, message, is_deleting }
        } else {
            plan.outcome.clone()
        };
    };
    let step = plan.steps.get(applied.steps_done).map(|p| p.step.name()).unwrap_or_default();
    if let StepError::Locked(holder) = error {
        return Outcome::Locked { message: format!("{step} is blocked by lock-upgrades on {holder}") };
    }
    match error.stalled_reason() {
        Some(reason) => Outcome::Blocked { reason, message: format!("{step}: {}", error_message(error)), is_deleting },
        None => Outcome::Progressing {
            phase: if is_deleting { Phase::Deleting } else { phase_of(&plan.outcome) },
            message: format!("{step} failed and is retried: {error}"),
            recheck: Recheck::Poll,
        },
    }
}

/// Whether the plan consisted of tag changes only, and AWS denied all of them. For adopted resources, the condition
/// `Adopted` reports it instead.
fn only_tag_failures(applied: &Applied) -> bool {
    let plan = &applied.plan;
    let effective_steps = || {
        plan.steps
            .iter()
            .filter(|p| !p.step.is_status_write() && !matches!(p.step, Step::Object(ObjectStep::AddFinalizer)))
    };
    !applied.tag_denials.is_empty()
        && effective_steps().count() == applied.tag_denials.len()
        && matches!(
            plan.outcome,
            Outcome::Progressing { phase: Phase::Modifying, recheck: Recheck::Immediately, .. }
                | Outcome::Progressing { phase: Phase::Deleting, .. }
        )
        && plan.condition_updates.iter().all(|update| update.condition_type != condition::ADOPTED)
}

fn phase_of(outcome: &Outcome) -> Phase {
    match outcome {
        Outcome::Progressing { phase, .. } => *phase,
        Outcome::Converged | Outcome::Locked { .. } | Outcome::Blocked { .. } | Outcome::Deleted => Phase::Modifying,
    }
}

/// The message for a call that AWS denied.
pub(crate) fn missing_iam_action(action: &str, error: &str) -> String {
    format!("the controller may not {action}; add the action to its IAM role ({error})")
}

/// The message for a call that the API server forbids.
pub(crate) fn missing_kubernetes_permission(error: &str) -> String {
    format!("{error}; add the permission to the controller's Role or ClusterRole")
}

/// The status patch for a stored object that cannot be decoded.
pub(crate) fn invalid_object_patch(generation: Option<i64>, now: &str) -> Value {
    let mut conditions = Vec::new();
    for (kind, status) in [(condition::READY, false), (condition::STALLED, true)] {
        let message = format!("{INVALID_OBJECT}, correct it in Git and apply it again");
        set_condition(&mut conditions, Condition::new(kind, status, &Reason::InvalidSpec.to_string(), message), now);
    }
    json!({
        "currentState": CurrentState::Error.as_str(), "conditions": conditions, "observedGeneration": generation,
    })
}

fn error_message(error: &StepError) -> String {
    match error {
        StepError::Aws(error) => match error.missing_permission() {
            Some(action) => missing_iam_action(&action, &error.to_string()),
            None => error.to_string(),
        },
        StepError::Kube(error) => missing_kubernetes_permission(&error.to_string()),
        StepError::AwsAuth(error) => format!("kube-system/aws-auth: {error}; fix it by hand"),
        StepError::OwnershipConflict(_)
        | StepError::Locked(_)
        | StepError::NodeSchedulable(_)
        | StepError::MayNotWrite => error.to_string(),
    }
}

fn current_state(outcome: &Outcome) -> CurrentState {
    match outcome {
        Outcome::Converged => CurrentState::Ready,
        Outcome::Progressing { phase: Phase::Creating, .. } => CurrentState::InitCreate,
        Outcome::Progressing { phase: Phase::Modifying, .. } => CurrentState::ReconcileModifying,
        Outcome::Progressing { phase: Phase::Rotating, .. } => CurrentState::InitUpgrade,
        Outcome::Progressing { phase: Phase::Deleting, .. } | Outcome::Blocked { is_deleting: true, .. } => {
            CurrentState::Deleting
        }
        Outcome::Locked { .. } => CurrentState::Locked,
        Outcome::Blocked { is_deleting: false, .. } => CurrentState::Error,
        Outcome::Deleted => CurrentState::Deleted,
    }
}

fn ready_message(status: &Value) -> String {
    match (status["nodes"]["ready"].as_i64(), status["nodes"]["desired"].as_i64()) {
        (Some(ready), Some(desired)) => format!("{ready} of {desired} nodes are ready"),
        _ => String::new(),
    }
}

/// The conditions Ready, Reconciling and Stalled of an outcome.
fn standard_conditions(outcome: &Outcome, ready: &str) -> [Condition; 3] {
    let all = |ready, reconciling, stalled, reason: &str, message: &str| {
        [
            Condition::new(condition::READY, ready, reason, message),
            Condition::new(condition::RECONCILING, reconciling, reason, if reconciling { message } else { "" }),
            Condition::new(condition::STALLED, stalled, reason, if stalled { message } else { "" }),
        ]
    };
    match outcome {
        Outcome::Converged | Outcome::Deleted => all(true, false, false, "Ready", ready),
        Outcome::Progressing { phase, message, .. } => all(false, true, false, &format!("{phase:?}"), message),
        Outcome::Locked { message } => all(false, false, true, "Locked", message),
        Outcome::Blocked { reason, message, .. } => all(false, false, true, &reason.to_string(), message),
    }
}

fn boundaries_condition(boundaries: &BoundariesSummary) -> Condition {
    if let Some(why) = &boundaries.last_known_good {
        let message = format!("the last known good boundaries are in force: {why}");
        return Condition::new(condition::BOUNDARIES_APPLIED, false, "UsingLastKnownGood", message);
    }
    if boundaries.revision.is_empty() {
        return Condition::new(
            condition::BOUNDARIES_APPLIED,
            true,
            "NoBoundaries",
            "no boundaries apply to this group",
        );
    }
    if boundaries.overridden.is_empty() {
        return Condition::new(condition::BOUNDARIES_APPLIED, true, "Applied", "");
    }
    let listed: Vec<_> = boundaries.overridden.iter().map(ToString::to_string).collect();
    Condition::new(condition::BOUNDARIES_APPLIED, true, "TenantValuesOverridden", truncate(&listed.join("; ")))
}

/// Limits a message to 2000 characters.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(2000) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The update of the condition `DrainBlocked` that follows from the applied steps; `None` keeps the condition.
fn drain_blocked_update(applied: &Applied, outcome: &Outcome) -> Option<ConditionUpdate> {
    let update = |status, reason: &str, message| {
        Some(ConditionUpdate { condition_type: condition::DRAIN_BLOCKED, status, reason: reason.into(), message })
    };
    let with_unschedulable = applied.blocked_evictions.iter().find(|eviction| !eviction.unschedulable.is_empty());
    if let Some(blocked) = with_unschedulable.or(applied.blocked_evictions.first()) {
        // A deletion has a reason of its own, so that an event tells its deadline even if the drain was blocked before.
        let reason = match blocked.terminated_at {
            Some(_) => "EvictionBlockedDuringDeletion".to_owned(),
            None if blocked.unschedulable.is_empty() => "EvictionBlocked".to_owned(),
            None => Reason::UnschedulablePods.to_string(),
        };
        return update(true, &reason, blocked_message(blocked));
    }
    if applied.plan.condition_updates.iter().any(|n| n.condition_type == condition::DRAIN_BLOCKED) {
        return None;
    }
    let made_progress = applied.plan.steps[..applied.steps_done].iter().any(|p| {
        matches!(
            p.step,
            Step::Node(NodeStep::Evict { .. } | NodeStep::Terminate { .. } | NodeStep::UncordonNode { .. })
        )
    });
    let is_finished = matches!(outcome, Outcome::Converged | Outcome::Locked { .. });
    if made_progress || is_finished { update(false, "NotBlocked", String::new()) } else { None }
}

fn blocked_message(blocked: &BlockedEviction) -> String {
    let budgets = if blocked.budgets.is_empty() {
        "a PodDisruptionBudget".to_owned()
    } else {
        format!("PodDisruptionBudget {}", blocked.budgets.join(", "))
    };
    let pod = format!("{}/{}", blocked.pod.namespace, blocked.pod.name);
    if let Some(deadline) = blocked.terminated_at.and_then(|at| at.round(Unit::Second).ok()) {
        return format!(
            "eviction of pod {pod} is blocked by {budgets}; retrying; the group is being deleted, so at {deadline} its instances are terminated regardless of budgets, with the pods that are left; relax the budget, or start replicas on other nodes, before that"
        );
    }
    if blocked.unschedulable.is_empty() {
        return format!(
            "eviction of pod {pod} is blocked by {budgets}; retrying; relax the budget, add replicas, or set drainTimeout"
        );
    }
    format!(
        "eviction of pod {pod} is blocked by {budgets}, and evicted pods are unschedulable: {}; add capacity (raise maxSize), or free capacity",
        blocked.unschedulable.join(", ")
    )
}

/// The event of an applied step, with its reasons.
fn step_event(planned: &PlannedStep) -> Option<Event> {
    let why = planned.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let event = planned.step.info().event(&why)?;
    Some(Event { message: truncate(&event.message), ..event })
}

/// The event for the transition of a condition from `previous` to `new`, if there is one.
fn transition_event(previous: Option<&Condition>, new: &Condition) -> Option<Event> {
    let was_true = previous.is_some_and(Condition::is_true);
    let previous_reason = previous.and_then(|previous| previous.reason.as_deref()).map(condition::current_reason);
    let same_reason = previous.is_some() && previous_reason == new.reason.as_deref();
    let message = || new.message.clone().unwrap_or_default();
    let reason = new.reason.clone().unwrap_or_default();
    match (new.r#type.as_str(), new.is_true()) {
        (condition::STALLED, true) if !was_true || !same_reason => {
            let failed = [Reason::ReplacementsNotReady, Reason::StrategyFailed];
            let reason =
                if failed.iter().any(|r| r.to_string() == reason) { event::UPGRADE_FAILED.to_owned() } else { reason };
            Some(Event::warning(&reason, message()))
        }
        (condition::NODES_READY, true) if !was_true => Some(Event::normal(event::NODES_READY, "all nodes are ready")),
        (condition::NODES_READY, false) if was_true => {
            Some(Event::warning(event::NODES_NOT_READY, "not all nodes are ready"))
        }
        (condition::DRAIN_BLOCKED, true) if !was_true || !same_reason => {
            Some(Event::warning("DrainBlocked", message()))
        }
        (kind @ (condition::ANNOTATIONS_IGNORED | condition::WRITES_INEFFECTIVE), true)
            if !was_true || previous.is_none_or(|p| p.message != new.message) =>
        {
            Some(Event::warning(kind, message()))
        }
        (condition::RESOURCES_RETAINED, true) if !was_true => {
            let reason = if reason == USED_IN_OTHER_REGION { "RoleRetained" } else { condition::RESOURCES_RETAINED };
            Some(Event::warning(reason, message()))
        }
        (condition::ADOPTED, true) if !was_true => Some(Event::normal("Adopted", message())),
        (condition::BOUNDARIES_APPLIED, false) if previous.is_none_or(Condition::is_true) => {
            Some(Event::warning(&reason, message()))
        }
        (condition::BOUNDARIES_APPLIED, true)
            if reason == "TenantValuesOverridden" && previous.is_none_or(|p| p.message != new.message) =>
        {
            Some(Event::warning(&reason, message()))
        }
        _ => None,
    }
}

/// The status patch. A new revision alone is not written, so that an edit of the ConfigMap does not write every group.
fn status_patch(before: &Value, mut status: Value, old: &InstanceGroupStatus) -> Option<Value> {
    let revision = status["boundariesRevision"].take();
    status["boundariesRevision"] = json!(old.boundaries_revision);
    let mut patch = diff_merge_patch(before, &status)?;
    if revision != json!(old.boundaries_revision) {
        patch["boundariesRevision"] = revision;
    }
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::plan::{PlanBuilder, PodRef};

    #[test]
    fn renamed_reason_is_no_transition() {
        let renamed = [
            (condition::STALLED, "NotOurs", "OwnershipConflict"),
            (condition::DRAIN_BLOCKED, "BudgetRefused", "EvictionBlocked"),
            (condition::DRAIN_BLOCKED, "ClaimedTwice", "DuplicateProviderID"),
        ];
        for (kind, old, new) in renamed {
            let (previous, current) = (Condition::new(kind, true, old, ""), Condition::new(kind, true, new, ""));
            assert_eq!(transition_event(Some(&previous), &current), None, "{old}");
        }
        let (previous, current) = (
            Condition::new(condition::STALLED, true, "NotOurs", ""),
            Condition::new(condition::STALLED, true, "NotFound", ""),
        );
        assert!(transition_event(Some(&previous), &current).is_some());
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
            budgets: vec!["web".into()],
            message: String::new(),
            unschedulable: vec![],
            terminated_at: None,
        };
        let outcome =
            Outcome::Progressing { phase: Phase::Rotating, message: String::new(), recheck: Recheck::Immediately };
        let in_deletion = BlockedEviction {
            terminated_at: Some("2026-01-02T00:15:00.5Z".parse().expect("a time")),
            ..eviction.clone()
        };
        let report_for = |blocked_evictions: Vec<BlockedEviction>, carried_over: Option<ConditionUpdate>| {
            let mut builder = PlanBuilder { outcome: Some(outcome.clone()), ..PlanBuilder::default() };
            builder.condition_updates.extend(carried_over);
            let plan = builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None);
            let applied = Applied {
                steps_done: 0,
                plan,
                error: None,
                blocked_evictions,
                tag_denials: vec![],
                unchanged_steps: vec![],
                resource_version: None,
            };
            let report = report(&status, &applied, None, "2026-01-02T00:00:00Z");
            let patch = report.patch.expect("the status changes");
            let conditions: Vec<Condition> = serde_json::from_value(patch["conditions"].clone()).expect("conditions");
            let condition = conditions.into_iter().find(|c| c.r#type == condition::DRAIN_BLOCKED).expect("a condition");
            (condition, report.transition_events)
        };
        let (blocked_again, events) = report_for(vec![eviction], None);
        assert_eq!(blocked_again.reason.as_deref(), Some("EvictionBlocked"));
        assert!(blocked_again.message.is_some_and(|message| message.contains("PodDisruptionBudget web")));
        assert_eq!((blocked_again.last_transition_time.as_deref(), events), (Some(SINCE), vec![]));
        // A deletion is reported although the drain was blocked before, with the time at which the budget ends.
        let (deleting, events) = report_for(vec![in_deletion], None);
        assert_eq!(deleting.reason.as_deref(), Some("EvictionBlockedDuringDeletion"));
        assert!(deleting.message.as_ref().is_some_and(|message| message.contains("at 2026-01-02T00:15:0")));
        assert_eq!(events, vec![Event::warning("DrainBlocked", deleting.message.unwrap_or_default())]);
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
}
