//! Plain types for AWS resources and requests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::util::redact::Redacted;

/// A tag of an AWS resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Tag {
    /// Tag key, at most 128 characters.
    pub key: String,
    /// Tag value, at most 256 characters.
    pub value: String,
}

/// Tag values by key, for comparisons.
pub(crate) fn tag_map(tags: &[Tag]) -> BTreeMap<&str, &str> {
    tags.iter().map(|t| (t.key.as_str(), t.value.as_str())).collect()
}

/// The launch template version that a scaling group or an instance uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TemplatePin {
    /// `lt-...`
    pub id: String,
    /// A number, `$Latest` or `$Default`.
    pub version: String,
}

impl TemplatePin {
    /// The version number, or `None` for `$Latest` and `$Default`.
    pub(crate) fn version_number(&self) -> Option<i64> {
        self.version.parse().ok()
    }
}

/// A launch template without its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchTemplate {
    /// `lt-...`
    pub id: String,
    /// Name, unique in an account and region.
    pub name: String,
    /// Number of the default version.
    pub default_version: i64,
    /// Number of the latest version.
    pub latest_version: i64,
    /// All tags of the launch template, also those of others.
    pub tags: Vec<Tag>,
}

/// One immutable version of a launch template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TemplateVersion {
    /// `lt-...`
    pub template_id: String,
    /// Version number, starting with 1.
    pub number: i64,
    /// Description. In a version that the controller created it contains the hash of the inputs.
    pub description: Option<String>,
    /// Settings of the instances that it launches.
    pub data: TemplateData,
}

/// A launch configuration. AWS no longer allows creating them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LaunchConfiguration {
    /// Name, unique in an account and region.
    pub name: String,
    /// Settings of the instances that it launches, as a template version would have them. They never change.
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
    /// Sorted security group IDs.
    pub security_groups: Vec<String>,
    /// User data in Base64; never printed.
    pub user_data: Redacted<String>,
    /// Block devices, sorted by device name.
    pub devices: Vec<BlockDevice>,
    /// Instance metadata options, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataOptions>,
    /// Where instances are placed; `None` leaves it to the subnets and EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Sorted ARNs of license configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<String>,
    /// Maximum spot price in dollars per hour. Empty: the on-demand price. `None`: no spot instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<String>,
    /// Tags for the resources that a launch creates, sorted by resource type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tag_specifications: Vec<TagSpecification>,
}

/// A block device mapping with an EBS volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// Device name, for example `/dev/xvda`.
    pub name: String,
    /// Volume type, for example `gp3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Volume size in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// I/O operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i32>,
    /// Throughput in MiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i32>,
    /// Whether the volume is deleted with the instance.
    pub delete_on_termination: bool,
    /// Whether the volume is encrypted; `None` leaves it to the snapshot and the account's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// ID of the snapshot that the volume is created from: `snap-...`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
}

/// Instance metadata service options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataOptions {
    /// Whether the service is reachable: `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// Whether requests need a session token (IMDSv2): `optional` or `required`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// Maximum number of network hops of a response, 1 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<i32>,
}

/// Where EC2 places the instances of a launch template, and on whose hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// For example `us-west-2a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// `default`, `dedicated` or `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<String>,
    /// ARN of the resource group with the dedicated hosts for the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_resource_group: Option<String>,
}

/// Tags for one type of resource that a launch creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TagSpecification {
    /// `instance`, `volume`, ...
    pub resource_type: String,
    /// Tags, sorted by key.
    pub tags: Vec<Tag>,
}

/// Input of CreateLaunchTemplate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewTemplate {
    /// The derived name.
    pub name: String,
    /// Ownership tags.
    pub tags: Vec<Tag>,
    /// The first version, which EC2 gives the number 1.
    pub version: NewVersion,
}

/// Input of CreateLaunchTemplateVersion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewVersion {
    /// Client token, at most 64 characters.
    pub token: String,
    /// Description with the hash of the inputs.
    pub description: String,
    /// Settings of the instances that it launches.
    pub data: TemplateData,
}

/// Which subnets or security groups to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkQuery {
    /// All objects of the VPC with this ID.
    Vpc(String),
    /// Objects by ID, at most 200, in any VPC.
    Ids(Vec<String>),
}

/// A subnet or a security group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkObject {
    /// `subnet-...` or `sg-...`
    pub id: String,
    /// Value of the tag `Name`.
    pub name: Option<String>,
    /// ID of its VPC.
    pub vpc: String,
    /// Availability zone of a subnet; `None` for a security group.
    pub zone: Option<String>,
    /// IPv4 range of a subnet in CIDR notation; `None` for a security group and for a subnet that has only IPv6.
    pub ipv4_cidr: Option<String>,
    /// Whether a subnet gives an IPv6 address to each new instance; `None` for a security group, and if EC2 did not
    /// return it.
    pub assigns_ipv6: Option<bool>,
}

impl NetworkObject {
    /// Whether its tag `Name` has this value. Upper and lower case are the same, as for keikoproj/instance-manager.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.name.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(name))
    }

    /// Whether a spec means it by this ID or value of the tag `Name`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.has_name(name)
    }
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
    /// Its name, if Amazon owns it: anybody else may give an image any name.
    pub amazon_name: Option<String>,
    /// Name of the root device, for example `/dev/xvda`.
    pub root_device: String,
    /// Device names in the block device mappings of the image.
    pub device_names: Vec<String>,
    /// Sizes of its volumes in GiB, by device name. A volume must be at least as large as the snapshot that it is made from.
    pub volume_sizes: BTreeMap<String, i32>,
}

/// The properties of an instance type that the controller uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InstanceType {
    /// For example `m5.large`.
    pub name: String,
    /// Supported architectures in AWS's order: `x86_64`, `arm64`, ...
    pub architectures: Vec<String>,
    /// Number of virtual CPUs; `None` if EC2 did not return it.
    pub vcpus: Option<i32>,
    /// Memory in MiB; `None` if EC2 did not return it.
    pub memory_mib: Option<i64>,
    /// Maximum number of network interfaces; `None` if EC2 did not return it.
    pub max_interfaces: Option<i32>,
    /// Maximum number of IPv4 addresses per network interface, its primary address included; `None` if EC2 did not return
    /// it.
    pub ipv4_per_interface: Option<i32>,
    /// The accelerator that needs an image with its drivers.
    pub accelerator: Option<Accelerator>,
    /// Whether EC2 reports the Xen hypervisor for the type, so that it is not Nitro-based.
    pub is_xen: bool,
}

/// Accelerators for which AWS publishes images with drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Accelerator {
    /// GPUs of NVIDIA.
    Nvidia,
    /// AWS Inferentia or AWS Trainium.
    Neuron,
}

impl InstanceType {
    /// The first supported architecture that nodes can have: `x86_64` or `arm64`.
    pub(crate) fn architecture(&self) -> Option<&str> {
        self.architectures.iter().map(String::as_str).find(|a| ["x86_64", "arm64"].contains(a))
    }
}

/// An IAM role. Some calls return only a part of its fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Role {
    /// Unique ID: `AROA...`. A later role with the same name gets another ID.
    pub id: String,
    /// Name, without the path.
    pub name: String,
    /// ARN, with the path.
    pub arn: String,
    /// Creation time, in whole seconds; `None` if the call does not return it.
    pub created: Option<Timestamp>,
    /// All tags; empty if the call does not return them.
    pub tags: Vec<Tag>,
    /// Region in which the role was last used; `None` when AWS reports no use in the last 400 days, or when the call does
    /// not return it.
    pub last_used_region: Option<String>,
    /// The trust policy as JSON; `None` if the call does not return it.
    pub trust_policy: Option<String>,
}

/// A role that a managed policy is attached to, as the list of such roles shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyRole {
    /// Name, without the path.
    pub name: String,
    /// Unique ID: `AROA...`; `None` for a role that the list does not show yet.
    pub id: Option<String>,
}

/// Input of CreateRole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewRole {
    /// The derived name.
    pub name: String,
    /// The trust policy as a JSON document.
    pub trust_policy: String,
    /// Ownership tags.
    pub tags: Vec<Tag>,
}

/// An instance profile and its role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstanceProfile {
    /// Unique ID: `AIPA...`. A later profile with the same name gets another ID.
    pub id: String,
    /// Name, without the path.
    pub name: String,
    /// ARN, with the path.
    pub arn: String,
    /// Creation time; a new profile may not have propagated yet.
    pub created: Option<Timestamp>,
    /// The role in it, if any.
    pub role: Option<Role>,
    /// All tags; empty if the call does not return them.
    pub tags: Vec<Tag>,
}

/// An EKS cluster as returned by DescribeCluster: what nodes need in order to join it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// ARN, which also contains the account and the partition.
    pub arn: String,
    /// Kubernetes version, for example `1.33`.
    pub version: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Certificate authority of the API server in Base64.
    pub ca: String,
    /// Range of Kubernetes services in the IP family of the cluster, in CIDR notation; empty if EKS did not return it.
    pub service_cidr: String,
    /// Whether pods and services have IPv6 addresses. EKS never changes it.
    pub is_ipv6: bool,
    /// ID of the VPC; `None` if EKS did not return it.
    pub vpc: Option<String>,
    /// `CONFIG_MAP`, `API` or `API_AND_CONFIG_MAP`.
    pub authentication_mode: String,
}

/// Input of an IAM policy simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicySimulation {
    /// IAM actions, for example `iam:PassRole`.
    pub actions: Vec<String>,
    /// ARN of the resource; `None` for any resource.
    pub resource: Option<String>,
    /// Pairs of condition key and value.
    pub context: Vec<(String, String)>,
}

/// The result of a simulation for one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyDecision {
    /// The action is allowed.
    Allowed,
    /// The action is denied.
    Denied,
    /// The decision depends on a condition key that is missing from the simulation.
    Unclear,
}
