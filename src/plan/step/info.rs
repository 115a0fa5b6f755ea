//! The description that every step has, independent of its topic.

use crate::plan::event::Event;

/// Name, subject and event of a step, and what the step does to nodes.
pub trait StepInfo {
    /// Name from a closed set, for logs, metrics and `instance-manager plan`.
    fn name(&self) -> &'static str;

    /// The object that the step changes, in one phrase.
    fn subject(&self) -> String;

    /// The event that `kubectl describe` shows once the step is done; `reasons` is empty when the step has none.
    fn event(&self, reasons: &str) -> Option<Event>;

    /// Whether it removes nodes or pods. `lock-upgrades` blocks such steps.
    fn is_disruptive(&self) -> bool {
        false
    }

    /// Whether it creates the nodes of a group for the first time.
    fn creates_nodes(&self) -> bool {
        false
    }
}
