//! Whether this process may write: leader election, and detection of other controllers.

pub mod election;
pub mod other_controller;
