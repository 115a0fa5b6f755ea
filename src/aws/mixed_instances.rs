//! Several instance types, on demand and spot, in one scaling group.

use serde::Serialize;

/// A mixed instances policy without the template that it refers to: that is the group's pin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MixedPolicy {
    /// How much of what is bought, and how types are chosen.
    pub distribution: InstancesDistribution,
    /// The types, the preferred ones first.
    pub overrides: Vec<InstanceTypeOverride>,
}

/// How much is on demand and how types are chosen: AWS's InstancesDistribution in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstancesDistribution {
    /// `prioritized` or `lowest-price`.
    pub on_demand_strategy: String,
    /// Units of capacity that are always on demand.
    pub on_demand_base: i32,
    /// Percent of what is above the base.
    pub on_demand_percent: i32,
    /// `capacity-optimized`, `lowest-price`, `price-capacity-optimized` or `capacity-optimized-prioritized`.
    pub spot_strategy: String,
    /// How many pools `lowest-price` chooses from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_pools: Option<i32>,
    /// A limit that others set on the price of spot capacity; it lives on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_max_price: Option<String>,
}

impl InstancesDistribution {
    /// How many pools `lowest-price` chooses from when nobody says it.
    pub const POOLS: i32 = 2;
}

/// One type of a mixed group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceTypeOverride {
    /// For example `m5.large`; empty where others ask for attributes rather than a type.
    pub instance_type: String,
    /// How many units of desired capacity one instance is.
    pub weight: u32,
}

impl std::fmt::Display for InstanceTypeOverride {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.weight == 1 {
            f.write_str(&self.instance_type)
        } else {
            write!(f, "{} x{}", self.instance_type, self.weight)
        }
    }
}
