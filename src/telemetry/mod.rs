//! Logs, metrics and the HTTP server that serves them.

pub(crate) mod logging;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod server;
