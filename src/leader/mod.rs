//! Whether this process may write: leader election, and detection of other controllers.

pub(crate) mod election;
pub(crate) mod other_controller;
