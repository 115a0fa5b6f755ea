//! What makes nodes. Each provisioner has a folder with the same rooms:
//! `wanted` (the merged spec, parsed once), `observe`, `resolve`, `plan`.

pub mod eks;
pub mod supported;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::api::InstanceGroup;
use crate::api::names::FINALIZER;
use crate::plan::Reason;

/// Which InstanceGroup, as far as a plan must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; the record on a node carries it.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// When it was created; part of the launch template's name.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether our finalizer is on it.
    pub finalizer: bool,
    /// Its own annotations, before any merge.
    pub annotations: BTreeMap<String, String>,
}

impl GroupId {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The identity of a group, as far as a plan needs it.
pub fn identity(group: &InstanceGroup) -> GroupId {
    let meta = &group.metadata;
    GroupId {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        annotations: meta.annotations.clone().unwrap_or_default(),
    }
}

/// One thing that is wrong with a merged spec: where, what, which rule, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
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

impl Problem {
    /// A value that breaks a rule.
    pub fn invalid(path: &str, value: impl ToString, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        Problem {
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
            "is required",
            "set it in the InstanceGroup, or ask your cluster admin for a default of it",
        )
    }

    /// A problem whose own words name field, rule and remedy.
    pub fn told(message: impl ToString) -> Self {
        Problem {
            reason: Reason::InvalidSpec,
            path: String::new(),
            value: String::new(),
            rule: message.to_string(),
            remedy: String::new(),
        }
    }

    /// The same problem with another outcome.
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }
}

impl std::fmt::Display for Problem {
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

/// Several problems as one message.
pub fn sentence(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
}
