//! Small helpers without dependencies on the rest of the crate: busy times, calendars, counted nouns, digests, durations,
//! escaping, lookups, recorded times, redaction and short texts.

pub(crate) mod busy_time;
pub(crate) mod calendar;
pub(crate) mod counted;
pub(crate) mod digest;
pub mod duration;
pub(crate) mod escape;
pub mod lookup;
pub(crate) mod recorded_time;
pub(crate) mod redact;
pub(crate) mod similar;
pub(crate) mod text;
