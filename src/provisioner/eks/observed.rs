//! What there is: the group's own AWS resources, its nodes, its way to join.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::launch_template::fingerprint::Fingerprint;
use crate::api::spec_error::SpecError;
use crate::auth::access_entries::ObservedEntries;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntry, InstanceProfile, LaunchTemplate, LifecycleHook, Role, ScalingActivity, ScalingGroup, TemplateData,
    TemplatePin, WarmInstance,
};
use crate::rotation::crd::decide::StrategyResource;
use crate::rotation::crd::resource::{RenderedResource, ResourceKind};
use crate::rotation::{ClusterHealth, Drains, NodeView};

/// A launch template version, as far as it could be read.
#[derive(Clone, Debug)]
pub struct ObservedVersion {
    /// What it is known by; `None` when the original made it.
    pub fingerprint: Option<Fingerprint>,
    /// What it holds; `None` when only the status remembers it.
    pub data: Option<TemplateData>,
}

/// What becomes of the entries that are recorded as the controller's for former roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreviousRoles {
    /// Roles whose entry in aws-auth stays on record.
    pub recorded_auth_entries: Vec<String>,
    /// The same of access entries.
    pub recorded_access_entries: Vec<String>,
    /// Entries in aws-auth that nobody needs.
    pub unused_auth_entries: Vec<AuthEntry>,
    /// The same of access entries.
    pub unused_access_entries: Vec<AccessEntry>,
}

/// Observed state of one group.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// The scaling group; `None` when AWS said that there is none.
    pub scaling_group: Option<ScalingGroup>,
    /// The launch template.
    pub template: Option<LaunchTemplate>,
    /// A template that was made under a name which turned out to be another group's; nothing refers to it.
    pub orphaned_template: Option<LaunchTemplate>,
    /// What the launch configuration of the group, or of its last instances, holds, when something differs from it.
    pub launch_configuration: Option<TemplateData>,
    /// Versions by number: those that are referred to, or all when something changed.
    pub versions: BTreeMap<i64, ObservedVersion>,
    /// The instance profile of the derived name; without its tags where the group itself proves that it is ours.
    pub instance_profile: Option<InstanceProfile>,
    /// The role of the derived name, tags included; `None` as well when nobody had a reason to look.
    pub role: Option<Role>,
    /// Which of the wanted and recorded policies are attached to our own role.
    pub attached_policies: Vec<String>,
    /// Lifecycle hooks; `None` when nobody had a reason to look.
    pub lifecycle_hooks: Option<Vec<LifecycleHook>>,
    /// The instances of the warm pool; `None` when nobody had a reason to look.
    pub warm_instances: Option<Vec<WarmInstance>>,
    /// How long nothing of the warm pool could be replaced, because others of it are still coming or going.
    pub warm_pool_wait: SignedDuration,
    /// An instance refresh runs.
    pub instance_refresh_active: bool,
    /// The newest activities, when instances do not come.
    pub activities: Vec<ScalingActivity>,
    /// How long fewer instances than desired have been running.
    pub shortage_duration: SignedDuration,
    /// AWS refused to tag what was taken over, less than a resync period ago.
    pub tag_retry_pending: bool,
    /// Launch times, once `rotate-at` has come.
    pub launch_times: BTreeMap<String, Timestamp>,
    /// The role's entry in aws-auth and its access entry.
    pub join: ObservedEntries,
    /// What roles that were in use before have left.
    pub previous_roles: PreviousRoles,
    /// Nodes by instance id.
    pub nodes: BTreeMap<String, NodeView>,
    /// All nodes of the cluster.
    pub cluster_health: ClusterHealth,
    /// What is on the nodes that carry our record.
    pub drains: Drains,
    /// The resources of the crd strategy; `None` when nobody had a reason to look.
    pub strategy_state: Option<StrategyState>,
}

/// What there is of a strategy's resources.
#[derive(Clone, Debug)]
pub enum StrategyState {
    /// The template, or what it renders to, cannot be worked with.
    Refused(SpecError),
    /// The API server does not serve the kind.
    Missing(RenderedResource),
    /// A right is missing; the API server's words.
    Forbidden(String),
    /// What is there.
    Seen {
        /// What would be submitted.
        request: RenderedResource,
        /// Its kind as it is served.
        kind: ResourceKind,
        /// The one of that name, or without it those of this scaling group; and one that was submitted elsewhere before.
        resources: Vec<StrategyResource>,
    },
    /// Another strategy is wanted now: the one that was submitted last, while it is at work.
    Left(Option<StrategyResource>),
}

/// The number that a pin stands for at this moment.
pub fn version_number(pin: &TemplatePin, template: Option<&LaunchTemplate>) -> Option<i64> {
    pin.version_number().or_else(|| {
        let template = template.filter(|t| t.id == pin.id)?;
        Some(if pin.version == "$Default" { template.default_version } else { template.latest_version })
    })
}
