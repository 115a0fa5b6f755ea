//! Small helpers without dependencies on the rest of the crate: digests, durations, lookups and redaction.

pub(crate) mod digest;
pub mod duration;
pub mod lookup;
pub(crate) mod redact;
