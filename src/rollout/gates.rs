//! What delays a group besides its wave: windows, freezes, deferrals by tenants, and approvals.

use jiff::Timestamp;

use super::closed_waves::Closing;
use super::group::GroupView;
use super::impact::RevisionImpact;
use super::view::RolloutView;
use super::wait::{Wait, WaitReason};
use crate::api::names::annotation;
use crate::api::{RolloutPhase, WaveState, rfc3339};
use crate::boundaries::{Approval, MAX_URGENCY, RolloutPolicy, Wave};
use crate::util::calendar::{Window, WindowState, parse_window, window_state};
use crate::util::duration;

impl RolloutView {
    /// Until when waves, soaks, windows, freezes, deferrals, approvals and delays do not count; `None` when they count now.
    /// By the policy, a new image of AWS is never urgent: no admin decided it. An order is about one revision, and ends
    /// when that is complete.
    pub(crate) fn urgent_until(&self, now: Timestamp) -> Option<Timestamp> {
        if self.orders.urgent && self.phase() != RolloutPhase::Complete {
            return Some(Timestamp::MAX);
        }
        urgent_until(&self.policy, self.arrived()).filter(|until| now < *until && !self.is_image_change())
    }

    /// Whether groups of the wave at an index switch to the target.
    pub(crate) fn is_wave_open(&self, index: usize, now: Timestamp) -> bool {
        self.urgent_until(now).is_some() || self.wave_state(index) != WaveState::Waiting
    }

    /// When the target reached the cluster.
    pub(crate) fn arrived(&self) -> Option<Timestamp> {
        self.created.or_else(|| self.status.begun.as_deref()?.parse().ok())
    }

    /// The approval of an admin that the wave requires and does not have, as a phrase for messages.
    pub(super) fn missing_approval(&self, wave: &Wave, now: Timestamp) -> Option<String> {
        let is_approved = self.orders.approved.iter().any(|name| *name == wave.name || name == "*");
        let is_needed = wave.approval == Some(Approval::Admin) && !self.is_skipped(&wave.name);
        (is_needed && !is_approved && self.urgent_until(now).is_none())
            .then(|| format!("an approval: instance-manager rollout approve {} --wave {}", self.target.name, wave.name))
    }

    /// Why a wave that is next does not open yet, beside the order of the waves. `is_empty`: it is known to have no groups.
    pub(super) fn opening_waits_for(&self, wave: &Wave, is_empty: bool, now: Timestamp) -> Option<String> {
        if self.urgent_until(now).is_some() || self.is_skipped(&wave.name) {
            return None;
        }
        let arrived = self.arrived().unwrap_or(now);
        // Without a delay, an API server whose clock is ahead delays nothing.
        let ends = arrived.checked_add(self.delay).ok().filter(|_| !self.delay.is_zero());
        let delayed = ends.filter(|until| now < *until);
        if let Some(until) = delayed {
            return Some(format!("the delay of this cluster until {}", rfc3339(until)));
        }
        self.missing_approval(wave, now).filter(|_| !is_empty)
    }

    /// Whether the wave at an index is the next one, and waits for nothing but the approval of an admin, and checks.
    pub(crate) fn waits_for_approval(&self, index: usize, now: Timestamp) -> bool {
        let wave = &self.policy.waves[index];
        let has_passed = |before| self.wave_state(before) == WaveState::Passed;
        let is_next = self.wave_state(index) == WaveState::Waiting && (0..index).all(has_passed);
        let can_open = !self.orders.paused && self.config_problem.is_none();
        let is_rolling = self.phase() == RolloutPhase::Rolling && can_open;
        let approval = self.missing_approval(wave, now);
        is_rolling && is_next && approval.is_some() && self.opening_waits_for(wave, false, now) == approval
    }

    /// Why no node is replaced for an open wave now, and until when.
    pub(super) fn wave_is_closed(&self, wave: &Wave, now: Timestamp) -> Option<String> {
        let closed = closed(&[&self.policy.windows, &wave.windows], self, now)?;
        Some(closed.1)
    }
}

/// Until when a revision that arrived at a time is urgent; `None` when it never was.
pub(crate) fn urgent_until(policy: &RolloutPolicy, arrived: Option<Timestamp>) -> Option<Timestamp> {
    let until = policy.urgent_until?;
    let latest = arrived.and_then(|at| at.checked_add(MAX_URGENCY).ok());
    Some(latest.map_or(until, |latest| until.min(latest))).filter(|until| arrived.is_none_or(|at| at < *until))
}

/// The tenant's annotation about the target, on the group or on its Namespace.
fn annotation_value<'a>(group: &GroupView<'a>, key: &str) -> Option<&'a str> {
    let text = group.annotations.get(key).or_else(|| group.namespace_annotations.get(key))?.trim();
    (!text.is_empty()).then_some(text)
}

/// Whether the tenant approved the target ahead of its wave and of windows.
pub(super) fn is_approved(view: &RolloutView, group: &GroupView) -> bool {
    let target = &view.target;
    annotation_value(group, annotation::APPROVE_REVISION).is_some_and(|text| {
        text == target.name
            || text == target.number.to_string()
            || text == target.hash
            || view.policy.release.as_deref() == Some(text)
    })
}

/// Adds to the message of a wait which an approval of the tenant would end that the tenant's own is of another revision.
/// It ends no wait for a target that leaves the group untouched.
pub(super) fn with_stale_approval(view: &RolloutView, group: &GroupView, wait: Wait) -> Wait {
    let is_ended_by_approval = matches!(
        wait.reason,
        WaitReason::WaveNotOpen | WaitReason::WindowClosed | WaitReason::Deferred | WaitReason::ApprovalNeeded
    );
    let given = annotation_value(group, annotation::APPROVE_REVISION).filter(|_| !is_approved(view, group));
    let is_ended_by_approval = is_ended_by_approval && *group.forecast != RevisionImpact::Untouched;
    let Some(given) = given.filter(|_| is_ended_by_approval) else { return wait };
    let (key, target) = (annotation::APPROVE_REVISION, &view.target);
    let message =
        format!("{}; {key}: {given} does not approve {}, whose number is {}", wait.message, target.name, target.number);
    Wait { message, ..wait }
}

/// The approval of an admin without which no node of the group is replaced: a wave without groups opens without one,
/// and a group may come to it later. `None` when the wave requires none, or the tenant approved the target ahead of it.
pub(super) fn missing_approval(view: &RolloutView, group: &GroupView, index: usize, now: Timestamp) -> Option<String> {
    view.missing_approval(&view.policy.waves[index], now).filter(|_| !is_approved(view, group))
}

/// How far the tenant may defer the target, as the end of a message before its wave opens; empty if it may not.
pub(super) fn possible_deferral(view: &RolloutView, group: &GroupView) -> String {
    let max = view.policy.deferral_of(group.namespace);
    if max.is_zero() {
        return String::new();
    }
    let (key, max) = (annotation::DEFER_UNTIL, duration::format(max));
    format!("; the annotation {key} may defer it, at most {max} from the opening of the wave")
}

/// Until when the tenant may put the target off; `None` when its wave is not open, or tenants of its namespace may not.
fn deadline(view: &RolloutView, group: &GroupView, index: usize) -> Option<Timestamp> {
    let max = view.policy.deferral_of(group.namespace);
    let name = &view.policy.waves[index].name;
    let recorded = view.status.waves.iter().find(|wave| wave.name == *name);
    let opened = match recorded.and_then(|wave| wave.opened.as_deref()) {
        Some(opened) => opened.parse().ok()?,
        None => view.opened_before_end()?,
    };
    opened.checked_add(max).ok().filter(|_| !max.is_zero())
}

/// Why the group does not switch to the target now, although its wave is open.
pub(super) fn wait(view: &RolloutView, group: &GroupView, index: usize, now: Timestamp) -> Option<Wait> {
    if view.urgent_until(now).is_some() {
        return None;
    }
    let (target, is_approved) = (&view.target.name, is_approved(view, group));
    if let Some(approval) = missing_approval(view, group, index, now) {
        let (change, wave) = (view.target_with_release(), &view.policy.waves[index].name);
        let message = format!("{change} reaches the group in wave {wave}, which waits for {approval}");
        return Some(Wait { reason: WaitReason::WaveNotOpen, message });
    }
    let deadline = deadline(view, group, index).filter(|deadline| now < *deadline);
    if let Some(deadline) = deadline.filter(|_| !is_approved) {
        let until = annotation_value(group, annotation::DEFER_UNTIL).and_then(|text| text.parse::<Timestamp>().ok());
        if let Some(until) = until.map(|until| until.min(deadline)).filter(|until| now < *until) {
            let message = format!(
                "{target} is deferred by {} until {}; the deadline is {}",
                annotation::DEFER_UNTIL,
                rfc3339(until),
                rfc3339(deadline)
            );
            return Some(Wait { reason: WaitReason::Deferred, message });
        }
        if view.policy.waves[index].approval == Some(Approval::Tenants) {
            let message = format!(
                "{target} waits until {} for an approval by its tenant: {}: {}",
                rfc3339(deadline),
                annotation::APPROVE_REVISION,
                view.target.number
            );
            return Some(Wait { reason: WaitReason::ApprovalNeeded, message });
        }
    }
    let (reason, why) = closing(view, group, index, now)?;
    Some(Wait { reason, message: format!("{target} waits: {why}") })
}

/// Why no node of the group is replaced for the target now, as a phrase for messages.
pub(super) fn closed_reason(view: &RolloutView, group: &GroupView, now: Timestamp) -> Option<String> {
    let closing = match view.urgent_until(now) {
        Some(_) => None,
        // What was good before comes back at once.
        None if view.is_return() => None,
        None => closing(view, group, group.wave(view), now),
    };
    closing.map(|(_, why)| format!("the rollout of {}: {why}", view.target.name))
}

/// The window that the tenant names in place of the admin's, if it can be parsed.
pub(super) fn own_window(group: &GroupView) -> Option<Window> {
    annotation_value(group, annotation::WINDOW).and_then(|text| parse_window(text).ok())
}

fn closing(view: &RolloutView, group: &GroupView, index: usize, now: Timestamp) -> Closing {
    if is_approved(view, group) {
        return closed(&[], view, now);
    }
    let may_choose = deadline(view, group, index).is_some_and(|deadline| now < deadline);
    let own: Vec<Window> = own_window(group).filter(|_| may_choose).into_iter().collect();
    if !own.is_empty() {
        return closed(&[&own], view, now);
    }
    let windows = [&view.policy.windows[..], &view.policy.waves[index].windows];
    view.closed_waves.closing(index, now, || closed(&windows, view, now))
}

fn closed(windows: &[&[Window]], view: &RolloutView, now: Timestamp) -> Closing {
    if windows.iter().all(|list| list.is_empty()) && view.policy.freezes.is_empty() {
        return None;
    }
    let again = |next: Option<Timestamp>| match next {
        Some(next) => format!("until {}", rfc3339(next)),
        None => "and its windows do not open within two weeks; see instance-manager lint".to_owned(),
    };
    match window_state(windows, &view.policy.freezes, now) {
        WindowState::Open => None,
        WindowState::Closed { next } => {
            Some((WaitReason::WindowClosed, format!("the rollout window is closed {}", again(next))))
        }
        WindowState::Frozen { why, next } => {
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            Some((WaitReason::Frozen, format!("a freeze is in effect{why} {}", again(next))))
        }
    }
}
