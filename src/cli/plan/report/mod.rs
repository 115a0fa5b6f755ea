//! The output of `plan`: the kind of change, the steps and the nodes of each group, and totals.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::estimate::{self, BATCH, MeasuredJoin};
use super::quota::{QuotaUsage, usages};
use super::rollout::{GroupRollout, GroupShare, RolloutPlan};
use super::schedule::Work;
use super::snapshot::PlannedGroup;
use crate::api::names::condition;
use crate::api::{CurrentState, GroupObject, InstanceGroup, InstanceGroupStatus};
use crate::boundaries::QuotaLevel;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::planner::{ObserveError, Planner};
use crate::controller::report::INVALID_OBJECT;
use crate::k8s::{DrainBlocker, ZoneBoundPod};
use crate::plan::{ObjectStep, Outcome, Phase, Plan, PlannedStep, StalledReason, Step};
use crate::provisioner::{ExtraNodes, NodeInPlaceChange, NodeReplacement, PlanContext, Projection};
use crate::util::duration;

/// The kind of change that a plan makes to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeKind {
    /// The plan changes neither the group nor its nodes.
    Unchanged,
    /// The group and its nodes are created.
    Create,
    /// The group changes, and every node stays.
    InPlace,
    /// Nodes are replaced.
    Rotate,
    /// The group and its nodes are deleted.
    Delete,
    /// The group needs manual intervention.
    Blocked,
    /// AWS or the API server did not answer.
    Unknown,
}

/// What causes a change that is shown for a ConfigMap from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeCause {
    /// The ConfigMap from the file, compared with the live one.
    File,
    /// Something else: the change is under way, or comes with the live ConfigMap as well.
    Before,
    /// Both: a part of the change comes with the file only.
    Both,
}

/// The plan of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupPlan {
    /// `namespace/name`.
    pub group: String,
    /// The kind of change.
    pub change: ChangeKind,
    /// Whether anything would change. Waiting does not count as a change.
    #[serde(rename = "changes")]
    pub has_changes: bool,
    /// The CamelCase reason, if the group is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the group is blocked, or what it waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// All steps of the next reconcile.
    pub steps: Vec<PlannedStep>,
    /// The steps of the reconciles after it, until one must wait for nodes or AWS.
    pub later_steps: Vec<PlannedStep>,
    /// Nodes that would be replaced, in the order in which AWS lists them.
    #[serde(rename = "rotate")]
    pub nodes_to_rotate: Vec<NodeReplacement>,
    /// Nodes whose labels and taints would change in place.
    #[serde(rename = "changeInPlace", skip_serializing_if = "Vec::is_empty")]
    pub nodes_to_change: Vec<NodeInPlaceChange>,
    /// How many nodes may be unavailable at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<usize>,
    /// What blocks the replacement of nodes, for example a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Nodes that would be removed without a replacement: by a deletion, or because maxSize is lower.
    #[serde(rename = "remove")]
    pub nodes_to_remove: usize,
    /// Values that the tenant set and that the boundaries replaced, or that have no effect.
    pub overridden: Vec<String>,
    /// Its place in the rollout; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<GroupRollout>,
    /// What causes the change, if a file replaces the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<ChangeCause>,
    /// Instances that are replaced without the file as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced_anyway: Vec<String>,
    /// Pods that will block the drains of these nodes, as pods and budgets are now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_drains: Vec<DrainBlocker>,
    /// Pods on these nodes that no controller creates again, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmanaged_pods: Vec<String>,
    /// Pods on these nodes that can run in one zone only, if the group has nodes in several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zone_bound_pods: Vec<ZoneBoundPod>,
    /// Why it is not known which volumes are bound to zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes_unknown: Option<String>,
    /// Why drains cannot be forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drains_unknown: Option<String>,
    /// Why the nodes could not go back to what they are now; absent when they could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irreversible: Option<&'static str>,
    /// How many nodes run in addition while nodes are replaced.
    #[serde(skip)]
    pub extra_nodes: ExtraNodes,
    /// How many vCPUs a node of the group has at most; `None` when that is not known.
    #[serde(skip)]
    pub node_vcpus: Option<u64>,
    /// What its namespace uses of its quota, with what the group asks for; empty without a quota.
    #[serde(skip)]
    pub quota: Vec<QuotaLevel>,
    /// How many of its nodes are in each zone.
    #[serde(skip)]
    pub zones: BTreeMap<String, usize>,
    /// An estimate of how long the replacement takes, in minutes; absent when another controller replaces the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_minutes: Option<usize>,
    /// How long the group's nodes took from launch to Ready; absent where the estimate assumes it.
    #[serde(
        rename = "measuredJoin",
        serialize_with = "estimate::as_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub measured_join: Option<MeasuredJoin>,
    /// How long a drain may take, for example `15m`; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// How long a replacement may take to join before the rotation halts; absent when another controller replaces the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_timeout: Option<String>,
}

/// Whether a step is a change that users see, not only a record in the status.
fn has_effect(planned: &PlannedStep) -> bool {
    !matches!(planned.step, Step::Object(ObjectStep::UpdateStatus { .. }))
}

/// Whether a deletion removes no node before a user acts. A deletion that EKS failed is blocked as well, but is retried.
fn keeps_nodes(plan: &Plan) -> bool {
    match &plan.outcome {
        Outcome::Blocked { reason: StalledReason::DeletionProtected, .. } => true,
        Outcome::Blocked { .. } => !plan.steps.iter().any(has_effect),
        Outcome::Converged | Outcome::Progressing { .. } | Outcome::Locked { .. } | Outcome::Deleted => false,
    }
}

/// Whether the group was reported as blocked before. A blocked deletion keeps the state `Deleting`, and the Keiko
/// controller reports the state `Error` without a condition.
fn was_blocked(status: &InstanceGroupStatus) -> bool {
    status.current_state.as_deref() == Some(CurrentState::Error.as_str())
        || status.conditions.iter().any(|found| found.r#type == condition::STALLED && found.is_true())
}

/// How many nodes a group has, by its last report. The other counts of a group with weights are units of capacity.
fn reported_nodes(status: &InstanceGroupStatus) -> usize {
    let Some(counts) = &status.nodes else { return 0 };
    let instances: i64 = status.effective.iter().flat_map(|effective| effective.versions.values()).sum();
    let nodes = if counts.weighted && instances > 0 { instances } else { counts.desired };
    usize::try_from(nodes).unwrap_or(0)
}

impl GroupPlan {
    /// Built from the result of the planner.
    pub(crate) fn new(group: &InstanceGroup, planned: PlannedGroup, planner: &Planner, now: Timestamp) -> Self {
        let PlannedGroup { planning, lock, rollout_block, rollout, quota, .. } = planned;
        let status = group.status.clone().unwrap_or_default();
        let overridden = planning.boundaries.iter().flat_map(|b| &b.overridden).map(ToString::to_string).collect();
        let zones = planning.plan.node_usage.iter().flat_map(|usage| &usage.zones);
        let zones = zones.map(|(zone, usage)| (zone.clone(), usage.nodes)).collect();
        let mut plan = GroupPlan { overridden, rollout, zones, quota, ..Self::empty(planning.plan.group.clone()) };
        let mut outcome = planning.plan.outcome.clone();
        if let Some(snapshot) = &planning.snapshot {
            let context = PlanContext {
                status: &status,
                lock: lock.as_deref(),
                rollout_block: rollout_block.as_deref(),
                allowance: None,
                settings: &planner.settings,
                ineffective_writes: &Default::default(),
                persistent_failure: &Default::default(),
                is_requested: false,
                now,
            };
            let projection = snapshot.simulate(&planning.plan, &context);
            outcome = projection.outcome.clone();
            plan.set_nodes(lock.or(rollout_block), projection);
        } else if group.metadata.deletion_timestamp.is_some() && !keeps_nodes(&planning.plan) {
            plan.nodes_to_remove = reported_nodes(&status);
        }
        plan.classify(planning.plan, outcome, was_blocked(&status));
        plan
    }

    /// The plan of a stored object that does not match its schema.
    pub(crate) fn invalid_object(group: String) -> Self {
        GroupPlan {
            change: ChangeKind::Blocked,
            reason: Some("InvalidSpec".into()),
            message: INVALID_OBJECT.into(),
            ..Self::empty(group)
        }
    }

    /// The plan of a group for which AWS or the API server did not answer.
    pub(crate) fn unknown(group: String, error: &ObserveError) -> Self {
        GroupPlan { change: ChangeKind::Unknown, message: error.to_string(), ..Self::empty(group) }
    }

    /// What is known of a group that the caller has no permissions to plan for: what the controller reported.
    pub(crate) fn without_rights(stored: &GroupObject) -> Self {
        let status = stored.0.as_ref().ok().and_then(|group| group.status.clone()).unwrap_or_default();
        let state = status.current_state.unwrap_or_else(|| "nothing yet".to_owned());
        let nodes = status.nodes.map(|nodes| format!(", {} of {} {} ready", nodes.ready, nodes.desired, nodes.unit()));
        let message = format!("the controller reported {state}{}", nodes.unwrap_or_default());
        GroupPlan { change: ChangeKind::Unknown, message, ..Self::empty(crate::controller::group_key(stored)) }
    }

    /// A plan that changes nothing.
    pub(super) fn empty(group: String) -> Self {
        GroupPlan {
            group,
            change: ChangeKind::Unchanged,
            has_changes: false,
            reason: None,
            message: String::new(),
            steps: Vec::new(),
            later_steps: Vec::new(),
            nodes_to_rotate: Vec::new(),
            nodes_to_change: Vec::new(),
            max_unavailable: None,
            blocked_by: None,
            nodes_to_remove: 0,
            overridden: Vec::new(),
            rollout: None,
            cause: None,
            replaced_anyway: Vec::new(),
            blocked_drains: Vec::new(),
            unmanaged_pods: Vec::new(),
            zone_bound_pods: Vec::new(),
            volumes_unknown: None,
            drains_unknown: None,
            irreversible: None,
            extra_nodes: ExtraNodes::None,
            node_vcpus: None,
            quota: Vec::new(),
            zones: BTreeMap::new(),
            estimated_minutes: None,
            measured_join: None,
            drain_timeout: None,
            join_timeout: None,
        }
    }

    /// Marks what the plan with the live ConfigMap contains as well.
    pub(crate) fn compare_with_live(mut self, live: &Self) -> Self {
        let is_replaced = |instance: &String| live.nodes_to_rotate.iter().any(|node| node.instance == *instance);
        let instances = self.nodes_to_rotate.iter().map(|node| node.instance.clone());
        self.replaced_anyway = instances.filter(is_replaced).collect();
        let steps = |plan: &Self| [plan.steps.clone(), plan.later_steps.clone()].concat();
        let is_same = self.change == live.change
            && steps(&self) == steps(live)
            && self.nodes_to_rotate == live.nodes_to_rotate
            && (&self.reason, self.nodes_to_remove) == (&live.reason, live.nodes_to_remove);
        self.cause = match () {
            () if !self.has_changes => None,
            () if is_same => Some(ChangeCause::Before),
            () if live.has_changes => Some(ChangeCause::Both),
            () => Some(ChangeCause::File),
        };
        self
    }

    /// The Nodes that would be replaced.
    pub(crate) fn replaced_nodes(&self) -> impl Iterator<Item = &String> {
        self.nodes_to_rotate.iter().filter_map(|replaced| replaced.node.as_ref())
    }

    /// Estimates the duration from how long the present nodes took, instead of an assumption.
    pub(crate) fn set_measured_join(&mut self, measured: MeasuredJoin) {
        self.measured_join = Some(measured);
        self.estimated_minutes = self.work().map(|work| work.minutes());
    }

    /// What a rollout means for the group; `None` without one.
    pub(crate) fn share(&self) -> Option<GroupShare<'_>> {
        Some(GroupShare {
            group: &self.group,
            place: self.rollout.as_ref()?,
            work: self.work(),
            irreversible: self.irreversible,
            blocked_drains: &self.blocked_drains,
        })
    }

    /// The replacement of the nodes, for the estimate of a rollout; `None` when none is replaced.
    fn work(&self) -> Option<Work> {
        let nodes = Some(self.nodes_to_rotate.len()).filter(|nodes| *nodes > 0)?;
        let batch = self.measured_join.as_ref().map_or(BATCH, MeasuredJoin::batch);
        let work = match self.max_unavailable {
            Some(max_unavailable) => Work {
                nodes,
                max_unavailable: max_unavailable.min(nodes),
                batch,
                extra: self.extra_nodes,
                vcpus: self.node_vcpus,
            },
            // Another controller takes them, in its own time.
            None => Work {
                nodes,
                max_unavailable: nodes,
                batch: SignedDuration::ZERO,
                extra: ExtraNodes::None,
                vcpus: None,
            },
        };
        Some(work)
    }

    fn set_nodes(&mut self, lock: Option<String>, projection: Projection) {
        (self.later_steps, self.nodes_to_rotate, self.nodes_to_remove) =
            (projection.steps, projection.replacements, projection.scale_in);
        self.nodes_to_change = projection.in_place;
        if self.zones.is_empty() {
            // The next pass does not rotate yet, and so has not counted the nodes.
            for node in &self.nodes_to_rotate {
                *self.zones.entry(node.zone.clone()).or_default() += 1;
            }
        }
        if self.nodes_to_rotate.is_empty() && self.nodes_to_remove == 0 {
            return;
        }
        self.max_unavailable = Some(projection.max_unavailable).filter(|max| *max > 0);
        (self.extra_nodes, self.irreversible) = (projection.extra_nodes, projection.irreversible);
        let nodes = self.nodes_to_rotate.len();
        self.estimated_minutes = self.work().filter(|_| self.max_unavailable.is_some()).map(|work| work.minutes());
        if let Some(limits) = projection.limits.filter(|_| nodes > 0) {
            self.drain_timeout = limits.drain.map(duration::format);
            self.join_timeout = Some(duration::format(limits.join));
        }
        self.blocked_by = lock.or(match projection.outcome {
            Outcome::Locked { message } | Outcome::Blocked { message, .. } => Some(message),
            Outcome::Converged | Outcome::Progressing { .. } | Outcome::Deleted => None,
        });
    }

    fn classify(&mut self, plan: Plan, outcome: Outcome, was_blocked: bool) {
        let creates = |s: &PlannedStep| s.step.creates_nodes();
        self.steps = plan.steps;
        let mut all = self.steps.iter().chain(&self.later_steps);
        let deleting = matches!(
            outcome,
            Outcome::Deleted
                | Outcome::Progressing { phase: Phase::Deleting, .. }
                | Outcome::Blocked { is_deleting: true, .. }
        );
        let is_blocked_now = matches!(plan.outcome, Outcome::Blocked { .. });
        self.change = match () {
            () if is_blocked_now => ChangeKind::Blocked,
            () if deleting => ChangeKind::Delete,
            () if !self.nodes_to_rotate.is_empty() => ChangeKind::Rotate,
            () if all.clone().any(creates) => ChangeKind::Create,
            () if all.clone().any(has_effect) || self.nodes_to_remove > 0 => ChangeKind::InPlace,
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
        // Nodes that a lock keeps count as a change, whether they would be replaced or removed.
        let scales_in = self.change == ChangeKind::InPlace && self.nodes_to_remove > 0;
        self.has_changes = all.any(has_effect) || !self.nodes_to_rotate.is_empty() || scales_in || newly_blocked;
    }
}

/// Numbers of groups and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    /// All planned groups.
    pub groups: usize,
    /// Groups that the controller would leave as they are.
    pub unchanged: usize,
    /// Groups that are created.
    pub create: usize,
    /// Groups that change in place.
    pub in_place: usize,
    /// Groups whose nodes are replaced.
    pub rotate: usize,
    /// Nodes that are replaced.
    pub nodes_to_rotate: usize,
    /// Nodes that are removed without a replacement.
    pub nodes_to_remove: usize,
    /// Groups that are deleted.
    pub delete: usize,
    /// Groups that need manual intervention.
    pub blocked: usize,
    /// Groups for which AWS or the API server did not answer.
    pub unknown: usize,
}

/// The plans of all groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanReport {
    /// By namespace and name.
    pub groups: Vec<GroupPlan>,
    /// Totals of all groups.
    pub totals: Totals,
    /// Revision of the boundaries that the plans are based on; empty without boundaries.
    pub boundaries_revision: String,
    /// Why the last known good boundaries are active; absent when the live ConfigMap is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_good: Option<String>,
    /// Why there are no active boundaries, not even the last known good ones; absent when there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundaries_unavailable: Option<String>,
    /// How the file that replaces the ConfigMap would reach the groups; absent when it reaches all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutPlan>,
    /// What the groups use of the quotas of their namespaces, with what they ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaUsage>,
    /// What the caller lacks the permissions for, and what that means for the plans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether the groups were planned. Without the permissions for it, the report may not even know the groups.
    #[serde(skip)]
    pub is_planned: bool,
}

impl PlanReport {
    /// How many nodes the groups have in each zone.
    pub(crate) fn zones(&self) -> BTreeMap<&str, usize> {
        let mut zones = BTreeMap::new();
        let all = self.groups.iter().flat_map(|group| &group.zones);
        all.for_each(|(zone, nodes)| *zones.entry(zone.as_str()).or_default() += nodes);
        zones
    }

    /// Counts the groups and nodes.
    pub(crate) fn new(groups: Vec<GroupPlan>, active: &ActiveBoundaries) -> Self {
        let mut totals = Totals { groups: groups.len(), ..Totals::default() };
        for group in &groups {
            let count = match group.change {
                ChangeKind::Unchanged => &mut totals.unchanged,
                ChangeKind::Create => &mut totals.create,
                ChangeKind::InPlace => &mut totals.in_place,
                ChangeKind::Rotate => &mut totals.rotate,
                ChangeKind::Delete => &mut totals.delete,
                ChangeKind::Blocked => &mut totals.blocked,
                ChangeKind::Unknown => &mut totals.unknown,
            };
            *count += 1;
            totals.nodes_to_rotate += group.nodes_to_rotate.len();
            totals.nodes_to_remove += group.nodes_to_remove;
        }
        let (last_known_good, boundaries_unavailable) = match &active.source {
            BoundariesSource::LastKnownGood(why) => (Some(why.clone()), None),
            BoundariesSource::Unavailable(why) | BoundariesSource::RevisionMissing(why) => (None, Some(why.clone())),
            BoundariesSource::Unknown | BoundariesSource::Live | BoundariesSource::NotConfigured => (None, None),
        };
        PlanReport {
            quotas: usages(groups.iter().map(|group| (group.group.as_str(), group.quota.as_slice()))),
            groups,
            totals,
            boundaries_revision: active.revision.clone(),
            last_known_good,
            boundaries_unavailable,
            rollout: None,
            notes: Vec::new(),
            is_planned: true,
        }
    }

    /// 1 if nothing was planned, or AWS or the API server did not answer for a group; 2 if something would change;
    /// otherwise 0.
    pub(crate) fn exit_code(&self) -> u8 {
        match () {
            () if !self.is_planned || self.totals.unknown > 0 => 1,
            () if self.groups.iter().any(|group| group.has_changes) => 2,
            () => 0,
        }
    }
}

#[cfg(test)]
mod tests;
