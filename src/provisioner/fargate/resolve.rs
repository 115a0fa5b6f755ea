//! What is wanted, in AWS's own terms: names become ids. Pure; what cannot be
//! resolved is a problem with a path and a remedy.

use std::collections::BTreeSet;

use serde_json::json;

use super::desired::{SETTINGS, Wanted};
use super::names::ProfileNames;
use crate::api::spec_error::Problem;
use crate::auth::access_entries::Way;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, RouteTable};
use crate::aws::{AccessKind, Cluster, NetworkObject, NewAccessEntry, Tag};
use crate::ownership::ownership;
use crate::plan::Reason;
use crate::provisioner::join::way;
use crate::util::digest::sha256;

/// The policy that lets Fargate pull images for pods and write their logs.
pub const POLICY: &str = "AmazonEKSFargatePodExecutionRolePolicy";

/// What names mean: looked up before anything can be resolved.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The EKS cluster; `None` when there is none of that name.
    pub cluster: Option<Cluster>,
    /// All subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Subnets that are named by their ids and lie in other VPCs.
    pub elsewhere: Vec<NetworkObject>,
}

/// A group in AWS's terms. The planner never re-checks it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What it came from.
    pub wanted: Wanted,
    /// The names of everything that we make.
    pub names: ProfileNames,
    /// The cluster's VPC.
    pub vpc: String,
    /// Sorted subnet ids; none leaves the choice to EKS.
    pub subnets: Vec<String>,
    /// The pods' execution role.
    pub role_arn: String,
    /// ARN of the role that is made for the group, when the spec names none.
    pub derived_role_arn: String,
    /// Whether the role is ours to make and to keep.
    pub own_role: bool,
    /// The managed policy on our own role.
    pub policy: String,
    /// The trust policy of a role of our own.
    pub trust: String,
    /// Which kinds of entry let the pods' nodes join.
    pub way: Way,
    /// The entry in aws-auth.
    pub auth: AuthEntry,
    /// The access entry.
    pub access: NewAccessEntry,
    /// All tags of the profile.
    pub tags: Vec<Tag>,
    /// The tags that say whose a resource is.
    pub ownership: Vec<Tag>,
    /// SHA-256 of what sets a profile apart, in hex.
    pub hash: String,
}

impl Resolved {
    /// Whether the pods run with the role that is derived for the group: for want of another, or because the spec names it.
    pub fn uses_derived_role(&self) -> bool {
        self.role_arn == self.derived_role_arn
    }
}

/// Resolves; all problems are told at once.
///
/// # Errors
/// What cannot be resolved, field by field.
pub fn resolve(wanted: Wanted, env: &Environment, distinct: bool) -> Result<Resolved, Vec<Problem>> {
    let Some(cluster) = &env.cluster else {
        let (path, rule) = (format!("{SETTINGS}.clusterName"), "is no cluster in this account and region");
        let remedy = "correct it, or check the controller's region";
        return Err(vec![Problem::invalid(&path, &wanted.cluster, rule, remedy).because(Reason::NotFound)]);
    };
    let mut problems = Vec::new();
    let way =
        way(wanted.join_auth, cluster, &format!("{SETTINGS}.clusterName")).map_err(|problem| problems.push(problem));
    let subnets = subnets(&mut problems, &wanted, env, cluster);
    let (Ok(way), true) = (way, problems.is_empty()) else { return Err(problems) };
    let names = ProfileNames::new(&wanted.cluster, &wanted.id.namespace, &wanted.id.name, distinct);
    let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
    let (partition, region, account) = (part(1), part(3), part(4));
    let derived_role_arn = format!("arn:{partition}:iam::{account}:role/{}", names.role);
    let role_arn = wanted.given_role.clone().unwrap_or_else(|| derived_role_arn.clone());
    let ownership = ownership(&wanted.cluster, &wanted.id);
    Ok(Resolved {
        own_role: wanted.given_role.is_none(),
        policy: format!("arn:{partition}:iam::aws:policy/{POLICY}"),
        trust: trust(&format!("arn:{partition}:eks:{region}:{account}:fargateprofile/{}/*", cluster.name)),
        way,
        auth: AuthEntry::for_pods(&role_arn),
        access: NewAccessEntry {
            cluster: cluster.name.clone(),
            principal: role_arn.clone(),
            kind: AccessKind::FargateLinux,
            own_role: wanted.given_role.is_none(),
            tags: ownership.clone(),
        },
        tags: wanted.tags.iter().chain(&ownership).cloned().collect(),
        hash: hash(&wanted, &subnets, &role_arn),
        vpc: cluster.vpc.clone(),
        ownership,
        role_arn,
        derived_role_arn,
        subnets,
        names,
        wanted,
    })
}

/// Profiles with the same content serve the same pods in the same way.
fn hash(wanted: &Wanted, subnets: &[String], role_arn: &str) -> String {
    let content = json!({ "selectors": wanted.selectors, "subnets": subnets, "podExecutionRoleArn": role_arn });
    sha256(&content.to_string())
}

/// Only profiles of this cluster may use the role (EKS User Guide, "Amazon EKS Pod execution IAM role").
fn trust(profiles: &str) -> String {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Service": "eks-fargate-pods.amazonaws.com" },
            "Action": "sts:AssumeRole",
            "Condition": { "ArnLike": { "aws:SourceArn": profiles } },
        }],
    })
    .to_string()
}

/// An id, or a Name tag in the cluster's VPC.
fn subnets(problems: &mut Vec<Problem>, wanted: &Wanted, env: &Environment, cluster: &Cluster) -> Vec<String> {
    let mut ids = BTreeSet::new();
    for name in &wanted.subnets {
        let named = |o: &&NetworkObject| match name.starts_with("subnet-") {
            true => o.id == *name,
            false => o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name)),
        };
        let found: Vec<_> = env.subnets.iter().filter(named).collect();
        if found.is_empty() {
            problems.push(not_here(name, env, cluster));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.into_iter().collect()
}

fn not_here(name: &str, env: &Environment, cluster: &Cluster) -> Problem {
    let path = format!("{SETTINGS}.subnets");
    let problem = match env.elsewhere.iter().find(|o| o.id == name) {
        Some(other) => Problem::invalid(
            &path,
            name,
            format!("is in {}, and the cluster's VPC is {}", other.vpc, cluster.vpc),
            format!("use one of {}", cluster.vpc),
        ),
        None => {
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            Problem::invalid(&path, name, rule, "correct it, or tag the subnet")
        }
    };
    problem.because(Reason::NotFound)
}

/// Subnets that EKS would refuse, because their route table leads to an internet gateway (EKS API reference,
/// CreateFargateProfile, subnets).
pub fn public(resolved: &Resolved, tables: &[RouteTable]) -> Vec<Problem> {
    let own = |id: &String| tables.iter().find(|t| t.subnets.contains(id));
    let table = |id: &String| own(id).or_else(|| tables.iter().find(|t| t.main));
    let reached = resolved.subnets.iter().filter(|id| table(id).is_some_and(|t| t.internet));
    let problem = |id: &String| {
        let rule = "is a public subnet: its route table leads to an internet gateway, and pods on Fargate have no public address";
        let remedy = "use a private subnet, with a NAT gateway or with endpoints for ECR and S3";
        Problem::invalid(&format!("{SETTINGS}.subnets"), id, rule, remedy)
    };
    reached.map(problem).collect()
}

/// How a profile differs from what is wanted, in the terms of the spec.
pub fn differences(resolved: &Resolved, profile: &FargateProfile) -> Vec<crate::plan::Drift> {
    use crate::plan::Drift;
    let mut all = Vec::new();
    if profile.selectors != resolved.wanted.selectors {
        let list = |s: &[crate::aws::fargate::FargateSelector]| {
            s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        all.push(Drift::new("selectors", list(&profile.selectors), list(&resolved.wanted.selectors)));
    }
    if !resolved.subnets.is_empty() && profile.subnets != resolved.subnets {
        all.push(Drift::new("subnets", profile.subnets.join(", "), resolved.subnets.join(", ")));
    }
    if profile.role_arn != resolved.role_arn {
        all.push(Drift::new("podExecutionRoleArn", &profile.role_arn, &resolved.role_arn));
    }
    all
}
