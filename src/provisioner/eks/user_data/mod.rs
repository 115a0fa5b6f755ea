//! Renders the user data that an instance runs at its first boot.
//!
//! Every value is quoted for the target language; only the user's own stages are written unchanged. A value that cannot
//! be written safely is a [`UserDataError`].

mod al2;
mod al2023;
mod arguments;
mod bottlerocket;
mod error;
mod input;
mod limits;
mod mounts;
mod os_family;
mod quote;
mod stages;
mod validate;
mod windows;

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::util::redact::Redacted;

pub(crate) use arguments::canonical_effect;
pub use error::UserDataError;
pub use input::{BootstrapInput, Mount, Taint};
pub use limits::MAX_BYTES;
use limits::MAX_UNCOMPRESSED_BYTES;
pub use os_family::OsFamily;
pub(crate) use os_family::WindowsRelease;
pub use stages::{Stage, StageKind, effective_family};
pub(crate) use windows::{assumed_service_cidr, custom_dns_address};

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
    /// `taints`, which an argument of the kubelet replaces.
    Taints,
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
            Self::Taints => {
                "spec.eks.configuration.taints has no effect, an admin's taints included: --register-with-taints in \
                 bootstrapArguments replaces all of them: remove the argument, and write its taints in taints"
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
        let transmitted = self.compressed.as_ref().unwrap_or(&self.bytes);
        base64::engine::general_purpose::STANDARD.encode(transmitted.expose())
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
    let other_runtime =
        input.container_runtime.as_deref().is_some_and(|runtime| !runtime.is_empty() && runtime != "containerd");
    let bottlerocket = family == OsFamily::Bottlerocket;
    // The kubelet takes the last of several lists of taints.
    let has_taints_argument = input.bootstrap_arguments.expose().contains("--register-with-taints");
    [
        (!bottlerocket && has_taints_argument && !input.taints.is_empty(), IgnoredField::Taints),
        (bottlerocket && !input.bootstrap_arguments.expose().trim().is_empty(), IgnoredField::BootstrapArguments),
        (always_containerd && other_runtime, IgnoredField::ContainerRuntime),
        ((bottlerocket || family == OsFamily::Windows) && !input.mounts.is_empty(), IgnoredField::Mounts),
    ]
    .into_iter()
    .filter_map(|(present, what)| present.then_some(what))
    .collect()
}
