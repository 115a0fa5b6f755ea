//! What is wanted, in AWS's own terms: names become ids, aliases become
//! images, inputs become user data. Pure; what cannot be resolved is a problem
//! with a path and a remedy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::desired::{GivenRole, Image, MOST_TYPES, Wanted};
use super::launch_template::fingerprint::Fingerprint;
use super::names::{GroupNames, managed_policy_arns};
use super::user_data::{self, BootstrapInput, Ignored, OsFamily};
use crate::api::names::label;
use crate::api::spec_error::Problem;
use crate::auth::access_entries::Way;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessKind, Catalogue, Cluster, InstanceProfile, InstanceType, NetworkObject, NewAccessEntry, Tag, TemplateData,
};
use crate::ownership::ownership;
use crate::plan::Reason;
use crate::provisioner::GroupId;
use crate::provisioner::join::way;
use crate::util::redact::Redacted;

/// What names mean: looked up before anything can be resolved.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The EKS cluster; `None` when there is none of that name.
    pub cluster: Option<Cluster>,
    /// All subnets of the cluster's VPC.
    pub subnets: Vec<NetworkObject>,
    /// All security groups of the cluster's VPC.
    pub security_groups: Vec<NetworkObject>,
    /// Subnets and security groups that are named by their ids and lie in other VPCs.
    pub elsewhere: Vec<NetworkObject>,
    /// The parameter that an image alias leads to, and what it holds.
    pub image: Option<(String, Option<String>)>,
    /// The instance type, where something is derived from it; `Some(None)` when AWS does not know it.
    pub instance_type: Option<Option<InstanceType>>,
    /// The profile of a given role; `None` when there is none of that name or no role is given.
    pub given_profile: Option<InstanceProfile>,
    /// The instance types of a mixed group by name; `None` for one that AWS does not know.
    pub types: BTreeMap<String, Option<InstanceType>>,
    /// The instance types of its line, for a group that asks for a pool of like ones.
    pub catalogue: Option<Arc<Catalogue>>,
}

/// The names of everything that we make for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The scaling group.
    pub group: String,
    /// The IAM role and its instance profile.
    pub role: String,
    /// The launch template.
    pub template: String,
}

impl Names {
    /// Derived names; with `distinct` those for when another owner has the derived ones.
    pub fn derive(wanted: &Wanted, distinct: bool) -> Self {
        let GroupId { namespace, name, created, .. } = &wanted.id;
        let group = GroupNames::new(&wanted.cluster, namespace, name);
        let of = |derived: String| if distinct { group.distinct(&derived) } else { derived };
        Names {
            group: of(group.scaling_group()),
            role: of(group.role()),
            template: of(group.launch_template(*created)),
        }
    }
}

/// What a cluster's ARN tells.
struct Account<'a> {
    partition: &'a str,
    region: &'a str,
    id: &'a str,
}

impl<'a> Account<'a> {
    fn of(arn: &'a str) -> Self {
        let part = |n| arn.split(':').nth(n).unwrap_or_default();
        Account { partition: part(1), region: part(3), id: part(4) }
    }

    fn iam(&self, kind: &str, name: &str) -> String {
        format!("arn:{}:iam::{}:{kind}/{name}", self.partition, self.id)
    }
}

/// Types like the primary one, without those that the spec names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// All of them, wherever they are offered.
    pub like: Vec<String>,
    /// Those that are offered in each of the group's zones now, as many as AWS takes.
    pub now: Vec<String>,
}

/// A group in AWS's terms. The planner never re-checks it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What it came from.
    pub wanted: Wanted,
    /// The names of everything that we make.
    pub names: Names,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// Types that are added to a mixed group by themselves.
    pub pool: Option<Pool>,
    /// What a launch template version shall hold.
    pub data: TemplateData,
    /// What it is known by.
    pub fingerprint: Fingerprint,
    /// Fields that the OS family cannot carry.
    pub ignored: Vec<Ignored>,
    /// The nodes' role.
    pub role_arn: String,
    /// The id of a given role.
    pub role_id: Option<String>,
    /// Whether the role is ours to make and to keep.
    pub own_role: bool,
    /// ARNs of the managed policies on our own role.
    pub policies: Vec<String>,
    /// All tags of the scaling group.
    pub tags: Vec<Tag>,
    /// The tags that say whose a resource is.
    pub ownership: Vec<Tag>,
    /// Which kinds of entry let its nodes join.
    pub way: Way,
    /// Its entry in aws-auth.
    pub auth: AuthEntry,
    /// Its access entry.
    pub access: NewAccessEntry,
    /// The trust policy of a role of our own.
    pub trust: String,
}

/// Resolves; all problems are told at once.
pub fn resolve(wanted: Wanted, env: &Environment, distinct: bool) -> Result<Resolved, Vec<Problem>> {
    let mut problems = Vec::new();
    let cluster = env.cluster.as_ref().ok_or_else(|| vec![unknown_cluster(&wanted)])?;
    let way = way(wanted.join_auth, cluster, CLUSTER).unwrap_or_else(|problem| {
        problems.push(problem);
        Way::AwsAuth { retire: false }
    });
    let subnets = ids(&mut problems, "subnets", &wanted.subnets, &env.subnets, env);
    let security_groups = ids(&mut problems, "securityGroups", &wanted.security_groups, &env.security_groups, env);
    if env.instance_type == Some(None) {
        problems.push(unknown_type(&wanted));
    }
    let known_type = env.instance_type.as_ref().and_then(Option::as_ref);
    let image_id = image(&mut problems, &wanted, env);
    types(&mut problems, &wanted, env);
    let names = Names::derive(&wanted, distinct);
    let account = Account::of(&cluster.arn);
    let (role_arn, profile_arn) = role(&mut problems, &wanted, &names, &account, env.given_profile.as_ref());
    let boot = bootstrap(&wanted, cluster, &image_id, pods(&wanted, env));
    let (user_data, ignored) = rendered(&mut problems, &wanted, &boot);
    let data = TemplateData {
        image_id,
        instance_type: wanted.instance_type.clone(),
        key_name: wanted.key_pair.clone(),
        profile_arn,
        security_groups,
        devices: wanted.devices.clone(),
        metadata: wanted.metadata.clone(),
        placement: wanted.placement.clone(),
        licenses: sorted(&wanted.licenses),
        spot_price: wanted.spot_price.clone(),
        tag_specifications: wanted.tag_specifications.clone(),
        user_data,
    };
    if !problems.is_empty() {
        return Err(problems);
    }
    let ownership = ownership(&wanted.cluster, &wanted.id);
    let windows = wanted.family == OsFamily::Windows;
    Ok(Resolved {
        fingerprint: Fingerprint::of(wanted.family.as_str(), &data, &boot),
        pool: pool(&wanted, env, &subnets),
        subnets,
        data,
        ignored,
        way,
        auth: AuthEntry::for_nodes(&role_arn, windows),
        access: NewAccessEntry {
            cluster: cluster.name.clone(),
            principal: role_arn.clone(),
            kind: if windows { AccessKind::Ec2Windows } else { AccessKind::Ec2Linux },
            own_role: wanted.given_role.is_none(),
            tags: ownership.clone(),
        },
        trust: trust(account.region),
        role_arn,
        role_id: env.given_profile.as_ref().and_then(|p| Some(p.role.as_ref()?.id.clone())),
        own_role: wanted.given_role.is_none(),
        policies: managed_policy_arns(account.region, wanted.irsa, &wanted.managed_policies),
        tags: group_tags(&wanted, &names, &ownership, known_type),
        ownership,
        names,
        wanted,
    })
}

/// The field that names the cluster.
pub const CLUSTER: &str = "spec.eks.configuration.clusterName";

fn unknown_cluster(wanted: &Wanted) -> Problem {
    let (rule, remedy) = ("is no cluster in this account and region", "correct it, or check the controller's region");
    Problem::invalid(CLUSTER, &wanted.cluster, rule, remedy).because(Reason::NotFound)
}

/// The user data, and the fields that the nodes are launched without.
fn rendered(problems: &mut Vec<Problem>, wanted: &Wanted, boot: &BootstrapInput) -> (Redacted<String>, Vec<Ignored>) {
    let (text, mut ignored) = match user_data::render(wanted.family, boot) {
        Ok(rendered) => (Redacted::new(rendered.base64()), rendered.ignored),
        Err(problem) => {
            problems.push(Problem::told(problem));
            Default::default()
        }
    };
    if wanted.spot_ignored {
        ignored.push(Ignored::SpotPrice);
    }
    (text, ignored)
}

/// An instance type that AWS does not have here.
pub(super) fn unknown_type(wanted: &Wanted) -> Problem {
    let rule = "is no instance type of this region";
    Problem::invalid("spec.eks.configuration.instanceType", &wanted.instance_type, rule, "correct it")
        .because(Reason::NotFound)
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

fn ids(
    problems: &mut Vec<Problem>,
    field: &str,
    wanted: &[String],
    known: &[NetworkObject],
    env: &Environment,
) -> Vec<String> {
    let prefix = if field == "subnets" { "subnet-" } else { "sg-" };
    let mut ids = Vec::new();
    for name in wanted {
        let found: Vec<_> = if name.starts_with(prefix) {
            known.iter().filter(|o| o.id == *name).collect()
        } else {
            known.iter().filter(|o| o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name))).collect()
        };
        if found.is_empty() {
            problems.push(not_here(field, name, env));
        }
        ids.extend(found.into_iter().map(|o| o.id.clone()));
    }
    ids.sort();
    ids.dedup();
    ids
}

fn not_here(field: &str, name: &str, env: &Environment) -> Problem {
    let path = format!("spec.eks.configuration.{field}");
    let vpc = env.cluster.as_ref().map_or("", |cluster| cluster.vpc.as_str());
    let problem = match env.elsewhere.iter().find(|o| o.id == name) {
        Some(other) => Problem::invalid(
            &path,
            name,
            format!("is in {}, and the cluster's VPC is {vpc}", other.vpc),
            format!("use one of {vpc}"),
        ),
        None => {
            let rule = "is neither an id nor a Name tag in the cluster's VPC";
            Problem::invalid(&path, name, rule, "correct it, or tag the resource")
        }
    };
    problem.because(Reason::NotFound)
}

fn image(problems: &mut Vec<Problem>, wanted: &Wanted, env: &Environment) -> String {
    let path = "spec.eks.configuration.image";
    if let Image::Id(id) = &wanted.image {
        return id.clone();
    }
    if env.instance_type == Some(None) {
        return String::new();
    }
    match &env.image {
        Some((_, Some(id))) => id.clone(),
        other => {
            let parameter = other.as_ref().map(|(p, _)| p.clone()).unwrap_or_default();
            let rule = "leads to no image for this OS family, architecture and cluster version";
            let remedy = "name an AMI id, or use an OS family that AWS publishes for this Kubernetes version (Amazon Linux 2 ends with 1.32)";
            problems.push(Problem::invalid(path, parameter, rule, remedy).because(Reason::ImageNotFound));
            String::new()
        }
    }
}

fn pool(wanted: &Wanted, env: &Environment, subnets: &[String]) -> Option<Pool> {
    let mixed = wanted.mixed.as_ref().filter(|m| m.pool)?;
    let catalogue = env.catalogue.as_ref()?;
    let zones: Vec<_> =
        env.subnets.iter().filter(|s| subnets.contains(&s.id)).filter_map(|s| s.zone.as_deref()).collect();
    let named = |name: &&str| mixed.types.iter().any(|t| t.instance_type == *name);
    let like: Vec<_> = catalogue.like(&wanted.instance_type).into_iter().filter(|n| !named(n)).collect();
    let room = MOST_TYPES.saturating_sub(mixed.types.len());
    let limit = pods(wanted, env).filter(|_| wanted.max_pods.is_none());
    // A node that promises more pods than it has addresses is broken.
    let enough = |name: &str| match (limit, wanted.networking) {
        (Some(limit), Some(networking)) => catalogue.get(name).is_some_and(|t| networking.max_pods(t) >= limit),
        (None, _) | (_, None) => true,
    };
    let fit = like.iter().filter(|name| catalogue.offered(name, &zones) && enough(name));
    let now = fit.take(room).map(|name| (*name).to_owned()).collect();
    Some(Pool { like: like.into_iter().map(str::to_owned).collect(), now })
}

/// All types of a mixed group launch from one image.
fn types(problems: &mut Vec<Problem>, wanted: &Wanted, env: &Environment) {
    let Some(mixed) = &wanted.mixed else { return };
    let architecture = |name: &str| env.types.get(name).and_then(|t| t.as_ref()?.architecture());
    let primary = architecture(&wanted.instance_type);
    for (one, path) in mixed.types.iter().zip(&mixed.paths) {
        let name = &one.instance_type;
        let path = format!("spec.eks.configuration.{path}");
        let told = path.ends_with(".instanceType") && env.instance_type.is_some();
        if env.types.get(name).is_some_and(Option::is_none) && !told {
            let rule = "is no instance type of this region";
            problems.push(Problem::invalid(&path, name, rule, "correct it").because(Reason::NotFound));
        } else if let (Some(own), Some(first)) = (architecture(name), primary)
            && own != first
        {
            let rule = format!("is {own}, and {} is {first}: one image cannot start both", wanted.instance_type);
            problems.push(Problem::invalid(&path, name, rule, "use types of one architecture"));
        }
    }
}

fn role(
    problems: &mut Vec<Problem>,
    wanted: &Wanted,
    names: &Names,
    account: &Account,
    profile: Option<&InstanceProfile>,
) -> (String, String) {
    let Some(GivenRole { role, profile: profile_name }) = &wanted.given_role else {
        return (account.iam("role", &names.role), account.iam("instance-profile", &names.role));
    };
    let path = "spec.eks.configuration.instanceProfileName";
    let Some(profile) = profile else {
        problems.push(
            Problem::invalid(
                path,
                profile_name,
                "is no instance profile of this account",
                "create it with the role, or correct the name",
            )
            .because(Reason::NotFound),
        );
        return Default::default();
    };
    match &profile.role {
        Some(held) if held.name == *role => (held.arn.clone(), profile.arn.clone()),
        held => {
            let rule = format!("holds {}, not the role {role}", held.as_ref().map_or("no role", |r| r.name.as_str()));
            problems.push(Problem::invalid(path, profile_name, rule, "name the profile that holds roleName"));
            Default::default()
        }
    }
}

/// How many pods a node takes. All types of a mixed group have the same user data, so the one with the fewest addresses
/// decides; what a pool adds by itself never has fewer.
fn pods(wanted: &Wanted, env: &Environment) -> Option<u32> {
    if wanted.max_pods.is_some() {
        return wanted.max_pods;
    }
    let networking = wanted.networking?;
    let primary = env.instance_type.as_ref()?.as_ref()?;
    let listed = wanted.mixed.iter().flat_map(|m| &m.types).filter_map(|t| env.types.get(&t.instance_type)?.as_ref());
    listed.chain([primary]).map(|found| networking.max_pods(found)).min()
}

fn bootstrap(wanted: &Wanted, cluster: &Cluster, image_id: &str, max_pods: Option<u32>) -> BootstrapInput {
    let mut labels = wanted.labels.clone();
    labels.insert(label::IMAGE.into(), image_id.into());
    let told = |text: &String| if wanted.asks_for_endpoint { String::new() } else { text.clone() };
    BootstrapInput {
        cluster: cluster.name.clone(),
        endpoint: told(&cluster.endpoint),
        ca_base64: told(&cluster.ca),
        service_cidr: cluster.service_cidr.clone(),
        labels,
        taints: wanted.taints.clone(),
        max_pods,
        container_runtime: wanted.container_runtime.clone(),
        // The other families ask where they are bound for in any case.
        waits: wanted.warm_pool.is_some() && wanted.family == OsFamily::Bottlerocket,
        bootstrap_arguments: wanted.bootstrap_arguments.clone(),
        mounts: wanted.mounts.clone(),
        stages: wanted.stages.clone(),
    }
}

fn trust(region: &str) -> String {
    let service = super::names::ec2_principal(region);
    serde_json::json!({
        "Version": "2012-10-17",
        "Statement": [{ "Effect": "Allow", "Principal": { "Service": service }, "Action": "sts:AssumeRole" }],
    })
    .to_string()
}

fn group_tags(wanted: &Wanted, names: &Names, ownership: &[Tag], instance_type: Option<&InstanceType>) -> Vec<Tag> {
    use crate::api::names::tag;
    let mut tags: std::collections::BTreeMap<_, _> =
        wanted.tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
    // An empty group of Windows nodes must tell the autoscaler how many pods get an address of their own.
    if let Some(found) = instance_type.filter(|_| wanted.autoscaled && wanted.family == OsFamily::Windows) {
        let key =
            format!("{}node-template/resources/vpc.amazonaws.com/PrivateIPv4Address", tag::CLUSTER_AUTOSCALER_PREFIX);
        tags.insert(key, (found.addresses - 1).max(0).to_string());
    }
    tags.extend(ownership.iter().map(|t| (t.key.clone(), t.value.clone())));
    tags.insert(tag::KUBERNETES_CLUSTER.into(), wanted.cluster.clone());
    tags.insert(tag::NAME.into(), names.group.clone());
    tags.into_iter().map(|(key, value)| Tag { key, value }).collect()
}
