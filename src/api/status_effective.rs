//! The part of the status that shows tenants what their nodes get, without permissions on the ConfigMap or in AWS.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{lenient, lenient_list};

/// Values after the merge with the boundaries and the look-up of aliases and names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveValues {
    /// Image of new nodes: an AMI ID, or the AMI type and release version of a managed node group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Instance types of new nodes, the one of the spec first.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// IDs of the subnets of new nodes or of the Fargate profile.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// Availability zones of these subnets, as far as they are known.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Number of instances by what they were launched from: a launch template version, or a launch configuration.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, i64>,
    /// What each instance was launched from, by its ID, while they were not all launched from the same; at most 100
    /// instances.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub instance_versions: BTreeMap<String, String>,
}
