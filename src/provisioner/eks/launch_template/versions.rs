//! The group's launch template: the version it is pinned to, a new one, and those that nothing uses any more.

use std::collections::BTreeSet;

use serde_json::json;

use crate::aws::{NewVersion, ScalingGroup, ScalingGroupChange, TemplatePin};
use crate::plan::{Drift, PlanBuilder};
use crate::plan::{EksStep, Pin};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::observed;
use crate::provisioner::eks::rotation::outdated;
use crate::provisioner::eks::rotation::outdated::PinState;
use crate::provisioner::eks::{adopt, create, launch_configuration, warm_pool};

/// Compares the pinned version with what is wanted, and answers what the group shall be pinned to, if to anything else.
pub fn plan_template(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) -> Option<Pin> {
    let r = input.resolved;
    let Some(pin) = &group.template else { return launch_configuration::migrate::keep_or_migrate(input, group, draft) };
    let id = pin.id.clone();
    if input.observed.template.as_ref().is_some_and(|t| !t.id.eq(&id)) || input.observed.template.is_none() {
        return replace_template(input, draft);
    }
    match outdated::pin_state(r, input.observed, input.status, pin) {
        PinState::Current { number, follows_latest } => {
            record_version(input, &id, number, draft);
            follows_latest.then_some(Pin::Version { template: id, number })
        }
        PinState::Repin { number, reasons } => {
            draft.status_update.fields.insert("latestTemplateVersion".into(), json!(number.to_string()));
            draft.push_with_reasons(
                EksStep::UpdateGroup {
                    group: group.name.clone(),
                    change: ScalingGroupChange::default(),
                    pin: Some(Pin::Version { template: id, number }),
                },
                reasons,
            );
            None
        }
        PinState::New { reasons } => {
            new_version(input, &id, pin, reasons, draft);
            Some(Pin::Made { hash: r.fingerprint.hash.clone() })
        }
    }
}

/// The group refers to a template that is gone or is not ours by name: make ours again.
fn replace_template(input: &PlanInput, draft: &mut PlanBuilder) -> Option<Pin> {
    create::ensure_template(input, draft)
}

fn new_version(input: &PlanInput, id: &str, pin: &TemplatePin, because: Vec<Drift>, draft: &mut PlanBuilder) {
    let r = input.resolved;
    let version = NewVersion {
        token: create::idempotency_token(&[id, &r.fingerprint.hash, &pin.version]),
        description: r.fingerprint.to_description(),
        data: r.template_data.clone(),
    };
    draft.push_with_reasons(EksStep::PutTemplateVersion { template: id.into(), version }, because);
    draft.events.extend(create::ignored_field_events(r));
    let unused = unused_versions(input, pin);
    if !unused.is_empty() {
        draft.push(EksStep::DeleteTemplateVersions { template: id.into(), numbers: unused });
    }
}

/// Versions that nothing uses, beyond the ones to be retained.
fn unused_versions(input: &PlanInput, pin: &TemplatePin) -> Vec<i64> {
    let Some(template) = &input.observed.template else { return Vec::new() };
    // Nobody looks into a pool of others.
    if warm_pool::is_foreign(input) {
        return Vec::new();
    }
    let mut used: BTreeSet<i64> = [template.default_version, template.latest_version].into();
    used.extend(observed::version_number(pin, Some(template)));
    let remembered = input.status.template.as_ref();
    used.extend(remembered.and_then(|t| t.last_ready_version.as_ref()).and_then(|v| v.parse::<i64>().ok()));
    let warm = input.observed.warm_instances.iter().flatten().map(|w| &w.instance);
    let instances = input.observed.scaling_group.iter().flat_map(|g| &g.instances).chain(warm);
    used.extend(instances.filter_map(|i| observed::version_number(i.template.as_ref()?, Some(template))));
    let unused: Vec<_> = input.observed.versions.keys().rev().filter(|n| !used.contains(n)).copied().collect();
    unused.into_iter().skip(input.config_retention).collect()
}

fn record_version(input: &PlanInput, id: &str, number: i64, draft: &mut PlanBuilder) {
    let r = input.resolved;
    let old = input.status.template.clone().unwrap_or_default();
    let version = Some(number.to_string());
    let mut new = old.clone();
    (new.id, new.version) = (Some(id.to_owned()), version.clone());
    let own = input.observed.versions.get(&number).and_then(|v| v.fingerprint.as_ref());
    match own {
        Some(print) => new.hash = Some(print.hash.clone()),
        None => {
            new.hash = Some(r.fingerprint.hash.clone());
            new.adopted_hash = Some(r.fingerprint.hash.clone());
            new.adopted_version = version.clone();
        }
    }
    draft.status_update.fields.insert("latestTemplateVersion".into(), json!(version));
    if new != old && own.is_none() {
        adopt::adopt_group(input, &adopt::AdoptionSource::from_version(input, number), &new, draft);
    }
    draft.status_update.fields.insert("template".into(), json!(new));
}
