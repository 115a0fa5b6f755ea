//! The plan itself: the steps of one pass for one group, and the state that follows from them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::drift::Drift;
use super::event::{ConditionUpdate, Event};
use super::node_usage::NodeUsage;
use super::outcome::Outcome;
use super::stalled_reason::StalledReason;
use super::step::Step;
use crate::api::names::condition;

/// Everything that one pass does to one group.
///
/// ```
/// use instance_manager::api::{InstanceGroup, InstanceGroupSpec, group_id};
/// use instance_manager::plan::{EksStep, Outcome, PlanBuilder};
///
/// let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
/// group.metadata.namespace = Some("team".into());
/// let mut builder = PlanBuilder::default();
/// builder.push_with_reasons(EksStep::DeleteTemplate { template: "lt-1".into() }, vec![]);
/// let plan = builder.build(&group_id(&group), None);
///
/// assert_eq!(plan.group, "team/web");
/// assert_eq!(plan.outcome, Outcome::Converged); // once the steps are applied
/// assert_eq!(serde_json::json!(plan)["steps"][0]["step"], "DeleteTemplate"); // as `instance-manager plan` prints it
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// `namespace/name`.
    pub group: String,
    /// The generation of the InstanceGroup that the plan was made for.
    pub generation: i64,
    /// The steps in order. A failing step ends the pass, unless the rest does not depend on it.
    pub steps: Vec<PlannedStep>,
    /// The state of the group when all steps have succeeded.
    pub outcome: Outcome,
    /// What else keeps the group from its desired state while it is blocked or locked, most fundamental first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_outcomes: Vec<Outcome>,
    /// Status fields other than conditions.
    pub status_update: StatusUpdate,
    /// Conditions other than Ready, Reconciling and Stalled.
    pub condition_updates: Vec<ConditionUpdate>,
    /// The fields of the spec that the plan cannot use; `None` when it uses all of them.
    #[serde(skip)]
    pub rejected_fields: Option<FieldRejection>,
    /// How the resources that the plan adopts differ from the spec; `None` when it adopts none.
    #[serde(skip)]
    pub adoption: Option<String>,
    /// Events to publish when the plan has been applied.
    pub events: Vec<Event>,
    /// When instances are terminated although budgets block evictions, because the group is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evictions_end: Option<Timestamp>,
    /// What the group uses of the budget of a rollout; `None` when the plan did not get to its nodes.
    #[serde(skip)]
    pub node_usage: Option<NodeUsage>,
    /// When the group needs another pass even if nothing changes before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck_at: Option<Timestamp>,
}

/// A step with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The write to AWS or Kubernetes with its complete input.
    #[serde(flatten)]
    pub step: Step,
    /// Why the step is needed; empty when the step explains itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Drift>,
    /// The step was applied several times without effect. It is tried again, without an event.
    #[serde(skip)]
    pub is_retry: bool,
    /// Nothing else waits for the step, also if that is usual for its kind: no node depends on it.
    #[serde(skip)]
    pub is_optional: bool,
}

impl<S: Into<Step>> From<S> for PlannedStep {
    fn from(step: S) -> Self {
        PlannedStep::new(step, Vec::new())
    }
}

impl PlannedStep {
    /// A step with its reasons.
    pub fn new(step: impl Into<Step>, reasons: Vec<Drift>) -> Self {
        PlannedStep { step: step.into(), reasons, is_retry: false, is_optional: false }
    }

    /// The same step, for which nothing else waits.
    pub(crate) fn optional(self) -> Self {
        PlannedStep { is_optional: true, ..self }
    }

    /// The reasons in one line; empty when there are none.
    pub(crate) fn why(&self) -> String {
        self.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Fields of the spec that a plan cannot use. The rest of the group is reconciled, unless the whole spec is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRejection {
    /// Reason of the first field.
    pub reason: StalledReason,
    /// What is wrong with each field and what to do, and what the group keeps because of it.
    pub message: String,
}

impl FieldRejection {
    /// The outcome of a group that is otherwise as desired.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::Blocked { reason: self.reason, message: self.message.clone(), is_deleting: false }
    }

    /// The condition that names the fields, also while other changes are in progress.
    pub(crate) fn condition(&self) -> ConditionUpdate {
        ConditionUpdate {
            condition_type: condition::FIELDS_REJECTED,
            status: true,
            reason: self.reason.to_string(),
            message: self.message.clone(),
        }
    }
}

/// Status fields that a plan sets, other than conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatusUpdate {
    /// Fields of `.status` by their JSON name; `null` removes a field.
    pub fields: BTreeMap<String, Value>,
    /// The `NodesReady` condition: whether every desired node is Ready.
    pub nodes_ready: Option<bool>,
}
