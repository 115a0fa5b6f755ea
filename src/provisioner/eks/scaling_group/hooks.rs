//! Lifecycle hooks of the scaling group.
//!
//! PutLifecycleHook changes a hook in place, but keeps the optional fields that the call leaves out. A hook that loses one
//! is therefore deleted and created again.

use crate::api::ManagedAttributes;
use crate::aws::{LifecycleHook, ScalingGroup};
use crate::plan::{Drift, EksStep, PlanBuilder};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_template::drift::{drops_fields, hook_drift};

/// Sets hooks that differ, and deletes those that only the controller had set. AWS allows 50 hooks, so room for new ones
/// is made first.
pub(crate) fn plan_hooks(
    input: &PlanInput,
    group: &ScalingGroup,
    managed: &ManagedAttributes,
    builder: &mut PlanBuilder,
) {
    let Some(present) = &input.observed.lifecycle_hooks else { return };
    let desired = &input.resolved.desired.lifecycle_hooks;
    let delete = |hook: &LifecycleHook| EksStep::DeleteHook { group: group.name.clone(), hook: hook.name.clone() };
    let is_desired = |hook: &LifecycleHook| desired.iter().any(|d| d.name == hook.name);
    for hook in present.iter().filter(|hook| managed.hooks.contains(&hook.name) && !is_desired(hook)) {
        let reasons = vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "present", "")];
        builder.push_with_reasons(delete(hook), reasons);
    }
    for hook in desired {
        let found = present.iter().find(|h| h.name == hook.name);
        let reasons = match found {
            None => vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "", "present")],
            Some(found) => hook_drift(found, hook),
        };
        if found.is_some_and(|found| drops_fields(found, hook)) {
            builder.push(delete(hook));
        }
        if !reasons.is_empty() {
            builder.push_with_reasons(EksStep::PutHook { group: group.name.clone(), hook: hook.clone() }, reasons);
        }
    }
}
