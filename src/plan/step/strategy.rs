//! Steps of the crd strategy: create and delete its resources.

use serde::Serialize;
use serde_json::Value;

use super::info::StepInfo;
use crate::plan::EventReason;
use crate::plan::event::Event;
use crate::rotation::crd::kind::ResourceKind;
use crate::util::redact::Redacted;

/// One write to a resource of the crd strategy.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum StrategyStep {
    /// Create the resource of the crd strategy.
    CreateStrategyResource { kind: ResourceKind, namespace: String, name: String, object: Redacted<Value> },
    /// Delete a resource of the crd strategy that failed or that the desired one replaces.
    DeleteStrategyResource { kind: ResourceKind, namespace: String, name: String, uid: String },
}

impl StepInfo for StrategyStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            StrategyStep::CreateStrategyResource { kind, namespace, name, .. }
            | StrategyStep::DeleteStrategyResource { kind, namespace, name, .. } => {
                format!("{kind} {namespace}/{name}")
            }
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        let (reason, action) = match self {
            StrategyStep::CreateStrategyResource { .. } => (EventReason::StrategyResourceCreated, "submitted"),
            StrategyStep::DeleteStrategyResource { .. } => (EventReason::StrategyResourceDeleted, "deleted"),
        };
        Some(Event::with_reasons(reason, format!("{action} {}", self.subject()), reasons))
    }

    fn is_disruptive(&self) -> bool {
        true
    }
}
