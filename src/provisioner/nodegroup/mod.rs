//! The provisioner `eks-managed`: managed node groups, which EKS creates, updates and drains.

pub(crate) mod adopt;
pub(crate) mod apply;
mod attribute_names;
pub(crate) mod blue_green;
mod cluster_version;
pub(crate) mod create;
pub mod delete;
pub mod desired;
pub mod drift;
pub(crate) mod health;
pub mod input;
mod issues;
mod members;
pub(crate) mod names;
pub(crate) mod observe;
pub mod observed;
mod omitted_fields;
pub mod ownership;
pub mod plan;
pub(crate) mod record;
pub mod resolve;
pub(crate) mod retry;
mod sharing;
pub(crate) mod simulate;
#[cfg(test)]
mod tests;
pub mod unchanged_parts;
pub(crate) mod update;
mod usage;

use async_trait::async_trait;

use super::rejected_fields::{Part, RejectedFields};
use super::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, Provisioner, StopRequest, cluster_mismatch, plan_rejected_spec,
};
use crate::api::spec_error::SpecError;
use crate::api::{InstanceGroupSpec, InstanceGroupStatus};
use crate::aws::nodegroup::{NodegroupName, NodegroupStatus};
use crate::boundaries::MergedAnnotations;
use crate::ownership::ownership_tags;
use crate::plan::Plan;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, VerifiedNodes};
use crate::rotation::rolling_update::RollingUpdateDecision;
use desired::DesiredSpec;
use ownership::{Owner, UnprovenNodegroup};
use resolve::ResolvedGroup;

/// Spec field with the cluster's name.
const CLUSTER_FIELD: &str = "spec.eks-managed.configuration.clusterName";

/// The provisioner `eks-managed`: a managed node group, which EKS creates and updates.
pub(crate) struct EksManaged;

#[async_trait]
impl Provisioner for EksManaged {
    async fn plan(&self, o: &Observer<'_>, request: PlanRequest<'_>) -> ObserveResult<PlanResult> {
        let (mut desired, mut broken) = match parse_desired(&request) {
            Ok(found) => found,
            Err(errors) => return Ok(PlanResult::Rejected(errors)),
        };
        let network = observe::network(o, &desired).await?;
        if network.is_cluster_missing {
            return Ok(PlanResult::Rejected(broken.errors_after(resolve::cluster_not_found(&desired))));
        }
        broken.extend(&[Part::Immutable], resolve::resolve_names(&mut desired, &network));
        let (resolved, observed) = loop {
            let Some(resolved) =
                resolve_with_current_values(o, desired.clone(), broken.clone(), request.status).await?
            else {
                let resolved = resolve::build_resolved(desired, broken.clone());
                broken.extend_unnamed(&[Part::Immutable], observe::errors_in_references(o, &resolved).await);
                return Ok(PlanResult::Rejected(broken.errors()));
            };
            let observed = observe::observed_state(o, &resolved, request.status, request.lock).await?;
            // The node group that would replace the existing one cannot be created.
            let replaces = !observed.nodegroups.is_empty() && !broken.contains(Part::Immutable);
            let errors = observed.reference_errors.clone();
            if !replaces || errors.is_empty() {
                break (resolved, observed);
            }
            let mut with_references = broken.clone();
            with_references.extend(&[Part::Immutable], errors);
            if unchanged_parts::serving_nodegroup(o, &desired, request.status).await?.is_none() {
                break (resolved, observed);
            }
            broken = with_references;
        };
        let mut snapshot = input::Snapshot { resolved, observed };
        let mut verified = VerifiedNodes::default();
        let plan = loop {
            let plan = plan::plan(&snapshot.plan_input(&request.plan_context(o.now)));
            let observed = &mut snapshot.observed;
            let members: Vec<_> = observed.nodegroups.iter().flat_map(|group| group.members.clone()).collect();
            let mut fresh = verified.read(o, &plan.steps, &members, &request.id.uid, &mut observed.drains).await?;
            if fresh.is_empty() {
                break plan;
            }
            for member in observed.nodegroups.iter_mut().flat_map(|group| &mut group.members) {
                if let Some(node) = fresh.remove(&member.instance.id) {
                    member.node = node;
                }
            }
        };
        Ok(PlanResult::Planned(Box::new(plan), Box::new(snapshot)))
    }

    async fn plan_deletion(&self, o: &Observer<'_>, request: DeleteRequest<'_>) -> ObserveResult<Plan> {
        let DeleteRequest { id, status, .. } = request;
        let mut names: Vec<_> = names::recorded_nodegroups(status).collect();
        let (mut nodegroups, mut unproven, mut unseen) = (Vec::new(), Vec::new(), None);
        // Without a record the node groups are found by the spec.
        let spec = request.spec.as_ref().filter(|_| names.is_empty());
        let desired = spec.and_then(|spec| desired::parse(id, request.annotations?, spec).ok());
        if let Some(desired) = desired.as_ref().filter(|_| !delete::has_recorded_group(status)) {
            let errors = request.spec_errors(CLUSTER_FIELD, &desired.cluster);
            if !errors.is_empty() {
                return Ok(plan_rejected_spec(id, &errors));
            }
        }
        let resolved = match desired {
            Some(desired) => resolve::resolve(desired.clone(), &observe::network(o, &desired).await?).ok(),
            None => None,
        };
        if let Some(resolved) = &resolved {
            names = observe::candidates(o, resolved, status).await?;
        }
        // The status may be lost, or older than what exists.
        let of_spec = || request.spec.as_ref()?.eks_managed.as_ref()?.configuration.as_ref()?.cluster_name.clone();
        let cluster = names.first().map(|name| name.cluster.clone()).or_else(of_spec);
        let cluster = cluster.filter(|name| !name.is_empty()).or_else(|| request.settings.cluster_name.clone());
        // This controller makes nothing for another cluster.
        let is_ours =
            |name: &String| id.has_finalizer && cluster_mismatch(request.settings, CLUSTER_FIELD, name).is_none();
        if let Some(cluster) = cluster.filter(is_ours) {
            names = observe::with_derived(o, names, &cluster, id).await?;
        }
        if names::recorded_nodegroups(status).next().is_some() {
            names = observe::with_active_nodegroup(o, names, id, status).await?;
        }
        for name in names {
            let found = o.inventory.nodegroup(&name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
            let Some(found) = found else {
                o.inventory.forget_nodegroup(&name);
                unseen = unseen.or(Some(name).filter(|name| may_be_unseen(o, &request, name)));
                continue;
            };
            match sharing::classify_for_deletion(o, id, resolved.as_ref(), status, &found) {
                Owner::Ours | Owner::Found => nodegroups.push((*found).clone()),
                Owner::Unproven(doubt) => unproven.push(UnprovenNodegroup { name, doubt }),
                Owner::Others => {}
            }
        }
        if request.protected_by.is_some() {
            let mut members = Vec::new();
            for found in &nodegroups {
                members.extend(members::read_members(o, found.clone(), o.max_cache_age).await?.members);
            }
            if let Some(protected) = request.protected_plan(&members) {
                return Ok(protected);
            }
        }
        Ok(delete::plan(&delete::DeleteInput {
            id,
            ownership_tags: &|cluster: &str| ownership_tags(cluster, id),
            status,
            resolved: resolved.as_ref(),
            nodegroups: &nodegroups,
            unseen: unseen.as_ref(),
            unproven: &unproven,
            wait_for: sharing::group_to_wait_for(o, id, &unproven).as_deref(),
            tag_retry_pending: o.process_state.is_tagging_in_backoff(&id.key(), o.shared_max_cache_age, o.now),
        }))
    }

    async fn stop_rotation(&self, o: &Observer<'_>, request: StopRequest<'_>) -> ObserveResult<RollingUpdateDecision> {
        let StopRequest { id, status, .. } = request;
        let mut members = Vec::new();
        for name in names::recorded_nodegroups(status) {
            let found = o.inventory.nodegroup(&name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
            // EKS drains the nodes of a group that it deletes.
            let kept = found.filter(|n| n.status != NodegroupStatus::Deleting);
            // Whatever its tags say, the records on its nodes prove who cordoned them.
            if let Some(kept) = kept.filter(|n| names::is_derived_name(&n.name, id)) {
                members.extend(members::read_members(o, (*kept).clone(), o.max_cache_age).await?.members);
            }
        }
        Ok(blue_green::stop_rotation(&members, &id.uid))
    }

    fn field_errors(&self, id: &GroupId, annotations: &MergedAnnotations, spec: &InstanceGroupSpec) -> Vec<SpecError> {
        desired::parse_with_errors(id, annotations, spec).1
    }

    fn cluster_field(&self) -> &'static str {
        CLUSTER_FIELD
    }

    fn recorded_cluster(&self, _: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        names::recorded_nodegroups(status).next().map(|name| name.cluster)
    }

    async fn tagged_resource(&self, o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>> {
        let found = observe::tagged_nodegroup(o, id, cluster).await?;
        Ok(found.map(|name| format!("the node group {name}")))
    }
}

/// Whether a recorded node group that EKS does not show may have been created right before the deletion.
fn may_be_unseen(o: &Observer<'_>, request: &DeleteRequest<'_>, name: &NodegroupName) -> bool {
    let managed = request.status.managed.as_ref();
    let was_never_seen = managed.is_some_and(|managed| {
        let name = name.to_string();
        managed.nodegroups.contains(&name) && !attribute_names::was_seen(managed, &name)
    });
    let since = request.id.deletion_requested_at.map(|at| o.now.duration_since(at).abs());
    was_never_seen && since.is_some_and(|since| since < request.settings.timing.poll_interval.max(o.consistency_delay))
}

/// Parses the merged spec, checks its cluster, and names the fields that cannot be used.
///
/// # Errors
/// All errors at once, if everything depends on one of the fields.
fn parse_desired(request: &PlanRequest) -> Result<(DesiredSpec, RejectedFields), Vec<SpecError>> {
    let (desired, errors) = desired::parse_with_errors(request.id, request.annotations, &request.spec);
    let broken = request.rejected_fields(errors, unchanged_parts::dependent_parts)?;
    match cluster_mismatch(request.settings, CLUSTER_FIELD, &desired.cluster) {
        Some(problem) => Err(broken.errors_after(problem)),
        None => Ok((desired, broken)),
    }
}

/// The group in AWS terms. What depends on a broken field is as it is in EKS; `None` if nothing is there yet.
async fn resolve_with_current_values(
    o: &Observer<'_>,
    mut desired: DesiredSpec,
    broken: RejectedFields,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<ResolvedGroup>> {
    if broken.is_empty() {
        return Ok(Some(resolve::build_resolved(desired, broken)));
    }
    let Some(found) = unchanged_parts::serving_nodegroup(o, &desired, status).await? else { return Ok(None) };
    unchanged_parts::keep(&mut desired, &found, &broken, status);
    let mut resolved = resolve::build_resolved(desired, broken);
    // An adopted node group is compared by the hash of the spec that it was adopted with.
    if let Some(hash) = drift::adopted_hash(status, &found).filter(|_| resolved.broken.contains(Part::Immutable)) {
        resolved.hash = hash.to_owned();
    }
    Ok(Some(resolved))
}
