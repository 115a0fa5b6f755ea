//! The state of a group once its plan is applied. It decides the requeue, the conditions and `currentState`.

use jiff::SignedDuration;
use serde::Serialize;

use super::reason::Reason;

/// The state of a group once its plan is applied. It decides the requeue and the conditions.
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
        reason: Reason,
        /// What is wrong, where, and what to do.
        message: String,
        /// The deletion of the group is blocked, not a change to it.
        is_deleting: bool,
    },
    /// All resources of the group are deleted.
    Deleted,
}

impl Outcome {
    /// The reason of the condition `Stalled`; `None` for a group that needs no manual intervention.
    pub(crate) fn stalled_reason(&self) -> Option<Reason> {
        match self {
            Outcome::Blocked { reason, .. } => Some(*reason),
            Outcome::Converged | Outcome::Progressing { .. } | Outcome::Locked { .. } | Outcome::Deleted => None,
        }
    }
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
