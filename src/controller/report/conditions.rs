//! Conditions of an outcome, and the events of their transitions.

use serde_json::{Value, json};

use super::outcome::missing_permissions;
use crate::api::names::condition;
use crate::api::{Condition, InstanceGroupStatus};
use crate::apply::Applied;
use crate::boundaries::OverriddenValue;
use crate::ownership;
use crate::plan::{ConditionUpdate, Outcome, StalledReason};
use crate::util::text::shorten;

/// The result of merging the boundaries into one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundariesSummary {
    /// Hash of the merged spec; empty without boundaries.
    pub hash: String,
    /// Differs when the merged spec does, annotations aside. Only comparable within one process.
    pub spec_fingerprint: u64,
    /// Revision of the active boundaries; empty without boundaries.
    pub revision: String,
    /// Values that the tenant set and that the boundaries replaced, or that have no effect.
    pub overridden: Vec<OverriddenValue>,
    /// Why the last known good revision is active; `None` when the live ConfigMap is.
    pub last_known_good: Option<String>,
}

/// How many nodes of a group are ready.
pub(super) struct Readiness {
    /// Whether all desired nodes are ready.
    pub all: bool,
    /// The number of ready nodes as text; empty when it is not known.
    pub message: String,
}

/// The conditions Ready, Reconciling and Stalled of an outcome, and of what stands beside it. `failure` is the reason if
/// AWS is why the group makes no progress.
pub(super) fn standard_conditions(
    outcome: &Outcome,
    failure: Option<&str>,
    others: &[Outcome],
    ready: &Readiness,
) -> [Condition; 3] {
    let all = |ready, reconciling, stalled, reason: &str, message: &str| {
        [
            Condition::new(condition::READY, ready, reason, message),
            Condition::new(condition::RECONCILING, reconciling, reason, if reconciling { message } else { "" }),
            Condition::new(condition::STALLED, stalled, reason, if stalled { message } else { "" }),
        ]
    };
    match outcome {
        Outcome::Converged | Outcome::Deleted => all(true, false, false, "Ready", &ready.message),
        Outcome::Progressing { phase, message, .. } => {
            let reason = failure.map_or_else(|| format!("{phase:?}"), str::to_owned);
            all(false, true, false, &reason, message)
        }
        Outcome::Locked { message } => locked_conditions(message, others, ready),
        Outcome::Blocked { reason, message, .. } => {
            all(false, false, true, &reason.to_string(), &truncate(&with_others(message, others)))
        }
    }
}

/// The conditions of a locked group. The lock is not a failure: the group is Ready while its nodes are.
fn locked_conditions(message: &str, others: &[Outcome], ready: &Readiness) -> [Condition; 3] {
    let problem = others.iter().position(|other| other.stalled_reason().is_some());
    let wait = others.iter().find_map(|other| match other {
        Outcome::Progressing { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let wait = wait.filter(|_| problem.is_none());
    let (reason, text) = match problem.map(|index| (&others[index], &others[index + 1..])) {
        Some((Outcome::Blocked { reason, message, .. }, rest)) => {
            (reason.to_string(), truncate(&with_others(message, rest)))
        }
        _ => (condition::LOCKED.to_owned(), String::new()),
    };
    let counts = Some(ready.message.as_str()).filter(|counts| !counts.is_empty());
    let cause = Some(text.as_str()).filter(|text| !text.is_empty());
    let ready_message = truncate(&counts.into_iter().chain(cause).chain([message]).collect::<Vec<_>>().join("; "));
    [
        Condition::new(condition::READY, ready.all && problem.is_none(), &reason, ready_message),
        Condition::new(condition::RECONCILING, wait.is_some(), condition::LOCKED, wait.unwrap_or_default()),
        Condition::new(condition::STALLED, problem.is_some(), &reason, text),
    ]
}

/// A message, and the other problems with their reasons.
fn with_others(message: &str, others: &[Outcome]) -> String {
    let others = others.iter().filter_map(|other| match other {
        Outcome::Blocked { reason, message, .. } => Some(format!("; also {reason}: {message}")),
        _ => None,
    });
    std::iter::once(message.to_owned()).chain(others).collect()
}

/// The condition `Locked` of an outcome.
pub(super) fn locked_update(outcome: &Outcome) -> ConditionUpdate {
    let (status, reason, message) = match outcome {
        Outcome::Locked { message } => (true, condition::LOCKED, message.clone()),
        _ => (false, "NotLocked", String::new()),
    };
    ConditionUpdate { condition_type: condition::LOCKED, status, reason: reason.into(), message }
}

/// The update of `BoundariesApplied` for a group that is not merged, because no boundaries are known: its last value
/// about the boundaries is no longer valid.
pub(super) fn boundaries_unavailable_update(outcome: &Outcome) -> Option<ConditionUpdate> {
    let Outcome::Blocked { reason: reason @ StalledReason::BoundariesUnavailable, message, .. } = outcome else {
        return None;
    };
    let (condition_type, reason) = (condition::BOUNDARIES_APPLIED, reason.to_string());
    Some(ConditionUpdate { condition_type, status: false, reason, message: truncate(message) })
}

/// Why the condition `BoundariesApplied` has its status. `StalledReason::BoundariesUnavailable` is another one.
#[derive(Clone, Copy)]
pub(super) enum BoundariesReason {
    /// The boundaries were applied.
    Applied,
    /// No boundaries apply to the group.
    NoBoundaries,
    /// They were applied, and replaced values of the tenant.
    TenantValuesOverridden,
    /// The live ConfigMap cannot be used, so an earlier revision was applied.
    UsingLastKnownGood,
}

impl BoundariesReason {
    /// The reason as in a status.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            BoundariesReason::Applied => "Applied",
            BoundariesReason::NoBoundaries => "NoBoundaries",
            BoundariesReason::TenantValuesOverridden => "TenantValuesOverridden",
            BoundariesReason::UsingLastKnownGood => "UsingLastKnownGood",
        }
    }
}

pub(super) fn boundaries_condition(boundaries: &BoundariesSummary) -> Condition {
    if let Some(why) = &boundaries.last_known_good {
        let message = format!(
            "the controller uses the last known good boundaries, because {why}; edits of the ConfigMap have no effect until a cluster admin corrects it"
        );
        let reason = BoundariesReason::UsingLastKnownGood;
        return Condition::new(condition::BOUNDARIES_APPLIED, false, reason.as_str(), message);
    }
    let listed: Vec<_> = boundaries.overridden.iter().map(ToString::to_string).collect();
    let (reason, message) = match (listed.is_empty(), boundaries.revision.is_empty()) {
        (false, _) => (BoundariesReason::TenantValuesOverridden, truncate(&listed.join("; "))),
        (true, true) => (BoundariesReason::NoBoundaries, "no boundaries apply to this group".to_owned()),
        (true, false) => (BoundariesReason::Applied, String::new()),
    };
    Condition::new(condition::BOUNDARIES_APPLIED, true, reason.as_str(), message)
}

/// Adds the missing tag permissions to the condition `Adopted`.
pub(super) fn with_tag_denied(mut update: ConditionUpdate, applied: &Applied) -> ConditionUpdate {
    if update.condition_type == condition::ADOPTED && !applied.tag_denials.is_empty() {
        update.message += &format!(
            "; not tagged, which blocks deletion: the controller's IAM role lacks {}",
            missing_permissions(applied)
        );
        update.reason = condition::TAGGING_DENIED.into();
    }
    update
}

/// Whether a denial of tags stays as it was reported: a pass that failed before it tried the tags has nothing new to
/// report about them.
pub(super) fn keeps_tagging_denial(old: &InstanceGroupStatus, applied: &Applied) -> bool {
    !applied.is_complete() && ownership::is_tagging_denied(old)
}

/// Records whether AWS denied tagging, as the condition `Adopted` reports it. Without a record, nothing is adopted.
pub(super) fn record_tagging_denial(status: &mut Value, old: &InstanceGroupStatus, applied: &Applied) {
    let Some(managed) = status.get_mut("managed").and_then(Value::as_object_mut) else { return };
    let is_adoption = |update: &ConditionUpdate| update.condition_type == condition::ADOPTED;
    let is_reported = applied.plan.condition_updates.iter().any(is_adoption) && !keeps_tagging_denial(old, applied);
    let is_denied = if is_reported { !applied.tag_denials.is_empty() } else { ownership::is_tagging_denied(old) };
    match is_denied {
        true => managed.insert("taggingDenied".to_owned(), json!(true)),
        false => managed.remove("taggingDenied"),
    };
}

/// Limits a message to 2000 characters.
pub(super) fn truncate(text: &str) -> String {
    shorten(text, 2000)
}
