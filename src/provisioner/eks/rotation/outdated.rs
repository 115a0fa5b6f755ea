//! Decides which instances are outdated: compares each with the desired content.

use crate::api::InstanceGroupStatus;
use crate::aws::{Instance, TemplateData, TemplatePin};
use crate::plan::Drift;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::launch_template::drift;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::in_place::InPlaceComparison;
use crate::provisioner::eks::rotation::template_origin::{
    TemplateOrigin, is_of_other_template, launch_version, newest_adopted_version, pinned_version, recreation_drift,
    was_recreated,
};
use crate::provisioner::eks::scaling_group::subnets;
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;

/// The group's instances with their nodes and what is outdated about them.
pub(crate) fn members(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> Vec<NodeInstance> {
    let instances = state.scaling_group.iter().flat_map(|g| &g.instances);
    let mut comparison = InPlaceComparison::new(resolved, state, status);
    let member = |instance: &Instance| {
        let node = state.nodes.get(&instance.id).cloned();
        let mut reasons = launch_drift(resolved, state, status, instance);
        let others = other_drift(resolved, state, status, instance);
        let mut in_place = None;
        if others.is_empty()
            && let Some(difference) = comparison.compare(instance, node.as_ref())
        {
            (reasons, in_place) = (difference.outdated, difference.in_place);
        }
        reasons.extend(others);
        let lost_node = state.lost_nodes.get(&instance.id).cloned();
        let is_recorded_standby = status.managed.as_ref().is_some_and(|managed| managed.standby.contains(&instance.id));
        NodeInstance { node, lost_node, is_recorded_standby, reasons, in_place, instance: instance.clone() }
    };
    instances.map(member).collect()
}

/// Why an instance of the warm pool is to be replaced; empty when it is not. It has no node that could change in place.
pub(crate) fn warm_instance_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    instance: &Instance,
) -> Vec<Drift> {
    let mut reasons = launch_drift(resolved, state, status, instance);
    reasons.extend(other_drift(resolved, state, status, instance));
    reasons
}

/// How an instance differs from what the group launches now.
fn launch_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    instance: &Instance,
) -> Vec<Drift> {
    // What nodes should be like is not known, so none is known to differ.
    if resolved.broken.contains(Part::Launch) {
        return Vec::new();
    }
    let of_group = state.scaling_group.as_ref().and_then(launch_configuration::current_name);
    // The controller creates no launch configurations, so each one in use existed at the adoption.
    if let Some(name) = of_group.filter(|_| instance.launch_configuration.is_some()) {
        return launch_configuration::configuration_drift(resolved, state, status, name);
    }
    let desired = &resolved.fingerprint.hash;
    let other = instance.template.as_ref().filter(|pin| is_of_other_template(state, pin));
    let recorded = |pin: &TemplatePin| status.template.as_ref()?.hash_of_deleted(&pin.id, &pin.version);
    let is_gone = |number: &i64| !state.versions.contains_key(number);
    match launch_version(state, instance) {
        // A user deleted the template that the instance was launched from, and it has the desired content.
        None if other.and_then(recorded) == Some(desired) => Vec::new(),
        None => {
            let pin = instance.template.as_ref().map(|p| p.id.as_str());
            if let Some(id) = pin.filter(|id| was_recreated(state, status, id)) {
                return vec![recreation_drift(state, id)];
            }
            let from = pin.or(instance.launch_configuration.as_deref()).unwrap_or_default();
            let mut reasons = vec![Drift::new("template", from, own_template(state))];
            let launch_configuration =
                state.launch_configuration.as_ref().filter(|_| instance.launch_configuration.is_some());
            reasons.extend(
                launch_configuration.iter().flat_map(|data| drift::template_data_drift(data, &resolved.template_data)),
            );
            reasons
        }
        // A user deleted only the version.
        Some(number) if is_gone(&number) && instance.template.as_ref().and_then(recorded) == Some(desired) => {
            Vec::new()
        }
        Some(number) if TemplateOrigin::of_version(state, status, number).has_content(desired) => Vec::new(),
        Some(number) if newest_adopted_version(state, status, desired).is_some_and(|newest| number <= newest) => {
            Vec::new()
        }
        Some(number) => drift::version_drift(state.versions.get(&number), resolved),
    }
}

/// The template that the group's instances are launched from. The old one may be another tool's, or be gone.
fn own_template(state: &ObservedState) -> &str {
    state.template.as_ref().map_or("the group's own template", |template| template.id.as_str())
}

/// Why an instance is replaced whatever it was launched from: `rotate-at`, or its subnet leaves.
fn other_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    instance: &Instance,
) -> Vec<Drift> {
    let mut reasons = Vec::new();
    if let Some(at) = resolved.desired.rolling_update.rotate_at {
        // Launch times are read only after `rotate-at`: before it, even the newest node would count as outdated.
        if let Some(launched) = state.launch_times.get(&instance.id).filter(|t| **t < at) {
            reasons.push(Drift::new("rotate-at", launched, at));
        }
    }
    reasons.extend(subnets::instance_drift(resolved, state, status, instance));
    reasons
}

/// The hash of the version that the group launches now; `None` for a version that the controller did not create.
pub(crate) fn launched_hash(state: &ObservedState) -> Option<&String> {
    let version = state.versions.get(&pinned_version(state)?)?;
    version.fingerprint.as_ref().map(|own| &own.hash)
}

/// The content that the group launches now; `None` when it was not read.
pub(crate) fn current_launch_data(state: &ObservedState) -> Option<&TemplateData> {
    match state.scaling_group.as_ref().and_then(launch_configuration::current_name) {
        Some(_) => state.launch_configuration.as_ref(),
        None => state.versions.get(&pinned_version(state)?)?.data.as_ref(),
    }
}
