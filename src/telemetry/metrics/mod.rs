//! The Prometheus metrics: those of keikoproj/instance-manager, those of controller-runtime that its dashboards
//! read, and the controller's own.
//!
//! Label values are bounded, except `instancegroup` ("namespace/name"). Its series are dropped when the group is
//! deleted ([`Metrics::forget_group`]).

mod builder;
mod rollout;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder, exponential_buckets,
};

use crate::api::NodeCounts;
use crate::boundaries::QuotaLevel;
use crate::telemetry::process::ProcessMetrics;
use builder::{CONTROLLER, MetricBuilder};
pub(crate) use rollout::{RolloutLevels, RolloutMetrics};

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// The group has converged.
    Success,
    /// The group is changing and is reconciled again after a delay.
    RequeueAfter,
    /// Failed for this reason, one of [`crate::api::names::fail_reason`].
    Failed(&'static str),
}

/// The label values under which a group has series.
#[derive(Default)]
struct GroupSeries {
    status: Option<String>,
    stalled: Option<String>,
    unread: Option<String>,
    reasons: BTreeSet<&'static str>,
}

/// All metrics of the process, in one registry.
pub(crate) struct Metrics {
    registry: Registry,
    process: ProcessMetrics,
    groups: Mutex<BTreeMap<String, GroupSeries>>,
    reconcile_success: IntCounterVec,
    reconcile_fail: IntCounterVec,
    group_status: IntGaugeVec,
    group_stalled: IntGaugeVec,
    group_read_failed: IntGaugeVec,
    nodes: IntGaugeVec,
    ineffective_writes: IntGaugeVec,
    throttles: IntCounterVec,
    aws_calls: IntCounterVec,
    boundaries_revision: IntGaugeVec,
    boundaries_valid: IntGauge,
    /// Those of the rollout.
    pub rollout: RolloutMetrics,
    quota: IntGaugeVec,
    boundaries_warnings: IntGauge,
    roles: IntGauge,
    roles_without_access_entry: IntGauge,
    leader: IntGauge,
    conflicting_controller: IntGauge,
    reconcile_results: IntCounterVec,
    reconcile_errors: IntCounter,
    reconcile_seconds: Histogram,
    active_workers: IntGauge,
    max_workers: IntGauge,
    queue_depth: IntGauge,
    queue_adds: IntCounter,
    queue_retries: IntCounter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
}

impl Metrics {
    /// Registers everything. Fails only when two metrics share a name.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build = MetricBuilder(&registry);
        let reconcile_results = build.counters(
            "controller_runtime_reconcile_total",
            "Reconciles by controller and result.",
            &["controller", "result"],
        )?;
        for result in ["success", "error", "requeue", "requeue_after"] {
            reconcile_results.with_label_values(&[CONTROLLER, result]);
        }
        Ok(Self {
            process: ProcessMetrics::new(&registry)?,
            groups: Mutex::default(),
            reconcile_success: build.counters(
                "instance_manager_reconcile_success_total",
                "Successful reconciles of an InstanceGroup.",
                &["instancegroup"],
            )?,
            reconcile_fail: build.counters(
                "instance_manager_reconcile_fail_total",
                "Failed reconciles of an InstanceGroup, by reason.",
                &["instancegroup", "reason"],
            )?,
            group_status: build.gauges(
                "instance_manager_instance_group_status",
                "The state that an InstanceGroup is in, always 1.",
                &["instancegroup", "status"],
            )?,
            group_stalled: build.gauges(
                "instance_manager_instance_group_stalled",
                "The reason of the condition Stalled of an InstanceGroup that needs manual intervention, always 1.",
                &["instancegroup", "reason"],
            )?,
            group_read_failed: build.gauges(
                "instance_manager_instance_group_read_failed",
                "An InstanceGroup whose reads have failed for a minute or whose reconcile panics, by the reason of the condition Reconciling, always 1.",
                &["instancegroup", "reason"],
            )?,
            nodes: build.gauges(
                "instance_manager_nodes",
                "Nodes of an InstanceGroup that are desired, ready, updated, outdated or draining.",
                &["instancegroup", "state"],
            )?,
            ineffective_writes: build.gauges(
                "instance_manager_ineffective_writes",
                "Attributes of an InstanceGroup that the controller wrote repeatedly without effect.",
                &["instancegroup"],
            )?,
            throttles: build.counters(
                "instance_manager_aws_api_throttle_total",
                "Calls that AWS throttled, by service and operation.",
                &["service", "operation"],
            )?,
            aws_calls: build.counters(
                "instance_manager_aws_calls_total",
                "Calls to AWS, by service, operation and outcome.",
                &["service", "operation", "outcome"],
            )?,
            boundaries_revision: build.gauges(
                "instance_manager_boundaries_revision_info",
                "The hash of the active boundaries, always 1.",
                &["hash"],
            )?,
            rollout: RolloutMetrics::new(&build)?,
            quota: build.gauges(
                "instance_manager_quota",
                "Usage (kind used) and limits (kind limit) of the quota of a namespace.",
                &["namespace", "resource", "kind"],
            )?,
            boundaries_valid: build.gauge(
                "instance_manager_boundaries_valid",
                "1 when the ConfigMap is valid; 0 when the last known good revision is active.",
            )?,
            boundaries_warnings: build
                .gauge("instance_manager_boundaries_warnings", "Warnings about the active ConfigMap.")?,
            roles: build.gauge("instance_manager_roles", "Roles that groups use.")?,
            roles_without_access_entry: build.gauge(
                "instance_manager_roles_without_access_entry",
                "Roles for which at least one group has not observed an access entry.",
            )?,
            leader: build.gauge("instance_manager_leader", "1 when this process is the leader.")?,
            conflicting_controller: build.gauge(
                "instance_manager_conflicting_controller",
                "1 while another controller writes the status of groups, so that this process only reads.",
            )?,
            reconcile_results,
            reconcile_errors: build.child_counter(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed, by controller.",
                "controller",
            )?,
            reconcile_seconds: build.child_histogram(
                "controller_runtime_reconcile_time_seconds",
                "Time that a reconcile takes, by controller.",
                "controller",
                vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
            )?,
            active_workers: build.child_gauge(
                "controller_runtime_active_workers",
                "Reconciles in progress, by controller.",
                "controller",
            )?,
            max_workers: build.child_gauge(
                "controller_runtime_max_concurrent_reconciles",
                "Limit of concurrent reconciles, by controller.",
                "controller",
            )?,
            queue_depth: build.child_gauge("workqueue_depth", "Groups waiting for a reconcile, by queue.", "name")?,
            queue_adds: build.child_counter("workqueue_adds_total", "Groups added to the queue, by queue.", "name")?,
            queue_retries: build.child_counter(
                "workqueue_retries_total",
                "Groups requeued after an error, by queue.",
                "name",
            )?,
            queue_seconds: build.child_histogram(
                "workqueue_queue_duration_seconds",
                "Time from a trigger to the start of the reconcile, by queue.",
                "name",
                exponential_buckets(0.001, 4.0, 10)?,
            )?,
            work_seconds: build.child_histogram(
                "workqueue_work_duration_seconds",
                "Time spent on one group, by queue.",
                "name",
                exponential_buckets(0.001, 4.0, 10)?,
            )?,
            registry,
        })
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<String, GroupSeries>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a reconcile. It counts as active, and is timed, until the guard is dropped.
    pub(crate) fn start_reconcile(&self) -> ReconcileTimer<'_> {
        self.active_workers.inc();
        ReconcileTimer { metrics: self, started_at: Instant::now() }
    }

    /// Records the result of a reconcile of a group ("namespace/name").
    pub(crate) fn record_reconcile(&self, group: &str, outcome: ReconcileResult) {
        let result = match outcome {
            ReconcileResult::Success => "success",
            ReconcileResult::RequeueAfter => "requeue_after",
            ReconcileResult::Failed(_) => "error",
        };
        self.reconcile_results.with_label_values(&[CONTROLLER, result]).inc();
        let mut groups = self.groups();
        let series = groups.entry(group.to_owned()).or_default();
        match outcome {
            ReconcileResult::Success | ReconcileResult::RequeueAfter => {
                self.reconcile_success.with_label_values(&[group]).inc();
            }
            ReconcileResult::Failed(reason) => {
                self.reconcile_errors.inc();
                series.reasons.insert(reason);
                self.reconcile_fail.with_label_values(&[group, reason]).inc();
            }
        }
    }

    /// Sets the state (`status.currentState`) of a group.
    pub(crate) fn set_group_status(&self, group: &str, status: &str) {
        let mut groups = self.groups();
        let series = groups.entry(group.to_owned()).or_default();
        let before = series.status.replace(status.to_owned());
        if let Some(before) = before.filter(|before| before != status) {
            ignore_missing_series(self.group_status.remove_label_values(&[group, &before]));
        }
        self.group_status.with_label_values(&[group, status]).set(1);
    }

    /// Sets the reason of the condition `Stalled` of a group; `None` when it needs no manual intervention.
    pub(crate) fn set_group_stalled(&self, group: &str, reason: Option<String>) {
        let mut groups = self.groups();
        let series = groups.entry(group.to_owned()).or_default();
        exchange_series(&self.group_stalled, group, &mut series.stalled, reason);
    }

    /// Sets why the group cannot be read; `None` when it can.
    pub(crate) fn set_group_read_failed(&self, group: &str, reason: Option<String>) {
        let mut groups = self.groups();
        let series = groups.entry(group.to_owned()).or_default();
        exchange_series(&self.group_read_failed, group, &mut series.unread, reason);
    }

    /// Sets the node counts of a group.
    pub(crate) fn set_node_counts(&self, group: &str, counts: &NodeCounts) {
        self.groups().entry(group.to_owned()).or_default();
        for (state, count) in [
            ("desired", counts.desired),
            ("ready", counts.ready),
            ("updated", counts.updated),
            ("outdated", counts.outdated),
            ("draining", counts.draining),
        ] {
            self.nodes.with_label_values(&[group, state]).set(count);
        }
    }

    /// Sets how many attributes of a group were written repeatedly without effect.
    pub(crate) fn set_ineffective_writes(&self, group: &str, count: usize) {
        self.groups().entry(group.to_owned()).or_default();
        self.ineffective_writes.with_label_values(&[group]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Drops all series of a deleted group.
    pub(crate) fn forget_group(&self, group: &str) {
        let Some(series) = self.groups().remove(group) else {
            return;
        };
        ignore_missing_series(self.reconcile_success.remove_label_values(&[group]));
        for reason in series.reasons {
            ignore_missing_series(self.reconcile_fail.remove_label_values(&[group, reason]));
        }
        if let Some(status) = series.status {
            ignore_missing_series(self.group_status.remove_label_values(&[group, &status]));
        }
        if let Some(reason) = series.stalled {
            ignore_missing_series(self.group_stalled.remove_label_values(&[group, &reason]));
        }
        if let Some(reason) = series.unread {
            ignore_missing_series(self.group_read_failed.remove_label_values(&[group, &reason]));
        }
        ignore_missing_series(self.ineffective_writes.remove_label_values(&[group]));
        for state in ["desired", "ready", "updated", "outdated", "draining"] {
            ignore_missing_series(self.nodes.remove_label_values(&[group, state]));
        }
    }

    /// Records an AWS call; `outcome` is `ok` or the name of an error class.
    pub(crate) fn record_aws_call(&self, service: &str, operation: &str, outcome: &str) {
        let labels = [service, operation, outcome];
        self.aws_calls.with_label_values(&labels).inc();
    }

    /// Records that AWS throttled a call, whether or not a retry succeeded.
    pub(crate) fn record_aws_throttle(&self, service: &str, operation: &str) {
        self.throttles.with_label_values(&[service, operation]).inc();
    }

    /// Sets the active revision (`None` without boundaries), whether the live ConfigMap is valid, and
    /// how many warnings it has.
    pub(crate) fn set_boundaries(&self, revision: Option<&str>, valid: bool, warnings: usize) {
        self.boundaries_revision.reset();
        if let Some(revision) = revision {
            self.boundaries_revision.with_label_values(&[revision]).set(1);
        }
        self.boundaries_valid.set(i64::from(valid));
        self.boundaries_warnings.set(i64::try_from(warnings).unwrap_or(i64::MAX));
    }

    /// Sets what is used of the quota of a namespace. Limits that are not listed have no series.
    pub(crate) fn set_quota(&self, namespace: &str, levels: &[QuotaLevel]) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for resource in ["groups", "nodes", "surge", "vcpus"] {
            let level = levels.iter().find(|level| level.resource == resource);
            let values = [("used", level.and_then(|level| level.used)), ("limit", level.map(|level| level.limit))];
            for (kind, value) in values {
                match value {
                    Some(value) => self.quota.with_label_values(&[namespace, resource, kind]).set(number(value)),
                    None => ignore_missing_series(self.quota.remove_label_values(&[namespace, resource, kind])),
                }
            }
        }
    }

    /// Sets the number of roles that groups use, and for how many of them at least one group has not observed an access entry.
    pub(crate) fn set_roles(&self, all: usize, without_access_entry: usize) {
        self.roles.set(i64::try_from(all).unwrap_or(i64::MAX));
        self.roles_without_access_entry.set(i64::try_from(without_access_entry).unwrap_or(i64::MAX));
    }

    /// Sets whether this process is the leader.
    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.leader.set(i64::from(is_leader));
    }

    /// Sets whether another controller writes to the groups.
    pub(crate) fn set_conflicting_controller(&self, is_conflicting: bool) {
        self.conflicting_controller.set(i64::from(is_conflicting));
    }

    /// Sets the limit of concurrent reconciles.
    pub(crate) fn set_max_workers(&self, workers: usize) {
        self.max_workers.set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    /// Sets the number of groups waiting for a reconcile.
    pub(crate) fn set_queue_depth(&self, waiting: usize) {
        self.queue_depth.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Records that a group was added to the queue.
    pub(crate) fn record_queue_add(&self) {
        self.queue_adds.inc();
    }

    /// Records that a group was requeued after an error.
    pub(crate) fn record_queue_retry(&self) {
        self.queue_retries.inc();
    }

    /// Records the time from the first trigger of a group to the start of its reconcile.
    pub(crate) fn record_queue_wait(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// All metrics in the Prometheus text format.
    pub(crate) fn encode(&self) -> prometheus::Result<String> {
        self.process.refresh();
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// The value of the series with exactly this name and these labels; `None` when it is not served.
    #[cfg(test)]
    pub(crate) fn value(&self, series: &str) -> Option<String> {
        let text = self.encode().expect("metrics");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
    }
}

/// Measures a reconcile in progress.
pub(crate) struct ReconcileTimer<'a> {
    metrics: &'a Metrics,
    started_at: Instant,
}

impl Drop for ReconcileTimer<'_> {
    fn drop(&mut self) {
        let elapsed = self.started_at.elapsed().as_secs_f64();
        self.metrics.active_workers.dec();
        self.metrics.reconcile_seconds.observe(elapsed);
        self.metrics.work_seconds.observe(elapsed);
    }
}

/// Replaces the series of a group that has at most one, by its second label.
fn exchange_series(family: &IntGaugeVec, group: &str, current: &mut Option<String>, new: Option<String>) {
    if let Some(before) = current.take().filter(|before| Some(before) != new.as_ref()) {
        ignore_missing_series(family.remove_label_values(&[group, &before]));
    }
    if let Some(value) = &new {
        family.with_label_values(&[group, value]).set(1);
    }
    *current = new;
}

/// Ignores the error of removing a series that does not exist.
fn ignore_missing_series(removed: prometheus::Result<()>) {
    drop(removed);
}

#[cfg(test)]
mod tests;
