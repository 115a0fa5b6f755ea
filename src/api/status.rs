//! The status of an InstanceGroup, which only the controller writes. Decoding is lenient: a status that another release
//! or program wrote must never stop the watch. Everything in it can be rebuilt, except the records that guard against
//! acting twice.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CurrentState,
    conditions::Condition,
    fields::{lenient, lenient_list, without_defaults},
    status_effective::EffectiveValues,
    status_fargate::FargateStatus,
    status_rollout::RolloutRecord,
};

/// The `observedGeneration` of a group that no controller has seen.
const NOT_OBSERVED: i64 = -1;

/// The status is the observed state of the group, which the controller alone writes. A field is absent until the
/// controller knows its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
// Tools that wait for a rollout compare it with the generation: -1 means that no controller has reconciled it yet.
#[schemars(extend("default" = { "observedGeneration": NOT_OBSERVED }))]
pub struct InstanceGroupStatus {
    /// The group is in this state: Init, InitDelete, InitUpdate, InitCreate, InitUpgrade, Deleting, Deleted,
    /// ReconcileModifying, ReconcileModified, Locked, Ready or Error.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
    /// The scaling group has this minimum size, in nodes or, with instance weights, units of capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_min: Option<i64>,
    /// The scaling group has this maximum size, in nodes or, with instance weights, units of capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_max: Option<i64>,
    /// The group uses the launch configuration with this name; absent with a launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_configuration_name: Option<String>,
    /// The group uses the launch template with this name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_template_name: Option<String>,
    /// The launch template has this latest version number.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub latest_template_version: Option<String>,
    /// The Auto Scaling group, managed node group or Fargate profile of this group has this name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_scaling_group_name: Option<String>,
    /// The nodes, or the pods on Fargate, use the IAM role with this ARN.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes_instance_role_arn: Option<String>,
    /// The custom resource that the crd strategy created last has this name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_name: Option<String>,
    /// The custom resource that the crd strategy created last is in this namespace.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_namespace: Option<String>,
    /// The crd strategy created its resource again this many times after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_retry_count: Option<i64>,
    /// The controller records here the progress of the custom resource that the crd strategy created last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_progress: Option<StrategyProgress>,
    /// If true, the Spot price comes from a recommendation.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub using_spot_recommendation: Option<bool>,
    /// The controller records here the last recommendation about Spot Instances. It applies until spotPrice in the spec
    /// changes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub spot_recommendation: Option<SpotRecommendation>,
    /// The instances have this purchase option: normal (On-Demand), spot or mixed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// The merged spec has this hash, which is empty when the group is excluded from boundaries.
    #[serde(rename = "configMD5", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub config_md5: Option<String>,
    /// The controller sets the conditions NodesReady, Ready, Reconciling, Stalled, Locked, BoundariesApplied,
    /// RotationHalted, DrainBlocked, FieldsRejected, AnnotationsIgnored, WritesIneffective, RolloutPending,
    /// DrainForecast, ResourcesRetained and Adopted.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("nullable" = true))]
    pub conditions: Vec<Condition>,
    /// The group uses this provisioner: eks, eks-managed or eks-fargate.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// The group uses this strategy type: rollingUpdate, crd or managed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The status describes the spec of this generation; -1 before the controller has seen the group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The controller shows here what the nodes of the group get: image, instance types, subnets, zones, and the launch
    /// template versions in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub effective: Option<EffectiveValues>,
    /// The controller has answered this value of the annotation `instancemgr.keikoproj.io/reconcile-now` with a
    /// reconcile from fresh reads.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_reconcile_now: Option<String>,
    /// The controller counts the nodes here by state; with instance weights, in units of capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// The nodes should run the launch template version that is recorded here.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateStatus>,
    /// The map lists instances that have been in service for more than a tenth of joinTimeout, and whose node is not
    /// Ready. Each has the time in RFC 3339 from which joinTimeout counts.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub joining: BTreeMap<String, String>,
    /// The controller records here which instances of the desired version left the scaling group while their nodes
    /// were not Ready; absent once a later one is.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub failed_replacements: Option<FailedReplacements>,
    /// The controller last started the update of the managed node group with this ID.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_id: Option<String>,
    /// The target of that update has this hash, which the controller keeps until the target is reached. After a
    /// failure, it delays a retry of the same update.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_of: Option<String>,
    /// The controller first saw that update as failed at this time, in RFC 3339. The retry counts from it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_failed_at: Option<String>,
    /// The controller records here the attributes that it set itself on resources other tools may also write to. It
    /// removes only these.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedAttributes>,
    /// If true, a rotation of the group has not ended, and the group is in another state than InitUpgrade for now.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub rotation_interrupted: bool,
    /// The section says how nodes of the group are authorized to join; absent while access entries are not involved.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinStatus>,
    /// The controller records here the Fargate profiles of the group; only with the provisioner eks-fargate.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fargate: Option<FargateStatus>,
    /// The group may run this many nodes under the quota of its namespace, by the last spec that the quota allowed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_nodes: Option<i64>,
    /// The group may run this many nodes of a surge under the quota of its namespace; with policy.quotas.maxSurge only.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_surge: Option<i64>,
    /// The nodes of the group may have this many vCPUs under the quota of its namespace; with policy.quotas.maxVcpus
    /// only.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub quota_vcpus: Option<i64>,
    /// The controller built the merged spec from this revision of the ConfigMap.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub boundaries_revision: Option<String>,
    /// The controller records here how the group came to that revision; absent without the key `rollout` in the
    /// ConfigMap.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutRecord>,
    /// This revision of the ConfigMap made the group, or fields of it, invalid although its spec had not changed. It is
    /// absent once nothing of the group is rejected.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub rejected_by_revision: Option<String>,
}

/// Instances of the desired version that left the scaling group while their nodes were not Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedReplacements {
    /// The instances were launched with the launch template content that has this hash.
    pub template: String,
    /// The last of these instances, at most 5, have these IDs.
    pub instances: Vec<String>,
    /// The controller saw at this time, in RFC 3339, that the last one was gone.
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

    /// Whether a rotation has begun and not ended. An error, a lock or another change may have interrupted it.
    pub(crate) fn is_rotating(&self) -> bool {
        let is_in = |state: CurrentState| self.current_state.as_deref() == Some(state.as_str());
        // An earlier release that ended the rotation did not know the record.
        is_in(CurrentState::InitUpgrade) || (self.rotation_interrupted && !is_in(CurrentState::Ready))
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
    /// The scaling group has this desired capacity.
    #[serde(deserialize_with = "lenient")]
    pub desired: i64,
    /// This many nodes are in service and Ready, cordoned or not.
    #[serde(deserialize_with = "lenient")]
    pub ready: i64,
    /// This many instances have the desired version, whether their nodes are Ready or not.
    #[serde(deserialize_with = "lenient")]
    pub updated: i64,
    /// This many nodes must be replaced.
    #[serde(deserialize_with = "lenient")]
    pub outdated: i64,
    /// The controller is draining this many nodes.
    #[serde(deserialize_with = "lenient")]
    pub draining: i64,
    /// If true, the numbers are units of capacity, because instances have weights; absent for nodes.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// The instances with these IDs, at most 100, must be replaced.
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
    /// The launch template has this ID.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The scaling group is pinned to this version.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The inputs of that version have this SHA-256, in hex.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// This version is the latest one whose nodes all became Ready.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_ready_version: Option<String>,
    /// The desired inputs had this hash when the controller adopted the group. While it equals the desired hash, the
    /// adopted version is up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// Every instance of the warm pool ran this version when last observed, with `rotate-at` once that time has passed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<String>,
    /// The version has this default volume; absent if the image needs no other one than 32 GiB at /dev/xvda.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub default_volume: Option<DefaultVolume>,
    /// The controller recorded `adoptedHash` for this version.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_version: Option<String>,
    /// Nodes were launched from this version before the launch template was deleted and created again. Its content
    /// cannot be read any more, so nodes with the desired hash are known by it alone.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub deleted: Option<DeletedVersion>,
}

/// Version of a launch template that was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletedVersion {
    /// The deleted launch template had this ID.
    pub id: String,
    /// The version of the template had this number.
    pub version: String,
    /// The inputs of that version have this SHA-256, in hex.
    pub hash: String,
}

/// Default volume for an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultVolume {
    /// The volume is for the image with this ID.
    pub image: String,
    /// The volume has this device name, such as /dev/xvdb.
    pub device: String,
    /// The volume has this size in GiB.
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
    /// The resource is in this state: Submitted (created or about to be), Retrying (ended and being created again),
    /// Succeeded, Failed (retries used up) or Gone (deleted by another actor too often).
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The resource had this UID when the controller last observed it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The resource has this API group and version.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The resource is of this kind.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The resource has its status in the field at this JSONPath, recorded because the spec may change before the
    /// resource ends.
    #[serde(rename = "statusJSONPath", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_json_path: Option<String>,
    /// The resource succeeded when that field has one of these values, separated by commas.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// The resource failed when that field has one of these values, separated by commas.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_failure_string: Option<String>,
}

/// Recommendation about Spot Instances, recorded because its event expires after an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct SpotRecommendation {
    /// If true, the group should launch Spot Instances instead of On-Demand Instances.
    #[serde(deserialize_with = "lenient")]
    pub use_spot: bool,
    /// The recommendation gives this maximum price in US dollars per hour; empty for On-Demand Instances.
    #[serde(deserialize_with = "lenient")]
    pub spot_price: String,
    /// The recommendation was given at this time, in RFC 3339.
    #[serde(deserialize_with = "lenient")]
    pub given: String,
    /// The event of the recommendation is in this namespace. If the policy no longer allows recommendations from there,
    /// the price in the spec applies again. It is absent in records of earlier releases, which stay valid.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The spec had this value of spotPrice at that time. A different value in the spec takes precedence over the
    /// recommendation.
    #[serde(deserialize_with = "lenient")]
    pub over: String,
    /// If true, the spec took precedence since then. The recommendation does not come back with the old value.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub ended: Option<bool>,
}

/// Attributes that the controller itself set, recorded before it sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedAttributes {
    /// The controller put the instances with these IDs into standby, where they wait for their replacement.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<String>,
    /// The controller recorded at this time, in RFC 3339, that an instance was about to enter standby. AWS may show it two
    /// minutes later.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub standby_at: Option<String>,
    /// The controller set tags with these keys on the scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The running instances got these tags from the spec when tags last changed in place. Instances that are launched get
    /// those of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub instance_tags: Option<BTreeMap<String, String>>,
    /// A change of the running instances whose end is not recorded may have set these values of tags, by key, or the spec
    /// dropped them while tags did not change in place. An empty list stands for a tag that it may have removed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub started_instance_tags: BTreeMap<String, BTreeSet<String>>,
    /// The controller set the lifecycle hooks with these names.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// The controller suspended these Auto Scaling processes of the group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// The controller enabled these group metrics of the scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// The scaling group used these launch configurations before. The controller deletes each once no instance uses it.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub configurations: Vec<String>,
    /// If true, the controller created the warm pool.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub warm_pool: bool,
    /// The controller attached these IAM policies to the role.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// The tags of the IAM role and its instance profile name this region. Another region than the group's means that
    /// the group uses a role of that region, which the controller does not change.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_region: Option<String>,
    /// The controller noticed at this time, in RFC 3339, that a user had exchanged the role in the instance profile of
    /// running nodes. The entries of previous roles stay for 12 hours after that.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_exchanged_at: Option<String>,
    /// The group has these managed node groups, as cluster/name, newest last.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroups: Vec<String>,
    /// The controller observed the managed node groups with these ARNs. Each ends in a unique ID, which proves
    /// ownership where tags are missing.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroup_arns: Vec<String>,
    /// The controller deletes the managed node group for this reason, to create it again: CreateFailed or
    /// LostScalingGroup. Absent once it has created another one.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodegroup_deletion: Option<NodegroupDeletion>,
    /// The controller set labels with these keys on the managed node group, or changes them in place on the nodes of a
    /// scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The controller set these taints, as key:effect, on the managed node group, or changes them in place on the nodes
    /// of a scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// If true, the spec set another maxUnavailable of the managed node group than EKS does by default.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub max_unavailable: bool,
    /// If true, the spec switched on the repair of nodes of the managed node group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub node_repair: bool,
    /// The controller added the entries of the roles with these ARNs to kube-system/aws-auth.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub auth_entries: Vec<String>,
    /// The controller created the access entries of the roles with these ARNs.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub access_entries: Vec<String>,
    /// The spec no longer lists these subnets, while the scaling group or its instances still use them. Their nodes are
    /// replaced, and the process AZRebalance is suspended meanwhile.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub leaving_subnets: Vec<String>,
    /// The field `instancePool` added these instance types to the mixed instances policy.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<String>,
    /// The controller adopted the resources with these IDs without tags: the scaling group referred to them, and they
    /// had the names that the controller derives.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted: Option<AdoptedResources>,
    /// If true, AWS denied the ownership tags of adopted resources, and the controller tries them again.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub tagging_denied: bool,
}

/// The controller deletes a managed node group for this reason, to create it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodegroupDeletion {
    /// EKS could not create it.
    CreateFailed,
    /// Its scaling group is gone.
    LostScalingGroup,
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
    /// The adopted launch template has this ID, such as `lt-...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The adopted IAM role has this ID, such as `AROA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The adopted instance profile has this ID, such as `AIPA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The text is the message of the condition `Adopted`, without the permissions that were missing to tag the
    /// resources.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// How nodes of the group are authorized to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct JoinStatus {
    /// If true, kube-system/aws-auth has an entry for the role.
    #[serde(deserialize_with = "lenient")]
    pub aws_auth: bool,
    /// The access entry of the role has this type; absent when there is none.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub access_entry: Option<String>,
    /// The role has this ID, such as `AROA...`. An access entry authorizes this role, not a later role of the same
    /// name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
