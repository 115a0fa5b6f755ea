//! Reads the status of a resource: where it is, and which values mean success and failure.

use serde_json::Value;

use super::status_path::StatusPath;
use crate::api::StrategyProgress;

/// Phase of a resource, from its own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePhase {
    /// Neither success nor failure; holds the status value, which is empty until the resource has one.
    Active(String),
    /// The status is the success value.
    Succeeded,
    /// The status is the failure value.
    Failed,
    /// The value at the status path is not a scalar; holds its type.
    Unreadable(&'static str),
}

impl ResourcePhase {
    /// Whether it succeeded or failed.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self, ResourcePhase::Succeeded | ResourcePhase::Failed)
    }
}

/// How the status of a resource is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusMatcher {
    /// Path of the status in the resource.
    pub path: StatusPath,
    /// The value that means success, compared without case.
    pub success: String,
    /// The value that means failure, compared without case.
    pub failure: String,
}

impl StatusMatcher {
    /// The matcher that was recorded when the resource was submitted; the spec may have changed since.
    pub(crate) fn from_progress(progress: &StrategyProgress) -> Option<Self> {
        let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        Some(StatusMatcher {
            path: StatusPath::parse(progress.status_json_path.as_deref()?)?,
            success: text(&progress.status_success_string)?,
            failure: text(&progress.status_failure_string)?,
        })
    }

    /// Phase of a resource, from its own status.
    pub(crate) fn phase(&self, object: &Value) -> ResourcePhase {
        match self.path.read(object) {
            Err(what) => ResourcePhase::Unreadable(what),
            Ok(status) if status.eq_ignore_ascii_case(&self.success) => ResourcePhase::Succeeded,
            Ok(status) if status.eq_ignore_ascii_case(&self.failure) => ResourcePhase::Failed,
            Ok(status) => ResourcePhase::Active(status),
        }
    }
}
