//! The desired state of a group, as typed values.

use std::collections::{BTreeMap, BTreeSet};

use super::mixed_instances::MixedInstances;
use crate::api::{DefaultVolume, Lifecycle, ScalingConfigurationKind, SpotRecommendation};
use crate::auth::JoinAuth;
use crate::aws::{
    BlockDevice, InstanceType, LifecycleHook, MetadataOptions, Placement, Tag, TagSpecification, WarmSizes,
};
use crate::provisioner::GroupId;
use crate::provisioner::eks::user_data::{Mount, OsFamily, Stage, Taint};
use crate::rotation::crd::CrdUpgrade;
use crate::rotation::rolling_update::settings::RollingUpdateSettings;
use crate::util::redact::Redacted;

/// The desired state of a group: the merged spec of tenant and admin defaults, parsed.
#[derive(Clone, Debug)]
pub struct DesiredSpec {
    /// Identity of the InstanceGroup.
    pub id: GroupId,
    /// The EKS cluster's name.
    pub cluster: String,
    /// The scaling group's `minSize`, in capacity units.
    pub min_size: i32,
    /// The scaling group's `maxSize`, in capacity units.
    pub max_size: i32,
    /// The warm pool, if the spec requests one.
    pub warm_pool: Option<WarmSizes>,
    /// Whether the spec, or the flag, requests a launch template or a launch configuration.
    pub scaling_configuration: ScalingConfigurationKind,
    /// How nodes are replaced.
    pub rolling_update: RollingUpdateSettings,
    /// The strategy `crd`, where another controller's resource replaces nodes; `None` with `rollingUpdate`.
    pub crd_strategy: Option<CrdUpgrade>,
    /// The image to launch.
    pub image: ImageSource,
    /// For example `m5.large`.
    pub instance_type: String,
    /// The mixed instances policy: several instance types, on-demand and spot.
    pub mixed_instances: Option<MixedInstances>,
    /// The purchase option, as the lifecycle label shows it.
    pub lifecycle: Lifecycle,
    /// The highest spot price in dollars per hour; `None` without spot and in a mixed group.
    pub spot_price: Option<String>,
    /// Whether the spec has a spot price together with a mixed instances policy, which ignores it.
    pub spot_price_ignored: bool,
    /// The recommendation that the spot price comes from; the status records it.
    pub spot_recommendation: Option<SpotRecommendation>,
    /// Name of an EC2 key pair.
    pub key_pair: Option<String>,
    /// Ids or Name tags.
    pub subnets: Vec<String>,
    /// Ids or Name tags.
    pub security_groups: Vec<String>,
    /// An existing role with its instance profile; the controller modifies neither.
    pub existing_role: Option<ExistingRole>,
    /// Managed policies beyond the standard ones: names or ARNs.
    pub managed_policies: Vec<String>,
    /// Whether to leave out AmazonEKS_CNI_Policy, because pods use IAM roles for service accounts.
    pub irsa: bool,
    /// The operating system of the nodes.
    pub os_family: OsFamily,
    /// Node labels without the image label.
    pub labels: BTreeMap<String, String>,
    /// Taints that nodes register with, in the order of the spec.
    pub taints: Vec<Taint>,
    /// The pod limit that the spec names; `None` leaves it to the image or to custom networking.
    pub max_pods: Option<u32>,
    /// Custom networking, which limits the number of pods unless `max_pods` is set.
    pub custom_networking: Option<CustomNetworking>,
    /// How nodes are allowed to join the cluster.
    pub join_auth: JoinAuth,
    /// Whether nodes read the cluster's endpoint and certificate from EKS instead of their user data.
    pub discovers_endpoint: bool,
    /// The `--container-runtime` of Amazon Linux 2 and Windows.
    pub container_runtime: Option<String>,
    /// Extra kubelet arguments; may contain secrets, so never printed.
    pub bootstrap_arguments: Redacted<String>,
    /// The user's own scripts and settings in the user data, in the order of the spec.
    pub stages: Vec<Stage>,
    /// Volumes to format and mount.
    pub mounts: Vec<Mount>,
    /// Volumes of each instance, for the launch template; the default one included.
    pub block_devices: Vec<BlockDevice>,
    /// Whether the spec lists no volumes, so that the only device is the default one.
    pub has_default_volume: bool,
    /// The default volume, if the image needs another one than `/dev/xvda` with 32 GiB.
    pub default_volume: Option<DefaultVolume>,
    /// The spec's tags, and those for the cluster autoscaler when the annotation requests them.
    pub tags: Vec<Tag>,
    /// Whether the annotation requests tags for the cluster autoscaler.
    pub has_autoscaler_tags: bool,
    /// Tags for resources that are created with an instance, such as volumes.
    pub tag_specifications: Vec<TagSpecification>,
    /// Names of the Auto Scaling processes to suspend, such as `AZRebalance`.
    pub suspended_processes: BTreeSet<String>,
    /// Group metrics to collect.
    pub metrics: BTreeSet<String>,
    /// Lifecycle hooks of the scaling group. Others in AWS stay unless the status records them.
    pub lifecycle_hooks: Vec<LifecycleHook>,
    /// Who on an instance may read its metadata; `None` leaves it to EC2.
    pub metadata_options: Option<MetadataOptions>,
    /// Where instances are placed; `None` leaves it to the subnets and EC2.
    pub placement: Option<Placement>,
    /// ARNs of license configurations.
    pub licenses: Vec<String>,
}

/// An existing IAM role and instance profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingRole {
    /// Name, without path.
    pub role: String,
    /// Name, without path; defaults to the role's name.
    pub profile: String,
}

/// The image that a group requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// `ami-...`
    Id(String),
    /// The latest image of the OS family, architecture and cluster version.
    Latest,
    /// `ssm://<version>`
    Ssm(String),
}

/// Custom networking: pod addresses come from secondary network interfaces only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomNetworking {
    /// The number of pods on the node's primary interface (host network).
    pub host_pods: u32,
    /// Whether each address of an interface is a prefix of 16 addresses.
    pub prefix_delegation: bool,
}

impl CustomNetworking {
    /// The pod limit of an instance type. Pods use neither the first interface nor the first address of each interface.
    /// At most 110, the limit that Kubernetes recommends. `None` when EC2 does not return the counts of the type.
    pub(crate) fn pod_limit(self, found: &InstanceType) -> Option<u32> {
        let spare = |n: Option<i32>| Some(u32::try_from(n? - 1).unwrap_or(0));
        let each = if self.prefix_delegation { 16 } else { 1 };
        let addresses = spare(found.max_interfaces)?.saturating_mul(spare(found.ipv4_per_interface)?);
        Some(addresses.saturating_mul(each).saturating_add(self.host_pods).min(110))
    }
}

impl DesiredSpec {
    /// Whether the properties of the instance type are needed to resolve the spec.
    pub fn needs_instance_type(&self) -> bool {
        !matches!(self.image, ImageSource::Id(_))
            || (self.custom_networking.is_some() && self.max_pods.is_none())
            || (self.has_autoscaler_tags && self.os_family == OsFamily::Windows)
    }
}
