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
    /// The Auto Scaling group has at least this many nodes or, with instance weights, units of capacity.
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// The Auto Scaling group has at most this many nodes or, with instance weights, units of capacity.
    /// Default: 0. Set by: tenants, within the boundaries and policy.quotas.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// Instances launch from a resource of this type: LaunchTemplate or LaunchConfiguration. Case does not matter.
    /// Default: the value of the controller flag --default-scaling-configuration. Set by: tenants, within the
    /// boundaries.
    #[schemars(regex(pattern = ScalingConfigurationKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The warm pool holds stopped instances that are ready for a scale-out.
    /// Default: no warm pool. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<WarmPool>,
    /// This section configures the nodes, their instances and their Auto Scaling group.
    /// Default: none; it holds required fields. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksConfiguration>,
}

/// Warm pool of stopped instances that are ready for a scale-out.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmPool {
    /// The warm pool has at least this many instances.
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// The warm pool and the group together have at most this many instances. -1 stands for the group's own maxSize,
    /// and 0 for the warm pool's minSize.
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(range(min = -1, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
}

/// Configuration of the nodes, their instances and their Auto Scaling group.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksConfiguration {
    /// The nodes join the EKS cluster with this name.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The EC2 key pair with this name gives SSH access to the nodes.
    /// Default: no key pair. Set by: tenants, within the boundaries.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// The nodes boot from this machine image. It is an AMI ID, latest for the newest EKS image (case does not matter),
    /// or ssm:// followed by an image version. On Windows, ssm:// is followed by a release such as 2022 or 2022-full.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The nodes have this EC2 instance type, such as m5.large.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The nodes belong to these security groups, given as IDs or as values of the Name tag within the cluster's VPC.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// The nodes run in these subnets, given as IDs or as values of the Name tag within the cluster's VPC.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Each node has these block devices as volumes.
    /// Default: 32 GiB of type gp2 at /dev/xvda, or as the image needs it. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// The controller suspends these processes of the Auto Scaling group; all stands for every process.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_processes: Option<Vec<String>>,
    /// The kubelet starts with these additional arguments.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 65536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_arguments: Option<String>,
    /// This section configures the kubelet and the container runtime.
    /// Default: the defaults of its fields. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_options: Option<BootstrapOptions>,
    /// The group launches Spot Instances for at most this price, in US dollars per hour. With mixedInstancesPolicy, it
    /// has no effect. A recommendation overrides it; policy.spotRecommendationNamespaces of the cluster's ConfigMap
    /// limits who may give one.
    /// Default: none; the group launches On-Demand Instances. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<String>,
    /// The Auto Scaling group and its instances get these tags, in addition to those of the controller.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Other resources that a launch creates, such as volumes, get these tags.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_specifications: Option<Vec<TagSpecification>>,
    /// The nodes get these Kubernetes labels, in addition to those of the controller.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The nodes get these Kubernetes taints.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// These scripts and settings take effect when a node starts.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Vec<UserData>>,
    /// The nodes use this existing IAM role, given by name or ARN.
    /// Default: a role that the controller creates. Set by: tenants, within the boundaries and policy.roles.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,
    /// The nodes use this existing instance profile. Without roleName, it has no effect.
    /// Default: the profile with the name in roleName. Set by: tenants, within the boundaries and policy.roles.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile_name: Option<String>,
    /// The controller attaches these additional IAM policies, given by name or ARN, to the role that it creates.
    /// Default: none. Set by: tenants, within the boundaries and policy.managedPolicies.
    #[schemars(length(max = 200), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_policies: Option<Vec<String>>,
    /// The Auto Scaling group publishes these group metrics to CloudWatch; all stands for every metric of the group.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 100), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_collection: Option<Vec<String>>,
    /// The Auto Scaling group has these lifecycle hooks, which pause an instance while it launches or terminates.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_hooks: Option<Vec<LifecycleHook>>,
    /// This policy lets one group have several instance types, and both On-Demand and Spot Instances.
    /// Default: none; the group has one instance type. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_instances_policy: Option<MixedInstancesPolicy>,
    /// The instances use the License Manager license configurations with these ARNs.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 100), inner(length(max = 2048)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license_specifications: Option<Vec<String>>,
    /// This section places the instances by availability zone, tenancy and host resource group.
    /// Default: EC2 decides. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// This section configures the EC2 instance metadata service (IMDS).
    /// Default: the image and the AWS account decide. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
}

/// Settings of the kubelet and the container runtime.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapOptions {
    /// A node runs at most this many pods.
    /// Default: it follows from the instance type and the network settings. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i64>,
    /// The nodes use this container runtime, such as containerd.
    /// Default: the machine image decides. Set by: tenants, within the boundaries.
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
    /// The volume has this device name, such as /dev/xvda.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The volume has this EBS volume type, such as gp3. Launch configurations accept gp2, io1, sc1 and st1; launch
    /// templates also accept gp3 and io2.
    /// Default: EC2 decides. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The volume has this size in GiB, which cannot be combined with snapshotId.
    /// Default: it follows from the image or the snapshot. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The volume provides this many I/O operations per second, at least 100; for io1, io2 and gp3.
    /// Default: EBS decides. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// The volume provides this throughput in MiB per second; for gp3.
    /// Default: EBS decides. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// If true, EC2 deletes the volume together with its instance.
    /// Default: true. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// If true, EBS encrypts the volume.
    /// Default: the snapshot and the settings of the AWS account decide. Set by: tenants, within the boundaries of the
    /// list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// EC2 creates the volume from the EBS snapshot with this ID.
    /// Default: none; the volume is empty, or that of the image. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// The node formats and mounts the volume as these options say.
    /// Default: none; it does neither. Set by: tenants, within the boundaries of the list.
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
    /// The node formats the volume with this file system: xfs or ext4.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64), regex(pattern = FileSystem::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The node mounts the volume at this directory, given as an absolute path.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// If true, the mount survives a reboot. The spelling is kept for compatibility; persistence is accepted too.
    /// Default: true. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistance: Option<bool>,
    /// If true, the mount survives a reboot. It takes precedence over persistance.
    /// Default: the value of persistance. Set by: tenants, within the boundaries of the list.
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
    /// The tag has this key, of 1 to 128 characters.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The tag has this value, of at most 256 characters.
    /// Default: an empty value. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Tags of one type of resource that a launch creates.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagSpecification {
    /// Resources of this type get the tags: instance, volume, network-interface or spot-instances-request.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_type: Option<String>,
    /// EC2 gives these tags to the resources when it launches an instance.
    /// Default: none. Set by: tenants, within the boundaries of the list.
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
    /// The taint has this key, with an optional prefix, such as example.com/gpu.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The taint has this value, which may be empty.
    /// Default: an empty value. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 1024), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint has this effect: NoSchedule, PreferNoSchedule or NoExecute.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64), regex(pattern = TaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The controller ignores this field, which is accepted because the taints of a Node have it.
    /// Default: none. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// Script or settings that run when a node starts.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserData {
    /// The entry has this name, by which entries of the boundaries and of the group are merged.
    /// Default: none. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The entry takes effect at this stage: PreBootstrap (before the node joins), PostBootstrap (after it joined) or
    /// NodeConfigYaml (a NodeConfig of Amazon Linux 2023). Case does not matter. The controller ignores entries with
    /// another stage.
    /// Default: none; the entry is ignored. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The entry has this content, given as plain text or base64.
    /// Default: an empty content. Set by: tenants, within the boundaries of the list.
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
    /// The hook has this name, which no other hook of the group has.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The hook pauses an instance at this transition: launch or terminate. Case does not matter.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64), regex(pattern = LifecycleTransition::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Auto Scaling applies this result when the heartbeat times out: abandon or continue. Case does not matter, and
    /// unknown values count as abandon.
    /// Default: abandon. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_result: Option<String>,
    /// The heartbeat times out after this many seconds, from 30 to 7200, and defaultResult applies.
    /// Default: 300. Set by: tenants, within the boundaries of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<i64>,
    /// AWS notifies the SQS queue, SNS topic or Lambda function with this ARN.
    /// Default: none. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification_arn: Option<String>,
    /// AWS includes this text in each notification.
    /// Default: none. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Auto Scaling uses the IAM role with this ARN to publish to notificationArn. A topic or queue needs one; a
    /// function does not.
    /// Default: none. Set by: tenants, within the boundaries of the list and policy.roles.
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
    /// Auto Scaling allocates Spot capacity by this strategy: CapacityOptimized, LowestPrice, PriceCapacityOptimized or
    /// CapacityOptimizedPrioritized. Case does not matter.
    /// Default: CapacityOptimized, or LowestPrice when spotPools is set. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64), regex(pattern = SpotStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Auto Scaling allocates On-Demand capacity by this strategy: Prioritized (types in the listed order) or
    /// LowestPrice. Case does not matter.
    /// Default: Prioritized. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64), regex(pattern = OnDemandStrategy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_allocation_strategy: Option<String>,
    /// With LowestPrice, Auto Scaling uses this many Spot pools, from 1 to 20. Other numbers are ignored.
    /// Default: 2. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_pools: Option<i64>,
    /// At least this much of the capacity is On-Demand, in units of capacity.
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_capacity: Option<i64>,
    /// This percentage of the capacity above baseCapacity is Spot, written as 60 or "60%".
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_ratio: Option<IntOrString>,
    /// The controller adds similar instance types of this pool: SubFamilyFlexible (same family, generation,
    /// architecture and size). Case does not matter.
    /// Default: none; it adds no types. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_pool: Option<String>,
    /// The group also launches these instance types, in order of preference, after spec.eks.configuration.instanceType.
    /// Default: none; required without instancePool. Set by: tenants, within the boundaries.
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
    /// The group may launch this EC2 instance type, such as m5.large.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// One instance provides this many units of capacity, from 1 to 999. The minSize, maxSize and desired capacity of
    /// the group are in these units. Set a weight on all types or on none. The instanceType counts 1 unless it is
    /// listed with another weight.
    /// Default: 1. Set by: tenants, within the boundaries of the list.
    #[schemars(range(min = 0, max = 999))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// Placement of the instances.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The instances run in this availability zone, such as us-west-2a.
    /// Default: EC2 decides. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// The instances run in the host resource group with this ARN, which needs the tenancy host.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_resource_group_arn: Option<String>,
    /// The instances have this tenancy: default (shared hardware), dedicated or host.
    /// Default: none; required with another field of placement. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64), regex(pattern = Tenancy::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<String>,
}

/// Settings of the EC2 instance metadata service (IMDS). What is not set follows the AWS defaults of the image and the
/// account.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// The value enabled makes the metadata service available. The controller rejects the value disabled, because nodes
    /// could not join.
    /// Default: the image and the AWS account decide. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64), regex(pattern = HttpEndpoint::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// The value required demands a session token (IMDSv2) of each request; with optional, requests may go without one.
    /// Default: the image and the AWS account decide. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64), regex(pattern = HttpTokens::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// A response with a session token takes at most this many network hops, from 1 to 64; 0 counts
    /// as not set. Default: the image and the AWS account decide. Set by: tenants, within the boundaries.
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
