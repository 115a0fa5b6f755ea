//! The provisioner `eks-fargate`: a Fargate profile and its pod execution role.
//!
//! A profile is immutable. A spec change creates a second profile, and the older one is deleted once the newer one is
//! `ACTIVE`. EKS creates or deletes one profile per cluster at a time, so groups queue for the [`profile_slot`].

pub(crate) mod adopt;
pub(crate) mod apply;
pub(crate) mod create;
pub mod delete;
pub mod desired;
pub(crate) mod drift;
pub(crate) mod health;
pub mod input;
pub(crate) mod join;
pub(crate) mod names;
pub(crate) mod observe;
pub mod observed;
pub mod ownership;
pub mod plan;
pub(crate) mod plan_builder;
pub(crate) mod profile_slot;
pub(crate) mod record;
pub mod resolve;
pub(crate) mod role;
pub mod role_owner;
pub(crate) mod simulate;
#[cfg(test)]
mod tests;
pub mod unchanged_parts;
pub(crate) mod unused_role;

use async_trait::async_trait;

use super::rejected_fields::{Part, RejectedFields};
use super::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, Provisioner, StopRequest, cluster_mismatch,
    plan_nothing_to_delete, plan_rejected_spec,
};
use crate::api::spec_error::SpecError;
use crate::api::{InstanceGroupSpec, InstanceGroupStatus};
use crate::boundaries::MergedAnnotations;
use crate::ownership::{adopted_hash, ownership_tags};
use crate::plan::{Plan, StalledReason};
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::{ObserveResult, Observer};
use crate::rotation::rolling_update::RollingUpdateDecision;
use desired::DesiredSpec;
use names::ProfileNames;
use ownership::OwnershipEvidence;

/// Spec field with the cluster's name.
const CLUSTER_FIELD: &str = "spec.eks-fargate.clusterName";

/// The provisioner `eks-fargate`: a Fargate profile, which has no EC2 instances.
pub(crate) struct Fargate;

/// A recorded profile that may have been created right before the deletion. Counts only while EKS shows none of the group.
fn unseen_profile<'a>(o: &Observer<'_>, request: &DeleteRequest<'a>) -> Option<&'a String> {
    let since = o.now.duration_since(request.id.deletion_requested_at?).abs();
    let profile = request.status.fargate.as_ref()?.profiles.last()?;
    (since < request.settings.timing.poll_interval.max(o.consistency_delay)).then_some(profile)
}

#[async_trait]
impl Provisioner for Fargate {
    async fn plan(&self, o: &Observer<'_>, request: PlanRequest<'_>) -> ObserveResult<PlanResult> {
        let PlanRequest { id, status, settings, .. } = request;
        let (desired, errors) = desired::parse_with_errors(id, &request.spec);
        let desired = DesiredSpec { join_auth: settings.join_auth, ..desired };
        let mut broken = match request.rejected_fields(errors, unchanged_parts::dependent_parts) {
            Ok(broken) => broken,
            Err(errors) => return Ok(PlanResult::Rejected(errors)),
        };
        if let Some(problem) = cluster_mismatch(settings, CLUSTER_FIELD, &desired.cluster) {
            return Ok(PlanResult::Rejected(broken.errors_after(problem)));
        }
        let references = observe::references(o, &desired).await?;
        match resolve::resolve_with_errors(desired.clone(), broken, &references, NameForm::Plain) {
            Ok(resolved) => broken = resolved.broken,
            Err(errors) => return Ok(PlanResult::Rejected(errors)),
        }
        let (resolved, observed) = loop {
            let found = resolve_and_observe(o, desired.clone(), broken.clone(), &references, status).await?;
            let Some((resolved, observed)) = found else {
                broken.extend_unnamed(&[Part::Immutable], public_subnet_errors(o, &desired, &references).await);
                return Ok(PlanResult::Rejected(broken.errors()));
            };
            if broken.contains(Part::Immutable) {
                break (resolved, observed);
            }
            let tables = observe::route_tables(o, &resolved, &observed, status).await?;
            let errors = resolve::public_subnet_errors(&resolved, &tables);
            if errors.is_empty() {
                break (resolved, observed);
            }
            broken.extend(&[Part::Immutable], errors);
        };
        let snapshot = input::Snapshot { resolved, observed };
        let plan = plan::plan(&snapshot.plan_input(&request.plan_context(o.now)));
        Ok(PlanResult::Planned(Box::new(plan), Box::new(snapshot)))
    }

    async fn plan_deletion(&self, o: &Observer<'_>, request: DeleteRequest<'_>) -> ObserveResult<Plan> {
        let DeleteRequest { id, status, settings, .. } = request;
        let spec = request.spec.as_ref().and_then(|spec| spec.eks_fargate.clone()).unwrap_or_default();
        let named = ownership::recorded_cluster(status).cloned().or(spec.cluster_name).filter(|name| !name.is_empty());
        let Some(cluster) = named.or_else(|| settings.cluster_name.clone()) else {
            if !ownership::has_created_resources(status) {
                return Ok(plan_nothing_to_delete(id));
            }
            let message = format!(
                "{CLUSTER_FIELD} is not set, so the Fargate profile cannot be found; set it, or remove the finalizer if there is no profile"
            );
            return Ok(crate::plan::blocked_plan(id, StalledReason::InvalidSpec, message));
        };
        if !ownership::has_created_resources(status) && cluster_mismatch(settings, CLUSTER_FIELD, &cluster).is_some() {
            return Ok(plan_rejected_spec(id, &request.spec_errors(CLUSTER_FIELD, &cluster)));
        }
        let profiles = status.fargate.as_ref().map_or(0, |fargate| fargate.profiles.len());
        if let Some(protected) = request.protected_from(profiles, "Fargate profile") {
            return Ok(protected);
        }
        let ownership = ownership_tags(&cluster, id);
        let is_rejected = !request.forbidden.is_empty();
        let rivals = o.group_index.profile_rivals(id, ownership::has_created_resources(status));
        let evidence = OwnershipEvidence::from_status(spec.pod_execution_role_arn.as_deref(), is_rejected, status);
        let evidence = evidence.with_rivals(rivals);
        let remaining = observe::remaining_resources(o, id, &cluster, &evidence, &ownership, status).await?;
        Ok(delete::plan(&delete::DeleteInput {
            id,
            cluster: &cluster,
            ownership_tags: &ownership,
            forbidden: &request.forbidden,
            profiles: &remaining.profiles,
            unseen: unseen_profile(o, &request).map(String::as_str),
            untagged_role: remaining.untagged_role.as_deref(),
            previous_role: remaining.previous_role.as_ref(),
            unproven_role: remaining.unproven_role.as_deref(),
            role_in_use: remaining.role_in_use.as_ref().map(|(role, user)| (role.as_str(), user.as_str())),
            aws_auth_entries: &remaining.aws_auth_entries,
            access_entries: &remaining.access_entries,
            kept_entries: &remaining.kept_entries,
            modified_auth_entries: &remaining.modified_auth_entries,
            wait_for: remaining.wait_for.as_deref(),
            unreadable_aws_auth: remaining.unreadable_aws_auth.as_deref(),
            tag_retry_pending: o.process_state.is_tagging_in_backoff(&id.key(), o.shared_max_cache_age, o.now),
            queue_position: remaining.queue_position,
            status,
            timing: &settings.timing,
            now: o.now,
        }))
    }

    async fn stop_rotation(&self, _: &Observer<'_>, _: StopRequest<'_>) -> ObserveResult<RollingUpdateDecision> {
        Ok(RollingUpdateDecision::default())
    }

    fn field_errors(&self, id: &GroupId, _: &MergedAnnotations, spec: &InstanceGroupSpec) -> Vec<SpecError> {
        desired::parse_with_errors(id, spec).1
    }

    fn cluster_field(&self) -> &'static str {
        CLUSTER_FIELD
    }

    fn recorded_cluster(&self, _: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        ownership::recorded_cluster(status).cloned()
    }

    async fn tagged_resource(&self, o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>> {
        let found = observe::tagged_profile(o, id, cluster).await?;
        Ok(found.map(|name| format!("the Fargate profile {name}")))
    }
}

/// The public subnets of a new group, which are reported beside errors of its fields. What cannot be read is not reported:
/// it must not hide the others.
async fn public_subnet_errors(
    o: &Observer<'_>,
    desired: &DesiredSpec,
    references: &resolve::References,
) -> Vec<SpecError> {
    let resolved =
        resolve::resolve_with_errors(desired.clone(), RejectedFields::default(), references, NameForm::Plain);
    let Ok(resolved) = resolved else { return Vec::new() };
    let Some(vpc) = resolved.vpc.as_ref().filter(|_| !resolved.subnets.is_empty()) else { return Vec::new() };
    match o.inventory.route_tables(vpc).await {
        Ok(Some(tables)) => resolve::public_subnet_errors(&resolved, &tables),
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// The group in AWS terms, and its observed state. What depends on a broken field is as it is in EKS; `None` if nothing is
/// there yet.
async fn resolve_and_observe(
    o: &Observer<'_>,
    mut desired: DesiredSpec,
    broken: RejectedFields,
    references: &resolve::References,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<(resolve::ResolvedGroup, observed::ObservedState)>> {
    let mut form = recorded_form(o, &desired, status);
    // An adopted profile is compared by the hash of the spec that it was adopted with.
    let mut adopted = status.fargate.as_ref().and_then(|f| f.adopted_hash.clone());
    if !broken.is_empty() {
        let Some(serving) = unchanged_parts::serving_profile(o, &desired, status).await? else { return Ok(None) };
        let names = ProfileNames::new(&desired.cluster, &desired.id, form, &o.inventory.aws().region);
        unchanged_parts::keep(&mut desired, &serving, &names, &broken, status);
        adopted = adopted.or_else(|| adopted_hash(&serving.tags).map(str::to_owned));
    }
    let key = desired.id.key();
    loop {
        let resolved = resolve::resolve_with_errors(desired.clone(), RejectedFields::default(), references, form);
        let Ok(mut resolved) = resolved else { return Ok(None) };
        resolved.broken = broken.clone();
        if let Some(hash) = adopted.as_ref().filter(|_| broken.contains(Part::Immutable)) {
            resolved.hash.clone_from(hash);
        }
        let observed = observe::observed_state(o, &resolved, status).await?;
        let names = &resolved.names;
        let has_conflict = ownership::name_conflict(&observed.profiles, names, &resolved.ownership_tags)
            || role_owner::role_of_other_region(&resolved, &observed, status).is_some()
            || o.process_state.has_name_conflict(&key, &[&names.first_profile, &names.role]);
        // The group has a profile with these names, whatever became of its tags.
        let has_disowned = !observed::ObservedProfiles::classify(&resolved, &observed, status).disowned.is_empty();
        let next = form.next().filter(|_| has_conflict && !has_disowned);
        let Some(next) = next else { return Ok(Some((resolved, observed))) };
        if !o.is_forecast {
            o.process_state.set_name_conflict(&key, &names.role);
        }
        form = next;
    }
}

/// The form of the names that the group's recorded profile has.
fn recorded_form(o: &Observer<'_>, desired: &DesiredSpec, status: &InstanceGroupStatus) -> NameForm {
    let derived = |form: &NameForm| ProfileNames::new(&desired.cluster, &desired.id, *form, &o.inventory.aws().region);
    let recorded = status.active_scaling_group_name.as_ref();
    // The prefix of the plain names is one of all names.
    let form = NameForm::ALL.into_iter().rev().find(|form| recorded.is_some_and(|name| derived(form).covers(name)));
    form.unwrap_or(NameForm::Plain)
}
