//! Subnets that leave a scaling group.
//!
//! "You change the Availability Zones" is the first cause of rebalancing (Amazon EC2 Auto Scaling User Guide, "Auto
//! Scaling benefits", Rebalancing activities): Auto Scaling would empty a removed zone without a drain. It does not
//! redistribute instances while AZRebalance is suspended ("Suspend and resume processes"), and launches only into the
//! group's subnets. So AZRebalance is suspended first, then the smaller list is set, and the rotation replaces the nodes
//! in the removed subnets. AZRebalance resumes when no instance is left in them.
//!
//! The status records the removed subnets, and a tag of the scaling group shows who suspended AZRebalance. If the
//! status is lost, the tag alone is enough to continue: every instance outside of the desired subnets is then in a
//! removed one.
//!
//! AWS does not document what happens to instances of a removed subnet while another subnet serves the same zone. They
//! are replaced in the same way.

use std::collections::BTreeSet;

use crate::api::InstanceGroupStatus;
use crate::api::names::tag;
use crate::aws::{Instance, InstanceState, ScalingGroup, Tag};
use crate::plan::Drift;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::ResolvedGroup;

/// The process that balances the zones of a group.
const REBALANCING: &str = "AZRebalance";

/// The tag of a scaling group whose AZRebalance the controller suspends because subnets leave.
pub(crate) fn suspension_tag() -> Tag {
    Tag { key: tag::SUSPENDED_FOR_SUBNETS.into(), value: REBALANCING.into() }
}

/// Whether the scaling group has the tag.
pub(crate) fn has_suspension_tag(group: &ScalingGroup) -> bool {
    group.tags.contains(&suspension_tag())
}

/// Subnets of the scaling group, and subnets that it had, which the spec does not list.
pub(crate) fn removed_subnets(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Vec<String> {
    let present = state.scaling_group.iter().flat_map(|g| &g.subnets);
    let has_suspension_tag = state.scaling_group.as_ref().is_some_and(has_suspension_tag);
    let of_instances = state.instance_subnets.values().filter(|_| has_suspension_tag);
    undesired_subnets(resolved, present.chain(recorded(status)).chain(of_instances))
}

/// Subnets that have left the scaling group, but may still have instances.
pub(crate) fn detached_subnets(
    resolved: &ResolvedGroup,
    group: &ScalingGroup,
    status: &InstanceGroupStatus,
) -> Vec<String> {
    undesired_subnets(resolved, recorded(status).filter(|subnet| !group.subnets.contains(subnet)))
}

/// The removed subnets while the scaling group or one of its instances uses any of them. An instance whose subnet is not
/// known may be in any of them.
pub(crate) fn in_use(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> Vec<String> {
    let Some(group) = &state.scaling_group else { return Vec::new() };
    let removed = removed_subnets(resolved, state, status);
    let is_used = |subnet: &String| group.subnets.contains(subnet) || may_have_instances(state, subnet);
    if removed.iter().any(is_used) { removed } else { Vec::new() }
}

/// Why an instance is replaced although it launched from the desired version: its subnet leaves.
pub(crate) fn instance_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    instance: &Instance,
) -> Option<Drift> {
    let subnet = state.instance_subnets.get(&instance.id)?;
    let leaves = removed_subnets(resolved, state, status).contains(subnet);
    leaves.then(|| Drift::new("subnets", subnet, resolved.subnets.join(", ")))
}

/// Whether the desired subnets differ from those of the group and may be set. Added subnets are set at once. A removal
/// waits until AZRebalance is suspended, and while a lock blocks changes of the nodes in the removed subnets.
pub(crate) fn may_be_set(input: &PlanInput, group: &ScalingGroup) -> bool {
    let desired = &input.resolved.subnets;
    let removes = group.subnets.iter().any(|subnet| !desired.contains(subnet));
    let is_suspended = || group.suspended_processes.iter().any(|process| process == REBALANCING);
    group.subnets != *desired && (!removes || is_empty(group) || (is_suspended() && !is_locked(input)))
}

/// How the subnets of the group differ from the desired ones.
pub(crate) fn drift(input: &PlanInput, group: &ScalingGroup) -> Drift {
    Drift::new("subnets", group.subnets.join(", "), input.resolved.subnets.join(", "))
}

/// The processes to suspend: those of the spec, and AZRebalance while subnets leave.
pub(crate) fn desired_processes(input: &PlanInput, group: &ScalingGroup) -> BTreeSet<String> {
    let mut processes = input.resolved.desired.suspended_processes.clone();
    if suspends_rebalancing(input, group) {
        processes.insert(REBALANCING.into());
    }
    processes
}

/// The processes that the controller records as suspended by itself. AZRebalance is not among them if another client
/// suspended it and the spec does not list it: it stays suspended afterwards.
pub(crate) fn recorded_processes(input: &PlanInput) -> Vec<String> {
    let desired = &input.resolved.desired.suspended_processes;
    let Some(group) = &input.observed.scaling_group else { return desired.iter().cloned().collect() };
    let mut processes = desired_processes(input, group);
    processes.retain(|process| desired.contains(process) || !group.suspended_processes.contains(process));
    processes.into_iter().collect()
}

/// Whether AZRebalance is or becomes suspended by this controller, and only because subnets leave. The spec may have listed
/// it until now.
pub(crate) fn is_own_suspension(input: &PlanInput, group: &ScalingGroup) -> bool {
    let is_recorded = || input.status.managed.iter().flat_map(|m| &m.processes).any(|process| process == REBALANCING);
    let is_suspended = group.suspended_processes.iter().any(|process| process == REBALANCING);
    suspends_rebalancing(input, group)
        && !input.resolved.desired.suspended_processes.contains(REBALANCING)
        && (!is_suspended || is_recorded())
}

/// Whether AZRebalance stays suspended because of removed subnets, also if the spec does not list it.
pub(crate) fn suspends_rebalancing(input: &PlanInput, group: &ScalingGroup) -> bool {
    if has_suspension_tag(group) && has_unknown_subnet(input.observed) {
        return true;
    }
    let in_use = in_use(input.resolved, input.observed, input.status);
    let has_left = in_use.iter().any(|subnet| !group.subnets.contains(subnet));
    has_left || (!in_use.is_empty() && !is_empty(group) && !is_locked(input))
}

/// Whether a lock blocks changes of nodes in the removed subnets.
fn is_locked(input: &PlanInput) -> bool {
    let has_instances = || {
        let removed = removed_subnets(input.resolved, input.observed, input.status);
        removed.iter().any(|subnet| may_have_instances(input.observed, subnet))
    };
    input.lock.is_some() && has_instances()
}

/// Whether the group has no instances and launches none.
fn is_empty(group: &ScalingGroup) -> bool {
    group.desired == 0 && group.instances.is_empty() && group.warm_pool.is_none()
}

fn may_have_instances(state: &ObservedState, subnet: &str) -> bool {
    let may_be_in = |instance: &Instance| state.instance_subnets.get(&instance.id).is_none_or(|found| found == subnet);
    staying_instances(state).any(may_be_in)
}

fn has_unknown_subnet(state: &ObservedState) -> bool {
    staying_instances(state).any(|instance| !state.instance_subnets.contains_key(&instance.id))
}

/// The instances of the group and of its warm pool, without those that are being terminated.
fn staying_instances(state: &ObservedState) -> impl Iterator<Item = &Instance> {
    let members = state.scaling_group.iter().flat_map(|g| &g.instances);
    let warm = state.warm_instances.iter().flatten().map(|warm| &warm.instance);
    members.chain(warm).filter(|instance| instance.state != InstanceState::Terminating)
}

fn recorded(status: &InstanceGroupStatus) -> impl Iterator<Item = &String> {
    status.managed.iter().flat_map(|managed| &managed.leaving_subnets)
}

fn undesired_subnets<'a>(resolved: &ResolvedGroup, subnets: impl Iterator<Item = &'a String>) -> Vec<String> {
    let undesired: BTreeSet<_> = subnets.filter(|subnet| !resolved.subnets.contains(subnet)).collect();
    undesired.into_iter().cloned().collect()
}
