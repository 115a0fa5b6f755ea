//! Turns an applied plan into one status patch and the events to publish. A pure function of what was applied, so the
//! status never reports a step that did not happen.

mod conditions;
mod drain_blocked;
mod object_events;
mod outcome;
mod transitions;

use std::iter;

use serde_json::{Value, json};

pub use self::conditions::BoundariesSummary;
use self::conditions::{
    Readiness, boundaries_condition, boundaries_unavailable_update, keeps_tagging_denial, locked_update,
    record_tagging_denial, standard_conditions, truncate, with_tag_denied,
};
use self::drain_blocked::drain_blocked_update;
use self::object_events::object_events;
pub(crate) use self::outcome::{
    aws_failure, aws_remedy, had_no_effect, missing_iam_action, missing_kubernetes_permission, step_failure,
};
use self::outcome::{failed_write, failure_outcome, is_deleting, reported_outcome};
pub use self::transitions::EndedCondition;
use self::transitions::Transitions;
use crate::api::names::condition;
use crate::api::{Condition, CurrentState, InstanceGroupStatus, apply_merge_patch, diff_merge_patch};
use crate::apply::{Applied, StepError};
use crate::plan::{
    Event, EventReason, IamStep, ObjectEvent, ObjectStep, Outcome, Phase, Plan, PlannedStep, StalledReason,
    StatusUpdate, Step,
};
use crate::rollout::corrected_conditions;
use crate::rotation::crd::decide::state::SUBMITTED;

/// What is wrong with a stored object that cannot be decoded, and how to find it.
pub(crate) const INVALID_OBJECT: &str = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`";

/// The status patch and the events of one reconcile.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    /// A merge patch of `status`; `None` when nothing changed.
    pub patch: Option<Value>,
    /// Events of applied steps. They are published before the status is written, because they hold even if that fails.
    pub step_events: Vec<Event>,
    /// Events of condition transitions. They are published after the status is written.
    pub transition_events: Vec<Event>,
    /// Events on Nodes and pods, published with those of the steps.
    pub object_events: Vec<ObjectEvent>,
    /// Conditions about a problem that ended with this pass, for the log.
    pub ended_conditions: Vec<EndedCondition>,
    /// The outcome of the reconcile: that of the plan, or of the step that failed. `None` without leadership.
    pub outcome: Option<Outcome>,
    /// The reason of the condition `Stalled`, if it is True.
    pub stalled: Option<StalledReason>,
}

/// Builds the report of an applied plan; only of its steps, if this process may not write any more. `now` is in RFC 3339.
pub fn report(
    old: &InstanceGroupStatus,
    applied: &Applied,
    boundaries: Option<&BoundariesSummary>,
    now: &str,
) -> Report {
    if matches!(applied.error, Some(StepError::MayNotWrite)) {
        let (step_events, object_events) = (step_events(applied), object_events(applied, false));
        return Report { step_events, object_events, ..Report::default() };
    }
    let outcome = reported_outcome(applied);
    let mut step_events = step_events(applied);
    if outcome == Outcome::Deleted {
        step_events.extend(deletion_event(old, &applied.plan));
        let object_events = object_events(applied, false);
        return Report { step_events, object_events, outcome: Some(outcome), ..Report::default() };
    }
    let before = stored_status(old, applied);
    let mut status = new_status(old, &before, applied, boundaries, &outcome);
    let others = reported_others(applied);
    let stalled = outcome.stalled_reason().or_else(|| others.iter().find_map(Outcome::stalled_reason));
    let time = now.parse::<jiff::Timestamp>();
    let known = time.map_or_else(|_| old.conditions.clone(), |now| corrected_conditions(old, now));
    let mut transitions = Transitions::new(&known, applied.plan.generation, now);
    transitions.stalled = stalled;
    transitions.is_stalled_by_fields = is_stalled_by_fields(&applied.plan, &outcome, &others);
    for condition in new_conditions(old, applied, boundaries, &outcome, &others, &status) {
        transitions.update(condition);
    }
    let Transitions { conditions, events, ended: ended_conditions, .. } = transitions;
    let transition_events = select_events(events, old, &outcome, &others, &status);
    status["conditions"] = json!(conditions);
    record_tagging_denial(&mut status, old, applied);
    let patch = status_patch(&before, status, old);
    let is_newly_blocked = transition_events.iter().any(|event| event.has_reason(EventReason::DrainBlocked));
    let object_events = object_events(applied, is_newly_blocked);
    let outcome = Some(outcome);
    Report { patch, step_events, transition_events, object_events, ended_conditions, outcome, stalled }
}

/// The events of the applied steps and, once all are applied, of the plan.
fn step_events(applied: &Applied) -> Vec<Event> {
    let plan = &applied.plan;
    // Creating a role and attaching its policies is one event.
    let new_role = plan.steps.iter().any(|p| matches!(p.step, Step::Iam(IamStep::CreateRole(_))));
    let belongs_to_new_role = |p: &PlannedStep| new_role && matches!(p.step, Step::Iam(IamStep::AttachPolicy { .. }));
    let applied_steps = plan.steps[..applied.steps_done].iter().enumerate();
    let is_reported = |i: usize, p: &PlannedStep| !had_no_effect(i, &p.step, applied) && !p.is_retry;
    let reported = applied_steps.filter(|(i, p)| is_reported(*i, p) && !belongs_to_new_role(p));
    let mut step_events = reported.flat_map(|(_, planned)| step_event(planned)).collect::<Vec<_>>();
    if applied.is_complete() {
        // What is not made does not come back, either, and what waits has not happened.
        let says_all_was_done = |event: &Event| {
            [EventReason::ResourceRecreated, EventReason::NodesChangedInPlace].iter().any(|r| event.has_reason(*r))
        };
        let is_true = |event: &&Event| applied.error.is_none() || !says_all_was_done(event);
        let events = plan.events.iter().filter(|_| applied.waiting_steps.is_empty());
        step_events.extend(events.filter(is_true).cloned());
    }
    step_events
}

/// The event of a complete deletion; `None` for a group without the finalizer, whose resources a user may have kept.
fn deletion_event(old: &InstanceGroupStatus, plan: &Plan) -> Option<Event> {
    let is_retained = |c: &Condition| c.r#type == condition::RESOURCES_RETAINED && c.is_true();
    let has_kept_role = plan.events.iter().any(|event| event.has_reason(EventReason::RoleRetained));
    let message = match has_kept_role || old.conditions.iter().any(is_retained) {
        true => "the deletion is complete; the event before names the resources that stay",
        false => "the deletion is complete; no resources of the group are left",
    };
    let is_last = |planned: &PlannedStep| matches!(planned.step, Step::Object(ObjectStep::RemoveFinalizer));
    plan.steps.iter().any(is_last).then(|| Event::normal(EventReason::InstanceGroupDeleted, message))
}

/// The status in the stored object. Status writes among the applied steps are in it already.
fn stored_status(old: &InstanceGroupStatus, applied: &Applied) -> Value {
    let mut status = serde_json::to_value(old).unwrap_or_default();
    for planned in &applied.plan.steps[..applied.steps_done] {
        if let Step::Object(ObjectStep::UpdateStatus { status: written }) = &planned.step {
            apply_merge_patch(&mut status, written);
        }
    }
    status
}

/// The new status, without its conditions.
fn new_status(
    old: &InstanceGroupStatus,
    stored: &Value,
    applied: &Applied,
    boundaries: Option<&BoundariesSummary>,
    outcome: &Outcome,
) -> Value {
    let plan = &applied.plan;
    let mut status = stored.clone();
    for (key, value) in &plan.status_update.fields {
        status[key] = value.clone();
    }
    // Recorded at once: if a client deletes the resource before it is observed, that counts as a retry.
    if let Some(uid) = &applied.created_strategy_uid {
        status["strategyProgress"]["state"] = json!(SUBMITTED);
        status["strategyProgress"]["uid"] = json!(uid);
    }
    status["currentState"] = json!(current_state(outcome).as_str());
    let is_interrupted = old.is_rotating() && interrupts_rotation(outcome) && has_unfinished_change(&status);
    status["rotationInterrupted"] = if is_interrupted { json!(true) } else { Value::Null };
    status["observedGeneration"] = json!(plan.generation);
    if let Some(boundaries) = boundaries {
        status["configMD5"] = if boundaries.hash.is_empty() { Value::Null } else { json!(boundaries.hash) };
        status["boundariesRevision"] =
            if boundaries.revision.is_empty() { Value::Null } else { json!(boundaries.revision) };
    }
    status
}

/// All conditions that the pass sets, in the order of their events.
fn new_conditions(
    old: &InstanceGroupStatus,
    applied: &Applied,
    boundaries: Option<&BoundariesSummary>,
    outcome: &Outcome,
    others: &[Outcome],
    status: &Value,
) -> Vec<Condition> {
    let plan = &applied.plan;
    let readiness = Readiness { all: are_nodes_ready(plan, old), message: ready_message(status) };
    let mut conditions: Vec<_> =
        standard_conditions(outcome, failed_write(applied), others, &readiness).into_iter().collect();
    conditions.extend(known_readiness(applied, old).map(|ready| {
        let reason = if ready { "NodesReady" } else { "NodesNotReady" };
        Condition::new(condition::NODES_READY, ready, reason, ready_message(status))
    }));
    conditions.extend(boundaries.map(boundaries_condition));
    let exists = |kind: &str| old.conditions.iter().any(|c| c.r#type == kind);
    let keeps_denial = keeps_tagging_denial(old, applied);
    let updates = plan
        .condition_updates
        .iter()
        .filter(|update| !(keeps_denial && update.condition_type == condition::ADOPTED))
        .map(|update| with_tag_denied(update.clone(), applied))
        .chain(drain_blocked_update(applied, outcome))
        .chain([locked_update(outcome)])
        .chain(boundaries_unavailable_update(outcome));
    let updates = updates.filter(|update| update.status || exists(update.condition_type));
    conditions.extend(updates.map(|u| Condition::new(u.condition_type, u.status, &u.reason, u.message)));
    conditions
}

/// Whether the first problem that the condition `Stalled` reports is that the plan cannot use fields of the spec.
fn is_stalled_by_fields(plan: &Plan, outcome: &Outcome, others: &[Outcome]) -> bool {
    let problem = iter::once(outcome).chain(others).find(|problem| problem.stalled_reason().is_some());
    plan.rejected_fields.as_ref().is_some_and(|rejected| problem == Some(&rejected.outcome()))
}

/// The events of transitions that no other event reports.
fn select_events(
    mut events: Vec<Event>,
    old: &InstanceGroupStatus,
    outcome: &Outcome,
    others: &[Outcome],
    status: &Value,
) -> Vec<Event> {
    if old.is_rotating() && *outcome == Outcome::Converged {
        events.push(Event::normal(EventReason::RotationCompleted, "all nodes run the desired version"));
    }
    // During a rotation or a deletion, the events of its steps report how nodes come and go.
    if matches!(outcome, Outcome::Progressing { phase: Phase::Rotating | Phase::Deleting, .. }) {
        events.retain(|e| {
            !e.has_reason(EventReason::InstanceGroupNodesReady)
                && !e.has_reason(EventReason::InstanceGroupNodesNotReady)
        });
    }
    // New nodes that are still to come are not a failure.
    if is_scale_out(old, status) {
        events.retain(|e| !e.has_reason(EventReason::InstanceGroupNodesNotReady));
    }
    let lost = missing_nodes(outcome, others, ready_message(status));
    let is_about_lost = |e: &&mut Event| e.has_reason(EventReason::InstanceGroupNodesNotReady) && !lost.is_empty();
    events.iter_mut().filter(is_about_lost).for_each(|event| event.message.clone_from(&lost));
    events
}

/// Whether the group desires more nodes than before, and lost none of those that were ready.
fn is_scale_out(old: &InstanceGroupStatus, status: &Value) -> bool {
    let Some(before) = &old.nodes else { return false };
    let count = |name: &str| status["nodes"][name].as_i64().unwrap_or_default();
    count("desired") > before.desired && count("ready") >= before.ready
}

/// What stands beside the outcome. After a failed step, nothing is known about it. If the pass went on without a refused step,
/// it is what the plan came to.
fn reported_others(applied: &Applied) -> Vec<Outcome> {
    let Plan { outcome, other_outcomes, .. } = &applied.plan;
    let beside = match (&applied.error, outcome) {
        (None, _) => None,
        (Some(_), _) if !applied.is_complete() => return Vec::new(),
        (Some(_), Outcome::Locked { .. }) => Some(failure_outcome(applied)),
        (Some(_), other) => Some(other.clone()).filter(|other| other.stalled_reason().is_some()),
    };
    beside.into_iter().chain(other_outcomes.iter().cloned()).collect()
}

/// Which nodes are not ready: what the group waits for names them. A lock hides it behind the other outcomes.
fn missing_nodes(outcome: &Outcome, others: &[Outcome], counts: String) -> String {
    let wait = match outcome {
        Outcome::Locked { .. } => others.iter().find_map(Outcome::message),
        _ => outcome.message(),
    };
    match wait {
        Some(wait) => truncate(&format!("{counts}; {wait}")),
        None => counts,
    }
}

/// Whether all nodes are Ready, as far as it is known in this pass: by the plan, or because the counts of nodes show
/// that some are not. They hold also when a step failed, and while the group is changed or deleted.
fn known_readiness(applied: &Applied, old: &InstanceGroupStatus) -> Option<bool> {
    let StatusUpdate { fields, nodes_ready } = &applied.plan.status_update;
    let count = |name: &str| fields.get("nodes")?[name].as_i64();
    let counted = count("ready").zip(count("desired")).map(|(ready, desired)| ready >= desired);
    // A message about nodes that are Ready again must not stay. A group that is deleted is not Ready because it has no
    // nodes.
    let was_short = old.conditions.iter().any(|c| c.r#type == condition::NODES_READY && !c.is_true());
    let counted = counted.filter(|all| !all || was_short && !is_deleting(&applied.plan));
    nodes_ready.filter(|_| applied.is_complete()).or(counted)
}

/// Whether all nodes are ready, from the plan or from the last one that read them. Groups without nodes are.
fn are_nodes_ready(plan: &Plan, old: &InstanceGroupStatus) -> bool {
    let last = || old.conditions.iter().find(|c| c.r#type == condition::NODES_READY).map(Condition::is_true);
    plan.status_update.nodes_ready.or_else(last).unwrap_or(true)
}

/// Whether the group does something else than to rotate with this outcome, and is neither Ready nor deleted.
fn interrupts_rotation(outcome: &Outcome) -> bool {
    !matches!(
        current_state(outcome),
        CurrentState::Ready | CurrentState::InitUpgrade | CurrentState::Deleting | CurrentState::Deleted
    )
}

/// Whether nodes have yet to get the present version, or EKS has yet to reach the target of an update. Neither is true of a
/// group that only removes surplus nodes.
fn has_unfinished_change(status: &Value) -> bool {
    let template = &status["template"];
    let last_ready = &template["lastReadyVersion"];
    (!last_ready.is_null() && *last_ready != template["version"]) || !status["updateOf"].is_null()
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
    let unit = if status["nodes"]["weighted"] == true { "units of capacity" } else { "nodes" };
    match (status["nodes"]["ready"].as_i64(), status["nodes"]["desired"].as_i64()) {
        (Some(ready), Some(desired)) => format!("{ready} of {desired} {unit} are ready"),
        _ => String::new(),
    }
}

/// The event of an applied step, with its reasons.
fn step_event(planned: &PlannedStep) -> Option<Event> {
    let event = planned.step.info().event(&planned.why())?;
    Some(Event { message: truncate(&event.message), ..event })
}

/// The status patch. The status does not record a new revision without another change. Otherwise each edit of the
/// ConfigMap would write every group.
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
mod tests;
