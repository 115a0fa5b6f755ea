//! The part of the status that records Fargate profiles.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{lenient, lenient_list};

/// Fargate profiles of the group, and its position among the groups of the cluster that wait to change a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FargateStatus {
    /// Name of the EKS cluster of the profiles.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Names of the profiles, recorded before the controller creates them.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Subnets that the spec listed for a profile, by the profile's name. EKS chose those of other profiles.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub subnets: BTreeMap<String, Vec<String>>,
    /// Time, in RFC 3339, since which the group waits to create or delete a profile; absent when it has nothing to do.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<String>,
    /// SHA-256 of the desired profile when the group was adopted. While it equals the desired hash, the adopted profile
    /// is up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// Number of consecutive failures of EKS to create or delete a profile.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Time, in RFC 3339, before which the controller does not retry after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}
