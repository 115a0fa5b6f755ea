//! What makes nodes. Each provisioner has a folder with the same rooms:
//! `wanted` (the merged spec, parsed once), `observe`, `resolve`, `state`, `input`,
//! `plan` (beside it `create`, `record`, `adopt`, `rotate` and `join`), `delete`,
//! `step` (what only it does, and how it is told) and `apply`. The corridor knows
//! them by [`Provisioner`], plans by `registry`'s steps: one more is a folder, a
//! kind, and a line in `registry`.

pub mod dispatch;
pub mod eks;
pub mod fargate;
pub mod join;
pub mod nodegroup;
pub mod observe;
pub mod plan_input;
pub mod snapshot;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::api::spec_error;
use crate::api::spec_error::{Problem, sentence};
pub use crate::api::{GroupId, identity};
use crate::api::{InstanceGroupSpec, InstanceGroupStatus, ScalingConfigurationKind};
use crate::auth::JoinAuth;
use crate::boundaries::Policy;
use crate::index::spot::Recommendations;
use crate::plan::{Draft, ObjectStep, Outcome, Plan, Reason, Told};
use crate::provisioner::observe::{Observed, Observer};
use crate::settings::Timing;
pub use plan_input::Given;
pub use snapshot::{Foreseen, Handback, Leaving, Seen};

/// What this process was started with, as far as a plan depends on it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long things take.
    pub timing: Timing,
    /// `--resync-period`.
    pub resync: Duration,
    /// `--config-retention`.
    pub retention: usize,
    /// `--cluster-name`.
    pub cluster_name: Option<String>,
    /// `--default-scaling-configuration`: for groups that do not say it.
    pub default_kind: ScalingConfigurationKind,
    /// `--disable-windows-cluster-ca-injection`: Windows nodes ask EKS for the cluster's endpoint and certificate.
    pub windows_asks_for_endpoint: bool,
    /// `--join-auth`.
    pub join_auth: JoinAuth,
    /// `--config-namespace`: resources of the crd strategy may go there.
    pub config_namespace: String,
}

/// A group that is to live, on its way to a plan.
pub struct Order<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// Nobody has looked at it yet: it has no status at all.
    pub new: bool,
    /// Its annotations after the merge.
    pub annotations: &'a BTreeMap<String, String>,
    /// Its spec after the merge; what the policy forbids is refused by now.
    pub spec: InstanceGroupSpec,
    /// What its status remembers.
    pub status: &'a InstanceGroupStatus,
    /// Who holds the brake, in words.
    pub lock: Option<&'a str>,
    /// Recommendations about spot instances.
    pub recommendations: &'a Recommendations,
    /// The admin's policy, when there is one.
    pub policy: Option<&'a Policy>,
    /// What this process was started with.
    pub settings: &'a Settings,
}

impl<'a> Order<'a> {
    /// What a plan for it depends on, beside what is wanted and what was seen.
    pub fn given(&self, now: Timestamp) -> Given<'a> {
        Given { status: self.status, lock: self.lock, settings: self.settings, now }
    }
}

/// A group that is to go.
pub struct Farewell<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// Its spec after the merge, where there still is a valid one; a deletion also comes through without.
    pub spec: Option<InstanceGroupSpec>,
    /// What the admin's policy forbids of that spec.
    pub forbidden: Vec<Problem>,
    /// What its status remembers.
    pub status: &'a InstanceGroupStatus,
    /// What this process was started with.
    pub settings: &'a Settings,
}

/// What comes of an order.
pub enum Verdict {
    /// A plan, and what it was made from.
    Planned(Box<Plan>, Box<dyn Seen>),
    /// The merged spec cannot be worked with.
    Refused(Vec<Problem>),
}

/// One way of making nodes.
#[async_trait]
pub trait Provisioner: Sync {
    /// Parses, looks up, resolves, observes and plans. An error means that somebody did not answer.
    async fn walk(&self, o: &Observer<'_>, order: Order<'_>) -> Observed<Verdict>;
    /// Plans one pass of taking a group down.
    async fn deletion(&self, o: &Observer<'_>, farewell: Farewell<'_>) -> Observed<Plan>;
    /// Dotted path of the field that names the cluster.
    fn cluster_field(&self) -> &'static str;
    /// The cluster in which the status has something on record for a group, made or about to be.
    fn cluster_on_record(&self, id: &GroupId, status: &InstanceGroupStatus) -> Option<String>;
}

/// A cluster other than the one that `--cluster-name` pins.
pub fn elsewhere(settings: &Settings, path: &str, cluster: &str) -> Option<Problem> {
    let pinned = settings.cluster_name.as_ref().filter(|name| *name != cluster)?;
    let rule = format!("is not this cluster ({pinned})");
    Some(Problem::invalid(path, cluster, rule, "correct it, or remove it").because(Reason::PolicyViolation))
}

impl Farewell<'_> {
    /// Why the spec would not have been accepted; `path` is the field that names the cluster.
    fn refused(&self, path: &str, cluster: &str) -> Vec<Problem> {
        elsewhere(self.settings, path, cluster).into_iter().chain(self.forbidden.iter().cloned()).collect()
    }
}

/// The deletion of a group that nothing is on record of and whose spec is refused: what that spec names was never made
/// for it, whatever it is called and tagged.
fn never_accepted(id: &GroupId, problems: &[Problem]) -> Plan {
    let mut draft = Draft::default();
    if id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
    let message = format!("nothing is deleted in AWS, because nothing was made for this group: {}", sentence(problems));
    draft.events.push(Told { warning: true, reason: spec_error::reason(problems).to_string(), message });
    draft.decide(Outcome::Deleted);
    draft.finish(id, None)
}
