//! Lowers `maxSize` safely. Set directly, it would lower the desired capacity too, and Auto Scaling would terminate
//! nodes without a drain.

use crate::aws::{Instance, InstanceState, ScalingGroup};
use crate::plan::{Phase, PlanBuilder, waiting};
use crate::provisioner::eks::input::PlanInput;

/// The capacity that counts towards desired, and the smallest weight of an instance; both in capacity units.
fn current_capacity(group: &ScalingGroup) -> (i64, i64) {
    let counts = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let weights = || group.instances.iter().filter(counts).map(|i| i64::from(i.weight.max(1)));
    (weights().sum(), weights().min().unwrap_or(1))
}

/// The desired `maxSize`, or the smallest larger value for which Auto Scaling terminates no node.
pub(crate) fn safe_max_size(input: &PlanInput, group: &ScalingGroup) -> i32 {
    let (current, lightest) = current_capacity(group);
    let desired = i64::from(group.desired);
    // Instances that are about to launch may run by the time that the size is set.
    let is_launching = current < desired && input.observed.shortage_duration < input.timing.launch_shortfall;
    let safe = if is_launching { desired } else { current - lightest + 1 };
    let safe = i32::try_from(safe).unwrap_or(group.max).min(group.max);
    input.resolved.desired.max_size.max(safe)
}

/// How many capacity units exceed the desired `maxSize`, while the observed `maxSize` is larger.
pub(crate) fn surplus(input: &PlanInput, group: &ScalingGroup) -> usize {
    let max = input.resolved.desired.max_size;
    if group.max <= max {
        return 0;
    }
    let (current, lightest) = current_capacity(group);
    // Auto Scaling itself removes whole nodes beyond desired, for example one that it added to balance zones.
    let its_own = (current - i64::from(group.desired)).max(0) / lightest * lightest;
    usize::try_from(current - its_own - i64::from(max)).unwrap_or(0)
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
