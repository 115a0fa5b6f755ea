//! What AWS or Kubernetes has refused for so long that a rotation does not wait for it with cordoned nodes.

use jiff::Timestamp;

use super::stalled_reason::StalledReason;

/// A refusal that lasts, as the next plan takes it into account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PersistentFailure {
    /// Nothing is refused, or not for long.
    #[default]
    None,
    /// A step before the rotation is refused each time, so the rotation does not continue.
    Pass,
    /// A step of the rotation itself was refused. It is not tried again before `until`, because each try drains nodes.
    Rotation {
        /// When the rotation continues.
        until: Timestamp,
        /// Reason of the `Stalled` condition.
        reason: StalledReason,
        /// What was refused, and the remedy.
        message: String,
        /// Whether the rotation continues earlier, as soon as the missing permission is restored.
        is_watched: bool,
    },
}

impl PersistentFailure {
    /// Why no node may be drained now, for the condition.
    pub(crate) fn rotation_blocker(&self) -> Option<(StalledReason, String)> {
        let PersistentFailure::Rotation { until, reason, message, is_watched } = self else { return None };
        let until = crate::api::rfc3339(*until);
        let next = match is_watched {
            true => format!("continues within a minute after the permission is restored, or is tried again at {until}"),
            false => format!("is tried again at {until}"),
        };
        Some((*reason, format!("{message}; nodes in progress were uncordoned, and the rotation {next}")))
    }

    /// When a rotation that was refused is tried again.
    pub(crate) fn retry_at(&self) -> Option<Timestamp> {
        match self {
            PersistentFailure::Rotation { until, .. } => Some(*until),
            PersistentFailure::None | PersistentFailure::Pass => None,
        }
    }
}
