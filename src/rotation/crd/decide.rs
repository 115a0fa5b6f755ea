//! Whether a resource is to be submitted, waited for, given up or replaced.
//!
//! A resource has the name of what is wanted, so a submission whose answer was
//! lost is found again and never made twice. What was counted for it is in the
//! status before the act: a restart begins nothing anew.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, InstanceGroupStatus, StrategyProgress};
use crate::plan::Reason;
use crate::rotation::crd::resource::ResourceKind;
pub use crate::rotation::crd::status_matcher::ResourcePhase;
use crate::rotation::crd::status_matcher::StatusMatcher;

/// A resource that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyResource {
    /// Its kind.
    pub kind: ResourceKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: another one of the same name is another one.
    pub uid: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// It carries our annotations, and they name this group's scaling group.
    pub is_owned: bool,
    /// Its deletion has begun.
    pub is_deleting: bool,
    /// What it says of itself.
    pub phase: ResourcePhase,
}

/// Everything that a decision depends on.
pub struct CrdStrategyInput<'a> {
    /// The kind of the resource.
    pub kind: &'a ResourceKind,
    /// The namespace of the resource.
    pub namespace: &'a str,
    /// The name of the resource for what is wanted now.
    pub desired_name: &'a str,
    /// The policy for active ones of other names.
    pub concurrency: ConcurrencyPolicy,
    /// How often one that failed is submitted again; `None` means for ever.
    pub max_retries: Option<i64>,
    /// How long after its submission one that failed is submitted again, the first time; then twice as long, and so on.
    pub retry_delay: SignedDuration,
    /// The longest such pause.
    pub max_retry_delay: SignedDuration,
    /// What it is read by.
    pub status_matcher: &'a StatusMatcher,
    /// How many nodes are outdated.
    pub outdated: usize,
    /// Nodes launched before it are outdated: what ended before it has not replaced them.
    pub rotate_at: Option<Timestamp>,
    /// The moment of the decision.
    pub now: Timestamp,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// The one of the wanted name, if it is there; without it, those of this scaling group. And the one that the status
    /// remembers, where that is of another kind or in another namespace.
    pub resources: &'a [StrategyResource],
}

/// What is to be done now, and how it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdStrategyDecision {
    /// In order.
    pub actions: Vec<CrdStrategyAction>,
    /// How it stands when they are done.
    pub state: CrdStrategyState,
    /// What the status remembers from now on, without an act; `None` leaves it.
    pub progress: Option<StrategyProgress>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum CrdStrategyAction {
    /// A merge patch of the status, before what follows.
    Record(Value),
    /// Delete exactly this one.
    Delete {
        /// Its kind.
        kind: ResourceKind,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Submit the wanted one.
    Submit,
}

/// Where an upgrade stands.
#[derive(Clone, Debug, PartialEq)]
pub enum CrdStrategyState {
    /// The strategy has nothing to do, or says that it is done.
    Done,
    /// Something was done just now.
    Acted(String),
    /// Waiting for a resource.
    Waiting(String),
    /// It does not go on by itself.
    Blocked(Reason, String),
}

/// `status.strategyProgress.state`.
pub mod state {
    /// About to be submitted, or active.
    pub const SUBMITTED: &str = "Submitted";
    /// It failed, which is counted, and is submitted again.
    pub const RETRYING: &str = "Retrying";
    /// It said success.
    pub const SUCCEEDED: &str = "Succeeded";
    /// It failed too often.
    pub const FAILED: &str = "Failed";
    /// It was deleted by someone too often.
    pub const GONE: &str = "Gone";
}

/// Whether the strategy has yet to say that it is done, by what the status remembers.
pub fn is_unfinished(status: &InstanceGroupStatus) -> bool {
    let state = status.strategy_progress.as_ref().and_then(|p| p.state.as_deref());
    matches!(state, Some(state::SUBMITTED | state::RETRYING | state::FAILED | state::GONE))
}

/// The one that was submitted last and has yet to end, as far as the status tells.
pub fn last_submitted(status: &InstanceGroupStatus) -> Option<PreviousResource<'_>> {
    let progress = status.strategy_progress.as_ref().filter(|_| is_unfinished(status))?;
    let name = status.strategy_resource_name.as_deref().filter(|name| !name.is_empty())?;
    let namespace = status.strategy_resource_namespace.as_deref().filter(|place| !place.is_empty())?;
    let version = progress.api_version.as_deref().and_then(|v| v.split_once('/'));
    let kind = version.zip(progress.kind.as_deref()).map(|((group, version), kind)| [group, version, kind]);
    Some(PreviousResource { kind, namespace, name })
}

/// The same, when it is not where another one goes now.
pub fn previous_resource<'a>(
    status: &'a InstanceGroupStatus,
    kind: &ResourceKind,
    namespace: &str,
) -> Option<PreviousResource<'a>> {
    let last = last_submitted(status)?;
    let other = last.kind.filter(|[group, _, name]| (*group, *name) != (&kind.group, &kind.kind));
    (other.is_some() || last.namespace != namespace).then_some(PreviousResource { kind: other, ..last })
}

/// Where a resource is that was submitted before its template, or the strategy, was changed.
#[derive(Debug, PartialEq, Eq)]
pub struct PreviousResource<'a> {
    /// API group, version and kind; `None` where it is of the same kind, or none is recorded.
    pub kind: Option<[&'a str; 3]>,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Decides.
pub fn decide(input: &CrdStrategyInput) -> CrdStrategyDecision {
    let found = input.resources.iter().find(|r| input.is_desired(r));
    match found {
        Some(resource) if !resource.is_owned => blocked(Reason::OwnershipConflict, ownership_conflict_message(input)),
        Some(resource) if resource.is_deleting => {
            waiting(format!("{} to be gone", input.display_name(input.desired_name)))
        }
        Some(resource) => resource_present(input, resource),
        None if input.outdated == 0 => nothing_outdated(input),
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

    /// The status tells of the resource that is wanted now.
    fn recorded_progress(&self) -> Option<StrategyProgress> {
        let status = self.status;
        let same = status.strategy_resource_name.as_deref() == Some(self.desired_name)
            && status.strategy_resource_namespace.as_deref() == Some(self.namespace)
            && previous_resource(status, self.kind, self.namespace).is_none();
        same.then(|| status.strategy_progress.clone().unwrap_or_default())
    }

    fn retries(&self) -> i64 {
        // The controller before this one writes -1 for retries without end.
        self.status.strategy_retry_count.unwrap_or(0).max(0)
    }

    fn can_retry(&self) -> bool {
        self.max_retries.is_none_or(|most| self.retries() < most)
    }

    /// Until when one that failed is left as it is. The resource's own age tells, so that a restart changes nothing.
    fn retry_at(&self, resource: &StrategyResource) -> Option<Timestamp> {
        let doublings = u32::try_from(self.retries()).unwrap_or(u32::MAX).min(20);
        let pause = (self.retry_delay * (1 << doublings)).min(self.max_retry_delay);
        let until = resource.created_at?.saturating_add(pause).ok()?;
        (until > self.now).then_some(until)
    }

    /// What the status remembers of the wanted one.
    fn progress(&self, state: &str, uid: Option<&str>) -> StrategyProgress {
        let ResourceKind { group, version, kind, .. } = self.kind;
        StrategyProgress {
            state: Some(state.into()),
            uid: uid.map(str::to_owned),
            api_version: Some(format!("{group}/{version}")),
            kind: Some(kind.clone()),
            status_json_path: Some(self.status_matcher.path.to_string()),
            status_success_string: Some(self.status_matcher.success.clone()),
            status_failure_string: Some(self.status_matcher.failure.clone()),
        }
    }

    fn record_action(&self, retries: i64, state: &str, uid: Option<&str>) -> CrdStrategyAction {
        let mut progress = json!(self.progress(state, uid));
        progress["uid"] = json!(uid);
        CrdStrategyAction::Record(json!({
            "strategyResourceName": self.desired_name,
            "strategyResourceNamespace": self.namespace,
            "strategyRetryCount": retries,
            "strategyProgress": progress,
        }))
    }
}

/// The one that is wanted is there.
fn resource_present(input: &CrdStrategyInput, resource: &StrategyResource) -> CrdStrategyDecision {
    let named = input.display_name(input.desired_name);
    let memory = input.recorded_progress();
    if let Some(decision) = apply_concurrency_policy(input)
        .filter(|_| resource.phase.is_finished() && memory.is_none() && input.outdated > 0)
    {
        return decision;
    }
    let remembers = |state: &str| {
        let uid = |p: &StrategyProgress| p.uid.as_deref() == Some(&resource.uid);
        memory.as_ref().is_some_and(|p| p.state.as_deref() == Some(state) && uid(p))
    };
    match &resource.phase {
        ResourcePhase::Unreadable(what) => {
            let message = format!(
                "spec.strategy.crd.statusJSONPath `{}` leads to {what} in {named}; name the field that holds its status as one text",
                input.status_matcher.path
            );
            with_progress(input, blocked(Reason::InvalidSpec, message), state::SUBMITTED, resource)
        }
        ResourcePhase::Active(word) => {
            let word = describe_phase(word);
            let (path, outdated) = (&input.status_matcher.path, input.outdated);
            let message = format!("{named}, which {word} in {path}; {outdated} nodes are outdated");
            with_progress(input, waiting(message), state::SUBMITTED, resource)
        }
        // One that ended before there was anything to replace says nothing of it.
        ResourcePhase::Succeeded | ResourcePhase::Failed
            if input.outdated > 0 && is_stale(input, resource, memory.is_some()) =>
        {
            in_progress(
                vec![input.record_action(0, state::SUBMITTED, None), delete_action(resource)],
                format!("{named} is of an earlier upgrade, and makes room"),
            )
        }
        ResourcePhase::Succeeded if input.outdated == 0 => with_progress(input, done(), state::SUCCEEDED, resource),
        // AWS and Kubernetes may show the last nodes a moment longer.
        ResourcePhase::Succeeded if !remembers(state::SUCCEEDED) => with_progress(
            input,
            waiting(format!("the nodes that {named} says it has replaced")),
            state::SUCCEEDED,
            resource,
        ),
        ResourcePhase::Succeeded => {
            let message = format!(
                "{named} says success, and {} nodes are outdated still; see what it did, then delete it to have it submitted again",
                input.outdated
            );
            blocked(Reason::StrategyFailed, message)
        }
        ResourcePhase::Failed => resource_failed(input, resource, memory.as_ref(), remembers(state::RETRYING)),
    }
}

/// Whether it ended before the upgrade that is wanted now began.
fn is_stale(input: &CrdStrategyInput, resource: &StrategyResource, remembered: bool) -> bool {
    let before = |at: Timestamp| resource.created_at.is_some_and(|created| created < at);
    !remembered || input.rotate_at.is_some_and(before)
}

fn resource_failed(
    input: &CrdStrategyInput,
    resource: &StrategyResource,
    memory: Option<&StrategyProgress>,
    counted: bool,
) -> CrdStrategyDecision {
    let named = input.display_name(input.desired_name);
    let concluded = |m: &StrategyProgress| m.state.as_deref().is_none_or(|state| state == state::SUCCEEDED);
    if input.outdated == 0 && memory.is_none_or(concluded) {
        // Nothing was asked of it since this controller leads the group.
        return done();
    }
    let retries = input.retries();
    if input.outdated > 0 && counted {
        return in_progress(vec![delete_action(resource)], format!("{named} failed and makes room for the next try"));
    }
    if input.outdated > 0 && input.can_retry() {
        let most = input.max_retries.map(|most| format!(" of {most}")).unwrap_or_default();
        if let Some(until) = input.retry_at(resource) {
            let until = crate::api::rfc3339(until);
            let message =
                format!("{until}, when {named}, which failed, is submitted again; retry {}{most}", retries + 1);
            return with_progress(input, waiting(message), state::SUBMITTED, resource);
        }
        let message = format!("{named} failed; retry {}{most}", retries + 1);
        let acts =
            vec![input.record_action(retries + 1, state::RETRYING, Some(&resource.uid)), delete_action(resource)];
        return in_progress(acts, message);
    }
    let message = format!(
        "{named} failed (after {retries} retries), and {} nodes are outdated; see why it did, then delete it to have the upgrade tried again",
        input.outdated
    );
    with_progress(input, blocked(Reason::StrategyFailed, message), state::FAILED, resource)
}

/// Nothing is outdated, and there is no resource for what is wanted: only others may be at work still.
fn nothing_outdated(input: &CrdStrategyInput) -> CrdStrategyDecision {
    match active_resources(input).next() {
        Some(other) => {
            waiting(format!("{}, which is at work still though no node is outdated any more", other.display_name()))
        }
        None => CrdStrategyDecision { progress: Some(StrategyProgress::default()), ..done() },
    }
}

/// Resources of other names for the same scaling group that have not ended.
fn active_resources<'a>(input: &'a CrdStrategyInput) -> impl Iterator<Item = &'a StrategyResource> {
    input.resources.iter().filter(|r| !input.is_desired(r) && r.is_active())
}

impl StrategyResource {
    /// Whether it may take nodes of this group still.
    pub fn is_active(&self) -> bool {
        self.is_owned && (self.is_deleting || !self.phase.is_finished())
    }

    /// What is waited for when it was submitted before another strategy was wanted, and how a person ends it.
    pub fn describe_left_behind(&self, outdated: usize) -> String {
        let named = self.display_name();
        if self.is_deleting {
            return format!("{named} to be gone; {outdated} nodes are outdated");
        }
        let word = match &self.phase {
            ResourcePhase::Active(word) => describe_phase(word),
            ResourcePhase::Unreadable(_) | ResourcePhase::Succeeded | ResourcePhase::Failed => {
                "does not say that it has ended".into()
            }
        };
        let StrategyResource { kind: ResourceKind { group, plural, .. }, namespace, name, .. } = self;
        format!(
            "{named}, which was submitted before spec.strategy was changed and {word}; {outdated} nodes are outdated; wait for its end, or delete it (kubectl delete {plural}.{group} -n {namespace} {name})"
        )
    }

    fn display_name(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What the policy says of others that are at work; `None` lets the wanted one be submitted.
fn apply_concurrency_policy(input: &CrdStrategyInput) -> Option<CrdStrategyDecision> {
    let others: Vec<_> = active_resources(input).collect();
    let named = others.first()?.display_name();
    match input.concurrency {
        ConcurrencyPolicy::Allow => None,
        ConcurrencyPolicy::Forbid => {
            let outdated = input.outdated;
            Some(waiting(format!("{named} to end (concurrencyPolicy forbid); {outdated} nodes are outdated")))
        }
        ConcurrencyPolicy::Replace => {
            let acts: Vec<_> = others.iter().filter(|r| !r.is_deleting).map(|r| delete_action(r)).collect();
            Some(match acts.is_empty() {
                true => waiting(format!("{named} to be gone")),
                false => in_progress(acts, format!("{named} is replaced (concurrencyPolicy replace)")),
            })
        }
    }
}

/// Nodes are outdated, and the resource that would replace them is not there.
fn resource_absent(input: &CrdStrategyInput) -> CrdStrategyDecision {
    if let Some(decision) = apply_concurrency_policy(input) {
        return decision;
    }
    let named = input.display_name(input.desired_name);
    let submit = |record: Option<CrdStrategyAction>, message: String| CrdStrategyDecision {
        actions: record.into_iter().chain([CrdStrategyAction::Submit]).collect(),
        state: CrdStrategyState::Acted(message),
        progress: None,
    };
    let anew = || submit(Some(input.record_action(0, state::SUBMITTED, None)), format!("{named} is submitted"));
    let Some(memory) = input.recorded_progress() else { return anew() };
    match (memory.state.as_deref(), memory.uid) {
        // Its submission, or the answer to it, was lost.
        (Some(state::SUBMITTED), None) => submit(None, format!("{named} is submitted")),
        (Some(state::RETRYING), _) => submit(None, format!("{named} is submitted again")),
        // Someone deleted it while it was at work.
        (Some(state::SUBMITTED | state::GONE), _) if input.can_retry() => submit(
            Some(input.record_action(input.retries() + 1, state::SUBMITTED, None)),
            format!("{named} was deleted by someone and is submitted again"),
        ),
        (Some(state::SUBMITTED | state::GONE), _) => {
            let message = format!(
                "{named} was deleted by someone while it was at work, and has been submitted {} times again; raise maxRetries to go on",
                input.retries()
            );
            let progress = input.progress(state::GONE, None);
            CrdStrategyDecision { progress: Some(progress), ..blocked(Reason::StrategyFailed, message) }
        }
        // Someone deleted what had ended, which is how it is asked for again.
        _ => anew(),
    }
}

fn ownership_conflict_message(input: &CrdStrategyInput) -> String {
    format!(
        "{} is there and is not for this group's scaling group; give the template's resource another metadata.name, such as one with {{{{ .InstanceGroup.GetNamespace }}}}",
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

fn waiting(what: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions: Vec::new(), state: CrdStrategyState::Waiting(what), progress: None }
}

fn blocked(reason: Reason, message: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions: Vec::new(), state: CrdStrategyState::Blocked(reason, message), progress: None }
}

/// What goes makes room; the next pass submits.
fn in_progress(actions: Vec<CrdStrategyAction>, message: String) -> CrdStrategyDecision {
    CrdStrategyDecision { actions, state: CrdStrategyState::Acted(message), progress: None }
}

/// Remembers which one was seen, and how.
fn with_progress(
    input: &CrdStrategyInput,
    decision: CrdStrategyDecision,
    state: &str,
    resource: &StrategyResource,
) -> CrdStrategyDecision {
    CrdStrategyDecision { progress: Some(input.progress(state, Some(&resource.uid))), ..decision }
}

/// A word of another controller, which may be long.
fn describe_phase(word: &str) -> String {
    if word.is_empty() {
        return "says nothing yet".into();
    }
    format!("says `{}`", word.chars().take(60).collect::<String>())
}
