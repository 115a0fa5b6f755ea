//! Steps on the InstanceGroup itself.

use serde::Serialize;
use serde_json::Value;

use super::info::{StepFields, StepInfo};
use crate::plan::event::Event;

/// One write to the InstanceGroup.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum ObjectStep {
    /// Add the controller's finalizer, before any other resource exists.
    AddFinalizer,
    /// Remove the controller's finalizer; finalizers of other controllers stay.
    RemoveFinalizer,
    /// Record in the status what a later pass must know even if this pass ends after the next step.
    UpdateStatus {
        /// A merge patch under `status`.
        status: Value,
    },
}

impl StepInfo for ObjectStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            ObjectStep::AddFinalizer | ObjectStep::RemoveFinalizer => "on the InstanceGroup".into(),
            ObjectStep::UpdateStatus { .. } => "status".into(),
        }
    }

    fn event(&self, _: &str) -> Option<Event> {
        None
    }

    fn log_text(&self) -> String {
        match self {
            ObjectStep::AddFinalizer => "added the controller's finalizer to the InstanceGroup".into(),
            ObjectStep::RemoveFinalizer => "removed the controller's finalizer from the InstanceGroup".into(),
            ObjectStep::UpdateStatus { status } => {
                let fields: Vec<_> =
                    status.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
                format!("recorded {} in the status", fields.join(", "))
            }
        }
    }

    fn fields(&self) -> StepFields {
        StepFields::default()
    }
}
