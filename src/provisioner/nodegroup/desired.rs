//! The merged spec, parsed once. After this nothing re-checks a string.

use std::collections::BTreeMap;

use crate::api::spec_error::{SpecError, SpecErrors, non_empty, non_empty_items};
use crate::api::{CapacityType, EksManagedConfiguration, InstanceGroupSpec, IntOrString, NodegroupTaintEffect};
use crate::aws::nodegroup::{ImmutableFields, MaxUnavailable, NodegroupTaint};
use crate::provisioner::GroupId;
use crate::provisioner::eks::names::reserved_tag;
use crate::rotation::rolling_update::settings::RollingUpdate;

/// What a tenant and the defaults together ask for. What is `None` is left as it is, or to EKS.
#[derive(Clone, Debug)]
pub struct DesiredSpec {
    /// Whose it is.
    pub id: GroupId,
    /// The EKS cluster's name.
    pub cluster: String,
    /// Smallest size.
    pub min_size: i32,
    /// Largest size.
    pub max_size: i32,
    /// What EKS cannot change in place; subnets and security groups are ids or Name tags here.
    pub immutable: ImmutableFields,
    /// Kubernetes on the nodes, for example `1.33`.
    pub version: Option<String>,
    /// The release of the machine image.
    pub release_version: Option<String>,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Sorted taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// The spec's tags.
    pub tags: BTreeMap<String, String>,
    /// How many nodes may be unavailable at once.
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces broken nodes.
    pub node_repair: Option<bool>,
    /// How nodes are drained when they move to another node group.
    pub rolling_update: RollingUpdate,
}

pub(super) const CONFIGURATION_PATH: &str = "spec.eks-managed.configuration";

/// Parses a merged spec. All problems are told at once.
pub fn parse(
    id: &GroupId,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> Result<DesiredSpec, Vec<SpecError>> {
    let mut problems = SpecErrors::under(CONFIGURATION_PATH);
    let rolling_update = RollingUpdate::parse(&mut problems, annotations, spec);
    let managed = spec.eks_managed.clone().unwrap_or_default();
    let c = managed.configuration.unwrap_or_default();
    let (min_size, max_size) = parse_sizes(&mut problems, managed.min_size, managed.max_size);
    let cluster = problems.required("clusterName", &c.cluster_name);
    let wanted = DesiredSpec {
        id: id.clone(),
        min_size,
        max_size,
        immutable: parse_immutable_fields(&mut problems, &c),
        version: non_empty(&c.version),
        release_version: non_empty(&c.release_version),
        labels: c.node_labels.clone().unwrap_or_default(),
        taints: parse_taints(&mut problems, &c),
        tags: parse_tags(&mut problems, &c, &cluster),
        max_unavailable: parse_max_unavailable(&mut problems, spec, max_size),
        node_repair: c.node_repair_config.as_ref().and_then(|repair| repair.enabled),
        cluster,
        rolling_update,
    };
    problems.into_result(wanted)
}

/// EKS takes no largest size of 0: data type NodegroupScalingConfig of its API Reference.
fn parse_sizes(problems: &mut SpecErrors, min: Option<i64>, max: Option<i64>) -> (i32, i32) {
    let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
    let mut wrong = |path: &str, value: i64, rule: String, remedy: &str| {
        problems.push_error(SpecError::invalid(path, value, rule, remedy));
    };
    if !(0..=10_000).contains(&min) {
        let rule = "is no size of a node group".into();
        wrong("spec.eks-managed.minSize", min, rule, "use a number from 0 to 10000");
    }
    if !(1..=10_000).contains(&max) {
        let rule = "is no largest size of a node group".into();
        wrong("spec.eks-managed.maxSize", max, rule, "use a number from 1 to 10000");
    } else if min > max {
        let rule = format!("is larger than spec.eks-managed.maxSize ({max})");
        wrong("spec.eks-managed.minSize", min, rule, "raise maxSize or lower minSize");
    }
    (min.clamp(0, 10_000) as i32, max.clamp(1, 10_000) as i32)
}

fn parse_immutable_fields(problems: &mut SpecErrors, c: &EksManagedConfiguration) -> ImmutableFields {
    let node_role = problems.required("nodeRole", &c.node_role);
    if !node_role.is_empty() && role_name(&node_role).is_none() {
        let remedy = "write it as EKS takes it: arn:aws:iam::<account>:role/<name>";
        problems.push_invalid("nodeRole", &node_role, "is no ARN of a role", remedy);
    }
    let key_pair = non_empty(&c.key_pair_name);
    // Without a key nobody logs in, and EKS takes no groups that may.
    let security_groups = if key_pair.is_some() { non_empty_items(&c.security_groups) } else { Vec::new() };
    let subnets = problems.required_list("subnets", &c.subnets);
    ImmutableFields {
        node_role,
        subnets,
        instance_types: parse_instance_types(problems, c),
        capacity_type: non_empty(&c.capacity_type)
            .and_then(|word| CapacityType::parse(&word))
            .map(|capacity| capacity.as_str().to_owned()),
        ami_type: parse_ami_type(problems, c),
        disk_size: parse_disk_size(problems, c),
        key_pair,
        security_groups,
    }
}

/// The name of a role, from its ARN, which may hold a path.
pub fn role_name(arn: &str) -> Option<&str> {
    let resource = arn.strip_prefix("arn:")?.splitn(5, ':').nth(4)?;
    resource.strip_prefix("role/")?.rsplit('/').next().filter(|name| !name.is_empty())
}

fn parse_instance_types(problems: &mut SpecErrors, c: &EksManagedConfiguration) -> Vec<String> {
    let mut types: Vec<String> = non_empty(&c.instance_type).into_iter().collect();
    for name in non_empty_items(&c.instance_types) {
        if !types.contains(&name) {
            types.push(name);
        }
    }
    if types.len() > 20 {
        problems.push_invalid(
            "instanceTypes",
            format!("{} types", types.len()),
            "is more than the 20 that EKS takes",
            "remove some",
        );
    }
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    for name in &types {
        if !name.split_once('.').is_some_and(|(family, size)| part(family) && part(size)) {
            let field = if c.instance_type.as_ref() == Some(name) { "instanceType" } else { "instanceTypes" };
            problems.push_invalid(field, name, "is no instance type", "write it as AWS does, for example m5.large");
        }
    }
    types
}

fn parse_ami_type(problems: &mut SpecErrors, c: &EksManagedConfiguration) -> Option<String> {
    let word = non_empty(&c.ami_type)?;
    if word == "CUSTOM" {
        let remedy = "name one of EKS's own types, or use the provisioner eks for images of your own";
        problems.push_invalid("amiType", &word, "needs a launch template of its own", remedy);
    } else if !word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        problems.push_invalid(
            "amiType",
            &word,
            "is no type of an image",
            "write it as EKS does, for example AL2023_x86_64_STANDARD",
        );
    }
    Some(word)
}

fn parse_disk_size(problems: &mut SpecErrors, c: &EksManagedConfiguration) -> Option<i32> {
    let size = c.vol_size.filter(|size| *size != 0)?;
    if !(1..=16_384).contains(&size) {
        problems.push_invalid("volSize", size, "is no size of a volume in GiB", "use a number from 1 to 16384");
    }
    i32::try_from(size).ok()
}

fn parse_taints(problems: &mut SpecErrors, c: &EksManagedConfiguration) -> Vec<NodegroupTaint> {
    let mut taints = Vec::new();
    for (i, taint) in c.taints.iter().flatten().enumerate() {
        let key = non_empty(&taint.key).unwrap_or_default();
        if key.is_empty() {
            problems.push_invalid(&format!("taints[{i}].key"), "", "is required", "give the taint a key");
        }
        let word = non_empty(&taint.effect).unwrap_or_default();
        let Some(effect) = NodegroupTaintEffect::parse(&word) else {
            let remedy = "use NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE";
            problems.push_invalid(&format!("taints[{i}].effect"), &word, "is no effect of a taint", remedy);
            continue;
        };
        let value = taint.value.clone().unwrap_or_default();
        taints.push(NodegroupTaint { key, value, effect: effect.as_str().into() });
    }
    taints.sort();
    taints.dedup();
    taints
}

fn parse_tags(problems: &mut SpecErrors, c: &EksManagedConfiguration, cluster: &str) -> BTreeMap<String, String> {
    let mut tags = BTreeMap::new();
    for (i, tag) in c.tags.iter().flatten().enumerate() {
        let key = non_empty(&tag.key).unwrap_or_default();
        if key.is_empty() {
            problems.push_invalid(&format!("tags[{i}].key"), "", "is required", "give the tag a key");
        } else if let Some(why) = reserved_tag(&key, cluster).filter(|_| key != "Name") {
            problems.push_invalid(&format!("tags[{i}].key"), &key, format!("may not be set: {why}"), "remove it");
        }
        tags.insert(key, tag.value.clone().unwrap_or_default());
    }
    tags
}

/// At most 100, and no more than maxSize: data type NodegroupUpdateConfig of the EKS API Reference.
fn parse_max_unavailable(problems: &mut SpecErrors, spec: &InstanceGroupSpec, max: i32) -> Option<MaxUnavailable> {
    let given = spec.strategy.as_ref()?.managed.as_ref()?.max_unavailable.as_ref()?;
    let text = match given {
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
            let rule = "is neither a number of nodes nor a percentage that EKS takes";
            problems.push_error(SpecError::invalid(path, text, rule, "use 1 to 100, or 1% to 100%"));
        }
        Some(MaxUnavailable::Count(n)) if n > max => {
            let rule = format!("is more than spec.eks-managed.maxSize ({max})");
            problems.push_error(SpecError::invalid(path, n, rule, "lower it, or use a percentage"));
        }
        Some(MaxUnavailable::Count(_) | MaxUnavailable::Percent(_)) => {}
    }
    parsed
}
