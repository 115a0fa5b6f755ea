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
    /// Windows nodes: what Linux nodes may do, and what kube-proxy needs on Windows.
    #[serde(rename = "EC2_WINDOWS")]
    Ec2Windows,
    /// The pod execution role of Fargate profiles.
    #[serde(rename = "FARGATE_LINUX")]
    FargateLinux,
}

impl AccessEntryType {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessEntryType::Ec2Linux => "EC2_LINUX",
            AccessEntryType::Ec2Windows => "EC2_WINDOWS",
            AccessEntryType::FargateLinux => "FARGATE_LINUX",
        }
    }

    /// Whether an entry of type `found` lets such nodes join. A role that Linux and Windows groups share has the entry
    /// of the Windows ones, and all of them join by it.
    pub fn allows(self, found: &str) -> bool {
        found == self.as_str() || (self == AccessEntryType::Ec2Linux && found == AccessEntryType::Ec2Windows.as_str())
    }
}

/// An access entry, as DescribeAccessEntry shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessEntry {
    /// The role's ARN, its path included.
    pub principal: String,
    /// `EC2_LINUX`, `STANDARD` and so on; it never changes.
    pub kind: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its tags.
    pub tags: Vec<Tag>,
}

/// An access entry to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewAccessEntry {
    /// The cluster's name.
    pub cluster: String,
    /// The role's ARN, its path included.
    pub principal: String,
    /// What the role's nodes are.
    #[serde(rename = "type")]
    pub kind: AccessEntryType,
    /// The role is the group's own: when EKS refuses it, it does not know the role yet.
    #[serde(rename = "ownRole")]
    pub own_role: bool,
    /// The tags that say whose it is.
    pub tags: Vec<Tag>,
}
