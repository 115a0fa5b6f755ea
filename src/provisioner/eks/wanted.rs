//! The merged spec, parsed once. After this nothing re-checks a string.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::names::{node_labels, reserved_tag};
use super::user_data::{Mount, OsFamily, Stage, StageKind, Taint, effective_family};
use crate::api::{
    EksConfiguration, InstanceGroupSpec, IntOrString, LifecycleTransition, UserDataStage, Volume,
    names::{annotation, label, tag},
};
use crate::aws::{BlockDevice, LifecycleHook, MetadataOptions, Placement, Tag, TagSpecification};
use crate::plan::Reason;
use crate::provisioner::{GroupId, Problem, supported};
use crate::redact::Redacted;

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
    /// How nodes are replaced.
    pub strategy: RollingUpdate,
    /// Which image.
    pub image: Image,
    /// For example `m5.large`.
    pub instance_type: String,
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
    /// AL2's `--container-runtime`.
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
    /// Fields whose feature is not there: sizes, joining and deletion go on.
    pub unsupported: Vec<Problem>,
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

/// The strategy `rollingUpdate` with its defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct RollingUpdate {
    /// How many nodes may be unavailable at once.
    pub max_unavailable: Amount,
    /// How long a drain may take; `None` waits.
    pub drain_timeout: Option<SignedDuration>,
    /// At the timeout: delete what still stands, rather than give up.
    pub drain_force: bool,
    /// How long a replacement may take from InService to Ready.
    pub join_timeout: SignedDuration,
    /// Nodes launched before it are outdated.
    pub rotate_at: Option<Timestamp>,
}

/// A number of nodes, or a share of the desired ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// Percent, rounded up.
    Percent(u32),
}

impl Amount {
    /// Resolved against the desired size: at least one, at most all.
    pub fn of(self, desired: usize) -> usize {
        let amount = match self {
            Amount::Count(n) => n as usize,
            Amount::Percent(p) => (desired * p as usize).div_ceil(100),
        };
        amount.clamp(1, desired.max(1))
    }
}

/// All processes of a scaling group that can be suspended (API reference, SuspendProcesses).
pub const PROCESSES: &[&str] = &[
    "AZRebalance",
    "AddToLoadBalancer",
    "AlarmNotification",
    "HealthCheck",
    "InstanceRefresh",
    "Launch",
    "ReplaceUnhealthy",
    "ScheduledActions",
    "Terminate",
];

/// All group metrics (API reference, EnableMetricsCollection).
pub const METRICS: &[&str] = &[
    "GroupAndWarmPoolDesiredCapacity",
    "GroupAndWarmPoolTotalCapacity",
    "GroupDesiredCapacity",
    "GroupInServiceCapacity",
    "GroupInServiceInstances",
    "GroupMaxSize",
    "GroupMinSize",
    "GroupPendingCapacity",
    "GroupPendingInstances",
    "GroupStandbyCapacity",
    "GroupStandbyInstances",
    "GroupTerminatingCapacity",
    "GroupTerminatingInstances",
    "GroupTotalCapacity",
    "GroupTotalInstances",
    "WarmPoolDesiredCapacity",
    "WarmPoolMinSize",
    "WarmPoolPendingCapacity",
    "WarmPoolTerminatingCapacity",
    "WarmPoolTotalCapacity",
    "WarmPoolWarmedCapacity",
];

const CONFIGURATION: &str = "spec.eks.configuration";

/// Parses a merged spec. All problems are told at once.
pub fn parse(
    id: &GroupId,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> Result<Wanted, Vec<Problem>> {
    let mut problems = Problems::default();
    let empty = EksConfiguration::default();
    let eks = spec.eks.clone().unwrap_or_default();
    let c = eks.configuration.as_ref().unwrap_or(&empty);
    let unsupported = supported::unsupported(spec, annotations);
    let (min, max) = sizes(&mut problems, eks.min_size, eks.max_size);
    let stages = stages(c);
    let family = effective_family(
        annotations.get(annotation::OS_FAMILY).map(|f| OsFamily::parse(f)).unwrap_or(OsFamily::AmazonLinux2),
        &stages,
    );
    let wanted = Wanted {
        id: id.clone(),
        cluster: problems.required("clusterName", &c.cluster_name),
        min,
        max,
        strategy: strategy(&mut problems, annotations, spec),
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
        labels: labels(id, annotations, c),
        taints: taints(&mut problems, c),
        max_pods: c
            .bootstrap_options
            .as_ref()
            .and_then(|b| b.max_pods)
            .filter(|n| *n > 0)
            .map(|n| n.min(u32::MAX.into()) as u32),
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
        suspend: names(&mut problems, "suspendProcesses", &c.suspend_processes, PROCESSES, PROCESSES),
        metrics: names(&mut problems, "metricsCollection", &c.metrics_collection, METRICS, &METRICS[2..15]),
        hooks: hooks(&mut problems, c),
        metadata: metadata(&mut problems, c),
        placement: placement(&mut problems, c),
        unsupported,
    };
    problems.done(with_autoscaler_tags(wanted, annotations))
}

/// Collects what is wrong, so that a person mends everything in one go.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn push(&mut self, field: &str, value: impl ToString, rule: &str, remedy: &str) {
        self.0.push(Problem::invalid(&format!("{CONFIGURATION}.{field}"), value, rule, remedy));
    }

    fn required(&mut self, field: &str, value: &Option<String>) -> String {
        set(value).unwrap_or_else(|| {
            self.0.push(Problem::missing(&format!("{CONFIGURATION}.{field}")));
            String::new()
        })
    }

    fn required_list(&mut self, field: &str, value: &Option<Vec<String>>) -> Vec<String> {
        let items = list(value);
        if items.is_empty() {
            self.0.push(Problem::missing(&format!("{CONFIGURATION}.{field}")));
        }
        items
    }

    fn done<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

fn set(value: &Option<String>) -> Option<String> {
    value.as_ref().filter(|v| !v.is_empty()).cloned()
}

fn list(value: &Option<Vec<String>>) -> Vec<String> {
    value.iter().flatten().filter(|v| !v.is_empty()).cloned().collect()
}

fn flag(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

fn sizes(problems: &mut Problems, min: Option<i64>, max: Option<i64>) -> (i32, i32) {
    let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
    for (path, size) in [("spec.eks.minSize", min), ("spec.eks.maxSize", max)] {
        if !(0..=10_000).contains(&size) {
            problems.0.push(Problem::invalid(
                path,
                size,
                "is no size of a scaling group",
                "use a number from 0 to 10000",
            ));
        }
    }
    if min > max {
        problems.0.push(Problem::invalid(
            "spec.eks.minSize",
            min,
            format!("is larger than spec.eks.maxSize ({max})"),
            "raise maxSize or lower minSize",
        ));
    }
    (min.clamp(0, 10_000) as i32, max.clamp(0, 10_000) as i32)
}

fn strategy(
    problems: &mut Problems,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> RollingUpdate {
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
    let mut duration = |field: &str, text: &Option<String>| {
        let text = set(text)?;
        match crate::duration::parse(&text) {
            Some(d) => Some(d),
            None => {
                let path = format!("spec.strategy.rollingUpdate.{field}");
                problems.0.push(Problem::invalid(&path, text, "is no duration", "write it as 90s, 15m or 1h30m"));
                None
            }
        }
    };
    let drain_timeout = duration("drainTimeout", &rolling.drain_timeout);
    let join_timeout = duration("joinTimeout", &rolling.join_timeout).unwrap_or(SignedDuration::from_mins(15));
    let rotate_at = annotations.get(annotation::ROTATE_AT).filter(|t| !t.is_empty()).and_then(|text| {
        match text.parse::<Timestamp>() {
            Ok(at) => Some(at),
            Err(_) => {
                let path = format!("metadata.annotations[{}]", annotation::ROTATE_AT);
                problems.0.push(Problem::invalid(
                    &path,
                    text,
                    "is no RFC 3339 time",
                    "write it as 2026-01-31T08:00:00Z",
                ));
                None
            }
        }
    });
    RollingUpdate {
        max_unavailable: amount(problems, rolling.max_unavailable.as_ref()),
        drain_timeout,
        drain_force: rolling.drain_force.unwrap_or(false),
        join_timeout,
        rotate_at,
    }
}

fn amount(problems: &mut Problems, value: Option<&IntOrString>) -> Amount {
    let text = match value {
        None => return Amount::Count(1),
        Some(IntOrString::Int(n)) => n.to_string(),
        Some(IntOrString::String(text)) if text.is_empty() => return Amount::Count(1),
        Some(IntOrString::String(text)) => text.clone(),
    };
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(Amount::Percent),
        None => text.parse().ok().map(Amount::Count),
    };
    parsed.unwrap_or_else(|| {
        let path = "spec.strategy.rollingUpdate.maxUnavailable";
        problems.0.push(Problem::invalid(
            path,
            text,
            "is neither a number of nodes nor a percentage",
            "use for example 1 or 30%",
        ));
        Amount::Count(1)
    })
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
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !text.is_empty() && !text.split_once('.').is_some_and(|(family, size)| part(family) && part(size)) {
        problems.push("instanceType", &text, "is no instance type", "write it as AWS does, for example m5.large");
    }
    text
}

/// Without the image's label, which only a resolved image can give.
fn labels(id: &GroupId, annotations: &BTreeMap<String, String>, c: &EksConfiguration) -> BTreeMap<String, String> {
    let spec = c.labels.clone().unwrap_or_default();
    let default_labels = annotations.get(annotation::DEFAULT_LABELS).map(String::as_str);
    let mut labels = node_labels(&id.name, &spec, default_labels, "normal", "").labels;
    labels.remove(label::IMAGE);
    labels
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

fn mounts(problems: &mut Problems, c: &EksConfiguration) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for (i, volume) in c.volumes.iter().flatten().enumerate() {
        let Some(options) = volume.mount_options.as_ref() else { continue };
        let path = format!("volumes[{i}].mountOptions");
        let (file_system, mount) =
            (options.file_system.clone().unwrap_or_default(), options.mount.clone().unwrap_or_default());
        if !["xfs", "ext4"].contains(&file_system.as_str()) {
            problems.push(
                &format!("{path}.fileSystem"),
                &file_system,
                "is no supported file system",
                "use xfs or ext4",
            );
        }
        if !mount.starts_with('/') {
            problems.push(&format!("{path}.mount"), &mount, "is no absolute path", "use a path such as /data");
        }
        mounts.push(Mount {
            device: volume.name.clone().unwrap_or_default(),
            file_system,
            path: mount,
            persist: options.persists(),
        });
    }
    mounts
}

fn devices(problems: &mut Problems, c: &EksConfiguration) -> Vec<BlockDevice> {
    let volumes = c.volumes.as_deref().unwrap_or_default();
    if volumes.is_empty() {
        return vec![BlockDevice {
            name: "/dev/xvda".into(),
            volume_type: Some("gp2".into()),
            size: Some(32),
            iops: None,
            throughput: None,
            delete_on_termination: true,
            encrypted: None,
            snapshot_id: None,
        }];
    }
    volumes.iter().enumerate().map(|(i, volume)| device(problems, i, volume)).collect()
}

fn device(problems: &mut Problems, i: usize, v: &Volume) -> BlockDevice {
    let path = |field: &str| format!("volumes[{i}].{field}");
    let kind = set(&v.r#type).map(|t| t.to_ascii_lowercase());
    let number = |n: Option<i64>| n.filter(|n| *n > 0).map(|n| n.min(i32::MAX.into()) as i32);
    if set(&v.name).is_none() {
        problems.push(&path("name"), "", "is required", "name the device, for example /dev/xvda");
    }
    if let Some(k) = &kind
        && !["gp2", "gp3", "io1", "io2", "sc1", "st1"].contains(&k.as_str())
    {
        problems.push(&path("type"), k, "is no volume type", "use gp2, gp3, io1, io2, sc1 or st1");
    }
    let takes = |types: &[&str]| kind.as_deref().is_none_or(|k| types.contains(&k));
    if let Some(iops) = number(v.iops) {
        if !takes(&["io1", "io2", "gp3"]) {
            problems.push(
                &path("iops"),
                iops,
                "does not go with this volume type",
                "use io1, io2 or gp3, or remove iops",
            );
        } else if iops < 100 {
            problems.push(&path("iops"), iops, "is below 100", "use 100 or more");
        }
    }
    if let Some(throughput) = number(v.throughput)
        && !takes(&["gp3"])
    {
        problems.push(&path("throughput"), throughput, "goes with gp3 only", "use gp3 or remove throughput");
    }
    if set(&v.snapshot_id).is_some() && number(v.size).is_some() {
        problems.push(
            &path("size"),
            v.size.unwrap_or_default(),
            "does not go with snapshotId",
            "remove one of the two",
        );
    }
    BlockDevice {
        name: v.name.clone().unwrap_or_default(),
        volume_type: kind,
        size: number(v.size),
        iops: number(v.iops),
        throughput: number(v.throughput),
        delete_on_termination: v.delete_on_termination.unwrap_or(true),
        encrypted: v.encrypted,
        snapshot_id: set(&v.snapshot_id),
    }
}

fn tags(problems: &mut Problems, cluster: &str, field: &str, given: &[crate::api::Tag]) -> Vec<Tag> {
    let mut tags = BTreeMap::new();
    for (i, tag) in given.iter().enumerate() {
        let (key, value) = (tag.key.clone().unwrap_or_default(), tag.value.clone().unwrap_or_default());
        let path = format!("{field}[{i}].key");
        if key.is_empty() || key.chars().count() > 128 {
            problems.push(&path, &key, "is no key of a tag", "use 1 to 128 characters");
        }
        if let Some(why) = reserved_tag(&key, cluster) {
            problems.push(&path, &key, &format!("is a reserved tag: {why}"), "use another key");
        }
        if value.chars().count() > 256 {
            problems.push(&format!("{field}[{i}].value"), "", "is longer than 256 characters", "shorten it");
        }
        tags.insert(key, value);
    }
    if tags.len() > 40 {
        problems.push(
            field,
            tags.len(),
            "are more tags than a scaling group can hold beside the controller's",
            "use at most 40",
        );
    }
    tags.into_iter().map(|(key, value)| Tag { key, value }).collect()
}

fn tag_specifications(problems: &mut Problems, c: &EksConfiguration) -> Vec<TagSpecification> {
    let mut specifications: Vec<_> = (c.tag_specifications.iter().flatten().enumerate())
        .map(|(i, s)| TagSpecification {
            resource_type: s.resource_type.clone().unwrap_or_default(),
            tags: tags(
                problems,
                c.cluster_name.as_deref().unwrap_or_default(),
                &format!("tagSpecifications[{i}].tags"),
                s.tags.as_deref().unwrap_or_default(),
            ),
        })
        .filter(|s| !s.tags.is_empty())
        .collect();
    specifications.sort_by(|a, b| a.resource_type.cmp(&b.resource_type));
    specifications
}

fn names(
    problems: &mut Problems,
    field: &str,
    given: &Option<Vec<String>>,
    known: &[&str],
    all: &[&str],
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in given.iter().flatten() {
        if name.eq_ignore_ascii_case("all") {
            found.extend(all.iter().map(|n| (*n).to_owned()));
        } else if let Some(known) = known.iter().find(|k| k.eq_ignore_ascii_case(name)) {
            found.insert((*known).to_owned());
        } else {
            problems.push(
                field,
                name,
                "is not known to Auto Scaling",
                &format!("use all, or some of {}", known.join(", ")),
            );
        }
    }
    found
}

fn hooks(problems: &mut Problems, c: &EksConfiguration) -> Vec<LifecycleHook> {
    let mut hooks = Vec::new();
    for (i, hook) in c.lifecycle_hooks.iter().flatten().enumerate() {
        let path = |field: &str| format!("lifecycleHooks[{i}].{field}");
        let name = hook.name.clone().unwrap_or_default();
        if name.is_empty() {
            problems.push(&path("name"), "", "is required", "name the hook");
        }
        let lifecycle = hook.lifecycle.clone().unwrap_or_default();
        let transition = match LifecycleTransition::parse(&lifecycle) {
            Some(LifecycleTransition::Launch) => "autoscaling:EC2_INSTANCE_LAUNCHING",
            Some(LifecycleTransition::Terminate) => "autoscaling:EC2_INSTANCE_TERMINATING",
            None => {
                problems.push(&path("lifecycle"), &lifecycle, "is no transition", "use launch or terminate");
                ""
            }
        };
        let timeout = hook.heartbeat_timeout.filter(|t| *t != 0).unwrap_or(300);
        if !(30..=7200).contains(&timeout) {
            problems.push(&path("heartbeatTimeout"), timeout, "is out of range", "use 30 to 7200 seconds");
        }
        if set(&hook.role_arn).is_some() && set(&hook.notification_arn).is_none() {
            problems.push(
                &path("roleArn"),
                hook.role_arn.clone().unwrap_or_default(),
                "needs a notificationArn",
                "set notificationArn or remove roleArn",
            );
        }
        let continues = hook.default_result.as_deref().is_some_and(|r| r.eq_ignore_ascii_case("continue"));
        hooks.push(LifecycleHook {
            name,
            transition: transition.into(),
            default_result: if continues { "CONTINUE" } else { "ABANDON" }.into(),
            heartbeat_timeout: timeout.clamp(30, 7200) as i32,
            notification_arn: set(&hook.notification_arn),
            metadata: set(&hook.metadata),
            role_arn: set(&hook.role_arn),
        });
    }
    hooks
}

fn word(problems: &mut Problems, field: &str, value: &Option<String>, allowed: &[&str]) -> Option<String> {
    let text = set(value)?.to_ascii_lowercase();
    if !allowed.contains(&text.as_str()) {
        problems.push(field, &text, "is not allowed here", &format!("use {}", allowed.join(" or ")));
    }
    Some(text)
}

fn metadata(problems: &mut Problems, c: &EksConfiguration) -> Option<MetadataOptions> {
    let m = c.metadata_options.as_ref()?;
    let hop_limit = m.http_put_hop_limit.filter(|n| *n != 0);
    if let Some(n) = hop_limit
        && !(1..=64).contains(&n)
    {
        problems.push("metadataOptions.httpPutHopLimit", n, "is out of range", "use 1 to 64");
    }
    let options = MetadataOptions {
        http_endpoint: word(problems, "metadataOptions.httpEndpoint", &m.http_endpoint, &["enabled", "disabled"]),
        http_tokens: word(problems, "metadataOptions.httpTokens", &m.http_tokens, &["optional", "required"]),
        hop_limit: hop_limit.map(|n| n.clamp(1, 64) as i32),
    };
    (options != MetadataOptions::default()).then_some(options)
}

fn placement(problems: &mut Problems, c: &EksConfiguration) -> Option<Placement> {
    let p = c.placement.as_ref()?;
    let placement = Placement {
        availability_zone: set(&p.availability_zone),
        tenancy: word(problems, "placement.tenancy", &p.tenancy, &["default", "dedicated", "host"]),
    };
    if placement == Placement::default() {
        return None;
    }
    if placement.tenancy.is_none() {
        problems.push("placement.tenancy", "", "is required with a placement", "use default, dedicated or host");
    }
    Some(placement)
}

fn with_autoscaler_tags(mut wanted: Wanted, annotations: &BTreeMap<String, String>) -> Wanted {
    if !flag(annotations, annotation::CLUSTER_AUTOSCALER_ENABLED) {
        return wanted;
    }
    let prefix = tag::CLUSTER_AUTOSCALER_PREFIX;
    let mut add =
        |key: String, value: &str| wanted.tags.push(Tag { key: format!("{prefix}{key}"), value: value.into() });
    add(wanted.cluster.clone(), "owned");
    add("enabled".into(), "true");
    add("node-template/label/kubernetes.io/os".into(), "linux");
    for (key, value) in &wanted.labels {
        add(format!("node-template/label/{key}"), value);
    }
    for taint in &wanted.taints {
        add(format!("node-template/taint/{}", taint.key), &format!("{}:{}", taint.value, taint.effect));
    }
    wanted
}

/// The reason that a list of problems gives its group.
pub fn reason(problems: &[Problem]) -> Reason {
    problems.first().map_or(Reason::InvalidSpec, |p| p.reason)
}
