//! The part of the status that shows tenants what their nodes get, without permissions on the ConfigMap or in AWS.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{lenient, lenient_list};

/// Values after the merge with the boundaries and the look-up of aliases and names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveValues {
    /// New nodes boot from this image: an AMI ID, or the AMI type and release version of a managed node group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// New nodes have one of these instance types, the one of the spec first.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// New nodes, or the pods of the Fargate profile, run in the subnets with these IDs.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// The subnets are in these availability zones, as far as they are known.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The map counts the instances by what they were launched from: a launch template version, or a launch
    /// configuration.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, i64>,
    /// The map says what each instance was launched from, by its ID; absent while all were launched from the same. It
    /// has at most 100 instances.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub instance_versions: BTreeMap<String, String>,
}
