//! The one table of fields whose feature is not there yet. A group that uses
//! one is `Stalled`, reason `NotSupported`; its sizes, its aws-auth entry and
//! its deletion go on.

use std::collections::BTreeMap;

use super::Problem;
use crate::api::InstanceGroupSpec;
use crate::plan::Reason;

/// One row: the field, what is missing, and whether a merged spec uses it.
pub struct Row {
    /// Dotted path, as documented.
    pub field: &'static str,
    /// What is not there, in words.
    pub feature: &'static str,
    uses: fn(&InstanceGroupSpec, &BTreeMap<String, String>) -> bool,
}

/// Everything that answers `NotSupported`.
pub const TABLE: &[Row] = &[];

/// What a merged spec uses of [`TABLE`].
pub fn unsupported(spec: &InstanceGroupSpec, annotations: &BTreeMap<String, String>) -> Vec<Problem> {
    TABLE
        .iter()
        .filter(|row| (row.uses)(spec, annotations))
        .map(|row| Problem {
            reason: Reason::NotSupported,
            path: row.field.into(),
            value: String::new(),
            rule: format!("needs {}, which this release does not have", row.feature),
            remedy: "remove it, or keep this group with its present controller; sizes, joining and deletion go on"
                .into(),
        })
        .collect()
}
