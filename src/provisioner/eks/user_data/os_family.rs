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
