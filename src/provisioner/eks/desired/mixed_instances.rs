//! Parses the mixed instances policy: several instance types, on-demand and spot.

use super::instance::check_type_name;
use crate::api::spec_error::{SpecErrors, non_empty};
use crate::api::{EksConfiguration, InstancePool, IntOrString, MixedInstancesPolicy, OnDemandStrategy, SpotStrategy};
use crate::aws::{InstanceTypeOverride, InstancesDistribution};

/// The most instance types that AWS allows in one scaling group.
pub const MAX_INSTANCE_TYPES: usize = 40;

/// A mixed instances policy as the spec requests it.
#[derive(Clone, Debug, PartialEq)]
pub struct MixedInstances {
    /// The share of on-demand and spot capacity, and the allocation strategies.
    pub distribution: InstancesDistribution,
    /// The primary type, then the listed ones, without duplicates.
    pub overrides: Vec<InstanceTypeOverride>,
    /// The spec path of each entry of `overrides`.
    pub paths: Vec<String>,
    /// Whether the controller adds types similar to the primary one.
    pub extend_with_similar: bool,
}

impl MixedInstances {
    /// Whether any of its capacity may be spot.
    pub(crate) fn uses_spot(&self) -> bool {
        self.distribution.on_demand_percent < 100
    }

    /// Whether its types count for different numbers of units.
    pub(crate) fn is_weighted(&self) -> bool {
        self.overrides.iter().any(|o| o.weight != 1)
    }

    /// Whether AWS allows no warm pool beside it (Amazon EC2 Auto Scaling User Guide, "Warm pools", Limitations).
    pub(crate) fn excludes_warm_pool(&self) -> bool {
        self.uses_spot() || self.is_weighted()
    }
}

pub(super) fn mixed(errors: &mut SpecErrors, c: &EksConfiguration) -> Option<MixedInstances> {
    let policy = c.mixed_instances_policy.as_ref()?;
    let listed = policy.instance_types.as_deref().unwrap_or_default();
    let extend_with_similar = match non_empty(&policy.instance_pool) {
        Some(name) if InstancePool::parse(&name).is_none() => {
            errors.push_invalid(
                &field_path("instancePool"),
                name,
                "is not a known instance pool",
                "use SubFamilyFlexible, or remove it",
            );
            true
        }
        name => name.is_some(),
    };
    if listed.is_empty() && !extend_with_similar {
        errors.push_invalid(
            &field_path("instanceTypes"),
            "",
            "is required without instancePool",
            "list types, or set instancePool to SubFamilyFlexible",
        );
    }
    let primary = c.instance_type.clone().unwrap_or_default();
    let mut mixed = MixedInstances {
        distribution: distribution(errors, policy),
        overrides: Vec::new(),
        paths: Vec::new(),
        extend_with_similar,
    };
    mixed.overrides.push(InstanceTypeOverride { instance_type: primary, weight: 1, has_foreign_fields: false });
    mixed.paths.push("instanceType".into());
    for (i, one) in listed.iter().enumerate() {
        let at = field_path(&format!("instanceTypes[{i}]"));
        let name = non_empty(&one.r#type).unwrap_or_default();
        check_type_name(errors, &format!("{at}.type"), &name);
        let weight = one.weight.filter(|w| *w != 0).unwrap_or(1);
        if !(1..=999).contains(&weight) {
            errors.push_invalid(&format!("{at}.weight"), weight, "is out of range", "use 1 to 999");
        }
        let one = InstanceTypeOverride {
            instance_type: name,
            weight: weight.clamp(1, 999) as u32,
            has_foreign_fields: false,
        };
        match mixed.overrides.iter().position(|t| t.instance_type == one.instance_type) {
            // The list contains the primary type too, and sets its weight.
            Some(0) => mixed.overrides[0].weight = one.weight,
            Some(_) => {
                errors.push_invalid(&format!("{at}.type"), &one.instance_type, "is listed twice", "list it once");
            }
            None => {
                mixed.overrides.push(one);
                mixed.paths.push(format!("{at}.type"));
            }
        }
    }
    if mixed.overrides.len() > MAX_INSTANCE_TYPES {
        let rule = "is more than the number of types that AWS allows in a scaling group";
        errors.push_invalid(
            &field_path("instanceTypes"),
            mixed.overrides.len(),
            rule,
            "list at most 40, counting instanceType",
        );
    }
    Some(mixed)
}

fn field_path(field: &str) -> String {
    format!("mixedInstancesPolicy.{field}")
}

fn distribution(errors: &mut SpecErrors, policy: &MixedInstancesPolicy) -> InstancesDistribution {
    let pools = policy.spot_pools.filter(|n| (1..=20).contains(n)).map(|n| n as i32);
    let default = if policy.spot_pools.is_some() { SpotStrategy::LowestPrice } else { SpotStrategy::CapacityOptimized };
    let spot = non_empty(&policy.strategy).map_or(Some(default), |text| SpotStrategy::parse(&text));
    if spot.is_none() {
        let words = SpotStrategy::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
        errors.push_invalid(
            &field_path("strategy"),
            policy.strategy.clone().unwrap_or_default(),
            "is not a known strategy",
            format!("use one of {words}"),
        );
    }
    let spot = spot.unwrap_or(default);
    if policy.spot_pools.is_some() && spot != SpotStrategy::LowestPrice {
        let rule = format!("cannot be combined with the strategy {spot}");
        errors.push_invalid(
            &field_path("spotPools"),
            policy.spot_pools.unwrap_or_default(),
            &rule,
            "use LowestPrice, or remove spotPools",
        );
    }
    let on_demand = non_empty(&policy.on_demand_allocation_strategy)
        .map_or(Some(OnDemandStrategy::Prioritized), |text| OnDemandStrategy::parse(&text));
    if on_demand.is_none() {
        let given = policy.on_demand_allocation_strategy.clone().unwrap_or_default();
        errors.push_invalid(
            &field_path("onDemandAllocationStrategy"),
            given,
            "is not a known strategy",
            "use Prioritized or LowestPrice",
        );
    }
    let base = policy.base_capacity.unwrap_or(0);
    if !(0..=10_000).contains(&base) {
        errors.push_invalid(
            &field_path("baseCapacity"),
            base,
            "is not a valid capacity",
            "use a number from 0 to 10000",
        );
    }
    InstancesDistribution {
        on_demand_strategy: match on_demand.unwrap_or(OnDemandStrategy::Prioritized) {
            OnDemandStrategy::Prioritized => "prioritized",
            OnDemandStrategy::LowestPrice => "lowest-price",
        }
        .into(),
        on_demand_base: base.clamp(0, 10_000) as i32,
        on_demand_percent: 100 - spot_percentage(errors, policy.spot_ratio.as_ref()),
        spot_strategy: match spot {
            SpotStrategy::CapacityOptimized => "capacity-optimized",
            SpotStrategy::LowestPrice => "lowest-price",
            SpotStrategy::PriceCapacityOptimized => "price-capacity-optimized",
            SpotStrategy::CapacityOptimizedPrioritized => "capacity-optimized-prioritized",
        }
        .into(),
        spot_pools: (spot == SpotStrategy::LowestPrice)
            .then(|| pools.unwrap_or(InstancesDistribution::DEFAULT_SPOT_POOLS)),
        spot_max_price: None,
    }
}

/// Parses a percentage; `60` and `60%` are equal.
fn spot_percentage(errors: &mut SpecErrors, value: Option<&IntOrString>) -> i32 {
    let text = match value {
        None => return 0,
        Some(IntOrString::Int(n)) => n.to_string(),
        Some(IntOrString::String(text)) if text.is_empty() => return 0,
        Some(IntOrString::String(text)) => text.clone(),
    };
    let parsed = text.strip_suffix('%').unwrap_or(&text).parse().ok().filter(|p| (0..=100).contains(p));
    parsed.unwrap_or_else(|| {
        errors.push_invalid(&field_path("spotRatio"), text, "is not a valid percentage", "use 0 to 100, or 0% to 100%");
        0
    })
}

/// Parses the spot price. A mixed group has none, and reports the field as ignored.
pub(super) fn spot_price(errors: &mut SpecErrors, c: &EksConfiguration) -> Option<String> {
    let price = non_empty(&c.spot_price).filter(|_| c.mixed_instances_policy.is_none())?;
    if !crate::index::spot::is_price(&price) {
        errors.push_invalid("spotPrice", &price, "is not a valid price", "write dollars per hour, for example 0.08");
    }
    let tenancy = c.placement.as_ref().and_then(|p| p.tenancy.clone()).unwrap_or_default();
    if tenancy.eq_ignore_ascii_case("host") {
        errors.push_invalid(
            "spotPrice",
            &price,
            "cannot be combined with placement.tenancy host",
            "remove one of the two",
        );
    }
    Some(price)
}
