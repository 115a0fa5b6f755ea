//! Steps on the InstanceGroup itself.

use serde::Serialize;
use serde_json::Value;

use super::StepInfo;
use crate::plan::Event;

/// One write to the InstanceGroup.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum ObjectStep {
    /// Put our finalizer on the InstanceGroup, before anything else exists.
    AddFinalizer,
    /// Remove our finalizer, and only ours.
    RemoveFinalizer,
    /// Write into status what must be known before the act that follows.
    Record {
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
            ObjectStep::Record { .. } => "status".into(),
        }
    }

    fn event(&self, _: &str) -> Option<Event> {
        None
    }
}
