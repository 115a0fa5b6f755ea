//! Small helpers without dependencies on the rest of the crate: digests, durations, lookups and redaction.

pub mod digest;
pub mod duration;
pub mod lookup;
pub mod redact;
