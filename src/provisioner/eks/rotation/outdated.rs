//! What is outdated: the pinned version, and each instance, compared with what is wanted.

use crate::api::InstanceGroupStatus;
use crate::aws::{Instance, TemplateData, TemplatePin};
use crate::plan::Drift;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::launch_template::drift;
use crate::provisioner::eks::observed::{State, number};
use crate::provisioner::eks::resolve::Resolved;
use crate::rotation::Member;

/// How the pinned version relates to the wanted one.
#[derive(Clone, Debug, PartialEq)]
pub enum Pinned {
    /// It holds what is wanted.
    Current {
        /// Its number.
        number: i64,
        /// The group says `$Latest` rather than the number.
        floating: bool,
    },
    /// A retained version holds what is wanted.
    Repin {
        /// Its number.
        number: i64,
        /// Why.
        because: Vec<Drift>,
    },
    /// No version holds what is wanted.
    New {
        /// Why.
        because: Vec<Drift>,
    },
}

/// The hash that a version stands for: its own, or the one recorded when it was taken over.
pub fn version_hash(state: &State, status: &InstanceGroupStatus, number: i64) -> Option<String> {
    let own = state.versions.get(&number).and_then(|v| v.fingerprint.as_ref()).map(|f| f.hash.clone());
    own.or_else(|| {
        let t = status.template.as_ref()?;
        (t.adopted_version.as_deref()? == number.to_string()).then(|| t.adopted_hash.clone()).flatten()
    })
}

/// Compares the pinned version with what is wanted.
pub fn pinned(resolved: &Resolved, state: &State, status: &InstanceGroupStatus, pin: &TemplatePin) -> Pinned {
    let wanted = &resolved.fingerprint.hash;
    let Some(current) = number(pin, state.template.as_ref()) else {
        return Pinned::New { because: vec![Drift::new("template", &pin.version, "a version of ours")] };
    };
    let hash = version_hash(state, status, current);
    let same = match &hash {
        Some(hash) => hash == wanted,
        // A version without any hash was made by the original: by definition up to date when it is first seen.
        None => adopting(state, status, current),
    };
    if same {
        if let Some(because) = asked_for(resolved, state, current) {
            return Pinned::New { because };
        }
        return Pinned::Current { number: current, floating: pin.number().is_none() };
    }
    let because = drift::versions(state.versions.get(&current), resolved);
    let retained = state.versions.keys().rev().find(|n| version_hash(state, status, **n).as_ref() == Some(wanted));
    match retained {
        Some(number) => Pinned::Repin { number: *number, because },
        None => Pinned::New { because },
    }
}

/// `rotate-at` replaces nodes of a version that was taken over: what differs in it arrives with the replacements.
fn asked_for(resolved: &Resolved, state: &State, current: i64) -> Option<Vec<Drift>> {
    let at = resolved.wanted.strategy.rotate_at?;
    let version = state.versions.get(&current).filter(|v| v.fingerprint.is_none())?;
    let data = version.data.as_ref().filter(|d| **d != resolved.data)?;
    state.launched.values().find(|launched| **launched < at)?;
    let mut because = vec![Drift::new("rotate-at", "", at)];
    because.extend(drift::data_fields(data, &resolved.data));
    Some(because)
}

/// The group's instances with their nodes and what is outdated about them.
pub fn members(resolved: &Resolved, state: &State, status: &InstanceGroupStatus) -> Vec<Member> {
    let instances = state.group.iter().flat_map(|g| &g.instances);
    instances
        .map(|instance| Member {
            node: state.nodes.get(&instance.id).cloned(),
            outdated: outdated(resolved, state, status, instance),
            instance: instance.clone(),
        })
        .collect()
}

/// Why an instance of the group or of its warm pool is to be replaced; empty when it is not.
pub fn outdated(resolved: &Resolved, state: &State, status: &InstanceGroupStatus, instance: &Instance) -> Vec<Drift> {
    let of_group = state.group.as_ref().and_then(launch_configuration::of);
    // None is made any more: every one that an instance runs was there at the takeover.
    if let Some(name) = of_group.filter(|_| instance.configuration.is_some()) {
        return rotate_at(resolved, state, instance, launch_configuration::differences(resolved, state, status, name));
    }
    let wanted = &resolved.fingerprint.hash;
    // A version of another template is another thing, whatever its number.
    let other = |pin: &&TemplatePin| state.template.as_ref().is_some_and(|t| t.id != pin.id && !pin.id.is_empty());
    let pin = instance.template.as_ref();
    let found = pin.filter(|pin| !other(pin)).and_then(|pin| number(pin, state.template.as_ref()));
    let because = match found {
        None => {
            let from = pin.map(|p| p.id.as_str()).or(instance.configuration.as_deref()).unwrap_or_default();
            let mut because = vec![Drift::new("template", from, "a version of this group's own template")];
            let held = state.configuration.as_ref().filter(|_| instance.configuration.is_some());
            because.extend(held.iter().flat_map(|data| drift::data_fields(data, &resolved.data)));
            because
        }
        Some(number) if version_hash(state, status, number).as_ref() == Some(wanted) => Vec::new(),
        Some(number) if taken_over(resolved, state, status).is_some_and(|newest| number <= newest) => Vec::new(),
        Some(number) => drift::versions(state.versions.get(&number), resolved),
    };
    rotate_at(resolved, state, instance, because)
}

/// Adds that `rotate-at` asks for it.
fn rotate_at(resolved: &Resolved, state: &State, instance: &Instance, mut because: Vec<Drift>) -> Vec<Drift> {
    if let Some(at) = resolved.wanted.strategy.rotate_at {
        // Launch times are looked at once that moment has come: until then every node would be outdated, the newest too.
        if let Some(launched) = state.launched.get(&instance.id).filter(|t| **t < at) {
            because.push(Drift::new("rotate-at", launched, at));
        }
    }
    because
}

/// The version that the group is pinned to is nobody's of ours, and is seen for the first time: at the takeover, or after
/// another controller has led in between, which writes `latestTemplateVersion` and not what stands beside it.
fn adopting(state: &State, status: &InstanceGroupStatus, number_of: i64) -> bool {
    let latest = status.latest_template_version.as_ref().filter(|latest| **latest == number_of.to_string());
    let unseen = status.template.as_ref().is_none_or(|t| match (&t.adopted_hash, &t.hash) {
        (None, None) => true,
        (Some(_), _) | (_, Some(_)) => latest.is_some() && t.version.as_ref() != latest,
    });
    unseen && pinned_number(state) == Some(number_of)
}

/// The newest version that was taken over, while what was wanted then still is: nodes of older ones were left by the
/// controller before, and are up to date as well.
fn taken_over(resolved: &Resolved, state: &State, status: &InstanceGroupStatus) -> Option<i64> {
    let pin = pinned_number(state)?;
    if version_hash(state, status, pin).is_none() && adopting(state, status, pin) {
        return Some(pin);
    }
    let recorded = status.template.as_ref().filter(|t| t.adopted_hash.as_ref() == Some(&resolved.fingerprint.hash))?;
    recorded.adopted_version.as_ref()?.parse().ok()
}

/// What the group launches now, as far as it was read.
pub fn launched(state: &State) -> Option<&TemplateData> {
    match state.group.as_ref().and_then(launch_configuration::of) {
        Some(_) => state.configuration.as_ref(),
        None => state.versions.get(&pinned_number(state)?)?.data.as_ref(),
    }
}

/// The number of the version that the group is pinned to.
pub fn pinned_number(state: &State) -> Option<i64> {
    state.group.as_ref()?.template.as_ref().and_then(|pin| number(pin, state.template.as_ref()))
}
