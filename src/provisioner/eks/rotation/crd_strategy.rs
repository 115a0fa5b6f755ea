//! The strategy `crd` for a scaling group: plans the next steps from the outdated nodes and the existing resources.
//!
//! The controller counts outdated nodes itself, so a resource that reports success too early does not end the upgrade.

use serde_json::Value;

use crate::api::spec_error::SpecError;
use crate::api::{InstanceGroupStatus, StrategyProgress};
use crate::aws::{InstanceState, ScalingGroup};
use crate::plan::{Outcome, Phase, PlanBuilder, Recheck, StalledReason, StrategyStep};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::observed;
use crate::provisioner::eks::observed::{ObservedState, StrategyState};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::scaling_group::subnets;
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;
use crate::rotation::crd::decide;
use crate::rotation::crd::decide::{
    CrdStrategyAction, CrdStrategyDecision, CrdStrategyState, StrategyResource, decide,
};
use crate::rotation::crd::resource;
use crate::rotation::crd::resource::{RenderTarget, RenderedResource, ResourceKind};
use crate::rotation::crd::template_context::{TemplateSource, plain_words, template_context};
use crate::rotation::crd::{CrdUpgrade, template};
use crate::util::counted::are;
use crate::util::digest::sha256_hex;
use crate::util::redact::Redacted;

/// How many outdated instances are not terminating yet.
pub(crate) fn outdated_count(members: &[NodeInstance]) -> usize {
    let is_leaving = |m: &&NodeInstance| matches!(m.instance.state, InstanceState::Terminating | InstanceState::Other);
    members.iter().filter(|m| !is_leaving(m) && !m.reasons.is_empty()).count()
}

/// Renders and validates the resource that the strategy would submit now.
pub fn build_request(
    crd: &CrdUpgrade,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> Result<RenderedResource, SpecError> {
    let mut status = status.clone();
    status.active_scaling_group_name = Some(group.name.clone());
    // The status names the version that is pinned now only after this reconcile.
    let version = group.template.as_ref().and_then(|pin| observed::version_number(pin, state.template.as_ref()));
    status.latest_template_version = version.map(|number| number.to_string()).or(status.latest_template_version);
    let id = &resolved.desired.id;
    let render = |metadata: &Value, spec: &Value| {
        let image = &resolved.template_data.image_id;
        let (root, weight) = template_context(&TemplateSource { id, metadata, spec, image, status: &status });
        template::render(crd.template.expose(), root, weight)
    };
    let (metadata, spec) = (crd.metadata.expose(), crd.spec.expose());
    let version = version_id(resolved, state, &status, group);
    let target = RenderTarget { group_namespace: &id.namespace, scaling_group: &group.name, version_id: &version };
    let resource = resource::validate_resource(&render(metadata, spec)?, &crd.submission_policy, &target)?;
    if resource::limits_script_text(&crd.submission_policy, &id.namespace) {
        resource::validate_script_text(&resource, || render(&plain_words(metadata), &plain_words(spec)))?;
    }
    Ok(resource)
}

/// Identifies the upgrade in the resource's name: by the desired version, and by the removed subnets while their nodes are
/// replaced. An earlier resource of the same version has not replaced these.
fn version_id(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> String {
    let version = desired_version_id(state, group);
    match subnets::detached_subnets(resolved, group, status) {
        left if left.is_empty() => version,
        left => format!("{version}-{}", &sha256_hex(&left.join(" "))[..8]),
    }
}

/// The last part of the template's name and the version number, or the last part of the launch configuration's name.
fn desired_version_id(state: &ObservedState, group: &ScalingGroup) -> String {
    let last = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    if let Some(name) = launch_configuration::current_name(group) {
        return last(name);
    }
    let name = state.template.as_ref().map(|t| last(&t.name)).unwrap_or_default();
    let version = group.template.as_ref().and_then(|pin| observed::version_number(pin, state.template.as_ref()));
    format!("{name}-{}", version.unwrap_or_default())
}

/// Whether the strategy's resources must be read: nodes are outdated, or the last upgrade is unfinished.
pub fn needs_observation(status: &InstanceGroupStatus, outdated: usize) -> bool {
    let is_adopted = status.strategy_progress.is_none()
        && status.strategy_resource_name.as_ref().is_some_and(|name| !name.is_empty())
        && status.current_state.as_deref() == Some(crate::api::CurrentState::InitUpgrade.as_str());
    outdated > 0 || is_adopted || decide::is_unfinished(status)
}

/// What would prevent the next upgrade of a group without outdated nodes. It is reported at once: otherwise a user
/// learns of it in the middle of the first rotation.
pub(crate) fn submission_problem(input: &PlanInput) -> Option<SpecError> {
    match input.observed.strategy_state.as_ref()? {
        StrategyState::Refused(problem) => Some(problem.clone()),
        StrategyState::Forbidden(message) => {
            Some(SpecError::from_message(message).with_reason(StalledReason::MissingPermission))
        }
        StrategyState::Missing(request) => {
            Some(SpecError::from_message(kind_not_found(request)).with_reason(StalledReason::StrategyKindNotFound))
        }
        StrategyState::Left(_) | StrategyState::Seen { .. } => None,
    }
}

/// Submits, waits for, abandons or replaces a resource.
pub(crate) fn plan_strategy(
    input: &PlanInput,
    crd: &CrdUpgrade,
    members: &[NodeInstance],
    blocker: Option<Outcome>,
    builder: &mut PlanBuilder,
) {
    let outdated = outdated_count(members);
    // While nobody knows which nodes are outdated, the upgrade has not ended.
    let is_unknown = outdated == 0 && input.resolved.broken.contains(Part::Launch);
    let blocked = |reason, message| Outcome::Blocked { reason, message, is_deleting: false };
    let (request, kind, resources) = match &input.observed.strategy_state {
        None if !needs_observation(input.status, outdated) => {
            if !is_unknown {
                forget_upgrade(input, builder);
            }
            return;
        }
        Some(StrategyState::Left(_)) => return,
        // What prevents a submission does not block a group that needs none.
        Some(StrategyState::Refused(_) | StrategyState::Forbidden(_) | StrategyState::Missing(_)) if outdated == 0 => {
            return;
        }
        // Only a simulation has not read the resources.
        None => {
            return builder.set_outcome_once(waiting(format!(
                "{} outdated; {} replaces them",
                are(outdated, "node"),
                crd.crd_name
            )));
        }
        Some(StrategyState::Refused(problem)) => {
            return builder.set_outcome_once(blocked(problem.reason, problem.to_string()));
        }
        Some(StrategyState::Forbidden(message)) => {
            return builder.set_outcome_once(blocked(StalledReason::MissingPermission, message.clone()));
        }
        Some(StrategyState::Missing(request)) => {
            return builder.set_outcome_once(blocked(StalledReason::StrategyKindNotFound, kind_not_found(request)));
        }
        Some(StrategyState::Seen { request, kind, resources }) => (request, kind, resources),
    };
    let mut decision = decide(&decide::CrdStrategyInput {
        kind,
        namespace: &request.namespace,
        desired_name: &request.name,
        concurrency: crd.concurrency,
        max_retries: crd.max_retries,
        retry_delay: input.timing.poll_interval,
        max_retry_delay: input.timing.retry_delay,
        status_matcher: &crd.status_matcher,
        outdated,
        rotate_at: input.resolved.desired.rolling_update.rotate_at.filter(|at| *at <= input.now),
        has_time_to_live: request.has_time_to_live(),
        is_requested: input.is_requested,
        now: input.now,
        status: input.status,
        resources,
    });
    if let Some(blocker) = blocker.filter(|_| !decision.actions.is_empty()) {
        return builder.set_outcome_once(blocker);
    }
    if is_unknown {
        decision.progress = decision.progress.filter(|progress| progress.state.is_some());
    } else if outdated == 0 && !resources.iter().any(StrategyResource::is_active) {
        forget_upgrade(input, builder);
    }
    apply_decision(decision, request, kind, members, input.status, builder);
}

/// The outcome while a resource of the strategy `crd` is still active although the spec names another strategy: the
/// controller replaces no nodes meanwhile. A finished or deleted resource is removed from the status.
pub(crate) fn superseded_outcome(
    input: &PlanInput,
    members: &[NodeInstance],
    builder: &mut PlanBuilder,
) -> Option<Outcome> {
    match &input.observed.strategy_state {
        Some(StrategyState::Left(Some(_)) | StrategyState::Forbidden(_)) if outdated_count(members) == 0 => None,
        Some(StrategyState::Left(Some(resource))) => {
            Some(waiting(format!("waiting for {}", resource.describe_left_behind(outdated_count(members)))))
        }
        Some(StrategyState::Left(None)) => {
            builder.set_status("strategyProgress", StrategyProgress::default());
            forget_upgrade(input, builder);
            None
        }
        Some(StrategyState::Forbidden(message)) => {
            let message = message.clone();
            Some(Outcome::Blocked { reason: StalledReason::MissingPermission, message, is_deleting: false })
        }
        Some(StrategyState::Refused(_) | StrategyState::Missing(_) | StrategyState::Seen { .. }) | None => None,
    }
}

fn forget_upgrade(input: &PlanInput, builder: &mut PlanBuilder) {
    let fields = decide::forgotten_upgrade(input.status).map(|(field, value)| (field.to_owned(), value));
    builder.status_update.fields.extend(fields);
}

fn apply_decision(
    decision: CrdStrategyDecision,
    request: &RenderedResource,
    kind: &ResourceKind,
    members: &[NodeInstance],
    status: &InstanceGroupStatus,
    builder: &mut PlanBuilder,
) {
    let (kind, namespace) = (kind.clone(), request.namespace.clone());
    // After a submission the group is polled: a resource that is deleted immediately must not cause a fast loop.
    let recheck =
        if decision.actions.contains(&CrdStrategyAction::Submit) { Recheck::Poll } else { Recheck::Immediately };
    let reasons = members.iter().find(|m| !m.reasons.is_empty()).map(|m| m.reasons.clone()).unwrap_or_default();
    for action in decision.actions {
        match action {
            CrdStrategyAction::UpdateStatus(status) => builder.record_after_steps(status),
            CrdStrategyAction::Delete { kind, namespace, name, uid } => {
                builder.push(StrategyStep::DeleteStrategyResource { kind, namespace, name, uid });
            }
            CrdStrategyAction::Submit => {
                let (kind, namespace, name) = (kind.clone(), namespace.clone(), request.name.clone());
                let object = Redacted::new(request.object.expose().clone());
                let step = StrategyStep::CreateStrategyResource { kind, namespace, name, object };
                builder.push_with_reasons(step, reasons.clone());
            }
        }
    }
    if let Some(progress) = decision.progress {
        set_progress(progress, request, status, builder);
    }
    match decision.state {
        CrdStrategyState::Done => {}
        CrdStrategyState::Acted(message) => {
            builder.set_outcome_once(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
        }
        CrdStrategyState::Waiting(what) => builder.set_outcome_once(waiting(format!("waiting for {what}"))),
        CrdStrategyState::Blocked(reason, message) => {
            builder.set_outcome_once(Outcome::Blocked { reason, message, is_deleting: false })
        }
    }
}

/// Sets the progress, and the name that it is about: a status that was lost, or that names another resource, would not
/// tell which resource is active. A progress without a state is about none.
fn set_progress(
    progress: StrategyProgress,
    request: &RenderedResource,
    status: &InstanceGroupStatus,
    builder: &mut PlanBuilder,
) {
    let RenderedResource { namespace, name, .. } = request;
    let recorded = (status.strategy_resource_namespace.as_ref(), status.strategy_resource_name.as_ref());
    if progress.state.is_some() && recorded != (Some(namespace), Some(name)) {
        builder.set_status("strategyResourceName", name);
        builder.set_status("strategyResourceNamespace", namespace);
        builder.set_status("strategyRetryCount", 0);
    }
    builder.set_status("strategyProgress", progress);
}

fn waiting(message: String) -> Outcome {
    Outcome::Progressing { phase: Phase::Rotating, message, recheck: Recheck::Poll }
}

fn kind_not_found(request: &RenderedResource) -> String {
    let RenderedResource { group, version, kind, .. } = request;
    format!(
        "the API server does not serve the kind {kind} of {group}/{version}; install its controller and CustomResourceDefinition, or use the strategy rollingUpdate"
    )
}
