//! Blue and green: what EKS cannot change in place is had from a second node group. Its nodes become Ready, the others'
//! are drained, and then the others are deleted.

use super::input::Input;
use super::observed::{Group, differences};
use super::{create, health};
use crate::api::names::condition;
use crate::aws::InstanceState;
use crate::aws::nodegroup::{MaxUnavailable, NodegroupStatus};
use crate::plan::NodegroupStep;
use crate::plan::{Draft, NodeStep, Note, Outcome, Phase, Reason, waiting};
use crate::rotation::Member;
use crate::rotation::drain;
use crate::rotation::drain::{AtTimeout, DrainPolicy, Next};
use crate::rotation::rolling_update;
use crate::rotation::rolling_update::report::tell;
use crate::rotation::rolling_update::{Stand, Victims, decide};

/// Makes the second node group, as large as the ones that it stands for.
pub fn begin(input: &Input, others: &[&Group], draft: &mut Draft) {
    let Some(last) = others.last() else { return };
    let because = differences(input.resolved, &last.nodegroup);
    if others.iter().all(|group| group.nodegroup.status == NodegroupStatus::Deleting) {
        return create::nodegroup(input, None, draft);
    }
    let told: Vec<_> = because.iter().map(ToString::to_string).collect();
    if let Some(lock) = input.lock {
        super::update::tags(input, last, draft);
        if !super::observe::busy(last.nodegroup.status) {
            super::update::in_place(input, last, draft);
        }
        let nodes: usize = others.iter().map(|group| group.members.len()).sum();
        let message = format!("{nodes} nodes are outdated ({}), and {lock} holds them", told.join("; "));
        return draft.decide(Outcome::Locked { message });
    }
    if let Some(outcome) = health::unhealthy(input) {
        return draft.decide(outcome);
    }
    let stands = |group: &&&Group| group.nodegroup.status != NodegroupStatus::Deleting;
    let desired = others.iter().filter(stands).map(|group| group.desired()).max().unwrap_or_default();
    create::nodegroup(input, Some((desired, because)), draft);
}

/// The second node group could not be made, or its nodes do not come: the old ones stay.
pub fn halted(input: &Input, current: &Group, what: &str, draft: &mut Draft) {
    let message = format!(
        "the node group {} {what}: {}; the old nodes stay; correct the field, and another one is made",
        current.name().nodegroup,
        health::told(input, &current.nodegroup.issues)
    );
    draft.notes.push(Note {
        condition: condition::ROTATION_HALTED,
        status: true,
        reason: Reason::ReplacementsNotReady.to_string(),
        message: message.clone(),
    });
    draft.decide(Outcome::Blocked { reason: Reason::ReplacementsNotReady, message, deleting: false });
}

/// Drains the others once the current one stands, and deletes them when they are empty.
pub fn go_on(input: &Input, current: &Group, others: &[&Group], draft: &mut Draft) {
    let mut members = current.members.clone();
    members.extend(others.iter().flat_map(|group| leaving(input, group)));
    let old = members.len() - current.members.len();
    let mut decision = decide(&decision(input, current, &members, old));
    if others.is_empty() {
        return tell(&members, decision, 0, draft);
    }
    decision.steps.retain(|step| !matches!(step, NodeStep::Terminate { .. }));
    let begun = !decision.steps.is_empty() || marked(input, &members[current.members.len()..]);
    let waits = matches!(decision.stand, Stand::Idle | Stand::Going) && current.ready() < current.desired() && !begun;
    if waits && !current.nodegroup.issues.is_empty() {
        return halted(input, current, "has no nodes yet", draft);
    }
    if waits {
        return health::standing(input, current, draft);
    }
    if old > 0 || !decision.steps.is_empty() {
        return tell(&members, decision, 0, draft);
    }
    delete(input, current, others, draft);
}

fn marked(input: &Input, members: &[Member]) -> bool {
    members.iter().any(|m| m.mark(&input.resolved.wanted.id.uid).is_some())
}

/// The nodes of a node group that goes, without those that nothing holds any more: they stay, cordoned, until EKS
/// deletes the group.
fn leaving(input: &Input, group: &Group) -> Vec<Member> {
    if group.nodegroup.status == NodegroupStatus::Deleting {
        return Vec::new();
    }
    let uid = &input.resolved.wanted.id.uid;
    let policy = policy(input);
    let drained = |m: &Member| {
        let Some(node) = &m.node else { return true };
        let (Some(mark), Some(view)) = (m.mark(uid), input.state.drains.get(&node.name)) else { return false };
        matches!(drain::next(m, mark, view, &policy, input.now), Next::Terminate)
    };
    let goes = |m: &&Member| !matches!(m.instance.state, InstanceState::Terminating | InstanceState::Other);
    group.members.iter().filter(goes).filter(|m| input.lock.is_some() || !drained(m)).cloned().collect()
}

fn policy(input: &Input) -> DrainPolicy {
    let strategy = &input.resolved.wanted.strategy;
    DrainPolicy {
        timeout: strategy.drain_timeout,
        at_timeout: if strategy.drain_force { AtTimeout::Delete } else { AtTimeout::GiveUp },
        decrement: false,
        dead_after: input.timing.dead_kubelet,
        volumes_for: input.timing.volumes,
    }
}

fn decision<'a>(input: &'a Input, current: &'a Group, members: &'a [Member], old: usize) -> rolling_update::Input<'a> {
    let desired = usize::try_from(current.desired()).unwrap_or(0);
    let at_once = match input.resolved.wanted.max_unavailable {
        None => 1,
        Some(MaxUnavailable::Count(n)) => usize::try_from(n).unwrap_or(1),
        Some(MaxUnavailable::Percent(n)) => (desired * usize::try_from(n).unwrap_or(1)).div_ceil(100).max(1),
    };
    // Until every new node is Ready none of the old is touched.
    let ready = current.ready() >= current.desired();
    let began = marked(input, &members[current.members.len()..]);
    rolling_update::Input {
        group: &current.name().nodegroup,
        uid: &input.resolved.wanted.id.uid,
        version: &current.name().nodegroup,
        members,
        desired: desired + old,
        max_unavailable: if ready || began { at_once } else { 0 },
        in_units: false,
        max_surge: 0,
        victims: Victims::Outdated,
        lock: input.lock,
        obstacle: None,
        was_halted: was_halted(input),
        join_timeout: input.resolved.wanted.strategy.join_timeout,
        settle: input.timing.settle,
        drain: policy(input),
        drains: &input.state.drains,
        fleet: input.state.fleet,
        now: input.now,
    }
}

fn was_halted(input: &Input) -> bool {
    input.status.conditions.iter().any(|c| c.r#type == condition::ROTATION_HALTED && c.is_true())
}

/// Nothing but what stays runs on them.
fn delete(input: &Input, current: &Group, others: &[&Group], draft: &mut Draft) {
    if let Some(lock) = input.lock {
        let message = format!("the node group {} is empty, and {lock} holds it", others[0].name().nodegroup);
        return draft.decide(Outcome::Locked { message });
    }
    if let Some(outcome) = health::unhealthy(input) {
        return draft.decide(outcome);
    }
    for group in others {
        match group.nodegroup.status {
            NodegroupStatus::Deleting => {}
            NodegroupStatus::Creating | NodegroupStatus::Updating => {
                let message = format!("EKS works on the node group {}, which is then deleted", group.name().nodegroup);
                draft.decide(waiting(Phase::Rotating, message));
            }
            status => {
                if status == NodegroupStatus::DeleteFailed {
                    draft.decide(health::blocked(input, group));
                }
                let mut because = differences(input.resolved, &group.nodegroup);
                because.retain(|_| status != NodegroupStatus::DeleteFailed);
                draft.because(NodegroupStep::DeleteNodegroup { nodegroup: group.name().clone() }, because);
            }
        }
    }
    let names: Vec<_> = others.iter().map(|group| group.name().nodegroup.clone()).collect();
    let message = format!("{} serves; EKS deletes {}", current.name().nodegroup, names.join(", "));
    draft.decide(waiting(Phase::Rotating, message));
}
