//! One check of `preflight` and its result.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Finding {
    /// The check passed.
    Ok,
    /// Information that needs no action.
    Note,
    /// The check could not be made.
    Unknown,
    /// Something is missing and must be fixed before the cut-over.
    Missing,
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PreflightCheck {
    /// The area: `kubernetes`, `crd`, `permissions`, `aws`, `iam`, `writers` or `groups`.
    pub area: &'static str,
    /// Whether the check passed; decides the exit status.
    pub finding: Finding,
    /// The details, with the remedy if there is one.
    pub message: String,
}

impl PreflightCheck {
    pub(super) fn new(area: &'static str, finding: Finding, message: impl Into<String>) -> Self {
        PreflightCheck { area, finding, message: message.into() }
    }
}
