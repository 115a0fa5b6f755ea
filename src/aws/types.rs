//! Plain types for AWS resources and requests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::util::redact::Redacted;

/// A tag of an AWS resource. On a scaling group the controller's tags always propagate to instances.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Tag {
    /// At most 128 characters.
    pub key: String,
    /// At most 256 characters.
    pub value: String,
}

/// A set of tags by key, for comparing.
pub fn tag_map(tags: &[Tag]) -> BTreeMap<&str, &str> {
    tags.iter().map(|t| (t.key.as_str(), t.value.as_str())).collect()
}

/// Which version of which launch template a scaling group or an instance refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TemplatePin {
    /// `lt-...`
    pub id: String,
    /// A number, `$Latest` or `$Default`.
    pub version: String,
}

impl TemplatePin {
    /// The pinned number, or `None` for `$Latest` and `$Default`.
    pub fn version_number(&self) -> Option<i64> {
        self.version.parse().ok()
    }
}

/// A launch template without its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchTemplate {
    /// `lt-...`
    pub id: String,
    /// The name.
    pub name: String,
    /// The number of the default version.
    pub default_version: i64,
    /// The highest number.
    pub latest_version: i64,
    /// Its tags.
    pub tags: Vec<Tag>,
}

/// One immutable version of a launch template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TemplateVersion {
    /// `lt-...`
    pub template_id: String,
    /// 1, 2, ...
    pub number: i64,
    /// For the controller's versions: the hash of their inputs.
    pub description: Option<String>,
    /// What it launches.
    pub data: TemplateData,
}

/// A launch configuration. AWS no longer allows creating them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchConfiguration {
    /// Unique in an account and region; its content never changes.
    pub name: String,
    /// What it launches, in the terms of a template version.
    pub data: TemplateData,
}

/// The fields of a launch template version that the controller sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TemplateData {
    /// `ami-...`
    pub image_id: String,
    /// For example `m5.large`.
    pub instance_type: String,
    /// Name of an EC2 key pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// ARN of the instance profile.
    pub profile_arn: String,
    /// Sorted security group ids.
    pub security_groups: Vec<String>,
    /// Base64; never printed.
    pub user_data: Redacted<String>,
    /// By device name.
    pub devices: Vec<BlockDevice>,
    /// Instance metadata options, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataOptions>,
    /// Placement, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Sorted ARNs of license configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<String>,
    /// Maximum spot price in dollars per hour. Empty: the on-demand price. `None`: no spot instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<String>,
    /// Tags for what the instance brings along, sorted by resource type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tag_specifications: Vec<TagSpecification>,
}

/// A block device mapping with EBS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// `/dev/xvda`
    pub name: String,
    /// `gp3`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i32>,
    /// MiB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i32>,
    /// Whether the volume is deleted with the instance.
    pub delete_on_termination: bool,
    /// Encrypted at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// `snap-...`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
}

/// Instance metadata service options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// `optional` or `required`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// 1 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<i32>,
}

/// Placement of instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// For example `us-west-2a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// `default`, `dedicated` or `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<String>,
    /// ARN of the resource group whose dedicated hosts take the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_resource_group: Option<String>,
}

/// Tags for one type of resource that a launch makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TagSpecification {
    /// `instance`, `volume`, ...
    pub resource_type: String,
    /// Sorted by key.
    pub tags: Vec<Tag>,
}

/// Input of CreateLaunchTemplate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewTemplate {
    /// The derived name.
    pub name: String,
    /// Ownership tags.
    pub tags: Vec<Tag>,
    /// Its first version.
    pub version: NewVersion,
}

/// Input of CreateLaunchTemplateVersion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewVersion {
    /// Idempotency token, at most 64 characters.
    pub token: String,
    /// Description with the hash of the inputs.
    pub description: String,
    /// What it launches.
    pub data: TemplateData,
}

/// Which subnets or security groups to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkQuery {
    /// All objects of a VPC.
    Vpc(String),
    /// Objects by id, at most 200, in any VPC.
    Ids(Vec<String>),
}

/// A subnet or a security group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkObject {
    /// `subnet-...` or `sg-...`
    pub id: String,
    /// Its Name tag.
    pub name: Option<String>,
    /// Its VPC.
    pub vpc: String,
    /// A subnet's availability zone.
    pub zone: Option<String>,
}

/// The properties of an AMI that the controller uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Image {
    /// `ami-...`
    pub id: String,
    /// `x86_64`, `arm64`, ...
    pub architecture: String,
    /// Whether it is a Windows image.
    pub is_windows: bool,
    /// The device that it boots from, such as `/dev/xvda`.
    pub root_device: String,
    /// The devices that it has of its own.
    pub device_names: Vec<String>,
}

/// The properties of an instance type that the controller uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InstanceType {
    /// For example `m5.large`.
    pub name: String,
    /// In AWS's order: `x86_64`, `arm64`, ...
    pub architectures: Vec<String>,
    /// Virtual CPUs.
    pub vcpus: i32,
    /// Memory in MiB.
    pub memory_mib: i64,
    /// Network interfaces, at most.
    pub max_interfaces: i32,
    /// IPv4 addresses for each of them, its own one included.
    pub ipv4_per_interface: i32,
}

impl InstanceType {
    /// The first architecture that nodes can have: `x86_64` or `arm64`.
    pub fn architecture(&self) -> Option<&str> {
        self.architectures.iter().map(String::as_str).find(|a| ["x86_64", "arm64"].contains(a))
    }
}

/// An IAM role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Role {
    /// `AROA...`, which no later role of the same name gets.
    pub id: String,
    /// Its name, without path.
    pub name: String,
    /// Its ARN, with path.
    pub arn: String,
    /// Its tags; empty if the call does not return them.
    pub tags: Vec<Tag>,
}

/// Input of CreateRole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewRole {
    /// The derived name.
    pub name: String,
    /// The trust policy document.
    pub trust_policy: String,
    /// Ownership tags.
    pub tags: Vec<Tag>,
}

/// An instance profile and its role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstanceProfile {
    /// `AIPA...`, which no later profile of the same name gets.
    pub id: String,
    /// Its name, without path.
    pub name: String,
    /// Its ARN, with path.
    pub arn: String,
    /// Creation time; a new profile may not have propagated yet.
    pub created: Option<Timestamp>,
    /// Its role, if it has one.
    pub role: Option<Role>,
    /// Its tags; empty if the call does not return them.
    pub tags: Vec<Tag>,
}

/// An EKS cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its ARN, which also provides the account and the partition.
    pub arn: String,
    /// Kubernetes version, `1.33`.
    pub version: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Base64 of its certificate authority.
    pub ca: String,
    /// The services' IPv4 range.
    pub service_cidr: String,
    /// The VPC of the cluster.
    pub vpc: String,
    /// `CONFIG_MAP`, `API` or `API_AND_CONFIG_MAP`.
    pub authentication_mode: String,
}

/// Input of an IAM policy simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySimulation {
    /// `iam:PassRole` and the like.
    pub actions: Vec<String>,
    /// An ARN; empty for any resource.
    pub resource: Option<String>,
    /// Condition keys with their values.
    pub context: Vec<(String, String)>,
}

/// The result of a simulation for one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// It is allowed.
    Allowed,
    /// It is denied.
    Denied,
    /// It depends on a condition key that is missing from the simulation.
    Unclear,
}
