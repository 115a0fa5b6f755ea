//! How nodes are replaced: pure decisions over instances, nodes, policy and now.
//!
//! The record of a disruption is on the Node; nothing here remembers.

pub mod crd;
pub mod drain;
pub mod members;
pub mod rolling_update;

#[cfg(test)]
mod tests;

pub use members::{ClusterHealth, DisruptionRecord, DrainView, Drains, NodeInstance, NodeView, PodView, SurgeRecord};
