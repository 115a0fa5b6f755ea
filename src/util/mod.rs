//! Small helpers that depend on nothing else in this crate.

pub mod digest;
pub mod duration;
pub mod lookup;
pub mod redact;
