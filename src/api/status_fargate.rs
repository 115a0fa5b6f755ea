//! What a status remembers of Fargate profiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{lenient, lenient_list};

/// The Fargate profiles of a group, and its place among the groups of a cluster that wait for EKS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FargateStatus {
    /// The EKS cluster that the profiles are of.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Names of the profiles, recorded before they are made.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Since when the group waits for its turn to make or delete a profile; absent when it has nothing to do.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<String>,
    /// SHA-256 of what was wanted when the profile was taken over; while it stays wanted, the profile found is up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// How often in a row EKS failed to make or delete a profile.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Before when EKS is not asked again after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}
