//! The IAM role of the nodes: creation, and cleanup of the roles that the group used before.

pub mod create;
pub mod previous_roles;
