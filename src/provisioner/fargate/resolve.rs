//! What is desired, in AWS's own terms: names become ids. Pure; what cannot be
//! resolved is a problem with a path and a remedy.

use std::collections::BTreeSet;

use serde_json::json;

use super::desired::{DesiredSpec, SPEC_PATH};
use super::names::ProfileNames;
use crate::api::spec_error::SpecError;
use crate::auth::access_entries::JoinMethod;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, RouteTable};
use crate::aws::{AccessEntryType, Cluster, NetworkObject, NewAccessEntry, Tag};
use crate::ownership::ownership_tags;
use crate::plan::Reason;
use crate::provisioner::join::join_method;
use crate::util::digest::sha256_hex;

/// The policy that lets Fargate pull images for pods and write their logs.
pub const POD_EXECUTION_POLICY: &str = "AmazonEKSFargatePodExecutionRolePolicy";

/// What names mean: looked up before anything can be resolved.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The EKS cluster; `None` when there is none of that name.
    pub cluster: Option<Cluster>,
    /// All subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Subnets that are named by their ids and lie in other VPCs.
    pub in_other_vpcs: Vec<NetworkObject>,
}

/// A group in AWS's terms. The planner never re-checks it.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// What it came from.
    pub desired: DesiredSpec,
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
    pub is_own_role: bool,
    /// The managed policy on our own role.
    pub managed_policy: String,
    /// The trust policy of a role of our own.
    pub trust_policy: String,
    /// Which kinds of entry let the pods' nodes join.
    pub join_method: JoinMethod,
    /// The entry in aws-auth.
    pub aws_auth_entry: AuthEntry,
    /// The access entry.
    pub access_entry: NewAccessEntry,
    /// All tags of the profile.
    pub tags: Vec<Tag>,
    /// The tags that say whose a resource is.
    pub ownership_tags: Vec<Tag>,
    /// SHA-256 of what sets a profile apart, in hex.
    pub hash: String,
}

impl ResolvedGroup {
    /// Whether the pods run with the role that is derived for the group: for want of another, or because the spec names it.
    pub fn uses_derived_role(&self) -> bool {
        self.role_arn == self.derived_role_arn
    }
}

/// Resolves; all problems are told at once.
///
/// # Errors
/// What cannot be resolved, field by field.
pub fn resolve(desired: DesiredSpec, env: &References, distinct: bool) -> Result<ResolvedGroup, Vec<SpecError>> {
    let Some(cluster) = &env.cluster else {
        let (path, rule) = (format!("{SPEC_PATH}.clusterName"), "is no cluster in this account and region");
        let remedy = "correct it, or check the controller's region";
        return Err(vec![SpecError::invalid(&path, &desired.cluster, rule, remedy).with_reason(Reason::NotFound)]);
    };
    let mut problems = Vec::new();
    let way = join_method(desired.join_auth, cluster, &format!("{SPEC_PATH}.clusterName"))
        .map_err(|problem| problems.push(problem));
    let subnets = resolve_subnets(&mut problems, &desired, env, cluster);
    let (Ok(way), true) = (way, problems.is_empty()) else { return Err(problems) };
    let names = ProfileNames::new(&desired.cluster, &desired.id.namespace, &desired.id.name, distinct);
    let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
    let (partition, region, account) = (part(1), part(3), part(4));
    let derived_role_arn = format!("arn:{partition}:iam::{account}:role/{}", names.role);
    let role_arn = desired.existing_role.clone().unwrap_or_else(|| derived_role_arn.clone());
    let ownership = ownership_tags(&desired.cluster, &desired.id);
    Ok(ResolvedGroup {
        is_own_role: desired.existing_role.is_none(),
        managed_policy: format!("arn:{partition}:iam::aws:policy/{POD_EXECUTION_POLICY}"),
        trust_policy: trust_policy(&format!(
            "arn:{partition}:eks:{region}:{account}:fargateprofile/{}/*",
            cluster.name
        )),
        join_method: way,
        aws_auth_entry: AuthEntry::for_pods(&role_arn),
        access_entry: NewAccessEntry {
            cluster: cluster.name.clone(),
            principal: role_arn.clone(),
            kind: AccessEntryType::FargateLinux,
            own_role: desired.existing_role.is_none(),
            tags: ownership.clone(),
        },
        tags: desired.tags.iter().chain(&ownership).cloned().collect(),
        hash: content_hash(&desired, &subnets, &role_arn),
        vpc: cluster.vpc.clone(),
        ownership_tags: ownership,
        role_arn,
        derived_role_arn,
        subnets,
        names,
        desired,
    })
}

/// Profiles with the same content serve the same pods in the same way.
fn content_hash(desired: &DesiredSpec, subnets: &[String], role_arn: &str) -> String {
    let content = json!({ "selectors": desired.selectors, "subnets": subnets, "podExecutionRoleArn": role_arn });
    sha256_hex(&content.to_string())
}

/// Only profiles of this cluster may use the role (EKS User Guide, "Amazon EKS Pod execution IAM role").
fn trust_policy(profiles: &str) -> String {
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
fn resolve_subnets(
    problems: &mut Vec<SpecError>,
    desired: &DesiredSpec,
    env: &References,
    cluster: &Cluster,
) -> Vec<String> {
    let mut ids = BTreeSet::new();
    for name in &desired.subnets {
        let named = |o: &&NetworkObject| match name.starts_with("subnet-") {
            true => o.id == *name,
            false => o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name)),
        };
        let found: Vec<_> = env.subnets.iter().filter(named).collect();
        if found.is_empty() {
            problems.push(subnet_not_found(name, env, cluster));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.into_iter().collect()
}

fn subnet_not_found(name: &str, env: &References, cluster: &Cluster) -> SpecError {
    let path = format!("{SPEC_PATH}.subnets");
    let problem = match env.in_other_vpcs.iter().find(|o| o.id == name) {
        Some(other) => SpecError::invalid(
            &path,
            name,
            format!("is in {}, and the cluster's VPC is {}", other.vpc, cluster.vpc),
            format!("use one of {}", cluster.vpc),
        ),
        None => {
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            SpecError::invalid(&path, name, rule, "correct it, or tag the subnet")
        }
    };
    problem.with_reason(Reason::NotFound)
}

/// Subnets that EKS would refuse, because their route table leads to an internet gateway (EKS API reference,
/// CreateFargateProfile, subnets).
pub fn public_subnet_errors(resolved: &ResolvedGroup, tables: &[RouteTable]) -> Vec<SpecError> {
    let own = |id: &String| tables.iter().find(|t| t.subnets.contains(id));
    let table = |id: &String| own(id).or_else(|| tables.iter().find(|t| t.is_main));
    let reached = resolved.subnets.iter().filter(|id| table(id).is_some_and(|t| t.has_internet_gateway));
    let problem = |id: &String| {
        let rule = "is a public subnet: its route table leads to an internet gateway, and pods on Fargate have no public address";
        let remedy = "use a private subnet, with a NAT gateway or with endpoints for ECR and S3";
        SpecError::invalid(&format!("{SPEC_PATH}.subnets"), id, rule, remedy)
    };
    reached.map(problem).collect()
}

/// How a profile differs from what is desired, in the terms of the spec.
pub fn immutable_drift(resolved: &ResolvedGroup, profile: &FargateProfile) -> Vec<crate::plan::Drift> {
    use crate::plan::Drift;
    let mut all = Vec::new();
    if profile.selectors != resolved.desired.selectors {
        let list = |s: &[crate::aws::fargate::FargateSelector]| {
            s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        all.push(Drift::new("selectors", list(&profile.selectors), list(&resolved.desired.selectors)));
    }
    if !resolved.subnets.is_empty() && profile.subnets != resolved.subnets {
        all.push(Drift::new("subnets", profile.subnets.join(", "), resolved.subnets.join(", ")));
    }
    if profile.role_arn != resolved.role_arn {
        all.push(Drift::new("podExecutionRoleArn", &profile.role_arn, &resolved.role_arn));
    }
    all
}
