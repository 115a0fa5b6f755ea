//! A smaller `maxSize`. Sent at once, Auto Scaling would take nodes undrained: desired falls with it, and whoever weighs
//! no more than what is there beyond desired may go.

use crate::aws::{Instance, InstanceState, ScalingGroup};
use crate::plan::{Phase, PlanBuilder, waiting};
use crate::provisioner::eks::input::PlanInput;

/// What counts in desired, in its units, and the least that one instance of it weighs.
fn current_capacity(group: &ScalingGroup) -> (i64, i64) {
    let counts = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let weights = || group.instances.iter().filter(counts).map(|i| i64::from(i.weight.max(1)));
    (weights().sum(), weights().min().unwrap_or(1))
}

/// The wanted largest size, or as much more as no node has to go for.
pub fn safe_max_size(input: &PlanInput, group: &ScalingGroup) -> i32 {
    let (there, lightest) = current_capacity(group);
    let desired = i64::from(group.desired);
    // What is about to come may be there by the time that the size is.
    let coming = there < desired && input.observed.shortage_duration < input.timing.launch_shortfall;
    let safe = if coming { desired } else { there - lightest + 1 };
    let safe = i32::try_from(safe).unwrap_or(group.max).min(group.max);
    input.resolved.desired.max_size.max(safe)
}

/// How many units are more than the wanted largest size, while the group's own is larger.
pub fn surplus(input: &PlanInput, group: &ScalingGroup) -> usize {
    let max = input.resolved.desired.max_size;
    if group.max <= max {
        return 0;
    }
    let (there, lightest) = current_capacity(group);
    // Whole nodes beyond desired are Auto Scaling's own to take, as the one that it added to balance zones.
    let its_own = (there - i64::from(group.desired)).max(0) / lightest * lightest;
    usize::try_from(there - its_own - i64::from(max)).unwrap_or(0)
}

/// Says that the largest size is still to be sent, when nothing else is to be done until it may be.
pub fn report_pending(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) {
    let wanted = input.resolved.desired.max_size;
    if safe_max_size(input, group) > wanted {
        draft.set_outcome_once(waiting(
            Phase::Modifying,
            format!("waiting to lower maxSize to {wanted}: Auto Scaling is still launching or terminating instances"),
        ));
    }
}
