//! The metrics of a rollout. There are no series without one.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::{HistogramVec, IntGaugeVec, exponential_buckets};

use super::builder::MetricBuilder;
use crate::api::BudgetLimit;

/// What the metrics show of a rollout, as one poll found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RolloutLevels {
    /// Name of the revision, for example `r14`.
    pub revision: String,
    /// Hash of its content.
    pub hash: String,
    /// Its release; empty without one.
    pub release: String,
    /// Its phase as the metric's label has it, such as `Halted`.
    pub phase: String,
    /// The number of affected groups, by state.
    pub groups: Vec<(&'static str, usize)>,
    /// The nodes of affected groups, by state: `updated` and `outdated`.
    pub nodes: [(&'static str, i64); 2],
    /// The waves, in order, each with its state.
    pub waves: Vec<(String, String)>,
    /// The number of affected groups that wait, by reason.
    pub held: BTreeMap<String, i64>,
    /// Groups that have been behind for long, with the time since when, in seconds of Unix time.
    pub behind: Vec<(String, i64)>,
    /// When the rollout counts as stuck, in seconds of Unix time; `None` while it could make no progress.
    pub stuck_at: Option<i64>,
}

/// The families of the metrics of a rollout.
pub(crate) struct RolloutMetrics {
    phase: IntGaugeVec,
    groups: IntGaugeVec,
    nodes: IntGaugeVec,
    wave: IntGaugeVec,
    held: IntGaugeVec,
    behind: IntGaugeVec,
    stuck_at: IntGaugeVec,
    budget_nodes: IntGaugeVec,
    check: IntGaugeVec,
    poll_seconds: HistogramVec,
}

impl RolloutMetrics {
    pub(super) fn new(build: &MetricBuilder) -> prometheus::Result<Self> {
        Ok(Self {
            phase: build.gauges(
                "instance_manager_rollout_phase",
                "The phase of the rollout of the newest revision, always 1.",
                &["revision", "hash", "release", "phase"],
            )?,
            groups: build.gauges(
                "instance_manager_rollout_groups",
                "Groups whose nodes the newest revision replaces, by state.",
                &["revision", "state"],
            )?,
            nodes: build.gauges(
                "instance_manager_rollout_nodes",
                "Nodes of the groups whose nodes the newest revision replaces, by state.",
                &["revision", "state"],
            )?,
            wave: build.gauges(
                "instance_manager_rollout_wave",
                "The state of a wave of the rollout of the newest revision, always 1.",
                &["revision", "wave", "state"],
            )?,
            held: build.gauges(
                "instance_manager_rollout_held",
                "Groups whose nodes the newest revision replaces and that wait, by reason.",
                &["revision", "reason"],
            )?,
            behind: build.gauges(
                "instance_manager_rollout_group_behind_since_timestamp_seconds",
                "When a revision was stored that an InstanceGroup has not switched to, in seconds of Unix time.",
                &["instancegroup"],
            )?,
            stuck_at: build.gauges(
                "instance_manager_rollout_stuck_at_timestamp_seconds",
                "When the rollout of the newest revision counts as stuck without further progress, in seconds of Unix time.",
                &["revision"],
            )?,
            budget_nodes: build.gauges(
                "instance_manager_rollout_budget_nodes",
                "Usage (kind used) and limits (kind limit) of the rollout's budget, in nodes.",
                &["of", "kind"],
            )?,
            check: build.gauges(
                "instance_manager_rollout_check",
                "The state of a check of the rollout under way, always 1.",
                &["name", "state"],
            )?,
            poll_seconds: build.histograms(
                "instance_manager_rollout_poll_seconds",
                "How long one poll of the rollout computed, in seconds, without what it waited for.",
                &[],
                exponential_buckets(0.0005, 4.0, 8)?,
            )?,
        })
    }

    /// Sets how far the rollout is, and removes the series of what is no longer so.
    pub(crate) fn set(&self, levels: &RolloutLevels) {
        self.remove_levels();
        let revision = levels.revision.as_str();
        self.phase.with_label_values(&[revision, &levels.hash, &levels.release, &levels.phase]).set(1);
        for (state, count) in &levels.groups {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.groups.with_label_values(&[revision, *state]).set(count);
        }
        for (state, count) in levels.nodes {
            self.nodes.with_label_values(&[revision, state]).set(count);
        }
        for (wave, state) in &levels.waves {
            self.wave.with_label_values(&[revision, wave.as_str(), state.as_str()]).set(1);
        }
        for (reason, count) in &levels.held {
            self.held.with_label_values(&[revision, reason.as_str()]).set(*count);
        }
        for (group, since) in &levels.behind {
            self.behind.with_label_values(&[group.as_str()]).set(*since);
        }
        if let Some(at) = levels.stuck_at {
            self.stuck_at.with_label_values(&[revision]).set(at);
        }
    }

    /// Removes all series, because there is no rollout.
    pub(crate) fn forget(&self) {
        self.remove_levels();
        self.poll_seconds.reset();
    }

    /// Counts a look at the rollout that took this long.
    pub(crate) fn observe_poll(&self, busy: Duration) {
        self.poll_seconds.with_label_values::<&str>(&[]).observe(busy.as_secs_f64());
    }

    fn remove_levels(&self) {
        let all = [
            &self.phase,
            &self.groups,
            &self.nodes,
            &self.wave,
            &self.held,
            &self.behind,
            &self.stuck_at,
            &self.budget_nodes,
            &self.check,
        ];
        all.into_iter().for_each(|family| family.reset());
    }

    /// Sets the state of a check.
    pub(crate) fn set_check(&self, name: &str, state: &str) {
        self.check.with_label_values(&[name, state]).set(1);
    }

    /// Sets what is used of the budget.
    pub(crate) fn set_budget(&self, limits: &[BudgetLimit]) {
        for BudgetLimit { of, used, limit } in limits {
            self.budget_nodes.with_label_values(&[of.as_str(), "used"]).set(*used);
            self.budget_nodes.with_label_values(&[of.as_str(), "limit"]).set(*limit);
        }
    }
}
