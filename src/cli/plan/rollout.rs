//! The rollout as `plan` shows it: which revision each group is on, in which wave the next one reaches it, and what that
//! takes. Pure.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::schedule::{ClusterNodes, Work, schedule};
use crate::api::rfc3339;
use crate::boundaries::{Approval, Wave, WithoutRotation};
use crate::controller::rollout::Decided;
use crate::k8s::DrainBlocker;
use crate::provisioner::ExtraNodes;
use crate::rollout::{RevisionDecision, RevisionImpact, RolloutView, StoredRevision, WaitReason};
use crate::util::duration;

/// A group's place in a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupRollout {
    /// The revision that the group has, or switches to in its next reconcile; absent when it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Name of the newest revision, such as `r14`.
    pub target: String,
    /// Name of the group's wave in the key `rollout`.
    pub wave: String,
    /// Position of the wave, from 1.
    pub position: usize,
    /// The number of waves.
    pub waves: usize,
    /// Whether the group switches to `revision` in its next reconcile.
    pub takes: bool,
    /// Why it does not switch to the newest one, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// What the newest one means for a group that has, or had, another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<RevisionImpact>,
    /// Whether the group counts as a failure of its wave, because it cannot use the newest one: not where it is blocked for
    /// the same reason now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fails_wave: bool,
}

impl GroupRollout {
    /// Built from the decision about the group.
    pub(crate) fn new(view: &RolloutView, decided: &Decided) -> Self {
        let (content, waits, takes) = match &decided.choice {
            RevisionDecision::Use { content, waits, .. } => (content.as_ref(), waits.as_ref(), false),
            RevisionDecision::Switch(switch) => (Some(&switch.content), None, true),
        };
        let is_behind = content.is_some_and(|content| content.hash != view.target.hash);
        Self {
            revision: content.map(|content| content.name.clone()),
            target: view.target.name.clone(),
            wave: view.policy.waves[decided.wave].name.clone(),
            position: decided.wave + 1,
            waves: view.policy.waves.len(),
            takes,
            reason: waits.map(|wait| wait.reason.to_string()),
            waits: waits.map(|wait| wait.message.clone()),
            effect: (is_behind || decided.forecast != RevisionImpact::Unknown).then(|| decided.forecast.clone()),
            fails_wave: decided.fails_wave,
        }
    }

    /// What the group has, if that is not what the ConfigMap has.
    pub(crate) fn behind(&self) -> Option<String> {
        match &self.revision {
            Some(revision) if *revision == self.target && !self.takes => None,
            Some(revision) if self.takes => Some(format!("takes {revision} now")),
            Some(revision) => Some(format!("has {revision}, and the ConfigMap has {}", self.target)),
            None => Some(format!("has an unknown revision, and the ConfigMap has {}", self.target)),
        }
    }

    /// The lines below the group; empty when the group has the newest revision.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let (true, Some(revision)) = (self.takes, &self.revision) {
            lines.push(format!("takes {revision} now (wave {}, {} of {})", self.wave, self.position, self.waves));
        }
        if let Some(waits) = &self.waits {
            lines.push(waits.clone());
        }
        let has_it = self.takes || self.revision.as_ref() == Some(&self.target);
        // What is aborted comes no more.
        let is_aborted = self.reason.as_ref() == Some(&WaitReason::Aborted.to_string());
        let effect = self.effect.as_ref().filter(|_| !has_it && !is_aborted);
        lines.extend(effect.map(|effect| effect.describe(&self.target)));
        lines
    }
}

/// One wave of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WavePlan {
    /// Name of the wave.
    pub name: String,
    /// The share of the groups that it takes; they are counted in the last wave until the rollout begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Groups whose nodes are replaced in it, or whose pods are evicted.
    pub groups: usize,
    /// Their nodes that are replaced, or that pods are evicted from.
    pub nodes: usize,
    /// What it needs beside the waves before it; empty for nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<WavePrerequisite>,
    /// An estimate of how long its groups take, in minutes; absent for nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_minutes: Option<usize>,
    /// How long it soaks; absent without a soak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
    /// Groups that cannot use the revision, and count as failures.
    pub failures: usize,
    /// How many failures it allows.
    pub max_failures: usize,
    /// Pods that will block drains of its groups, as pods and budgets are now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_block: Vec<GroupDrainBlocker>,
}

impl WavePlan {
    fn new(view: &RolloutView, wave: &Wave) -> Self {
        Self {
            name: wave.name.clone(),
            percent: wave.percent,
            needs: WavePrerequisite::for_wave(view, wave),
            soak: (!wave.soak.is_zero()).then(|| duration::format(wave.soak)),
            ..Self::default()
        }
    }
}

/// What a rollout means for one group.
pub(crate) struct GroupShare<'a> {
    /// `namespace/name`.
    pub group: &'a str,
    /// Its place in the rollout.
    pub place: &'a GroupRollout,
    /// The replacement of its nodes; `None` when none is replaced.
    pub work: Option<Work>,
    /// Why its nodes could not go back to what they are now; `None` when they could.
    pub irreversible: Option<&'static str>,
    /// Pods that will block drains.
    pub blocked_drains: &'a [DrainBlocker],
}

/// A pod that will block the drain of a group's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupDrainBlocker {
    /// `namespace/name` of the group.
    pub group: String,
    /// The pod, and what blocks it.
    #[serde(flatten)]
    pub obstacle: DrainBlocker,
}

/// How a ConfigMap from a file would reach the groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutPlan {
    /// The revision that it would be.
    pub revision: String,
    /// The revision whose rollout it would end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// Whether every group switches to it at once, because it is what the groups had before.
    pub is_return: bool,
    /// Groups that change in place, at once.
    pub immediate_groups: usize,
    /// The waves, in their order.
    pub waves: Vec<WavePlan>,
    /// An estimate of when the last wave passes if the rollout starts now, nothing fails, and approvals are immediate.
    /// Absent when the windows of a wave do not open, or when the rollout halts before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
    /// The wave in which it would halt, because more groups cannot use it than the wave allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halts_in: Option<String>,
    /// How many nodes it makes unavailable at once at most.
    pub max_unavailable: usize,
    /// For how many hours nodes run in addition, summed over these nodes; 0 without any.
    pub extra_node_hours: f64,
    /// The same, summed over the vCPUs of these nodes; absent when those are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_vcpu_hours: Option<f64>,
    /// Groups whose replacements run beside the old nodes.
    pub extra_node_groups: usize,
    /// Groups that cannot use it, with the reason.
    pub cannot_use: Vec<String>,
    /// Groups whose nodes could not go back to what they are now, with the reason.
    pub irreversible: Vec<String>,
    /// Whether a change of the key `policy` comes to groups in their waves only, because it replaces nodes with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub policy_waits: bool,
}

impl RolloutPlan {
    /// Counts the groups by wave.
    pub(crate) fn new<'a>(
        view: &RolloutView,
        live: Option<&RolloutView>,
        groups: impl Iterator<Item = GroupShare<'a>>,
        cluster_nodes: &ClusterNodes,
        now: Timestamp,
    ) -> Self {
        let superseded = live.filter(|live| live.phase().is_under_way()).map(|live| live.target.name.clone());
        let mut plan = Self {
            revision: view.target.name.clone(),
            supersedes: superseded.filter(|name| *name != view.target.name),
            is_return: view.is_return(),
            immediate_groups: 0,
            waves: view.policy.waves.iter().map(|wave| WavePlan::new(view, wave)).collect(),
            ends: None,
            halts_in: None,
            max_unavailable: 0,
            extra_node_hours: 0.0,
            extra_vcpu_hours: None,
            extra_node_groups: 0,
            cannot_use: Vec::new(),
            irreversible: Vec::new(),
            policy_waits: false,
        };
        let mut work = vec![Vec::new(); plan.waves.len()];
        for group in groups {
            work[group.place.position - 1].extend(plan.count(&group, view.policy.without_rotation));
        }
        let replaces_nodes = plan.waves.iter().any(|wave| wave.nodes > 0);
        plan.policy_waits = replaces_nodes && !plan.is_return && changes_policy(view);
        plan.find_halt(view);
        plan.estimate(view, &work, cluster_nodes, now);
        plan
    }

    /// Counts a group, and returns the replacement of its nodes if the revision requests one.
    fn count(&mut self, group: &GroupShare, without_rotation: WithoutRotation) -> Option<Work> {
        let (key, place) = (group.group, group.place);
        let wave = &mut self.waves[place.position - 1];
        match &place.effect {
            Some(RevisionImpact::Rotate { nodes }) => {
                wave.groups += 1;
                wave.nodes += nodes;
                // What its tenant's own change replaces is not part of the rollout.
                if *nodes == 0 {
                    return None;
                }
                let obstacle =
                    |found: &DrainBlocker| GroupDrainBlocker { group: key.to_owned(), obstacle: found.clone() };
                wave.would_block.extend(group.blocked_drains.iter().map(obstacle));
                self.irreversible.extend(group.irreversible.map(|why| format!("{key}: {why}")));
                let has_extra = group.work.is_some_and(|work| work.extra != ExtraNodes::None);
                self.extra_node_groups += usize::from(has_extra);
                return group.work;
            }
            Some(RevisionImpact::Evict { nodes }) => {
                wave.groups += 1;
                wave.nodes += nodes;
            }
            Some(RevisionImpact::InPlace) if without_rotation == WithoutRotation::AtOnce => self.immediate_groups += 1,
            Some(RevisionImpact::InPlace | RevisionImpact::Unknown) => wave.groups += 1,
            Some(RevisionImpact::CannotUse { reason, message }) => {
                wave.failures += usize::from(place.fails_wave);
                let keeps = place.revision.as_ref().map(|name| format!("; it keeps {name}")).unwrap_or_default();
                let fails = if place.fails_wave { format!(" and fails wave {}", place.wave) } else { String::new() };
                self.cannot_use.push(format!("{key}: {reason}: {message}{keeps}{fails}"));
            }
            Some(RevisionImpact::Untouched) | None => {}
        }
        None
    }

    fn find_halt(&mut self, view: &RolloutView) {
        for (wave, policy) in self.waves.iter_mut().zip(&view.policy.waves) {
            wave.max_failures = policy.max_failures.resolve(wave.groups + wave.failures);
        }
        let halts = |wave: &&WavePlan| wave.failures > wave.max_failures;
        self.halts_in = self.waves.iter().find(halts).filter(|_| !self.is_return).map(|wave| wave.name.clone());
    }

    fn estimate(&mut self, view: &RolloutView, work: &[Vec<Work>], cluster_nodes: &ClusterNodes, now: Timestamp) {
        let is_urgent = view.urgent_until(now).is_some();
        let delay = if is_urgent { SignedDuration::ZERO } else { view.delay };
        let schedule = schedule(&view.policy, work, cluster_nodes, now.checked_add(delay).unwrap_or(now), is_urgent);
        for (wave, minutes) in self.waves.iter_mut().zip(schedule.minutes) {
            wave.estimated_minutes = Some(minutes).filter(|minutes| *minutes > 0);
        }
        self.ends = schedule.ends.filter(|_| self.halts_in.is_none()).map(rfc3339);
        self.max_unavailable = schedule.unavailable;
        self.extra_node_hours = hours(schedule.extra_seconds);
        self.extra_vcpu_hours = schedule.extra_vcpu_seconds.map(hours);
    }
}

/// Whether the target has another key `policy` than what was complete before.
fn changes_policy(view: &RolloutView) -> bool {
    let policy = |stored: &StoredRevision| stored.active.boundaries.as_ref().map(|found| found.policy.clone());
    view.stable.as_ref().is_some_and(|stable| policy(stable) != policy(&view.target))
}

/// Seconds as hours with one decimal: minutes would claim more than an estimate knows.
fn hours(seconds: i64) -> f64 {
    (seconds as f64 / 360.0).round() / 10.0
}

/// What a wave needs to open, besides the waves before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum WavePrerequisite {
    /// The approval of an admin.
    AdminApproval,
    /// The approvals of its groups' tenants, or the end of their deferral.
    TenantApprovals,
    /// An open window.
    Window,
}

impl WavePrerequisite {
    fn for_wave(view: &RolloutView, wave: &Wave) -> Vec<Self> {
        let approval = wave.approval.map(|approval| match approval {
            Approval::Admin => Self::AdminApproval,
            Approval::Tenants => Self::TenantApprovals,
        });
        let has_windows = !wave.windows.is_empty() || !view.policy.windows.is_empty();
        approval.into_iter().chain(has_windows.then_some(Self::Window)).collect()
    }

    pub(super) fn is_approval(self) -> bool {
        matches!(self, Self::AdminApproval | Self::TenantApprovals)
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::AdminApproval => "needs an approval",
            Self::TenantApprovals => "needs approvals of tenants, or the end of their deferral",
            Self::Window => "in its windows",
        }
    }
}

/// Minutes as `45m` or `2h05m`.
pub(crate) fn format_minutes(minutes: usize) -> String {
    if minutes < 120 { format!("{minutes}m") } else { format!("{}h{:02}m", minutes / 60, minutes % 60) }
}
