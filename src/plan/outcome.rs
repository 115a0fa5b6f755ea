//! The state of a group once its plan is applied. It decides the requeue, the conditions and `currentState`.

use jiff::SignedDuration;
use serde::Serialize;

use super::stalled_reason::StalledReason;

/// The state of a group once its plan is applied. It decides the requeue and the conditions.
///
/// ```
/// use instance_manager::plan::{Outcome, Phase, Recheck, StalledReason, waiting};
///
/// let launches = waiting(Phase::Creating, "waiting for 2 nodes"); // `Reconciling`, and looks again by itself
/// assert!(matches!(launches, Outcome::Progressing { recheck: Recheck::Poll, .. }));
///
/// let message = "spec.eks.minSize `5` is larger than spec.eks.maxSize (3); lower it".to_owned();
/// let rejected = Outcome::Blocked { reason: StalledReason::InvalidSpec, message, is_deleting: false }; // `Stalled`
/// assert_ne!(rejected, Outcome::Converged);
/// assert_eq!(StalledReason::InvalidSpec.to_string(), "InvalidSpec"); // the reason of the condition
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The observed state equals the desired state.
    Converged,
    /// A change is in progress, and later passes continue it.
    Progressing {
        /// The kind of change.
        phase: Phase,
        /// What the change does or waits for, for the `Reconciling` condition.
        message: String,
        /// When the next pass runs.
        recheck: Recheck,
    },
    /// Nodes are outdated, and `lock-upgrades` blocks their replacement.
    Locked {
        /// Which object carries the lock, and what it blocks.
        message: String,
    },
    /// The group cannot continue. Some reasons clear by themselves: see `controller::requeue::is_transient`.
    Blocked {
        /// Reason of the `Stalled` condition.
        reason: StalledReason,
        /// What is wrong, where, and what to do.
        message: String,
        /// The deletion of the group is blocked, not a change to it.
        is_deleting: bool,
    },
    /// All resources of the group are deleted.
    Deleted,
}

impl Outcome {
    /// What the group waits for, or why it is blocked; `None` for one that needs nothing.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Outcome::Progressing { message, .. } | Outcome::Blocked { message, .. } | Outcome::Locked { message } => {
                Some(message)
            }
            Outcome::Converged | Outcome::Deleted => None,
        }
    }

    /// The reason of the condition `Stalled`; `None` for a group that needs no manual intervention.
    pub(crate) fn stalled_reason(&self) -> Option<StalledReason> {
        match self {
            Outcome::Blocked { reason, .. } => Some(*reason),
            Outcome::Converged | Outcome::Progressing { .. } | Outcome::Locked { .. } | Outcome::Deleted => None,
        }
    }
}

/// Selects what is reported beside `outcome`, and exchanges `outcome` for its root cause. A blocked group reports each
/// reason once. A locked group reports what is wrong besides the lock, and with `nodes_missing` what it waits for.
pub(super) fn with_others(outcome: Outcome, later: Vec<Outcome>, nodes_missing: bool) -> (Outcome, Vec<Outcome>) {
    let outcome = waits_for_launches(&outcome, &later).unwrap_or(outcome);
    let is_reported = |other: &Outcome| match (&outcome, other) {
        (Outcome::Blocked { .. } | Outcome::Locked { .. }, Outcome::Blocked { is_deleting: false, .. }) => true,
        (Outcome::Locked { .. }, Outcome::Progressing { .. }) => nodes_missing,
        _ => false,
    };
    let mut reasons: Vec<_> = outcome.stalled_reason().into_iter().collect();
    let mut is_new = |other: &Outcome| {
        let Some(reason) = other.stalled_reason() else { return true };
        // Nodes that are not ready are named once.
        let is_known = reasons.contains(&reason)
            || (reason == StalledReason::NodesNotReady && reasons.contains(&StalledReason::ReplacementsNotReady));
        reasons.push(reason);
        !is_known
    };
    let mut others: Vec<_> = later.into_iter().filter(|other| is_reported(other) && is_new(other)).collect();
    let causes =
        |other: &Outcome| other.stalled_reason().zip(outcome.stalled_reason()).is_some_and(|(a, b)| a.causes(b));
    match others.iter().position(causes) {
        Some(index) => {
            let cause = others.remove(index);
            others.insert(0, outcome);
            (cause, others)
        }
        None => (outcome, others),
    }
}

/// The outcome of a rotation that waits for nodes while AWS launches none.
fn waits_for_launches(outcome: &Outcome, later: &[Outcome]) -> Option<Outcome> {
    let Outcome::Progressing { phase: Phase::Rotating, message: wait, recheck: Recheck::Poll } = outcome else {
        return None;
    };
    later.iter().find_map(|other| match other {
        Outcome::Blocked { reason, message, is_deleting: false } if reason.prevents_launches() => {
            let message = format!("{message}; until then, the rotation waits: {wait}");
            Some(Outcome::Blocked { reason: *reason, message, is_deleting: false })
        }
        _ => None,
    })
}

/// When the next pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recheck {
    /// Immediately: the next step needs only what this pass wrote.
    Immediately,
    /// After the poll interval of groups that are changing.
    Poll,
    /// After this duration, in seconds when serialized.
    After(#[serde(serialize_with = "serialize_seconds")] SignedDuration),
}

fn serialize_seconds<S: serde::Serializer>(d: &SignedDuration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_i64(d.as_secs())
}

/// The kind of change in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// The group's nodes are created for the first time.
    Creating,
    /// The group is changed in place, or waits for AWS or for nodes.
    Modifying,
    /// Nodes are being replaced.
    Rotating,
    /// The group's resources are being deleted.
    Deleting,
}
