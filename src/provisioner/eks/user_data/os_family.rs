//! The operating system families of nodes.

use std::fmt;

use serde::Serialize;

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
    pub(crate) fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "amazonlinux2023" => Self::AmazonLinux2023,
            "bottlerocket" => Self::Bottlerocket,
            "windows" => Self::Windows,
            _ => Self::AmazonLinux2,
        }
    }

    /// The family of an image that Amazon owns, by its published name; `None` for other names.
    ///
    /// EKS and Bottlerocket publish `amazon-eks-node-al2023-x86_64-standard-1.33-v20250920`,
    /// `amazon-eks-node-1.32-v20250920` (also `-gpu-node-` and `-arm64-node-`) and
    /// `bottlerocket-aws-k8s-1.33-x86_64-v1.44.0-5ed15786` (Amazon EKS User Guide, "Retrieve recommended Amazon Linux AMI
    /// IDs", sub-parameter `image_name`; Karpenter documents the same names in the status of an EC2NodeClass).
    pub(crate) fn of_amazon_image(name: &str) -> Option<Self> {
        const AMAZON_LINUX_2: [&str; 3] = ["amazon-eks-node-", "amazon-eks-gpu-node-", "amazon-eks-arm64-node-"];
        let has_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        match () {
            () if name.starts_with("bottlerocket-aws-k8s-") => Some(Self::Bottlerocket),
            () if name.starts_with("amazon-eks-node-al2023-") => Some(Self::AmazonLinux2023),
            () if AMAZON_LINUX_2.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(has_version) => {
                Some(Self::AmazonLinux2)
            }
            () => None,
        }
    }

    /// The spelling of the annotation.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::AmazonLinux2 => "amazonlinux2",
            Self::AmazonLinux2023 => "amazonlinux2023",
            Self::Bottlerocket => "bottlerocket",
            Self::Windows => "windows",
        }
    }
}

/// A Windows Server release and edition. AWS publishes one parameter for each, with the newest image ("Retrieve recommended
/// Microsoft Windows AMI IDs", Amazon EKS User Guide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowsRelease {
    year: &'static str,
    edition: &'static str,
}

impl WindowsRelease {
    /// Parses `2022`, `2022-core` or `2022-full`, case-insensitively; `latest` means 2019 Core.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text == "latest" {
            return Some(Self::default());
        }
        let (year, edition) = text.split_once('-').unwrap_or((&text, "core"));
        let year = ["2019", "2022", "2025"].into_iter().find(|known| *known == year)?;
        let edition = ["Core", "Full"].into_iter().find(|known| known.eq_ignore_ascii_case(edition))?;
        Some(WindowsRelease { year, edition })
    }
}

impl Default for WindowsRelease {
    fn default() -> Self {
        WindowsRelease { year: "2019", edition: "Core" }
    }
}

impl fmt::Display for WindowsRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-English-{}", self.year, self.edition)
    }
}

impl fmt::Display for OsFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
