//! Settings of the provisioners eks-managed and eks-fargate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    enums::{CapacityType, NodegroupTaintEffect},
    fields::{IntOrString, LABEL_KEY, LABEL_VALUE, int_or_percent, labels},
    spec_eks::Tag,
};

/// Settings of the provisioner eks-managed: a node group that AWS manages.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksManagedSpec {
    /// Minimum number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<i64>,
    /// Maximum number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i64>,
    /// What the nodes look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<EksManagedConfiguration>,
}

/// What the nodes of a managed node group look like.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksManagedConfiguration {
    /// Name of the EKS cluster that the nodes join.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Size of the root volume in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vol_size: Option<i64>,
    /// EC2 instance type, such as m5.large; with instanceTypes it is the first of them.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// EC2 instance types, at most 20 and in order of preference; the more there are, the likelier a spot instance is found.
    #[schemars(length(max = 200), inner(length(max = 64)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<Vec<String>>,
    /// How instances are bought: ON_DEMAND or SPOT, in any case; EKS takes ON_DEMAND when it is empty.
    #[schemars(regex(pattern = CapacityType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Labels of the nodes.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Taints of the nodes.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<NodegroupTaint>>,
    /// ARN of the role that the nodes assume; it has to be there, with the policies that nodes need.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_role: Option<String>,
    /// Security groups that may log in to the nodes, by id or Name tag; they count only with keyPairName.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// EC2 key pair for logging in to the nodes.
    #[schemars(length(max = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_pair_name: Option<String>,
    /// Tags of the node group.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Subnets: ids, or Name tags in the cluster's VPC.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Type of the machine image, such as AL2_x86_64.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_type: Option<String>,
    /// Release of the machine image.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_version: Option<String>,
    /// Version of Kubernetes on the nodes.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether EKS replaces broken nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_repair_config: Option<NodeRepairConfig>,
}

/// A taint of the nodes of a managed node group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodegroupTaint {
    /// Key of the taint.
    #[schemars(length(max = 317), regex(pattern = LABEL_KEY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the taint; may be left out.
    #[schemars(length(max = 63), regex(pattern = LABEL_VALUE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE, or as Kubernetes writes them (NoSchedule, ...), in any case.
    #[schemars(regex(pattern = NodegroupTaintEffect::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Whether EKS replaces broken nodes of a managed node group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRepairConfig {
    /// True lets EKS replace nodes that do not recover by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Settings of the type managed: EKS replaces the nodes of a managed node group.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedStrategy {
    /// How many nodes may be unavailable at once while EKS updates their version, and while they move to another node
    /// group: a number from 1 to 100, or a percentage; EKS takes 1 when it is left out.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Settings of the provisioner eks-fargate: a Fargate profile.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EksFargateSpec {
    /// Name of the EKS cluster.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// ARN of an existing role for the pods; without it, one is made.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_execution_role_arn: Option<String>,
    /// Private subnets, by id or Name tag; without any, EKS takes the private ones of the cluster.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Which pods run on Fargate: those that fit at least one of up to five selectors.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<Vec<FargateSelector>>,
    /// Tags of the profile; each entry of each map is one tag.
    #[schemars(length(max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<BTreeMap<String, String>>>,
}

/// Pods that run on Fargate.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FargateSelector {
    /// Namespace of the pods; `*` stands for any characters, `?` for one.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the pods have, all of them; keys and values take the same wildcards.
    #[schemars(extend("maxProperties" = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
