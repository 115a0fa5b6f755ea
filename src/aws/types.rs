//! Plain values for what AWS has and what we ask of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::util::redact::Redacted;

/// A tag of any AWS resource; on a scaling group ours always propagate.
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
    /// Ours carry the hash of their inputs here.
    pub description: Option<String>,
    /// What it launches.
    pub data: TemplateData,
}

/// A launch configuration; AWS makes no new ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchConfiguration {
    /// Unique in an account and region; its content never changes.
    pub name: String,
    /// What it launches, in the terms of a template version.
    pub data: TemplateData,
}

/// What a launch template version holds, as far as we set it.
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
    /// Instance metadata options, when something was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataOptions>,
    /// Placement, when something was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Sorted ARNs of licence configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<String>,
    /// Spot instances, for at most so many dollars per hour: empty for the price on demand, `None` for no spot.
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
    /// Goes with the instance.
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
    /// The hash line that we know it by.
    pub description: String,
    /// What it launches.
    pub data: TemplateData,
}

/// Which subnets or security groups to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkQuery {
    /// All of a VPC: names are looked for only in the cluster's.
    Vpc(String),
    /// Those of these ids, at most 200, wherever they are.
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

/// What we need to know of an AMI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Image {
    /// `ami-...`
    pub id: String,
    /// `x86_64`, `arm64`, ...
    pub architecture: String,
    /// Whether it is one of Windows.
    pub is_windows: bool,
    /// The device that it boots from, such as `/dev/xvda`.
    pub root_device: String,
    /// The devices that it has of its own.
    pub device_names: Vec<String>,
}

/// What we need to know of an instance type.
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
    /// Its tags; empty where the call does not tell them.
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
    /// When it was made; a fresh one is not known everywhere yet.
    pub created: Option<Timestamp>,
    /// Its role, if it has one.
    pub role: Option<Role>,
    /// Its tags; empty where the call does not tell them.
    pub tags: Vec<Tag>,
}

/// An EKS cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its ARN; the account and the partition of what we name are read from it.
    pub arn: String,
    /// Kubernetes version, `1.33`.
    pub version: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Base64 of its certificate authority.
    pub ca: String,
    /// The services' IPv4 range.
    pub service_cidr: String,
    /// The VPC it lives in.
    pub vpc: String,
    /// `CONFIG_MAP`, `API` or `API_AND_CONFIG_MAP`.
    pub authentication_mode: String,
}

/// What IAM is asked to simulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySimulation {
    /// `iam:PassRole` and the like.
    pub actions: Vec<String>,
    /// An ARN; none for any resource.
    pub resource: Option<String>,
    /// Condition keys with their values.
    pub context: Vec<(String, String)>,
}

/// What IAM says of one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// It is allowed.
    Allowed,
    /// It is not.
    Denied,
    /// It depends on a condition key that IAM was not told.
    Unclear,
}
