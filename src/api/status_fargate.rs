//! The part of the status that records Fargate profiles.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{lenient, lenient_list};

/// Fargate profiles of the group, and its position among the groups of the cluster that wait to change a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FargateStatus {
    /// The profiles belong to the EKS cluster with this name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The profiles have these names, recorded before the controller creates them.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// The spec listed these subnets for a profile, by the profile's name. EKS chose those of other profiles.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub subnets: BTreeMap<String, Vec<String>>,
    /// The group has waited since this time, in RFC 3339, to create or delete a profile; absent when it has nothing to
    /// do.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<String>,
    /// The desired profile had this SHA-256 when the controller adopted the group. While it equals the desired hash,
    /// the adopted profile is up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// EKS failed this many times in a row to create or delete a profile.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The controller does not retry before this time, in RFC 3339, after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}
