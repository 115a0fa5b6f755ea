//! What the group uses of the budget of a rollout.

use super::health;
use super::input::PlanInput;
use super::observed::ObservedNodegroup;
use crate::aws::InstanceState;
use crate::aws::nodegroup::MaxUnavailable;
use crate::plan::{BATCH, NodeUsage};
use crate::rotation::NodeInstance;

/// The nodes of the group as the budget counts them. While EKS replaces nodes, as many as it may take at once count.
pub(super) fn node_usage(input: &PlanInput, serving: &ObservedNodegroup) -> NodeUsage {
    let desired = usize::try_from(serving.desired_size()).unwrap_or_default();
    let members = || input.observed.nodegroups.iter().flat_map(|group| &group.members);
    let available = members().filter(|m| m.is_available()).count();
    let mut usage = NodeUsage {
        desired,
        unavailable: desired.saturating_sub(available),
        batch: Some(max_unavailable_nodes(input.resolved.desired.max_unavailable, desired)),
        ..NodeUsage::default()
    };
    let lives = |m: &&NodeInstance| matches!(m.instance.state, InstanceState::InService | InstanceState::Pending);
    for member in members().filter(lives) {
        let zone = usage.zones.entry(member.instance.zone.clone()).or_default();
        zone.nodes += 1;
        zone.unavailable += usize::from(!member.is_available());
    }
    let is_replacing = health::is_update_in_progress(input)
        && input.observed.update.as_ref().is_some_and(health::is_version_update)
        && serving.members.iter().filter(lives).any(|member| health::runs_old_template(serving, member));
    if is_replacing {
        usage.in_progress.insert(BATCH.to_owned());
        usage.unavailable = usage.unavailable.max(usage.batch.unwrap_or_default());
    }
    usage
}

/// How many nodes EKS may take at once; without a setting it takes one (EKS API reference, NodegroupUpdateConfig).
pub(super) fn max_unavailable_nodes(max_unavailable: Option<MaxUnavailable>, nodes: usize) -> usize {
    let number = match max_unavailable {
        None => 1,
        Some(MaxUnavailable::Count(count)) => usize::try_from(count).unwrap_or(1),
        Some(MaxUnavailable::Percent(percent)) => (nodes * usize::try_from(percent).unwrap_or(1)).div_ceil(100),
    };
    number.max(1)
}
