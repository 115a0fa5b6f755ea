//! Determines who created what a scaling group launches from: a launch template version or a launch configuration.
//!
//! A resource of another controller or of a user has no hash of its inputs. It counts as up to date at its first
//! observation. The status then records the desired hash for it, so that a later change of the spec is noticed.

use crate::api::{InstanceGroupStatus, TemplateStatus};
use crate::aws::{Instance, TemplatePin};
use crate::plan::Drift;
use crate::provisioner::eks::observed::{ObservedState, version_number};

/// Who created a launch template version or launch configuration, and the content that it represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateOrigin {
    /// The controller created it from inputs with this hash.
    Created {
        /// SHA-256 of the inputs, in hex.
        hash: String,
    },
    /// It was adopted. It represents the inputs with this hash, which were desired at the adoption.
    Adopted {
        /// SHA-256 of the inputs, in hex; see `adoption_key` for launch configurations.
        hash: String,
    },
    /// It is in use and not recorded yet: the group is being adopted, or another controller managed it meanwhile.
    FirstObserved,
    /// Something else: it was set manually after the adoption, or nothing is known about it.
    Unknown,
}

impl TemplateOrigin {
    /// The origin of a version of the group's own template.
    pub(crate) fn of_version(state: &ObservedState, status: &InstanceGroupStatus, number: i64) -> TemplateOrigin {
        if let Some(own) = state.versions.get(&number).and_then(|version| version.fingerprint.as_ref()) {
            return TemplateOrigin::Created { hash: own.hash.clone() };
        }
        let version = number.to_string();
        if let Some(hash) = status.template.as_ref().and_then(|recorded| recorded.adopted_hash_of(&version)) {
            return TemplateOrigin::Adopted { hash: hash.to_owned() };
        }
        // Another controller writes `latestTemplateVersion`, and leaves `template` as it was.
        let is_latest = status.latest_template_version.as_ref() == Some(&version);
        let is_unrecorded = is_unrecorded(status)
            || is_latest && status.template.as_ref().is_some_and(|t| t.version.as_ref() != Some(&version));
        if is_unrecorded && pinned_version(state) == Some(number) {
            return TemplateOrigin::FirstObserved;
        }
        TemplateOrigin::Unknown
    }

    /// The origin of the launch configuration that the group launches from. The controller creates none.
    pub(crate) fn of_configuration(status: &InstanceGroupStatus, name: &str) -> TemplateOrigin {
        let Some(recorded) = status.template.as_ref().filter(|_| !is_unrecorded(status)) else {
            return TemplateOrigin::FirstObserved;
        };
        // Another controller records the name, and not the version next to it.
        let is_active = status.active_launch_configuration_name.as_deref() == Some(name);
        if is_active && recorded.version.as_deref() != Some(name) {
            return TemplateOrigin::FirstObserved;
        }
        match recorded.adopted_hash_of(name) {
            Some(hash) => TemplateOrigin::Adopted { hash: hash.to_owned() },
            None => TemplateOrigin::Unknown,
        }
    }

    /// Whether it is known to have the content with this hash.
    pub(crate) fn has_content(&self, desired_hash: &str) -> bool {
        match self {
            TemplateOrigin::Created { hash } | TemplateOrigin::Adopted { hash } => hash == desired_hash,
            TemplateOrigin::FirstObserved | TemplateOrigin::Unknown => false,
        }
    }

    /// Whether it counts as having the content with this hash, so that nothing is replaced.
    pub(crate) fn is_up_to_date(&self, desired_hash: &str) -> bool {
        self.has_content(desired_hash) || *self == TemplateOrigin::FirstObserved
    }
}

/// Whether no content is recorded yet, neither created nor adopted.
fn is_unrecorded(status: &InstanceGroupStatus) -> bool {
    status.template.as_ref().is_none_or(|t: &TemplateStatus| t.adopted_hash.is_none() && t.hash.is_none())
}

/// Whether the status may record the name of a launch configuration. It must not record one that a user set manually,
/// because that one would then count as set by another controller.
pub(crate) fn may_record_configuration(status: &InstanceGroupStatus, name: &str) -> bool {
    is_unrecorded(status)
        || status.active_launch_configuration_name.as_deref() == Some(name)
        || status.template.as_ref().is_some_and(|t| t.version.as_deref() == Some(name))
}

/// The newest adopted version that represents the content with this hash. Nodes of older versions date from the
/// previous controller and count as up to date too.
pub(crate) fn newest_adopted_version(
    state: &ObservedState,
    status: &InstanceGroupStatus,
    desired_hash: &str,
) -> Option<i64> {
    let pin = pinned_version(state)?;
    if TemplateOrigin::of_version(state, status, pin) == TemplateOrigin::FirstObserved {
        return Some(pin);
    }
    let recorded = status.template.as_ref().filter(|t| t.adopted_hash.as_deref() == Some(desired_hash))?;
    recorded.adopted_version.as_ref()?.parse().ok()
}

/// Whether the template with this ID was the group's own, and is gone: a client deleted it, and the controller made
/// another one or is about to.
pub(crate) fn was_recreated(state: &ObservedState, status: &InstanceGroupStatus, id: &str) -> bool {
    let recorded = status.template.as_ref();
    let deleted = recorded.and_then(|recorded| recorded.deleted.as_ref()).map(|deleted| deleted.id.as_str());
    let was_own = recorded.and_then(|recorded| recorded.id.as_deref()) == Some(id) || deleted == Some(id);
    was_own && state.template.as_ref().is_none_or(|template| template.id != id)
}

/// The difference between a template that is gone and the one that the controller made in its place.
pub(crate) fn recreation_drift(state: &ObservedState, id: &str) -> Drift {
    let to = match &state.template {
        Some(own) => format!("{} (made again, because {id} was gone)", own.id),
        None => "made again, because it was gone".to_owned(),
    };
    Drift::new("launch template", id, to)
}

/// The number of the version that the group is pinned to.
pub(crate) fn pinned_version(state: &ObservedState) -> Option<i64> {
    state.scaling_group.as_ref()?.template.as_ref().and_then(|pin| version_number(pin, state.template.as_ref()))
}

/// The version of the group's own template that an instance was launched from.
pub(super) fn launch_version(state: &ObservedState, instance: &Instance) -> Option<i64> {
    let pin = instance.template.as_ref().filter(|pin| !is_of_other_template(state, pin))?;
    version_number(pin, state.template.as_ref())
}

/// Whether a pin refers to another template than the group's own. Its version numbers are unrelated to this one.
pub(super) fn is_of_other_template(state: &ObservedState, pin: &TemplatePin) -> bool {
    state.template.as_ref().is_some_and(|t| t.id != pin.id && !pin.id.is_empty())
}
