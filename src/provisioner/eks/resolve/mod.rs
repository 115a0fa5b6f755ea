//! Resolves the desired spec into AWS terms: names become ids, image aliases become AMIs, and bootstrap inputs become
//! user data. Pure. A reference that cannot be resolved is a spec error with a path and a remedy.

mod instance_types;
mod network;
mod resource_names;
mod role;

use std::collections::BTreeMap;

pub use self::instance_types::InstanceTypePool;
pub(super) use self::instance_types::unknown_type;
use self::instance_types::{check_mixed_types, has_address_tag, pod_limit, resolve_pool, unknown_counts};
use self::network::{resolve_ids, zones_of};
use self::resource_names::AccountInfo;
pub use self::resource_names::ResourceNames;
pub use self::role::RecordedRole;
use self::role::{ResolvedRole, resolve_role, trust_policy};
use super::desired::{DesiredSpec, ImageSource};
use super::ipv6;
use super::launch_template::fingerprint::Fingerprint;
use super::names::managed_policy_arns;
use super::references::References;
use super::user_data::{self, BootstrapInput, IgnoredField, OsFamily, assumed_service_cidr};
use crate::api::names::label;
use crate::api::spec_error::SpecError;
use crate::auth::JoinAuth;
use crate::auth::access_entries::{self, JoinMethod};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{AccessEntryType, Cluster, InstanceType, NetworkObject, NewAccessEntry, Tag, TemplateData};
use crate::ownership::ownership_tags;
use crate::plan::StalledReason;
use crate::provisioner::join::join_method;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::rejected_fields::{Part, RejectedFields};
use crate::provisioner::role_region::iam_tags;
use crate::util::lookup::Lookup;
use crate::util::redact::Redacted;

/// A group in AWS terms. It is valid by construction: the planner does not check it again.
#[derive(Clone, Debug)]
pub struct ResolvedGroup {
    /// The spec that was resolved.
    pub desired: DesiredSpec,
    /// Fields that cannot be used. What depends on them stays as it is in AWS, and has no meaning here until
    /// [`super::unchanged_parts::keep`] replaces it.
    pub broken: RejectedFields,
    /// Whether nodes and pods of the cluster have IPv6 addresses.
    pub is_ipv6: bool,
    /// Why nodes of a new launch template version could not join an IPv6 cluster.
    pub ipv6_problems: Vec<SpecError>,
    /// The names of the resources that the controller creates.
    pub names: ResourceNames,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// Sorted zones of the subnets.
    pub zones: Vec<String>,
    /// Instance types that the controller adds to a mixed group.
    pub type_pool: Option<InstanceTypePool>,
    /// The desired content of the launch template version.
    pub template_data: TemplateData,
    /// The inputs of its user data.
    pub bootstrap: BootstrapInput,
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
    /// The access entry that lets the role's nodes join, as EKS would create it.
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
    let resolved = resolve_with_errors(desired, RejectedFields::default(), env, form, &RecordedRole::default())?;
    if resolved.broken.is_empty() { Ok(resolved) } else { Err(resolved.broken.errors()) }
}

/// Resolves a spec. [`ResolvedGroup::broken`] has the errors of the parser (`broken`) and of what cannot be resolved.
///
/// # Errors
/// The cluster does not exist; with the errors of the parser.
pub fn resolve_with_errors(
    desired: DesiredSpec,
    mut broken: RejectedFields,
    env: &References,
    form: NameForm,
    recorded: &RecordedRole,
) -> Result<ResolvedGroup, Vec<SpecError>> {
    let cluster = env.cluster.as_ref().ok_or_else(|| broken.errors_after(unknown_cluster(&desired)))?;
    let join_method = join_method(desired.join_auth, cluster, CLUSTER_FIELD).unwrap_or_else(|problem| {
        broken.push(&[Part::Join], problem);
        // The cluster's own mode determines which entries have an effect. None is changed.
        access_entries::join_method(JoinAuth::Auto, &cluster.authentication_mode)
            .unwrap_or(JoinMethod::AwsAuth { remove_other: false })
    });
    let (mut subnet_errors, mut launch_errors) = (Vec::new(), Vec::new());
    let subnets = resolve_ids(&mut subnet_errors, "subnets", &desired.subnets, &env.subnets, env);
    broken.extend(&[Part::Subnets], subnet_errors);
    let security_groups =
        resolve_ids(&mut launch_errors, "securityGroups", &desired.security_groups, &env.security_groups, env);
    if env.instance_type == Lookup::Absent {
        launch_errors.push(unknown_type(&desired));
    }
    if has_address_tag(&desired)
        && let Some(found) = env.instance_type.as_present().filter(|found| found.ipv4_per_interface.is_none())
    {
        let remedy = "use another type, or remove the annotation cluster-autoscaler-enabled";
        launch_errors.push(unknown_counts("spec.eks.configuration.instanceType", found, remedy));
    }
    let known_type = env.instance_type.as_present();
    let image_id = resolve_image(&mut launch_errors, &desired, env);
    check_mixed_types(&mut launch_errors, &desired, env);
    // Without them, nodes could not join, and the existing ones would count as outdated.
    if !desired.discovers_endpoint && (cluster.endpoint.is_empty() || cluster.ca.is_empty()) {
        let rule = "has no API endpoint or certificate authority yet, so its nodes could not join";
        let remedy = "wait until EKS has created the cluster";
        launch_errors.push(
            SpecError::invalid(CLUSTER_FIELD, &desired.cluster, rule, remedy).with_reason(StalledReason::NotFound),
        );
    }
    let account = AccountInfo::from_arn(&cluster.arn);
    let names = ResourceNames::derive(&desired, form, account.region);
    let derived_role_arn = account.iam_arn("role", &names.role);
    let ResolvedRole { arn: role_arn, profile_arn, id: role_id } =
        resolve_role(&mut broken, &desired, &names, &account, env.existing_profile.as_ref(), recorded);
    let own_role =
        if broken.contains(Part::Role) { role_arn == derived_role_arn } else { desired.existing_role.is_none() };
    let max_pods = pod_limit(&mut launch_errors, &desired, env);
    let boot = bootstrap_input(&desired, cluster, &env.subnets, &image_id, max_pods);
    let mut render_errors = Vec::new();
    let (user_data, ignored_fields) = render_user_data(&mut render_errors, &desired, &boot);
    // The parser reports broken inputs of user data with their paths.
    if !broken.contains(Part::Launch) {
        launch_errors.extend(render_errors);
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
    broken.extend(&[Part::Launch], launch_errors);
    let ownership = ownership_tags(&desired.cluster, &desired.id);
    let windows = desired.os_family == OsFamily::Windows;
    Ok(ResolvedGroup {
        is_ipv6: cluster.is_ipv6,
        ipv6_problems: ipv6::errors(&desired, cluster, env),
        fingerprint: Fingerprint::compute(desired.os_family.as_str(), &template_data, &boot),
        type_pool: resolve_pool(&desired, env, &subnets),
        zones: zones_of(&subnets, env),
        subnets,
        template_data,
        bootstrap: boot,
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
    SpecError::invalid(CLUSTER_FIELD, &desired.cluster, rule, remedy).with_reason(StalledReason::NotFound)
}

/// Renders the user data, and returns the fields that have no effect on the nodes.
fn render_user_data(
    errors: &mut Vec<SpecError>,
    desired: &DesiredSpec,
    boot: &BootstrapInput,
) -> (Redacted<String>, Vec<IgnoredField>) {
    let (text, mut ignored) = match user_data::render(desired.os_family, boot) {
        Ok(rendered) => (Redacted::new(rendered.base64()), rendered.ignored),
        Err(problem) => {
            errors.push(SpecError::from_message(problem));
            Default::default()
        }
    };
    if desired.spot_price_ignored {
        ignored.push(IgnoredField::SpotPrice);
    }
    (text, ignored)
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

fn resolve_image(errors: &mut Vec<SpecError>, desired: &DesiredSpec, env: &References) -> String {
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
            errors.push(SpecError::invalid(path, parameter, rule, remedy).with_reason(StalledReason::ImageNotFound));
            String::new()
        }
    }
}

fn bootstrap_input(
    desired: &DesiredSpec,
    cluster: &Cluster,
    subnets: &[NetworkObject],
    image_id: &str,
    max_pods: Option<u32>,
) -> BootstrapInput {
    let assumes = desired.os_family == OsFamily::Windows && !desired.discovers_endpoint;
    // The VPC's own ranges are not read; each subnet is in one of them.
    let vpc_ranges = || subnets.iter().filter_map(|subnet| subnet.ipv4_cidr.as_deref());
    let mut labels = desired.labels.clone();
    labels.insert(label::IMAGE.into(), image_id.into());
    let unless_discovered = |text: &String| if desired.discovers_endpoint { String::new() } else { text.clone() };
    BootstrapInput {
        cluster: cluster.name.clone(),
        endpoint: unless_discovered(&cluster.endpoint),
        ca_base64: unless_discovered(&cluster.ca),
        // Bottlerocket reads the range in its IP family from EKS, and writes no IPv4 range either.
        service_cidr: if cluster.is_ipv6 && desired.os_family == OsFamily::Bottlerocket {
            String::new()
        } else {
            cluster.service_cidr.clone()
        },
        assumed_service_cidr: if assumes { assumed_service_cidr(vpc_ranges()) } else { None },
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

fn group_tags(
    desired: &DesiredSpec,
    names: &ResourceNames,
    ownership: &[Tag],
    instance_type: Option<&InstanceType>,
) -> Vec<Tag> {
    use crate::api::names::tag;
    let mut tags: BTreeMap<_, _> = desired.tags.iter().map(|t| (t.key.clone(), t.value.clone())).collect();
    // The autoscaler cannot derive the pod addresses of a Windows node from a group without nodes, so a tag names them.
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
