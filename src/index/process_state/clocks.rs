//! Clocks of a group: since when something lasts, and whether it is reported. A restart of the process starts them again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::ProcessState;
use super::reported_failures::{FailedObservation, UnwrittenStatus};

/// Starts or ends a clock; returns for how long it has run. One that began in the future starts again: the wall clock was set
/// back.
fn track(since: &mut Option<Timestamp>, is_running: bool, now: Timestamp) -> SignedDuration {
    *since = is_running.then(|| since.map_or(now, |since| since.min(now)));
    since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
}

impl ProcessState {
    /// Records whether instances are missing; returns for how long they have been.
    pub(crate) fn track_shortage(&self, group: &str, is_short: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.shortage_since, is_short, now))
    }

    /// Records whether the warm pool lacks instances; returns for how long it has.
    pub(crate) fn track_short_warm_pool(&self, group: &str, is_short: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.warm_pool_short_since, is_short, now))
    }

    /// Records whether EKS rejects the role of the group; returns for how long it has.
    pub(crate) fn track_role_rejection(&self, group: &str, is_rejected: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.role_rejected_since, is_rejected, now))
    }

    /// Records whether a pass ended because AWS does not know the group's role or instance profile; returns for how long
    /// passes have ended so.
    pub(crate) fn track_unknown_profile(&self, group: &str, is_unknown: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.profile_unknown_since, is_unknown, now))
    }

    /// Records whether AWS does not answer reads of the group; returns for how long it has not.
    pub(crate) fn track_outage(&self, group: &str, is_unobserved: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.unobserved_since, is_unobserved, now))
    }

    /// Records whether EKS pauses a rotation, because it works on the node groups; returns for how long it has.
    pub(crate) fn track_pause(&self, group: &str, is_paused: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.paused_since, is_paused, now))
    }

    /// Records whether EKS could not create the node group of the group; returns for how long that has been so.
    pub(crate) fn track_failed_creation(&self, group: &str, has_failed: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.creation_failed_since, has_failed, now))
    }

    /// Records that AWS throttled a pass of the group, which waits until then.
    pub(crate) fn record_throttling(&self, group: &str, until: Timestamp) {
        self.group(group, |g| g.throttled_until = Some(until));
    }

    /// How long the group still waits because AWS throttled its last pass.
    pub(crate) fn throttled_for(&self, group: &str, now: Timestamp) -> Option<Duration> {
        let until = self.group(group, |g| g.throttled_until)?;
        Some(until.duration_since(now)).filter(SignedDuration::is_positive).map(|left| left.unsigned_abs())
    }

    /// Records when the last failed launch of the group began; `None` when none failed.
    pub(crate) fn record_failed_launch(&self, group: &str, began: Option<Timestamp>) {
        self.group(group, |g| {
            if g.failed_launch.map(|(known, _)| known) != began {
                g.failed_launch = began.map(|began| (began, false));
            }
        });
    }

    /// Whether a launch failed since the last call. The launch template version may be gone.
    pub(crate) fn take_unreported_failed_launch(&self, group: &str) -> bool {
        self.group(group, |g| {
            g.failed_launch.as_mut().is_some_and(|(_, is_reported)| !std::mem::replace(is_reported, true))
        })
    }

    /// Records whether a rotation waits for the warm pool; returns for how long it has.
    pub(crate) fn track_warm_pool_wait(&self, group: &str, is_waiting: bool, now: Timestamp) -> SignedDuration {
        self.group(group, |g| track(&mut g.warm_pool_wait_since, is_waiting, now))
    }

    /// Records that the group could not be read; returns since when that has been so.
    pub(crate) fn record_failed_observation(&self, group: &str, now: Timestamp) -> Timestamp {
        self.group(group, |g| g.failed_observation.get_or_insert_with(|| FailedObservation::new(now)).since)
    }

    /// Since when the group could not be read, while its condition does not say so.
    pub(crate) fn unreported_failure(&self, group: &str) -> Option<Timestamp> {
        self.group(group, |g| {
            g.failed_observation.as_ref().filter(|failure| failure.reported.is_none()).map(|failure| failure.since)
        })
    }

    /// Whether the condition of the group reports this failure.
    pub(crate) fn is_failure_reported(&self, group: &str, failure: &str) -> bool {
        self.group(group, |g| {
            g.failed_observation.as_ref().is_some_and(|known| known.reported.as_deref() == Some(failure))
        })
    }

    /// Whether the condition of the group reports a failure that this process has seen.
    pub(crate) fn has_reported_failure(&self, group: &str) -> bool {
        self.group(group, |g| g.failed_observation.as_ref().is_some_and(|failure| failure.reported.is_some()))
    }

    /// Records that the condition of the group reports this failure.
    pub(crate) fn set_failure_reported(&self, group: &str, failure: String) {
        self.group(group, |g| {
            if let Some(known) = &mut g.failed_observation {
                known.reported = Some(failure);
            }
        });
    }

    /// Records that the group was read.
    pub(crate) fn end_failed_observations(&self, group: &str) {
        self.group(group, |g| g.failed_observation = None);
    }

    /// Records whether the status of the group was refused. Returns since when that has been so, when an event is due: once
    /// it has lasted for the delay, and then again and again while it lasts.
    pub(crate) fn track_unwritten_status(
        &self,
        group: &str,
        is_refused: bool,
        delay: SignedDuration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.group(group, |g| {
            if !is_refused {
                g.unwritten_status = None;
                return None;
            }
            g.unwritten_status.get_or_insert_with(|| UnwrittenStatus::new(now)).take_due(delay, now)
        })
    }

    /// Records that AWS denied tagging adopted resources.
    pub(crate) fn record_tag_denied(&self, group: &str, now: Timestamp) {
        self.group(group, |g| g.tag_denied_at = Some(now));
    }

    /// Whether AWS denied tagging less than `delay` ago.
    pub(crate) fn is_tagging_in_backoff(&self, group: &str, delay: Duration, now: Timestamp) -> bool {
        let since = self.group(group, |g| g.tag_denied_at.map(|at| now.duration_since(at)));
        since.is_some_and(|since| since.unsigned_abs() < delay)
    }

    /// Records that the access entries of a cluster could not be read to explain missing nodes.
    pub(crate) fn record_unread_access_entries(&self, cluster: &str, now: Timestamp) {
        self.with(|inner| _ = inner.unread_access_entries.insert(cluster.into(), now));
    }

    /// Whether the access entries of a cluster could not be read less than `delay` ago.
    pub(crate) fn are_access_entries_in_backoff(&self, cluster: &str, delay: Duration, now: Timestamp) -> bool {
        let since = self.with(|inner| inner.unread_access_entries.get(cluster).map(|at| now.duration_since(*at)));
        since.is_some_and(|since| since.unsigned_abs() < delay)
    }
}
