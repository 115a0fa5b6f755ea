//! The root of the InstanceGroup spec and the settings of the upgrade strategies.

// The lint mistakes the type and path of each printer column for a repetition.
#![allow(clippy::duplicated_attributes)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    enums::{InPlaceField, ProvisionerKind, StrategyType},
    fields::{DURATION, IntOrString, int_or_percent},
    redact::redacted,
    spec_eks::EksSpec,
    spec_managed_fargate::{EksFargateSpec, EksManagedSpec, ManagedStrategy},
    status::InstanceGroupStatus,
};

/// Desired state of a group of EKS worker nodes. Tenants set these fields; the boundaries in the cluster's ConfigMap
/// may supply defaults for them or restrict them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
        description = "state of the group"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.nodes.desired",
        description = "nodes that the group should have"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.nodes.ready",
        description = "nodes that are ready"
    ),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.nodes.updated",
        description = "nodes that run the desired version"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "reason of the condition Ready"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "time since the group was created"
    ),
    printcolumn(
        name = "Min",
        type_ = "integer",
        json_path = ".status.currentMin",
        description = "minimum size of the scaling group",
        priority = 1
    ),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".status.currentMax",
        description = "maximum size of the scaling group",
        priority = 1
    ),
    printcolumn(
        name = "Instance Type",
        type_ = "string",
        json_path = ".status.effective.instanceTypes[0]",
        description = "instance type in use, the first of several",
        priority = 1
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".status.effective.image",
        description = "image in use",
        priority = 1
    ),
    printcolumn(
        name = "Lifecycle",
        type_ = "string",
        json_path = ".status.lifecycle",
        description = "purchase option of the instances",
        priority = 1
    ),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".status.strategy",
        description = "how nodes are replaced",
        priority = 1
    ),
    printcolumn(
        name = "Provisioner",
        type_ = "string",
        json_path = ".status.provisioner",
        description = "what provides the nodes",
        priority = 1
    ),
    printcolumn(
        name = "Group Name",
        type_ = "string",
        json_path = ".status.activeScalingGroupName",
        description = "name of the scaling group",
        priority = 1
    ),
    selectable = ".status.currentState"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.eks), has(self.eks__dash__managed), has(self.eks__dash__fargate)].filter(isSet, isSet).size() <= 1")
        .message("only one of eks, eks-managed and eks-fargate may be set, the one of the provisioner; remove the others"),
)]
pub struct InstanceGroupSpec {
    /// What provides the nodes: eks (an Auto Scaling group), eks-managed (an EKS managed node group) or eks-fargate (a
    /// Fargate profile; also written fargate). Case does not matter. Tenants may set it unless the cluster's boundaries
    /// restrict it.
    #[schemars(regex(pattern = ProvisionerKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// How nodes are replaced when their configuration changes; the default is a rolling update. Tenants may set the fields
    /// that the cluster's boundaries do not restrict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Settings of the provisioner eks; required with that provisioner. Tenants may set the fields that the cluster's
    /// boundaries do not restrict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eks: Option<EksSpec>,
    /// Settings of the provisioner eks-managed; required with that provisioner. Tenants may set the fields that the cluster's
    /// boundaries do not restrict.
    #[serde(rename = "eks-managed", skip_serializing_if = "Option::is_none")]
    pub eks_managed: Option<EksManagedSpec>,
    /// Settings of the provisioner eks-fargate; required with that provisioner. Tenants may set the fields that the cluster's
    /// boundaries do not restrict.
    #[serde(rename = "eks-fargate", skip_serializing_if = "Option::is_none")]
    pub eks_fargate: Option<EksFargateSpec>,
}

/// How nodes are replaced when their configuration changes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// Strategy type: rollingUpdate (the default), crd or managed. Case does not matter. The provisioner eks-fargate
    /// needs managed.
    #[schemars(regex(pattern = StrategyType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Settings of the strategy type rollingUpdate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// Settings of the strategy type crd. Tenants may use the kinds, namespaces and scripts that policy.strategyKinds,
    /// policy.strategyNamespaces and policy.strategyScripts of the cluster's ConfigMap allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd: Option<CrdStrategy>,
    /// Settings of the strategy type managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedStrategy>,
}

/// Settings of the strategy type rollingUpdate, with which the controller drains and replaces nodes itself.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.drainTimeout) || dyn(self.drainTimeout) == null || !self.drainTimeout.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') || duration(self.drainTimeout) <= duration('168h')")
        .message("drainTimeout may be at most 168h; leave it out for no limit"),
    validation = Rule::new("!has(self.joinTimeout) || dyn(self.joinTimeout) == null || !self.joinTimeout.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') || duration(self.joinTimeout) <= duration('24h')")
        .message("joinTimeout may be at most 24h"),
    validation = Rule::new("!has(self.maxUnavailable) || dyn(self.maxUnavailable) == null || type(self.maxUnavailable) != int || self.maxUnavailable >= 0")
        .message("maxUnavailable may not be negative"),
    validation = Rule::new("!has(self.maxSurge) || dyn(self.maxSurge) == null || type(self.maxSurge) != int || self.maxSurge >= 0")
        .message("maxSurge may not be negative"),
)]
pub struct RollingUpdate {
    /// Maximum number of nodes that may be unavailable at the same time: a number, or a percentage of the desired
    /// capacity, rounded up (default 1).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Maximum duration of one node's drain, such as 30m, from 1s to 168h. By default there is no limit. When the
    /// InstanceGroup is deleted, its nodes are terminated after this time (by default 15m), regardless of
    /// PodDisruptionBudgets.
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// What the controller does at drainTimeout. true deletes the remaining pods with their grace period. false (the
    /// default) uncordons the node and reports DrainBlocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_force: Option<bool>,
    /// Maximum time from an instance entering service until its node is Ready, from 1s to 24h (default 15m). When it
    /// expires, the rotation halts.
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_timeout: Option<String>,
    /// Maximum number of healthy nodes that may be in standby at the same time while their replacements launch.
    /// A number, or a percentage of the desired capacity, rounded up (default 0). policy.quotas of the cluster's ConfigMap
    /// may limit it.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// What the controller changes on running nodes, for the provisioner eks: labels, taints, tags. By default, a change of
    /// labels or taints replaces nodes, and a change of tags reaches only instances that are launched later. An added taint
    /// with the effect NoExecute always replaces nodes, and so do labels and taints whose keys are of kubernetes.io or k8s.io.
    #[schemars(length(max = 10), inner(regex(pattern = InPlaceField::PATTERN)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<Vec<String>>,
}

/// Settings of the strategy type crd, with which a custom resource of another controller replaces the nodes.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrdStrategy {
    /// Template of the custom resource to create, as YAML. `.InstanceGroup` is the InstanceGroup after the merge with
    /// the boundaries.
    #[schemars(length(max = 262144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Name of the resource's CustomResourceDefinition: its plural or its full name.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd_name: Option<String>,
    /// What to do while an earlier resource is still active: allow (create another), forbid (wait) or replace (delete
    /// it first). The default, also for unknown values, is forbid.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    /// Maximum number of times the resource is created again after it failed; -1 means no limit (default 3).
    #[schemars(range(min = -1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
    /// JSONPath of the field in which the resource reports its status, such as .status.phase.
    #[serde(rename = "statusJSONPath", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub status_json_path: Option<String>,
    /// Values of that status field that mean success, separated by commas. Case does not matter.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// Values of that status field that mean failure, separated by commas. Case does not matter.
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
