//! Deletes stored revisions that are not kept, one a poll.

use tokio::time::Instant;

use crate::api::BoundariesRevision;
use crate::boundaries::DEFAULT_HISTORY;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::context::Context;
use crate::controller::revisions;
use crate::k8s::KubeError;
use crate::rollout::revision_to_delete;

/// What polls found of revisions that are not kept.
#[derive(Default)]
pub(super) struct Dispensable {
    /// Name and UID of the revision that the last poll found.
    found: Option<(String, String)>,
    /// Until when nothing is deleted, because the API server refused it.
    refused_until: Option<Instant>,
}

impl Dispensable {
    /// Deletes the oldest revision that is not kept, once two polls in a row found the same one.
    ///
    /// # Errors
    /// The API server did not delete it. That is tried again after a resync period.
    pub(super) async fn delete_one(
        &mut self,
        ctx: &Context,
        active: &ActiveBoundaries,
        stored: &[BoundariesRevision],
    ) -> Result<(), KubeError> {
        let found = revision_of(ctx, active, stored);
        let is_confirmed = found.is_some() && found == self.found;
        self.found = found;
        let is_refused = self.refused_until.is_some_and(|until| Instant::now() < until);
        let Some((name, uid)) = self.found.clone().filter(|_| is_confirmed && !is_refused && ctx.request_write())
        else {
            return Ok(());
        };
        let result = ctx.planner.kube.delete_boundaries_revision(&ctx.config_namespace, &name, &uid).await;
        self.refused_until = result.is_err().then(|| Instant::now() + ctx.planner.settings.resync_period);
        result
    }
}

/// The revision to delete. A content that is not in effect says nothing about how many are kept.
fn revision_of(ctx: &Context, active: &ActiveBoundaries, stored: &[BoundariesRevision]) -> Option<(String, String)> {
    let kept = active.rollout().map_or(DEFAULT_HISTORY, |policy| policy.history);
    let may_be_too_many = active.source == BoundariesSource::Live && stored.len() > kept;
    may_be_too_many.then(|| revision_to_delete(stored, &revisions::history(active, ctx)))?
}
