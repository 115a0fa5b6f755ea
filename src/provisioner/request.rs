//! What a provisioner is asked for, and what it returns.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::plan_input::PlanContext;
use super::snapshot::PlanSnapshot;
use crate::api::spec_error::{self, SpecError, join_messages};
use crate::api::{GroupId, InstanceGroupSpec, InstanceGroupStatus};
use crate::boundaries::{MergedAnnotations, Policy};
use crate::index::spot::Recommendations;
use crate::plan::{Event, ObjectStep, Outcome, Plan, PlanBuilder, Reason, Write};
use crate::rotation::crd::TemplateAuthor;
use crate::settings::Settings;

/// A group to plan that is not being deleted.
pub(crate) struct PlanRequest<'a> {
    /// The group.
    pub id: &'a GroupId,
    /// Whether no controller has reconciled the group yet: it has no status at all.
    pub is_new: bool,
    /// Merged annotations.
    pub annotations: &'a MergedAnnotations,
    /// Merged spec. The admin's policy has already been checked.
    pub spec: InstanceGroupSpec,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Recommendations about spot instances.
    pub recommendations: &'a Recommendations,
    /// The admin's policy; `None` without one.
    pub policy: Option<&'a Policy>,
    /// Who wrote the template of the strategy `crd`.
    pub template_author: TemplateAuthor,
    /// Settings of this process.
    pub settings: &'a Settings,
    /// Writes that this process repeated without effect.
    pub ineffective_writes: &'a BTreeSet<Write>,
}

impl<'a> PlanRequest<'a> {
    /// What the plan depends on besides the desired and the observed state.
    pub(crate) fn plan_context(&self, now: Timestamp) -> PlanContext<'a> {
        PlanContext {
            status: self.status,
            lock: self.lock,
            settings: self.settings,
            ineffective_writes: self.ineffective_writes,
            now,
        }
    }
}

/// A group to plan that is being deleted.
pub(crate) struct DeleteRequest<'a> {
    /// The group.
    pub id: &'a GroupId,
    /// Merged annotations; `None` when the group cannot be merged.
    pub annotations: Option<&'a MergedAnnotations>,
    /// Merged spec; `None` when it is invalid. A group can be deleted without it.
    pub spec: Option<InstanceGroupSpec>,
    /// Violations of the admin's policy in that spec.
    pub forbidden: Vec<SpecError>,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Settings of this process.
    pub settings: &'a Settings,
}

/// A group whose rotation stops, because the group cannot be planned.
pub(crate) struct StopRequest<'a> {
    /// The group.
    pub id: &'a GroupId,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Settings of this process.
    pub settings: &'a Settings,
}

impl DeleteRequest<'_> {
    /// Why the spec would be rejected; `path` is the field that names the cluster.
    pub(super) fn spec_errors(&self, path: &str, cluster: &str) -> Vec<SpecError> {
        cluster_mismatch(self.settings, path, cluster).into_iter().chain(self.forbidden.iter().cloned()).collect()
    }
}

/// Result of planning a group.
pub(crate) enum PlanResult {
    /// The plan, and the snapshot that it was made from.
    Planned(Box<Plan>, Box<dyn PlanSnapshot>),
    /// The merged spec is invalid.
    Rejected(Vec<SpecError>),
}

/// The error for a cluster other than the one that `--cluster-name` sets.
pub(crate) fn cluster_mismatch(settings: &Settings, path: &str, cluster: &str) -> Option<SpecError> {
    let pinned = settings.cluster_name.as_ref().filter(|name| *name != cluster)?;
    let rule = format!("is not this cluster ({pinned})");
    Some(SpecError::invalid(path, cluster, rule, "correct it, or remove it").with_reason(Reason::PolicyViolation))
}

/// The error for a subnet or security group that was not found while EKS does not tell the VPC of the cluster. An id, which
/// begins with `prefix`, is looked up in all VPCs; a Name tag cannot be.
pub(crate) fn vpc_unknown(path: &str, name: &str, prefix: &str) -> SpecError {
    let problem = match name.starts_with(prefix) {
        true => SpecError::invalid(path, name, "does not exist in this account and region", "correct it"),
        false => {
            let rule = "cannot be looked up by its Name tag, because EKS did not return the cluster's VPC";
            SpecError::invalid(path, name, rule, "use an id, or check resourcesVpcConfig of the cluster")
        }
    };
    problem.with_reason(Reason::NotFound)
}

/// The deletion of a group whose status records no resources and whose spec is rejected. Resources with the names and
/// tags of such a group were not created for it, so nothing is deleted in AWS.
pub(super) fn plan_rejected_spec(id: &GroupId, errors: &[SpecError]) -> Plan {
    let mut builder = PlanBuilder::default();
    if id.has_finalizer {
        builder.push(ObjectStep::RemoveFinalizer);
    }
    let message =
        format!("nothing is deleted in AWS, because nothing was created for this group: {}", join_messages(errors));
    builder.events.push(Event::warning(spec_error::first_reason(errors).to_string(), message));
    builder.set_outcome_once(Outcome::Deleted);
    builder.build(id, None)
}
