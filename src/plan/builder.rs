//! Collects the steps, the outcome and the reports of a plan while the planners run.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::drift::Drift;
use super::event::{ConditionUpdate, Event};
use super::node_usage::NodeUsage;
use super::outcome::{Outcome, Phase, Recheck, with_others};
use super::persistent_failure::PersistentFailure;
use super::stalled_reason::StalledReason;
use super::step::{ObjectStep, Step};
use super::types::{FieldRejection, Plan, PlannedStep, StatusUpdate};
use super::write::{Dependents, Write, last_value, last_values};
use crate::api::names::condition;
use crate::api::{GroupId, InstanceGroupStatus, diff_merge_patch};

/// A plan under construction. Planners append to it in the order in which their steps must run.
///
/// ```
/// use instance_manager::api::{InstanceGroup, InstanceGroupSpec, group_id};
/// use instance_manager::plan::{Drift, EksStep, Outcome, Phase, PlanBuilder, waiting};
///
/// let mut builder = PlanBuilder::default();
/// let step = EksStep::PutTags { group: "demo-team-web".into(), tags: vec![] };
/// builder.push_with_reasons(step, vec![Drift::new("tags.cost", "41", "42")]);
/// builder.set_outcome_once(waiting(Phase::Modifying, "updating the scaling group"));
/// builder.set_outcome_once(Outcome::Converged); // has no effect: an outcome is set
///
/// let plan = builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None);
/// assert_eq!(plan.steps[0].step.name(), "PutTags");
/// assert_eq!(plan.steps[0].reasons[0].to_string(), "tags.cost: 41 -> 42");
/// assert!(matches!(plan.outcome, Outcome::Progressing { phase: Phase::Modifying, .. }));
/// ```
#[derive(Default)]
pub struct PlanBuilder {
    /// Steps before the record: the finalizer, and deletions that need the names that the status still holds.
    pub first_steps: Vec<PlannedStep>,
    /// Status fields to record before `steps`. Write them with [`PlanBuilder::record`].
    pub recorded: Option<Value>,
    /// The steps so far, in order.
    pub steps: Vec<PlannedStep>,
    outcome: Option<Outcome>,
    /// Conditions other than Ready, Reconciling and Stalled.
    pub condition_updates: Vec<ConditionUpdate>,
    /// See [`Plan::rejected_fields`].
    pub rejected_fields: Option<FieldRejection>,
    /// See [`Plan::adoption`]. Set it with [`PlanBuilder::report_adoption`].
    pub adoption: Option<String>,
    /// Events to publish when the plan has been applied.
    pub events: Vec<Event>,
    /// Why new nodes cannot join; blocks the group once nothing else is left to do.
    pub join_conflict: Option<String>,
    /// Status fields other than conditions. Set them with [`PlanBuilder::set_status`].
    pub status_update: StatusUpdate,
    /// See [`Plan::evictions_end`].
    pub evictions_end: Option<Timestamp>,
    /// See [`Plan::node_usage`].
    pub node_usage: Option<NodeUsage>,
    /// Outcomes that planners set after another one, in call order. See [`PlanBuilder::build`].
    later_outcomes: Vec<Outcome>,
    /// Whether the rotation was planned, which decides about the nodes in progress.
    pub rotation_planned: bool,
    /// Whether the plan starts an update of a managed node group, which takes the place of the recorded one.
    pub starts_update: bool,
    /// Writes that were repeated without effect. [`PlanBuilder::has_changes`] does not count them if no node depends on
    /// them.
    pub ineffective: BTreeSet<Write>,
}

impl PlanBuilder {
    /// An empty plan with these status fields, which knows the writes that were repeated without effect.
    pub(crate) fn with_status(status_update: StatusUpdate, ineffective: BTreeSet<Write>) -> Self {
        PlanBuilder { status_update, ineffective, ..PlanBuilder::default() }
    }

    /// An empty plan whose outcome is known from the start.
    pub(crate) fn with_outcome(outcome: Outcome) -> Self {
        PlanBuilder { outcome: Some(outcome), ..PlanBuilder::default() }
    }

    /// The outcome, once a planner has set it with [`PlanBuilder::set_outcome_once`].
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Appends a step without reasons.
    pub(crate) fn push(&mut self, step: impl Into<Step>) {
        self.push_with_reasons(step, Vec::new());
    }

    /// Adds the finalizer before all other steps, unless the group has it.
    pub(crate) fn ensure_finalizer(&mut self, id: &GroupId) {
        if !id.has_finalizer {
            self.first_steps.push(ObjectStep::AddFinalizer.into());
        }
    }

    /// Sets a field of the status, by its JSON name, once the plan has been applied. What later steps rely on is recorded
    /// before them, too.
    pub(crate) fn set_status(&mut self, field: &str, value: impl Serialize) {
        self.status_update.fields.insert(field.to_owned(), json!(value));
    }

    /// Records status fields in one step before all of `steps`, because they name what these steps create or change.
    /// A provisioner calls it once; single fields of `status.managed` follow with [`PlanBuilder::record_managed`].
    pub(crate) fn record(&mut self, status: Value) {
        self.recorded = Some(status);
    }

    /// Records those of the fields that differ from the stored status, like [`PlanBuilder::record`].
    pub(crate) fn record_changes(
        &mut self,
        stored: &InstanceGroupStatus,
        fields: impl IntoIterator<Item = (String, Value)>,
    ) {
        let stored = json!(stored);
        let mut next = stored.clone();
        for (field, value) in fields {
            next[field] = value;
        }
        if let Some(changes) = diff_merge_patch(&stored, &next) {
            self.record(changes);
        }
    }

    /// Adds a field of `status.managed` to the record.
    pub(crate) fn record_managed(&mut self, field: &str, value: Value) {
        self.recorded.get_or_insert_with(|| json!({}))["managed"][field] = value;
    }

    /// Records status fields after the steps so far and before those that follow: what the former have done, or what
    /// only the latter need.
    pub(crate) fn record_after_steps(&mut self, status: Value) {
        self.push(ObjectStep::UpdateStatus { status });
    }

    /// Reports that the plan adopts resources, and how they differ from the spec.
    pub(crate) fn report_adoption(&mut self, differences: String) {
        self.condition_updates.push(ConditionUpdate {
            condition_type: condition::ADOPTED,
            status: true,
            reason: "ResourcesAdopted".into(),
            message: differences.clone(),
        });
        self.adoption = Some(differences);
    }

    /// Whether the plan has a step that the following parts of the plan must wait for. A status write is none, nor is a
    /// step that has had no effect and that no node depends on.
    pub(crate) fn has_changes(&self) -> bool {
        let steps = || self.first_steps.iter().chain(&self.steps).filter(|planned| !planned.step.is_status_write());
        if self.ineffective.is_empty() {
            return steps().next().is_some();
        }
        let values = last_values(steps());
        let is_ineffective = |write: Write| self.ineffective.contains(&last_value(write, &values));
        steps().any(|planned| {
            planned.dependents() != Dependents::Nothing || !planned.writes().into_iter().all(is_ineffective)
        })
    }

    /// Whether a step that the rotation waits for was repeated without effect.
    pub(crate) fn waits_for_ineffective(&self) -> bool {
        let steps = || self.first_steps.iter().chain(&self.steps).filter(|p| p.dependents() != Dependents::Nothing);
        let values = last_values(steps());
        let is_ineffective = |write: Write| self.ineffective.contains(&last_value(write, &values));
        !self.ineffective.is_empty()
            && steps().map(PlannedStep::writes).any(|w| !w.is_empty() && w.into_iter().all(is_ineffective))
    }

    /// Whether nodes in progress wait for something that may take long: a user, or a write without effect. An unhealthy
    /// cluster is none: uncordoning would be a change, too.
    pub(crate) fn leaves_nodes_waiting(&self, persistent_failure: &PersistentFailure) -> bool {
        let is_blocked = matches!(&self.outcome, Some(Outcome::Blocked { reason, .. }) if *reason != StalledReason::ClusterUnhealthy);
        !self.rotation_planned
            && (is_blocked || *persistent_failure == PersistentFailure::Pass || self.waits_for_ineffective())
    }

    /// Adds steps before all others, so that they do not depend on whether the others succeed.
    pub(crate) fn prepend(&mut self, steps: impl IntoIterator<Item = PlannedStep>) {
        self.steps.splice(0..0, steps);
    }

    /// Appends a step with its reasons.
    pub fn push_with_reasons(&mut self, step: impl Into<Step>, reasons: Vec<Drift>) {
        self.steps.push(PlannedStep::new(step, reasons));
    }

    /// Sets the outcome unless an earlier planner has set it: later planners see the first one.
    ///
    /// Planners run from the most to the least fundamental concern, so the first outcome is usually the cause, and
    /// later ones are its consequences. [`PlanBuilder::build`] reports a later, different outcome beside the first one,
    /// or in its place if it is the root cause.
    pub fn set_outcome_once(&mut self, outcome: Outcome) {
        match &self.outcome {
            None => self.outcome = Some(outcome),
            Some(kept) if *kept == outcome => {}
            Some(_) => self.later_outcomes.push(outcome),
        }
    }

    /// The finished plan; its outcome is `Converged` when no planner has set one. Some of the later outcomes become
    /// [`Plan::other_outcomes`], and a later outcome that is the root cause becomes [`Plan::outcome`].
    pub fn build(self, id: &GroupId, recheck_at: Option<Timestamp>) -> Plan {
        let record = self.recorded.map(|status| ObjectStep::UpdateStatus { status }.into());
        let nodes_missing = self.status_update.nodes_ready == Some(false);
        let outcome = self.outcome.unwrap_or(Outcome::Converged);
        let (outcome, other_outcomes) = with_others(outcome, self.later_outcomes, nodes_missing);
        Plan {
            group: id.key(),
            generation: id.generation,
            steps: self.first_steps.into_iter().chain(record).chain(self.steps).collect(),
            outcome,
            other_outcomes,
            status_update: self.status_update,
            condition_updates: self.condition_updates,
            rejected_fields: self.rejected_fields,
            adoption: self.adoption,
            events: self.events,
            evictions_end: self.evictions_end,
            node_usage: self.node_usage,
            recheck_at,
        }
    }
}

/// The outcome of a group that waits for AWS or for nodes; the next pass runs after the poll interval.
pub fn waiting(phase: Phase, message: impl Into<String>) -> Outcome {
    Outcome::Progressing { phase, message: message.into(), recheck: Recheck::Poll }
}

/// A plan without steps for a group that makes no progress until a user acts.
pub(crate) fn blocked_plan(id: &GroupId, reason: StalledReason, message: String) -> Plan {
    let outcome = Outcome::Blocked { reason, message, is_deleting: id.is_deleting() };
    PlanBuilder::with_outcome(outcome).build(id, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, NodeCounts, group_id};

    #[test]
    fn record_follows_first_steps_and_precedes_the_others() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let mut builder = PlanBuilder::default();
        builder.ensure_finalizer(&id);
        assert!(builder.has_changes());
        builder.push(ObjectStep::RemoveFinalizer);
        builder.record(json!({ "managed": { "tags": ["a"] } }));
        builder.record_managed("pool", json!(["m5.large"]));
        builder.record_after_steps(json!({ "managed": { "tags": null } }));
        let steps: Vec<_> = builder.build(&id, None).steps.into_iter().map(|planned| planned.step).collect();
        let status = json!({ "managed": { "tags": ["a"], "pool": ["m5.large"] } });
        let end = ObjectStep::UpdateStatus { status: json!({ "managed": { "tags": null } }) };
        let record = ObjectStep::UpdateStatus { status };
        let expected = [ObjectStep::AddFinalizer, record, ObjectStep::RemoveFinalizer, end];
        assert_eq!(steps, expected.map(Step::from));
    }

    /// A list that became empty must not stay in the status.
    #[test]
    fn record_has_what_differs_from_the_stored_status() {
        let counts = |ready| NodeCounts { desired: 3, ready, ..NodeCounts::default() };
        let stored = InstanceGroupStatus {
            current_min: Some(1),
            nodes: Some(counts(3)),
            strategy_resource_name: Some("gone".to_owned()),
            ..InstanceGroupStatus::default()
        };
        let mut builder = PlanBuilder::default();
        builder.set_status("currentMin", 1);
        builder.record_changes(&stored, builder.status_update.fields.clone());
        assert_eq!(builder.recorded, None);
        builder.set_status("nodes", counts(2));
        builder.set_status("strategyResourceName", Value::Null);
        builder.record_changes(&stored, builder.status_update.fields.clone());
        assert_eq!(builder.recorded, Some(json!({ "nodes": { "ready": 2 }, "strategyResourceName": null })));
    }

    #[test]
    fn first_outcome_wins_and_different_later_ones_are_recorded() {
        let mut builder = PlanBuilder::default();
        assert_eq!(builder.outcome, None);
        let first = waiting(Phase::Creating, "first");
        builder.set_outcome_once(first.clone());
        builder.set_outcome_once(first.clone());
        assert!(builder.outcome.is_some() && builder.later_outcomes.is_empty());
        builder.set_outcome_once(Outcome::Converged);
        assert_eq!((builder.outcome, builder.later_outcomes), (Some(first), vec![Outcome::Converged]));
    }

    fn built(outcomes: impl IntoIterator<Item = Outcome>, nodes_ready: bool) -> (Outcome, Vec<Outcome>) {
        let mut builder = PlanBuilder::default();
        builder.status_update.nodes_ready = Some(nodes_ready);
        outcomes.into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
        let plan = builder.build(&group_id(&InstanceGroup::new("web", InstanceGroupSpec::default())), None);
        (plan.outcome, plan.other_outcomes)
    }

    fn blocked(reason: StalledReason) -> Outcome {
        Outcome::Blocked { reason, message: format!("{reason} in words"), is_deleting: false }
    }

    /// Nodes that cannot join make a cluster look unhealthy, and its health must not hide why.
    #[test]
    fn root_cause_comes_first_and_the_others_follow() {
        let found = [
            StalledReason::ClusterUnhealthy,
            StalledReason::AuthConflict,
            StalledReason::NodesNotReady,
            StalledReason::NodesNotReady,
        ];
        let expected = [StalledReason::ClusterUnhealthy, StalledReason::NodesNotReady].map(blocked).to_vec();
        assert_eq!(built(found.map(blocked), false), (blocked(StalledReason::AuthConflict), expected));
        let halted = [StalledReason::ReplacementsNotReady, StalledReason::NodesNotReady, StalledReason::LaunchFailed]
            .map(blocked);
        assert_eq!(built(halted, false).1, [blocked(StalledReason::LaunchFailed)], "the nodes are named already");
        let waits = [waiting(Phase::Rotating, "for a node"), blocked(StalledReason::LaunchFailed)];
        let (Outcome::Blocked { reason: StalledReason::LaunchFailed, message, .. }, _) = built(waits, false) else {
            panic!("a rotation that waits for nodes does not say that none are launched");
        };
        assert!(message.starts_with("LaunchFailed in words") && message.ends_with("for a node"), "{message}");
    }

    #[test]
    fn locked_group_reports_its_other_problems() {
        let locked = Outcome::Locked { message: "by the group".into() };
        let (waits, failed) = (waiting(Phase::Modifying, "1 of 2"), blocked(StalledReason::LaunchFailed));
        let all = [locked.clone(), failed.clone(), waits.clone()];
        assert_eq!(built(all.clone(), false), (locked.clone(), vec![failed.clone(), waits]));
        assert_eq!(built(all, true), (locked, vec![failed]), "without missing nodes, nothing is waited for");
    }
}
