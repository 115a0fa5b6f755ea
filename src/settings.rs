//! How long things take, in one place with the reasons.

use jiff::SignedDuration;

/// Waits and clocks of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// How often groups in flux are looked at: instances take tens of seconds, so more often only costs calls.
    pub poll_interval: SignedDuration,
    /// How long a fresh instance profile is left alone before a group refers to it: IAM is eventually consistent.
    pub iam_propagation: SignedDuration,
    /// How long a role's access entry must have been there before its entry in aws-auth goes: EKS takes some seconds to
    /// act on it, and nobody can ask whether it does.
    pub auth_handover: SignedDuration,
    /// How long fewer instances than desired may run before the scaling activities are asked why.
    pub launch_shortfall: SignedDuration,
    /// How long a kubelet may be silent before evictions are no longer waited for.
    pub kubelet_timeout: SignedDuration,
    /// How long attached volumes may hold a drained node.
    pub volume_detach_timeout: SignedDuration,
    /// How long the drain of a deletion may take.
    pub deletion_drain_timeout: SignedDuration,
    /// How long a drain that ran into its timeout is left alone.
    pub drain_retry_delay: SignedDuration,
    /// How long a replacement must have been Ready before the next batch: one that dies at once must not cost another node.
    pub ready_hold: SignedDuration,
    /// How long nothing is written after a start that takes groups over: a Deployment ends the old pod once the new one
    /// runs, and gives it this long.
    pub startup_grace: SignedDuration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            poll_interval: SignedDuration::from_secs(15),
            iam_propagation: SignedDuration::from_secs(8),
            auth_handover: SignedDuration::from_mins(1),
            launch_shortfall: SignedDuration::from_mins(2),
            kubelet_timeout: SignedDuration::from_mins(5),
            volume_detach_timeout: SignedDuration::from_mins(2),
            deletion_drain_timeout: SignedDuration::from_mins(15),
            drain_retry_delay: SignedDuration::from_mins(5),
            ready_hold: SignedDuration::from_secs(30),
            startup_grace: SignedDuration::from_secs(30),
        }
    }
}

impl Timing {
    /// The same clocks in a world that runs faster, for tests and the demo.
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |d: SignedDuration| SignedDuration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or(d);
        let Timing {
            poll_interval,
            iam_propagation,
            auth_handover,
            launch_shortfall,
            kubelet_timeout,
            volume_detach_timeout,
            deletion_drain_timeout,
            drain_retry_delay,
            ready_hold,
            startup_grace,
        } = self;
        Timing {
            poll_interval: scale(poll_interval),
            iam_propagation: scale(iam_propagation),
            auth_handover: scale(auth_handover),
            launch_shortfall: scale(launch_shortfall),
            kubelet_timeout: scale(kubelet_timeout),
            volume_detach_timeout: scale(volume_detach_timeout),
            deletion_drain_timeout: scale(deletion_drain_timeout),
            drain_retry_delay: scale(drain_retry_delay),
            ready_hold: scale(ready_hold),
            startup_grace: scale(startup_grace),
        }
    }
}
