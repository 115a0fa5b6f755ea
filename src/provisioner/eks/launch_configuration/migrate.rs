//! From a launch configuration to a launch template, and what is left of configurations then.

use serde_json::json;

use super::{derived, differences, key, of, recorded};
use crate::aws::ScalingGroup;
use crate::plan::{Draft, Drift, ObjectStep, Told};
use crate::plan::{EksStep, Pin};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::{adopt, create};

/// Keeps the configuration, or makes the template that takes its place and says what to pin.
pub fn template(input: &Input, group: &ScalingGroup, draft: &mut Draft) -> Option<Pin> {
    let name = group.launch_configuration.as_deref().unwrap_or_default();
    let because = differences(input.resolved, input.state, input.status, name);
    if because.is_empty() {
        remember(input, name, draft);
        return None;
    }
    let steps = draft.steps.len();
    let pin = create::template(input, draft)?;
    if let Some(made) = draft.steps.get_mut(steps) {
        made.because = because;
    }
    draft.events.push(Told {
        warning: false,
        reason: "LaunchConfigurationReplaced".into(),
        message: format!(
            "{} goes over from the launch configuration {name} to the launch template {}; its nodes are replaced as the strategy allows",
            group.name, input.resolved.names.template
        ),
    });
    Some(pin)
}

/// First sight: what was found is up to date, and its name stands where a version's number stands.
fn remember(input: &Input, name: &str, draft: &mut Draft) {
    let hash = Some(input.resolved.fingerprint.hash.clone());
    let old = input.status.template.clone().unwrap_or_default();
    let mut new = old.clone();
    new.id = None;
    (new.version, new.hash) = (Some(name.to_owned()), hash);
    (new.adopted_version, new.adopted_hash) = (Some(name.to_owned()), Some(key(input.resolved)));
    if new != old {
        adopt::group(input, &adopt::Found::configuration(input, name), &new, draft);
    }
    draft.facts.status.insert("template".into(), json!(new));
}

/// Deletes the recorded configurations that the group does not refer to and none of its instances runs.
pub fn retire(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let run = |name: &String| {
        let warm = input.state.warm.iter().flatten().map(|w| &w.instance);
        of(group) == Some(name) || group.instances.iter().chain(warm).any(|i| i.configuration.as_ref() == Some(name))
    };
    let (kept, gone): (Vec<_>, Vec<_>) = recorded(input).into_iter().partition(run);
    if gone.is_empty() {
        return;
    }
    for name in gone.into_iter().filter(|name| derived(&group.name, name)) {
        draft.because(
            EksStep::DeleteConfiguration { configuration: name.clone() },
            vec![Drift::new("launch configuration", &name, "")],
        );
    }
    draft.step(ObjectStep::Record { status: json!({ "managed": { "configurations": kept } }) });
}
