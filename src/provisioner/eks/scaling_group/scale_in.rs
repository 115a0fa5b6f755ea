//! A smaller `maxSize`. Sent at once, Auto Scaling would take nodes undrained: desired falls with it, and whoever weighs
//! no more than what is there beyond desired may go.

use crate::aws::{Instance, InstanceState, ScalingGroup};
use crate::plan::{Draft, Phase, waiting};
use crate::provisioner::eks::input::Input;

/// What counts in desired, in its units, and the least that one instance of it weighs.
fn there(group: &ScalingGroup) -> (i64, i64) {
    let counts = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let weights = || group.instances.iter().filter(counts).map(|i| i64::from(i.weight.max(1)));
    (weights().sum(), weights().min().unwrap_or(1))
}

/// The wanted largest size, or as much more as no node has to go for.
pub fn max(input: &Input, group: &ScalingGroup) -> i32 {
    let (there, lightest) = there(group);
    let desired = i64::from(group.desired);
    // What is about to come may be there by the time that the size is.
    let coming = there < desired && input.state.short_for < input.timing.shortfall;
    let safe = if coming { desired } else { there - lightest + 1 };
    let safe = i32::try_from(safe).unwrap_or(group.max).min(group.max);
    input.resolved.wanted.max.max(safe)
}

/// How many units are more than the wanted largest size, while the group's own is larger.
pub fn surplus(input: &Input, group: &ScalingGroup) -> usize {
    let max = input.resolved.wanted.max;
    if group.max <= max {
        return 0;
    }
    let (there, lightest) = there(group);
    // Whole nodes beyond desired are Auto Scaling's own to take, as the one that it added to balance zones.
    let its_own = (there - i64::from(group.desired)).max(0) / lightest * lightest;
    usize::try_from(there - its_own - i64::from(max)).unwrap_or(0)
}

/// Says that the largest size is still to be sent, when nothing else is to be done until it may be.
pub fn wait(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let wanted = input.resolved.wanted.max;
    if max(input, group) > wanted {
        draft.decide(waiting(
            Phase::Modifying,
            format!("maxSize {wanted} is set when Auto Scaling takes no node for it; it is about to launch or to take some by itself"),
        ));
    }
}
