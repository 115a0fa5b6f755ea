//! Provisioners create and manage nodes: `eks` (scaling groups), `eks-managed` and `eks-fargate`.
//!
//! Each has a folder with the same files. `desired` parses the merged spec, `observe` reads AWS and Kubernetes, and
//! `resolve` combines both. `observed` and `input` hold the data. `plan` (with `create`, `record` and `adopt`) and
//! `delete` make the plan. `simulate` projects later passes, and `apply` runs the provisioner's own steps. The
//! controller uses them only through [`Provisioner`]; [`dispatch::for_kind`] maps `spec.provisioner` to one.

pub(crate) mod dispatch;
pub mod eks;
pub(crate) mod failed_replacements;
pub mod fargate;
pub(crate) mod join;
pub(crate) mod join_times;
mod label_rules;
pub(crate) mod launch_failures;
pub(crate) mod limits;
pub mod name_form;
pub mod nodegroup;
mod nothing_to_delete;
pub(crate) mod observe;
pub(crate) mod plan_input;
pub(crate) mod recreated;
pub mod rejected_fields;
mod request;
pub(crate) mod retained;
pub mod role_region;
pub mod role_users;
pub(crate) mod snapshot;
pub(crate) mod spec_check;
pub(crate) mod taints;
pub(crate) mod unseen_names;

use async_trait::async_trait;

use crate::api::spec_error::SpecError;
pub use crate::api::{GroupId, group_id};
use crate::api::{InstanceGroupSpec, InstanceGroupStatus};
use crate::boundaries::MergedAnnotations;
use crate::plan::Plan;
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::rotation::rolling_update::RollingUpdateDecision;
pub(crate) use nothing_to_delete::plan_nothing_to_delete;
use nothing_to_delete::plan_rejected_spec;
pub use plan_input::PlanContext;
pub(crate) use request::{DeleteRequest, PlanRequest, PlanResult, StopRequest, cluster_mismatch};
pub use snapshot::{
    ExtraNodes, NodeInPlaceChange, NodeReplacement, PlanSnapshot, Projection, Release, ReplacementLimits,
};

/// A provisioner: one way to create and manage the nodes of a group.
#[async_trait]
pub(crate) trait Provisioner: Sync {
    /// Plans one pass for a group that is not being deleted: parse, observe, resolve, plan.
    ///
    /// # Errors
    /// A read from AWS or Kubernetes failed.
    async fn plan(&self, o: &Observer<'_>, request: PlanRequest<'_>) -> ObserveResult<PlanResult>;
    /// Plans one pass of a group's deletion.
    ///
    /// # Errors
    /// A read from AWS or Kubernetes failed.
    async fn plan_deletion(&self, o: &Observer<'_>, request: DeleteRequest<'_>) -> ObserveResult<Plan>;
    /// Stops the rotation of a group that cannot be planned, for example because its spec became invalid. Nodes are
    /// uncordoned, and instances in standby, which have a replacement already, are removed. Needs no valid spec.
    ///
    /// # Errors
    /// A read from AWS or Kubernetes failed.
    async fn stop_rotation(&self, o: &Observer<'_>, request: StopRequest<'_>) -> ObserveResult<RollingUpdateDecision>;
    /// All errors of fields that can be found without a read.
    fn field_errors(&self, id: &GroupId, annotations: &MergedAnnotations, spec: &InstanceGroupSpec) -> Vec<SpecError>;
    /// Dotted path of the field that names the cluster.
    fn cluster_field(&self) -> &'static str;
    /// The cluster of the resources that the status records for a group, created or about to be; `None` without any.
    fn recorded_cluster(&self, id: &GroupId, status: &InstanceGroupStatus) -> Option<String>;
    /// A resource with nodes or pods that AWS shows for a group by its tags, whatever the status records; `None` without any.
    ///
    /// # Errors
    /// A read from AWS failed.
    async fn tagged_resource(&self, o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>>;
}
