//! Groups that launch from a launch configuration.
//!
//! AWS allows no new launch configurations, so the controller creates none. An existing one stays until a change needs
//! new nodes. Then the scaling group migrates to a launch template in place, and the configuration is deleted with its
//! last instance.

pub(crate) mod migrate;

use super::input::PlanInput;
use super::launch_template::drift;
use super::observed::{ObservedState, ObservedVersion};
use super::resolve::ResolvedGroup;
use super::rotation::template_origin::TemplateOrigin;
use crate::api::InstanceGroupStatus;
use crate::aws::ScalingGroup;
use crate::plan::Drift;

/// The launch configuration that the scaling group launches from; `None` when it uses a launch template.
pub(crate) fn current_name(group: &ScalingGroup) -> Option<&str> {
    group.launch_configuration.as_deref().filter(|_| group.template.is_none())
}

/// Whether a name is derived from this scaling group: the group's name and a timestamp.
pub(crate) fn has_derived_name(group: &str, name: &str) -> bool {
    let stamp = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('-'));
    stamp.is_some_and(|stamp| !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Identifies the content that was desired at the adoption. A launch configuration takes no mixed instances policy, so
/// the key includes whether one is desired.
fn adoption_key(resolved: &ResolvedGroup) -> String {
    let policy = if resolved.desired.mixed_instances.is_some() { " mixed" } else { "" };
    format!("{}{policy}", resolved.fingerprint.hash)
}

/// Whether the group still launches from the adopted configuration, and the desired content has not changed since.
pub(crate) fn matches_adoption(resolved: &ResolvedGroup, status: &InstanceGroupStatus, name: &str) -> bool {
    TemplateOrigin::of_configuration(status, name).has_content(&adoption_key(resolved))
}

/// Why the group's configuration is outdated; empty while it is the adopted one.
pub(crate) fn configuration_drift(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    name: &str,
) -> Vec<Drift> {
    if !TemplateOrigin::of_configuration(status, name).is_up_to_date(&adoption_key(resolved)) {
        let found = ObservedVersion::new(None, state.launch_configuration.clone());
        return drift::version_drift(Some(&found), resolved);
    }
    let Some(at) = resolved.desired.rolling_update.rotate_at else { return Vec::new() };
    if !state.launch_times.values().any(|launched| *launched < at) {
        return Vec::new();
    }
    let mut reasons = vec![Drift::new("rotate-at", "", at)];
    reasons.extend(
        state.launch_configuration.iter().flat_map(|data| drift::template_data_drift(data, &resolved.template_data)),
    );
    reasons
}

/// The configurations of this group to record: the one in use, and unused ones that are not deleted yet.
pub(crate) fn recorded_configurations(input: &PlanInput) -> Vec<String> {
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
