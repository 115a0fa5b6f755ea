//! Why a group does not switch to the newest revision now, and why no node of it is replaced.

use strum::IntoEnumIterator;

/// Why a group does not switch to the target now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The reason of the condition `RolloutPending`.
    pub reason: WaitReason,
    /// The message of the condition.
    pub message: String,
}

/// The reason of the condition `RolloutPending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumIter)]
pub(crate) enum WaitReason {
    /// The controller finds out what the target means for each group.
    Assessing,
    /// A wave before the group's has not passed.
    WaveNotOpen,
    /// As many groups of the wave replace nodes as may do so at once.
    WaveBusy,
    /// People paused the rollout.
    Paused,
    /// The rollout halted, because more groups failed than the policy allows or a check failed.
    Halted,
    /// The target is aborted.
    Aborted,
    /// `lock-upgrades` is set.
    Locked,
    /// The target failed on this group before.
    FailedBefore,
    /// The group could not use it.
    CannotUse,
    /// An order leaves the group out.
    LeftOut,
    /// No node was replaced for as long as the policy's patience.
    Stuck,
    /// The live ConfigMap is broken, missing, or locked by `lock-upgrades`, or a stored revision cannot be read.
    ConfigMapUnusable,
    /// The content that the group has is not stored.
    RevisionUnknown,
    /// No window is open.
    WindowClosed,
    /// A freeze forbids it.
    Frozen,
    /// The tenant put it off.
    Deferred,
    /// The tenant has not approved it.
    ApprovalNeeded,
    /// As many nodes of the cluster are unavailable as the budget allows.
    BudgetUsedUp,
}

impl WaitReason {
    /// Whether the group's wave does not wait for it.
    pub(crate) fn is_bypassed(self) -> bool {
        match self {
            Self::Locked
            | Self::FailedBefore
            | Self::CannotUse
            | Self::LeftOut
            | Self::Stuck
            | Self::Deferred
            | Self::ApprovalNeeded
            | Self::RevisionUnknown => true,
            Self::Assessing
            | Self::WaveNotOpen
            | Self::WaveBusy
            | Self::Paused
            | Self::Halted
            | Self::Aborted
            | Self::WindowClosed
            | Self::Frozen
            | Self::BudgetUsedUp
            | Self::ConfigMapUnusable => false,
        }
    }
}

/// Whether a reason of the condition `RolloutPending` announces a revision that is still to come to the group. A return, a
/// failure and a lost revision have events of their own.
pub(crate) fn is_announced(reason: &str) -> bool {
    let found = WaitReason::iter().find(|found| found.to_string() == reason);
    found.is_some_and(|found| match found {
        WaitReason::WaveNotOpen
        | WaitReason::WaveBusy
        | WaitReason::WindowClosed
        | WaitReason::Frozen
        | WaitReason::Deferred
        | WaitReason::ApprovalNeeded
        | WaitReason::BudgetUsedUp
        | WaitReason::Paused
        | WaitReason::Locked
        | WaitReason::LeftOut
        | WaitReason::CannotUse => true,
        WaitReason::Assessing
        | WaitReason::Halted
        | WaitReason::Aborted
        | WaitReason::FailedBefore
        | WaitReason::Stuck
        | WaitReason::ConfigMapUnusable
        | WaitReason::RevisionUnknown => false,
    })
}

/// Whether a reason of that condition means that the controller still finds out what a revision means for the group.
pub(crate) fn is_assessing(reason: Option<&str>) -> bool {
    reason == Some(WaitReason::Assessing.to_string().as_str())
}

/// Why no node of a group is replaced now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RotationBlock {
    /// A phrase for messages.
    pub why: String,
    /// Whether nodes in mid-drain are uncordoned. Otherwise what has begun is finished.
    pub uncordons: bool,
}
