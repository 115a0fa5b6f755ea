//! Deletes stored revisions that are not kept, one a poll.

use tokio::time::Instant;

use crate::api::BoundariesRevision;
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
    /// The revision whose deletion was sent last, and when that may be repeated.
    sent: Option<((String, String), Instant)>,
}

impl Dispensable {
    /// Deletes the oldest revision that is not kept, once two polls in a row found the same one. A deletion that does not
    /// take is repeated after a resync period.
    ///
    /// # Errors
    /// The API server did not delete it.
    pub(super) async fn delete_one(
        &mut self,
        ctx: &Context,
        active: &ActiveBoundaries,
        stored: &[BoundariesRevision],
    ) -> Result<(), KubeError> {
        let before = std::mem::replace(&mut self.found, find(ctx, active, stored));
        let Some(found) = self.found.clone().filter(|found| before.as_ref() == Some(found)) else { return Ok(()) };
        let was_sent = self.sent.as_ref().is_some_and(|(sent, again)| *sent == found && Instant::now() < *again);
        if was_sent || !ctx.request_write() {
            return Ok(());
        }
        self.sent = Some((found.clone(), Instant::now() + ctx.planner.settings.resync_period));
        let (name, uid) = found;
        ctx.planner.kube.delete_boundaries_revision(&ctx.config_namespace, &name, &uid).await
    }
}

/// The name and UID of the revision to delete. A content that is not in effect says nothing about how many are kept.
fn find(ctx: &Context, active: &ActiveBoundaries, stored: &[BoundariesRevision]) -> Option<(String, String)> {
    let may_be_too_many = active.source == BoundariesSource::Live && stored.len() > revisions::kept(active, ctx);
    may_be_too_many.then(|| revision_to_delete(stored, &revisions::history(active, ctx)))?
}
