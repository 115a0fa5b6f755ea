//! One difference between the observed and the desired state: the reason for a step.

use serde::Serialize;

/// The field of the launch template version that a scaling group is pinned to.
pub(crate) const TEMPLATE_VERSION: &str = "template version";

/// One difference between the observed and the desired state.
///
/// ```
/// use instance_manager::plan::Drift;
///
/// assert_eq!(Drift::new("image", "ami-1", "ami-2").to_string(), "image: ami-1 -> ami-2");
/// assert_eq!(Drift::new("tags.team", "", "web").to_string(), "tags.team: (none) -> web");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The field, named as in the InstanceGroup, for example `image`.
    pub field: String,
    /// The observed value; empty when there is none.
    pub from: String,
    /// The desired value; empty when there is none.
    pub to: String,
}

impl Drift {
    /// A difference in one field.
    pub fn new(field: impl Into<String>, from: impl ToString, to: impl ToString) -> Self {
        Drift { field: field.into(), from: from.to_string(), to: to.to_string() }
    }
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} -> {}", self.field, display_or_none(&self.from), display_or_none(&self.to))
    }
}

fn display_or_none(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}
