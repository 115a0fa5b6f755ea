//! Groups that launch from a launch configuration.
//!
//! AWS has closed launch configurations, so none is made. One that is there
//! stays until something needs new nodes; then the scaling group goes over to a
//! launch template in place, and the configuration goes with its last instance.

pub mod migrate;

use super::input::PlanInput;
use super::launch_template::drift;
use super::observed::{ObservedState, ObservedVersion};
use super::resolve::ResolvedGroup;
use crate::api::{InstanceGroupStatus, TemplateStatus};
use crate::aws::ScalingGroup;
use crate::plan::Drift;

/// The launch configuration that the group launches from, if it does.
pub fn current_name(group: &ScalingGroup) -> Option<&str> {
    group.launch_configuration.as_deref().filter(|_| group.template.is_none())
}

/// Whether a name is one that a configuration of this scaling group has: the group's and a time stamp.
pub fn has_derived_name(group: &str, name: &str) -> bool {
    let stamp = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('-'));
    stamp.is_some_and(|stamp| !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What the group was taken over for: a launch configuration takes no mixed instances policy, so that counts too.
fn adoption_key(resolved: &ResolvedGroup) -> String {
    let policy = if resolved.desired.mixed_instances.is_some() { " mixed" } else { "" };
    format!("{}{policy}", resolved.fingerprint.hash)
}

/// Whether the group still launches from the configuration that it was taken over with, for what was wanted then.
pub fn matches_adoption(resolved: &ResolvedGroup, status: &InstanceGroupStatus, name: &str) -> bool {
    let key = adoption_key(resolved);
    let same = |t: &TemplateStatus| t.adopted_version.as_deref() == Some(name) && t.adopted_hash.as_ref() == Some(&key);
    status.template.as_ref().is_some_and(same)
}

/// The group launches from a configuration that is seen for the first time after another controller has led in between:
/// that one tells its name, and not what stands beside it.
fn set_by_other_controller(status: &InstanceGroupStatus, name: &str) -> bool {
    let told = status.active_launch_configuration_name.as_deref() == Some(name);
    told && status.template.as_ref().is_some_and(|t| t.version.as_deref() != Some(name))
}

/// Whether the status may tell the name: not that of a configuration which somebody has put there by hand, and which
/// would then count as another controller's.
pub fn may_record_name(status: &InstanceGroupStatus, name: &str) -> bool {
    let unseen = status.template.as_ref().is_none_or(|t| t.adopted_hash.is_none() && t.hash.is_none());
    unseen
        || status.active_launch_configuration_name.as_deref() == Some(name)
        || status.template.as_ref().is_some_and(|t| t.version.as_deref() == Some(name))
}

/// What the group's configuration does not give its nodes; empty while it is what was taken over.
pub fn configuration_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    name: &str,
) -> Vec<Drift> {
    let template = status.template.as_ref();
    let taken_over = template.is_some_and(|t| t.adopted_hash.is_some() || t.hash.is_some());
    let found = || ObservedVersion { fingerprint: None, data: state.launch_configuration.clone() };
    if taken_over && !matches_adoption(resolved, status, name) && !set_by_other_controller(status, name) {
        return drift::version_drift(Some(&found()), resolved);
    }
    let Some(at) = resolved.desired.rolling_update.rotate_at else { return Vec::new() };
    if !state.launch_times.values().any(|launched| *launched < at) {
        return Vec::new();
    }
    let mut because = vec![Drift::new("rotate-at", "", at)];
    because.extend(
        state.launch_configuration.iter().flat_map(|data| drift::template_data_drift(data, &resolved.template_data)),
    );
    because
}

/// The configurations of this group that are recorded: the one in use, and those that are left to be deleted.
pub fn recorded_configurations(input: &PlanInput) -> Vec<String> {
    let mut names = input.status.managed.as_ref().map(|m| m.configurations.clone()).unwrap_or_default();
    let in_use = input
        .observed
        .scaling_group
        .as_ref()
        .and_then(current_name)
        .filter(|name| has_derived_name(&input.resolved.names.scaling_group, name));
    names.extend(in_use.filter(|name| !names.iter().any(|n| n == name)).map(str::to_owned));
    names.sort();
    names
}
