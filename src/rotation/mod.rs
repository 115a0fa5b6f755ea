//! Replacement of nodes: pure decisions over instances, nodes, policy and time.
//!
//! The record of a disruption is an annotation of the Node, so these modules keep no state.

pub mod crd;
pub(crate) mod drain;
pub(crate) mod members;
pub(crate) mod node_health;
pub mod rolling_update;
pub(crate) mod stale_nodes;

#[cfg(test)]
mod tests;

pub use members::{
    ClusterHealth, DisruptionRecord, DrainView, Drains, InPlaceUpdate, LostNode, NodeInstance, NodeView, PodView,
    SurgeRecord,
};
