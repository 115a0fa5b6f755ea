//! Collects the steps, the outcome and the reports of a plan while the planners run.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::drift::Drift;
use super::event::{ConditionUpdate, Event};
use super::outcome::{Outcome, Phase, Reason, Recheck};
use super::step::{ObjectStep, Step};
use super::types::{Plan, PlannedStep, StatusUpdate};
use crate::api::GroupId;

/// A plan under construction. Planners append to it in the order in which their steps must run.
///
/// ```
/// use instance_manager::api::{InstanceGroup, InstanceGroupSpec, group_id};
/// use instance_manager::plan::{Drift, EksStep, Outcome, Phase, PlanBuilder, waiting};
///
/// let mut builder = PlanBuilder::default();
/// let step = EksStep::PutTags { group: "demo-team-web".into(), tags: vec![] };
/// builder.push_with_reasons(step, vec![Drift::new("tags.cost", "41", "42")]);
/// builder.set_outcome_once(waiting(Phase::Modifying, "updating the scaling group"));
/// builder.set_outcome_once(Outcome::Converged); // has no effect: the first outcome wins
///
/// let plan = builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None);
/// assert_eq!(plan.steps[0].step.name(), "PutTags");
/// assert_eq!(plan.steps[0].reasons[0].to_string(), "tags.cost: 41 -> 42");
/// assert!(matches!(plan.outcome, Outcome::Progressing { phase: Phase::Modifying, .. }));
/// ```
#[derive(Default)]
pub struct PlanBuilder {
    /// The steps so far, in order.
    pub steps: Vec<PlannedStep>,
    /// The outcome, once a planner has set it. Set it with [`PlanBuilder::set_outcome_once`].
    pub outcome: Option<Outcome>,
    /// Conditions other than Ready, Reconciling and Stalled.
    pub condition_updates: Vec<ConditionUpdate>,
    /// Events to publish when the plan has been applied.
    pub events: Vec<Event>,
    /// Why new nodes cannot join; blocks the group once nothing else is left to do.
    pub join_conflict: Option<String>,
    /// Status fields other than conditions.
    pub status_update: StatusUpdate,
    /// Outcomes that [`PlanBuilder::set_outcome_once`] dropped because an earlier one differs, in call order. They do
    /// not enter the plan.
    pub ignored_outcomes: Vec<Outcome>,
}

impl PlanBuilder {
    /// Appends a step without reasons.
    pub fn push(&mut self, step: impl Into<Step>) {
        self.push_with_reasons(step, Vec::new());
    }

    /// Records a field of `status.managed` before the steps that depend on it. All such fields share one step.
    pub fn record_managed(&mut self, field: &str, value: Value) {
        let existing = self.steps.iter_mut().find_map(|planned| match &mut planned.step {
            Step::Object(ObjectStep::UpdateStatus { status }) => status.get_mut("managed"),
            _ => None,
        });
        match existing {
            Some(managed) => managed[field] = value,
            None => {
                let has_finalizer_step =
                    self.steps.first().is_some_and(|s| s.step == Step::Object(ObjectStep::AddFinalizer));
                let status = json!({ "managed": { field: value } });
                self.steps.insert(usize::from(has_finalizer_step), ObjectStep::UpdateStatus { status }.into());
            }
        }
    }

    /// Appends a step with its reasons.
    pub fn push_with_reasons(&mut self, step: impl Into<Step>, reasons: Vec<Drift>) {
        self.steps.push(PlannedStep::new(step, reasons));
    }

    /// Sets the outcome unless an earlier planner has set it: the first call wins.
    ///
    /// Planners run from the most to the least fundamental concern, so the first outcome is the cause and later ones
    /// are its consequences. A planner that must know whether the outcome is still open asks
    /// [`PlanBuilder::has_outcome`]. A later, different outcome is kept in [`PlanBuilder::ignored_outcomes`], where
    /// tests and a debugger can see it.
    pub fn set_outcome_once(&mut self, outcome: Outcome) {
        match &self.outcome {
            None => self.outcome = Some(outcome),
            Some(kept) if *kept == outcome => {}
            Some(_) => self.ignored_outcomes.push(outcome),
        }
    }

    /// Whether the outcome is set, so that [`PlanBuilder::set_outcome_once`] would have no effect.
    pub fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// The finished plan; its outcome is `Converged` when no planner has set one.
    pub fn build(self, id: &GroupId, recheck_at: Option<Timestamp>) -> Plan {
        Plan {
            group: id.key(),
            generation: id.generation,
            steps: self.steps,
            outcome: self.outcome.unwrap_or(Outcome::Converged),
            status_update: self.status_update,
            condition_updates: self.condition_updates,
            events: self.events,
            recheck_at,
        }
    }
}

/// The outcome of a group that waits for AWS or for nodes; the next pass runs after the poll interval.
pub fn waiting(phase: Phase, message: impl Into<String>) -> Outcome {
    Outcome::Progressing { phase, message: message.into(), recheck: Recheck::Poll }
}

/// A plan without steps for a group that makes no progress until a person acts.
pub fn blocked_plan(id: &GroupId, reason: Reason, message: String) -> Plan {
    let outcome = Outcome::Blocked { reason, message, is_deleting: id.is_deleting };
    PlanBuilder { outcome: Some(outcome), ..PlanBuilder::default() }.build(id, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outcome_wins_and_different_later_ones_are_recorded() {
        let mut builder = PlanBuilder::default();
        assert!(!builder.has_outcome());
        let first = waiting(Phase::Creating, "first");
        builder.set_outcome_once(first.clone());
        builder.set_outcome_once(first.clone());
        assert!(builder.has_outcome() && builder.ignored_outcomes.is_empty());
        builder.set_outcome_once(Outcome::Converged);
        assert_eq!((builder.outcome, builder.ignored_outcomes), (Some(first), vec![Outcome::Converged]));
    }
}
