//! From what is wanted to AWS's terms. Pure.

use super::desired::{CONFIGURATION, Wanted};
use super::names;
use crate::api::spec_error::Problem;
use crate::aws::nodegroup::NodegroupName;
use crate::aws::{Cluster, NetworkObject, Tag};
use crate::ownership::ownership;
use crate::plan::Reason;
use crate::util::digest::sha256;

const SUBNET: &str = "subnet-";
const SECURITY_GROUP: &str = "sg-";

/// A group in AWS's terms. The planner never re-checks it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What it came from.
    pub wanted: Wanted,
    /// The node group that has what is wanted, when a new one is to be made.
    pub name: NodegroupName,
    /// The tags that say whose it is.
    pub ownership: Vec<Tag>,
    /// SHA-256 of what nodes are made from: the shape, the version, the release.
    pub hash: String,
}

/// The cluster's subnets and security groups; read only where the spec goes by their names.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Of the cluster's VPC.
    pub security_groups: Vec<NetworkObject>,
    /// There is no cluster of that name, and so no VPC.
    pub no_cluster: bool,
}

/// Whether the spec names a subnet or a security group by its Name tag.
pub fn by_name(wanted: &Wanted) -> bool {
    let named = |prefix: &str, all: &[String]| all.iter().any(|id| !id.starts_with(prefix));
    named(SUBNET, &wanted.shape.subnets) || named(SECURITY_GROUP, &wanted.shape.security_groups)
}

/// From names to ids; nothing else is needed in a group's terms.
pub fn resolve(mut wanted: Wanted, network: &Network) -> Result<Resolved, Vec<Problem>> {
    if network.no_cluster {
        return Err(vec![no_cluster(&wanted)]);
    }
    let mut problems = Vec::new();
    let shape = &mut wanted.shape;
    shape.subnets = ids(&mut problems, "subnets", SUBNET, &shape.subnets, &network.subnets);
    shape.security_groups =
        ids(&mut problems, "securityGroups", SECURITY_GROUP, &shape.security_groups, &network.security_groups);
    if problems.is_empty() { Ok(resolved(wanted)) } else { Err(problems) }
}

/// Sorted ids. That an id exists is looked at when a node group is made from it.
fn ids(
    problems: &mut Vec<Problem>,
    field: &str,
    prefix: &str,
    wanted: &[String],
    known: &[NetworkObject],
) -> Vec<String> {
    let mut ids = Vec::new();
    for name in wanted {
        let is = |o: &&NetworkObject| o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name));
        let found: Vec<_> = if name.starts_with(prefix) {
            vec![name.clone()]
        } else {
            known.iter().filter(is).map(|o| o.id.clone()).collect()
        };
        if found.is_empty() {
            let field = format!("{CONFIGURATION}.{field}");
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            let problem = Problem::invalid(&field, name, rule, "correct it, or tag the resource");
            problems.push(problem.because(Reason::NotFound));
        }
        ids.extend(found);
    }
    ids.sort();
    ids.dedup();
    ids
}

fn no_cluster(wanted: &Wanted) -> Problem {
    let field = format!("{CONFIGURATION}.clusterName");
    let rule = "is no cluster in this account and region";
    let remedy = "correct it, or check the controller's region";
    Problem::invalid(&field, &wanted.cluster, rule, remedy).because(Reason::NotFound)
}

fn resolved(wanted: Wanted) -> Resolved {
    let made_from = serde_json::json!({
        "shape": wanted.shape, "version": wanted.version, "releaseVersion": wanted.release_version,
    });
    Resolved {
        name: names::nodegroup(&wanted.cluster, &wanted.id, &wanted.shape),
        ownership: ownership(&wanted.cluster, &wanted.id),
        hash: sha256(&made_from.to_string()),
        wanted,
    }
}

/// What a new node group would refer to, as far as it could be looked at.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `None` when there is no cluster of that name.
    pub cluster: Option<Cluster>,
    /// Subnets and security groups by their ids.
    pub network: Vec<NetworkObject>,
    /// The role is not there.
    pub role_missing: bool,
}

/// What is wrong with what a new node group would refer to; EKS tells it later, or not by field.
pub fn problems(resolved: &Resolved, env: &Environment) -> Vec<Problem> {
    let w = &resolved.wanted;
    let Some(cluster) = &env.cluster else {
        return vec![no_cluster(w)];
    };
    let mut problems = Vec::new();
    if env.role_missing {
        let field = format!("{CONFIGURATION}.nodeRole");
        let remedy = "make the role with the policies that nodes need, or name another";
        let problem = Problem::invalid(&field, &w.shape.node_role, "is no role in this account", remedy);
        problems.push(problem.because(Reason::NotFound));
    }
    for (field, what, ids) in
        [("subnets", "subnet", &w.shape.subnets), ("securityGroups", "security group", &w.shape.security_groups)]
    {
        for id in ids {
            let field = format!("{CONFIGURATION}.{field}");
            match env.network.iter().find(|object| object.id == *id) {
                None => {
                    let rule = format!("is no {what} in this account and region");
                    let problem = Problem::invalid(&field, id, rule, "correct it, or remove it");
                    problems.push(problem.because(Reason::NotFound));
                }
                Some(object) if object.vpc != cluster.vpc => {
                    let rule = format!("is in {}, and the cluster in {}", object.vpc, cluster.vpc);
                    problems.push(Problem::invalid(&field, id, rule, format!("use a {what} of the cluster's VPC")));
                }
                Some(_) => {}
            }
        }
    }
    problems
}
