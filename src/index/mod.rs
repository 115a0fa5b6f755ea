//! In-memory indexes of groups, nodes and events, and state that one process keeps between reconciles.

pub(crate) mod cache_state;
pub(crate) mod clock_jumps;
pub(crate) mod denied_calls;
pub(crate) mod denied_rotations;
pub(crate) mod drain_clocks;
pub(crate) mod failure_streak;
pub mod groups;
pub(crate) mod image_aliases;
pub(crate) mod invalid_groups;
pub(crate) mod lost_instances;
pub(crate) mod nodes;
pub(crate) mod process_state;
pub(crate) mod profile_queue;
pub(crate) mod refused_tags;
pub(crate) mod rejected_changes;
pub(crate) mod rollout;
pub(crate) mod seen_names;
pub(crate) mod shared_entries;
pub(crate) mod spot;
pub(crate) mod write_memory;
