//! The library's types of AWS with its own samples, which it compiles for its unit tests alone.

pub use instance_manager::aws::*;

#[path = "../../src/aws/samples.rs"]
pub mod samples;
