//! What a rotation waits for before it takes the next node, by name. Times are absolute, so that a wait costs no writes.

use jiff::SignedDuration;

use super::types::{Candidates, RollingUpdateInput};
use crate::api::rfc3339;
use crate::aws::InstanceState;
use crate::plan::NodeStep;
use crate::rotation::members::{AUTOSCALER_TAINT, NodeInstance};
use crate::util::duration::{self, later};

/// How many members a message names.
const MAX_NAMED: usize = 5;

/// The members that are not available, with what each of them waits for; phrases that follow "waiting for".
/// `steps` are those of this pass.
pub(super) fn for_availability(input: &RollingUpdateInput, unavailable: usize, steps: &[NodeStep]) -> Vec<String> {
    let begins_drain = |member: &&NodeInstance| {
        for_member(input, member).is_none() && steps.iter().any(|step| is_cordon_of(step, member))
    };
    let drained = |member: &NodeInstance| format!("{} to be drained", member.describe());
    let mut waits: Vec<_> = input.members.iter().filter_map(|member| for_member(input, member)).collect();
    waits.extend(input.members.iter().filter(begins_drain).map(drained));
    let exists = |m: &&NodeInstance| m.instance.state != InstanceState::Terminating;
    let existing: usize = input.members.iter().filter(exists).map(NodeInstance::weight).sum();
    if existing < input.desired {
        waits.push(format!("Auto Scaling to launch instances: {} missing", input.desired - existing));
    }
    shorten(&mut waits);
    if waits.is_empty() {
        waits.push(format!("nodes to be available: {unavailable} of {} are not", input.desired));
    }
    waits.iter_mut().last().into_iter().for_each(|last| {
        *last += &format!(" (maxUnavailable is {})", input.max_unavailable);
    });
    waits
}

fn is_cordon_of(step: &NodeStep, member: &NodeInstance) -> bool {
    matches!(step, NodeStep::CordonNode { instance, .. } if *instance == member.instance.id)
}

/// Keeps the first phrases, and says how many others there are.
fn shorten(waits: &mut Vec<String>) {
    let others = waits.len().saturating_sub(MAX_NAMED);
    if others > 0 {
        waits.truncate(MAX_NAMED);
        waits.push(format!("{others} others"));
    }
}

/// For how long the Cluster Autoscaler may work on a node before a message doubts that it does. By its defaults it evicts
/// for 2 minutes, gives pods 10 minutes to end, and waits 5 minutes for the cloud. When it starts, it removes taints that an
/// earlier process left.
const AUTOSCALER_TIME: SignedDuration = SignedDuration::from_mins(30);

/// What is said of a node that the Cluster Autoscaler drains. The controller does not take the node from it, however long
/// that lasts: AWS would terminate another node for a second termination.
pub(super) fn for_autoscaler(input: &RollingUpdateInput, member: &NodeInstance) -> String {
    let since = member.node.as_ref().and_then(|node| node.autoscaler_since);
    let remedy = match since.filter(|since| input.now.duration_since(*since) >= AUTOSCALER_TIME) {
        None => String::new(),
        Some(since) => format!(
            " (since {}; if it no longer does, start it, or remove the taint {AUTOSCALER_TAINT} from the node)",
            rfc3339(since)
        ),
    };
    format!("{}, which the Cluster Autoscaler drains, to terminate{remedy}", member.describe())
}

/// What is said of an instance that may have entered standby, which AWS does not show yet.
pub(super) fn for_standby(member: &NodeInstance) -> String {
    format!("AWS to show whether {} is in standby", member.describe())
}

/// What the rotation waits for at this member; `None` when it is available.
pub(super) fn for_member(input: &RollingUpdateInput, member: &NodeInstance) -> Option<String> {
    let (id, name) = (&member.instance.id, member.describe());
    match (member.instance.state, &member.node) {
        (InstanceState::Pending, _) => Some(format!("{id} to enter service")),
        (InstanceState::Terminating, None) => Some(format!("{id} to terminate")),
        (InstanceState::Terminating, Some(_)) => Some(format!("{name} to terminate")),
        (InstanceState::InService, Some(node)) if node.cordoned => Some(match member.disruption_of(input.group_uid) {
            Some(_) => format!("{name} to be drained"),
            None => format!("{name}, which another client cordoned, to be uncordoned"),
        }),
        (InstanceState::InService, Some(node)) if node.is_removed_by_autoscaler => Some(for_autoscaler(input, member)),
        (InstanceState::InService, Some(node)) if node.ready && !member.instance.healthy => {
            let why = input.unhealthy_stay.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            Some(format!("{name}, which Auto Scaling reports as Unhealthy, to be terminated{why}"))
        }
        (InstanceState::InService, Some(node)) if node.ready => {
            let is_new = member.reasons.is_empty() && input.candidates == Candidates::Outdated;
            let since = node.ready_changed_at.filter(|_| is_new)?;
            (input.now.duration_since(since) < input.min_ready_time).then(|| {
                let until = rfc3339(later(since, input.min_ready_time));
                format!("{name} to stay Ready until {until}")
            })
        }
        (InstanceState::InService, Some(node)) if node.has_become_unready() => {
            let since = node.ready_changed_at.map_or_else(String::new, |at| format!(" since {}", rfc3339(at)));
            Some(match node.kubelet_silent {
                true => format!("{name}, whose kubelet has been silent{since}, to be Ready again"),
                false => format!("{name}, which has been NotReady{since}, to be Ready again"),
            })
        }
        (InstanceState::InService, None) if let Some(lost) = &member.lost_node => {
            let at = rfc3339(lost.since);
            Some(format!("{id}, whose Node {} was deleted at {at}, to join again", lost.name))
        }
        (InstanceState::InService, node) => {
            let what = if node.is_some() { "to become Ready" } else { "to join" };
            let limit = duration::format(input.join_timeout);
            let since = member.instance.in_service_since;
            let since = since.map_or_else(String::new, |at| format!("in service since {}, ", rfc3339(at)));
            Some(format!("{name} {what} ({since}at most {limit})"))
        }
        (InstanceState::EnteringStandby | InstanceState::Standby | InstanceState::Warmed | InstanceState::Other, _) => {
            None
        }
    }
}
