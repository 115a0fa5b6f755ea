//! Errors and warnings about the ConfigMap.

use std::fmt;

use crate::api::names::fail_reason;

/// A probable mistake in the ConfigMap. The ConfigMap is used nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}{}{message}; {remedy}", line_suffix(.line), if .path.is_empty() { "" } else { ": " })]
pub struct ConfigWarning {
    /// Key of the ConfigMap.
    pub key: String,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Dotted path within that key; empty for the whole key.
    pub path: String,
    /// What is probably wrong.
    pub message: String,
    /// What the admin can do.
    pub remedy: String,
}

/// Maximum number of errors that are listed.
pub(super) const MAX_ERRORS: usize = 50;
/// Maximum number of errors in one message.
const MAX_ERRORS_PER_MESSAGE: usize = 20;

/// An error because of which the ConfigMap cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}{}{message}; {remedy}", line_suffix(.line), if .path.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// Key of the ConfigMap.
    pub key: &'static str,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Dotted path within that key; empty for the whole key.
    pub path: String,
    /// What is wrong, without key, line and path.
    pub message: String,
    /// What the admin can do.
    pub remedy: String,
    pub(super) reason: &'static str,
}

/// All errors of a ConfigMap, so that the admin can correct them at once, and the warnings beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The errors by key and line; at least one.
    pub errors: Vec<ConfigError>,
    /// How many more there are.
    pub omitted: usize,
    /// Warnings about keys and fields. Without all keys, nothing is known about their interplay.
    pub warnings: Vec<ConfigWarning>,
}

impl ConfigErrors {
    /// The reason of the first error.
    pub(crate) fn reason(&self) -> &'static str {
        self.errors.first().map_or(fail_reason::UNMARSHAL_DEFAULTS, ConfigError::reason)
    }

    /// What stands behind the listed errors when there are more; `None` otherwise.
    pub(crate) fn omission(&self) -> Option<String> {
        omission(self.omitted)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.errors.iter().take(MAX_ERRORS_PER_MESSAGE).map(ToString::to_string);
        let omitted = self.omitted + self.errors.len().saturating_sub(MAX_ERRORS_PER_MESSAGE);
        f.write_str(&listed.chain(omission(omitted)).collect::<Vec<_>>().join(". "))
    }
}

impl std::error::Error for ConfigErrors {}

fn omission(count: usize) -> Option<String> {
    (count > 0)
        .then(|| format!("There are {count} more errors; instance-manager lint shows them as these are corrected"))
}

/// Collects errors while parsing continues.
#[derive(Debug, Default)]
pub(super) struct ErrorList {
    errors: Vec<ConfigError>,
    omitted: usize,
}

impl From<ConfigError> for ErrorList {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], omitted: 0 }
    }
}

impl ErrorList {
    /// Adds an error, or counts it when there are many.
    pub(super) fn push(&mut self, error: impl Into<ErrorList>) {
        let added = error.into();
        self.errors.extend(added.errors);
        self.omitted += added.omitted + self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.truncate(MAX_ERRORS);
    }

    /// The value, or its error is added.
    pub(super) fn ok<T>(&mut self, result: Result<T, impl Into<ErrorList>>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// The value, or its error is added and the default stands in for it.
    pub(super) fn or_default<T: Default>(&mut self, result: Result<T, impl Into<ErrorList>>) -> T {
        self.ok(result).unwrap_or_default()
    }

    /// How many errors there are.
    pub(super) fn count(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// The value, if there is no error.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.count() == 0 { Ok(value) } else { Err(self) }
    }

    /// The errors in the order of `keys` and of their lines.
    pub(super) fn sorted(mut self, keys: &[&str], warnings: Vec<ConfigWarning>) -> ConfigErrors {
        self.errors.sort_by_key(|error| (keys.iter().position(|key| *key == error.key), error.line));
        ConfigErrors { errors: self.errors, omitted: self.omitted, warnings }
    }
}

fn line_suffix(line: &Option<usize>) -> String {
    line.map(|line| format!(" line {line}")).unwrap_or_default()
}

impl ConfigError {
    /// The reason label: `UnmarshalDefaults`, or `ApplyDefaults` for a selector that cannot be parsed.
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }
}

/// The remedy for an unknown name.
pub(super) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(|| "remove it".to_owned(), |near| format!("did you mean {near:?}?"))
}
