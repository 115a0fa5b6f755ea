//! The launch template of a group: its creation, its versions, and how they differ from the spec.

pub(crate) mod create;
pub(crate) mod default_volume;
pub(crate) mod drift;
pub(crate) mod fingerprint;
pub mod launch_checks;
pub(crate) mod node_labels;
pub(crate) mod pin_state;
pub(crate) mod tags;
pub(crate) mod versions;
