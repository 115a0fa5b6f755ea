//! The instance manager: a Kubernetes controller for groups of worker nodes.
//!
//! A reconcile is one pass: merge, observe, resolve, plan, apply, report. Decisions are pure functions; only observe and
//! apply do I/O.

pub mod api;
pub mod apply;
pub mod auth;
pub mod aws;
pub mod boundaries;
pub mod cli;
pub mod controller;
pub mod index;
pub(crate) mod k8s;
pub(crate) mod leader;
pub mod lock;
pub mod ownership;
pub mod plan;
pub mod provisioner;
pub(crate) mod rollout;
pub mod rotation;
pub mod settings;
pub(crate) mod telemetry;
pub mod util;
