//! What windows and freezes say of each wave at one time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::wait::WaitReason;

/// Why no node is replaced, with a phrase for messages; `None` when nothing prevents it.
pub(super) type Closing = Option<(WaitReason, String)>;

/// What windows and freezes say of each wave at one time. That is the same for all groups of a wave, and the next opening takes
/// long to find: computed for each of thousands of groups, it would be most of a poll.
#[derive(Debug, Default)]
pub(crate) struct ClosedWaves(Mutex<(Timestamp, BTreeMap<usize, Closing>)>);

impl ClosedWaves {
    /// What closes a wave at a time, which `compute` says if it is not known.
    pub(super) fn closing(&self, wave: usize, now: Timestamp, compute: impl FnOnce() -> Closing) -> Closing {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != now {
            *known = (now, BTreeMap::new());
        }
        known.1.entry(wave).or_insert_with(compute).clone()
    }
}

impl Clone for ClosedWaves {
    /// The policy of a copy may be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group would otherwise begin in the window of another wave, or in one that has closed.
    #[test]
    fn what_closes_a_wave_is_computed_once_for_each_wave_and_time() {
        let (waves, now) = (ClosedWaves::default(), Timestamp::UNIX_EPOCH);
        let later = now + jiff::SignedDuration::from_secs(1);
        let closed = || Some((WaitReason::WindowClosed, "until tomorrow".to_owned()));
        assert_eq!(waves.closing(0, now, closed), closed());
        assert_eq!(waves.closing(0, now, || panic!("it is known")), closed());
        assert_eq!(waves.closing(1, now, || None), None);
        assert_eq!(waves.closing(0, later, || None), None);
        assert_eq!(waves.closing(1, now, closed), closed());
    }
}
