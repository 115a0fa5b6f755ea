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

use async_trait::async_trait;
use jiff::Timestamp;

use crate::api::spec_error;
use crate::api::spec_error::{SpecError, join_messages};
pub use crate::api::{GroupId, group_id};
use crate::api::{InstanceGroupSpec, InstanceGroupStatus};
use crate::boundaries::Policy;
use crate::index::spot::Recommendations;
use crate::plan::{Event, ObjectStep, Outcome, Plan, PlanBuilder, Reason};
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::settings::Settings;
pub use plan_input::PlanContext;
pub use snapshot::{NodeReplacement, PlanSnapshot, Projection, Release};

/// A group that is to live, on its way to a plan.
pub struct PlanRequest<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// Nobody has looked at it yet: it has no status at all.
    pub is_new: bool,
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

impl<'a> PlanRequest<'a> {
    /// What a plan for it depends on, beside what is wanted and what was seen.
    pub fn plan_context(&self, now: Timestamp) -> PlanContext<'a> {
        PlanContext { status: self.status, lock: self.lock, settings: self.settings, now }
    }
}

/// A group that is to go.
pub struct DeleteRequest<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// Its spec after the merge, where there still is a valid one; a deletion also comes through without.
    pub spec: Option<InstanceGroupSpec>,
    /// What the admin's policy forbids of that spec.
    pub forbidden: Vec<SpecError>,
    /// What its status remembers.
    pub status: &'a InstanceGroupStatus,
    /// What this process was started with.
    pub settings: &'a Settings,
}

/// What comes of an order.
pub enum PlanResult {
    /// A plan, and what it was made from.
    Planned(Box<Plan>, Box<dyn PlanSnapshot>),
    /// The merged spec cannot be worked with.
    Refused(Vec<SpecError>),
}

/// One way of making nodes.
#[async_trait]
pub trait Provisioner: Sync {
    /// Parses, looks up, resolves, observes and plans. An error means that somebody did not answer.
    async fn plan(&self, o: &Observer<'_>, order: PlanRequest<'_>) -> ObserveResult<PlanResult>;
    /// Plans one pass of taking a group down.
    async fn plan_deletion(&self, o: &Observer<'_>, farewell: DeleteRequest<'_>) -> ObserveResult<Plan>;
    /// Dotted path of the field that names the cluster.
    fn cluster_field(&self) -> &'static str;
    /// The cluster in which the status has something on record for a group, made or about to be.
    fn recorded_cluster(&self, id: &GroupId, status: &InstanceGroupStatus) -> Option<String>;
}

/// A cluster other than the one that `--cluster-name` pins.
pub fn cluster_mismatch(settings: &Settings, path: &str, cluster: &str) -> Option<SpecError> {
    let pinned = settings.cluster_name.as_ref().filter(|name| *name != cluster)?;
    let rule = format!("is not this cluster ({pinned})");
    Some(SpecError::invalid(path, cluster, rule, "correct it, or remove it").with_reason(Reason::PolicyViolation))
}

impl DeleteRequest<'_> {
    /// Why the spec would not have been accepted; `path` is the field that names the cluster.
    fn spec_errors(&self, path: &str, cluster: &str) -> Vec<SpecError> {
        cluster_mismatch(self.settings, path, cluster).into_iter().chain(self.forbidden.iter().cloned()).collect()
    }
}

/// The deletion of a group that nothing is on record of and whose spec is refused: what that spec names was never made
/// for it, whatever it is called and tagged.
fn plan_rejected_spec(id: &GroupId, problems: &[SpecError]) -> Plan {
    let mut draft = PlanBuilder::default();
    if id.has_finalizer {
        draft.push(ObjectStep::RemoveFinalizer);
    }
    let message =
        format!("nothing is deleted in AWS, because nothing was made for this group: {}", join_messages(problems));
    draft.events.push(Event { warning: true, reason: spec_error::first_reason(problems).to_string(), message });
    draft.set_outcome_once(Outcome::Deleted);
    draft.build(id, None)
}
