//! A plan in the making: what planners add to, step by step.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ConditionUpdate, Drift, Event, ObjectStep, Outcome, Phase, Plan, PlannedStep, Reason, Recheck, StatusUpdate, Step,
};
use crate::api::GroupId;

/// A plan in the making.
#[derive(Default)]
pub struct PlanBuilder {
    /// In order.
    pub steps: Vec<PlannedStep>,
    /// The outcome, once something decides it.
    pub outcome: Option<Outcome>,
    /// Conditions beside the standard ones.
    pub condition_updates: Vec<ConditionUpdate>,
    /// Events.
    pub events: Vec<Event>,
    /// Why new nodes cannot join; blocks the group once nothing else is left to do.
    pub join_conflict: Option<String>,
    /// What status tells.
    pub status_update: StatusUpdate,
}

impl PlanBuilder {
    /// Adds a step.
    pub fn push(&mut self, step: impl Into<Step>) {
        self.push_with_reasons(step, Vec::new());
    }

    /// Writes a field of `status.managed` before everything that follows, with the first that is recorded there.
    pub fn record_managed(&mut self, field: &str, value: Value) {
        let first = self.steps.iter_mut().find_map(|planned| match &mut planned.step {
            Step::Object(ObjectStep::Record { status }) => status.get_mut("managed"),
            _ => None,
        });
        match first {
            Some(managed) => managed[field] = value,
            None => {
                let finalizer = self.steps.first().is_some_and(|s| s.step == Step::Object(ObjectStep::AddFinalizer));
                let status = json!({ "managed": { field: value } });
                self.steps.insert(usize::from(finalizer), ObjectStep::Record { status }.into());
            }
        }
    }

    /// Adds a step with its reasons.
    pub fn push_with_reasons(&mut self, step: impl Into<Step>, because: Vec<Drift>) {
        self.steps.push(PlannedStep::new(step, because));
    }

    /// The first to decide the outcome wins.
    pub fn set_outcome_once(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// The plan; converged where nothing else was decided.
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

/// Waiting for AWS or nodes, looked at with the poll of groups in flux.
pub fn waiting(phase: Phase, message: impl Into<String>) -> Outcome {
    Outcome::Progressing { phase, message: message.into(), recheck: Recheck::Poll }
}

/// A plan that does nothing until someone acts.
pub fn blocked_plan(id: &GroupId, reason: Reason, message: String) -> Plan {
    let outcome = Outcome::Blocked { reason, message, is_deleting: id.is_deleting };
    PlanBuilder { outcome: Some(outcome), ..PlanBuilder::default() }.build(id, None)
}
