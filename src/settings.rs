//! How long things take, in one place with the reasons.

use jiff::SignedDuration;

/// Waits and clocks of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// How often groups in flux are looked at: instances take tens of seconds, so more often only costs calls.
    pub poll: SignedDuration,
    /// How long a fresh instance profile is left alone before a group refers to it: IAM is eventually consistent.
    pub propagation: SignedDuration,
    /// How long a role's access entry must have been there before its entry in aws-auth goes: EKS takes some seconds to
    /// act on it, and nobody can ask whether it does.
    pub handover: SignedDuration,
    /// How long fewer instances than desired may run before the scaling activities are asked why.
    pub shortfall: SignedDuration,
    /// How long a kubelet may be silent before evictions are no longer waited for.
    pub dead_kubelet: SignedDuration,
    /// How long attached volumes may hold a drained node.
    pub volumes: SignedDuration,
    /// How long the drain of a deletion may take.
    pub deletion_drain: SignedDuration,
    /// How long a drain that ran into its timeout is left alone.
    pub rest: SignedDuration,
    /// How long a replacement must have been Ready before the next batch: one that dies at once must not cost another node.
    pub settle: SignedDuration,
    /// How long nothing is written after a start that takes groups over: a Deployment ends the old pod once the new one
    /// runs, and gives it this long.
    pub overlap: SignedDuration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            poll: SignedDuration::from_secs(15),
            propagation: SignedDuration::from_secs(8),
            handover: SignedDuration::from_mins(1),
            shortfall: SignedDuration::from_mins(2),
            dead_kubelet: SignedDuration::from_mins(5),
            volumes: SignedDuration::from_mins(2),
            deletion_drain: SignedDuration::from_mins(15),
            rest: SignedDuration::from_mins(5),
            settle: SignedDuration::from_secs(30),
            overlap: SignedDuration::from_secs(30),
        }
    }
}

impl Timing {
    /// The same clocks in a world that runs faster, for tests and the demo.
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |d: SignedDuration| SignedDuration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or(d);
        let Timing {
            poll,
            propagation,
            handover,
            shortfall,
            dead_kubelet,
            volumes,
            deletion_drain,
            rest,
            settle,
            overlap,
        } = self;
        Timing {
            poll: scale(poll),
            propagation: scale(propagation),
            handover: scale(handover),
            shortfall: scale(shortfall),
            dead_kubelet: scale(dead_kubelet),
            volumes: scale(volumes),
            deletion_drain: scale(deletion_drain),
            rest: scale(rest),
            settle: scale(settle),
            overlap: scale(overlap),
        }
    }
}
