//! Which launch template version the scaling group is pinned to, new versions, and versions to delete.

use std::collections::BTreeSet;

use super::create::{self, TemplateContribution};
use super::pin_state::{PinState, pin_state};
use crate::aws::{Instance, ScalingGroup, TemplatePin};
use crate::plan::{Drift, EksStep, Pin, PlanBuilder, PlannedStep};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed;
use crate::provisioner::eks::{adopt, launch_configuration, warm_pool};
use crate::provisioner::recreated::recreated;

/// Maximum number of versions in one DeleteLaunchTemplateVersions (EC2 API reference).
const MAX_DELETED_VERSIONS: usize = 200;

/// Compares the pinned version with the spec and returns what has to change, if anything.
pub(crate) fn plan_template(
    input: &PlanInput,
    group: &ScalingGroup,
    builder: &mut PlanBuilder,
) -> TemplateContribution {
    let r = input.resolved;
    let Some(pin) = &group.template else {
        return launch_configuration::migrate::keep_or_migrate(input, group, builder);
    };
    let id = pin.id.clone();
    if input.observed.template.as_ref().is_some_and(|t| !t.id.eq(&id)) || input.observed.template.is_none() {
        // The template that the group refers to is gone, or is not this group's: create the group's own again.
        return create::ensure_version(input, builder).map(TemplateContribution::from).unwrap_or_default();
    }
    match pin_state(r, input.observed, input.status, pin) {
        PinState::Current { number, follows_latest } => {
            record_version(input, &id, number, builder);
            let pin = follows_latest.then_some(Pin::Version { template: id, number });
            TemplateContribution { pin, ..TemplateContribution::default() }
        }
        PinState::Repin { number, reasons } => {
            builder.set_status("latestTemplateVersion", number.to_string());
            TemplateContribution {
                pin: Some(Pin::Version { template: id, number }),
                repin_reasons: Some(reasons),
                ..TemplateContribution::default()
            }
        }
        PinState::New { reasons } => {
            builder.events.extend(create::launch_warnings(r));
            let recorded = input.status.template.as_ref().and_then(|recorded| recorded.version.as_deref());
            if recorded == Some(pin.version.as_str()) && is_version_deleted(input, recorded) {
                let what = format!("version {} of the launch template {}", pin.version, pin.id);
                builder.events.push(recreated(&what, "DeleteLaunchTemplateVersions", ""));
            }
            new_version(input, &id, pin, reasons)
        }
    }
}

fn new_version(input: &PlanInput, id: &str, pin: &TemplatePin, reasons: Vec<Drift>) -> TemplateContribution {
    let version = create::new_version(input, input.observed.template.as_ref());
    let delete = |numbers: &[i64]| EksStep::DeleteTemplateVersions { template: id.into(), numbers: numbers.to_vec() };
    TemplateContribution {
        pin: Some(Pin::Made { hash: input.resolved.fingerprint.hash.clone() }),
        repin_reasons: None,
        steps: vec![PlannedStep::new(EksStep::PutTemplateVersion { template: id.into(), version }, reasons)],
        cleanup: unused_versions(input, pin).chunks(MAX_DELETED_VERSIONS).map(|unused| delete(unused).into()).collect(),
    }
}

/// Versions that no instance, pin or record uses, beyond those to retain.
fn unused_versions(input: &PlanInput, pin: &TemplatePin) -> Vec<i64> {
    let Some(template) = &input.observed.template else { return Vec::new() };
    // The instances of a foreign warm pool are not read, so their versions are unknown. A scaling group of others may refer to
    // any version, and launches nothing without it.
    if warm_pool::is_foreign(input) || input.observed.template_users.contains_key(&template.id) {
        return Vec::new();
    }
    let mut used: BTreeSet<i64> = [template.default_version, template.latest_version].into();
    used.extend(observed::version_number(pin, Some(template)));
    let recorded = input.status.template.as_ref();
    used.extend(recorded.and_then(|t| t.last_ready_version.as_ref()).and_then(|v| v.parse::<i64>().ok()));
    used.extend(instances(input).filter_map(|i| observed::version_number(i.template.as_ref()?, Some(template))));
    let unused: Vec<_> = input.observed.versions.keys().rev().filter(|n| !used.contains(n)).copied().collect();
    unused.into_iter().skip(input.config_retention).collect()
}

/// The instances of the group and of its warm pool.
fn instances<'a>(input: &'a PlanInput) -> impl Iterator<Item = &'a Instance> {
    let warm = input.observed.warm_instances.iter().flatten().map(|w| &w.instance);
    input.observed.scaling_group.iter().flat_map(|g| &g.instances).chain(warm)
}

/// Whether the recorded version of the group's template is gone, although instances run it: those in use are read.
fn is_version_deleted(input: &PlanInput, recorded: Option<&str>) -> bool {
    let number: Option<i64> = recorded.and_then(|version| version.parse().ok());
    let template = input.status.template.as_ref().and_then(|recorded| recorded.id.as_deref());
    // The versions of a template that is gone have the same numbers.
    let is_own = |pin: &&TemplatePin| pin.id.is_empty() || template == Some(pin.id.as_str());
    let is_used = |number: &i64| {
        let pins = instances(input).filter_map(|instance| instance.template.as_ref()).filter(is_own);
        pins.filter_map(TemplatePin::version_number).any(|version| version == *number)
    };
    number.is_some_and(|number| is_used(&number) && !input.observed.versions.contains_key(&number))
}

fn record_version(input: &PlanInput, id: &str, number: i64, builder: &mut PlanBuilder) {
    let r = input.resolved;
    let old = input.status.template.clone().unwrap_or_default();
    let version = Some(number.to_string());
    let mut new = old.clone();
    let is_other = old.id.as_deref().is_some_and(|old| old != id);
    if is_other || old.version != version && is_version_deleted(input, old.version.as_deref()) {
        new.deleted = old.as_deleted();
    }
    let is_deleted = |pin: &&TemplatePin| {
        new.deleted.as_ref().is_some_and(|deleted| (&deleted.id, &deleted.version) == (&pin.id, &pin.version))
    };
    if !instances(input).filter_map(|instance| instance.template.as_ref()).any(|pin| is_deleted(&pin)) {
        new.deleted = None;
    }
    (new.id, new.version) = (Some(id.to_owned()), version.clone());
    new.default_volume.clone_from(&r.desired.default_volume);
    let own = input.observed.versions.get(&number).and_then(|v| v.fingerprint.as_ref());
    match own {
        Some(print) => new.hash = Some(print.hash.clone()),
        None => {
            new.hash = Some(r.fingerprint.hash.clone());
            new.adopted_hash = Some(r.fingerprint.hash.clone());
            new.adopted_version = version.clone();
        }
    }
    builder.set_status("latestTemplateVersion", version);
    if new != old && own.is_none() {
        adopt::adopt_group(input, &adopt::AdoptionSource::from_version(input, number), &new, builder);
    }
    builder.set_status("template", new);
}
