//! Decides whether the resource of the crd strategy is submitted, waited for, retried or replaced.
//!
//! The name of a resource contains the desired template version, so a create whose response was lost is found again and
//! never repeated. Retries are recorded in the status before the write, so a restart does not reset them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, InstanceGroupStatus, StrategyProgress};
use crate::plan::stalled_reason::StalledReason;
use crate::rotation::crd::kind::ResourceKind;
pub use crate::rotation::crd::status_matcher::ResourcePhase;
use crate::rotation::crd::status_matcher::StatusMatcher;
use crate::util::counted::are;
use crate::util::recorded_time;

/// A custom resource that the API server has, such as a RollingUpgrade, and how far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyResource {
    /// API version and kind of the custom resource.
    pub kind: ResourceKind,
    /// Namespace of the custom resource.
    pub namespace: String,
    /// Name of the custom resource.
    pub name: String,
    /// UID; a recreated resource of the same name has another one.
    pub uid: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Whether it carries the controller's annotations for this group's scaling group.
    pub is_owned: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Phase, from its own status.
    pub phase: ResourcePhase,
}

/// Everything that the decision depends on.
pub(crate) struct CrdStrategyInput<'a> {
    /// The kind of the resource.
    pub kind: &'a ResourceKind,
    /// The namespace of the resource.
    pub namespace: &'a str,
    /// Name of the resource for the desired template version.
    pub desired_name: &'a str,
    /// What to do about active resources of other names.
    pub concurrency: ConcurrencyPolicy,
    /// How often a failed resource is submitted again; `None` means without limit.
    pub max_retries: Option<i64>,
    /// Delay between the submission of a resource that failed and its first retry; it doubles with each retry.
    pub retry_delay: SignedDuration,
    /// The doubled retry delay is never longer than this.
    pub max_retry_delay: SignedDuration,
    /// How the status of the resource is read.
    pub status_matcher: &'a StatusMatcher,
    /// Number of outdated nodes.
    pub outdated: usize,
    /// Nodes launched before this time are outdated, so a resource created before it does not count.
    pub rotate_at: Option<Timestamp>,
    /// Whether the desired resource is deleted some time after its end without a user.
    pub has_time_to_live: bool,
    /// Whether a user requests another attempt.
    pub is_requested: bool,
    /// Reference time of the decision.
    pub now: Timestamp,
    /// Status of the group.
    pub status: &'a InstanceGroupStatus,
    /// The resource of the desired name; if it does not exist, all resources for this scaling group. Also the
    /// unfinished resource that the status records, if it is another one.
    pub resources: &'a [StrategyResource],
}

/// What to do now, and the state of the upgrade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrdStrategyDecision {
    /// The actions in order.
    pub actions: Vec<CrdStrategyAction>,
    /// State of the upgrade after the actions.
    pub state: CrdStrategyState,
    /// New value of `status.strategyProgress`, written with the status; `None` keeps the old one. One with a state is
    /// about the desired resource, so the name of that resource is written with it.
    pub progress: Option<StrategyProgress>,
}

/// One write of the upgrade. Actions are applied in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CrdStrategyAction {
    /// Write this merge patch to the status before the next action.
    UpdateStatus(Value),
    /// Delete exactly this resource.
    Delete {
        /// API version and kind of the custom resource.
        kind: ResourceKind,
        /// Namespace of the custom resource.
        namespace: String,
        /// Name of the custom resource.
        name: String,
        /// UID of the custom resource, so that another one of its name is not deleted.
        uid: String,
    },
    /// Create the desired resource.
    Submit,
}

/// State of the upgrade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CrdStrategyState {
    /// The upgrade is complete, or none is needed.
    Done,
    /// This pass has actions; holds a summary of them.
    Acted(String),
    /// Waiting for a resource; a phrase that follows "waiting for".
    Waiting(String),
    /// The upgrade makes no progress until a user acts.
    Blocked(StalledReason, String),
}

/// Values of `status.strategyProgress.state`.
pub(crate) mod state {
    /// The resource is about to be submitted, or is active.
    pub(crate) const SUBMITTED: &str = "Submitted";
    /// The resource failed and the retry is counted, or it is of an earlier upgrade. It is deleted and submitted again.
    pub(crate) const RETRYING: &str = "Retrying";
    /// The resource reported success, and nodes were outdated.
    pub(crate) const SUCCEEDED: &str = "Succeeded";
    /// The resource ended while nodes were outdated, and has no retries left.
    pub(crate) const FAILED: &str = "Failed";
    /// Another user deleted the resource, and it has no retries left.
    pub(crate) const GONE: &str = "Gone";
}

/// Whether the status records a resource that has not succeeded yet.
pub(crate) fn is_unfinished(status: &InstanceGroupStatus) -> bool {
    let state = status.strategy_progress.as_ref().and_then(|p| p.state.as_deref());
    matches!(state, Some(state::SUBMITTED | state::RETRYING | state::FAILED | state::GONE))
}

/// The status fields that end an upgrade: the next one to the same version begins without the retries of this one, and
/// without its success, which would make it a retry.
pub(crate) fn forgotten_upgrade(status: &InstanceGroupStatus) -> impl Iterator<Item = (&'static str, Value)> {
    let retries = status.strategy_retry_count.filter(|count| *count > 0).map(|_| ("strategyRetryCount", json!(0)));
    let has_succeeded = |p: &&StrategyProgress| p.state.as_deref() == Some(state::SUCCEEDED);
    let success = status.strategy_progress.as_ref().filter(has_succeeded);
    retries.into_iter().chain(success.map(|_| ("strategyProgress", json!(StrategyProgress::default()))))
}

/// Whether the status records a resource that replaces nodes.
pub(crate) fn is_at_work(status: &InstanceGroupStatus) -> bool {
    let state = status.strategy_progress.as_ref().and_then(|p| p.state.as_deref());
    matches!(state, Some(state::SUBMITTED | state::RETRYING))
}

/// The resource that was submitted last, if the status records that it has not succeeded yet.
pub(crate) fn last_submitted(status: &InstanceGroupStatus) -> Option<PreviousResource<'_>> {
    let progress = status.strategy_progress.as_ref().filter(|_| is_unfinished(status))?;
    let name = status.strategy_resource_name.as_deref().filter(|name| !name.is_empty())?;
    let namespace = status.strategy_resource_namespace.as_deref().filter(|namespace| !namespace.is_empty())?;
    let version = progress.api_version.as_deref().and_then(|v| v.split_once('/'));
    let kind = version.zip(progress.kind.as_deref()).map(|((group, version), kind)| [group, version, kind]);
    Some(PreviousResource { kind, namespace, name })
}

/// Like [`last_submitted`], but only if the desired resource has another kind, namespace or name.
pub(crate) fn previous_resource<'a>(
    status: &'a InstanceGroupStatus,
    kind: &ResourceKind,
    namespace: &str,
    desired_name: &str,
) -> Option<PreviousResource<'a>> {
    let last = last_submitted(status)?;
    let other = last.kind.filter(|[group, _, name]| (*group, *name) != (&kind.group, &kind.kind));
    let is_other = other.is_some() || (last.namespace, last.name) != (namespace, desired_name);
    is_other.then_some(PreviousResource { kind: other, ..last })
}

/// Identity of a resource that was submitted before the desired version, its template or the strategy changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PreviousResource<'a> {
    /// API group, version and kind; `None` when it is the same kind, or when none is recorded.
    pub kind: Option<[&'a str; 3]>,
    /// Namespace of the custom resource.
    pub namespace: &'a str,
    /// Name of the custom resource.
    pub name: &'a str,
}

/// Decides the next actions. While no node is outdated, no resource blocks the group.
pub(crate) fn decide(input: &CrdStrategyInput) -> CrdStrategyDecision {
    let found = input.resources.iter().find(|r| input.is_desired(r));
    match found {
        // An active resource stays recorded, so that the next upgrade finds it.
        _ if input.outdated == 0 && active_resources(input).next().is_some() => done(),
        Some(resource) if input.outdated == 0 => nothing_outdated(input, resource),
        Some(resource) if !resource.is_owned => {
            blocked(StalledReason::OwnershipConflict, ownership_conflict_message(input))
        }
        Some(resource) if resource.is_deleting => {
            waiting(format!("{} to be deleted", input.display_name(input.desired_name)))
        }
        Some(resource) => resource_present(input, resource),
        None if input.outdated == 0 => nothing_recorded(),
        None => resource_absent(input),
    }
}

impl CrdStrategyInput<'_> {
    fn display_name(&self, name: &str) -> String {
        format!("{} {}/{name}", self.kind, self.namespace)
    }

    fn is_desired(&self, resource: &StrategyResource) -> bool {
        let StrategyResource { kind, namespace, name, .. } = resource;
        (kind, namespace.as_str(), name.as_str()) == (self.kind, self.namespace, self.desired_name)
    }

    /// The recorded progress, if it is about the desired resource. The Keiko controller records none. One without a
    /// state was cleared: it is about no resource.
    fn recorded_progress(&self) -> Option<StrategyProgress> {
        let status = self.status;
        let is_same = status.strategy_resource_name.as_deref() == Some(self.desired_name)
            && status.strategy_resource_namespace.as_deref() == Some(self.namespace)
            && previous_resource(status, self.kind, self.namespace, self.desired_name).is_none();
        let is_cleared = status.strategy_progress.as_ref().is_some_and(|progress| progress.state.is_none());
        (is_same && !is_cleared).then(|| status.strategy_progress.clone().unwrap_or_default())
    }

    fn retries(&self) -> i64 {
        // keikoproj/instance-manager writes -1 for unlimited retries.
        self.status.strategy_retry_count.unwrap_or(0).max(0)
    }

    fn can_retry(&self) -> bool {
        self.max_retries.is_none_or(|max| self.retries() < max)
    }

    /// When a failed resource may be retried; `None` when it may be now. Based on the resource's creation time, so that a
    /// restart changes nothing.
    fn retry_at(&self, resource: &StrategyResource) -> Option<Timestamp> {
        let doublings = u32::try_from(self.retries()).unwrap_or(u32::MAX).min(20);
        let delay = (self.retry_delay * (1 << doublings)).min(self.max_retry_delay);
        let created = resource.created_at?;
        let until = created.saturating_add(delay).ok()?;
        // A creation far in the future, by the clock of the API server or of this process, delays nothing.
        (until > self.now && !recorded_time::is_ahead(created, self.max_retry_delay, self.now)).then_some(until)
    }

    /// The progress to record for the desired resource.
    fn progress(&self, state: &str, uid: Option<&str>) -> StrategyProgress {
        let ResourceKind { group, version, kind, .. } = self.kind;
        StrategyProgress {
            state: Some(state.into()),
            uid: uid.map(str::to_owned),
            api_version: Some(format!("{group}/{version}")),
            kind: Some(kind.clone()),
            status_json_path: Some(self.status_matcher.path.to_string()),
            status_success_string: Some(self.status_matcher.success.as_str().to_owned()),
            status_failure_string: Some(self.status_matcher.failure.as_str().to_owned()),
        }
    }

    fn record_progress(&self, retries: i64, state: &str, uid: Option<&str>) -> CrdStrategyAction {
        let mut progress = json!(self.progress(state, uid));
        progress["uid"] = json!(uid);
        CrdStrategyAction::UpdateStatus(json!({
            "strategyResourceName": self.desired_name,
            "strategyResourceNamespace": self.namespace,
            "strategyRetryCount": retries,
            "strategyProgress": progress,
        }))
    }
}

/// Decides when nodes are outdated and the desired resource exists.
fn resource_present(input: &CrdStrategyInput, resource: &StrategyResource) -> CrdStrategyDecision {
    let resource_name = input.display_name(input.desired_name);
    let recorded = input.recorded_progress();
    if let Some(decision) =
        apply_concurrency_policy(input).filter(|_| resource.phase.is_finished() && recorded.is_none())
    {
        return decision;
    }
    let is_recorded_as = |state: &str| {
        let has_uid = |p: &StrategyProgress| p.uid.as_deref() == Some(&resource.uid);
        recorded.as_ref().is_some_and(|p| p.state.as_deref() == Some(state) && has_uid(p))
    };
    match &resource.phase {
        ResourcePhase::Unreadable(what) => {
            let message = format!(
                "spec.strategy.crd.statusJSONPath `{}` is {what} in {resource_name}; use the path of a string field with its status",
                input.status_matcher.path
            );
            with_progress(input, blocked(StalledReason::InvalidSpec, message), state::SUBMITTED, resource)
        }
        ResourcePhase::Active(status) => {
            let phase = describe_phase(status);
            let (path, outdated) = (&input.status_matcher.path, input.outdated);
            let message = format!("{resource_name}, which {phase} in {path}; {} outdated", are(outdated, "node"));
            with_progress(input, waiting(message), state::SUBMITTED, resource)
        }
        // A resource that ended before the nodes became outdated has not replaced them.
        ResourcePhase::Succeeded | ResourcePhase::Failed if is_stale(input, resource, recorded.is_some()) => {
            in_progress(
                // As for a retry: after a restart it is still to be deleted, and is no failure of this upgrade.
                vec![input.record_progress(0, state::RETRYING, Some(&resource.uid)), delete_action(resource)],
                format!("{resource_name} belongs to an earlier upgrade and is deleted first"),
            )
        }
        // The caches may still show the last replaced nodes.
        ResourcePhase::Succeeded
            if ![state::SUCCEEDED, state::RETRYING, state::FAILED].into_iter().any(is_recorded_as) =>
        {
            with_progress(
                input,
                waiting(format!("the nodes that {resource_name} reports as replaced to be deleted")),
                state::SUCCEEDED,
                resource,
            )
        }
        ResourcePhase::Succeeded | ResourcePhase::Failed => {
            resource_ended(input, resource, is_recorded_as(state::RETRYING))
        }
    }
}

/// Whether the resource ended before the current upgrade began.
fn is_stale(input: &CrdStrategyInput, resource: &StrategyResource, is_recorded: bool) -> bool {
    let before = |at: Timestamp| resource.created_at.is_some_and(|created| created < at);
    !is_recorded || input.rotate_at.is_some_and(before)
}

/// Submits a resource again that failed, or that reported success although nodes are outdated: they may have become so
/// while it ran, or after it ended.
fn resource_ended(
    input: &CrdStrategyInput,
    resource: &StrategyResource,
    is_retry_counted: bool,
) -> CrdStrategyDecision {
    let resource_name = input.display_name(input.desired_name);
    let retries = input.retries();
    let (ended, recorded_as) = match resource.phase {
        ResourcePhase::Succeeded => ("reported success", state::SUCCEEDED),
        ResourcePhase::Failed | ResourcePhase::Active(_) | ResourcePhase::Unreadable(_) => ("failed", state::SUBMITTED),
    };
    if is_retry_counted {
        return in_progress(
            vec![delete_action(resource)],
            format!("{resource_name} {ended} and is deleted before the next retry"),
        );
    }
    let outdated = are(input.outdated, "node");
    if input.can_retry() {
        let limit = input.max_retries.map(|max| format!(" of {max}")).unwrap_or_default();
        if let Some(until) = input.retry_at(resource) {
            let until = crate::api::rfc3339(until);
            let message = format!(
                "{until} to submit {resource_name} again, which {ended}, but {outdated} outdated; retry {}{limit}",
                retries + 1
            );
            return with_progress(input, waiting(message), recorded_as, resource);
        }
        let message = format!("{resource_name} {ended}, but {outdated} outdated; retry {}{limit}", retries + 1);
        let actions =
            vec![input.record_progress(retries + 1, state::RETRYING, Some(&resource.uid)), delete_action(resource)];
        return in_progress(actions, message);
    }
    let remedy = match input.has_time_to_live {
        true => "raise maxRetries, or delete it and run instance-manager reconcile for the group, to retry the upgrade",
        false => "delete it to retry the upgrade",
    };
    let message = format!(
        "{resource_name} {ended} (after {retries} retries), but {outdated} outdated; find out why, then {remedy}"
    );
    with_progress(input, blocked(StalledReason::StrategyFailed, message), state::FAILED, resource)
}

/// Records how the desired resource stands when no node is outdated. One that has not ended is observed until it ends.
fn nothing_outdated(input: &CrdStrategyInput, resource: &StrategyResource) -> CrdStrategyDecision {
    if !resource.is_owned || resource.is_deleting {
        return done();
    }
    let has_ended = |p: &StrategyProgress| p.state.as_deref().is_none_or(|state| state == state::SUCCEEDED);
    let state = match (&resource.phase, input.recorded_progress()) {
        (ResourcePhase::Active(_) | ResourcePhase::Unreadable(_), _) => state::SUBMITTED,
        // The record is about another resource, which has ended, or the upgrade has.
        (ResourcePhase::Succeeded, _) | (ResourcePhase::Failed, None) => return nothing_recorded(),
        // It failed before this controller submitted anything.
        (ResourcePhase::Failed, Some(recorded)) if has_ended(&recorded) => return done(),
        (ResourcePhase::Failed, Some(_)) => state::FAILED,
    };
    with_progress(input, done(), state, resource)
}

/// Active resources of other names for the same scaling group.
fn active_resources<'a>(input: &'a CrdStrategyInput) -> impl Iterator<Item = &'a StrategyResource> {
    input.resources.iter().filter(|r| !input.is_desired(r) && r.is_active())
}

impl StrategyResource {
    /// Whether it may still replace nodes of this group.
    pub(crate) fn is_active(&self) -> bool {
        self.is_owned && (self.is_deleting || !self.phase.is_finished())
    }

    /// What the group waits for after its strategy changed while this resource was active, and how to end the wait.
    pub(crate) fn describe_left_behind(&self, outdated: usize) -> String {
        let resource_name = self.display_name();
        if self.is_deleting {
            return format!("{resource_name} to be deleted; {} outdated", are(outdated, "node"));
        }
        let phase = match &self.phase {
            ResourcePhase::Active(status) => describe_phase(status),
            ResourcePhase::Unreadable(_) | ResourcePhase::Succeeded | ResourcePhase::Failed => {
                "does not report that it has ended".into()
            }
        };
        let StrategyResource { kind: ResourceKind { group, plural, .. }, namespace, name, .. } = self;
        format!(
            "{resource_name}, which was submitted before spec.strategy was changed and {phase}; {} outdated; wait until it ends, or delete it (kubectl delete {plural}.{group} -n {namespace} {name})",
            are(outdated, "node")
        )
    }

    fn display_name(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Applies `concurrencyPolicy` to other active resources; `None` allows the desired one to be submitted.
fn apply_concurrency_policy(input: &CrdStrategyInput) -> Option<CrdStrategyDecision> {
    let others: Vec<_> = active_resources(input).collect();
    let resource_name = others.first()?.display_name();
    match input.concurrency {
        ConcurrencyPolicy::Allow => None,
        ConcurrencyPolicy::Forbid => {
            let outdated = input.outdated;
            Some(waiting(format!(
                "{resource_name} to end (concurrencyPolicy forbid); {} outdated",
                are(outdated, "node")
            )))
        }
        ConcurrencyPolicy::Replace => {
            let actions: Vec<_> = others.iter().filter(|r| !r.is_deleting).map(|r| delete_action(r)).collect();
            Some(match actions.is_empty() {
                true => waiting(format!("{resource_name} to be deleted")),
                false => in_progress(actions, format!("{resource_name} is deleted first (concurrencyPolicy replace)")),
            })
        }
    }
}

/// Decides when nodes are outdated and the resource that would replace them does not exist.
fn resource_absent(input: &CrdStrategyInput) -> CrdStrategyDecision {
    if let Some(decision) = apply_concurrency_policy(input) {
        return decision;
    }
    let resource_name = input.display_name(input.desired_name);
    let start =
        || submit(Some(input.record_progress(0, state::SUBMITTED, None)), format!("{resource_name} is submitted"));
    let Some(recorded) = input.recorded_progress() else { return start() };
    match (recorded.state.as_deref().unwrap_or_default(), recorded.uid) {
        // The create, or its response, was lost.
        (state::SUBMITTED, None) => submit(None, format!("{resource_name} is submitted")),
        (state::RETRYING, _) => submit(None, format!("{resource_name} is submitted again")),
        (state::FAILED | state::GONE, _) if input.is_requested => start(),
        (state::SUBMITTED | state::GONE, _) => {
            deleted_by_others(input, state::GONE, "was deleted by another client while it was active")
        }
        (state, _) if may_have_expired(input, state) => {
            deleted_by_others(input, state::FAILED, "ended and was deleted")
        }
        // A user deleted a resource that had ended, to have it submitted again.
        _ => start(),
    }
}

/// Whether a time to live may have deleted the resource, which had ended in this state while nodes were outdated. The
/// end of an upgrade resets the count of retries, so a success without retries may be that of an earlier upgrade.
fn may_have_expired(input: &CrdStrategyInput, state: &str) -> bool {
    input.has_time_to_live && (state == state::FAILED || (state == state::SUCCEEDED && input.retries() > 0))
}

/// Decides after a deletion that does not request another attempt: to submit the resource again is a retry. `state` is
/// recorded when no retries are left.
fn deleted_by_others(input: &CrdStrategyInput, state: &str, how: &str) -> CrdStrategyDecision {
    let (resource_name, retries) = (input.display_name(input.desired_name), input.retries());
    if input.can_retry() {
        let record = input.record_progress(retries + 1, state::SUBMITTED, None);
        return submit(Some(record), format!("{resource_name} {how}, and is submitted again"));
    }
    let message = format!(
        "{resource_name} {how}, after {retries} retries; raise maxRetries, or run instance-manager reconcile for the group, to submit it again"
    );
    let progress = input.progress(state, None);
    CrdStrategyDecision { progress: Some(progress), ..blocked(StalledReason::StrategyFailed, message) }
}

/// Submits the desired resource, after this record.
fn submit(record: Option<CrdStrategyAction>, message: String) -> CrdStrategyDecision {
    CrdStrategyDecision {
        actions: record.into_iter().chain([CrdStrategyAction::Submit]).collect(),
        state: CrdStrategyState::Acted(message),
        progress: None,
    }
}

fn ownership_conflict_message(input: &CrdStrategyInput) -> String {
    format!(
        "{} already exists, and its annotations do not say that it is this group's; delete it, or use another metadata.name in the template",
        input.display_name(input.desired_name)
    )
}

fn delete_action(resource: &StrategyResource) -> CrdStrategyAction {
    let StrategyResource { kind, namespace, name, uid, .. } = resource.clone();
    CrdStrategyAction::Delete { kind, namespace, name, uid }
}

fn done() -> CrdStrategyDecision {
    CrdStrategyDecision { actions: Vec::new(), state: CrdStrategyState::Done, progress: None }
}

/// Nothing is to be done, and the status records no resource any more.
fn nothing_recorded() -> CrdStrategyDecision {
    CrdStrategyDecision { progress: Some(StrategyProgress::default()), ..done() }
}

fn waiting(what: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions: Vec::new(), state: CrdStrategyState::Waiting(what), progress: None }
}

fn blocked(reason: StalledReason, message: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions: Vec::new(), state: CrdStrategyState::Blocked(reason, message), progress: None }
}

/// A decision with actions; the next pass continues.
fn in_progress(actions: Vec<CrdStrategyAction>, message: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions, state: CrdStrategyState::Acted(message), progress: None }
}

/// Adds the observed resource and its state to the decision.
fn with_progress(
    input: &CrdStrategyInput,
    decision: CrdStrategyDecision,
    state: &str,
    resource: &StrategyResource,
) -> CrdStrategyDecision {
    CrdStrategyDecision { progress: Some(input.progress(state, Some(&resource.uid))), ..decision }
}

/// The status value of another controller, shortened.
fn describe_phase(status: &str) -> String {
    if status.is_empty() {
        return "has no status yet".into();
    }
    format!("says `{}`", status.chars().take(60).collect::<String>())
}
