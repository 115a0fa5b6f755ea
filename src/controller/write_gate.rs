//! Follows whether this process may write, and reports other controllers that manage the same groups.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use tokio::sync::watch;

use super::context::{Context, EventLog, event_target, publish, publish_event};
use super::node_labels;
use super::trigger::Trigger;
use super::watches::{boundaries, report_aws_auth_size};
use crate::api::GroupObject;
use crate::k8s::EventTarget;
use crate::leader::election::Leadership;
use crate::leader::other_controller::{ForeignWrite, WriteHold};
use crate::plan::{Event, EventReason};

/// Follows the Lease and the conflict detector, and never returns. When this process gains permission to write, or has it
/// again after a write was refused, it reloads the boundaries and enqueues every group.
pub(crate) async fn run(mut leadership: watch::Receiver<Leadership>, ctx: Arc<Context>, trigger: Trigger) {
    let (mut access, mut has_election, mut reported) = (WriteAccess::default(), true, HoldState::default());
    let mut holds = ctx.conflict_detector.subscribe();
    loop {
        let hold = ctx.conflict_detector.hold();
        ctx.metrics.set_leader(ctx.is_leader());
        report_hold(&mut reported, hold.as_ref(), &ctx).await;
        // Read first: what is refused from here on is enqueued after the next renewal.
        let was_refused = ctx.take_write_blocked();
        if access.is_regained(ctx.can_write(), was_refused) {
            tracing::info!("writes enabled");
            boundaries::reload(&ctx).await;
            trigger.enqueue_all();
            report_aws_auth_size(&ctx).await;
            node_labels::copy_role_backlog(&ctx).await;
        }
        tokio::select! {
            changed = leadership.changed(), if has_election => has_election = changed.is_ok(),
            // This channel closes only when `ctx` is dropped.
            _ = holds.changed() => {}
            () = hold_expired(hold.as_ref()) => {}
        }
    }
}

/// Whether this process could write at the last check.
#[derive(Debug, Default)]
struct WriteAccess {
    had_access: bool,
}

impl WriteAccess {
    /// Whether this process gains write access, or has it again after a refused write. The caller then enqueues every
    /// group, because groups whose write was refused are not requeued. A lease may expire and be renewed between two
    /// checks; then only the refused write shows it.
    fn is_regained(&mut self, can_write: bool, was_refused: bool) -> bool {
        let is_regained = can_write && (!self.had_access || was_refused);
        self.had_access = can_write;
        is_regained
    }
}

async fn hold_expired(hold: Option<&WriteHold>) {
    match hold {
        Some(hold) => tokio::time::sleep_until(hold.until).await,
        None => std::future::pending().await,
    }
}

/// Why writes are paused, as far as it is reported.
#[derive(Clone, Debug, Default, PartialEq)]
enum HoldState {
    /// Writes are not paused.
    #[default]
    NoHold,
    /// The grace period after a start that takes over groups of another controller.
    StartupGrace,
    /// Another controller writes to the groups.
    Conflict(ForeignWrite),
}

impl HoldState {
    fn new(hold: Option<&WriteHold>) -> Self {
        match hold {
            None => HoldState::NoHold,
            Some(WriteHold { conflict: None, .. }) => HoldState::StartupGrace,
            Some(WriteHold { conflict: Some(write), .. }) => HoldState::Conflict(write.clone()),
        }
    }

    /// Whether the change to `current` must be reported. Further writes in the same conflict are not.
    fn changes_to(&self, current: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(current)
    }

    /// The event for the change to `current`, and the group that the other controller wrote to.
    fn event(&self, current: &Self) -> Option<(EventTarget, Event)> {
        match (self, current) {
            (_, HoldState::Conflict(write)) => Some((write.target.clone(), conflict_event(write))),
            (HoldState::Conflict(write), _) => Some((write.target.clone(), resolved_event())),
            (HoldState::NoHold | HoldState::StartupGrace, HoldState::NoHold | HoldState::StartupGrace) => None,
        }
    }
}

/// Logs and publishes when writes are paused or resumed. The events go to the ConfigMap, for the admin, and to the group
/// that the other controller wrote to. Other groups get the event when their reconcile is refused.
async fn report_hold(reported: &mut HoldState, hold: Option<&WriteHold>, ctx: &Context) {
    let current = HoldState::new(hold);
    ctx.metrics.set_conflicting_controller(matches!(current, HoldState::Conflict(_)));
    if !reported.changes_to(&current) {
        repeat_conflict(&current, ctx).await;
        return;
    }
    let event = reported.event(&current);
    match (&current, hold) {
        (HoldState::StartupGrace, Some(hold)) => {
            let seconds = hold.until.saturating_duration_since(tokio::time::Instant::now()).as_secs_f64().ceil();
            tracing::info!(
                seconds,
                "groups were last managed by another controller; pausing writes while it shuts down"
            );
        }
        (HoldState::Conflict(write), _) => {
            tracing::warn!(manager = write.manager, "another controller manages the groups, writes paused");
        }
        _ => {}
    }
    if matches!(reported, HoldState::Conflict(_)) {
        tracing::info!("no other controller manages the groups, writes resumed");
    }
    *reported = current;
    if let Some((target, event)) = event
        && ctx.is_leader()
    {
        ctx.conflict_detector.unreported_conflict(&target_key(&target));
        ctx.conflict_detector.unreported_conflict("");
        publish_event(&ctx.boundaries_target().await, &event, ctx).await;
        publish_event(&target, &event, ctx).await;
    }
}

/// Publishes on the ConfigMap, every half hour, that a conflict lasts. A new leader publishes it at once.
async fn repeat_conflict(current: &HoldState, ctx: &Context) {
    if let HoldState::Conflict(write) = current
        && ctx.is_leader()
        && ctx.conflict_detector.unreported_conflict("").is_some()
    {
        publish_event(&ctx.boundaries_target().await, &conflict_event(write), ctx).await;
    }
}

/// Publishes, on a group whose reconcile was refused, that it waits for the end of a conflict.
pub(super) async fn report_waiting_group(stored: &GroupObject, key: &str, ctx: &Context) {
    if !ctx.is_leader() {
        return;
    }
    if let Some(conflict) = ctx.conflict_detector.unreported_conflict(key) {
        let meta = ObjectMeta {
            namespace: stored.namespace(),
            name: Some(stored.name_any()),
            uid: stored.uid(),
            ..ObjectMeta::default()
        };
        publish(&event_target(&meta), &conflict_event(&conflict), ctx, EventLog::LoggedBefore).await;
    }
}

/// `namespace/name`.
fn target_key(target: &EventTarget) -> String {
    format!("{}/{}", target.namespace.as_deref().unwrap_or_default(), target.name)
}

fn conflict_event(conflict: &ForeignWrite) -> Event {
    let ForeignWrite { manager, target } = conflict;
    let group = target_key(target);
    let message = format!(
        "another controller (field manager {manager}) writes the status of InstanceGroups, for example {group}; this \
         controller changes nothing in AWS or Kubernetes until the other one has written nothing for one resync period; \
         scale the Deployment of the other controller to 0"
    );
    Event::warning(EventReason::ConflictingController, message)
}

fn resolved_event() -> Event {
    let message = "no other controller has written the status of an InstanceGroup for one resync period; writes resume";
    Event::normal(EventReason::ConflictResolved, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(manager: Option<&str>) -> HoldState {
        let target = EventTarget {
            api_version: String::new(),
            kind: "InstanceGroup".into(),
            namespace: Some("team".into()),
            name: "web".into(),
            uid: String::new(),
        };
        let conflict = manager.map(|manager| ForeignWrite { manager: manager.into(), target });
        HoldState::new(Some(&WriteHold { until: tokio::time::Instant::now(), conflict }))
    }

    #[test]
    fn writes_resume_after_an_unobserved_refusal() {
        let mut access = WriteAccess::default();
        assert!(!access.is_regained(false, true), "a standby is refused");
        assert!(access.is_regained(true, true), "elected");
        assert!(!access.is_regained(true, false), "renewed in time");
        assert!(
            access.is_regained(true, true),
            "a process that slept was refused, and renewed the Lease between two checks"
        );
        assert!(!access.is_regained(false, true), "expired");
        assert!(access.is_regained(true, false), "renewed");
    }

    #[test]
    fn only_a_change_of_the_write_hold_is_reported() {
        let (none, grace, conflict) = (HoldState::new(None), hold(None), hold(Some("manager")));
        for (previous, current, reason) in [
            (&none, &conflict, Some("ConflictingController")),
            (&grace, &conflict, Some("ConflictingController")),
            (&conflict, &none, Some("ConflictResolved")),
            (&conflict, &grace, Some("ConflictResolved")),
            (&none, &grace, None),
            (&grace, &none, None),
        ] {
            assert!(previous.changes_to(current));
            assert_eq!(previous.event(current).map(|(_, event)| event.reason).as_deref(), reason);
        }
        assert!(!grace.changes_to(&hold(None)), "the grace period is logged once, not on every pass");
        assert!(!conflict.changes_to(&hold(Some("other"))), "the conflict continues");
    }
}
