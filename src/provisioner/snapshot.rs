//! What a plan was made from, for whoever asks what comes after it.

use serde::Serialize;

use super::PlanContext;
use crate::api::InstanceGroupStatus;
use crate::aws::LaunchTemplate;
use crate::aws::MixedPolicy;
use crate::plan::{Drift, Outcome, Plan, PlannedStep};

/// A node that goes, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReplacement {
    /// `i-...`
    pub instance: String,
    /// Its node; absent when it never joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why.
    pub reasons: Vec<Drift>,
}

/// What a first plan leads to.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The steps of later passes, up to where nodes, or AWS, have to be waited for.
    pub steps: Vec<PlannedStep>,
    /// How the group stands then.
    pub outcome: Outcome,
    /// Nodes that would be replaced.
    pub replacements: Vec<NodeReplacement>,
    /// How many nodes may be unavailable at once; 0 where that is another controller's to decide.
    pub max_unavailable: usize,
    /// Nodes that go for good, because the group is to be smaller.
    pub scale_in: usize,
}

/// What becomes of one scaling group.
#[derive(Clone, Debug, PartialEq)]
pub enum Release {
    /// It is pinned to the newest version, and can follow `$Latest` without any difference.
    Follow {
        /// The launch template.
        template: String,
        /// The version that it is pinned to.
        number: i64,
        /// Its mixed instances policy, which goes with the pin.
        mixed: Option<MixedPolicy>,
    },
    /// There is nothing to hand back.
    Nothing(&'static str),
    /// Nobody knows whether it is pinned, because the group cannot be looked at.
    Skipped(String),
    /// Nodes are being replaced: what is half done is finished by whoever began it.
    Rotating(String),
    /// `$Latest` would be another version than the pinned one.
    Older {
        /// The version that it is pinned to.
        number: i64,
        /// The newest one.
        latest: i64,
    },
}

/// What is wanted and what there is of one group, whichever provisioner keeps it.
pub trait PlanSnapshot: Send + Sync {
    /// The cluster that the group is of.
    fn cluster(&self) -> &str;
    /// What the passes after a first plan would do.
    fn simulate(&self, first: &Plan, given: &PlanContext) -> Projection;
    /// The launch template of its own that the group has, if it has any.
    fn launch_template(&self) -> Option<&LaunchTemplate> {
        None
    }
    /// What has to be undone before the controller before this one can go on with the group.
    fn release(&self, _: &InstanceGroupStatus) -> Release {
        Release::Nothing("has nothing that its former controller does not know")
    }
}
