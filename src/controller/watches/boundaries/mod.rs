//! Watches the ConfigMap `instance-manager`, activates its boundaries, and publishes their state for the admin.

mod events;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::Stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, ResourceExt};

use self::events::{News, publish_boundaries_events};
use self::stored::{
    NOT_SERVED, StoreResult, keep_last_known_good, not_stored, read_last_known_good, read_revisions, read_view,
    retry_last_known_good, store_now, store_revision,
};
use super::next_object;
use crate::api::annotations::is_unknown_switch;
use crate::api::names::{CONFIG_MAP, annotation};
use crate::boundaries::ConfigWarning;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource, ConfigMapData, select_active, without_live};
use crate::controller::context::Context;
use crate::controller::trigger::Trigger;
use crate::lock::ConfigMapLock;
use crate::rollout::policy_is_retained;
use crate::util::lookup::Lookup;

/// Watches the ConfigMap and never returns. Each edit enqueues every group. What the API server does not store, or does
/// not allow to read, is tried again every minute.
pub(crate) async fn watch(client: Client, trigger: Trigger) {
    let ctx = trigger.context().clone();
    let api: Api<ConfigMap> = Api::namespaced(client, &ctx.config_namespace);
    let mut stream = std::pin::pin!(watch_object(api, CONFIG_MAP));
    let retry_interval = ctx.planner.settings.resync_period.min(Duration::from_secs(60));
    let mut is_edited = false;
    loop {
        if !is_edited {
            is_edited = tokio::select! {
                edited = next_object(&mut stream, CONFIG_MAP) => {
                    let Some(live) = edited else { return };
                    set_live(&ctx, live).await;
                    true
                }
                () = tokio::time::sleep(retry_interval) => false,
            };
        }
        let loaded = load_beside_watch(&mut stream, is_edited, &ctx).await;
        let Some((is_activated, is_edited_again)) = loaded else { return };
        if is_activated {
            trigger.enqueue_all();
        }
        is_edited = is_edited_again;
    }
}

/// Loads an edit, or tries again what the API server refused, and takes edits from the watch meanwhile: a content that is
/// replaced before it is stored must not reach a group. Returns whether something was activated, and whether there was
/// another edit; `None` when the watch has ended.
async fn load_beside_watch(
    stream: &mut (impl Stream<Item = watcher::Result<Option<ConfigMap>>> + Unpin),
    is_edited: bool,
    ctx: &Arc<Context>,
) -> Option<(bool, bool)> {
    let (load_ctx, mut is_edited_again) = (ctx.clone(), false);
    let mut load = tokio::spawn(async move {
        if !is_edited {
            return retry(&load_ctx).await;
        }
        reload(&load_ctx).await;
        true
    });
    loop {
        tokio::select! {
            loaded = &mut load => return Some((loaded.ok()?, is_edited_again)),
            edited = next_object(stream, CONFIG_MAP) => {
                set_live(ctx, edited?).await;
                is_edited_again = true;
            }
        }
    }
}

/// Stores what the watch returned, and its lock.
async fn set_live(ctx: &Context, live: Lookup<ConfigMap>) {
    let mut stored = ctx.stores.config_map.lock().await;
    ctx.stores.change_config_map_lock(|lock| lock.see(live.as_present().map(ResourceExt::annotations)));
    *stored = live;
}

/// Tries again what the API server refused, and does nothing otherwise. Returns whether it activated an edit.
async fn retry(ctx: &Arc<Context>) -> bool {
    retry_last_known_good(ctx).await;
    let is_refused = || ctx.stores.boundaries_not_stored.load(Ordering::Acquire);
    if !is_refused() {
        return false;
    }
    reload(ctx).await;
    !is_refused()
}

/// Loads the boundaries from what the watch returned last, if it returned anything yet. Called for each edit, and after this
/// process became able to write: the previous leader may not have stored the last known good revision or published the
/// events. One call at a time, so that an older content never replaces a newer one.
pub(crate) async fn reload(ctx: &Arc<Context>) {
    let _turn = ctx.stores.reload_mutex.lock().await;
    while !ctx.stores.groups_synced.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    loop {
        let stored = ctx.stores.config_map.lock().await;
        let (live, lock) = (stored.clone(), ctx.stores.config_map_lock().loaded(stored.as_present().is_some()));
        drop(stored);
        if !live.is_queried() {
            return;
        }
        let reads = ctx.request_write();
        load(live.as_present(), lock, reads, ctx).await;
        // A process that leads by now, or no longer, has a view of the rollout that is not its own.
        if ctx.can_write() == reads {
            return;
        }
    }
}

/// Loads the boundaries once. `lock`: what counts once they are active. `reads`: whether this process could write when it
/// began, so that it reads the stored revisions.
async fn load(live: Option<&ConfigMap>, lock: ConfigMapLock, reads: bool, ctx: &Arc<Context>) {
    let data = live.map(|m| m.data.clone().unwrap_or_default());
    // What is active stays, and the load is repeated. Meanwhile a valid edit can be loaded.
    let retry_later = || ctx.stores.boundaries_not_stored.store(true, Ordering::Release);
    let Ok(copy) = read_last_known_good(data.as_ref(), ctx).await else { return retry_later() };
    let stored = copy.as_present();
    let were_configured = ctx.stores.groups.state().iter().any(|group| group.may_have_had_boundaries());
    let (mut active, errors) = select_active(data.as_ref(), stored, were_configured);
    // Without the key `rollout`, a rollout may still be under way.
    let revisions = if reads { read_revisions(ctx).await } else { None };
    let is_served = !reads || revisions.is_some();
    let mut is_refused = active.rollout().is_some() && !is_served;
    if is_refused {
        active = without_live(NOT_SERVED.to_owned(), stored);
    }
    let is_lost = |stored: &[_]| ctx.stores.rollout.view().is_some_and(|view| view.is_lost_in(stored));
    let is_retained = revisions.as_deref().is_some_and(|stored| policy_is_retained(stored) || is_lost(stored));
    let is_staged = active.rollout().is_some() || is_retained;
    if !copy.is_queried() && (is_refused || is_staged) {
        // A rollout begins with the content before it, and returns to it.
        return retry_later();
    }
    let is_stored_first = active.source == BoundariesSource::Live && is_staged && ctx.request_write();
    if is_stored_first {
        // Before it becomes the last known good content, which a history begins with.
        match store_now(live, stored, &active, ctx).await {
            StoreResult::Stored => {}
            StoreResult::Rejected(error) => {
                is_refused = true;
                active = without_live(not_stored(&error), stored);
            }
            // Its own load follows.
            StoreResult::Superseded => return,
        }
    }
    ctx.stores.boundaries_not_stored.store(is_refused, Ordering::Release);
    let content_warnings = active.warnings.len();
    let time_warnings = warn_about_flags_and_times(&mut active, data.as_ref(), ctx);
    active.warnings.extend(live.and_then(|map| unknown_lock(map.annotations())));
    let valid = matches!(active.source, BoundariesSource::Live | BoundariesSource::NotConfigured);
    let is_change = |old: &ActiveBoundaries| {
        old.source != active.source || old.revision != active.revision || old.warnings != active.warnings
    };
    let old = ctx.stores.boundaries.get();
    // No leader may have published what this process activated while it did not lead.
    let reported = match ctx.stores.boundaries_reported.load(Ordering::Acquire) {
        true => old.clone(),
        false => Arc::default(),
    };
    let is_unreported = is_change(&reported);
    let news = News {
        is_not_stored: is_refused,
        ..News::since(&reported, &active, stored == data.as_ref(), content_warnings)
    };
    if is_change(&old) {
        let (source, why) = (active.source.name(), active.source.why());
        tracing::info!(source, revision = %active.revision, why, "boundaries activated");
        // They have no event, which the log would repeat.
        for warning in active.warnings.iter().take(news.known_warnings) {
            tracing::warn!(%warning, "a part of the boundaries has no effect or leaves a choice open");
        }
    }
    let is_live = active.source == BoundariesSource::Live;
    if is_live && let Some(data) = &data {
        keep_last_known_good(data, ctx).await;
    }
    if ctx.is_leader() && is_unreported {
        publish_boundaries_events(live, &active, &news, errors.as_ref(), ctx).await;
    }
    ctx.stores.boundaries_reported.store(ctx.is_leader(), Ordering::Release);
    // A metric that counts the warnings about times would keep its value after the freeze that they are about.
    let (revision, warnings) = (active.revision.clone(), active.warnings.len() - time_warnings);
    let active = Arc::new(active);
    // The groups must know that the new content waits for its wave before they see it.
    let view = match reads && is_served {
        true => read_view(&active, ctx).await,
        false => None,
    };
    let view = view.map(|view| Arc::new(view.with_lock(ctx.stores.config_map_lock().with_content(lock))));
    let has_view = view.is_some();
    if has_view {
        ctx.stores.rollout.set_view(view);
    }
    ctx.stores.boundaries.set(active);
    ctx.stores.change_config_map_lock(|state| state.activate(lock));
    if !has_view {
        ctx.stores.rollout.set_view(None);
    }
    ctx.stores.rollout.set_read(reads);
    if is_live && !is_stored_first && ctx.request_write() {
        store_revision(live, stored.cloned(), revision.clone(), ctx);
    }
    // Set last: once the metric shows a revision, every new plan uses it.
    ctx.metrics.set_boundaries(Some(revision.as_str()).filter(|r| !r.is_empty()), valid, warnings);
}

/// Adds warnings about parts of the live ConfigMap that depend on the flags of this process, or on the time. Returns how
/// many depend on the time.
fn warn_about_flags_and_times(active: &mut ActiveBoundaries, data: Option<&ConfigMapData>, ctx: &Context) -> usize {
    let data = data.filter(|_| active.source == BoundariesSource::Live);
    let (Some(boundaries), Some(data)) = (&active.boundaries, data) else { return 0 };
    let has_cluster = ctx.planner.settings.cluster_name.is_some();
    active.warnings.extend(boundaries.flag_warnings(data, ctx.prometheus.is_some(), has_cluster));
    let of_times = boundaries.time_warnings(data, Timestamp::now());
    let count = of_times.len();
    active.warnings.extend(of_times);
    count
}

/// The warning about a lock on the ConfigMap whose value does not lock. In an emergency, an admin would not notice a
/// wrong value.
fn unknown_lock(annotations: &BTreeMap<String, String>) -> Option<ConfigWarning> {
    let (key, value) = annotations.get_key_value(annotation::LOCK_UPGRADES)?;
    Some(ConfigWarning {
        key: "metadata.annotations".to_owned(),
        line: None,
        path: key.clone(),
        message: format!("{value:?} locks nothing"),
        remedy: "use \"true\" or \"false\"".to_owned(),
    })
    .filter(|_| is_unknown_switch(key, value))
}
