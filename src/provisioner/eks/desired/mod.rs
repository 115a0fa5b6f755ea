//! The merged spec, parsed once. After this nothing re-checks a string.

mod attributes;
mod crd;
mod instance;
mod mixed_instances;

use std::collections::{BTreeMap, BTreeSet};

use super::names::node_labels;
use super::user_data::{Mount, OsFamily, Stage, StageKind, Taint, effective_family};
use crate::api::spec_error::{Problem, Problems, list, set};
use crate::api::{
    EksConfiguration, InstanceGroupSpec, Lifecycle, ScalingConfigurationKind, SpotRecommendation, UserDataStage,
    names::{annotation, label},
};
use crate::auth::JoinAuth;
use crate::aws::{
    BlockDevice, InstanceType, LifecycleHook, MetadataOptions, Placement, Tag, TagSpecification, WarmSizes,
};
use crate::provisioner::GroupId;
use crate::rotation::crd::CrdUpgrade;
use crate::rotation::rolling_update::settings::RollingUpdate;
use crate::util::redact::Redacted;
pub use attributes::{METRICS, PROCESSES};
use attributes::{hooks, names, tag_specifications, tags, warm_pool, with_autoscaler_tags};
use crd::crd;
use instance::{devices, metadata, mounts, placement};
use mixed_instances::mixed;
pub use mixed_instances::{MOST_TYPES, Mixed};

/// What a tenant and the defaults together ask for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose it is.
    pub id: GroupId,
    /// The EKS cluster's name.
    pub cluster: String,
    /// Smallest size.
    pub min: i32,
    /// Largest size.
    pub max: i32,
    /// The warm pool, if one is wanted.
    pub warm_pool: Option<WarmSizes>,
    /// What the spec, or the flag, asks instances to be launched from.
    pub kind: ScalingConfigurationKind,
    /// How nodes are replaced.
    pub strategy: RollingUpdate,
    /// Another controller's resource replaces them; `None` with `rollingUpdate`.
    pub crd: Option<CrdUpgrade>,
    /// Which image.
    pub image: Image,
    /// For example `m5.large`.
    pub instance_type: String,
    /// Several types, on demand and spot.
    pub mixed: Option<Mixed>,
    /// How instances are bought.
    pub lifecycle: Lifecycle,
    /// What a spot instance may cost in dollars per hour; `None` outside of spot, and in a mixed group.
    pub spot_price: Option<String>,
    /// A price was said beside a mixed instances policy.
    pub spot_ignored: bool,
    /// The spot price is that of a recommendation, which the status remembers.
    pub recommended: Option<SpotRecommendation>,
    /// Name of an EC2 key pair.
    pub key_pair: Option<String>,
    /// Ids or Name tags.
    pub subnets: Vec<String>,
    /// Ids or Name tags.
    pub security_groups: Vec<String>,
    /// A role that others made, with its profile; neither is modified.
    pub given_role: Option<GivenRole>,
    /// Managed policies beyond the standard ones: names or ARNs.
    pub managed_policies: Vec<String>,
    /// Leave AmazonEKS_CNI_Policy out.
    pub irsa: bool,
    /// The operating system of the nodes.
    pub family: OsFamily,
    /// Node labels without the image's.
    pub labels: BTreeMap<String, String>,
    /// Node taints.
    pub taints: Vec<Taint>,
    /// Explicit pod limit.
    pub max_pods: Option<u32>,
    /// Pods have interfaces of their own, which limits them unless `max_pods` is set.
    pub networking: Option<CustomNetworking>,
    /// How nodes get the right to join.
    pub join_auth: JoinAuth,
    /// The nodes ask EKS for the cluster's endpoint and certificate, rather than find them in their user data.
    pub asks_for_endpoint: bool,
    /// The `--container-runtime` of Amazon Linux 2 and Windows.
    pub container_runtime: Option<String>,
    /// Extra kubelet arguments; may hold anything, so never printed.
    pub bootstrap_arguments: Redacted<String>,
    /// User data stages.
    pub stages: Vec<Stage>,
    /// Volumes to format and mount.
    pub mounts: Vec<Mount>,
    /// Block devices.
    pub devices: Vec<BlockDevice>,
    /// The spec's tags, and the autoscaler's when asked for.
    pub tags: Vec<Tag>,
    /// The autoscaler's tags are asked for.
    pub autoscaled: bool,
    /// Tags for what an instance brings along.
    pub tag_specifications: Vec<TagSpecification>,
    /// Processes to be suspended.
    pub suspend: BTreeSet<String>,
    /// Group metrics to be collected.
    pub metrics: BTreeSet<String>,
    /// Lifecycle hooks.
    pub hooks: Vec<LifecycleHook>,
    /// Instance metadata options.
    pub metadata: Option<MetadataOptions>,
    /// Placement.
    pub placement: Option<Placement>,
    /// ARNs of licence configurations.
    pub licenses: Vec<String>,
}

/// An existing IAM role and instance profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenRole {
    /// Name, without path.
    pub role: String,
    /// Name, without path; the role's when the spec names none.
    pub profile: String,
}

/// Which image a group asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// `ami-...`
    Id(String),
    /// The newest one of the family, architecture and cluster version.
    Latest,
    /// `ssm://<version>`
    Ssm(String),
}

/// Pods whose addresses come from other interfaces than their node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomNetworking {
    /// Pods on the node's own interface.
    pub host_pods: u32,
    /// Each address of an interface stands for a prefix of sixteen.
    pub prefixes: bool,
}

impl CustomNetworking {
    /// How many pods a node of a type can have: the first interface is the node's own, and so is each one's first
    /// address. At most 110, which Kubernetes recommends.
    pub fn max_pods(self, found: &InstanceType) -> u32 {
        let spare = |n: i32| u32::try_from(n - 1).unwrap_or(0);
        let each = if self.prefixes { 16 } else { 1 };
        (spare(found.interfaces) * spare(found.addresses) * each).saturating_add(self.host_pods).min(110)
    }
}

impl Wanted {
    /// Whether something is derived from what AWS tells of the instance type.
    pub fn needs_type(&self) -> bool {
        !matches!(self.image, Image::Id(_))
            || (self.networking.is_some() && self.max_pods.is_none())
            || (self.autoscaled && self.family == OsFamily::Windows)
    }
}

const CONFIGURATION: &str = "spec.eks.configuration";

/// Parses a merged spec. All problems are told at once.
pub fn parse(
    id: &GroupId,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> Result<Wanted, Vec<Problem>> {
    let mut problems = Problems::below(CONFIGURATION);
    let empty = EksConfiguration::default();
    let eks = spec.eks.clone().unwrap_or_default();
    let c = eks.configuration.as_ref().unwrap_or(&empty);
    let (min, max) = sizes(&mut problems, eks.min_size, eks.max_size);
    let stages = stages(c);
    let family = effective_family(
        annotations.get(annotation::OS_FAMILY).map(|f| OsFamily::parse(f)).unwrap_or(OsFamily::AmazonLinux2),
        &stages,
    );
    let mixed = mixed(&mut problems, c);
    let spot_price = mixed_instances::spot_price(&mut problems, c);
    let lifecycle = match (&mixed, &spot_price) {
        (Some(mixed), _) if mixed.buys_spot() => Lifecycle::Mixed,
        (None, Some(_)) => Lifecycle::Spot,
        _ => Lifecycle::Normal,
    };
    let wanted = Wanted {
        id: id.clone(),
        cluster: problems.required("clusterName", &c.cluster_name),
        min,
        max,
        warm_pool: warm_pool(&mut problems, &eks, c),
        kind: eks
            .r#type
            .as_deref()
            .and_then(ScalingConfigurationKind::parse)
            .unwrap_or(ScalingConfigurationKind::LaunchTemplate),
        strategy: RollingUpdate::parse(&mut problems, annotations, spec),
        crd: crd(&mut problems, id, annotations, spec),
        image: image(&mut problems, &c.image),
        instance_type: instance_type(&mut problems, &c.instance_type),
        key_pair: set(&c.key_pair_name),
        subnets: problems.required_list("subnets", &c.subnets),
        security_groups: problems.required_list("securityGroups", &c.security_groups),
        given_role: set(&c.role_name)
            .map(|role| GivenRole { profile: set(&c.instance_profile_name).unwrap_or_else(|| role.clone()), role }),
        managed_policies: list(&c.managed_policies),
        irsa: flag(annotations, annotation::IRSA_ENABLED),
        family,
        labels: labels(id, annotations, c, lifecycle),
        mixed,
        lifecycle,
        spot_price,
        spot_ignored: set(&c.spot_price).is_some() && c.mixed_instances_policy.is_some(),
        recommended: None,
        taints: taints(&mut problems, c),
        max_pods: c
            .bootstrap_options
            .as_ref()
            .and_then(|b| b.max_pods)
            .filter(|n| *n > 0)
            .map(|n| n.min(u32::MAX.into()) as u32),
        networking: networking(&mut problems, annotations),
        join_auth: JoinAuth::default(),
        asks_for_endpoint: false,
        container_runtime: c.bootstrap_options.as_ref().and_then(|b| set(&b.container_runtime)),
        bootstrap_arguments: Redacted::new(set(&c.bootstrap_arguments).unwrap_or_default()),
        stages,
        mounts: mounts(&mut problems, c),
        devices: devices(&mut problems, c),
        tags: tags(
            &mut problems,
            c.cluster_name.as_deref().unwrap_or_default(),
            "tags",
            c.tags.as_deref().unwrap_or_default(),
        ),
        tag_specifications: tag_specifications(&mut problems, c),
        autoscaled: flag(annotations, annotation::CLUSTER_AUTOSCALER_ENABLED),
        suspend: names(&mut problems, "suspendProcesses", &c.suspend_processes, PROCESSES, PROCESSES),
        metrics: names(&mut problems, "metricsCollection", &c.metrics_collection, METRICS, &METRICS[2..15]),
        hooks: hooks(&mut problems, c),
        metadata: metadata(&mut problems, c),
        placement: placement(&mut problems, c),
        licenses: list(&c.license_specifications),
    };
    let wanted = with_autoscaler_tags(&mut problems, wanted, c);
    problems.done(wanted)
}

fn flag(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

fn sizes(problems: &mut Problems, min: Option<i64>, max: Option<i64>) -> (i32, i32) {
    let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
    for (path, size) in [("spec.eks.minSize", min), ("spec.eks.maxSize", max)] {
        if !(0..=10_000).contains(&size) {
            problems.add(Problem::invalid(path, size, "is no size of a scaling group", "use a number from 0 to 10000"));
        }
    }
    if min > max {
        problems.add(Problem::invalid(
            "spec.eks.minSize",
            min,
            format!("is larger than spec.eks.maxSize ({max})"),
            "raise maxSize or lower minSize",
        ));
    }
    (min.clamp(0, 10_000) as i32, max.clamp(0, 10_000) as i32)
}

fn image(problems: &mut Problems, value: &Option<String>) -> Image {
    let text = problems.required("image", value);
    if text.eq_ignore_ascii_case("latest") {
        return Image::Latest;
    }
    match text.strip_prefix("ssm://") {
        Some(version)
            if !version.is_empty()
                && version.len() <= 128
                && version.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) =>
        {
            Image::Ssm(version.into())
        }
        Some(_) => {
            problems.push(
                "image",
                &text,
                "is no image version",
                "use ssm://<version> with the version that AWS's parameter has",
            );
            Image::Latest
        }
        None => {
            let id = text
                .strip_prefix("ami-")
                .is_some_and(|id| (8..=17).contains(&id.len()) && id.chars().all(|c| c.is_ascii_hexdigit()));
            if !text.is_empty() && !id {
                problems.push("image", &text, "is no image", "use an AMI id (ami-...), latest, or ssm://<version>");
            }
            Image::Id(text)
        }
    }
}

/// A family and a size, as all types that AWS has; whether it has this one, AWS tells.
fn instance_type(problems: &mut Problems, value: &Option<String>) -> String {
    let text = problems.required("instanceType", value);
    if !text.is_empty() {
        type_name(problems, "instanceType", &text);
    }
    text
}

fn type_name(problems: &mut Problems, field: &str, text: &str) {
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !text.split_once('.').is_some_and(|(family, size)| part(family) && part(size)) {
        problems.push(field, text, "is no instance type", "write it as AWS does, for example m5.large");
    }
}

/// Without the image's label, which only a resolved image can give.
fn labels(
    id: &GroupId,
    annotations: &BTreeMap<String, String>,
    c: &EksConfiguration,
    lifecycle: Lifecycle,
) -> BTreeMap<String, String> {
    let spec = c.labels.clone().unwrap_or_default();
    let default_labels = annotations.get(annotation::DEFAULT_LABELS).map(String::as_str);
    let mut labels = node_labels(&id.name, &spec, default_labels, lifecycle.as_str(), "").labels;
    labels.remove(label::IMAGE);
    labels
}

fn networking(problems: &mut Problems, annotations: &BTreeMap<String, String>) -> Option<CustomNetworking> {
    if !flag(annotations, annotation::CUSTOM_NETWORKING_ENABLED) {
        return None;
    }
    let name = annotation::CUSTOM_NETWORKING_HOST_PODS;
    let given = annotations.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    let host_pods = given.map_or(Some(2), |text| text.parse().ok().filter(|n| *n <= 110));
    if host_pods.is_none() {
        let path = format!("metadata.annotations[{name}]");
        let given = given.unwrap_or_default();
        problems.add(Problem::invalid(&path, given, "is no number of pods", "use a number from 0 to 110"));
    }
    let prefixes = flag(annotations, annotation::CUSTOM_NETWORKING_PREFIX);
    Some(CustomNetworking { host_pods: host_pods.unwrap_or_default(), prefixes })
}

fn taints(problems: &mut Problems, c: &EksConfiguration) -> Vec<Taint> {
    let mut taints = Vec::new();
    for (i, taint) in c.taints.iter().flatten().enumerate() {
        let key = taint.key.clone().unwrap_or_default();
        let effect = taint.effect.clone().unwrap_or_default();
        if key.is_empty() {
            problems.push(&format!("taints[{i}].key"), "", "is required", "give the taint a key");
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str()) {
            problems.push(
                &format!("taints[{i}].effect"),
                &effect,
                "is no effect of a taint",
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
