//! Steps of the crd strategy.

use serde::Serialize;
use serde_json::Value;

use super::Act;
use crate::plan::Told;
use crate::rotation::crd::ResourceKind;
use crate::util::redact::Redacted;

/// One write to a resource of the crd strategy.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum StrategyStep {
    /// Create the resource of the crd strategy.
    SubmitStrategy { kind: ResourceKind, namespace: String, name: String, object: Redacted<Value> },
    /// Delete a resource of the crd strategy that failed, or makes room.
    DeleteStrategy { kind: ResourceKind, namespace: String, name: String, uid: String },
}

impl Act for StrategyStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            StrategyStep::SubmitStrategy { kind, namespace, name, .. }
            | StrategyStep::DeleteStrategy { kind, namespace, name, .. } => format!("{kind} {namespace}/{name}"),
        }
    }

    fn event(&self, why: &str) -> Option<Told> {
        let (reason, did) = match self {
            StrategyStep::SubmitStrategy { .. } => ("UpgradeSubmitted", "submitted"),
            StrategyStep::DeleteStrategy { .. } => ("UpgradeResourceDeleted", "deleted"),
        };
        Some(Told::because(reason, format!("{did} {}", self.subject()), why))
    }

    fn disrupts(&self) -> bool {
        true
    }
}
