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
    /// The node group has at least this many nodes, from 0 to 10000.
    /// Default: 0. Set by: tenants, within the boundaries.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// The node group has at most this many nodes, from 1 to 10000. 0 counts as not set.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries and policy.quotas.
    #[schemars(range(min = 0, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// This section configures the node group and its nodes.
    /// Default: none; it holds required fields. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksManagedConfiguration>,
}

/// Configuration of a managed node group and its nodes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksManagedConfiguration {
    /// The nodes join the EKS cluster with this name.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The root volume of a node has this size in GiB, from 1 to 16384. 0 counts as not set.
    /// Default: EKS decides: 20, or 50 on Windows. Set by: tenants, within the boundaries.
    #[schemars(range(min = 0, max = 16_384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vol_size: Option<i64>,
    /// The nodes have this EC2 instance type, such as m5.large. It precedes the types in instanceTypes.
    /// Default: none; EKS uses t3.medium when instanceTypes is empty too. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The nodes have one of these EC2 instance types, in order of preference, at most 20. More types make it more
    /// likely that Spot capacity is found.
    /// Default: none; EKS uses t3.medium when instanceType is empty too. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 64)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<Vec<String>>,
    /// The nodes have this capacity type: ON_DEMAND or SPOT. Case does not matter.
    /// Default: EKS decides: ON_DEMAND. Set by: tenants, within the boundaries.
    #[schemars(regex(pattern = CapacityType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// The nodes get these Kubernetes labels.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// The nodes get these Kubernetes taints.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<NodegroupTaint>>,
    /// The nodes use the existing IAM role with this ARN, which must have the policies that EKS nodes need.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries and policy.roles.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_role: Option<String>,
    /// Members of these security groups, given by ID or Name tag, may access the nodes by SSH. Without keyPairName, the
    /// field has no effect.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// The EC2 key pair with this name gives SSH access to the nodes.
    /// Default: no key pair. Set by: tenants, within the boundaries.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// The node group gets these tags, in addition to those of the controller.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// The nodes run in these subnets, given as IDs or as values of the Name tag within the cluster's VPC.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// The nodes boot from an image of this AMI type, such as AL2023_x86_64_STANDARD.
    /// Default: EKS decides: AL2023_x86_64_STANDARD. Set by: tenants, within the boundaries.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_type: Option<String>,
    /// The nodes run this release version of the EKS-optimized AMI.
    /// Default: the latest release when EKS creates the group. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
    /// The nodes run this Kubernetes version, such as 1.33.
    /// Default: that of releaseVersion, or else that of the cluster. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// This section says whether EKS replaces unhealthy nodes.
    /// Default: no repair. Set by: tenants, within the boundaries.
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
    /// The taint has this key, with an optional prefix, such as example.com/gpu.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The taint has this value, which may be empty.
    /// Default: an empty value. Set by: tenants, within the boundaries of the list.
    #[schemars(length(max = 63), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint has this effect: NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE, or the Kubernetes spelling such as
    /// NoSchedule. Case does not matter.
    /// Default: none; required. Set by: tenants, within the boundaries of the list.
    #[schemars(regex(pattern = NodegroupTaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Whether EKS replaces unhealthy nodes of a managed node group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRepairConfig {
    /// If true, EKS replaces nodes that do not recover on their own (node auto repair).
    /// Default: false. Set by: tenants, within the boundaries.
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
    /// At most this many nodes may be unavailable at the same time during a version update or a move to another node
    /// group. It is a number from 1 to 100, or a percentage.
    /// Default: EKS decides: 1. Set by: tenants, within the boundaries.
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
    /// The Fargate profile belongs to the EKS cluster with this name.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The pods use the existing pod execution role with this ARN, of the cluster's account.
    /// Default: a role that the controller creates. Set by: tenants, within the boundaries and policy.roles.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_execution_role_arn: Option<String>,
    /// The pods run in these private subnets, given by ID or Name tag.
    /// Default: EKS uses the private subnets of the cluster. Set by: tenants, within the boundaries.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Pods that match at least one of these selectors, of which there are at most 5, run on Fargate. Tenants may
    /// select pods of their own namespace, and of those that policy.fargateNamespaces of the cluster's ConfigMap
    /// allows.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries and policy.fargateNamespaces.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<Vec<FargateSelector>>,
    /// The Fargate profile gets these tags, in addition to those of the controller; each entry of each map is one tag.
    /// Default: none. Set by: tenants, within the boundaries.
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
    /// The selector matches pods of this namespace; `*` matches any characters, `?` matches one.
    /// Default: none; required. Set by: tenants, within the boundaries of the list and policy.fargateNamespaces.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pods must have all of these labels; keys and values accept the same wildcards.
    /// Default: none. Set by: tenants, within the boundaries of the list.
    #[schemars(extend("maxProperties" = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
