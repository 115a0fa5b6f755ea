//! From what is wanted and what there is to what is to be done. Pure.

use std::collections::BTreeMap;

use serde_json::json;

use super::input::PlanInput;
use super::join::{AUTH_CONFLICT, authorize, role_join};
use super::launch_template::versions;
use super::observed;
use super::record::record_managed;
use super::role::previous_roles;
use super::scaling_group::{attributes, mixed_instances, readiness, scale_in};
use super::{adopt, create, launch_configuration, ownership, rotation};
use crate::api::StrategyType;
use crate::aws::{ScalingGroup, ScalingGroupChange};
use crate::ownership::ownership_conflict;
use crate::plan::{
    Drift, ObjectStep, Outcome, Phase, Plan, PlanBuilder, PlannedStep, Reason, Recheck, StatusUpdate, Step, waiting,
};
use crate::plan::{EksStep, Pin};

/// Plans one pass for a group that is to live.
pub fn plan(input: &PlanInput) -> Plan {
    let mut draft = PlanBuilder { status_update: status_update(input), ..PlanBuilder::default() };
    if !input.resolved.desired.id.has_finalizer {
        draft.push(ObjectStep::AddFinalizer);
    }
    match (conflict_message(input), &input.observed.scaling_group) {
        (Some(message), _) => {
            // Its nodes keep the role that they have. What nothing of ours has been made for is no record: it would
            // bind the group to a cluster, and a deletion to what is there.
            draft.status_update.fields.remove("nodesInstanceRoleArn");
            draft.status_update.fields.remove("activeScalingGroupName");
            draft.set_outcome_once(Outcome::Blocked { reason: Reason::OwnershipConflict, message, is_deleting: false });
        }
        (None, None) => create::create_group(input, &mut draft),
        (None, Some(group)) => plan_existing(input, group, &mut draft),
    }
    draft.condition_updates.retain(|n| n.condition_type != AUTH_CONFLICT);
    let wanted = &input.resolved.desired;
    let rotate = wanted.rolling_update.rotate_at.filter(|at| *at > input.now);
    draft.build(&wanted.id, rotate.into_iter().chain(role_join(input).plan().recheck_at).min())
}

/// Something bears a name of the group's, and nothing proves it to be the group's own: it is neither used nor changed.
fn conflict_message(input: &PlanInput) -> Option<String> {
    let r = input.resolved;
    let group = input.observed.scaling_group.as_ref();
    if let Some(what) = group.and_then(|g| ownership_conflict(&g.name, &g.tags, &r.ownership_tags)) {
        let remedy = "if it belongs to this group, restore its tags; otherwise rename the InstanceGroup or remove the other group";
        return Some(format!("{what}; {remedy}"));
    }
    let what = ownership::foreign_resource(r, input.observed, input.status)?;
    Some(format!(
        "{what} already exists and does not carry this group's three tags; set spec.eks.configuration.roleName, rename the InstanceGroup, or remove the existing resource"
    ))
}

fn plan_existing(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) {
    if group.deleting {
        return draft.set_outcome_once(waiting(
            Phase::Modifying,
            format!("the scaling group {} is being deleted; it is created again once it is gone", group.name),
        ));
    }
    let joined = role_join(input).plan();
    record_managed(input, &joined, draft);
    record_spot_recommendation(input, draft);
    authorize(joined, draft);
    if input.resolved.own_role {
        create::ensure_role(input, draft);
    }
    let pin = versions::plan_template(input, group, draft);
    update_scaling_group(input, group, pin, draft);
    attributes::plan_attributes(input, group, draft);
    launch_configuration::migrate::delete_unused(input, group, draft);
    previous_roles::remove_unused(input, draft);
    let changed = draft.steps.iter().any(|s| !matches!(s.step, Step::Object(ObjectStep::Record { .. })));
    if changed && draft.outcome.is_none() {
        draft.status_update.nodes_ready = None;
        draft.set_outcome_once(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Soon,
        });
        return;
    }
    if draft.outcome.is_none() {
        adopt::retry_tagging(input, group, draft);
        rotation::rotate_nodes(input, group, draft);
        readiness::check_readiness(input, group, draft);
        scale_in::report_pending(input, group, draft);
    }
}

fn status_update(input: &PlanInput) -> StatusUpdate {
    let r = input.resolved;
    let mut fields = BTreeMap::from([
        ("activeScalingGroupName".to_owned(), json!(r.names.scaling_group)),
        ("provisioner".into(), json!("eks")),
        (
            "strategy".into(),
            json!(if r.desired.crd_strategy.is_some() { StrategyType::Crd } else { StrategyType::RollingUpdate }),
        ),
        ("lifecycle".into(), json!(r.desired.lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(r.role_arn)),
    ]);
    if let Some(template) = &input.observed.template {
        fields.insert("activeLaunchTemplateName".into(), json!(template.name));
    }
    if let Some(group) = &input.observed.scaling_group {
        let configuration = launch_configuration::current_name(group);
        let told = input.status.active_launch_configuration_name.is_some();
        if configuration.map_or(told, |name| launch_configuration::may_record_name(input.status, name)) {
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

/// A recommendation is remembered before it is followed, because its event goes.
fn record_spot_recommendation(input: &PlanInput, draft: &mut PlanBuilder) {
    let found = &input.resolved.desired.spot_recommendation;
    if found.is_some() && *found != input.status.spot_recommendation {
        draft.push(ObjectStep::Record { status: json!({ "spotRecommendation": found }) });
    }
    // Who never heard of one is not told so.
    if found.is_some() || input.status.using_spot_recommendation.is_some() {
        draft.status_update.fields.insert("usingSpotRecommendation".into(), json!(found.is_some()));
    }
}

fn update_scaling_group(input: &PlanInput, group: &ScalingGroup, pin: Option<Pin>, draft: &mut PlanBuilder) {
    let w = &input.resolved.desired;
    let mut because = Vec::new();
    let mut change = ScalingGroupChange::default();
    if group.min != w.min_size {
        change.min = Some(w.min_size);
        because.push(Drift::new("minSize", group.min, w.min_size));
    }
    let max = scale_in::safe_max_size(input, group);
    if group.max != max {
        change.max = Some(max);
        because.push(Drift::new("maxSize", group.max, max));
    }
    if group.subnets != input.resolved.subnets {
        change.subnets = Some(input.resolved.subnets.clone());
        because.push(Drift::new("subnets", group.subnets.join(", "), input.resolved.subnets.join(", ")));
    }
    let pin = merge_purchase_options(input, group, pin, &mut change, &mut because, draft);
    mixed_instances::record_pool(input, change.mixed.as_ref(), draft);
    let repin = draft.steps.iter_mut().find(|s| matches!(s.step, Step::Eks(EksStep::UpdateGroup { .. })));
    match repin {
        Some(PlannedStep { step: Step::Eks(EksStep::UpdateGroup { change: c, .. }), reasons: b }) => {
            *c = change;
            b.extend(because);
        }
        _ if change != ScalingGroupChange::default() || pin.is_some() => {
            because.extend(pin.as_ref().and_then(|pin| pin_drift(group, pin)));
            // The version is made right before it is pinned.
            let delete = draft
                .steps
                .iter()
                .position(|s| matches!(s.step, Step::Eks(EksStep::DeleteTemplateVersions { .. })))
                .unwrap_or(draft.steps.len());
            let update = EksStep::UpdateGroup { group: group.name.clone(), change, pin };
            draft.steps.insert(delete, PlannedStep::new(update, because));
        }
        _ => {}
    }
}

/// A version that the group is not pinned to yet.
fn pin_drift(group: &ScalingGroup, pin: &Pin) -> Option<Drift> {
    let to = match pin {
        Pin::Version { number, .. } => number.to_string(),
        Pin::Made { .. } => "the new one".into(),
    };
    match &group.template {
        Some(from) => (from.version != to).then(|| Drift::new("template version", &from.version, to)),
        None => {
            let from = group.launch_configuration.clone().unwrap_or_default();
            Some(Drift::new("launch configuration", from, "a launch template"))
        }
    }
}

/// A mixed instances policy and the pinned template go to AWS together: each without the other would undo it.
fn merge_purchase_options(
    input: &PlanInput,
    group: &ScalingGroup,
    pin: Option<Pin>,
    change: &mut ScalingGroupChange,
    because: &mut Vec<Drift>,
    draft: &PlanBuilder,
) -> Option<Pin> {
    if draft.outcome.is_some() {
        return pin;
    }
    let repins = draft.steps.iter().any(|s| matches!(s.step, Step::Eks(EksStep::UpdateGroup { .. })));
    let changes = repins || matches!(pin, Some(Pin::Made { .. })) || change.subnets.is_some();
    let policy = mixed_instances::desired_policy(input, Some(group), changes);
    let differs = mixed_instances::drift(group.mixed.as_ref(), policy.as_ref());
    if pin.is_none() && !repins && differs.is_empty() {
        return None;
    }
    let current = || {
        let pin = group.template.as_ref()?;
        Some(Pin::Version {
            template: pin.id.clone(),
            number: observed::version_number(pin, input.observed.template.as_ref())?,
        })
    };
    let pin = if repins { None } else { pin.or_else(current) };
    // A launch configuration takes no policy; it comes with the template.
    if pin.is_none() && !repins {
        return None;
    }
    change.mixed = policy;
    because.extend(differs);
    pin
}
