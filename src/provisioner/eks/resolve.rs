//! Resolves the desired spec into AWS terms: names become ids, image aliases become AMIs, and bootstrap inputs become
//! user data. Pure. A reference that cannot be resolved is a spec error with a path and a remedy.

use std::collections::BTreeMap;

use super::desired::{DesiredSpec, ExistingRole, ImageSource, MAX_INSTANCE_TYPES};
use super::ipv6;
use super::launch_template::fingerprint::Fingerprint;
use super::names::{GroupNames, managed_policy_arns};
use super::references::References;
use super::user_data::{self, BootstrapInput, IgnoredField, OsFamily};
use crate::api::names::label;
use crate::api::spec_error::SpecError;
use crate::auth::JoinAuth;
use crate::auth::access_entries::{self, JoinMethod};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntryType, Cluster, InstanceProfile, InstanceType, NetworkObject, NewAccessEntry, Tag, TemplateData,
};
use crate::ownership::ownership_tags;
use crate::plan::Reason;
use crate::provisioner::GroupId;
use crate::provisioner::broken_fields::{BrokenFields, Part};
use crate::provisioner::join::join_method;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::request::vpc_unknown;
use crate::provisioner::role_region::iam_tags;
use crate::util::lookup::Lookup;
use crate::util::redact::Redacted;

/// The names of the AWS resources that the controller creates for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceNames {
    /// The scaling group.
    pub scaling_group: String,
    /// The IAM role and its instance profile.
    pub role: String,
    /// The launch template.
    pub template: String,
}

impl ResourceNames {
    /// Derives the names of a group in a region.
    pub(crate) fn derive(desired: &DesiredSpec, form: NameForm, region: &str) -> Self {
        let GroupId { namespace, name, created_at, .. } = &desired.id;
        let group = GroupNames::new(&desired.cluster, namespace, name);
        ResourceNames {
            scaling_group: group.scaling_group_in(form, region),
            role: group.role_in(form, region),
            template: group.launch_template_in(*created_at, form, region),
        }
    }

    /// All names.
    pub(crate) fn all(&self) -> [&str; 3] {
        [&self.scaling_group, &self.role, &self.template]
    }
}

/// Partition, region and account of a cluster's ARN.
struct AccountInfo<'a> {
    partition: &'a str,
    region: &'a str,
    account_id: &'a str,
}

impl<'a> AccountInfo<'a> {
    fn from_arn(arn: &'a str) -> Self {
        let part = |n| arn.split(':').nth(n).unwrap_or_default();
        AccountInfo { partition: part(1), region: part(3), account_id: part(4) }
    }

    fn iam_arn(&self, kind: &str, name: &str) -> String {
        format!("arn:{}:iam::{}:{kind}/{name}", self.partition, self.account_id)
    }
}

/// Instance types similar to the primary one, without those that the spec lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceTypePool {
    /// All similar types, in whichever zones they are offered.
    pub similar: Vec<String>,
    /// The types that are offered in each of the group's zones now, up to the limit of AWS.
    pub offered_now: Vec<String>,
}

/// A group in AWS terms. It is valid by construction: the planner does not check it again.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// The spec that was resolved.
    pub desired: DesiredSpec,
    /// Fields that cannot be used. What depends on them stays as it is in AWS, and has no meaning here until
    /// [`super::in_force::keep`] replaces it.
    pub broken: BrokenFields,
    /// Whether nodes and pods of the cluster have IPv6 addresses.
    pub is_ipv6: bool,
    /// Why nodes of a new launch template version could not join an IPv6 cluster.
    pub ipv6_problems: Vec<SpecError>,
    /// The names of the resources that the controller creates.
    pub names: ResourceNames,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// Instance types that the controller adds to a mixed group.
    pub type_pool: Option<InstanceTypePool>,
    /// The desired content of the launch template version.
    pub template_data: TemplateData,
    /// Identifies the desired content in a version's description.
    pub fingerprint: Fingerprint,
    /// Fields that the OS family does not support.
    pub ignored_fields: Vec<IgnoredField>,
    /// ARN of the nodes' role.
    pub role_arn: String,
    /// ARN of the role that the controller creates when the spec names none.
    pub derived_role_arn: String,
    /// The id of an existing role that the spec names.
    pub role_id: Option<String>,
    /// Whether the controller creates and owns the role.
    pub own_role: bool,
    /// ARNs of the managed policies on the controller's own role.
    pub managed_policies: Vec<String>,
    /// All tags of the scaling group.
    pub tags: Vec<Tag>,
    /// The tags that prove the ownership of a resource.
    pub ownership_tags: Vec<Tag>,
    /// The cluster's region, in the fourth tag of the role and its instance profile.
    pub region: String,
    /// Which kinds of entries let nodes join the cluster.
    pub join_method: JoinMethod,
    /// Its entry in aws-auth.
    pub aws_auth_entry: AuthEntry,
    /// Its access entry.
    pub access_entry: NewAccessEntry,
    /// The trust policy of the controller's own role.
    pub trust_policy: String,
}

impl ResolvedGroup {
    /// The tags of the controller's own role and its instance profile.
    pub(crate) fn iam_tags(&self) -> Vec<Tag> {
        iam_tags(&self.ownership_tags, &self.region)
    }
}

/// Resolves a spec. Returns all errors at once.
pub fn resolve(desired: DesiredSpec, env: &References, form: NameForm) -> Result<ResolvedGroup, Vec<SpecError>> {
    let resolved = resolve_with_errors(desired, BrokenFields::default(), env, form, &RecordedRole::default())?;
    if resolved.broken.is_empty() { Ok(resolved) } else { Err(resolved.broken.errors()) }
}

/// The role that the status records.
#[derive(Clone, Debug, Default)]
pub struct RecordedRole {
    /// ARN of the role; `None` before the first reconcile.
    pub arn: Option<String>,
    /// Unique id of the role, if it is recorded.
    pub id: Option<String>,
}

/// Resolves a spec. [`ResolvedGroup::broken`] has the errors of the parser (`broken`) and of what cannot be resolved.
///
/// # Errors
/// The cluster does not exist.
pub fn resolve_with_errors(
    desired: DesiredSpec,
    mut broken: BrokenFields,
    env: &References,
    form: NameForm,
    recorded: &RecordedRole,
) -> Result<ResolvedGroup, Vec<SpecError>> {
    let cluster = env.cluster.as_ref().ok_or_else(|| vec![unknown_cluster(&desired)])?;
    let join_method = join_method(desired.join_auth, cluster, CLUSTER_FIELD).unwrap_or_else(|problem| {
        broken.push(&[Part::Join], problem);
        // The cluster's own mode says which entries have an effect. None is changed.
        access_entries::join_method(JoinAuth::Auto, &cluster.authentication_mode)
            .unwrap_or(JoinMethod::AwsAuth { remove_other: false })
    });
    let (mut subnet_problems, mut launch_problems) = (Vec::new(), Vec::new());
    let subnets = resolve_ids(&mut subnet_problems, "subnets", &desired.subnets, &env.subnets, env);
    broken.extend(&[Part::Subnets], subnet_problems);
    let security_groups =
        resolve_ids(&mut launch_problems, "securityGroups", &desired.security_groups, &env.security_groups, env);
    if env.instance_type == Lookup::Absent {
        launch_problems.push(unknown_type(&desired));
    }
    if has_address_tag(&desired)
        && let Some(found) = env.instance_type.as_present().filter(|found| found.ipv4_per_interface.is_none())
    {
        let remedy = "use another type, or remove the annotation cluster-autoscaler-enabled";
        launch_problems.push(unknown_counts("spec.eks.configuration.instanceType", found, remedy));
    }
    let known_type = env.instance_type.as_present();
    let image_id = resolve_image(&mut launch_problems, &desired, env);
    check_mixed_types(&mut launch_problems, &desired, env);
    // Without them, nodes could not join, and the existing ones would count as outdated.
    if !desired.discovers_endpoint && (cluster.endpoint.is_empty() || cluster.ca.is_empty()) {
        let rule = "has no API endpoint or certificate authority yet, so its nodes could not join";
        let remedy = "wait until EKS has created the cluster";
        launch_problems
            .push(SpecError::invalid(CLUSTER_FIELD, &desired.cluster, rule, remedy).with_reason(Reason::NotFound));
    }
    let account = AccountInfo::from_arn(&cluster.arn);
    let names = ResourceNames::derive(&desired, form, account.region);
    let derived_role_arn = account.iam_arn("role", &names.role);
    let ResolvedRole { arn: role_arn, profile_arn, id: role_id } =
        resolve_role(&mut broken, &desired, &names, &account, env.existing_profile.as_ref(), recorded);
    let own_role =
        if broken.contains(Part::Role) { role_arn == derived_role_arn } else { desired.existing_role.is_none() };
    let boot = bootstrap_input(&desired, cluster, &image_id, pod_limit(&mut launch_problems, &desired, env));
    let mut render_problems = Vec::new();
    let (user_data, ignored_fields) = render_user_data(&mut render_problems, &desired, &boot);
    // The parser reports broken inputs of user data with their paths.
    if !broken.contains(Part::Launch) {
        launch_problems.extend(render_problems);
    }
    let template_data = TemplateData {
        image_id,
        instance_type: desired.instance_type.clone(),
        key_name: desired.key_pair.clone(),
        profile_arn,
        security_groups,
        devices: desired.block_devices.clone(),
        metadata: desired.metadata_options.clone(),
        placement: desired.placement.clone(),
        licenses: sorted(&desired.licenses),
        spot_price: desired.spot_price.clone(),
        tag_specifications: desired.tag_specifications.clone(),
        user_data,
    };
    broken.extend(&[Part::Launch], launch_problems);
    let ownership = ownership_tags(&desired.cluster, &desired.id);
    let windows = desired.os_family == OsFamily::Windows;
    Ok(ResolvedGroup {
        is_ipv6: cluster.is_ipv6,
        ipv6_problems: ipv6::problems(&desired, cluster, env),
        fingerprint: Fingerprint::compute(desired.os_family.as_str(), &template_data, &boot),
        type_pool: resolve_pool(&desired, env, &subnets),
        subnets,
        template_data,
        ignored_fields,
        join_method,
        aws_auth_entry: AuthEntry::for_nodes(&role_arn, windows),
        access_entry: NewAccessEntry {
            cluster: cluster.name.clone(),
            principal: role_arn.clone(),
            kind: if windows { AccessEntryType::Ec2Windows } else { AccessEntryType::Ec2Linux },
            own_role,
            tags: ownership.clone(),
        },
        trust_policy: trust_policy(account.region),
        derived_role_arn,
        role_arn,
        role_id,
        own_role,
        managed_policies: managed_policy_arns(account.region, desired.irsa, &desired.managed_policies),
        tags: group_tags(&desired, &names, &ownership, known_type),
        ownership_tags: ownership,
        region: account.region.to_owned(),
        names,
        broken,
        desired,
    })
}

/// The field that names the cluster.
pub(crate) const CLUSTER_FIELD: &str = "spec.eks.configuration.clusterName";

fn unknown_cluster(desired: &DesiredSpec) -> SpecError {
    let (rule, remedy) = ("does not exist in this account and region", "correct it, or check the controller's region");
    SpecError::invalid(CLUSTER_FIELD, &desired.cluster, rule, remedy).with_reason(Reason::NotFound)
}

/// Renders the user data, and returns the fields that have no effect on the nodes.
fn render_user_data(
    problems: &mut Vec<SpecError>,
    desired: &DesiredSpec,
    boot: &BootstrapInput,
) -> (Redacted<String>, Vec<IgnoredField>) {
    let (text, mut ignored) = match user_data::render(desired.os_family, boot) {
        Ok(rendered) => (Redacted::new(rendered.base64()), rendered.ignored),
        Err(problem) => {
            problems.push(SpecError::from_message(problem));
            Default::default()
        }
    };
    if desired.spot_price_ignored {
        ignored.push(IgnoredField::SpotPrice);
    }
    (text, ignored)
}

/// The error for an instance type that the region does not have.
pub(super) fn unknown_type(desired: &DesiredSpec) -> SpecError {
    let rule = "is not an instance type of this region";
    SpecError::invalid("spec.eks.configuration.instanceType", &desired.instance_type, rule, "correct it")
        .with_reason(Reason::NotFound)
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

fn resolve_ids(
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

fn resolve_image(problems: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) -> String {
    let path = "spec.eks.configuration.image";
    if let ImageSource::Id(id) = &desired.image {
        return id.clone();
    }
    // Without the type, which is reported, no architecture is known.
    if env.instance_type.as_present().is_none() {
        return String::new();
    }
    match &env.image {
        Some((_, Some(id))) => id.clone(),
        other => {
            let parameter = other.as_ref().map(|(p, _)| p.clone()).unwrap_or_default();
            let rule = "does not exist: AWS publishes no image for this OS family, architecture and cluster version";
            let remedy = "use an AMI id, or an OS family that AWS publishes for this Kubernetes version (Amazon Linux 2 ends with 1.32)";
            problems.push(SpecError::invalid(path, parameter, rule, remedy).with_reason(Reason::ImageNotFound));
            String::new()
        }
    }
}

fn resolve_pool(desired: &DesiredSpec, env: &References, subnets: &[String]) -> Option<InstanceTypePool> {
    let mixed = desired.mixed_instances.as_ref().filter(|m| m.extend_with_similar)?;
    let catalogue = env.catalog.as_ref()?;
    let zones: Vec<_> =
        env.subnets.iter().filter(|s| subnets.contains(&s.id)).filter_map(|s| s.zone.as_deref()).collect();
    let named = |name: &&str| mixed.overrides.iter().any(|t| t.instance_type == *name);
    let like: Vec<_> = catalogue.similar_to(&desired.instance_type).into_iter().filter(|n| !named(n)).collect();
    let room = MAX_INSTANCE_TYPES.saturating_sub(mixed.overrides.len());
    let is_ipv6 = env.cluster.as_ref().is_some_and(|cluster| cluster.is_ipv6);
    let limit = pod_limit(&mut Vec::new(), desired, env).filter(|_| desired.max_pods.is_none());
    // A node must not accept more pods than it has addresses.
    let enough = |name: &str| match (limit, desired.custom_networking) {
        (Some(limit), Some(networking)) => {
            catalogue.get(name).and_then(|t| networking.pod_limit(t)).is_some_and(|found| found >= limit)
        }
        (None, _) | (_, None) => true,
    };
    let has_ipv6 = |name: &str| !(is_ipv6 && catalogue.get(name).is_some_and(|found| found.is_xen));
    let fit = like.iter().filter(|name| catalogue.offered_in_zones(name, &zones) && enough(name) && has_ipv6(name));
    let offered_now = fit.take(room).map(|name| (*name).to_owned()).collect();
    Some(InstanceTypePool { similar: like.into_iter().map(str::to_owned).collect(), offered_now })
}

/// All instance types of a mixed group launch from one image, so they need one architecture.
fn check_mixed_types(problems: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) {
    let Some(mixed) = &desired.mixed_instances else { return };
    let architecture = |name: &str| env.mixed_types.get(name).and_then(|t| t.as_ref()?.architecture());
    let primary = architecture(&desired.instance_type);
    for (one, path) in mixed.overrides.iter().zip(&mixed.paths) {
        let name = &one.instance_type;
        let path = format!("spec.eks.configuration.{path}");
        let is_reported = path.ends_with(".instanceType") && env.instance_type.is_queried();
        if env.mixed_types.get(name).is_some_and(Option::is_none) && !is_reported {
            let rule = "is not an instance type of this region";
            problems.push(SpecError::invalid(&path, name, rule, "correct it").with_reason(Reason::NotFound));
        } else if let (Some(own), Some(first)) = (architecture(name), primary)
            && own != first
        {
            let rule = format!("is {own}, but {} is {first}: one image cannot boot both", desired.instance_type);
            problems.push(SpecError::invalid(&path, name, rule, "use types of one architecture"));
        }
    }
}

/// The role that the nodes use.
struct ResolvedRole {
    arn: String,
    profile_arn: String,
    /// The id of an existing role that the spec names.
    id: Option<String>,
}

/// Resolves the role. One that cannot be used gives way to the recorded one, so that the entries of the existing nodes stay.
fn resolve_role(
    broken: &mut BrokenFields,
    desired: &DesiredSpec,
    names: &ResourceNames,
    account: &AccountInfo,
    profile: Option<&InstanceProfile>,
    recorded: &RecordedRole,
) -> ResolvedRole {
    let derived = || ResolvedRole {
        arn: account.iam_arn("role", &names.role),
        profile_arn: account.iam_arn("instance-profile", &names.role),
        id: None,
    };
    let path = "spec.eks.configuration.instanceProfileName";
    match (&desired.existing_role, profile.and_then(|profile| Some((profile, profile.role.as_ref()?)))) {
        _ if broken.contains(Part::Role) => {}
        (None, _) => return derived(),
        (Some(ExistingRole { role, .. }), Some((profile, held))) if held.name == *role => {
            let id = Some(held.id.clone());
            return ResolvedRole { arn: held.arn.clone(), profile_arn: profile.arn.clone(), id };
        }
        (Some(ExistingRole { profile: name, .. }), None) if profile.is_none() => {
            let rule = "does not exist in this account";
            let problem = SpecError::invalid(path, name, rule, "create it with the role, or correct the name");
            broken.push(&[Part::Role, Part::Launch], problem.with_reason(Reason::NotFound));
        }
        (Some(ExistingRole { role, profile: name }), held) => {
            let rule = format!("holds {}, not the role {role}", held.map_or("no role", |(_, held)| held.name.as_str()));
            let problem = SpecError::invalid(path, name, rule, "use the profile that holds roleName");
            broken.push(&[Part::Role, Part::Launch], problem);
        }
    }
    match &recorded.arn {
        Some(arn) => ResolvedRole { arn: arn.clone(), profile_arn: String::new(), id: recorded.id.clone() },
        None => derived(),
    }
}

/// The pod limit of a node. All instance types of a mixed group share the user data, so the type with the fewest
/// addresses decides; types of an instance pool never have fewer.
fn pod_limit(problems: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) -> Option<u32> {
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
            problems.push(unknown_counts(&format!("spec.eks.configuration.{path}"), found, remedy));
        }
        limit
    };
    all.into_iter().filter_map(limit).min()
}

/// The error for a type whose network interfaces EC2 does not describe. A node with too high a limit would accept pods
/// that get no address; AWS documents no limit for such a type.
fn unknown_counts(path: &str, found: &InstanceType, remedy: &str) -> SpecError {
    let rule = "has no known number of network interfaces and addresses: EC2 does not return it";
    SpecError::invalid(path, &found.name, rule, remedy)
}

fn bootstrap_input(desired: &DesiredSpec, cluster: &Cluster, image_id: &str, max_pods: Option<u32>) -> BootstrapInput {
    let mut labels = desired.labels.clone();
    labels.insert(label::IMAGE.into(), image_id.into());
    let unless_discovered = |text: &String| if desired.discovers_endpoint { String::new() } else { text.clone() };
    BootstrapInput {
        cluster: cluster.name.clone(),
        endpoint: unless_discovered(&cluster.endpoint),
        ca_base64: unless_discovered(&cluster.ca),
        // Bottlerocket asks EKS for the range in its IP family, and writes no IPv4 range either.
        service_cidr: if cluster.is_ipv6 && desired.os_family == OsFamily::Bottlerocket {
            String::new()
        } else {
            cluster.service_cidr.clone()
        },
        labels,
        taints: desired.taints.clone(),
        max_pods,
        container_runtime: desired.container_runtime.clone(),
        // The user data of the other families always checks the target lifecycle state.
        waits_for_service: desired.warm_pool.is_some() && desired.os_family == OsFamily::Bottlerocket,
        bootstrap_arguments: desired.bootstrap_arguments.clone(),
        mounts: desired.mounts.clone(),
        stages: desired.stages.clone(),
    }
}

fn trust_policy(region: &str) -> String {
    let service = super::names::ec2_principal(region);
    serde_json::json!({
        "Version": "2012-10-17",
        "Statement": [{ "Effect": "Allow", "Principal": { "Service": service }, "Action": "sts:AssumeRole" }],
    })
    .to_string()
}

/// Whether a tag of the scaling group names the addresses of the instance type.
fn has_address_tag(desired: &DesiredSpec) -> bool {
    desired.has_autoscaler_tags && desired.os_family == OsFamily::Windows
}

fn group_tags(
    desired: &DesiredSpec,
    names: &ResourceNames,
    ownership: &[Tag],
    instance_type: Option<&InstanceType>,
) -> Vec<Tag> {
    use crate::api::names::tag;
    let mut tags: BTreeMap<_, _> = desired.tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
    // The autoscaler cannot learn the pod addresses of a Windows node from a group without nodes, so a tag names them.
    if let Some(found) = instance_type.filter(|_| has_address_tag(desired)) {
        let key =
            format!("{}node-template/resources/vpc.amazonaws.com/PrivateIPv4Address", tag::CLUSTER_AUTOSCALER_PREFIX);
        tags.extend(found.ipv4_per_interface.map(|addresses| (key, (addresses - 1).max(0).to_string())));
    }
    tags.extend(ownership.iter().map(|t| (t.key.clone(), t.value.clone())));
    tags.insert(tag::KUBERNETES_CLUSTER.into(), desired.cluster.clone());
    tags.insert(tag::NAME.into(), names.scaling_group.clone());
    tags.into_iter().map(|(key, value)| Tag { key, value }).collect()
}
