//! Whether a scaling group can follow `$Latest` again, as the controller before this one left it.

use super::observed::State;
use super::resolve::Resolved;
use super::rotation::outdated;
use crate::api::InstanceGroupStatus;
use crate::aws::InstanceState;
use crate::ownership::owned;
use crate::provisioner::Handback;

/// Judges one group. Pure.
pub fn handback(resolved: &Resolved, state: &State, status: &InstanceGroupStatus) -> Handback {
    let Some(group) = state.group.as_ref().filter(|group| owned(&group.tags, &resolved.ownership)) else {
        return Handback::Nothing("has no scaling group of its own");
    };
    let Some(pin) = &group.template else { return Handback::Nothing("is not pinned to a launch template") };
    let uid = &resolved.wanted.id.uid;
    let members = outdated::members(resolved, state, status);
    let busy = members.iter().find(|m| {
        !m.outdated.is_empty() || m.mark(uid).is_some() || m.surged(uid) || m.instance.state == InstanceState::Standby
    });
    if let Some(member) = busy {
        return Handback::Rotating(member.instance.id.clone());
    }
    let Some(number) = pin.number() else { return Handback::Nothing("follows $Latest already") };
    match state.template.as_ref().filter(|template| template.id == pin.id).map(|template| template.latest_version) {
        None => Handback::Nothing("refers to a launch template that is not its own"),
        Some(latest) if latest != number => Handback::Older { number, latest },
        Some(_) => Handback::Follow { template: pin.id.clone(), number, mixed: group.mixed.clone() },
    }
}
