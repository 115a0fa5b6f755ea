//! What the controller answers. Decoding is lenient: whatever an earlier writer stored, a status never stops a watch, and
//! everything in it but the guards of an act can be rebuilt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    conditions::Condition,
    fields::{lenient, lenient_list, without_defaults},
    status_fargate::FargateStatus,
};

/// The observed state of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceGroupStatus {
    /// One word for where the group is: Init, InitDelete, InitUpdate, InitCreate, InitUpgrade, Deleting, Deleted,
    /// ReconcileModifying, ReconcileModified, Locked, Ready or Error.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
    /// Minimum size of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_min: Option<i64>,
    /// Maximum size of the scaling group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub current_max: Option<i64>,
    /// Launch configuration in use, when the group launches from one.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_configuration_name: Option<String>,
    /// Launch template in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_launch_template_name: Option<String>,
    /// Newest version of the launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub latest_template_version: Option<String>,
    /// Scaling group, managed node group or Fargate profile of this group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_scaling_group_name: Option<String>,
    /// ARN of the role that the nodes assume.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes_instance_role_arn: Option<String>,
    /// Name of the custom resource that the crd strategy submitted last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_name: Option<String>,
    /// Namespace of the custom resource that the crd strategy submitted last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_resource_namespace: Option<String>,
    /// How often the crd strategy submitted again after a failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_retry_count: Option<i64>,
    /// How far the crd strategy has come with that resource.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy_progress: Option<StrategyProgress>,
    /// Whether the spot price comes from a recommendation.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub using_spot_recommendation: Option<bool>,
    /// The recommendation about spot instances that is in force, or was until the spec's own price changed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub spot_recommendation: Option<SpotRecommendation>,
    /// How instances are bought: normal, spot or mixed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Hash of the effective spec; empty where boundaries are skipped.
    #[serde(rename = "configMD5", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub config_md5: Option<String>,
    /// The answers: NodesReady, Ready, Reconciling, Stalled, BoundariesApplied, RotationHalted, DrainBlocked, Adopted.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("nullable" = true))]
    pub conditions: Vec<Condition>,
    /// Provisioner in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// Upgrade strategy in use.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The generation of the spec that this status tells about.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes are in which state; in a group whose types have weights, how many units of capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// The launch template version that nodes should run.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateStatus>,
    /// The update of the managed node group that was begun last.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_id: Option<String>,
    /// What that update was to reach, as a hash, until it has: after a failure the same is not begun again at once.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub update_of: Option<String>,
    /// What the controller itself set on resources that others may write to as well; only this is ever removed again.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedAttributes>,
    /// How nodes of the group may join, once access entries play a part in it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinStatus>,
    /// The Fargate profiles of the group, with the provisioner eks-fargate.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fargate: Option<FargateStatus>,
    /// Revision of the ConfigMap that the effective spec was made with.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub boundaries_revision: Option<String>,
}

/// Numbers of nodes; in a group whose types have weights, numbers of units of capacity, as its sizes are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct NodeCounts {
    /// Nodes that the scaling group wants.
    #[serde(deserialize_with = "lenient")]
    pub desired: i64,
    /// Nodes in service, Ready and not cordoned.
    #[serde(deserialize_with = "lenient")]
    pub ready: i64,
    /// Nodes that run the wanted version.
    #[serde(deserialize_with = "lenient")]
    pub updated: i64,
    /// Nodes that have to be replaced.
    #[serde(deserialize_with = "lenient")]
    pub outdated: i64,
    /// Nodes that are being drained.
    #[serde(deserialize_with = "lenient")]
    pub draining: i64,
}

/// The launch template version that nodes should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateStatus {
    /// Id of the launch template.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Version that the scaling group is pinned to.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// SHA-256 of what went into the version, in hex.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Newest version whose nodes all became Ready.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_ready_version: Option<String>,
    /// Hash that was wanted when the group was taken over; while it stays wanted, the version found counts as up to date.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_hash: Option<String>,
    /// The version that every instance of the warm pool was last seen to run, with `rotate-at` once that has come.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<String>,
    /// The version that `adoptedHash` was recorded for.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted_version: Option<String>,
}

/// How far the crd strategy has come with the resource that it submitted last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StrategyProgress {
    /// Submitted (or about to be), Retrying (it failed and is submitted again), Succeeded, Failed (too often), or Gone (deleted
    /// by someone too often).
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// UID of the resource that this was last seen of.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// API version of that resource, with its group.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of that resource.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where that resource tells its status: the spec may say something else before it ends.
    #[serde(rename = "statusJSONPath", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_json_path: Option<String>,
    /// Its word for success.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_success_string: Option<String>,
    /// Its word for failure.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub status_failure_string: Option<String>,
}

/// A recommendation about spot instances: its event is gone after an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct SpotRecommendation {
    /// Whether to buy spot instances rather than on demand.
    #[serde(deserialize_with = "lenient")]
    pub use_spot: bool,
    /// Dollars per hour; empty with on demand.
    #[serde(deserialize_with = "lenient")]
    pub spot_price: String,
    /// When it was given.
    #[serde(deserialize_with = "lenient")]
    pub given: String,
    /// The spec's own spotPrice at that time; another one since then wins.
    #[serde(deserialize_with = "lenient")]
    pub over: String,
}

/// Names of what the controller set itself, recorded before it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedAttributes {
    /// Keys of tags on the scaling group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Names of lifecycle hooks.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Suspended processes.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Collected metrics.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// Launch configurations that the scaling group launched from; deleted when nothing runs them any more.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub configurations: Vec<String>,
    /// Whether the warm pool is the controller's.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub warm_pool: bool,
    /// Policies attached to the role.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Managed node groups, as cluster/name, newest last.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroups: Vec<String>,
    /// ARNs of those that were seen, each ending in an id that EKS gives to no other: without the group's tags the name
    /// alone proves nothing.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub nodegroup_arns: Vec<String>,
    /// Keys of labels on the managed node group.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Taints on the managed node group, as key:effect.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Roles whose entry in kube-system/aws-auth the controller put there, by ARN.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub auth_entries: Vec<String>,
    /// Roles whose access entry the controller made, by ARN.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub access_entries: Vec<String>,
    /// Instance types that a pool (`instancePool`) has added to the group's mixed instances policy.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<String>,
    /// What was taken over without tags, by the ids that AWS gave it: the controller's by its derived name, and because
    /// the scaling group referred to it then.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub adopted: Option<AdoptedResources>,
}

impl ManagedAttributes {
    /// All of it as a merge patch over what is stored: a field that is empty now is taken out, which an absent one is not.
    pub fn patch_from(&self, stored: &Self) -> Value {
        let plain = |managed: &Self| serde_json::to_value(managed).unwrap_or_default();
        let mut patch = plain(self);
        for (key, _) in plain(stored).as_object().into_iter().flatten() {
            if patch.get(key).is_none() {
                patch[key] = Value::Null;
            }
        }
        patch
    }
}

/// Ids of resources that were taken over. AWS gives none of them twice, so what bears one is the very thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdoptedResources {
    /// The launch template, `lt-...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The IAM role, `AROA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The instance profile, `AIPA...`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The message of the condition `Adopted`, without the permissions that were missing to tag the resources.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// How nodes of a group may join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct JoinStatus {
    /// Whether the role's entry is in kube-system/aws-auth.
    #[serde(deserialize_with = "lenient")]
    pub aws_auth: bool,
    /// Type of the role's access entry; absent without one.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub access_entry: Option<String>,
    /// Id of the role, `AROA...`: EKS lets in the role that an entry was made for, and no later one of the same name.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub role_id: Option<String>,
}

impl InstanceGroupStatus {
    /// What a JSON merge patch must say to turn `old` into this status, with null for what goes; `None` when nothing differs.
    pub fn patch_from(&self, old: &Self) -> Option<Value> {
        let plain = |status: &Self| serde_json::to_value(status).unwrap_or_default();
        diff_patch(&plain(old), &plain(self))
    }
}

/// The JSON merge patch from one value to another; `None` when they are equal.
fn diff_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let patch = match before.get(key) {
            Some(old) => diff_patch(old, value)?,
            None => value.clone(),
        };
        Some((key.clone(), patch))
    });
    let patch: serde_json::Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
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
        let wanted = serde_json::json!({"nodes": {"ready": 2}, "strategyResourceName": null});
        assert_eq!(new.patch_from(&old), Some(wanted));
    }

    #[test]
    fn malformed_status_decodes() {
        let stored = serde_json::json!({
            "currentState": "Ready", "currentMin": "3", "latestTemplateVersion": 7, "nodes": [], "unheardOf": {},
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
