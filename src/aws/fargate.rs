//! Fargate profiles of Amazon EKS, which run pods without EC2 nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::{AwsResult, Tag};

/// The Amazon EKS calls for Fargate profiles.
#[async_trait]
pub(crate) trait FargateApi: Send + Sync {
    /// ListFargateProfiles, in pages of 100: the names of all profiles of a cluster, in any status. A cluster that does
    /// not exist is an error.
    async fn list_fargate_profiles(&self, cluster: &str) -> AwsResult<Vec<String>>;
    /// DescribeFargateProfile, tags included; `None` if the profile or the cluster does not exist.
    async fn describe_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<Option<FargateProfile>>;
    /// CreateFargateProfile with a client token; returns the profile.
    async fn create_fargate_profile(&self, input: &NewFargateProfile) -> AwsResult<FargateProfile>;
    /// DeleteFargateProfile. EKS also deletes the pods that run on the profile.
    async fn delete_fargate_profile(&self, cluster: &str, name: &str) -> AwsResult<()>;
    /// TagResource of a profile, by its ARN.
    async fn tag_fargate_profile(&self, arn: &str, tags: &[Tag]) -> AwsResult<()>;
    /// UntagResource of a profile, by its ARN.
    async fn untag_fargate_profile(&self, arn: &str, keys: &[String]) -> AwsResult<()>;
}

/// One selector of a profile: which pods run on Fargate. `*` and `?` are wildcards in the namespace and in labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FargateSelector {
    /// Namespace of the pods; a pattern may match several.
    pub namespace: String,
    /// Labels that a pod must all have.
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
    /// Name of the EKS cluster.
    pub cluster: String,
    /// Name of the profile, at most 100 characters.
    pub name: String,
    /// ARN of the pods' execution role.
    pub role_arn: String,
    /// Whether the controller created the role. If EKS then rejects its trust policy, the role has not propagated yet.
    pub own_role: bool,
    /// Sorted subnet IDs. If empty, EKS uses the private subnets of the cluster.
    pub subnets: Vec<String>,
    /// Sorted selectors.
    pub selectors: Vec<FargateSelector>,
    /// Ownership tags and the tags of the spec.
    pub tags: Vec<Tag>,
    /// Name of the profile that this profile replaces, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Makes a repeated call idempotent: EKS returns the profile that the first call created.
    pub token: String,
}

/// A profile as returned by DescribeFargateProfile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FargateProfile {
    /// Unique in its cluster.
    pub name: String,
    /// ARN, which the tag calls need.
    pub arn: String,
    /// ARN of the pods' execution role.
    pub role_arn: String,
    /// Sorted subnet IDs.
    pub subnets: Vec<String>,
    /// Sorted selectors.
    pub selectors: Vec<FargateSelector>,
    /// What EKS is doing with the profile. EKS changes one profile of a cluster at a time.
    pub status: ProfileStatus,
    /// Problems reported by EKS, each as `code: message`.
    pub issues: Vec<String>,
    /// All tags, those of other owners included.
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
    /// A status that is unknown to this release.
    Other,
}

/// A route table, reduced to what identifies public subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Whether it applies to subnets without their own table.
    pub is_main: bool,
    /// IDs of the subnets that are explicitly associated with it.
    pub subnets: Vec<String>,
    /// Whether it has a route to an internet gateway.
    pub has_internet_gateway: bool,
}
