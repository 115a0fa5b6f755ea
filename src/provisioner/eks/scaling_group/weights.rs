//! Holds back instance weights that would make Auto Scaling terminate nodes without a drain.
//!
//! "When you add or change weights, Amazon EC2 Auto Scaling will launch or terminate instances to reach the desired
//! capacity based on the new weight values" (Amazon EC2 Auto Scaling User Guide, "Configure an Auto Scaling group to use
//! instance weights"). The desired capacity belongs to the autoscaler, so only sizes of the spec can raise it: a larger
//! `minSize` in the same call does.

use std::collections::BTreeSet;

use super::{mixed_instances, scale_in};
use crate::aws::{MixedPolicy, ScalingGroup};
use crate::plan::{Outcome, Phase, StalledReason, waiting};
use crate::provisioner::eks::desired::MAX_INSTANCE_TYPES;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::rotation::outdated;

/// Why the desired policy may not be set yet; `None` if it may be.
pub(crate) fn blocker(input: &PlanInput, group: &ScalingGroup) -> Option<Outcome> {
    let policy = mixed_instances::desired_policy(input, Some(group), false)?;
    if mixed_instances::drift(group.mixed.as_ref(), Some(&policy)).is_empty() {
        return None;
    }
    unlisted_types(input, group, &policy).or_else(|| excess_capacity(input, group, &policy))
}

/// Weights that are new to a group must cover all types that run in it (same page). The policy lists them until then;
/// only those that it has no room for are replaced first.
fn unlisted_types(input: &PlanInput, group: &ScalingGroup, policy: &MixedPolicy) -> Option<Outcome> {
    if !policy.weighted || group.mixed.as_ref().is_some_and(|mixed| mixed.weighted) {
        return None;
    }
    let running: BTreeSet<_> = scale_in::counted(group).map(|i| i.instance_type.as_str()).collect();
    let listed = |name: &&str| policy.overrides.iter().any(|o| o.instance_type == **name);
    let missing: Vec<_> = running.into_iter().filter(|name| !listed(name)).collect();
    if missing.is_empty() {
        return None;
    }
    let types = missing.join(", ");
    let members = outdated::members(input.resolved, input.observed, input.status);
    let mut of_missing = members.iter().filter(|m| missing.contains(&m.instance.instance_type.as_str()));
    if of_missing.all(|m| !m.reasons.is_empty()) {
        let message =
            format!("waiting to set the weights of mixedInstancesPolicy until no node of type {types} is left");
        return Some(waiting(Phase::Rotating, message));
    }
    Some(blocked(format!(
        "AWS accepts new weights only with all instance types that run in the group, and at most {MAX_INSTANCE_TYPES} types; {types} runs, too; list fewer types in mixedInstancesPolicy.instanceTypes until the weights are set"
    )))
}

/// With the new weights, the running nodes would exceed the desired capacity by at least one node.
fn excess_capacity(input: &PlanInput, group: &ScalingGroup, policy: &MixedPolicy) -> Option<Outcome> {
    let weights: Vec<_> =
        scale_in::counted(group).map(|i| (i64::from(i.weight), scale_in::new_weight(policy, i))).collect();
    if weights.iter().all(|(old, new)| new <= old) {
        return None;
    }
    if scale_in::is_launching(input, group) {
        let message =
            "waiting to set the weights of mixedInstancesPolicy until Auto Scaling has launched its instances";
        return Some(waiting(Phase::Modifying, message));
    }
    let desired =
        i64::from(group.desired.max(input.resolved.desired.min_size).min(scale_in::safe_max_size(input, group)));
    let capacity: i64 = weights.iter().map(|(_, new)| new).sum();
    let lightest = weights.iter().map(|(_, new)| *new).min()?;
    (capacity - desired >= lightest).then(|| {
        let nodes = weights.len();
        blocked(format!(
            "with the weights of mixedInstancesPolicy, the {nodes} nodes count for {capacity} units, but the desired capacity is {desired}; AWS would terminate nodes without draining them; change the weights together with minSize {capacity} and a maxSize of at least {capacity}; minSize may be lowered afterwards"
        ))
    })
}

fn blocked(message: String) -> Outcome {
    Outcome::Blocked { reason: StalledReason::InvalidSpec, message, is_deleting: false }
}
