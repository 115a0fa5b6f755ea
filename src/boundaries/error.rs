//! What is wrong with a ConfigMap, or hardly what its admin means.

/// Something in the ConfigMap that probably is not what was meant. It stops nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}: {message}; {remedy}", line_suffix(.line))]
pub struct ConfigWarning {
    /// Key of the ConfigMap.
    pub key: String,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Where.
    pub path: String,
    /// What is odd.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A ConfigMap that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {path}{}{message}; {remedy}", line_suffix(.line), if .path.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// Key of the ConfigMap.
    pub key: &'static str,
    /// Line within that key, counted from 1.
    pub line: Option<usize>,
    /// Where; empty for the whole key.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
    pub(super) reason: &'static str,
}

fn line_suffix(line: &Option<usize>) -> String {
    line.map(|line| format!(" line {line}")).unwrap_or_default()
}

impl ConfigError {
    /// `UnmarshalDefaults` for text that does not parse, `ApplyDefaults` for a selector that does not.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

/// What to do about a word that means nothing here.
pub(super) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(|| "remove it".to_owned(), |near| format!("did you mean {near:?}?"))
}
