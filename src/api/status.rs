//! The status of an InstanceGroup, which only the controller writes. Decoding is lenient: a status that another release
//! or program wrote must never stop the watch. Everything in it can be rebuilt, except the records that guard against
//! acting twice.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    conditions::Condition,
    fields::{lenient, lenient_list, without_defaults},
    patch::diff_merge_patch,
    status_effective::EffectiveValues,
    status_fargate::FargateStatus,
    status_rollout::RolloutRecord,
};

/// The `observedGeneration` of a group that no controller has seen.
const NOT_OBSERVED: i64 = -1;

/// Observed state of the group, written by the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
// Tools that wait for a rollout compare it with the generation: -1 means that no controller has reconciled it yet.
#[schemars(extend("default" = { "observedGeneration": NOT_OBSERVED }))]
pub struct InstanceGroupStatus {
    /// State of the group: Init, InitDelete, InitUpdate, InitCreate, InitUpgrade, Deleting, Deleted,
    /// ReconcileModifying, ReconcileModified, Locked, Ready or Error.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
    /// Minimum size of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_min: Option<i64>,
    /// Maximum size of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_max: Option<i64>,
    /// Name of the launch configuration in use; absent with a launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_configuration_name: Option<String>,
    /// Name of the launch template in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_template_name: Option<String>,
    /// Latest version of the launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub latest_template_version: Option<String>,
    /// Name of the Auto Scaling group, managed node group or Fargate profile of this group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_scaling_group_name: Option<String>,
    /// ARN of the IAM role of the nodes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes_instance_role_arn: Option<String>,
    /// Name of the custom resource that the crd strategy created last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_name: Option<String>,
    /// Namespace of the custom resource that the crd strategy created last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_namespace: Option<String>,
    /// Number of times the crd strategy created its resource again after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_retry_count: Option<i64>,
    /// Progress of the custom resource that the crd strategy created last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_progress: Option<StrategyProgress>,
    /// Whether the Spot price comes from a recommendation.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub using_spot_recommendation: Option<bool>,
    /// Last recommendation about Spot Instances. It applies until spotPrice in the spec changes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub spot_recommendation: Option<SpotRecommendation>,
    /// Purchase option of the instances: normal (On-Demand), spot or mixed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Hash of the merged spec; empty when the group is excluded from boundaries.
    #[serde(rename = "configMD5", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub config_md5: Option<String>,
    /// Conditions: NodesReady, Ready, Reconciling, Stalled, Locked, BoundariesApplied, RotationHalted, DrainBlocked,
    /// FieldsRejected, AnnotationsIgnored, WritesIneffective, RolloutPending, DrainForecast, ResourcesRetained and Adopted.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("nullable" = true))]
    pub conditions: Vec<Condition>,
    /// Provisioner in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// Strategy type in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Generation of the spec that this status describes; -1 before the controller has seen the group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the nodes of the group get: image, instance types, subnets, zones, and the launch template versions in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub effective: Option<EffectiveValues>,
    /// Value of the annotation `instancemgr.keikoproj.io/reconcile-now` that the controller has answered with a
    /// reconcile from fresh reads.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_reconcile_now: Option<String>,
    /// Number of nodes by state; with instance weights, units of capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Launch template version that nodes should run.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateStatus>,
    /// Instances that have been in service for more than a tenth of joinTimeout, and whose node is not Ready. Each has the
    /// time in RFC 3339 from which joinTimeout counts.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub joining: BTreeMap<String, String>,
    /// Instances of the desired version that left the scaling group before their nodes were Ready; absent once a later one
    /// is.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failed_replacements: Option<FailedReplacements>,
    /// ID of the last update of the managed node group that the controller started.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_id: Option<String>,
    /// Hash of the target of that update, kept until the target is reached. After a failure, it delays a retry of the
    /// same update.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_of: Option<String>,
    /// When that update was first seen to have failed, in RFC 3339. The retry counts from it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_failed_at: Option<String>,
    /// Attributes that the controller itself set on resources other tools may also write to. The controller removes
    /// only these.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedAttributes>,
    /// How nodes of the group are authorized to join; absent while access entries are not involved.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinStatus>,
    /// Fargate profiles of the group; only with the provisioner eks-fargate.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fargate: Option<FargateStatus>,
    /// Nodes that the group may run under the quota of its namespace, by the last spec that the quota allowed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_nodes: Option<i64>,
    /// Nodes of a surge that the group may run under the quota of its namespace; with policy.quotas.maxSurge only.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_surge: Option<i64>,
    /// vCPUs that the nodes of the group may have under the quota of its namespace; with policy.quotas.maxVcpus only.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_vcpus: Option<i64>,
    /// Revision of the ConfigMap from which the merged spec was built.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub boundaries_revision: Option<String>,
    /// How the group came to that revision; absent without the key `rollout` in the ConfigMap.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutRecord>,
    /// Revision of the ConfigMap that made the group, or fields of it, invalid although its spec had not changed. Absent
    /// once nothing of it is rejected.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub rejected_by_revision: Option<String>,
}

/// Instances of the desired version that left the scaling group before their nodes were Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedReplacements {
    /// Hash of the launch template content that they were launched with.
    pub template: String,
    /// IDs of the last of them.
    pub instances: Vec<String>,
    /// When the last one was seen to be gone, in RFC 3339.
    pub last: String,
}

impl InstanceGroupStatus {
    /// Whether no controller has written this status: it is empty but for the default of the API server.
    pub(crate) fn is_unwritten(&self) -> bool {
        let observed_generation = self.observed_generation.filter(|generation| *generation != NOT_OBSERVED);
        Self { observed_generation, ..self.clone() } == Self::default()
    }

    /// Whether the status shows that a Fargate profile was created, or is about to be, if the group has the provisioner
    /// `eks-fargate`. This controller records the cluster first. Keiko controller sets a ready state, which it replaces
    /// when it rejects the spec.
    pub(crate) fn shows_fargate_profile(&self) -> bool {
        let cluster = self.fargate.as_ref().and_then(|fargate| fargate.cluster.as_deref()).unwrap_or_default();
        let state = self.current_state.as_deref().unwrap_or_default();
        !cluster.is_empty() || ["Ready", "ReconcileModified"].contains(&state)
    }

    /// Whether no reconcile of the group has ended. The first one may have been interrupted after it recorded what it makes,
    /// or could not read AWS.
    pub(crate) fn is_new(&self) -> bool {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        is_empty(&self.current_state) && is_empty(&self.config_md5) && is_empty(&self.boundaries_revision)
    }
}

/// Number of nodes by state; with instance weights, units of capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct NodeCounts {
    /// Desired capacity of the scaling group.
    #[serde(deserialize_with = "lenient")]
    pub desired: i64,
    /// Nodes that are in service and Ready, cordoned or not.
    #[serde(deserialize_with = "lenient")]
    pub ready: i64,
    /// Instances of the desired version, whether their nodes are Ready or not.
    #[serde(deserialize_with = "lenient")]
    pub updated: i64,
    /// Nodes that must be replaced.
    #[serde(deserialize_with = "lenient")]
    pub outdated: i64,
    /// Nodes that are being drained.
    #[serde(deserialize_with = "lenient")]
    pub draining: i64,
    /// Whether the numbers are units of capacity, because instances have weights; absent for nodes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// IDs of the instances that must be replaced, at most 100.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub outdated_instances: Vec<String>,
}

/// How many instances a list of the status names.
pub(crate) const MAX_LISTED_INSTANCES: usize = 100;

impl NodeCounts {
    /// What the numbers count, for messages.
    pub(crate) fn unit(&self) -> &'static str {
        if self.weighted { "units of capacity" } else { "nodes" }
    }
}

/// Launch template version that nodes should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateStatus {
    /// ID of the launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Version that the scaling group is pinned to.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// SHA-256, in hex, of the inputs of that version.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Latest version whose nodes all became Ready.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_ready_version: Option<String>,
    /// Hash of the desired inputs when the group was adopted. While it equals the desired hash, the adopted version is
    /// up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// Version that every instance of the warm pool ran when last observed, with `rotate-at` once that time has passed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<String>,
    /// Default volume of that version, if the image needs another one than 32 GiB at /dev/xvda.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub default_volume: Option<DefaultVolume>,
    /// Version for which `adoptedHash` was recorded.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_version: Option<String>,
    /// The version that nodes were launched from before the launch template was deleted and created again. Its content
    /// cannot be read any more, so nodes with the desired hash are known by it alone.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub deleted: Option<DeletedVersion>,
}

/// Version of a launch template that was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletedVersion {
    /// ID of the launch template.
    pub id: String,
    /// Version number.
    pub version: String,
    /// SHA-256, in hex, of the inputs of that version.
    pub hash: String,
}

/// Default volume for an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultVolume {
    /// ID of the image.
    pub image: String,
    /// Device name.
    pub device: String,
    /// Size in GiB.
    pub size: i32,
}

impl TemplateStatus {
    /// The hash that was desired when this version, launch configuration or node group was adopted; `None` when another
    /// one or none is on record.
    pub(crate) fn adopted_hash_of(&self, version: &str) -> Option<&str> {
        self.adopted_hash.as_deref().filter(|_| self.adopted_version.as_deref() == Some(version))
    }

    /// The hash on record for a version of a launch template that is not the group's any more; `None` when another version
    /// or none is on record.
    pub(crate) fn hash_of_deleted(&self, id: &str, version: &str) -> Option<&str> {
        let pinned = self.as_deleted().filter(|pinned| pinned.id == id && pinned.version == version);
        if pinned.is_some() {
            return self.hash.as_deref();
        }
        let deleted = self.deleted.as_ref().filter(|deleted| deleted.id == id && deleted.version == version);
        deleted.map(|deleted| deleted.hash.as_str())
    }

    /// The version on record, as one whose template was deleted.
    pub(crate) fn as_deleted(&self) -> Option<DeletedVersion> {
        Some(DeletedVersion { id: self.id.clone()?, version: self.version.clone()?, hash: self.hash.clone()? })
    }
}

/// Progress of the custom resource that the crd strategy created last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StrategyProgress {
    /// Submitted (created or about to be), Retrying (failed and being created again), Succeeded, Failed (retries used
    /// up) or Gone (deleted by another actor too often).
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// UID of the resource when last observed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// API group and version of the resource.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the resource.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// JSONPath of the resource's status field, recorded because the spec may change before the resource ends.
    #[serde(rename = "statusJSONPath", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_json_path: Option<String>,
    /// Values of that field that mean success.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// Values of that field that mean failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_failure_string: Option<String>,
}

/// Recommendation about Spot Instances, recorded because its event expires after an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct SpotRecommendation {
    /// Whether to launch Spot Instances instead of On-Demand Instances.
    #[serde(deserialize_with = "lenient")]
    pub use_spot: bool,
    /// Maximum price in US dollars per hour; empty for On-Demand Instances.
    #[serde(deserialize_with = "lenient")]
    pub spot_price: String,
    /// Time of the recommendation, in RFC 3339.
    #[serde(deserialize_with = "lenient")]
    pub given: String,
    /// Namespace of its event. If the policy no longer allows recommendations from there, the price in the spec applies
    /// again. Absent in records of earlier releases, which stay valid.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Value of spotPrice in the spec at that time. A different value in the spec takes precedence over the
    /// recommendation.
    #[serde(deserialize_with = "lenient")]
    pub over: String,
    /// Whether the spec took precedence since then. The recommendation does not come back with the old value.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub ended: Option<bool>,
}

/// Attributes that the controller itself set, recorded before it sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedAttributes {
    /// IDs of instances that the controller put into standby, where they wait for their replacement.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<String>,
    /// Keys of tags on the scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tags that the running instances have from the spec; only while tags change in place. Instances that are launched
    /// get those of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub instance_tags: Option<BTreeMap<String, String>>,
    /// Values of tags, by key, that a change of the running instances may have set whose end is not recorded. An empty list
    /// stands for a tag that it may have removed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub started_instance_tags: BTreeMap<String, BTreeSet<String>>,
    /// Names of lifecycle hooks.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Auto Scaling processes that the controller suspended.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Group metrics that the controller enabled.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// Previous launch configurations of the scaling group. Each is deleted once no instance uses it.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub configurations: Vec<String>,
    /// Whether the controller created the warm pool.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub warm_pool: bool,
    /// IAM policies that the controller attached to the role.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Region in the tags of the IAM role and its instance profile. Another region than the group's means that the group
    /// uses a role of that region, which the controller does not change.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_region: Option<String>,
    /// When the controller noticed that a user had exchanged the role in the instance profile of running nodes. The entries of
    /// previous roles stay for 12 hours after that.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_exchanged_at: Option<String>,
    /// Managed node groups as cluster/name, newest last.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroups: Vec<String>,
    /// ARNs of the managed node groups that the controller observed. Each ends in a unique ID, which proves ownership
    /// where tags are missing.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroup_arns: Vec<String>,
    /// Keys of labels on the managed node group, or of labels that change in place on the nodes of a scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Taints on the managed node group, or taints that change in place on the nodes of a scaling group, as key:effect.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Whether the spec set another maxUnavailable of the managed node group than EKS does by default.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub max_unavailable: bool,
    /// Whether the spec switched on the repair of nodes of the managed node group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub node_repair: bool,
    /// ARNs of roles whose entry in kube-system/aws-auth the controller added.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub auth_entries: Vec<String>,
    /// ARNs of roles whose access entry the controller created.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub access_entries: Vec<String>,
    /// Subnets that the spec no longer lists, while the scaling group or its instances still use them. Their nodes are
    /// replaced, and the process AZRebalance is suspended meanwhile.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub leaving_subnets: Vec<String>,
    /// Instance types that `instancePool` added to the mixed instances policy.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<String>,
    /// IDs of resources that the controller adopted without tags: the scaling group referred to them, and they had the
    /// names that the controller derives.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted: Option<AdoptedResources>,
}

impl ManagedAttributes {
    /// These attributes as a JSON merge patch over `stored`, complete, with null for each list that became empty, and for
    /// each key that an object lost.
    pub(crate) fn patch_from(&self, stored: &Self) -> Value {
        fn remove_others(patch: &mut Value, stored: &Value) {
            for (key, old) in stored.as_object().into_iter().flatten() {
                match patch.get_mut(key) {
                    Some(kept) => remove_others(kept, old),
                    None => patch[key] = Value::Null,
                }
            }
        }
        let to_json = |managed: &Self| serde_json::to_value(managed).unwrap_or_default();
        let mut patch = to_json(self);
        remove_others(&mut patch, &to_json(stored));
        patch
    }
}

/// IDs of adopted resources. AWS never reuses an ID, so a matching ID identifies the adopted resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdoptedResources {
    /// ID of the launch template, `lt-...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// ID of the IAM role, `AROA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// ID of the instance profile, `AIPA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The message of the condition `Adopted`, without the permissions that were missing to tag the resources.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// How nodes of the group are authorized to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct JoinStatus {
    /// Whether kube-system/aws-auth has an entry for the role.
    #[serde(deserialize_with = "lenient")]
    pub aws_auth: bool,
    /// Type of the role's access entry; absent when there is none.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub access_entry: Option<String>,
    /// ID of the role, `AROA...`. An access entry authorizes this role, not a later role of the same name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_id: Option<String>,
}

impl InstanceGroupStatus {
    /// The JSON merge patch that turns the status `old` into this one, with null for each removed field; `None` when
    /// they are equal.
    pub(crate) fn patch_from(&self, old: &Self) -> Option<Value> {
        let to_json = |status: &Self| serde_json::to_value(status).unwrap_or_default();
        diff_merge_patch(&to_json(old), &to_json(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_contains_changes_and_removals() {
        let old = InstanceGroupStatus {
            current_state: Some("Ready".to_owned()),
            current_min: Some(1),
            nodes: Some(NodeCounts { desired: 3, ready: 3, ..NodeCounts::default() }),
            strategy_resource_name: Some("gone".to_owned()),
            ..InstanceGroupStatus::default()
        };
        let mut new = old.clone();
        assert_eq!(new.patch_from(&old), None);
        new.nodes = Some(NodeCounts { desired: 3, ready: 2, ..NodeCounts::default() });
        new.strategy_resource_name = None;
        let expected = serde_json::json!({"nodes": {"ready": 2}, "strategyResourceName": null});
        assert_eq!(new.patch_from(&old), Some(expected));
    }

    #[test]
    fn malformed_status_decodes() {
        let stored = serde_json::json!({
            "currentState": "Ready", "currentMin": "3", "latestTemplateVersion": 7, "nodes": [], "unknownField": {},
            "conditions": [{"type": "NodesReady", "status": "True"}, {"type": "Half"}, 3], "managed": {"tags": null},
        });
        let status: InstanceGroupStatus = serde_json::from_value(stored).unwrap();
        assert_eq!(status.current_state.as_deref(), Some("Ready"));
        assert_eq!(status.current_min, None);
        assert_eq!(status.conditions.len(), 1);
    }

    #[test]
    fn empty_status_serializes_to_empty_object() {
        assert_eq!(serde_json::to_value(InstanceGroupStatus::default()).unwrap(), serde_json::json!({}));
    }
}
