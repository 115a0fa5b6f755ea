//! Several instance types, on demand and spot.

use crate::api::spec_error::{Problems, set};
use crate::api::{EksConfiguration, InstancePool, IntOrString, MixedInstancesPolicy, OnDemandStrategy, SpotStrategy};
use crate::aws::{Distribution, Override};

/// AWS takes no more types than that in one group.
pub const MOST_TYPES: usize = 40;

/// A mixed instances policy as the spec asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    /// How much of what is bought, and how types are chosen.
    pub distribution: Distribution,
    /// The primary type, then the listed ones, none twice.
    pub types: Vec<Override>,
    /// Where each of `types` stands in the spec.
    pub paths: Vec<String>,
    /// Types like the primary one are added by themselves.
    pub pool: bool,
}

impl Mixed {
    /// Whether any of its capacity may be spot.
    pub fn buys_spot(&self) -> bool {
        self.distribution.on_demand_percent < 100
    }
}

pub(super) fn mixed(problems: &mut Problems, c: &EksConfiguration) -> Option<Mixed> {
    let policy = c.mixed_instances_policy.as_ref()?;
    let listed = policy.instance_types.as_deref().unwrap_or_default();
    let pool = match set(&policy.instance_pool) {
        Some(name) if InstancePool::parse(&name).is_none() => {
            problems.push(&path("instancePool"), name, "is no pool", "use SubFamilyFlexible, or remove it");
            true
        }
        name => name.is_some(),
    };
    if listed.is_empty() && !pool {
        problems.push(
            &path("instanceTypes"),
            "",
            "is required without instancePool",
            "list types, or set instancePool to SubFamilyFlexible",
        );
    }
    let primary = c.instance_type.clone().unwrap_or_default();
    let mut mixed = Mixed { distribution: distribution(problems, policy), types: Vec::new(), paths: Vec::new(), pool };
    mixed.types.push(Override { instance_type: primary, weight: 1 });
    mixed.paths.push("instanceType".into());
    weights(problems, policy);
    for (i, one) in listed.iter().enumerate() {
        let at = path(&format!("instanceTypes[{i}]"));
        let name = set(&one.r#type).unwrap_or_default();
        super::type_name(problems, &format!("{at}.type"), &name);
        let weight = one.weight.filter(|w| *w != 0).unwrap_or(1);
        if !(1..=999).contains(&weight) {
            problems.push(&format!("{at}.weight"), weight, "is out of range", "use 1 to 999");
        }
        let one = Override { instance_type: name, weight: weight.clamp(1, 999) as u32 };
        match mixed.types.iter().position(|t| t.instance_type == one.instance_type) {
            // The primary type is in the list as well: with the weight that it has there.
            Some(0) => mixed.types[0].weight = one.weight,
            Some(_) => {
                problems.push(&format!("{at}.type"), &one.instance_type, "is listed twice", "list it once");
            }
            None => {
                mixed.types.push(one);
                mixed.paths.push(format!("{at}.type"));
            }
        }
    }
    if mixed.types.len() > MOST_TYPES {
        let rule = "are more types than a scaling group takes";
        problems.push(&path("instanceTypes"), mixed.types.len(), rule, "list fewer than 40");
    }
    Some(mixed)
}

fn path(field: &str) -> String {
    format!("mixedInstancesPolicy.{field}")
}

/// A weight for some types leaves open what the others count for.
fn weights(problems: &mut Problems, policy: &MixedInstancesPolicy) {
    let listed = policy.instance_types.as_deref().unwrap_or_default();
    let has = |weight: Option<i64>| weight.is_some_and(|w| w != 0);
    if !listed.iter().any(|t| has(t.weight)) {
        return;
    }
    for (i, one) in listed.iter().enumerate().filter(|(_, t)| !has(t.weight)) {
        let name = one.r#type.clone().unwrap_or_default();
        let rule = format!("is missing for {name}, and other types have one");
        problems.push(&path(&format!("instanceTypes[{i}].weight")), "", &rule, "give every type a weight, or none");
    }
}

fn distribution(problems: &mut Problems, policy: &MixedInstancesPolicy) -> Distribution {
    let pools = policy.spot_pools.filter(|n| (1..=20).contains(n)).map(|n| n as i32);
    let default = if policy.spot_pools.is_some() { SpotStrategy::LowestPrice } else { SpotStrategy::CapacityOptimized };
    let spot = set(&policy.strategy).map_or(Some(default), |text| SpotStrategy::parse(&text));
    if spot.is_none() {
        let words = SpotStrategy::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
        problems.push(
            &path("strategy"),
            policy.strategy.clone().unwrap_or_default(),
            "is no strategy",
            format!("use one of {words}"),
        );
    }
    let spot = spot.unwrap_or(default);
    if policy.spot_pools.is_some() && spot != SpotStrategy::LowestPrice {
        let rule = format!("does not go with the strategy {spot}");
        problems.push(
            &path("spotPools"),
            policy.spot_pools.unwrap_or_default(),
            &rule,
            "use LowestPrice, or remove spotPools",
        );
    }
    let on_demand = set(&policy.on_demand_allocation_strategy)
        .map_or(Some(OnDemandStrategy::Prioritized), |text| OnDemandStrategy::parse(&text));
    if on_demand.is_none() {
        let given = policy.on_demand_allocation_strategy.clone().unwrap_or_default();
        problems.push(&path("onDemandAllocationStrategy"), given, "is no strategy", "use Prioritized or LowestPrice");
    }
    let base = policy.base_capacity.unwrap_or(0);
    if !(0..=10_000).contains(&base) {
        problems.push(&path("baseCapacity"), base, "is no capacity", "use a number from 0 to 10000");
    }
    Distribution {
        on_demand_strategy: match on_demand.unwrap_or(OnDemandStrategy::Prioritized) {
            OnDemandStrategy::Prioritized => "prioritized",
            OnDemandStrategy::LowestPrice => "lowest-price",
        }
        .into(),
        on_demand_base: base.clamp(0, 10_000) as i32,
        on_demand_percent: 100 - ratio(problems, policy.spot_ratio.as_ref()),
        spot_strategy: match spot {
            SpotStrategy::CapacityOptimized => "capacity-optimized",
            SpotStrategy::LowestPrice => "lowest-price",
            SpotStrategy::PriceCapacityOptimized => "price-capacity-optimized",
            SpotStrategy::CapacityOptimizedPrioritized => "capacity-optimized-prioritized",
        }
        .into(),
        spot_pools: (spot == SpotStrategy::LowestPrice).then(|| pools.unwrap_or(Distribution::POOLS)),
        spot_max_price: None,
    }
}

/// 60 and 60% are the same.
fn ratio(problems: &mut Problems, value: Option<&IntOrString>) -> i32 {
    let text = match value {
        None => return 0,
        Some(IntOrString::Int(n)) => n.to_string(),
        Some(IntOrString::String(text)) if text.is_empty() => return 0,
        Some(IntOrString::String(text)) => text.clone(),
    };
    let parsed = text.strip_suffix('%').unwrap_or(&text).parse().ok().filter(|p| (0..=100).contains(p));
    parsed.unwrap_or_else(|| {
        problems.push(&path("spotRatio"), text, "is no percentage", "use 0 to 100, or 0% to 100%");
        0
    })
}

/// Outside of a mixed group, which has no price: there it is told as ignored.
pub(super) fn spot_price(problems: &mut Problems, c: &EksConfiguration) -> Option<String> {
    let price = set(&c.spot_price).filter(|_| c.mixed_instances_policy.is_none())?;
    if !crate::index::spot::is_price(&price) {
        problems.push("spotPrice", &price, "is no price", "write dollars per hour, for example 0.08");
    }
    let tenancy = c.placement.as_ref().and_then(|p| p.tenancy.clone()).unwrap_or_default();
    if tenancy.eq_ignore_ascii_case("host") {
        problems.push("spotPrice", &price, "does not go with placement.tenancy host", "remove one of the two");
    }
    Some(price)
}
