//! The watch of the boundaries: which of them are in force, and what their admin is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt};

use super::next_object;
use crate::api::names::{CONFIG_MAP, annotation};
use crate::boundaries::active::{BoundariesSource, select_active};
use crate::controller::trigger::Trigger;
use crate::controller::{Context, GroupObject, publish_event};
use crate::k8s::EventTarget;
use crate::plan::Event;

/// The boundaries. They are judged once per edit, and every group looks whether it is concerned.
pub async fn watch(client: Client, bell: Trigger) {
    let shared = bell.context().clone();
    let api: Api<ConfigMap> = Api::namespaced(client, &shared.config_namespace);
    let mut stream = std::pin::pin!(watch_object(api, CONFIG_MAP));
    while let Some(live) = next_object(&mut stream, CONFIG_MAP).await {
        reload(live.as_ref(), &shared).await;
        bell.enqueue_all();
        *shared.stores.config_map.lock().await = Some(live);
    }
}

/// A new leader stores and tells what the one before it may not have.
pub async fn reload_after_election(shared: &Context) {
    let live = shared.stores.config_map.lock().await.clone();
    if let Some(live) = live {
        reload(live.as_ref(), shared).await;
    }
}

async fn reload(live: Option<&ConfigMap>, shared: &Context) {
    while !shared.stores.groups_synced.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let locked = live.is_some_and(|m| annotation::is_true(m.annotations(), annotation::LOCK_UPGRADES));
    *shared.stores.config_map_locked.write().expect("nobody panics holding it") = locked;
    let data = live.map(|m| m.data.clone().unwrap_or_default());
    let stored = read_last_known_good(shared).await;
    let merged = |s: &Arc<GroupObject>| {
        s.0.as_ref()
            .ok()
            .and_then(|g| g.status.as_ref())
            .and_then(|s| s.config_md5.as_ref())
            .is_some_and(|m| !m.is_empty())
    };
    let had_one = shared.stores.groups.state().iter().any(merged);
    let (in_force, error) = select_active(data.as_ref(), stored.as_ref(), had_one);
    let valid = matches!(in_force.source, BoundariesSource::Live | BoundariesSource::NotConfigured);
    shared.metrics.set_boundaries(
        Some(in_force.revision.as_str()).filter(|r| !r.is_empty()),
        valid,
        in_force.warnings.len(),
    );
    let changed = {
        let old = shared.stores.boundaries.get();
        old.source != in_force.source || old.revision != in_force.revision || old.warnings != in_force.warnings
    };
    if changed {
        tracing::info!(source = ?in_force.source, revision = %in_force.revision, "boundaries in force");
    }
    if shared.is_leader() {
        if in_force.source == BoundariesSource::Live
            && shared.can_write()
            && let Some(data) = &data
            && let Err(error) = shared.planner.kube.put_last_known_good(&shared.config_namespace, data).await
        {
            tracing::warn!(%error, "the good boundaries were not stored");
        }
        if changed {
            publish_boundaries_events(live, &in_force, error.as_ref(), shared).await;
        }
    }
    shared.stores.boundaries.set(in_force);
}

/// The stored revision. Until the API server answers nobody knows, and what was in force stays so.
async fn read_last_known_good(shared: &Context) -> Option<crate::boundaries::active::ConfigMapData> {
    loop {
        match shared.planner.kube.last_known_good(&shared.config_namespace).await {
            Ok(stored) => return stored,
            Err(error) => {
                tracing::warn!(%error, "the last good boundaries cannot be read");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// Tells the admin on the ConfigMap itself.
async fn publish_boundaries_events(
    live: Option<&ConfigMap>,
    in_force: &crate::boundaries::active::ActiveBoundaries,
    error: Option<&crate::boundaries::ConfigError>,
    shared: &Context,
) {
    let about = EventTarget {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(shared.config_namespace.clone()),
        name: CONFIG_MAP.into(),
        uid: live.and_then(ResourceExt::uid).unwrap_or_default(),
    };
    let warning = |reason: &str, message: String| Event::warning(reason, message);
    let mut told: Vec<_> = in_force.warnings.iter().map(|w| warning("BoundariesWarning", w.to_string())).collect();
    match (&in_force.source, error) {
        (BoundariesSource::LastGood(why) | BoundariesSource::Unavailable(why), error) => {
            told.push(warning(error.map_or("BoundariesMissing", |e| e.reason()), why.clone()))
        }
        (BoundariesSource::Live, _) => {
            told.push(Event::normal("BoundariesApplied", format!("revision {} is in force", in_force.revision)))
        }
        (BoundariesSource::NotConfigured | BoundariesSource::Unknown, _) => {}
    }
    for told in told {
        publish_event(&about, &told, shared).await;
    }
}
