//! A plan as its reader asks for it: what kind of change, which steps, which nodes, and the totals.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::{CurrentState, InstanceGroup};
use crate::boundaries::active::{InForce, Source};
use crate::controller::planner::{Corridor, ObserveError, Walked};
use crate::plan::{ObjectStep, Outcome, Phase, Plan, Planned, Step};
use crate::provisioner::{Foreseen, Given, Leaving};

/// The kind of change that a group is in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Nothing is to be done.
    Unchanged,
    /// Its nodes are made for the first time.
    Create,
    /// It changes, and every node stays.
    InPlace,
    /// Nodes are replaced.
    Rotate,
    /// It goes away with its nodes.
    Delete,
    /// It cannot go on until someone acts.
    Blocked,
    /// Somebody did not answer.
    Unknown,
}

/// What would become of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// `namespace/name`.
    pub group: String,
    /// What kind of change.
    pub change: Change,
    /// Whether anything would be different afterwards; what is waited for without an act does not count.
    pub changes: bool,
    /// CamelCase, when it is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What stops it, or what it waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The steps of the first pass, complete.
    pub steps: Vec<Planned>,
    /// The steps of the passes after it, up to where nodes or AWS have to be waited for.
    pub then: Vec<Planned>,
    /// Nodes that would be replaced, first to last as AWS lists them.
    pub rotate: Vec<Leaving>,
    /// How many of them may be unavailable at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<usize>,
    /// What holds the replacement of nodes, when something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Nodes that would go for good: of a deletion, or beyond maxSize.
    pub remove: usize,
    /// What the tenant set and does not get.
    pub refused: Vec<String>,
}

impl Answer {
    /// From what the corridor says.
    pub fn new(
        group: &InstanceGroup,
        walked: Walked,
        lock: Option<String>,
        corridor: &Corridor,
        now: Timestamp,
    ) -> Self {
        let status = group.status.clone().unwrap_or_default();
        let refused = walked.bounds.iter().flat_map(|b| &b.refused).map(ToString::to_string).collect();
        let mut answer = Answer { refused, ..Self::of(walked.plan.group.clone()) };
        let mut outcome = walked.plan.outcome.clone();
        if let Some(seen) = &walked.seen {
            let given = Given { status: &status, lock: lock.as_deref(), settings: &corridor.settings, now };
            let foreseen = seen.foresee(&walked.plan, &given);
            outcome = foreseen.outcome.clone();
            answer.nodes(lock, foreseen);
        } else if group.metadata.deletion_timestamp.is_some() {
            answer.remove = status.nodes.as_ref().map_or(0, |n| usize::try_from(n.desired).unwrap_or(0));
        }
        let was_blocked = status.current_state.as_deref() == Some(CurrentState::Error.as_str());
        answer.judge(walked.plan, outcome, was_blocked);
        answer
    }

    /// A stored object that its own schema would not allow.
    pub fn undecodable(group: String) -> Self {
        let message = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`";
        Answer {
            change: Change::Blocked,
            reason: Some("InvalidSpec".into()),
            message: message.into(),
            ..Self::of(group)
        }
    }

    /// Somebody did not answer.
    pub fn unknown(group: String, error: &ObserveError) -> Self {
        Answer { change: Change::Unknown, message: error.to_string(), ..Self::of(group) }
    }

    fn of(group: String) -> Self {
        Answer {
            group,
            change: Change::Unchanged,
            changes: false,
            reason: None,
            message: String::new(),
            steps: Vec::new(),
            then: Vec::new(),
            rotate: Vec::new(),
            at_once: None,
            held: None,
            remove: 0,
            refused: Vec::new(),
        }
    }

    fn nodes(&mut self, lock: Option<String>, foreseen: Foreseen) {
        (self.then, self.rotate, self.remove) = (foreseen.steps, foreseen.leaving, foreseen.remove);
        if self.rotate.is_empty() && self.remove == 0 {
            return;
        }
        self.at_once = Some(foreseen.at_once).filter(|most| *most > 0);
        self.held = lock.or(match foreseen.outcome {
            Outcome::Locked { message } | Outcome::Blocked { message, .. } => Some(message),
            Outcome::Converged | Outcome::Progressing { .. } | Outcome::Deleted => None,
        });
    }

    fn judge(&mut self, plan: Plan, outcome: Outcome, was_blocked: bool) {
        let makes = |s: &Planned| s.step.makes();
        let acts = |s: &Planned| !matches!(s.step, Step::Object(ObjectStep::Record { .. }));
        self.steps = plan.steps;
        let mut all = self.steps.iter().chain(&self.then);
        let deleting = matches!(
            outcome,
            Outcome::Deleted
                | Outcome::Progressing { phase: Phase::Deleting, .. }
                | Outcome::Blocked { deleting: true, .. }
        );
        let first_blocked = matches!(plan.outcome, Outcome::Blocked { .. });
        self.change = match () {
            () if first_blocked => Change::Blocked,
            () if deleting => Change::Delete,
            () if !self.rotate.is_empty() => Change::Rotate,
            () if all.clone().any(makes) => Change::Create,
            () if all.clone().any(acts) || self.remove > 0 => Change::InPlace,
            () if matches!(outcome, Outcome::Blocked { .. }) => Change::Blocked,
            () => Change::Unchanged,
        };
        match outcome {
            Outcome::Blocked { reason, message, .. } => {
                (self.reason, self.message) = (Some(reason.to_string()), message)
            }
            Outcome::Progressing { message, .. } | Outcome::Locked { message } => self.message = message,
            Outcome::Converged | Outcome::Deleted => {}
        }
        let newly_blocked = self.change == Change::Blocked && !was_blocked;
        self.changes = all.any(acts) || !self.rotate.is_empty() || newly_blocked;
    }
}

/// How many groups and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// All groups that were asked for.
    pub groups: usize,
    /// Nothing is to be done.
    pub unchanged: usize,
    /// Made for the first time.
    pub create: usize,
    /// Changed in place.
    pub in_place: usize,
    /// Their nodes are replaced.
    pub rotate: usize,
    /// Nodes that are replaced.
    pub nodes_to_rotate: usize,
    /// Nodes that go for good.
    pub nodes_to_remove: usize,
    /// They go away.
    pub delete: usize,
    /// They cannot go on.
    pub blocked: usize,
    /// Nobody knows.
    pub unknown: usize,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answers {
    /// By namespace and name.
    pub groups: Vec<Answer>,
    /// Over all of them.
    pub totals: Totals,
    /// Revision of the boundaries that it goes by; empty without any.
    pub boundaries_revision: String,
    /// Why the stored boundaries are in force, when they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<String>,
}

impl Answers {
    /// Counts.
    pub fn new(groups: Vec<Answer>, in_force: &InForce) -> Self {
        let mut totals = Totals { groups: groups.len(), ..Totals::default() };
        for answer in &groups {
            let count = match answer.change {
                Change::Unchanged => &mut totals.unchanged,
                Change::Create => &mut totals.create,
                Change::InPlace => &mut totals.in_place,
                Change::Rotate => &mut totals.rotate,
                Change::Delete => &mut totals.delete,
                Change::Blocked => &mut totals.blocked,
                Change::Unknown => &mut totals.unknown,
            };
            *count += 1;
            totals.nodes_to_rotate += answer.rotate.len();
            totals.nodes_to_remove += answer.remove;
        }
        let last_good = match &in_force.source {
            Source::LastGood(why) | Source::Unavailable(why) => Some(why.clone()),
            Source::Unknown | Source::Live | Source::Never => None,
        };
        Answers { groups, totals, boundaries_revision: in_force.revision.clone(), last_good }
    }

    /// 1 when somebody did not answer, 2 when something would change, else 0.
    pub fn exit_code(&self) -> u8 {
        match () {
            () if self.totals.unknown > 0 => 1,
            () if self.groups.iter().any(|answer| answer.changes) => 2,
            () => 0,
        }
    }
}
