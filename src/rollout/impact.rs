//! What the target of a rollout would change in a group.

use serde::Serialize;

use crate::util::counted::counted;

/// What the target would change in a group, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(crate) enum RevisionImpact {
    /// The impact has not been computed yet, or AWS did not answer.
    #[default]
    Unknown,
    /// The target changes nothing in the group.
    Untouched,
    /// The target changes the group, but replaces and removes no node, and evicts no pod.
    InPlace,
    /// The target replaces or removes nodes.
    Rotate {
        /// How many nodes.
        nodes: usize,
    },
    /// The target replaces no node, but pods leave all nodes at once, whatever their PodDisruptionBudgets allow.
    Evict {
        /// How many nodes the pods leave; 0 for a Fargate profile.
        nodes: usize,
    },
    /// The group could not use the target.
    CannotUse {
        /// The reason of the condition that the group would have.
        reason: String,
        /// The message of that condition.
        message: String,
    },
}

impl RevisionImpact {
    /// Whether the impact is computed again. AWS may answer now, or the cause may be gone: an image that was not
    /// shared, an exhausted quota.
    pub(crate) fn may_change(&self) -> bool {
        match self {
            Self::Unknown | Self::CannotUse { .. } => true,
            Self::Untouched | Self::InPlace | Self::Rotate { .. } | Self::Evict { .. } => false,
        }
    }

    /// This forecast, or the one before it while this one is not known.
    pub(crate) fn or(self, before: Self) -> Self {
        if self == Self::Unknown { before } else { self }
    }

    /// How many nodes it takes away, or takes the pods of; 0 where it is not known.
    pub(crate) fn nodes(&self) -> usize {
        match self {
            Self::Rotate { nodes } | Self::Evict { nodes } => *nodes,
            Self::Unknown | Self::Untouched | Self::InPlace | Self::CannotUse { .. } => 0,
        }
    }

    /// What a revision means for the group, in a sentence.
    pub(crate) fn describe(&self, revision: &str) -> String {
        match self {
            Self::Unknown => format!("it is not known what {revision} means for the group: AWS did not answer"),
            Self::Untouched => format!("{revision} does not change the group"),
            Self::InPlace => format!("{revision} changes the group in place"),
            Self::Rotate { nodes: 0 } => {
                format!("{revision} is for the next nodes of the group, and replaces no others")
            }
            Self::Rotate { nodes } => format!("{revision} replaces {}", counted(*nodes, "node")),
            Self::Evict { nodes: 0 } => format!("{revision} replaces the Fargate profile, which deletes its pods"),
            Self::Evict { nodes } => {
                format!("{revision} evicts pods from {} at once, past PodDisruptionBudgets", counted(*nodes, "node"))
            }
            Self::CannotUse { reason, message } => format!("the group cannot use {revision}: {reason}: {message}"),
        }
    }
}

/// An impact that was computed, with its inputs.
#[derive(Clone, Debug)]
pub(crate) struct KnownImpact {
    /// What the impact depends on, as text.
    pub inputs: String,
    /// The value of `orders.retries` at that time.
    pub retries: i64,
    /// What the target would change in the group, computed from these inputs.
    pub forecast: RevisionImpact,
}

impl KnownImpact {
    /// The impact, as far as it still holds. A group that cannot switch to the target counts until an admin resumes the
    /// rollout: otherwise the rollout would halt again at once.
    pub(crate) fn get(&self, inputs: &str, retries: i64) -> RevisionImpact {
        let is_retried = matches!(self.forecast, RevisionImpact::CannotUse { .. }) && self.retries != retries;
        if self.inputs != inputs || is_retried { RevisionImpact::Unknown } else { self.forecast.clone() }
    }
}
