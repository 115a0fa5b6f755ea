//! What is wrong with a merged spec, told so that a person can mend it.

use serde::Serialize;

use crate::plan::Reason;

/// The rule of [`Problem::missing`].
const REQUIRED_RULE: &str = "is required";

/// One thing that is wrong with a merged spec: where, what, which rule, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpecError {
    /// Which outcome it leads to.
    pub reason: Reason,
    /// Dotted path into the InstanceGroup.
    pub path: String,
    /// The offending value, never user data; empty when it is missing.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// What a person can do.
    pub remedy: String,
}

impl SpecError {
    /// A value that breaks a rule.
    pub fn invalid(path: &str, value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        SpecError {
            reason: Reason::InvalidSpec,
            path: path.into(),
            value: value.to_string(),
            rule: rule.into(),
            remedy: remedy.into(),
        }
    }

    /// A required value that neither the tenant nor a default gives.
    pub fn missing(path: &str) -> Self {
        Self::invalid(
            path,
            "",
            REQUIRED_RULE,
            "set it in the InstanceGroup, or ask your cluster admin for a default of it",
        )
    }

    /// Whether a required value is not there.
    pub fn is_missing(&self) -> bool {
        self.value.is_empty() && self.rule == REQUIRED_RULE
    }

    /// A problem whose own words name field, rule and remedy.
    pub fn from_message(message: impl ToString) -> Self {
        SpecError {
            reason: Reason::InvalidSpec,
            path: String::new(),
            value: String::new(),
            rule: message.to_string(),
            remedy: String::new(),
        }
    }

    /// The same problem with another outcome.
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.rule)
        } else if self.value.is_empty() {
            write!(f, "{} {}; {}", self.path, self.rule, self.remedy)
        } else {
            write!(f, "{} `{}` {}; {}", self.path, self.value, self.rule, self.remedy)
        }
    }
}

/// The outcome of several problems is that of the first.
pub fn first_reason(problems: &[SpecError]) -> Reason {
    problems.first().map_or(Reason::InvalidSpec, |p| p.reason)
}

/// Several problems as one message.
pub fn join_messages(problems: &[SpecError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
}

/// Collects what is wrong, so that a person mends everything in one go.
pub struct SpecErrors {
    base_path: &'static str,
    errors: Vec<SpecError>,
}

impl SpecErrors {
    /// None yet. Fields are named from `base_path` on, the dotted path of what is parsed.
    pub fn under(base_path: &'static str) -> Self {
        SpecErrors { base_path, errors: Vec::new() }
    }

    /// A field's value that breaks a rule.
    pub fn push_invalid(
        &mut self,
        field: &str,
        value: impl ToString,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push_error(SpecError::invalid(&self.field_path(field), value, rule, remedy));
    }

    /// A required field that neither the tenant nor a default gives.
    pub fn push_missing(&mut self, field: &str) {
        self.push_error(SpecError::missing(&self.field_path(field)));
    }

    /// What is wrong somewhere else.
    pub fn push_error(&mut self, problem: SpecError) {
        self.errors.push(problem);
    }

    /// What is wrong with something that was parsed by itself.
    pub fn extend(&mut self, problems: Vec<SpecError>) {
        self.errors.extend(problems);
    }

    /// A field's text; empty, and a problem, where there is none.
    pub fn required(&mut self, field: &str, value: &Option<String>) -> String {
        non_empty(value).unwrap_or_else(|| {
            self.push_missing(field);
            String::new()
        })
    }

    /// A field's items; none, and a problem, where there are none.
    pub fn required_list(&mut self, field: &str, value: &Option<Vec<String>>) -> Vec<String> {
        let items = non_empty_items(value);
        if items.is_empty() {
            self.push_missing(field);
        }
        items
    }

    /// What was parsed, unless anything is wrong with it.
    ///
    /// # Errors
    /// Everything that is wrong, in the order in which it was found.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<SpecError>> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }

    fn field_path(&self, field: &str) -> String {
        format!("{}.{field}", self.base_path)
    }
}

/// A text that is there; an empty one counts as absent, as it does for the tenant who writes it.
pub fn non_empty(value: &Option<String>) -> Option<String> {
    value.as_ref().filter(|v| !v.is_empty()).cloned()
}

/// The items of a list that are not empty.
pub fn non_empty_items(value: &Option<Vec<String>>) -> Vec<String> {
    value.iter().flatten().filter(|v| !v.is_empty()).cloned().collect()
}
