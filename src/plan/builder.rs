//! A plan in the making: what planners add to, step by step.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Drift, Facts, Note, ObjectStep, Outcome, Phase, Plan, Planned, Reason, Recheck, Step, Told};
use crate::api::GroupId;

/// A plan in the making.
#[derive(Default)]
pub struct Draft {
    /// In order.
    pub steps: Vec<Planned>,
    /// The outcome, once something decides it.
    pub outcome: Option<Outcome>,
    /// Conditions beside the standard ones.
    pub notes: Vec<Note>,
    /// Events.
    pub events: Vec<Told>,
    /// What status tells.
    pub facts: Facts,
}

impl Draft {
    /// Adds a step.
    pub fn step(&mut self, step: impl Into<Step>) {
        self.because(step, Vec::new());
    }

    /// Writes a field of `status.managed` before everything that follows, with the first that is recorded there.
    pub fn record(&mut self, field: &str, value: Value) {
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
    pub fn because(&mut self, step: impl Into<Step>, because: Vec<Drift>) {
        self.steps.push(Planned::new(step, because));
    }

    /// The first to decide the outcome wins.
    pub fn decide(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// The plan; converged where nothing else was decided.
    pub fn finish(self, id: &GroupId, wake: Option<Timestamp>) -> Plan {
        Plan {
            group: id.key(),
            generation: id.generation,
            steps: self.steps,
            outcome: self.outcome.unwrap_or(Outcome::Converged),
            facts: self.facts,
            notes: self.notes,
            events: self.events,
            wake,
        }
    }
}

/// Waiting for AWS or nodes, looked at with the poll of groups in flux.
pub fn waiting(phase: Phase, message: impl Into<String>) -> Outcome {
    Outcome::Progressing { phase, message: message.into(), recheck: Recheck::Poll }
}

/// A plan that does nothing until someone acts.
pub fn blocked(id: &GroupId, reason: Reason, message: String) -> Plan {
    let outcome = Outcome::Blocked { reason, message, deleting: id.deleting };
    Draft { outcome: Some(outcome), ..Draft::default() }.finish(id, None)
}
