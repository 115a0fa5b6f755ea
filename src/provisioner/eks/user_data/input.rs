//! The inputs of user data.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stages::Stage;
use crate::util::redact::Redacted;

/// A node taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Taint {
    /// Taint key, in the syntax of a label key.
    pub key: String,
    /// Taint value, in the syntax of a label value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`, in any case.
    pub effect: String,
}

/// A volume that is mounted at boot, and formatted first when it has no file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Mount {
    /// The device's name, such as `/dev/xvdb`.
    pub device: String,
    /// `xfs` or `ext4`, in any case.
    pub file_system: String,
    /// The directory where it is mounted.
    pub path: String,
    /// Whether the mount is added to `/etc/fstab`.
    pub persist: bool,
}

/// All inputs of user data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapInput {
    /// The cluster's name.
    pub cluster: String,
    /// The API server's URL; may be empty on Windows only, where the node reads it from EKS.
    pub endpoint: String,
    /// The cluster's certificate authority as EKS returns it, PEM in base64; may be empty on Windows only.
    pub ca_base64: String,
    /// The cluster's service CIDR, IPv4 or IPv6; empty when unknown.
    pub service_cidr: String,
    /// The service CIDR that the bootstrap script of Windows assumes if it is given none; `None` if it reads the range
    /// from EKS, when unknown, and for the other families.
    pub assumed_service_cidr: Option<&'static str>,
    /// Labels that the kubelet registers the node with.
    pub labels: BTreeMap<String, String>,
    /// Node taints, in the order of the spec.
    pub taints: Vec<Taint>,
    /// The kubelet's pod limit; `None` leaves it to the image.
    pub max_pods: Option<u32>,
    /// `dockerd` or `containerd`, for Amazon Linux 2 and Windows.
    pub container_runtime: Option<String>,
    /// Whether Bottlerocket joins only once Auto Scaling puts the instance in service, as a warm instance must.
    pub waits_for_service: bool,
    /// Additional kubelet arguments, separated by white space; may contain secrets, so never printed.
    pub bootstrap_arguments: Redacted<String>,
    /// Volumes to format and mount at boot.
    pub mounts: Vec<Mount>,
    /// The user's own scripts and settings, in the order of the spec.
    pub stages: Vec<Stage>,
}
