//! Tags of node groups and Fargate profiles that EKS refused, for example because of a character. The same tags are sent again
//! after a while, and others immediately.

use jiff::{SignedDuration, Timestamp};

use crate::aws::AwsError;
use crate::plan::Write;
use crate::util::duration::later;

/// How long refused tags are not sent again.
const DELAY: SignedDuration = SignedDuration::from_mins(5);

/// What EKS refused lately of one group.
#[derive(Clone, Default)]
pub(crate) struct RefusedTags {
    refusals: Vec<Refusal>,
}

#[derive(Clone)]
struct Refusal {
    writes: Vec<Write>,
    error: AwsError,
    at: Timestamp,
}

impl Refusal {
    /// A clock that was set back ends the wait.
    fn is_in_backoff(&self, now: Timestamp) -> bool {
        self.at <= now && now < later(self.at, DELAY)
    }
}

impl RefusedTags {
    /// Why the tags are not sent now: the error with which EKS refused the same ones.
    pub(crate) fn backoff(&self, writes: &[Write], now: Timestamp) -> Option<AwsError> {
        let known = self.refusals.iter().find(|known| known.writes == writes && known.is_in_backoff(now))?;
        Some(known.error.clone())
    }

    /// Records that EKS refused tags.
    pub(crate) fn record(&mut self, writes: Vec<Write>, error: AwsError, now: Timestamp) {
        self.refusals.retain(|known| known.writes != writes && known.is_in_backoff(now));
        self.refusals.push(Refusal { writes, error, at: now });
    }
}
