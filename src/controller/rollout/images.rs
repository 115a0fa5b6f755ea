//! Watches which image each alias resolves to. A new image of AWS becomes a revision of its own, which reaches groups
//! in waves.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{BoundariesRevision, rfc3339};
use crate::boundaries::active::ActiveBoundaries;
use crate::controller::context::Context;
use crate::controller::revisions::used_numbers;
use crate::k8s::KubeError;
use crate::rollout::{Images, RolloutView, is_confirmed, may_move_images, moved, with_images, without_images};

/// Stores a revision when aliases resolve to other images than before, and two reads in a row agree. `seen` is what the
/// poll before this one found.
pub(super) async fn store_new_images(
    ctx: &Arc<Context>,
    view: &RolloutView,
    stored: &[BoundariesRevision],
    seen: &mut Images,
) -> Result<(), KubeError> {
    if !may_move_images(stored, view) || !ctx.request_write() {
        seen.clear();
        return Ok(());
    }
    let found = moved(stored, view, &answers(ctx, !seen.is_empty()).await);
    if !is_confirmed(&found, seen) {
        return Ok(());
    }
    let live = ctx.stores.config_map.lock().await.as_present().and_then(|live| live.data.clone()).unwrap_or_default();
    let (used, time) = (used_numbers(ctx), rfc3339(Timestamp::now()));
    let Some(revision) = with_images(stored, view, &found, &live, &used, time) else { return Ok(()) };
    seen.clear();
    create(ctx, &revision).await
}

/// The image that AWS returns for each alias in use. An alias without an answer counts as unchanged.
async fn answers(ctx: &Context, is_repeated: bool) -> Images {
    let settings = &ctx.planner.settings;
    let max_age = match is_repeated {
        true => settings.timing.poll_interval.unsigned_abs(),
        false => settings.resync_period.mul_f64(0.5),
    };
    let parameters = ctx.planner.process_state.image_aliases.parameters();
    let reads = parameters.into_iter().map(|(alias, parameter)| async move {
        let image = ctx.planner.inventory.ssm_image(&parameter, max_age).await.ok().flatten()?;
        Some((alias, image))
    });
    futures::future::join_all(reads).await.into_iter().flatten().collect()
}

/// Adds the images that aliases resolved to when groups first used them under the target.
pub(super) fn add_first_resolved(ctx: &Context, view: &RolloutView, images: &mut Images) {
    let first = ctx.planner.process_state.image_aliases.first();
    images.extend(first.into_iter().filter(|(alias, _)| !view.target.images.contains_key(alias)));
}

/// Without the key `rollout`, aliases resolve to AWS's present image. That is stored, so that a later policy does not
/// begin with images of before.
pub(super) async fn forget(
    ctx: &Context,
    active: &ActiveBoundaries,
    stored: &[BoundariesRevision],
) -> Result<(), KubeError> {
    ctx.planner.process_state.image_aliases.clear();
    match without_images(stored, &active.revision).filter(|_| ctx.request_write()) {
        Some(revision) => create(ctx, &revision).await,
        None => Ok(()),
    }
}

pub(super) async fn create(ctx: &Context, revision: &BoundariesRevision) -> Result<(), KubeError> {
    let _turn = ctx.stores.revision_mutex.lock().await;
    // The reads before may have taken long.
    if !ctx.request_write() {
        return Ok(());
    }
    match ctx.planner.kube.create_boundaries_revision(revision).await {
        // Another writer took the name meanwhile.
        Err(error) if error.is_conflict() => Ok(()),
        Ok(()) => {
            let (name, change) = (revision.name_any(), &revision.spec.from.change);
            tracing::info!(revision = %name, hash = %revision.spec.hash, %change, "stored a revision of the boundaries");
            Ok(())
        }
        other => other,
    }
}
