//! The IAM role of the nodes: creation, and cleanup of the roles that the group used before.

pub(crate) mod create;
pub(crate) mod previous_roles;
pub(crate) mod region;
pub(crate) mod unused;
