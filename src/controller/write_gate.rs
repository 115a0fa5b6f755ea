//! Whether this process may write, followed: what changes with it, and who is told.

use std::sync::Arc;

use kube::ResourceExt;
use tokio::sync::watch;

use super::trigger::Bell;
use super::watches::boundaries;
use super::{Shared, tell, watches};
use crate::api::names::CONFIG_MAP;
use crate::k8s::Regarding;
use crate::leader::election::Leadership;
use crate::leader::other_controller::{Hold, Sighting};
use crate::plan::Told;

/// Follows the Lease and other controllers for ever; every group is woken when writing begins.
pub async fn follow(mut leadership: watch::Receiver<Leadership>, shared: Arc<Shared>, bell: Bell) {
    let (mut wrote, mut elected, mut seen) = (false, true, None);
    let mut others = shared.others.subscribe();
    loop {
        let hold = shared.others.hold();
        shared.metrics.leader(shared.leads());
        announce(&mut seen, hold.as_ref(), &shared).await;
        let writes = shared.writes();
        if writes && !wrote {
            tracing::info!("leading");
            boundaries::settle_again(&shared).await;
            bell.all();
            watches::label_the_rest(&shared).await;
        }
        wrote = writes;
        tokio::select! {
            changed = leadership.changed(), if elected => elected = changed.is_ok(),
            // Its sender lives as long as `shared`.
            _ = others.changed() => {}
            () = over(hold.as_ref()) => {}
        }
    }
}

async fn over(hold: Option<&Hold>) {
    match hold {
        Some(hold) => tokio::time::sleep_until(hold.until).await,
        None => std::future::pending().await,
    }
}

/// Tells of another controller that has come or gone: on the ConfigMap, where the admin looks, and on the group.
async fn announce(seen: &mut Option<Sighting>, hold: Option<&Hold>, shared: &Shared) {
    let now = hold.and_then(|hold| hold.by.as_ref());
    shared.metrics.other_controller(now.is_some());
    if let (None, Some(hold)) = (now, hold) {
        let seconds = hold.until.saturating_duration_since(tokio::time::Instant::now()).as_secs_f64().ceil();
        tracing::info!(
            seconds,
            "the groups were another controller's until now; nothing is written while it may be ending"
        );
    }
    let (about, told) = match (seen.as_ref(), now) {
        (None, Some(now)) => (now.about.clone(), working(now)),
        (Some(before), None) => (before.about.clone(), gone()),
        (None, None) | (Some(_), Some(_)) => return,
    };
    *seen = now.cloned();
    match told.warning {
        true => tracing::warn!("{}", told.message),
        false => tracing::info!("{}", told.message),
    }
    if shared.leads() {
        tell(&config_map(shared).await, &told, shared).await;
        tell(&about, &told, shared).await;
    }
}

fn working(now: &Sighting) -> Told {
    let Sighting { manager, about } = now;
    let group = format!("{}/{}", about.namespace.clone().unwrap_or_default(), about.name);
    let message = format!(
        "another controller (field manager {manager}) writes the status of groups, of {group} for one; nothing is changed \
         in AWS or in Kubernetes until it has been quiet for a resync period: scale its Deployment to 0"
    );
    Told { warning: true, reason: "OtherControllerRuns".into(), message }
}

fn gone() -> Told {
    let message = "no other controller has written the status of a group for a resync period; work goes on".into();
    Told { warning: false, reason: "OtherControllerGone".into(), message }
}

async fn config_map(shared: &Shared) -> Regarding {
    let live = shared.stores.config.lock().await.clone().flatten();
    Regarding {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.and_then(|map| map.uid()).unwrap_or_default(),
    }
}
