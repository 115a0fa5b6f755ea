//! Steps of the crd strategy.

use serde::Serialize;
use serde_json::Value;

use super::StepInfo;
use crate::plan::Event;
use crate::rotation::crd::ResourceKind;
use crate::util::redact::Redacted;

/// One write to a resource of the crd strategy.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum StrategyStep {
    /// Create the resource of the crd strategy.
    CreateStrategyResource { kind: ResourceKind, namespace: String, name: String, object: Redacted<Value> },
    /// Delete a resource of the crd strategy that failed, or makes room.
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

    fn event(&self, why: &str) -> Option<Event> {
        let (reason, did) = match self {
            StrategyStep::CreateStrategyResource { .. } => ("UpgradeSubmitted", "submitted"),
            StrategyStep::DeleteStrategyResource { .. } => ("UpgradeResourceDeleted", "deleted"),
        };
        Some(Event::with_reasons(reason, format!("{did} {}", self.subject()), why))
    }

    fn is_disruptive(&self) -> bool {
        true
    }
}
