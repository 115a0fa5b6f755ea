//! Plans one reconcile of an active group: from the desired and the observed state to steps and an outcome. Pure.

use std::collections::BTreeMap;

use serde_json::json;

use super::input::PlanInput;
use super::join::{authorize, role_join};
use super::launch_template::create::{TemplateContribution, ensure_version, launch_configuration_unsupported};
use super::launch_template::{tags, versions};
use super::observed::{self, TemplateUser};
use super::record::{record, record_entering_standby};
use super::role::create::{ProfileWait, ensure_role};
use super::role::{previous_roles, region, unused};
use super::rotation::template_origin;
use super::scaling_group::create::create_scaling_group;
use super::scaling_group::{
    attributes, hooks, instance_tags, lost_instances, mixed_instances, readiness, scale_in, subnets, weights,
};
use super::{adopt, launch_configuration, ownership, rotation, warm_pool};
use crate::api::status::MAX_LISTED_INSTANCES;
use crate::api::{EffectiveValues, ProvisionerKind, SpotRecommendation, StrategyType};
use crate::auth::access_entries::JoinPlan;
use crate::aws::{InstanceState, ScalingGroup, ScalingGroupChange};
use crate::ownership::ownership_conflict;
use crate::plan::{Drift, Outcome, Phase, Plan, PlanBuilder, Recheck, StalledReason, StatusUpdate, waiting};
use crate::plan::{EksStep, Event, EventReason, Pin, TEMPLATE_VERSION};
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::{join_times, recreated, unseen_names};

/// Plans one reconcile of a group that is not being deleted.
pub fn plan(input: &PlanInput) -> Plan {
    let ineffective = input.ineffective_writes.clone();
    let mut builder = PlanBuilder::with_status(status_update(input), ineffective);
    builder.ensure_finalizer(&input.resolved.desired.id);
    match (conflict_message(input), &input.observed.scaling_group) {
        (Some(message), _) => {
            // Nodes keep their role. Nothing of this group exists under these names, so the status must not record
            // them. A record would bind the group to a cluster, and its deletion to foreign resources.
            builder.status_update.fields.remove("nodesInstanceRoleArn");
            builder.status_update.fields.remove("activeScalingGroupName");
            builder.set_outcome_once(Outcome::Blocked {
                reason: StalledReason::OwnershipConflict,
                message,
                is_deleting: false,
            });
        }
        (None, None) => plan_new(input, &mut builder),
        (None, Some(group)) => plan_existing(input, group, &mut builder),
    }
    let nodes_uncordoned_at = rotation::stop_rotation::uncordon_nodes_in_progress(input, &mut builder);
    let desired = &input.resolved.desired;
    let rotate_at = desired.rolling_update.rotate_at.filter(|at| *at > input.now);
    let search_at = input.observed.is_cause_of_loss_expected.then(|| input.now + input.timing.poll_interval);
    let departure_at = previous_roles::waits_for_departure(input).then(|| input.now + input.timing.poll_interval);
    let rechecks = [
        departure_at,
        rotate_at,
        role_join(input).plan().recheck_at,
        nodes_uncordoned_at,
        input.persistent_failure.retry_at(),
        search_at,
    ];
    builder.build(&desired.id, rechecks.into_iter().flatten().min())
}

/// Why a resource with a name of this group is neither used nor changed: nothing proves that the group owns it.
fn conflict_message(input: &PlanInput) -> Option<String> {
    let r = input.resolved;
    let group = input.observed.scaling_group.as_ref();
    if let Some(what) = group.and_then(|g| ownership_conflict(&g.name, &g.tags, &r.ownership_tags)) {
        let remedy = "if it belongs to this group, restore its tags; otherwise rename the InstanceGroup or remove the other group";
        return Some(format!("{what}; {remedy}"));
    }
    let what = ownership::foreign_resource(r, input.observed, input.status)?;
    let tags: Vec<_> = r.ownership_tags.iter().map(|t| format!("{}={}", t.key, t.value)).collect();
    Some(format!(
        "{what} already exists and does not provably belong to this group; if it belongs to this group, restore its tags {}; otherwise set spec.eks.configuration.roleName, rename the InstanceGroup, or remove the existing resource",
        tags.join(", ")
    ))
}

/// Creates role, join entries, launch template and scaling group. The scaling group waits until its instance profile has
/// propagated in IAM.
fn plan_new(input: &PlanInput, builder: &mut PlanBuilder) {
    let r = input.resolved;
    // The record replaces the name of this template in the status.
    if let Some(orphan) = &input.observed.orphaned_template {
        match input.observed.template_users.get(&orphan.id) {
            None => builder.first_steps.push(EksStep::DeleteTemplate { template: orphan.id.clone() }.into()),
            Some(user) => builder.events.push(template_retained(&orphan.name, user)),
        }
    }
    let joined = role_join(input).plan();
    record(input, &joined, builder);
    let propagating = r.own_role.then(|| ensure_role(input, builder)).flatten();
    builder.events.extend(recreated::entries(&role_join(input), &joined, input.status));
    let conflict = joined.conflict.clone();
    authorize(JoinPlan { conflict: None, ..joined }, builder);
    if let Some(detail) = conflict {
        let message = format!("{detail}; the scaling group is not created, because its nodes could not join");
        return builder.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::AuthConflict,
            message,
            is_deleting: false,
        });
    }
    let Some(version) = ensure_version(input, builder) else { return };
    if version.creates_template() {
        builder.events.extend(launch_configuration_unsupported(r));
    }
    builder.steps.extend(version.step);
    if let Some(wait) = propagating {
        let recheck = Recheck::After(input.timing.iam_propagation);
        let message = match wait {
            ProfileWait::New => "waiting for the new instance profile to propagate in IAM".into(),
            ProfileWait::Deleted => format!(
                "the instance profile {} was deleted by another client; the controller has created it again, and waits until it propagates in IAM",
                r.names.role
            ),
        };
        return builder.set_outcome_once(Outcome::Progressing { phase: Phase::Creating, message, recheck });
    }
    create_scaling_group(input, version.pin, builder);
}

/// Says that an unused launch template stays, and why.
fn template_retained(template: &str, user: &TemplateUser) -> Event {
    let why = match user {
        TemplateUser::ScalingGroup(name) => {
            format!("the scaling group {name}, which is not this group's, launches from it")
        }
        TemplateUser::Unknown => "AWS did not say whether others launch from it".to_owned(),
    };
    let message = format!(
        "keeping the launch template {template}, which the group does not use: {why}; delete it manually once nothing launches from it"
    );
    Event::warning(EventReason::TemplateRetained, message)
}

fn plan_existing(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    if group.deleting {
        return builder.set_outcome_once(waiting(
            Phase::Modifying,
            format!("the scaling group {} is being deleted; it is created again once it is gone", group.name),
        ));
    }
    // Also while something changes or is refused: the message about the nodes must not be an earlier one.
    rotation::count_nodes(input, group, builder);
    record_join_times(input, builder);
    let is_replaced_by_resource = input.resolved.desired.crd_strategy.is_some();
    builder.events.extend(lost_instances::events(&input.observed.lost_instances, is_replaced_by_resource));
    report_rejected_fields(input, builder);
    let broken = &input.resolved.broken;
    // Without the role of the spec, only the status names the role of the nodes. It gets no new entry by that.
    let keeps_entries = broken.contains(Part::Join) || broken.contains(Part::Role) && !input.resolved.own_role;
    let joined = if keeps_entries { JoinPlan::default() } else { role_join(input).plan() };
    record(input, &joined, builder);
    record_spot_recommendation(input, builder);
    builder.events.extend(recreated::entries(&role_join(input), &joined, input.status));
    authorize(joined, builder);
    if !keeps_entries {
        previous_roles::restore_missing(input, builder);
    }
    if input.resolved.own_role && region::role_of_other_region(input).is_none() {
        ensure_role(input, builder);
    }
    // The version could request Spot Instances, so it is created once the pool is gone.
    let keeps_version = input.resolved.broken.contains(Part::Launch);
    let template = if warm_pool::excluded_by(input, group).is_some() || keeps_version {
        TemplateContribution::default()
    } else {
        versions::plan_template(input, group, builder)
    };
    let launches_others = update_scaling_group(input, group, template, builder);
    warm_pool::forget_current_pool(input, group, launches_others, builder);
    attributes::plan_attributes(input, group, builder);
    launch_configuration::migrate::delete_unused(input, group, builder);
    tags::restore(input, group, builder);
    previous_roles::remove_unused(input, builder);
    unused::delete(input, builder);
    if builder.has_changes() && builder.outcome().is_none() {
        region::plan_claim(input, builder);
        builder.status_update.nodes_ready = None;
        builder.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Immediately,
        });
        return;
    }
    if builder.outcome().is_none() {
        adopt::retry_tagging(input, group, builder);
        region::plan_claim(input, builder);
        let entering_standby = rotation::rotate_nodes(input, group, builder);
        record_entering_standby(input, entering_standby, builder);
        builder.rotation_planned = true;
        rotation::in_place_steps::change_nodes(input, builder);
        instance_tags::change(input, group, builder);
        input.resolved.broken.outcome().into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
        unseen_names::outcome(&input.observed.unseen_names).into_iter().for_each(|o| builder.set_outcome_once(o));
        readiness::check_readiness(input, group, builder);
        scale_in::report_pending(input, group, builder);
        weights::blocker(input, group).into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
        hooks::report_pending(input, group, builder);
        region::report_foreign_role(input, builder);
    }
}

/// The fields that cannot be used, and what would prevent the next upgrade with the strategy `crd`. While nodes are outdated,
/// the latter stalls the group.
fn report_rejected_fields(input: &PlanInput, builder: &mut PlanBuilder) {
    let mut rejected = input.resolved.broken.clone();
    let members = rotation::outdated::members(input.resolved, input.observed, input.status);
    if input.resolved.desired.crd_strategy.is_some() && rotation::crd_strategy::outdated_count(&members) == 0 {
        rejected.extend(&[Part::Rotation], rotation::crd_strategy::submission_problem(input));
    }
    rejected.report(input.status, builder);
}

fn record_join_times(input: &PlanInput, builder: &mut PlanBuilder) {
    let members = rotation::outdated::members(input.resolved, input.observed, input.status);
    let timeout = input.resolved.desired.rolling_update.join_timeout;
    let joining = join_times::update(input.status, &members, timeout, input.now);
    builder.status_update.fields.extend(joining.map(|joining| ("joining".to_owned(), joining)));
}

fn status_update(input: &PlanInput) -> StatusUpdate {
    let r = input.resolved;
    let mut fields = BTreeMap::from([
        ("activeScalingGroupName".to_owned(), json!(r.names.scaling_group)),
        ("provisioner".into(), json!(ProvisionerKind::Eks)),
        ("nodesInstanceRoleArn".into(), json!(r.role_arn)),
    ]);
    if !r.broken.contains(Part::Rotation) {
        let strategy = if r.desired.crd_strategy.is_some() { StrategyType::Crd } else { StrategyType::RollingUpdate };
        fields.insert("strategy".into(), json!(strategy));
    }
    if !r.broken.contains(Part::Launch) {
        fields.insert("lifecycle".into(), json!(r.desired.lifecycle));
    }
    fields.insert("effective".into(), json!(effective_values(input)));
    if let Some(template) = &input.observed.template {
        fields.insert("activeLaunchTemplateName".into(), json!(template.name));
    }
    if let Some(group) = &input.observed.scaling_group {
        let configuration = launch_configuration::current_name(group);
        let recorded = input.status.active_launch_configuration_name.is_some();
        if configuration.map_or(recorded, |name| template_origin::may_record_configuration(input.status, name)) {
            fields.insert("activeLaunchConfigurationName".into(), json!(configuration));
        }
        fields.insert("currentMin".into(), json!(group.min));
        fields.insert("currentMax".into(), json!(group.max));
    }
    if let Some(join) = role_join(input).join_status(input.status.join.as_ref()) {
        fields.insert("join".into(), json!(join));
    }
    StatusUpdate { fields, nodes_ready: None }
}

/// What nodes get, for tenants. Values of fields that cannot be used stay as they were recorded.
fn effective_values(input: &PlanInput) -> EffectiveValues {
    let r = input.resolved;
    let mut values = input.status.effective.clone().unwrap_or_default();
    if !r.broken.contains(Part::Launch) {
        let mixed = r.desired.mixed_instances.iter().flat_map(|mixed| &mixed.overrides);
        let offered = r.type_pool.iter().flat_map(|pool| &pool.offered_now);
        let others =
            mixed.map(|one| &one.instance_type).chain(offered).filter(|name| **name != r.desired.instance_type);
        values.image = Some(r.template_data.image_id.clone());
        values.instance_types = [&r.desired.instance_type].into_iter().chain(others).cloned().collect();
    }
    if !r.broken.contains(Part::Subnets) {
        values.subnets.clone_from(&r.subnets);
        values.zones.clone_from(&r.zones);
    }
    (values.versions, values.instance_versions) = (BTreeMap::new(), BTreeMap::new());
    let instances = input.observed.scaling_group.iter().flat_map(|group| &group.instances);
    // No event starts a reconcile when an instance that leaves is gone.
    for instance in instances.filter(|instance| instance.state != InstanceState::Terminating) {
        let launched_from =
            instance.template.as_ref().map(|pin| &pin.version).or(instance.launch_configuration.as_ref());
        let launched_from = launched_from.cloned().unwrap_or_else(|| "unknown".into());
        *values.versions.entry(launched_from.clone()).or_default() += 1;
        values.instance_versions.insert(instance.id.clone(), launched_from);
    }
    if values.versions.len() == 1 {
        values.instance_versions.clear();
    }
    values.instance_versions = values.instance_versions.into_iter().take(MAX_LISTED_INSTANCES).collect();
    values
}

/// Records a spot recommendation before following it, because its event expires.
fn record_spot_recommendation(input: &PlanInput, builder: &mut PlanBuilder) {
    let found = &input.resolved.desired.spot_recommendation;
    if found.is_some() && *found != input.status.spot_recommendation {
        let mut recorded = json!(found);
        if input.status.spot_recommendation.as_ref().is_some_and(|old| old.ended.is_some()) {
            recorded["ended"] = json!(null);
        }
        builder.record_after_steps(json!({ "spotRecommendation": recorded }));
    }
    let price = input.resolved.desired.spot_price.as_deref().unwrap_or_default();
    let has_ended = |r: &&SpotRecommendation| r.ended != Some(true) && r.over != price;
    if let Some(old) = input.status.spot_recommendation.as_ref().filter(has_ended)
        && found.is_none()
        // The group's policy sets its own price, and follows no recommendation meanwhile.
        && input.resolved.desired.mixed_instances.is_none()
        && !input.resolved.broken.contains(Part::Launch)
    {
        let ended = SpotRecommendation { ended: Some(true), ..old.clone() };
        builder.record_after_steps(json!({ "spotRecommendation": ended }));
    }
    // A group that never had a recommendation gets no status field about it.
    if found.is_some() || input.status.using_spot_recommendation.is_some() {
        builder.set_status("usingSpotRecommendation", found.is_some());
    }
}

/// Updates sizes, subnets, purchase options and template version in one step, between the steps of the launch template.
/// Returns whether instances launch from another version, or into other subnets, after it.
fn update_scaling_group(
    input: &PlanInput,
    group: &ScalingGroup,
    template: TemplateContribution,
    builder: &mut PlanBuilder,
) -> bool {
    let mut reasons = Vec::new();
    let mut change = ScalingGroupChange::default();
    let has_weight_blocker = weights::blocker(input, group).is_some();
    let min = scale_in::safe_min_size(input, group);
    // Together with weights, minSize is in their units.
    if group.min != min && !(has_weight_blocker && min > group.min) {
        change.min = Some(min);
        reasons.push(Drift::new("minSize", group.min, min));
    }
    if subnets::may_be_set(input, group) {
        change.subnets = Some(input.resolved.subnets.clone());
    }
    let mut purchase_reasons = Vec::new();
    let pin = merge_purchase_options(input, group, &template, &mut change, &mut purchase_reasons, builder);
    let max = scale_in::safe_max_size_with(input, group, change.mixed.as_ref());
    if group.max != max {
        change.max = Some(max);
        reasons.push(Drift::new("maxSize", group.max, max));
    }
    reasons.extend(change.subnets.is_some().then(|| subnets::drift(input, group)));
    reasons.extend(purchase_reasons);
    builder.steps.extend(template.steps);
    mixed_instances::record_pool(input, change.mixed.as_ref(), builder);
    let launches_others = pin.is_some() || change.subnets.is_some();
    if change != ScalingGroupChange::default() || pin.is_some() {
        let reasons = match template.repin_reasons {
            Some(repin) => repin.into_iter().chain(reasons).collect(),
            None => reasons.into_iter().chain(pin.as_ref().and_then(|pin| pin_drift(input, group, pin))).collect(),
        };
        builder.push_with_reasons(EksStep::UpdateGroup { group: group.name.clone(), change, pin }, reasons);
    }
    builder.steps.extend(template.cleanup);
    launches_others
}

/// The difference when the group is not pinned to this version yet. The apply names a new one once it is created.
fn pin_drift(input: &PlanInput, group: &ScalingGroup, pin: &Pin) -> Option<Drift> {
    let to = match pin {
        Pin::Version { number, .. } => number.to_string(),
        Pin::Made { .. } => "a new version".into(),
    };
    match &group.template {
        Some(from) if template_origin::was_recreated(input.observed, input.status, &from.id) => {
            Some(template_origin::recreation_drift(input.observed, &from.id))
        }
        Some(from) => (from.version != to).then(|| Drift::new(TEMPLATE_VERSION, &from.version, to)),
        None => {
            let from = group.launch_configuration.clone().unwrap_or_default();
            Some(Drift::new("launch configuration", from, "a launch template"))
        }
    }
}

/// Adds the mixed instances policy to the change and returns the version to pin. AWS takes policy and pin together: each
/// alone would undo the other.
fn merge_purchase_options(
    input: &PlanInput,
    group: &ScalingGroup,
    template: &TemplateContribution,
    change: &mut ScalingGroupChange,
    reasons: &mut Vec<Drift>,
    builder: &PlanBuilder,
) -> Option<Pin> {
    let pin = template.pin.clone();
    if builder.outcome().is_some() || warm_pool::excluded_by(input, group).is_some() {
        return pin;
    }
    let changes = template.repin_reasons.is_some() || matches!(pin, Some(Pin::Made { .. })) || change.subnets.is_some();
    let policy = match weights::blocker(input, group) {
        Some(_) => group.mixed.clone(),
        None => mixed_instances::desired_policy(input, Some(group), changes),
    };
    let differs = mixed_instances::drift(group.mixed.as_ref(), policy.as_ref());
    if pin.is_none() && differs.is_empty() {
        return None;
    }
    let current = || {
        let pin = group.template.as_ref()?;
        Some(Pin::Version {
            template: pin.id.clone(),
            number: observed::version_number(pin, input.observed.template.as_ref())?,
        })
    };
    // A launch configuration takes no mixed instances policy; the policy is set with the launch template.
    let pin = pin.or_else(current)?;
    change.mixed = policy;
    reasons.extend(differs);
    Some(pin)
}
