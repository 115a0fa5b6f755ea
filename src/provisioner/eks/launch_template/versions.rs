//! The group's launch template: the version it is pinned to, a new one, and those that nothing uses any more.

use std::collections::BTreeSet;

use serde_json::json;

use crate::aws::{NewVersion, ScalingGroup, ScalingGroupChange, TemplatePin};
use crate::plan::{Draft, Drift};
use crate::plan::{EksStep, Pin};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::observed;
use crate::provisioner::eks::rotation::outdated;
use crate::provisioner::eks::rotation::outdated::Pinned;
use crate::provisioner::eks::{adopt, create, launch_configuration, warm_pool};

/// Compares the pinned version with what is wanted, and answers what the group shall be pinned to, if to anything else.
pub fn template(input: &Input, group: &ScalingGroup, draft: &mut Draft) -> Option<Pin> {
    let r = input.resolved;
    let Some(pin) = &group.template else { return launch_configuration::migrate::template(input, group, draft) };
    let id = pin.id.clone();
    if input.state.template.as_ref().is_some_and(|t| !t.id.eq(&id)) || input.state.template.is_none() {
        return replace_template(input, draft);
    }
    match outdated::pinned(r, input.state, input.status, pin) {
        Pinned::Current { number, floating } => {
            remember(input, &id, number, draft);
            floating.then_some(Pin::Version { template: id, number })
        }
        Pinned::Repin { number, because } => {
            draft.facts.status.insert("latestTemplateVersion".into(), json!(number.to_string()));
            draft.because(
                EksStep::UpdateGroup {
                    group: group.name.clone(),
                    change: ScalingGroupChange::default(),
                    pin: Some(Pin::Version { template: id, number }),
                },
                because,
            );
            None
        }
        Pinned::New { because } => {
            new_version(input, &id, pin, because, draft);
            Some(Pin::Made { hash: r.fingerprint.hash.clone() })
        }
    }
}

/// The group refers to a template that is gone or is not ours by name: make ours again.
fn replace_template(input: &Input, draft: &mut Draft) -> Option<Pin> {
    create::template(input, draft)
}

fn new_version(input: &Input, id: &str, pin: &TemplatePin, because: Vec<Drift>, draft: &mut Draft) {
    let r = input.resolved;
    let version = NewVersion {
        token: create::token(&[id, &r.fingerprint.hash, &pin.version]),
        description: r.fingerprint.line(),
        data: r.data.clone(),
    };
    draft.because(EksStep::PutTemplateVersion { template: id.into(), version }, because);
    draft.events.extend(create::ignored(r));
    let unused = superfluous(input, pin);
    if !unused.is_empty() {
        draft.step(EksStep::DeleteTemplateVersions { template: id.into(), numbers: unused });
    }
}

/// Versions that nothing uses, beyond the ones to be retained.
fn superfluous(input: &Input, pin: &TemplatePin) -> Vec<i64> {
    let Some(template) = &input.state.template else { return Vec::new() };
    // Nobody looks into a pool of others.
    if warm_pool::of_others(input) {
        return Vec::new();
    }
    let mut used: BTreeSet<i64> = [template.default_version, template.latest_version].into();
    used.extend(observed::number(pin, Some(template)));
    let remembered = input.status.template.as_ref();
    used.extend(remembered.and_then(|t| t.last_ready_version.as_ref()).and_then(|v| v.parse::<i64>().ok()));
    let warm = input.state.warm.iter().flatten().map(|w| &w.instance);
    let instances = input.state.group.iter().flat_map(|g| &g.instances).chain(warm);
    used.extend(instances.filter_map(|i| observed::number(i.template.as_ref()?, Some(template))));
    let unused: Vec<_> = input.state.versions.keys().rev().filter(|n| !used.contains(n)).copied().collect();
    unused.into_iter().skip(input.retention).collect()
}

fn remember(input: &Input, id: &str, number: i64, draft: &mut Draft) {
    let r = input.resolved;
    let old = input.status.template.clone().unwrap_or_default();
    let version = Some(number.to_string());
    let mut new = old.clone();
    (new.id, new.version) = (Some(id.to_owned()), version.clone());
    let own = input.state.versions.get(&number).and_then(|v| v.fingerprint.as_ref());
    match own {
        Some(print) => new.hash = Some(print.hash.clone()),
        None => {
            new.hash = Some(r.fingerprint.hash.clone());
            new.adopted_hash = Some(r.fingerprint.hash.clone());
            new.adopted_version = version.clone();
        }
    }
    draft.facts.status.insert("latestTemplateVersion".into(), json!(version));
    if new != old && own.is_none() {
        adopt::group(input, &adopt::Found::version(input, number), &new, draft);
    }
    draft.facts.status.insert("template".into(), json!(new));
}
