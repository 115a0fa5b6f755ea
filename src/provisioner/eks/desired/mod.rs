//! Parses the merged spec into typed values, once. Later code does not check strings again.

mod attributes;
mod crd;
mod instance;
mod mixed_instances;
mod types;

use std::collections::BTreeMap;

use super::names::{GroupNames, node_labels};
use super::user_data::{OsFamily, Stage, StageKind, Taint, WindowsRelease, effective_family};
use crate::api::spec_error::{ComparedField, SpecError, SpecErrors, non_empty, non_empty_items};
use crate::api::{
    EksConfiguration, InstanceGroupSpec, Lifecycle, ScalingConfigurationKind, UserDataStage,
    names::{annotation, label},
};
use crate::auth::JoinAuth;
use crate::boundaries::MergedAnnotations;
use crate::provisioner::{GroupId, limits};
use crate::rotation::rolling_update::settings::RollingUpdateSettings;
use crate::util::redact::Redacted;
pub(crate) use attributes::{METRICS, PROCESSES};
use attributes::{hooks, known_names, tag_specifications, tags, warm_pool, with_autoscaler_tags};
use crd::crd;
use instance::{check_type_name, devices, metadata, mounts, placement};
use mixed_instances::mixed;
pub use mixed_instances::{MAX_INSTANCE_TYPES, MixedInstances};
pub use types::{CustomNetworking, DesiredSpec, ExistingRole, ImageSource};

/// The section of the spec with most fields.
pub(crate) const CONFIGURATION_FIELD: &str = "spec.eks.configuration";

/// Parses a merged spec. Returns all errors at once.
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
    let mut errors = SpecErrors::under(CONFIGURATION_FIELD);
    let empty = EksConfiguration::default();
    let eks = spec.eks.clone().unwrap_or_default();
    let c = eks.configuration.as_ref().unwrap_or(&empty);
    let (min_size, max_size) = sizes(&mut errors, eks.min_size, eks.max_size);
    let cluster = limits::cluster_name(&mut errors, &c.cluster_name);
    let scaling_group = GroupNames::new(&cluster, &id.namespace, &id.name).scaling_group();
    limits::check_scaling_group_name(&mut errors, &id.name, &scaling_group);
    let stages = stages(c);
    let os_family = effective_family(
        annotations.get(annotation::OS_FAMILY).map(OsFamily::parse).unwrap_or(OsFamily::AmazonLinux2),
        &stages,
    );
    let mixed = mixed(&mut errors, c);
    let spot_price = mixed_instances::spot_price(&mut errors, c);
    let lifecycle = match (&mixed, &spot_price) {
        (Some(mixed), _) if mixed.uses_spot() => Lifecycle::Mixed,
        (None, Some(_)) => Lifecycle::Spot,
        _ => Lifecycle::Normal,
    };
    let desired = DesiredSpec {
        id: id.clone(),
        cluster,
        min_size,
        max_size,
        warm_pool: warm_pool(&mut errors, &eks, c, mixed.as_ref()),
        scaling_configuration: eks
            .r#type
            .as_deref()
            .and_then(ScalingConfigurationKind::parse)
            .unwrap_or(ScalingConfigurationKind::LaunchTemplate),
        rolling_update: RollingUpdateSettings::parse(&mut errors, annotations, spec),
        crd_strategy: crd(&mut errors, id, annotations, spec),
        image: image(&mut errors, &c.image, os_family),
        instance_type: instance_type(&mut errors, &c.instance_type),
        key_pair: non_empty(&c.key_pair_name),
        subnets: errors.required_list("subnets", &c.subnets),
        security_groups: errors.required_list("securityGroups", &c.security_groups),
        existing_role: existing_role(&mut errors, c),
        managed_policies: non_empty_items(&c.managed_policies),
        irsa: annotations.is_true(annotation::IRSA_ENABLED),
        os_family,
        labels: labels(id, annotations, c, lifecycle),
        mixed_instances: mixed,
        lifecycle,
        spot_price,
        spot_price_ignored: non_empty(&c.spot_price).is_some() && c.mixed_instances_policy.is_some(),
        spot_recommendation: None,
        taints: taints(&mut errors, c),
        max_pods: c
            .bootstrap_options
            .as_ref()
            .and_then(|b| b.max_pods)
            .filter(|n| *n > 0)
            .map(|n| n.min(u32::MAX.into()) as u32),
        custom_networking: custom_networking(&mut errors, annotations),
        join_auth: JoinAuth::default(),
        discovers_endpoint: false,
        container_runtime: c.bootstrap_options.as_ref().and_then(|b| non_empty(&b.container_runtime)),
        bootstrap_arguments: Redacted::new(non_empty(&c.bootstrap_arguments).unwrap_or_default()),
        stages,
        mounts: mounts(&mut errors, c),
        block_devices: devices(&mut errors, c),
        default_volume: None,
        has_default_volume: c.volumes.as_deref().unwrap_or_default().is_empty(),
        tags: tags(
            &mut errors,
            c.cluster_name.as_deref().unwrap_or_default(),
            "tags",
            c.tags.as_deref().unwrap_or_default(),
        ),
        tag_specifications: tag_specifications(&mut errors, c),
        has_autoscaler_tags: annotations.is_true(annotation::CLUSTER_AUTOSCALER_ENABLED),
        suspended_processes: known_names(&mut errors, "suspendProcesses", &c.suspend_processes, PROCESSES, PROCESSES),
        metrics: known_names(&mut errors, "metricsCollection", &c.metrics_collection, METRICS, &METRICS[2..15]),
        lifecycle_hooks: hooks(&mut errors, c),
        metadata_options: metadata(&mut errors, c),
        placement: placement(&mut errors, c),
        licenses: non_empty_items(&c.license_specifications),
    };
    let desired = with_autoscaler_tags(&mut errors, desired, c);
    (desired, errors.into_errors())
}

fn sizes(errors: &mut SpecErrors, min: Option<i64>, max: Option<i64>) -> (i32, i32) {
    let shown_max = max.map_or_else(|| "not set, which counts as 0".to_owned(), |max| max.to_string());
    let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
    for (path, size) in [("spec.eks.minSize", min), ("spec.eks.maxSize", max)] {
        if !(0..=10_000).contains(&size) {
            errors.push_error(SpecError::invalid(
                path,
                size,
                "is not a valid size of a scaling group",
                "use a number from 0 to 10000",
            ));
        }
    }
    if min > max {
        let rule = format!("is larger than spec.eks.maxSize ({shown_max})");
        let error = SpecError::invalid("spec.eks.minSize", min, rule, "raise maxSize or lower minSize");
        errors.push_error(error.compared_with(ComparedField::MaxSize));
    }
    (min.clamp(0, 10_000) as i32, max.clamp(0, 10_000) as i32)
}

fn image(errors: &mut SpecErrors, value: &Option<String>, os_family: OsFamily) -> ImageSource {
    let text = errors.required("image", value);
    if text.eq_ignore_ascii_case("latest") {
        return ImageSource::Latest;
    }
    match text.strip_prefix("ssm://") {
        Some(version)
            if !version.is_empty()
                && version.len() <= 128
                && version.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) =>
        {
            if os_family == OsFamily::Windows && WindowsRelease::parse(version).is_none() {
                let rule = "names an image that AWS does not publish: each release of Windows Server has only its newest image";
                errors.push_invalid(
                    "image",
                    &text,
                    rule,
                    "use ssm://2019, 2022 or 2025, with -core or -full, or an AMI id",
                );
            }
            ImageSource::Ssm(version.into())
        }
        Some(_) => {
            errors.push_invalid(
                "image",
                &text,
                "is not a valid image version",
                "use ssm://<version> with a version from AWS's parameter",
            );
            ImageSource::Latest
        }
        None => {
            let id = text
                .strip_prefix("ami-")
                .is_some_and(|id| (8..=17).contains(&id.len()) && id.chars().all(|c| c.is_ascii_hexdigit()));
            if !text.is_empty() && !id {
                errors.push_invalid(
                    "image",
                    &text,
                    "is not a valid image",
                    "use an AMI id (ami-...), latest, or ssm://<version>",
                );
            }
            ImageSource::Id(text)
        }
    }
}

fn existing_role(errors: &mut SpecErrors, c: &EksConfiguration) -> Option<ExistingRole> {
    let role = non_empty(&c.role_name)?;
    limits::ROLE_NAME.check(errors, "roleName", &role);
    let profile = non_empty(&c.instance_profile_name);
    if let Some(profile) = &profile {
        limits::PROFILE_NAME.check(errors, "instanceProfileName", profile);
    }
    Some(ExistingRole { profile: profile.unwrap_or_else(|| role.clone()), role })
}

/// Checks the form `<family>.<size>`; whether the type exists is checked with AWS later.
fn instance_type(errors: &mut SpecErrors, value: &Option<String>) -> String {
    let text = errors.required("instanceType", value);
    if !text.is_empty() {
        check_type_name(errors, "instanceType", &text);
    }
    text
}

/// The node labels without the image label, which needs the resolved image.
fn labels(
    id: &GroupId,
    annotations: &MergedAnnotations,
    c: &EksConfiguration,
    lifecycle: Lifecycle,
) -> BTreeMap<String, String> {
    let spec = c.labels.clone().unwrap_or_default();
    let default_labels = annotations.get(annotation::DEFAULT_LABELS);
    let mut labels = node_labels(&id.name, &spec, default_labels, lifecycle.as_str(), "").labels;
    labels.remove(label::IMAGE);
    labels
}

fn custom_networking(errors: &mut SpecErrors, annotations: &MergedAnnotations) -> Option<CustomNetworking> {
    if !annotations.is_true(annotation::CUSTOM_NETWORKING_ENABLED) {
        return None;
    }
    let name = annotation::CUSTOM_NETWORKING_HOST_PODS;
    let given = annotations.get(name).map(str::trim).filter(|text| !text.is_empty());
    let host_pods = given.map_or(Some(2), |text| text.parse().ok().filter(|n| *n <= 110));
    if host_pods.is_none() {
        let path = format!("metadata.annotations[{name}]");
        let given = given.unwrap_or_default();
        errors.push_error(SpecError::invalid(
            &path,
            given,
            "is not a valid number of pods",
            "use a number from 0 to 110",
        ));
    }
    let prefix_delegation = annotations.is_true(annotation::CUSTOM_NETWORKING_PREFIX);
    Some(CustomNetworking { host_pods: host_pods.unwrap_or_default(), prefix_delegation })
}

fn taints(errors: &mut SpecErrors, c: &EksConfiguration) -> Vec<Taint> {
    let mut taints = Vec::new();
    for (i, taint) in c.taints.iter().flatten().enumerate() {
        let key = taint.key.clone().unwrap_or_default();
        let effect = taint.effect.clone().unwrap_or_default();
        if key.is_empty() {
            errors.push_invalid(&format!("taints[{i}].key"), "", "is required", "give the taint a key");
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str()) {
            errors.push_invalid(
                &format!("taints[{i}].effect"),
                &effect,
                "is not a taint effect",
                "use NoSchedule, PreferNoSchedule or NoExecute",
            );
        }
        taints.push(Taint { key, value: taint.value.clone().unwrap_or_default(), effect });
    }
    taints
}

fn stages(c: &EksConfiguration) -> Vec<Stage> {
    let kind = |stage: &Option<String>| match UserDataStage::parse(stage.as_deref().unwrap_or_default())? {
        UserDataStage::PreBootstrap => Some(StageKind::Pre),
        UserDataStage::PostBootstrap => Some(StageKind::Post),
        UserDataStage::NodeConfigYaml => Some(StageKind::NodeConfig),
    };
    c.user_data
        .iter()
        .flatten()
        .filter_map(|u| {
            Some(Stage {
                name: u.name.clone().unwrap_or_default(),
                kind: kind(&u.stage)?,
                data: u.data.clone().unwrap_or_default().into(),
            })
        })
        .collect()
}
