//! Deletes stored revisions that are not kept, one a poll.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::api::BoundariesRevision;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::context::Context;
use crate::controller::revisions;
use crate::k8s::KubeError;
use crate::rollout::revision_to_delete;

/// Deletes the revisions that are not kept, one a poll, after two polls in a row found the same one.
#[derive(Default)]
pub(super) struct RevisionDeleter {
    /// Name and UID of the revision that the last poll found.
    found: Option<(String, String)>,
    /// The UIDs of revisions whose deletion was sent, and when that may be repeated.
    sent: HashMap<String, Instant>,
}

impl RevisionDeleter {
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
        let now = Instant::now();
        self.sent.retain(|_, again| now < *again);
        let before = std::mem::replace(&mut self.found, find(ctx, active, stored, &self.sent));
        let found = self.found.clone().filter(|found| before.as_ref() == Some(found));
        let Some((name, uid)) = found.filter(|_| ctx.request_write()) else { return Ok(()) };
        self.sent.insert(uid.clone(), now + ctx.planner.settings.resync_period);
        ctx.planner.kube.delete_boundaries_revision(&ctx.config_namespace, &name, &uid).await
    }
}

/// The name and UID of the revision to delete. One whose deletion does not take must not keep the others. A content that is
/// not in effect says nothing about how many are kept.
fn find(
    ctx: &Context,
    active: &ActiveBoundaries,
    stored: &[BoundariesRevision],
    sent: &HashMap<String, Instant>,
) -> Option<(String, String)> {
    let may_be_too_many = active.source == BoundariesSource::Live && stored.len() > revisions::kept(active, ctx);
    let is_sent = |uid: &str| sent.contains_key(uid);
    may_be_too_many.then(|| revision_to_delete(stored, &revisions::history(active, ctx), is_sent))?
}
