//! Lowers `maxSize` safely. Set directly, it would lower the desired capacity too, and Auto Scaling would terminate
//! nodes without a drain.
//!
//! AWS documents that TerminateInstanceInAutoScalingGroup can decrement the desired capacity, but not whether by one or
//! by the instance's weight. With weights, nodes are therefore removed so that both are right. The lightest ones are
//! removed first, one at a time. The desired capacity is then below the running capacity, but so little that Auto
//! Scaling terminates no node for it. By one, it then equals what is left, and no node is launched again. By the
//! weight, it stays as far below as before, which `minSize` must allow.

use super::mixed_instances;
use crate::aws::{Instance, InstanceState, MixedPolicy, ScalingGroup, ScalingGroupChange};
use crate::plan::{EksStep, NodeStep, Phase, PlanBuilder, waiting};
use crate::provisioner::eks::input::PlanInput;

/// The instances that count toward the desired capacity.
pub(crate) fn counted(group: &ScalingGroup) -> impl Iterator<Item = &Instance> {
    let counts = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    group.instances.iter().filter(counts)
}

/// Whether instances count for other units than one.
pub(crate) fn is_weighted(group: &ScalingGroup) -> bool {
    group.instances.iter().any(|i| i.weight > 1)
}

/// What an instance counts for once the policy is set. A type that is no longer listed keeps its weight (Amazon EC2 Auto
/// Scaling User Guide, "Configure an Auto Scaling group to use instance weights").
pub(crate) fn new_weight(policy: &MixedPolicy, instance: &Instance) -> i64 {
    let listed = policy.overrides.iter().find(|o| o.instance_type == instance.instance_type);
    let weight = if policy.weighted { listed.map_or(instance.weight, |o| o.weight) } else { 1 };
    i64::from(weight)
}

/// The smallest desired capacity for which Auto Scaling terminates no node once the policy is set; `None` unless the policy
/// changes, and its weights lower the capacity.
fn lowest_desired_after(group: &ScalingGroup, policy: &MixedPolicy) -> Option<i64> {
    if mixed_instances::drift(group.mixed.as_ref(), Some(policy)).is_empty() {
        return None;
    }
    let weights = || counted(group).map(|i| new_weight(policy, i));
    let (current, _) = current_capacity(group);
    let (after, lightest): (i64, _) = (weights().sum(), weights().min()?);
    (after < current).then_some(after - lightest + 1)
}

/// The capacity that counts toward desired, and the smallest weight of an instance; both in capacity units.
fn current_capacity(group: &ScalingGroup) -> (i64, i64) {
    let weights = || counted(group).map(|i| i64::from(i.weight.max(1)));
    (weights().sum(), weights().min().unwrap_or(1))
}

/// Whether Auto Scaling is about to launch instances, which may run by the time that a change is set.
pub(crate) fn is_launching(input: &PlanInput, group: &ScalingGroup) -> bool {
    let (current, _) = current_capacity(group);
    current < i64::from(group.desired) && input.observed.shortage_duration < input.timing.launch_shortfall
}

/// The smallest desired capacity for which Auto Scaling terminates none of the running nodes.
fn lowest_desired(group: &ScalingGroup) -> i64 {
    let (current, lightest) = current_capacity(group);
    current - lightest + 1
}

/// Whether Auto Scaling would terminate running nodes for a change, so that it would choose them and drain none. The last
/// node of a group with weights is drained before, and left to Auto Scaling.
pub(crate) fn would_terminate_nodes(group: &ScalingGroup, change: &ScalingGroupChange) -> bool {
    let Some(max) = change.max.filter(|max| *max < group.max) else { return false };
    let lowest = change.mixed.as_ref().and_then(|policy| lowest_desired_after(group, policy));
    let is_last = is_weighted(group) && counted(group).count() == 1;
    !is_last && i64::from(max) < lowest.unwrap_or_else(|| lowest_desired(group))
}

/// The desired `maxSize`, or the smallest larger value for which Auto Scaling terminates no node.
pub(crate) fn safe_max_size(input: &PlanInput, group: &ScalingGroup) -> i32 {
    let safe = if is_launching(input, group) { i64::from(group.desired) } else { lowest_desired(group) };
    let safe = i32::try_from(safe).unwrap_or(group.max).min(group.max);
    input.resolved.desired.max_size.max(safe)
}

/// The same where the policy is set in the same call. With smaller weights the nodes count for less: a `maxSize` by the
/// old ones would let Auto Scaling launch nodes that are surplus at once.
pub(crate) fn safe_max_size_with(input: &PlanInput, group: &ScalingGroup, policy: Option<&MixedPolicy>) -> i32 {
    let lowest = policy.and_then(|policy| lowest_desired_after(group, policy)).filter(|_| !is_launching(input, group));
    match lowest.and_then(|lowest| i32::try_from(lowest).ok()) {
        Some(lowest) => input.resolved.desired.max_size.max(lowest.min(group.max)),
        None => safe_max_size(input, group),
    }
}

/// The desired `minSize`; while nodes with weights are removed, a smaller one if a decrement by the weight needs it.
pub(crate) fn safe_min_size(input: &PlanInput, group: &ScalingGroup) -> i32 {
    let min_size = input.resolved.desired.min_size;
    let (_, lightest) = current_capacity(group);
    let removable = i64::try_from(surplus(input, group)).unwrap_or(0) >= lightest;
    if !is_weighted(group) || !removable {
        return min_size;
    }
    let desired = i64::from(group.desired.min(safe_max_size(input, group)));
    i32::try_from(desired - lightest).unwrap_or(0).clamp(0, min_size)
}

/// How many capacity units exceed the desired `maxSize`, while the observed `maxSize` is larger. None before smaller weights
/// are set, because the nodes count for less then.
pub(crate) fn surplus(input: &PlanInput, group: &ScalingGroup) -> usize {
    let max = input.resolved.desired.max_size;
    let desired_policy = mixed_instances::desired_policy(input, Some(group), false);
    let becomes_lighter = desired_policy.is_some_and(|policy| lowest_desired_after(group, &policy).is_some());
    if group.max <= max || becomes_lighter {
        return 0;
    }
    let (current, lightest) = current_capacity(group);
    // Auto Scaling itself removes whole nodes beyond desired, for example one that it added to balance zones.
    let its_own = (current - i64::from(group.desired)).max(0) / lightest * lightest;
    usize::try_from(current - its_own - i64::from(max)).unwrap_or(0)
}

/// Keeps the terminations with decrement that are right now; the others follow in later passes. The last node is left to
/// Auto Scaling: by its weight, the decrement would end below zero. Returns the step that does this.
pub(crate) fn pace_terminations(input: &PlanInput, group: &ScalingGroup, steps: &mut Vec<NodeStep>) -> Option<EksStep> {
    if !is_weighted(group) {
        return None;
    }
    let (_, lightest) = current_capacity(group);
    let weight_of = |id: &str| counted(group).find(|i| i.id == id).map_or(0, |i| i64::from(i.weight.max(1)));
    let is_low = i64::from(group.desired) <= lowest_desired(group);
    let may_be_lower = i64::from(group.min) <= i64::from(group.desired) - lightest;
    let is_last = counted(group).count() == 1 && lightest > 1;
    let (mut others, mut drains_last) = (false, false);
    steps.retain(|step| match step {
        NodeStep::Terminate { instance, decrement_desired: true, .. } => {
            let right = weight_of(instance) == lightest && is_low && may_be_lower && !others;
            others |= right;
            drains_last |= is_last;
            right
        }
        _ => true,
    });
    let max = Some(input.resolved.desired.max_size);
    let change = ScalingGroupChange { max, ..ScalingGroupChange::default() };
    drains_last.then(|| EksStep::UpdateGroup { group: group.name.clone(), change, pin: None })
}

/// Whether Auto Scaling is terminating the last node, which was drained for it.
pub(crate) fn removes_last(group: &ScalingGroup) -> bool {
    is_weighted(group) && group.max == 0 && counted(group).count() == 1
}

/// Reports that `maxSize` is not lowered yet, when nothing else decides the outcome.
pub(crate) fn report_pending(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let max_size = input.resolved.desired.max_size;
    if safe_max_size(input, group) > max_size {
        builder.set_outcome_once(waiting(
            Phase::Modifying,
            format!("waiting to lower maxSize to {max_size}: Auto Scaling is still launching or terminating instances"),
        ));
    }
}
