//! Transitions of conditions, and the events that report them.

use super::conditions::BoundariesReason;
use crate::api::names::condition;
use crate::api::{Condition, set_condition};
use crate::plan::{Event, EventKind, EventReason, StalledReason};
use crate::provisioner::retained::RetentionReason;
use crate::rollout::{is_announced, is_assessing};

/// A condition about a problem that is no longer True.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCondition {
    /// Type of the condition.
    pub condition: &'static str,
    /// The reason it had: what the problem was.
    pub reason: String,
}

/// The conditions of a group while they are updated, and what changes with that.
pub(super) struct Transitions<'a> {
    /// All conditions of the group after this reconcile.
    pub conditions: Vec<Condition>,
    /// The events of the transitions.
    pub events: Vec<Event>,
    /// The problems that ended.
    pub ended: Vec<EndedCondition>,
    /// The reason of the condition `Stalled`, if it is True.
    pub stalled: Option<StalledReason>,
    /// Whether the condition `Stalled` reports the fields that the plan cannot use.
    pub is_stalled_by_fields: bool,
    /// Whether the transition of the condition `Stalled` has an event.
    has_stalled_event: bool,
    /// Earlier releases reported a lock as a reason of the condition `Stalled`, with an event.
    was_locked: bool,
    generation: i64,
    now: &'a str,
}

impl<'a> Transitions<'a> {
    pub(super) fn new(old: &[Condition], generation: i64, now: &'a str) -> Self {
        let is_lock = |c: &Condition| c.r#type == condition::STALLED && c.is_true() && c.has_reason(condition::LOCKED);
        Transitions {
            conditions: old.to_vec(),
            events: Vec::new(),
            ended: Vec::new(),
            stalled: None,
            is_stalled_by_fields: false,
            has_stalled_event: false,
            was_locked: old.iter().any(is_lock),
            generation,
            now,
        }
    }

    /// Sets a condition, and keeps the event of its transition. `Stalled` is set before `FieldsRejected`.
    pub(super) fn update(&mut self, new: Condition) {
        let new = Condition { observed_generation: Some(self.generation), ..new };
        let previous = self.conditions.iter().find(|c| c.r#type == new.r#type).cloned();
        set_condition(&mut self.conditions, new.clone(), self.now);
        if let Some(previous) = previous.as_ref().filter(|previous| previous.is_true() && !new.is_true()) {
            let condition = condition::PROBLEMS.into_iter().find(|problem| *problem == new.r#type);
            let reason = previous.reason.clone().unwrap_or_default();
            self.ended.extend(condition.map(|condition| EndedCondition { condition, reason }));
        }
        let event = transition_event(previous.as_ref(), &new, self.stalled);
        match new.r#type.as_str() {
            condition::STALLED => self.has_stalled_event = event.is_some(),
            // A group that is stalled by its fields has one event, with the reason.
            condition::FIELDS_REJECTED if self.is_stalled_by_fields && self.has_stalled_event => return,
            condition::LOCKED if self.was_locked => return,
            _ => {}
        }
        self.events.extend(event);
    }
}

/// The event for the transition of a condition from `previous` to `new`, if there is one. `stalled` is the reason of the
/// condition `Stalled`, if it is True. A message of the status is only compared as a whole: either users have seen the
/// new one, or not.
pub(super) fn transition_event(
    previous: Option<&Condition>,
    new: &Condition,
    stalled: Option<StalledReason>,
) -> Option<Event> {
    let was_true = previous.is_some_and(Condition::is_true);
    let previous_reason = previous.and_then(|previous| previous.reason.as_deref()).map(condition::current_reason);
    let same_reason = previous.is_some() && previous_reason == new.reason.as_deref();
    let message = || new.message.clone().unwrap_or_default();
    let reason = new.reason.clone().unwrap_or_default();
    let warning = |reason: &str| Event::for_condition(EventKind::Warning, reason, message());
    match (new.r#type.as_str(), new.is_true()) {
        // After an edit of the spec, another problem of the same kind is news.
        (condition::STALLED, true)
            if !was_true
                || !same_reason
                || previous
                    .is_some_and(|p| p.observed_generation != new.observed_generation && p.message != new.message) =>
        {
            Some(match stalled {
                Some(StalledReason::ReplacementsNotReady | StalledReason::StrategyFailed) => {
                    Event::warning(EventReason::InstanceGroupUpgradeFailed, message())
                }
                _ => warning(&reason),
            })
        }
        (condition::LOCKED, true) if !was_true => {
            Some(Event::for_condition(EventKind::Normal, condition::LOCKED, message()))
        }
        (condition::NODES_READY, true) if !was_true => {
            Some(Event::normal(EventReason::InstanceGroupNodesReady, "all nodes are ready"))
        }
        (condition::NODES_READY, false) if was_true => {
            Some(Event::warning(EventReason::InstanceGroupNodesNotReady, "not all nodes are ready"))
        }
        (condition::DRAIN_BLOCKED, true) if !was_true || !same_reason => {
            Some(Event::warning(EventReason::DrainBlocked, message()))
        }
        (
            kind @ (condition::ANNOTATIONS_IGNORED | condition::FIELDS_REJECTED | condition::WRITES_INEFFECTIVE),
            true,
        ) if !was_true || previous.is_none_or(|p| p.message != new.message) => Some(warning(kind)),
        // Before, the controller did not know what the revision means for the group.
        (condition::ROLLOUT_PENDING, true) if is_announced(&reason) && (!was_true || is_assessing(previous_reason)) => {
            Some(Event::normal(EventReason::RevisionAnnounced, message()))
        }
        (condition::DRAIN_FORECAST, true) if !was_true => Some(warning(condition::DRAIN_FORECAST)),
        (condition::RESOURCES_RETAINED, true) if !was_true => {
            Some(match new.has_reason(RetentionReason::UsedInOtherRegion.as_str()) {
                true => Event::warning(EventReason::RoleRetained, message()),
                false => warning(condition::RESOURCES_RETAINED),
            })
        }
        (condition::ADOPTED, true) if !was_true => Some(Event::normal(EventReason::Adopted, message())),
        // The condition Stalled has the event.
        (condition::BOUNDARIES_APPLIED, false) if stalled == Some(StalledReason::BoundariesUnavailable) => None,
        (condition::BOUNDARIES_APPLIED, false) if !same_reason || was_true => Some(warning(&reason)),
        (condition::BOUNDARIES_APPLIED, true)
            if new.has_reason(BoundariesReason::TenantValuesOverridden.as_str())
                && previous.is_none_or(|p| p.message != new.message) =>
        {
            Some(warning(&reason))
        }
        _ => None,
    }
}
