//! Renders the user data that an instance runs at its first boot.
//!
//! Every value is quoted for the target language; only the user's own stages are written unchanged. A value that cannot
//! be written safely is a [`UserDataError`].

mod al2;
mod al2023;
mod bottlerocket;
mod mounts;
mod quote;
mod stages;
mod validate;
mod windows;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::util::redact::Redacted;

pub use stages::{Stage, StageKind, effective_family};
pub use validate::{UserDataError, label_error, taint_error};

/// What EC2 accepts, in bytes of raw user data before base64.
pub const MAX_BYTES: usize = 16_384;

/// The most bytes that are parsed and compressed; more would not fit into [`MAX_BYTES`] after compression.
const MAX_UNCOMPRESSED_BYTES: usize = 131_072;

/// The operating system families that a group's image can belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OsFamily {
    /// Amazon Linux 2, the default.
    #[default]
    AmazonLinux2,
    /// Amazon Linux 2023.
    AmazonLinux2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Windows Server.
    Windows,
}

impl OsFamily {
    /// Parses the annotation `os-family`, case-insensitively; an unknown value means Amazon Linux 2.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "amazonlinux2023" => Self::AmazonLinux2023,
            "bottlerocket" => Self::Bottlerocket,
            "windows" => Self::Windows,
            _ => Self::AmazonLinux2,
        }
    }

    /// The spelling of the annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AmazonLinux2 => "amazonlinux2",
            Self::AmazonLinux2023 => "amazonlinux2023",
            Self::Bottlerocket => "bottlerocket",
            Self::Windows => "windows",
        }
    }
}

impl fmt::Display for OsFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Taint {
    /// A label key.
    pub key: String,
    /// A label value; may be empty.
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
    /// The directory.
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
    /// Node labels.
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
    /// Volumes to mount.
    pub mounts: Vec<Mount>,
    /// The user's own scripts and settings, in the order of the spec.
    pub stages: Vec<Stage>,
}

/// A field that the OS family does not support. It is left out and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum IgnoredField {
    /// `bootstrapArguments` on Bottlerocket.
    BootstrapArguments,
    /// `bootstrapOptions.containerRuntime` where the runtime is always containerd.
    ContainerRuntime,
    /// `mountOptions` on Bottlerocket and Windows.
    Mounts,
    /// `spotPrice` together with a mixed instances policy.
    SpotPrice,
}

impl fmt::Display for IgnoredField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BootstrapArguments => {
                "spec.eks.configuration.bootstrapArguments has no effect on bottlerocket: \
                 write the settings as TOML in userData instead"
            }
            Self::ContainerRuntime => {
                "spec.eks.configuration.bootstrapOptions.containerRuntime has no effect on this \
                 OS family, which always runs containerd: remove it"
            }
            Self::SpotPrice => {
                "spec.eks.configuration.spotPrice has no effect with mixedInstancesPolicy, which buys spot capacity \
                 at the current AWS price: remove it"
            }
            Self::Mounts => {
                "spec.eks.configuration.volumes[].mountOptions has no effect on this OS family: \
                 remove it, and mount the volume from a bootstrap container (bottlerocket) or in \
                 userData (windows)"
            }
        })
    }
}

/// Rendered user data; prints and serializes without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserData {
    /// The family that it was rendered for, after [`effective_family`].
    pub family: OsFamily,
    /// Fields that were left out.
    pub ignored: Vec<IgnoredField>,
    bytes: Redacted<Vec<u8>>,
    /// The same bytes in gzip, when the plain ones exceed [`MAX_BYTES`].
    compressed: Option<Redacted<Vec<u8>>>,
}

impl UserData {
    /// The plain bytes. They may not be UTF-8, because a stage in base64 can contain any bytes.
    pub fn expose(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// The plain bytes as text for display; invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes.expose())
    }

    /// The value for a launch template.
    pub fn base64(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.transmitted_bytes())
    }

    /// The size in bytes that counts against [`MAX_BYTES`].
    pub fn len(&self) -> usize {
        self.transmitted_bytes().len()
    }

    fn transmitted_bytes(&self) -> &[u8] {
        self.compressed.as_ref().unwrap_or(&self.bytes).expose()
    }

    /// Always false: every family renders some text.
    pub fn is_empty(&self) -> bool {
        self.bytes.expose().is_empty()
    }
}

/// Renders the user data of a node.
///
/// # Errors
/// A value that cannot be written safely, a stage that is not valid YAML or TOML where the family requires it, or more
/// than [`MAX_BYTES`], even compressed where the family supports gzip.
pub fn render(family: OsFamily, input: &BootstrapInput) -> Result<UserData, UserDataError> {
    let family = effective_family(family, &input.stages);
    validate::check_input(input)?;
    let stages = stages::decode(&input.stages)?;
    let bytes = match family {
        OsFamily::AmazonLinux2 => al2::encode(input, &stages)?,
        OsFamily::AmazonLinux2023 => al2023::encode(input, &stages)?,
        OsFamily::Bottlerocket => bottlerocket::encode(input, &stages)?,
        OsFamily::Windows => windows::encode(input, &stages)?,
    };
    let compressed = (bytes.len() > MAX_BYTES && supports_gzip(family)).then(|| gzip(&bytes));
    validate::check_size(&bytes, compressed.as_deref(), input, &stages)?;
    let compressed = compressed.map(Redacted::new);
    Ok(UserData { family, ignored: ignored_fields(family, input), bytes: Redacted::new(bytes), compressed })
}

/// Whether the family's boot software unpacks gzip: cloud-init and Bottlerocket's early-boot-config always have, nodeadm
/// has since mid-2024, EC2Launch does not.
fn supports_gzip(family: OsFamily) -> bool {
    match family {
        OsFamily::AmazonLinux2 | OsFamily::AmazonLinux2023 | OsFamily::Bottlerocket => true,
        OsFamily::Windows => false,
    }
}

/// Compresses without a timestamp or file name, so that equal input gives equal output.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let some = &bytes[..bytes.len().min(MAX_UNCOMPRESSED_BYTES)];
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    out.write_all(some).and_then(|()| out.finish()).unwrap_or_default()
}

fn ignored_fields(family: OsFamily, input: &BootstrapInput) -> Vec<IgnoredField> {
    let always_containerd = matches!(family, OsFamily::AmazonLinux2023 | OsFamily::Bottlerocket);
    let other_runtime = input
        .container_runtime
        .as_deref()
        .is_some_and(|runtime| !runtime.is_empty() && !runtime.eq_ignore_ascii_case("containerd"));
    let bottlerocket = family == OsFamily::Bottlerocket;
    [
        (bottlerocket && !input.bootstrap_arguments.expose().trim().is_empty(), IgnoredField::BootstrapArguments),
        (always_containerd && other_runtime, IgnoredField::ContainerRuntime),
        ((bottlerocket || family == OsFamily::Windows) && !input.mounts.is_empty(), IgnoredField::Mounts),
    ]
    .into_iter()
    .filter_map(|(present, what)| present.then_some(what))
    .collect()
}

/// `k=v,k2=v2`, sorted by key.
fn label_list(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// `k=v:Effect`, in the order of the spec.
fn taint_list(taints: &[Taint]) -> Vec<String> {
    taints
        .iter()
        .map(|taint| format!("{}={}:{}", taint.key, taint.value, validate::canonical_effect(&taint.effect)))
        .collect()
}

/// The kubelet's arguments as one string; the first two flags are written even when they are empty.
fn kubelet_arguments(input: &BootstrapInput) -> String {
    let mut taints = taint_list(&input.taints);
    taints.sort();
    let mut out = format!(
        "--node-labels={} --register-with-taints={} {}",
        label_list(&input.labels),
        taints.join(","),
        input.bootstrap_arguments.expose()
    );
    if let Some(max_pods) = input.max_pods {
        out.push_str(&format!(" --max-pods={max_pods}"));
    }
    out
}
