//! Properties of a group's instance types: existence, architecture, similar types, pod limits.

use std::collections::BTreeMap;

use super::super::desired::{DesiredSpec, MAX_INSTANCE_TYPES};
use super::super::references::References;
use super::super::user_data::OsFamily;
use crate::api::spec_error::SpecError;
use crate::aws::InstanceType;
use crate::plan::StalledReason;

/// Instance types similar to the primary one, without those that the spec lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceTypePool {
    /// All similar types, in whichever zones they are offered.
    pub similar: Vec<String>,
    /// The types that are offered in each of the group's zones now, up to the limit of AWS.
    pub offered_now: Vec<String>,
}

/// The error for an instance type that the region does not have.
pub(in crate::provisioner::eks) fn unknown_type(desired: &DesiredSpec) -> SpecError {
    let rule = "is not an instance type of this region";
    SpecError::invalid("spec.eks.configuration.instanceType", &desired.instance_type, rule, "correct it")
        .with_reason(StalledReason::NotFound)
}

pub(super) fn resolve_pool(desired: &DesiredSpec, env: &References, subnets: &[String]) -> Option<InstanceTypePool> {
    let mixed = desired.mixed_instances.as_ref().filter(|m| m.extend_with_similar)?;
    let catalog = env.catalog.as_ref()?;
    let zones: Vec<_> =
        env.subnets.iter().filter(|s| subnets.contains(&s.id)).filter_map(|s| s.zone.as_deref()).collect();
    let named = |name: &&str| mixed.overrides.iter().any(|t| t.instance_type == *name);
    let like: Vec<_> = catalog.similar_to(&desired.instance_type).into_iter().filter(|n| !named(n)).collect();
    let room = MAX_INSTANCE_TYPES.saturating_sub(mixed.overrides.len());
    let is_ipv6 = env.cluster.as_ref().is_some_and(|cluster| cluster.is_ipv6);
    let limit = pod_limit(&mut Vec::new(), desired, env).filter(|_| desired.max_pods.is_none());
    // A node must not accept more pods than it has addresses.
    let enough = |name: &str| match (limit, desired.custom_networking) {
        (Some(limit), Some(networking)) => {
            catalog.get(name).and_then(|t| networking.pod_limit(t)).is_some_and(|found| found >= limit)
        }
        (None, _) | (_, None) => true,
    };
    let has_ipv6 = |name: &str| !(is_ipv6 && catalog.get(name).is_some_and(|found| found.is_xen));
    let fit = like.iter().filter(|name| catalog.offered_in_zones(name, &zones) && enough(name) && has_ipv6(name));
    let offered_now = fit.take(room).map(|name| (*name).to_owned()).collect();
    Some(InstanceTypePool { similar: like.into_iter().map(str::to_owned).collect(), offered_now })
}

/// All instance types of a mixed group launch from one image, so they need one architecture.
pub(super) fn check_mixed_types(errors: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) {
    let Some(mixed) = &desired.mixed_instances else { return };
    let architecture = |name: &str| env.mixed_types.get(name).and_then(|t| t.as_ref()?.architecture());
    let primary = architecture(&desired.instance_type);
    for (one, path) in mixed.overrides.iter().zip(&mixed.paths) {
        let name = &one.instance_type;
        let path = format!("spec.eks.configuration.{path}");
        let is_reported = path.ends_with(".instanceType") && env.instance_type.is_queried();
        if env.mixed_types.get(name).is_some_and(Option::is_none) && !is_reported {
            let rule = "is not an instance type of this region";
            errors.push(SpecError::invalid(&path, name, rule, "correct it").with_reason(StalledReason::NotFound));
        } else if let (Some(own), Some(first)) = (architecture(name), primary)
            && own != first
        {
            let rule = format!("is {own}, but {} is {first}: one image cannot boot both", desired.instance_type);
            errors.push(SpecError::invalid(&path, name, rule, "use types of one architecture"));
        }
    }
}

/// The pod limit of a node. All instance types of a mixed group share the user data, so the type with the fewest
/// addresses decides; types of an instance pool never have fewer.
pub(super) fn pod_limit(errors: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) -> Option<u32> {
    if desired.max_pods.is_some() {
        return desired.max_pods;
    }
    let networking = desired.custom_networking?;
    let primary = env.instance_type.as_present()?;
    let overrides = desired.mixed_instances.iter().flat_map(|m| m.overrides.iter().zip(&m.paths));
    let listed =
        overrides.filter_map(|(t, path)| Some((path.as_str(), env.mixed_types.get(&t.instance_type)?.as_ref()?)));
    // The primary type is the first of a mixed group.
    let all: BTreeMap<_, _> = listed.chain([("instanceType", primary)]).collect();
    let limit = |(path, found): (&str, &InstanceType)| {
        let limit = networking.pod_limit(found);
        if limit.is_none() {
            let remedy = "set bootstrapOptions.maxPods, or use another type";
            errors.push(unknown_counts(&format!("spec.eks.configuration.{path}"), found, remedy));
        }
        limit
    };
    all.into_iter().filter_map(limit).min()
}

/// The error for a type whose network interfaces EC2 does not describe. A node with too high a limit would accept pods
/// that get no address; AWS documents no limit for such a type.
pub(super) fn unknown_counts(path: &str, found: &InstanceType, remedy: &str) -> SpecError {
    let rule = "has no known number of network interfaces and addresses: EC2 does not return it";
    SpecError::invalid(path, &found.name, rule, remedy)
}

/// Whether a tag of the scaling group names the addresses of the instance type.
pub(super) fn has_address_tag(desired: &DesiredSpec) -> bool {
    desired.has_autoscaler_tags && desired.os_family == OsFamily::Windows
}
