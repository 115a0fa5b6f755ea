//! What a plan reports besides its outcome: Kubernetes events, and conditions of its own.

use serde::Serialize;

/// A condition other than Ready, Reconciling and Stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionUpdate {
    /// Type of the condition.
    pub condition_type: &'static str,
    /// Status of the condition: True or False.
    pub status: bool,
    /// Reason of the condition, in CamelCase.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

/// Type of a Kubernetes event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum EventKind {
    /// Expected progress.
    Normal,
    /// A problem, or a decision that the tenant or the admin should know.
    Warning,
}

/// A Kubernetes event on the InstanceGroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Type of the event.
    pub kind: EventKind,
    /// Reason of the event, in CamelCase.
    pub reason: String,
    /// Message of the event.
    pub message: String,
}

impl Event {
    /// A Normal event.
    pub(crate) fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Event { kind: EventKind::Normal, reason: reason.into(), message: message.into() }
    }

    /// A Warning event.
    pub(crate) fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Event { kind: EventKind::Warning, reason: reason.into(), message: message.into() }
    }

    /// A Normal event whose message ends with the reasons of the step, unless they are empty.
    pub(crate) fn with_reasons(reason: &str, message: String, reasons: &str) -> Self {
        Self::normal(reason, if reasons.is_empty() { message } else { format!("{message}: {reasons}") })
    }

    /// Whether it is a Warning.
    pub fn is_warning(&self) -> bool {
        self.kind == EventKind::Warning
    }
}
