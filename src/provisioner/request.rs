//! The input and the results of a provisioner's planning methods.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::plan_input::PlanContext;
use super::rejected_fields::{Part, RejectedFields, ValueSources};
use super::snapshot::PlanSnapshot;
use crate::api::names::annotation;
use crate::api::spec_error::SpecError;
use crate::api::{GroupId, InstanceGroupSpec, InstanceGroupStatus};
use crate::aws::{InstanceState, NetworkObject};
use crate::boundaries::{MergedAnnotations, Policy};
use crate::index::spot::Recommendations;
use crate::plan::{Allowance, PersistentFailure, Plan, StalledReason, Write, blocked_plan};
use crate::rotation::NodeInstance;
use crate::rotation::crd::TemplateAuthor;
use crate::settings::Settings;
use crate::util::counted::counted;
use crate::util::duration;
use crate::util::similar::closest_match;

/// A group to plan that is not being deleted.
pub(crate) struct PlanRequest<'a> {
    /// Identity of the group to plan.
    pub id: &'a GroupId,
    /// Whether no controller has reconciled the group yet: it has no status at all.
    pub is_new: bool,
    /// The group's annotations after the merge with the boundaries.
    pub annotations: &'a MergedAnnotations,
    /// The spec after the merge with the boundaries; it may still contain errors.
    pub spec: InstanceGroupSpec,
    /// Fields of the spec that violate a rule of the schema or the admin's policy.
    pub errors: Vec<SpecError>,
    /// The quotas of the namespace that a growth of the group would exceed.
    pub exceeded_quotas: Vec<SpecError>,
    /// Whose the values of the merged spec are.
    pub sources: &'a ValueSources,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Why no further node may be replaced; replacements in progress are finished. `None` when nodes may be replaced.
    pub rollout_block: Option<&'a str>,
    /// How many further nodes may be replaced; `None` for any number.
    pub allowance: Option<&'a Allowance>,
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
    /// What AWS or Kubernetes has refused for long.
    pub persistent_failure: &'a PersistentFailure,
    /// Whether a user requested this reconcile: what would be retried later is retried now.
    pub is_requested: bool,
}

impl<'a> PlanRequest<'a> {
    /// The fields that cannot be used: those of the request, and those that the parser found. `parts` names what depends
    /// on a field.
    ///
    /// # Errors
    /// All errors and exceeded quotas, if everything depends on one of the fields.
    pub(crate) fn rejected_fields(
        &self,
        parsed: Vec<SpecError>,
        parts: impl Fn(&str) -> Option<&'static [Part]>,
    ) -> Result<RejectedFields, Vec<SpecError>> {
        let is_new = |error: &SpecError| self.errors.iter().all(|known| known.path != error.path);
        let errors = self.errors.iter().cloned().chain(parsed.into_iter().filter(is_new)).collect();
        let classified = RejectedFields::classify(errors, self.sources, &parts);
        let mut broken = classified.map_err(|errors| [errors, self.exceeded_quotas.clone()].concat())?;
        for error in &self.exceeded_quotas {
            // Another instance type requests more than the group has: it keeps the present one as well.
            let kept: &'static [Part] = match parts(&error.path) {
                Some([Part::Launch]) => &[Part::Growth, Part::Launch],
                Some([Part::Immutable]) => &[Part::Growth, Part::Immutable],
                Some(_) | None => &[Part::Growth],
            };
            broken.push(kept, error.clone());
        }
        Ok(broken)
    }

    /// What the plan depends on besides the desired and the observed state.
    pub(crate) fn plan_context(&self, now: Timestamp) -> PlanContext<'a> {
        PlanContext {
            status: self.status,
            lock: self.lock,
            rollout_block: self.rollout_block,
            allowance: self.allowance,
            settings: self.settings,
            ineffective_writes: self.ineffective_writes,
            persistent_failure: self.persistent_failure,
            is_requested: self.is_requested,
            now,
        }
    }
}

/// A group to plan that is being deleted.
pub(crate) struct DeleteRequest<'a> {
    /// Identity of the group that is being deleted.
    pub id: &'a GroupId,
    /// Merged annotations; `None` when the group cannot be merged.
    pub annotations: Option<&'a MergedAnnotations>,
    /// Merged spec; `None` when it is invalid. A group can be deleted without it.
    pub spec: Option<InstanceGroupSpec>,
    /// Violations of the admin's policy in that spec.
    pub forbidden: Vec<SpecError>,
    /// What protects the group from deletion; `None` without protection, or when the deletion is confirmed.
    pub protected_by: Option<String>,
    /// What is wrong with the annotation that is to confirm the deletion.
    pub wrong_confirmation: Option<String>,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Settings of this process.
    pub settings: &'a Settings,
}

/// A group whose rotation stops, because the group cannot be planned.
pub(crate) struct StopRequest<'a> {
    /// Identity of the group whose rotation stops.
    pub id: &'a GroupId,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// Which object carries `lock-upgrades`, for messages; `None` without a lock.
    pub lock: Option<&'a str>,
    /// Settings of this process.
    pub settings: &'a Settings,
}

impl DeleteRequest<'_> {
    /// `drainTimeout` of the group; `None` when it is not set, or when the spec is invalid.
    pub(super) fn drain_timeout(&self) -> Option<SignedDuration> {
        let rolling = self.spec.as_ref()?.strategy.as_ref()?.rolling_update.as_ref()?;
        duration::parse(rolling.drain_timeout.as_deref()?)
    }

    /// The plan of a protected group with nodes: the deletion waits until it is confirmed. An instance in service counts
    /// unless its node is known not to be Ready, because the cache of nodes may lag.
    pub(super) fn protected_plan(&self, members: &[NodeInstance]) -> Option<Plan> {
        let serves = |m: &&NodeInstance| {
            m.instance.state == InstanceState::InService && m.node.as_ref().is_none_or(|node| node.ready)
        };
        self.protected_from(members.iter().filter(serves).count(), "node")
    }

    /// See [`DeleteRequest::protected_plan`]; `count` things of one kind still serve.
    pub(super) fn protected_from(&self, count: usize, thing: &str) -> Option<Plan> {
        let by = self.protected_by.as_ref().filter(|_| count > 0)?;
        let GroupId { namespace, name, .. } = self.id;
        let serve = if count == 1 { "serves" } else { "serve" };
        let (wrong, flag) = match &self.wrong_confirmation {
            Some(wrong) => (format!("; {wrong}"), " --overwrite"),
            None => (String::new(), ""),
        };
        let message = format!(
            "{by} protects this group, and {} {serve}{wrong}; to delete it, run: kubectl annotate instancegroup {name} --namespace {namespace} {}={name}{flag}",
            counted(count, thing),
            annotation::CONFIRM_DELETION
        );
        Some(blocked_plan(self.id, StalledReason::DeletionProtected, message))
    }

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
    Some(
        SpecError::invalid(path, cluster, rule, "correct it, or remove it").with_reason(StalledReason::PolicyViolation),
    )
}

/// Where a subnet or a security group that a spec names was searched for.
pub(crate) struct NetworkLookup<'a> {
    /// The cluster's VPC; `None` if EKS did not return it.
    pub vpc: Option<&'a str>,
    /// What the VPC has.
    pub known: &'a [NetworkObject],
    /// What the spec names by id and other VPCs have.
    pub in_other_vpcs: &'a [NetworkObject],
}

impl NetworkLookup<'_> {
    /// The error for a name that was not found. One that begins with `prefix` is an id, which is looked up in all VPCs; a
    /// Name tag cannot be.
    pub(crate) fn not_found(&self, path: &str, name: &str, prefix: &str) -> SpecError {
        let other = self.in_other_vpcs.iter().find(|object| object.id == name && !object.vpc.is_empty());
        let problem = match (self.vpc, other) {
            (None, _) if name.starts_with(prefix) => {
                SpecError::invalid(path, name, "does not exist in this account and region", "correct it")
            }
            (None, _) => {
                let rule = "cannot be looked up by its Name tag, because EKS did not return the cluster's VPC";
                SpecError::invalid(path, name, rule, "use an id, or check resourcesVpcConfig of the cluster")
            }
            (Some(vpc), Some(other)) => {
                let rule = format!("is in {}, but the cluster's VPC is {vpc}", other.vpc);
                SpecError::invalid(path, name, rule, format!("use one in {vpc}"))
            }
            (Some(_), None) => {
                let names = self.known.iter().filter_map(|object| object.name.as_deref());
                let near = closest_match(name, names).map(|near| format!("did you mean {near:?}?"));
                let rule = "is neither an id nor a Name tag in the cluster's VPC";
                SpecError::invalid(path, name, rule, near.as_deref().unwrap_or("correct it, or tag the resource"))
            }
        };
        problem.with_reason(StalledReason::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{InstanceGroup, group_id};
    use crate::plan::Outcome;

    fn with_request<T>(
        spec: serde_json::Value,
        protected_by: Option<&str>,
        test: impl FnOnce(&DeleteRequest) -> T,
    ) -> T {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        group.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        let settings = Settings::default();
        test(&DeleteRequest {
            id: &group_id(&group),
            annotations: None,
            spec: serde_json::from_value(spec).ok(),
            forbidden: vec![],
            protected_by: protected_by.map(str::to_owned),
            wrong_confirmation: None,
            status: &InstanceGroupStatus::default(),
            settings: &settings,
        })
    }

    fn clone<'a>(request: &DeleteRequest<'a>) -> DeleteRequest<'a> {
        DeleteRequest {
            spec: request.spec.clone(),
            forbidden: request.forbidden.clone(),
            protected_by: request.protected_by.clone(),
            wrong_confirmation: request.wrong_confirmation.clone(),
            ..*request
        }
    }

    #[test]
    fn deletion_waits_as_long_as_the_drain_timeout_of_the_group() {
        let timeout = |rolling: serde_json::Value| {
            let spec = json!({"strategy": {"type": "rollingUpdate", "rollingUpdate": rolling}});
            with_request(spec, None, |request| request.drain_timeout().map(duration::format))
        };
        assert_eq!(timeout(json!({"drainTimeout": "2h"})).as_deref(), Some("2h"));
        assert_eq!(timeout(json!({})), None);
    }

    #[test]
    fn protected_group_waits_for_a_confirmation_while_nodes_serve() {
        let outcome = |by, nodes| {
            with_request(json!({}), by, |request| request.protected_from(nodes, "node").map(|plan| plan.outcome))
        };
        let Some(Outcome::Blocked { reason: StalledReason::DeletionProtected, message, is_deleting: true }) =
            outcome(Some("the policy"), 2)
        else {
            panic!("the deletion does not wait");
        };
        assert!(message.contains("the policy") && message.contains("confirm-deletion=web"), "{message}");
        assert_eq!((outcome(Some("the policy"), 0), outcome(None, 2)), (None, None));
        let with_wrong_value = with_request(json!({}), Some("the policy"), |request| {
            let request =
                DeleteRequest { wrong_confirmation: Some("\"yes\" confirms nothing".into()), ..clone(request) };
            request.protected_from(2, "node").map(|plan| plan.outcome)
        });
        let Some(Outcome::Blocked { message, .. }) = with_wrong_value else { panic!("the deletion does not wait") };
        assert!(message.contains("\"yes\" confirms nothing") && message.ends_with("=web --overwrite"), "{message}");
    }
}
