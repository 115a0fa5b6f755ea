//! What there is: the group's own AWS resources, its nodes, its way to join.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::launch_template::fingerprint::Fingerprint;
use crate::api::spec_error::Problem;
use crate::auth::access_entries::Found;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntry, InstanceProfile, LaunchTemplate, LifecycleHook, Role, ScalingActivity, ScalingGroup, TemplateData,
    TemplatePin, WarmInstance,
};
use crate::rotation::crd::decide::Resource;
use crate::rotation::crd::resource::{Request, ResourceKind};
use crate::rotation::{Drains, Fleet, NodeView};

/// A launch template version, as far as it could be read.
#[derive(Clone, Debug)]
pub struct Version {
    /// What it is known by; `None` when the original made it.
    pub fingerprint: Option<Fingerprint>,
    /// What it holds; `None` when only the status remembers it.
    pub data: Option<TemplateData>,
}

/// What becomes of the entries that are recorded as the controller's for former roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Former {
    /// Roles whose entry in aws-auth stays on record.
    pub auth: Vec<String>,
    /// The same of access entries.
    pub access: Vec<String>,
    /// Entries in aws-auth that nobody needs.
    pub auth_gone: Vec<AuthEntry>,
    /// The same of access entries.
    pub access_gone: Vec<AccessEntry>,
}

/// Observed state of one group.
#[derive(Clone, Debug)]
pub struct State {
    /// The scaling group; `None` when AWS said that there is none.
    pub group: Option<ScalingGroup>,
    /// The launch template.
    pub template: Option<LaunchTemplate>,
    /// A template that was made under a name which turned out to be another group's; nothing refers to it.
    pub leftover: Option<LaunchTemplate>,
    /// What the launch configuration of the group, or of its last instances, holds, when something differs from it.
    pub configuration: Option<TemplateData>,
    /// Versions by number: those that are referred to, or all when something changed.
    pub versions: BTreeMap<i64, Version>,
    /// The instance profile of the derived name; without its tags where the group itself proves that it is ours.
    pub profile: Option<InstanceProfile>,
    /// The role of the derived name, tags included; `None` as well when nobody had a reason to look.
    pub role: Option<Role>,
    /// Which of the wanted and recorded policies are attached to our own role.
    pub attached: Vec<String>,
    /// Lifecycle hooks; `None` when nobody had a reason to look.
    pub hooks: Option<Vec<LifecycleHook>>,
    /// The instances of the warm pool; `None` when nobody had a reason to look.
    pub warm: Option<Vec<WarmInstance>>,
    /// How long nothing of the warm pool could be replaced, because others of it are still coming or going.
    pub pool_waits: SignedDuration,
    /// An instance refresh runs.
    pub refreshing: bool,
    /// The newest activities, when instances do not come.
    pub activities: Vec<ScalingActivity>,
    /// How long fewer instances than desired have been running.
    pub short_for: SignedDuration,
    /// AWS refused to tag what was taken over, less than a resync period ago.
    pub tagging_rests: bool,
    /// Launch times, once `rotate-at` has come.
    pub launched: BTreeMap<String, Timestamp>,
    /// The role's entry in aws-auth and its access entry.
    pub join: Found,
    /// What roles that were in use before have left.
    pub former: Former,
    /// Nodes by instance id.
    pub nodes: BTreeMap<String, NodeView>,
    /// All nodes of the cluster.
    pub fleet: Fleet,
    /// What is on the nodes that carry our record.
    pub drains: Drains,
    /// The resources of the crd strategy; `None` when nobody had a reason to look.
    pub strategy: Option<StrategyView>,
}

/// What there is of a strategy's resources.
#[derive(Clone, Debug)]
pub enum StrategyView {
    /// The template, or what it renders to, cannot be worked with.
    Refused(Problem),
    /// The API server does not serve the kind.
    Missing(Request),
    /// A right is missing; the API server's words.
    Forbidden(String),
    /// What is there.
    Seen {
        /// What would be submitted.
        request: Request,
        /// Its kind as it is served.
        kind: ResourceKind,
        /// The one of that name, or without it those of this scaling group; and one that was submitted elsewhere before.
        resources: Vec<Resource>,
    },
    /// Another strategy is wanted now: the one that was submitted last, while it is at work.
    Left(Option<Resource>),
}

/// The number that a pin stands for at this moment.
pub fn number(pin: &TemplatePin, template: Option<&LaunchTemplate>) -> Option<i64> {
    pin.number().or_else(|| {
        let template = template.filter(|t| t.id == pin.id)?;
        Some(if pin.version == "$Default" { template.default_version } else { template.latest_version })
    })
}
