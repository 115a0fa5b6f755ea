//! The resource `BoundariesRevision`: one content of the ConfigMap `instance-manager`, as the controller stored it.
//!
//! It is to the controller what a ReplicaSet is to a Deployment: created by it, never in Git, and a history that users
//! can read. Names are `r1`, `r2` and so on.

// The lint mistakes the type and path of each printer column for a repetition.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;
use std::fmt;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::revision_status::{BoundariesRevisionStatus, RolloutOrders};

/// The spec is one content of the ConfigMap `instance-manager`. The controller creates it, and people change the orders
/// alone.
#[derive(CustomResource, KubeSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "instancemgr.keikoproj.io",
    version = "v1alpha1",
    kind = "BoundariesRevision",
    plural = "boundariesrevisions",
    shortname = "brev",
    namespaced,
    status = "BoundariesRevisionStatus",
    derive = "PartialEq",
    doc = "A BoundariesRevision is one content of the ConfigMap instance-manager, as the controller stored it.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "state of the rollout; empty without the key rollout in the ConfigMap"
    ),
    printcolumn(
        name = "Wave",
        type_ = "string",
        json_path = ".status.waves[?(@.state!='Passed')].name",
        description = "first wave that has not passed"
    ),
    printcolumn(
        name = "Groups",
        type_ = "integer",
        json_path = ".status.groups.affected",
        description = "groups whose nodes have to be replaced"
    ),
    printcolumn(
        name = "Done",
        type_ = "integer",
        json_path = ".status.groups.done",
        description = "those all of whose nodes run the revision"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.groups.nodes",
        description = "nodes that have to be replaced"
    ),
    printcolumn(
        name = "Held",
        type_ = "integer",
        json_path = ".status.groups.held",
        description = "groups that the rollout does not wait for"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "time since the content became active"
    ),
    printcolumn(
        name = "By",
        type_ = "string",
        json_path = ".spec.from.manager",
        description = "who wrote the ConfigMap"
    ),
    printcolumn(
        name = "Change",
        type_ = "string",
        json_path = ".spec.from.change",
        description = "difference to the revision before"
    ),
    printcolumn(
        name = "Hash",
        type_ = "string",
        json_path = ".spec.hash",
        description = "hash of the content, as in the status of groups",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.number == oldSelf.number && self.hash == oldSelf.hash && self.data == oldSelf.data && self.from == oldSelf.from && has(self.images) == has(oldSelf.images) && (!has(self.images) || self.images == oldSelf.images)").message("a revision cannot be changed, but for its orders; change the ConfigMap instance-manager"))]
pub struct BoundariesRevisionSpec {
    /// The number counts the revisions in order of arrival, from 1. The name of the object is r and this number.
    /// Default: none; required. Set by: the controller.
    #[schemars(range(min = 1))]
    pub number: i64,
    /// The hash identifies the content. Two revisions have the same hash when an admin returns to an earlier content.
    /// Default: none; required. Set by: the controller.
    #[schemars(length(min = 1, max = 64))]
    pub hash: String,
    /// The map holds the keys of the ConfigMap that the controller reads: boundaries, defaults, conditionals, policy,
    /// rollout. Each text has at most 1 MiB.
    /// Default: none; required. Set by: the controller.
    pub data: BTreeMap<String, String>,
    /// The map gives the AMI IDs that image aliases stand for, such as amazonlinux2023/x86_64/recommended. A new image
    /// of AWS is a revision with the same data.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 500))]
    pub images: BTreeMap<String, String>,
    /// This section says where the content came from.
    /// Default: none; required. Set by: the controller.
    pub from: RevisionSource,
    /// People give orders about the rollout of this revision here, by `instance-manager rollout` or `kubectl patch`.
    /// The controller never writes them.
    /// Default: no orders. Set by: users who may patch BoundariesRevisions.
    #[serde(default)]
    pub orders: RolloutOrders,
}

/// Where the content of a revision came from.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionSource {
    /// The field manager with this name last wrote the ConfigMap, such as argocd-controller or kubectl-edit. The name
    /// is absent when the API server does not record it.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// The field manager wrote the ConfigMap at this time, in RFC 3339.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The ConfigMap had this resourceVersion when the controller stored its content.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The admin gave the content this name, in the field `release` of the key `rollout`.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release: String,
    /// The text describes the difference to the revision before, for people; it shows no user data.
    /// Default: none. Set by: the controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change: String,
}

/// The data may hold secrets in user data, so it is not shown.
impl fmt::Debug for BoundariesRevisionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundariesRevisionSpec")
            .field("number", &self.number)
            .field("hash", &self.hash)
            .field("images", &self.images)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}
