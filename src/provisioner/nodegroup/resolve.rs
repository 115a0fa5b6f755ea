//! From what is desired to AWS's terms. Pure.

use super::desired::{CONFIGURATION_PATH, DesiredSpec};
use super::names;
use crate::api::spec_error::SpecError;
use crate::aws::nodegroup::NodegroupName;
use crate::aws::{Cluster, NetworkObject, Tag};
use crate::ownership::ownership_tags;
use crate::plan::Reason;
use crate::util::digest::sha256_hex;

const SUBNET_PREFIX: &str = "subnet-";
const SECURITY_GROUP_PREFIX: &str = "sg-";

/// A group in AWS's terms. The planner never re-checks it.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// What it came from.
    pub desired: DesiredSpec,
    /// The node group that has what is desired, when a new one is to be made.
    pub name: NodegroupName,
    /// The tags that say whose it is.
    pub ownership_tags: Vec<Tag>,
    /// SHA-256 of what nodes are made from: the shape, the version, the release.
    pub hash: String,
}

/// The cluster's subnets and security groups; read only where the spec goes by their names.
#[derive(Clone, Debug, Default)]
pub struct ClusterNetwork {
    /// Of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Of the cluster's VPC.
    pub security_groups: Vec<NetworkObject>,
    /// There is no cluster of that name, and so no VPC.
    pub is_cluster_missing: bool,
}

/// Whether the spec names a subnet or a security group by its Name tag.
pub fn uses_names(desired: &DesiredSpec) -> bool {
    let named = |prefix: &str, all: &[String]| all.iter().any(|id| !id.starts_with(prefix));
    named(SUBNET_PREFIX, &desired.immutable.subnets) || named(SECURITY_GROUP_PREFIX, &desired.immutable.security_groups)
}

/// From names to ids; nothing else is needed in a group's terms.
pub fn resolve(mut desired: DesiredSpec, network: &ClusterNetwork) -> Result<ResolvedGroup, Vec<SpecError>> {
    if network.is_cluster_missing {
        return Err(vec![cluster_not_found(&desired)]);
    }
    let mut problems = Vec::new();
    let shape = &mut desired.immutable;
    shape.subnets = resolve_ids(&mut problems, "subnets", SUBNET_PREFIX, &shape.subnets, &network.subnets);
    shape.security_groups = resolve_ids(
        &mut problems,
        "securityGroups",
        SECURITY_GROUP_PREFIX,
        &shape.security_groups,
        &network.security_groups,
    );
    if problems.is_empty() { Ok(build_resolved(desired)) } else { Err(problems) }
}

/// Sorted ids. That an id exists is looked at when a node group is made from it.
fn resolve_ids(
    problems: &mut Vec<SpecError>,
    field: &str,
    prefix: &str,
    desired: &[String],
    known: &[NetworkObject],
) -> Vec<String> {
    let mut ids = Vec::new();
    for name in desired {
        let is = |o: &&NetworkObject| o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name));
        let found: Vec<_> = if name.starts_with(prefix) {
            vec![name.clone()]
        } else {
            known.iter().filter(is).map(|o| o.id.clone()).collect()
        };
        if found.is_empty() {
            let field = format!("{CONFIGURATION_PATH}.{field}");
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            let problem = SpecError::invalid(&field, name, rule, "correct it, or tag the resource");
            problems.push(problem.with_reason(Reason::NotFound));
        }
        ids.extend(found);
    }
    ids.sort();
    ids.dedup();
    ids
}

fn cluster_not_found(desired: &DesiredSpec) -> SpecError {
    let field = format!("{CONFIGURATION_PATH}.clusterName");
    let rule = "is no cluster in this account and region";
    let remedy = "correct it, or check the controller's region";
    SpecError::invalid(&field, &desired.cluster, rule, remedy).with_reason(Reason::NotFound)
}

fn build_resolved(desired: DesiredSpec) -> ResolvedGroup {
    let made_from = serde_json::json!({
        "shape": desired.immutable, "version": desired.version, "releaseVersion": desired.release_version,
    });
    ResolvedGroup {
        name: names::nodegroup_name(&desired.cluster, &desired.id, &desired.immutable),
        ownership_tags: ownership_tags(&desired.cluster, &desired.id),
        hash: sha256_hex(&made_from.to_string()),
        desired,
    }
}

/// What a new node group would refer to, as far as it could be looked at.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// `None` when there is no cluster of that name.
    pub cluster: Option<Cluster>,
    /// Subnets and security groups by their ids.
    pub network_objects: Vec<NetworkObject>,
    /// The role is not there.
    pub is_role_missing: bool,
}

/// What is wrong with what a new node group would refer to; EKS tells it later, or not by field.
pub fn reference_errors(resolved: &ResolvedGroup, env: &References) -> Vec<SpecError> {
    let w = &resolved.desired;
    let Some(cluster) = &env.cluster else {
        return vec![cluster_not_found(w)];
    };
    let mut problems = Vec::new();
    if env.is_role_missing {
        let field = format!("{CONFIGURATION_PATH}.nodeRole");
        let remedy = "make the role with the policies that nodes need, or name another";
        let problem = SpecError::invalid(&field, &w.immutable.node_role, "is no role in this account", remedy);
        problems.push(problem.with_reason(Reason::NotFound));
    }
    for (field, what, ids) in [
        ("subnets", "subnet", &w.immutable.subnets),
        ("securityGroups", "security group", &w.immutable.security_groups),
    ] {
        for id in ids {
            let field = format!("{CONFIGURATION_PATH}.{field}");
            match env.network_objects.iter().find(|object| object.id == *id) {
                None => {
                    let rule = format!("is no {what} in this account and region");
                    let problem = SpecError::invalid(&field, id, rule, "correct it, or remove it");
                    problems.push(problem.with_reason(Reason::NotFound));
                }
                Some(object) if object.vpc != cluster.vpc => {
                    let rule = format!("is in {}, and the cluster in {}", object.vpc, cluster.vpc);
                    problems.push(SpecError::invalid(&field, id, rule, format!("use a {what} of the cluster's VPC")));
                }
                Some(_) => {}
            }
        }
    }
    problems
}
