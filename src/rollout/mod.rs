//! Revisions of the boundaries: what is stored of each content of the ConfigMap, and what has to be done about it.
//!
//! The code is pure. `controller/revisions.rs` reads and writes the resources.

mod change;
mod history;

pub(crate) use change::changes;
pub(crate) use history::{Current, HistoryStep, next_step, sorted};
