//! The roll-out as `plan` shows it: which revision each group is on, and in which wave the next one reaches it.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::schedule::schedule;
use crate::api::{RolloutPhase, rfc3339};
use crate::boundaries::{Approval, Wave, WithoutRotation};
use crate::controller::rollout::Decided;
use crate::rollout::{Choice, Forecast, RolloutView};
use crate::util::counted::counted;
use crate::util::duration;

/// What the newest revision means for a group that has another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(crate) enum Effect {
    /// AWS or the API server did not answer.
    Unknown,
    /// Nothing.
    Untouched,
    /// No node is replaced.
    InPlace,
    /// Nodes are replaced or removed.
    Rotate {
        /// How many.
        nodes: usize,
    },
    /// The group cannot use it.
    CannotUse {
        /// What would be wrong.
        message: String,
    },
}

impl Effect {
    fn new(forecast: &Forecast) -> Self {
        match forecast {
            Forecast::Unknown => Self::Unknown,
            Forecast::Untouched => Self::Untouched,
            Forecast::InPlace => Self::InPlace,
            Forecast::Rotates(nodes) => Self::Rotate { nodes: *nodes },
            Forecast::Blocked { reason, message } => Self::CannotUse { message: format!("{reason}: {message}") },
        }
    }

    fn describe(&self, revision: &str) -> String {
        match self {
            Self::Unknown => format!("it is not known what {revision} means for the group: AWS did not answer"),
            Self::Untouched => format!("{revision} changes nothing of the group"),
            Self::InPlace => format!("{revision} changes the group in place"),
            Self::Rotate { nodes } => format!("{revision} replaces {}", counted(*nodes, "node")),
            Self::CannotUse { message } => format!("the group cannot use {revision}: {message}"),
        }
    }
}

/// A group's place in a roll-out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupRollout {
    /// The revision that the group has, or takes in its next reconcile; absent when it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The newest revision.
    pub target: String,
    /// The group's wave.
    pub wave: String,
    /// Position of the wave, from 1.
    pub position: usize,
    /// The number of waves.
    pub waves: usize,
    /// Whether the group takes `revision` in its next reconcile.
    pub takes: bool,
    /// Why it does not take the newest one, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// What the newest one means for a group that has, or had, another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

impl GroupRollout {
    /// Built from the decision about the group.
    pub(crate) fn new(view: &RolloutView, decided: &Decided) -> Self {
        let (content, waits, takes) = match &decided.choice {
            Choice::Use { content, waits, .. } => (content.as_ref(), waits.as_ref(), false),
            Choice::Take(take) => (Some(&take.content), None, true),
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
            effect: (is_behind || decided.forecast != Forecast::Unknown).then(|| Effect::new(&decided.forecast)),
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
        let effect = self.effect.as_ref().filter(|_| !self.takes && self.revision.as_ref() != Some(&self.target));
        lines.extend(effect.map(|effect| effect.describe(&self.target)));
        lines
    }
}

/// One wave of a roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WavePlan {
    /// Name.
    pub name: String,
    /// The share of the groups that it takes; they are counted in the last wave until the roll-out begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Groups whose nodes are replaced in it.
    pub groups: usize,
    /// Their nodes that are replaced.
    pub nodes: usize,
    /// What it needs beside the waves before it; empty for nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// An estimate of how long its groups take, in minutes; absent for nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_minutes: Option<usize>,
    /// How long it soaks; absent without a soak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
}

/// How a ConfigMap from a file would reach the groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutPlan {
    /// The revision that it would be.
    pub revision: String,
    /// The revision whose roll-out it would end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// Whether every group takes it at once, because it is what the groups had before.
    pub is_way_back: bool,
    /// Groups that change in place, at once.
    pub at_once: usize,
    /// The waves, in their order.
    pub waves: Vec<WavePlan>,
    /// An estimate of when the last wave has passed if it began now, nothing failed, and approvals came at once; absent
    /// when the windows of a wave do not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
    /// Groups that cannot use it, with the reason.
    pub cannot_use: Vec<String>,
}

impl RolloutPlan {
    /// Counts the groups by wave. `groups` are their keys, places, and how many minutes each takes.
    pub(crate) fn new<'a>(
        view: &RolloutView,
        live: Option<&RolloutView>,
        groups: impl Iterator<Item = (&'a str, &'a GroupRollout, Option<usize>)>,
        now: Timestamp,
    ) -> Self {
        let wave = |wave: &Wave| WavePlan {
            name: wave.name.clone(),
            percent: wave.percent,
            needs: Need::of(view, wave),
            soak: (!wave.soak.is_zero()).then(|| duration::format(wave.soak)),
            ..WavePlan::default()
        };
        let is_under_way = |live: &&RolloutView| {
            matches!(live.phase(), RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted)
        };
        let superseded = live.filter(is_under_way).map(|live| live.target.name.clone());
        let mut plan = Self {
            revision: view.target.name.clone(),
            supersedes: superseded.filter(|name| *name != view.target.name),
            is_way_back: view.is_way_back(),
            at_once: 0,
            waves: view.policy.waves.iter().map(wave).collect(),
            ends: None,
            cannot_use: Vec::new(),
        };
        let mut minutes = vec![Vec::new(); plan.waves.len()];
        for (key, group, takes) in groups {
            plan.count(key, group, view.policy.without_rotation);
            if let Some(Effect::Rotate { .. }) = group.effect {
                minutes[group.position - 1].extend(takes);
            }
        }
        let is_urgent = view.urgent_until(now).is_some();
        let delay = if is_urgent { SignedDuration::ZERO } else { view.delay };
        let schedule = schedule(&view.policy, &minutes, now.checked_add(delay).unwrap_or(now), is_urgent);
        for (wave, minutes) in plan.waves.iter_mut().zip(schedule.minutes) {
            wave.estimated_minutes = Some(minutes).filter(|minutes| *minutes > 0);
        }
        plan.ends = schedule.ends.map(rfc3339);
        plan
    }

    fn count(&mut self, key: &str, group: &GroupRollout, without_rotation: WithoutRotation) {
        let wave = &mut self.waves[group.position - 1];
        match &group.effect {
            Some(Effect::Rotate { nodes }) => {
                wave.groups += 1;
                wave.nodes += nodes;
            }
            Some(Effect::InPlace) if without_rotation == WithoutRotation::AtOnce => self.at_once += 1,
            Some(Effect::InPlace | Effect::Unknown) => wave.groups += 1,
            Some(Effect::CannotUse { message }) => self.cannot_use.push(format!("{key}: {message}")),
            Some(Effect::Untouched) | None => {}
        }
    }

    /// The table below the totals.
    pub(crate) fn render(&self, file: &str) -> String {
        let mut out = String::new();
        self.write(&mut out, file).expect("writing to a String does not fail");
        out
    }

    fn write(&self, out: &mut String, file: &str) -> std::fmt::Result {
        let superseded = self.supersedes.as_ref().map(|name| format!(" and ends the roll-out of {name}"));
        let superseded = superseded.unwrap_or_default();
        if self.is_way_back {
            return writeln!(
                out,
                "{file} becomes {}{superseded}. All groups take it at once: it is what they had before.",
                self.revision
            );
        }
        writeln!(out, "{file} becomes {}{superseded}, and reaches the groups in waves:", self.revision)?;
        let mut rows = Vec::new();
        if self.at_once > 0 {
            rows.push(("at once", format!("{}, in place", counted(self.at_once, "group"))));
        }
        let last = self.waves.last().map(|wave| wave.name.as_str()).unwrap_or_default();
        for wave in &self.waves {
            let mut text = match (wave.groups, wave.nodes) {
                (0, _) => "no group".to_owned(),
                (groups, 0) => counted(groups, "group"),
                (groups, nodes) => format!("{}, {}", counted(groups, "group"), counted(nodes, "node")),
            };
            if let Some(percent) = wave.percent {
                text = format!("{percent} % of the affected groups, which are counted in {last} here");
            }
            if let Some(minutes) = wave.estimated_minutes {
                text += &format!(", about {}", about(minutes));
            }
            let soak = wave.soak.as_ref().map(|soak| format!(", then {soak} of soak")).unwrap_or_default();
            let needs: String = wave.needs.iter().map(|need| format!("; {}", need.describe())).collect();
            rows.push((&wave.name, text + &soak + &needs));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, text) in rows {
            writeln!(out, "  {name:width$}  {text}")?;
        }
        let needs_approval = self.waves.iter().any(|wave| wave.needs.iter().any(|need| need.is_approval()));
        let unless = if needs_approval { "if it is approved at once and nothing fails" } else { "if nothing fails" };
        match &self.ends {
            Some(ends) if self.waves.iter().any(|wave| wave.estimated_minutes.is_some()) => {
                writeln!(out, "  ends about {ends}, {unless}")?;
            }
            Some(_) => {}
            None => writeln!(out, "  never ends: the windows of a wave do not open within two weeks")?,
        }
        for group in &self.cannot_use {
            writeln!(out, "  cannot use it: {group}")?;
        }
        Ok(())
    }
}

/// What a wave needs beside the waves before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Need {
    /// The approval of an admin.
    AdminApproval,
    /// The approvals of its groups' tenants, or the end of their deferral.
    TenantApprovals,
    /// An open window.
    Window,
}

impl Need {
    fn of(view: &RolloutView, wave: &Wave) -> Vec<Self> {
        let approval = wave.approval.map(|approval| match approval {
            Approval::Admin => Self::AdminApproval,
            Approval::Tenants => Self::TenantApprovals,
        });
        let has_windows = !wave.windows.is_empty() || !view.policy.windows.is_empty();
        approval.into_iter().chain(has_windows.then_some(Self::Window)).collect()
    }

    fn is_approval(self) -> bool {
        matches!(self, Self::AdminApproval | Self::TenantApprovals)
    }

    fn describe(self) -> &'static str {
        match self {
            Self::AdminApproval => "needs an approval",
            Self::TenantApprovals => "needs approvals of tenants, or the end of their deferral",
            Self::Window => "in its windows",
        }
    }
}

/// Minutes as `45m` or `2h05m`.
pub(super) fn about(minutes: usize) -> String {
    if minutes < 120 { format!("{minutes}m") } else { format!("{}h{:02}m", minutes / 60, minutes % 60) }
}
