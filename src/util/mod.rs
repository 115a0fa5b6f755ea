//! util

pub mod digest;
pub mod duration;
pub mod redact;
