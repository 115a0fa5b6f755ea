//! A wrapper for values that must never appear in a log, an event, a status or a metric.

use std::fmt;

use serde::{Serialize, Serializer};

/// The text that replaces a redacted value.
pub(crate) const REDACTED: &str = "[redacted]";

/// A value that prints and serializes as `[redacted]`; only [`Redacted::expose`] returns it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Wraps a value, which then prints as `[redacted]`.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Only code that sends it to AWS or hashes it may call this.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Redacted<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl<T> Serialize for Redacted<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_value_prints_and_serializes_as_placeholder() {
        let secret = Redacted::new("canary".to_owned());
        assert_eq!(format!("{secret}"), REDACTED);
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)).matches("canary").count(), 0);
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"[redacted]\"");
        assert_eq!(secret.expose(), "canary");
    }
}
