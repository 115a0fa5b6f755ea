//! The provisioner `eks`: a launch template, an Auto Scaling group, and an IAM role with its instance profile.

pub(crate) mod adopt;
pub(crate) mod apply;
pub(crate) mod attribute_names;
pub mod delete;
pub mod desired;
pub mod input;
pub(crate) mod ipv6;
pub(crate) mod join;
pub(crate) mod launch_configuration;
pub mod launch_template;
pub(crate) mod names;
pub mod observe;
pub mod observed;
pub mod ownership;
pub mod plan;
pub(crate) mod record;
pub mod references;
pub mod release;
pub mod resolve;
pub(crate) mod role;
pub mod rotation;
pub(crate) mod scaling_group;
pub(crate) mod simulate;
#[cfg(test)]
mod tests;
pub mod unchanged_parts;
pub mod user_data;
pub(crate) mod warm_pool;

use async_trait::async_trait;
use jiff::Timestamp;

use super::name_form::NameForm;
use super::rejected_fields::{Part, RejectedFields};
use super::{
    DeleteRequest, GroupId, PlanRequest, PlanResult, Provisioner, StopRequest, cluster_mismatch, plan_nothing_to_delete,
};
use crate::api::spec_error::SpecError;
use crate::api::{InstanceGroupSpec, InstanceGroupStatus};
use crate::boundaries::MergedAnnotations;
use crate::ownership::has_ownership_tags;
use crate::plan::{Plan, PlannedStep, StalledReason, blocked_plan};
use crate::provisioner::limits::MAX_SCALING_GROUP_NAME;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, VerifiedNodes};
use crate::rotation::crd::SubmissionPolicy;
use crate::rotation::rolling_update::RollingUpdateDecision;
use crate::util::lookup::Lookup;
use launch_template::default_volume;
use names::GroupNames;
use observe::remaining_resources;
use observe::template_users::TemplateUsers;
use rotation::outdated;
use scaling_group::spot::apply_spot_recommendation;
use user_data::OsFamily;

/// The provisioner `eks`: a scaling group with a launch template, whose nodes the controller replaces.
pub(crate) struct Eks;

#[async_trait]
impl Provisioner for Eks {
    async fn plan(&self, o: &Observer<'_>, mut request: PlanRequest<'_>) -> ObserveResult<PlanResult> {
        let (mut desired, broken) = match desired_spec(&mut request, o.now) {
            Ok(found) => found,
            Err(errors) => return Ok(PlanResult::Rejected(errors)),
        };
        let PlanRequest { id, status, .. } = request;
        if request.is_new {
            prefetch_new_groups(o, &desired.cluster, id);
        }
        let mut references = observe::references::references(o, &desired).await?;
        let mut form = recorded_form(&desired, &o.inventory.aws().region, status);
        // The finalizer is set before anything is created, so a group with it had a status.
        if status.active_scaling_group_name.is_none() && id.has_finalizer {
            form = observe::unrecorded::form_in_use(o, &desired.cluster, id).await?.unwrap_or(form);
        }
        let recorded_hash = status.template.as_ref().and_then(|template| template.hash.as_ref());
        if let Some(hash) = recorded_hash
            && let Some(standard) = current_standard_image(&desired, &broken, &references, form, status, hash)
        {
            references = standard;
        }
        let mut may_change_volume = desired.has_default_volume;
        let mut volume = Lookup::Absent;
        let mut template_name: Option<(NameForm, Option<String>)> = None;
        let (mut resolved, observed) = loop {
            let (spec, fields) = (desired.clone(), broken.clone());
            let mut resolved =
                match resolve::resolve_with_errors(spec, fields, &references, form, &recorded_role(status)) {
                    Ok(resolved) => resolved,
                    Err(errors) => return Ok(PlanResult::Rejected(errors)),
                };
            if template_name.as_ref().is_none_or(|(of_form, _)| *of_form != form) {
                let found = observe::unrecorded::template_name(o, &desired.cluster, id, form, status).await?;
                template_name = Some((form, found));
            }
            if let Some((_, Some(name))) = &template_name {
                resolved.names.template.clone_from(name);
            }
            // Without a recorded version, only the observation shows whether one is about to be created.
            if recorded_hash.is_some() && std::mem::take(&mut may_change_volume) {
                volume = observe::references::default_volume(o, &resolved, status).await?;
                if let Lookup::Present(volume) = &volume {
                    default_volume::set(&mut desired, volume);
                    continue;
                }
            }
            let observed = observe::observe(o, &resolved, status).await?;
            let hash = recorded_hash.or_else(|| outdated::launched_hash(&observed));
            if let Some(hash) = hash.filter(|hash| **hash != resolved.fingerprint.hash)
                && let Some(standard) = current_standard_image(&desired, &broken, &references, form, status, hash)
            {
                references = standard;
                continue;
            }
            if may_change_volume && launch_template::launch_checks::needs_launch_checks(&resolved, &observed, status) {
                may_change_volume = false;
                volume = observe::references::default_volume(o, &resolved, status).await?;
                if let Lookup::Present(volume) = &volume {
                    default_volume::set(&mut desired, volume);
                    continue;
                }
            }
            // An existing scaling group keeps its name, even when another resource of that name has another owner.
            let names = ownership::names_with_conflicts(&resolved, &observed, status);
            let has_conflict = ownership::name_conflict(&resolved, &observed, status)
                || (observed.scaling_group.is_none() && o.process_state.has_name_conflict(&id.key(), &names));
            let Some(next) = form.next().filter(|_| has_conflict) else { break (resolved, observed) };
            if !o.is_forecast {
                o.process_state.set_name_conflict(&id.key(), &resolved.names.role);
            }
            form = next;
        };
        if let Some(facts) = observe::references::launch_facts(o, &resolved, &observed, status).await? {
            let mut errors = launch_template::launch_checks::spec_errors(&resolved, &facts);
            errors.extend((!volume.is_queried()).then(|| default_volume::unreadable_image(&resolved)));
            resolved.broken.extend_unnamed(&[Part::Launch], errors);
        }
        if observed.scaling_group.is_none() && !resolved.broken.is_empty() {
            return Ok(PlanResult::Rejected(resolved.broken.errors()));
        }
        unchanged_parts::keep(&mut resolved, &observed, status);
        let mut snapshot = input::Snapshot { resolved, observed };
        let (mut verified, mut users) = (VerifiedNodes::default(), TemplateUsers::default());
        let plan = loop {
            let plan = plan::plan(&snapshot.plan_input(&request.plan_context(o.now)));
            let input::Snapshot { resolved, observed } = &mut snapshot;
            let members = outdated::members(resolved, observed, status);
            let fresh = verified.read(o, &plan.steps, &members, &id.uid, &mut observed.drains).await?;
            let template_users = users.read(o, &plan.steps, &resolved.names.scaling_group).await;
            if fresh.is_empty() && template_users.is_empty() {
                break plan;
            }
            observed.template_users.extend(template_users);
            for (instance, node) in fresh {
                match node {
                    Some(node) => observed.nodes.insert(instance, node),
                    None => observed.nodes.remove(&instance),
                };
            }
        };
        Ok(PlanResult::Planned(Box::new(plan), Box::new(snapshot)))
    }

    async fn plan_deletion(&self, o: &Observer<'_>, request: DeleteRequest<'_>) -> ObserveResult<Plan> {
        let DeleteRequest { id, status, settings, .. } = request;
        let drain_timeout = request.drain_timeout().unwrap_or(settings.timing.deletion_drain_timeout);
        let region = &o.inventory.aws().region;
        let recorded = match remaining_resources::recorded_names(id, status, region) {
            Some(recorded) => Some(recorded),
            None => match searched_cluster(&request) {
                Some(cluster) => observe::unrecorded::names(o, cluster, id).await?,
                None => match recorded_group(status).filter(|_| id.has_finalizer) {
                    Some(group) => return Ok(plan_unknown_cluster(id, group)),
                    None => None,
                },
            },
        };
        let Some(recorded) = recorded else { return Ok(plan_nothing_to_delete(id)) };
        let remaining_resources::RecordedNames { names, ownership_tags, has_derived_template_name, .. } = recorded;
        let mut remaining = remaining_resources::remaining_resources(o, id, &names, &ownership_tags, status).await?;
        if let Some(protected) = request.protected_plan(&remaining.members) {
            return Ok(protected);
        }
        let mut managed = status.managed.clone().unwrap_or_default();
        // Launch configurations have no tags: only the name proves the owner.
        managed.configurations.retain(|name| launch_configuration::has_derived_name(&names.scaling_group, name));
        if managed.policies.is_empty() {
            managed.policies = policies_of_spec(&request, region);
        }
        let our_policies: Vec<_> = remaining
            .attached_policies
            .iter()
            .filter(|p| delete::is_standard_policy(p) || managed.policies.contains(p))
            .cloned()
            .collect();
        let mut verified = VerifiedNodes::of_deletion();
        loop {
            let plan = delete::plan_deletion(&delete::DeleteInput {
                id,
                ownership_tags: &ownership_tags,
                scaling_group: remaining.scaling_group.as_ref(),
                members: &remaining.members,
                drains: &remaining.drains,
                template: remaining.template.as_ref(),
                has_derived_template_name,
                launch_configurations: &managed.configurations,
                role: remaining.role.as_ref(),
                attached_policies: &remaining.attached_policies,
                removable_policies: &our_policies,
                inline_policies: &remaining.inline_policies,
                instance_profile: remaining.instance_profile.as_ref(),
                region,
                status,
                adopted: &remaining.adopted,
                aws_auth_entries: &remaining.aws_auth_entries,
                access_entries: &remaining.access_entries,
                kept_entries: &remaining.kept_entries,
                modified_auth_entries: &remaining.modified_auth_entries,
                wait_for: remaining.wait_for.as_deref(),
                unreadable_aws_auth: remaining.unreadable_aws_auth.as_deref(),
                role_in_use: remaining.role_in_use.as_deref(),
                template_in_use: remaining.template_in_use.as_deref(),
                drain_timeout,
                timing: &settings.timing,
                now: o.now,
            });
            let mut fresh = verified.read(o, &plan.steps, &remaining.members, &id.uid, &mut remaining.drains).await?;
            if fresh.is_empty() {
                return Ok(plan);
            }
            for member in &mut remaining.members {
                if let Some(node) = fresh.remove(&member.instance.id) {
                    member.node = node;
                }
            }
        }
    }

    async fn stop_rotation(&self, o: &Observer<'_>, request: StopRequest<'_>) -> ObserveResult<RollingUpdateDecision> {
        let StopRequest { id, status, .. } = request;
        let Some(recorded) = remaining_resources::recorded_names(id, status, &o.inventory.aws().region) else {
            return Ok(RollingUpdateDecision::default());
        };
        let found =
            o.inventory.group(&recorded.names.scaling_group, o.max_cache_age).await.map_err(ObserveError::Aws)?;
        let Some(group) = found.filter(|g| has_ownership_tags(&g.tags, &recorded.ownership_tags)) else {
            return Ok(RollingUpdateDecision::default());
        };
        let (mut members, mut drains) =
            remaining_resources::members_with_drains(o, &group.instances, &id.uid, status).await?;
        let mut verified = VerifiedNodes::default();
        loop {
            let health = o.node_index.cluster_health();
            let decision = rotation::stop_rotation::stop_rotation(&request, &group, &members, &drains, health, o.now);
            let steps: Vec<_> = decision.steps.iter().cloned().map(PlannedStep::from).collect();
            let mut fresh = verified.read(o, &steps, &members, &id.uid, &mut drains).await?;
            if fresh.is_empty() {
                return Ok(decision);
            }
            for member in &mut members {
                if let Some(node) = fresh.remove(&member.instance.id) {
                    member.node = node;
                }
            }
        }
    }

    fn field_errors(&self, id: &GroupId, annotations: &MergedAnnotations, spec: &InstanceGroupSpec) -> Vec<SpecError> {
        desired::parse_with_errors(id, annotations, spec).1
    }

    fn cluster_field(&self) -> &'static str {
        resolve::CLUSTER_FIELD
    }

    fn recorded_cluster(&self, id: &GroupId, status: &InstanceGroupStatus) -> Option<String> {
        // The cluster's name does not depend on the region.
        remaining_resources::recorded_names(id, status, "").map(|recorded| recorded.cluster)
    }

    async fn tagged_resource(&self, o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>> {
        let form = observe::unrecorded::form_in_use(o, cluster, id).await?;
        let names = GroupNames::new(cluster, &id.namespace, &id.name);
        let name = form.map(|form| names.scaling_group_in(form, &o.inventory.aws().region));
        Ok(name.map(|name| format!("the scaling group {name}")))
    }
}

/// The cluster in which the controller searches for the resources of a group that is being deleted, if its status does
/// not record their names; `None` without one, and for a cluster of another controller.
fn searched_cluster<'a>(request: &'a DeleteRequest<'_>) -> Option<&'a String> {
    let configuration = request.spec.as_ref().and_then(|spec| spec.eks.as_ref()?.configuration.as_ref());
    let named = configuration.and_then(|found| found.cluster_name.as_ref()).filter(|name| !name.is_empty());
    let cluster = named.or(request.settings.cluster_name.as_ref())?;
    // This controller makes nothing for another cluster.
    let is_own = cluster_mismatch(request.settings, resolve::CLUSTER_FIELD, cluster).is_none();
    Some(cluster).filter(|_| request.id.has_finalizer && is_own)
}

/// The scaling group that the status records.
fn recorded_group(status: &InstanceGroupStatus) -> Option<&String> {
    status.active_scaling_group_name.as_ref().filter(|name| !name.is_empty())
}

/// The plan of a deletion while nothing shows the cluster, and with it the owner, of the recorded scaling group: its
/// name contains only a hash. Without the finalizer, it would stay with its nodes.
fn plan_unknown_cluster(id: &GroupId, scaling_group: &str) -> Plan {
    let path = resolve::CLUSTER_FIELD;
    let message = format!(
        "the status records the scaling group {scaling_group}, whose name does not contain the cluster's name, and {path} names no cluster of this controller; set it, and the deletion continues; to keep the resources, remove the finalizer"
    );
    blocked_plan(id, StalledReason::InvalidSpec, message)
}

/// The policies that the controller attaches for the spec. Without a record in the status, nothing else names them.
fn policies_of_spec(request: &DeleteRequest<'_>, region: &str) -> Vec<String> {
    let configuration = request.spec.as_ref().and_then(|spec| spec.eks.as_ref()?.configuration.as_ref());
    configuration
        .and_then(|found| found.managed_policies.as_ref())
        .map_or_else(Vec::new, |extra| names::managed_policy_arns(region, false, extra))
}

/// The references with the image without drivers, if the version with this hash launches it. Such a group is not rotated
/// because a release of the controller knows better.
fn current_standard_image(
    desired: &desired::DesiredSpec,
    broken: &RejectedFields,
    references: &references::References,
    form: NameForm,
    status: &InstanceGroupStatus,
    hash: &str,
) -> Option<references::References> {
    let standard = references.with_standard_image()?;
    let role = recorded_role(status);
    let resolved = resolve::resolve_with_errors(desired.clone(), broken.clone(), &standard, form, &role).ok()?;
    (resolved.fingerprint.hash == hash).then_some(standard)
}

fn recorded_role(status: &InstanceGroupStatus) -> resolve::RecordedRole {
    let id = status.join.as_ref().and_then(|join| join.role_id.clone());
    resolve::RecordedRole { arn: status.nodes_instance_role_arn.clone().filter(|arn| !arn.is_empty()), id }
}

/// Parses the merged spec with the controller's settings, and names the fields that cannot be used.
///
/// # Errors
/// All errors at once, if everything depends on one of the fields.
fn desired_spec(
    request: &mut PlanRequest,
    now: Timestamp,
) -> Result<(desired::DesiredSpec, RejectedFields), Vec<SpecError>> {
    let settings = request.settings;
    if let Some(eks) = request.spec.eks.as_mut().filter(|e| e.r#type.as_deref().unwrap_or_default().is_empty()) {
        eks.r#type = Some(settings.default_scaling_configuration.as_str().into());
    }
    let recommended =
        apply_spot_recommendation(&mut request.spec, request.status, request.recommendations, request.policy, now);
    let (mut desired, errors) = desired::parse_with_errors(request.id, request.annotations, &request.spec);
    let broken = request.rejected_fields(errors, unchanged_parts::dependent_parts)?;
    desired.spot_recommendation = recommended;
    desired.join_auth = settings.join_auth;
    if let Some(crd) = &mut desired.crd_strategy {
        let policy = request.policy.cloned().unwrap_or_default();
        crd.submission_policy = SubmissionPolicy {
            policy,
            config_namespace: settings.config_namespace.clone(),
            author: request.template_author,
        };
    }
    desired.discovers_endpoint = settings.windows_discovers_endpoint && desired.os_family == OsFamily::Windows;
    match cluster_mismatch(settings, resolve::CLUSTER_FIELD, &desired.cluster) {
        Some(problem) => Err(broken.errors_after(problem)),
        None => Ok((desired, broken)),
    }
}

/// Prefetches the resources of all new groups with the first one: new groups nearly always belong to one cluster.
fn prefetch_new_groups(o: &Observer<'_>, cluster: &str, id: &GroupId) {
    for id in o.group_index.take_unreconciled(&id.key()) {
        let names = GroupNames::new(cluster, &id.namespace, &id.name);
        let scaling_group = names.scaling_group();
        // A name that AWS refuses would fail the read of all.
        if scaling_group.len() <= MAX_SCALING_GROUP_NAME {
            let template = names::with_any_time(&names.launch_template(id.created_at), id.created_at);
            o.inventory.prefetch(scaling_group, template);
        }
    }
}

/// The form of the names that the group uses already: another one than the plain one when those belonged to another
/// owner.
fn recorded_form(desired: &desired::DesiredSpec, region: &str, status: &InstanceGroupStatus) -> NameForm {
    let derived = GroupNames::new(&desired.cluster, &desired.id.namespace, &desired.id.name);
    let recorded = status.active_scaling_group_name.as_ref();
    recorded.and_then(|name| derived.form_of(name, region)).unwrap_or(NameForm::Plain)
}
