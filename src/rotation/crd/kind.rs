//! Kinds of resources that the crd strategy creates.

use serde::Serialize;

/// A kind of resource as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceKind {
    /// API group, such as `upgrademgr.keikoproj.io`.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind, such as `RollingUpgrade`.
    pub kind: String,
    /// Plural name, as used in API paths and RBAC rules.
    pub plural: String,
}

/// The statuses of a known kind that never change again.
#[derive(Clone, Copy)]
pub(super) struct FinalPhases {
    /// Path of the status.
    pub path: &'static str,
    /// Values that mean success.
    pub success: &'static [&'static str],
    /// Values that mean failure.
    pub failure: &'static [&'static str],
}

impl ResourceKind {
    /// The final phases of the built-in kinds: a Workflow of Argo (`WorkflowPhase.Completed`), and a RollingUpgrade of
    /// upgrade-manager (`FiniteStates`).
    pub(super) fn final_phases(&self) -> Option<FinalPhases> {
        match (self.kind.as_str(), self.group.as_str()) {
            // `Error`: a pod was deleted or its node is gone.
            ("Workflow", "argoproj.io") => Some(FinalPhases {
                path: ".status.phase",
                success: &["Succeeded"],
                failure: &["Failed", "Error", "Cancelled"],
            }),
            ("RollingUpgrade", "upgrademgr.keikoproj.io") => {
                Some(FinalPhases { path: ".status.currentStatus", success: &["completed"], failure: &["error"] })
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

/// What API discovery returns for a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// Plural name, as API paths and RBAC rules have it.
    pub plural: String,
    /// Whether its resources are namespaced.
    pub namespaced: bool,
}
