//! Resolves the desired spec to AWS terms: names become ids. Pure.

use super::desired::{CONFIGURATION_PATH, DesiredSpec};
use super::names;
use crate::api::spec_error::SpecError;
use crate::aws::nodegroup::NodegroupName;
use crate::aws::{Cluster, NetworkObject, Tag};
use crate::ownership::ownership_tags;
use crate::plan::StalledReason;
use crate::provisioner::rejected_fields::RejectedFields;
use crate::provisioner::request::NetworkLookup;
use crate::util::digest::sha256_hex;

const SUBNET_PREFIX: &str = "subnet-";
const SECURITY_GROUP_PREFIX: &str = "sg-";

/// A group in AWS terms. The planner does not validate it again.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// The desired spec that was resolved.
    pub desired: DesiredSpec,
    /// The name of a new node group that matches the spec.
    pub name: NodegroupName,
    /// The tags that prove ownership.
    pub ownership_tags: Vec<Tag>,
    /// SHA-256 of the inputs of a node: immutable fields, version and image release.
    pub hash: String,
    /// Fields that cannot be used. What depends on them is as it is in EKS.
    pub broken: RejectedFields,
}

/// The cluster's subnets and security groups; read only if the spec refers to them by name.
#[derive(Clone, Debug, Default)]
pub struct ClusterNetwork {
    /// Subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Security groups of the cluster's VPC.
    pub security_groups: Vec<NetworkObject>,
    /// Whether no cluster has that name.
    pub is_cluster_missing: bool,
    /// The cluster's VPC; `None` if EKS did not return it, so that no Name tag can be looked up.
    pub vpc: Option<String>,
}

/// Whether the spec names a subnet or a security group by its Name tag.
pub(crate) fn uses_names(desired: &DesiredSpec) -> bool {
    let named = |prefix: &str, all: &[String]| all.iter().any(|id| !id.starts_with(prefix));
    named(SUBNET_PREFIX, &desired.immutable.subnets) || named(SECURITY_GROUP_PREFIX, &desired.immutable.security_groups)
}

/// Resolves a desired spec.
///
/// # Errors
/// Every name that cannot be resolved, with its field path.
pub fn resolve(mut desired: DesiredSpec, network: &ClusterNetwork) -> Result<ResolvedGroup, Vec<SpecError>> {
    if network.is_cluster_missing {
        return Err(vec![cluster_not_found(&desired)]);
    }
    let errors = resolve_names(&mut desired, network);
    if errors.is_empty() { Ok(build_resolved(desired, RejectedFields::default())) } else { Err(errors) }
}

/// Replaces names with ids. Returns every name that cannot be resolved, with its field path.
pub fn resolve_names(desired: &mut DesiredSpec, network: &ClusterNetwork) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let shape = &mut desired.immutable;
    shape.subnets = resolve_ids(&mut errors, "subnets", SUBNET_PREFIX, &shape.subnets, network);
    shape.security_groups =
        resolve_ids(&mut errors, "securityGroups", SECURITY_GROUP_PREFIX, &shape.security_groups, network);
    errors
}

/// Resolves names to sorted ids. Whether an id exists is checked when a node group is created.
fn resolve_ids(
    errors: &mut Vec<SpecError>,
    field: &str,
    prefix: &str,
    desired: &[String],
    network: &ClusterNetwork,
) -> Vec<String> {
    let known = if prefix == SUBNET_PREFIX { &network.subnets } else { &network.security_groups };
    let lookup = NetworkLookup { vpc: network.vpc.as_deref(), known, in_other_vpcs: &[] };
    let mut ids = Vec::new();
    for name in desired {
        let is = |o: &&NetworkObject| o.has_name(name);
        let found: Vec<_> = if name.starts_with(prefix) {
            vec![name.clone()]
        } else {
            known.iter().filter(is).map(|o| o.id.clone()).collect()
        };
        if found.is_empty() {
            errors.push(lookup.not_found(&format!("{CONFIGURATION_PATH}.{field}"), name, prefix));
        }
        ids.extend(found);
    }
    ids.sort();
    ids.dedup();
    ids
}

pub(super) fn cluster_not_found(desired: &DesiredSpec) -> SpecError {
    let field = format!("{CONFIGURATION_PATH}.clusterName");
    let rule = "does not match a cluster in this account and region";
    let remedy = "correct it, or check the controller's region";
    SpecError::invalid(&field, &desired.cluster, rule, remedy).with_reason(StalledReason::NotFound)
}

/// The group in AWS terms, after its names were resolved.
pub fn build_resolved(desired: DesiredSpec, broken: RejectedFields) -> ResolvedGroup {
    let hash_input = serde_json::json!({
        "shape": desired.immutable, "version": desired.version, "releaseVersion": desired.release_version,
    });
    ResolvedGroup {
        name: names::nodegroup_name(&desired.cluster, &desired.id, &desired.immutable),
        ownership_tags: ownership_tags(&desired.cluster, &desired.id),
        hash: sha256_hex(&hash_input.to_string()),
        broken,
        desired,
    }
}

/// The resources that a new node group would refer to, as far as they could be read.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The EKS cluster; `None` if no cluster has that name.
    pub cluster: Option<Cluster>,
    /// The subnets and security groups that exist.
    pub network_objects: Vec<NetworkObject>,
    /// Whether the role does not exist.
    pub is_role_missing: bool,
    /// The instance types that the region does not have.
    pub unknown_types: Vec<String>,
}

/// Whether an object is known to be in another VPC than the cluster.
fn is_in_other_vpc(object: &NetworkObject, cluster: &Cluster) -> bool {
    !object.vpc.is_empty() && cluster.vpc.as_ref().is_some_and(|vpc| *vpc != object.vpc)
}

/// Errors in the references of a new node group, with their field paths. EKS reports them later, or without a field.
pub fn reference_errors(resolved: &ResolvedGroup, references: &References) -> Vec<SpecError> {
    let desired = &resolved.desired;
    let Some(cluster) = &references.cluster else {
        return vec![cluster_not_found(desired)];
    };
    let mut errors = Vec::new();
    if references.is_role_missing {
        let field = format!("{CONFIGURATION_PATH}.nodeRole");
        let remedy = "create the role with the policies that nodes need, or use another role";
        let problem =
            SpecError::invalid(&field, &desired.immutable.node_role, "does not exist in this account", remedy);
        errors.push(problem.with_reason(StalledReason::NotFound));
    }
    for name in &references.unknown_types {
        let field = if desired.immutable.instance_types.len() == 1 { "instanceType" } else { "instanceTypes" };
        let rule = "is not an instance type of this region";
        let problem = SpecError::invalid(&format!("{CONFIGURATION_PATH}.{field}"), name, rule, "correct it");
        errors.push(problem.with_reason(StalledReason::NotFound));
    }
    for (field, what, ids) in [
        ("subnets", "subnet", &desired.immutable.subnets),
        ("securityGroups", "security group", &desired.immutable.security_groups),
    ] {
        for id in ids {
            let field = format!("{CONFIGURATION_PATH}.{field}");
            match references.network_objects.iter().find(|object| object.id == *id) {
                None => {
                    let rule = format!("does not match a {what} in this account and region");
                    let problem = SpecError::invalid(&field, id, rule, "correct it, or remove it");
                    errors.push(problem.with_reason(StalledReason::NotFound));
                }
                Some(object) if is_in_other_vpc(object, cluster) => {
                    let vpc = cluster.vpc.as_deref().unwrap_or_default();
                    let rule = format!("is in {}, and the cluster's VPC is {vpc}", object.vpc);
                    errors.push(SpecError::invalid(&field, id, rule, format!("use a {what} of the cluster's VPC")));
                }
                Some(_) => {}
            }
        }
    }
    errors
}
