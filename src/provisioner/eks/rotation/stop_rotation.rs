//! The rotation of a group that cannot be planned, for example because its spec became invalid. Needs no valid spec.

use jiff::{SignedDuration, Timestamp};

use crate::aws::ScalingGroup;
use crate::ownership::has_ownership_tags;
use crate::plan::{NodeStep, PlanBuilder, PlannedStep, UncordonReason};
use crate::provisioner::StopRequest;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::rotation::outdated;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update::{
    Candidates, RollingUpdateDecision, RollingUpdateInput, WarmPoolRotation, decide,
};
use crate::rotation::{ClusterHealth, Drains, NodeInstance};
use crate::settings::Timing;

/// Uncordons nodes in progress when the plan of a group does not reach its rotation for long. The group is blocked, AWS
/// refuses a write, or a write has no effect. Returns when the group needs another pass for that.
///
/// If the tags do not prove that the scaling group is the group's, nodes are only uncordoned: their records prove who
/// cordoned them.
pub(crate) fn uncordon_nodes_in_progress(input: &PlanInput, builder: &mut PlanBuilder) -> Option<Timestamp> {
    let group = input.observed.scaling_group.as_ref().filter(|group| !group.deleting)?;
    if !builder.leaves_nodes_waiting(input.persistent_failure) {
        return None;
    }
    let (resolved, uid) = (input.resolved, &input.resolved.desired.id.uid);
    let members = outdated::members(resolved, input.observed, input.status);
    let is_own = has_ownership_tags(&group.tags, &resolved.ownership_tags);
    let is_in_progress = |m: &NodeInstance| {
        m.disruption_of(uid).is_some() || m.has_surge_record(uid) || (is_own && m.has_orphaned_disruption())
    };
    if !members.iter().any(is_in_progress) {
        return None;
    }
    let steps = match is_own {
        true => {
            let (drains, health) = (&input.observed.drains, input.observed.cluster_health);
            let reason = UncordonReason::RotationBlocked;
            let stopped = Stopped { group, uid, lock: input.lock, timing: input.timing, now: input.now, reason };
            decide_stop(&stopped, &members, drains, health).steps
        }
        false => uncordon_all(input, &members),
    };
    builder.prepend(steps.into_iter().map(PlannedStep::from));
    input.now.checked_add(input.timing.poll_interval).ok()
}

fn uncordon_all(input: &PlanInput, members: &[NodeInstance]) -> Vec<NodeStep> {
    let uid = &input.resolved.desired.id.uid;
    let interval = input.timing.decrement_interval;
    let staying = members.iter().filter(|m| !m.is_terminating(uid, interval, input.now));
    let cordoned = staying.filter(|m| m.disruption_of(uid).is_some()).filter_map(|m| m.node.as_ref());
    let uncordon =
        |name: &String| NodeStep::UncordonNode { node: name.clone(), reason: UncordonReason::RotationBlocked };
    cordoned.map(|node| uncordon(&node.name)).collect()
}

/// The rotation of a group that is rejected.
pub(crate) fn stop_rotation(
    request: &StopRequest,
    group: &ScalingGroup,
    members: &[NodeInstance],
    drains: &Drains,
    cluster_health: ClusterHealth,
    now: Timestamp,
) -> RollingUpdateDecision {
    let StopRequest { id, lock, settings, .. } = request;
    let reason = UncordonReason::GroupRejected;
    let stopped = Stopped { group, uid: &id.uid, lock: *lock, timing: &settings.timing, now, reason };
    decide_stop(&stopped, members, drains, cluster_health)
}

/// A group whose rotation stops.
struct Stopped<'a> {
    group: &'a ScalingGroup,
    uid: &'a str,
    lock: Option<&'a str>,
    timing: &'a Timing,
    now: Timestamp,
    /// The nodes still need to be replaced, so the event about their uncordoning names another cause.
    reason: UncordonReason,
}

/// Uncordons the nodes that the group cordoned. Instances in standby have a replacement already, so they are drained and
/// terminated as soon as it is Ready; budgets are respected without a timeout.
fn decide_stop(
    stopped: &Stopped,
    members: &[NodeInstance],
    drains: &Drains,
    cluster_health: ClusterHealth,
) -> RollingUpdateDecision {
    let Stopped { group, uid, lock, timing, now, reason } = *stopped;
    decide(&RollingUpdateInput {
        scaling_group: &group.name,
        group_uid: uid,
        template_version: group.template.as_ref().map_or("", |pin| &pin.version),
        members,
        desired: usize::try_from(group.desired).unwrap_or(0),
        max_unavailable: 1,
        max_unavailable_in_weight: false,
        max_surge: 0,
        candidates: Candidates::Surplus(0),
        uncordon_reason: reason,
        lock,
        rollout_block: None,
        allowance: None,
        warm_pool: WarmPoolRotation::Done,
        precondition: None,
        failed_replacements: None,
        failed_launch: None,
        unhealthy_stay: None,
        was_halted: false,
        join_timeout: SignedDuration::MAX,
        min_ready_time: timing.min_ready_time,
        drain_policy: DrainPolicy {
            timeout: None,
            timeout_since: None,
            at_timeout: AtTimeout::Uncordon,
            decrement_desired: false,
            dead_kubelet_after: timing.kubelet_timeout,
            volume_detach_timeout: timing.volume_detach_timeout,
            decrement_interval: timing.decrement_interval,
        },
        drains,
        cluster_health,
        now,
    })
}
