//! Managed node groups of Amazon EKS, as the EKS API Reference describes them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use super::AwsResult;

/// The node groups of Amazon EKS.
#[async_trait]
pub trait NodegroupApi: Send + Sync {
    /// DescribeNodegroup; `None` when there is no node group, or no cluster, of that name.
    async fn describe_nodegroup(&self, at: &NodegroupName) -> AwsResult<Option<Nodegroup>>;
    /// ListNodegroups: every name in a cluster, pages of 100; empty when there is no cluster of that name.
    async fn list_nodegroups(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// CreateNodegroup with a client token.
    async fn create_nodegroup(&self, input: &NewNodegroup, token: &str) -> AwsResult<()>;
    /// UpdateNodegroupConfig with a client token; answers the update's id.
    async fn update_nodegroup_config(
        &self,
        at: &NodegroupName,
        change: &NodegroupChange,
        token: &str,
    ) -> AwsResult<String>;
    /// UpdateNodegroupVersion with a client token and never with force; answers the update's id.
    async fn update_nodegroup_version(
        &self,
        at: &NodegroupName,
        to: &NodegroupVersion,
        token: &str,
    ) -> AwsResult<String>;
    /// DescribeUpdate of a node group; `None` when EKS does not know it any more.
    async fn describe_update(&self, at: &NodegroupName, id: &str) -> AwsResult<Option<NodegroupUpdate>>;
    /// DeleteNodegroup.
    async fn delete_nodegroup(&self, at: &NodegroupName) -> AwsResult<()>;
    /// TagResource.
    async fn tag_nodegroup(&self, arn: &str, tags: &BTreeMap<String, String>) -> AwsResult<()>;
    /// UntagResource by key.
    async fn untag_nodegroup(&self, arn: &str, keys: &[String]) -> AwsResult<()>;
}

/// Which node group: names are unique in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodegroupName {
    /// The EKS cluster's name.
    pub cluster: String,
    /// The node group's own name.
    pub nodegroup: String,
}

impl NodegroupName {
    /// A node group of a cluster.
    pub fn new(cluster: impl Into<String>, nodegroup: impl Into<String>) -> Self {
        NodegroupName { cluster: cluster.into(), nodegroup: nodegroup.into() }
    }

    /// Reads what `Display` writes; neither name holds a slash.
    pub fn parse(text: &str) -> Option<Self> {
        let (cluster, nodegroup) = text.split_once('/')?;
        Some(Self::new(cluster, nodegroup))
    }
}

impl std::fmt::Display for NodegroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.cluster, self.nodegroup)
    }
}

/// The status of a node group, from `Nodegroup.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NodegroupStatus {
    /// Being created; nodes may already join.
    Creating,
    /// Active, without a change in progress.
    Active,
    /// An update is in progress.
    Updating,
    /// Being deleted.
    Deleting,
    /// The creation failed; see the issues.
    CreateFailed,
    /// The deletion failed; see the issues.
    DeleteFailed,
    /// It exists and has issues.
    Degraded,
    /// A status that this release does not know.
    Other,
}

impl NodegroupStatus {
    /// Whether EKS is working on the node group and rejects another change.
    pub fn is_busy(self) -> bool {
        match self {
            NodegroupStatus::Creating | NodegroupStatus::Updating | NodegroupStatus::Deleting => true,
            NodegroupStatus::Active
            | NodegroupStatus::CreateFailed
            | NodegroupStatus::DeleteFailed
            | NodegroupStatus::Degraded
            | NodegroupStatus::Other => false,
        }
    }
}

/// A problem that EKS reports for a node group or an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Issue {
    /// For example `NodeCreationFailure`.
    pub code: String,
    /// The message from EKS.
    pub message: String,
    /// What it concerns: instances, subnets, groups.
    pub resources: Vec<String>,
}

impl std::fmt::Display for Issue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if self.resources.is_empty() { Ok(()) } else { write!(f, " ({})", self.resources.join(", ")) }
    }
}

/// A taint as EKS spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NodegroupTaint {
    /// A label key.
    pub key: String,
    /// A label value; may be empty.
    pub value: String,
    /// `NO_SCHEDULE`, `NO_EXECUTE` or `PREFER_NO_SCHEDULE`.
    pub effect: String,
}

impl std::fmt::Display for NodegroupTaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}:{}", self.key, self.value, self.effect)
    }
}

/// How many nodes an update of the version may take at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MaxUnavailable {
    /// 1 to 100 nodes, and no more than maxSize.
    Count(i32),
    /// 1 to 100 percent.
    Percent(i32),
}

impl std::fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MaxUnavailable::Count(n) => write!(f, "{n}"),
            MaxUnavailable::Percent(n) => write!(f, "{n}%"),
        }
    }
}

/// Sizes of a node group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodegroupSizes {
    /// Minimum size.
    pub min: i32,
    /// Maximum size, at least 1.
    pub max: i32,
    /// Desired size; `None` does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
}

/// A node group as returned by DescribeNodegroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nodegroup {
    /// Its name and its cluster's.
    pub name: NodegroupName,
    /// Its ARN.
    pub arn: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its status.
    pub status: NodegroupStatus,
    /// Kubernetes on its nodes, for example `1.33`.
    pub version: String,
    /// The release of the machine image.
    pub release_version: String,
    /// `ON_DEMAND` or `SPOT`.
    pub capacity_type: String,
    /// Its sizes; `desired` may lag behind the scaling group's.
    pub sizes: NodegroupSizes,
    /// In the order of the creation.
    pub instance_types: Vec<String>,
    /// Sorted ids.
    pub subnets: Vec<String>,
    /// EC2 key pair for SSH access.
    pub key_pair: Option<String>,
    /// Sorted ids of the groups that may log in.
    pub security_groups: Vec<String>,
    /// For example `AL2023_x86_64_STANDARD`.
    pub ami_type: String,
    /// ARN of the role that the nodes assume.
    pub node_role: String,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Sorted taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// Names of its scaling groups; empty while it is being made.
    pub scaling_groups: Vec<String>,
    /// Size of the root volume in GiB; absent with a launch template of its owner's.
    pub disk_size: Option<i32>,
    /// Problems reported by EKS.
    pub issues: Vec<Issue>,
    /// How many nodes an update may replace at the same time.
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes.
    pub repair: bool,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// Input of CreateNodegroup. `None` fields are left to EKS.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewNodegroup {
    /// Its name and its cluster's.
    pub name: NodegroupName,
    /// Its sizes, `desired` included.
    pub sizes: NodegroupSizes,
    /// Kubernetes on its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The release of the machine image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
    /// What EKS cannot change later.
    #[serde(flatten)]
    pub immutable: ImmutableFields,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// How many nodes an update may replace at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// Fields that are set at creation and cannot be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImmutableFields {
    /// ARN of the role that the nodes assume.
    pub node_role: String,
    /// Sorted ids.
    pub subnets: Vec<String>,
    /// For example `m5.large`; empty leaves it to EKS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// `ON_DEMAND` or `SPOT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// For example `AL2023_x86_64_STANDARD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_type: Option<String>,
    /// Size of the root volume in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<i32>,
    /// EC2 key pair for SSH access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair: Option<String>,
    /// Sorted ids of the groups that may log in; only with a key pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
}

/// Changes to apply in place. Empty and `None` fields are not sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodegroupChange {
    /// New sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<NodegroupSizes>,
    /// Labels to set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_labels: BTreeMap<String, String>,
    /// Keys of labels to take off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_labels: Vec<String>,
    /// Taints to set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_taints: Vec<NodegroupTaint>,
    /// Taints to take off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_taints: Vec<NodegroupTaint>,
    /// How many nodes an update may replace at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
}

/// The target of a version update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodegroupVersion {
    /// Kubernetes on the nodes; `None` with a release of the version that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The release of the machine image; `None` takes the newest of the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
}

/// The status of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum UpdateStatus {
    /// Under way.
    InProgress,
    /// It failed; see the errors.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Done.
    Successful,
    /// A status that this release does not know.
    Other,
}

/// An update as returned by DescribeUpdate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodegroupUpdate {
    /// A UUID.
    pub id: String,
    /// Its status.
    pub status: UpdateStatus,
    /// `VersionUpdate` or `ConfigUpdate`.
    pub kind: String,
    /// When it began.
    pub created: Option<Timestamp>,
    /// Why it failed.
    pub errors: Vec<Issue>,
}
