//! Resolves the desired spec to AWS terms: names become ids. Pure. A name that cannot be resolved is an error with a field
//! path and a remedy.

use std::collections::BTreeSet;

use serde_json::json;

use super::desired::{DesiredSpec, SPEC_PATH};
use super::names::ProfileNames;
use crate::api::spec_error::SpecError;
use crate::auth::JoinAuth;
use crate::auth::access_entries::{self, JoinMethod};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::RouteTable;
use crate::aws::{AccessEntryType, Cluster, NetworkObject, NewAccessEntry, Tag};
use crate::ownership::ownership_tags;
use crate::plan::StalledReason;
use crate::provisioner::join::join_method;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::rejected_fields::{Part, RejectedFields};
use crate::provisioner::request::NetworkLookup;
use crate::provisioner::role_region::iam_tags;
use crate::util::digest::sha256_hex;

/// The policy that lets Fargate pull images for pods and write their logs.
pub(crate) const POD_EXECUTION_POLICY: &str = "AmazonEKSFargatePodExecutionRolePolicy";

/// The service principal that uses a pod execution role.
pub(crate) const PODS_SERVICE: &str = "eks-fargate-pods.amazonaws.com";

/// The AWS resources that the spec refers to by name.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The EKS cluster; `None` if no cluster has that name.
    pub cluster: Option<Cluster>,
    /// All subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// Subnets that the spec names by id and that belong to other VPCs.
    pub in_other_vpcs: Vec<NetworkObject>,
}

/// A group in AWS terms. The planner does not validate it again.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// The desired spec that was resolved.
    pub desired: DesiredSpec,
    /// The names of all resources that the controller creates.
    pub names: ProfileNames,
    /// The cluster's VPC; `None` if EKS did not return it.
    pub vpc: Option<String>,
    /// Sorted subnet ids. If empty, EKS selects the subnets.
    pub subnets: Vec<String>,
    /// ARN of the pod execution role.
    pub role_arn: String,
    /// ARN of the role that is created for the group if the spec names none.
    pub derived_role_arn: String,
    /// Whether the controller creates and maintains the role.
    pub is_own_role: bool,
    /// ARN of the managed policy for a controller-created role.
    pub managed_policy: String,
    /// Trust policy of a controller-created role.
    pub trust_policy: String,
    /// Pattern of the ARNs of the cluster's profiles, which the trust policy has to admit.
    pub profile_arns: String,
    /// The cluster's region, in the fourth tag of the role.
    pub region: String,
    /// Which kinds of entry authorize the role in the cluster.
    pub join_method: JoinMethod,
    /// The entry in aws-auth.
    pub aws_auth_entry: AuthEntry,
    /// The access entry that lets the role's pods join, as EKS would create it.
    pub access_entry: NewAccessEntry,
    /// All tags of the profile.
    pub tags: Vec<Tag>,
    /// The tags that prove ownership of a resource.
    pub ownership_tags: Vec<Tag>,
    /// SHA-256 of the profile's immutable content, in hexadecimal.
    pub hash: String,
    /// Fields that cannot be used. What depends on them is as it is in EKS.
    pub broken: RejectedFields,
}

impl ResolvedGroup {
    /// Whether the pods run with the role derived for the group: by default, or because the spec names it.
    pub(crate) fn uses_derived_role(&self) -> bool {
        self.role_arn == self.derived_role_arn
    }

    /// The tags of a controller-created role.
    pub(crate) fn iam_tags(&self) -> Vec<Tag> {
        iam_tags(&self.ownership_tags, &self.region)
    }
}

/// Resolves a desired spec. `form` is the form of the derived names.
///
/// # Errors
/// Every name that cannot be resolved, with its field path.
pub fn resolve(desired: DesiredSpec, references: &References, form: NameForm) -> Result<ResolvedGroup, Vec<SpecError>> {
    let resolved = resolve_with_errors(desired, RejectedFields::default(), references, form)?;
    if resolved.broken.is_empty() { Ok(resolved) } else { Err(resolved.broken.errors()) }
}

/// Resolves a desired spec. [`ResolvedGroup::broken`] has the errors of the parser (`broken`) and of what cannot be
/// resolved.
///
/// # Errors
/// The cluster does not exist; with the errors of the parser.
pub fn resolve_with_errors(
    desired: DesiredSpec,
    mut broken: RejectedFields,
    references: &References,
    form: NameForm,
) -> Result<ResolvedGroup, Vec<SpecError>> {
    let Some(cluster) = &references.cluster else {
        let (path, rule) = (format!("{SPEC_PATH}.clusterName"), "does not match a cluster in this account and region");
        let remedy = "correct it, or check the controller's region";
        let problem = SpecError::invalid(&path, &desired.cluster, rule, remedy).with_reason(StalledReason::NotFound);
        return Err(broken.errors_after(problem));
    };
    let join_method =
        join_method(desired.join_auth, cluster, &format!("{SPEC_PATH}.clusterName")).unwrap_or_else(|problem| {
            broken.push(&[Part::Join], problem);
            // The cluster's own mode determines which entries have an effect. None is changed.
            access_entries::join_method(JoinAuth::Auto, &cluster.authentication_mode)
                .unwrap_or(JoinMethod::AwsAuth { remove_other: false })
        });
    let mut errors = Vec::new();
    let subnets = resolve_subnets(&mut errors, &desired, references, cluster);
    broken.extend(&[Part::Immutable], errors);
    let part = |n| cluster.arn.split(':').nth(n).unwrap_or_default();
    let (partition, region, account) = (part(1), part(3), part(4));
    if let Some(error) = desired.existing_role.as_deref().and_then(|role| foreign_role(role, partition, account)) {
        broken.push(&[Part::Join, Part::Immutable], error);
    }
    let names = ProfileNames::new(&desired.cluster, &desired.id, form, region);
    let profile_arns = format!("arn:{partition}:eks:{region}:{account}:fargateprofile/{}/*", cluster.name);
    let derived_role_arn = format!("arn:{partition}:iam::{account}:role/{}", names.role);
    let role_arn = desired.existing_role.clone().unwrap_or_else(|| derived_role_arn.clone());
    let ownership = ownership_tags(&desired.cluster, &desired.id);
    Ok(ResolvedGroup {
        is_own_role: desired.existing_role.is_none(),
        managed_policy: format!("arn:{partition}:iam::aws:policy/{POD_EXECUTION_POLICY}"),
        trust_policy: trust_policy(&profile_arns),
        profile_arns,
        region: region.to_owned(),
        join_method,
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
        broken,
        desired,
    })
}

/// The error of a role that is not of the cluster's account. EKS rejects it for a profile, but an entry in aws-auth would let
/// each principal that may assume it join as any node.
fn foreign_role(arn: &str, partition: &str, account: &str) -> Option<SpecError> {
    let is_own = arn.starts_with(&format!("arn:{partition}:iam::{account}:"));
    let (path, rule) = (format!("{SPEC_PATH}.podExecutionRoleArn"), "is not a role of the cluster's account");
    let remedy = format!("use a role of the account {account}, or remove it");
    (!is_own).then(|| SpecError::invalid(&path, arn, rule, &remedy))
}

/// Hash of the content that distinguishes one profile from another.
fn content_hash(desired: &DesiredSpec, subnets: &[String], role_arn: &str) -> String {
    let content = json!({ "selectors": desired.selectors, "subnets": subnets, "podExecutionRoleArn": role_arn });
    sha256_hex(&content.to_string())
}

/// A trust policy that admits only profiles of this cluster (EKS User Guide, "Amazon EKS Pod execution IAM role").
fn trust_policy(profiles: &str) -> String {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Service": PODS_SERVICE },
            "Action": "sts:AssumeRole",
            "Condition": { "ArnLike": { "aws:SourceArn": profiles } },
        }],
    })
    .to_string()
}

/// Resolves subnets that are given as an id or as a Name tag in the cluster's VPC.
fn resolve_subnets(
    errors: &mut Vec<SpecError>,
    desired: &DesiredSpec,
    references: &References,
    cluster: &Cluster,
) -> Vec<String> {
    let (known, in_other_vpcs) = (&references.subnets, &references.in_other_vpcs);
    let lookup = NetworkLookup { vpc: cluster.vpc.as_deref(), known, in_other_vpcs };
    let mut ids = BTreeSet::new();
    for name in &desired.subnets {
        let named = |o: &&NetworkObject| match name.starts_with("subnet-") {
            true => o.id == *name,
            false => o.has_name(name),
        };
        let found: Vec<_> = references.subnets.iter().filter(named).collect();
        if found.is_empty() {
            errors.push(lookup.not_found(&format!("{SPEC_PATH}.subnets"), name, "subnet-"));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.into_iter().collect()
}

/// Errors for public subnets, which EKS rejects: their route table has a route to an internet gateway (EKS API reference,
/// CreateFargateProfile, subnets).
pub fn public_subnet_errors(resolved: &ResolvedGroup, tables: &[RouteTable]) -> Vec<SpecError> {
    let own = |id: &String| tables.iter().find(|t| t.subnets.contains(id));
    let table = |id: &String| own(id).or_else(|| tables.iter().find(|t| t.is_main));
    let public = resolved.subnets.iter().filter(|id| table(id).is_some_and(|t| t.has_internet_gateway));
    let problem = |id: &String| {
        let rule = "is a public subnet: its route table has a route to an internet gateway, and Fargate pods have no public address";
        let remedy = "use a private subnet with a NAT gateway, or with VPC endpoints for ECR and S3";
        SpecError::invalid(&format!("{SPEC_PATH}.subnets"), id, rule, remedy)
    };
    public.map(problem).collect()
}
