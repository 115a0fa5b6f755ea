//! Compares the launch template version that the scaling group is pinned to with the desired content.

use super::drift;
use crate::api::InstanceGroupStatus;
use crate::aws::{TemplateData, TemplatePin};
use crate::plan::Drift;
use crate::provisioner::eks::observed::{ObservedState, version_number};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::template_origin::TemplateOrigin;

/// How the pinned version relates to the desired content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PinState {
    /// The pinned version has the desired content.
    Current {
        /// The version number.
        number: i64,
        /// The group is pinned to `$Latest` or `$Default` instead of the number.
        follows_latest: bool,
    },
    /// A retained version has the desired content.
    Repin {
        /// The version number.
        number: i64,
        /// Why the pin changes.
        reasons: Vec<Drift>,
    },
    /// No version has the desired content.
    New {
        /// Why the pin changes.
        reasons: Vec<Drift>,
    },
}

/// Compares the pinned version with the desired content.
pub(crate) fn pin_state(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    pin: &TemplatePin,
) -> PinState {
    let desired = &resolved.fingerprint.hash;
    let Some(current) = version_number(pin, state.template.as_ref()) else {
        return PinState::New {
            reasons: vec![Drift::new("template", &pin.version, "a version of this group's template")],
        };
    };
    if TemplateOrigin::of_version(state, status, current).is_up_to_date(desired) {
        if let Some(reasons) = rotate_at_drift(resolved, state, current) {
            return PinState::New { reasons };
        }
        return PinState::Current { number: current, follows_latest: pin.version_number().is_none() };
    }
    let reasons = drift::version_drift(state.versions.get(&current), resolved);
    let retained =
        state.versions.keys().rev().find(|n| TemplateOrigin::of_version(state, status, **n).has_content(desired));
    match retained {
        Some(number) => PinState::Repin { number: *number, reasons },
        None => PinState::New { reasons },
    }
}

/// The reasons for a new version when `rotate-at` replaces nodes. The replacements apply the differences of an adopted
/// version, and corrections of user data by a newer release of the controller.
fn rotate_at_drift(resolved: &ResolvedGroup, state: &ObservedState, current: i64) -> Option<Vec<Drift>> {
    let at = resolved.desired.rolling_update.rotate_at?;
    let version = state.versions.get(&current)?;
    let desired = &resolved.template_data;
    let differs = |data: &&TemplateData| match version.fingerprint {
        None => **data != *desired,
        Some(_) => data.user_data != desired.user_data,
    };
    let data = version.data.as_ref().filter(differs)?;
    state.launch_times.values().find(|launched| **launched < at)?;
    let mut reasons = vec![Drift::new("rotate-at", "", at)];
    match version.fingerprint {
        None => reasons.extend(drift::template_data_drift(data, desired)),
        Some(_) => reasons.push(Drift::new("userData", "as an earlier release rendered it", "as rendered now")),
    }
    Some(reasons)
}
