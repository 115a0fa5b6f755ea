//! The instance manager: a Kubernetes controller for groups of worker nodes.
//!
//! A reconcile is data that walks down one corridor: merge, look up, resolve,
//! observe, plan, apply, report. Everything that decides is pure.

pub mod api;
pub mod apply;
pub mod auth;
pub mod aws;
pub mod boundaries;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod corridor;
pub mod digest;
pub mod duration;
pub mod groups;
pub mod http;
pub mod leader;
pub mod memory;
pub mod metrics;
pub mod nodes;
pub mod observe;
pub mod others;
pub mod plan;
pub mod problem;
pub mod provisioner;
pub mod redact;
pub mod report;
pub mod spot;
pub mod telemetry;
pub mod timing;
pub mod upgrade;
