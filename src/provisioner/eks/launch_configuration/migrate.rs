//! Migrates a scaling group from a launch configuration to a launch template, and deletes unused configurations.

use serde_json::json;

use super::{adoption_key, configuration_drift, current_name, has_derived_name, recorded_configurations};
use crate::aws::ScalingGroup;
use crate::plan::EksStep;
use crate::plan::{Drift, Event, EventReason, PlanBuilder};
use crate::provisioner::eks::adopt;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_template::create::{self, TemplateContribution};

/// Keeps the launch configuration, or creates the launch template that replaces it.
pub(crate) fn keep_or_migrate(
    input: &PlanInput,
    group: &ScalingGroup,
    builder: &mut PlanBuilder,
) -> TemplateContribution {
    let name = group.launch_configuration.as_deref().unwrap_or_default();
    let reasons = configuration_drift(input.resolved, input.observed, input.status, name);
    if reasons.is_empty() {
        record_adoption(input, name, builder);
        return TemplateContribution::default();
    }
    let Some(mut version) = create::ensure_version(input, builder) else { return TemplateContribution::default() };
    if let Some(step) = &mut version.step {
        step.reasons = reasons;
    }
    builder.events.push(Event::normal(
        EventReason::LaunchConfigurationReplaced,
        format!(
            "{} migrates from the launch configuration {name} to the launch template {}; the upgrade strategy replaces its nodes",
            group.name, input.resolved.names.template
        ),
    ));
    version.into()
}

/// Adopts the configuration at its first observation. It counts as up to date, and the status records its name where
/// it otherwise records a version number.
fn record_adoption(input: &PlanInput, name: &str, builder: &mut PlanBuilder) {
    let hash = Some(input.resolved.fingerprint.hash.clone());
    let old = input.status.template.clone().unwrap_or_default();
    let mut new = old.clone();
    new.id = None;
    (new.version, new.hash) = (Some(name.to_owned()), hash);
    (new.adopted_version, new.adopted_hash) = (Some(name.to_owned()), Some(adoption_key(input.resolved)));
    if new != old {
        adopt::adopt_group(input, &adopt::AdoptionSource::from_launch_configuration(input, name), &new, builder);
    }
    builder.set_status("template", new);
}

/// Deletes the recorded configurations that neither the group nor any of its instances uses.
pub(crate) fn delete_unused(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
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
        builder.push_with_reasons(
            EksStep::DeleteConfiguration { configuration: name.clone() },
            vec![Drift::new("launch configuration", &name, "")],
        );
    }
    builder.record_after_steps(json!({ "managed": { "configurations": kept } }));
}
