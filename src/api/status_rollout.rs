//! The part of the status that records which revision of the boundaries a group took, and how that ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::lenient;

/// How the group came to its revision of the boundaries; absent without the key `rollout` in the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutRecord {
    /// Name of the BoundariesRevision that the group took last, such as r14.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Wave in which the group took it; absent if no node had to be replaced for it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    /// Hash of the content that the group had before, to which it returns after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// Time in RFC 3339 at which the group took the revision.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Generation of the group's spec at that time. A failure of a later generation is the tenant's own.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Time in RFC 3339 at which all nodes of the group ran the revision; absent until then.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    /// Name of the BoundariesRevision that failed on the group, which does not take it again by itself.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Hash of its content. A name is given again after its BoundariesRevision was deleted.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub refused_hash: Option<String>,
    /// Why that BoundariesRevision failed on the group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Value of orders.retries of that BoundariesRevision when it failed. The group tries again once it is larger.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}
