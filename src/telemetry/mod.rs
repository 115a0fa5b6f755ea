//! telemetry

pub mod logging;
pub mod metrics;
pub mod process;
pub mod server;
