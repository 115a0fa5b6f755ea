//! Mixed instances policies: several instance types, on-demand and spot, in one scaling group.

use serde::Serialize;

/// A mixed instances policy without its launch template, which is the pinned template of the scaling group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MixedPolicy {
    /// How much capacity is on-demand or spot, and how AWS chooses among the types.
    pub distribution: InstancesDistribution,
    /// The instance types, in order of preference.
    pub overrides: Vec<InstanceTypeOverride>,
    /// Whether the types have weights. AWS accepts weights that are new to a group only if all types that run in it are
    /// listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
}

/// How much capacity is on-demand or spot, and how AWS chooses among the types (InstancesDistribution in the Auto
/// Scaling API).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstancesDistribution {
    /// `prioritized` or `lowest-price`.
    pub on_demand_strategy: String,
    /// Units of capacity that are always on-demand.
    pub on_demand_base: i32,
    /// Percentage of on-demand capacity above the base, 0 to 100.
    pub on_demand_percent: i32,
    /// `capacity-optimized`, `lowest-price`, `price-capacity-optimized` or `capacity-optimized-prioritized`.
    pub spot_strategy: String,
    /// Number of spot pools that `lowest-price` chooses from; `None` with any other strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_pools: Option<i32>,
    /// Maximum spot price in dollars per hour. Only another writer sets it; the controller keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_max_price: Option<String>,
}

impl InstancesDistribution {
    /// AWS's default for the number of spot pools.
    pub(crate) const DEFAULT_SPOT_POOLS: i32 = 2;
}

/// One instance type of a mixed instances policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceTypeOverride {
    /// For example `m5.large`; empty if another writer set instance requirements instead of a type.
    pub instance_type: String,
    /// Units of desired capacity that one instance counts as.
    pub weight: u32,
    /// Whether another writer set fields that change what is launched: a launch template or an image of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_foreign_fields: bool,
}

impl std::fmt::Display for InstanceTypeOverride {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.instance_type)?;
        if self.weight != 1 {
            write!(f, " x{}", self.weight)?;
        }
        if self.has_foreign_fields {
            f.write_str(" with a launch template or image of its own")?;
        }
        Ok(())
    }
}
