//! Waits for what the spec dropped right after it was set: AWS may not show it yet, and it would stay.

use std::collections::BTreeSet;

use crate::plan::{Outcome, Phase, waiting};

/// The outcome while AWS may still show names that the spec dropped. A group that is done reads older answers, and less
/// often.
pub(crate) fn outcome(unseen: &BTreeSet<String>) -> Option<Outcome> {
    let names: Vec<_> = unseen.iter().map(String::as_str).collect();
    let message = format!(
        "waiting for AWS to list what the spec no longer has, before the controller removes it: {}",
        names.join(", ")
    );
    (!names.is_empty()).then(|| waiting(Phase::Modifying, message))
}
