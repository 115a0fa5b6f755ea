//! Deletes the revisions that are not kept, one a poll. A load of the ConfigMap deletes none while a rollout is followed.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::BoundariesRevision;
use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
use crate::controller::context::Context;
use crate::controller::revisions;
use crate::k8s::KubeError;
use crate::rollout::revision_to_delete;

/// Name and UID of a revision.
type RevisionId = (String, String);

/// Deletes the revisions that are not kept, one a poll, after two polls in a row found the same one.
#[derive(Default)]
pub(super) struct RevisionDeleter {
    /// The revision that the last poll found.
    found: Option<RevisionId>,
    /// The UIDs of revisions whose deletion was sent, and when that may be repeated.
    sent: HashMap<String, Instant>,
}

impl RevisionDeleter {
    /// Deletes the oldest revision that is not kept, once two polls in a row found the same one. A deletion that does not
    /// take is repeated after a resync period at the earliest.
    ///
    /// # Errors
    /// The API server did not delete it.
    pub(super) async fn delete_one(
        &mut self,
        ctx: &Context,
        active: &ActiveBoundaries,
        stored: &[BoundariesRevision],
    ) -> Result<(), KubeError> {
        if !ctx.request_write() {
            return Ok(());
        }
        let find = |is_sent: &dyn Fn(&str) -> bool| find(ctx, active, stored, is_sent);
        match self.next(find, ctx.planner.settings.resync_period, Instant::now()) {
            Some((name, uid)) => ctx.planner.kube.delete_boundaries_revision(&ctx.config_namespace, &name, &uid).await,
            None => Ok(()),
        }
    }

    /// The revision whose deletion is sent now. `find` finds the oldest one that is not kept, without those that were sent.
    fn next(
        &mut self,
        find: impl FnOnce(&dyn Fn(&str) -> bool) -> Option<RevisionId>,
        resync_period: Duration,
        now: Instant,
    ) -> Option<RevisionId> {
        self.sent.retain(|_, again| now < *again);
        let before = std::mem::replace(&mut self.found, find(&|uid| self.sent.contains_key(uid)));
        let (name, uid) = self.found.clone().filter(|found| before.as_ref() == Some(found))?;
        // The more are refused, the longer each waits. Otherwise the first ones would be due again before the last one's turn.
        let refused = u32::try_from(self.sent.len()).unwrap_or(u32::MAX).min(100);
        self.sent.insert(uid.clone(), now + resync_period * (1 + refused));
        Some((name, uid))
    }
}

/// The revision to delete. One whose deletion does not take must not keep the others. A content that is not in effect says
/// nothing about how many are kept.
fn find(
    ctx: &Context,
    active: &ActiveBoundaries,
    stored: &[BoundariesRevision],
    is_sent: &dyn Fn(&str) -> bool,
) -> Option<RevisionId> {
    let may_be_too_many = active.source == BoundariesSource::Live && stored.len() > revisions::kept(active, ctx);
    may_be_too_many.then(|| revision_to_delete(stored, &revisions::history(active, ctx), is_sent))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy of the cluster keeps dozens of revisions for an audit. Each is tried again, but not at the expense of those that
    /// can be deleted.
    #[test]
    fn many_refused_deletions_delay_no_other_one_for_long() {
        const REFUSED: usize = 40;
        let (resync_period, poll_interval) = (Duration::from_secs(300), Duration::from_secs(15));
        let (mut deleter, begun) = (RevisionDeleter::default(), Instant::now());
        let mut present: Vec<_> = (1..=REFUSED + 1).map(|number| format!("r{number}")).collect();
        let mut calls = vec![];
        for poll in 0..240 {
            let find = |is_sent: &dyn Fn(&str) -> bool| {
                let found = present.iter().find(|name| !is_sent(name))?;
                Some((found.clone(), found.clone()))
            };
            let Some((name, _)) = deleter.next(find, resync_period, begun + poll_interval * poll) else { continue };
            if name == format!("r{}", REFUSED + 1) {
                present.pop();
            }
            calls.push(name);
        }
        assert_eq!(present.len(), REFUSED, "within an hour: {calls:?}");
        assert!(calls.iter().filter(|name| *name == "r1").count() >= 2, "{calls:?}");
    }
}
