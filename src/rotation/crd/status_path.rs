//! Path of the status in a resource, with the syntax that keikoproj/instance-manager accepts.

use serde_json::Value;

/// Field names from the root of a resource to its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPath(Vec<String>);

impl StatusPath {
    /// Parses `.status.phase`, optionally with a leading `$` and in braces; `None` when it is not a path to one field.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text).trim();
        let text = text.strip_prefix('$').unwrap_or(text);
        let names: Vec<_> = text.strip_prefix('.').unwrap_or(text).split('.').map(str::to_owned).collect();
        let plain = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/'))
        };
        names.iter().all(plain).then_some(StatusPath(names))
    }

    /// The scalar at the path as text; empty if the field does not exist.
    ///
    /// # Errors
    /// The value is a list or an object; the error names which.
    pub(crate) fn read(&self, resource: &Value) -> Result<String, &'static str> {
        let found = self.0.iter().try_fold(resource, |value, name| value.get(name));
        match found {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(scalar @ (Value::Bool(_) | Value::Number(_))) => Ok(scalar.to_string()),
            Some(Value::Array(_)) => Err("a list"),
            Some(Value::Object(_)) => Err("an object"),
        }
    }
}

impl std::fmt::Display for StatusPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ".{}", self.0.join("."))
    }
}
