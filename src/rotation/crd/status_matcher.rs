//! Reads the status of a resource: where it is, and which values mean success and failure.

use serde_json::Value;

use super::kind::ResourceKind;
use super::status_path::StatusPath;
use crate::api::StrategyProgress;

/// Phase of a resource, from its own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePhase {
    /// Neither success nor failure; holds the status value, which is empty until the resource has one.
    Active(String),
    /// The status is a success value.
    Succeeded,
    /// The status is a failure value.
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

/// One or more values of a status field, separated by commas and compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusValues(String);

impl StatusValues {
    /// Words as the spec or the status names them.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        StatusValues(text.into())
    }

    /// The text as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names no word.
    pub(crate) fn is_empty(&self) -> bool {
        self.words().next().is_none()
    }

    /// A word that both name.
    pub(crate) fn common_word<'a>(&'a self, other: &StatusValues) -> Option<&'a str> {
        self.words().find(|word| other.contains(word))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        // A resource may use a status with a comma, so the whole text is a word too.
        let parts = self.0.split(',').map(str::trim).filter(|word| !word.is_empty());
        parts.chain(self.0.contains(',').then(|| self.0.trim()).filter(|text| !text.trim_matches(',').is_empty()))
    }

    fn contains(&self, status: &str) -> bool {
        self.words().any(|word| word.eq_ignore_ascii_case(status))
    }
}

/// How the status of a resource is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusMatcher {
    /// Path of the status in the resource.
    pub path: StatusPath,
    /// The values that mean success.
    pub success: StatusValues,
    /// The values that mean failure.
    pub failure: StatusValues,
}

impl StatusMatcher {
    /// The matcher that was recorded when the resource was submitted; the spec may have changed since.
    pub(crate) fn from_progress(progress: &StrategyProgress) -> Option<Self> {
        let words = |field: &Option<String>| field.clone().map(StatusValues::new).filter(|words| !words.is_empty());
        Some(StatusMatcher {
            path: StatusPath::parse(progress.status_json_path.as_deref()?)?,
            success: words(&progress.status_success_string)?,
            failure: words(&progress.status_failure_string)?,
        })
    }

    /// Phase of a resource of this kind, from its own status. The spec's words come first; the final phases of a
    /// built-in kind count even if the spec does not name them.
    pub(crate) fn phase(&self, object: &Value, kind: &ResourceKind) -> ResourcePhase {
        let status = match self.path.read(object) {
            Err(what) => return ResourcePhase::Unreadable(what),
            Ok(status) => status,
        };
        let known = kind.final_phases().filter(|known| self.path.to_string() == known.path);
        let is_known = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(&status));
        if self.success.contains(&status) {
            ResourcePhase::Succeeded
        } else if self.failure.contains(&status) || known.is_some_and(|known| is_known(known.failure)) {
            ResourcePhase::Failed
        } else if known.is_some_and(|known| is_known(known.success)) {
            ResourcePhase::Succeeded
        } else {
            ResourcePhase::Active(status)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(kind: &str, group: &str) -> ResourceKind {
        ResourceKind { group: group.into(), version: "v1".into(), kind: kind.into(), plural: String::new() }
    }

    fn matcher(path: &str, success: &str, failure: &str) -> StatusMatcher {
        let path = StatusPath::parse(path).expect("a path");
        StatusMatcher { path, success: StatusValues::new(success), failure: StatusValues::new(failure) }
    }

    #[test]
    fn several_words_mean_success_or_failure() {
        let matcher = matcher(".status.phase", "Done, Skipped", "broken,Lost");
        let other = kind("NodeRefresh", "ops.example.com");
        let phase = |status: &str| matcher.phase(&json!({"status": {"phase": status}}), &other);
        for word in ["done", "Skipped"] {
            assert_eq!(phase(word), ResourcePhase::Succeeded, "{word}");
        }
        for word in ["Broken", "lost", "broken,lost"] {
            assert_eq!(phase(word), ResourcePhase::Failed, "{word}");
        }
        for word in ["", "Error", "Don", ","] {
            assert_eq!(phase(word), ResourcePhase::Active(word.into()), "the kind is not known");
        }
    }

    #[test]
    fn final_phases_of_known_kinds_count() {
        let workflow = kind("Workflow", "argoproj.io");
        let upgrade = kind("RollingUpgrade", "upgrademgr.keikoproj.io");
        let (phase, current) = (".status.phase", ".status.currentStatus");
        let (failed, succeeded) = (ResourcePhase::Failed, ResourcePhase::Succeeded);
        let active = |text: &str| ResourcePhase::Active(text.into());
        for (kind, path, success, failure, status, expected) in [
            (&workflow, phase, "Succeeded", "Failed", "Error", &failed),
            (&workflow, phase, "Succeeded", "Failed", "Cancelled", &failed),
            (&workflow, phase, "Succeeded", "Error", "Failed", &failed),
            (&workflow, phase, "Succeeded", "Failed", "Running", &active("Running")),
            (&workflow, phase, "Succeeded, Error", "Failed", "Error", &succeeded),
            (&workflow, phase, "Done", "Failed", "Succeeded", &succeeded),
            (&workflow, ".status.message", "Succeeded", "Failed", "Error", &active("Error")),
            (&upgrade, current, "completed", "failed", "error", &failed),
            (&upgrade, current, "done", "failed", "Completed", &succeeded),
            (&upgrade, current, "completed", "error", "init", &active("init")),
        ] {
            let field = path.rsplit('.').next().expect("a field");
            let object = json!({"status": {field: status}});
            assert_eq!(matcher(path, success, failure).phase(&object, kind), *expected, "{status} of {kind}");
        }
    }
}
