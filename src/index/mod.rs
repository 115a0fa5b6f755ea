//! In-memory indexes of groups, nodes and events, and state that one process keeps between reconciles.

pub mod groups;
pub mod nodes;
pub mod process_state;
pub mod profile_queue;
pub mod shared_entries;
pub mod spot;
