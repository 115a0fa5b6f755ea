//! Settings of the provisioners eks-managed and eks-fargate.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    enums::{CapacityType, NodegroupTaintEffect},
    fields::{IntOrString, LABEL_KEY, LABEL_VALUE, int_or_percent, labels},
    spec_eks::Tag,
};

/// Settings of the provisioner eks-managed, which runs nodes in an EKS managed node group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // A size of 0 counts as absent, because boundaries treat it so.
    validation = Rule::new("!has(self.minSize) || !has(self.maxSize) || dyn(self.minSize) == null || dyn(self.maxSize) == null || self.maxSize == 0 || self.minSize <= self.maxSize")
        .message("minSize may not be more than maxSize; lower minSize or raise maxSize"),
)]
pub struct EksManagedSpec {
    /// Minimum number of nodes, from 0 to 10000 (default 0).
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum number of nodes, from 1 to 10000; required after the merge. policy.quotas of the cluster's ConfigMap may limit
    /// the nodes and vCPUs of a namespace.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// Configuration of the node group and its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksManagedConfiguration>,
}

/// Configuration of a managed node group and its nodes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksManagedConfiguration {
    /// Name of the EKS cluster that the nodes join; required after the merge.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Size of the root volume in GiB, from 1 to 16384. By default EKS decides.
    #[schemars(range(min = 0, max = 16_384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vol_size: Option<i64>,
    /// EC2 instance type, such as m5.large. By default EKS decides. Together with instanceTypes, it is the first of
    /// them.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// EC2 instance types in order of preference, at most 20. More types make it more likely that Spot capacity is
    /// found.
    #[schemars(length(max = 200), inner(length(max = 64)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<Vec<String>>,
    /// Capacity type: ON_DEMAND (the default of EKS) or SPOT. Case does not matter.
    #[schemars(regex(pattern = CapacityType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Kubernetes labels of the nodes; by default there are none.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Kubernetes taints of the nodes; by default there are none.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<NodegroupTaint>>,
    /// ARN of the IAM role of the nodes; required after the merge. The role must exist and have the policies that EKS
    /// nodes need. Tenants may name roles that policy.roles of the cluster's ConfigMap allows.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_role: Option<String>,
    /// Security groups that may access the nodes by SSH, by ID or Name tag; ignored without keyPairName.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Name of the EC2 key pair for SSH access to the nodes; by default there is none.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// Tags of the node group, beside those of the controller; by default there are none.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Subnets of the nodes: IDs, or values of the Name tag within the cluster's VPC; required after the merge.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// AMI type, such as AL2023_x86_64_STANDARD. By default EKS decides.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_type: Option<String>,
    /// Release version of the EKS-optimized AMI. By default EKS uses the latest release when it creates the group.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
    /// Kubernetes version of the nodes. By default that of releaseVersion, or else that of the cluster.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether EKS replaces unhealthy nodes; by default it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_repair_config: Option<NodeRepairConfig>,
}

/// Kubernetes taint of the nodes of a managed node group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.key) && dyn(self.key) != null && self.key != ''")
        .message("a taint needs a key"),
    validation = Rule::new("has(self.effect) && dyn(self.effect) != null && self.effect != ''")
        .message("the effect of a taint must be NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE"),
)]
pub struct NodegroupTaint {
    /// Key of the taint.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the taint; may be left out.
    #[schemars(length(max = 63), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect of the taint: NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE, or the Kubernetes spelling such as
    /// NoSchedule. Case does not matter.
    #[schemars(regex(pattern = NodegroupTaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Whether EKS replaces unhealthy nodes of a managed node group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRepairConfig {
    /// Whether EKS replaces nodes that do not recover on their own (node auto repair; default false).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Settings of the strategy type managed, with which EKS replaces the nodes of a managed node group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.maxUnavailable) || dyn(self.maxUnavailable) == null || type(self.maxUnavailable) != int || (self.maxUnavailable >= 1 && self.maxUnavailable <= 100)")
        .message("maxUnavailable must be 1 to 100 nodes, or a percentage"),
)]
pub struct ManagedStrategy {
    /// Maximum number of nodes that may be unavailable at the same time during a version update or a move to another
    /// node group. A number from 1 to 100, or a percentage (default of EKS: 1).
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Settings of the provisioner eks-fargate, which runs pods on Fargate.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.selectors) || dyn(self.selectors) == null || size(self.selectors) <= 5")
        .message("a Fargate profile has at most 5 selectors; use more groups"),
)]
pub struct EksFargateSpec {
    /// Name of the EKS cluster; required after the merge.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// ARN of an existing pod execution role of the cluster's account. By default the controller creates a role. Tenants may
    /// name roles that policy.roles of the cluster's ConfigMap allows.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_execution_role_arn: Option<String>,
    /// Private subnets of the pods, by ID or Name tag. By default EKS uses the private subnets of the cluster.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Selectors of the pods that run on Fargate, at most 5; at least one is required after the merge. A pod must match
    /// at least one of them. Tenants may select pods of their own namespace, and of those that policy.fargateNamespaces of
    /// the cluster's ConfigMap allows.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<Vec<FargateSelector>>,
    /// Tags of the Fargate profile, beside those of the controller; each entry of each map is one tag.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<BTreeMap<String, String>>>,
}

/// Selector of pods that run on Fargate.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.__namespace__) && dyn(self.__namespace__) != null && self.__namespace__ != ''")
        .message("a selector needs a namespace"),
)]
pub struct FargateSelector {
    /// Namespace of the pods; `*` matches any characters, `?` matches one.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the pods must have, all of them; keys and values accept the same wildcards.
    #[schemars(extend("maxProperties" = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
