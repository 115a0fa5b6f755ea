//! Fargate profiles of Amazon EKS, which run pods without EC2 nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::{AwsResult, Tag};

/// The Amazon EKS calls for Fargate profiles.
#[async_trait]
pub trait FargateApi: Send + Sync {
    /// ListFargateProfiles, pages of 100: the names of all profiles of a cluster, whatever their status.
    async fn list_fargate_profiles(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// DescribeFargateProfile, tags included; `None` when there is no profile, or no cluster, of that name.
    async fn describe_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<Option<FargateProfile>>;
    /// CreateFargateProfile with a client request token.
    async fn create_fargate_profile(&self, input: &NewFargateProfile) -> AwsResult<FargateProfile>;
    /// DeleteFargateProfile: EKS deletes the pods that run by it.
    async fn delete_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<()>;
    /// TagResource of a profile, by its ARN.
    async fn tag_fargate_profile(&self, arn: &str, tags: &[Tag]) -> AwsResult<()>;
    /// UntagResource of a profile, by its ARN.
    async fn untag_fargate_profile(&self, arn: &str, keys: &[String]) -> AwsResult<()>;
}

/// Pods of a namespace, as one selector of a profile names them; `*` and `?` are wildcards everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FargateSelector {
    /// The pods' namespace.
    pub namespace: String,
    /// Labels that a pod must have, all of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl std::fmt::Display for FargateSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        match labels.is_empty() {
            true => f.write_str(&self.namespace),
            false => write!(f, "{}({})", self.namespace, labels.join(",")),
        }
    }
}

/// Input of CreateFargateProfile. Only the tags can be changed later.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewFargateProfile {
    /// The EKS cluster's name.
    pub cluster: String,
    /// The profile's name, at most 100 characters.
    pub name: String,
    /// ARN of the pods' execution role.
    pub role_arn: String,
    /// Whether the controller created the role. If EKS then rejects its trust policy, the role has not propagated yet.
    pub own_role: bool,
    /// Sorted subnet ids; none are the private ones of the cluster.
    pub subnets: Vec<String>,
    /// Sorted.
    pub selectors: Vec<FargateSelector>,
    /// Ownership tags and the spec's.
    pub tags: Vec<Tag>,
    /// The profile that it replaces, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Idempotency token.
    pub token: String,
}

/// A profile as returned by DescribeFargateProfile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FargateProfile {
    /// Unique in its cluster.
    pub name: String,
    /// Its ARN, which tags are put on.
    pub arn: String,
    /// ARN of the pods' execution role.
    pub role_arn: String,
    /// Sorted subnet ids.
    pub subnets: Vec<String>,
    /// Sorted.
    pub selectors: Vec<FargateSelector>,
    /// Its status.
    pub status: ProfileStatus,
    /// Problems reported by EKS: code and message.
    pub issues: Vec<String>,
    /// Its tags.
    pub tags: Vec<Tag>,
}

/// The status of a Fargate profile (EKS API reference, FargateProfile, status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ProfileStatus {
    /// `CREATING`
    Creating,
    /// `ACTIVE`
    Active,
    /// `DELETING`
    Deleting,
    /// `CREATE_FAILED`
    CreateFailed,
    /// `DELETE_FAILED`
    DeleteFailed,
    /// A status that this release does not know.
    Other,
}

/// A route table, reduced to what identifies public subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Whether it applies to subnets without their own table.
    pub is_main: bool,
    /// The subnets associated with it.
    pub subnets: Vec<String>,
    /// Whether it has a route to an internet gateway.
    pub has_internet_gateway: bool,
}
