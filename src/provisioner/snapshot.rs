//! The snapshot that a plan was made from, used to simulate later passes and to release a group.

use jiff::SignedDuration;
use serde::Serialize;

use super::plan_input::PlanContext;
use crate::api::InstanceGroupStatus;
use crate::aws::LaunchTemplate;
use crate::aws::MixedPolicy;
use crate::plan::{Drift, Outcome, Plan, PlannedStep, StalledReason};

/// A node that would be replaced, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReplacement {
    /// Id of the instance: `i-...`.
    pub instance: String,
    /// Name of its node; absent when it never joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Availability Zone, for example `us-west-2a`.
    pub zone: String,
    /// Reasons of the replacement.
    pub reasons: Vec<Drift>,
}

/// A node that would change in place, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeInPlaceChange {
    /// Id of the instance: `i-...`.
    pub instance: String,
    /// Name of its node; absent while it has not joined. It changes once it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The labels and taints that differ.
    pub reasons: Vec<Drift>,
}

/// The projected course of later passes.
#[derive(Clone, Debug)]
pub struct Projection {
    /// Steps of later passes, up to the point where they depend on nodes or on AWS.
    pub steps: Vec<PlannedStep>,
    /// Outcome at that point.
    pub outcome: Outcome,
    /// Nodes that would be replaced.
    pub replacements: Vec<NodeReplacement>,
    /// Nodes whose labels and taints would change in place.
    pub in_place: Vec<NodeInPlaceChange>,
    /// How many nodes may be unavailable at once; 0 when another controller decides.
    pub max_unavailable: usize,
    /// The limits of each replacement; `None` when the controller does not replace the nodes itself.
    pub limits: Option<ReplacementLimits>,
    /// Number of nodes that are removed without replacement, because the group is scaled in.
    pub scale_in: usize,
    /// Number of nodes whose pods AWS evicts at once, past every PodDisruptionBudget, although the nodes stay; 0 for a
    /// Fargate profile that is replaced. `None` when AWS evicts no pod.
    pub evictions: Option<usize>,
    /// How many nodes run in addition while nodes are replaced.
    pub extra_nodes: ExtraNodes,
    /// Why the nodes could not go back to what they are now; `None` when they could.
    pub irreversible: Option<&'static str>,
}

/// How many nodes run in addition while nodes of a group are replaced. While they do, no node is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtraNodes {
    /// None that is known: an old node is removed before its replacement comes, or another program replaces it.
    #[default]
    None,
    /// So many old nodes at once are in standby until their replacements are Ready.
    Surge(usize),
    /// A second group of as many nodes, until the old nodes are drained.
    SecondGroup,
}

/// How long the replacement of a node may take.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplacementLimits {
    /// How long a drain may take; `None` waits without limit.
    pub drain: Option<SignedDuration>,
    /// How long a replacement may take from InService to Ready before the rotation halts.
    pub join: SignedDuration,
}

/// What `instance-manager release` does with one group, so that the previous controller can manage it again.
#[derive(Clone, Debug, PartialEq)]
pub enum Release {
    /// The scaling group is pinned to the newest version, so switching it to `$Latest` changes no node.
    FollowLatest {
        /// Id of the launch template.
        template: String,
        /// The pinned version.
        number: i64,
        /// Its mixed instances policy, which contains the pin.
        mixed: Option<MixedPolicy>,
    },
    /// Nothing has to be changed; the text gives the reason.
    NotNeeded(&'static str),
    /// The group could not be read; the text gives the reason.
    Skipped(String),
    /// AWS or the API server did not answer, so nodes may be being replaced; the text is the error.
    Unknown(String),
    /// Nodes are being replaced; the rotation must finish first.
    RotationInProgress(String),
    /// The rollout has not brought it what the ConfigMap has; the text names its revision. The Keiko controller would
    /// bring it to all such groups at once.
    BehindConfigMap(String),
    /// The pinned version is older than `$Latest`, so switching would change nodes.
    PinnedToOlderVersion {
        /// The pinned version.
        number: i64,
        /// The newest version.
        latest: i64,
    },
}

/// Desired and observed state of one group, independent of the provisioner.
pub trait PlanSnapshot: Send + Sync {
    /// Name of the group's cluster.
    fn cluster(&self) -> &str;
    /// Why fields of the spec cannot be used, so that what depends on them stays as it is in AWS; `None` when all can.
    fn rejection(&self) -> Option<(StalledReason, String)>;
    /// Simulates the passes after `first`.
    fn simulate(&self, first: &Plan, context: &PlanContext) -> Projection;
    /// Whether the group launches nodes of its own, even if it has none now. A Fargate profile does not.
    fn has_nodes(&self) -> bool {
        true
    }
    /// Whether what launches the nodes is missing or being deleted. The replacement launches all nodes again.
    fn is_recreated(&self) -> bool {
        false
    }

    /// The group's own launch template; `None` without one.
    fn launch_template(&self) -> Option<&LaunchTemplate> {
        None
    }

    /// What must be changed before the Keiko controller can manage the group again.
    fn release(&self, _: &InstanceGroupStatus) -> Release {
        Release::NotNeeded("has nothing that the Keiko controller does not know")
    }
}
