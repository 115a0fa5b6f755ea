//! The commands. Each takes its parsed arguments and returns an exit code.

pub mod args;
pub mod crd;
pub mod explain;
pub mod input;
pub mod lint;
pub mod output;
pub mod plan;
pub mod preflight;
pub mod reconcile;
pub mod release;
pub mod render;
pub mod run;
mod settings;
pub mod status;
