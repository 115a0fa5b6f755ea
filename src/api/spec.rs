//! The root of the InstanceGroup spec and the settings of the upgrade strategies.
//!
//! ```
//! use instance_manager::api::{InstanceGroup, InstanceGroupSpec};
//! use serde_json::json;
//!
//! let spec = json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 3}});
//! let spec: InstanceGroupSpec = serde_json::from_value(spec).unwrap();
//! let group = InstanceGroup::new("web", spec);
//!
//! assert_eq!(group.spec.eks.as_ref().unwrap().max_size, Some(3));
//! assert_eq!(json!(group)["kind"], "InstanceGroup");
//! assert_eq!(json!(group)["spec"]["eks-managed"], json!(null)); // only the settings of its provisioner
//! ```

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

/// The spec is the desired state of a group of EKS worker nodes. Tenants set its fields within the boundaries, which an
/// admin keeps in the ConfigMap `instance-manager`. The boundaries may restrict a field or supply its value, and their
/// `policy` may limit what tenants choose. The default of a field applies when neither the tenant nor the boundaries
/// set it.
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
    doc = "An InstanceGroup is a group of worker nodes of an EKS cluster.",
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
    /// The provisioner says what provides the nodes: eks (an Auto Scaling group), eks-managed (an EKS managed node
    /// group) or eks-fargate (a Fargate profile; also written fargate). Case does not matter.
    /// Default: none; required after the merge. Set by: tenants, within the boundaries.
    #[schemars(regex(pattern = ProvisionerKind::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// The strategy says how nodes are replaced when their configuration changes.
    /// Default: a rolling update. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// This section holds the settings of the provisioner eks.
    /// Default: none; required with that provisioner. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eks: Option<EksSpec>,
    /// This section holds the settings of the provisioner eks-managed.
    /// Default: none; required with that provisioner. Set by: tenants, within the boundaries.
    #[serde(rename = "eks-managed", skip_serializing_if = "Option::is_none")]
    pub eks_managed: Option<EksManagedSpec>,
    /// This section holds the settings of the provisioner eks-fargate.
    /// Default: none; required with that provisioner. Set by: tenants, within the boundaries.
    #[serde(rename = "eks-fargate", skip_serializing_if = "Option::is_none")]
    pub eks_fargate: Option<EksFargateSpec>,
}

/// How nodes are replaced when their configuration changes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// The type says who replaces the nodes: the controller (rollingUpdate), a custom resource of another controller
    /// (crd) or AWS (managed). Case does not matter. The provisioner eks-fargate needs managed.
    /// Default: rollingUpdate. Set by: tenants, within the boundaries.
    #[schemars(regex(pattern = StrategyType::PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// This section holds the settings of the strategy type rollingUpdate.
    /// Default: the defaults of its fields. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// This section holds the settings of the strategy type crd.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries,
    /// policy.strategyKinds, policy.strategyNamespaces and policy.strategyScripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd: Option<CrdStrategy>,
    /// This section holds the settings of the strategy type managed.
    /// Default: the defaults of its fields. Set by: tenants, within the boundaries.
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
    /// At most this many nodes may be unavailable at the same time. It is a number, where 0 counts as 1, or a
    /// percentage of the desired capacity, rounded up.
    /// Default: 1. Set by: tenants, within the boundaries.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The controller drains one node for at most this duration, such as 30m, from 1s to 168h. When the InstanceGroup
    /// is deleted, the controller terminates its nodes after this time (without a value, after 15m), regardless of
    /// PodDisruptionBudgets.
    /// Default: no limit. Set by: tenants, within the boundaries.
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// If true, the controller deletes the remaining pods at drainTimeout, with their grace period. If false, it
    /// uncordons the node and reports DrainBlocked.
    /// Default: false. Set by: tenants, within the boundaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_force: Option<bool>,
    /// A node must be Ready within this duration after its instance entered service, from 1s to 24h. When it expires,
    /// the rotation halts.
    /// Default: 15m. Set by: tenants, within the boundaries.
    #[schemars(regex(pattern = DURATION), length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_timeout: Option<String>,
    /// At most this many healthy nodes may be in standby at the same time while their replacements launch. It is a
    /// number, or a percentage of the desired capacity, rounded up.
    /// Default: 0. Set by: tenants, within the boundaries and policy.quotas.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// The list names what the controller changes on running nodes of the provisioner eks: labels, taints, tags.
    /// Without labels or taints in it, their change replaces nodes. Without tags in it, their change reaches only
    /// instances that are launched later. An added taint with the effect NoExecute always replaces nodes, and so do
    /// labels and taints whose keys are of kubernetes.io or k8s.io.
    /// Default: none. Set by: tenants, within the boundaries.
    #[schemars(length(max = 10), inner(regex(pattern = InPlaceField::PATTERN)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<Vec<String>>,
}

/// Settings of the strategy type crd, with which a custom resource of another controller replaces the nodes.
#[derive(JsonSchema, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrdStrategy {
    /// This text is the template of the custom resource that the controller creates, as YAML. In it, `.InstanceGroup`
    /// is the InstanceGroup after the merge with the boundaries.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries,
    /// policy.strategyNamespaces and policy.strategyScripts.
    #[schemars(length(max = 262144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// The resource belongs to the CustomResourceDefinition with this name, given as its plural or its full name.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries and
    /// policy.strategyKinds.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd_name: Option<String>,
    /// While an earlier resource is active, the controller creates another one (allow), waits (forbid) or deletes the
    /// earlier one first (replace). Unknown values count as forbid.
    /// Default: forbid. Set by: tenants, within the boundaries.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    /// The controller creates the resource again at most this many times after it failed; -1 means no limit.
    /// Default: 3. Set by: tenants, within the boundaries.
    #[schemars(range(min = -1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
    /// The resource reports its status in the field at this JSONPath, such as .status.phase.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries.
    #[serde(rename = "statusJSONPath", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub status_json_path: Option<String>,
    /// The resource succeeded when its status field has one of these values, separated by commas. Case does not matter.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// The resource failed when its status field has one of these values, separated by commas. Case does not matter.
    /// Default: none; required with the strategy type crd. Set by: tenants, within the boundaries.
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
