//! How instances are bought: the mixed instances policy that a group shall have, and how it differs from the one it has.

use serde_json::json;

use crate::aws::{Distribution, MixedPolicy, Override, ScalingGroup};
use crate::plan::{Draft, Drift};
use crate::provisioner::eks::input::Input;

/// The policy that the group shall have, if any. A pool stays what the group's policy holds of it: types that AWS has
/// launched since come with the next change of the group, which `changes` tells of, and never alone.
pub fn policy(input: &Input, group: Option<&ScalingGroup>, changes: bool) -> Option<MixedPolicy> {
    let held = group.and_then(|g| g.mixed.as_ref());
    let policy = with_pool(input, held, changes)?;
    if changes || drift(held, Some(&policy)).is_empty() {
        return Some(policy);
    }
    with_pool(input, held, true)
}

/// Which of a policy's types the pool has added stands in the status before the policy is set: what somebody takes out by
/// hand is known by it.
pub fn record(input: &Input, policy: Option<&MixedPolicy>, draft: &mut Draft) {
    let (Some(policy), Some(mixed), Some(_)) = (policy, &input.resolved.wanted.mixed, &input.resolved.pool) else {
        return;
    };
    let listed = |name: &String| mixed.types.iter().any(|t| t.instance_type == *name);
    let mut added: Vec<_> = policy.overrides.iter().map(|o| o.instance_type.clone()).filter(|n| !listed(n)).collect();
    added.sort();
    if input.status.managed.as_ref().is_none_or(|m| m.pool != added) {
        draft.record("pool", json!(added));
    }
}

fn with_pool(input: &Input, held: Option<&MixedPolicy>, anew: bool) -> Option<MixedPolicy> {
    let mixed = input.resolved.wanted.mixed.as_ref()?;
    let mut distribution = mixed.distribution.clone();
    // Nobody asks us for a limit, so one that is there is somebody else's.
    distribution.spot_max_price = held.and_then(|h| h.distribution.spot_max_price.clone());
    let mut overrides = mixed.types.clone();
    let Some(pool) = &input.resolved.pool else { return Some(MixedPolicy { distribution, overrides }) };
    let present = held.map(|h| once(&h.overrides)).unwrap_or_default();
    let mut in_force: Vec<_> =
        present.iter().map(|o| &o.instance_type).filter(|name| pool.like.contains(name)).cloned().collect();
    // What we added and somebody took out comes back.
    let gone = |name: &&String| pool.like.contains(name) && !in_force.contains(name);
    let ours = input.status.managed.iter().flat_map(|m| &m.pool).filter(gone).cloned().collect::<Vec<_>>();
    in_force.extend(ours);
    let names = if anew || in_force.is_empty() { &pool.now } else { &in_force };
    // They are of the primary type's size, and so of its weight.
    let weight = overrides[0].weight;
    overrides.extend(names.iter().map(|name| Override { instance_type: name.clone(), weight }));
    // The order of a pool that the original made is none.
    if !anew && present.len() == overrides.len() && overrides.iter().all(|o| present.contains(&o)) {
        overrides = present.into_iter().cloned().collect();
    }
    Some(MixedPolicy { distribution, overrides })
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
