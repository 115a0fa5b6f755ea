//! Whether this process may write, followed: what changes with it, and who is told.

use std::sync::Arc;

use kube::ResourceExt;
use tokio::sync::watch;

use super::trigger::Trigger;
use super::watches::boundaries;
use super::{Context, publish_event, watches};
use crate::api::names::CONFIG_MAP;
use crate::k8s::EventTarget;
use crate::leader::election::Leadership;
use crate::leader::other_controller::{ForeignWrite, WriteHold};
use crate::plan::Event;

/// Follows the Lease and other controllers for ever; every group is woken when writing begins.
pub async fn run(mut leadership: watch::Receiver<Leadership>, shared: Arc<Context>, bell: Trigger) {
    let (mut wrote, mut elected, mut seen) = (false, true, None);
    let mut others = shared.conflict_detector.subscribe();
    loop {
        let hold = shared.conflict_detector.hold();
        shared.metrics.set_leader(shared.is_leader());
        report_conflict(&mut seen, hold.as_ref(), &shared).await;
        let writes = shared.can_write();
        if writes && !wrote {
            tracing::info!("leading");
            boundaries::reload_after_election(&shared).await;
            bell.enqueue_all();
            watches::label_backlog(&shared).await;
        }
        wrote = writes;
        tokio::select! {
            changed = leadership.changed(), if elected => elected = changed.is_ok(),
            // Its sender lives as long as `shared`.
            _ = others.changed() => {}
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

/// Tells of another controller that has come or gone: on the ConfigMap, where the admin looks, and on the group.
async fn report_conflict(seen: &mut Option<ForeignWrite>, hold: Option<&WriteHold>, shared: &Context) {
    let now = hold.and_then(|hold| hold.conflict.as_ref());
    shared.metrics.set_conflicting_controller(now.is_some());
    if let (None, Some(hold)) = (now, hold) {
        let seconds = hold.until.saturating_duration_since(tokio::time::Instant::now()).as_secs_f64().ceil();
        tracing::info!(
            seconds,
            "the groups were another controller's until now; nothing is written while it may be ending"
        );
    }
    let (about, told) = match (seen.as_ref(), now) {
        (None, Some(now)) => (now.target.clone(), conflict_event(now)),
        (Some(before), None) => (before.target.clone(), resolved_event()),
        (None, None) | (Some(_), Some(_)) => return,
    };
    *seen = now.cloned();
    match told.is_warning() {
        true => tracing::warn!("{}", told.message),
        false => tracing::info!("{}", told.message),
    }
    if shared.is_leader() {
        publish_event(&config_map_target(shared).await, &told, shared).await;
        publish_event(&about, &told, shared).await;
    }
}

fn conflict_event(now: &ForeignWrite) -> Event {
    let ForeignWrite { manager, target } = now;
    let group = format!("{}/{}", target.namespace.clone().unwrap_or_default(), target.name);
    let message = format!(
        "another controller (field manager {manager}) writes the status of groups, of {group} for one; nothing is changed \
         in AWS or in Kubernetes until it has been quiet for a resync period: scale its Deployment to 0"
    );
    Event::warning("ConflictingController", message)
}

fn resolved_event() -> Event {
    let message = "no other controller has written the status of a group for a resync period; work goes on";
    Event::normal("ConflictResolved", message)
}

async fn config_map_target(shared: &Context) -> EventTarget {
    let live = shared.stores.config_map.lock().await.clone().flatten();
    EventTarget {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.and_then(|map| map.uid()).unwrap_or_default(),
    }
}
