//! What is stored of the ConfigMap `instance-manager`: BoundariesRevisions, and the last known good content.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::api::BoundariesRevision;
use crate::api::names::LAST_KNOWN_GOOD_CONFIG_MAP;
use crate::boundaries::Boundaries;
use crate::boundaries::active::{ActiveBoundaries, ConfigMapData};
use crate::controller::context::Context;
use crate::controller::planner::Planner;
use crate::controller::{revisions, rollout};
use crate::k8s::KubeError;
use crate::plan::Write;
use crate::rollout::{History, RolloutView};
use crate::util::lookup::Lookup;

/// Why a ConfigMap with the key `rollout` is not used.
pub(super) const NOT_SERVED: &str = "the key rollout of the ConfigMap instance-manager needs the CustomResourceDefinition boundariesrevisions.instancemgr.keikoproj.io and permissions for it; apply both (instance-manager crd | kubectl apply -f - and deploy/rbac.yaml), or remove the key; the controller retries each minute";

/// The stored revisions; `None` when the API server does not serve the kind, or does not allow it. Retries until it answers:
/// what is not known could be a rollout that is under way.
pub(super) async fn read_revisions(ctx: &Context) -> Option<Vec<BoundariesRevision>> {
    loop {
        match ctx.planner.kube.boundaries_revisions(&ctx.config_namespace).await {
            Ok(stored) => return stored,
            Err(KubeError::Forbidden { .. }) => return None,
            Err(error) => {
                tracing::warn!(%error, "cannot read the stored boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// The rollout of the active content. Retries until the API server answers, or this process may no longer write.
pub(super) async fn read_view(active: &Arc<ActiveBoundaries>, ctx: &Context) -> Option<RolloutView> {
    while ctx.can_write() {
        match rollout::refresh(ctx, active).await {
            Ok(view) => return view,
            Err(error) => {
                tracing::warn!(%error, "cannot read the stored boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
    None
}

/// The result of storing content; groups use it only once it is stored.
pub(super) enum StoreResult {
    /// It is stored, or this process may no longer write.
    Stored,
    /// The API server rejects it; a retry cannot succeed before an admin changes something.
    Rejected(KubeError),
    /// The ConfigMap was edited meanwhile.
    Superseded,
}

/// Stores the content before any group sees it. Retries until the API server answers, this process may no longer write, or
/// another edit follows.
pub(super) async fn store_now(
    live: Option<&ConfigMap>,
    before: Option<&ConfigMapData>,
    active: &ActiveBoundaries,
    ctx: &Arc<Context>,
) -> StoreResult {
    let Some(live) = live else { return StoreResult::Stored };
    let (kube, namespace) = (ctx.planner.kube.as_ref(), &ctx.config_namespace);
    let _turn = ctx.stores.revision_mutex.lock().await;
    // A leader that continues a rollout whose policy the ConfigMap has lost has no view yet.
    let history = History { is_deleted_by_polls: true, ..revisions::history(active, ctx) };
    while let Err(error) = revisions::store(kube, namespace, live, before, &history, || ctx.can_write()).await {
        tracing::warn!(%error, "cannot store the boundaries as a BoundariesRevision");
        if matches!(error, KubeError::Forbidden { .. } | KubeError::Invalid { .. }) {
            return StoreResult::Rejected(error);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        if !ctx.can_write() {
            return StoreResult::Stored;
        }
        if is_replaced(live, ctx).await {
            return StoreResult::Superseded;
        }
    }
    match is_replaced(live, ctx).await {
        true => StoreResult::Superseded,
        false => StoreResult::Stored,
    }
}

/// Whether the ConfigMap has another content by now.
async fn is_replaced(live: &ConfigMap, ctx: &Context) -> bool {
    let present = ctx.stores.config_map.lock().await;
    present.as_present().and_then(|map| map.data.as_ref()) != live.data.as_ref()
}

/// Why a content is not used that a rollout takes to the groups.
pub(super) fn not_stored(error: &KubeError) -> String {
    format!(
        "the ConfigMap instance-manager cannot be stored as a BoundariesRevision, which a rollout needs, because the API server refuses it: {error}; remove the cause, or the key rollout; the controller retries each minute"
    )
}

/// Adds the active content to the history, beside everything else. `before` is the last known good content, with which
/// a history begins. While the API server does not store it, the intervals grow; another content or leader ends it.
pub(super) fn store_revision(
    live: Option<&ConfigMap>,
    before: Option<ConfigMapData>,
    revision: String,
    ctx: &Arc<Context>,
) {
    let (Some(live), ctx) = (live.cloned(), ctx.clone()) else { return };
    tokio::spawn(async move {
        let mut delay = Duration::from_secs(1);
        let (kube, namespace) = (ctx.planner.kube.as_ref(), &ctx.config_namespace);
        let is_active = || ctx.request_write() && ctx.stores.boundaries.get().revision == revision;
        while is_active() {
            // Without it, a content that is no longer active could be stored after its successor.
            let turn = ctx.stores.revision_mutex.lock().await;
            let history = revisions::history(&ctx.stores.boundaries.get(), &ctx);
            let result = revisions::store(kube, namespace, &live, before.as_ref(), &history, is_active).await;
            drop(turn);
            let Err(error) = result else { return };
            tracing::warn!(%error, "cannot store the boundaries as a BoundariesRevision");
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(ctx.planner.settings.resync_period);
        }
    });
}

/// Stores the live content as the last known good one, if this process may write. What the API server does not store
/// stays in memory for [`retry_last_known_good`].
pub(super) async fn keep_last_known_good(data: &ConfigMapData, ctx: &Context) {
    let is_unstored = ctx.is_leader()
        && ctx.request_write()
        && !store_last_known_good(data, &ctx.planner, &ctx.config_namespace, Timestamp::now()).await;
    *ctx.stores.unstored_boundaries.lock().expect("lock is not poisoned") = is_unstored.then(|| data.clone());
}

/// Stores the last known good content that the API server did not store before, if there is one.
pub(super) async fn retry_last_known_good(ctx: &Context) {
    // A load in progress stores what it activates, and must learn of the next edit meanwhile.
    let Ok(_turn) = ctx.stores.reload_mutex.try_lock() else { return };
    forget_as_follower(ctx);
    if ctx.can_write()
        && let Some(content) = unstored(ctx)
    {
        keep_last_known_good(&content, ctx).await;
    }
}

/// Forgets what the API server did not store once this process does not lead: another leader stores what is newer.
fn forget_as_follower(ctx: &Context) {
    if !ctx.is_leader() {
        *ctx.stores.unstored_boundaries.lock().expect("lock is not poisoned") = None;
    }
}

/// The last known good content that the API server did not store.
fn unstored(ctx: &Context) -> Option<ConfigMapData> {
    ctx.stores.unstored_boundaries.lock().expect("lock is not poisoned").clone()
}

/// Stores a valid revision. While another writer puts another one in its place, the intervals grow. Returns `false` if
/// the API server did not store it.
pub(super) async fn store_last_known_good(
    data: &ConfigMapData,
    planner: &Planner,
    namespace: &str,
    now: Timestamp,
) -> bool {
    let (process_state, resync) = (&planner.process_state, planner.settings.resync_period);
    let write = Write::new(LAST_KNOWN_GOOD_CONFIG_MAP, "data", data);
    if !process_state.other_writes(|writes| writes.is_due(&write, resync, now)) {
        return true;
    }
    match planner.kube.put_last_known_good(namespace, data).await {
        Err(error) => {
            tracing::warn!(%error, "cannot store the last known good boundaries");
            return false;
        }
        Ok(false) => {}
        Ok(true) => {
            if process_state.other_writes(|writes| writes.record_write(write, String::new, now)) {
                tracing::warn!(
                    "the ConfigMap {LAST_KNOWN_GOOD_CONFIG_MAP} is changed each time it is written; find the other writer in metadata.managedFields"
                );
            }
        }
    }
    true
}

/// The last known good revision. What the API server did not store is newer than what it has. Retries until the API
/// server answers; the active boundaries stay until then. Valid live content needs no right to read the stored one, which
/// is then [`Lookup::NotQueried`].
///
/// # Errors
/// The API server does not allow to read it, and the live content cannot be used.
pub(super) async fn read_last_known_good(
    live: Option<&ConfigMapData>,
    ctx: &Context,
) -> Result<Lookup<ConfigMapData>, KubeError> {
    forget_as_follower(ctx);
    if let Some(content) = unstored(ctx) {
        return Ok(Lookup::Present(content));
    }
    loop {
        match ctx.planner.kube.last_known_good(&ctx.config_namespace).await {
            Ok(stored) => return Ok(stored.into()),
            Err(error @ KubeError::Forbidden { .. }) => {
                tracing::warn!(%error, "not allowed to read the last known good boundaries");
                let is_valid = live.is_some_and(|data| Boundaries::parse(data).is_ok());
                return if is_valid { Ok(Lookup::NotQueried) } else { Err(error) };
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the last known good boundaries");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}
