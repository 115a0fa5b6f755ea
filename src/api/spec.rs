//! The spec's root and the upgrade strategies.

// Each printer column has a type and a path, which the lint takes for repetition.
#![allow(clippy::duplicated_attributes)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    enums::{ProvisionerKind, StrategyType},
    fields::{DURATION, IntOrString, int_or_percent},
    redact::redacted,
    spec_eks::EksSpec,
    spec_managed_fargate::{EksFargateSpec, EksManagedSpec, ManagedStrategy},
    status::InstanceGroupStatus,
};

/// A group of worker nodes of an EKS cluster. It may be a fragment: what the cluster's ConfigMap supplies can be left out.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "instancemgr.keikoproj.io",
    version = "v1alpha1",
    kind = "InstanceGroup",
    plural = "instancegroups",
    shortname = "ig",
    namespaced,
    status = "InstanceGroupStatus",
    derive = "PartialEq",
    doc = "A group of worker nodes of an EKS cluster.",
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.currentState",
        description = "where the group is"
    ),
    printcolumn(
        name = "Min",
        type_ = "integer",
        json_path = ".status.currentMin",
        description = "minimum size of the scaling group"
    ),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".status.currentMax",
        description = "maximum size of the scaling group"
    ),
    printcolumn(
        name = "Group Name",
        type_ = "string",
        json_path = ".status.activeScalingGroupName",
        description = "name of the scaling group"
    ),
    printcolumn(
        name = "Provisioner",
        type_ = "string",
        json_path = ".status.provisioner",
        description = "who makes the nodes"
    ),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".status.strategy",
        description = "how nodes are replaced"
    ),
    printcolumn(
        name = "Lifecycle",
        type_ = "string",
        json_path = ".status.lifecycle",
        description = "how instances are bought"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "time since the group was created"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InstanceGroupSpec {
    /// Who makes the nodes: eks, eks-managed or eks-fargate (also written fargate), in any case.
    #[schemars(regex(pattern = ProvisionerKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// How nodes are replaced when their configuration changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Settings of the provisioner eks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eks: Option<EksSpec>,
    /// Settings of the provisioner eks-managed.
    #[serde(rename = "eks-managed", skip_serializing_if = "Option::is_none")]
    pub eks_managed: Option<EksManagedSpec>,
    /// Settings of the provisioner eks-fargate.
    #[serde(rename = "eks-fargate", skip_serializing_if = "Option::is_none")]
    pub eks_fargate: Option<EksFargateSpec>,
}

/// How nodes are replaced when their configuration changes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// rollingUpdate (also when empty), crd or managed, in any case; eks-fargate needs managed.
    #[schemars(regex(pattern = StrategyType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Settings of the type rollingUpdate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// Settings of the type crd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd: Option<CrdStrategy>,
    /// Settings of the type managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedStrategy>,
}

/// Settings of the type rollingUpdate: the controller drains and replaces nodes itself.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.drainTimeout) || self.drainTimeout == '' || duration(self.drainTimeout) <= duration('168h')")
        .message("drainTimeout may be at most 168h; leave it out to wait for as long as it takes"),
    validation = Rule::new("!has(self.joinTimeout) || self.joinTimeout == '' || duration(self.joinTimeout) <= duration('24h')")
        .message("joinTimeout may be at most 24h"),
)]
pub struct RollingUpdate {
    /// How many nodes may be unavailable at once: a number, or a percentage of the desired size rounded up (default 1).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How long a node's drain may take, such as 30m; without it, a drain waits for as long as it takes.
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// What happens at drainTimeout: true deletes the remaining pods with their grace period; false (the default) uncordons
    /// the node and reports DrainBlocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_force: Option<bool>,
    /// How long a new instance may take from being in service to a Ready node before the rotation halts (default 15m).
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_timeout: Option<String>,
    /// How many replacements may be added before old nodes are drained: a number, or a percentage of the desired size (default 0).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
}

/// Settings of the type crd: a custom resource of another controller replaces the nodes.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrdStrategy {
    /// The resource to submit, as a YAML template; `.InstanceGroup` is the group after the merge.
    #[schemars(length(max = 262144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// The resource's CRD: its plural or its full name.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd_name: Option<String>,
    /// What to do about resources that are still active: allow, forbid (the default, also for unknown words) or replace.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    /// How often to submit again after a failure; -1 means for ever (default 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
    /// Where the resource tells its status, such as .status.phase.
    #[serde(rename = "statusJSONPath", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub status_json_path: Option<String>,
    /// The status that means success, in any case.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// The status that means failure, in any case.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_failure_string: Option<String>,
}

impl std::fmt::Debug for CrdStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = serde_json::json!({ "crd": self });
        write!(f, "CrdStrategy {}", redacted(&value)["crd"])
    }
}
