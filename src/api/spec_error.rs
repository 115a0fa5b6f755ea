//! Errors in a merged spec: what is wrong, where, and what to do.

use serde::Serialize;

use crate::plan::StalledReason;
use crate::util::escape::escape_control;

/// Who can set a required value that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingValue {
    /// The tenant, or the admin with a default.
    Anyone,
    /// Only the admin, because the field is restricted.
    Admin,
    /// Only the tenant, because there is no ConfigMap of boundaries.
    Tenant,
}

impl MissingValue {
    /// The rule and the remedy, for one field or for several ones.
    fn texts(self, is_one: bool) -> (&'static str, &'static str) {
        match (self, is_one) {
            (MissingValue::Anyone, true) => {
                ("is required", "set it in the InstanceGroup, or ask your cluster admin for a default")
            }
            (MissingValue::Anyone, false) => {
                ("are required", "set them in the InstanceGroup, or ask your cluster admin for defaults")
            }
            (MissingValue::Admin, true) => {
                ("is required, and tenants may not set it", "ask your cluster admin for a default")
            }
            (MissingValue::Admin, false) => {
                ("are required, and tenants may not set them", "ask your cluster admin for defaults")
            }
            (MissingValue::Tenant, true) => (
                "is required",
                "set it in the InstanceGroup; the controller finds no ConfigMap instance-manager, which could give a default",
            ),
            (MissingValue::Tenant, false) => (
                "are required",
                "set them in the InstanceGroup; the controller finds no ConfigMap instance-manager, which could give defaults",
            ),
        }
    }
}

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
    pub reason: StalledReason,
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
    /// Who can set the value, where it is missing; `None` for a value that violates a rule.
    #[serde(skip)]
    pub(crate) missing: Option<MissingValue>,
}

impl SpecError {
    /// A value that violates a rule.
    pub fn invalid(path: &str, value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy: String = remedy.into();
        SpecError {
            reason: StalledReason::InvalidSpec,
            path: path.into(),
            value: value.to_string().into(),
            rule: rule.into(),
            remedy: remedy.into(),
            admin_source: None,
            author_path: None,
            compared_with: None,
            missing: None,
        }
    }

    /// A value that the admin's policy does not allow.
    pub(crate) fn policy_violation(path: &str, value: &str, rule: String, remedy: String) -> Self {
        Self::invalid(path, value, rule, remedy).with_reason(StalledReason::PolicyViolation)
    }

    /// A required value that neither the tenant nor a default sets.
    pub(crate) fn missing(path: &str) -> Self {
        Self::invalid(path, "", "", "").missing_for(MissingValue::Anyone)
    }

    /// The same error of a missing value, which these can set.
    pub(crate) fn missing_for(mut self, who: MissingValue) -> Self {
        let (rule, remedy) = who.texts(true);
        (self.rule, self.remedy, self.missing) = (rule.into(), remedy.into(), Some(who));
        self
    }

    /// An error whose message already contains field, rule and remedy.
    pub(crate) fn from_message(message: impl ToString) -> Self {
        SpecError {
            reason: StalledReason::InvalidSpec,
            path: String::new(),
            value: Box::default(),
            rule: message.to_string(),
            remedy: Box::default(),
            admin_source: None,
            author_path: None,
            compared_with: None,
            missing: None,
        }
    }

    /// The same error, which compares the value with that of another field.
    pub(crate) fn compared_with(mut self, field: ComparedField) -> Self {
        self.compared_with = Some(field);
        self
    }

    /// The same error with another reason.
    pub fn with_reason(mut self, reason: StalledReason) -> Self {
        self.reason = reason;
        self
    }
}

impl SpecError {
    /// The path as the author of the value knows it.
    fn shown_path(&self) -> String {
        escape_control(self.author_path.as_deref().unwrap_or(&self.path)).to_string()
    }

    /// Where the admin wrote it; empty for what the tenant wrote.
    fn source_clause(&self, subject: &str) -> String {
        let source = self.admin_source.as_ref();
        let clause = |source| format!("; {subject} your cluster admin's: {source} in the ConfigMap instance-manager");
        source.map(clause).unwrap_or_default()
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.shown_path();
        if path.is_empty() {
            return f.write_str(&self.rule);
        }
        let subject = match self.value.is_empty() {
            true => {
                write!(f, "{path} {}; {}", self.rule, self.remedy)?;
                "it is"
            }
            false => {
                write!(f, "{path} `{}` {}; {}", self.value, self.rule, self.remedy)?;
                "the value is"
            }
        };
        f.write_str(&self.source_clause(subject))
    }
}

/// The reason of the first error, which becomes the reason of the outcome.
pub(crate) fn first_reason(errors: &[SpecError]) -> StalledReason {
    errors.first().map_or(StalledReason::InvalidSpec, |p| p.reason)
}

/// All errors as one message. Values that are missing for the same reason have one sentence.
pub fn join_messages(errors: &[SpecError]) -> String {
    let is_alike = |one: &SpecError, other: &SpecError| {
        one.missing.is_some() && (one.missing, &one.admin_source) == (other.missing, &other.admin_source)
    };
    let mut sentences: Vec<Vec<&SpecError>> = Vec::new();
    for error in errors {
        match sentences.iter_mut().find(|alike| is_alike(alike[0], error)) {
            Some(alike) => alike.push(error),
            None => sentences.push(vec![error]),
        }
    }
    sentences.into_iter().map(|alike| sentence(&alike)).collect::<Vec<_>>().join(". ")
}

/// One sentence about one error, or about several values that are missing for the same reason.
fn sentence(errors: &[&SpecError]) -> String {
    let [first, .., last] = errors else { return errors.iter().map(ToString::to_string).collect() };
    let Some((rule, remedy)) = first.missing.map(|who| who.texts(false)) else { return first.to_string() };
    let paths: Vec<_> = errors[..errors.len() - 1].iter().map(|error| error.shown_path()).collect();
    let source = first.source_clause("they are");
    format!("{} and {} {rule}; {remedy}{source}", paths.join(", "), last.shown_path())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Five times the same remedy hides the names of the fields.
    #[test]
    fn values_that_are_missing_for_the_same_reason_have_one_sentence() {
        let missing = |fields: &[&str]| fields.iter().map(|field| SpecError::missing(field)).collect::<Vec<_>>();
        let wrong = SpecError::invalid("d", "x", "is wrong", "correct it");
        let restricted = SpecError::missing("e").missing_for(MissingValue::Admin);
        let errors = [missing(&["a", "b"]), vec![wrong, restricted], missing(&["c"])].concat();
        assert_eq!(
            join_messages(&errors),
            "a, b and c are required; set them in the InstanceGroup, or ask your cluster admin for defaults. d `x` is wrong; correct it. e is required, and tenants may not set it; ask your cluster admin for a default"
        );
        assert_eq!(join_messages(&missing(&["a"])), SpecError::missing("a").to_string());
    }
}
