//! From what is wanted and what there is to what is to be done. Pure.

use std::collections::BTreeMap;

use serde_json::json;

use super::input::Input;
use super::join::{AUTH, authorise, joining};
use super::launch_template::versions;
use super::observed;
use super::record::record;
use super::role::previous_roles;
use super::scaling_group::{attributes, mixed_instances, readiness, scale_in};
use super::{adopt, create, launch_configuration, ownership, rotation};
use crate::api::StrategyType;
use crate::aws::{ScalingGroup, ScalingGroupChange};
use crate::ownership::unproven;
use crate::plan::{Draft, Drift, Facts, ObjectStep, Outcome, Phase, Plan, Planned, Reason, Recheck, Step, waiting};
use crate::plan::{EksStep, Pin};

/// Plans one pass for a group that is to live.
pub fn plan(input: &Input) -> Plan {
    let mut draft = Draft { facts: facts(input), ..Draft::default() };
    if !input.resolved.wanted.id.finalizer {
        draft.step(ObjectStep::AddFinalizer);
    }
    match (not_ours(input), &input.state.group) {
        (Some(message), _) => {
            // Its nodes keep the role that they have. What nothing of ours has been made for is no record: it would
            // bind the group to a cluster, and a deletion to what is there.
            draft.facts.status.remove("nodesInstanceRoleArn");
            draft.facts.status.remove("activeScalingGroupName");
            draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
        }
        (None, None) => create::group(input, &mut draft),
        (None, Some(group)) => existing(input, group, &mut draft),
    }
    draft.notes.retain(|n| n.condition != AUTH);
    let wanted = &input.resolved.wanted;
    let rotate = wanted.strategy.rotate_at.filter(|at| *at > input.now);
    draft.finish(&wanted.id, rotate.into_iter().chain(joining(input).decide().wake).min())
}

/// Something bears a name of the group's, and nothing proves it to be the group's own: it is neither used nor changed.
fn not_ours(input: &Input) -> Option<String> {
    let r = input.resolved;
    let group = input.state.group.as_ref();
    if let Some(what) = group.and_then(|g| unproven(&g.name, &g.tags, &r.ownership)) {
        let remedy =
            "if it is this group's, put its tags back, else rename the InstanceGroup, or remove the other group";
        return Some(format!("{what}; {remedy}"));
    }
    let what = ownership::stranger(r, input.state, input.status)?;
    Some(format!(
        "{what} is there and does not carry this group's three tags; give the group a role by spec.eks.configuration.roleName, or rename the InstanceGroup, or remove what bears its name"
    ))
}

fn existing(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    if group.deleting {
        return draft.decide(waiting(
            Phase::Modifying,
            format!("the scaling group {} is being deleted; it is made again when it is gone", group.name),
        ));
    }
    let joined = joining(input).decide();
    record(input, &joined, draft);
    recommended(input, draft);
    authorise(joined, draft);
    if input.resolved.own_role {
        create::role(input, draft);
    }
    let pin = versions::template(input, group, draft);
    sizes(input, group, pin, draft);
    attributes::attributes(input, group, draft);
    launch_configuration::migrate::retire(input, group, draft);
    previous_roles::retire(input, draft);
    let changed = draft.steps.iter().any(|s| !matches!(s.step, Step::Object(ObjectStep::Record { .. })));
    if changed && draft.outcome.is_none() {
        draft.facts.nodes_ready = None;
        draft.decide(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Soon,
        });
        return;
    }
    if draft.outcome.is_none() {
        adopt::tag_again(input, group, draft);
        rotation::nodes(input, group, draft);
        readiness::nodes(input, group, draft);
        scale_in::wait(input, group, draft);
    }
}

fn facts(input: &Input) -> Facts {
    let r = input.resolved;
    let mut status = BTreeMap::from([
        ("activeScalingGroupName".to_owned(), json!(r.names.group)),
        ("provisioner".into(), json!("eks")),
        (
            "strategy".into(),
            json!(if r.wanted.crd.is_some() { StrategyType::Crd } else { StrategyType::RollingUpdate }),
        ),
        ("lifecycle".into(), json!(r.wanted.lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(r.role_arn)),
    ]);
    if let Some(template) = &input.state.template {
        status.insert("activeLaunchTemplateName".into(), json!(template.name));
    }
    if let Some(group) = &input.state.group {
        let configuration = launch_configuration::of(group);
        let told = input.status.active_launch_configuration_name.is_some();
        if configuration.map_or(told, |name| launch_configuration::known(input.status, name)) {
            status.insert("activeLaunchConfigurationName".into(), json!(configuration));
        }
        status.insert("currentMin".into(), json!(group.min));
        status.insert("currentMax".into(), json!(group.max));
    }
    if let Some(join) = joining(input).told(input.status.join.as_ref()) {
        status.insert("join".into(), json!(join));
    }
    Facts { status, nodes_ready: None }
}

/// A recommendation is remembered before it is followed, because its event goes.
fn recommended(input: &Input, draft: &mut Draft) {
    let found = &input.resolved.wanted.recommended;
    if found.is_some() && *found != input.status.spot_recommendation {
        draft.step(ObjectStep::Record { status: json!({ "spotRecommendation": found }) });
    }
    // Who never heard of one is not told so.
    if found.is_some() || input.status.using_spot_recommendation.is_some() {
        draft.facts.status.insert("usingSpotRecommendation".into(), json!(found.is_some()));
    }
}

fn sizes(input: &Input, group: &ScalingGroup, pin: Option<Pin>, draft: &mut Draft) {
    let w = &input.resolved.wanted;
    let mut because = Vec::new();
    let mut change = ScalingGroupChange::default();
    if group.min != w.min {
        change.min = Some(w.min);
        because.push(Drift::new("minSize", group.min, w.min));
    }
    let max = scale_in::max(input, group);
    if group.max != max {
        change.max = Some(max);
        because.push(Drift::new("maxSize", group.max, max));
    }
    if group.subnets != input.resolved.subnets {
        change.subnets = Some(input.resolved.subnets.clone());
        because.push(Drift::new("subnets", group.subnets.join(", "), input.resolved.subnets.join(", ")));
    }
    let pin = buy(input, group, pin, &mut change, &mut because, draft);
    mixed_instances::record(input, change.mixed.as_ref(), draft);
    let repin = draft.steps.iter_mut().find(|s| matches!(s.step, Step::Eks(EksStep::UpdateGroup { .. })));
    match repin {
        Some(Planned { step: Step::Eks(EksStep::UpdateGroup { change: c, .. }), because: b }) => {
            *c = change;
            b.extend(because);
        }
        _ if change != ScalingGroupChange::default() || pin.is_some() => {
            because.extend(pin.as_ref().and_then(|pin| repinned(group, pin)));
            // The version is made right before it is pinned.
            let delete = draft
                .steps
                .iter()
                .position(|s| matches!(s.step, Step::Eks(EksStep::DeleteTemplateVersions { .. })))
                .unwrap_or(draft.steps.len());
            let update = EksStep::UpdateGroup { group: group.name.clone(), change, pin };
            draft.steps.insert(delete, Planned::new(update, because));
        }
        _ => {}
    }
}

/// A version that the group is not pinned to yet.
fn repinned(group: &ScalingGroup, pin: &Pin) -> Option<Drift> {
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
fn buy(
    input: &Input,
    group: &ScalingGroup,
    pin: Option<Pin>,
    change: &mut ScalingGroupChange,
    because: &mut Vec<Drift>,
    draft: &Draft,
) -> Option<Pin> {
    if draft.outcome.is_some() {
        return pin;
    }
    let repins = draft.steps.iter().any(|s| matches!(s.step, Step::Eks(EksStep::UpdateGroup { .. })));
    let changes = repins || matches!(pin, Some(Pin::Made { .. })) || change.subnets.is_some();
    let policy = mixed_instances::policy(input, Some(group), changes);
    let differs = mixed_instances::drift(group.mixed.as_ref(), policy.as_ref());
    if pin.is_none() && !repins && differs.is_empty() {
        return None;
    }
    let current = || {
        let pin = group.template.as_ref()?;
        Some(Pin::Version { template: pin.id.clone(), number: observed::number(pin, input.state.template.as_ref())? })
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
