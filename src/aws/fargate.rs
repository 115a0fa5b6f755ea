//! Fargate profiles of Amazon EKS: which pods run without a node of ours.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::{AwsResult, Tag};

/// The calls of Amazon EKS that concern Fargate profiles.
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

/// Input of CreateFargateProfile; nothing of it but the tags can be changed later.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewFargateProfile {
    /// The EKS cluster's name.
    pub cluster: String,
    /// The profile's name, at most 100 characters.
    pub name: String,
    /// ARN of the pods' execution role.
    pub role_arn: String,
    /// The role is the group's own: when EKS refuses its trust policy, it does not know the role yet.
    pub own_role: bool,
    /// Sorted subnet ids; none are the private ones of the cluster.
    pub subnets: Vec<String>,
    /// Sorted.
    pub selectors: Vec<FargateSelector>,
    /// Ownership tags and the spec's.
    pub tags: Vec<Tag>,
    /// The profile whose place it takes, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Idempotency token.
    pub token: String,
}

/// A profile as DescribeFargateProfile tells it.
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
    /// Where it is in its life.
    pub status: ProfileStatus,
    /// What EKS says is wrong with it: code and message.
    pub issues: Vec<String>,
    /// Its tags.
    pub tags: Vec<Tag>,
}

/// Where a Fargate profile is in its life (EKS API reference, FargateProfile, status).
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
    /// A status that AWS added since.
    Other,
}

/// A route table, as far as it tells which subnets the internet reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Whether the subnets without a table of their own follow it.
    pub is_main: bool,
    /// The subnets that follow it.
    pub subnets: Vec<String>,
    /// Whether one of its routes leads to an internet gateway.
    pub has_internet_gateway: bool,
}
