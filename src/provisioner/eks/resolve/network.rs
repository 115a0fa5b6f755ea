//! Names of subnets and security groups to ids.

use std::collections::BTreeSet;

use super::super::references::References;
use crate::api::spec_error::SpecError;
use crate::aws::NetworkObject;
use crate::plan::Reason;
use crate::provisioner::request::vpc_unknown;

pub(super) fn resolve_ids(
    problems: &mut Vec<SpecError>,
    field: &str,
    desired: &[String],
    known: &[NetworkObject],
    env: &References,
) -> Vec<String> {
    let prefix = if field == "subnets" { "subnet-" } else { "sg-" };
    let mut ids = Vec::new();
    for name in desired {
        let found: Vec<_> = if name.starts_with(prefix) {
            known.iter().filter(|o| o.id == *name).collect()
        } else {
            known.iter().filter(|o| o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name))).collect()
        };
        if found.is_empty() {
            problems.push(network_object_not_found(field, name, env));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.sort();
    ids.dedup();
    ids
}

fn network_object_not_found(field: &str, name: &str, env: &References) -> SpecError {
    let path = format!("spec.eks.configuration.{field}");
    let vpc = env.cluster.as_ref().and_then(|cluster| cluster.vpc.as_deref());
    let other = env.in_other_vpcs.iter().find(|o| o.id == name);
    let problem = match (vpc, other.filter(|other| !other.vpc.is_empty())) {
        (None, _) => return vpc_unknown(&path, name, if field == "subnets" { "subnet-" } else { "sg-" }),
        (Some(vpc), Some(other)) => {
            let rule = format!("is in {}, but the cluster's VPC is {vpc}", other.vpc);
            SpecError::invalid(&path, name, rule, format!("use one in {vpc}"))
        }
        (Some(_), None) => {
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            SpecError::invalid(&path, name, rule, "correct it, or tag the resource")
        }
    };
    problem.with_reason(Reason::NotFound)
}

/// The zones of subnets, sorted.
pub(super) fn zones_of(subnets: &[String], env: &References) -> Vec<String> {
    let chosen = env.subnets.iter().filter(|subnet| subnets.contains(&subnet.id));
    let zones: BTreeSet<_> = chosen.filter_map(|subnet| subnet.zone.clone()).collect();
    zones.into_iter().collect()
}
