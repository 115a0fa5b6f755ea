//! Parses and validates the merged spec of an `eks-managed` group. Later stages use the typed values and do not validate
//! again.

use std::collections::BTreeMap;

use crate::api::spec_error::{ComparedField, SpecError, SpecErrors, non_empty, non_empty_items};
use crate::api::{CapacityType, EksManagedConfiguration, InstanceGroupSpec, IntOrString, NodegroupTaintEffect};
use crate::aws::nodegroup::{ImmutableFields, MaxUnavailable, NodegroupTaint};
use crate::boundaries::MergedAnnotations;
use crate::provisioner::eks::names::reserved_tag;
use crate::provisioner::{GroupId, label_rules, limits};
use crate::rotation::rolling_update::settings::RollingUpdateSettings;

/// The desired state of a group, from the tenant's spec and the admin's defaults. Fields that are `None` are not changed, or
/// are left to EKS.
#[derive(Clone, Debug)]
pub struct DesiredSpec {
    /// The group's identity.
    pub id: GroupId,
    /// The EKS cluster's name.
    pub cluster: String,
    /// Minimum number of nodes.
    pub min_size: i32,
    /// Maximum number of nodes.
    pub max_size: i32,
    /// Fields that EKS cannot change in place. Subnets and security groups are ids or Name tags here.
    pub immutable: ImmutableFields,
    /// Kubernetes version of the nodes, for example `1.33`.
    pub version: Option<String>,
    /// The release of the machine image.
    pub release_version: Option<String>,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Sorted taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// Tags from the spec.
    pub tags: BTreeMap<String, String>,
    /// How many nodes may be unavailable at the same time.
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes (node auto repair).
    pub node_repair: Option<bool>,
    /// How nodes are drained during a blue/green replacement.
    pub rolling_update: RollingUpdateSettings,
}

impl DesiredSpec {
    /// The Kubernetes version that the spec requests: its `version`, or that of its `releaseVersion`. EKS rejects a
    /// release of another Kubernetes version than the one in the request, and takes the cluster's for a missing one.
    /// Releases of Bottlerocket do not name a Kubernetes version.
    pub(crate) fn kubernetes_version(&self, ami_type: Option<&str>) -> Option<String> {
        let names_version = !ami_type.is_some_and(|ami_type| ami_type.starts_with("BOTTLEROCKET"));
        let of_release = || {
            let (numbers, _) = self.release_version.as_ref().filter(|_| names_version)?.split_once('-')?;
            let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
            Some(format!("{}.{}", numbers.next()??, numbers.next()??))
        };
        self.version.clone().or_else(of_release)
    }
}

pub(super) const CONFIGURATION_PATH: &str = "spec.eks-managed.configuration";
/// Maximum number of taints (EKS User Guide, "Node taints on managed node groups").
const MAX_TAINTS: usize = 50;
/// Maximum number of tags besides the controller's three (EKS API reference, TagMap: 50).
const MAX_TAGS: usize = 47;

/// Parses a merged spec.
///
/// # Errors
/// Every error in the spec, with its field path.
pub fn parse(
    id: &GroupId,
    annotations: &MergedAnnotations,
    spec: &InstanceGroupSpec,
) -> Result<DesiredSpec, Vec<SpecError>> {
    let (desired, errors) = parse_with_errors(id, annotations, spec);
    if errors.is_empty() { Ok(desired) } else { Err(errors) }
}

/// Parses a merged spec. The fields that errors name have no meaning.
pub fn parse_with_errors(
    id: &GroupId,
    annotations: &MergedAnnotations,
    spec: &InstanceGroupSpec,
) -> (DesiredSpec, Vec<SpecError>) {
    let mut errors = SpecErrors::under(CONFIGURATION_PATH);
    let rolling_update = RollingUpdateSettings::parse(&mut errors, annotations, spec);
    let managed = spec.eks_managed.clone().unwrap_or_default();
    let c = managed.configuration.unwrap_or_default();
    let (min_size, max_size) = parse_sizes(&mut errors, managed.min_size, managed.max_size);
    let cluster = limits::cluster_name(&mut errors, &c.cluster_name);
    let desired = DesiredSpec {
        id: id.clone(),
        min_size,
        max_size,
        immutable: parse_immutable_fields(&mut errors, &c),
        version: non_empty(&c.version),
        release_version: non_empty(&c.release_version),
        labels: parse_labels(&mut errors, &c),
        taints: parse_taints(&mut errors, &c),
        tags: parse_tags(&mut errors, &c, &cluster),
        max_unavailable: parse_max_unavailable(&mut errors, spec, max_size),
        node_repair: c.node_repair_config.as_ref().and_then(|repair| repair.enabled),
        cluster,
        rolling_update,
    };
    (desired, errors.into_errors())
}

/// Parses the sizes. EKS rejects a maximum size of 0 (EKS API reference, NodegroupScalingConfig).
fn parse_sizes(errors: &mut SpecErrors, min: Option<i64>, max: Option<i64>) -> (i32, i32) {
    if max.is_none() {
        errors.push_error(SpecError::missing("spec.eks-managed.maxSize"));
    }
    let is_set = max.is_some();
    let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
    let mut wrong = |path: &str, value: i64, rule: String, remedy: &str| {
        errors.push_error(SpecError::invalid(path, value, rule, remedy));
    };
    if !(0..=10_000).contains(&min) {
        let rule = "is not a valid minimum size of a node group".into();
        wrong("spec.eks-managed.minSize", min, rule, "use a number from 0 to 10000");
    }
    if !is_set {
        // It is missing, and nothing is wrong with a value.
    } else if !(1..=10_000).contains(&max) {
        let rule = "is not a valid maximum size of a node group".into();
        wrong("spec.eks-managed.maxSize", max, rule, "use a number from 1 to 10000");
    } else if min > max {
        let rule = format!("is larger than spec.eks-managed.maxSize ({max})");
        let error = SpecError::invalid("spec.eks-managed.minSize", min, rule, "raise maxSize or lower minSize");
        errors.push_error(error.compared_with(ComparedField::NodegroupMaxSize));
    }
    (min.clamp(0, 10_000) as i32, max.clamp(1, 10_000) as i32)
}

fn parse_immutable_fields(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> ImmutableFields {
    let node_role = errors.required("nodeRole", &c.node_role);
    if !node_role.is_empty() && role_name(&node_role).is_none() {
        let remedy = "use arn:aws:iam::<account>:role/<name>";
        errors.push_invalid("nodeRole", &node_role, "is not the ARN of an IAM role", remedy);
    }
    let key_pair = non_empty(&c.key_pair_name);
    // EKS accepts source security groups only together with an SSH key.
    let security_groups = if key_pair.is_some() { non_empty_items(&c.security_groups) } else { Vec::new() };
    let subnets = errors.required_list("subnets", &c.subnets);
    ImmutableFields {
        node_role,
        subnets,
        instance_types: parse_instance_types(errors, c),
        capacity_type: non_empty(&c.capacity_type)
            .and_then(|word| CapacityType::parse(&word))
            .map(|capacity| capacity.as_str().to_owned()),
        ami_type: parse_ami_type(errors, c),
        disk_size: parse_disk_size(errors, c),
        key_pair,
        security_groups,
    }
}

/// The name of a role from its ARN, which may contain a path.
pub fn role_name(arn: &str) -> Option<&str> {
    let resource = arn.strip_prefix("arn:")?.splitn(5, ':').nth(4)?;
    resource.strip_prefix("role/")?.rsplit('/').next().filter(|name| !name.is_empty())
}

fn parse_instance_types(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> Vec<String> {
    let mut types: Vec<String> = non_empty(&c.instance_type).into_iter().collect();
    for name in non_empty_items(&c.instance_types) {
        if !types.contains(&name) {
            types.push(name);
        }
    }
    if types.len() > 20 {
        errors.push_invalid(
            "instanceTypes",
            format!("{} types", types.len()),
            "exceeds the 20 instance types that EKS accepts",
            "remove some",
        );
    }
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    for name in &types {
        if !name.split_once('.').is_some_and(|(family, size)| part(family) && part(size)) {
            let field = if c.instance_type.as_ref() == Some(name) { "instanceType" } else { "instanceTypes" };
            errors.push_invalid(field, name, "is not a valid instance type", "use for example m5.large");
        }
    }
    types
}

fn parse_ami_type(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> Option<String> {
    let word = non_empty(&c.ami_type)?;
    if word == "CUSTOM" {
        let remedy = "use an EKS image type, or the provisioner eks for custom images";
        errors.push_invalid(
            "amiType",
            &word,
            "requires a launch template, which this provisioner does not use",
            remedy,
        );
    } else if !word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        errors.push_invalid("amiType", &word, "is not a valid AMI type", "use for example AL2023_x86_64_STANDARD");
    }
    Some(word)
}

fn parse_disk_size(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> Option<i32> {
    let size = c.vol_size.filter(|size| *size != 0)?;
    if !(1..=16_384).contains(&size) {
        errors.push_invalid("volSize", size, "is not a valid volume size in GiB", "use a number from 1 to 16384");
    }
    i32::try_from(size).ok()
}

fn parse_labels(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> BTreeMap<String, String> {
    let labels = c.node_labels.clone().unwrap_or_default();
    for (key, value) in &labels {
        limits::NODEGROUP_TEXT.check(errors, "nodeLabels", key);
        limits::NODEGROUP_TEXT.check(errors, &format!("nodeLabels.{key}"), value);
        let of_key = label_rules::key_problem(key).or_else(|| label_rules::kubelet_problem(key));
        let of_eks = || key.starts_with(EKS_LABELS).then_some("begins with a prefix of EKS's own labels");
        if let Some(rule) = of_key.or_else(of_eks) {
            errors.push_invalid("nodeLabels", key, rule, "use another key");
        }
        if let Some(rule) = label_rules::value_problem(value) {
            errors.push_invalid(&format!("nodeLabels.{key}"), value, rule, "use another value");
        }
    }
    labels
}

/// The prefix of the labels that EKS sets itself, and refuses from others.
const EKS_LABELS: &str = "eks.amazonaws.com/";

fn parse_taints(errors: &mut SpecErrors, c: &EksManagedConfiguration) -> Vec<NodegroupTaint> {
    let mut taints = Vec::new();
    for (i, taint) in c.taints.iter().flatten().enumerate() {
        let key = non_empty(&taint.key).unwrap_or_default();
        if key.is_empty() {
            errors.push_invalid(&format!("taints[{i}].key"), "", "is required", "give the taint a key");
        } else {
            limits::NODEGROUP_TEXT.check(errors, &format!("taints[{i}].key"), &key);
            if let Some(rule) = label_rules::key_problem(&key) {
                errors.push_invalid(&format!("taints[{i}].key"), &key, rule, "use another key");
            }
        }
        let word = non_empty(&taint.effect).unwrap_or_default();
        let Some(effect) = NodegroupTaintEffect::parse(&word) else {
            let remedy = "use NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE";
            errors.push_invalid(&format!("taints[{i}].effect"), &word, "is not a valid taint effect", remedy);
            continue;
        };
        let value = taint.value.clone().unwrap_or_default();
        if !value.is_empty() {
            limits::NODEGROUP_TEXT.check(errors, &format!("taints[{i}].value"), &value);
        }
        taints.push(NodegroupTaint { key, value, effect: effect.as_str().into() });
    }
    taints.sort();
    taints.dedup();
    if taints.len() > MAX_TAINTS {
        let rule = "exceeds the number of taints that a node group can have";
        errors.push_invalid("taints", taints.len(), rule, format!("use at most {MAX_TAINTS}"));
    }
    taints
}

fn parse_tags(errors: &mut SpecErrors, c: &EksManagedConfiguration, cluster: &str) -> BTreeMap<String, String> {
    let mut tags = BTreeMap::new();
    for (i, tag) in c.tags.iter().flatten().enumerate() {
        let key = non_empty(&tag.key).unwrap_or_default();
        if key.is_empty() {
            errors.push_invalid(&format!("tags[{i}].key"), "", "is required", "give the tag a key");
        } else if let Some(why) = reserved_tag(&key, cluster).filter(|_| key != "Name") {
            errors.push_invalid(&format!("tags[{i}].key"), &key, format!("is a reserved tag: {why}"), "remove it");
        }
        let value = tag.value.clone().unwrap_or_default();
        if !key.is_empty() {
            limits::TAG_KEY.check(errors, &format!("tags[{i}].key"), &key);
        }
        if value.chars().count() > limits::MAX_TAG_VALUE {
            errors.push_invalid(&format!("tags[{i}].value"), "", "is longer than 256 characters", "shorten it");
        }
        tags.insert(key, value);
    }
    if tags.len() > MAX_TAGS {
        let rule = "exceeds the number of tags that a node group can have besides the controller's";
        errors.push_invalid("tags", tags.len(), rule, format!("use at most {MAX_TAGS}"));
    }
    tags
}

/// Parses maxUnavailable: at most 100, and not more than maxSize (EKS API reference, NodegroupUpdateConfig).
fn parse_max_unavailable(errors: &mut SpecErrors, spec: &InstanceGroupSpec, max: i32) -> Option<MaxUnavailable> {
    let value = spec.strategy.as_ref()?.managed.as_ref()?.max_unavailable.as_ref()?;
    let text = match value {
        IntOrString::Int(n) => n.to_string(),
        IntOrString::String(text) if text.is_empty() => return None,
        IntOrString::String(text) => text.clone(),
    };
    let in_range = |n: &i32| (1..=100).contains(n);
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(in_range).map(MaxUnavailable::Percent),
        None => text.parse().ok().filter(in_range).map(MaxUnavailable::Count),
    };
    let path = "spec.strategy.managed.maxUnavailable";
    match parsed {
        None => {
            let rule = "is neither a valid number of nodes nor a valid percentage";
            errors.push_error(SpecError::invalid(path, text, rule, "use 1 to 100, or 1% to 100%"));
        }
        Some(MaxUnavailable::Count(n)) if n > max => {
            let rule = format!("exceeds spec.eks-managed.maxSize ({max})");
            errors.push_error(SpecError::invalid(path, n, rule, "lower it, or use a percentage"));
        }
        Some(MaxUnavailable::Count(_) | MaxUnavailable::Percent(_)) => {}
    }
    parsed
}
