//! Whether a scaling group can follow `$Latest` again, as keikoproj/instance-manager expects it.

use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::rotation::outdated;
use crate::api::InstanceGroupStatus;
use crate::ownership::has_ownership_tags;
use crate::provisioner::Release;
use crate::provisioner::rejected_fields::Part;

/// Decides for one group what a release has to change. Pure.
pub fn release(resolved: &ResolvedGroup, state: &ObservedState, status: &InstanceGroupStatus) -> Release {
    let Some(group) =
        state.scaling_group.as_ref().filter(|group| has_ownership_tags(&group.tags, &resolved.ownership_tags))
    else {
        return Release::NotNeeded("has no scaling group of its own");
    };
    let Some(pin) = &group.template else { return Release::NotNeeded("is not pinned to a launch template") };
    let uid = &resolved.desired.id.uid;
    let members = outdated::members(resolved, state, status);
    let rotating = members.iter().find(|m| {
        !m.reasons.is_empty()
            || m.disruption_of(uid).is_some()
            || m.has_surge_record(uid)
            || m.instance.state.is_standby()
    });
    if let Some(member) = rotating {
        return Release::RotationInProgress(member.instance.id.clone());
    }
    let Some(number) = pin.version_number() else { return Release::NotNeeded("follows $Latest already") };
    // Which nodes are outdated is not known while one of these fields cannot be used.
    if let Some((reason, message)) = resolved.broken.problem_of(&[Part::Launch, Part::Subnets, Part::Rotation]) {
        return Release::Skipped(format!("{reason}: {message}"));
    }
    match state.template.as_ref().filter(|template| template.id == pin.id).map(|template| template.latest_version) {
        None => Release::NotNeeded("refers to a launch template that is not its own"),
        Some(latest) if latest != number => Release::PinnedToOlderVersion { number, latest },
        Some(_) => Release::FollowLatest { template: pin.id.clone(), number, mixed: group.mixed.clone() },
    }
}
