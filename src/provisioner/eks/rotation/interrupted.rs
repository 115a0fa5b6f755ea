//! The rotation of a group that cannot be planned, for example because its spec became invalid. Needs no valid spec.

use jiff::{SignedDuration, Timestamp};

use crate::aws::ScalingGroup;
use crate::plan::{NodeStep, UncordonReason};
use crate::provisioner::StopRequest;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update::{Candidates, RollingUpdateDecision, RollingUpdateInput, decide};
use crate::rotation::{ClusterHealth, Drains, NodeInstance};

/// Uncordons the nodes that the group cordoned. Instances in standby have a replacement already, so they are drained and
/// terminated as soon as it is Ready; budgets are respected without a timeout.
pub(crate) fn stop_rotation(
    request: &StopRequest,
    group: &ScalingGroup,
    members: &[NodeInstance],
    drains: &Drains,
    cluster_health: ClusterHealth,
    now: Timestamp,
) -> RollingUpdateDecision {
    let timing = &request.settings.timing;
    let mut decision = decide(&RollingUpdateInput {
        scaling_group: &group.name,
        group_uid: &request.id.uid,
        template_version: group.template.as_ref().map_or("", |pin| &pin.version),
        members,
        desired: usize::try_from(group.desired).unwrap_or(0),
        max_unavailable: 1,
        max_unavailable_in_weight: false,
        max_surge: 0,
        candidates: Candidates::Surplus(0),
        lock: request.lock,
        precondition: None,
        was_halted: false,
        join_timeout: SignedDuration::MAX,
        ready_hold: timing.ready_hold,
        drain_policy: DrainPolicy {
            timeout: None,
            timeout_since: None,
            at_timeout: AtTimeout::Uncordon,
            decrement_desired: false,
            dead_kubelet_after: timing.kubelet_timeout,
            volume_detach_timeout: timing.volume_detach_timeout,
        },
        drains,
        cluster_health,
        now,
    });
    name_cause(&mut decision.steps);
    decision
}

/// The nodes still need to be replaced, so the event names another cause.
pub(crate) fn name_cause(steps: &mut [NodeStep]) {
    for step in steps {
        if let NodeStep::UncordonNode { reason: reason @ UncordonReason::NoLongerReplaced, .. } = step {
            *reason = UncordonReason::GroupRejected;
        }
    }
}
