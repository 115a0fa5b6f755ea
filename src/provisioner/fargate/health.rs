//! Turns failures of Fargate profiles into outcomes. Pure.

use jiff::Timestamp;

use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::plan::{Outcome, StalledReason};

/// The outcome for a profile that EKS failed to create or delete. `retry_at` is the time of the next attempt.
pub(crate) fn profile_failed(profile: &FargateProfile, retry_at: Timestamp, is_deleting: bool) -> Outcome {
    let verb = if profile.status == ProfileStatus::DeleteFailed { "delete" } else { "create" };
    let why = if profile.issues.is_empty() { "EKS gives no reason".into() } else { profile.issues.join("; ") };
    let message = format!(
        "EKS failed to {verb} the Fargate profile {}: {why}; fix the cause; the next attempt is after {}",
        profile.name,
        crate::api::rfc3339(retry_at)
    );
    Outcome::Blocked { reason: StalledReason::ProfileFailed, message, is_deleting }
}
