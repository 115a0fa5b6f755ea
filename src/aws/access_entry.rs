//! Access entries of EKS clusters: which IAM roles may join as nodes.

use jiff::Timestamp;
use serde::Serialize;

use super::Tag;

/// The types of access entries that let nodes join (Amazon EKS API Reference, CreateAccessEntry, `type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum AccessEntryType {
    /// Nodes of any Linux family.
    #[serde(rename = "EC2_LINUX")]
    Ec2Linux,
    /// Windows nodes. It also allows Linux nodes: it grants their permissions and those of kube-proxy on Windows.
    #[serde(rename = "EC2_WINDOWS")]
    Ec2Windows,
    /// The pod execution role of Fargate profiles.
    #[serde(rename = "FARGATE_LINUX")]
    FargateLinux,
}

impl AccessEntryType {
    /// The value in the EKS API.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessEntryType::Ec2Linux => "EC2_LINUX",
            AccessEntryType::Ec2Windows => "EC2_WINDOWS",
            AccessEntryType::FargateLinux => "FARGATE_LINUX",
        }
    }

    /// Whether an entry of type `found` lets nodes of this type join. A role that Linux and Windows groups share has an
    /// entry for Windows, through which the nodes of both join.
    pub(crate) fn allows(self, found: &str) -> bool {
        found == self.as_str() || (self == AccessEntryType::Ec2Linux && found == AccessEntryType::Ec2Windows.as_str())
    }
}

/// An access entry as returned by DescribeAccessEntry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessEntry {
    /// ARN of the role, path included.
    pub principal: String,
    /// `EC2_LINUX`, `STANDARD` and so on. AWS does not allow changing it.
    pub kind: String,
    /// When EKS created it. An entry that is older than its role is of an earlier role of that name.
    pub created: Option<Timestamp>,
    /// All tags, those of other owners included.
    pub tags: Vec<Tag>,
}

/// Input of CreateAccessEntry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewAccessEntry {
    /// Name of the EKS cluster.
    pub cluster: String,
    /// ARN of the role, path included.
    pub principal: String,
    /// Type of the nodes that use the role.
    #[serde(rename = "type")]
    pub kind: AccessEntryType,
    /// Whether the controller created the role. If EKS then rejects it, the role has not propagated in IAM yet.
    #[serde(rename = "ownRole")]
    pub own_role: bool,
    /// The tags that prove that the entry is the controller's.
    pub tags: Vec<Tag>,
}
