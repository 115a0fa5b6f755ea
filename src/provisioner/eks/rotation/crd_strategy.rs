//! The strategy `crd` for a scaling group: from what is outdated and which
//! resources there are to the next steps. Our own count of outdated nodes has a
//! word in it: a strategy that says success too early is not believed.

use serde_json::json;

use crate::api::spec_error::Problem;
use crate::api::{InstanceGroupStatus, StrategyProgress};
use crate::aws::{InstanceState, ScalingGroup};
use crate::plan::{Draft, ObjectStep, Outcome, Phase, Planned, Reason, Recheck, StrategyStep};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::observed;
use crate::provisioner::eks::observed::{State, StrategyView};
use crate::provisioner::eks::resolve::Resolved;
use crate::rotation::Member;
use crate::rotation::crd::decide;
use crate::rotation::crd::decide::{Act, Decision, Stand, decide};
use crate::rotation::crd::resource;
use crate::rotation::crd::resource::{Purpose, Request, ResourceKind};
use crate::rotation::crd::template_context::{Source, root};
use crate::rotation::crd::{CrdUpgrade, template};
use crate::util::redact::Redacted;

/// Instances that are to be replaced and are not on their way out already.
pub fn outdated(members: &[Member]) -> usize {
    let leaves = |m: &&Member| matches!(m.instance.state, InstanceState::Terminating | InstanceState::Other);
    members.iter().filter(|m| !leaves(m) && !m.outdated.is_empty()).count()
}

/// What the strategy would submit now.
pub fn request(
    crd: &CrdUpgrade,
    resolved: &Resolved,
    state: &State,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> Result<Request, Problem> {
    let mut status = status.clone();
    status.active_scaling_group_name = Some(group.name.clone());
    let text = crd.template.expose();
    let (root, weight) = root(&Source {
        id: &resolved.wanted.id,
        metadata: crd.metadata.expose(),
        spec: crd.spec.expose(),
        image: &resolved.data.image_id,
        status: &status,
    });
    let rendered = template::render(text, root, weight)?;
    let id = id(state, group);
    let purpose = Purpose { group_namespace: &resolved.wanted.id.namespace, scaling_group: &group.name, id: &id };
    resource::request(&rendered, &crd.allowed, &purpose)
}

/// What is wanted, in a word: the end of the template's name and the version, or the end of a launch configuration's.
fn id(state: &State, group: &ScalingGroup) -> String {
    let last = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    if let Some(name) = launch_configuration::of(group) {
        return last(name);
    }
    let name = state.template.as_ref().map(|t| last(&t.name)).unwrap_or_default();
    let version = group.template.as_ref().and_then(|pin| observed::number(pin, state.template.as_ref()));
    format!("{name}-{}", version.unwrap_or_default())
}

/// Whether the resources have to be looked at: something is to be replaced, or the strategy has yet to say that it is done.
pub fn asked(status: &InstanceGroupStatus, outdated: usize) -> bool {
    let taken_over = status.strategy_progress.is_none()
        && status.strategy_resource_name.as_ref().is_some_and(|name| !name.is_empty())
        && status.current_state.as_deref() == Some(crate::api::CurrentState::InitUpgrade.as_str());
    outdated > 0 || taken_over || decide::open(status)
}

/// Submits, waits for, gives up or replaces a resource.
pub fn nodes(input: &Input, crd: &CrdUpgrade, members: &[Member], held: Option<Outcome>, draft: &mut Draft) {
    let outdated = outdated(members);
    let blocked = |reason, message| Outcome::Blocked { reason, message, deleting: false };
    let (request, kind, resources) = match &input.state.strategy {
        None if !asked(input.status, outdated) => return,
        Some(StrategyView::Left(_)) => return,
        // Only who plans ahead has not looked.
        None => return draft.decide(waiting(format!("{outdated} nodes are outdated; {} replaces them", crd.crd_name))),
        Some(StrategyView::Refused(problem)) => return draft.decide(blocked(problem.reason, problem.to_string())),
        Some(StrategyView::Forbidden(message)) => {
            return draft.decide(blocked(Reason::MissingPermission, message.clone()));
        }
        Some(StrategyView::Missing(request)) => {
            return draft.decide(blocked(Reason::StrategyMissing, missing(request)));
        }
        Some(StrategyView::Seen { request, kind, resources }) => (request, kind, resources),
    };
    let decision = decide(&decide::Input {
        kind,
        namespace: &request.namespace,
        wanted: &request.name,
        concurrency: crd.concurrency,
        max_retries: crd.max_retries,
        pause: input.timing.poll,
        longest_pause: input.timing.rest,
        words: &crd.words,
        outdated,
        rotate_at: input.resolved.wanted.strategy.rotate_at.filter(|at| *at <= input.now),
        now: input.now,
        status: input.status,
        resources,
    });
    if let Some(held) = held.filter(|_| !decision.acts.is_empty()) {
        return draft.decide(held);
    }
    apply(decision, request, kind, members, draft);
}

/// How a group stands whose spec names another strategy while what was submitted for `crd` is at work: nobody else takes
/// nodes then. What has ended, or is gone, leaves the status.
pub fn left(input: &Input, members: &[Member], draft: &mut Draft) -> Option<Outcome> {
    match &input.state.strategy {
        Some(StrategyView::Left(Some(resource))) => {
            Some(waiting(format!("waiting for {}", resource.left_behind(outdated(members)))))
        }
        Some(StrategyView::Left(None)) => {
            draft.facts.status.insert("strategyProgress".into(), json!(StrategyProgress::default()));
            None
        }
        Some(StrategyView::Forbidden(message)) => {
            let message = message.clone();
            Some(Outcome::Blocked { reason: Reason::MissingPermission, message, deleting: false })
        }
        Some(StrategyView::Refused(_) | StrategyView::Missing(_) | StrategyView::Seen { .. }) | None => None,
    }
}

fn apply(decision: Decision, request: &Request, kind: &ResourceKind, members: &[Member], draft: &mut Draft) {
    let (kind, namespace) = (kind.clone(), request.namespace.clone());
    // What was submitted is looked at with the poll: one that is gone at once, again and again, must not go round faster.
    let recheck = if decision.acts.contains(&Act::Submit) { Recheck::Poll } else { Recheck::Soon };
    let why = members.iter().find(|m| !m.outdated.is_empty()).map(|m| m.outdated.clone()).unwrap_or_default();
    draft.steps.extend(decision.acts.into_iter().map(|act| match act {
        Act::Record(status) => ObjectStep::Record { status }.into(),
        Act::Delete { kind, namespace, name, uid } => {
            StrategyStep::DeleteStrategy { kind, namespace, name, uid }.into()
        }
        Act::Submit => {
            let (kind, namespace, name) = (kind.clone(), namespace.clone(), request.name.clone());
            let object = Redacted::new(request.object.expose().clone());
            Planned::new(StrategyStep::SubmitStrategy { kind, namespace, name, object }, why.clone())
        }
    }));
    if let Some(progress) = decision.progress {
        draft.facts.status.insert("strategyProgress".into(), json!(progress));
    }
    match decision.stand {
        Stand::Done => {}
        Stand::Acted(message) => {
            draft.decide(Outcome::Progressing { phase: Phase::Rotating, message, recheck });
        }
        Stand::Waiting(what) => draft.decide(waiting(format!("waiting for {what}"))),
        Stand::Blocked(reason, message) => draft.decide(Outcome::Blocked { reason, message, deleting: false }),
    }
}

fn waiting(message: String) -> Outcome {
    Outcome::Progressing { phase: Phase::Rotating, message, recheck: Recheck::Poll }
}

fn missing(request: &Request) -> String {
    let Request { group, version, kind, .. } = request;
    format!(
        "the API server does not know the kind {kind} of {group}/{version}; install the controller that brings it, with its CustomResourceDefinition, or use the strategy rollingUpdate"
    )
}
