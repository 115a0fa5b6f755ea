//! From a launch configuration to a launch template, and what is left of configurations then.

use serde_json::json;

use super::{adoption_key, configuration_drift, current_name, has_derived_name, recorded_configurations};
use crate::aws::ScalingGroup;
use crate::plan::{Drift, Event, ObjectStep, PlanBuilder};
use crate::plan::{EksStep, Pin};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::{adopt, create};

/// Keeps the configuration, or makes the template that takes its place and says what to pin.
pub fn keep_or_migrate(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) -> Option<Pin> {
    let name = group.launch_configuration.as_deref().unwrap_or_default();
    let because = configuration_drift(input.resolved, input.observed, input.status, name);
    if because.is_empty() {
        record_adoption(input, name, draft);
        return None;
    }
    let steps = draft.steps.len();
    let pin = create::ensure_template(input, draft)?;
    if let Some(made) = draft.steps.get_mut(steps) {
        made.reasons = because;
    }
    draft.events.push(Event {
        warning: false,
        reason: "LaunchConfigurationReplaced".into(),
        message: format!(
            "{} migrates from the launch configuration {name} to the launch template {}; the upgrade strategy replaces its nodes",
            group.name, input.resolved.names.template
        ),
    });
    Some(pin)
}

/// First sight: what was found is up to date, and its name stands where a version's number stands.
fn record_adoption(input: &PlanInput, name: &str, draft: &mut PlanBuilder) {
    let hash = Some(input.resolved.fingerprint.hash.clone());
    let old = input.status.template.clone().unwrap_or_default();
    let mut new = old.clone();
    new.id = None;
    (new.version, new.hash) = (Some(name.to_owned()), hash);
    (new.adopted_version, new.adopted_hash) = (Some(name.to_owned()), Some(adoption_key(input.resolved)));
    if new != old {
        adopt::adopt_group(input, &adopt::AdoptionSource::from_launch_configuration(input, name), &new, draft);
    }
    draft.status_update.fields.insert("template".into(), json!(new));
}

/// Deletes the recorded configurations that the group does not refer to and none of its instances runs.
pub fn delete_unused(input: &PlanInput, group: &ScalingGroup, draft: &mut PlanBuilder) {
    let run = |name: &String| {
        let warm = input.observed.warm_instances.iter().flatten().map(|w| &w.instance);
        current_name(group) == Some(name)
            || group.instances.iter().chain(warm).any(|i| i.launch_configuration.as_ref() == Some(name))
    };
    let (kept, gone): (Vec<_>, Vec<_>) = recorded_configurations(input).into_iter().partition(run);
    if gone.is_empty() {
        return;
    }
    for name in gone.into_iter().filter(|name| has_derived_name(&group.name, name)) {
        draft.push_with_reasons(
            EksStep::DeleteConfiguration { configuration: name.clone() },
            vec![Drift::new("launch configuration", &name, "")],
        );
    }
    draft.push(ObjectStep::Record { status: json!({ "managed": { "configurations": kept } }) });
}
