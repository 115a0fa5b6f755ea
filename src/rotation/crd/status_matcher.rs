//! Where a resource tells how it stands, and which of its words mean the end.

use serde_json::Value;

use super::StatusPath;
use crate::api::StrategyProgress;

/// What a resource says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePhase {
    /// Neither success nor failure; with its own word, if it has one yet.
    Active(String),
    /// Success.
    Succeeded,
    /// Failure.
    Failed,
    /// Where its status should be is something that is no text.
    Unreadable(&'static str),
}

impl ResourcePhase {
    /// Whether it is over.
    pub fn is_finished(&self) -> bool {
        matches!(self, ResourcePhase::Succeeded | ResourcePhase::Failed)
    }
}

/// What a resource is read by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusMatcher {
    /// Where the resource tells its status.
    pub path: StatusPath,
    /// The status that means success, in any case.
    pub success: String,
    /// The status that means failure, in any case.
    pub failure: String,
}

impl StatusMatcher {
    /// Those by which the resource was read that the status remembers, whatever the spec says now.
    pub fn from_progress(progress: &StrategyProgress) -> Option<Self> {
        let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        Some(StatusMatcher {
            path: StatusPath::parse(progress.status_json_path.as_deref()?)?,
            success: text(&progress.status_success_string)?,
            failure: text(&progress.status_failure_string)?,
        })
    }

    /// What a resource says of itself.
    pub fn phase(&self, object: &Value) -> ResourcePhase {
        match self.path.read(object) {
            Err(what) => ResourcePhase::Unreadable(what),
            Ok(word) if word.eq_ignore_ascii_case(&self.success) => ResourcePhase::Succeeded,
            Ok(word) if word.eq_ignore_ascii_case(&self.failure) => ResourcePhase::Failed,
            Ok(word) => ResourcePhase::Active(word),
        }
    }
}
