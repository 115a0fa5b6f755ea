//! Logs, metrics and the HTTP server that serves them.

pub mod logging;
pub mod metrics;
pub mod process;
pub mod server;
