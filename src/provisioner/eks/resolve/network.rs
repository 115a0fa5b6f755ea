//! Names of subnets and security groups to ids.

use std::collections::BTreeSet;

use super::super::references::References;
use crate::api::spec_error::SpecError;
use crate::aws::NetworkObject;
use crate::provisioner::request::NetworkLookup;

pub(super) fn resolve_ids(
    errors: &mut Vec<SpecError>,
    field: &str,
    desired: &[String],
    known: &[NetworkObject],
    env: &References,
) -> Vec<String> {
    let prefix = if field == "subnets" { "subnet-" } else { "sg-" };
    let vpc = env.cluster.as_ref().and_then(|cluster| cluster.vpc.as_deref());
    let lookup = NetworkLookup { vpc, known, in_other_vpcs: &env.in_other_vpcs };
    let mut ids = Vec::new();
    for name in desired {
        let found: Vec<_> = if name.starts_with(prefix) {
            known.iter().filter(|o| o.id == *name).collect()
        } else {
            known.iter().filter(|o| o.has_name(name)).collect()
        };
        if found.is_empty() {
            errors.push(lookup.not_found(&format!("spec.eks.configuration.{field}"), name, prefix));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.sort();
    ids.dedup();
    ids
}

/// The zones of subnets, sorted.
pub(super) fn zones_of(subnets: &[String], env: &References) -> Vec<String> {
    let chosen = env.subnets.iter().filter(|subnet| subnets.contains(&subnet.id));
    let zones: BTreeSet<_> = chosen.filter_map(|subnet| subnet.zone.clone()).collect();
    zones.into_iter().collect()
}
