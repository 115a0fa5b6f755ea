//! Steps that AWS or Kubernetes refused while the pass goes on: only what depends on them waits.

use super::error::StepError;
use crate::index::denials::DeniedCall;
use crate::plan::write::Dependents;
use crate::plan::{JoinStep, PlannedStep, Reason, Step, Write};

/// A step that AWS or Kubernetes refused, and that the rest of the pass does not depend on.
#[derive(Debug)]
pub struct IndependentFailure {
    /// Name of the step.
    pub(crate) step: &'static str,
    /// The call, if a permission is missing.
    pub(crate) denied_call: Option<DeniedCall>,
    /// What the step writes, if no node depends on it, so that a rotation need not wait for it.
    pub(crate) writes: Vec<Write>,
}

/// The refused steps of one pass, and the steps that wait for them.
#[derive(Default)]
pub(super) struct IndependentFailures {
    /// Why the first one was refused.
    first_error: Option<StepError>,
    independent_failures: Vec<IndependentFailure>,
    refused: Vec<PlannedStep>,
    dependents: Vec<PlannedStep>,
    joins_wait: bool,
    iam_waits: bool,
}

impl IndependentFailures {
    /// Whether the pass can go on without a step that failed with this error.
    pub(super) fn can_pass_over(planned: &PlannedStep, error: &StepError) -> bool {
        let is_refused = error.stalled_reason().is_some_and(|reason| reason != Reason::OwnershipConflict);
        is_refused
            && match planned.dependents() {
                Dependents::Nothing | Dependents::LaterJoins => true,
                Dependents::LaterPasses => is_removed_entry(&planned.step),
                Dependents::LaterSteps => false,
            }
    }

    /// Whether a step must wait, because it depends on one that was refused.
    pub(super) fn holds(&self, planned: &PlannedStep) -> bool {
        self.joins_wait && planned.needs_join() || self.iam_waits && matches!(planned.step, Step::Iam(_))
    }

    /// Takes a step that must wait.
    pub(super) fn add_dependent(&mut self, planned: PlannedStep) {
        self.dependents.push(planned);
    }

    /// Takes a step that was refused.
    pub(super) fn add(&mut self, planned: PlannedStep, error: StepError) {
        let dependents = planned.dependents();
        self.joins_wait |= dependents == Dependents::LaterJoins;
        // The entry of a role that is deleted would admit any later role of that name.
        self.iam_waits |= is_removed_entry(&planned.step) || matches!(planned.step, Step::Iam(_));
        let writes = if dependents == Dependents::Nothing { planned.writes() } else { Vec::new() };
        self.independent_failures.push(IndependentFailure {
            step: planned.step.name(),
            denied_call: error.denied_call(),
            writes,
        });
        self.first_error.get_or_insert(error);
        self.refused.push(planned);
    }

    /// The first error, the independent_failures, and the steps that were not applied: those that were refused, then their dependents.
    pub(super) fn finish(self) -> (Option<StepError>, Vec<IndependentFailure>, Vec<PlannedStep>) {
        (self.first_error, self.independent_failures, self.refused.into_iter().chain(self.dependents).collect())
    }
}

fn is_removed_entry(step: &Step) -> bool {
    matches!(step, Step::Join(JoinStep::RemoveAwsAuthEntry(_) | JoinStep::RemoveAccessEntry { .. }))
}
