//! The commands; each takes its arguments and answers with an exit code.

pub mod args;
pub mod crd;
pub mod explain;
pub mod input;
pub mod plan;
pub mod preflight;
pub mod release;
pub mod render;
pub mod run;
mod settings;
