//! The desired mixed instances policy of a scaling group, and how it differs from the observed one.

use serde_json::json;

use crate::aws::{InstanceTypeOverride, InstancesDistribution, MixedPolicy, ScalingGroup};
use crate::plan::{Drift, PlanBuilder};
use crate::provisioner::eks::desired::MAX_INSTANCE_TYPES;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::rejected_fields::Part;

/// The desired policy, if any. The types of an instance pool stay those of the observed policy: newer types are added
/// together with another change of the group (`changes`), never alone.
pub(crate) fn desired_policy(input: &PlanInput, group: Option<&ScalingGroup>, changes: bool) -> Option<MixedPolicy> {
    let current = group.and_then(|g| g.mixed.as_ref());
    let broken = &input.resolved.broken;
    // The types of an instance pool depend on the zones of the subnets.
    let needs_subnets = input.resolved.type_pool.is_some();
    if group.is_some() && (broken.contains(Part::Launch) || needs_subnets && broken.contains(Part::Subnets)) {
        return current.cloned();
    }
    let mut policy = policy_with_pool(input, current, changes)?;
    if !changes && !drift(current, Some(&policy)).is_empty() {
        policy = policy_with_pool(input, current, true)?;
    }
    if let Some(group) = group {
        add_running_types(&mut policy, group);
    }
    Some(policy)
}

/// Lists the other types that run in the group together with its first weights. AWS accepts those only for all types
/// that run (Amazon EC2 Auto Scaling User Guide, "Configure an Auto Scaling group to use instance weights"). Once the
/// group has weights, the types leave the policy again.
fn add_running_types(policy: &mut MixedPolicy, group: &ScalingGroup) {
    if !policy.weighted || group.mixed.as_ref().is_some_and(|mixed| mixed.weighted) {
        return;
    }
    for instance in &group.instances {
        let is_listed = policy.overrides.iter().any(|o| o.instance_type == instance.instance_type);
        if !is_listed && policy.overrides.len() < MAX_INSTANCE_TYPES {
            policy.overrides.push(InstanceTypeOverride {
                instance_type: instance.instance_type.clone(),
                weight: 1,
                has_foreign_fields: false,
            });
        }
    }
}

/// Records the types that the pool adds before the policy is set, so that a manual removal of a type is detected.
pub(crate) fn record_pool(input: &PlanInput, policy: Option<&MixedPolicy>, builder: &mut PlanBuilder) {
    let (Some(policy), Some(pool)) = (policy, &input.resolved.type_pool) else { return };
    let types = policy.overrides.iter().map(|o| &o.instance_type);
    let mut added: Vec<_> = types.filter(|name| pool.similar.contains(name)).cloned().collect();
    added.sort();
    if input.status.managed.as_ref().is_none_or(|m| m.pool != added) {
        builder.record_managed("pool", json!(added));
    }
}

fn policy_with_pool(input: &PlanInput, current: Option<&MixedPolicy>, refresh: bool) -> Option<MixedPolicy> {
    let mixed = input.resolved.desired.mixed_instances.as_ref()?;
    let mut distribution = mixed.distribution.clone();
    // The spec has no price limit, so an existing one was set outside the controller and is kept.
    distribution.spot_max_price = current.and_then(|h| h.distribution.spot_max_price.clone());
    let mut overrides = mixed.overrides.clone();
    // AWS does not document whether weights can be removed, so a group that has some keeps them.
    let weighted = current.is_some_and(|h| h.weighted) || overrides.iter().any(|o| o.weight != 1);
    let Some(pool) = &input.resolved.type_pool else { return Some(MixedPolicy { distribution, overrides, weighted }) };
    let present = current.map(|h| deduplicated(&h.overrides)).unwrap_or_default();
    let mut current_types: Vec<_> =
        present.iter().map(|o| &o.instance_type).filter(|name| pool.similar.contains(name)).cloned().collect();
    // Types that the controller added and that were removed manually are added again.
    let is_removed = |name: &&String| pool.similar.contains(name) && !current_types.contains(name);
    let removed = input.status.managed.iter().flat_map(|m| &m.pool).filter(is_removed).cloned().collect::<Vec<_>>();
    current_types.extend(removed);
    let names = if refresh || current_types.is_empty() { &pool.offered_now } else { &current_types };
    // Pool types have the size of the primary type, and therefore its weight.
    let weight = overrides[0].weight;
    overrides.extend(names.iter().map(|name| InstanceTypeOverride {
        instance_type: name.clone(),
        weight,
        has_foreign_fields: false,
    }));
    // keikoproj/instance-manager adds pool types in random order, the primary one among them, so their order alone is
    // not a difference. Beside listed types it adds none, and the spec orders those.
    let lists_only_primary = mixed.overrides.len() == 1;
    let in_order = lists_only_primary || present.iter().zip(&mixed.overrides).all(|(found, listed)| *found == listed);
    if !refresh && in_order && present.len() == overrides.len() && overrides.iter().all(|o| present.contains(&o)) {
        overrides = present.into_iter().cloned().collect();
    }
    Some(MixedPolicy { distribution, overrides, weighted })
}

/// The differences by field, with the spec's field names.
pub(crate) fn drift(from: Option<&MixedPolicy>, to: Option<&MixedPolicy>) -> Vec<Drift> {
    let (before, after) = (display_fields(from), display_fields(to));
    let name = |field: &str| format!("mixedInstancesPolicy.{field}");
    let pairs = FIELDS.iter().zip(before.into_iter().zip(after));
    pairs.filter(|(_, (a, b))| a != b).map(|(field, (a, b))| Drift::new(name(field), a, b)).collect()
}

const FIELDS: [&str; 6] =
    ["strategy", "spotPools", "onDemandAllocationStrategy", "baseCapacity", "spotRatio", "instanceTypes"];

fn display_fields(policy: Option<&MixedPolicy>) -> [String; 6] {
    let Some(MixedPolicy { distribution, overrides, weighted: _ }) = policy else { return Default::default() };
    let InstancesDistribution {
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
        deduplicated(overrides).iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    ]
}

/// keikoproj/instance-manager lists the primary type twice; the first entry counts.
fn deduplicated(overrides: &[InstanceTypeOverride]) -> Vec<&InstanceTypeOverride> {
    let mut seen: Vec<&InstanceTypeOverride> = Vec::new();
    for one in overrides {
        if !seen.iter().any(|o| o.instance_type == one.instance_type) {
            seen.push(one);
        }
    }
    seen
}
