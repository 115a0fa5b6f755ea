//! Settings of the provisioner eks, which runs nodes in an EC2 Auto Scaling group.

use std::collections::BTreeMap;

use kube::KubeSchema;
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
use crate::util::redact::REDACTED;

/// Settings of the provisioner eks, which runs nodes in an EC2 Auto Scaling group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // A size of 0 counts as absent, because boundaries treat it so.
    validation = Rule::new("!has(self.minSize) || !has(self.maxSize) || dyn(self.minSize) == null || dyn(self.maxSize) == null || self.maxSize == 0 || self.minSize <= self.maxSize")
        .message("minSize may not be more than maxSize; lower minSize or raise maxSize"),
)]
pub struct EksSpec {
    /// Minimum size of the Auto Scaling group, in nodes or, with instance weights, in units of capacity (default 0).
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum size of the Auto Scaling group, in nodes or, with instance weights, in units of capacity (default 0).
    /// policy.quotas of the cluster's ConfigMap may limit the nodes and vCPUs of a namespace.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// Resource that instances launch from: LaunchTemplate or LaunchConfiguration. Case does not matter. The default is
    /// the value of the controller flag --default-scaling-configuration.
    #[schemars(regex(pattern = ScalingConfigurationKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Warm pool of stopped instances that are ready for a scale-out; by default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<WarmPool>,
    /// Configuration of the nodes, their instances and their Auto Scaling group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksConfiguration>,
}

/// Warm pool of stopped instances that are ready for a scale-out.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmPool {
    /// Minimum number of instances in the warm pool (default 0).
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum number of instances in the warm pool and the group together. -1 means the group's own maxSize. 0 (the
    /// default) means the warm pool's minSize.
    #[schemars(range(min = -1, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
}

/// Configuration of the nodes, their instances and their Auto Scaling group.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksConfiguration {
    /// Name of the EKS cluster that the nodes join; required after the merge.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Name of the EC2 key pair for SSH access to the nodes; by default there is none.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// Machine image, required after the merge. An AMI ID; latest for the newest EKS image (case does not matter); or
    /// ssm:// followed by an image version. On Windows, ssm:// is followed by a release such as 2022 or 2022-full.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// EC2 instance type, such as m5.large; required after the merge.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Security groups of the nodes: IDs, or values of the Name tag within the cluster's VPC; required after the merge.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Subnets of the nodes: IDs, or values of the Name tag within the cluster's VPC; required after the merge.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Block devices of each node; the default is /dev/xvda with 32 GiB of type gp2.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// Auto Scaling processes to suspend, or all; by default none is suspended.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_processes: Option<Vec<String>>,
    /// Additional kubelet arguments; by default there are none.
    #[schemars(length(max = 65536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_arguments: Option<String>,
    /// Settings of the kubelet and the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_options: Option<BootstrapOptions>,
    /// Maximum price of a Spot Instance, in US dollars per hour. When it is set, the group launches Spot Instances. A
    /// recommendation overrides it; policy.spotRecommendationNamespaces of the cluster's ConfigMap limits who may give one.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<String>,
    /// Tags of the Auto Scaling group and its instances, beside those of the controller; by default there are none.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Tags of other resources that a launch creates, such as volumes.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_specifications: Option<Vec<TagSpecification>>,
    /// Kubernetes labels of the nodes, beside those of the controller; by default there are none.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Kubernetes taints of the nodes; by default there are none.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Scripts and settings that run when a node starts.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Vec<UserData>>,
    /// Existing IAM role of the nodes, by name or ARN. By default the controller creates a role. Tenants may name roles that
    /// policy.roles of the cluster's ConfigMap allows.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,
    /// Existing instance profile of the nodes; ignored without roleName. Tenants may name profiles that policy.roles of the
    /// cluster's ConfigMap allows.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile_name: Option<String>,
    /// Additional IAM policies, by name or ARN, for the role that the controller creates. Tenants may name policies that
    /// policy.managedPolicies of the cluster's ConfigMap allows.
    #[schemars(length(max = 200), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_policies: Option<Vec<String>>,
    /// Group metrics that the Auto Scaling group publishes to CloudWatch, or all; by default none.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_collection: Option<Vec<String>>,
    /// Lifecycle hooks of the Auto Scaling group, which pause an instance while it launches or terminates.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_hooks: Option<Vec<LifecycleHook>>,
    /// Mixed instances policy: several instance types, On-Demand and Spot, in one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_instances_policy: Option<MixedInstancesPolicy>,
    /// ARNs of License Manager license configurations; by default there are none.
    #[schemars(length(max = 100), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license_specifications: Option<Vec<String>>,
    /// Placement of the instances: availability zone, tenancy and host resource group. By default EC2 decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Settings of the EC2 instance metadata service (IMDS). By default the image and the AWS account decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
}

/// Settings of the kubelet and the container runtime.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapOptions {
    /// Maximum number of pods on a node. By default it follows from the instance type and the network settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i64>,
    /// Container runtime, such as containerd. By default the machine image decides.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<String>,
}

/// Block device of a node.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.name) && dyn(self.name) != null && self.name != ''")
        .message("a volume needs a name, its device, such as /dev/xvda"),
    validation = Rule::new("!has(self.type) || dyn(self.type) == null || self.type.matches('(?i)^(|gp2|gp3|io1|io2|sc1|st1|standard)$')")
        .message("the type of a volume must be gp2, gp3, io1, io2, sc1, st1 or standard"),
    validation = Rule::new("!has(self.size) || dyn(self.size) == null || self.size <= 0 || !has(self.snapshotId) || dyn(self.snapshotId) == null || self.snapshotId == ''")
        .message("size cannot be combined with snapshotId; remove one of the two"),
)]
pub struct Volume {
    /// Device name, such as /dev/xvda.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// EBS volume type, such as gp3; by default EC2 decides. Launch configurations accept gp2, io1, sc1 and st1; launch
    /// templates also accept gp3 and io2.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Size in GiB; not allowed together with snapshotId. By default it follows from the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Provisioned I/O operations per second, at least 100; for io1, io2 and gp3. By default EBS decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Provisioned throughput in MiB per second; for gp3. By default EBS decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// Whether the volume is deleted together with its instance (default true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted. By default the snapshot and the settings of the AWS account decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// ID of the EBS snapshot that the volume is created from; by default the volume is empty, or that of the image.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// File system and mount point of the volume. By default the volume is not formatted or mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<MountOptions>,
}

/// File system and mount point of a volume.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.mount) && dyn(self.mount) != null && self.mount.startsWith('/')")
        .message("mount must be an absolute path, such as /data"),
    validation = Rule::new("has(self.fileSystem) && dyn(self.fileSystem) != null && self.fileSystem != ''")
        .message("fileSystem must be xfs or ext4"),
)]
pub struct MountOptions {
    /// File system: xfs or ext4; required in mountOptions.
    #[schemars(length(max = 64), regex(pattern = FileSystem::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Absolute path of the directory at which the volume is mounted; required in mountOptions.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Whether the mount survives a reboot (default true). The spelling is kept for compatibility; persistence is
    /// accepted too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistance: Option<bool>,
    /// Correct spelling of persistance; takes precedence when both are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
}

impl MountOptions {
    /// Whether the mount survives a reboot, by either spelling of the field.
    pub(crate) fn is_persistent(&self) -> bool {
        self.persistence.or(self.persistance).unwrap_or(true)
    }
}

/// Tag of an AWS resource.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.key) && dyn(self.key) != null && self.key != ''")
        .message("a tag needs a key"),
)]
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

/// Tags of one type of resource that a launch creates.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagSpecification {
    /// Resource type, such as instance, volume or network-interface.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_type: Option<String>,
    /// Tags of these resources.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
}

/// Kubernetes taint of a node.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.key) && dyn(self.key) != null && self.key != ''")
        .message("a taint needs a key"),
    validation = Rule::new("has(self.effect) && dyn(self.effect) != null && self.effect != '' && (self.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] || !(self.effect.lowerAscii() in ['noschedule', 'prefernoschedule', 'noexecute']))")
        .message("the effect of a taint must be NoSchedule, PreferNoSchedule or NoExecute"),
)]
pub struct Taint {
    /// Key of the taint.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the taint; may be empty.
    #[schemars(length(max = 1024), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute.
    #[schemars(length(max = 64), regex(pattern = TaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Ignored; accepted because the taints of a Node have this field.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// Script or settings that run when a node starts.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserData {
    /// Name of the entry; entries of the boundaries and of the group are merged by name.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the entry is used: PreBootstrap (before the node joins), PostBootstrap (after it joined) or NodeConfigYaml
    /// (a NodeConfig of Amazon Linux 2023). Case does not matter; entries with another stage are ignored.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Content of the entry, as plain text or base64.
    #[schemars(length(max = 262144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// Lifecycle hook, which pauses an instance while it launches or terminates.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.name) && dyn(self.name) != null && self.name != ''")
        .message("a lifecycle hook needs a name"),
    validation = Rule::new("has(self.lifecycle) && dyn(self.lifecycle) != null && self.lifecycle != ''")
        .message("lifecycle must be launch or terminate"),
    validation = Rule::new("!has(self.heartbeatTimeout) || dyn(self.heartbeatTimeout) == null || self.heartbeatTimeout == 0 || (self.heartbeatTimeout >= 30 && self.heartbeatTimeout <= 7200)")
        .message("heartbeatTimeout must be 30 to 7200 seconds"),
    validation = Rule::new("!has(self.roleArn) || dyn(self.roleArn) == null || self.roleArn == '' || (has(self.notificationArn) && dyn(self.notificationArn) != null && self.notificationArn != '')")
        .message("roleArn needs notificationArn; set it, or remove roleArn"),
)]
pub struct LifecycleHook {
    /// Name of the hook.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Transition at which the hook pauses an instance: launch or terminate. Case does not matter.
    #[schemars(length(max = 64), regex(pattern = LifecycleTransition::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Result when the heartbeat times out: abandon or continue. Case does not matter. The default, also for unknown
    /// values, is abandon.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_result: Option<String>,
    /// Heartbeat timeout in seconds, after which defaultResult applies (default 300).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<i64>,
    /// ARN of the SQS queue, SNS topic or Lambda function that AWS notifies.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification_arn: Option<String>,
    /// Text that AWS includes in each notification.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// ARN of the IAM role that may publish to notificationArn. A topic or queue needs one; a function does not. Tenants may
    /// name roles that policy.roles of the cluster's ConfigMap allows.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
}

/// Mixed instances policy: several instance types, On-Demand and Spot, in one group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.spotRatio) || dyn(self.spotRatio) == null || type(self.spotRatio) != int || (self.spotRatio >= 0 && self.spotRatio <= 100)")
        .message("spotRatio must be 0 to 100 percent"),
    validation = Rule::new("!has(self.instancePool) || dyn(self.instancePool) == null || self.instancePool.lowerAscii() in ['', 'subfamilyflexible']")
        .message("instancePool must be SubFamilyFlexible; or leave it out"),
)]
pub struct MixedInstancesPolicy {
    /// Spot allocation strategy: CapacityOptimized, LowestPrice, PriceCapacityOptimized or
    /// CapacityOptimizedPrioritized. Case does not matter. The default is CapacityOptimized, or LowestPrice when
    /// spotPools is set.
    #[schemars(length(max = 64), regex(pattern = SpotStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// On-Demand allocation strategy: Prioritized (the default; types in the listed order) or LowestPrice. Case does
    /// not matter.
    #[schemars(length(max = 64), regex(pattern = OnDemandStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_allocation_strategy: Option<String>,
    /// Number of Spot pools for LowestPrice, from 1 to 20 (default 2); other numbers are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_pools: Option<i64>,
    /// Minimum On-Demand capacity, in units of capacity (default 0).
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_capacity: Option<i64>,
    /// Percentage of Spot capacity above baseCapacity, as 60 or "60%" (default 0).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_ratio: Option<IntOrString>,
    /// Which similar instance types the controller adds: SubFamilyFlexible (same family, generation, architecture and
    /// size). Case does not matter. By default it adds none.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_pool: Option<String>,
    /// Additional instance types, in order of preference; spec.eks.configuration.instanceType precedes them.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<Vec<InstanceTypeSpec>>,
}

/// Instance type with its weight.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.type) && dyn(self.type) != null && self.type != ''")
        .message("an entry of instanceTypes needs a type, such as m5.large"),
)]
pub struct InstanceTypeSpec {
    /// EC2 instance type, such as m5.large.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Units of capacity that one instance provides, from 1 to 999; minSize, maxSize and the desired capacity are in
    /// these units. Set a weight on all types or on none (then each counts 1). instanceType counts 1 unless it is
    /// listed with another weight.
    #[schemars(range(min = 0, max = 999))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// Placement of the instances.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Availability zone in which the instances run.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// ARN of a host resource group; needs the tenancy host.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_resource_group_arn: Option<String>,
    /// Tenancy of the instances: default (shared hardware), dedicated or host.
    #[schemars(length(max = 64), regex(pattern = Tenancy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<String>,
}

/// Settings of the EC2 instance metadata service (IMDS). What is not set follows the AWS defaults of the image and the
/// account.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether the metadata service is available: enabled. disabled is rejected, because nodes could not join.
    #[schemars(length(max = 64), regex(pattern = HttpEndpoint::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// Whether requests need a session token (IMDSv2): optional or required. By default the image and the account
    /// decide.
    #[schemars(length(max = 64), regex(pattern = HttpTokens::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// Maximum number of network hops for a response with a session token, from 1 to 64. By default the image and the
    /// account decide.
    #[schemars(range(min = 0, max = 64))]
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
        f.debug_struct("UserData").field("name", name).field("stage", stage).field("data", &REDACTED).finish()
    }
}
