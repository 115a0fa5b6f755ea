//! How instances are bought: the mixed instances policy that a group shall have, and how it differs from the one it has.

use super::plan::Input;
use crate::aws::{Distribution, MixedPolicy, Override, ScalingGroup};
use crate::plan::Drift;

/// The policy that the group shall have, if any.
pub fn policy(input: &Input, group: Option<&ScalingGroup>) -> Option<MixedPolicy> {
    let mixed = input.resolved.wanted.mixed.as_ref()?;
    let held = group.and_then(|g| g.mixed.as_ref());
    let mut distribution = mixed.distribution.clone();
    // Nobody asks us for a limit, so one that is there is somebody else's.
    distribution.spot_max_price = held.and_then(|h| h.distribution.spot_max_price.clone());
    Some(MixedPolicy { distribution, overrides: mixed.types.clone() })
}

/// Field by field, in the words of the spec.
pub fn drift(from: Option<&MixedPolicy>, to: Option<&MixedPolicy>) -> Vec<Drift> {
    let (before, after) = (shown(from), shown(to));
    let name = |field: &str| format!("mixedInstancesPolicy.{field}");
    let pairs = FIELDS.iter().zip(before.into_iter().zip(after));
    pairs.filter(|(_, (a, b))| a != b).map(|(field, (a, b))| Drift::new(name(field), a, b)).collect()
}

const FIELDS: [&str; 6] =
    ["strategy", "spotPools", "onDemandAllocationStrategy", "baseCapacity", "spotRatio", "instanceTypes"];

fn shown(policy: Option<&MixedPolicy>) -> [String; 6] {
    let Some(MixedPolicy { distribution, overrides }) = policy else { return Default::default() };
    let Distribution {
        on_demand_strategy,
        on_demand_base,
        on_demand_percent,
        spot_strategy,
        spot_pools,
        spot_max_price: _,
    } = distribution;
    [
        spot_strategy.clone(),
        spot_pools.map(|n| n.to_string()).unwrap_or_default(),
        on_demand_strategy.clone(),
        on_demand_base.to_string(),
        format!("{}%", 100 - on_demand_percent),
        once(overrides).iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    ]
}

/// The original lists its primary type twice; the first one counts.
fn once(overrides: &[Override]) -> Vec<&Override> {
    let mut seen: Vec<&Override> = Vec::new();
    for one in overrides {
        if !seen.iter().any(|o| o.instance_type == one.instance_type) {
            seen.push(one);
        }
    }
    seen
}
