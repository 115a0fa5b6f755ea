//! Managed node groups of Amazon EKS: the API calls and their plain types, as in the Amazon EKS API Reference.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use super::AwsResult;
use super::error::without_period;

/// The Amazon EKS calls for managed node groups.
#[async_trait]
pub(crate) trait NodegroupApi: Send + Sync {
    /// DescribeNodegroup, tags included; `None` if the node group or the cluster does not exist.
    async fn describe_nodegroup(&self, name: &NodegroupName) -> AwsResult<Option<Nodegroup>>;
    /// ListNodegroups: the names of all node groups of a cluster; empty if the cluster does not exist.
    async fn list_nodegroups(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// CreateNodegroup with a client token.
    async fn create_nodegroup(&self, input: &NewNodegroup, client_token: &str) -> AwsResult<()>;
    /// UpdateNodegroupConfig with a client token; returns the ID of the update.
    async fn update_nodegroup_config(
        &self,
        name: &NodegroupName,
        change: &NodegroupChange,
        client_token: &str,
    ) -> AwsResult<String>;
    /// UpdateNodegroupVersion with a client token and never with force; returns the ID of the update.
    async fn update_nodegroup_version(
        &self,
        name: &NodegroupName,
        to: &NodegroupVersion,
        client_token: &str,
    ) -> AwsResult<String>;
    /// DescribeUpdate of a node group; `None` if EKS no longer knows the update.
    async fn describe_update(&self, name: &NodegroupName, id: &str) -> AwsResult<Option<NodegroupUpdate>>;
    /// DeleteNodegroup.
    async fn delete_nodegroup(&self, name: &NodegroupName) -> AwsResult<()>;
    /// TagResource: adds or overwrites tags.
    async fn tag_nodegroup(&self, arn: &str, tags: &BTreeMap<String, String>) -> AwsResult<()>;
    /// UntagResource: removes tags by key.
    async fn untag_nodegroup(&self, arn: &str, keys: &[String]) -> AwsResult<()>;
}

/// Identifies a node group: names are unique in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodegroupName {
    /// Name of the EKS cluster.
    pub cluster: String,
    /// Name of the node group.
    pub nodegroup: String,
}

impl NodegroupName {
    /// The identity of a node group.
    pub fn new(cluster: impl Into<String>, nodegroup: impl Into<String>) -> Self {
        NodegroupName { cluster: cluster.into(), nodegroup: nodegroup.into() }
    }

    /// Parses the format of `Display`, `cluster/nodegroup`; `None` without a slash. Neither name can contain a slash.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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
    /// EKS is creating it; nodes may already join.
    Creating,
    /// It is active, without a change in progress.
    Active,
    /// An update is in progress.
    Updating,
    /// EKS is deleting it.
    Deleting,
    /// The creation failed; the issues give the reason.
    CreateFailed,
    /// The deletion failed; the issues give the reason.
    DeleteFailed,
    /// It exists and has issues.
    Degraded,
    /// A status that is unknown to this release.
    Other,
}

impl NodegroupStatus {
    /// Whether EKS is working on the node group and rejects another change.
    pub(crate) fn is_busy(self) -> bool {
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
pub struct NodegroupIssue {
    /// For example `NodeCreationFailure`.
    pub code: String,
    /// The message from EKS.
    pub message: String,
    /// IDs of the affected resources: instances, subnets, security groups.
    pub resources: Vec<String>,
}

impl std::fmt::Display for NodegroupIssue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, without_period(&self.message))?;
        if self.resources.is_empty() { Ok(()) } else { write!(f, " ({})", self.resources.join(", ")) }
    }
}

/// A taint, with the effect in EKS's spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NodegroupTaint {
    /// Taint key, in the syntax of a label key.
    pub key: String,
    /// Taint value; may be empty.
    pub value: String,
    /// `NO_SCHEDULE`, `NO_EXECUTE` or `PREFER_NO_SCHEDULE`.
    pub effect: String,
}

impl std::fmt::Display for NodegroupTaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}:{}", self.key, self.value, self.effect)
    }
}

/// Maximum number of nodes that a version update replaces at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MaxUnavailable {
    /// Number of nodes, 1 to 100 and at most the maximum size.
    Count(i32),
    /// Percentage of nodes, 1 to 100.
    Percent(i32),
}

impl MaxUnavailable {
    /// What EKS uses for a node group that is created without one.
    pub(crate) const DEFAULT: MaxUnavailable = MaxUnavailable::Count(1);
}

impl std::fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MaxUnavailable::Count(n) => write!(f, "{n}"),
            MaxUnavailable::Percent(n) => write!(f, "{n}%"),
        }
    }
}

/// Sizes of a node group, in nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodegroupSizes {
    /// Minimum size; EKS accepts 0.
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
    /// Names of the cluster and the node group.
    pub name: NodegroupName,
    /// ARN, which the tag calls need.
    pub arn: String,
    /// When EKS created the node group.
    pub created: Option<Timestamp>,
    /// What EKS is doing with the node group.
    pub status: NodegroupStatus,
    /// Kubernetes version of the nodes, for example `1.33`.
    pub version: String,
    /// Release version of the AMI.
    pub release_version: String,
    /// `ON_DEMAND` or `SPOT`.
    pub capacity_type: String,
    /// Sizes; `desired` may lag behind the desired capacity of the scaling group.
    pub sizes: NodegroupSizes,
    /// Instance types, in the order given at creation.
    pub instance_types: Vec<String>,
    /// Sorted subnet IDs.
    pub subnets: Vec<String>,
    /// Name of the EC2 key pair for SSH access.
    pub key_pair: Option<String>,
    /// Sorted IDs of the security groups that have SSH access.
    pub security_groups: Vec<String>,
    /// AMI type, for example `AL2023_x86_64_STANDARD`.
    pub ami_type: String,
    /// ARN of the role that the nodes assume.
    pub node_role: String,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Sorted taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// Names of its scaling groups; empty while EKS is creating it.
    pub scaling_groups: Vec<String>,
    /// Size of the root volume in GiB; `None` if the node group uses a launch template.
    pub disk_size: Option<i32>,
    /// Problems reported by EKS.
    pub issues: Vec<NodegroupIssue>,
    /// Maximum number of nodes that an update replaces at the same time.
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes.
    pub repair: bool,
    /// All tags of the node group, also those of others.
    pub tags: BTreeMap<String, String>,
}

/// Input of CreateNodegroup. EKS chooses the fields that are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewNodegroup {
    /// Names of the cluster and the node group.
    pub name: NodegroupName,
    /// Sizes in nodes; `desired` is how many EKS launches at first.
    pub sizes: NodegroupSizes,
    /// Kubernetes version of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Release version of the AMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
    /// Fields that cannot be changed later.
    #[serde(flatten)]
    pub immutable: ImmutableFields,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub taints: Vec<NodegroupTaint>,
    /// Maximum number of nodes that an update replaces at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<MaxUnavailable>,
    /// Whether EKS replaces unhealthy nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
    /// All tags of the new node group, with the ownership tags.
    pub tags: BTreeMap<String, String>,
}

/// Fields that are set at creation and cannot be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImmutableFields {
    /// ARN of the role that the nodes assume.
    pub node_role: String,
    /// Sorted subnet IDs.
    pub subnets: Vec<String>,
    /// Instance types, for example `m5.large`; if empty, EKS chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// `ON_DEMAND` or `SPOT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// AMI type, for example `AL2023_x86_64_STANDARD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_type: Option<String>,
    /// Size of the root volume in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<i32>,
    /// Name of the EC2 key pair for SSH access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair: Option<String>,
    /// Sorted IDs of the security groups that have SSH access; only with a key pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
}

/// Input of UpdateNodegroupConfig: changes to apply in place. Empty and `None` fields are not sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodegroupChange {
    /// New sizes in nodes; `None` leaves all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<NodegroupSizes>,
    /// Labels to add, or to give another value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_labels: BTreeMap<String, String>,
    /// Keys of labels to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_labels: Vec<String>,
    /// Taints to add, or to give another value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_taints: Vec<NodegroupTaint>,
    /// Taints to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_taints: Vec<NodegroupTaint>,
    /// Maximum number of nodes that an update replaces at the same time.
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
    /// Kubernetes version. EKS takes the cluster's if none is sent, so one is always sent.
    pub version: String,
    /// Release version of the AMI; `None` takes the latest release of the Kubernetes version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
}

/// The status of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum UpdateStatus {
    /// It is in progress.
    InProgress,
    /// It failed; the errors give the reason.
    Failed,
    /// It was canceled.
    Cancelled,
    /// It completed.
    Successful,
    /// A status that is unknown to this release.
    Other,
}

/// An update as returned by DescribeUpdate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodegroupUpdate {
    /// ID, a UUID.
    pub id: String,
    /// Whether EKS still works on it, and how it ended.
    pub status: UpdateStatus,
    /// `VersionUpdate` or `ConfigUpdate`.
    pub kind: String,
    /// When EKS accepted the update.
    pub created: Option<Timestamp>,
    /// Why it failed, from EKS, with the affected resources; empty unless it failed.
    pub errors: Vec<NodegroupIssue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remedy follows, and a user would read `exceeded.; request a quota increase`.
    #[test]
    fn issue_ends_without_a_period() {
        let issue =
            |resources| NodegroupIssue { code: "LimitExceeded".into(), message: "Limit exceeded.".into(), resources };
        assert_eq!(issue(vec![]).to_string(), "LimitExceeded: Limit exceeded");
        assert_eq!(issue(vec!["i-1".into()]).to_string(), "LimitExceeded: Limit exceeded (i-1)");
    }
}
