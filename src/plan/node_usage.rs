//! What a group uses of the budget of a rollout, and what the budget leaves to it.

use std::collections::{BTreeMap, BTreeSet};

/// Stands among the instances for the nodes of a batch.
pub const BATCH: &str = "batch";

/// The nodes of a group, as a plan saw them, and those that the plan replaces for a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// How many nodes the group is to have.
    pub desired: usize,
    /// How many of them are not available.
    pub unavailable: usize,
    /// Its nodes by zone, as far as their zones are known.
    pub zones: BTreeMap<String, ZoneUsage>,
    /// How many of its nodes are in standby beside their replacements.
    pub surging: usize,
    /// The instances that are being replaced, or that are leaving, and [`BATCH`] while a batch is replaced.
    pub in_progress: BTreeSet<String>,
    /// The nodes that this plan begins to replace for the rollout, by instance.
    pub begins: BTreeMap<String, NodeStart>,
    /// How many nodes a step replaces at once if AWS or the strategy `crd` replaces them; `None` where the controller
    /// replaces them one by one.
    pub batch: Option<usize>,
    /// How the plan would replace further nodes if the budget left them.
    pub waits_for: BTreeSet<NodeStart>,
}

/// The nodes of a group in one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUsage {
    /// How many nodes the group has in the zone.
    pub nodes: usize,
    /// Those that are not available.
    pub unavailable: usize,
}

/// How the replacement of a node begins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStart {
    /// It is drained, in this zone, and is unavailable from then on.
    Drain(String),
    /// The instance stays in standby until its replacement is Ready.
    Surge,
}

/// How many nodes a group may begin to replace now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The budget that limits them, as a phrase for messages. It has no number that changes.
    pub budget: String,
    /// In all zones together; `None` for any number.
    pub nodes: Option<usize>,
    /// By zone; `None` for any number. One may be replaced in a zone that is not listed, because no other node is
    /// there.
    pub zones: Option<BTreeMap<String, usize>>,
    /// How many more nodes may be in standby; `None` for any number.
    pub surge: Option<usize>,
}

impl Allowance {
    /// Uses the allowance for a node. Returns whether it allows the node.
    pub(crate) fn spend(&mut self, begin: &NodeStart) -> bool {
        match begin {
            NodeStart::Surge => spend_one(self.surge.as_mut()),
            NodeStart::Drain(zone) => {
                let of_zone = self.zones.as_mut().map(|zones| zones.entry(zone.clone()).or_insert(1));
                if self.nodes == Some(0) || of_zone.as_ref().is_some_and(|left| **left == 0) {
                    return false;
                }
                spend_one(self.nodes.as_mut()) && spend_one(of_zone)
            }
        }
    }
}

fn spend_one(left: Option<&mut usize>) -> bool {
    match left {
        None => true,
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
    }
}
