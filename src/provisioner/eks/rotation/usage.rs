//! What the group uses of the budget of a rollout.

use crate::aws::{InstanceState, ScalingGroup};
use crate::plan::{BATCH, NodeUsage};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed::StrategyState;
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;
use crate::rotation::crd::decide::{self, StrategyResource};

use super::crd_strategy;

/// The nodes of the group as the budget counts them. A missing node is unavailable, and in no zone.
pub(super) fn node_usage(input: &PlanInput, group: &ScalingGroup, members: &[NodeInstance]) -> NodeUsage {
    let uid = &input.resolved.desired.id.uid;
    let heaviest = members.iter().map(NodeInstance::weight).max().unwrap_or(1);
    let nodes_of = |units: usize| units.div_ceil(heaviest);
    let desired = usize::try_from(group.desired).unwrap_or(0);
    let available: usize = members.iter().filter(|m| m.is_available()).map(NodeInstance::weight).sum();
    let short = desired.saturating_sub(available);
    let mut usage = NodeUsage { desired: nodes_of(desired), unavailable: nodes_of(short), ..NodeUsage::default() };
    for member in members {
        let is_leaving = member.instance.state == InstanceState::Terminating;
        let is_surging = member.has_surge_record(uid) && !is_leaving;
        let counts = match member.instance.state {
            InstanceState::InService | InstanceState::Pending => true,
            // One that is terminated without a replacement lacks nowhere.
            InstanceState::Terminating => short > 0,
            InstanceState::EnteringStandby | InstanceState::Standby | InstanceState::Warmed | InstanceState::Other => {
                false
            }
        };
        if counts {
            let zone = usage.zones.entry(member.instance.zone.clone()).or_default();
            zone.nodes += 1;
            zone.unavailable += usize::from(!member.is_available() && !is_surging);
        }
        usage.surging += usize::from(is_surging);
        if is_leaving || is_surging || member.disruption_of(uid).is_some() {
            usage.in_progress.insert(member.instance.id.clone());
        }
    }
    add_batch(input, members, &mut usage);
    usage
}

/// The resource of the strategy `crd` takes as many nodes at once as it likes. One that is active may be of a strategy that
/// the spec no longer has.
fn add_batch(input: &PlanInput, members: &[NodeInstance], usage: &mut NodeUsage) {
    let outdated = crd_strategy::outdated_count(members);
    usage.batch = input.resolved.desired.crd_strategy.as_ref().map(|_| outdated);
    if may_replace_nodes(input) {
        usage.in_progress.insert(BATCH.to_owned());
        usage.unavailable = usage.unavailable.max(outdated);
    }
}

/// Whether the strategy is `crd`, or may be although it cannot be used.
fn has_strategy(input: &PlanInput) -> bool {
    input.resolved.desired.crd_strategy.is_some() || input.resolved.broken.contains(Part::Rotation)
}

/// Whether a resource of the strategy may replace nodes now. The status records a submission in advance, and the
/// submission may wait for the budget. So the resources decide, and the record counts only where they could not be
/// read.
fn may_replace_nodes(input: &PlanInput) -> bool {
    match &input.observed.strategy_state {
        Some(StrategyState::Seen { resources, .. }) => resources.iter().any(StrategyResource::is_active),
        Some(StrategyState::Left(active)) => active.is_some(),
        // The spec names another strategy, and the status no resource that could be read.
        None if !has_strategy(input) => false,
        _ => decide::is_at_work(input.status),
    }
}
