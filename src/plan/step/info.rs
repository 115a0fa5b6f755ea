//! The description that every step has, independent of its topic.

use crate::plan::event::{Event, ObjectEvent};

/// The objects of a step, as fields of its log line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepFields {
    /// Name of the Node.
    pub node: Option<String>,
    /// Id of the EC2 instance.
    pub instance: Option<String>,
    /// The pod, as `namespace/name`.
    pub pod: Option<String>,
    /// Name or ARN of the AWS resource.
    pub resource: Option<String>,
    /// The launch template version, by number or by hash.
    pub version: Option<String>,
}

/// Name, subject and event of a step, and what the step does to nodes.
pub trait StepInfo {
    /// Name from a closed set, for logs, metrics and `instance-manager plan`.
    fn name(&self) -> &'static str;

    /// The object that the step changes, in one phrase.
    fn subject(&self) -> String;

    /// The event that `kubectl describe` shows once the step is done; `reasons` is empty when the step has none.
    fn event(&self, reasons: &str) -> Option<Event>;

    /// What the step did, for the log: the words of its event. A step without an event has words of its own.
    fn log_text(&self) -> String {
        self.event("").map_or_else(|| format!("{} {}", self.name(), self.subject()), |event| event.message)
    }

    /// The event on the Node or pod that the step changes. `group` is `namespace/name` of the InstanceGroup.
    fn object_event(&self, _group: &str, _reasons: &str) -> Option<ObjectEvent> {
        None
    }

    /// The objects of the step, for the log.
    fn fields(&self) -> StepFields {
        StepFields { resource: Some(self.subject()), ..StepFields::default() }
    }

    /// Whether it removes nodes or pods. `lock-upgrades` blocks such steps.
    fn is_disruptive(&self) -> bool {
        false
    }

    /// Whether it creates the nodes of a group for the first time.
    fn creates_nodes(&self) -> bool {
        false
    }
}
