//! What a plan reports besides its outcome: Kubernetes events, and conditions of its own.

use serde::Serialize;

use super::event_reason::EventReason;

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
    /// Progress that needs no action; the event has the type Normal.
    Normal,
    /// A problem, or a decision that the tenant or the admin should be aware of.
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
    pub(crate) fn normal(reason: EventReason, message: impl Into<String>) -> Self {
        Event { kind: EventKind::Normal, reason: reason.to_string(), message: message.into() }
    }

    /// A Warning event.
    pub(crate) fn warning(reason: EventReason, message: impl Into<String>) -> Self {
        Event { kind: EventKind::Warning, reason: reason.to_string(), message: message.into() }
    }

    /// An event with the type of a condition, or the condition's reason, as its reason.
    pub(crate) fn for_condition(kind: EventKind, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Event { kind, reason: reason.into(), message: message.into() }
    }

    /// A Normal event whose message ends with the reasons of the step, unless they are empty.
    pub(crate) fn with_reasons(reason: EventReason, message: String, reasons: &str) -> Self {
        Self::normal(reason, if reasons.is_empty() { message } else { format!("{message}: {reasons}") })
    }

    /// Whether it has this reason.
    pub(crate) fn has_reason(&self, reason: EventReason) -> bool {
        self.reason == reason.to_string()
    }
}

/// An object, other than the InstanceGroup, that users describe when they look for the reason of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventObject {
    /// The Node with this name.
    Node(String),
    /// A pod, also one in another namespace than the group.
    Pod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
    },
}

/// An event on a Node or a pod. Its message names the InstanceGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The object that the event is published on.
    pub object: EventObject,
    /// Type, reason and message of the event.
    pub event: Event,
}

impl ObjectEvent {
    /// An event on the Node `name`.
    pub(crate) fn on_node(name: &str, event: Event) -> Self {
        ObjectEvent { object: EventObject::Node(name.to_owned()), event }
    }
}
