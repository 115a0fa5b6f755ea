//! Errors and warnings about the ConfigMap.

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
    /// What is wrong.
    pub message: String,
    /// What the admin can do.
    pub remedy: String,
    pub(super) reason: &'static str,
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
