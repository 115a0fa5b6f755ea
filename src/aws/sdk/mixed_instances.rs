//! Conversion of mixed instances policies to and from the AWS SDK.

use aws_sdk_autoscaling::types as sdk;

use super::convert::owned_text;
use crate::aws::{InstanceTypeOverride, InstancesDistribution, MixedPolicy};

/// The policy for CreateAutoScalingGroup and UpdateAutoScalingGroup, which replace the whole policy.
pub(super) fn to_sdk(policy: &MixedPolicy, template: sdk::LaunchTemplateSpecification) -> sdk::MixedInstancesPolicy {
    let sdk_override = |o: &InstanceTypeOverride| {
        let weight = policy.weighted.then(|| o.weight.to_string());
        sdk::LaunchTemplateOverrides::builder().instance_type(&o.instance_type).set_weighted_capacity(weight).build()
    };
    let launch_template = sdk::LaunchTemplate::builder()
        .launch_template_specification(template)
        .set_overrides(Some(policy.overrides.iter().map(sdk_override).collect()));
    let d = &policy.distribution;
    let distribution = sdk::InstancesDistribution::builder()
        .on_demand_allocation_strategy(&d.on_demand_strategy)
        .on_demand_base_capacity(d.on_demand_base)
        .on_demand_percentage_above_base_capacity(d.on_demand_percent)
        .spot_allocation_strategy(&d.spot_strategy)
        .set_spot_instance_pools(d.spot_pools)
        .set_spot_max_price(d.spot_max_price.clone());
    sdk::MixedInstancesPolicy::builder()
        .launch_template(launch_template.build())
        .instances_distribution(distribution.build())
        .build()
}

/// A policy from AWS, with AWS's defaults for missing values.
pub(super) fn from_sdk(policy: &sdk::MixedInstancesPolicy) -> MixedPolicy {
    let d = policy.instances_distribution();
    let or_default = |value: Option<&str>, default: &str| value.filter(|v| !v.is_empty()).unwrap_or(default).to_owned();
    let spot_strategy = or_default(d.and_then(|d| d.spot_allocation_strategy()), LOWEST_PRICE);
    // Other strategies ignore the number of pools.
    let pools = d.and_then(|d| d.spot_instance_pools()).unwrap_or(InstancesDistribution::DEFAULT_SPOT_POOLS);
    let overrides = policy.launch_template().map(|t| t.overrides()).unwrap_or_default();
    MixedPolicy {
        distribution: InstancesDistribution {
            on_demand_strategy: or_default(d.and_then(|d| d.on_demand_allocation_strategy()), "prioritized"),
            on_demand_base: d.and_then(|d| d.on_demand_base_capacity()).unwrap_or_default(),
            on_demand_percent: d.and_then(|d| d.on_demand_percentage_above_base_capacity()).unwrap_or(100),
            spot_pools: (spot_strategy == LOWEST_PRICE).then_some(pools),
            spot_strategy,
            spot_max_price: d.and_then(|d| d.spot_max_price()).filter(|p| !p.is_empty()).map(str::to_owned),
        },
        overrides: overrides
            .iter()
            .map(|o| InstanceTypeOverride {
                instance_type: owned_text(o.instance_type()),
                weight: parse_weight(o.weighted_capacity()),
                has_foreign_fields: o.launch_template_specification().is_some() || o.image_id().is_some(),
            })
            .collect(),
        weighted: overrides.iter().any(|o| o.weighted_capacity().is_some()),
    }
}

const LOWEST_PRICE: &str = "lowest-price";

/// Units of capacity; 1 without a weight.
pub(super) fn parse_weight(text: Option<&str>) -> u32 {
    text.and_then(|w| w.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_round_trips() {
        let weighted =
            |name: &str, weight| InstanceTypeOverride { instance_type: name.into(), weight, has_foreign_fields: false };
        let distribution = InstancesDistribution {
            on_demand_strategy: "prioritized".into(),
            on_demand_base: 1,
            on_demand_percent: 40,
            spot_strategy: LOWEST_PRICE.into(),
            spot_pools: Some(3),
            spot_max_price: None,
        };
        let overrides = vec![weighted("m5.large", 1), weighted("m5.xlarge", 2)];
        let policy = MixedPolicy { distribution, overrides, weighted: true };
        let template = sdk::LaunchTemplateSpecification::builder().launch_template_id("lt-1").version("3").build();
        assert_eq!(from_sdk(&to_sdk(&policy, template)), policy);
    }

    /// Its instances would be of another template forever, and be replaced without end.
    #[test]
    fn override_with_a_template_of_its_own_differs() {
        let found = |one: sdk::builders::LaunchTemplateOverridesBuilder| {
            let template = sdk::LaunchTemplate::builder().overrides(one.instance_type("m5.large").build()).build();
            from_sdk(&sdk::MixedInstancesPolicy::builder().launch_template(template).build()).overrides.remove(0)
        };
        let plain = found(sdk::LaunchTemplateOverrides::builder());
        let own = sdk::LaunchTemplateSpecification::builder().launch_template_id("lt-2").build();
        for one in [
            sdk::LaunchTemplateOverrides::builder().launch_template_specification(own),
            sdk::LaunchTemplateOverrides::builder().image_id("ami-2"),
        ] {
            let one = found(one);
            assert!(one != plain && one.to_string() != plain.to_string(), "{one}");
        }
    }

    #[test]
    fn missing_values_are_aws_defaults() {
        let found = from_sdk(&sdk::MixedInstancesPolicy::builder().build()).distribution;
        assert_eq!((found.on_demand_percent, found.spot_strategy.as_str()), (100, LOWEST_PRICE));
    }
}
