//! Follows whether this process may write, and reports other controllers that manage the same groups.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::{Context, publish_event};
use super::trigger::Trigger;
use super::watches;
use super::watches::boundaries;
use crate::leader::election::Leadership;
use crate::leader::other_controller::{ForeignWrite, WriteHold};
use crate::plan::Event;

/// Follows the Lease and the conflict detector, and never returns. When this process gains the right to write, it reloads
/// the boundaries and enqueues every group.
pub async fn run(mut leadership: watch::Receiver<Leadership>, ctx: Arc<Context>, trigger: Trigger) {
    let (mut could_write, mut has_election, mut reported) = (false, true, None);
    let mut holds = ctx.conflict_detector.subscribe();
    loop {
        let hold = ctx.conflict_detector.hold();
        ctx.metrics.set_leader(ctx.is_leader());
        report_conflict(&mut reported, hold.as_ref(), &ctx).await;
        let can_write = ctx.can_write();
        if can_write && !could_write {
            tracing::info!("writes enabled");
            boundaries::reload_after_election(&ctx).await;
            trigger.enqueue_all();
            watches::label_backlog(&ctx).await;
        }
        could_write = can_write;
        tokio::select! {
            changed = leadership.changed(), if has_election => has_election = changed.is_ok(),
            // This channel closes only when `ctx` is dropped.
            _ = holds.changed() => {}
            () = hold_expired(hold.as_ref()) => {}
        }
    }
}

async fn hold_expired(hold: Option<&WriteHold>) {
    match hold {
        Some(hold) => tokio::time::sleep_until(hold.until).await,
        None => std::future::pending().await,
    }
}

/// Logs and publishes when another controller becomes active or stops. The events go to the ConfigMap, for the admin, and
/// to the group that the other controller wrote to.
async fn report_conflict(reported: &mut Option<ForeignWrite>, hold: Option<&WriteHold>, ctx: &Context) {
    let now = hold.and_then(|hold| hold.conflict.as_ref());
    ctx.metrics.set_conflicting_controller(now.is_some());
    if let (None, Some(hold)) = (now, hold) {
        let seconds = hold.until.saturating_duration_since(tokio::time::Instant::now()).as_secs_f64().ceil();
        tracing::info!(seconds, "groups were last managed by another controller; pausing writes while it shuts down");
    }
    let (target, event) = match (reported.as_ref(), now) {
        (None, Some(now)) => (now.target.clone(), conflict_event(now)),
        (Some(before), None) => (before.target.clone(), resolved_event()),
        (None, None) | (Some(_), Some(_)) => return,
    };
    match now {
        Some(now) => tracing::warn!(manager = now.manager, "another controller manages the groups, writes paused"),
        None => tracing::info!("no other controller manages the groups, writes resumed"),
    }
    *reported = now.cloned();
    if ctx.is_leader() {
        publish_event(&ctx.boundaries_target().await, &event, ctx).await;
        publish_event(&target, &event, ctx).await;
    }
}

fn conflict_event(conflict: &ForeignWrite) -> Event {
    let ForeignWrite { manager, target } = conflict;
    let group = format!("{}/{}", target.namespace.clone().unwrap_or_default(), target.name);
    let message = format!(
        "another controller (field manager {manager}) writes the status of InstanceGroups, for example {group}; this \
         controller changes nothing in AWS or Kubernetes until the other one has written nothing for one resync period; \
         scale its Deployment to 0"
    );
    Event::warning("ConflictingController", message)
}

fn resolved_event() -> Event {
    let message = "no other controller has written the status of an InstanceGroup for one resync period; writes resume";
    Event::normal("ConflictResolved", message)
}
