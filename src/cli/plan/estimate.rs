//! What the estimate of a replacement's duration rests on. Pure.

use jiff::SignedDuration;
use serde::Serializer;

use crate::settings::Timing;
use crate::util::duration;

/// How long the replacement of one batch of nodes is assumed to take: to drain, to launch and to join.
pub(crate) const BATCH: SignedDuration = SignedDuration::from_mins(5);

/// How long the drain of a node is assumed to take where the rest is measured.
pub(crate) const ASSUMED_DRAIN: SignedDuration = SignedDuration::from_mins(2);

/// How long the nodes of a group took from launch to Ready.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeasuredJoin {
    /// Half of the nodes took at most this long.
    pub median: SignedDuration,
    /// Of how many nodes.
    pub nodes: usize,
}

impl MeasuredJoin {
    /// How long a batch takes: a drain, the launch, and the time for which a replacement must stay Ready.
    pub(crate) fn batch(&self) -> SignedDuration {
        self.median + Timing::default().min_ready_time + ASSUMED_DRAIN
    }
}

pub(super) fn as_duration<S: Serializer>(measured: &Option<MeasuredJoin>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&measured.as_ref().map(|measured| duration::format(measured.median)))
}
