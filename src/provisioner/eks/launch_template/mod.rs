//! The launch template of a group: its creation, its versions, and how they differ from the spec.

pub mod create;
pub mod drift;
pub mod fingerprint;
pub mod launch_checks;
pub mod versions;
