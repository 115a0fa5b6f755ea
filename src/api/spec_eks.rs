//! Settings of the provisioner eks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    enums::{
        FileSystem, HttpEndpoint, HttpTokens, LifecycleTransition, OnDemandStrategy, ScalingConfigurationKind,
        SpotStrategy, TaintEffect, Tenancy,
    },
    fields::{IntOrString, LABEL_KEY, LABEL_VALUE, int_or_percent, labels},
    redact::redacted,
};

/// Settings of the provisioner eks: a scaling group of EC2 instances.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksSpec {
    /// Minimum number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// What instances are launched from: LaunchTemplate or LaunchConfiguration, in any case; the controller's flag
    /// --default-scaling-configuration decides when it is empty.
    #[schemars(regex(pattern = ScalingConfigurationKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Stopped instances that are kept ready for a scale-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<WarmPool>,
    /// What the nodes look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksConfiguration>,
}

/// Stopped instances that are kept ready for a scale-out.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmPool {
    /// Minimum number of instances in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum number of prepared instances; -1 means the group's maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
}

/// What the nodes look like.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksConfiguration {
    /// Name of the EKS cluster that the nodes join.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// EC2 key pair for logging in to the nodes.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// The machine image: an AMI id, latest (any case), or ssm:// and a version.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// EC2 instance type, such as m5.large.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Security groups: ids, or values of the Name tag within the cluster's VPC.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Subnets: ids, or values of the Name tag within the cluster's VPC.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Block devices; without any, /dev/xvda with 32 GiB of gp2.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// Processes of the scaling group to suspend, or all.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_processes: Option<Vec<String>>,
    /// Further arguments for the kubelet.
    #[schemars(length(max = 65536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_arguments: Option<String>,
    /// Settings of the kubelet and of the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_options: Option<BootstrapOptions>,
    /// Highest price in dollars per hour for spot instances.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<String>,
    /// Tags of the scaling group and of its instances.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Tags of other resources that a launch creates.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_specifications: Option<Vec<TagSpecification>>,
    /// Labels of the nodes.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Taints of the nodes.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Scripts and settings that run when a node starts.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Vec<UserData>>,
    /// An existing role for the nodes; without it, one is made.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,
    /// An existing instance profile for the nodes; it counts only with roleName.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile_name: Option<String>,
    /// Further policies for the role that is made: names or ARNs.
    #[schemars(length(max = 200), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_policies: Option<Vec<String>>,
    /// Metrics that the scaling group collects, or all.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_collection: Option<Vec<String>>,
    /// Hooks that hold an instance while it launches or terminates.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_hooks: Option<Vec<LifecycleHook>>,
    /// Several instance types, on demand and spot, in one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_instances_policy: Option<MixedInstancesPolicy>,
    /// ARNs of licence configurations.
    #[schemars(length(max = 100), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license_specifications: Option<Vec<String>>,
    /// Where instances run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The instance metadata service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
}

/// Settings of the kubelet and of the container runtime.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapOptions {
    /// Most pods that a node may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i64>,
    /// Container runtime, such as containerd.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<String>,
}

/// A block device.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Device name, such as /dev/xvda.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Volume type, such as gp3; with launch configurations gp2, io1, sc1 or st1, with launch templates also gp3 and io2.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Size in GiB; not together with snapshotId.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Operations per second, at least 100, for io1, io2 and gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// MiB per second, for gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// Whether the volume goes with its instance (default true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Snapshot that the volume is made from.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// File system and mount point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<MountOptions>,
}

/// How a volume is mounted.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountOptions {
    /// File system: xfs or ext4.
    #[schemars(length(max = 64), regex(pattern = FileSystem::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Directory that the volume is mounted on.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Whether the mount survives a reboot (default true). The name is spelt so for compatibility; persistence is accepted too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistance: Option<bool>,
    /// The right spelling of persistance, which wins when both are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
}

impl MountOptions {
    /// Whether the mount survives a reboot, whichever way the field is spelt.
    pub fn is_persistent(&self) -> bool {
        self.persistence.or(self.persistance).unwrap_or(true)
    }
}

/// A tag of an AWS resource.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tag {
    /// Key of the tag.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the tag.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Tags of one kind of resource that a launch creates.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagSpecification {
    /// Kind of the resource, such as instance, volume or network-interface.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_type: Option<String>,
    /// Its tags.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
}

/// A taint of a node.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key of the taint.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the taint.
    #[schemars(length(max = 1024), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    #[schemars(length(max = 64), regex(pattern = TaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Ignored; accepted because taints of nodes have it.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// A script or settings that a node starts with.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserData {
    /// Name of the entry; the ConfigMap and the group are merged by it.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it is used: PreBootstrap, PostBootstrap or NodeConfigYaml, in any case; entries with another stage are ignored.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The text itself, plain or as base64.
    #[schemars(length(max = 262144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// A hook that holds an instance while it launches or terminates.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHook {
    /// Name of the hook.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The transition that it holds: launch or terminate, in any case.
    #[schemars(length(max = 64), regex(pattern = LifecycleTransition::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// What follows when nobody answers: abandon (the default, also for unknown words) or continue, in any case.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_result: Option<String>,
    /// Seconds until the default result (default 300).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<i64>,
    /// ARN of the queue, topic or function that is told.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification_arn: Option<String>,
    /// Text that is sent along.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// ARN of the role that may write to notificationArn: a topic or a queue needs one, a function none.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
}

/// Several instance types, on demand and spot, in one group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MixedInstancesPolicy {
    /// How spot capacity is chosen: CapacityOptimized, LowestPrice, PriceCapacityOptimized or CapacityOptimizedPrioritized, in
    /// any case (default CapacityOptimized, or LowestPrice with spotPools).
    #[schemars(length(max = 64), regex(pattern = SpotStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// How types are chosen for what is on demand: Prioritized (the default), in the order of the types, or LowestPrice, in any
    /// case.
    #[schemars(length(max = 64), regex(pattern = OnDemandStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_allocation_strategy: Option<String>,
    /// Number of pools for LowestPrice, 1 to 20 (default 2); other numbers count as unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_pools: Option<i64>,
    /// Units of capacity that are always on demand (default 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_capacity: Option<i64>,
    /// Percentage of spot capacity above the base, as 60 or "60%" (default 0).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_ratio: Option<IntOrString>,
    /// Which similar types are added by themselves: SubFamilyFlexible, in any case.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_pool: Option<String>,
    /// Further instance types, the preferred ones first; instanceType comes before them.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<Vec<InstanceTypeSpec>>,
}

/// An instance type and how much it counts for.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceTypeSpec {
    /// EC2 instance type.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// How many units of minSize, maxSize and desired capacity one instance counts for, 1 to 999; all types have a weight or
    /// none (then each counts for 1). instanceType counts for 1, unless it is listed with another weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// Where instances run.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Availability zone.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// ARN of a host resource group; it needs the tenancy host.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_resource_group_arn: Option<String>,
    /// default, dedicated or host.
    #[schemars(length(max = 64), regex(pattern = Tenancy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<String>,
}

/// The instance metadata service.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether it answers: enabled or disabled.
    #[schemars(length(max = 64), regex(pattern = HttpEndpoint::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// Whether requests need a token: optional or required.
    #[schemars(length(max = 64), regex(pattern = HttpTokens::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// How many network hops an answer may travel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_put_hop_limit: Option<i64>,
}

impl std::fmt::Debug for EksConfiguration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EksConfiguration {}", redacted(&serde_json::to_value(self).unwrap_or_default()))
    }
}

impl std::fmt::Debug for UserData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, stage, data: _ } = self;
        f.debug_struct("UserData").field("name", name).field("stage", stage).field("data", &"[redacted]").finish()
    }
}
