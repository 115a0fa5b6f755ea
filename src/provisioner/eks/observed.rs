//! The observed state of a group: its AWS resources, its nodes and its join entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};

use super::launch_template::fingerprint::Fingerprint;
use super::launch_template::node_labels::NodeSettings;
use super::scaling_group::lost_instances::LostInstance;
use crate::api::spec_error::SpecError;
use crate::auth::access_entries::ObservedEntries;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntry, InstanceProfile, LaunchTemplate, LifecycleHook, NewAccessEntry, Role, ScalingActivity, ScalingGroup,
    TemplateData, TemplatePin, WarmInstance,
};
use crate::provisioner::role_region::OtherRegion;
use crate::provisioner::role_users::KeptEntry;
use crate::rotation::crd::decide::StrategyResource;
use crate::rotation::crd::resource::{RenderedResource, ResourceKind};
use crate::rotation::{ClusterHealth, Drains, LostNode, NodeView};

/// An observed launch template version.
#[derive(Clone, Debug)]
pub struct ObservedVersion {
    /// The fingerprint in its description, or the desired one if the content is the same; `None` when the controller did
    /// not create it.
    pub fingerprint: Option<Fingerprint>,
    /// Its content; `None` when only the hash in the status is known.
    pub data: Option<TemplateData>,
    /// What is read back from the user data, once however many instances run the version.
    node_settings: OnceLock<NodeSettings>,
}

impl ObservedVersion {
    /// A version as it was read.
    pub fn new(fingerprint: Option<Fingerprint>, data: Option<TemplateData>) -> Self {
        Self { fingerprint, data, node_settings: OnceLock::new() }
    }

    /// The labels and taints of its nodes; `None` when its content was not read or is not the controller's.
    pub(super) fn node_settings(&self) -> Option<&NodeSettings> {
        let (data, print) = (self.data.as_ref()?, self.fingerprint.as_ref()?);
        Some(self.node_settings.get_or_init(|| NodeSettings::decode(data, print)))
    }
}

/// The controller's join entries for roles that the group used before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreviousRoles {
    /// ARNs of the roles whose entries in aws-auth stay recorded.
    pub recorded_auth_entries: Vec<String>,
    /// ARNs of the roles whose access entries stay recorded.
    pub recorded_access_entries: Vec<String>,
    /// Entries that another client deleted from aws-auth, of roles that the group still launches or runs with.
    pub missing_auth_entries: Vec<AuthEntry>,
    /// Access entries that another client deleted, of roles that the group still launches or runs with.
    pub missing_access_entries: Vec<NewAccessEntry>,
    /// Entries in aws-auth that no group needs.
    pub unused_auth_entries: Vec<AuthEntry>,
    /// Access entries that no group needs.
    pub unused_access_entries: Vec<AccessEntry>,
    /// Entries that no group needs, and that stay because others use the role. They are no longer recorded.
    pub kept: Vec<KeptEntry>,
    /// When a user exchanged the role in the instance profile of running nodes, while they may have credentials of a previous
    /// role.
    pub exchanged_at: Option<Timestamp>,
}

/// A role that the controller created for a group whose spec names another role now. Nothing runs with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnusedRole {
    /// The role; `None` when it does not exist or does not provably belong to the group.
    pub role: Option<Role>,
    /// Its instance profile, in the same way.
    pub profile: Option<InstanceProfile>,
    /// ARNs of the role's managed policies.
    pub attached_policies: Vec<String>,
    /// Names of its inline policies.
    pub inline_policies: Vec<String>,
    /// Evidence of its use in another region.
    pub other_region: Option<OtherRegion>,
    /// Names of the instance profiles of others that hold the role.
    pub other_profiles: Vec<String>,
    /// The role's access entry, also one that another owner created, if the role is not kept.
    pub access_entry: Option<AccessEntry>,
}

/// A launch that failed since the rotation took a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLaunch {
    /// The message of Auto Scaling, or why it is not known.
    pub message: String,
    /// When the next node may be taken, if nothing was launched until then.
    pub retry_at: Timestamp,
}

/// Who launches from a launch template besides the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateUser {
    /// The scaling group of this name, which is not the group's.
    ScalingGroup(String),
    /// AWS did not return the users.
    Unknown,
}

/// Observed state of one group.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// The scaling group; `None` when it does not exist.
    pub scaling_group: Option<ScalingGroup>,
    /// The launch template; `None` when it does not exist.
    pub template: Option<LaunchTemplate>,
    /// The launch template version with which AWS refused the scaling group last.
    pub rejected_pin: Option<TemplatePin>,
    /// An unused template from an attempt with names that belong to another group.
    pub orphaned_template: Option<LaunchTemplate>,
    /// Who else launches from templates, by template ID, so that nothing of these is deleted. It is read once a plan deletes
    /// something of a template.
    pub template_users: BTreeMap<String, TemplateUser>,
    /// The content of the launch configuration of the group or of its last instances; `None` when it was not read.
    pub launch_configuration: Option<TemplateData>,
    /// Versions by number: those in use, or all when the desired content changed.
    pub versions: BTreeMap<i64, ObservedVersion>,
    /// The instance profile of the derived name; without tags where the scaling group itself proves its owner.
    pub instance_profile: Option<InstanceProfile>,
    /// The role of the derived name with its tags; `None` also when it was not read.
    pub role: Option<Role>,
    /// The desired and recorded policies that are attached to the controller's own role.
    pub attached_policies: Vec<String>,
    /// Lifecycle hooks; `None` when they were not read.
    pub lifecycle_hooks: Option<Vec<LifecycleHook>>,
    /// The policies that the controller attaches, on a role of the group's own that the spec no longer names, if
    /// nothing is recorded: a user removed the record.
    pub unrecorded_policies: Vec<String>,
    /// Recorded attributes that are no longer desired, and that AWS does not show, but may show soon; each with its kind in
    /// front.
    pub unseen_names: BTreeSet<String>,
    /// The instances of the warm pool; `None` when they were not read.
    pub warm_instances: Option<Vec<WarmInstance>>,
    /// How long no warm instance could be replaced, because others are still launching or terminating.
    pub warm_pool_wait: SignedDuration,
    /// Whether an instance refresh is running.
    pub instance_refresh_active: bool,
    /// The latest scaling activities, while instances are missing.
    pub activities: Vec<ScalingActivity>,
    /// Why nothing was launched since the rotation took a node.
    pub failed_launch: Option<FailedLaunch>,
    /// Instances of the desired version that left the group while their nodes were not Ready, and that the status does
    /// not name yet.
    pub failed_replacements: Vec<String>,
    /// Instances that left without the controller, with the cause.
    pub lost_instances: Vec<LostInstance>,
    /// Whether an instance left a moment ago, and AWS has not reported the cause.
    pub is_cause_of_loss_expected: bool,
    /// How long fewer instances than desired have been running.
    pub shortage_duration: SignedDuration,
    /// Whether AWS denied tags of the adoption less than a resync period ago.
    pub tag_retry_pending: bool,
    /// Launch times by instance id; read once `rotate-at` has passed.
    pub launch_times: BTreeMap<String, Timestamp>,
    /// Subnets by instance id; read while subnets leave the group.
    pub instance_subnets: BTreeMap<String, String>,
    /// The role's entry in aws-auth and its access entry.
    pub join: ObservedEntries,
    /// The join entries of roles that the group used before.
    pub previous_roles: PreviousRoles,
    /// The role that the controller created, once the spec names another one and nothing runs with it.
    pub unused_role: Option<UnusedRole>,
    /// Nodes by instance id.
    pub nodes: BTreeMap<String, NodeView>,
    /// Nodes that the API server no longer has, by the id of their instance.
    pub lost_nodes: BTreeMap<String, LostNode>,
    /// The readiness of all nodes of the cluster.
    pub cluster_health: ClusterHealth,
    /// The pods on the nodes with a disruption record of the controller.
    pub drains: Drains,
    /// The resources of the crd strategy; `None` when they were not read.
    pub strategy_state: Option<StrategyState>,
}

/// The observed resources of the strategy `crd`.
#[derive(Clone, Debug)]
pub enum StrategyState {
    /// The template, or the resource that it renders to, is invalid.
    Refused(SpecError),
    /// The API server does not serve the kind.
    Missing(RenderedResource),
    /// A permission is missing; the message of the API server.
    Forbidden(String),
    /// The resources that exist.
    Seen {
        /// The resource that would be submitted.
        request: RenderedResource,
        /// Its kind as the API server serves it.
        kind: ResourceKind,
        /// The resource of that name, or without it those of this scaling group, and the unfinished resource that was
        /// submitted last, if it has another kind, namespace or name.
        resources: Vec<StrategyResource>,
    },
    /// The spec names another strategy now: the resource that was submitted last, while it is active.
    Left(Option<StrategyResource>),
}

/// The version number that a pin refers to now; `$Latest` and `$Default` need the template.
pub(crate) fn version_number(pin: &TemplatePin, template: Option<&LaunchTemplate>) -> Option<i64> {
    pin.version_number().or_else(|| {
        let template = template.filter(|t| t.id == pin.id)?;
        Some(if pin.version == "$Default" { template.default_version } else { template.latest_version })
    })
}
