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

impl fmt::Display for OsFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
