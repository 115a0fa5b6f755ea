//! The part of the status that records which revision of the boundaries a group took, and how that ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::lenient;

/// How the group came to its revision of the boundaries; absent without the key `rollout` in the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutRecord {
    /// The group last took the BoundariesRevision with this name, such as r14.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The group took it in this wave; absent if no node had to be replaced for it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    /// The group had the content with this hash before, to which it returns after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The group took the revision at this time, in RFC 3339.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The group's spec had this generation at that time. A failure of a later generation is the tenant's own.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// All nodes of the group ran the revision at this time, in RFC 3339; absent until then.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    /// The BoundariesRevision with this name failed on the group, which does not take it again by itself.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The content of that BoundariesRevision has this hash. A name is given again after its BoundariesRevision was
    /// deleted.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub refused_hash: Option<String>,
    /// The text explains why that BoundariesRevision failed on the group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The field orders.retries of that BoundariesRevision had this value when it failed. The group tries again once it
    /// is larger.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}
