//! Settings of the provisioners eks-managed and eks-fargate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{fields::labels, spec_eks::Tag};

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
    /// EC2 instance type, such as m5.large.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Labels of the nodes.
    #[schemars(schema_with = "labels")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// ARN of the role that the nodes assume.
    #[schemars(length(max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_role: Option<String>,
    /// Security groups that may log in to the nodes; they count only with keyPairName.
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
    /// Ids of the subnets.
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
    /// Ids of the subnets.
    #[schemars(length(max = 200), inner(length(max = 255)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Vec<String>>,
    /// Which pods run on Fargate.
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
    /// Namespace of the pods.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the pods.
    #[schemars(extend("maxProperties" = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
