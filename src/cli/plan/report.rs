//! A plan as its reader asks for it: what kind of change, which steps, which nodes, and the totals.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::{CurrentState, InstanceGroup};
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::planner::{ObserveError, Planner, Planning};
use crate::plan::{ObjectStep, Outcome, Phase, Plan, PlannedStep, Step};
use crate::provisioner::{NodeReplacement, PlanContext, Projection};

/// The kind of change that a group is in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
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
pub struct GroupPlan {
    /// `namespace/name`.
    pub group: String,
    /// What kind of change.
    pub change: ChangeKind,
    /// Whether anything would be different afterwards; what is waited for without an act does not count.
    pub has_changes: bool,
    /// CamelCase, when it is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What stops it, or what it waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The steps of the first pass, complete.
    pub steps: Vec<PlannedStep>,
    /// The steps of the passes after it, up to where nodes or AWS have to be waited for.
    pub later_steps: Vec<PlannedStep>,
    /// Nodes that would be replaced, first to last as AWS lists them.
    pub nodes_to_rotate: Vec<NodeReplacement>,
    /// How many of them may be unavailable at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<usize>,
    /// What holds the replacement of nodes, when something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Nodes that would go for good: of a deletion, or beyond maxSize.
    pub nodes_to_remove: usize,
    /// What the tenant set and does not get.
    pub overridden: Vec<String>,
}

impl GroupPlan {
    /// From what the corridor says.
    pub fn new(
        group: &InstanceGroup,
        walked: Planning,
        lock: Option<String>,
        corridor: &Planner,
        now: Timestamp,
    ) -> Self {
        let status = group.status.clone().unwrap_or_default();
        let overridden = walked.boundaries.iter().flat_map(|b| &b.overridden).map(ToString::to_string).collect();
        let mut answer = GroupPlan { overridden, ..Self::empty(walked.plan.group.clone()) };
        let mut outcome = walked.plan.outcome.clone();
        if let Some(seen) = &walked.snapshot {
            let given = PlanContext { status: &status, lock: lock.as_deref(), settings: &corridor.settings, now };
            let foreseen = seen.simulate(&walked.plan, &given);
            outcome = foreseen.outcome.clone();
            answer.set_nodes(lock, foreseen);
        } else if group.metadata.deletion_timestamp.is_some() {
            answer.nodes_to_remove = status.nodes.as_ref().map_or(0, |n| usize::try_from(n.desired).unwrap_or(0));
        }
        let was_blocked = status.current_state.as_deref() == Some(CurrentState::Error.as_str());
        answer.classify(walked.plan, outcome, was_blocked);
        answer
    }

    /// A stored object that its own schema would not allow.
    pub fn invalid_object(group: String) -> Self {
        let message = "a field of the stored object has a type that its schema does not allow; compare it with `kubectl explain ig.spec --recursive`";
        GroupPlan {
            change: ChangeKind::Blocked,
            reason: Some("InvalidSpec".into()),
            message: message.into(),
            ..Self::empty(group)
        }
    }

    /// Somebody did not answer.
    pub fn unknown(group: String, error: &ObserveError) -> Self {
        GroupPlan { change: ChangeKind::Unknown, message: error.to_string(), ..Self::empty(group) }
    }

    fn empty(group: String) -> Self {
        GroupPlan {
            group,
            change: ChangeKind::Unchanged,
            has_changes: false,
            reason: None,
            message: String::new(),
            steps: Vec::new(),
            later_steps: Vec::new(),
            nodes_to_rotate: Vec::new(),
            max_unavailable: None,
            blocked_by: None,
            nodes_to_remove: 0,
            overridden: Vec::new(),
        }
    }

    fn set_nodes(&mut self, lock: Option<String>, foreseen: Projection) {
        (self.later_steps, self.nodes_to_rotate, self.nodes_to_remove) =
            (foreseen.steps, foreseen.replacements, foreseen.scale_in);
        if self.nodes_to_rotate.is_empty() && self.nodes_to_remove == 0 {
            return;
        }
        self.max_unavailable = Some(foreseen.max_unavailable).filter(|most| *most > 0);
        self.blocked_by = lock.or(match foreseen.outcome {
            Outcome::Locked { message } | Outcome::Blocked { message, .. } => Some(message),
            Outcome::Converged | Outcome::Progressing { .. } | Outcome::Deleted => None,
        });
    }

    fn classify(&mut self, plan: Plan, outcome: Outcome, was_blocked: bool) {
        let makes = |s: &PlannedStep| s.step.creates_nodes();
        let acts = |s: &PlannedStep| !matches!(s.step, Step::Object(ObjectStep::Record { .. }));
        self.steps = plan.steps;
        let mut all = self.steps.iter().chain(&self.later_steps);
        let deleting = matches!(
            outcome,
            Outcome::Deleted
                | Outcome::Progressing { phase: Phase::Deleting, .. }
                | Outcome::Blocked { is_deleting: true, .. }
        );
        let first_blocked = matches!(plan.outcome, Outcome::Blocked { .. });
        self.change = match () {
            () if first_blocked => ChangeKind::Blocked,
            () if deleting => ChangeKind::Delete,
            () if !self.nodes_to_rotate.is_empty() => ChangeKind::Rotate,
            () if all.clone().any(makes) => ChangeKind::Create,
            () if all.clone().any(acts) || self.nodes_to_remove > 0 => ChangeKind::InPlace,
            () if matches!(outcome, Outcome::Blocked { .. }) => ChangeKind::Blocked,
            () => ChangeKind::Unchanged,
        };
        match outcome {
            Outcome::Blocked { reason, message, .. } => {
                (self.reason, self.message) = (Some(reason.to_string()), message)
            }
            Outcome::Progressing { message, .. } | Outcome::Locked { message } => self.message = message,
            Outcome::Converged | Outcome::Deleted => {}
        }
        let newly_blocked = self.change == ChangeKind::Blocked && !was_blocked;
        self.has_changes = all.any(acts) || !self.nodes_to_rotate.is_empty() || newly_blocked;
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
pub struct PlanReport {
    /// By namespace and name.
    pub groups: Vec<GroupPlan>,
    /// Over all of them.
    pub totals: Totals,
    /// Revision of the boundaries that it goes by; empty without any.
    pub boundaries_revision: String,
    /// Why the stored boundaries are in force, when they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_good: Option<String>,
}

impl PlanReport {
    /// Counts.
    pub fn new(groups: Vec<GroupPlan>, in_force: &ActiveBoundaries) -> Self {
        let mut totals = Totals { groups: groups.len(), ..Totals::default() };
        for answer in &groups {
            let count = match answer.change {
                ChangeKind::Unchanged => &mut totals.unchanged,
                ChangeKind::Create => &mut totals.create,
                ChangeKind::InPlace => &mut totals.in_place,
                ChangeKind::Rotate => &mut totals.rotate,
                ChangeKind::Delete => &mut totals.delete,
                ChangeKind::Blocked => &mut totals.blocked,
                ChangeKind::Unknown => &mut totals.unknown,
            };
            *count += 1;
            totals.nodes_to_rotate += answer.nodes_to_rotate.len();
            totals.nodes_to_remove += answer.nodes_to_remove;
        }
        let last_known_good = match &in_force.source {
            BoundariesSource::LastGood(why) | BoundariesSource::Unavailable(why) => Some(why.clone()),
            BoundariesSource::Unknown | BoundariesSource::Live | BoundariesSource::NotConfigured => None,
        };
        PlanReport { groups, totals, boundaries_revision: in_force.revision.clone(), last_known_good }
    }

    /// 1 when somebody did not answer, 2 when something would change, else 0.
    pub fn exit_code(&self) -> u8 {
        match () {
            () if self.totals.unknown > 0 => 1,
            () if self.groups.iter().any(|answer| answer.has_changes) => 2,
            () => 0,
        }
    }
}
