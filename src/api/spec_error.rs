//! Errors in a merged spec: what is wrong, where, and what to do.

use serde::Serialize;

use crate::plan::Reason;
use crate::util::escape::escape_control;

/// The rule of [`SpecError::missing`].
const REQUIRED_RULE: &str = "is required";

/// A field that others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedField {
    /// Maximum size of a scaling group.
    MaxSize,
    /// Maximum size of a managed node group.
    NodegroupMaxSize,
}

impl ComparedField {
    /// Its dotted path in the InstanceGroup.
    pub(crate) fn path(self) -> &'static str {
        match self {
            ComparedField::MaxSize => "spec.eks.maxSize",
            ComparedField::NodegroupMaxSize => "spec.eks-managed.maxSize",
        }
    }
}

/// One error in a merged spec: where, which value, which rule, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpecError {
    /// Reason of the resulting outcome.
    pub reason: Reason,
    /// Dotted path in the InstanceGroup; empty when `rule` is the whole message.
    pub path: String,
    /// The invalid value, never user data; empty when it is missing.
    pub value: Box<str>,
    /// The rule that the value violates.
    pub rule: String,
    /// What the user can do.
    pub remedy: Box<str>,
    /// Where the cluster admin wrote the value; `None` for a value of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_source: Option<Box<str>>,
    /// The path as its author knows it, where the boundaries merged a list; `None` where `path` is right. The indexes
    /// of `path` are those of the merged list, which is in no manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author_path: Option<Box<str>>,
    /// Another field that the rule compares this value with; `None` for most rules.
    #[serde(skip)]
    pub compared_with: Option<ComparedField>,
}

impl SpecError {
    /// A value that violates a rule.
    pub fn invalid(path: &str, value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy: String = remedy.into();
        SpecError {
            reason: Reason::InvalidSpec,
            path: path.into(),
            value: value.to_string().into(),
            rule: rule.into(),
            remedy: remedy.into(),
            admin_source: None,
            author_path: None,
            compared_with: None,
        }
    }

    /// A value that the admin's policy does not allow.
    pub(crate) fn policy_violation(path: &str, value: &str, rule: String, remedy: String) -> Self {
        Self::invalid(path, value, rule, remedy).with_reason(Reason::PolicyViolation)
    }

    /// A required value that neither the tenant nor a default sets.
    pub(crate) fn missing(path: &str) -> Self {
        Self::invalid(path, "", REQUIRED_RULE, "set it in the InstanceGroup, or ask your cluster admin for a default")
    }

    /// Whether this is the error of a missing required value.
    pub(crate) fn is_missing(&self) -> bool {
        self.value.is_empty() && self.rule == REQUIRED_RULE
    }

    /// An error whose message already contains field, rule and remedy.
    pub(crate) fn from_message(message: impl ToString) -> Self {
        SpecError {
            reason: Reason::InvalidSpec,
            path: String::new(),
            value: Box::default(),
            rule: message.to_string(),
            remedy: Box::default(),
            admin_source: None,
            author_path: None,
            compared_with: None,
        }
    }

    /// The same error, which compares the value with that of another field.
    pub(crate) fn compared_with(mut self, field: ComparedField) -> Self {
        self.compared_with = Some(field);
        self
    }

    /// The same error with another reason.
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = escape_control(self.author_path.as_deref().unwrap_or(&self.path));
        if path.is_empty() {
            return f.write_str(&self.rule);
        }
        let author_of = match self.value.is_empty() {
            true => {
                write!(f, "{path} {}; {}", self.rule, self.remedy)?;
                "it"
            }
            false => {
                write!(f, "{path} `{}` {}; {}", self.value, self.rule, self.remedy)?;
                "the value"
            }
        };
        match &self.admin_source {
            Some(source) => {
                write!(f, "; {author_of} is your cluster admin's: {source} in the ConfigMap instance-manager")
            }
            None => Ok(()),
        }
    }
}

/// The reason of the first error, which becomes the reason of the outcome.
pub(crate) fn first_reason(errors: &[SpecError]) -> Reason {
    errors.first().map_or(Reason::InvalidSpec, |p| p.reason)
}

/// All errors as one message.
pub fn join_messages(errors: &[SpecError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
}

/// Collects all errors of a spec, so that the user can fix them at once.
pub(crate) struct SpecErrors {
    base_path: &'static str,
    errors: Vec<SpecError>,
}

impl SpecErrors {
    /// No errors. Field names are relative to `base_path`, the dotted path of the parsed value.
    pub(crate) fn under(base_path: &'static str) -> Self {
        SpecErrors { base_path, errors: Vec::new() }
    }

    /// Adds an error about a field whose value violates a rule.
    pub(crate) fn push_invalid(
        &mut self,
        field: &str,
        value: impl ToString,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push_error(SpecError::invalid(&self.field_path(field), value, rule, remedy));
    }

    /// Adds an error about a required field that neither the tenant nor a default sets.
    pub(crate) fn push_missing(&mut self, field: &str) {
        self.push_error(SpecError::missing(&self.field_path(field)));
    }

    /// Adds an error about any path.
    pub(crate) fn push_error(&mut self, error: SpecError) {
        self.errors.push(error);
    }

    /// The text of a required field; adds an error and returns an empty text when there is none.
    pub(crate) fn required(&mut self, field: &str, value: &Option<String>) -> String {
        non_empty(value).unwrap_or_else(|| {
            self.push_missing(field);
            String::new()
        })
    }

    /// The items of a required list; adds an error and returns an empty list when there are none.
    pub(crate) fn required_list(&mut self, field: &str, value: &Option<Vec<String>>) -> Vec<String> {
        let items = non_empty_items(value);
        if items.is_empty() {
            self.push_missing(field);
        }
        items
    }

    /// All errors, in the order in which they were found.
    pub(crate) fn into_errors(self) -> Vec<SpecError> {
        self.errors
    }

    fn field_path(&self, field: &str) -> String {
        format!("{}.{field}", self.base_path)
    }
}

/// The text, unless it is empty; an empty text means that the field is not set.
pub(crate) fn non_empty(value: &Option<String>) -> Option<String> {
    value.as_ref().filter(|v| !v.is_empty()).cloned()
}

/// The items of a list that are not empty.
pub(crate) fn non_empty_items(value: &Option<Vec<String>>) -> Vec<String> {
    value.iter().flatten().filter(|v| !v.is_empty()).cloned().collect()
}
